# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Base class of all sources of frames: stamps, looping, thinning, resizing, real-time playback."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from vjepa_ros.clip.optics import Distortion
from vjepa_ros.sources.encodings import ImageError, check_aspect
from vjepa_ros.sources.gain import GainControl

FIRST_STAMP_NS = 1_000_000_000  # of sources without a clock; 0 would mean 'no stamp' in ROS
NARROWEST, WIDEST = math.radians(1.0), math.radians(179.0)   # plausible fields of view
MAX_SIDE = 65535         # of a picture with intrinsics [px]
MAX_TEXT = 64 << 20      # bytes of labels.csv: a million frames have half of that
MAX_OFFSET = 1.0         # of the principal point beside the image, in image sizes (rectified)
Intrinsics = tuple[float, float, float, float]
Load = Callable[[], 'SourceFrame']
Play = Iterator[tuple[int, Load]]  # stamp_ns, and how to get the frame


class SourceError(ValueError):
    """A source cannot be opened or read; the text names it, the cause and the remedy."""

    def __init__(self, text: str) -> None:
        # A name of a file may be no text, which no terminal, file or log would take.
        super().__init__(printable(text))


class SourceLost(SourceError):
    """A live camera stopped delivering; opening it again may work."""


@dataclass(frozen=True)
class SourceFrame:
    """One picture of a source.

    Attributes
    ----------
    stamp_ns : int
        Time of the picture on the clock of the source [ns].
    rgb : ndarray (H, W, 3) uint8
        C-contiguous RGB pixels.
    frame_id : str
        Optical frame, as recorded or ``camera``.
    truth : dict or None
        Ground truth: ``time_to_contact_s`` (s, inf = not approaching, NaN = unknown),
        ``collision`` (bool, None = unknown) and, for synthetic scenes, ``looming_rate``,
        ``distance_m``, ``speed``, ``yaw_rate``, ``level``, ``phase``. None without any.
    encoded : bytes or None
        The compressed picture as stored, if it has not been changed since.
    encoding : str or None
        ``jpeg`` or ``png`` when ``encoded`` is set.
    gain : int
        Number of the gain that made 8 bits of 16, see `GainControl.reduce`; 0 for 8 bits.
    """

    stamp_ns: int
    rgb: np.ndarray
    frame_id: str = 'camera'
    truth: dict[str, Any] | None = None
    encoded: bytes | None = None
    encoding: str | None = None
    gain: int = 0


@dataclass(frozen=True)
class PlayOptions:
    """How a source is played; `SourceError` when a value is out of range.

    Attributes
    ----------
    rate : float, optional
        Frames per second. None keeps the rate of the source. For pictures without stamps it is the
        rate at which they were taken, and needed. All others are thinned to the frames nearest in
        time (a synthetic scene from 30 Hz, to 15 Hz by default); no frames are invented, so a rate
        above that of the source changes nothing.
    loop : bool
        Start again at the end, with stamps that keep rising (no effect on cameras and single
        pictures, which never end).
    topic : str, optional
        Image topic of a bag; None takes the first.
    size : (int, int), optional
        Width and height to resize to [px]; requested from a camera.
    max_frames : int, optional
        End after so many frames in all.
    start_s : float
        Skip the first seconds of every pass.
    """

    rate: float | None = None
    loop: bool = False
    topic: str | None = None
    size: tuple[int, int] | None = None
    max_frames: int | None = None
    start_s: float = 0.0

    def __post_init__(self) -> None:
        for name, fits, allowed in (
                ('rate', self.rate is None or 0 < self.rate <= 1000, '0 to 1000 Hz'),
                ('size', self.size is None or all(1 <= n <= 16384 for n in self.size),
                 '1 to 16384 px'),
                ('max_frames', self.max_frames is None or self.max_frames >= 1, 'at least 1'),
                ('start_s', 0 <= self.start_s < math.inf, '0 s or more')):
            if not fits:
                raise SourceError(f'{name} {getattr(self, name)} is out of range: {allowed}')


