# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The law of the velocity guard, in a world of one dimension that says what a camera would say."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest

from vjepa_ros.guard import coverage
from vjepa_ros.guard.free_path import Steady
from vjepa_ros.guard.guard import VelocityGuard
from vjepa_ros.guard.motion_history import SpeedHistory
from vjepa_ros.guard.settings import ALWAYS, GuardSettings
from vjepa_ros.guard.types import STILL, Decision, Motion, RangeReading, SourceReport
from vjepa_ros.perception.collision import Optics
from vjepa_ros.perception.types import Level, Quality
from vjepa_ros.ros.perception_node.parameters import SCHEMA

STEP = 0.02              # s, of the world
PERIOD = 5               # steps between assessments
LATENCY = 6              # steps from stamp to receipt
AHEAD = Motion(1.0)
ASSUMED_FOV = next(row.default for row in SCHEMA.rows if row.name == 'assumed_fov')


def level_of(time: float) -> Level:
    return (Level.DANGER if time < 1.2 else Level.WARNING if time < 2.5 else
            Level.CAUTION if time < 4 else Level.CLEAR)


@dataclass
class World:
    """A robot on a line and a wall, which may move; assessments come late, as in life."""

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

    @property
    def now(self) -> float:
        return self.steps * STEP

    @property
    def gap(self) -> float:
        return self.wall - self.position

    @property
    def last(self) -> Decision:
        return self.decisions[-1]

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


def test_a_free_way_is_driven_as_asked():
    w = world()
    assert w.run(8.0).state == 'free'
    assert w.motion == Motion(1.0)
    assert w.position > 5.5


def test_a_start_on_a_free_way_never_slows_down_again():
    w = world()
    w.run(8.0)
    speeds = [d.motion.vx for d in w.decisions]
    assert all(b >= a for a, b in pairwise(speeds))


def test_the_time_to_contact_stays_above_its_least_and_the_robot_stands_before_the_wall():
    w = world(wall=8.0)
    shortest = math.inf
    for _ in range(40):
        w.run(0.5)
        if w.motion.vx > 0:
            shortest = min(shortest, w.gap / w.motion.vx)
    assert w.motion.vx == 0
    assert w.last.state == 'stopped'
    assert shortest > 1.5
    assert 0.3 < w.gap < 1.0


CLEAR_VIEW = {'level': Level.CLEAR, 'time_to_contact': math.inf}


def approaching(**more: object) -> World:
    """A robot that drives towards a wall which is remembered as a threat."""
    w = world(wall=9.0, **more)
    while not w.guard.sources['front'].way.threat or w.motion.vx < 0.9:
        w.run(STEP)
    w.run(0.5)
    return w


def test_one_view_in_which_nothing_comes_nearer_does_not_lift_a_threat():
    w = approaching()
    way = w.guard.sources['front'].way
    for _ in range(12):                       # every third view misses the wall
        for change, views in ((CLEAR_VIEW, 1), ({}, 2)):
            w.change = change
            for _ in range(views * PERIOD):
                w.run(STEP)
                assert way.threat
                assert way.distance < w.gap + 0.6
    w.run(20.0)
    assert w.motion.vx == 0
    assert w.gap > 0.25


def test_a_way_that_stays_free_lifts_a_threat_soon():
    w = approaching()
    w.change, w.wall = CLEAR_VIEW, math.inf
    w.run(LATENCY * STEP + 0.5)
    assert w.guard.sources['front'].way.threat
    w.run(0.3)
    assert not w.guard.sources['front'].way.threat
    assert w.run(3.0).motion.vx == pytest.approx(1.0)


def test_a_camera_that_hangs_lifts_no_threat_before_it_is_noticed():
    w = approaching()
    hung = w.now
    way = w.guard.sources['front'].way
    while w.last.state != 'fault':
        flags = Quality.FROZEN if w.now - hung >= 0.5 else Quality(0)
        w.change = {**CLEAR_VIEW, 'flags': flags}      # what stays the same looms nowhere
        w.run(STEP)
        assert way.threat
        assert w.now - hung < 1.0
    assert 'frozen' in w.last.reason


