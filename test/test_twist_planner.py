# SPDX-License-Identifier: Apache-2.0
"""Test the choice of twists: fields of looming as a robot would measure them, from geometry."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vjepa_ros.clip.preprocess import View
from vjepa_ros.perception.assessment import Assessment, Level, Quality, Result
from vjepa_ros.perception.collision import Optics
from vjepa_ros.perception.fusion import CourseField
from vjepa_ros.perception.twist_config import TwistConfig
from vjepa_ros.perception.twist_planner import TwistPlanner

SIZE, FOCAL, CELL = (384, 288), 300.0, 16
OPTICS = Optics(FOCAL, FOCAL, 191.5, 143.5, False)
CAMERA_M = 0.4


def field(speed: float, boxes: list[tuple[float, float, float]]) -> CourseField:
    """The field of a robot that goes ahead over a plain ground towards boxes.

    Boxes are (x of the left side, x of the right side, distance from the camera), 1 m high.
    """
    xs = np.arange(CELL / 2 - 0.5, SIZE[0], CELL)
    ys = np.arange(CELL / 2 - 0.5, SIZE[1], CELL)
    centers = np.stack(np.meshgrid(xs, ys), -1)
    across = (centers[..., 0] - OPTICS.cx) / FOCAL
    down = (centers[..., 1] - OPTICS.cy) / FOCAL
    depth = np.where(down > 0.02, CAMERA_M / np.maximum(down, 0.02), 50.0)
    course = np.zeros(depth.shape)
    for left, right, far in boxes:
        x, up = across * far, CAMERA_M - down * far
        hit = (x > left) & (x < right) & (up > 0) & (up < 1.0) & (far < depth)
        depth = np.where(hit, far, depth)
        course = np.where(hit & (np.abs(x) < 0.35), 1.0, course)
    rate = (speed / depth).astype(np.float32)
    ones = np.ones_like(rate)
    flow = np.stack((across, down), -1) * rate[..., None] * FOCAL
    return CourseField(rate, 0.9 * ones, 0.01 * ones, flow, centers, np.zeros(3), None, 0.2,
                       CELL, SIZE, course)


def seen(looming: CourseField, level: Level = Level.WARNING) -> Result:
    assessment = Assessment('camera', 1, '', 0.0, 0.0, 0.0, 2.0, 0.5, 0.0, 0.0, level, Quality(0))
    return Result(assessment, None, None, looming, None, View('squash', SIZE, 192), None)


def plan(boxes: list[tuple[float, float, float]], speed: float = 1.0, turn: float = 0.0,
         level: Level = Level.WARNING):
    planner = TwistPlanner(TwistConfig(camera_height=CAMERA_M))
    planner.see(seen(field(1.0, boxes), level), OPTICS, 1.0)
    return planner.choose(speed, turn)


def straight_on(chosen) -> np.ndarray:
    """The candidate at full speed that does not turn."""
    table = chosen.candidates
    return table[(table[:, 0] == table[:, 0].max()) & (table[:, 1] == 0)][0]


def test_over_free_ground_the_command_passes():
    chosen = plan([])
    assert (chosen.speed, chosen.turn) == (1.0, 0.0)
    assert chosen.risk < 0.1


def test_it_goes_round_a_box_on_the_free_side():
    left, right = plan([(-1.5, 0.25, 1.4)]), plan([(-0.25, 1.5, 1.4)])
    assert left.turn < 0 < right.turn         # positive turns go to the left
    assert left.risk < 0.3 and left.speed > 0
    straight = straight_on(left)
    assert straight[2] > 0.4 and 1.0 < straight[3] < 1.5


def test_before_a_wall_it_slows_down():
    chosen = plan([(-3.0, 3.0, 0.6)])
    assert chosen.speed < 0.6
    assert chosen.risk == min(chosen.candidates[:, 2]) or chosen.risk <= 0.3


def test_what_is_not_believed_to_be_a_contact_slows_nobody():
    assert plan([(-0.2, 0.2, 1.5)], level=Level.CAUTION).speed == 1.0


def test_it_remembers_what_it_saw_while_the_robot_stands_and_turns():
    planner = TwistPlanner(TwistConfig(camera_height=CAMERA_M))
    planner.see(seen(field(1.0, [(-0.3, 0.3, 1.0)])), OPTICS, 1.0)
    for _ in range(10):
        planner.move(0.0, 0.0, 0.1)
        planner.see(seen(field(0.0, [(-0.3, 0.3, 1.0)])), OPTICS, 0.0)
    assert straight_on(planner.choose(0.8, 0.0))[2] > 0.5
    for _ in range(10):
        planner.move(0.0, math.pi / 2, 0.1)           # now it looks to the left
    assert planner.choose(0.8, 0.0).speed == 0.8
    for _ in range(100):
        planner.move(0.0, 0.0, 0.1)
    assert planner.choose(0.8, 0.0).points == 0       # and forgets


def test_backward_and_turns_on_the_spot_are_passed_on():
    for speed, turn in ((-0.5, 0.2), (0.0, 1.0)):
        chosen = plan([(-1.0, 1.0, 0.5)], speed, turn)
        assert (chosen.speed, chosen.turn) == (speed, turn)


@pytest.mark.parametrize('far', [0.1, 0.5])
def test_what_is_closer_than_the_outline_stops_the_robot(far):
    chosen = plan([(-0.4, 0.4, far)], level=Level.DANGER)
    assert chosen.speed == 0.0


def test_bad_numbers_are_refused():
    with pytest.raises(ValueError, match='speed is nan'):
        TwistPlanner().move(math.nan, 0.0, 0.1)
    with pytest.raises(ValueError, match='speed is nan'):
        TwistPlanner().see(seen(field(1.0, [])), OPTICS, math.nan)
    with pytest.raises(ValueError, match='speeds'):
        TwistConfig(speeds=(0.5, 2.0))
    with pytest.raises(ValueError, match='finite'):
        TwistPlanner().choose(math.nan, 0.0)
    with pytest.raises(ValueError, match='reach'):
        TwistConfig(reach=0.0)
