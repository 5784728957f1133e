# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Put points of the world into the picture of a level pinhole camera, in double precision."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

NEAR_M = 0.12


@dataclass(frozen=True)
class Pinhole:
    """Ideal pinhole camera that looks level along +z, turned to the right by ``yaw``.

    Attributes
    ----------
    width, height : int
        Image size in pixels.
    focal : float
        Focal length in pixels.
    position : (float, float, float)
        x, y, z in m.
    yaw : float
        rad, positive to the right.
    """

    width: int
    height: int
    focal: float
    position: tuple[float, float, float] = (0.0, 0.0, 0.0)
    yaw: float = 0.0

    @property
    def intrinsics(self) -> tuple[float, float, float, float]:
        """fx, fy, cx, cy in pixels."""
        return self.focal, self.focal, (self.width - 1) / 2, (self.height - 1) / 2

    def rotation(self) -> np.ndarray:
        c, s = math.cos(self.yaw), math.sin(self.yaw)
        return np.array([[c, 0, -s], [0, 1, 0], [s, 0, c]])

    def matrix(self) -> np.ndarray:
        """Intrinsic matrix (3, 3)."""
        fx, fy, cx, cy = self.intrinsics
        return np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]])

    def to_camera(self, points: np.ndarray) -> np.ndarray:
        """World points (N, 3) in the optical frame (x right, y down, z forward)."""
        return (np.asarray(points, float) - self.position) @ self.rotation().T

    def outline(self, corners: np.ndarray) -> np.ndarray:
        """Pixels (M, 2) of a convex world polygon (N, 3), cut off at the near plane."""
        points = self.to_camera(corners)
        kept = []
        for a, b in zip(points, np.roll(points, -1, axis=0), strict=True):
            if a[2] >= NEAR_M:
                kept.append(a)
            if (a[2] >= NEAR_M) != (b[2] >= NEAR_M):
                kept.append(a + (b - a) * (NEAR_M - a[2]) / (b[2] - a[2]))
        if len(kept) < 3:
            return np.empty((0, 2))
        pixels = np.array(kept) @ self.matrix().T
        return pixels[:, :2] / pixels[:, 2:]
