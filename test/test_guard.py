# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The law of the velocity guard in closed loops: a robot, a wall and ideal assessments."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest

from vjepa_ros.guard.guard import VelocityGuard
from vjepa_ros.guard.settings import ALWAYS, GuardSettings, RELEASE_ACCELERATION
from vjepa_ros.guard.source import stopping_speed
from vjepa_ros.guard.types import Decision, Motion, RangeReading, STILL, SourceReport
from vjepa_ros.perception.types import Level, Quality

STEP = 0.02              # s, of the world
PERIOD, LATENCY = 5, 6   # steps between assessments, and from stamp to receipt
LAG_S = 0.15             # of a base that does not follow at once
AHEAD, BACK = Motion(1.0), Motion(-0.4)
LEFT, RIGHT = Motion(omega=1.0), Motion(omega=-1.0)
WITHOUT_TIMEOUT = {'stop_on': tuple(name for name in ALWAYS if name != 'timeout')}
CLEAR_VIEW = {'level': Level.CLEAR, 'time_to_contact': math.inf}
DANGER = {'level': Level.DANGER, 'time_to_contact': 1.0}


def odometry(scale: float, omega: float = 1.0) -> Callable[[Motion, int], Motion]:
    return lambda motion, step: Motion(scale * motion.vx, scale * motion.vy, omega * motion.omega)


ODOMETRY = {
    'none': None, 'right': odometry(1.0), 'zero': odometry(0.0, 0.0), 'reversed': odometry(-1.0),
    'reversed turns': odometry(1.0, -1.0), 'tenth': odometry(0.1),
    'millimetres': odometry(900.0), 'stuck': lambda motion, step: Motion(0.2),
    'at times': lambda motion, step: motion if step % 200 < 100 else None}
CONTRADICTIONS = {'zero', 'reversed', 'tenth', 'millimetres'}


class World:
    """A robot with a camera, and a wall across the first direction of the camera."""

    def __init__(self, wall: float = math.inf, wall_speed: float = 0.0, yaw: float = 0.0,
                 lag_s: float = STEP, odometry: str = 'none', ranges: tuple[str, ...] = (),
                 **settings: object) -> None:
        self.guard = VelocityGuard(GuardSettings(**settings), {'front': yaw},
                                   dict.fromkeys(ranges, 0.0))
        self.wall, self.wall_speed, self.yaw, self.lag_s = wall, wall_speed, yaw, lag_s
        self.odometry = ODOMETRY[odometry]
        self.place, self.heading, self.motion = 0j, 0.0, STILL    # place from the wall's view
        self.steps, self.offset_s, self.closest = 0, 0.0, wall
        self.change: dict | Callable[[], dict] = {}       # of the reports
        self.due: list[tuple[int, SourceReport]] = []
        self.decisions: list[Decision] = []

    now = property(lambda self: self.steps * STEP + self.offset_s)
    gap = property(lambda self: self.wall - self.place.real)
    last = property(lambda self: self.decisions[-1])
    source = property(lambda self: self.guard.sources['front'])
    path = property(lambda self: self.source.free_path)

    def report(self) -> SourceReport:
        cos = math.cos(self.heading)
        ahead = self.gap / cos if cos > 0.2 else math.inf
        closing = self.motion.along(self.yaw) - self.wall_speed
        time = ahead / closing if closing > 1e-3 and ahead < 25 * closing else math.inf
        level = (Level.DANGER if time < 1.2 else Level.WARNING if time < 2.5 else
                 Level.CAUTION if time < 4 else Level.CLEAR)
        change = self.change() if callable(self.change) else self.change
        return replace(SourceReport('front', self.now, self.now, level, time), **change)

    def run(self, seconds: float, asked: Motion | None = AHEAD) -> Decision:
        for _ in range(round(seconds / STEP)):
            if self.steps % PERIOD == 0:
                self.due.append((self.steps + LATENCY, self.report()))
            while self.due and self.due[0][0] <= self.steps:
                self.guard.observe(replace(self.due.pop(0)[1], received_s=self.now))
            told = self.odometry and self.odometry(self.motion, self.steps)
            if told is not None:
                self.guard.observe_speed(told, self.now)
            if asked is not None:
                self.guard.command(asked, self.now)
            self.decisions.append(self.guard.decide(self.now))
            self.follow(self.last.motion or STILL)
            self.wall += self.wall_speed * STEP
            self.closest = min(self.closest, self.gap)
            self.steps += 1
        return self.last

    def follow(self, sent: Motion) -> None:
        part = min(1.0, STEP / self.lag_s)
        self.motion = Motion(*(old + part * (new - old) for old, new in zip(
            self.motion, sent, strict=True)))
        self.heading += self.motion.omega * STEP
        self.place += STEP * cmath.rect(1.0, self.heading) * complex(
            self.motion.along(self.yaw), self.motion.along(self.yaw + math.pi / 2))


