# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test the choice of twists: fields of looming as a robot would measure them, from geometry."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from looming_scenes import CELL, FOCAL, OPTICS, SIZE, field, seen

from vjepa_ros.clip.resize import View
from vjepa_ros.perception.fusion import CourseField
from vjepa_ros.perception.looming_cells import LoomingCells
from vjepa_ros.perception.types import Level, Quality, Result
from vjepa_ros.planning.twist_config import Mount, Twist, TwistConfig, TwistPlan
from vjepa_ros.planning.twist_planner import TwistPlanner
from vjepa_ros.planning.twist_points import time_to_contact


def look(planner: TwistPlanner, speed: float, boxes: list[tuple[float, float, float]],
         level: Level = Level.WARNING, age_s: float = 0.0, camera: str = 'camera') -> None:
    """Let a camera see boxes that it goes towards at a speed."""
    result = seen(field(speed, boxes), level)
    planner.see(camera, LoomingCells.of(result, OPTICS), result.assessment, age_s)


def drive(planner: TwistPlanner, vx: float, seconds: float = 1.0, omega: float = 0.0,
          vy: float = 0.0) -> None:
    """Let the robot move."""
    for _ in range(round(seconds / 0.1)):
        planner.move(Twist(vx, vy, omega), 0.1)


def plan(boxes: list[tuple[float, float, float]], speed: float = 1.0, turn: float = 0.0,
         level: Level = Level.WARNING) -> TwistPlan:
    planner = TwistPlanner(TwistConfig())
    drive(planner, 1.0)
    look(planner, 1.0, boxes, level)
    return planner.choose(Twist(speed, 0.0, turn))


def straight_on(chosen: TwistPlan) -> np.ndarray:
    """What is known of the command itself."""
    return chosen.candidates[0]


def test_over_free_ground_the_command_passes():
    chosen = plan([])
    assert chosen.twist == (1.0, 0.0, 0.0)
    assert chosen.risk < 0.1
    assert chosen.covered and chosen.measured


def test_it_goes_round_a_box_on_the_free_side():
    left, right = plan([(-1.5, 0.25, 1.4)]), plan([(-0.25, 1.5, 1.4)])
    assert left.twist.omega < 0 < right.twist.omega      # positive turns go to the left
    assert left.risk < 0.3 and left.twist.vx > 0
    straight = straight_on(left)
    assert straight['risk'] > 0.4 and 1.0 < straight['time_to_contact'] < 1.5


def test_candidates_are_ranked():
    chosen = plan([(-1.5, 0.25, 1.4)])
    table = chosen.candidates
    assert (table['vx'][0], table['omega'][0], table['cost'][0]) == (1.0, 0.0, 0.0)
    assert sorted(table['rank']) == list(range(len(table)))
    best = table[table['rank'] == 0][0]
    assert tuple(best[['vx', 'vy', 'omega']]) == pytest.approx(chosen.twist)
    fine = table['accepted'] == 1
    assert best['accepted'] and best['cost'] == table['cost'][fine].min()
    assert table['rank'][fine].max() < table['rank'][~fine].min()


def test_before_a_wall_it_slows_down():
    chosen = plan([(-3.0, 3.0, 0.6)])
    assert chosen.twist.vx < 0.6
    assert chosen.risk == chosen.candidates['risk'].min() or chosen.risk <= 0.3


def test_what_is_not_believed_to_be_a_contact_slows_nobody():
    assert plan([(-0.2, 0.2, 1.5)], level=Level.CAUTION).twist.vx == 1.0


def test_it_remembers_what_it_saw_while_the_robot_stands_and_turns():
    planner = TwistPlanner()
    drive(planner, 1.0)
    look(planner, 1.0, [(-0.3, 0.3, 1.0)])
    for _ in range(10):
        planner.move(Twist(), 0.1)
        look(planner, 0.0, [(-0.3, 0.3, 1.0)])
    ahead = Twist(0.8)
    assert straight_on(planner.choose(ahead))['risk'] > 0.5
    drive(planner, 0.0, 1.0, math.pi / 2)             # now it looks to the left
    assert planner.choose(ahead).twist.vx == 0.8
    drive(planner, 0.0, 10.0)
    chosen = planner.choose(ahead)
    assert chosen.points == 0                             # it has forgotten, and says so
    assert chosen.unmeasured == ('nothing for 3 s: looming tells distances only to a robot that '
                                 'drives')


