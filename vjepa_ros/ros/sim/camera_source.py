# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Publish the frames of any source as a ROS camera: images, camera_info and truth.

The executable ``camera_source`` publishes ``NAME/image_raw``, ``NAME/image_raw/compressed``,
``NAME/camera_info`` (k is zero when the source is not calibrated) and ``NAME/truth`` (one point of
`TRUTH`, NaN unknown), all with the same header per frame. It exits 1 when the source cannot be
opened or read.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import cv2
import numpy as np
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.time import Time
from sensor_msgs.msg import CameraInfo, CompressedImage, Image, PointCloud2
from std_msgs.msg import Header

from vjepa_ros.clip.optics import Distortion
from vjepa_ros.ros.common.declared_parameters import read_once
from vjepa_ros.ros.common.message_conversion import cloud, image, jpeg, to_bytes
from vjepa_ros.ros.common.node import ResilientNode
from vjepa_ros.ros.common.process import LARGE_IMAGES, run
from vjepa_ros.ros.sim.parameters import SOURCE
from vjepa_ros.sources import Source, SourceError, SourceFrame, SourceLost, open_source
from vjepa_ros.sources.base import Intrinsics, Pacer

JPEG_QUALITY = 90         # of the compressed topic
RETRY_S = 1.0             # between two attempts to open a lost camera again
SETTLE_S = 0.5            # from the first subscriber on, for its other endpoints
CLOCK_JUMP_NS = 200_000_000
# ttc [s, inf = not approaching], looming_rate [1/s], distance [m], speed [m/s], yaw_rate [rad/s,
# positive to the right], collision [0 or 1], clearance [m, to the nearest thing in the robot's
# way; inf = free], by the names that sources have for them.
TRUTH_NAMES = {'ttc': 'time_to_contact_s', 'looming_rate': 'looming_rate',
               'distance': 'distance_m', 'speed': 'speed', 'yaw_rate': 'yaw_rate',
               'collision': 'collision', 'clearance': 'clearance_m'}
TRUTH = np.dtype([(name, '<f4') for name in TRUTH_NAMES])


def _compressed(frame: SourceFrame, header: Header) -> CompressedImage:
    """Return a frame as it was stored, where that was a picture, else as JPEG."""
    if frame.encoded is None:
        return jpeg(header, cv2.cvtColor(frame.rgb, cv2.COLOR_RGB2BGR), JPEG_QUALITY)
    data = np.frombuffer(frame.encoded, np.uint8)
    return CompressedImage(header=header, format=frame.encoding, data=to_bytes(data))


def camera_info(header: Header, rgb: np.ndarray, intrinsics: Intrinsics | None,
                distortion: Distortion | None = None) -> CameraInfo:
    """Make a CameraInfo; k is zero without intrinsics."""
    info = CameraInfo(header=header, height=rgb.shape[0], width=rgb.shape[1],
                      distortion_model='plumb_bob', d=[0.0] * 5)
    if distortion is not None:
        info.distortion_model, info.d = distortion.model, list(distortion.coefficients)
    if intrinsics is not None:
        fx, fy, cx, cy = intrinsics
        info.k = [fx, 0.0, cx, 0.0, fy, cy, 0.0, 0.0, 1.0]
        info.r = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
        info.p = [fx, 0.0, cx, 0.0, 0.0, fy, cy, 0.0, 0.0, 0.0, 1.0, 0.0]
    return info


def truth_record(truth: dict[str, Any] | None) -> np.ndarray:
    """Return one `TRUTH` record, shape (1,)."""
    values = [(truth or {}).get(name) for name in TRUTH_NAMES.values()]
    return np.array([tuple(math.nan if value is None else value for value in values)], TRUTH)