def test_free_views_before_and_after_a_silence_are_not_in_a_row():
    w = approaching(source_timeout=0.3)
    w.change = CLEAR_VIEW
    w.run(0.42)
    w.silent = True
    w.run(0.5)
    assert 'timeout' in w.last.reason
    w.silent = False
    w.run(LATENCY * STEP + 0.2)
    assert w.guard.sources['front'].way.threat


def test_after_a_stop_one_free_view_does_not_release_the_full_speed():
    w = world(release_hold=0.1, release_speed=0.3, release_acceleration=50.0)
    w.run(6.0)
    w.change = {'flags': Quality.UNTRAINED}
    w.run(0.5)
    assert w.motion.vx == 0
    w.change = {}
    before = len(w.decisions)
    w.run(3.0)
    speeds = [d.motion.vx for d in w.decisions[before:]]
    slow = [v for v in speeds if 0 < v < 0.5]
    assert max(slow) <= 0.3 + 1e-9
    # A measurement takes 0.4 s of driving, and they must agree for 0.6 s.
    assert len(slow) * STEP > 0.4 + 0.6
    assert speeds[-1] == 1.0


def test_a_robot_that_stands_before_a_wall_does_not_creep_into_it():
    w = world(wall=4.0)
    w.run(30.0)
    where = w.position
    assert w.run(120.0).state == 'stopped'
    assert w.position - where < 0.05
    assert w.gap > 0.25


def test_a_camera_that_moves_a_little_on_the_robot_keeps_what_it_saw():
    w = world(wall=4.0)
    w.run(30.0)
    where = w.position
    for turn in range(20):
        w.guard.turn_source('front', 0.06 * (turn % 2))
        w.run(2.0)
    assert w.position - where < 0.05
    w.guard.turn_source('front', math.pi / 2)
    assert w.run(3.0).state != 'stopped'          # the wall is not there any more


def test_a_velocity_that_nobody_can_mean_stops():
    w = world()
    w.run(2.0)
    w.guard.command(Motion(1.7e308, 1.7e308), w.now)
    assert w.guard.decide(w.now).motion == STILL


@pytest.mark.parametrize('start', [0.6, 1.0, 1.5])
def test_a_start_near_a_wall_ends_before_it(start):
    w = world(wall=start)
    w.run(20.0)
    assert w.gap > 0.1


@pytest.mark.parametrize('speed', [-0.5, -1.0])
def test_what_comes_nearer_stops_the_robot_and_when_it_has_gone_the_robot_goes_on(speed):
    w = world(wall=9.0, wall_speed=speed)
    while w.gap > 1.5:
        w.run(0.1)
    assert w.motion.vx < 0.4
    w.wall = math.inf                         # it steps aside
    w.wall_speed = 0.0
    before = len(w.decisions)
    w.run(6.0)
    assert w.motion.vx == pytest.approx(1.0)
    speeds = [d.motion.vx for d in w.decisions[before:]]
    rise = w.guard.settings.release_acceleration * STEP
    assert max(b - a for a, b in pairwise(speeds)) <= rise + 1e-9


RIGHT, AHEAD_OF_IT, LEFT = {'bearing': 0.4}, {'bearing': 0.1}, {'bearing': -0.4}


@pytest.mark.parametrize(('change', 'side'), [(RIGHT, 'RIGHT'), (AHEAD_OF_IT, 'CENTER'),
                                              (LEFT, 'LEFT')])
def test_what_comes_at_a_standing_robot_is_told_as_moving_with_its_side(change, side):
    w = world(change={'level': Level.DANGER, 'time_to_contact': 1.0, **change})
    assert w.run(1.0, STILL).state == 'free'
    assert w.guard.sources['front'].obstacle == 'moving'
    w.run(0.1)
    assert w.last.reason == f'front: level danger, {side}, moving'
    w.change = {'level': Level.CAUTION, 'time_to_contact': 1.5, **change}
    w.run(0.3)
    assert w.last.reason.endswith(f's to contact, {side}, moving')
    w.change = CLEAR_VIEW
    w.run(LATENCY * STEP + 0.1)
    assert w.guard.sources['front'].obstacle == 'none'


def test_what_comes_after_a_robot_that_backs_off_is_told_as_moving():
    w = world()
    w.run(1.5, Motion(-0.5))
    assert w.guard.sources['front'].obstacle == 'none'
    w.change = {'level': Level.WARNING, 'time_to_contact': 2.0}
    w.run(0.5, Motion(-0.5))
    assert w.guard.sources['front'].obstacle == 'moving'