@pytest.mark.parametrize(('turned', 'known'), [
    (0.0, True), (0.5, True), (-0.5, True), (0.65, False), (-0.65, False), (1.5, False),
    (2 * math.pi, True)])
def test_only_directions_that_were_looked_at_are_measured(turned, known):
    """The camera sees 33 degrees (0.57 rad) to each side."""
    planner = TwistPlanner()
    drive(planner, 1.0)
    look(planner, 1.0, [])
    drive(planner, 0.0, 1.0, turned)
    chosen = planner.choose(Twist(1.0))
    assert chosen.twist == (1.0, 0.0, 0.0) and chosen.measured == known
    if not known:
        assert chosen.unmeasured == 'what was measured lies in another direction'
        drive(planner, 0.0, 1.0, -turned)                 # back again
        assert planner.choose(Twist(1.0)).measured


def test_turns_while_a_picture_was_on_its_way_count_too():
    planner = TwistPlanner()
    drive(planner, 1.0)
    drive(planner, 1.0, 0.8, 1.0)
    look(planner, 1.0, [], age_s=0.8)
    assert not planner.choose(Twist(1.0)).measured
    assert planner.choose(Twist(math.cos(0.8), -math.sin(0.8))).measured


def test_beside_what_a_camera_sees_nothing_is_measured():
    planner = TwistPlanner()
    drive(planner, 1.0)
    look(planner, 1.0, [])
    for beside, known in ((0.5, True), (0.65, False)):
        for side in (1, -1):
            chosen = planner.choose(Twist(math.cos(beside), side * math.sin(beside)))
            assert chosen.covered and chosen.measured == known


def test_what_another_camera_measured_before_the_turn_counts():
    planner = TwistPlanner(cameras={'front': Mount(), 'left': Mount(math.pi / 2, 0.0, 0.3)})
    drive(planner, 1.0)
    look(planner, 1.0, [], camera='front')
    left = Twist(0.0, 1.0)
    assert not planner.choose(left).measured
    drive(planner, 0.0, 1.0, -math.pi / 2)                # ahead is left now
    assert planner.choose(left).measured


@pytest.mark.parametrize('flag', [Quality.GEOMETRY_FAILED, Quality.LOW_TEXTURE])
def test_where_looming_was_not_measured_the_way_is_not(flag):
    planner = TwistPlanner()
    drive(planner, 1.0)
    look(planner, 1.0, [])
    assert planner.choose(Twist(1.0)).measured
    result = seen(field(1.0, [(-0.3, 0.3, 1.0)]))
    flagged = replace(result.assessment, flags=flag | Quality.SLOW_CAMERA)
    failed = flag == Quality.GEOMETRY_FAILED
    planner.see('camera', LoomingCells.none() if failed else LoomingCells.of(result, OPTICS),
                flagged)
    chosen = planner.choose(Twist(1.0))
    assert chosen.unmeasured == f'the newest picture is flagged {flag.names[0]}'
    assert chosen.twist.vx == 1.0 if failed else chosen.points > 0    # what it saw counts
    look(planner, 1.0, [])
    assert planner.choose(Twist(1.0)).measured


