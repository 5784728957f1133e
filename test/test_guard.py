# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The law of the velocity guard, in a world of one dimension with ideal assessments."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest

from vjepa_ros.guard.guard import VelocityGuard, uncovered_arcs
from vjepa_ros.guard.settings import ALWAYS, GuardSettings, RELEASE_ACCELERATION
from vjepa_ros.guard.source import stopping_speed
from vjepa_ros.guard.types import Decision, Motion, RangeReading, STILL, SourceReport
from vjepa_ros.perception.types import Level, Quality

STEP = 0.02              # s, of the world
PERIOD = 5               # steps between assessments
LATENCY = 6              # steps from stamp to receipt
AHEAD = Motion(1.0)
CLEAR_VIEW = {'level': Level.CLEAR, 'time_to_contact': math.inf}
DANGER = {'level': Level.DANGER, 'time_to_contact': 1.0}


def level_of(time: float) -> Level:
    return (Level.DANGER if time < 1.2 else Level.WARNING if time < 2.5 else
            Level.CAUTION if time < 4 else Level.CLEAR)


@dataclass
class World:
    """A robot on a line and a wall, which may move; assessments come late."""

    guard: VelocityGuard
    wall: float = math.inf
    wall_speed: float = 0.0
    yaw: float = 0.0                 # of the camera; the wall is there
    position: float = 0.0            # towards the wall
    motion: Motion = STILL
    steps: int = 0
    silent: bool = False
    change: dict = field(default_factory=dict)    # of the reports
    due: list = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)

    now = property(lambda self: self.steps * STEP)
    gap = property(lambda self: self.wall - self.position)
    last = property(lambda self: self.decisions[-1])
    source = property(lambda self: self.guard.sources['front'])

    def report(self) -> SourceReport:
        closing = self.motion.along(self.yaw) - self.wall_speed
        time = self.gap / closing if closing > 1e-9 and self.gap < math.inf else math.inf
        if time > 25:
            time = math.inf
        seen = SourceReport('front', self.now, self.now, level_of(time), time)
        return replace(seen, **self.change)

    def run(self, seconds: float, asked: Motion | None = AHEAD) -> Decision:
        for _ in range(round(seconds / STEP)):
            if self.steps % PERIOD == 0 and not self.silent:
                self.due.append((self.steps + LATENCY, self.report()))
            while self.due and self.due[0][0] <= self.steps:
                seen = self.due.pop(0)[1]
                self.guard.observe(replace(seen, received_s=self.now))
            if asked is not None:
                self.guard.command(asked, self.now)
            decision = self.guard.decide(self.now)
            self.decisions.append(decision)
            if decision.motion is not None:
                self.motion = decision.motion
            self.position += self.motion.along(self.yaw) * STEP
            self.wall += self.wall_speed * STEP
            self.steps += 1
        return self.last


def world(yaw: float = 0.0, **more: object) -> World:
    settings = {key: more.pop(key) for key in list(more) if key in
                GuardSettings.__dataclass_fields__}
    return World(VelocityGuard(GuardSettings(**settings), {'front': yaw}), yaw=yaw, **more)


def driving(**more: object) -> World:
    """A robot that drives at full speed on a free path."""
    w = world(**more)
    w.run(6.0)
    return w


def slowing_on(*names: str) -> dict[str, tuple[str, ...]]:
    """Settings by which some faults only slow."""
    return {'stop_on': tuple(name for name in ALWAYS if name not in names)}


@pytest.mark.parametrize('start', [0.6, 4.0, 8.0])
def test_the_robot_keeps_its_time_to_contact_and_stands_before_the_wall(start):
    w = world(wall=start)
    shortest, obstacles = math.inf, set()
    for _ in range(1000):
        w.run(STEP)
        obstacles.add(w.source.obstacle)
        if w.motion.vx > 0.05:
            shortest = min(shortest, w.gap / w.motion.vx)
    assert w.motion == STILL and w.last.state == 'stopped'
    assert 0.1 < w.gap < 1.0
    if start >= 4:
        assert shortest > 1.5 and w.gap > 0.25
        assert obstacles <= {'none', 'static'}
    where = w.position
    w.run(30.0)                               # nor does it creep into it
    assert w.position - where < 0.05


def test_what_approaches_stops_the_robot_and_when_it_has_gone_the_robot_goes_on():
    w = world(wall=9.0, wall_speed=-0.5)
    while w.gap > 1.5:
        w.run(0.1)
    assert w.motion.vx < 0.4
    w.wall, w.wall_speed = math.inf, 0.0      # it steps aside
    before = len(w.decisions)
    w.run(6.0)
    assert w.motion.vx == pytest.approx(1.0)
    speeds = [d.motion.vx for d in w.decisions[before:]]
    rise = RELEASE_ACCELERATION * STEP
    assert max(b - a for a, b in pairwise(speeds)) <= rise + 1e-9


