# SPDX-License-Identifier: Apache-2.0
"""Turn image messages into RGB arrays, and arrays into messages."""

from __future__ import annotations

import array
import importlib
from typing import Any

import cv2
import numpy as np
from sensor_msgs.msg import CompressedImage, Image, PointCloud2, PointField
from std_msgs.msg import Header

JPEG_START, JPEG_END = b'\xff\xd8', b'\xff\xd9'
MAX_SIDE = 16384           # px; a larger header is corrupt, not a camera

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


class ImageError(ValueError):
    """An image message that can not be used; `kind` groups equal faults for counting."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def stamp_ns(header: Header) -> int:
    """Stamp of a header [ns]."""
    return header.stamp.sec * 1_000_000_000 + header.stamp.nanosec


def decode(msg: Image | CompressedImage) -> np.ndarray:
    """RGB uint8 (H, W, 3) of an image message, raw or compressed.

    For rgb8 without padding this is a view of the message's own memory.

    Raises
    ------
    ImageError
        When the message is malformed or its encoding is unknown, with what was expected.
    """
    try:
        return decode_compressed(msg) if isinstance(msg, CompressedImage) else decode_raw(msg)
    except cv2.error as error:
        raise ImageError('corrupt', f'image can not be decoded: {error}'.strip()) from error


def decode_raw(msg: Image) -> np.ndarray:
    """RGB uint8 (H, W, 3) of a sensor_msgs/Image; see `decode`."""
    height, width, encoding = msg.height, msg.width, msg.encoding
    if not (0 < height <= MAX_SIDE and 0 < width <= MAX_SIDE):
        raise ImageError('bad size', f'image is {width}x{height}, sides must be 1..{MAX_SIDE}')
    if encoding in PLAIN:
        channels, code = PLAIN[encoding]
        pixels = _pixels(msg, channels, 1)
        if channels == 2 and width % 2:
            raise ImageError('bad size', f'{encoding} image is {width} wide, must be even')
        if code is None:
            return np.ascontiguousarray(pixels)
        return cv2.cvtColor(np.ascontiguousarray(pixels), code)
    if encoding.startswith('bayer_') and encoding[6:10] in BAYER and encoding[10:] in ('8', '16'):
        pixels = _pixels(msg, 1, int(encoding[10:]) // 8)
        if min(pixels.shape[:2]) < 4:
            raise ImageError('bad size', f'{encoding} image is {width}x{height}, too small')
        return cv2.cvtColor(np.ascontiguousarray(pixels), BAYER[encoding[6:10]])
    if encoding in WIDE:
        pixels = _pixels(msg, WIDE[encoding], 2)
        plain = {1: 'mono8', 3: encoding[:3] + '8', 4: encoding[:4] + '8'}[WIDE[encoding]]
        code = PLAIN[plain][1]
        pixels = np.ascontiguousarray(pixels)
        return pixels if code is None else cv2.cvtColor(pixels, code)
    return _by_cv_bridge(msg)


def decode_compressed(msg: CompressedImage) -> np.ndarray:
    """RGB uint8 (H, W, 3) of a sensor_msgs/CompressedImage; see `decode`."""
    if 'compressedDepth' in msg.format:
        raise ImageError('unknown encoding', f"compressed format '{msg.format}' is a depth "
                         'image, not a picture')
    data = np.frombuffer(msg.data, np.uint8)
    if data.size == 0:
        raise ImageError('empty', 'compressed image has no data')
    # OpenCV fills the rest of a cut-off jpeg with grey and says nothing.
    if data[:2].tobytes() == JPEG_START and not _has_jpeg_end(data):
        raise ImageError('corrupt', f'jpeg of {data.size} bytes is cut off (no end marker)')
    # Turned by its EXIF data, a picture would no longer fit its camera_info.
    bgr = cv2.imdecode(data, cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    if bgr is None:
        raise ImageError('corrupt', f"compressed image of {data.size} bytes, format "
                         f"'{msg.format}', can not be decoded as jpeg or png")
    return cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB, dst=bgr)


def _has_jpeg_end(data: np.ndarray) -> bool:
    """Whether a jpeg ends as it should; zeros behind its end are padding of the driver."""
    end = data.size - int(np.argmax(data[::-1] != 0))
    return JPEG_END in data[max(0, end - 64):end].tobytes()


def _pixels(msg: Image, channels: int, depth: int) -> np.ndarray:
    """Pixels of a message without its padding: (H, W[, channels]) uint8, wide ones scaled."""
    row = msg.width * channels * depth
    if msg.step < row:
        raise ImageError('bad size', f'{msg.encoding} image of width {msg.width} has step '
                         f'{msg.step}, must be at least {row}')
    data = np.frombuffer(msg.data, np.uint8)
    # The padding of the last row may be missing.
    if data.size < msg.step * (msg.height - 1) + row:
        raise ImageError('bad size', f'{msg.encoding} image {msg.width}x{msg.height} with step '
                         f'{msg.step} has {data.size} bytes, needs {msg.step * msg.height}')
    if data.size < msg.step * msg.height:
        data = np.concatenate((data, np.zeros(msg.step * msg.height - data.size, np.uint8)))
    pixels = data[:msg.step * msg.height].reshape(msg.height, msg.step)[:, :row]
    if depth == 2:
        order = '>u2' if msg.is_bigendian else '<u2'
        wide = np.ascontiguousarray(pixels).view(order)
        pixels = (wide >> 8).astype(np.uint8)
    return pixels.reshape(msg.height, msg.width, channels) if channels > 1 else pixels


def _by_cv_bridge(msg: Image) -> np.ndarray:
    known = sorted((*PLAIN, *WIDE, 'bayer_*8', 'bayer_*16'))
    try:
        bridge = importlib.import_module('cv_bridge')
    except ImportError:
        raise ImageError('unknown encoding', f"image encoding '{msg.encoding}' needs cv_bridge, "
                         f'which is not installed; without it: {", ".join(known)}') from None
    try:
        return np.ascontiguousarray(bridge.CvBridge().imgmsg_to_cv2(msg, 'rgb8'))
    except (bridge.CvBridgeError, ValueError, TypeError, cv2.error) as error:
        raise ImageError('unknown encoding', f"image encoding '{msg.encoding}' can not be "
                         f'converted to rgb8: {error}') from error


def to_bytes(values: np.ndarray) -> array.array:
    """Array as the payload of a uint8[] field, without the element-wise copy of the setter."""
    out = array.array('B')
    out.frombytes(memoryview(np.ascontiguousarray(values)).cast('B'))
    return out


def image(header: Header, values: np.ndarray, encoding: str) -> Image:
    """An Image of a contiguous array (H, W[, C])."""
    values = np.ascontiguousarray(values)
    return Image(header=header, height=values.shape[0], width=values.shape[1], encoding=encoding,
                 is_bigendian=0, step=values.nbytes // values.shape[0],
                 data=to_bytes(values))


def jpeg(header: Header, bgr: np.ndarray, quality: int = 85) -> CompressedImage:
    """A CompressedImage of a BGR array."""
    ok, data = cv2.imencode('.jpg', bgr, [cv2.IMWRITE_JPEG_QUALITY, quality])
    if not ok:
        raise ValueError(f'overlay of {bgr.shape[1]}x{bgr.shape[0]} can not be written as jpeg')
    return CompressedImage(header=header, format='bgr8; jpeg compressed bgr8',
                           data=to_bytes(data))


FIELD_TYPES = {np.dtype('<f4'): PointField.FLOAT32, np.dtype('u1'): PointField.UINT8,
               np.dtype('<u2'): PointField.UINT16}


def cloud(header: Header, points: np.ndarray) -> PointCloud2:
    """A PointCloud2 of a structured array, one field per name, shape (N,) or (H, W)."""
    fields = []
    for name in points.dtype.names:
        kind, offset = points.dtype.fields[name][:2]
        base, shape = kind.subdtype or (kind, (1,))
        fields.append(PointField(name=name, offset=offset, datatype=FIELD_TYPES[base],
                                 count=int(np.prod(shape))))
    height, width = points.shape if points.ndim == 2 else (1, points.shape[0])
    step = points.dtype.itemsize
    return PointCloud2(header=header, height=height, width=width, fields=fields,
                       is_bigendian=False, point_step=step, row_step=step * width,
                       data=to_bytes(points.view(np.uint8)) if points.size else to_bytes(
                           np.empty(0, np.uint8)), is_dense=False)


def feature_cloud(header: Header, features: np.ndarray) -> PointCloud2:
    """Features (H, W, C) float32 as a cloud organised like the patch grid, one field."""
    height, width, channels = features.shape
    kind: Any = np.dtype([('feature', '<f4', (channels,))])
    flat = np.ascontiguousarray(features, '<f4').reshape(height, width * channels)
    return cloud(header, flat.view(kind).reshape(height, width))
