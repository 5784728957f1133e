# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Record what the node publishes about one camera, for the demo and its report.

Parameters are ``folder`` (for overlay pictures, named by their stamp in ns), ``camera`` and
``node`` (names). Every other message becomes one line of JSON on standard output and in
``folder/records.jsonl``, of a ``kind``: ``ready`` (everything is subscribed), ``frames`` (counts
and stamps of camera_info), ``truth``, ``result`` (an assessment, with ``latency_ms`` to its
arrival here), ``state`` (node and camera on ``/diagnostics``).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CameraInfo, CompressedImage, PointCloud2

from vjepa_ros.ros import read
from vjepa_ros.ros.common.node import ResilientNode
from vjepa_ros.ros.common.process import run
from vjepa_ros.ros.sim.camera_source import TRUTH

SCORES = ('motion_score', 'obstacle_score', 'collision_probability', 'collision_if_ahead',
          'time_to_contact', 'looming_rate', 'bearing', 'elevation', 'known_fraction')
FRAMES_PERIOD_S = 0.25


class Recorder(ResilientNode, Node):
    """Subscribes to the outputs of one camera and writes them as they arrive, also to `out`."""

    def __init__(self, out: TextIO) -> None:
        super().__init__('recorder')
        defaults = {'folder': '.', 'camera': 'camera', 'node': 'vjepa_node'}
        names: dict[str, Any] = {name: self.declare_parameter(name, default).value
                                 for name, default in defaults.items()}
        self._folder = Path(names['folder'])
        self._pictures = self._folder / 'overlay'
        self._pictures.mkdir(parents=True, exist_ok=True)
        self._camera, self._node_name = names['camera'], names['node']
        self._file = (self._folder / 'records.jsonl').open('w', encoding='utf-8')
        self._out: TextIO | None = out
        self._frames, self._first_ns, self._last_ns, self._said = 0, 0, 0, 0
        # Deep queues: this subscriber must not miss anything.
        qos = QoSProfile(depth=100, reliability=ReliabilityPolicy.RELIABLE)
        outputs = f'{self._node_name}/{self._camera}'
        topics: list[tuple[Any, str, Any]] = [
            (CameraInfo, f'{self._camera}/camera_info', self._on_info),
            (PointCloud2, f'{self._camera}/truth', self._on_truth),
            (PointCloud2, f'{outputs}/assessment', self._on_assessment),
            (CompressedImage, f'{outputs}/overlay/compressed', self._on_overlay),
            (DiagnosticArray, '/diagnostics', self._on_diagnostics)]
        for kind, topic, callback in topics:
            self.create_subscription(kind, topic, callback, qos)
        self.create_timer(FRAMES_PERIOD_S, self._tell_frames)
        self.write('ready')

    def write(self, kind: str, **values: Any) -> None:
        line = json.dumps({'kind': kind, **values}) + '\n'
        self._file.write(line)
        if self._out is None:
            return
        try:
            self._out.write(line)
            self._out.flush()
        except BrokenPipeError:
            # The parent process is gone; the file stays. The descriptor is replaced because the
            # interpreter flushes it once more at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._out.fileno())
            self._out = None

    def destroy_node(self) -> None:
        self._tell_frames()
        self._file.close()
        super().destroy_node()

    def _on_info(self, msg: CameraInfo) -> None:
        self._frames += 1
        self._last_ns = read.stamp_ns(msg)
        self._first_ns = self._first_ns or self._last_ns

    def _tell_frames(self) -> None:
        if self._frames > self._said:
            self._said = self._frames
            self.write('frames', count=self._frames, first_ns=self._first_ns,
                       last_ns=self._last_ns)

    def _on_truth(self, msg: PointCloud2) -> None:
        truth = np.frombuffer(msg.data, TRUTH)[0]
        self.write('truth', stamp_ns=read.stamp_ns(msg), true_ttc=float(truth['ttc']),
                   true_looming=float(truth['looming_rate']))

    def _on_assessment(self, msg: PointCloud2) -> None:
        latency_ms = (self.get_clock().now().nanoseconds - read.stamp_ns(msg)) / 1e6
        a = read.assessment(msg)
        self.write('result', stamp_ns=a.stamp_ns, level=int(a.level), flags=int(a.flags),
                   latency_ms=latency_ms, node_latency_ms=a.timings['latency'],
                   **{name: getattr(a, name) for name in SCORES})

    def _on_overlay(self, msg: CompressedImage) -> None:
        path = self._pictures / f'{read.stamp_ns(msg):020d}.jpg'
        # A silent camera repeats the stamp of its newest frame.
        if path.exists():
            path = self._pictures / f'{self.get_clock().now().nanoseconds:020d}.jpg'
        path.write_bytes(memoryview(msg.data))

    def _on_diagnostics(self, msg: DiagnosticArray) -> None:
        parts = {f'{self._node_name}: model': 'model',
                 f'{self._node_name}: camera {self._camera}': 'camera'}
        state = {parts[status.name]: {**{pair.key: pair.value for pair in status.values},
                                      'message': status.message}
                 for status in msg.status if status.name in parts}
        if state:
            self.write('state', **state)


def main(args: list[str] | None = None) -> int:
    """Record until SIGINT or SIGTERM; exits 0."""
    return run('recorder', lambda: Recorder(sys.stdout), args)


if __name__ == '__main__':
    sys.exit(main())