def test_a_wall_stays_static_while_a_robot_comes_to_stand_before_it():
    w = world(wall=4.0)
    told = set()
    for _ in range(1000):
        w.run(STEP)
        told.add(w.guard.sources['front'].obstacle)
    assert w.motion == STILL
    assert told <= {'none', 'static'}
    assert w.guard.sources['front'].obstacle == 'static'


def test_what_is_near_but_was_not_measured_is_not_told_as_free():
    w = world()
    w.run(6.0)
    w.run(0.5, STILL)
    w.change = {'level': Level.DANGER, 'time_to_contact': 1.0}
    w.run(0.3, STILL)
    assert w.guard.sources['front'].obstacle == 'unknown'     # driven until just now


def test_the_side_stands_in_the_reasons_of_caution_contact_and_block():
    w = world(wall=9.0, change={'bearing': 0.5})
    found = set()
    for _ in range(700):
        limits = w.run(STEP).limits
        if limits and w.guard.sources['front'].way.threat:
            found.add(limits[0].kind)
            assert w.last.reason.endswith(', RIGHT, static')
    assert {'caution', 'contact', 'blocked'} <= found


def test_the_sides_are_those_of_the_regions_where_no_camera_info_tells_the_lens():
    width = 640
    optics = Optics.assume((width, 480), math.radians(ASSUMED_FOV))
    for x in range(5, width, 7):
        side = 'LEFT' if x < width / 3 else 'RIGHT' if x > 2 * width / 3 else 'CENTER'
        report = SourceReport('front', 0.0, 0.0, Level.DANGER, 1.0, bearing=optics.bearing(x))
        assert report.side == side, x


def test_turning_and_driving_away_stay_free():
    w = world(wall=2.0)
    w.run(20.0)
    assert w.motion.vx == 0
    assert w.run(0.5, Motion(0.0, 0.0, 1.0)).motion == Motion(0.0, 0.0, 1.0)
    assert w.run(0.5, Motion(-0.7, 0.2, 0.3)).motion == Motion(-0.7, 0.2, 0.3)


def test_a_camera_that_looks_backward_guards_reversing_alone():
    w = world(yaw=math.pi, wall=3.0)
    w.run(20.0, Motion(-1.0))
    assert w.motion.vx == 0
    assert w.gap > 0.25
    assert w.run(1.0, Motion(1.0)).motion == Motion(1.0)


def test_only_the_part_towards_the_source_is_held_back():
    w = world(wall=0.36, change={'level': Level.DANGER, 'time_to_contact': 0.5})
    w.run(1.0, Motion(1.0, 0.5, 0.2))
    assert w.motion == Motion(0.0, 0.5, 0.2)


def test_caution_slows_and_ends_with_hysteresis():
    w = world(caution_factor=0.5)
    w.run(6.0)
    w.change = {'level': Level.CAUTION}
    assert w.run(1.0).motion.vx == pytest.approx(0.5)
    assert w.last.state == 'slowed'
    w.change = {}
    assert w.run(0.5).motion.vx == pytest.approx(0.5)
    assert w.run(4.0).motion.vx == pytest.approx(1.0)


@pytest.mark.parametrize(('probability', 'left'), [
    (0.0, 0.95), (0.2, 0.95), (0.5, 0.7), (0.9, 0.7), (math.nan, 0.7)])
def test_caution_slows_less_where_a_contact_is_improbable(probability, left):
    w = world()
    w.run(6.0)
    w.change = {'level': Level.CAUTION, 'collision_probability': probability}
    assert w.run(1.0).motion.vx == pytest.approx(left)
    assert w.last.state == 'slowed'
    # What was believed holds on for a moment; a doubt ends with the level.
    w.change = {'level': Level.CAUTION, 'collision_probability': 0.2}
    assert w.run(0.4).motion.vx == pytest.approx(left)
    w.change = {}
    w.run(0.4)
    assert (w.motion.vx == 1.0) is (left == 0.95)


def test_caution_can_be_believed_always():
    w = world(caution_probability=0.0)
    w.run(6.0)
    w.change = {'level': Level.CAUTION, 'collision_probability': 0.0}
    assert w.run(1.0).motion.vx == pytest.approx(0.7)


