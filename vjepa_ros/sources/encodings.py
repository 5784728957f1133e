# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Turn the bytes of images into RGB pixels, without ROS and without cv_bridge."""

from __future__ import annotations

import cv2
import numpy as np

from vjepa_ros.sources.image_headers import JPEG_START, picture_size

JPEG_END = b'\xff\xd9'
MAX_SIDE = 16384           # px; a larger header is corrupt, not a camera
MAX_PIXELS = 8192 * 8192   # of what files hold; as RGB they take 200 MB

# Encodings whose bytes are the picture: channels and the conversion to RGB.
PLAIN: dict[str, tuple[int, int | None]] = {
    'rgb8': (3, None), 'bgr8': (3, cv2.COLOR_BGR2RGB), '8UC3': (3, cv2.COLOR_BGR2RGB),
    'rgba8': (4, cv2.COLOR_RGBA2RGB), 'bgra8': (4, cv2.COLOR_BGRA2RGB),
    '8UC4': (4, cv2.COLOR_BGRA2RGB),
    'mono8': (1, cv2.COLOR_GRAY2RGB), '8UC1': (1, cv2.COLOR_GRAY2RGB),
    'yuv422': (2, cv2.COLOR_YUV2RGB_UYVY), 'uyvy': (2, cv2.COLOR_YUV2RGB_UYVY),
    'yuv422_yuy2': (2, cv2.COLOR_YUV2RGB_YUY2), 'yuyv': (2, cv2.COLOR_YUV2RGB_YUY2),
}
# OpenCV names a Bayer pattern by the second row and column, ROS by the first.
BAYER = {'rggb': cv2.COLOR_BayerBG2RGB, 'bggr': cv2.COLOR_BayerRG2RGB,
         'gbrg': cv2.COLOR_BayerGR2RGB, 'grbg': cv2.COLOR_BayerGB2RGB}
WIDE = {'mono16': 1, '16UC1': 1, 'rgb16': 3, 'bgr16': 3, 'rgba16': 4, 'bgra16': 4}
SUPPORTED = (*PLAIN, *WIDE, *(f'bayer_{p}{bits}' for p in BAYER for bits in (8, 16)))