def driving(**more: object) -> World:
    """A robot that drives at full speed on a free path."""
    w = World(**more)
    w.run(6.0)
    return w


def approaching() -> World:
    """A robot that drives towards a wall which is remembered as a threat."""
    w = World(9.0)
    while not w.path.threat or w.motion.vx < 0.9:
        w.run(STEP)
    w.run(0.5)
    return w


def standing(gap: float = 2.0, odometry: str = 'none', **settings: object) -> World:
    """A robot that follows with a lag, and has come as near to a wall as it may."""
    w = World(gap, lag_s=LAG_S, odometry=odometry, **settings)
    w.run(20.0)
    return w


@pytest.mark.parametrize('start', [0.6, 4.0, 8.0])
def test_the_robot_keeps_its_time_to_contact_and_stands_before_the_wall(start):
    w = World(start)
    shortest = math.inf
    for _ in range(1000):
        w.run(STEP)
        if w.motion.vx > 0.05:
            shortest = min(shortest, w.gap / w.motion.vx)
    assert w.motion == STILL and w.last.state == 'stopped'
    assert 0.1 < w.gap < 1.0
    if start >= 4:
        assert shortest > 1.5 and w.gap > 0.25
    where = w.gap
    w.run(30.0)                               # nor does it creep into it
    assert where - w.gap < 0.05


def test_what_approaches_stops_the_robot_and_when_it_has_gone_the_robot_goes_on():
    w = World(9.0, wall_speed=-0.5)
    while w.gap > 1.5:
        w.run(0.1)
    assert w.motion.vx < 0.4
    w.wall, w.wall_speed = math.inf, 0.0      # it steps aside
    before = len(w.decisions)
    assert w.run(6.0).motion.vx == pytest.approx(1.0)
    speeds = [d.motion.vx for d in w.decisions[before:]]
    assert max(b - a for a, b in pairwise(speeds)) <= RELEASE_ACCELERATION * STEP + 1e-9


@pytest.mark.parametrize(('speed', 'time'), [(0.2, 0.7), (2.0, 1.55)])
def test_a_time_to_contact_below_the_least_scales_at_every_level(time, speed):
    w, asked = World(unseen_speed=2.0), Motion(speed)
    assert w.run(4.0, asked).motion == asked
    w.change = {'time_to_contact': time, 'collision_probability': 0.0}
    w.run((PERIOD + LATENCY) * STEP, asked)
    assert w.motion.vx <= speed * time / w.guard.settings.min_time_to_contact
    assert time > w.guard.settings.stop_time_to_contact or w.last.state == 'stopped'


def test_only_motion_towards_what_a_camera_sees_is_held_back():
    w = World(2.0)
    assert w.run(20.0).motion.vx == 0
    assert w.run(0.5, Motion(1.0, 0.5, 0.2)).motion == Motion(0.0, 0.5, 0.2)
    for free in (Motion(-0.7, 0.2, 0.3), LEFT):
        assert w.run(0.5, free).motion == free
    w = World(3.0, yaw=math.pi)
    assert w.run(20.0, Motion(-1.0)).motion.vx == 0 and w.gap > 0.25
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