LEVELS_WITH_A_TIME = (Level.CLEAR, Level.CAUTION, Level.WARNING)


@pytest.mark.parametrize('time', [0.1, 0.7, 1.0, 1.3, 1.55])
@pytest.mark.parametrize('level', LEVELS_WITH_A_TIME)
@pytest.mark.parametrize('speed', [0.2, 1.0, 2.0])
def test_a_time_to_contact_below_the_least_scales_at_every_level(level, time, speed):
    w = world(unseen_speed=2.0)
    asked = Motion(speed)
    w.run(4.0, asked)
    assert w.motion == asked
    w.change = {'level': level, 'time_to_contact': time, 'collision_probability': 0.0}
    w.run((PERIOD + LATENCY) * STEP, asked)
    assert w.motion.vx <= speed * time / w.guard.settings.min_time_to_contact
    assert time > w.guard.settings.stop_time_to_contact or w.last.state == 'stopped'


@pytest.mark.parametrize(('believe', 'free'), [
    (Level.CAUTION, (Level.CLEAR,)), (Level.WARNING, (Level.CLEAR, Level.CAUTION))])
def test_a_time_to_contact_can_be_doubted_below_a_level(believe, free):
    for level in LEVELS_WITH_A_TIME:
        w = world(believe_level=believe, doubted_factor=1.0)
        w.run(6.0)
        w.change = {'level': level, 'time_to_contact': 0.5, 'collision_probability': 0.0}
        assert (w.run(0.3).motion.vx == 1.0) is (level in free)


@pytest.mark.parametrize(('change', 'word'), [
    ({'flags': Quality.UNTRAINED}, 'untrained'), ({'flags': Quality.WARMING_UP}, 'warming_up'),
    ({'flags': Quality.PARTIAL_VIEW}, 'partial_view'), ({'flags': Quality.STALE}, 'stale'),
    ({'level': Level.UNKNOWN, 'time_to_contact': math.nan}, 'unknown'),
    ({'flags': Quality.LOOMING_UNKNOWN}, 'looming_unknown'),
    ({'flags': Quality.FROZEN}, 'frozen')])
def test_a_fault_stops_with_its_reason_and_recovery_takes_its_time(change, word):
    w = world()
    w.run(6.0)
    w.change = change
    assert w.run(0.5).state == 'fault'
    assert w.motion.vx == 0
    assert word in w.last.reason
    w.change = {}
    w.run(0.5)
    assert w.motion.vx < 0.3                  # not at once
    assert w.run(6.0).state == 'free'


def test_a_fault_can_slow_instead():
    names = tuple(name for name in ALWAYS if name != 'timeout')
    w = world(stop_on=names, slow_on=('timeout',))
    w.run(6.0)
    w.silent = True
    assert w.run(1.0).motion.vx == pytest.approx(0.1)
    assert w.last.state == 'fault'
    w.silent = False
    before = len(w.decisions)
    assert w.run(2.0).motion.vx == pytest.approx(1.0)
    assert min(d.motion.vx for d in w.decisions[before:]) > 0.05      # it needs no release


def test_without_any_assessment_nothing_drives():
    w = world(silent=True)
    assert w.run(1.0).motion == Motion(0.0)
    assert 'missing' in w.last.reason


def test_a_dead_source_stops_at_its_timeout():
    w = world()
    w.run(6.0)
    w.silent = True
    newest = max(seen.stamp_s for _, seen in w.due)
    while w.motion.vx > 0:
        w.run(STEP)
    assert w.now - newest <= 0.5 + 2 * STEP
    assert 'timeout' in w.last.reason


def test_a_stamp_of_the_future_is_a_fault():
    guard = VelocityGuard(GuardSettings(), {'front': 0.0})
    guard.observe(SourceReport('front', 5.0, 1.0, Level.CLEAR, math.inf))
    guard.command(Motion(1.0), 1.0)
    assert 'ahead of the clock' in guard.decide(1.0).reason


def test_after_a_clock_jump_old_reports_do_not_count():
    w = world()
    w.run(6.0)
    w.guard.clock_jumped(w.now)
    w.silent = True
    w.due.clear()
    assert w.run(STEP).motion.vx == 0
    assert 'missing' in w.last.reason


