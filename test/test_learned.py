# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test how outputs of heads become seconds, and when they are not believed."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from bundles import save_constant_bundle
from scenes import texture

from vjepa_ros import Level, ObstacleDetector, Quality
from vjepa_ros.clip.resize import View
from vjepa_ros.clip.ring import Frame, FrameRing, Sample
from vjepa_ros.model.checkpoint.layouts import BundleMeta
from vjepa_ros.perception.learned import HeadsSaid, Rhythm, evened, learned_fields, range_problem
from vjepa_ros.perception.structure import Shown, Structure, coarse
from vjepa_ros.runtime.prediction import HeadArrays

NS = 1_000_000_000
SIZE = (160, 120)
META = BundleMeta('tiny', '2.0', 8, 192, 'squash', (1 / 30, 0.5),
                  {'half_width': 0.3, 'height': 0.5})
CAUSAL = BundleMeta.from_json(replace(META, version='2.1', window=4).to_json())
RUNNING = (8, 192, 'squash')


def clip(times_s) -> Sample:
    """A clip of frames at these times [s]."""
    stamps = tuple(round((100 + t) * NS) for t in times_s)
    distinct = sorted(set(stamps))
    span = (stamps[-1] - stamps[0]) / NS
    return Sample(tuple(distinct.index(s) for s in stamps), stamps, stamps[-1], 'cam', SIZE, span,
                  (len(distinct) - 1) / span if span else math.nan, len(distinct),
                  len(distinct) < len(stamps))