def test_single_free_views_do_not_lift_a_threat_and_a_path_that_stays_free_does():
    w = approaching()
    for _ in range(12):                       # every third view misses the wall
        for change, views in ((CLEAR_VIEW, 1), ({}, 2)):
            w.change = change
            for _ in range(views * PERIOD):
                w.run(STEP)
                assert w.path.threat and w.path.distance < w.gap + 0.6
    w = approaching()
    w.change, w.wall = CLEAR_VIEW, math.inf
    assert w.run(4.0).motion.vx == pytest.approx(1.0)


def test_clearance_releases_a_robot_that_stands():
    w = World(2.0, stop_distance=0.5)
    assert w.run(20.0).limits[0].kind == 'blocked'
    w.wall = math.inf
    for clearance, speed in ((0.4, 0.0), (5.0, 1.0)):
        w.change = {'clearance': clearance}
        assert w.run(6.0).motion.vx == pytest.approx(speed)


@pytest.mark.parametrize('clearance', [math.nan, 3.0, 0.8, 0.0])
def test_what_is_in_the_way_now_slows_though_nothing_closes_in(clearance):
    w = driving()
    w.change = {'clearance': clearance}
    motion = w.run(2.0).motion
    # An assessment is up to 0.22 s old, and the robot has driven on since.
    most, least = (min(1.0, max(0.3, stopping_speed(clearance - way, w.guard.settings)))
                   for way in (0.0, 0.22 * motion.vx))
    assert least - 1e-6 <= motion.vx <= most + 1e-6


@pytest.mark.parametrize(('change', 'word'), [
    ({'flags': Quality.UNTRAINED}, 'untrained'), ({'flags': Quality.STALE}, 'stale'),
    ({'level': Level.UNKNOWN}, 'unknown'), ({'time_to_contact': math.nan}, 'unknown'),
    ({'flags': Quality.NOT_FINITE}, 'not_finite'), ({'flags': Quality.FROZEN}, 'frozen')])
def test_a_fault_stops_with_its_reason_and_recovery_takes_its_time(change, word):
    w = driving()
    w.change = change
    assert w.run(0.5).state == 'fault' and word in w.last.reason
    assert w.motion.vx == 0
    w.change = {}
    before = len(w.decisions)
    assert w.run(6.5).state == 'free'
    slow = [d for d in w.decisions[before:] if 0.1 <= d.motion.vx <= 0.3 + 1e-9]
    # A measurement takes 0.4 s of driving, and they must agree for 0.6 s.
    assert len(slow) * STEP > 0.4 + 0.6


def test_a_danger_stops_also_under_a_fault_that_only_slows():
    w = driving()
    for change, speed in (({}, 0.1), (DANGER, 0.0), ({}, 0.1)):
        w.change = {'flags': Quality.LOW_TEXTURE, **change}
        assert w.run(3.0).motion.vx == pytest.approx(speed)


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
    w = World()
    w.change = {'flags': Quality.FROZEN}
    w.run(1.5, STILL)
    w.run(0.1)
    assert w.motion.vx > 0           # a simulated camera does not change while the robot stands
    assert 'frozen' in w.run(1.0).reason
    assert w.place.real < 0.3


@pytest.mark.parametrize('speed', [0.1, 1.0])
def test_a_view_that_stands_while_odometry_says_driving_is_frozen_until_it_moves(speed):
    w, asked = World(odometry='right'), Motion(speed)
    w.change = {**CLEAR_VIEW, 'still_s': 0.0}
    w.run(2.0, asked)
    begun, since_s = w.place.real, w.now
    w.change = lambda: {**CLEAR_VIEW, 'still_s': w.now - since_s}
    assert 'frozen' in w.run(0.5 + 0.4 / speed, asked).reason and w.motion.vx == 0
    assert 'frozen' in w.run(8.0, asked).reason            # it does not try now and then
    assert 0.3 < w.place.real - begun < 0.3 + 0.4 * speed
    w.change = {**CLEAR_VIEW, 'still_s': 0.1}              # somebody turned the robot
    assert w.run(6.0, asked).motion.vx == pytest.approx(speed)


