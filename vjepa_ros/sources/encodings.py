# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Decode images to RGB pixels, without ROS."""

from __future__ import annotations

import struct

import cv2
import numpy as np

from vjepa_ros.sources.gain import GainControl

JPEG_START, PNG_START = b'\xff\xd8\xff', b'\x89PNG\r\n\x1a\n'
JPEG_END = b'\xff\xd9'
MAX_SIDE = 16384           # px; a header with more is corrupt
MAX_PIXELS = 8192 * 8192   # of picture files; as RGB they take 200 MB
MAX_ASPECT = 8.0           # longer side by the shorter one; panoramas have up to 6
MAX_SEGMENTS = 4096        # of a jpeg header, fill bytes included
MAX_CHUNKS = 1 << 16       # of a png: in the largest ones encoders make half as many
MAX_SCANS = 100            # of a jpeg: progressive ones have about ten, each costs a full pass
SOI, EOI, SOS = 0xD8, 0xD9, 0xDA
FRAME_MARKERS = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}     # markers with a picture size
BASELINE = (0xC0, 0xC1)

# A plane of brightness, then one of half its height with both colours in turn.
PLANES = {'nv12': cv2.COLOR_YUV2RGB_NV12, 'nv21': cv2.COLOR_YUV2RGB_NV21}
# OpenCV names a Bayer pattern by the second row and column, ROS by the first.
BAYER = {'rggb': cv2.COLOR_BayerBG2RGB, 'bggr': cv2.COLOR_BayerRG2RGB,
         'gbrg': cv2.COLOR_BayerGR2RGB, 'grbg': cv2.COLOR_BayerGB2RGB}
# Number of channels and the conversion to RGB; those with 16 in their name have so many bits.
ENCODINGS: dict[str, tuple[int, int | None]] = {
    **dict.fromkeys(('rgb8', 'rgb16'), (3, None)),
    **dict.fromkeys(('bgr8', '8UC3', 'bgr16'), (3, cv2.COLOR_BGR2RGB)),
    **dict.fromkeys(('rgba8', 'rgba16'), (4, cv2.COLOR_RGBA2RGB)),
    **dict.fromkeys(('bgra8', '8UC4', 'bgra16'), (4, cv2.COLOR_BGRA2RGB)),
    **dict.fromkeys(('mono8', '8UC1', 'mono16', '16UC1'), (1, cv2.COLOR_GRAY2RGB)),
    **dict.fromkeys(('yuv422', 'uyvy'), (2, cv2.COLOR_YUV2RGB_UYVY)),
    **dict.fromkeys(('yuv422_yuy2', 'yuyv'), (2, cv2.COLOR_YUV2RGB_YUY2)),
    **{name: (1, code) for name, code in PLANES.items()},
    **{f'bayer_{name}{bits}': (1, code) for name, code in BAYER.items() for bits in (8, 16)}}
SUPPORTED = tuple(ENCODINGS)