class CameraSource(ResilientNode, Node):
    """Plays one source on its own thread, so that services stay responsive."""

    def __init__(self, **node_options: Any) -> None:
        super().__init__('camera_source', **node_options)
        self.finished = threading.Event()     # playing has ended
        self.failed = True   # until the player ends normally
        self._source: Source | None = None
        self._stop = threading.Event()
        self._published = self._skipped = 0
        self._anchor: tuple[int, int] | None = None   # steady and ROS time of one frame
        self._thread = threading.Thread(target=self._run, name='player', daemon=True)
        self._config = config = read_once(self, SOURCE)
        # Small messages first: the truth arrives before its image. Only topics with subscribers
        # are computed.
        kinds: dict[str, tuple[type, bool]] = {
            'truth': (PointCloud2, config.truth), 'camera_info': (CameraInfo, True),
            'image_raw': (Image, config.transport != 'compressed'),
            'image_raw/compressed': (CompressedImage, config.transport != 'raw')}
        # Reliable: it serves best-effort subscribers, too.
        self._outputs = {topic: self.create_publisher(kind, f'{config.camera}/{topic}', 2)
                         for topic, (kind, wanted) in kinds.items() if wanted}

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 1.5) -> bool:
        """Stop playing; return False when a camera hangs in its driver."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def done(self) -> bool:
        return self.finished.is_set()

    @property
    def exit_code(self) -> int:
        return int(self.failed)

    def destroy_node(self) -> None:
        self.ended = self.stop()
        super().destroy_node()

    # -- playing --------------------------------------------------------------------------------

    def _run(self) -> None:
        config, say = self._config, self.get_logger().info
        try:
            self._source = source = open_source(config.source, config.play)
            rate = f'{source.rate_hz:.4g} Hz' if source.rate_hz > 0 else 'its own rate'
            topics = ' '.join(publisher.topic_name for publisher in self._outputs.values())
            say(f'playing {source.name}, {source.size[0]}x{source.size[1]} at {rate}'
                f'{", looping" if config.loop else ""}, to {topics}')
            if self._wait():
                self._play(source)
            stopped = ' (stopped)' if self._stop.is_set() else ''
            again = '' if config.loop or stopped else '; set loop:=true to repeat'
            say(f'end of source{stopped}: {self._published} frames played, {self._skipped} '
                f'skipped{again}')
            if not stopped:      # reliable subscribers get everything
                for publisher in self._outputs.values():
                    publisher.wait_for_all_acked(Duration(seconds=1.0))
            self.failed = False
        except SourceError as error:
            self.get_logger().fatal(str(error))
        finally:
            if self._source is not None:
                self._source.close()
            self.finished.set()

    def _play(self, source: Source) -> None:
        """Play to the end; a camera that is lost is opened again."""
        while not self._stop.is_set():
            try:
                self._pass(source)
                return
            except SourceLost as error:
                self.get_logger().warning(f'{error}; trying again every {RETRY_S:g} s')
                source.close()
            while not self._stop.wait(RETRY_S):
                with suppress(SourceError):      # already reported
                    self._source = source = open_source(self._config.source, self._config.play)
                    self.get_logger().info(f'{source.name} is back')
                    break

    def _pass(self, source: Source) -> None:
        pacer = Pacer()
        begin = source.skipped
        for frame in source:
            now = time.monotonic_ns()
            due = now if source.live else pacer.due_ns(frame.stamp_ns, now)
            if self._stop.wait(max(0.0, (due - now) / 1e9)):
                return
            self._publish(frame, self._header(frame, due, source.live), source)
            self._published += 1
            if not source.live:
                # Overdue frames are left out before they are decoded or rendered.
                source.skip_before(pacer.overdue_before(time.monotonic_ns()))
            if source.skipped > begin and not self._skipped:
                self.get_logger().warning(
                    f'frames are skipped to play in real time: this machine is too slow for '
                    f'{source.name} at {source.rate_hz:.4g} Hz; lower the rate or the size')
            self._skipped = source.skipped - begin

    def _publish(self, frame: SourceFrame, header: Header, source: Source) -> None:
        make: dict[str, Callable[[], Any]] = {
            'truth': lambda: cloud(header, truth_record(frame.truth)),
            'camera_info': lambda: camera_info(header, frame.rgb, source.intrinsics,
                                               source.distortion),
            'image_raw': lambda: image(header, frame.rgb, 'rgb8'),
            'image_raw/compressed': lambda: _compressed(frame, header)}
        for topic, publisher in self._outputs.items():
            if publisher.get_subscription_count():
                publisher.publish(make[topic]())

    def _wait(self) -> bool:
        """Wait for a subscriber if asked to; return False when stopped meanwhile."""
        if not self._config.wait_for_subscribers:
            return not self._stop.is_set()
        while not any(publisher.get_subscription_count() for topic, publisher
                      in self._outputs.items() if topic.startswith('image_raw')):
            if self._stop.wait(0.05):
                return False
        return not self._stop.wait(SETTLE_S)

    def _header(self, frame: SourceFrame, due_ns: int, live: bool) -> Header:
        stamp_ns = frame.stamp_ns
        if self._config.stamp == 'now' and not live:
            # The time at which it was due rather than now: exact spacing without jitter.
            steady, ros = time.monotonic_ns(), self.get_clock().now().nanoseconds
            if self._anchor is None:
                self._anchor = due_ns, ros - (steady - due_ns)
            elif abs(ros - self._anchor[1] - (steady - self._anchor[0])) > CLOCK_JUMP_NS:
                self.get_logger().warning('the clock was set: stamps follow it')
                self._anchor = due_ns, ros - (steady - due_ns)
            # Simulated time is zero until /clock arrives, and stamps cannot be negative.
            stamp_ns = max(0, self._anchor[1] + due_ns - self._anchor[0])
        return Header(stamp=Time(nanoseconds=stamp_ns).to_msg(),
                      frame_id=frame.frame_id)


def main(args: list[str] | None = None) -> int:
    """Run until the source ends or a signal comes; the exit code of the process."""
    # With the default settings of Fast DDS nearly all raw images are lost on the way to
    # best-effort subscribers; only publishers need others.
    os.environ.setdefault('FASTDDS_BUILTIN_TRANSPORTS', LARGE_IMAGES)
    # One core, so that the perception node has the others; PyTorch reads the variable.
    os.environ.setdefault('OMP_NUM_THREADS', '1')
    cv2.setNumThreads(1)

    def started() -> CameraSource:
        node = CameraSource()
        node.start()
        return node

    return run('camera_source', started, args)


if __name__ == '__main__':
    sys.exit(main())
