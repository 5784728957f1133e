# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The local planner: what it chooses, and what it sends where nothing can be judged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from fields import OPTICS, field, seen

from vjepa_ros.guard.settings import GuardSettings
from vjepa_ros.guard.types import Motion
from vjepa_ros.perception.looming_cells import LoomingCells
from vjepa_ros.perception.types import Level, Quality
from vjepa_ros.planning.decision import Choice, DecisionConfig, LocalDecider, Pose
from vjepa_ros.planning.local_planner import LocalPlan, LocalPlanner
from vjepa_ros.planning.obstacle_memory import LocalConfig, Mount

Boxes = Sequence[tuple[float, float, float]]
AHEAD = Motion(1.0)
WALL, LEFT_BOX = [(-3.0, 3.0, 1.2)], [(-1.5, 0.25, 1.4)]
NS = 1_000_000_000


def look(planner: LocalPlanner, boxes: Boxes = (), speed: float = 1.0,
         level: Level = Level.WARNING, age_s: float = 0.0, camera: str = 'camera',
         **change: object) -> None:
    """Let a camera see boxes that it goes towards at a speed."""
    result = seen(field(speed, boxes), level)
    planner.see(camera, LoomingCells.of(result, OPTICS), replace(result.assessment, **change),
                age_s)


def drive(planner: LocalPlanner, vx: float, seconds: float = 1.0, omega: float = 0.0) -> None:
    """Let the robot move."""
    for _ in range(round(seconds / 0.1)):
        planner.move(Motion(vx, 0.0, omega), 0.1)


def driving(config: LocalConfig | None = None, **more: object) -> LocalPlanner:
    """A planner of a robot that has driven ahead at 1 m/s."""
    planner = LocalPlanner(config or LocalConfig(), **more)
    drive(planner, 1.0)
    return planner


def plan(boxes: Boxes, speed: float = 1.0, turn: float = 0.0, level: Level = Level.WARNING
         ) -> LocalPlan:
    planner = driving()
    look(planner, boxes, level=level)
    return planner.choose(Motion(speed, 0.0, turn))


def risk(planner: LocalPlanner, command: Motion = AHEAD) -> float:
    """The risk of a command itself."""
    return float(planner.choose(command).candidates[0]['risk'])


def contact_s(planner: LocalPlanner, command: Motion = AHEAD) -> float:
    """The time until a command meets something."""
    return float(planner.choose(command).candidates[0]['time_to_contact'])


def test_it_goes_round_a_box_on_the_free_side():
    left, right = plan(LEFT_BOX), plan([(-0.25, 1.5, 1.4)])
    assert left.twist.omega < 0 < right.twist.omega      # positive turns go to the left
    assert left.risk < 0.3 and left.twist.vx > 0
    table = left.candidates
    assert table[0]['risk'] > 0.4 and 1.0 < table[0]['time_to_contact'] < 1.5
    best = table[table['rank'] == 0][0]
    assert best['accepted'] and tuple(best[['vx', 'vy', 'omega']]) == pytest.approx(left.twist)


def test_it_slows_down_before_a_wall():
    free = plan([])
    assert free.twist == (1.0, 0.0, 0.0) and free.risk < 0.1
    assert not free.unmeasured
    assert plan([(-3.0, 3.0, 0.6)]).twist.vx < 0.6
    for far in (0.1, 0.5):                                # closer than the outline
        assert plan([(-0.4, 0.4, far)], level=Level.DANGER).twist.vx == 0.0


def test_it_remembers_what_it_saw_while_the_robot_stands_and_turns():
    planner, ahead, box = driving(LocalConfig(memory_s=3.0)), Motion(0.8), [(-0.3, 0.3, 1.0)]
    look(planner, box)
    for _ in range(10):
        planner.move(Motion(), 0.1)
        look(planner, box, 0.0)
    assert risk(planner, ahead) > 0.5
    drive(planner, 0.0, 1.0, math.pi / 2)             # now it looks to the left
    assert planner.choose(ahead).twist.vx == 0.8
    drive(planner, 0.0, 10.0)
    chosen = planner.choose(ahead)                    # it has forgotten, and reports that
    assert chosen.points == 0 and 'nothing for 3 s' in chosen.unmeasured


@pytest.mark.parametrize(('turned', 'known'), [(0.5, True), (-0.65, False), (2 * math.pi, True)])
def test_only_directions_that_were_looked_at_are_measured(turned, known):
    """The camera sees 33 degrees (0.57 rad) to each side."""
    planner = driving()
    look(planner)
    drive(planner, 0.0, 1.0, turned)
    assert (not planner.choose(AHEAD).unmeasured) == known


