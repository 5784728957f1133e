# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Base class of the lifecycle nodes between a controller and the base of a robot."""

from __future__ import annotations

import math
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

from geometry_msgs.msg import Twist, TwistStamped
from rclpy.clock import JumpThreshold
from rclpy.duration import Duration
from rclpy.lifecycle import LifecycleState, TransitionCallbackReturn
from rclpy.node import Node

from vjepa_ros.guard.types import Motion, STILL
from vjepa_ros.parameter import Schema
from vjepa_ros.ros import read
from vjepa_ros.ros.command.peers import Endpoints, topic_problems, twist_class
from vjepa_ros.ros.command.state_publisher import Description, StatePublisher
from vjepa_ros.ros.common.declared_parameters import Declared
from vjepa_ros.ros.common.endpoints import (
    SMALL,
    Transforms,
    advertise,
    bounded,
    deliver_last_zero,
    subscribe,
)
from vjepa_ros.ros.common.node import FAILURE, ManagedNode, SUCCESS, transition
from vjepa_ros.ros.common.process import settle

NS = 1e9
LOG_EVERY_S = 5.0
MOMENT_S = 0.02          # between two looks whether zeros have ended
STEP_S = 0.1             # change of the offset to the steady clock that counts as a jump
AHEAD_S = 2.0            # forward step of a simulated clock that counts as a jump
STANDS_S = 2.0           # real time without progress after which a simulated clock stands
WAKE_S = 0.01            # period of the thread
LATE_S = 0.02            # time after its end that a decision has to be renewed by who decides
ZEROS_S = 0.3            # for which zeros follow the first one: it may be lost, or a base be new


class CommandClock:
    """Steady or simulated time; calls `jumped` when stamps from before mean other times now."""

    def __init__(self, node: Node, jumped: Callable[[str], None]) -> None:
        self._clock, self._jumped = node.get_clock(), jumped
        self._handle = self._clock.create_jump_callback(
            JumpThreshold(min_forward=Duration(seconds=AHEAD_S),
                          min_backward=Duration(nanoseconds=-1), on_clock_change=True),
            post_callback=lambda jump: jumped('time jumped'))
        self.start()

    def start(self) -> None:
        self._offset_s = math.nan         # of the ROS clock to the steady one
        self._newest_s = math.nan         # simulated time
        self._since_s = math.nan          # steady time at which that arrived
        self.stands = False               # the simulated clock: ages are unknown

    @property
    def _simulated(self) -> bool:
        # Of ROSClock.
        return self._clock.ros_time_is_active  # pyright: ignore[reportAttributeAccessIssue]

    def ros_s(self) -> float:
        return self._clock.now().nanoseconds / NS

    def now_s(self) -> float:
        return self.ros_s() if self._simulated else time.monotonic()

    def watch(self) -> None:
        """Detect a clock that was set, and simulated time that stands; call it often."""
        steady = time.monotonic()
        if self._simulated:                # rclpy reports its jumps
            now = self.ros_s()
            if now != self._newest_s:
                self._newest_s, self._since_s = now, steady
            stood, self.stands = self.stands, steady - self._since_s > STANDS_S
            if self.stands and not stood:
                self._jumped('the simulated clock stands')
            return
        offset, self.stands = self.ros_s() - steady, False
        if abs(offset - self._offset_s) > STEP_S:
            self._jumped(f'the clock was set by {offset - self._offset_s:+.2f} s')
        self._offset_s = offset


