# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Play video files, a rendered scene and live cameras through OpenCV, and packets through PyAV."""

from __future__ import annotations

import dataclasses
import importlib
import logging
import math
import re
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cv2
import numpy as np

from vjepa_ros.sources import base
from vjepa_ros.sources.base import FIRST_STAMP_NS, PlayOptions, Source, SourceError, SourceFrame
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
# Definitions for bags that bring none.
MESSAGES = {
    'foxglove_msgs/msg/CompressedVideo': (
        'builtin_interfaces/Time timestamp\nstring frame_id\nuint8[] data\nstring format\n'),
    'ffmpeg_image_transport_msgs/msg/FFMPEGPacket': (
        'std_msgs/Header header\nint32 width\nint32 height\nstring encoding\nuint64 pts\n'
        'uint8 flags\nbool is_bigendian\nuint8[] data\n')}
START = re.compile(rb'\x00\x00\x01(.)', re.S)     # of a unit in a stream, ITU-T H.264 annex B
HIGH_PROFILES = (100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135)
SLICE, KEY_SLICE, SEQUENCE = 1, 5, 7                # types of units of H.264 that are read here
MOST_BITS = 16                                      # of `frame_num`
READ = 128                                          # bytes of a unit that hold what is read of it
_log = logging.getLogger(__name__)


class VideoSource(Source):
    """A video file; stamps are the times of its pictures, or follow its frame rate."""

    def __init__(self, path: Path, options: PlayOptions):
        self._path = path
        capture = self._open()
        rate, count = (capture.get(key) for key in (cv2.CAP_PROP_FPS, cv2.CAP_PROP_FRAME_COUNT))
        ok, first = self._decoded(capture.read)
        if not ok:
            raise SourceError(f"video '{path}' has no readable frame; the file may be damaged or "
                              'its codec missing in this OpenCV')
        if not 0.1 <= rate <= 1000:
            _log.warning("video '%s' has no usable frame rate (%s): stamps assume %g Hz",
                         path, rate, _ASSUMED_RATE_HZ)
            rate = _ASSUMED_RATE_HZ
        super().__init__(f"video '{path}'", options, (first.shape[1], first.shape[0]), rate,
                         int(count) if 0 < count < math.inf else None)

    def _open(self) -> cv2.VideoCapture:
        with ExitStack() as stack:
            name = str(self._path)
            if base.printable(name) != name:         # OpenCV would end the process
                folder = stack.enter_context(TemporaryDirectory(prefix='vjepa_ros_'))
                link = Path(folder, f'video{base.printable(self._path.suffix)}')
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
            raise SourceError(f"video '{self._path}' cannot be read: {error}") from error
        pixels = _tag(capture, cv2.CAP_PROP_CODEC_PIXEL_FORMAT)
        if pixels == _GREY_16:
            capture.set(cv2.CAP_PROP_CONVERT_RGB, 0)      # it would keep only the upper 8 bits
        elif _GREY in (pixels[:2], pixels[2:]) and pixels != b'Y1\0\x08':
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

    def _play(self) -> base.Play:
        capture = self._open()
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
            self._truth = {name: known[name] for name in known.files if name != 'box'}
        self.name = f"synthetic scene '{scene}'"
        fx, fy, cx, cy = self._truth.pop('intrinsics').tolist()
        self.intrinsics = base.scale_intrinsics((fx, fy, cx, cy), self._own_size, self.size)
        self.frame_count = self._count(len(self._truth['phase']))
        count = 3 * self.size[0] * self.size[1] + _NOISE_OFFSETS
        self._noise = np.random.default_rng(0).normal(0, NOISE, count).round().astype(np.int16)

    def _frame(self, capture: cv2.VideoCapture, stamp_ns: int) -> SourceFrame:
        frame = self._resized(super()._frame(capture, stamp_ns))
        number = round((stamp_ns - FIRST_STAMP_NS) * self._own_rate / 1e9)
        offset = int(np.random.default_rng((0, number)).integers(_NOISE_OFFSETS))
        noise = self._noise[offset:offset + frame.rgb.size].reshape(frame.rgb.shape)
        rgb = np.asarray(cv2.add(frame.rgb, noise, dtype=cv2.CV_8U))
        truth = {name: values[number].item() for name, values in self._truth.items()}
        return dataclasses.replace(frame, rgb=rgb, truth=truth)


class CameraSource(Source):
    """A webcam or network stream; stamps are the wall-clock times of arrival."""

    live = True

    def __init__(self, device: int | str, options: PlayOptions):
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
            raise SourceError(f'{name} opens but delivers no picture')
        rate = self._capture.get(cv2.CAP_PROP_FPS)
        super().__init__(name, options, (first.shape[1], first.shape[0]),
                         rate if math.isfinite(rate) and rate > 0 else math.nan)

    def close(self) -> None:
        """Release the camera."""
        self._capture.release()

    def _play(self) -> base.Play:
        while self._capture.grab():
            stamp = time.time_ns()
            yield stamp, partial(self._frame, stamp)
        raise base.SourceLost(f'{self.name} stopped delivering pictures')

    def _frame(self, stamp_ns: int) -> SourceFrame:
        ok, bgr = self._capture.retrieve()
        if not ok:
            raise base.SourceLost(f'{self.name} stopped delivering pictures')
        return SourceFrame(stamp_ns, grey_or_bgr(bgr))


def _tag(capture: cv2.VideoCapture, key: int) -> bytes:
    """Return a property that is four letters."""
    return (int(capture.get(key)) & 0xFFFFFFFF).to_bytes(4, 'little')


# -- packets ------------------------------------------------------------------------------------

