# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Play video files, a rendered scene with its truth, and live cameras through OpenCV."""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cv2
import numpy as np

from vjepa_ros.sources.base import (
    FIRST_STAMP_NS,
    Play,
    PlayOptions,
    Source,
    SourceError,
    SourceFrame,
    SourceLost,
    printable,
    scale_intrinsics,
)
from vjepa_ros.sources.encodings import ImageError, MAX_PIXELS, check_size, grey_or_bgr

_ASSUMED_RATE_HZ = 30.0
_ROUNDED_MS = 1.0         # by which mkv and webm round times; an even rate stays even
_MOST_MS = 9e12           # stamps in ns have 64 bits
_GREY_16, _GREY, _Y16 = b'Y1\0\x10', b'Y1', b'Y16 '     # pixel formats by FFmpeg and by V4L2
CLIPS = Path(__file__).with_name('clips')
SCENES = ('approach',)
DEFAULT_RATE_HZ = 15.0
NOISE = 2.0               # standard deviation of the sensor noise [grey levels]
_NOISE_OFFSETS = 1 << 20  # patterns that one table of noise yields
_log = logging.getLogger(__name__)


class VideoSource(Source):
    """A video file; stamps are the times of its pictures, or follow its frame rate."""

    def __init__(self, path: Path, options: PlayOptions):
        self._path = path
        capture = self._open()
        rate = capture.get(cv2.CAP_PROP_FPS)
        count = capture.get(cv2.CAP_PROP_FRAME_COUNT)
        count = int(count) if math.isfinite(count) else 0
        ok, first = self._decoded(capture.read)
        capture.release()
        if not ok:
            raise SourceError(f"video '{path}' has no readable frame; the file may be damaged or "
                              'its codec missing in this OpenCV')
        if not (math.isfinite(rate) and 0.1 <= rate <= 1000):
            _log.warning("video '%s' has no usable frame rate (%s): stamps assume %g Hz",
                         path, rate, _ASSUMED_RATE_HZ)
            rate = _ASSUMED_RATE_HZ
        super().__init__(f"video '{path}'", options, (first.shape[1], first.shape[0]), rate,
                         count if count > 0 else None)

    def _open(self) -> cv2.VideoCapture:
        with ExitStack() as stack:
            name = str(self._path)
            if printable(name) != name:         # OpenCV would end the process
                folder = stack.enter_context(TemporaryDirectory(prefix='vjepa_ros_'))
                link = Path(folder, f'video{printable(self._path.suffix)}')
                link.symlink_to(self._path.absolute())
                name = str(link)
            capture = cv2.VideoCapture(name)
        if not capture.isOpened():
            raise SourceError(f"'{self._path}' cannot be opened as a video; give a video file "
                              'that OpenCV reads (such as mp4, avi, mkv, webm)')
        width, height = (int(capture.get(side))
                         for side in (cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT))
        try:
            if width and height:            # some containers lack them
                check_size(width, height, MAX_PIXELS)
        except ImageError as error:
            capture.release()
            raise SourceError(f"video '{self._path}' cannot be read: {error}") from error
        pixels = _tag(capture, cv2.CAP_PROP_CODEC_PIXEL_FORMAT)
        if pixels == _GREY_16:
            capture.set(cv2.CAP_PROP_CONVERT_RGB, 0)      # it would keep only the upper 8 bits
        elif _GREY in (pixels[:2], pixels[2:]) and pixels != b'Y1\0\x08':
            capture.release()
            raise SourceError(f"video '{self._path}' is grey with more than 8 bits in a layout of "
                              'which only the upper 8 would be read; convert it: ffmpeg -i IN '
                              '-pix_fmt gray16le -c:v ffv1 OUT.mkv')
        return capture

    def _decoded(self, step: Callable[[], tuple[bool, Any]]) -> tuple[bool, Any]:
        try:
            return step()
        except cv2.error as error:
            raise SourceError(f"video '{self._path}' cannot be decoded: "
                              f'{str(error).splitlines()[0][:200]}; copy it again') from error

    def _play(self) -> Play:
        capture = self._open()
        try:
            first_ms, last_ms, next_ms = None, -math.inf, 0.0
            while capture.grab():
                told_ms = capture.get(cv2.CAP_PROP_POS_MSEC)
                first_ms = told_ms if first_ms is None else first_ms
                told_ms -= first_ms
                # Damaged files, and the last pictures of an avi with B frames, tell no such time.
                usable = last_ms < told_ms < _MOST_MS
                last_ms = told_ms if usable and abs(told_ms - next_ms) > _ROUNDED_MS else next_ms
                next_ms = last_ms + 1e3 / self._own_rate
                stamp = FIRST_STAMP_NS + round(last_ms * 1e6)
                yield stamp, partial(self._frame, capture, stamp)
        finally:
            capture.release()

    def _frame(self, capture: cv2.VideoCapture, stamp_ns: int) -> SourceFrame:
        ok, bgr = self._decoded(capture.retrieve)
        if not ok:
            raise SourceError(f'{self.name}: the frame at {stamp_ns / 1e9 - 1:.3f} s cannot be '
                              'decoded')
        return SourceFrame(stamp_ns, grey_or_bgr(bgr))


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
        self._noise = np.random.default_rng(0).normal(0, NOISE, count).round().astype(np.int16)

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


class CameraSource(Source):
    """A webcam or network stream; stamps are the wall-clock times of arrival."""

    live = True

    def __init__(self, device: int | str, options: PlayOptions):
        self._device = device
        self._capture = cv2.VideoCapture(device)
        name = f'camera {device}' if isinstance(device, int) else f"stream '{device}'"
        if not self._capture.isOpened():
            found = sorted(p.name for p in Path('/dev').glob('video*'))
            raise SourceError(f'{name} cannot be opened; video devices here: '
                              f'{", ".join(found) or "none"} (also check the permissions, and '
                              'whether another program uses it)')
        self._capture.set(cv2.CAP_PROP_BUFFERSIZE, 1)
        if options.size is not None:
            self._capture.set(cv2.CAP_PROP_FRAME_WIDTH, options.size[0])
            self._capture.set(cv2.CAP_PROP_FRAME_HEIGHT, options.size[1])
        if options.rate is not None:
            self._capture.set(cv2.CAP_PROP_FPS, options.rate)
        if _tag(self._capture, cv2.CAP_PROP_FOURCC) == _Y16:
            self._capture.set(cv2.CAP_PROP_CONVERT_RGB, 0)      # it would keep only 8 bits
        ok, first = self._capture.read()
        if not ok:
            self._capture.release()
            raise SourceError(f'{name} opens but delivers no picture')
        rate = self._capture.get(cv2.CAP_PROP_FPS)
        super().__init__(name, options, (first.shape[1], first.shape[0]),
                         rate if math.isfinite(rate) and rate > 0 else math.nan)

    def close(self) -> None:
        """Release the camera."""
        self._capture.release()

    def _play(self) -> Play:
        while self._capture.grab():
            stamp = time.time_ns()
            yield stamp, partial(self._frame, stamp)
        raise SourceLost(f'{self.name} stopped delivering pictures')

    def _frame(self, stamp_ns: int) -> SourceFrame:
        ok, bgr = self._capture.retrieve()
        if not ok:
            raise SourceLost(f'{self.name} stopped delivering pictures')
        return SourceFrame(stamp_ns, grey_or_bgr(bgr))


def _tag(capture: cv2.VideoCapture, key: int) -> bytes:
    """Return a property that is four letters."""
    return (int(capture.get(key)) & 0xFFFFFFFF).to_bytes(4, 'little')
