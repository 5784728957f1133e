# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Find which faces of upright boxes and cards a level camera sees, where, and how large.

Depth, places in the texture and the sharpness it needs are worked out per column of upright
faces and per row of level ones; the inverse of the depth is linear in the number of either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from vjepa_ros.lab.world.demo_scene.upright_boxes import (
    Bodies,
    View,
    far_to_near,
    hidden,
    stood_upon,
)
from vjepa_ros.lab.world.scenes.scene import Scenes

NEAREST_M = 0.02
LEAST_PX = 0.7        # faces that are thinner in the image are left out
_F32 = np.float32


class Face(NamedTuple):
    """What is seen of one face within a window of the image.

    ``shape`` its number (K is the ground); ``rows``, ``columns`` first and last + 1 of the
    window; ``upright`` whether depth and levels hold per column, not per row; ``inverse`` (n,)
    1 / depth [1/m]; ``u``, ``v`` (n,) or (h, w) places in the texture; ``level_u``, ``level_v``
    (n,) logarithm (base 2) of repeats of the texture per pixel; ``cover`` (h, w) 0..1 or None
    where it fills the window; ``normal`` in world axes; ``holes`` whether the texture has any.
    """

    shape: int
    rows: tuple[int, int]
    columns: tuple[int, int]
    upright: bool
    inverse: np.ndarray
    u: np.ndarray
    v: np.ndarray
    level_u: np.ndarray
    level_v: np.ndarray
    cover: np.ndarray | None
    normal: tuple[float, float, float]
    holes: bool

    @property
    def shown(self) -> tuple[int, int]:
        """Height and width of the window."""
        return self.rows[1] - self.rows[0], self.columns[1] - self.columns[0]


def faces(view: View, bodies: Bodies, scenes: Scenes) -> tuple[list[Face], bool]:
    """All faces that are seen, without the ground, farther ones first, and whether bodies
    overlap."""
    tile = scenes.tile_m[0].tolist()
    order, overlap = far_to_near(bodies)
    found = []
    unseen = hidden(bodies, view)
    for i in order:
        if unseen[i]:
            continue
        c, s, half = float(bodies.c[i]), float(bodies.s[i]), bodies.half[i].tolist()
        x, y, z = (-bodies.centre[i]).tolist()
        camera = (c * x - s * z, y, s * x + c * z)       # in the body's own axes
        shape = int(bodies.number[i])
        per_m = ((1 / tile[shape],) * 3 if tile[shape] > 0
                 else tuple(0.5 / max(h, 1e-9) for h in half))
        card = bool(bodies.card[i])
        sides = [0.0 if abs(at) <= h else 1.0 if at > 0 else -1.0
                 for at, h in zip(camera, half, strict=True)]
        # Where two faces meet, the first goes on half a pixel under the second: else what is
        # behind would shine through the soft edges of both.
        if sides[1] and not card and not stood_upon(bodies, i, sides[1]):
            found.append(_level(view, shape, sides[1], camera, half, c, s, per_m,
                                (sides[0], sides[2])))
        if sides[0] and not card:
            found.append(_upright(view, shape, 0, sides[0], camera, half, c, s, per_m, sides[2]))
        if sides[2]:
            found.append(_upright(view, shape, 2, sides[2], camera, half, c, s, per_m, 0.0, card))
    return [face for face in found if face is not None], overlap


def ground(view: View, scenes: Scenes) -> Face | None:
    """The part of the plane y = 0 in view."""
    rows, columns = (view.horizon, view.size[1]), (0, view.size[0])
    if view.place[1] >= 0 or rows[0] >= rows[1]:
        return None
    per_m = 1 / float(scenes.ground_tile_m)
    places = _on_level(view, rows, columns, 0.0, view.place.tolist(), 1.0, 0.0, (per_m, per_m))
    return Face(len(scenes.kinds), rows, columns, False, *places, None, (0.0, -1.0, 0.0), False)


