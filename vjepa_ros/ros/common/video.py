# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Decode the packets of a video topic as they come, since each refers to those before it."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from std_msgs.msg import Header

from vjepa_ros.sources.base import SourceError
from vjepa_ros.sources.encodings import ImageError, MAX_PIXELS, check_size
from vjepa_ros.sources.video_packets import PacketDecoder, pixels_of

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

    def rgb(self, max_pixels: int = MAX_PIXELS) -> np.ndarray:
        """Return the pixels, see `pixels_of`; ImageError when there are too many."""
        check_size(self.frame.width, self.frame.height, max_pixels)
        return pixels_of(self.frame)


class VideoInput:
    """The stream of one camera."""

    def __init__(self) -> None:
        self._decoder: PacketDecoder | None = None
        self._format = ''

    def picture(self, msg: Any) -> VideoPicture:
        """Decode the next packet; with B frames it brings the picture of an earlier one."""
        name = getattr(msg, 'format', '') or getattr(msg, 'encoding', '')
        try:
            if self._decoder is None or name != self._format:
                self._decoder, self._format = None, name
                self._decoder = PacketDecoder(name)
            header = msg.header if hasattr(msg, 'header') else Header(
                stamp=msg.timestamp, frame_id=msg.frame_id)
            frame, header = self._decoder.picture(bytes(msg.data), header)
        except SourceError as error:
            raise ImageError('video', str(error)) from error
        return VideoPicture(header, frame)
