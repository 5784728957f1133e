# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Find the part of the image in which a shape or its shadow can be seen, for one frame.

The part is a rectangle that surely holds it, whatever the lens: what a shape spans is compared
with the rays of whole rows and columns.
"""

from __future__ import annotations

import numpy as np
import torch

from vjepa_ros.lab.world.rendering.lens import Rays
from vjepa_ros.lab.world.rendering.shading import CONTACT_REACH_M
from vjepa_ros.lab.world.rendering.stage import Stage
from vjepa_ros.lab.world.rendering.trace import Window, Windows
from vjepa_ros.lab.world.scenes.scene import CYLINDER

_NEAR = 0.01
_REACH = 12.0   # a shadow longer than this many heights has faded into the light of the sky
_BESIDE_M = 1.0  # how far beside a shape the ground is darkened at most
_CORNERS = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], float)
_EDGES = np.array([(a, b) for a in range(8) for b in range(a + 1, 8)
                   if np.abs(_CORNERS[a] - _CORNERS[b]).sum() == 2])


def _spans(points: np.ndarray) -> np.ndarray:
    """Least and greatest x/z and y/z (N, 4) of boxes (N, 8, 3) in camera axes; empty behind."""
    a, b = points[:, _EDGES[:, 0]], points[:, _EDGES[:, 1]]
    rise = b[..., 2] - a[..., 2]
    share = (_NEAR - a[..., 2]) / np.where(np.abs(rise) < 1e-9, 1, rise)
    cut = (a[..., 2] > _NEAR) != (b[..., 2] > _NEAR)
    at_near = a + share[..., None] * (b - a)
    corners = np.concatenate((points, at_near), 1)
    shown = np.concatenate((points[..., 2] > _NEAR, cut), 1)
    flat = corners[..., :2] / np.where(shown, corners[..., 2], 1)[..., None]
    low = np.where(shown[..., None], flat, np.inf).min(1)
    high = np.where(shown[..., None], flat, -np.inf).max(1)
    return np.concatenate((low, high), 1)


class Extents:
    """What the shapes and shadows of a single frame (B = T = 1, CPU) span."""

    def __init__(self, stage: Stage, kinds: tuple[int, ...]):
        fields = torch.stack([f[0, 0].float() for f in stage.bodies]).double().numpy()
        wx, wy, wz, _, _, c, s, hx, hy, hz, alive = fields
        rotation = stage.poses.rotation[0, 0].double().numpy()
        sun = np.array([float(v) for v in stage.light[:3]])
        camera_y = float(stage.camera_y)
        self._alive = alive > 0
        self._kinds = kinds
        hz = np.where(np.array(kinds) == CYLINDER, hx, hz)
        local = _CORNERS * np.stack((hx, hy, hz), -1)[:, None]
        c, s = c[:, None], s[:, None]
        corners = np.stack((local[..., 0] * c + local[..., 2] * s, local[..., 1],
                            local[..., 2] * c - local[..., 0] * s), -1)
        corners -= np.stack((wx, wy, wz), -1)[:, None]
        self._shapes = _spans(corners @ rotation.T)

        # A flat box on the ground that holds the shape's foot and its shadow.
        casts = bool(stage.light.sun * stage.light.shadow > 0)
        low_enough = -(corners[..., 1].max(1) + camera_y) < CONTACT_REACH_M
        self._shading = self._alive & (low_enough | casts)
        height = np.maximum(-(corners[..., 1] + camera_y), 0)
        slide = np.minimum(height / max(-sun[1], 1e-3), (_REACH * 2 * hy)[:, None] + height)
        slide *= casts
        ground = np.concatenate((corners, corners - sun * slide[..., None]), 1)
        low, high = ground.min(1) - _BESIDE_M, ground.max(1) + _BESIDE_M
        low[:, 1] = high[:, 1] = -camera_y
        floor = low[:, None] + (_CORNERS + 1) / 2 * (high - low)[:, None]
        self._shadows = _spans(floor @ rotation.T)

    def windows(self, rays: Rays) -> Windows:
        """Windows of all shapes among rays (1, 1, H, W)."""
        x, y = rays.x[0, 0], rays.y[0, 0]
        limits = tuple(v.numpy() for v in (x.amin(0), x.amax(0), y.amin(1), y.amax(1)))
        return Windows.around(_cut(self._shapes, self._alive, limits),
                              _cut(self._shadows, self._shading, limits), self._kinds)


def _cut(spans: np.ndarray, wanted: np.ndarray,
         limits: tuple[np.ndarray, ...]) -> tuple[Window, ...]:
    columns = ((limits[1] >= spans[:, 0, None]) & (limits[0] <= spans[:, 2, None])
               & wanted[:, None])
    rows = (limits[3] >= spans[:, 1, None]) & (limits[2] <= spans[:, 3, None])
    seen = columns.any(1) & rows.any(1)
    ends = (rows.argmax(1), rows.shape[1] - rows[:, ::-1].argmax(1),
            columns.argmax(1), columns.shape[1] - columns[:, ::-1].argmax(1))
    return tuple((slice(r0, r1), slice(c0, c1)) if some else None
                 for some, r0, r1, c0, c1 in zip(seen, *(e.tolist() for e in ends),
                                                 strict=True))