@pytest.mark.parametrize(('moves', 'odometry'), [(STILL, 'right'), (AHEAD, 'none')])
def test_a_view_that_stands_is_no_fault_where_no_odometry_says_that_the_robot_moves(
        moves, odometry):
    w = World(odometry=odometry)
    w.change = lambda: {**CLEAR_VIEW, 'still_s': w.now}
    w.run(8.0, moves)
    assert not [d for d in w.decisions if 'frozen' in d.reason]


@pytest.mark.parametrize(('change', 'text'), [
    ({'time_to_contact': -1.0}, 'time_to_contact is -1'),
    ({'collision_probability': 7.0}, 'collision_probability is 7'),
    ({'bearing': math.inf}, 'bearing is inf'), ({'stamp_s': math.nan}, 'stamp_s is nan'),
    ({'flags': Quality(1 << 15)}, 'flags has the bits 0x8000')])
def test_a_report_that_cannot_be_meant_is_a_fault_and_forgets_nothing(change, text):
    w = approaching()
    w.change = change
    assert w.run(0.5).state == 'fault' and f'malformed: {text}' in w.last.reason
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
    w = World(2.0)
    w.run(20.0)
    w.guard.override(True, w.now)
    w.wall += 20.0
    assert w.run(0.5).motion.vx == 1.0 and w.last.state == 'override'
    assert w.run(0.1, Motion(math.nan)).motion == STILL
    w.wall = w.place.real + 0.2
    assert w.run(9.0, STILL).state == 'override'
    assert w.run(0.6).motion.vx == 0


@pytest.mark.parametrize(('reach', 'age', 'clears'), [
    (10.0, 0.0, True), (0.5, 0.0, False), (10.0, 2.0, False)])
def test_a_range_sensor_clears_only_what_it_can_see_now(reach, age, clears):
    w = World(4.0, ranges=('sonar',), stop_distance=1.0, **WITHOUT_TIMEOUT)
    for i in range(1500):
        old, far = (age, reach) if i > 800 else (0.0, 0.5)       # it stands by then
        w.guard.observe_range(RangeReading('sonar', w.now - old, w.now, math.inf, far))
        w.run(STEP)
    assert (w.gap < 0.9) is clears


def test_a_late_reading_replaces_no_newer_one_and_silence_keeps_the_obstacle():
    guard = VelocityGuard(GuardSettings(**WITHOUT_TIMEOUT), {}, {'sonar': 0.0})
    guard.observe_range(RangeReading('sonar', 1.0, 1.0, 0.2))
    guard.observe_range(RangeReading('sonar', 0.8, 1.01, math.inf))
    for now in (1.02, 3.0):
        guard.command(AHEAD, now)
        assert guard.decide(now).motion.vx == 0


@pytest.mark.parametrize(('values', 'word'), [
    ({'stop_time_to_contact': 3.0}, 'stop_time_to_contact'),
    ({'min_time_to_contact': math.nan}, 'min_time_to_contact'),
    ({'stop_on': ('tired',)}, 'tired'), ({'yaw': math.nan}, 'front')])
def test_bad_settings_are_refused_by_name(values, word):
    with pytest.raises(ValueError, match=word):
        World(**values)


# -- whatever makes the guard forget an obstacle, the robot does not reach it ---------------------

