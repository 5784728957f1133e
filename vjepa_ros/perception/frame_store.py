# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Resize the frames of a camera and measure looming, on the host or on a device.

Both give the same clips and, within the bounds that the tests set, the same looming field.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import cv2
import numpy as np

from vjepa_ros.clip.optics import Optics
from vjepa_ros.clip.resize import View
from vjepa_ros.clip.ring import Frame
from vjepa_ros.looming.ego_motion import FOCAL_ERROR
from vjepa_ros.looming.estimator import LoomingEstimator, LoomingField, LoomingSettings
from vjepa_ros.looming.gyroscope import Gyroscope
from vjepa_ros.looming.structure import Structure, coarse
from vjepa_ros.perception.settings import TrackConfig
from vjepa_ros.perception.straight_view import StraightView, straight_view

MIN_LOOMING_SIDE = 64   # px; optical flow needs a few cells in each direction
# Everything with its confidence: what counts as known is a live setting.
EVERYTHING = LoomingSettings(min_confidence=0.0)


def grey_size(size: tuple[int, int], looming_width: int) -> tuple[int, int]:
    """Return `size`, or if larger the one with the area of a 4:3 image of `looming_width` [px]."""
    width, height = size
    # By area, not by width: a panorama of the same width would show nothing any more.
    scale = math.sqrt(0.75 * looming_width ** 2 / (width * height))
    return (max(2, round(width * scale)), max(2, round(height * scale))) if scale < 1 else size


class HostGeometry:
    """Frames of images of one size, resized by OpenCV; looming by OpenCV and NumPy.

    It and `DeviceGeometry` have the same methods. Each is used by one thread only, but `prepare`.

    Attributes
    ----------
    view
        Geometry of the encoder's input.
    grey_size
        Width and height of the image that looming is measured in [px].
    where, on_device
        Where the frames are, for diagnostics; whether on a device.
    """

    where, on_device = 'host', False

    def __init__(self, config: TrackConfig, view: View) -> None:
        self.view = view
        self.grey_size = grey_size(view.source_size, config.looming_width)
        self._estimator = LoomingEstimator(EVERYTHING)
        # Straight pictures of the frames of before by key, where the lens is distorted.
        self._straight: tuple[StraightView | None, dict[int, np.ndarray]] = (None, {})

    def prepare(self, rgb: np.ndarray) -> Frame:
        """Resize an image."""
        small = rgb
        if self.grey_size != self.view.source_size:
            small = cv2.resize(rgb, self.grey_size, interpolation=cv2.INTER_AREA)
        return Frame(self.view.apply(rgb), cv2.cvtColor(small, cv2.COLOR_RGB2GRAY))

    def place(self, frame: Frame, held: Sequence[Frame]) -> None:
        """Do nothing: a frame is its own place."""

    def store(self, frame: Frame, rgb: np.ndarray) -> None:
        """Do nothing."""

    def clip(self, frames: Sequence[Frame]) -> list[np.ndarray]:
        """Return the encoder's input."""
        return [frame.rgb for frame in frames if frame.rgb is not None]

    pixels = clip

    def structure(self, frames: Sequence[Frame]) -> Iterable[Structure]:
        """Measure the structure of frames, of each when it is asked for."""
        valid = self.view.patch_valid
        return (Structure.of(coarse(rgb), valid) for rgb in self.clip(frames))

    def begin(self, recent: Sequence[Frame], optics: Optics, gyroscope: Gyroscope | None) -> None:
        """Do nothing: the host measures looming when asked for it."""

    def proceed(self) -> None:
        """Do nothing."""

    def looming(self, recent: Sequence[Frame], optics: Optics,
                gyroscope: Gyroscope | None) -> LoomingField | None:
        """Measure looming at the newest of some frames."""
        if min(self.grey_size) < MIN_LOOMING_SIDE:
            return None
        view = straight_view(optics, self.view.source_size, self.grey_size, EVERYTHING.cell_px)
        shown = {frame.key: frame.grey for frame in recent if frame.grey is not None}
        if view is not None:
            known = self._straight[1] if self._straight[0] is view else {}
            shown = {key: known[key] if key in known else view.picture(grey)
                     for key, grey in shown.items()}
            self._straight = view, shown
        found = self._estimator.estimate(
            [(frame.stamp_ns, grey) for frame, grey in zip(recent, shown.values(), strict=True)],
            *lens_of(optics, self.view.source_size, self.grey_size, view, gyroscope))
        return found if found is None or view is None else view.back(found)


def lens_of(optics: Optics, source: tuple[int, int], size: tuple[int, int],
            view: StraightView | None, gyroscope: Gyroscope | None) -> tuple[Any, ...]:
    """Return what looming needs of a lens and the gyroscope.

    Focal length and centre of the grey image [px], the gyroscope, and the standard error of the
    focal length as a share of it.
    """
    if view is not None:
        return view.focal, view.center, gyroscope, 0.0
    scale = size[0] / source[0]
    center = (optics.cx + 0.5) * scale - 0.5, (optics.cy + 0.5) * scale - 0.5
    return optics.fx * scale, center, gyroscope, FOCAL_ERROR if optics.assumed else 0.0
