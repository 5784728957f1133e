# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What the twist planner sends where nothing can be judged, and how messages find each other."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from looming_scenes import OPTICS, field, seen

from vjepa_ros.perception.looming_cells import LoomingCells
from vjepa_ros.perception.types import Level, Quality
from vjepa_ros.planning.twist_config import Twist
from vjepa_ros.ros.twist_planner.parameters import SCHEMA, make_config, source_rows
from vjepa_ros.ros.twist_planner.pilot import Choice, TwistPilot

VALUES = {row.name: row.default for row in (*SCHEMA.rows, *source_rows('camera'))}
WALL = [(-3.0, 3.0, 1.2)]
NS = 1_000_000_000


class Drive:
    """A robot that drives ahead at 1 m/s, whose camera is 0.1 s behind."""

    def __init__(self, boxes: list[tuple[float, float, float]] | None = None,
                 level: Level = Level.WARNING, **values: object) -> None:
        self.pilot = TwistPilot(make_config({**VALUES, 'speed_from': 'odometry', **values}), 0.0)
        self.now = 0.0
        self.boxes, self.level, self.flags = boxes or [], level, Quality(0)
        self.order = ('assessment', 'field')
        self.go(0.5, look=False)

    def go(self, seconds: float, speed: float = 1.0, look: bool = True) -> Choice:
        for _ in range(round(seconds / 0.1)):
            self.now += 0.1
            self.pilot.moves(Twist(speed), self.now)
            if look:
                self.look()
        return self.command()

    def look(self, stamp_s: float | None = None) -> None:
        stamp_s = self.now - 0.1 if stamp_s is None else stamp_s
        stamp = round(stamp_s * NS)
        result = seen(field(1.0, self.boxes), self.level)
        told = replace(result.assessment, stamp_ns=stamp, flags=self.flags)
        for kind in self.order:
            if kind == 'assessment':
                self.pilot.assessed('camera', told, self.now, self.now - stamp_s)
            else:
                self.pilot.measured('camera', LoomingCells.of(result, OPTICS), stamp, self.now,
                                    self.now - stamp_s)

    def command(self, vx: float = 1.0, omega: float = 0.0) -> Choice:
        self.pilot.command(Twist(vx, 0.0, omega), self.now)
        return self.pilot.decide(self.now)


def test_a_picture_counts_when_both_of_its_messages_have_come():
    for order in (('assessment', 'field'), ('field', 'assessment')):
        drive = Drive(WALL)
        drive.order = order
        assert drive.go(1.0).state in ('slowed', 'stopped', 'turned')
    drive = Drive(WALL)
    drive.order = ('assessment',)
    choice = drive.go(1.0)
    assert choice.state == 'fault' and 'no looming_field' in choice.reason
    assert choice.twist == Twist()
    source = drive.pilot.sources['camera']
    assert len(source.seen) <= 8 and not source.cells      # what waits in vain is forgotten


def test_an_older_picture_than_the_newest_is_not_taken():
    drive = Drive()
    drive.go(1.0)
    before = drive.pilot.sources['camera'].judged_s
    drive.boxes = WALL
    drive.look(drive.now - 0.4)
    assert drive.pilot.sources['camera'].judged_s == before
    assert drive.command().state == 'free'


def test_what_is_flagged_leaves_no_traces():
    drive = Drive(WALL)
    drive.flags = Quality.WARMING_UP
    choice = drive.go(1.0)
    assert choice.state == 'fault' and 'warming_up' in choice.reason
    drive.flags, drive.boxes = Quality(0), []
    assert drive.go(0.3).state == 'free'


def test_after_it_has_turned_away_the_way_is_not_measured():
    drive = Drive()
    assert drive.go(1.0).state == 'free'
    for _ in range(10):                                # on the spot, by 1 rad
        drive.now += 0.1
        drive.pilot.moves(Twist(0.0, 0.0, 1.0), drive.now)
        drive.look()
    choice = drive.command()
    assert (choice.state, choice.twist) == ('unmeasured', Twist(1.0))
    assert choice.reason == ('the way is not measured: what was measured lies in another '
                             'direction')


@pytest.mark.parametrize('flag', [Quality.GEOMETRY_FAILED, Quality.LOW_TEXTURE])
def test_flags_that_only_slow_before_a_guard_make_the_way_unmeasured(flag):
    drive = Drive()
    assert drive.go(1.0).state == 'free'
    drive.flags = flag
    choice = drive.go(0.1)
    assert (choice.state, choice.twist) == ('unmeasured', Twist(1.0))
    assert f'flagged {flag.names[0]}' in choice.reason
    drive.pilot.configure(make_config({**VALUES, 'speed_from': 'odometry', 'stop_on': (
        *VALUES['stop_on'], flag.names[0])}))
    assert drive.command().state == 'fault'            # where the user wants that
    drive.flags = Quality(0)
    assert drive.go(0.1).state == 'free'


@pytest.mark.parametrize(('on_fault', 'twist'), [
    ('stop', Twist(0, 0, 0.5)), ('pass', Twist(1, 0, 0.5)), ('silent', None)])
def test_faults_do_as_the_parameter_says(on_fault, twist):
    drive = Drive(on_fault=on_fault)
    drive.go(1.0)
    drive.go(1.0, look=False)
    choice = drive.command(1.0, 0.5)
    assert choice.state == 'fault' and 'timeout' in choice.reason
    assert choice.twist == twist
    assert drive.command(0.0, 0.5).twist == Twist(0, 0, 0.5)     # nothing to be seen there
    assert drive.command(-1.0).state == 'uncovered'


def test_without_odometry_nothing_is_judged():
    drive = Drive()
    assert drive.go(1.0).state == 'free'
    for _ in range(10):
        drive.now += 0.1
        drive.look()
    choice = drive.command()
    assert choice.state == 'fault' and 'no odometry for' in choice.reason
    with pytest.raises(ValueError, match='speed'):
        drive.pilot.moves(Twist(math.nan), drive.now)


def test_who_hears_nothing_from_the_guard_takes_the_robot_for_standing():
    drive = Drive(speed_from='sent')
    assert 'nobody publishes' in drive.go(1.0).reason
    drive.pilot.wired = True
    assert drive.go(1.0).state == 'free'
    drive.now += 5.0
    drive.look()
    assert drive.pilot.motion == Twist()
    assert drive.command().state == 'unmeasured'


def test_a_command_ends_with_one_zero():
    drive = Drive()
    drive.go(1.0)
    drive.now += 0.6
    first, second = drive.pilot.decide(drive.now), drive.pilot.decide(drive.now)
    assert (first.state, first.twist, second.twist) == ('idle', Twist(), None)


def test_a_jump_of_the_clock_leaves_no_command_without_its_zero():
    drive = Drive()
    assert drive.go(1.0).twist.speed
    drive.pilot.reset(drive.now)
    first, second = drive.pilot.decide(drive.now), drive.pilot.decide(drive.now)
    assert (first.twist, second.twist) == (Twist(), None)


def test_the_reason_says_what_was_changed_and_why():
    choice = Drive(WALL, Level.DANGER).go(1.0)
    assert choice.twist.speed < 1.0 or choice.twist.omega
    assert 'the command has risk' in choice.reason and 's), this one' in choice.reason


def test_live_parameters_hold_at_once():
    drive = Drive(WALL)
    assert drive.go(1.0).state != 'free'
    drive.pilot.configure(make_config({**VALUES, 'speed_from': 'odometry', 'accepted': 1.0}))
    assert drive.command().state == 'free'