@pytest.mark.parametrize('age', [0.0, 0.4, 0.7])
def test_the_way_since_the_picture_counts(age):
    """A box that was 2 m ahead when the picture was taken is nearer by what was driven since."""
    planner = TwistPlanner(TwistConfig(window_s=0.1))
    drive(planner, 1.0)
    drive(planner, 1.0, age)
    look(planner, 1.0, [(-0.4, 0.4, 2.0)], Level.DANGER, age)
    time = straight_on(planner.choose(Twist(1.0)))['time_to_contact']
    # 0.3 m from the camera back to the middle, less half a length and the margin.
    assert time == pytest.approx(2.0 + 0.3 - 0.45 - age, abs=0.21)
    others = TwistPlanner(TwistConfig(window_s=0.1))
    drive(others, 1.0)
    drive(others, 1.0, age, 1.0)                      # the same, but it has turned to the left
    look(others, 1.0, [(-0.4, 0.4, 2.0)], Level.DANGER, age)
    middle = np.concatenate((others._points, others._eyes['camera'].points))[:, 1].mean()
    assert middle == pytest.approx(-2.3 * math.sin(age) + 0.5 * age ** 2, abs=0.2)


def test_what_was_measured_while_braking_is_not_kept():
    planner = TwistPlanner()
    drive(planner, 1.0)
    drive(planner, 0.4, 0.2)
    look(planner, 0.7, [(-0.4, 0.4, 1.2)], Level.DANGER)
    assert planner.choose(Twist(1.0)).points > 0            # it counts
    look(planner, 0.7, [], Level.DANGER)
    assert planner.choose(Twist(1.0)).points == 0           # until the next picture
    drive(planner, 0.6, 0.5)
    look(planner, 0.6, [(-0.4, 0.4, 1.2)], Level.DANGER)
    look(planner, 0.6, [], Level.DANGER)
    assert planner.choose(Twist(1.0)).points > 0            # at an even speed it is kept


@pytest.mark.parametrize(('level', 'counts'), [(Level.CAUTION, False), (Level.WARNING, True)])
def test_what_the_heads_say_counts_from_warning_on(level, counts):
    for change in ({'collision_probability': 0.9}, {'clearance': 0.5}):
        planner = TwistPlanner()
        drive(planner, 1.0)
        result = seen(field(1.0, []), level)
        planner.see('camera', LoomingCells.of(result, OPTICS),
                    replace(result.assessment, **change))
        assert (straight_on(planner.choose(Twist(1.0)))['risk'] > 0.5) == counts


def test_the_speed_is_that_of_the_picture_and_not_of_now():
    planner = TwistPlanner()
    drive(planner, 1.0)
    drive(planner, 0.0, 0.5)                          # it has braked meanwhile
    look(planner, 1.0, [(-0.4, 0.4, 1.5)], age_s=0.5)
    chosen = planner.choose(Twist(1.0))
    assert chosen.measured
    assert straight_on(chosen)['time_to_contact'] == pytest.approx(1.35, abs=0.21)


def test_cameras_look_where_they_are_mounted():
    cameras = {'front': Mount(), 'rear': Mount(yaw=math.pi, x=-0.3)}
    planner = TwistPlanner(cameras=cameras)
    drive(planner, -1.0)
    look(planner, 1.0, [(-0.4, 0.4, 1.0)], camera='rear')
    back, ahead = planner.choose(Twist(-1.0)), planner.choose(Twist(1.0))
    assert back.covered and back.measured
    assert straight_on(back)['time_to_contact'] < 1.3
    assert back.twist.vx > -1.0 or abs(back.twist.omega) > 0
    assert ahead.covered and not ahead.measured
    assert ahead.twist == (1.0, 0.0, 0.0)
    assert not planner.choose(Twist(0.0, 1.0)).covered


def test_a_robot_that_goes_sideways_is_judged_along_its_way():
    planner = TwistPlanner(cameras={'left': Mount(yaw=math.pi / 2, x=0.0, y=0.3)})
    drive(planner, 0.0, vy=1.0)
    look(planner, 1.0, [(-0.4, 0.4, 0.8)], camera='left')
    chosen = planner.choose(Twist(0.0, 1.0))
    assert straight_on(chosen)['risk'] > 0.5
    assert chosen.twist.vy < 1.0 or chosen.twist.omega