@pytest.mark.parametrize('bad', [math.nan, math.inf])
def test_a_command_that_is_no_number_stops(bad):
    w = world()
    w.run(6.0)
    assert w.run(0.1, Motion(1.0, 0.0, bad)).motion == Motion()
    assert w.last.state == 'fault'
    assert w.run(0.1).motion.vx == 1.0


def test_the_end_of_commands_is_one_zero_and_then_silence():
    w = world()
    w.run(6.0)
    before = len(w.decisions)
    w.run(2.0, None)
    sent = [d.motion for d in w.decisions[before:]]
    ended = sent.index(Motion())
    assert 0.4 < ended * STEP < 0.6
    assert all(m is None for m in sent[ended + 1:])


def test_an_override_lets_all_pass_and_ends():
    w = world(wall=2.0, override_timeout=1.0)
    w.run(20.0)
    w.guard.override(True, w.now)
    assert w.run(0.5).motion.vx == 1.0
    assert w.last.state == 'override'
    assert w.run(0.1, Motion(math.nan)).motion == Motion()
    assert w.run(0.6).motion.vx == 0


def test_the_same_picture_is_a_fault_only_when_the_robot_moved():
    w = world(change={'flags': Quality.FROZEN})
    w.run(1.5, Motion())
    w.run(0.1)
    assert w.motion.vx > 0                    # a simulated camera is still while the robot stands
    assert 'frozen' in w.run(1.0).reason
    assert w.position < 0.3


def test_clearance_releases_a_robot_that_stands_and_holds_none():
    w = world(wall=2.0, stop_distance=0.5)
    w.run(20.0)
    assert w.last.limits[0].kind == 'blocked'
    w.wall = math.inf
    w.change = {'clearance': 0.4}
    w.run(5.0)
    assert w.motion.vx == 0
    w.change = {'clearance': 5.0}
    w.run(6.0)
    assert w.motion.vx == pytest.approx(1.0)
    w = world(change={'clearance': 0.3})
    w.run(3.0, Motion())
    assert w.run(6.0).motion.vx == pytest.approx(1.0)


def test_a_range_sensor_limits_and_its_silence_is_a_fault():
    guard = VelocityGuard(GuardSettings(), {'front': 0.0}, {'sonar': 0.0})

    def at(now: float, distance: float | None) -> Decision:
        guard.observe(SourceReport('front', now - 0.05, now, Level.CLEAR, math.inf))
        if distance is not None:
            guard.observe_range(RangeReading('sonar', now, now, distance))
        guard.command(Motion(1.0), now)
        return guard.decide(now)

    assert 'sonar' in at(0.0, None).reason
    for i in range(200):
        last = at(0.1 + i * 0.05, math.inf)
    assert last.motion.vx == 1.0
    assert at(11.0, 1.1).motion.vx == pytest.approx(0.5)      # (1.1 - 0.3) m in 1.6 s
    assert at(11.1, 0.2).motion.vx == 0
    assert at(11.2, math.nan).motion.vx == 0
    assert 'timeout' in at(12.0, None).reason


def test_odometry_counts_instead_of_the_commands():
    history = SpeedHistory()
    history.add(0.0, Motion(1.0))
    history.add(1.0, Motion(0.5, 0.0, 0.2))
    assert history.travel(0.0, 2.0, 0.0) == pytest.approx(1.5)
    assert history.mean(0.5, 1.5, 0.0) == pytest.approx(0.75)
    assert history.turned(0.0, 2.0) == pytest.approx(0.2)
    w = world()
    w.guard.observe_speed(Motion(0.3), 0.0)
    assert w.guard.history.newest == Motion(0.3)


class Counting(deque):
    """Counts what is looked at."""

    looked = 0

    def __iter__(self):
        for item in super().__iter__():
            self.looked += 1
            yield item

    def __reversed__(self):
        for item in super().__reversed__():
            self.looked += 1
            yield item