def test_where_looming_was_not_measured_the_way_is_not():
    planner = driving()
    look(planner, [(-0.3, 0.3, 1.0)], flags=Quality.LOW_TEXTURE | Quality.SLOW_CAMERA)
    chosen = planner.choose(AHEAD)
    assert 'flagged low_texture' in chosen.unmeasured and chosen.points > 0
    look(planner)
    assert not planner.choose(AHEAD).unmeasured


@pytest.mark.parametrize('age', [0.0, 0.7])
def test_the_way_since_the_picture_counts(age):
    """A box that was 2 m ahead when the picture was taken is nearer by what was driven since."""
    planner = driving()
    drive(planner, 1.0, age)
    look(planner, [(-0.4, 0.4, 2.0)], level=Level.DANGER, age_s=age)
    # 0.3 m from the camera back to the middle, less half a length and the margin.
    assert contact_s(planner) == pytest.approx(2.0 + 0.3 - 0.45 - age, abs=0.21)


@pytest.mark.parametrize(('level', 'counts'), [(Level.CAUTION, False), (Level.WARNING, True)])
def test_what_the_heads_say_counts_from_warning_on(level, counts):
    for change in ({'collision_probability': 0.9}, {'clearance': 0.5}):
        planner = driving()
        look(planner, level=level, **change)
        assert (risk(planner) > 0.5) == counts


@pytest.mark.parametrize(('probability', 'turn', 'stops'), [
    (0.4, 0.0, True), (0.2, 0.0, False), (math.nan, 0.0, True),
    (0.2, -0.5, True)])                       # the heads say nothing of another turn
def test_points_stop_nobody_where_the_heads_suspect_nothing(probability, turn, stops):
    planner = driving()
    look(planner, [(-0.25, 1.5, 1.4)], level=Level.CLEAR, collision_probability=probability,
         collision_if_ahead=0.01)
    assert (risk(planner, Motion(1.0, 0.0, turn)) > 0.4) == stops


def test_cameras_look_where_they_are_mounted():
    planner = LocalPlanner(cameras={'front': Mount(), 'rear': Mount(yaw=math.pi, x=-0.3)})
    drive(planner, -1.0)
    look(planner, [(-0.4, 0.4, 1.0)], camera='rear')
    back, ahead = planner.choose(Motion(-1.0)), planner.choose(AHEAD)
    assert not back.unmeasured and back.candidates[0]['time_to_contact'] < 1.3
    assert back.twist.vx > -1.0 or abs(back.twist.omega) > 0
    assert ahead.unmeasured and ahead.twist == AHEAD
    assert 'no camera looks there' in planner.choose(Motion(0.0, 1.0)).unmeasured
    assert plan(WALL, 0.0, 1.0).twist == (0.0, 0.0, 1.0)         # a turn on the spot


def test_somebody_who_crosses_goes_on():
    """A person 1.6 m ahead walks to the right at 1 m/s: a robot that arrives later passes."""
    result = seen(field(1.0, [(-0.2, 0.2, 1.6)]))
    cells = LoomingCells.of(result, OPTICS)
    box = cells.course > 0
    cells = replace(cells, drift_across=cells.rate * cells.across + box / 1.6)
    moving = replace(cells, moving=np.where(box, 1.0, 0.0))
    for known, passes in ((cells, False), (moving, True)):
        planner = driving()
        planner.see('camera', known, result.assessment)
        assert (risk(planner) < 0.3) == passes


def test_an_object_across_the_path_never_falls_between_two_steps():
    for away in np.arange(0.5, 3.0, 0.1):
        planner = LocalPlanner(LocalConfig(length=0.3, margin=0.05, max_speed=2.0))
        walls(planner, (away - 2j, away + 2j))
        assert contact_s(planner, Motion(2.0)) <= away / 2.0 + 0.2


def walls(planner: LocalPlanner, *lines: tuple[complex, complex]) -> None:
    """Let the planner remember walls between points (ahead + 1j left)."""
    for begin, end in lines:
        at = begin + (end - begin) * np.linspace(0, 1, 1 + round(abs(end - begin) / 0.1))
        points = np.zeros((len(at), 6))
        points[:, 0], points[:, 1], points[:, 4] = at.real, at.imag, 3.0
        planner.memory.keep(points)


def travel(planner: LocalPlanner, goal: complex, seconds: float) -> complex:
    """Let the robot do what the planner says; return the goal as seen then."""
    memory, begin = planner.memory, planner.memory.place
    there = begin + goal * np.exp(1j * memory.yaw)
    for _ in range(round(seconds / 0.1)):
        chosen = planner.pursue(Pose(memory.place, memory.yaw).seen(there))
        planner.move(chosen.twist, 0.1)
    return complex(Pose(memory.place, memory.yaw).seen(there))


@pytest.mark.parametrize(('lines', 'goal'), [
    ([], 1 + 2j), ([(2 - 4j, 2 + 0.4j), (2 + 1.6j, 2 + 4j)], 4 + 0j)],
    ids=['aside', 'through a door'])
