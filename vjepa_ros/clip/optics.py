# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Where the pixels of a source image look: pinhole intrinsics and distortion.

Tangents are x/z and y/z of a ray in the optical frame: x right, y down, z along the optical axis.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np

# Models of sensor_msgs/CameraInfo, and how many coefficients OpenCV takes for them.
MODELS = {'plumb_bob': (5,), 'rational_polynomial': (8, 12, 14), 'equidistant': (4,)}
# Other names of them, in lower case, without what is no letter or digit.
_ALIASES = {name.replace('_', ''): model for model, names in {
    'plumb_bob': ('plumb_bob', 'radtan', 'radial_tangential', 'brown_conrady'),
    'rational_polynomial': ('rational_polynomial', 'rational'),
    'equidistant': ('equidistant', 'equi', 'fisheye', 'opencv_fisheye', 'kannala_brandt',
                    'kannala_brandt4', 'kb4')}.items() for name in names}
_ROUNDS = 20              # of the inversion; each divides the error of a usual lens by 5 and more
LARGEST = 1e6             # of a coefficient
_MOST_OFF = 3e-4          # farther off after them [rad, about]: no ray of the lens goes there


@dataclass(frozen=True)
class Distortion:
    """How a lens bends rays, as in sensor_msgs/CameraInfo; missing coefficients are zeros."""

    model: str  # out of `MODELS`; other usual names are replaced
    coefficients: tuple[float, ...]  # as many as OpenCV takes for the model

    def __post_init__(self) -> None:
        given = list(self.coefficients)
        told = f'{given!s:.99}'
        if not all(math.isfinite(one) and abs(one) <= LARGEST for one in given):
            raise ValueError(f'the distortion of camera_info, {told}, has what is no number or '
                             f'above {LARGEST:g} (calibrate the camera)')
        model = _ALIASES.get(re.sub('[^a-z0-9]', '', self.model.lower()), '')
        if not model:
            raise ValueError(f"distortion_model '{self.model:.99}' of camera_info is unknown, its "
                             f'coefficients are {told}; use one of {", ".join(MODELS)}, or '
                             'rectified images with a camera_info without distortion')
        while given and given[-1] == 0:
            given.pop()
        if model == 'plumb_bob' and len(given) > max(MODELS[model]):
            model = 'rational_polynomial'       # OpenCV has one order for both
        count = next((n for n in MODELS[model] if n >= len(given)), 0)
        if not count:
            raise ValueError(f'camera_info has {len(given)} coefficients for '
                             f"'{self.model:.99}', {told}; it can have {max(MODELS[model])}, and "
                             'more only if they are zeros (correct the model or calibrate again)')
        object.__setattr__(self, 'model', model)
        object.__setattr__(self, 'coefficients', (*given, *[0.0] * (count - len(given))))

    @classmethod
    def of(cls, info: Any) -> Distortion | None:
        """Return that of a sensor_msgs/CameraInfo; None where its coefficients are zeros."""
        return cls(info.distortion_model, tuple(map(float, info.d))) if any(info.d) else None

    def bend(self, tangents: np.ndarray) -> np.ndarray:
        """Return where rays (..., 2) seem to come from."""
        if not np.size(tangents):        # OpenCV refuses it
            return np.asarray(tangents)
        flat = np.asarray(tangents, np.float64).reshape(-1, 1, 2)
        space = np.concatenate((flat, np.ones((*flat.shape[:-1], 1))), -1)
        project = cv2.fisheye.projectPoints if self._fisheye else cv2.projectPoints
        return project(space, np.zeros(3), np.zeros(3), np.eye(3),
                       np.array(self.coefficients))[0].reshape(np.shape(tangents))

    def straighten(self, bent: np.ndarray) -> np.ndarray:
        """Return the rays (..., 2) that seem to come from there; NaN: none."""
        if not np.size(bent):
            return np.asarray(bent)
        flat = np.asarray(bent, np.float64).reshape(-1, 1, 2)
        undo = (cv2.fisheye if self._fisheye else cv2).undistortPoints
        out = undo(flat, np.eye(3), np.array(self.coefficients))
        # That stops after 5 rounds, and the way to ask for more depends on the version of OpenCV.
        for _ in range(_ROUNDS):
            out = out + np.clip(flat - self.bend(out), -0.2, 0.2)
        off = np.abs(flat - self.bend(out)).max(axis=-1, keepdims=True)
        return np.where(off < _MOST_OFF, out, np.nan).reshape(np.shape(bent))

    @property
    def _fisheye(self) -> bool:
        return self.model == 'equidistant'


@dataclass(frozen=True)
class Optics:
    """Lens of the source image; pinhole intrinsics [px]."""

    fx: float
    fy: float
    cx: float
    cy: float
    assumed: bool  # whether no camera_info was seen
    distortion: Distortion | None = None  # of the lens; None for a rectified image

    @classmethod
    def assume(cls, size: tuple[int, int], horizontal_fov: float) -> Optics:
        """Assume square, centred pixels with a field of view [rad]."""
        focal = 0.5 * size[0] / math.tan(0.5 * horizontal_fov)
        return cls(focal, focal, 0.5 * (size[0] - 1), 0.5 * (size[1] - 1), True)

    def rays(self, points: np.ndarray) -> np.ndarray:
        """Return the tangents (..., 2) of points (..., 2) [px]; NaN where no ray ends there."""
        bent = (np.asarray(points, np.float64) - (self.cx, self.cy)) / (self.fx, self.fy)
        return bent if self.distortion is None else self.distortion.straighten(bent)

    def pixels(self, rays: np.ndarray) -> np.ndarray:
        """Return the points (..., 2) [px] of tangents (..., 2)."""
        bent = np.asarray(rays) if self.distortion is None else self.distortion.bend(rays)
        return bent * (self.fx, self.fy) + (self.cx, self.cy)

    def direction(self, x: float, y: float) -> tuple[float, float]:
        """Return the angles to the right of and above the optical axis of a point [px], [rad]."""
        if self.distortion is None:
            return math.atan2(x - self.cx, self.fx), math.atan2(self.cy - y, self.fy)
        across, down = self.rays(np.array((x, y))).tolist()
        return math.atan(across), -math.atan(down)
