# SPDX-License-Identifier: Apache-2.0
"""The lifecycle node between controller and base: lets through what the cameras allow."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import replace

import rclpy.clock
from geometry_msgs.msg import Twist, TwistStamped
from rclpy.clock import ClockType
from rclpy.lifecycle import LifecycleState, TransitionCallbackReturn
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.qos_overriding_options import QoSOverridingOptions
from std_srvs.srv import SetBool

from vjepa_ros.guard.guard import VelocityGuard
from vjepa_ros.guard.reports import STILL, Decision, Motion
from vjepa_ros.ros.guard_clock import GuardClock
from vjepa_ros.ros.guard_frames import Frames
from vjepa_ros.ros.guard_inputs import GuardInputs, epoch_ns, odometry_message, overridable
from vjepa_ros.ros.guard_parameters import GuardParameters
from vjepa_ros.ros.guard_table import GuardConfig
from vjepa_ros.ros.guard_teller import Teller
from vjepa_ros.ros.guard_topics import wiring_problems
from vjepa_ros.ros.guard_twist import motion_of, twist_of
from vjepa_ros.ros.main import settle
from vjepa_ros.ros.managed import FAILURE, SUCCESS, ManagedNode
from vjepa_ros.ros.transitions import transition

FLOOD_S = 0.005          # commands that come faster than this are sent on by the timer


class CollisionGuard(ManagedNode):
    """Subscribes ``cmd_vel_in`` and assessments, publishes ``cmd_vel_out`` and ``~/state``."""

    def __init__(self, node_name: str = 'collision_guard', **kwargs: object) -> None:
        super().__init__(node_name, **kwargs)
        self.config: GuardConfig | None = None
        self.guard: VelocityGuard | None = None
        self._inputs: GuardInputs | None = None
        self._frames: Frames | None = None
        self._out = self._commands = self._timer = None
        self._command: Twist | None = None      # the newest, for what the guard does not change
        self._decision: Decision | None = None
        self._frame_id = ''                     # of it
        self._sent: Motion | None = None
        self._sent_s = -math.inf
        self._stands = False                    # the simulated clock
        self.teller = Teller(self)
        self.params = GuardParameters(self, self._on_changed, lambda: self.state == 'active')
        steady = rclpy.clock.Clock(clock_type=ClockType.STEADY_TIME)
        self._steady = steady
        self.create_timer(1.0, self._on_report, clock=steady)
        self.create_service(SetBool, '~/override', self._on_override)
        self._time = GuardClock(self, self._jumped)
        if self.params.get('autostart'):
            self.start_alone(steady)

    def _now_s(self) -> float:
        return self._time.now_s()

    # -- lifecycle -------------------------------------------------------------------------

    @transition(undo='release', on_failure=FAILURE)
    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Read the parameters and create the output."""
        config = self.params.read()
        if self.resolve_topic_name('cmd_vel_in') == self.resolve_topic_name('cmd_vel_out'):
            raise ValueError('cmd_vel_in and cmd_vel_out are the same topic; remap one of them')
        if config.odometry:
            odometry_message()                  # fails now, with the remedy, rather than later
        if any(source.from_tf for source in config.sources):
            self._frames = Frames(self, config.base_frame)
        self.guard = VelocityGuard(config.settings, {s.name: s.yaw for s in config.sources},
                                   {r.name: r.yaw for r in config.ranges})
        self.config = config
        self._out = self.create_lifecycle_publisher(
            TwistStamped if config.stamped else Twist, 'cmd_vel_out',
            QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE),
            qos_overriding_options=QoSOverridingOptions.with_default_policies())
        self.teller.renew()
        listened = ', '.join(f'{s.name} ({s.topic}, {math.degrees(s.yaw):.0f} deg)'
                             for s in config.sources)
        self.get_logger().info(f'configured: guards against {listened or "ranges alone"}')
        if self._frames is None:                # else once tf has told where cameras look
            self.teller.tell_uncovered(self.guard)
        return super().on_configure(state)

    @transition(undo='undo_activate', on_failure=FAILURE)
    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Subscribe and begin to let commands through."""
        answer = super().on_activate(state)
        if answer == SUCCESS:
            now = self._now_s()
            self.guard.clock_jumped(now)        # what was known before is old
            self.guard.no_command()
            self._time.start()
            self._stands = False
            self._inputs = GuardInputs(self, self.config, self.guard, self._now_s, self._on_news,
                                       self._frames)
            self._commands = self.create_subscription(
                TwistStamped if self.config.stamped else Twist, 'cmd_vel_in', self._on_command,
                QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE),
                qos_overriding_options=overridable())
            self._timer = self.create_timer(1.0 / self.config.rate, self._on_tick,
                                            clock=self._steady)
            settle()            # now, before anything drives, rather than while a stop is due
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
            if self._sent is not None and self._sent != STILL:
                parts.callback(self._publish, STILL)
            self._inputs = self._commands = self._timer = None
        self._sent = self._command = self._decision = None

    def release(self) -> None:
        """Release everything that configure made (safe in every state)."""
        with ExitStack() as parts:   # in reverse order
            parts.callback(self._forget)
            if self._frames is not None:
                parts.callback(self._frames.close)
            if self._out is not None:
                parts.callback(self.destroy_lifecycle_publisher, self._out)
            parts.callback(self.halt)

    def _forget(self) -> None:
        self._out = self.guard = self.config = self._frames = None

    # -- commands --------------------------------------------------------------------------

    def _on_command(self, msg: Twist | TwistStamped) -> None:
        if self.config.stamped:
            self._command, self._frame_id = msg.twist, msg.header.frame_id
        else:
            self._command = msg
        now = self._now_s()
        self.guard.command(motion_of(self._command), now)
        if now - self._sent_s >= FLOOD_S or now < self._sent_s:
            self._act(now, True)

    def _on_news(self, arrival_ns: int) -> None:
        self._act(self._now_s(), True)
        if arrival_ns:
            self.teller.latency.add((epoch_ns() - arrival_ns) / 1e6)

    def _on_tick(self) -> None:
        now = self._now_s()
        stands = self._time.watch()
        if stands and not self._stands:
            self._jumped('the simulated clock stands')
        elif stands:                            # no age can be told: nothing seen now counts
            self.guard.clock_jumped(now)
        self._stands = stands
        self._act(now, False)
        self.teller.refused = self._inputs.refused
        self.teller.tell(now, self.state, self._decision, self.guard)

    def _act(self, now: float, news: bool) -> None:
        """Decide, and publish what is new."""
        decision = self.guard.decide(now)
        if decision.motion is not None and (news or decision.motion != self._sent):
            self._publish(decision.motion)
            self._sent_s = now
        self._sent = decision.motion
        self._decision = decision
        self.teller.reaction.add(1e3 * decision.reaction_s)

    def _publish(self, motion: Motion) -> None:
        twist = twist_of(motion, self._command)
        if self.config.stamped:
            msg = TwistStamped(twist=twist)
            msg.header.stamp = self.get_clock().now().to_msg()
            msg.header.frame_id = self._frame_id
            self._out.publish(msg)
        else:
            self._out.publish(twist)

    # -- clock, override, reports ----------------------------------------------------------

    def _jumped(self, text: str) -> None:
        self.teller.jumps += 1
        if self.guard is not None and self.state == 'active':
            self.get_logger().warning(f'{text}: what was seen before counts no more')
            self.guard.clock_jumped(self._now_s())

    def _on_override(self, request: SetBool.Request, response: SetBool.Response
                     ) -> SetBool.Response:
        if self.state != 'active':
            response.success = False
            response.message = f'the guard is {self.state}: there is nothing to override'
            return response
        self.guard.override(request.data, self._now_s())
        response.success = True
        if request.data:
            response.message = (f'OVERRIDE: nothing is guarded for '
                                f'{self.config.settings.override_timeout:g} s')
            self.get_logger().warning(response.message)
        else:
            response.message = 'override has ended: the guard acts again'
            self.get_logger().info(response.message)
        return response

    def _on_changed(self, structural: bool) -> None:
        """Parameters have changed: live ones hold at once."""
        if self.guard is None:
            self.params.declare_more()
            return
        try:
            settings = self.params.read().settings
        except ValueError as error:
            self.get_logger().error(f'parameters not applied: {error}')
            return
        self.guard.settings = settings
        self.config = replace(self.config, settings=settings)

    def _on_report(self) -> None:
        if self.config is not None:
            kind = 'geometry_msgs/msg/' + ('TwistStamped' if self.config.stamped else 'Twist')
            command, output = map(self.resolve_topic_name, ('cmd_vel_in', 'cmd_vel_out'))
            wanted = {command: kind, output: kind,
                      **{self.resolve_topic_name(source.topic): 'sensor_msgs/msg/PointCloud2'
                         for source in self.config.sources}}
            self.teller.set_problems(wiring_problems(self, output, wanted))
        if self.guard is not None and (self._frames is None or self.state == 'active'):
            self.teller.tell_uncovered(self.guard)
        self.teller.report(self.state, self._decision, self.guard, self._now_s(),
                           self.last_failure)