@pytest.mark.parametrize(('speed', 'level', 'time'), [
    (0.2, Level.CLEAR, 0.7), (2.0, Level.CLEAR, 1.55), (2.0, Level.WARNING, 0.7)])
def test_a_time_to_contact_below_the_least_scales_at_every_level(level, time, speed):
    w = world(unseen_speed=2.0)
    asked = Motion(speed)
    w.run(4.0, asked)
    assert w.motion == asked
    w.change = {'level': level, 'time_to_contact': time, 'collision_probability': 0.0}
    w.run((PERIOD + LATENCY) * STEP, asked)
    assert w.motion.vx <= speed * time / w.guard.settings.min_time_to_contact
    assert time > w.guard.settings.stop_time_to_contact or w.last.state == 'stopped'


@pytest.mark.parametrize(('probability', 'left'), [(0.2, 0.95), (0.5, 0.7), (math.nan, 0.7)])
def test_caution_slows_less_where_a_contact_is_improbable(probability, left):
    w = driving()
    w.change = {'level': Level.CAUTION, 'collision_probability': probability}
    assert w.run(1.0).motion.vx == pytest.approx(left)
    assert w.last.state == 'slowed'
    w.change = {}                             # a doubtful CAUTION has no hold
    w.run(0.4)
    assert (w.motion.vx == 1.0) is (left == 0.95)
    assert w.run(4.0).motion.vx == pytest.approx(1.0)


def test_only_motion_towards_what_a_camera_sees_is_held_back():
    w = world(wall=2.0)
    w.run(20.0)
    assert w.motion.vx == 0
    for free in (Motion(0.0, 0.0, 1.0), Motion(-0.7, 0.2, 0.3)):
        assert w.run(0.5, free).motion == free
    assert w.run(0.5, Motion(1.0, 0.5, 0.2)).motion == Motion(0.0, 0.5, 0.2)
    w = world(yaw=math.pi, wall=3.0)
    w.run(20.0, Motion(-1.0))
    assert w.motion.vx == 0 and w.gap > 0.25
    assert w.run(1.0, AHEAD).motion == AHEAD


def after(guard: VelocityGuard, asked: Motion, danger: bool = False) -> Motion:
    """What is left of a command after 6 s of a free path, with a danger at the end."""
    for i in range(130):
        now = i * 0.05
        for name in guard.sources:
            seen = DANGER if danger and i > 120 else CLEAR_VIEW
            guard.observe(SourceReport(name, now, now, **seen))
        guard.command(asked, now)
        last = guard.decide(now)
    return last.motion


@pytest.mark.parametrize('yaw', [0.5, 2.5])
def test_an_oblique_camera_makes_no_motion_that_nobody_commanded(yaw):
    asked = Motion(math.copysign(1.0, math.cos(yaw)), 0.0, 0.3)
    guard = VelocityGuard(GuardSettings(), {'oblique': yaw})
    # A base with two wheels leaves vy out: what is left of vx must not lead towards the source.
    assert after(guard, asked, danger=True) == Motion(0.0, 0.0, 0.3)


@pytest.mark.parametrize(('uncovered', 'asked', 'danger', 'left', 'state'), [
    ('free', Motion(-1.0, 0.0, 0.4), True, Motion(-1.0, 0.0, 0.4), 'free'),
    ('slow', Motion(-1.0, 0.0, 0.4), True, Motion(-0.1, 0.0, 0.4), 'slowed'),
    ('stop', Motion(-1.0, 0.0, 0.4), True, Motion(0.0, 0.0, 0.4), 'stopped'),
    ('stop', Motion(0.01, 1.0, 0.2), False, Motion(0.0, 0.0, 0.2), 'stopped'),
    ('stop', Motion(0.5, 0.5), True, STILL, 'stopped')])
def test_motion_that_no_source_looks_at_is_treated_as_set(uncovered, asked, danger, left, state):
    guard = VelocityGuard(GuardSettings(uncovered=uncovered), {'front': 0.0})
    assert after(guard, asked, danger) == left
    last = guard.decide(6.5)
    assert last.blind and last.state == state
    guard = VelocityGuard(GuardSettings(uncovered=uncovered), {'front': 0.0})
    assert after(guard, Motion(0.5, 0.4)) == Motion(0.5, 0.4)
    assert not guard.decide(6.5).blind


