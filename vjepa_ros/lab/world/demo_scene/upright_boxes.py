# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Put upright boxes and cards in front of a camera that looks level, and in order.

Through such a camera all points of an upright face in one column of the image are equally far
away, and all points of a level face in one row, which makes pictures of them cheap.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vjepa_ros.lab.world.scenes.scene import BOX, CARD, Scenes

_NEAR_M = 0.1
_MARGIN_M = 1e-3      # bodies that overlap by less still stand one behind the other


class View(NamedTuple):
    """A level pinhole camera.

    The ray of column c and row r is, per metre of depth, ``dx[0] + dx[1] c`` and the same of
    ``dz`` in world axes, and ``dy[0] + dy[1] r`` down. ``size`` [px]; ``place`` (3,) [m];
    ``right``, ``ahead`` (x, z) of the camera's axes; ``focal``, ``centre`` (x, y) [px].
    """

    size: tuple[int, int]
    dx: tuple[float, float]
    dy: tuple[float, float]
    dz: tuple[float, float]
    place: np.ndarray
    right: tuple[float, float]
    ahead: tuple[float, float]
    focal: tuple[float, float]
    centre: tuple[float, float]

    @property
    def horizon(self) -> int:
        """First row that looks down."""
        return min(max(int(np.floor(self.centre[1])) + 1, 0), self.size[1])


class Bodies(NamedTuple):
    """Living shapes of one frame, float64 (K,) or (K, 3): numbers, places relative to the
    camera in world axes, half sizes, cosine and sine of the yaw, bounds in world axes."""

    number: np.ndarray
    card: np.ndarray
    centre: np.ndarray
    half: np.ndarray
    c: np.ndarray
    s: np.ndarray
    low: np.ndarray
    high: np.ndarray


def problem(scenes: Scenes) -> str:
    """Why scenes cannot be drawn this way, '' if they can."""
    if len(scenes) != 1 or scenes.exposure.shape[1] != 1:
        return 'more than one frame of one scene'
    if not set(scenes.kinds) <= {BOX, CARD}:
        return 'shapes other than boxes and cards'
    if (scenes.camera_rotation[0, 0, 1] - scenes.camera_rotation.new_tensor((0, 1, 0))).any():
        return 'a camera that does not look level'
    if any(bool(f.any()) for f in (scenes.distortion, scenes.blur_px, scenes.jpeg, scenes.grey,
                                   scenes.shot_noise)):
        return 'distortion, blur, compression, shot noise or a grey camera'
    return ''


def view_of(scenes: Scenes, size: tuple[int, int]) -> View:
    fx, fy, cx, cy = scenes.intrinsics[0].tolist()
    turn = scenes.camera_rotation[0, 0].double().numpy()
    right, ahead = (turn[0, 0], turn[0, 2]), (turn[2, 0], turn[2, 2])
    return View(size, (ahead[0] - right[0] * cx / fx, right[0] / fx), (-cy / fy, 1 / fy),
                (ahead[1] - right[1] * cx / fx, right[1] / fx),
                scenes.camera_position[0, 0].double().numpy(), right, ahead, (fx, fy), (cx, cy))


def bodies_of(scenes: Scenes, view: View) -> Bodies:
    number = np.flatnonzero(scenes.alive[0].numpy())
    centre = scenes.position[0, 0].double().numpy()[number] - view.place
    half = scenes.half[0].double().numpy()[number]
    card = np.array(scenes.kinds)[number] == CARD
    half[card, 2] = 0
    yaw = scenes.yaw[0, 0].double().numpy()[number]
    c, s = np.cos(yaw), np.sin(yaw)
    reach = np.stack((abs(c) * half[:, 0] + abs(s) * half[:, 2], half[:, 1],
                      abs(s) * half[:, 0] + abs(c) * half[:, 2]), -1)
    return Bodies(number, card, centre, half, c, s, centre - reach, centre + reach)


def far_to_near(bodies: Bodies) -> tuple[list[int], bool]:
    """An order in which no body hides one that comes later, and whether some overlap.

    Body i may be drawn before j where a plane of their bounds has i on its far side, and j and
    the camera on its near side. Of bodies that overlap none may: their pixels must be compared.
    """
    low, high = bodies.low, bodies.high
    count = len(low)
    first = (((low[:, None] >= high[None] - _MARGIN_M) & (low[:, None] >= -_MARGIN_M)) | (
        (high[:, None] <= low[None] + _MARGIN_M) & (high[:, None] <= _MARGIN_M))).any(-1)
    waits = first.T & ~first          # waits[j, i]: j must wait for i
    np.fill_diagonal(waits, False)
    overlap = ~(first | first.T)
    away = np.hypot(bodies.centre[:, 0], bodies.centre[:, 2])
    left = [int(i) for i in np.argsort(-away)]
    masks = [sum(1 << int(i) for i in np.flatnonzero(row)) for row in waits]
    remaining = (1 << count) - 1
    order: list[int] = []
    while left:
        # In a ring of bodies that hide one another the farthest goes first.
        i = next((i for i in left if not masks[i] & remaining), left[0])
        left.remove(i)
        remaining &= ~(1 << i)
        order.append(i)
    return order, bool(overlap.sum() > count)


def stood_upon(bodies: Bodies, i: int, side: float) -> bool:
    """Whether another box hides the whole top or bottom of a box."""
    touching = (np.abs(bodies.high[:, 1] - bodies.low[i, 1]) if side < 0
                else np.abs(bodies.low[:, 1] - bodies.high[i, 1])) < _MARGIN_M
    flat = [0, 2]
    around = ((bodies.low[:, flat] <= bodies.low[i, flat] + _MARGIN_M)
              & (bodies.high[:, flat] >= bodies.high[i, flat] - _MARGIN_M)).all(1)
    return bool((touching & around & ~bodies.card & (bodies.s == 0)).any())


def hidden(bodies: Bodies, view: View) -> np.ndarray:
    """Bodies (K,) bool that lie behind the front of one box, for a camera and boxes along the
    world's axes; others are taken as seen."""
    count = len(bodies.number)
    if view.right[1] != 0 or view.right[0] < 0:
        return np.zeros(count, bool)
    near, far = bodies.low[:, 2], bodies.high[:, 2]
    ahead = near > _NEAR_M
    near, far = np.where(ahead, near, 1.0)[:, None], np.where(ahead, far, 1.0)[:, None]
    flat = [0, 1]
    low, high = bodies.low[:, flat], bodies.high[:, flat]
    # Seen as x / z and y / z: all of a body, and the front of a box.
    begin, end = np.minimum(low / near, low / far), np.maximum(high / near, high / far)
    within = ((begin[:, None] >= (low / near)[None]) & (end[:, None] <= (high / near)[None])).all(
        -1)
    front = ahead & ~bodies.card & (bodies.s == 0)
    return (within & ahead[:, None] & front[None] & (near > near.T)).any(1)