def test_the_history_adds_up_and_looks_only_at_the_time_it_is_asked_for():
    history = SpeedHistory()
    history._samples = samples = Counting()
    for i in range(1000):                                 # 5 s of odometry at 200 Hz
        history.add(i * 0.005, Motion(0.5 + 0.001 * (i % 7), 0.0, 0.002 * (i % 5)))
    samples.looked = 0
    assert history.travel(4.5, 4.9, 0.0) == pytest.approx(sum(
        0.005 * (0.5 + 0.001 * (i % 7)) for i in range(900, 980)))
    assert samples.looked < 110
    assert history.travel(-1.0, 9.0, 0.0) == pytest.approx(
        sum(0.005 * (0.5 + 0.001 * (i % 7)) for i in range(999)) + 4.005 * 0.505)
    assert history.turned(0.0025, 0.0075) == pytest.approx(0.0025 * 0.002)
    assert history.least(4.0, 4.9, 0.0) == 0.5
    assert history.least(-1.0, 4.9, 0.0) == 0.0           # not all of it is known
    assert history.travel(2.0, 2.0, 0.0) == 0


def test_the_reaction_is_told_once_for_each_assessment():
    guard = VelocityGuard(GuardSettings(), {'front': 0.0})
    guard.observe(SourceReport('front', 1.0, 1.2, Level.CLEAR, math.inf))
    guard.command(Motion(1.0), 1.2)
    assert guard.decide(1.21).reaction_s == pytest.approx(0.21)
    assert math.isnan(guard.decide(1.22).reaction_s)


@pytest.mark.parametrize(('values', 'word'), [
    ({'stop_time_to_contact': 3.0}, 'stop_time_to_contact'), ({'braking': 0.0}, 'braking'),
    ({'caution_factor': 1.5}, 'caution_factor'), ({'doubted_factor': 1.5}, 'doubted_factor'),
    ({'horizon': math.nan}, 'horizon'),
    ({'release_speed': 0.05}, 'release_speed'), ({'uncovered': 'fly'}, 'uncovered'),
    ({'stop_distance': -1}, 'stop_distance'),
    ({'stop_on': ('timeout',)}, 'missing'), ({'slow_on': ('tired',)}, 'tired')])
def test_bad_settings_are_refused_by_name(values, word):
    with pytest.raises(ValueError, match=word):
        GuardSettings(**values)


def test_a_guard_needs_a_source():
    with pytest.raises(ValueError, match='sources'):
        VelocityGuard(GuardSettings(), {})
    with pytest.raises(ValueError, match='front'):
        VelocityGuard(GuardSettings(), {'front': math.nan})


@pytest.mark.parametrize('flag', [Quality.GEOMETRY_FAILED, Quality.LOW_TEXTURE])
def test_a_danger_stops_also_under_a_fault_that_only_slows(flag):
    w = world()
    w.run(6.0)
    w.change = {'flags': flag}
    assert w.run(0.5).motion.vx == pytest.approx(0.1)
    w.change = {'flags': flag, 'level': Level.DANGER, 'time_to_contact': 0.3}
    assert w.run(0.5).motion.vx == 0
    assert 'danger' in w.last.reason
    w.change = {'flags': flag}
    assert w.run(3.0).motion.vx == pytest.approx(0.1)     # the danger has gone, the fault has not


def test_a_robot_before_a_wall_does_not_creep_into_it_under_a_fault_that_only_slows():
    w = world(wall=4.0)
    w.run(20.0)
    assert w.motion.vx == 0
    where = w.position
    w.change = {'flags': Quality.LOW_TEXTURE}
    w.run(20.0)
    assert w.position == where


def test_an_unknown_view_can_slow_instead():
    names = tuple(name for name in ALWAYS if name != 'unknown')
    w = world(stop_on=names, slow_on=('unknown',))
    w.run(6.0)
    w.change = {'level': Level.UNKNOWN, 'time_to_contact': math.nan}
    assert w.run(1.0).motion.vx == pytest.approx(0.1)


def test_a_time_to_contact_that_is_no_number_is_never_free():
    w = world()
    w.run(6.0)
    w.change = {'time_to_contact': math.nan}
    assert w.run(0.5).motion.vx == 0
    assert 'unknown' in w.last.reason