def test_somebody_who_crosses_goes_on():
    """A person 1.6 m ahead walks to the right at 1 m/s: a robot that arrives later passes."""
    looming = field(1.0, [(-0.2, 0.2, 1.6)])
    flow = looming.flow.copy()
    box = looming.course > 0
    flow[box, 0] += 1.0 / 1.6 * FOCAL
    crossing = CourseField(looming.rate, looming.confidence, looming.sigma, flow, looming.centers,
                           looming.rotation, None, 0.2, CELL, SIZE, looming.course)
    result = seen(crossing)
    cells = LoomingCells.of(result, OPTICS)
    moving = LoomingCells(**{**vars(cells), 'moving': np.where(box.ravel(), 1.0, 0.0)})
    for known, passes in ((cells, False), (moving, True)):
        planner = TwistPlanner()
        drive(planner, 1.0)
        planner.see('camera', known, result.assessment)
        assert (straight_on(planner.choose(Twist(1.0)))['risk'] < 0.3) == passes


def test_backward_and_turns_on_the_spot_are_passed_on():
    for speed, turn in ((-0.5, 0.2), (0.0, 1.0)):
        chosen = plan([(-1.0, 1.0, 0.5)], speed, turn)
        assert chosen.twist == (speed, 0.0, turn)
        assert not chosen.covered and not len(chosen.candidates)


@pytest.mark.parametrize('far', [0.1, 0.5])
def test_what_is_closer_than_the_outline_stops_the_robot(far):
    assert plan([(-0.4, 0.4, far)], level=Level.DANGER).twist.vx == 0.0


def test_a_slow_robot_has_measured_nothing():
    planner = TwistPlanner()
    drive(planner, 0.2)
    look(planner, 0.2, [(-0.4, 0.4, 1.0)])
    chosen = planner.choose(Twist(0.2))
    assert chosen.points == 0 and not chosen.measured and chosen.covered


def test_cells_are_none_where_there_is_no_field():
    result = Result(seen(field(1.0, [])).assessment, None, None, None, None,
                    View('squash', SIZE, 192), None)
    assert len(LoomingCells.of(result, OPTICS)) == 0


def test_bad_numbers_are_refused():
    with pytest.raises(ValueError, match='motion is'):
        TwistPlanner().move(Twist(math.nan), 0.1)
    with pytest.raises(ValueError, match='motion is'):
        TwistPlanner().move(Twist(), -0.1)
    with pytest.raises(ValueError, match='age_s is nan'):
        look(TwistPlanner(), 1.0, [], age_s=math.nan)
    with pytest.raises(KeyError):
        look(TwistPlanner(), 1.0, [], camera='rear')
    with pytest.raises(ValueError, match=r'speeds is \[0.5, 2.0\], must hold parts of 0..1'):
        TwistConfig(speeds=(0.5, 2.0))
    for name in ('speeds', 'turns'):
        with pytest.raises(ValueError, match=rf'{name} is \[0.5\], must hold 0.0 .*; add it'):
            TwistConfig(**{name: (0.5,)})
    with pytest.raises(ValueError, match='finite'):
        TwistPlanner().choose(Twist(math.nan))
    with pytest.raises(ValueError, match='reach'):
        TwistConfig(reach=0.0)
    with pytest.raises(ValueError, match='height'):
        Mount(height=0.0)


@pytest.mark.parametrize(('length', 'margin', 'speed'), [
    (0.3, 0.05, 2.5), (0.2, 0.05, 2.0), (0.6, 0.15, 5.0), (0.01, 0.0, 5.0)])
def test_what_stands_across_the_way_lies_never_between_two_steps(length, margin, speed):
    can = replace(TwistConfig(), length=length, margin=margin)
    for away in np.arange(0.5, speed * can.horizon_s - 0.5, 0.1):
        wall = np.zeros((40, 6))
        wall[:, 0], wall[:, 1], wall[:, 4] = away, np.linspace(-2, 2, 40), 1.0
        time = time_to_contact(np.array([[speed, 0.0, 0.0]]), wall, can)[0]
        assert time <= away / speed + 0.2
