# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Decode pictures that were recorded as packets of an H.264 or H.265 stream, with PyAV."""

from __future__ import annotations

import importlib
import re
from typing import Any

import numpy as np

from vjepa_ros.sources.base import SourceError
from vjepa_ros.sources.encodings import MAX_PIXELS, check_size

# Definitions for bags that bring none.
MESSAGES = {
    'foxglove_msgs/msg/CompressedVideo': (
        'builtin_interfaces/Time timestamp\nstring frame_id\nuint8[] data\nstring format\n'),
    'ffmpeg_image_transport_msgs/msg/FFMPEGPacket': (
        'std_msgs/Header header\nint32 width\nint32 height\nstring encoding\nuint64 pts\n'
        'uint8 flags\nbool is_bigendian\nuint8[] data\n')}
START = re.compile(rb'\x00\x00\x01(.)', re.S)     # of a unit in a stream, ITU-T H.264 annex B


class PacketDecoder:
    """Decodes the packets of one stream, in their order and without B frames.

    Parameters
    ----------
    text
        Name of format or encoder in the message, such as 'h264' or 'hevc_nvenc'.

    Raises
    ------
    SourceError
        When it is neither H.264 nor H.265, or PyAV is missing.
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

    def decode(self, data: bytes) -> np.ndarray:
        """Return the picture of a packet, RGB uint8 (H, W, 3).

        Raises
        ------
        SourceError
            When there is none: before the first key frame, and from a damaged packet on until
            the next one.
        """
        if self._is_key(data) and self._context is None:
            self._context = self._av.CodecContext.create(self._codec, 'r')
            self._context.thread_count = 1       # several would hold pictures back
        if self._context is None:
            raise SourceError('there is no key frame before it')
        try:
            frames = self._context.decode(self._av.Packet(data))
            if not frames:
                raise SourceError('the packet has no picture')
            check_size(frames[-1].width, frames[-1].height, MAX_PIXELS)
            return np.ascontiguousarray(frames[-1].to_ndarray(format='rgb24'))
        except (self._av.FFmpegError, ValueError) as error:
            self._context = None       # what follows refers to what is lost
            raise SourceError(f'the packet cannot be decoded: {error}') from error

    def _is_key(self, data: bytes) -> bool:
        units = (found[1][0] for found in START.finditer(data))
        if self._codec == 'h264':
            return any(unit & 31 == 5 for unit in units)
        return any(16 <= unit >> 1 & 63 <= 21 for unit in units)