class CommandOutput:
    """Publishes decisions, each of which holds until a time, and zeros once motion ends.

    A decision in motion that nobody renews in time ends: a callback may hold up the thread that
    decides. All motions are published under one lock, so none that is out of date follows a zero.
    """

    def __init__(self, publish: Callable[[Motion], None], failed: Callable[[Exception], object],
                 period_s: float) -> None:
        self._publish, self._failed, self._period_s = publish, failed, period_s
        self._lock = threading.RLock()
        self._holds_until_s = math.inf           # steady times
        self._published_s = self._zeros_until_s = -math.inf
        self._closed = threading.Event()
        self.sent: Motion | None = None      # the last motion; None: nothing is to be sent
        self._thread = threading.Thread(target=self._watch, name='command output', daemon=True)
        self._thread.start()

    def send(self, motion: Motion | None, news: bool, holds_until_s: float) -> None:
        """Publish a decision that holds until a steady time; without news only a changed one."""
        with self._lock:
            if motion is not None and time.monotonic() > holds_until_s + LATE_S:
                motion = STILL
            if motion is not None and (news or motion != self.sent):
                self._put(motion)
            self.sent, self._holds_until_s = motion, holds_until_s

    def stop(self) -> None:
        """Send the zeros that end motion, if there is any."""
        with self._lock:
            if self.sent not in (None, STILL):
                self._put(STILL)
                self.sent = STILL

    @property
    def ending(self) -> bool:
        """Whether zeros still follow the first one."""
        return time.monotonic() < self._zeros_until_s

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _put(self, motion: Motion) -> None:
        now = time.monotonic()
        if motion != STILL:
            self._zeros_until_s = -math.inf
        elif self.sent not in (None, STILL):
            self._zeros_until_s = now + ZEROS_S
        self._published_s = now
        self._publish(motion)

    def _watch(self) -> None:
        while not self._closed.wait(WAKE_S):
            try:
                self._act(time.monotonic())
            except Exception as error:       # of DDS: the next zero may pass
                self._failed(error)

    def _act(self, now_s: float) -> None:
        with self._lock:
            if now_s > self._holds_until_s + LATE_S:
                self.stop()
            if self.ending and now_s - self._published_s >= self._period_s:
                self._put(STILL)


