# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""How much light boxes and cards leave to the ground, on a coarse grid of one frame.

The rule is that of ``shade.cast``; here it runs on small windows of numpy arrays, where
calling PyTorch costs more than the work itself.
"""

from __future__ import annotations

import math

import numpy as np

from vjepa_ros.lab.world.demo_scene.upright_boxes import Bodies, View
from vjepa_ros.lab.world.demo_scene.upright_faces import Face

GRID_PX = (4, 2)          # columns and rows over which shadows are worked out
_REACH_M = 20.0           # shadows farther away are a row or two
_FLAT_M = 0.01            # lower bodies cast none that is seen
_AROUND_M = 0.9           # how far beside a body the ground is darker
_NEAR_M = 0.2
_PENUMBRA_M, _CONTACT = 0.12, 0.62
_CARD = (0.7, 0.12)       # a card's body: part of its half width, half depth [m]
_F32 = np.float32


def ground_light(view: View, bodies: Bodies, floor: Face, sun: tuple[float, float, float],
                 shadow: float) -> tuple[np.ndarray, np.ndarray]:
    """Sunlight and sky light (0..1) that reach the ground, coarse (h, w) each.

    ``sun`` points towards the light; ``shadow`` 0..1 is how dark shadows are.
    """
    height, width = floor.shown
    down, across = max(2, height // GRID_PX[1]), max(2, width // GRID_PX[0])
    y, x = middles(height, down) + floor.rows[0], middles(width, across)
    camera_height = -float(view.place[1])
    depth = (camera_height / (view.dy[0] + view.dy[1] * y)).astype(_F32)[:, None]
    gx = depth * (view.dx[0] + view.dx[1] * x).astype(_F32)
    gz = depth * (view.dz[0] + view.dz[1] * x).astype(_F32)
    lit, open_sky = np.ones((down, across), _F32), np.ones((down, across), _F32)
    for i in range(len(bodies.number)):
        window = _window(bodies, i, view, sun, x, y)
        if window is None:
            continue
        rows, columns = window
        dark, blocked = _cast(bodies, i, gx[rows, columns], gz[rows, columns], camera_height, sun)
        here = lit[rows, columns]
        np.minimum(here, 1 - dark, out=here)
        open_sky[rows, columns] *= 1 - blocked
    return 1 - _F32(shadow) * (1 - lit), open_sky


def middles(count: int, parts: int) -> np.ndarray:
    """Where in ``count`` pixels the middles of equal parts are."""
    return (np.arange(parts) + 0.5) * (count / parts) - 0.5


def _slab(origin: np.ndarray | float, speed: float,
          half: float) -> tuple[np.ndarray | float, np.ndarray | float]:
    """From where to where a line is between two planes at -half and +half."""
    inverse = 1 / (speed if abs(speed) > 1e-6 else 1e-6)
    middle, reach = origin * _F32(-inverse), half * abs(inverse)
    return middle - _F32(reach), middle + _F32(reach)


def _cast(bodies: Bodies, i: int, gx: np.ndarray, gz: np.ndarray, camera_height: float,
          sun: tuple[float, float, float]) -> tuple[np.ndarray, np.ndarray]:
    """Share (0..1) of sunlight and of sky light that a body takes from ground points."""
    cx, cy, cz = bodies.centre[i].tolist()
    c, s = float(bodies.c[i]), float(bodies.s[i])
    hx, hy, hz = bodies.half[i].tolist()
    # The ground points and the sun seen from the body's centre, in its own axes.
    if s == 0 and c == 1:
        ox, oz = gx - _F32(cx), gz - _F32(cz)
    else:
        wx, wz = gx - _F32(cx), gz - _F32(cz)
        ox, oz = _F32(c) * wx - _F32(s) * wz, _F32(s) * wx + _F32(c) * wz
    lx, lz = c * sun[0] - s * sun[2], s * sun[0] + c * sun[2]
    wy = camera_height - cy
    if bodies.card[i]:
        hx, hz = _CARD[0] * hx, _CARD[1]
        chord = _through_ellipsoid((ox / _F32(hx), wy / hy, oz / _F32(hz)),
                                   (lx / hx, sun[1] / hy, lz / hz))
    else:
        y0, y1 = _slab(wy, sun[1], hy)
        x0, x1 = _slab(ox, lx, hx)
        z0, z1 = _slab(oz, lz, hz)
        near = np.maximum(x0, z0, out=x0)
        np.maximum(near, _F32(max(y0, 0)), out=near)
        chord = np.minimum(x1, z1, out=x1)
        np.minimum(chord, _F32(y1), out=chord)
        chord -= near
    chord *= _F32(1 / _PENUMBRA_M)
    dark = np.clip(chord, 0, 1, out=chord)

    lift = max(0.0, 1 - max(0.0, wy - hy) / 0.5)
    if lift == 0:
        return dark, np.zeros_like(dark)
    beside_x = np.maximum(np.abs(ox, out=ox) - _F32(hx), 0, out=ox)
    beside_z = np.maximum(np.abs(oz, out=oz) - _F32(hz), 0, out=oz)
    width = 0.1 + 0.3 * min(2 * hy, 1.0)
    near2 = beside_x * beside_x
    beside_z *= beside_z
    near2 += beside_z
    near2 *= _F32(3 / width ** 2)
    near2 += 1
    near2 *= near2
    return dark, _F32(lift * _CONTACT) / near2


def _through_ellipsoid(q: tuple[np.ndarray, float, np.ndarray],
                       ray: tuple[float, float, float]) -> np.ndarray:
    """Length of lines within a unit ball ahead of where they start."""
    a = sum(v * v for v in ray)
    along = q[0] * _F32(ray[0]) + q[2] * _F32(ray[2]) + _F32(q[1] * ray[1])
    room = along * along - _F32(a) * (q[0] * q[0] + q[2] * q[2] + _F32(q[1] * q[1] - 1))
    return np.where(along < 0, _F32(2 / a) * np.sqrt(np.maximum(room, 0)), _F32(0))


def _window(bodies: Bodies, i: int, view: View, sun: tuple[float, float, float],
            x: np.ndarray, y: np.ndarray) -> tuple[slice, slice] | None:
    """Coarse rows and columns in which a body may darken the ground."""
    low, high = bodies.low[i].tolist(), bodies.high[i].tolist()
    if high[1] - low[1] < _FLAT_M:
        return None
    slide = max(0.0, -(low[1] + float(view.place[1]))) / max(-sun[1], 1e-3)
    x0 = low[0] + min(0.0, -sun[0] * slide) - _AROUND_M
    x1 = high[0] + max(0.0, -sun[0] * slide) + _AROUND_M
    z0 = low[2] + min(0.0, -sun[2] * slide) - _AROUND_M
    z1 = high[2] + max(0.0, -sun[2] * slide) + _AROUND_M
    points = [(px * view.right[0] + pz * view.right[1], px * view.ahead[0] + pz * view.ahead[1])
              for px in (x0, x1) for pz in (z0, z1)]
    near, far = min(p[1] for p in points), max(p[1] for p in points)
    if far < _NEAR_M or near > _REACH_M:
        return None
    drop = view.focal[1] * -float(view.place[1])
    top, bottom = view.centre[1] + drop / far, view.centre[1] + drop / max(near, _NEAR_M)
    left, right = -math.inf, math.inf
    if near >= _NEAR_M:
        spots = [view.centre[0] + view.focal[0] * px / pz for px, pz in points]
        left, right = min(spots), max(spots)
    r0, r1 = np.searchsorted(y, (top - GRID_PX[1], bottom + GRID_PX[1]))
    c0, c1 = np.searchsorted(x, (left - GRID_PX[0], right + GRID_PX[0]))
    return (slice(r0, r1), slice(c0, c1)) if r1 > r0 and c1 > c0 else None
