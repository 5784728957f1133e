# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test that what the node packs into clouds is what a planner reads from them."""

from __future__ import annotations

import array
import math
from dataclasses import asdict, replace

import numpy as np
import pytest

pytest.importorskip('rclpy')

from rclpy.serialization import deserialize_message, serialize_message
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Header

from vjepa_ros.perception.types import Assessment, LIMITS, Level, Quality, Region
from vjepa_ros.ros import read
from vjepa_ros.ros.common import message_conversion
from vjepa_ros.ros.common.message_conversion import (
    cloud,
    make_header,
    pack_assessment,
    pack_regions,
)
from vjepa_ros.ros.read import REGION

pytestmark = pytest.mark.ros

STAMP = 1_700_000_000_123_456_789
SEEN = Assessment(
    camera='front', stamp_ns=STAMP, frame_id='front_optical', motion_score=0.25,
    obstacle_score=0.5, collision_probability=0.75, time_to_contact=2.0, looming_rate=0.5,
    bearing=-0.125, elevation=0.0625, level=Level.WARNING,
    flags=Quality.UNTRAINED | Quality.DEVICE_FALLBACK | Quality.STALE, clip_span_s=1.75,
    clip_rate_hz=4.0, known_fraction=0.875, clearance=2.5, collision_if_ahead=0.875,
    approach_speed=1.5, collision_horizon=2.0, still_s=0.25)
REGIONS = (Region(10.0, 20.0, 30.0, 40.0, 0.5, -0.25, 2.0, 0.5, 'LEFT', 0.75, True),
           Region(0.0, 0.0, 640.0, 480.0, 0.0, 0.0, 0.5, 2.0, 'CENTER', 1.0, False),
           Region(500.5, 1.0, 2.0, 3.0, -0.5, 0.25, 4.0, 0.25, 'RIGHT', 0.5, True))


def over_the_wire(msg):
    """The message as a subscriber gets it."""
    return deserialize_message(serialize_message(msg), type(msg))


def sent(assessment: Assessment, latency_ms: float = 12.5) -> PointCloud2:
    header = make_header(assessment.stamp_ns, assessment.frame_id)
    return over_the_wire(cloud(header, pack_assessment(assessment, latency_ms)))


def test_an_assessment_arrives_as_it_was_sent():
    msg = sent(SEEN)
    got = read.assessment(msg, 'front')
    assert asdict(replace(got, timings={})) == asdict(replace(SEEN, timings={}, latency_ms=12.5))
    assert got.timings == {'latency': 12.5}
    assert read.stamp_ns(msg) == STAMP
    unknown = read.assessment(sent(replace(SEEN, time_to_contact=math.inf, clearance=math.nan)))
    assert unknown.time_to_contact == math.inf and math.isnan(unknown.clearance)


@pytest.mark.parametrize('name', sorted(LIMITS.keys() - {'latency_ms'}))
def test_a_number_that_cannot_be_is_refused_with_its_name_and_value(name):
    msg = sent(SEEN)
    row = np.frombuffer(msg.data, read.ASSESSMENT).copy()
    row[name] = -math.inf
    msg.data = array.array('B', row.tobytes())
    with pytest.raises(ValueError, match=f'{name} is -inf, must be '):
        read.assessment(msg)


def test_a_flag_of_a_newer_version_is_refused_with_the_remedy():
    newer = replace(SEEN, flags=Quality(1 << 15 | Quality.STALE))
    with pytest.raises(ValueError, match=r'bits 0x8000, .*same version'):
        read.assessment(sent(newer))


def test_regions_arrive_as_they_were_sent():
    msg = over_the_wire(cloud(Header(), pack_regions(REGIONS)))
    assert tuple(f.name for f in msg.fields) == REGION.names
    assert read.obstacles(msg) == list(REGIONS)


def test_features_and_maps_arrive_as_they_were_sent():
    features = np.random.default_rng(0).normal(size=(4, 6, 192)).astype(np.float32)
    msg = over_the_wire(message_conversion.feature_cloud(Header(), features))
    np.testing.assert_array_equal(read.features(msg), features)
    assert read.encoder(msg) == ''
    with pytest.raises(ValueError, match='4 x 6 places'):
        read.tubelets(msg)
    tall = np.concatenate((features.swapaxes(0, 1), features.swapaxes(0, 1)[:2]))[:8]   # 8 x 4
    msg = over_the_wire(message_conversion.feature_cloud(Header(), tall, 'ab' * 32))
    np.testing.assert_array_equal(read.tubelets(msg), tall.reshape(2, 4, 4, 192))
    assert read.encoder(msg) == 'ab' * 8
    values = np.array([[0.5, math.nan], [-1.0, 3.0], [0.0, 1.0]], np.float32)
    msg = message_conversion.image(Header(), np.pad(values, ((0, 0), (0, 2))), '32FC1')
    msg.width = 2                                    # rows may be padded
    np.testing.assert_array_equal(read.grid(over_the_wire(msg)), values)


def test_foreign_messages_are_refused_with_a_reason():
    with pytest.raises(ValueError, match='bgr8'):
        read.grid(message_conversion.image(Header(), np.zeros((2, 2, 3), np.uint8), 'bgr8'))
    regions = cloud(Header(), pack_regions(REGIONS))
    with pytest.raises(ValueError, match='motion_score'):
        read.assessment(regions)
    with pytest.raises(ValueError, match='on_course'):
        read.obstacles(sent(SEEN))

