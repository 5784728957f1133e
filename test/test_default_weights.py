# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What runs when nothing is set: the weights of the package, with heads that hold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scenes import synthetic

from vjepa_ros import Level, ObstacleDetector, Quality
from vjepa_ros.cli import main as cli
from vjepa_ros.model.checkpoint.files import WEIGHTS_FOLDER
from vjepa_ros.perception.settings import TrackConfig
from vjepa_ros.runtime.engine import EngineConfig

pytestmark = pytest.mark.usefixtures('one_thread')
RATE_HZ = 4.0
SIZE = (320, 240)


@pytest.fixture(scope='module')
def detector():
    with ObstacleDetector(device='cpu') as made:
        yield made


def show(detector: ObstacleDetector, frames, start_s: float):
    """Frames of a camera at the rate of the clips, after a gap; what is seen in the end."""
    for number, rgb in enumerate(frames):
        detector.add_frame(rgb, start_s + number / RATE_HZ)
    return detector.assess()


def test_the_default_is_the_file_of_the_package_with_its_heads(detector):
    report = detector.engine.report
    assert report.trained
    assert report.path == report.heads.path == str(WEIGHTS_FOLDER / 'tiny.safetensors')


def test_the_defaults_are_the_clips_that_the_heads_were_trained_on(detector):
    meta, engine, track = detector.engine.report.heads.meta, EngineConfig(), TrackConfig()
    assert (meta.variant, meta.version) == (engine.model_size, engine.model_version)
    assert meta.num_frames == engine.num_frames == track.num_frames
    assert meta.image_size == engine.image_size == track.image_size
    assert meta.resize_mode == track.resize_mode
    assert meta.interval_s[0] <= 1 / track.clip_fps <= meta.interval_s[1]
    assert 1 in meta.holds


def test_an_approach_is_seen_by_heads_that_hold(detector):
    frames = synthetic(SIZE, RATE_HZ, 6.85, 8)
    assert 1.8 < frames[-1].truth['time_to_contact_s'] < 2.0
    seen = show(detector, [frame.rgb for frame in frames], 10.0)
    unwanted = Quality.UNTRAINED | Quality.HEADS_OUT_OF_RANGE | Quality.LOOMING_UNKNOWN
    assert not seen.flags & unwanted, seen.flags.names
    assert seen.level in (Level.WARNING, Level.DANGER)
    assert 1.2 < seen.time_to_contact < 3.2
    assert seen.collision_probability > 0.3
    assert np.isfinite(detector.result().moves).any()


def test_a_still_scene_is_clear_and_nothing_in_it_moves(detector):
    picture = synthetic(SIZE, count=1)[0].rgb
    seen = show(detector, [picture] * 8, 100.0)
    assert seen.level is Level.CLEAR
    assert seen.time_to_contact == math.inf
    assert seen.motion_score < 0.05
    assert not seen.flags & (Quality.UNTRAINED | Quality.HEADS_OUT_OF_RANGE)


@pytest.mark.slow
def test_watch_needs_no_option_for_trained_output(tmp_path, capsys):
    out = tmp_path / 'out'
    assert cli.main(['watch', 'synthetic', '--max-seconds', '2.2', '--rate', '4', '--no-window',
                     '--device', 'cpu', '--out', str(out)]) == 0
    said = capsys.readouterr().out
    assert 'tiny on cpu (trained)' in said and 'UNTRAINED' not in said
