# SPDX-License-Identifier: Apache-2.0
"""The lifecycle node between controller and guard: the safest twist nearest the commanded one."""

from __future__ import annotations

import math
import time
from contextlib import ExitStack
from dataclasses import replace

import rclpy.clock
from geometry_msgs.msg import Twist as TwistMessage
from geometry_msgs.msg import TwistStamped
from rclpy.clock import ClockType
from rclpy.lifecycle import LifecycleState, TransitionCallbackReturn
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.qos_overriding_options import QoSOverridingOptions
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Header

from vjepa_ros.guard.reports import Motion
from vjepa_ros.perception.twist_config import Twist
from vjepa_ros.ros.convert import cloud
from vjepa_ros.ros.guard_clock import GuardClock
from vjepa_ros.ros.guard_inputs import odometry_message, overridable
from vjepa_ros.ros.guard_twist import motion_of, twist_of
from vjepa_ros.ros.managed import FAILURE, SUCCESS, ManagedNode
from vjepa_ros.ros.transitions import transition
from vjepa_ros.ros.twist_inputs import TwistInputs, wiring_problems
from vjepa_ros.ros.twist_parameters import TwistParameters
from vjepa_ros.ros.twist_pilot import Choice, TwistPilot
from vjepa_ros.ros.twist_table import ODOMETRY, OWN, SENT, TwistNodeConfig
from vjepa_ros.ros.twist_teller import TwistTeller

FLOOD_S = 0.01           # commands that come faster than this are sent on by the timer
WIRING_S = 0.2           # how often the speed's publisher is looked for

STILL = Twist()