def test_it_gets_to_a_goal_and_touches_nothing(lines, goal):
    planner = LocalPlanner(LocalConfig(cruise=1.0))
    walls(planner, *lines)
    wall, nearest = planner.memory.points()[:, :2] @ (1, 1j), math.inf
    for _ in range(12):
        goal = travel(planner, goal, 1.0)
        away = np.abs(Pose(planner.memory.place, planner.memory.yaw).seen(wall))
        nearest = min(nearest, away.min(initial=math.inf))
    assert abs(goal) < 0.5 and nearest > 0.3


class Drive:
    """A robot that drives ahead at 1 m/s, whose camera is 0.1 s behind."""

    def __init__(self, speed_from: str = 'odometry', on_fault: str = 'stop') -> None:
        self.decider = LocalDecider(DecisionConfig(
            LocalConfig(), GuardSettings(), {'camera': Mount()}, speed_from, on_fault), 0.0)
        self.now, self.flags = 0.0, Quality(0)

    def step(self, moves: bool = True) -> None:
        self.now += 0.1
        if moves:
            self.decider.moves(Motion(1.0), self.now)
        stamp = round((self.now - 0.1) * NS)
        result = seen(field(1.0, ()))
        self.decider.assessed('camera', replace(
            result.assessment, stamp_ns=stamp, flags=self.flags), self.now, 0.1)
        cells = LoomingCells.of(result, OPTICS)
        cells = replace(cells, moving=np.zeros(len(cells), np.float32))
        self.decider.measured('camera', cells, stamp, self.now, 0.1)

    def go(self, seconds: float, *motion: float, moves: bool = True) -> Choice:
        """Drive, and decide on a command, by default ahead at 1 m/s."""
        for _ in range(round(seconds / 0.1)):
            self.step(moves)
        self.decider.command(Motion(*(motion or (1.0,))), self.now)
        return self.decider.decide(self.now)


@pytest.mark.parametrize(('on_fault', 'sent'), [
    ('stop', Motion(0.0, 0.0, 0.4)), ('pass', Motion(1.0, 0.0, 0.4)), ('silent', None)])
def test_what_is_sent_at_a_fault_can_be_chosen(on_fault, sent):
    drive = Drive(on_fault=on_fault)
    drive.flags = Quality.UNTRAINED
    choice = drive.go(1.0, 1.0, 0.0, 0.4)
    assert (choice.state, choice.motion) == ('fault', sent)


@pytest.mark.parametrize(('motion', 'words'), [
    ((5.0,), 'max_speed'), ((1.0, 0.0, 3.0), 'max_turn'), ((math.nan,), 'not a number')])
def test_a_command_beyond_the_robot_is_refused(motion, words):
    choice = Drive().go(1.0, *motion)
    assert choice.state == 'fault' and choice.motion == Motion() and words in choice.reason


def test_a_command_that_is_not_renewed_ends_with_one_zero_and_then_silence():
    drive = Drive()
    assert drive.go(1.0).motion == Motion(1.0)
    sent = []
    for _ in range(10):
        drive.step()
        sent.append(drive.decider.decide(drive.now).motion)
    ended = sent.index(Motion())
    assert 4 <= ended <= 6                             # command_timeout is 0.5 s
    assert set(sent[:ended]) == {Motion(1.0)} and set(sent[ended + 1:]) == {None}


@pytest.mark.parametrize(('points', 'what', 'words'), [
    ([1e308 + 0j], 'goal', 'no place on Earth'),
    ([], 'path', '0 points'), ([1 + 0j, complex(math.nan)], 'path', 'not a number')])
def test_goals_and_paths_that_cannot_be_followed_are_refused_with_the_reason(points, what, words):
    robot = Drive()
    robot.decider.located(Pose(0j, 0.0), robot.now)
    with pytest.raises(ValueError, match=words):
        robot.decider.follow(points, what, robot.now)


def test_without_a_speed_nothing_is_judged():
    drive = Drive(speed_from='sent')
    for absurd in (math.nan, -1e308, 1e4):             # squares of such a speed overflow
        with pytest.raises(ValueError, match='speed'):
            drive.decider.moves(Motion(absurd), drive.now)
    assert 'nobody publishes' in drive.go(1.0).reason
    drive.decider.wired = True
    assert drive.go(1.0).state == 'free'
    drive.now += 5.0                                   # a guard that is silent: it stands
    assert drive.go(0.1, moves=False).state == 'unmeasured'
    assert drive.decider.motion == Motion()


def test_a_clock_that_jumps_takes_no_obstacle_away():
    decider = Drive().decider
    decider.planner.memory.block(1.0)
    before = len(decider.planner.memory.points())
    decider.clock_jumped(60.0)
    assert len(decider.planner.memory.points()) == before > 0