def test_odometry_counts_alone_also_after_a_clock_jump():
    guard = VelocityGuard(GuardSettings(), {'front': 0.0})
    guard.clock_jumped(0.0)                   # as at every activation
    for i in range(1, 40):
        guard.observe(SourceReport('front', i * 0.05, i * 0.05, Level.CLEAR, math.inf))
        guard.observe_speed(Motion(0.2), i * 0.05)
        guard.command(AHEAD, i * 0.05)
        assert guard.decide(i * 0.05).motion.vx > 0.3 or i < 10
    assert guard.history.travel(1.0, 1.9, 0.0) == pytest.approx(0.2 * 0.9)


def seen(guard: VelocityGuard, yaws: dict[str, float], asked: Motion, **danger: bool) -> Motion:
    """What is left of a command after 6 s of a free way, with dangers at the end."""
    for i in range(130):
        now = i * 0.05
        for name in yaws:
            bad = danger.get(name, False) and i > 120
            guard.observe(SourceReport(name, now, now, Level.DANGER if bad else Level.CLEAR,
                                       0.3 if bad else math.inf))
        guard.command(asked, now)
        last = guard.decide(now)
    return last.motion


@pytest.mark.parametrize('yaw', [0.5, -0.8, 2.5])
def test_a_camera_that_looks_obliquely_makes_no_motion_that_nobody_commanded(yaw):
    yaws = {'oblique': yaw}
    asked = Motion(math.copysign(1.0, math.cos(yaw)), 0.0, 0.3)
    guard = VelocityGuard(GuardSettings(), yaws)
    # A base with two wheels leaves vy out: what is left of vx must not lead towards the source.
    assert seen(guard, yaws, asked, oblique=True) == Motion(0.0, 0.0, 0.3)


def test_motion_that_no_source_looks_at_stops_also_with_a_trace_of_motion_that_one_does():
    yaws = {'front': 0.0}
    guard = VelocityGuard(GuardSettings(uncovered='stop'), yaws)
    assert seen(guard, yaws, Motion(0.01, 1.0, 0.2)) == Motion(0.0, 0.0, 0.2)
    guard = VelocityGuard(GuardSettings(uncovered='stop'), yaws)
    assert seen(guard, yaws, Motion(0.5, 0.5)).vx > 0.4
    guard = VelocityGuard(GuardSettings(uncovered='stop'), yaws)
    assert seen(guard, yaws, Motion(0.5, 0.5), front=True) == Motion()
    guard = VelocityGuard(GuardSettings(uncovered='slow'), yaws)
    assert seen(guard, yaws, Motion(-0.5)) == Motion(-0.1)


@pytest.mark.parametrize(('uncovered', 'left', 'state'), [
    ('free', Motion(-1.0, 0.0, 0.4), 'free'), ('slow', Motion(-0.1, 0.0, 0.4), 'slowed'),
    ('stop', Motion(0.0, 0.0, 0.4), 'stopped')])
def test_a_robot_with_one_camera_reverses_also_before_a_danger_and_that_is_told(uncovered, left,
                                                                                state):
    yaws = {'front': 0.0}
    guard = VelocityGuard(GuardSettings(uncovered=uncovered), yaws)
    assert seen(guard, yaws, Motion(-1.0, 0.0, 0.4), front=True) == left
    last = guard.decide(6.5)
    assert last.blind
    assert (last.state, last.limits[0].kind) == (state, 'uncovered')
    assert 'no source looks where the robot goes' in last.reason
    guard = VelocityGuard(GuardSettings(uncovered=uncovered), yaws)
    assert seen(guard, yaws, Motion(1.0)) == Motion(1.0)
    assert not guard.decide(6.5).blind


def test_by_default_driving_away_is_free():
    assert GuardSettings().uncovered == 'free'


@pytest.mark.parametrize(('yaws', 'where'), [
    ((0.0,), 'left, backward, right, 60 to 300'),
    ((math.pi,), 'forward, left, right, -120 to 120'),
    ((0.0, math.pi), 'left, right, 60 to 120 and -120 to -60'),
    ((0.0, 2.0, -2.0), 'backward, 175 to 185'), ((0.5, 2.5, -2.0), 'looks -55 to -31'),
    ((0.0, math.pi / 2, math.pi, -math.pi / 2), ''),
    ((0.0, math.radians(120), math.radians(-120)), '')])
