# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Write the level, the scores and the state of the system along the edges of an overlay."""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np

from vjepa_ros.perception.types import Assessment, Level, Quality
from vjepa_ros.visualization import drawing

# Never green for anything but CLEAR.
LEVEL_COLORS: dict[Level, drawing.Color] = {
    Level.CLEAR: (80, 175, 76), Level.CAUTION: (0, 214, 255), Level.WARNING: (0, 140, 255),
    Level.DANGER: (48, 48, 229), Level.UNKNOWN: (180, 106, 132)}
MOTION_BGR = (255, 150, 60)
IDLE = (139, 125, 96)
AMBER = (80, 190, 255)
SOFT = (215, 210, 205)

FLAG_WORDS = {
    Quality.UNTRAINED: 'UNTRAINED MODEL', Quality.LOW_TEXTURE: 'LOW TEXTURE',
    Quality.PARTIAL_VIEW: 'PARTIAL VIEW', Quality.STALE: 'STALE',
    Quality.WARMING_UP: 'WARMING UP', Quality.SLOW_CAMERA: 'SLOW CAMERA',
    Quality.ASSUMED_INTRINSICS: 'NO CALIBRATION', Quality.LOOMING_UNKNOWN: 'TTC UNKNOWN',
    Quality.DEVICE_FALLBACK: 'DEVICE FALLBACK',
    Quality.DISAGREEMENT: 'HEADS AND GEOMETRY DISAGREE',
    Quality.HEADS_OUT_OF_RANGE: 'HEADS OUT OF RANGE', Quality.FROZEN: 'FROZEN PICTURE',
    Quality.GEOMETRY_FAILED: 'GEOMETRY FAILED', Quality.GYROSCOPE_UNUSED: 'GYROSCOPE UNUSED',
    Quality.NOT_FINITE: 'MODEL NOT FINITE'}


@dataclass(frozen=True)
class OverlayStatus:
    """State of the system around the assessment."""

    camera: str  # its name
    model: str = ''
    device: str = ''
    fill: int = 0  # frames in the clip memory,
    num_frames: int = 0  # of those that a clip needs
    rate_in_hz: float = math.nan  # of the camera
    rate_out_hz: float = math.nan  # of results
    latency_ms: float = math.nan  # age of the result
    warnings: tuple[str, ...] = ()  # short sentences, most important first
    # Age of the newest frame [s] when it is too old to be trusted; None when it is not; inf when
    # there has never been a frame
    stale_s: float | None = None
    # Whether the model is untrained (also taken from the flags of the assessment)
    untrained: bool = False
    # Horizontal focal length in source pixels, to place the bearing; None when unknown
    focal_px: float | None = None