def _upright(view: View, shape: int, axis: int, side: float, camera: tuple[float, ...],
             half: list[float], c: float, s: float, per_m: tuple[float, ...], meets: float,
             card: bool = False) -> Face | None:
    """A face whose normal is the body's own x (axis 0) or z (axis 2); ``meets`` is the end (-1,
    1, 0 for none) at which it meets a face that is drawn later."""
    other = 2 - axis
    gap = side * half[axis] - camera[axis]             # to the face's plane, own axes
    if abs(gap) < 1e-9:
        return None
    ends = []                                          # right, ahead in camera axes
    for at in (-half[other], half[other]):
        own = (gap, at - camera[other]) if axis == 0 else (at - camera[other], gap)
        wx, wz = c * own[0] + s * own[1], c * own[1] - s * own[0]
        ends.append((wx * view.right[0] + wz * view.right[1],
                     wx * view.ahead[0] + wz * view.ahead[1]))
    met = ends[0 if meets < 0 else 1]
    near, far = sorted(ends, key=lambda end: end[1])
    if far[1] <= NEAREST_M:
        return None
    if near[1] < NEAREST_M:
        share = (NEAREST_M - near[1]) / (far[1] - near[1])
        near = (near[0] + share * (far[0] - near[0]), NEAREST_M)
    left, right = sorted(view.centre[0] + view.focal[0] * x / z for x, z in (near, far))
    if right - left < LEAST_PX:
        return None
    if meets and met[1] >= NEAREST_M:
        # The end that is met is the left one where it is left of the middle of both.
        if 2 * (view.centre[0] + view.focal[0] * met[0] / met[1]) < left + right:
            left -= 0.5
        else:
            right += 0.5
    first = max(0, int(np.floor(left + 0.5)))
    last = min(view.size[0], int(np.ceil(right - 0.5)) + 1)
    if last <= first:
        return None
    column = np.arange(first, last, dtype=float)
    rays = ((c * view.dx[0] - s * view.dz[0], c * view.dx[1] - s * view.dz[1]),
            (s * view.dx[0] + c * view.dz[0], s * view.dx[1] + c * view.dz[1]))
    towards, aside = (rays[0], rays[1]) if axis == 0 else (rays[1], rays[0])
    # Columns at the rim see beyond the end of the face; there it stays as it is.
    bend = towards[1] / gap
    inverse = _limited(towards[0] / gap + bend * column, 1 / far[1], 1 / near[1])
    depth = 1 / inverse
    top = view.centre[1] + view.focal[1] * (-half[1] - camera[1]) * inverse
    low = view.centre[1] + view.focal[1] * (half[1] - camera[1]) * inverse
    begin = max(0, int(np.floor(min(top[0], top[-1]) - 0.5)))
    end = min(view.size[1], int(np.ceil(max(low[0], low[-1]) + 0.5)) + 1)
    if end <= begin or max(low[0] - top[0], low[-1] - top[-1]) < LEAST_PX:
        return None

    turn = per_m[other] * (1.0 if card else side if axis == 0 else -side)
    ray = aside[0] + aside[1] * column
    u = _limited(camera[other] + depth * ray, -half[other], half[other]) * turn + 0.5
    dy = view.dy[0] + view.dy[1] * np.arange(begin, end)
    v = _outer(dy, depth * per_m[1], camera[1] * per_m[1] + 0.5)
    slant = bend * depth * depth                       # change of depth per column, negated
    level_u = _log2(np.abs((aside[1] * depth - ray * slant) * turn))
    tall = (dy[0] * dy[0] + dy[0] * dy[-1] + dy[-1] * dy[-1]) / 3
    level_v = _log2(per_m[1] * np.sqrt((depth / view.focal[1]) ** 2 + tall * slant * slant))
    slopes = [view.focal[1] * bend * (y - camera[1]) for y in (-half[1], half[1])]
    cover = _upright_cover((begin, end), column, top, low, left, right, slopes)
    normal = (c * side, 0.0, -s * side) if axis == 0 else (s * side, 0.0, c * side)
    return Face(shape, (begin, end), (first, last), True, inverse, u.astype(_F32), v, level_u,
                level_v, cover, normal, card)


def _upright_cover(rows: tuple[int, int], column: np.ndarray, top: np.ndarray, low: np.ndarray,
                   left: float, right: float, slopes: list[float]) -> np.ndarray | None:
    share: np.ndarray | None = None
    row = None
    for edge, slope, sign in ((top, slopes[0], 1.0), (low, slopes[1], -1.0)):
        if (sign > 0 and max(edge[0], edge[-1]) <= rows[0] - 0.5) or (
                sign < 0 and min(edge[0], edge[-1]) >= rows[1] - 0.5):
            continue
        # The distance to a slanted edge is shorter than the way straight down to it.
        steep = sign / np.hypot(1, slope)
        if row is None:
            row = np.arange(*rows, dtype=_F32)[:, None]
        inside = row * _F32(steep) + (0.5 - edge * steep).astype(_F32)
        share = inside if share is None else np.minimum(share, inside, out=share)
    whole = left <= column[0] - 0.5 and right >= column[-1] + 0.5
    side = None if whole else _limited(np.minimum(column + 0.5, right) - np.maximum(
        column - 0.5, left), 0, 1).astype(_F32)
    if share is None:
        return None if whole else np.tile(side, (rows[1] - rows[0], 1))
    share = _limited(share, _F32(0), _F32(1))
    return share if whole else np.multiply(share, side, out=share)


