# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Pictures whose few bytes make a decoder work long."""

from __future__ import annotations

import struct
import zlib

GREY, RGB, RGBA = 0, 2, 6
CHANNELS = {GREY: 1, RGB: 3, RGBA: 4}


def flat_png(width: int, height: int, colour: int = GREY, bits: int = 8) -> bytes:
    """A black png, made row by row: neither memory nor time for all its pixels."""
    row = bytes(1 + width * CHANNELS[colour] * bits // 8)
    packer = zlib.compressobj(9)
    packed = b''.join([*(packer.compress(row) for _ in range(height)), packer.flush()])
    header = struct.pack('>IIBBBBB', width, height, bits, colour, 0, 0, 0)
    return b'\x89PNG\r\n\x1a\n' + b''.join(
        struct.pack('>I', len(body)) + kind + body + struct.pack('>I', zlib.crc32(kind + body))
        for kind, body in ((b'IHDR', header), (b'IDAT', packed), (b'IEND', b'')))
