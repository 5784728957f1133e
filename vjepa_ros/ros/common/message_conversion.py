# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Turn image messages into RGB arrays, and results into messages."""

from __future__ import annotations

import array
import importlib
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import cv2
import numpy as np
from builtin_interfaces.msg import Time
from sensor_msgs.msg import CompressedImage, Image, PointCloud2, PointField
from std_msgs.msg import Header

from vjepa_ros.perception.looming_cells import LoomingCells
from vjepa_ros.perception.types import Assessment, Region
from vjepa_ros.ros.read import ASSESSMENT, CELL, ENCODER, ENCODER_DIGITS, NUMBERS, REGION, SIDES
from vjepa_ros.sources import encodings
from vjepa_ros.sources.base import SourceError
from vjepa_ros.sources.encodings import ImageError
from vjepa_ros.sources.video import PacketDecoder, pixels_of

# Some drivers send H.264 as CompressedImage.
TYPES = ('ffmpeg_image_transport_msgs/msg/FFMPEGPacket', 'foxglove_msgs/msg/CompressedVideo',
         'sensor_msgs/msg/CompressedImage')


def video_type(name: str) -> type:
    """Return the class of a type in `TYPES`."""
    package = name.partition('/')[0]
    if name not in TYPES:
        raise ImageError('video type', f'{name} is no video; can be read: {", ".join(TYPES)}')
    try:
        return getattr(importlib.import_module(f'{package}.msg'), name.rpartition('/')[2])
    except ImportError as error:
        raise ImageError('video type', f'{name} is not installed ({error}): install '
                         f'ros-$ROS_DISTRO-{package.replace("_", "-")}') from error


@dataclass
class VideoPicture:
    """A decoded picture; it is a message as far as its header goes."""

    header: Header  # of the message that brought its packet
    frame: Any  # av.VideoFrame, in the colours of the video

    @property
    def nbytes(self) -> int:
        """Memory that it holds, about [bytes]."""
        return 3 * self.frame.width * self.frame.height // 2


class VideoInput:
    """The stream of one camera."""

    def __init__(self) -> None:
        self._decoder: PacketDecoder | None = None
        self._format = ''

    def picture(self, msg: Any) -> VideoPicture:
        """Decode the next packet."""
        name = getattr(msg, 'format', '') or getattr(msg, 'encoding', '')
        try:
            if self._decoder is None or name != self._format:
                self._decoder, self._format = None, name
                self._decoder = PacketDecoder(name)
            frame = self._decoder.picture(bytes(msg.data))
        except SourceError as error:
            raise ImageError('video', str(error)) from error
        return VideoPicture(msg.header if hasattr(msg, 'header') else Header(
            stamp=msg.timestamp, frame_id=msg.frame_id), frame)


def make_header(stamp_ns: int, frame_id: str) -> Header:
    """Make a header with exactly this stamp [ns]."""
    sec, nanosec = divmod(stamp_ns, 1_000_000_000)
    return Header(stamp=Time(sec=sec, nanosec=nanosec), frame_id=frame_id)


def read(msg: Image | CompressedImage | VideoPicture, max_pixels: int = encodings.MAX_PIXELS
         ) -> np.ndarray:
    """Decode an image message to RGB (H, W, 3) uint8 or uint16; rgb8 is a view of the message."""
    try:
        pixels = _read(msg, max_pixels)
        encodings.check_aspect(pixels.shape[1], pixels.shape[0])
        return pixels
    except ImageError as error:
        if error.kind != 'too large':
            raise
        raise ImageError(error.kind, f'{error}; send a smaller one, or raise the parameter '
                         "'max_image_pixels'") from error
    except cv2.error as error:
        raise ImageError('corrupt', f'image can not be decoded: {error}'.strip()) from error


def _read(msg: Image | CompressedImage | VideoPicture, max_pixels: int) -> np.ndarray:
    if isinstance(msg, VideoPicture):
        encodings.check_size(msg.frame.width, msg.frame.height, max_pixels)
        return pixels_of(msg.frame)
    if isinstance(msg, CompressedImage):
        data = np.frombuffer(msg.data, np.uint8)
        return encodings.read_compressed_image(msg.format, data, max_pixels)[0]
    return encodings.read_raw(np.frombuffer(msg.data, np.uint8), msg.width, msg.height,
                              msg.encoding, msg.step, bool(msg.is_bigendian), max_pixels)