def even(interval_s: float, hold: int = 1) -> Sample:
    return clip([i // hold * hold * interval_s for i in range(8)])


def field(rate, sigma, frames=None, view=None):
    """What heads say that mean this rate and error [1/s] everywhere in the frames of a clip."""
    frames = texture((64, 64)) if frames is None else frames
    frames = frames[None] if frames.ndim == 3 else frames
    side = frames.shape[1]
    values = 0.1 * rate, 0.1 * sigma / math.sqrt(2), 0.1, 0.2
    expansion, scale, moving, course = (np.full((side // 16, side // 16), value, np.float32)
                                        for value in values)
    contact, clearance = (np.append(np.zeros(bins), 1.0).astype(np.float32) for bins in (20, 12))
    view = view or View('squash', SIZE, side)
    valid = view.patch_valid
    shown = Shown.by(valid, (Structure.of(coarse(frame), valid) for frame in frames[::-1]))
    heads = HeadArrays(expansion=expansion, scale=scale, moving=moving, course=course,
                       contact=contact, clearance=clearance)
    return learned_fields([HeadsSaid(heads, 0.1, view, shown)])[0]


@pytest.mark.parametrize('jitter', [0.0, 0.004, -0.004])
def test_a_camera_at_half_the_rate_shows_each_frame_twice_whatever_its_jitter(jitter):
    ring = FrameRing(8, 20.0)
    rng = np.random.default_rng(3)
    for i in range(30):
        t = 5 + i / 10 + jitter * rng.uniform(0.2, 1)
        ring.push(round(t * NS), Frame(np.zeros((2, 2, 3), np.uint8)))
    sample = evened(ring.sample(), 20.0)
    rhythm = Rhythm.of(sample.stamps_ns)
    assert rhythm.hold == 2
    assert rhythm.interval_s == pytest.approx(0.05, rel=0.1)
    assert sample.stamps_ns[-1] == ring.newest_ns
    assert sample.distinct == 4
    assert sample.rate_hz == pytest.approx(10, rel=0.1)


@pytest.mark.parametrize(('running', 'sample', 'said'), [
    ((16, 192, 'squash'), even(0.25), ('num_frames is 16', 'trained on 8', 'set num_frames: 8')),
    ((8, 192, 'crop'), even(0.25), ('resize_mode is crop', 'trained on squash')),
    (RUNNING, even(0.5), ()), (RUNNING, even(0.05, 2), ()),
    (RUNNING, even(0.8), ('interval is 0.800 s', '0.033 to 0.500 s', 'raise clip_fps to 2 or')),
    (RUNNING, even(0.05, 4), ('repetition is 4', 'trained on 1 or 2', 'lower clip_fps to 10 or')),
    (RUNNING, clip([0, .1, .2, .3, .4, .5, .6, 1.0]), ('uneven', '0.100 to 0.400 s')),
    (RUNNING, clip([0.5] * 8), ('one single frame',))])
def test_what_heads_were_not_trained_on_is_named_with_the_remedy(running, sample, said):
    problem = range_problem(META, *running, sample)
    assert all(words in problem for words in said), problem
    assert bool(problem) == bool(said)


def test_heads_that_are_told_the_true_times_hold_for_uneven_clips():
    sample = clip([0, 0, 0, .4, .4, .5, .5, .9])        # frames were lost, and shown again
    assert Rhythm.of(sample.stamps_ns).spacing_s == pytest.approx((0.1, 0.4))
    assert 'uneven' in range_problem(META, *RUNNING, sample)
    assert range_problem(CAUSAL, *RUNNING, sample) == ''
    assert 'num_frames is 16' in range_problem(CAUSAL, 16, 192, 'squash', sample)


@pytest.mark.parametrize(('step_s', 'remedy'), [(0.034, None), (0.49, None), (
    0.6, '0.600 s.*0.033 to 0.500 s; raise the rate of the camera to 2 Hz'), (
    0.02, '0.020 s.*0.033 to 0.500 s; let the driver of the camera stamp')])
def test_heads_of_a_stream_refuse_a_step_that_they_were_not_trained_on(step_s, remedy):
    problem = range_problem(CAUSAL, *RUNNING, clip([0, .1, .2, .3, .4, .5, .6, .6 + step_s]))
    assert re.search(remedy, problem) if remedy else not problem


def test_a_covered_lens_is_unknown_however_light_falls_through():
    y, x = np.meshgrid(np.linspace(0, 1, 192), np.linspace(0, 1, 192), indexing='ij')
    gray = 90 - 80 * ((x - 0.3) ** 2 + (y - 0.6) ** 2)
    noise = np.random.default_rng(0).normal(0, 2.0, (192, 192, 3))
    picture = np.clip(gray[..., None] + noise, 0, 255).astype(np.uint8)
    made = field(0.0, 0.001, picture)
    assert (made.confidence == 0).all()        # so that nothing makes it CLEAR


@pytest.mark.parametrize(('rows', 'known'), [(0, 1.0), (96, 1.0), (128, 0.5), (192, 0.0)])
def test_plain_patches_are_known_where_most_of_the_picture_shows_structure(rows, known):
    """The upper rows of a picture are plain, as sky or a wall is, or a thing before the lens."""
    picture = texture((192, 192))
    picture[:rows] = 90
    made = field(0.0, 0.001, picture)
    whole = (made.confidence > 0.9).mean()
    assert whole == pytest.approx(known, abs=0.1)
    assert np.array_equal(np.isfinite(made.moving), made.confidence > 0.9)
    assert made.sees == made.saw == (rows < 192)


@pytest.mark.parametrize(('rate', 'sigma', 'known'), [
    (1.0, 0.2, True), (0.3, 0.01, True), (0.3, 0.05, False), (1.0, 0.6, False),
    (0.0, 0.001, False), (-1.0, 0.1, False)])
def test_what_surely_comes_nearer_is_known_when_nothing_of_it_can_be_made_out_any_more(
        rate, sigma, known):
    clip = np.full((8, 64, 64, 3), 40, np.uint8)
    clip[2] = texture((64, 64))
    made = field(rate, sigma, clip)
    assert ((made.confidence >= 0.2) == known).all()
    assert np.isnan(made.moving).all()
    clip[2] = 40                                   # a lens that was covered all the time
    assert (field(rate, sigma, clip).confidence == 0).all()


def test_a_result_gives_what_the_heads_say(tmp_path):
    """A clip says: closing in at 0.8 /s, on course, contact after 16 intervals, a third moves."""
    bundle = save_constant_bundle(tmp_path / 'tiny.safetensors', expansion=0.08, course=0.9,
                                  moving=1 / 3, contact=16.0)
    with ObstacleDetector(weights=bundle, img_size=64, num_frames=4, clip_fps=10.0,
                          device='cpu') as detector:
        detector.update_settings(collision_horizon=1.5, smoothing=0.0)
        for number in range(5):
            detector.add_frame(texture(SIZE), 1000 + number / 10)
        result = detector.result()
    a = result.assessment
    assert result.heads_problem == ''
    np.testing.assert_allclose(result.looming_map, 0.8, rtol=1e-2)
    np.testing.assert_allclose(result.moving_map, 1 / 3, rtol=1e-2)
    assert result.moves is result.moving_map            # pictures show what moves by itself
    assert a.time_to_contact == pytest.approx(1.25, rel=0.01)
    assert a.level is Level.WARNING
    assert a.motion_score == pytest.approx(1 / 3, rel=0.01)
    assert a.known_fraction == 1.0
    assert a.regions[0].on_course
    assert a.collision_probability == pytest.approx(result.learned.contact.below(1.5), abs=1e-6)
    assert not a.flags & (Quality.UNTRAINED | Quality.HEADS_OUT_OF_RANGE)
