# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test the plain Python interface, with random weights and with those of the package."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from scenes import texture

from vjepa_ros import Level, ObstacleDetector, Quality
from vjepa_ros.model.checkpoint.load import WeightsError

pytestmark = pytest.mark.usefixtures('one_thread')
SMALL = {'img_size': 64, 'num_frames': 4, 'clip_fps': 10.0, 'device': 'cpu', 'weights': 'random'}
PICTURE = texture((320, 240))


@pytest.fixture
def detector():
    with ObstacleDetector(allow_random_weights=True, **SMALL) as made:
        yield made


def show(detector: ObstacleDetector, frames, rate: float = 10.0, start: float = 1.0):
    """Add frames; what is seen in the end."""
    for i, rgb in enumerate(frames):
        detector.add_frame(rgb, start + i / rate)
    return detector.assess()


def test_it_refuses_to_run_untrained_unless_told_to():
    with pytest.raises(WeightsError, match='allow_random_weights'):
        ObstacleDetector(**SMALL)


def test_nothing_is_said_before_the_frames_cover_a_clip(detector):
    features, score = detector.detect_obstacles()
    assert detector.assess() is features is detector.features() is None and math.isnan(score)
    assert detector.analyze_spatial_features(features) is None
    assert show(detector, [PICTURE] * 3) is None
    seen = show(detector, [PICTURE], start=1.3)
    assert seen.stamp_ns == round(1.3e9) and seen.untrained and seen.level is Level.UNKNOWN
    assert Quality.ASSUMED_INTRINSICS in seen.flags
    assert seen.motion_score < 0.05


def test_features_and_their_motion_map_fit_together(detector):
    show(detector, [PICTURE] * 2 + [texture((320, 240), 7)] * 2)
    features, score = detector.detect_obstacles()
    assert features.shape == (2, 4, 4, 192) and features.dtype == np.float32
    motion = detector.analyze_spatial_features(features)
    assert motion.shape == (4, 4) and 0 <= motion.min() <= motion.max() <= 1 and score > 0.5
    np.testing.assert_array_equal(detector.features(), features)
    layers = detector.features(layers=(3, 11), per='tubelet')
    assert layers.shape == (2, 2, 192)
    np.testing.assert_allclose(layers[1], features.mean((1, 2)), atol=1e-5)


@pytest.mark.parametrize('frame', [
    np.zeros((4, 4, 4), np.uint8), np.zeros((4, 4, 3), np.float32), np.zeros((0, 4, 3), np.uint8)])
def test_what_is_no_image_is_refused_with_its_shape(detector, frame):
    with pytest.raises(ValueError, match='frame is'):
        detector.add_frame(frame)


@pytest.mark.parametrize('stamp', [
    1_795_000_000_000_000_000, 10 ** 400, math.nan, -0.1, '1.0', True, np.float32(1_795_000_000)])
def test_a_stamp_that_is_no_time_in_seconds_is_refused(detector, stamp):
    with pytest.raises(ValueError, match=r'stamp is .*seconds'):
        detector.add_frame(PICTURE, stamp)
    assert not len(detector.track.ring)


def test_small_stamps_of_another_unit_are_told_by_their_distances(detector):
    with pytest.raises(ValueError, match=r'after the one before.*seconds.*divide ms by 1e3'):
        show(detector, [PICTURE] * 4, 0.01, 0.01)


def example(page: str) -> str:
    """The last block of Python of a page."""
    text = (Path(__file__).resolve().parents[1] / page).read_text(encoding='utf-8')
    return re.findall(r'```python\n(.*?)```', text, re.DOTALL)[-1]


def test_the_example_in_the_readme_runs():
    names = {'rgb': PICTURE, 'stamp': 1.0}
    exec(example('README.md'), names)
    with names['detector']:
        assert names['seen'] is None and math.isnan(names['motion_score'])     # one frame


def test_the_example_without_ros_stops_before_contact(capsys):
    names: dict = {}
    exec(example('docs/python.md'), names)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 90 and any(line.endswith('1.00 m/s  free ') for line in lines)
    assert names['frame'].truth['time_to_contact_s'] > 0
    assert names['decision'].state == 'stopped' and 'danger' in names['decision'].reason
