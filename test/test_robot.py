# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test simulated robots: how they move, and what they touch."""

from __future__ import annotations

import numpy as np
import pytest

from vjepa_ros.lab.world.episodes.robot import Drive, Unicycles, band_of, footprint, touching
from vjepa_ros.lab.world.scenes.scene import BOX, CARD, CYLINDER, ELLIPSOID, Robot


def test_a_robot_that_goes_straight_and_turned_stays_on_its_circle():
    robot = Unicycles(1, Drive(acceleration=1e3, turn_acceleration=1e3))
    speed, turn = np.array([1.0]), np.array([0.5])
    robot.step(speed, turn, 1e-6)
    for _ in range(200):
        robot.step(speed, turn, 0.02)
    # Positive turns go to the left: the centre lies at x = -speed / turn.
    assert robot.place[0] == pytest.approx([2 * np.cos(2) - 2, 2 * np.sin(2)], abs=1e-2)
    assert robot.yaw[0] == pytest.approx(-2.0, abs=1e-2)


def test_speed_changes_within_the_limits_and_brakes_harder_than_it_accelerates():
    robot = Unicycles(2, Drive(speed=2.0, acceleration=1.0, braking=2.5))
    for steps, asked, reached in ((50, 5.0, 1.0), (100, 5.0, 2.0), (20, 0.0, 1.0)):
        for _ in range(steps):
            robot.step(np.array([asked, -asked]), np.zeros(2), 0.02)
        assert robot.speed == pytest.approx([reached, -reached])


@pytest.mark.parametrize('kind', [BOX, CARD, CYLINDER, ELLIPSOID])
def test_it_touches_what_stands_in_its_footprint_and_reaches_into_its_height(kind):
    robot, half = Robot(), np.array([0.2, 0.3, 0.2])
    band = band_of(robot, np.array(0.4))
    corners = footprint(np.zeros(2), np.array(0.0), robot)

    def hit(x: float, y: float, z: float, turn: float = 0.0) -> bool:
        return bool(touching(corners, band, (kind,), np.ones(1, bool), np.array([[x, y, z]]),
                             np.array([turn]), half[None])[0])

    deep = 0.0 if kind == CARD else half[2]
    side, front, middle = robot.half_width, robot.length / 2, -float(np.mean(band))
    assert hit(0.0, middle, 0.0)
    assert hit(side + 0.19, middle, 0.0) and not hit(side + 0.21, middle, 0.0)
    assert hit(0.0, middle, front + deep - 0.01) and not hit(0.0, middle, front + deep + 0.02)
    assert not hit(0.0, -float(band[1]) - 0.31, 0.0)         # hangs above it
    assert hit(0.0, middle, front + 0.18, np.pi / 2)         # with its other side
