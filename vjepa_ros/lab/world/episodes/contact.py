# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Whether robots touch shapes, exact for boxes, upright cylinders and ellipsoids; who waits.

A robot is an upright box on the ground, so that only the height band it occupies and the
horizontal section of each shape in that band matter. A card counts as a rectangle, as wide as its
picture is opaque in that band (`opaque_part`): under the crown of a tree only its trunk. Convex
sections in a plane do not touch if, and only if, a line separates them (the separating axis
theorem, Gottschalk, Lin and Manocha, "OBBTree", 1996); a round section becomes the unit disc when
its axes are scaled.
"""

from __future__ import annotations

import math

import numpy as np

from vjepa_ros.lab.world.rendering.truth import Robot
from vjepa_ros.lab.world.scenes.scene import BOX, CARD, CYLINDER, ELLIPSOID

STANDS_M_S = 0.1            # a robot that is slower than this stands
WAIT_M, WAIT_S = 0.6, 0.4   # how far before it others wait: at least, and per speed
_BESIDE_M = 0.1             # of the room a mover keeps beside itself
OPAQUE = 127          # of 255; from there on one sees it rather than what is behind


def touching(corners: np.ndarray, band: np.ndarray, kinds: tuple[int, ...], alive: np.ndarray,
             position: np.ndarray, yaw: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Which robots touch which shapes.

    `corners`: (..., 4, 2) x and z of a robot's corners, in order around [m]; `band`: (..., 2)
    height above ground of its lower and upper side [m].
    """
    high = -position[..., 1]                                      # of the centre
    low, top = band[..., :1], band[..., 1:]
    off = np.maximum(np.maximum(low - high, high - top), 0.0)     # from the centre to the band
    hit = alive & (off <= half[..., 1])
    if not hit.any():
        return hit
    # Corners in the shape's own axes, (..., K, 4).
    away = corners[..., None, :, :] - position[..., :, None, 0::2]
    sine, cosine = np.sin(yaw)[..., None], np.cos(yaw)[..., None]
    x = away[..., 0] * cosine - away[..., 1] * sine
    z = away[..., 0] * sine + away[..., 1] * cosine
    sort = np.array(kinds)
    flat = (sort == BOX) | (sort == CARD)
    wide, deep = half[..., 0], np.where(sort == CARD, 0.0, half[..., 2])
    deep = np.where(sort == CYLINDER, wide, deep)
    with np.errstate(invalid='ignore', divide='ignore'):
        shrunk = np.sqrt(np.clip(1 - (off / half[..., 1]) ** 2, 0, 1))
    shrunk = np.where(sort == ELLIPSOID, shrunk, 1.0)
    boxes = _box_meets(x, z, wide, deep)
    discs = _disc_meets(x / np.maximum(wide * shrunk, 1e-9)[..., None],
                        z / np.maximum(deep * shrunk, 1e-9)[..., None])
    return hit & np.where(flat, boxes, discs)


def _box_meets(x: np.ndarray, z: np.ndarray, wide: np.ndarray, deep: np.ndarray) -> np.ndarray:
    """Whether quadrilaterals (..., 4) meet the boxes |x| <= wide, |z| <= deep (...)."""
    apart = ((x.min(-1) > wide) | (x.max(-1) < -wide) | (z.min(-1) > deep) | (z.max(-1) < -deep))
    for number in (0, 1):       # the robot is a rectangle: two of its edges give both normals
        ex, ez = x[..., number + 1] - x[..., number], z[..., number + 1] - z[..., number]
        own = x * ex[..., None] + z * ez[..., None]
        reach = wide * np.abs(ex) + deep * np.abs(ez)
        apart |= (own.min(-1) > reach) | (own.max(-1) < -reach)
    return ~apart


def _disc_meets(x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Whether convex quadrilaterals (..., 4) meet the unit disc at the origin."""
    ex, ez = np.roll(x, -1, -1) - x, np.roll(z, -1, -1) - z
    side = ex * z - ez * x                         # on which side of each edge the origin lies
    inside = (side >= 0).all(-1) | (side <= 0).all(-1)
    length = np.maximum(ex ** 2 + ez ** 2, 1e-18)
    along = np.clip(-(x * ex + z * ez) / length, 0, 1)
    near = (x + along * ex) ** 2 + (z + along * ez) ** 2
    return inside | (near.min(-1) <= 1.0)


def opaque_part(opacity: np.ndarray, low: float, top: float) -> tuple[float, float]:
    """Return from where to where, -1..1, a card is opaque within a band; NaN where nowhere.

    `opacity`: (S, S) uint8 of its texture, from above.
    """
    size = len(opacity)
    rows = opacity[math.floor((1 - top) * size):math.ceil((1 - low) * size)]
    shown = np.flatnonzero((rows > OPAQUE).any(0))
    if not len(shown):
        return math.nan, math.nan
    return 2 * int(shown[0]) / size - 1, 2 * (int(shown[-1]) + 1) / size - 1


def band_of(robot: Robot, camera_height: np.ndarray) -> np.ndarray:
    """(N, 2) heights between which robots reach [m], see `Robot`."""
    camera_height = np.asarray(camera_height, float)
    return np.stack((np.full_like(camera_height, robot.clearance),
                     np.maximum(camera_height + 0.1, robot.height)), -1)


def reach_of(robot: Robot) -> float:
    """Return the greatest distance of its outline from its middle [m]."""
    return float(np.hypot(robot.half_width, 0.5 * robot.length))


def meets(ahead: float, side: float, half_length: float, half_width: float, pace: float,
          robot: Robot) -> bool:
    """Return whether a mover is about to meet a robot, before which it then waits as people do.

    `ahead, side`: of the middle of the robot: how far along the way of the mover [m], and how far
    beside it [m], not negative; `half_length, half_width`: of the mover, along its way and across
    [m]; `pace`: its speed [m/s].
    """
    reach = reach_of(robot)
    near = half_length + reach + WAIT_M + WAIT_S * pace
    return 0 < ahead < near and side < half_width + reach + _BESIDE_M