def pixels_of(frame: Any) -> np.ndarray:
    """Return the RGB pixels of an av.VideoFrame, (H, W, 3) uint8, or uint16 for grey of more."""
    wide = frame.format.name.startswith('gray') and frame.format.components[0].bits > 8
    if wide:
        return grey_or_bgr(frame.to_ndarray(format='gray16le'))
    return np.ascontiguousarray(frame.to_ndarray(format='rgb24'))


class PacketDecoder:
    """Decodes the packets of one stream of H.264 or H.265, in their order.

    `text` names format or encoder, such as 'h264' or 'hevc_nvenc'.
    """

    def __init__(self, text: str) -> None:
        self._codec = ('h264' if '264' in text else
                       'hevc' if '265' in text or 'hevc' in text.lower() else '')
        if not self._codec:
            raise SourceError(f"video format '{text[:40]}' is not supported: h264, h265")
        try:
            self._av: Any = importlib.import_module('av')
        except ImportError as error:
            raise SourceError(f'{self._codec} needs PyAV ({error}): pip install av') from error
        self._context: Any = None
        self._numbers = _PictureNumbers()
        self._count = 0

    def picture(self, data: bytes) -> Any:
        """Return the picture of the next packet as an av.VideoFrame.

        `SourceError` when there is none: before the first key frame, from a damaged or lost packet
        on until the next one, and with B frames. `ImageError` when it has more than `MAX_PIXELS`.
        """
        key = self._is_key(data)
        if self._codec == 'h264' and self._numbers.gap(data):
            self._context = None       # FFmpeg would go on with a wrong picture, and not say so
        if key and self._context is None:
            self._context = self._av.CodecContext.create(self._codec, 'r')
            self._context.thread_count = 1       # several would hold pictures back
        if self._context is None:
            raise SourceError('a packet before it is missing; the next key frame is waited for')
        self._count += 1
        try:
            packet = self._av.Packet(data)
            packet.pts = self._count
            frames = self._context.decode(packet)
        except (self._av.FFmpegError, ValueError) as error:
            self._context = None       # what follows refers to what is lost
            raise SourceError(f'the packet cannot be decoded: {error}; the next key frame is '
                              'waited for') from error
        if not frames or frames[-1].pts != self._count:
            raise SourceError('the packet has no picture of its own, as after a loss or with B '
                              'frames; encode without them (tune zerolatency of x264)')
        check_size(frames[-1].width, frames[-1].height, MAX_PIXELS)
        return frames[-1]

    def _is_key(self, data: bytes) -> bool:
        units = (found[1][0] for found in START.finditer(data))
        if self._codec == 'h264':
            return any(unit & 31 == 5 for unit in units)
        return any(16 <= unit >> 1 & 63 <= 21 for unit in units)


class _PictureNumbers:
    """Follows `frame_num` of an H.264 stream, which counts the pictures that others refer to.

    ITU-T H.264, 7.3.2.1.1 (sequence parameter set), 7.3.3 (slice header) and 7.4.3 (gaps).
    """

    def __init__(self) -> None:
        self._bits = 0           # of the number, 0: not known yet
        self._planes = False     # whether slices name a colour plane
        self._last = 0           # number of the last picture that others refer to

    def gap(self, data: bytes) -> bool:
        """Take a packet; whether a picture that it may refer to was lost before it."""
        for found in START.finditer(data):
            head, begin = found[1][0], found.end()
            kind, bits = head & 31, _Bits(data[begin:begin + READ])
            if kind == SEQUENCE:
                self._read_sequence(bits)
            elif kind == KEY_SLICE:
                self._last = 0
                return False
            elif kind == SLICE and self._bits:
                bits.numbers(3)                      # first macroblock, type, parameter set
                bits.take(2 if self._planes else 0)
                number, last = bits.take(self._bits), self._last
                if head & 0x60:                      # others refer to it
                    self._last = number
                return number not in (last, (last + 1) % (1 << self._bits))
        return False

    def _read_sequence(self, bits: _Bits) -> None:
        profile = bits.take(24) >> 16
        bits.numbers(1)
        self._planes = False
        if profile in HIGH_PROFILES:
            chroma = bits.number()
            self._planes = chroma == 3 and bits.take(1) == 1
            bits.numbers(2)                          # bit depths
            bits.take(1)
            if bits.take(1):
                for i in range(12 if chroma == 3 else 8):
                    bits.skip_scaling_list(16 if i < 6 else 64)
        length = bits.number() + 4
        self._bits = length if length <= MOST_BITS else 0        # 0 for one that is damaged


class _Bits:
    """Reads the bits of a unit, which is cut or padded with zeros at its end."""

    def __init__(self, unit: bytes) -> None:
        plain = unit.replace(b'\0\0\3', b'\0\0') + bytes(8)
        self._bits = format(int.from_bytes(plain, 'big'), f'0{8 * len(plain)}b')

    def take(self, count: int) -> int:
        """Return the next bits as a number."""
        part, self._bits = self._bits[:count], self._bits[count:]
        return int(part or '0', 2)

    def number(self) -> int:
        """Return the next number in the code of Exp-Golomb (9.1)."""
        zeros = min(32, len(self._bits) - len(self._bits.lstrip('0')))
        return max(0, self.take(2 * zeros + 1) - 1)

    def numbers(self, count: int) -> None:
        """Skip numbers."""
        for _ in range(count):
            self.number()

    def skip_scaling_list(self, size: int) -> None:
        """Skip one that may be there (7.3.2.1.1.1)."""
        scale = 8
        for _ in range(size if self.take(1) else 0):
            code = self.number()
            scale = (scale + (code + 1) // 2 * (1 if code % 2 else -1)) % 256
            if not scale:
                return
