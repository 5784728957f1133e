# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The lifecycle node between controller and base: limits commands by what the cameras see."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

from nav_msgs.msg import Odometry
from rclpy.lifecycle import LifecycleState, TransitionCallbackReturn
from sensor_msgs.msg import LaserScan, PointCloud2, Range
from std_srvs.srv import SetBool

from vjepa_ros.guard.guard import OVERRIDE_S, VelocityGuard
from vjepa_ros.guard.source import SourceGuard
from vjepa_ros.guard.types import Decision, Motion, RangeReading, SourceReport
from vjepa_ros.ros import read
from vjepa_ros.ros.collision_guard.inputs import axis_yaw, range_distance, scan_distance
from vjepa_ros.ros.collision_guard.parameters import (
    BASE_FRAME,
    FROM_TF,
    GuardConfig,
    Ranger,
    SCHEMA,
    Source,
)
from vjepa_ros.ros.command.node import CommandNode
from vjepa_ros.ros.command.peers import CLOUD, Heartbeat
from vjepa_ros.ros.command.state_publisher import Description, report_values
from vjepa_ros.ros.common.diagnostics import ERROR, OK, WARN, number
from vjepa_ros.ros.common.node import FAILURE, SUCCESS, transition

LARGEST_SCAN = 1 << 20   # bytes, over 100,000 rays with intensities
MIN_TURN = 0.05          # rotation of a camera on the robot that counts [rad]
LEVEL = {'idle': OK, 'free': OK, 'slowed': OK, 'stopped': WARN, 'fault': ERROR, 'override': ERROR}