class CommandNode(ManagedNode):
    """Subscribes ``cmd_vel_in``, publishes ``cmd_vel_out``, ``~/state`` and ``/diagnostics``.

    While active it decides at every command, at new inputs and on a timer. What decides is a
    `VelocityGuard` or a `LocalDecider`.
    """

    NAME: str                # of what it is, in its state
    FLOOD_S = 0.005          # inputs at shorter intervals are left to the timer
    RATE_HZ = 50.0           # of decisions without new inputs

    def __init__(self, node_name: str, schema: Schema, **kwargs: object) -> None:
        super().__init__(node_name, **kwargs)
        self.config: Any = None                  # while it is configured
        self.decider: Any = None                 # from configure to release
        self.decided: Any = None                 # the last decision of an activation
        self.suspending = False                  # motion ends before the process is stopped
        self.clock_jumps = self.refused = 0      # and messages that could not be read
        self.transforms: Transforms | None = None        # of an activation that asks tf
        self._told_unstamped = False             # that odometry has no stamps
        self._logged_s: dict[str, float] = {}    # when a refusal was logged last, by its source
        self._told_unjudged = False
        self._frame_id = ''                      # of the newest command
        self._kind: type = Twist                 # of commands
        self._out: Any = None
        self._output: CommandOutput | None = None       # of an activation
        self._acted_s = -math.inf                # time of the last decision by new inputs
        self._beside = Endpoints()           # of the output, this node included
        self.configured, self._active = ExitStack(), ExitStack()     # what is to be undone
        self.state_publisher = StatePublisher(self)
        self._time = CommandClock(self, self._jumped)
        self.params = Declared(self, schema, self._on_changed)
        self.create_timer(1.0, self._on_report, clock=self.steady)
        if self.params.get('autostart'):
            self.start_alone()

    # -- implemented by each node ------------------------------------------------------------

    @abstractmethod
    def prepare(self, config: Any) -> str:
        """Create `decider`, add what undoes that to `configured`; return a description."""

    @abstractmethod
    def open_inputs(self, config: Any) -> None:
        """Subscribe to all but commands by `listen`."""

    @abstractmethod
    def apply(self, config: Any) -> Any:
        """Apply the live part of a new configuration; return the resulting one."""

    @abstractmethod
    def topics(self, config: Any) -> Mapping[str, str]:
        """Return topics and their types besides ``cmd_vel_in`` and ``cmd_vel_out``."""

    @abstractmethod
    def state_key(self, decided: Any) -> tuple[str, ...]:
        """Return the part of a decision whose change is published at once."""

    @abstractmethod
    def describe(self, decided: Any) -> Description:
        """Return the report on the decider; `decided` is None without a decision."""

    # -- lifecycle -------------------------------------------------------------------------

    @transition(undo='release', on_failure=FAILURE)
    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        config = self.params.read()
        output = self.resolve_topic_name('cmd_vel_out')
        if output == self.resolve_topic_name('cmd_vel_in'):
            raise ValueError(f'cmd_vel_in and cmd_vel_out are both {output}: cmd_vel_out must be '
                             'a topic of its own, remap it')
        self.configured.callback(self._unconfigure)
        self.clock_jumps = 0
        self.state_publisher.renew()
        self._kind = twist_class(config.message)
        self._out = self.create_output(self._kind, 'cmd_vel_out', config.heartbeat)
        self.get_logger().info(f'configured: {self.prepare(config)}')
        self.config = config
        return super().on_configure(state)

    def create_output(self, kind: type, topic: str, lease_s: float = 0.0) -> Any:
        """Create a publisher of an active node, destroyed on release."""
        publisher = advertise(self, kind, topic, lease_s=lease_s)
        self.configured.callback(self.destroy_lifecycle_publisher, publisher)
        return publisher

    def _unconfigure(self) -> None:
        self.config = self.decider = self._out = None

    @transition(undo='undo_activate', on_failure=FAILURE)
    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        answer = super().on_activate(state)
        if answer == SUCCESS:
            self.refused, self._told_unstamped, self._logged_s = 0, False, {}
            self.decider.clock_jumped(self.now_s())
            self._time.start()
            self._active.callback(self._deactivate)
            self._output = CommandOutput(lambda motion: self._publish(motion), self._not_sent,
                                         1.0 / self.RATE_HZ)
            self._active.callback(self._output.close)
            self.decider.restart()
            self.open_inputs(self.config)
            self.listen(self._kind, 'cmd_vel_in', self._on_command, reliable=True)
            timer = self.create_timer(1.0 / self.RATE_HZ, self._on_tick, clock=self.steady)
            self._active.callback(self.destroy_timer, timer)
            self._active.callback(self.end_motion)
            settle()            # now rather than when a stop is due
            self.get_logger().info('active')
        return answer

    def end_motion(self) -> None:
        """Send the last zeros of an activation, and wait until the base has them."""
        if self._output is not None:
            self._output.stop()
            while self._output.ending:
                self.wait_for_zeros()
        deliver_last_zero(self, self._out)

    def wait_for_zeros(self) -> None:
        time.sleep(MOMENT_S)

    def suspend(self) -> bool:
        if self._output is not None:
            self.suspending = True
            self.end_motion()
            self.suspending = False
        return True

    def on_failed_callback(self) -> None:
        """Stop the robot at once; `act` holds it while callbacks fail."""
        if self._output is not None:
            self._output.stop()

    def _not_sent(self, error: Exception) -> None:
        self.get_logger().error(f'cmd_vel_out: {error}', throttle_duration_sec=LOG_EVERY_S)

    def _deactivate(self) -> None:
        self.transforms = self._output = self.decided = None

    def halt(self) -> None:
        """Stop the robot and unsubscribe (safe in every state)."""
        self._active.close()                     # all parts, even when one raises

    def release(self) -> None:
        """Release everything that configure made (safe in every state)."""
        with self.configured:
            self.halt()

    # -- inputs ----------------------------------------------------------------------------

    def listen(self, kind: type, topic: str, callback: Callable[[Any], None], depth: int = 1,
               reliable: bool = False, most: int = SMALL,
               refused: Callable[[ValueError], None] | None = None) -> None:
        """Subscribe while active; `refused` takes the reason for a message not passed on."""
        take = bounded(kind, lambda msg, info: callback(msg),
                       refused or partial(self.refuse, topic), most)
        self._active.callback(self.destroy_subscription, subscribe(
            self, kind, topic, take, depth, reliable, raw=True))

    def ask_tf(self, base_frame: str) -> None:
        """Listen to tf while active; ImportError without its package."""
        self.transforms = Transforms(self, base_frame)
        self._active.callback(self.transforms.close)

    def age_s(self, msg: Any) -> float:
        """Return the age of the stamp of a message [s]."""
        if not read.stamp_ns(msg):
            raise ValueError('its stamp is 0, so its age is unknown; set header.stamp')
        return (self.get_clock().now().nanoseconds - read.stamp_ns(msg)) / NS

    def odometry_age_s(self, msg: Any) -> float:
        """Return the age of odometry [s]; 0 where nobody stamped it, which is told once."""
        if read.stamp_ns(msg):
            return max(0.0, self.age_s(msg))
        if not self._told_unstamped:
            self._told_unstamped = True
            self.get_logger().warning(
                'odom has the stamp 0: it counts as of its arrival; set header.stamp')
        return 0.0

    def refuse(self, what: str, error: Exception) -> str:
        """Count and log a message that could not be read; return the reason."""
        self.refused += 1
        # By source: `throttle_duration_sec` counts for the line of code, so one would hide others.
        now = time.monotonic()
        if now - self._logged_s.get(what, -math.inf) >= LOG_EVERY_S:
            self._logged_s[what] = now
            self.get_logger().error(f'{what}: message refused: {error}')
        return str(error)

    # -- commands --------------------------------------------------------------------------

    def now_s(self) -> float:
        return self._time.now_s()

    def _on_command(self, msg: Twist | TwistStamped) -> None:
        twist = msg.twist if isinstance(msg, TwistStamped) else msg
        self._frame_id = msg.header.frame_id if isinstance(msg, TwistStamped) else ''
        # Components that a robot on the ground does not have.
        unjudged = twist.linear.z, twist.angular.x, twist.angular.y
        motion = Motion(twist.linear.x, twist.linear.y, twist.angular.z)
        if not Motion(*unjudged).finite:         # it cannot be meant
            motion = Motion(math.nan, math.nan, math.nan)
        elif motion.finite and not self._told_unjudged and any(unjudged):
            self._told_unjudged = True
            self.get_logger().warning('linear.z, angular.x or angular.y of cmd_vel_in is not 0: '
                                      'nothing judges it, so 0 is sent instead')
        self.decider.command(motion, self.now_s())
        # A slower command is never delayed, nor one that is not finite, which stops.
        sent = self._output and self._output.sent
        if sent not in (None, STILL) and (motion == STILL or not (
                motion.finite and motion.speed >= sent.speed)):
            self.act(True)
        else:
            self.act_unless_flooded()

    def act_unless_flooded(self) -> None:
        """Act on new inputs, unless they come so fast that the timer does."""
        now = time.monotonic()
        if now - self._acted_s >= self.FLOOD_S:
            self._acted_s = now
            self.act(True)

    def _on_tick(self) -> None:
        self._time.watch()
        if self._time.stands:                    # nothing received counts
            self.decider.clock_jumped(self.now_s())
        self.act(False)
        # On the timer, so that it cannot delay a stop.
        self.state_publisher.publish(self.decided)

    def act(self, news: bool) -> None:
        """Decide, and publish what is new; `news` says whether there are new inputs."""
        # It stands during a `callback_failure`, when inputs may be incomplete.
        self.decider.hold_reason = self.callback_failure or self.hold_reason()
        steady_s, now_s = time.monotonic(), self.now_s()
        holds_s = self.decider.holds_until(now_s) - now_s
        self.decided = self.decider.decide(now_s)
        if self._output is not None:
            self._output.send(self.decided.motion, news, steady_s + holds_s)

    def hold_reason(self) -> str:
        """Return why the robot must stand whatever the inputs say; '' for no reason."""
        return ''

    def _publish(self, motion: Motion) -> None:
        twist = Twist()
        twist.linear.x, twist.linear.y, twist.angular.z = motion.vx, motion.vy, motion.omega
        msg = twist
        if self._kind is TwistStamped:
            msg = TwistStamped(twist=twist)
            msg.header.stamp = self.get_clock().now().to_msg()
            msg.header.frame_id = self._frame_id
        self._out.publish(msg)

    # -- clock, parameters, reports ----------------------------------------------------------

    def _jumped(self, text: str) -> None:
        self.clock_jumps += 1
        if self.state == 'active':
            self.get_logger().warning(f'{text}: everything received before is dropped')
            self.decider.clock_jumped(self.now_s())

    def _on_changed(self, structural: bool) -> None:
        if self.config is None:
            self.params.declare_more()
            return
        try:
            self.config = self.apply(self.params.read())
        except ValueError as error:           # several that were accepted one by one
            self.get_logger().error(f'parameters not applied: {error}')

    def problems(self) -> list[str]:
        """Return the problems of the topics of a configured node, one sentence each."""
        twist = f'geometry_msgs/msg/{self._kind.__name__}'
        return topic_problems(self, {'cmd_vel_in': twist, 'cmd_vel_out': twist,
                                     **self.topics(self.config)}, self._beside)

    def _on_report(self) -> None:
        self.state_publisher.report(self.decided, self.problems() if self.config else [])