class ImageError(ValueError):
    """An image that cannot be used; `kind` groups equal faults for counting."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def decode_raw(data: np.ndarray | bytes, width: int, height: int, encoding: str, step: int,
               big_endian: bool = False, max_pixels: int = MAX_PIXELS) -> np.ndarray:
    """Return `read_raw` in 8 bits, for an image alone: the gain of each is its own."""
    return GainControl().reduce(read_raw(data, width, height, encoding, step, big_endian,
                                         max_pixels))[0]


def read_raw(data: np.ndarray | bytes, width: int, height: int, encoding: str, step: int,
             big_endian: bool = False, max_pixels: int = MAX_PIXELS) -> np.ndarray:
    """Return the RGB pixels (H, W, 3) of an uncompressed image, as in `sensor_msgs/Image`.

    uint16 for encodings of 16 bits, else uint8; of rgb8 without padding a view of `data`.
    `ImageError` if the encoding is unknown, the image too large, or the sizes do not fit the data.
    """
    check_size(width, height, max_pixels)
    if encoding not in ENCODINGS:
        raise ImageError('unknown encoding', f"image encoding '{encoding:.99}' is not supported: "
                         f'{", ".join(SUPPORTED)}')
    channels, code = ENCODINGS[encoding]
    planes, wide = encoding in PLANES, '16' in encoding
    if (width % 2 and (planes or channels == 2)) or (height % 2 and planes):
        raise ImageError('bad size', f'{encoding} image is {width}x{height}, must be even')
    if encoding.startswith('bayer') and min(width, height) < 4:
        raise ImageError('bad size', f'{encoding} image is {width}x{height}, too small')
    rows, row = height * 3 // 2 if planes else height, width * channels * (2 if wide else 1)
    if step < row:
        raise ImageError('bad size', f'{encoding} image of width {width} has step {step}, must '
                         f'be at least {row}')
    data = np.frombuffer(data, np.uint8)
    # The padding of the last row may be missing.
    if data.size < step * (rows - 1) + row:
        raise ImageError('bad size', f'{encoding} image {width}x{height} with step {step} has '
                         f'{data.size} bytes, needs {step * rows}')
    pixels = np.ascontiguousarray(np.lib.stride_tricks.as_strided(data, (rows, row), (step, 1)))
    if wide:                                  # in the byte order of this machine
        pixels = pixels.view('>u2' if big_endian else '<u2').astype(np.uint16)
    pixels = pixels.reshape((rows, width, channels) if channels > 1 else (rows, width))
    return pixels if code is None else cv2.cvtColor(pixels, code)


def check_size(width: int, height: int, max_pixels: int) -> None:
    """Raise ImageError with the size for an image that is too large to decode."""
    if not (0 < height <= MAX_SIDE and 0 < width <= MAX_SIDE):
        raise ImageError('bad size', f'image is {width}x{height}, sides must be 1..{MAX_SIDE}: '
                         'crop or shrink it')
    if width * height > max_pixels:
        raise ImageError('too large', f'image is {width}x{height}, more than the limit of '
                         f'{max_pixels} pixels')


def check_aspect(width: int, height: int, max_aspect: float = MAX_ASPECT) -> None:
    """Raise ImageError with the size for an image that is too long and thin."""
    if max(width, height) > max_aspect * min(width, height):
        raise ImageError('bad aspect', f'image is {width}x{height}, thinner than the limit of '
                         f'1:{max_aspect:g}: crop it')


def read_compressed(data: bytes | np.ndarray, max_pixels: int = MAX_PIXELS) -> np.ndarray:
    """Return the RGB pixels of a jpeg or png picture, uint8, or uint16 for a png of 16 bits."""
    data = np.frombuffer(data, np.uint8)
    if data.size == 0:
        raise ImageError('empty', 'compressed image has no data')
    # OpenCV would try other formats, too, and decode any size.
    size = picture_size(data)
    if size is None:
        raise ImageError('corrupt', f'picture of {data.size} bytes cannot be decoded as jpeg or '
                         'png (bad header)')
    check_size(*size, max_pixels)
    # OpenCV silently fills the rest of a truncated jpeg with grey.
    if data[:3].tobytes() == JPEG_START and not _has_jpeg_end(data):
        raise ImageError('corrupt', f'jpeg of {data.size} bytes is truncated (no end marker)')
    return decode_any(data)


def decode_any(data: np.ndarray) -> np.ndarray:
    """Return the RGB pixels, uint8 or uint16, of a picture of checked size."""
    # Rotated by its EXIF data, a picture would no longer fit its camera_info.
    try:
        bgr = cv2.imdecode(data, cv2.IMREAD_COLOR | cv2.IMREAD_ANYDEPTH
                           | cv2.IMREAD_IGNORE_ORIENTATION)
    except cv2.error as error:    # such as an implausible size in its header
        raise ImageError('corrupt', f'picture of {data.size} bytes cannot be decoded: '
                         f'{str(error).splitlines()[0][:200]}') from error
    if bgr is None or bgr.dtype not in (np.uint8, np.uint16):
        raise ImageError('corrupt', f'picture of {data.size} bytes cannot be decoded as jpeg or '
                         'png')
    return cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB, dst=bgr)


def grey_or_bgr(pixels: np.ndarray) -> np.ndarray:
    """Return the RGB pixels (H, W, 3) of an image of OpenCV, grey (H, W) or BGR (H, W, 3)."""
    return cv2.cvtColor(pixels, cv2.COLOR_GRAY2RGB if pixels.ndim == 2 else cv2.COLOR_BGR2RGB)


def read_compressed_image(text: str, data: bytes | np.ndarray, max_pixels: int = MAX_PIXELS
                          ) -> tuple[np.ndarray, str]:
    """Return `read_compressed` of a compressed image message, and ``jpeg`` or ``png``.

    Its format says whether it is depth, and else nothing: drivers write anything there.
    """
    if 'compressedDepth' in text:
        raise ImageError('unknown encoding', f"compressed format '{text:.99}' is a depth image, "
                         'not a picture')
    rgb = read_compressed(data, max_pixels)
    return rgb, 'jpeg' if bytes(data[:3]) == JPEG_START else 'png'


def _has_jpeg_end(data: np.ndarray) -> bool:
    """Return whether a jpeg has its end marker; zeros after it are padding of the driver."""
    end = data.size - int(np.argmax(data[::-1] != 0))
    return JPEG_END in data[max(0, end - 64):end].tobytes()


# -- headers of compressed pictures: the size is known before decoding ---------------------------

def picture_size(data: np.ndarray) -> tuple[int, int] | None:
    """Return width and height [px] as the decoder will read them from the header.

    None when the content of a file, uint8 (N,), is neither jpeg nor png, or its header is broken.
    """
    start = data[:33].tobytes()
    if start.startswith(JPEG_START):
        return _jpeg_size(data)
    if start.startswith(PNG_START) and start[12:16] == b'IHDR' and len(start) == 33:
        return struct.unpack('>II', start[16:24]) if _has_whole_chunks(data) else None
    return None


def _has_whole_chunks(data: np.ndarray) -> bool:
    """Return whether no chunk of a png claims more than is there: OpenCV would allocate it."""
    view, at = data.data, len(PNG_START)
    for _ in range(MAX_CHUNKS):
        if at + 8 > len(view):
            return at <= len(view)
        last = view[at + 4:at + 8] == b'IEND'
        at += 12 + struct.unpack_from('>I', view, at)[0]
        if last:                                # what follows is not read
            return at <= len(view)
    return False


def _jpeg_size(data: np.ndarray) -> tuple[int, int] | None:
    view, at, size, parts = data.data, 2, None, 0
    for _ in range(MAX_SEGMENTS):
        # Between segments the standard allows only fill bytes, which look like markers.
        if at + 12 > len(view) or view[at] != 0xFF:
            return None
        marker = view[at + 1]
        if marker == SOS:
            # One with all parts is the only one, unless they come progressively.
            scans = 1 if view[at + 4] == parts else data.tobytes().count(bytes((0xFF, SOS)))
            return size if scans <= MAX_SCANS else None
        if marker in (0, SOI, EOI) or (marker in FRAME_MARKERS and size is not None):
            return None          # decoders use the first size, or give up
        if marker in FRAME_MARKERS:
            height, width, count = struct.unpack_from('>HHB', view, at + 5)
            size, parts = (width, height), count if marker in BASELINE else 0
        at += 1 if marker == 0xFF else 2 + struct.unpack_from('>H', view, at + 2)[0]
    return None