class ImageError(ValueError):
    """An image message that can not be used; `kind` groups equal faults for counting."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def decode_raw(data: np.ndarray | bytes, width: int, height: int, encoding: str, step: int,
               big_endian: bool = False, max_pixels: int = MAX_PIXELS) -> np.ndarray:
    """RGB pixels of an uncompressed image.

    Parameters
    ----------
    data : bytes or ndarray uint8
        Rows of ``step`` bytes; what lies behind the pixels of a row is padding.
    width, height, step : int
        Pixels, pixels, bytes.
    encoding : str
        Name after ROS, see ``SUPPORTED``. 16 bit are reduced to their upper 8.
    big_endian : bool
        Order of the bytes of 16 bit values.
    max_pixels : int
        Most pixels that are taken.

    Returns
    -------
    ndarray (height, width, 3) uint8
        For rgb8 without padding a view of `data`.

    Raises
    ------
    ImageError
        If the encoding is unknown, the image too large, or the sizes do not fit the data.
    """
    check_size(width, height, max_pixels)
    if encoding not in SUPPORTED:
        raise ImageError('unknown encoding', f"image encoding '{encoding}' is not supported: "
                         f'{", ".join(SUPPORTED)}')
    if encoding in PLAIN:
        channels, code = PLAIN[encoding]
        if channels == 2 and width % 2:
            raise ImageError('bad size', f'{encoding} image is {width} wide, must be even')
        pixels = _pixels(data, (width, height), encoding, step, channels)
    elif encoding in WIDE:
        channels = WIDE[encoding]
        code = PLAIN[{1: 'mono8', 3: encoding[:3] + '8', 4: encoding[:4] + '8'}[channels]][1]
        pixels = _pixels(data, (width, height), encoding, step, channels, big_endian)
    else:
        wide = big_endian if encoding.endswith('16') else None
        if min(width, height) < 4:
            raise ImageError('bad size', f'{encoding} image is {width}x{height}, too small')
        code = BAYER[encoding[6:10]]
        pixels = _pixels(data, (width, height), encoding, step, 1, wide)
    pixels = np.ascontiguousarray(pixels)
    return pixels if code is None else cv2.cvtColor(pixels, code)


def check_size(width: int, height: int, max_pixels: int) -> None:
    """Refuse an image before it costs time and memory: ImageError names its size."""
    if not (0 < height <= MAX_SIDE and 0 < width <= MAX_SIDE):
        raise ImageError('bad size', f'image is {width}x{height}, sides must be 1..{MAX_SIDE}')
    if width * height > max_pixels:
        raise ImageError('too large', f'image is {width}x{height}, more than the {max_pixels} '
                         'pixels that are taken')


def decode_compressed(data: bytes | np.ndarray, max_pixels: int = MAX_PIXELS) -> np.ndarray:
    """RGB pixels of a jpeg or png picture.

    Raises
    ------
    ImageError
        When it is neither, broken, cut off, or has more than `max_pixels`.
    """
    data = np.frombuffer(data, np.uint8)
    if data.size == 0:
        raise ImageError('empty', 'compressed image has no data')
    # OpenCV would look for other formats, too, whatever the message says, and decode any size.
    size = picture_size(data)
    if size is None:
        raise ImageError('corrupt', f'picture of {data.size} bytes cannot be decoded as jpeg or '
                         'png (bad header)')
    check_size(*size, max_pixels)
    # OpenCV fills the rest of a cut-off jpeg with grey and says nothing.
    if data[:3].tobytes() == JPEG_START and not _has_jpeg_end(data):
        raise ImageError('corrupt', f'jpeg of {data.size} bytes is cut off (no end marker)')
    return decode_any(data)


def decode_any(data: np.ndarray) -> np.ndarray:
    """RGB pixels of a picture that is known to be small enough; ImageError when it is broken."""
    # Turned by its EXIF data, a picture would no longer fit its camera_info.
    try:
        bgr = cv2.imdecode(data, cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    except cv2.error as error:    # such as a size in its header that no camera has
        raise ImageError('corrupt', f'picture of {data.size} bytes cannot be decoded: '
                         f'{str(error).splitlines()[0][:200]}') from error
    if bgr is None:
        raise ImageError('corrupt', f'picture of {data.size} bytes cannot be decoded as jpeg or '
                         'png')
    return cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB, dst=bgr)


def compressed_kind(text: str) -> str:
    """``jpeg`` or ``png`` from the format of a compressed image message.

    Raises
    ------
    ValueError
        For anything else, such as compressed depth or video.
    """
    lower = text.lower()
    if 'depth' not in lower:
        for word, kind in (('jpeg', 'jpeg'), ('jpg', 'jpeg'), ('png', 'png')):
            if word in lower:
                return kind
    raise ValueError(f"compressed format '{text}' is not supported: jpeg, png")


def _has_jpeg_end(data: np.ndarray) -> bool:
    """Whether a jpeg ends as it should; zeros behind its end are padding of the driver."""
    end = data.size - int(np.argmax(data[::-1] != 0))
    return JPEG_END in data[max(0, end - 64):end].tobytes()


def _pixels(data: np.ndarray | bytes, size: tuple[int, int], encoding: str, step: int,
            channels: int, big_endian: bool | None = None) -> np.ndarray:
    """Pixels without padding: (H, W[, C]) uint8; wide ones (with a byte order) scaled."""
    width, height = size
    row = width * channels * (1 if big_endian is None else 2)
    if step < row:
        raise ImageError('bad size', f'{encoding} image of width {width} has step {step}, must '
                         f'be at least {row}')
    data = np.frombuffer(data, np.uint8)
    # The padding of the last row may be missing.
    if data.size < step * (height - 1) + row:
        raise ImageError('bad size', f'{encoding} image {width}x{height} with step {step} has '
                         f'{data.size} bytes, needs {step * height}')
    pixels = np.lib.stride_tricks.as_strided(data, (height, row), (step, 1))
    if big_endian is not None:
        wide = np.ascontiguousarray(pixels).view('>u2' if big_endian else '<u2')
        pixels = (wide >> 8).astype(np.uint8)
    return pixels.reshape(height, width, channels) if channels > 1 else pixels
