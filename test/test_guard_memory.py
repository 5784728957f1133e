# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Whatever makes the guard forget an obstacle, the robot does not reach it: closed loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from vjepa_ros.guard.guard import VelocityGuard
from vjepa_ros.guard.settings import GuardSettings
from vjepa_ros.guard.types import Motion, STILL, SourceReport
from vjepa_ros.perception.types import Level

STEP = 0.02              # s
PERIOD, LATENCY = 5, 6   # steps between assessments, and until they arrive
LAG_S = 0.15             # of the base
AHEAD, BACK = Motion(1.0), Motion(-0.4)
LEFT, RIGHT = Motion(omega=1.0), Motion(omega=-1.0)
HELD = (3.0, AHEAD)      # to drive on for so long


class Room:
    """A robot that follows with a lag, before a wall across the x axis; ideal assessments."""

    def __init__(self, gap: float, odometry: Callable[[Motion, int], Motion | None] | None = None,
                 **settings: object) -> None:
        self.guard = VelocityGuard(GuardSettings(**settings), {'front': 0.0})
        self.wall, self.place, self.yaw = gap, 0j, 0.0
        self.odometry = odometry
        self.motion, self.steps, self.offset = STILL, 0, 0.0
        self.due: list[tuple[int, SourceReport]] = []
        self.change: Callable[[int], dict] = lambda step: {}
        self.closest = gap

    @property
    def now(self) -> float:
        return self.steps * STEP + self.offset

    @property
    def ahead(self) -> float:
        """How far the wall is along the optical axis."""
        cos = math.cos(self.yaw)
        return (self.wall - self.place.real) / cos if cos > 0.2 else math.inf

    def look(self) -> SourceReport:
        speed = self.motion.vx
        time = self.ahead / speed if speed > 1e-3 and self.ahead < 25 * speed else math.inf
        level = (Level.DANGER if time < 1.2 else Level.WARNING if time < 2.5 else
                 Level.CAUTION if time < 4 else Level.CLEAR)
        return replace(SourceReport('front', self.now, 0.0, level, time),
                       **self.change(self.steps))

    def run(self, seconds: float, asked: Motion = AHEAD) -> Room:
        for _ in range(round(seconds / STEP)):
            if self.steps % PERIOD == 0:
                self.due.append((self.steps + LATENCY, self.look()))
            while self.due and self.due[0][0] <= self.steps:
                self.guard.observe(replace(self.due.pop(0)[1], received_s=self.now))
            told = self.odometry and self.odometry(self.motion, self.steps)
            if told is not None:
                self.guard.observe_speed(told, self.now)
            self.guard.command(asked, self.now)
            sent = self.guard.decide(self.now).motion or STILL
            part = min(1.0, STEP / LAG_S)
            self.motion = Motion(*(old + part * (new - old) for old, new in (
                (self.motion.vx, sent.vx), (self.motion.vy, sent.vy),
                (self.motion.omega, sent.omega))))
            self.yaw += self.motion.omega * STEP
            self.place += complex(self.motion.vx, self.motion.vy) * STEP * complex(
                math.cos(self.yaw), math.sin(self.yaw))
            self.closest = min(self.closest, self.wall - self.place.real)
            self.steps += 1
        return self

    def repeat(self, times: int, *parts: tuple[float, Motion]) -> Room:
        for _ in range(times):
            for seconds, asked in parts:
                self.run(seconds, asked)
        return self

    def jump(self, by: float) -> None:
        """The clock is set: assessments on their way are of another time."""
        self.offset += by
        self.guard.clock_jumped(self.now)


def odometry(scale: float, omega: float = 1.0) -> Callable[[Motion, int], Motion]:
    return lambda motion, step: Motion(scale * motion.vx, scale * motion.vy, omega * motion.omega)


ODOMETRY = {
    'none': None, 'right': odometry(1.0), 'zero': odometry(0.0, 0.0), 'reversed': odometry(-1.0),
    'reversed turns': odometry(1.0, -1.0), 'tenth': odometry(0.1), 'half': odometry(0.5),
    'tenfold': odometry(10.0), 'millimetres': odometry(900.0),
    'sideways': lambda motion, step: Motion(0.0, motion.vx, motion.omega),
    'at times zero': lambda motion, step: motion if step % 40 < 20 else STILL,
    'at times': lambda motion, step: motion if step % 200 < 100 else None,
    'stuck': lambda motion, step: Motion(0.2),
    'drifting': lambda motion, step: Motion(motion.vx, motion.vy, motion.omega + 0.05),
    'spinning': lambda motion, step: Motion(motion.vx, motion.vy, -1.0),
    'stuck back': lambda motion, step: Motion(-0.5)}


@pytest.mark.parametrize('gap', [0.5, 3.0])
@pytest.mark.parametrize('name', ODOMETRY)
def test_a_wrong_odometry_does_not_bring_the_robot_to_the_wall(name, gap):
    room = Room(gap, ODOMETRY[name]).run(60.0)
    assert room.closest > 0.05
    if name in ('none', 'right') and gap > 1:
        assert room.closest < 0.4                # it still comes as near as it may


