# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test the plain Python interface."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from scenes import Approach, texture

from vjepa_ros import Assessment, Level, ObstacleDetector, Quality
from vjepa_ros.model.checkpoint.load import WeightsError

SMALL = {'img_size': 64, 'num_frames': 4, 'clip_fps': 10.0, 'device': 'cpu', 'weights': 'random'}


@pytest.fixture(scope='module')
def picture():
    return texture((320, 240))


@pytest.fixture
def detector():
    with ObstacleDetector(allow_random_weights=True, **SMALL) as made:
        yield made


def show(detector: ObstacleDetector, frames, rate: float = 10.0, start: float = 1.0) -> None:
    for i, rgb in enumerate(frames):
        detector.add_frame(rgb, start + i / rate)


def test_it_refuses_to_run_untrained_unless_told_to():
    with pytest.raises(WeightsError, match='allow_random_weights'):
        ObstacleDetector(**SMALL)


def test_nothing_is_said_before_the_frames_cover_a_clip(detector, picture):
    assert detector.assess() is None
    features, score = detector.detect_obstacles()
    assert features is None
    assert math.isnan(score)
    assert detector.analyze_spatial_features(features) is None
    show(detector, [picture] * 3)
    assert detector.assess() is None


def test_frames_in_assessments_out(detector, picture):
    show(detector, [picture] * 4)
    seen = detector.assess()
    assert isinstance(seen, Assessment)
    assert seen.stamp_ns == round(1.3e9)
    assert seen.untrained
    assert Quality.ASSUMED_INTRINSICS in seen.flags
    assert seen.level is Level.CLEAR
    assert seen.motion_score < 0.05


def test_features_and_their_motion_map_fit_together(detector, picture):
    show(detector, [picture] * 2 + [texture((320, 240), 7)] * 2)
    features, score = detector.detect_obstacles()
    assert features.shape == (2, 4, 4, 192)
    assert features.dtype == np.float32
    motion = detector.analyze_spatial_features(features)
    assert motion.shape == (4, 4)
    assert motion.min() >= 0
    assert motion.max() <= 1
    assert score > 0.5


def test_changed_settings_hold_from_the_next_result(detector):
    scene = Approach((320, 240), contact_s=9.0)
    for i in range(40):
        detector.add_frame(scene.frame(i / 30), 50 + i / 30)
        before = detector.assess()
    assert before.level is Level.CLEAR
    detector.update_settings(danger_ttc=20.0, warning_ttc=25.0, caution_ttc=30.0)
    detector.add_frame(scene.frame(41 / 30), 50 + 41 / 30)
    assert detector.assess().level is Level.DANGER


def test_frames_without_stamps_are_spaced_by_the_frame_rate(picture):
    with ObstacleDetector(allow_random_weights=True, frame_rate=10.0, **SMALL) as made:
        for _ in range(4):
            made.add_frame(picture)
        assert made.assess().clip_rate_hz == pytest.approx(10.0)


def test_a_stamp_of_zero_is_the_first_moment_of_a_file(detector, picture):
    show(detector, [picture] * 4, start=0.0)
    assert detector.assess() is not None
    assert detector.track.ring.counts['zero_stamp'] == 0


def test_a_frame_may_be_reused_by_the_caller(detector, picture):
    buffer = picture.copy()
    for i in range(4):
        detector.add_frame(buffer, 1 + i / 10)
    features = detector.detect_obstacles()[0]
    with ObstacleDetector(allow_random_weights=True, **SMALL) as other:
        for i in range(4):
            buffer[...] = picture
            other.add_frame(buffer, 1 + i / 10)
            buffer[...] = 0
        np.testing.assert_array_equal(features, other.detect_obstacles()[0])
        np.testing.assert_array_equal(other.result().image, picture)


def test_features_of_any_depth_of_the_newest_clip(detector, picture):
    assert detector.features() is None
    show(detector, [picture] * 4)
    last, _ = detector.detect_obstacles()
    np.testing.assert_array_equal(detector.features(), last)
    layers = detector.features(layers=(3, 11), per='tubelet')
    assert layers.shape == (2, 2, 192)
    np.testing.assert_allclose(layers[1], last.mean((1, 2)), atol=1e-5)


@pytest.mark.parametrize('frame', [
    np.zeros((4, 4, 4), np.uint8), np.zeros((4, 4, 3), np.float32), np.zeros((0, 4, 3), np.uint8),
    np.zeros(5, np.uint8)])
def test_what_is_no_image_is_refused_with_its_shape(detector, frame):
    with pytest.raises(ValueError, match='frame is'):
        detector.add_frame(frame)


@pytest.mark.parametrize(('arguments', 'named'), [
    ({'num_frames': 5}, 'num_frames'), ({'img_size': 100}, 'image_size'),
    ({'clip_fps': 0.0}, 'clip_fps'), ({'resize_mode': 'zoom'}, 'zoom'),
    ({'model_size': 'enormous'}, 'enormous'), ({'device': 'cuda:99', 'require_device': True},
                                               'cuda')])
def test_illegal_arguments_are_refused_by_name_at_once(arguments, named):
    with pytest.raises((ValueError, RuntimeError), match=named):
        ObstacleDetector(allow_random_weights=True, **{**SMALL, **arguments})


def test_other_frames_with_the_stamps_of_before_are_assessed_anew(detector, picture):
    show(detector, [picture] * 4)
    first = detector.result()
    show(detector, [texture((320, 240), seed) for seed in (5, 6, 7, 8)])   # a bag that loops
    second = detector.result()
    assert second is not first
    assert second.assessment.stamp_ns == first.assessment.stamp_ns
    assert second.assessment.motion_score > 0.5 > first.assessment.motion_score


def test_heads_that_are_not_finite_are_not_believed(picture, caplog, monkeypatch):
    detector = ObstacleDetector(clip_fps=10.0)
    real = detector.engine.submit

    class Broken:
        def __init__(self, pending):
            self.pending, self.timings = pending, pending.timings

        def early(self):
            outputs = self.pending.early()
            for output in outputs:
                output.heads.course[:] = -np.nan
            return outputs

    monkeypatch.setattr(detector.engine, 'submit', lambda *a, **k: Broken(real(*a, **k)))
    show(detector, [picture] * 8)
    seen = detector.result()
    assert seen.method == 'geometric'
    assert Quality.HEADS_OUT_OF_RANGE in seen.assessment.flags
    assert 'not finite' in caplog.text


@pytest.mark.parametrize('document', ['README.md', 'docs/get-started.md'])
def test_the_example_in_the_documents_runs(document, picture):
    text = (Path(__file__).resolve().parents[1] / document).read_text(encoding='utf-8')
    example, = re.findall(r'```python\n(.*?)```', text, re.DOTALL)
    names = {'rgb': np.ascontiguousarray(picture), 'stamp': 1.0}
    exec(example, names)
    with names['detector']:
        assert names['seen'] is None      # one frame is no clip
        assert math.isnan(names['motion_score'])
