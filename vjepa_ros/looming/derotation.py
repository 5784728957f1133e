# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Take the rotation of a gyroscope out of pairs of frames.

A rotation moves the pixels by a homography that depends on the lens alone (Hartley and
Zisserman, "Multiple View Geometry in Computer Vision", 2004, chapter 8), so what it does to the
image is known exactly, whatever is seen. What remains is the motion of camera and scene.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import cv2
import numpy as np

from vjepa_ros.looming.affine import AffineFits
from vjepa_ros.looming.ego_motion import Rays
from vjepa_ros.looming.gyroscope import Gyroscope, MOST_BIAS, Turn

FOCAL_ERROR = 0.2      # standard error of an assumed focal length, as a share of it
MOST_TURN = 0.15       # of the image that a rotation may move out of it


@dataclass(frozen=True)
class KnownTurn:
    """The rotation between two frames by a gyroscope."""

    turn: Turn  # the rotation; its covariance includes the error of the focal length
    pixels: np.ndarray  # (3, 3) homography of it, newer to older pixels
    lost: float  # share of the image, across or down, that it moves out of it


class Derotation:
    """Rotations between the newest frame of a history and older ones.

    Parameters
    ----------
    gyroscope
        Tells them. It learns its bias.
    newest_ns
        Stamp of the newest frame [ns].
    rays
        Of the lens.
    size, center
        Width and height, and principal point x, y, of the part of the image in use [px].
    focal_error
        Standard error of the focal length, as a share of it.
    """

    def __init__(self, gyroscope: Gyroscope, newest_ns: int, rays: Rays, size: tuple[int, int],
                 center: tuple[float, float], focal_error: float) -> None:
        self._gyroscope, self._newest_ns, self._rays = gyroscope, newest_ns, rays
        self._size, self._focal_error = np.array(size), focal_error
        self._lens = np.array([[rays.focal_px, 0, center[0]], [0, rays.focal_px, center[1]],
                               [0, 0, 1.0]])

    def since(self, older_ns: int) -> KnownTurn:
        """Return the rotation since an older frame, of stamp [ns]; GyroscopeError when unknown."""
        turn = self._gyroscope.turn(older_ns, self._newest_ns)
        # What looks like this rotation is that by another angle, if the focal length is wrong.
        doubt = self._focal_error ** 2 * np.outer(turn.rotation, turn.rotation)
        turn = replace(turn, covariance=turn.covariance + doubt)
        pixels = self._lens @ cv2.Rodrigues(turn.rotation)[0] @ np.linalg.inv(self._lens)
        middle = (self._size - 1) / 2
        end = pixels @ [*middle, 1.0]
        lost = 1.0      # beyond a quarter of a turn
        if end[2] > 0:
            lost = float((np.abs(end[:2] / end[2] - middle) / self._size).max())
        return KnownTurn(turn, pixels, lost)

    def learn(self, turn: Turn, fits: AffineFits) -> None:
        """Let the gyroscope learn its bias, if fits show that the camera was at rest."""
        if np.abs(turn.rotation).max() < MOST_BIAS * turn.dt_s:
            seen = self._rays.rotation_at_rest(fits)
            if seen is not None:
                self._gyroscope.learn(turn, seen)