class Source(ABC):
    """Frames of one source; iterate to play them from the start, as often as wanted.

    A frame is decoded or rendered only when it is used.

    Attributes
    ----------
    name : str
        Description of the source for logs.
    rate_hz : float
        Frames per second that iteration yields, NaN unknown.
    frame_count : int or None
        Frames of one pass, None where unknown or endless. Video files may be off by a few.
    size : (int, int)
        Width and height of the frames that iteration yields [px].
    intrinsics : (float, float, float, float) or None
        fx, fy, cx, cy for ``size`` [px], None unknown.
    distortion : Distortion or None
        Of the lens, None for none and unknown.
    lost : str
        What of its files cannot be read, in words; '' for nothing.
    live : bool
        True for cameras: frames arrive in real time with stamps of the wall clock.
    skipped : int
        Frames left out by `skip_before`.
    """

    live = False
    lost = ''
    distortion: Distortion | None = None

    def __init__(self, name: str, options: PlayOptions, size: tuple[int, int], rate_hz: float,
                 frame_count: int | None = None, intrinsics: Intrinsics | None = None):
        self.name = printable(name)
        self.options = options
        self._own_size = size
        self._own_rate = rate_hz
        self.size = options.size or size
        self.rate_hz = rate_hz if options.rate is None else float(np.fmin(rate_hz, options.rate))
        self.frame_count = frame_count if frame_count is None else self._count(frame_count)
        self.intrinsics = scale_intrinsics(intrinsics, size, self.size)
        self.skipped = 0
        self._gain = GainControl()
        # Of the current pass: where to skip to, first and last stamp, newest gap between frames.
        self._skip_ns = -math.inf
        self._span_ns: tuple[int, int] | None = None
        self._gap_ns = round(1e9 / self.rate_hz) if self.rate_hz > 0 else 100_000_000

    def _count(self, own: int) -> int:
        """Return how many of its frames one pass yields."""
        if not math.isnan(self._own_rate):
            left = max(0, own - math.ceil(self.options.start_s * self._own_rate - 1e-6))
            own = math.ceil(left * self.rate_hz / self._own_rate - 1e-6)
        return min(own, self.options.max_frames or own)

    def __iter__(self) -> Iterator[SourceFrame]:
        frames = self._repeated() if self.options.loop and not self.live else self._once(0)
        yield from map(self._resized, islice(frames, self.options.max_frames))

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:  # noqa: B027 - most sources hold nothing
        """Release files and devices; the source cannot be played afterwards."""

    def skip_before(self, stamp_ns: int) -> None:
        """Leave out the frames of the current pass before a stamp [ns], without decoding them."""
        self._skip_ns = stamp_ns

    @abstractmethod
    def _play(self) -> Play:
        """Yield all frames of one pass in order of time."""

    @property
    def duration_s(self) -> float:
        """Length of one pass [s], NaN unknown."""
        return self.frame_count / self.rate_hz if self.frame_count else math.nan

    def excerpt(self, begin_s: float, end_s: float) -> Iterator[tuple[float, Load]]:
        """Yield the frames from one time up to before another [s since the start], as they are.

        Each with its time [s], and how to get it, which raises `SourceError` for one that cannot
        be decoded; the frames after it are not affected. Iteration raises `SourceError` when the
        source cannot be read any further.
        """
        for at_s, _, load in self._part(begin_s, end_s):
            yield at_s, partial(self._taken, load)

    def _part(self, begin_s: float, end_s: float) -> Iterator[tuple[float, int, Load]]:
        """Yield the time [s since the start], the stamp [ns] and the frames of a part."""
        first_ns = None
        for stamp_ns, load in self._play():
            first_ns = stamp_ns if first_ns is None else first_ns
            at_s = (stamp_ns - first_ns) / 1e9
            if at_s >= end_s:
                return
            if at_s >= begin_s or self.live:
                yield at_s, stamp_ns, load

    def _once(self, shift_ns: int) -> Iterator[SourceFrame]:
        """Yield one pass from ``start_s`` on, thinned to the rate, with shifted stamps."""
        self._skip_ns, self._span_ns = -math.inf, None
        frames = ((stamp, load) for _, stamp, load in self._part(self.options.start_s, math.inf))
        rate = self.options.rate
        # Not at its own rate: that would lose frames whose stamps jitter. A camera's is a guess.
        if rate is not None and (self.live or not rate >= self._own_rate):
            frames = _thinned(frames, rate)
        for stamp, load in frames:
            first, last = self._span_ns or (stamp, stamp)
            self._gap_ns = stamp - last if stamp > last else self._gap_ns
            self._span_ns = first, stamp
            if stamp + shift_ns < self._skip_ns:
                self.skipped += 1
                continue
            frame = self._taken(load)
            yield dataclasses.replace(frame, stamp_ns=frame.stamp_ns + shift_ns)

    def _repeated(self) -> Iterator[SourceFrame]:
        shift_ns = 0
        while True:
            yield from self._once(shift_ns)
            if self._span_ns is None:
                raise SourceError(f'{self.name} yields no frames to repeat '
                                  f'(start_s {self.options.start_s} may be beyond its end)')
            # The next pass follows after one more gap between frames.
            first, last = self._span_ns
            shift_ns += last - first + self._gap_ns

    def _taken(self, load: Load) -> SourceFrame:
        """Return a frame with 8 bits; SourceError for one that is too long and thin."""
        frame = load()
        try:
            check_aspect(*frame.rgb.shape[1::-1])
        except ImageError as error:
            raise SourceError(f'the frame at {frame.stamp_ns / 1e9:.3f} s: {error}') from error
        rgb, gain = self._gain.reduce(frame.rgb)
        return dataclasses.replace(frame, rgb=rgb, gain=gain)

    def _resized(self, frame: SourceFrame) -> SourceFrame:
        size = self.options.size
        if size is None or frame.rgb.shape[1::-1] == size:
            return frame
        way = cv2.INTER_AREA if size[0] < frame.rgb.shape[1] else cv2.INTER_LINEAR
        rgb = cv2.resize(frame.rgb, size, interpolation=way)
        return dataclasses.replace(frame, rgb=rgb, encoded=None, encoding=None)