class CollisionGuard(CommandNode):
    """Subscribes ``cmd_vel_in`` and assessments, publishes ``cmd_vel_out`` and ``~/state``."""

    NAME = 'guard'

    def __init__(self, node_name: str = 'collision_guard', **kwargs: Any) -> None:
        super().__init__(node_name, SCHEMA, **kwargs)
        self._before: VelocityGuard | None = None    # the last one, for what it remembers
        self._heartbeat: Heartbeat | None = None
        self._uncovered = ''     # as told last
        self._yaw: dict[str, tuple[float, float]] = {}    # by tf: when, and the direction
        self.create_service(SetBool, '~/override', self._on_override)

    def prepare(self, config: GuardConfig) -> str:
        self.configured.callback(self._drop)
        self._uncovered = ''
        if config.heartbeat:
            self._heartbeat = Heartbeat(self, self._out, config.heartbeat, config.watchdog)
            self.configured.callback(self._heartbeat.close)
        self.decider = VelocityGuard(config.settings, {s.name: s.yaw for s in config.sources},
                                     {r.name: r.yaw for r in config.ranges})
        if self._before is not None:
            self.decider.restart(self._before)
        self._warn_uncovered(config)
        listened = ', '.join(f'{s.name} ({s.topic}, {math.degrees(s.yaw):.0f} deg)'
                             for s in config.sources)
        return f'guards by {listened or "range sensors alone"}'

    def _drop(self) -> None:
        self._before = self.decider or self._before
        self._heartbeat = None

    @transition(undo='undo_activate', on_failure=FAILURE)
    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        answer = super().on_activate(state)
        if answer == SUCCESS and self._heartbeat is not None:
            self._heartbeat.activate()
        return answer

    def topics(self, config: GuardConfig) -> dict[str, str]:
        return {source.topic: CLOUD for source in config.sources}

    def apply(self, config: GuardConfig) -> GuardConfig:
        self.decider.settings = config.settings
        return replace(self.config, settings=config.settings)

    # -- commands ----------------------------------------------------------------------------

    def hold_reason(self) -> str:
        """Return why nobody would stop the base if this node hung now."""
        return '' if self._heartbeat is None else self._heartbeat.problem()

    def wait_for_zeros(self) -> None:
        """Let a moment pass in which zeros are sent, so that the watchdog need not do it."""
        if self._heartbeat is not None:
            self._heartbeat.beat('' if self.suspending else 'deactivating')
        super().wait_for_zeros()

    def _on_override(self, request: SetBool.Request, response: SetBool.Response
                     ) -> SetBool.Response:
        response.success = self.state == 'active'
        if not response.success:
            response.message = f'the guard is {self.state}: there is nothing to override'
            return response
        self.decider.override(request.data, self.now_s())
        if request.data:
            response.message = f'OVERRIDE: nothing is guarded for {OVERRIDE_S:g} s'
            self.get_logger().warning(response.message)
        else:
            response.message = 'override has ended: the guard acts again'
            self.get_logger().info(response.message)
        return response

    # -- inputs ------------------------------------------------------------------------------

    def open_inputs(self, config: GuardConfig) -> None:
        self._yaw.clear()
        if any(source.direction == FROM_TF for source in config.sources):
            try:
                self.ask_tf(BASE_FRAME)
            except ImportError as error:
                raise RuntimeError(
                    'a source has direction: tf, which needs the package tf2_ros: install it, or '
                    'set direction: yaw and yaw') from error
        for source in config.sources:
            self.listen(PointCloud2, source.topic, partial(self._on_assessment, source),
                        reliable=True, refused=partial(self._malformed, source))
        for ranger in config.ranges:
            kind = Range if ranger.kind == 'range' else LaserScan
            self.listen(kind, ranger.name, partial(self._on_range, ranger), most=LARGEST_SCAN)
        if config.odometry:
            self.listen(Odometry, 'odom', self._on_odometry)

    def _on_assessment(self, source: Source, msg: PointCloud2) -> None:
        now = self.now_s()
        try:
            seen = read.assessment(msg, source.name)
            report = SourceReport.of(seen, now, self.age_s(msg), source.name)
            if source.direction == FROM_TF:
                self._set_direction(source, msg.header, now)
        except (ValueError, IndexError) as error:
            self._malformed(source, error)
            return
        if self.decider.observe(report):
            self.act(True)

    def _malformed(self, source: Source, error: Exception) -> None:
        reason = self.refuse(f"source '{source.name}' ({source.topic})", error)
        self.decider.sources[source.name].malformed(reason)
        self.act(True)

    def _set_direction(self, source: Source, header: Any, now_s: float) -> None:
        """Set the direction of a source from tf at the stamp of its image."""
        # tf may arrive a little after an assessment, on the executor that runs this: so this does
        # not wait, and the last direction stays valid for `source_timeout`.
        assert self.transforms is not None, 'opened for sources with from_tf'
        since, known = self._yaw.get(source.name, (-math.inf, math.nan))
        try:
            yaw = axis_yaw(*self.transforms.pose(header.frame_id, header.stamp)[1])
        except ValueError:
            if not 0 <= now_s - since <= self.decider.settings.source_timeout:
                raise
            return
        if not abs(math.remainder(yaw - known, 2 * math.pi)) <= MIN_TURN:     # or one is NaN
            self.decider.sources[source.name].turn_to(yaw)
            known = yaw
        self._yaw[source.name] = now_s, known

    def _on_range(self, ranger: Ranger, msg: Range | LaserScan) -> None:
        now, age = self.now_s(), 0.0
        try:
            age = self.age_s(msg)
            if isinstance(msg, Range):
                distance, reach = range_distance(msg), msg.max_range
            else:
                reach = msg.range_max
                distance = scan_distance(msg, ranger.yaw, ranger.mounting, ranger.half_width)
        except ValueError as error:
            self.refuse(f"range '{ranger.name}'", error)
            distance = reach = math.nan         # no reading, until the last one is too old
        self.decider.observe_range(RangeReading(ranger.name, now - age, now, distance, reach))
        self.act(True)

    def _on_odometry(self, msg: Odometry) -> None:
        twist = msg.twist.twist
        self.decider.observe_speed(Motion(twist.linear.x, twist.linear.y, twist.angular.z),
                                    self.now_s() - self.odometry_age_s(msg))

    # -- reports -----------------------------------------------------------------------------

    def state_key(self, decided: Decision) -> tuple[str, ...]:
        """Return state and lowest limit, and the name of a fault."""
        if not decided.limits:
            return decided.state, decided.reason if decided.state == 'fault' else ''
        first = decided.limits[0]
        source = self.decider.sources.get(first.source)
        if source is not None:
            slow = source.timing.problem(self.decider.settings.source_timeout)
            # It causes timeouts and releases in turn, which share one key.
            if slow and first.reason.endswith(slow):
                return 'slow', first.source
        fault = first.reason.partition(':')[0] if first.kind == 'fault' else ''
        return decided.state, first.source, first.kind, fault

    def _warn_uncovered(self, config: GuardConfig) -> None:
        """Warn of directions where no source looks, once and at each change."""
        if self.state != 'active' and FROM_TF in (one.direction for one in config.sources):
            return               # once tf has given the directions
        text = self.decider.uncovered_text()
        if text and text != self._uncovered:
            told = f"{text} (parameter 'uncovered')"
            # One call site per severity: rclpy binds the severity to the line that logs.
            if 'uncovered' in self._parameter_overrides:
                self.get_logger().info(told)       # somebody has decided
            else:
                self.get_logger().warning(told)
        self._uncovered = text

    def _on_report(self) -> None:
        if self.config is not None:
            self._warn_uncovered(self.config)
        if self.decided is not None and self.decided.state == 'override':
            self.get_logger().warning(self.decided.reason)     # as long as it lasts
        super()._on_report()

    def describe(self, decided: Decision | None) -> Description:
        guard, now_s, level = self.decider, self.now_s(), OK
        values: dict[str, object] = {}
        faults: list[str] = []
        sources = {}
        if decided is not None:
            level = max(LEVEL[decided.state], WARN if decided.blind else OK)
            values['blind'] = decided.blind
            # Those of sources are told even without motion towards them.
            found = ((name, source.fault(now_s)) for name, source in guard.sources.items())
            faults = [f'{name}: {": ".join(fault)}' for name, fault in found if fault]
            if self.config.odometry and not guard.measures_speed(now_s):
                faults.append('no odometry on odom that is current: commands count as motion')
            if problem := guard.speed_problem(now_s):
                faults.append(problem)
            sources = {source.name: _source(source, decided, now_s, guard.settings.source_timeout)
                       for source in guard.sources.values()}
        if level != OK:
            faults = []
        values |= {
            'uncovered': ('' if guard is None else guard.uncovered_text()) or 'none',
            'override_left_s': number(0.0 if guard is None else guard.override_left(now_s)),
            'assessments_refused': self.refused}
        return Description(WARN if faults else level, faults, values, sources)


def _source(source: SourceGuard, decided: Decision, now_s: float, timeout_s: float
            ) -> tuple[bytes, str, dict[str, str]]:
    path, timing = source.free_path, source.timing
    values = {**report_values(source, now_s), 'free_way': number(path.distance),
              'way_known_by': path.known_by, 'obstacle': source.obstacle,
              'period_ms': number(1e3 * timing.period_s),
              'arrival_age_ms': number(1e3 * timing.arrival_age_s)}
    level, message = OK, 'no limit'
    for limit in decided.limits:
        if limit.source == source.name:
            values |= {'limit': limit.kind, 'limit_speed': number(limit.speed)}
            message = limit.reason or message
    if fault := source.fault(now_s):
        level, message = ERROR, ': '.join(fault)
    elif slow := timing.problem(timeout_s):
        level, message = WARN, slow
    return level, message, values