def _level(view: View, shape: int, side: float, camera: tuple[float, ...], half: list[float],
           c: float, s: float, per_m: tuple[float, ...],
           meets: tuple[float, float]) -> Face | None:
    """The top (side -1, y is down) or bottom of a box; ``meets`` are its ends along x and z
    (-1, 1, 0 for none) at which it meets faces that are drawn later."""
    drop = side * half[1] - camera[1]                  # from the camera down to the face
    points = []
    for mx, mz in ((-1, -1), (1, -1), (1, 1), (-1, 1)):
        px, pz = mx * half[0] - camera[0], mz * half[2] - camera[2]
        wx, wz = c * px + s * pz, c * pz - s * px
        points.append((wx * view.right[0] + wz * view.right[1],
                       wx * view.ahead[0] + wz * view.ahead[1]))
    left, right = ((edge - view.centre[0]) / view.focal[0] for edge in (-1.0, view.size[0]))
    kept = points
    for inside in (lambda p: p[1] - NEAREST_M, lambda p: p[0] - left * p[1],
                   lambda p: right * p[1] - p[0]):
        kept = _clipped(kept, inside)
        if len(kept) < 3:
            return None
    across = [view.centre[0] + view.focal[0] * x / z for x, z in kept]
    down = [view.centre[1] + view.focal[1] * drop / z for _, z in kept]
    if max(down) - min(down) < LEAST_PX:
        return None
    columns = (max(0, int(np.floor(min(across) - 0.5))),
               min(view.size[0], int(np.ceil(max(across) + 0.5)) + 1))
    # The row of the horizon belongs to no level face.
    above, below = (view.horizon, view.size[1]) if drop > 0 else (
        0, min(view.horizon, int(np.ceil(view.centre[1]))))
    rows = (max(above, int(np.floor(min(down) - 0.5))),
            min(below, int(np.ceil(max(down) + 0.5)) + 1))
    if columns[1] <= columns[0] or rows[1] <= rows[0]:
        return None
    places = _on_level(view, rows, columns, side * half[1], camera, c, s, (per_m[0], per_m[2]))
    cover = _level_cover(view, rows, columns, 1 / places[0], camera, half, c, s,
                         meets)
    return Face(shape, rows, columns, False, *places, cover, (0.0, side, 0.0), False)


def _clipped(points: list[tuple[float, float]],
             inside: Callable[[tuple[float, float]], float]) -> list[tuple[float, float]]:
    """The part of a convex polygon where a linear function is not negative."""
    kept = []
    for a, b in zip(points, points[1:] + points[:1], strict=True):
        fa, fb = inside(a), inside(b)
        if fa >= 0:
            kept.append(a)
        if (fa >= 0) != (fb >= 0):
            share = fa / (fa - fb)
            kept.append((a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1])))
    return kept


def _rays(view: View, columns: tuple[int, int], c: float,
          s: float) -> tuple[tuple[np.ndarray, float], ...]:
    """Parts of the rays of columns along a body's own x and z, and their change per column."""
    column = np.arange(*columns, dtype=float)
    found = []
    for a, b in ((c, -s), (s, c)):
        step = a * view.dx[1] + b * view.dz[1]
        found.append((a * view.dx[0] + b * view.dz[0] + step * column, step))
    return tuple(found)


def _on_level(view: View, rows: tuple[int, int], columns: tuple[int, int], plane: float,
              camera: tuple[float, ...], c: float, s: float,
              per_m: tuple[float, float]) -> tuple[np.ndarray, ...]:
    """Inverse depth, texture places and levels of a level plane."""
    dy = view.dy[0] + view.dy[1] * np.arange(*rows)
    inverse = dy / (plane - camera[1])
    depth = 1 / inverse
    places, levels = [], []
    for at, (ray, step), scale in zip((camera[0], camera[2]), _rays(view, columns, c, s),
                                      (per_m[0], -per_m[1]), strict=True):
        if abs(step) < 1e-12:     # the same all along a row
            places.append(((at + depth * ray[0]) * scale + 0.5).astype(_F32))
        else:
            places.append(_outer(depth * scale, ray, at * scale + 0.5))
        square = (ray[0] * ray[0] + ray[0] * ray[-1] + ray[-1] * ray[-1]) / 3
        levels.append(_log2(np.abs(scale * depth) * np.sqrt(
            step * step + square * (view.dy[1] / dy) ** 2)))
    return (inverse, *places, *levels)


def _level_cover(view: View, rows: tuple[int, int], columns: tuple[int, int], depth: np.ndarray,
                 camera: tuple[float, ...], half: list[float], c: float, s: float,
                 meets: tuple[float, float]) -> np.ndarray:
    dy = view.dy[0] + view.dy[1] * np.arange(*rows)
    share = None
    for at, (ray, step), limit, met in zip((camera[0], camera[2]), _rays(view, columns, c, s),
                                           (half[0], half[2]), meets, strict=True):
        where = _outer(depth, ray, at)
        for sign in (-1.0, 1.0):
            # How fast the place changes from pixel to pixel where the edge is.
            change = np.hypot(depth * step, (sign * limit - at) * view.dy[1] / dy)
            per_px = 1 / np.maximum(change, 1e-9)
            inside = where * (-sign * per_px).astype(_F32)[:, None]
            inside += (limit * per_px + 0.5 * (met == sign)).astype(_F32)[:, None]
            share = inside if share is None else np.minimum(share, inside, out=share)
    share += _F32(0.5)
    return _limited(share, _F32(0), _F32(1))


def _limited(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """As np.clip, which takes longer to start than to do its work on so little."""
    out = np.maximum(values, low)
    return np.minimum(out, high, out=out)


def _outer(a: np.ndarray, b: np.ndarray, plus: float) -> np.ndarray:
    out = np.multiply.outer(a.astype(_F32), b.astype(_F32))
    out += _F32(plus)
    return out


def _log2(values: np.ndarray) -> np.ndarray:
    return np.log2(values + 1e-12)