class TwistPlannerNode(ManagedNode):
    """Subscribes ``cmd_vel_in``, cameras and the speed; publishes ``cmd_vel_out``.

    Publishes ``~/candidates``, ``~/state`` and ``/diagnostics``, too.
    """

    def __init__(self, node_name: str = 'twist_planner', **kwargs: object) -> None:
        super().__init__(node_name, **kwargs)
        self.config: TwistNodeConfig | None = None
        self.pilot: TwistPilot | None = None
        self._inputs: TwistInputs | None = None
        self._out = self._candidates = self._commands = self._timer = None
        self._command: TwistMessage | None = None   # the newest, for what is not judged
        self._frame_id = ''                         # of it
        self._choice: Choice | None = None
        self._sent: Twist | None = None
        self._acted_s = self._looked_s = -math.inf
        self._stands = False                        # the simulated clock
        self.teller = TwistTeller(self)
        self.params = TwistParameters(self, self._on_changed, lambda: self.state == 'active')
        self._steady = rclpy.clock.Clock(clock_type=ClockType.STEADY_TIME)
        self.create_timer(1.0, self._on_report, clock=self._steady)
        self._time = GuardClock(self, self._jumped)
        if self.params.get('autostart'):
            self.start_alone(self._steady)

    # -- lifecycle -------------------------------------------------------------------------

    @transition(undo='release', on_failure=FAILURE)
    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Read the parameters and create the outputs."""
        config = self.params.read()
        topics = ('cmd_vel_in', 'cmd_vel_out',
                  *(('cmd_vel_sent',) if config.speed_from == SENT else ()))
        resolved = [self.resolve_topic_name(topic) for topic in topics]
        if resolved[1] in (resolved[0], *resolved[2:]):
            raise ValueError(f'{", ".join(topics)} are {", ".join(resolved)}: cmd_vel_out must be '
                             'a topic of its own, remap it')
        if config.speed_from == ODOMETRY:
            odometry_message()                  # fails now, with the remedy, rather than later
        self.config = config
        self.pilot = TwistPilot(config, self._time.now_s())
        qos = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)
        policies = QoSOverridingOptions.with_default_policies()
        self._out = self.create_lifecycle_publisher(
            TwistStamped if config.stamped else TwistMessage, 'cmd_vel_out', qos,
            qos_overriding_options=policies)
        self._candidates = self.create_lifecycle_publisher(
            PointCloud2, '~/candidates', qos, qos_overriding_options=policies)
        self.teller.renew()
        listened = ', '.join(f'{s.name} ({s.topic}, {math.degrees(s.mount.yaw):.0f} deg)'
                             for s in config.sources)
        self.get_logger().info(f'configured: looks through {listened}; it plans, but does not '
                               'guard: put a collision_guard behind it')
        return super().on_configure(state)

    @transition(undo='undo_activate', on_failure=FAILURE)
    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Subscribe and begin to let commands through."""
        answer = super().on_activate(state)
        if answer == SUCCESS:
            self.pilot.reset(self._time.now_s())     # what was known before is old
            self._time.start()
            self._stands = False
            self._inputs = TwistInputs(self, self.config, self.pilot, self._time.now_s,
                                       self._on_news)
            self._commands = self.create_subscription(
                TwistStamped if self.config.stamped else TwistMessage, 'cmd_vel_in',
                self._on_command, QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE),
                qos_overriding_options=overridable())
            self._timer = self.create_timer(1.0 / self.config.rate, self._on_tick,
                                            clock=self._steady)
            self.get_logger().info('active')
        return answer

    def halt(self) -> None:
        """Stop the robot and listen no more (safe in every state)."""
        with ExitStack() as parts:   # in reverse order; all, whatever one of them raises
            if self._timer is not None:
                parts.callback(self.destroy_timer, self._timer)
            if self._commands is not None:
                parts.callback(self.destroy_subscription, self._commands)
            if self._inputs is not None:
                parts.callback(self._inputs.close)
            if self._sent not in (None, STILL):
                parts.callback(self._publish, STILL)
            self._inputs = self._commands = self._timer = None
        self._sent = self._command = self._choice = None

    def release(self) -> None:
        """Release everything that configure made (safe in every state)."""
        with ExitStack() as parts:   # in reverse order
            parts.callback(self._forget)
            for publisher in (self._out, self._candidates):
                if publisher is not None:
                    parts.callback(self.destroy_lifecycle_publisher, publisher)
            parts.callback(self.halt)

    def _forget(self) -> None:
        self._out = self._candidates = self.pilot = self.config = None

    # -- commands --------------------------------------------------------------------------

    def _on_command(self, msg: TwistMessage | TwistStamped) -> None:
        if self.config.stamped:
            self._command, self._frame_id = msg.twist, msg.header.frame_id
        else:
            self._command = msg
        now = self._time.now_s()
        motion = motion_of(self._command)
        asked = Twist(motion.vx, motion.vy, motion.omega)
        self.pilot.command(asked, now)
        if self._sent is not None and not asked.speed >= self._sent.speed:
            self._act()      # less is never late; nor what is no number, which stops
        else:
            self._act_unless_flooded()

    def _on_news(self) -> None:
        self._act_unless_flooded()

    def _act_unless_flooded(self) -> None:
        if time.monotonic() - self._acted_s >= FLOOD_S:
            self._act()

    def _on_tick(self) -> None:
        now, steady = self._time.now_s(), time.monotonic()
        stands = self._time.watch()
        if stands and not self._stands:
            self._jumped('the simulated clock stands')
        elif stands:                        # no age can be told: nothing seen now counts
            self.pilot.reset(now)
        self._stands = stands
        if steady - self._looked_s >= WIRING_S:
            self._looked_s = steady
            self._inputs.watch()
        self._act()

    def _act(self) -> None:
        """Choose, and publish."""
        began = time.perf_counter()
        choice = self.pilot.decide(self._time.now_s())
        self.teller.took_ms = 1e3 * (time.perf_counter() - began)
        self._choice = choice
        if choice.twist is not None:
            self._publish(choice.twist)
            if self.config.speed_from == OWN:
                self.pilot.moves(choice.twist, self._time.now_s())
        self._sent = choice.twist
        plan = choice.plan
        if plan is not None and self._candidates.get_subscription_count():
            header = Header(stamp=self.get_clock().now().to_msg(),
                            frame_id=self.config.base_frame)
            self._candidates.publish(cloud(header, plan.candidates))
        self.teller.counts['refused'] = self._inputs.refused
        self.teller.tell(self.state, choice, self.pilot, self._time.now_s())
        self._acted_s = time.monotonic()

    def _publish(self, twist: Twist) -> None:
        message = twist_of(Motion(*twist), self._command)
        if self.config.stamped:
            stamped = TwistStamped(twist=message)
            stamped.header.stamp = self.get_clock().now().to_msg()
            stamped.header.frame_id = self._frame_id
            self._out.publish(stamped)
        else:
            self._out.publish(message)

    # -- clock, parameters, reports --------------------------------------------------------

    def _jumped(self, text: str) -> None:
        self.teller.counts['clock_jumps'] += 1
        if self.pilot is not None and self.state == 'active':
            self.get_logger().warning(f'{text}: what was seen before counts no more')
            self.pilot.reset(self._time.now_s())

    def _on_changed(self, structural: bool) -> None:
        """Parameters have changed: live ones hold at once."""
        if self.pilot is None:
            self.params.declare_more()
            return
        try:
            fresh = self.params.read()
        except ValueError as error:           # a set of several that was accepted one by one
            self.get_logger().error(f'parameters not applied: {error}')
            return
        old = self.config
        self.config = replace(old, twist=fresh.twist, watch=fresh.watch,
                              speed_timeout=fresh.speed_timeout, on_fault=fresh.on_fault)
        self.pilot.configure(self.config)

    def _on_report(self) -> None:
        if self.config is not None:
            self.teller.set_problems(wiring_problems(self, self.config))
        self.teller.report(self.state, self._choice, self.pilot, self._time.now_s(),
                           self.last_failure)
