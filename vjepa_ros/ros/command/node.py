# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What lifecycle nodes between a controller and the base of a robot do alike."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import rclpy.clock
from geometry_msgs.msg import Twist, TwistStamped
from rclpy.clock import ClockType
from rclpy.lifecycle import LifecycleState, TransitionCallbackReturn

from vjepa_ros.guard.types import STILL, Motion
from vjepa_ros.ros.command.clock import CommandClock
from vjepa_ros.ros.command.inputs import CommandInputs
from vjepa_ros.ros.command.twist import motion_of, twist_of
from vjepa_ros.ros.command.wiring import CLOUD, wiring_problems
from vjepa_ros.ros.common.declared_parameters import Declared
from vjepa_ros.ros.common.endpoints import advertise, deliver_last_zero, subscribe
from vjepa_ros.ros.common.lifecycle import FAILURE, SUCCESS, ManagedNode, transition
from vjepa_ros.ros.common.process import settle
from vjepa_ros.ros.common.state_publisher import Teller


class CommandNode(ManagedNode):
    """Subscribes ``cmd_vel_in``, publishes ``cmd_vel_out``, ``~/state`` and ``/diagnostics``.

    While it is active it decides at every command, at news of its inputs and on a timer. A
    subclass sets `params` and `teller`, calls `begin`, and implements the abstract methods.
    Its configuration has ``stamped`` (the type of commands) and ``rate`` [Hz].
    """

    FLOOD_S = 0.005          # what comes faster than this is looked at by the timer

    params: Declared
    teller: Teller

    def __init__(self, node_name: str, **kwargs: object) -> None:
        super().__init__(node_name, **kwargs)
        self.config: Any = None
        self.decided: Any = None                 # last
        self._inputs: CommandInputs | None = None
        self._command: Twist | None = None       # the newest, for what nobody judges
        self._frame_id = ''                      # of it
        self._out: Any = None
        self._sent: Motion | None = None
        self._acted_s = -math.inf                # on what came
        self._stands = False                     # the simulated clock
        self.configured, self._active = ExitStack(), ExitStack()     # what is to be undone
        self._steady = rclpy.clock.Clock(clock_type=ClockType.STEADY_TIME)
        self._time = CommandClock(self, self._jumped)

    def begin(self) -> None:
        """Start to report, and by itself where that is wanted."""
        self.create_timer(1.0, self._on_report, clock=self._steady)
        if self.params.get('autostart'):
            self.start_alone(self._steady)

    # -- what is different -----------------------------------------------------------------

    @abstractmethod
    def prepare(self, config: Any) -> str:
        """Make what decides, on configure; returns what it goes by, for the log.

        What is put onto `self.configured` is done on release.
        """

    @abstractmethod
    def listen(self) -> CommandInputs:
        """What subscribes to everything but commands, still closed; no command is known yet."""

    @abstractmethod
    def forget(self, now_s: float) -> None:
        """All that came before counts no more."""

    @abstractmethod
    def commanded(self, motion: Motion, now_s: float) -> None:
        """Take a command, also one that is no number."""

    @abstractmethod
    def act(self, news: bool) -> None:
        """Decide, and `send`; `news` says whether something has come since.

        The robot stands while there is a `callback_failure`: what is known may be incomplete.
        """

    @abstractmethod
    def apply(self, config: Any) -> Any:
        """Take the live part of a new configuration; what then holds."""

    @abstractmethod
    def topics(self, config: Any) -> Mapping[str, str]:
        """Topics and their types, ``cmd_vel_in`` and ``cmd_vel_out`` among them."""

    # -- lifecycle -------------------------------------------------------------------------

    @transition(undo='release', on_failure=FAILURE)
    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Read the parameters and create the outputs."""
        config = self.params.read()
        taken = {self.resolve_topic_name(name): name for name, kind in self.topics(config).items()
                 if kind != CLOUD and name != 'cmd_vel_out'}
        output = self.resolve_topic_name('cmd_vel_out')
        if output in taken:
            raise ValueError(f'{taken[output]} and cmd_vel_out are both {output}: cmd_vel_out '
                             'must be a topic of its own, remap it')
        self.configured.callback(self._unconfigure)
        self.teller.renew()
        words = self.prepare(config)
        self._out = self.create_output(TwistStamped if config.stamped else Twist, 'cmd_vel_out')
        self.config = config
        self.get_logger().info(f'configured: {words}')
        return super().on_configure(state)

    def create_output(self, kind: type, topic: str) -> Any:
        """A publisher of an active node, until release."""
        publisher = advertise(self, kind, topic)
        self.configured.callback(self.destroy_lifecycle_publisher, publisher)
        return publisher

    def _unconfigure(self) -> None:
        self.config = self._out = None

    @transition(undo='undo_activate', on_failure=FAILURE)
    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Subscribe and begin to let commands through."""
        answer = super().on_activate(state)
        if answer == SUCCESS:
            self.forget(self.now_s())            # what was known before is old
            self._time.start()
            self._stands = False
            self._active.callback(self._deactivate)
            self._inputs = self.listen()
            self._active.callback(self._inputs.close)
            self._inputs.open()
            commands = subscribe(self, TwistStamped if self.config.stamped else Twist,
                                 'cmd_vel_in', self._on_command, reliable=True)
            self._active.callback(self.destroy_subscription, commands)
            timer = self.create_timer(1.0 / self.config.rate, self._on_tick, clock=self._steady)
            self._active.callback(self.destroy_timer, timer)
            self._active.callback(self._end_motion)
            settle()            # now, before anything drives, rather than while a stop is due
            self.get_logger().info('active')
        return answer

    def _end_motion(self) -> None:
        """Send the last zero of an activation, which the base has on return."""
        self._say_stop()
        deliver_last_zero(self, self._out)

    def _say_stop(self) -> None:
        if self._sent not in (None, STILL):
            self._publish(STILL)
            self._sent = STILL

    def on_failed_callback(self) -> None:
        """Stop the robot at once; `act` holds it until callbacks fail no more."""
        self._say_stop()

    def _deactivate(self) -> None:
        self._inputs = self._sent = self._command = self.decided = None

    def halt(self) -> None:
        """Stop the robot and listen no more (safe in every state)."""
        self._active.close()                     # all of it, whatever one part raises

    def release(self) -> None:
        """Release everything that configure made (safe in every state)."""
        with self.configured:
            self.halt()

    # -- commands --------------------------------------------------------------------------

    def now_s(self) -> float:
        """Time, on the clock that everything is judged by [s]."""
        return self._time.now_s()

    def _on_command(self, msg: Twist | TwistStamped) -> None:
        if self.config.stamped:
            self._command, self._frame_id = msg.twist, msg.header.frame_id
        else:
            self._command = msg
        motion = motion_of(self._command)
        self.commanded(motion, self.now_s())
        # Less is never late, nor is what is no number, which stops.
        if self._sent not in (None, STILL) and (motion == STILL or not (
                motion.finite and _speed(motion) >= _speed(self._sent))):
            self.act(True)
        else:
            self.act_unless_flooded()

    def act_unless_flooded(self) -> None:
        """Act on what has come; where much comes the timer does."""
        now = time.monotonic()
        if now - self._acted_s >= self.FLOOD_S:
            self._acted_s = now
            self.act(True)

    def _on_tick(self) -> None:
        stands = self._time.watch()
        if stands and not self._stands:
            self._jumped('the simulated clock stands')
        elif stands:                             # no age can be told: nothing seen now counts
            self.forget(self.now_s())
        self._stands = stands
        self.act(False)

    def send(self, motion: Motion | None, news: bool) -> None:
        """Publish what is decided, if it is news; None: nothing is to be said."""
        if motion is not None and (news or motion != self._sent):
            self._publish(motion)
        self._sent = motion

    def _publish(self, motion: Motion) -> None:
        twist = twist_of(motion, self._command)
        if self.config.stamped:
            msg = TwistStamped(twist=twist)
            msg.header.stamp = self.get_clock().now().to_msg()
            msg.header.frame_id = self._frame_id
            self._out.publish(msg)
        else:
            self._out.publish(twist)

    # -- clock, parameters, reports --------------------------------------------------------

    def _jumped(self, text: str) -> None:
        self.teller.jumps += 1
        if self.state == 'active':
            self.get_logger().warning(f'{text}: what was seen before counts no more')
            self.forget(self.now_s())

    def _on_changed(self, structural: bool) -> None:
        """Parameters have changed: live ones hold at once."""
        if self.config is None:
            self.params.declare_more()
            return
        try:
            self.config = self.apply(self.params.read())
        except ValueError as error:           # a set of several that was accepted one by one
            self.get_logger().error(f'parameters not applied: {error}')

    def problems(self) -> list[str]:
        """What is wrong with the topics of a configured node, one sentence each."""
        return wiring_problems(self, 'cmd_vel_out', self.topics(self.config))

    def _on_report(self) -> None:
        if self.config is not None:
            self.teller.set_problems(self.problems())
        self.teller.failed = self.callbacks_failed
        self.teller.report(self.state, self.decided, self.now_s(), self.failure)


def _speed(motion: Motion) -> float:
    return math.hypot(motion.vx, motion.vy)