def to_bytes(values: np.ndarray) -> array.array:
    """Return the payload of a uint8[] field, without the element-wise copy of the setter."""
    out = array.array('B')
    out.frombytes(np.ascontiguousarray(values).data.cast('B'))
    return out


def image(header: Header, values: np.ndarray, encoding: str) -> Image:
    """Make an Image of an array (H, W[, C])."""
    values = np.ascontiguousarray(values)
    return Image(header=header, height=values.shape[0], width=values.shape[1], encoding=encoding,
                 is_bigendian=0, step=values.nbytes // values.shape[0],
                 data=to_bytes(values))


def jpeg(header: Header, bgr: np.ndarray, quality: int = 85) -> CompressedImage:
    """Make a CompressedImage of a BGR array."""
    ok, data = cv2.imencode('.jpg', bgr, [cv2.IMWRITE_JPEG_QUALITY, quality])
    if not ok:
        raise ValueError(f'overlay of {bgr.shape[1]}x{bgr.shape[0]} can not be written as jpeg')
    return CompressedImage(header=header, format='bgr8; jpeg compressed bgr8',
                           data=to_bytes(data))


FIELD_TYPES = {np.dtype('<f4'): PointField.FLOAT32, np.dtype('u1'): PointField.UINT8,
               np.dtype('<u2'): PointField.UINT16}


def cloud(header: Header, points: np.ndarray) -> PointCloud2:
    """Make a PointCloud2 of a structured array (N,) or (H, W), one field per name."""
    height, width = points.shape if points.ndim == 2 else (1, points.shape[0])
    step = points.dtype.itemsize
    data = to_bytes(points.view(np.uint8) if points.size else np.empty(0, np.uint8))
    return PointCloud2(header=header, height=height, width=width, fields=_fields(points.dtype),
                       is_bigendian=False, point_step=step, row_step=step * width, data=data,
                       is_dense=False)


@lru_cache(32)
def _fields(kind: np.dtype) -> list[PointField]:
    """Return the fields of a structured type; all messages share them."""
    made = []
    for name, (part, offset, *_) in dict(kind.fields or {}).items():
        base, shape = part.subdtype or (part, (1,))
        made.append(PointField(name=name, offset=offset, datatype=FIELD_TYPES[base],
                               count=int(np.prod(shape))))
    return made


def feature_cloud(header: Header, features: np.ndarray, encoder: str = '') -> PointCloud2:
    """Make a cloud (H, W, C) float32; a second field has the hash of the encoder as its name."""
    height, width, channels = features.shape
    names, formats = ['feature'], [('<f4', (channels,))]
    if encoder:
        names, formats = [*names, ENCODER + encoder[:ENCODER_DIGITS]], [*formats, 'u1']
    kind: Any = np.dtype({'names': names, 'formats': formats, 'offsets': [0] * len(names),
                          'itemsize': 4 * channels})
    flat = np.ascontiguousarray(features, '<f4').reshape(height, width * channels)
    return cloud(header, flat.view(kind).reshape(height, width))


def pack_assessment(assessment: Assessment, latency_ms: float) -> np.ndarray:
    """Pack one `ASSESSMENT` record, shape (1,)."""
    row = np.empty(1, ASSESSMENT)
    for name, attribute in NUMBERS.items():
        row[name] = getattr(assessment, attribute)
    row['latency_ms'], row['level'], row['flags'] = latency_ms, assessment.level, assessment.flags
    row['regions'] = min(255, len(assessment.regions))
    return row


def pack_regions(regions: tuple[Region, ...]) -> np.ndarray:
    """Pack `REGION` records, shape (N,)."""
    return np.array([(r.x, r.y, r.width, r.height, r.bearing, r.elevation, r.time_to_contact,
                      r.looming_rate, r.confidence, SIDES.index(r.side), r.on_course, 0)
                     for r in regions], REGION)


def pack_cells(cells: LoomingCells) -> np.ndarray:
    """Pack `CELL` records, shape (N,)."""
    rows = np.empty(len(cells), CELL)
    for field in fields(LoomingCells):
        rows[field.name] = getattr(cells, field.name)
    return rows
