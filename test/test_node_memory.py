# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The memory of a perception node on a busy computer stays what it is.

It takes 30 minutes; VJEPA_MEMORY_MINUTES=5 makes it shorter.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

pytest.importorskip('rclpy')

import psutil
from ros_harness import ros_session

from vjepa_ros.ros.common.process import TUNING
from vjepa_ros.ros.perception_node.outputs import DRAWN, TOPICS

pytestmark = [pytest.mark.ros, pytest.mark.slow, pytest.mark.any_distro]

MINUTES = float(os.environ.get('VJEPA_MEMORY_MINUTES', '30'))
LOAD, SETTLE_S, LEAST_MB = 8, 120.0, 10
SHOWN = ('overlay', 'motion_map', 'moving_map', 'looming_map', 'features', 'assessment')


@pytest.mark.timeout(60 * MINUTES + 600)
def test_memory_does_not_grow_at_load_8_with_overlay_and_maps():
    # As the launch files set it for every node.
    with ros_session(TUNING) as ros, ExitStack() as stack:
        node = stack.enter_context(ros.spawn('vjepa_ros.ros.perception_node', {
            'autostart': True, 'camera.transport': 'raw'}))
        camera = stack.enter_context(ros.spawn('vjepa_ros.ros.sim.camera_source', {
            'source': 'synthetic', 'loop': True, 'rate': 15.0, 'width': 1280, 'height': 720}))
        counts = dict.fromkeys(SHOWN, 0)

        def count(name: str) -> None:
            counts[name] += 1

        for name in SHOWN:
            kind = DRAWN[name] if name in DRAWN else TOPICS[name][0]
            ros.node.create_subscription(kind, f'vjepa_node/camera/{name}',
                                         lambda msg, name=name: count(name), 1)
        assert ros.spin_until(lambda: all(counts.values()), 120.0), node.output
        for _ in range(LOAD):
            busy = subprocess.Popen([sys.executable, '-c', 'while True: pass'])
            stack.callback(busy.wait)
            stack.callback(busy.kill)
        used, began = [], time.monotonic()
        while time.monotonic() - began < 60 * MINUTES:
            ros.spin_until(lambda: False, 5.0)
            if time.monotonic() - began > SETTLE_S:
                used.append(psutil.Process(node.pid).memory_info().rss / 2**20)
        assert node.alive() and camera.alive()
        print(f'{used[0]:.0f} MB after {SETTLE_S:.0f} s, {used[-1]:.0f} MB after {MINUTES:g} '
              f'minutes, {max(used):.0f} at most; results: {counts}')
        assert min(counts.values()) > 20 * MINUTES
        assert used[-1] - used[0] < LEAST_MB and max(used) - used[0] < 2 * LEAST_MB
