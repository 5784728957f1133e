# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Resize the frames of a camera on the host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from vjepa_ros.clip.resize import View
from vjepa_ros.clip.ring import Frame
from vjepa_ros.perception.structure import Structure, coarse


class HostFrames:
    """Frames of images of one size, resized by OpenCV.

    It and `DeviceFrames` have the same methods, and give the same clips within the bounds that the
    tests set. Each is used by one thread only, but `prepare`.

    Attributes
    ----------
    view
        Where the encoder's input lies in the images.
    where, on_device
        Where the frames are, for diagnostics; whether on a device.
    """

    where, on_device = 'host', False

    def __init__(self, view: View) -> None:
        self.view = view

    def prepare(self, rgb: np.ndarray) -> Frame:
        """Resize an image."""
        return Frame(self.view.apply(rgb))

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
