# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What is fuzzed: each target takes bytes, and only errors that were foreseen are no finding.

`SEEDS` has valid inputs, from which others are mutated; `test/fuzz/corpus/TARGET` has inputs that
once failed. Needs neither ROS nor a fuzzer.
"""

from __future__ import annotations

import math
import struct
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import torch
from recordings import video_packets
from safetensors.torch import save

from vjepa_ros.guard.guard import VelocityGuard
from vjepa_ros.guard.settings import GuardSettings
from vjepa_ros.guard.types import Motion, RangeReading, SourceReport
from vjepa_ros.model.checkpoint.files import WeightsError
from vjepa_ros.model.checkpoint.load import load_encoder
from vjepa_ros.perception.types import Level, Quality
from vjepa_ros.sources import SourceError, encodings, open_source
from vjepa_ros.sources.camera_info import lens
from vjepa_ros.sources.encodings import ImageError
from vjepa_ros.sources.video import PacketDecoder, pixels_of

MOST_PIXELS = 1 << 20


class Bytes:
    """Numbers and choices from bytes; zeros when they are used up."""

    def __init__(self, data: bytes) -> None:
        self.left = data

    def take(self, count: int) -> bytes:
        part, self.left = self.left[:count], self.left[count:]
        return part.ljust(count, b'\0')

    def whole(self, kind: str) -> Any:
        """A number of a kind of `struct`; 'd' gives any float64, NaN and infinities among them."""
        return struct.unpack(f'<{kind}', self.take(struct.calcsize(kind)))[0]

    def choice(self, values: Any) -> Any:
        return values[self.whole('B') % len(values)]


def image(data: bytes) -> None:
    """A raw image with any size, step and encoding."""
    given = Bytes(data)
    encoding = given.choice((*encodings.SUPPORTED, '32FC1', ''))
    width, height, step = given.whole('h'), given.whole('h'), given.whole('i')
    try:
        rgb = encodings.decode_raw(given.left, width, height, encoding, step,
                                   bool(given.whole('B') % 2), MOST_PIXELS)
    except ImageError:
        return
    assert rgb.shape == (height, width, 3) and rgb.dtype == np.uint8


def compressed(data: bytes) -> None:
    """A jpeg or png."""
    try:
        rgb = encodings.read_compressed(data, MOST_PIXELS)
    except ImageError:
        return
    assert rgb.ndim == 3 and rgb.shape[0] * rgb.shape[1] <= MOST_PIXELS


def video(data: bytes) -> None:
    """Packets of a video, each after its length."""
    given = Bytes(data)
    decoder = PacketDecoder(given.choice(('h264', 'hevc')))
    while given.left:
        try:
            rgb = pixels_of(decoder.picture(given.take(given.whole('H'))))
        except (SourceError, ImageError):
            continue
        assert rgb.ndim == 3


def camera_info(data: bytes) -> None:
    """A calibration with any numbers."""
    given = Bytes(data)
    info = SimpleNamespace(
        width=given.whole('I'), height=given.whole('I'), k=[given.whole('d') for _ in range(9)],
        d=[given.whole('d') for _ in range(given.whole('B') % 16)],
        p=[given.whole('d') for _ in range(12)], binning_x=given.whole('I'),
        binning_y=given.whole('I'), distortion_model=given.choice(('equidistant', 'plumb_bob')),
        roi=SimpleNamespace(**{name: given.whole('I') for name in (
            'x_offset', 'y_offset', 'width', 'height')}))
    try:
        found, _ = lens(info, (given.whole('H') + 1, given.whole('H') + 1),
                        given.choice(('', 'image_rect')))
    except ValueError:
        return
    assert all(map(math.isfinite, found)) and min(found[:2]) > 0


def checkpoint(data: bytes) -> None:
    """A file of weights, as safetensors or as a pickle of PyTorch."""
    for suffix in ('safetensors', 'pt'):
        with tempfile.TemporaryDirectory() as folder, suppress(WeightsError):
            path = Path(folder) / f'a.{suffix}'
            path.write_bytes(data)
            load_encoder('tiny', weights=path)


def labels(data: bytes) -> None:
    """The table of a recording folder."""
    _play({'frames/0.png': PNG, 'labels.csv': data})


def bag(data: bytes) -> None:
    """The description of a bag."""
    _play({'metadata.yaml': data, 'a_0.mcap': b'\x89MCAP0\r\n'})


def _play(files: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder, suppress(SourceError):
        for name, data in files.items():
            path = Path(folder) / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
        with open_source(folder) as source:
            for _, frame in zip(range(3), source, strict=False):
                assert frame.rgb.ndim == 3


def guard(data: bytes) -> None:
    """Commands, assessments, ranges and clocks in any order: never faster than asked, no NaN."""
    given = Bytes(data)
    judge = VelocityGuard(GuardSettings(), {'camera': 0.0}, {'sonar': 0.0})
    asked, now = Motion(0.0, 0.0, 0.0), 100.0
    for _ in range(min(200, len(data) // 9)):
        what, number = given.whole('B') % 7, given.whole('d')
        if what == 0:
            asked = Motion(number, 0.0, given.whole('b') / 10)
            judge.command(asked, now)
        elif what == 1:
            judge.observe(SourceReport('camera', now - abs(given.whole('b')) / 100, now,
                                       given.choice(tuple(Level)), number, number,
                                       Quality(given.whole('H') % 4096)))
        elif what == 2:
            judge.observe_range(RangeReading('sonar', number, now, now)) if number == number \
                else judge.sources['camera'].malformed('fuzz')
        elif what == 3:
            judge.observe_speed(Motion(number, 0.0, 0.0), now)
        elif what == 4:
            now = now + given.whole('b') / 50          # also backwards
        elif what == 5:
            judge.clock_jumped(now)
        else:
            judge.restart()
        motion = judge.decide(now).motion
        if motion is not None:
            assert motion.finite, motion
            assert not asked.finite or abs(motion.vx) <= abs(asked.vx) + 1e-9, (asked, motion)


def _encoded(kind: str) -> bytes:
    picture = np.random.default_rng(0).integers(0, 255, (24, 32, 3), np.uint8)
    return cv2.imencode(kind, cv2.blur(picture, (5, 5)))[1].tobytes()


def _video(codec: str) -> bytes:
    """Some packets for `video`."""
    picture = np.kron(np.random.default_rng(0).integers(0, 255, (9, 8, 3), np.uint8),
                      np.ones((8, 8, 1), np.uint8))
    packets = video_packets([picture[n:n + 64] for n in range(5)], codec, 3)
    return bytes([codec == 'hevc']) + b''.join(struct.pack('<H', len(p)) + p for p in packets)


PNG = _encoded('.png')
INFO = struct.pack('<II9dB5dIIII', 640, 480, 500, 0, 320, 0, 500, 240, 0, 0, 1, 5, .1, .01, 0, 0,
                   0, 0, 0, 0, 0)
BAG = b"""rosbag2_bagfile_information:
  version: 5
  storage_identifier: mcap
  relative_file_paths:
    - a_0.mcap
"""
TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target for target in (
        image, compressed, video, camera_info, checkpoint, labels, bag, guard)}
SEEDS: dict[str, list[bytes]] = {
    'image': [struct.pack('<Bhhi', kind, 8, 6, 8 * 6) + bytes(range(256)) * 2
              for kind in range(len(encodings.SUPPORTED))],
    'compressed': [PNG, _encoded('.jpg')],
    'video': [_video('h264'), _video('hevc')],
    'camera_info': [INFO, INFO[:8] + bytes(72)],
    'checkpoint': [save({'norm.weight': torch.ones(192), 'blocks.0.norm1.weight': torch.ones(2)},
                        {'vjepa_ros': '{"format": 1}'})],
    'labels': [b'frame,stamp_s,collision,time_to_contact_s\n0.png,0.0,0,inf\n0.png,0.5,1,2.5\n'],
    'bag': [BAG],
    'guard': [b''.join(struct.pack('<Bd', step % 7, value) + bytes([step])
                       for step, value in enumerate([1.0, 2.0, 0.5, math.nan, math.inf] * 9))],
}
