# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test simulated robots: how they move, and what they touch."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vjepa_ros.lab.world.episodes.robot import (
    Drive,
    Unicycles,
    band_of,
    footprint,
    touching,
)
from vjepa_ros.lab.world.scenes.scene import BOX, CARD, CYLINDER, ELLIPSOID, Robot

KINDS = (BOX, CARD, CYLINDER, ELLIPSOID)


def test_a_robot_that_goes_straight_and_turned_stays_on_its_circle():
    robot = Unicycles(1, Drive(acceleration=1e3, turn_acceleration=1e3))
    speed, turn = np.array([1.0]), np.array([0.5])
    robot.step(speed, turn, 1e-6)
    for _ in range(200):
        robot.step(speed, turn, 0.02)
    # Positive turns go to the left: the centre lies at x = -speed / turn.
    away = robot.place[0] - np.array([-2.0, 0.0])
    assert np.linalg.norm(away) == pytest.approx(2.0, abs=1e-3)
    assert robot.yaw[0] == pytest.approx(-2.0, abs=1e-2)
    assert robot.place[0, 1] == pytest.approx(2.0 * math.sin(2.0), abs=1e-2)


def test_speed_changes_within_the_limits_and_brakes_harder_than_it_accelerates():
    robot = Unicycles(2, Drive(speed=2.0, acceleration=1.0, braking=2.5))
    for steps, asked, reached in ((50, 5.0, 1.0), (100, 5.0, 2.0), (20, 0.0, 1.0)):
        for _ in range(steps):
            robot.step(np.array([asked, -asked]), np.zeros(2), 0.02)
        assert robot.speed == pytest.approx([reached, -reached])


def _inside(kind: int, own: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Whether points in a shape's own axes are in it, a card being a thin box."""
    if kind in (BOX, CARD):
        reach = half.copy()
        reach[2] = 0.006 if kind == CARD else half[2]
        return (np.abs(own) <= reach).all(-1)
    if kind == CYLINDER:
        return (np.abs(own[:, 1]) <= half[1]) & (np.hypot(own[:, 0], own[:, 2]) <= half[0])
    return ((own / half) ** 2).sum(-1) <= 1


def test_contacts_are_those_that_points_in_robot_and_shape_tell():
    rng = np.random.default_rng(0)
    robot = Robot()
    band = band_of(robot, np.array(0.4))
    grid = np.stack(np.meshgrid(np.linspace(-1, 1, 61), np.linspace(0, 1, 25),
                                np.linspace(-1, 1, 61), indexing='ij'), -1).reshape(-1, 3)
    agree = told = 0
    for _ in range(60):
        place, yaw = rng.uniform(-0.3, 0.3, 2), rng.uniform(-3, 3)
        shape_at = np.array([rng.uniform(-1.2, 1.2), -rng.uniform(0, 1.1), rng.uniform(-1.2, 1.2)])
        turn, half = rng.uniform(-3, 3), rng.uniform(0.05, 0.6, 3)
        corners = footprint(place, np.array(yaw), robot)
        hits = touching(corners, band, KINDS, np.ones(4, bool), np.tile(shape_at, (4, 1)),
                        np.full(4, turn), np.tile(half, (4, 1)))
        # Points of the robot's volume in world axes.
        own = grid * (robot.half_width, 1, robot.length / 2)
        height = band[0] + own[:, 1] * (band[1] - band[0])
        x = place[0] + own[:, 0] * np.cos(yaw) + own[:, 2] * np.sin(yaw)
        z = place[1] + own[:, 2] * np.cos(yaw) - own[:, 0] * np.sin(yaw)
        away = np.stack((x, -height, z), -1) - shape_at
        c, s = np.cos(turn), np.sin(turn)
        turned = np.stack((away[:, 0] * c - away[:, 2] * s, away[:, 1],
                           away[:, 0] * s + away[:, 2] * c), -1)
        for number, kind in enumerate(KINDS):
            sampled = bool(_inside(kind, turned, half).any())
            assert hits[number] or not sampled, (kind, half, shape_at)   # none is missed
            agree += hits[number] == sampled
            told += 1
    assert agree > 0.97 * told       # what only touches falls between the points
