# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What every source of frames has in common: stamps, looping, thinning, resizing."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from vjepa_ros.sources.intrinsics_check import pinhole_problem

FIRST_STAMP_NS = 1_000_000_000  # of sources without a clock; 0 would mean 'no stamp' in ROS
LOOP_MODES = ('continue', 'jump_back')
Intrinsics = tuple[float, float, float, float]
Play = Iterator[tuple[int, Callable[[], 'SourceFrame']]]  # stamp_ns, and how to get the frame


class SourceError(ValueError):
    """A source cannot be opened or read; the text names it, what was found and what helps."""


class SourceLost(SourceError):
    """A live camera stopped delivering; opening it again may work."""


@dataclass(frozen=True)
class SourceFrame:
    """One picture of a source.

    Attributes
    ----------
    stamp_ns : int
        Time of the picture in ns, in the time of the source.
    rgb : ndarray (H, W, 3) uint8
        C-contiguous RGB pixels.
    frame_id : str
        Optical frame, as recorded or ``camera``.
    truth : dict or None
        What is known to be true: ``time_to_contact_s`` (s, inf = not approaching, NaN =
        unknown), ``collision`` (bool, None = unknown) and, for synthetic scenes,
        ``looming_rate``, ``distance_m``, ``speed``, ``yaw_rate``, ``level``, ``phase``,
        ``box``. None where the source knows nothing at all.
    encoded : bytes or None
        The picture as it was stored, when it was compressed and not changed since.
    encoding : str or None
        ``jpeg`` or ``png`` when ``encoded`` is set.
    """

    stamp_ns: int
    rgb: np.ndarray
    frame_id: str = 'camera'
    truth: dict[str, Any] | None = None
    encoded: bytes | None = None
    encoding: str | None = None


@dataclass(frozen=True)
class PlayOptions:
    """How a source is played; the arguments of `open_source`."""

    rate: float | None = None
    loop: bool = False
    loop_mode: str = 'continue'
    topic: str | None = None
    size: tuple[int, int] | None = None
    seed: int = 0
    max_frames: int | None = None
    start_s: float = 0.0

    def __post_init__(self) -> None:
        if self.rate is not None and not 0 < self.rate <= 1000:
            raise SourceError(f'rate {self.rate} is out of range: 0 to 1000 Hz, or None for the '
                              'own rate of the source')
        if self.loop_mode not in LOOP_MODES:
            raise SourceError(f"loop_mode '{self.loop_mode}' is unknown: {', '.join(LOOP_MODES)}")
        if self.size is not None and not all(1 <= n <= 16384 for n in self.size):
            raise SourceError(f'size {self.size} is out of range: 1 to 16384 px, or None for the '
                              'own size of the source')
        if self.max_frames is not None and self.max_frames < 1:
            raise SourceError(f'max_frames {self.max_frames} is out of range: at least 1')
        if not (self.start_s >= 0 and math.isfinite(self.start_s)):
            raise SourceError(f'start_s {self.start_s} is out of range: 0 s or more')


