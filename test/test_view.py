# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What `vjepa-ros view` shows, from a video, from running nodes and from a bag."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from vjepa_ros import cli

NEEDS = pytest.mark.skipif(importlib.util.find_spec('rerun') is None,
                           reason="rerun-sdk is not installed (the extra 'view')")
CLOUD, IMAGE = 'sensor_msgs/msg/PointCloud2', 'sensor_msgs/msg/Image'
ARRAY = 'diagnostic_msgs/msg/DiagnosticArray'


def rows(path: Path) -> Counter[str]:
    """How often each entity of a saved recording was logged."""
    import rerun as rr  # pyright: ignore[reportMissingImports]

    found: Counter[str] = Counter()
    for chunk in rr.chunk.RrdReader(str(path)).stream().to_chunks():
        found[chunk.entity_path] += chunk.num_rows
    return found


@NEEDS
def test_a_video_is_assessed_and_saved(tmp_path):
    out = tmp_path / 'out.rrd'
    assert cli.main(['view', 'synthetic', '--rate', '5', '--clip-fps', '5', '--max-seconds', '2',
                     '--device', 'cpu', '--save', str(out)]) == 0
    found = rows(out)
    assert found['/cameras/camera/image'] == found['/cameras/camera/overlay'] >= 10
    for path in ('cameras/camera/image/looming', 'cameras/camera/image/regions', 'states/camera',
                 'cameras/camera/maps/motion_map', 'cameras/camera/maps/looming_map',
                 'plots/contact/camera', 'plots/timings/camera/encode'):
        assert found[f'/{path}'] > 0, path


def record(folder: Path) -> None:
    """Write a bag of a camera, an assessment a second, and a guard."""
    from diagnostic_msgs.msg import DiagnosticArray
    from rclpy.serialization import serialize_message
    from recordings import BagMaker
    from test_read import SEEN, STAMP, sent

    from vjepa_ros.ros.common.diagnostics import OK, status
    from vjepa_ros.ros.common.message_conversion import make_header

    with BagMaker(folder) as bag:
        topics = {name: bag.writer.add_connection(name, kind, typestore=bag.store)
                  for name, kind in (('/node/camera/assessment', CLOUD), ('/g/state', ARRAY))}
        for second in range(5):
            at = STAMP + second * 10**9
            bag.image('/camera/image_raw', at, np.full((48, 64, 3), 40 * second, np.uint8))
            for name, msg in (
                    ('/node/camera/assessment', sent(replace(SEEN, stamp_ns=at))),
                    ('/g/state', DiagnosticArray(header=make_header(at, ''), status=[
                        status('g: guard', OK, 'free', {'action': 'free'})]))):
                bag.writer.write(topics[name], at, serialize_message(msg))


@NEEDS
@pytest.mark.ros
def test_a_bag_is_shown_as_it_was_recorded(tmp_path):
    pytest.importorskip('rclpy')
    record(tmp_path / 'bag')
    out = tmp_path / 'out.rrd'
    assert cli.main(['view', str(tmp_path / 'bag'), '--save', str(out)]) == 0
    found = rows(out)
    assert found['/cameras/camera/image'] == found['/plots/contact/camera'] == 5
    assert found['/states/camera'] == found['/states/g'] == 2       # with their colours


@NEEDS
@pytest.mark.ros
def test_running_nodes_are_shown_with_the_pictures_of_a_remapped_camera(tmp_path, monkeypatch):
    pytest.importorskip('rclpy')
    from guard_rig import GUARD, QUICK
    from node_fixtures import Camera, NODE, SMALL
    from ros_harness import ros_session
    from scenes import texture

    out, still = tmp_path / 'out.rrd', texture((160, 120))
    with ros_session() as ros, ros.compose(
            NODE, {**SMALL, 'autostart': True}, {'camera/image_raw': '/robot/color'}), \
            ros.compose(GUARD, QUICK), \
            Camera(ros, '/robot/color', picture=lambda i: np.roll(still, i, 1), rate=10.0):
        monkeypatch.setenv('ROS_DOMAIN_ID', str(ros.domain_id))
        assert cli.main(['view', '--save', str(out), '--max-seconds', '12']) == 0
    found = rows(out)
    for path in ('cameras/camera/image', 'cameras/camera/overlay', 'cameras/camera/image/looming',
                 'cameras/camera/maps/looming_map', 'states/camera', 'states/collision_guard',
                 'states/vjepa_node', 'plots/timings/camera/encode',
                 'plots/scores/camera/motion_score'):
        assert found[f'/{path}'] > 0, path


# The last one, because the viewer imports Rerun once.
def test_without_rerun_the_remedy_is_one_line(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, 'rerun', None)
    assert cli.main(['view', 'synthetic']) == 1
    assert re.fullmatch(r'.*pip install rerun-sdk.*\n', capsys.readouterr().out)