@pytest.mark.parametrize('gap', [0.5, 3.0])
@pytest.mark.parametrize('name', ODOMETRY)
def test_a_wrong_odometry_does_not_bring_the_robot_to_the_wall_and_is_told(name, gap):
    w = World(gap, lag_s=LAG_S, odometry=name)
    w.run(60.0)
    assert w.closest > 0.05
    w = World(lag_s=LAG_S, odometry=name)
    w.run(6.0)
    assert bool(w.guard.speed_problem(w.now)) == (name in CONTRADICTIONS)


@pytest.mark.parametrize('by', [0.0, 100.0, -0.3])
@pytest.mark.parametrize('every_s', [0.7, 3.0, 8.0])
def test_a_clock_that_is_set_again_and_again_does_not(every_s, by):
    w = World(3.0, lag_s=LAG_S)
    for _ in range(round(60 / every_s)):
        w.run(every_s)
        w.offset_s += by                         # assessments on their way are of another time
        w.guard.clock_jumped(w.now)
    assert w.closest > 0.15
    assert w.closest < 3.0 - 0.5 or every_s < 3


@pytest.mark.parametrize('name', ['none', 'right', 'zero', 'reversed turns'])
@pytest.mark.parametrize('parts', [
    ((0.4, LEFT), (0.4, RIGHT)), ((0.9, LEFT), (0.9, RIGHT)), ((2.5, LEFT), (2.5, RIGHT)),
    ((1.0, Motion(vy=0.5)), (1.0, Motion(vy=-0.5))), ((1.0, BACK),), ((2.0, STILL),),
    ((1.0, BACK), (1.0, LEFT), (1.0, RIGHT))])
def test_turning_away_and_back_does_not(name, parts):
    w = standing(odometry=name)
    for seconds, asked in (*parts, (3.0, AHEAD)) * 8:
        w.run(seconds, asked)
    assert w.closest > 0.1


@pytest.mark.parametrize('change', [
    # Something approaches the robot that stands, now and then.
    lambda w: {'time_to_contact': 1.4, 'level': Level.WARNING} if (
        w.steps > 1000 and w.steps % 200 < PERIOD) else {},
    # Heads see a free path while the robot stands.
    lambda w: {'clearance': 5.0 if w.motion.vx < 0.01 else math.nan},
    # A danger has no time.
    lambda w: {'time_to_contact': math.inf} if w.gap < 1.2 * w.motion.vx else {}])
def test_nor_does_what_assessments_say_before_the_wall(change):
    w = World(1.5, lag_s=LAG_S)
    w.change = partial(change, w)
    w.run(60.0)
    assert w.closest > 0.05


def test_nor_do_many_activations():
    w = standing()
    for _ in range(12):
        before = w.guard
        w.guard = VelocityGuard(before.settings, {'front': 0.0})
        w.guard.restart(before)
        w.guard.clock_jumped(w.now)
        w.guard.restart()
        w.run(3.0)
    assert w.closest > 0.05


@pytest.mark.parametrize('angle', [0.8, 2.0])
def test_where_the_obstacle_is_gone_the_robot_goes_on(angle):
    w = standing(odometry='right')
    w.run(angle, LEFT)
    w.wall = 1e3
    for seconds, asked in ((6.0, AHEAD), (angle, RIGHT), (8.0, AHEAD)):
        w.run(seconds, asked)
        assert asked == RIGHT or w.motion.vx == pytest.approx(1.0, abs=0.05)


def test_a_base_that_is_switched_off_keeps_what_was_seen_and_goes_on_afterwards():
    w = World(3.0, lag_s=LAG_S, odometry='right')
    while w.gap > 1.5:
        w.run(STEP)
    assert w.motion.vx > 0.3
    w.odometry, place = ODOMETRY['zero'], w.place
    for _ in range(500):                         # it does not move, whatever is sent
        w.run(STEP)
        w.place, w.motion = place, STILL
    assert 'does not execute' in w.guard.speed_problem(w.now)
    w.odometry = ODOMETRY['right']
    w.run(20.0)
    assert 0.2 < w.closest < 0.6
