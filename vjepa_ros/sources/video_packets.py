# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Decode pictures that were recorded as packets of an H.264 or H.265 stream, with PyAV."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from vjepa_ros.sources.base import SourceError
from vjepa_ros.sources.encodings import MAX_PIXELS, check_size, grey_or_bgr

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
MOST_WAITING = 64                                   # packets whose pictures may come later
READ = 128                                          # bytes of a unit that hold what is read of it


def pixels_of(frame: Any) -> np.ndarray:
    """Return the RGB pixels of an av.VideoFrame, (H, W, 3) uint8, or uint16 for grey of more."""
    wide = frame.format.name.startswith('gray') and frame.format.components[0].bits > 8
    if wide:
        return grey_or_bgr(frame.to_ndarray(format='gray16le'))
    return np.ascontiguousarray(frame.to_ndarray(format='rgb24'))


class PacketDecoder:
    """Decodes the packets of one stream, in their order.

    With B frames a packet brings the picture of an earlier one, and `rest` the last pictures.
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
        self._count, self._waiting = 0, dict[int, Any]()     # packets; who sent them, by number

    def picture(self, data: bytes, sender: Any = None) -> tuple[Any, Any]:
        """Return the next picture as an av.VideoFrame, and the sender (anything) of its packet.

        `SourceError` when there is none: before the first key frame, and from a damaged or lost
        packet on until the next one. `ImageError` when it has more than `MAX_PIXELS`.
        """
        key = self._is_key(data)
        if self._codec == 'h264' and self._numbers.gap(data):
            self._context = None       # FFmpeg would go on with a wrong picture, and not say so
        if key and self._context is None:
            self._context = self._av.CodecContext.create(self._codec, 'r')
            self._context.thread_count = 1       # several would hold pictures back
        if self._context is None:
            raise SourceError('a packet before it is missing; the next key frame is waited for')
        try:
            packet, self._count = self._av.Packet(data), self._count + 1
            packet.pts = self._count
            self._waiting[self._count] = sender
            self._waiting.pop(self._count - MOST_WAITING, None)
            frames = self._context.decode(packet)
        except (self._av.FFmpegError, ValueError) as error:
            self._context = None       # what follows refers to what is lost
            raise SourceError(f'the packet cannot be decoded: {error}; the next key frame is '
                              'waited for') from error
        if not frames:
            raise SourceError('the packet has no picture')
        check_size(frames[-1].width, frames[-1].height, MAX_PIXELS)
        return frames[-1], self._waiting.get(frames[-1].pts, sender)

    def rest(self) -> Iterator[tuple[Any, Any]]:
        """Yield what `picture` would return for the pictures that wait, when no packet follows."""
        context, self._context = self._context, None
        if context is None:
            return
        try:
            frames = context.decode(None)
        except self._av.FFmpegError:       # they refer to what is lost
            return
        for frame in frames:
            if frame.pts in self._waiting:
                yield frame, self._waiting[frame.pts]

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
        plain = unit.replace(b'\0\0\3', b'\0\0') + b'\0' * 8
        self._value, self._left = int.from_bytes(plain, 'big'), 8 * len(plain)

    def take(self, count: int) -> int:
        """Return the next bits as a number."""
        self._left = max(0, self._left - count)
        return self._value >> self._left & (1 << count) - 1

    def number(self) -> int:
        """Return the next number in the code of Exp-Golomb (9.1)."""
        zeros = 0
        while zeros < 32 and self._left and not self.take(1):
            zeros += 1
        return (1 << zeros) - 1 + self.take(zeros)

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