@pytest.mark.parametrize('name', ['none', 'zero'])
@pytest.mark.parametrize('by', [0.0, 100.0, -0.3])
@pytest.mark.parametrize('every_s', [0.7, 3.0, 8.0])
def test_a_clock_that_is_set_again_and_again_does_not(name, every_s, by):
    room = Room(3.0, ODOMETRY[name])
    for _ in range(round(60 / every_s)):
        room.run(every_s)
        room.jump(by)
    assert room.closest > 0.15
    assert room.closest < 3.0 - 0.5 or every_s < 3


@pytest.mark.parametrize('name', ['none', 'right', 'zero', 'reversed turns'])
@pytest.mark.parametrize('angle', [0.4, 0.6, 0.9, 1.3, 2.5])
def test_turning_away_and_back_does_not(name, angle):
    room = Room(2.0, ODOMETRY[name]).run(20.0)
    room.repeat(6, (angle, LEFT), (angle, RIGHT), HELD)
    assert room.closest > 0.1
    room.repeat(3, (angle, LEFT), (0.5, AHEAD), (2 * angle, RIGHT), (0.5, AHEAD), (angle, LEFT),
                HELD)
    assert room.closest > 0.05


@pytest.mark.parametrize('name', ['none', 'right', 'zero'])
@pytest.mark.parametrize('parts', [
    ((1.0, Motion(vy=0.5)), (1.0, Motion(vy=-0.5)), HELD), ((1.0, BACK), HELD),
    ((1.0, BACK), (1.0, LEFT), (1.0, RIGHT), HELD), ((2.0, STILL), HELD)])
def test_nor_does_driving_aside_or_back_and_on(name, parts):
    assert Room(2.0, ODOMETRY[name], uncovered='free').run(20.0).repeat(10, *parts).closest > 0.1


@pytest.mark.parametrize('times', [1, 3])
@pytest.mark.parametrize('name', ['none', 'right', 'zero'])
def test_nor_does_what_passes_between_it_and_the_wall(name, times):
    room = Room(2.0, ODOMETRY[name])
    # Something approaches the robot that stands, in some assessments every four seconds.
    room.change = lambda step: {'time_to_contact': 1.4, 'level': Level.WARNING} if (
        step > 1000 and step % 200 < times * PERIOD) else {}
    assert room.run(60.0).closest > 0.1


def test_nor_do_heads_that_see_a_free_path_while_the_robot_stands():
    room = Room(2.0)
    room.change = lambda step: {'clearance': 5.0 if room.motion.vx < 0.01 else math.nan}
    assert room.run(60.0).closest > 0.05


@pytest.mark.parametrize('configured', [False, True])
def test_nor_do_many_activations(configured):
    room = Room(2.0).run(20.0)
    for _ in range(12):
        before = room.guard
        if configured:
            room.guard = VelocityGuard(before.settings, {'front': 0.0})
            room.guard.restart(before)
        room.guard.clock_jumped(room.now)
        room.guard.restart()
        room.run(3.0)
    assert room.closest > 0.05


@pytest.mark.parametrize('gap', [0.5, 1.5])
def test_nor_does_a_danger_without_a_time(gap):
    room = Room(gap)
    plain = room.look

    def look() -> SourceReport:
        seen = plain()
        return replace(seen, time_to_contact=math.inf) if seen.level >= Level.DANGER else seen

    room.look = look
    assert room.run(60.0).closest > 0.1


@pytest.mark.parametrize('name', ['none', 'right'])
@pytest.mark.parametrize('angle', [0.0, 0.8, 2.0])
def test_where_the_obstacle_is_gone_the_robot_goes_on(name, angle):
    room = Room(2.0, ODOMETRY[name]).run(20.0)
    room.run(angle, LEFT)
    room.wall = 1e3                              # it was a person
    if angle == 0:                               # who walked past
        room.change = lambda step: {'time_to_contact': 1.0} if step < 1020 else {}
    room.run(6.0)
    assert room.motion.vx == pytest.approx(1.0, abs=0.05)
    room.run(angle, RIGHT)
    room.run(8.0)
    assert room.motion.vx == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize('name', ODOMETRY)
def test_an_odometry_that_contradicts_the_commands_is_told(name):
    room = Room(1e3, ODOMETRY[name]).run(6.0)
    told = room.guard.speed_problem(room.now)
    assert bool(told) == (name not in ('none', 'right', 'reversed turns', 'half', 'at times',
                                       'at times zero', 'stuck', 'drifting', 'spinning')), told


def test_a_base_that_is_switched_off_keeps_what_was_seen_and_goes_on_afterwards():
    room = Room(3.0, ODOMETRY['right'])
    while room.wall - room.place.real > 1.5:
        room.run(STEP)
    room.odometry, follow = odometry(0.0), room.motion
    place = room.place
    for _ in range(500):                         # it does not move, whatever is sent
        room.run(STEP)
        room.place, room.motion = place, STILL
    assert follow.vx > 0.3 and 'does not execute' in room.guard.speed_problem(room.now)
    room.odometry = ODOMETRY['right']
    assert 0.2 < room.run(20.0).closest < 0.6
