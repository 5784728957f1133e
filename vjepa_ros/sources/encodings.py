# SPDX-License-Identifier: Apache-2.0
"""Turn recorded image bytes into RGB pixels, without ROS and without cv_bridge."""

from __future__ import annotations

import cv2
import numpy as np

_PLAIN = {  # encoding: (channels, OpenCV conversion to RGB or None)
    'rgb8': (3, None), 'bgr8': (3, cv2.COLOR_BGR2RGB), '8UC3': (3, cv2.COLOR_BGR2RGB),
    'rgba8': (4, cv2.COLOR_RGBA2RGB), 'bgra8': (4, cv2.COLOR_BGRA2RGB),
    '8UC4': (4, cv2.COLOR_BGRA2RGB), 'mono8': (1, cv2.COLOR_GRAY2RGB),
    '8UC1': (1, cv2.COLOR_GRAY2RGB), 'yuv422': (2, cv2.COLOR_YUV2RGB_UYVY),
    'uyvy': (2, cv2.COLOR_YUV2RGB_UYVY), 'yuv422_yuy2': (2, cv2.COLOR_YUV2RGB_YUY2),
    'yuyv': (2, cv2.COLOR_YUV2RGB_YUY2),
}
# OpenCV names a Bayer pattern by its second row and column, ROS by its first.
_BAYER = {'rggb': cv2.COLOR_BayerBG2RGB, 'bggr': cv2.COLOR_BayerRG2RGB,
          'gbrg': cv2.COLOR_BayerGR2RGB, 'grbg': cv2.COLOR_BayerGB2RGB}

SUPPORTED = (*_PLAIN, 'mono16', '16UC1', *(f'bayer_{p}{b}' for p in _BAYER for b in (8, 16)))


def decode_raw(data: np.ndarray | bytes, width: int, height: int, encoding: str, step: int,
               big_endian: bool = False) -> np.ndarray:
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

    Returns
    -------
    ndarray (height, width, 3) uint8

    Raises
    ------
    ValueError
        If the encoding is unknown or the sizes do not fit the data.
    """
    if encoding not in SUPPORTED:
        raise ValueError(f"image encoding '{encoding}' is not supported: {', '.join(SUPPORTED)}")
    wide = encoding.endswith('16') or encoding == '16UC1'
    channels, code = _PLAIN.get(encoding, (1, None))
    row = width * channels * (2 if wide else 1)
    data = np.frombuffer(data, np.uint8)
    if width < 1 or height < 1 or step < row or data.size < (height - 1) * step + row:
        raise ValueError(f'{encoding} image of {width}x{height} px with rows of {step} bytes does '
                         f'not fit its {data.size} bytes (a row needs {row})')
    rows = np.lib.stride_tricks.as_strided(data, (height, row), (step, 1), writeable=False)
    pixels = np.ascontiguousarray(rows)
    if wide:
        pixels = (pixels.view('>u2' if big_endian else '<u2') >> 8).astype(np.uint8)
    if encoding.startswith('bayer_'):
        return cv2.cvtColor(pixels, _BAYER[encoding[6:10]])
    if wide:
        code = cv2.COLOR_GRAY2RGB
    if channels > 1:
        pixels = pixels.reshape(height, width, channels)
    return pixels if code is None else cv2.cvtColor(pixels, code)


def decode_compressed(data: bytes | np.ndarray) -> np.ndarray:
    """RGB pixels of a jpeg or png picture; ValueError when it is broken."""
    raw = np.frombuffer(data, np.uint8)
    bgr = cv2.imdecode(raw, cv2.IMREAD_COLOR) if raw.size else None
    if bgr is None:
        raise ValueError(f'picture of {raw.size} bytes cannot be decoded as jpeg or png')
    return cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB)


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
