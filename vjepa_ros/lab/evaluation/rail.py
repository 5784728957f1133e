# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Move a camera on a rail towards textured planes: time to contact falls by a frame a frame."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import cv2
import numpy as np

from vjepa_ros.lab.evaluation.metrics import Outcome, Truth, median_relative_error
from vjepa_ros.lab.evaluation.recording_replay import Item, Played, Setup
from vjepa_ros.lab.report.measurement import json_safe
from vjepa_ros.lab.world.textures import surfaces
from vjepa_ros.sources import PlayOptions, Source, SourceFrame
from vjepa_ros.sources.base import FIRST_STAMP_NS, Play

SIZE, FOCAL_PX = (320, 240), 260.0      # of the pictures; a horizontal field of view of 63 degrees
FINER = 3           # pixels are means of as many rows and columns
TEXELS, TILE_M = 1024, 0.7              # side of a texture, which repeats
NOISE = 1.5         # standard deviation, grey levels
LEAD_S = 4.0        # before frames are judged: memories fill
JUDGED, LAST = 30, 8     # frames until contact of the first and the last frame that is judged


@dataclass(frozen=True)
class Rail:
    """Steps along the optical axis towards the middle of a plane, turned about the vertical."""

    painter: Callable[[np.random.Generator, int], np.ndarray]
    step_mm: float
    rate_hz: float
    slant_deg: float = 0.0

    @property
    def name(self) -> str:
        return (f'{self.painter.__name__} {self.step_mm:g} mm, {self.rate_hz:g} Hz, '
                f'{self.slant_deg:g}°')


RAILS = (
    Rail(surfaces.bricks, 15, 15), Rail(surfaces.terrazzo, 15, 15, 15.0),
    Rail(surfaces.wallpaper, 15, 5), Rail(surfaces.noise_photo, 15, 5, -15.0),
    Rail(surfaces.gravel, 30, 10), Rail(surfaces.planks, 30, 30, 15.0))


class RailSource(Source):
    """What the camera sees, without blur, from far enough until shortly before contact."""

    def __init__(self, rail: Rail) -> None:
        self._rail, self._frames = rail, JUDGED + round(LEAD_S * rail.rate_hz)
        width, height = SIZE
        self._texture = surfaces.to_bytes(rail.painter(
            np.random.default_rng(0), TEXELS))[..., :3].copy()
        super().__init__(f'rail {rail.name}', PlayOptions(), SIZE, rail.rate_hz,
                         self._frames - LAST + 1, (FOCAL_PX, FOCAL_PX, width / 2 - 0.5,
                                                   height / 2 - 0.5))

    def _play(self) -> Play:
        for left in range(self._frames, LAST - 1, -1):
            stamp = FIRST_STAMP_NS + round((self._frames - left) * 1e9 / self.rate_hz)
            yield stamp, partial(self._frame, stamp, left)

    def _frame(self, stamp: int, left: int) -> SourceFrame:
        width, height = (FINER * side for side in SIZE)
        angle, focal = math.radians(self._rail.slant_deg), FINER * FOCAL_PX
        camera = np.array([[focal, 0, width / 2 - 0.5], [0, focal, height / 2 - 0.5], [0, 0, 1]])
        plane = np.array([[math.cos(angle), 0, 0], [0, 1, 0],      # of metres across and down
                          [math.sin(angle), 0, left * self._rail.step_mm / 1000]])
        metres = np.array([[TILE_M / TEXELS, 0, -TILE_M / 2], [0, TILE_M / TEXELS, -TILE_M / 2],
                           [0, 0, 1]])
        fine = cv2.warpPerspective(self._texture, camera @ plane @ metres, (width, height),
                                   borderMode=cv2.BORDER_WRAP)
        noise = np.random.default_rng(left).normal(0, NOISE, (*SIZE[::-1], 3))
        rgb = cv2.resize(fine, SIZE, interpolation=cv2.INTER_AREA) + noise
        return SourceFrame(stamp, np.clip(rgb + 0.5, 0, 255).astype(np.uint8), truth={
            'time_to_contact_s': left / self.rate_hz})


@dataclass(frozen=True)
class RailItem(Item):
    rail: Rail

    def open(self, setup: Setup) -> Source:
        return RailSource(self.rail)


def items() -> list[RailItem]:
    return [RailItem('rail', '', rail.name, rail) for rail in RAILS]


def figures(played: Sequence[Played]) -> dict[str, Any]:
    """Return error and slope by rail; of all: the error, and the median slope."""
    def of(rails: Sequence[Played]) -> dict[str, Any]:
        return fall([(p.truth, p.outcome) for p in rails])

    return {p.item.name: of([p]) for p in played} | ({'pooled': of(played)} if played else {})


def fall(rails: Sequence[tuple[Truth, Outcome]]) -> dict[str, Any]:
    """Compare the time to contact of sequences with steady steps with the truth."""
    said, true, slopes = [], [], []
    for truth, outcome in rails:
        step_s = float(np.median(np.diff(truth.stamps_s)))
        judged = outcome.scored & (truth.time_to_contact <= (JUDGED + 0.5) * step_s)
        frames = np.flatnonzero(judged)
        said.append(outcome.time_to_contact[judged])
        true.append(truth.time_to_contact[judged])
        told = np.isfinite(said[-1])
        slopes.append(np.polyfit(frames[told], said[-1][told] / step_s, 1)[0]
                      if told.sum() > 2 else math.nan)
    return json_safe({
        'frames': sum(map(len, said)), 'ttc_median_relative_error': median_relative_error(
            np.concatenate(said), np.concatenate(true)),
        'slope_per_frame': float(np.nanmedian(slopes))})