class Panel:
    """Banner and footer of one overlay."""

    def __init__(self, canvas: np.ndarray, assessment: Assessment | None, status: OverlayStatus,
                 stale: bool) -> None:
        self.canvas, self.result, self.status, self.stale = canvas, assessment, status, stale
        self.height, self.width = canvas.shape[:2]
        # Text grows slower than the image: large images are also looked at on larger screens.
        self.unit = max(0.85, min(self.width / 640, self.height / 360) ** 0.85)
        self.notes = self._notes()
        # Rows between which the scene is free of panels.
        self.top = 34 * self.unit
        self.bottom = self.height - (56 if self.notes else 39) * self.unit

    def _notes(self) -> str:
        flags = Quality(0) if self.result is None or self.stale else self.result.flags
        words = (FLAG_WORDS[flag] for flag in Quality if flag in flags)
        return '  |  '.join((*words, *self.status.warnings))

    def banner(self) -> None:
        """Write level and time to contact along the top, and rim the image when it matters."""
        level, word, color, detail = self._headline()
        unit, px = self.unit, 15 * self.unit
        drawing.shade(self.canvas, (0, 0, self.width, self.top), 0.22, 10)
        wide = drawing.text_width(word, px, True) + 22 * unit
        cv2.rectangle(self.canvas, (0, 0), (round(wide), round(self.top) - 1), color, -1)
        drawing.text(self.canvas, word, (11 * unit, self.top / 2), px, drawing.contrast(color),
                     bold=True)
        x = wide + 12 * unit
        detail = drawing.fit(detail, self.width - x - 6 * unit, px)
        x += drawing.text(self.canvas, detail, (x, self.top / 2), px, bold=level is not None)
        if level is not None:
            self._legend(x + 12 * unit)
        if level in (Level.WARNING, Level.DANGER):
            rim = max(2, round((4 if level == Level.DANGER else 2.5) * unit))
            cv2.rectangle(self.canvas, (rim // 2, rim // 2),
                          (self.width - 1 - rim // 2, self.height - 1 - rim // 2), color, rim)
        fill, need = self.status.fill, self.status.num_frames
        if not self.stale and self.result is None and need > 0:
            y = round(self.top)
            drawing.bar(self.canvas, (0, y, self.width, y + 4 * unit), fill / need, AMBER)

    def _legend(self, left: float) -> None:
        """Explain the colours at the right end of the banner, if there is room."""
        unit, px = self.unit, 8.5 * self.unit
        entries = (('moving', MOTION_BGR), ('nearing', (40, 90, 255)))
        x = self.width - 4 * unit - sum(drawing.text_width(word, px) + 22 * unit
                                        for word, _ in entries)
        if x < left:
            return
        for word, color in entries:
            y, half = self.top / 2, 4.5 * unit
            cv2.rectangle(self.canvas, (round(x), round(y - half)),
                          (round(x + 2 * half), round(y + half)), color, -1)
            wide = drawing.text(self.canvas, word, (x + 13 * unit, y), px, SOFT)
            x += wide + 22 * unit

    def _headline(self) -> tuple[Level | None, str, drawing.Color, str]:
        """Level, its word and colour, and the text beside it."""
        if self.stale:
            return None, 'NO DATA', LEVEL_COLORS[Level.UNKNOWN], 'not watching'
        if self.result is None:
            fill, need = self.status.fill, self.status.num_frames
            detail = f'{fill}/{need} frames' if need else ''
            return None, 'BUFFERING', IDLE, detail
        level = Level(self.result.level)
        ttc = self.result.time_to_contact
        if math.isnan(ttc):
            detail = 'TTC unknown'
        elif math.isinf(ttc):
            detail = 'nothing on course'
        else:
            detail = f'TTC {seconds(ttc)}'
        return level, level.name, LEVEL_COLORS[level], detail

    def footer(self) -> None:
        """Write scores, system status and warnings along the bottom."""
        unit, row = self.unit, 17 * self.unit
        drawing.shade(self.canvas, (0, self.bottom, self.width, self.height), 0.22, 10)
        y = self.bottom + 11 * unit
        seen = None if self.stale else self.result
        scores = (math.nan,) * 4 if seen is None else (
            seen.motion_score, seen.obstacle_score, seen.collision_probability,
            seen.collision_if_ahead)
        cell = self.width / 4
        names = (('MOTION', MOTION_BGR), ('OBSTACLE', AMBER), ('COLLISION', (70, 70, 240)),
                 (self._if_ahead(), (200, 90, 200)))
        px = 8.5 * unit
        for index, ((name, color), score) in enumerate(zip(names, scores, strict=True)):
            x, end = index * cell + 8 * unit, (index + 1) * cell - 8 * unit
            value = '--' if math.isnan(score) else f'{score:.2f}'
            right = end - drawing.text_width('0.00', px)
            drawing.text(self.canvas, value, (right, y), px)
            name, right = drawing.fit(name, right - x, px), right - 6 * unit
            x += drawing.text(self.canvas, name, (x, y), px, SOFT) + 6 * unit
            if right > x + 8 * unit:      # there is room for it
                drawing.bar(self.canvas, (x, y - 3.5 * unit, right, y + 3.5 * unit), score, color)
        for line, color in ((self._system(), SOFT), (self.notes, AMBER)):
            y += row
            line = drawing.fit(line, self.width - 16 * unit, 9 * unit)
            drawing.text(self.canvas, line, (8 * unit, y), 9 * unit, color)

    def _if_ahead(self) -> str:
        speed = math.nan if self.result is None else self.result.approach_speed
        return 'IF AHEAD' if math.isnan(speed) else f'IF {speed:g} M/S'

    def _system(self) -> str:
        status, parts = self.status, [self.status.camera, self.status.model, self.status.device]
        rates = [status.rate_in_hz, status.rate_out_hz]
        if not all(map(math.isnan, rates)):      # of a recording that is scored both are unknown
            parts.append(f'{_number(rates[0])} Hz in, {_number(rates[1])} out')
        if not math.isnan(status.latency_ms):
            parts.append(f'{status.latency_ms:.0f} ms')
        if self.result is not None and status.fill < status.num_frames:
            parts.append(f'buffering {status.fill}/{status.num_frames}')
        return '  |  '.join(part for part in parts if part)

    def stale_sign(self, empty: bool) -> None:
        """Write across the middle that this image must not be trusted."""
        age = self.status.stale_s
        sign = 'NO FRAMES' if empty or age is None or math.isinf(age) else f'STALE {age:.1f} s'
        px = 30 * self.unit
        px *= min(1.0, 0.8 * self.width / drawing.text_width(sign, px, True))
        x = (self.width - drawing.text_width(sign, px, True)) / 2
        middle = (self.top + self.bottom) / 2
        drawing.shade(self.canvas, (0, middle - px, self.width, middle + px), 0.35)
        drawing.text(self.canvas, sign, (x, middle), px, AMBER, bold=True)


def seconds(value: float) -> str:
    """Format a time to contact for people."""
    return f'{value:.1f} s' if value < 99 else '> 99 s'


def _number(value: float) -> str:
    return '--' if math.isnan(value) else f'{value:.1f}'