@pytest.mark.parametrize(('yaws', 'where'), [
    ((0.0,), 'left, backward, right, 60 to 300'), ((0.5, 2.5, -2.0), '-55 to -31'),
    ((0.0, math.pi), 'left, right, 60 to 120 and -120 to -60'),
    ((0.0, math.radians(120), math.radians(-120)), '')])
def test_where_no_source_looks_is_reported(yaws, where):
    guard = VelocityGuard(GuardSettings(), {}, {str(i): yaw for i, yaw in enumerate(yaws)})
    text = guard.uncovered_text()
    assert where in text and bool(text) is bool(where)
    for low, high in uncovered_arcs(yaws):       # where the law takes motion as uncovered
        for yaw, seen in ((low + 0.01, False), (high - 0.01, False),
                          (low - 0.01, True), (high + 0.01, True)):
            assert any(math.cos(yaw - other) > 0.5 for other in yaws) is seen


def approaching(**more: object) -> World:
    """A robot that drives towards a wall which is remembered as a threat."""
    w = world(wall=9.0, **more)
    while not w.source.free_path.threat or w.motion.vx < 0.9:
        w.run(STEP)
    w.run(0.5)
    return w


def test_single_free_views_do_not_lift_a_threat_and_a_path_that_stays_free_does():
    w = approaching()
    path = w.source.free_path
    for _ in range(12):                       # every third view misses the wall
        for change, views in ((CLEAR_VIEW, 1), ({}, 2)):
            w.change = change
            for _ in range(views * PERIOD):
                w.run(STEP)
                assert path.threat and path.distance < w.gap + 0.6
    w = approaching()
    w.change, w.wall = CLEAR_VIEW, math.inf
    w.run(LATENCY * STEP + 0.5)
    assert w.source.free_path.threat
    w.run(0.3)
    assert not w.source.free_path.threat
    assert w.run(3.0).motion.vx == pytest.approx(1.0)


def test_after_a_stop_one_free_view_does_not_release_the_full_speed():
    w = driving()
    w.change = {'flags': Quality.UNTRAINED}
    assert w.run(0.5).motion.vx == 0
    w.change = {}
    before = len(w.decisions)
    assert w.run(4.0).motion.vx == 1.0
    slow = [d for d in w.decisions[before:] if 0.1 <= d.motion.vx <= 0.3 + 1e-9]
    # A measurement takes 0.4 s of driving, and they must agree for 0.6 s.
    assert len(slow) * STEP > 0.4 + 0.6


def test_clearance_releases_a_robot_that_stands_and_stops_none():
    w = world(wall=2.0, stop_distance=0.5)
    w.run(20.0)
    assert w.last.limits[0].kind == 'blocked'
    w.wall = math.inf
    for clearance, speed in ((0.4, 0.0), (5.0, 1.0)):
        w.change = {'clearance': clearance}
        assert w.run(6.0).motion.vx == pytest.approx(speed)
    w = world(change={'clearance': 0.3})
    w.run(3.0, STILL)
    assert w.run(6.0).motion.vx == pytest.approx(0.3)


@pytest.mark.parametrize('clearance', [math.nan, 3.0, 0.8, 0.0])
def test_what_is_in_the_way_now_slows_though_nothing_closes_in(clearance):
    w = driving()
    w.change = {'clearance': clearance}
    motion, state = w.run(2.0).motion, w.last.state
    # An assessment is up to 0.22 s old, and the robot has driven on since.
    most, least = (min(1.0, max(0.3, stopping_speed(clearance - way, w.guard.settings)))
                   for way in (0.0, 0.22 * motion.vx))
    assert least - 1e-6 <= motion.vx <= most + 1e-6
    assert ('way is clear for' in w.last.reason) == (state == 'slowed') == (motion.vx < 1)
    w.change = {'clearance': math.inf}
    assert w.run(2.0).motion.vx == pytest.approx(1.0)


@pytest.mark.parametrize(('change', 'word'), [
    ({'flags': Quality.UNTRAINED}, 'untrained'), ({'flags': Quality.STALE}, 'stale'),
    ({'level': Level.UNKNOWN}, 'unknown'), ({'time_to_contact': math.nan}, 'unknown'),
    ({'flags': Quality.LOOMING_UNKNOWN}, 'looming_unknown'),
    ({'flags': Quality.NOT_FINITE}, 'not_finite'),
    ({'flags': Quality.FROZEN}, 'frozen')])