def _thinned(frames: Play, rate: float) -> Play:
    """Yield the frames nearest to the target times of a rate [Hz]."""
    step_ns, target_ns, previous_ns = 1e9 / rate, -math.inf, math.inf
    for stamp_ns, load in frames:
        half_gap = max(0.0, stamp_ns - previous_ns) / 2
        if stamp_ns < previous_ns:       # the first one, or time has begun again
            target_ns = stamp_ns
        previous_ns = stamp_ns
        if stamp_ns >= target_ns - half_gap:
            late = stamp_ns - target_ns + half_gap
            target_ns += step_ns * max(1, math.ceil(late / step_ns))
            yield stamp_ns, load


class Pacer:
    """Maps stamps to a steady clock, so that a source plays in real time without drift.

    A backward stamp (a recording that starts again) is due one frame after the one before it.
    """

    def __init__(self) -> None:
        self._offset_ns: int | None = None
        self._last_ns = 0
        self._gap_ns = 100_000_000

    def due_ns(self, stamp_ns: int, now_ns: int) -> int:
        """Return the time on the steady clock at which the frame of a stamp is due [ns]."""
        if self._offset_ns is None:
            self._offset_ns = now_ns - stamp_ns
        elif stamp_ns <= self._last_ns:
            self._offset_ns += self._last_ns + self._gap_ns - stamp_ns
        else:
            self._gap_ns = stamp_ns - self._last_ns
        self._last_ns = stamp_ns
        return stamp_ns + self._offset_ns

    def overdue_before(self, now_ns: int) -> int:
        """Return the stamp before which frames are more than one frame late [ns]."""
        assert self._offset_ns is not None, 'no frame has been played yet'
        return now_ns - self._offset_ns - self._gap_ns


def printable(text: str) -> str:
    """Return a text with what is no UTF-8, in a name of a file, escaped."""
    return text.encode(errors='backslashreplace').decode()


def check_file(path: Path, most: float = math.inf) -> None:
    """Raise SourceError where a path is no regular file, which might never end, or too large."""
    try:
        size = path.stat().st_size
    except (OSError, ValueError) as error:
        raise SourceError(f"'{path}' cannot be read: {error}") from error
    if not path.is_file():
        raise SourceError(f"'{path}' is refused: it is no regular file, but a folder, device, "
                          'pipe or socket; remove it')
    if size > most:
        raise SourceError(f"'{path}' is refused: it has {size} bytes, at most {most} are read")


def read_file(path: Path, most: int) -> bytes:
    """Return the content of a regular file of at most so many bytes; `SourceError` otherwise."""
    check_file(path, most)
    try:
        return path.read_bytes()
    except OSError as error:
        raise SourceError(f"'{path}' cannot be read: {error}; check its permissions") from error


def read_text(path: Path) -> str:
    """Return the content of a text file; SourceError names a line that is not UTF-8."""
    data = read_file(path, MAX_TEXT)
    try:
        return data.decode('utf-8-sig')
    except UnicodeDecodeError as error:
        line = data.count(b'\n', 0, error.start) + 1
        raise SourceError(f"'{path}' line {line} is not text in UTF-8 ({error.reason}); save the "
                          'file in UTF-8, or copy it again') from error


def inside(path: Path, folder: Path) -> bool:
    """Return whether a path, with links resolved, leads into a folder."""
    return path.resolve().is_relative_to(folder.resolve())


def scale_intrinsics(intrinsics: Intrinsics | None, own: tuple[int, int],
                     wanted: tuple[int, int]) -> Intrinsics | None:
    """Return intrinsics [px] after a resize (pixel centres are at whole numbers)."""
    if intrinsics is None or own == wanted:
        return intrinsics
    sx, sy = wanted[0] / own[0], wanted[1] / own[1]
    fx, fy, cx, cy = intrinsics
    return fx * sx, fy * sy, (cx + 0.5) * sx - 0.5, (cy + 0.5) * sy - 0.5


def pinhole_problem(intrinsics: Intrinsics, size: tuple[int, int]) -> str:
    """Return why fx, fy, cx, cy [px] cannot belong to a size [px]; '' when they can."""
    if not all(1 <= side <= MAX_SIDE for side in size):
        return f'its size is {size[0]} x {size[1]}'
    fx, fy, cx, cy = intrinsics
    for axis, focal, centre, side in (('x', fx, cx, size[0]), ('y', fy, cy, size[1])):
        least, most = (side / 2 / math.tan(angle / 2) for angle in (WIDEST, NARROWEST))
        if not least <= focal <= most:       # catches NaN, too
            return (f'its focal length f{axis} is {focal:g} px, which is implausible for {side} '
                    f'pixels ({least:.3g}..{most:.3g})')
        if not -MAX_OFFSET * side <= centre <= (1 + MAX_OFFSET) * side:
            return f'its centre c{axis} is {centre:g} px, far outside of {side} pixels'
    return ''
