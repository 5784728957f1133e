# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Draw an episode from above: what stands there, where the robot drove, and what it weighs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import cv2
import numpy as np

from vjepa_ros.lab.world.episodes.world import EpisodeWorld

SIZE = (336, 480)         # width and height [px]
MARGIN_M = 1.2            # around start and goal
ARC_S = 1.5               # length of the arcs of candidates
PAPER, THING, INK = (250, 249, 247), (178, 170, 160), (72, 60, 52)
WAY, GOAL, CHOSEN = (20, 95, 190), (20, 125, 60), (20, 95, 190)
GOOD, BAD = np.array((120, 190, 130)), np.array((225, 110, 90))
SHIFT = 4                 # bits after the point, for smooth lines


class TopView:
    """Draws an episode of a world, by its place in it."""

    def __init__(self, world: EpisodeWorld, number: int = 0) -> None:
        self._world, self._number = world, number
        points = world.episodes[number].route.points
        low, high = points.min(0) - MARGIN_M, points.max(0) + MARGIN_M
        width, height = SIZE
        self._scale = min(width / 7.0, height / float(high[1] - low[1]))
        self._middle = 0.5 * (low + high)
        self._trail: list[np.ndarray] = []

    def draw(self, candidates: np.ndarray | None = None) -> np.ndarray:
        """Return a picture of the present moment; the way driven is that between calls."""
        world, number = self._world, self._number
        place, yaw = world.robots.place[number], float(world.robots.yaw[number])
        self._trail.append(place.copy())
        image = np.full((SIZE[1], SIZE[0], 3), PAPER, np.uint8)
        for outline in world.outlines(number):
            cv2.fillPoly(image, [self._at(outline)], THING, cv2.LINE_AA, SHIFT)
        goal = world.episodes[number].route.points[-1]
        self._disc(image, goal, 0.5, GOAL, 2)
        # The chosen one last, above all others.
        for row in () if candidates is None else candidates[np.argsort(candidates['rank'])[::-1]]:
            self._arc(image, place, yaw, row)
        cv2.polylines(image, [self._at(np.array(self._trail))], False, WAY, 2, cv2.LINE_AA, SHIFT)
        cv2.polylines(image, [self._at(world.corners(number))], True, INK, 2, cv2.LINE_AA, SHIFT)
        nose = place + 0.5 * world.config.robot.length * np.array((math.sin(yaw), math.cos(yaw)))
        self._disc(image, nose, 0.06, INK, -1)
        return image

    def _at(self, points: np.ndarray) -> np.ndarray:
        """Return pixels (P, 2) of places x, z [m], with `SHIFT` bits after the point."""
        away = (points - self._middle) * self._scale * (1, -1)
        return np.round((away + np.array(SIZE) / 2) * 2 ** SHIFT).astype(np.int32)

    def _disc(self, image: np.ndarray, place: np.ndarray, radius: float,
              colour: Sequence[int], thickness: int) -> None:
        x, y = self._at(place[None])[0].tolist()
        cv2.circle(image, (x, y), round(radius * self._scale * 2 ** SHIFT), colour, thickness,
                   cv2.LINE_AA, SHIFT)

    def _arc(self, image: np.ndarray, place: np.ndarray, yaw: float, row: np.void) -> None:
        """Draw where the first twist of a candidate leads."""
        vx, omega = float(row['vx']), float(row['omega'])
        times = np.linspace(0, ARC_S, 9)
        bend = -omega * times                           # yaw grows to the right
        chord = vx * times * np.sinc(bend / (2 * np.pi))
        middle = yaw + 0.5 * bend
        points = place + chord[:, None] * np.stack((np.sin(middle), np.cos(middle)), -1)
        best, risk = row['rank'] == 0, float(np.clip(row['risk'], 0, 1))
        colour = CHOSEN if best else tuple(((1 - risk) * GOOD + risk * BAD).astype(int).tolist())
        cv2.polylines(image, [self._at(points)], False, colour, 4 if best else 1, cv2.LINE_AA,
                      SHIFT)