def test_a_fault_stops_with_its_reason_and_recovery_takes_its_time(change, word):
    w = driving()
    w.change = change
    assert w.run(0.5).state == 'fault' and word in w.last.reason
    assert w.motion.vx == 0
    w.change = {}
    assert w.run(0.5).motion.vx < 0.3         # not at once
    assert w.run(6.0).state == 'free'


def test_a_danger_stops_also_under_a_fault_that_only_slows():
    w = driving()
    for change, speed in (({}, 0.1), (DANGER, 0.0), ({}, 0.1)):
        w.change = {'flags': Quality.GEOMETRY_FAILED, **change}
        assert w.run(3.0).motion.vx == pytest.approx(speed)
    w = world(wall=4.0)
    w.run(20.0)
    where, w.change = w.position, {'flags': Quality.LOW_TEXTURE}
    w.run(20.0)
    assert w.position == where                # nor does it creep into a wall


def test_one_of_two_cameras_that_dies_stops_motion_towards_it_alone():
    guard = VelocityGuard(GuardSettings(), {'front': 0.0, 'back': math.pi})
    for i in range(160):
        now = i * 0.05
        for name in ('front', 'back') if i < 130 else ('front',):
            guard.observe(SourceReport(name, now, now, Level.CLEAR, math.inf))
        guard.command(Motion(1.0 if i < 150 else -1.0), now)
        last = guard.decide(now)
        assert i < 130 or i >= 150 or last.motion.vx == 1.0
    assert last.motion == STILL
    assert 'back: timeout' in last.reason


def test_the_same_picture_is_a_fault_only_when_the_robot_moved():
    w = world(change={'flags': Quality.FROZEN})
    w.run(1.5, STILL)
    w.run(0.1)
    assert w.motion.vx > 0           # a simulated camera does not change while the robot stands
    assert 'frozen' in w.run(1.0).reason
    assert w.position < 0.3


def run_blind(w: World, speed: float, seconds: float, since_s: float) -> Decision:
    """Drive with odometry and reports of a view that has not moved since a time."""
    for _ in range(round(seconds / STEP)):
        w.change = {**CLEAR_VIEW, 'still_s': w.now - since_s}
        w.guard.observe_speed(w.motion, w.now)
        w.run(STEP, Motion(speed))
    return w.last


@pytest.mark.parametrize('speed', [0.1, 0.35, 1.0])
def test_a_view_that_stands_while_odometry_says_driving_is_frozen_until_it_moves(speed):
    w = world(change={**CLEAR_VIEW, 'still_s': 0.0})
    for _ in range(100):
        w.guard.observe_speed(w.motion, w.now)
        w.run(STEP, Motion(speed))
    begun, since_s = w.position, w.now
    last = run_blind(w, speed, 0.5 + 0.4 / speed, since_s)
    assert 'frozen' in last.reason and w.motion.vx == 0
    assert 0.3 < w.position - begun < 0.3 + 0.4 * speed
    assert 'frozen' in run_blind(w, speed, 8.0, since_s).reason    # it does not try now and then
    assert w.position - begun < 0.3 + 0.4 * speed
    w.change['still_s'] = math.nan
    assert 'frozen' in w.run(1.0).reason
    w.change['still_s'] = 0.1                                     # somebody turned the robot
    assert w.run(6.0, Motion(speed)).motion.vx == pytest.approx(speed)


@pytest.mark.parametrize(('moves', 'odometry'), [
    (Motion(0.0), True), (Motion(1.0), False), (Motion(0.02, 0.0, 0.02), True)])
def test_a_view_that_stands_is_no_fault_where_no_odometry_says_that_the_robot_moves(
        moves, odometry):
    w = world(change={**CLEAR_VIEW})
    for i in range(400):
        w.change['still_s'] = w.now
        if odometry:
            w.guard.observe_speed(moves._replace(vy=0.1 * (-1) ** i), w.now)   # and its noise
        assert 'frozen' not in w.run(STEP, moves).reason


def test_a_view_that_still_shows_the_picture_of_a_threat_lifts_none():
    w = approaching()
    w.change, seen = CLEAR_VIEW, w.now
    while w.now - seen < 1.5:
        w.change = {**CLEAR_VIEW, 'still_s': w.now - seen + 0.2}
        w.run(STEP)
        assert w.source.free_path.threat


@pytest.mark.parametrize(('change', 'text'), [
    ({'time_to_contact': -math.inf}, 'time_to_contact is -inf'),
    ({'time_to_contact': -1.0}, 'time_to_contact is -1'), ({'clearance': -2.0}, 'clearance is -2'),
    ({'collision_probability': 7.0}, 'collision_probability is 7'),
    ({'bearing': math.inf}, 'bearing is inf'), ({'stamp_s': math.nan}, 'stamp_s is nan'),
    ({'flags': Quality(1 << 15)}, 'flags has the bits 0x8000')])