class Source(ABC):
    """Frames of one source; iterate to play them from the start, as often as wanted.

    Kinds of sources implement `_play`, one pass over the own frames, and set the attributes.
    A frame is decoded or rendered only when it is wanted.

    Attributes
    ----------
    name : str
        The source in words, for logs.
    rate_hz : float
        Frames per second that iteration yields, NaN where nobody knows.
    frame_count : int or None
        Frames of one pass, None where unknown or endless. Video files may be off by a few.
    size : (int, int)
        Width and height in pixels of what iteration yields.
    intrinsics : (float, float, float, float) or None
        fx, fy, cx, cy in pixels for ``size``, None where unknown.
    live : bool
        True for cameras: frames come when they come, and stamps are of the wall clock.
    skipped : int
        Frames left out because of `skip_before`.
    """

    live = False

    def __init__(self, name: str, options: PlayOptions, size: tuple[int, int], rate_hz: float,
                 frame_count: int | None = None, intrinsics: Intrinsics | None = None):
        self.name = name
        self.options = options
        self._own_size = size
        self._own_rate = rate_hz
        self.size = options.size or size
        self.rate_hz = rate_hz if options.rate is None else (
            options.rate if math.isnan(rate_hz) else min(rate_hz, options.rate))
        self.frame_count = frame_count if frame_count is None else self._count(frame_count)
        problem = intrinsics and pinhole_problem(intrinsics, size)
        if problem:
            raise SourceError(f'{name} has a calibration that cannot be: {problem}; correct it, '
                              'or remove it')
        self.intrinsics = scale_intrinsics(intrinsics, size, self.size)
        self.skipped = 0
        # Of the present pass: where to skip to, first and last stamp, newest gap between frames.
        self._skip_ns: int | None = None
        self._first_ns: int | None = None
        self._last_ns: int | None = None
        self._gap_ns = round(1e9 / self.rate_hz) if self.rate_hz > 0 else 100_000_000

    def _count(self, own: int) -> int:
        """Frames that one pass yields, of so many own frames."""
        if not math.isnan(self._own_rate):
            left = max(0, own - math.ceil(self.options.start_s * self._own_rate - 1e-6))
            own = math.ceil(left * self.rate_hz / self._own_rate - 1e-6)
        return min(own, self.options.max_frames or own)

    def __iter__(self) -> Iterator[SourceFrame]:
        frames = self._repeated() if self.options.loop and not self.live else self._once(0)
        for number, frame in enumerate(frames):
            if self.options.max_frames is not None and number >= self.options.max_frames:
                return
            yield self._resized(frame)

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:  # noqa: B027 - most sources hold nothing
        """Release files and devices; the source cannot be played any more."""

    def skip_before(self, stamp_ns: int) -> None:
        """Leave out the frames of the present pass up to a stamp, without decoding them.

        For a player that is too slow and wants to stay in time.
        """
        self._skip_ns = stamp_ns

    @abstractmethod
    def _play(self) -> Play:
        """One pass over all own frames in order of time."""

    def _once(self, shift_ns: int) -> Iterator[SourceFrame]:
        """One pass from ``start_s`` on, thinned to the wanted rate, stamps moved by a shift."""
        begin_ns = next_ns = previous_ns = None
        step_ns = None if self.options.rate is None else 1e9 / self.options.rate
        self._skip_ns = self._first_ns = self._last_ns = None
        for stamp, load in self._play():
            if begin_ns is None:
                begin_ns = stamp + round(self.options.start_s * 1e9)
            if not self.live and stamp < begin_ns:
                previous_ns = stamp
                continue
            if step_ns is not None:
                # The frame nearest to each target time; frames are left out, never invented.
                half_gap = 0 if previous_ns is None else max(0, stamp - previous_ns) / 2
                restarted = previous_ns is not None and stamp < previous_ns
                previous_ns = stamp
                if next_ns is not None and not restarted and stamp < next_ns - half_gap:
                    continue
                next_ns = stamp if next_ns is None or restarted else next_ns
                next_ns += step_ns * max(1, math.ceil((stamp - next_ns + half_gap) / step_ns))
            if self._first_ns is None:
                self._first_ns = stamp
            elif stamp > self._last_ns:
                self._gap_ns = stamp - self._last_ns
            self._last_ns = stamp
            if self._skip_ns is not None and stamp + shift_ns < self._skip_ns:
                self.skipped += 1
                continue
            frame = load()
            yield dataclasses.replace(frame, stamp_ns=stamp + shift_ns) if shift_ns else frame

    def _repeated(self) -> Iterator[SourceFrame]:
        shift_ns = 0
        while True:
            yield from self._once(shift_ns)
            if self._first_ns is None:
                raise SourceError(f'{self.name} yields no frames to repeat '
                                  f'(start_s {self.options.start_s} may lie behind its end)')
            if self.options.loop_mode == 'continue':
                # The next pass follows after one more gap between frames.
                shift_ns += self._last_ns - self._first_ns + self._gap_ns

    def _resized(self, frame: SourceFrame) -> SourceFrame:
        height, width = frame.rgb.shape[:2]
        if self.options.size is None or (width, height) == self.options.size:
            return frame
        shrinks = self.options.size[0] < width
        rgb = cv2.resize(frame.rgb, self.options.size,
                         interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)
        return dataclasses.replace(frame, rgb=rgb, encoded=None, encoding=None)


def inside(path: Path, folder: Path) -> bool:
    """Whether a path leads to something in a folder, also through links."""
    return path.resolve().is_relative_to(folder.resolve())


def scale_intrinsics(intrinsics: Intrinsics | None, own: tuple[int, int],
                     wanted: tuple[int, int]) -> Intrinsics | None:
    """Intrinsics after a resize (pixel centres are at whole numbers)."""
    if intrinsics is None or own == wanted:
        return intrinsics
    sx, sy = wanted[0] / own[0], wanted[1] / own[1]
    fx, fy, cx, cy = intrinsics
    return fx * sx, fy * sy, (cx + 0.5) * sx - 0.5, (cy + 0.5) * sy - 0.5
