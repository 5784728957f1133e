# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Play a rendered scene with its truth: a clip of the package, and the noise of a sensor."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from vjepa_ros.sources.base import (
    FIRST_STAMP_NS,
    PlayOptions,
    SourceError,
    SourceFrame,
    scale_intrinsics,
)
from vjepa_ros.sources.video import VideoSource

CLIPS = Path(__file__).with_name('clips')
SCENES = ('approach',)
DEFAULT_RATE_HZ = 15.0
NOISE = 2.0               # standard deviation of the sensor noise [grey levels]
_NOISE_OFFSETS = 1 << 20  # patterns that one table of noise yields


class SyntheticSource(VideoSource):
    """One cycle of a scene; its end fits its beginning, so with ``loop`` the drive goes on."""

    def __init__(self, scene: str, options: PlayOptions) -> None:
        if scene not in SCENES:
            raise SourceError(f"synthetic scene '{scene}' is unknown: {', '.join(SCENES)}")
        super().__init__(CLIPS / f'{scene}.webm', dataclasses.replace(
            options, rate=options.rate or DEFAULT_RATE_HZ))
        with np.load(CLIPS / f'{scene}.npz') as known:
            self._truth = {name: known[name] for name in known.files}
        self.name = f"synthetic scene '{scene}'"
        fx, fy, cx, cy = self._truth.pop('intrinsics').tolist()
        self.intrinsics = scale_intrinsics((fx, fy, cx, cy), self._own_size, self.size)
        self.frame_count = self._count(len(self._truth['phase']))
        count = 3 * self.size[0] * self.size[1] + _NOISE_OFFSETS
        self._noise = np.random.default_rng(0).normal(0, NOISE, count).round().astype(
            np.int16)

    def _frame(self, capture: cv2.VideoCapture, stamp_ns: int) -> SourceFrame:
        frame = self._resized(super()._frame(capture, stamp_ns))
        number = round((stamp_ns - FIRST_STAMP_NS) * self._own_rate / 1e9)
        offset = int(np.random.default_rng((0, number)).integers(_NOISE_OFFSETS))
        noise = self._noise[offset:offset + frame.rgb.size].reshape(frame.rgb.shape)
        rgb = np.asarray(cv2.add(frame.rgb, noise, dtype=cv2.CV_8U))
        return dataclasses.replace(frame, rgb=rgb, truth=self._truth_of(number))

    def _truth_of(self, number: int) -> dict[str, Any]:
        truth = {name: values[number].item() for name, values in self._truth.items()
                 if name != 'box'}
        scale = np.divide(self.size, self._own_size)
        box = (self._truth['box'][number].reshape(2, 2) + 0.5) * scale - 0.5
        return {**truth, 'box': None if np.isnan(box).any() else tuple(box.ravel().tolist())}