def test_a_report_that_cannot_be_meant_is_a_fault_and_forgets_nothing(change, text):
    w = approaching()
    path = w.source.free_path
    w.change = change
    assert w.run(0.5).state == 'fault' and f'malformed: {text}' in w.last.reason
    assert path.threat and path.distance < w.gap + 0.6
    w.run(3.0)
    w.change = {}
    assert w.run(20.0).motion == STILL and w.gap > 0.1


@pytest.mark.parametrize('bad', [Motion(1.0, 0.0, math.nan), Motion(1.0, 0.0, math.inf),
                                 Motion(1.7e308, 1.7e308)])
def test_a_command_that_cannot_be_meant_stops(bad):
    w = driving()
    assert w.run(0.1, bad).motion == STILL
    assert w.last.state == 'fault'
    assert w.run(0.1).motion.vx == 1.0


def test_the_end_of_commands_is_one_zero_and_then_silence():
    w = driving()
    before = len(w.decisions)
    w.run(2.0, None)
    sent = [d.motion for d in w.decisions[before:]]
    ended = sent.index(STILL)
    assert 0.4 < ended * STEP < 0.6
    assert all(motion is None for motion in sent[ended + 1:])


def test_an_override_passes_commands_and_ends():
    w = world(wall=2.0)
    w.run(20.0)
    w.guard.override(True, w.now)
    w.wall += 20.0
    assert w.run(0.5).motion.vx == 1.0 and w.last.state == 'override'
    assert w.run(0.1, Motion(math.nan)).motion == STILL
    w.wall = w.position + 0.2
    assert w.run(9.0, STILL).state == 'override'
    assert w.run(0.6).motion.vx == 0


def test_odometry_counts_instead_of_the_commands_also_after_a_clock_jump():
    guard = VelocityGuard(GuardSettings(), {'front': 0.0})
    guard.clock_jumped(0.0)                   # as at every activation
    for i in range(1, 40):
        guard.observe(SourceReport('front', i * 0.05, i * 0.05, Level.CLEAR, math.inf))
        guard.observe_speed(Motion(0.2), i * 0.05)
        guard.command(AHEAD, i * 0.05)
        assert guard.decide(i * 0.05).motion.vx > 0.3 or i < 10
    assert guard.history.travel(1.0, 1.9, 0.0) == pytest.approx(0.2 * 0.9)


@pytest.mark.parametrize(('reach', 'age', 'clears'), [
    (10.0, 0.0, True), (0.5, 0.0, False), (10.0, 2.0, False)])
def test_a_range_sensor_clears_only_what_it_can_see_now(reach, age, clears):
    w = world(wall=4.0, stop_distance=1.0, **slowing_on('timeout'))
    w.guard = VelocityGuard(w.guard.settings, {'front': 0.0}, {'sonar': 0.0})
    for i in range(1500):
        old = age if i > 800 else 0.0             # it stands by then
        w.guard.observe_range(RangeReading('sonar', w.now - old, w.now, math.inf,
                                           reach if i > 800 else 0.5))
        w.run(STEP)
    assert (w.gap < 0.9) is clears


@pytest.mark.parametrize('settings', [{}, slowing_on('timeout')])
def test_a_late_reading_replaces_no_newer_one_and_silence_keeps_the_obstacle(settings):
    guard = VelocityGuard(GuardSettings(**settings), {}, {'sonar': 0.0})
    guard.observe_range(RangeReading('sonar', 1.0, 1.0, 0.2))
    guard.observe_range(RangeReading('sonar', 0.8, 1.01, math.inf))
    for now in (1.02, 3.0):
        guard.command(AHEAD, now)
        assert guard.decide(now).motion.vx == 0


@pytest.mark.parametrize(('values', 'word'), [
    ({'stop_time_to_contact': 3.0}, 'stop_time_to_contact'), ({'braking': 0.0}, 'braking'),
    ({'min_time_to_contact': math.nan}, 'min_time_to_contact'),
    ({'uncovered': 'fly'}, 'uncovered'), ({'stop_distance': -1}, 'stop_distance'),
    ({'stop_on': ('tired',)}, 'tired'),
    ({'sources': {}}, 'sources'), ({'sources': {'front': math.nan}}, 'front')])
def test_bad_settings_are_refused_by_name(values, word):
    values = {'sources': {'front': 0.0}, **values}
    sources = values.pop('sources')
    with pytest.raises(ValueError, match=word):
        VelocityGuard(GuardSettings(**values), sources)
