# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The size of a jpeg or png picture from its header: what is measured needs no decoding."""

from __future__ import annotations

import struct

import numpy as np

JPEG_START, PNG_START = b'\xff\xd8\xff', b'\x89PNG\r\n\x1a\n'
MAX_SEGMENTS = 4096        # of a jpeg header; fill bytes count, too
# Of a jpeg. Progressive ones have about ten; each takes time for all pixels, and few bytes.
MAX_SCANS = 100
SOI, EOI, SOS = 0xD8, 0xD9, 0xDA
FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}     # markers that hold a size
BASELINE = (0xC0, 0xC1)


def picture_size(data: np.ndarray) -> tuple[int, int] | None:
    """Width and height [px] that the decoder of a picture will go by.

    Parameters
    ----------
    data
        The bytes of a file, uint8 (N,).

    Returns
    -------
    tuple of int, optional
        None when this is neither jpeg nor png, or its header is broken.
    """
    start = data[:33].tobytes()
    if start.startswith(JPEG_START):
        return _jpeg_size(data)
    if start.startswith(PNG_START) and start[12:16] == b'IHDR' and len(start) == 33:
        return struct.unpack('>II', start[16:24])
    return None


def _jpeg_size(data: np.ndarray) -> tuple[int, int] | None:
    view, at, frame = memoryview(data), 2, None
    for _ in range(MAX_SEGMENTS):
        # Between segments the standard allows fill bytes, which look like markers, and no other.
        if at + 12 > len(view) or view[at] != 0xFF:
            return None
        marker = view[at + 1]
        if marker == 0xFF:
            at += 1
            continue
        if marker in (0, SOI, EOI):
            return None
        length, first = struct.unpack_from('>HB', view, at + 2)
        if marker == SOS:
            return None if frame is None or _too_many_scans(data, frame, first) else frame[1:3]
        if marker in FRAMES:
            if frame is not None:        # decoders go by the first, or give up
                return None
            height, width, parts = struct.unpack_from('>HHB', view, at + 5)
            frame = (marker, width, height, parts)
        at += 2 + length
    return None


def _too_many_scans(data: np.ndarray, frame: tuple[int, int, int, int], parts: int) -> bool:
    """Whether decoding takes unduly long for the size; one scan of all parts is the usual way."""
    if frame[0] in BASELINE and parts == frame[3]:
        return False
    return data.tobytes().count(bytes((0xFF, SOS))) > MAX_SCANS
