# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""A row of `vjepa-ros score` is what the live node says of the same bag over DDS."""

from __future__ import annotations

import json

import pytest

pytest.importorskip('rclpy')
pytest.importorskip('pyarrow')

from node_fixtures import Publisher, SMALL, exact, node_running, now_ns
from recordings import S, write_drive
from ros_harness import ros_session
from scenes import synthetic
from sensor_msgs.msg import CameraInfo, Image

from vjepa_ros.fleet import run as fleet
from vjepa_ros.fleet.results import NUMBERS, ROWS, read_rows
from vjepa_ros.fleet.scoring import Scorer, read_config
from vjepa_ros.model.variants import IMAGE_SIZE, NUM_FRAMES
from vjepa_ros.ros import read
from vjepa_ros.sources.bag import Bag

pytestmark = [pytest.mark.ros, pytest.mark.any_distro]


def test_a_row_equals_what_the_node_says_of_the_same_bag(tmp_path):
    frames = synthetic(size=(160, 120), start_s=4.2, count=44)
    # Ages are of the clock of the node, so the bag is of this moment.
    bag = write_drive(tmp_path / 'bag', frames, shift_ns=now_ns() // S * S - frames[0].stamp_ns)
    settings = SMALL | {'max_frame_age': 3600.0, 'weights': '', 'num_frames': NUM_FRAMES,
                        'image_size': IMAGE_SIZE}       # a slow machine scores for minutes
    words = [f'{name}:={json.dumps(value)}' for name, value in settings.items()]
    run = fleet.Run(read_config(None, words), tmp_path / 'out')
    fleet.plan(run, [bag], (), 300.0)
    scorer = Scorer(run.config, run.folder / ROWS)
    fleet.score(run, lambda chunks, done: [done(c, scorer.score(c), '') for c in chunks],
                lambda text: None)
    rows = read_rows([run.file(chunk) for chunk in run.chunks]).to_pylist()

    with ros_session() as ros, node_running(ros, cameras=['eye'], **settings,
                                            **exact('eye/image_raw')) as node:
        node.do('configure', 'activate')
        with node.listen('assessment', 'eye') as got, node.listen('obstacles', 'eye') as regions, \
                Publisher(ros, 'eye/image_raw', frame_id='eye') as images, \
                Publisher(ros, 'eye/camera_info', CameraInfo, frame_id='eye') as infos:
            node.wait_until_heard('eye')
            with Bag(bag) as recorded:
                for topic, message in recorded.read(recorded.types):
                    stamp_ns = message.header.stamp.sec * S + message.header.stamp.nanosec
                    if topic.endswith('camera_info'):
                        infos.send(_info(message), stamp_ns)
                    elif any(row['stamp_ns'] == stamp_ns for row in rows):
                        images.step(_image(message), stamp_ns, got, regions)
                    else:
                        images.send(_image(message), stamp_ns)
        said = {read.stamp_ns(msg): read.assessment(msg, 'eye') for msg in got}
        boxes = {read.stamp_ns(msg): read.obstacles(msg) for msg in regions}
    assert list(said) == [row['stamp_ns'] for row in rows] and len(rows) > 30
    assert {row['level'] for row in rows} >= {0, 2}
    for row in rows:
        seen = said[row['stamp_ns']]
        assert (row['camera'], row['frame_id']) == (seen.camera, seen.frame_id)
        assert (row['level'], row['flags']) == (seen.level, seen.flags)
        for name in set(NUMBERS) - {'latency_ms'}:
            assert row[name] == pytest.approx(getattr(seen, name), rel=1e-4, abs=1e-5,
                                              nan_ok=True), name
        assert [(r['x'], r['side'], r['on_course']) for r in row['regions']] == [
            (r.x, r.side, r.on_course) for r in boxes[row['stamp_ns']]]


def _image(message) -> Image:
    return Image(height=message.height, width=message.width, encoding=message.encoding,
                 step=message.step, data=message.data.tobytes())


def _info(message) -> CameraInfo:
    return CameraInfo(height=message.height, width=message.width, k=message.k,
                      distortion_model=message.distortion_model, d=message.d.tolist())