def test_where_no_source_looks_is_told(yaws, where):
    guard = VelocityGuard(GuardSettings(), {str(i): yaw for i, yaw in enumerate(yaws)})
    text = guard.uncovered_text()
    assert (where in text and 'is free, BLIND' in text) if where else text == ''
    for low, high in coverage.uncovered(yaws):   # where the law takes motion as blind
        for yaw in (low + 0.01, high - 0.01):
            assert not any(math.cos(yaw - other) > 0.5 for other in yaws)
        for yaw in (low - 0.01, high + 0.01):
            assert any(math.cos(yaw - other) > 0.5 for other in yaws)


def test_a_range_sensor_covers_its_direction_too():
    guard = VelocityGuard(GuardSettings(uncovered='stop'), {'front': 0.0}, {'rear': math.pi})
    assert '60 to 120 and -120 to -60' in guard.uncovered_text()
    assert 'is stopped' in guard.uncovered_text()


def test_one_of_two_cameras_that_dies_stops_motion_towards_it_alone():
    guard = VelocityGuard(GuardSettings(), {'front': 0.0, 'back': math.pi})
    for i in range(160):
        now = i * 0.05
        for name in ('front', 'back') if i < 130 else ('front',):
            guard.observe(SourceReport(name, now, now, Level.CLEAR, math.inf))
        guard.command(Motion(1.0 if i < 150 else -1.0), now)
        last = guard.decide(now)
        assert i < 130 or i >= 150 or last.motion.vx == 1.0
    assert last.motion == Motion()
    assert 'back: timeout' in last.reason


def test_a_range_sensor_makes_nothing_forgotten_that_it_can_not_see():
    def before_a_wall(reach: float, age: float = 0.0) -> float:
        w = world(wall=4.0, stop_distance=1.0)
        w.guard = VelocityGuard(w.guard.settings, {'front': 0.0}, {'sonar': 0.0})
        for _ in range(1500):
            w.guard.observe_range(RangeReading('sonar', w.now - age, w.now, math.inf, reach))
            w.run(STEP)
        return w.gap

    assert before_a_wall(0.5) > 0.9
    assert before_a_wall(10.0) < 0.9          # it says that nothing is there, and is believed


def test_a_range_reading_that_is_old_makes_nothing_forgotten_and_replaces_no_newer_one():
    names = tuple(name for name in ALWAYS if name != 'timeout')
    w = world(wall=4.0, stop_distance=1.0, stop_on=names, slow_on=('timeout',))
    w.guard = VelocityGuard(w.guard.settings, {'front': 0.0}, {'sonar': 0.0})
    for i in range(1500):
        old = 2.0 if i > 800 else 0.0
        w.guard.observe_range(RangeReading('sonar', w.now - old, w.now, math.inf,
                                           10.0 if old else 0.5))
        w.run(STEP)
        assert i < 600 or w.motion.vx == 0
    guard = VelocityGuard(GuardSettings(), {}, {'sonar': 0.0})
    guard.observe_range(RangeReading('sonar', 1.0, 1.0, 0.2))
    guard.observe_range(RangeReading('sonar', 0.8, 1.01, math.inf))      # late
    guard.command(AHEAD, 1.02)
    assert guard.decide(1.02).motion.vx == 0


def test_a_range_sensor_that_falls_silent_before_something_does_not_let_creep_into_it():
    names = tuple(name for name in ALWAYS if name != 'timeout')
    guard = VelocityGuard(GuardSettings(stop_on=names, slow_on=('timeout',)), {}, {'sonar': 0.0})
    guard.observe_range(RangeReading('sonar', 1.0, 1.0, 0.2))
    guard.command(AHEAD, 3.0)
    assert guard.decide(3.0).motion.vx == 0


def test_what_was_seen_before_a_silence_does_not_cover_the_time():
    steady = Steady()
    for i in range(20):
        steady.add(i * 0.1, 5.0, 1.0)
    assert steady.least(1.0) == 5.0
    for i in range(4):
        steady.add(60.0 + i * 0.1, 5.0, 1.0)
    assert math.isnan(steady.least(1.0))


def test_a_remembered_obstacle_is_doubted_also_when_odometry_trembles():
    w = world(wall=2.0, forget=2.0)
    w.run(5.0)
    standing = w.guard.sources['front'].way
    for i in range(200):
        w.guard.observe_speed(Motion(1e-4 * (-1) ** i), w.now)
        w.run(STEP, STILL)
    assert not standing.threat
