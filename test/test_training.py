# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test the parts of training: network, batches, state, calibration, and learning itself."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from tiny_world import TINY, TinyWorld

from vjepa_ros.lab.training import loop
from vjepa_ros.lab.training.config import TrainConfig
from vjepa_ros.lab.training.feeds import Draw, REUSE_GAP, WorldFeed
from vjepa_ros.lab.training.loop import StateError, read_state
from vjepa_ros.lab.training.network import Batch, Network, build
from vjepa_ros.lab.training.validation import Answers, calibrate, figures
from vjepa_ros.lab.world.clips import HORIZONS_S, Targets, WorldClips, clip_targets, derive
from vjepa_ros.lab.world.rendering.render import Truth
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.head_specs import CLEARANCE_BINS, CONTACT_BINS, CONTACT_EDGES, HeadOutputs
from vjepa_ros.model.heads import Heads
from vjepa_ros.model.variants import VARIANTS

pytestmark = pytest.mark.usefixtures('one_thread')
CPU = torch.device('cpu')
SIDE, INTERVAL_S = 32, 0.1


def make_config(**changed):
    return TrainConfig.of({'clips': 160, 'batch': 8, 'num_frames': 4, 'image_size': 32,
                           'precision': 'fp32', 'lr': 2e-3, 'progress_s': 1e9, **changed})


def make_feed(count=8, **options):
    return WorldFeed([TinyWorld(32)], count, Draw(0, 0, CPU), **options)


def test_whatever_is_trained_takes_part_in_each_step(monkeypatch):
    # Otherwise processes that train together wait for gradients that never come.
    monkeypatch.setitem(VARIANTS, 'test', replace(TINY, depth=12))
    network, _ = build(make_config(model_size='test', window=2, num_frames=8,
                                   auxiliary=True))
    clips = TinyWorld(48, 8).clips(1, 3)
    batch = Batch(clips.frames, clip_targets(clips), clips.stamps_s.double())
    sum(network(batch).values()).backward()
    assert not [n for n, p in network.named_parameters() if p.requires_grad and p.grad is None]


@pytest.mark.parametrize(('step', 'reuse', 'workers'), [(3, 1, 2), (REUSE_GAP + 1, 2, 1)])
def test_a_batch_depends_on_its_step_and_not_on_the_past(step, reuse, workers):
    with make_feed(reuse=reuse) as fresh, make_feed(reuse=reuse, workers=workers) as running:
        for before in range(step):
            running.batch(before)
        one, two, later = fresh.batch(step), running.batch(step), running.batch(step + 1)
    assert torch.equal(one.frames, two.frames) and not torch.equal(one.frames, later.frames)
    assert all(torch.equal(a, b) for a, b in zip(
        vars(one.targets).values(), vars(two.targets).values(), strict=True))


def test_half_of_the_clips_are_mirrored_with_their_targets():
    world = TinyWorld(32)
    with make_feed(64) as feed:
        batch = feed.batch(0)
    plain = world.film(world.sample(derive(0, 'scenes', 0, 0), 64))
    mirrored = (batch.frames == plain.frames.flip(3)).flatten(1).all(1)
    assert ((batch.frames == plain.frames).flatten(1).all(1) != mirrored).all()
    assert 16 < mirrored.sum() < 48
    half = batch.targets.moving[mirrored]
    assert (half[:, :, 0] == 0).all()          # what moved on the left is on the right now
    assert half[:, :, 1].any()
    # All that expands looks the same in the mirror.
    assert torch.allclose(batch.targets.flow_x, clip_targets(plain).flow_x)


def test_numbers_that_are_none_end_the_run():
    heads = Heads.for_variant(TINY, 0)
    with torch.no_grad():
        heads.contact.bias.fill_(math.nan)
    clips = TinyWorld(32).clips(5, 8)
    trainer = loop.Trainer(make_config(progress_s=0), Network(Encoder(TINY), heads),
                           loop.DistributedContext(0, 1, CPU))
    with pytest.raises(loop.TrainingError, match=r'contact.*step 1'):
        trainer.run(lambda step: Batch(clips.frames, clip_targets(clips)), lambda: None,
                    lambda: False)


def bold_answers(boldness, count=4000):
    """Answers whose logits are too bold, about clips of 0.1 s per frame."""
    torch.manual_seed(1)
    true, edges = torch.randn(count, CONTACT_BINS + 1), torch.tensor([*CONTACT_EDGES, math.inf])
    bins = torch.distributions.Categorical(logits=true).sample()
    contact = 0.1 * (edges[bins] * edges[bins + 1]).sqrt()
    patches = torch.randn(count, 1, 1)
    labels = (torch.rand(count, 1, 1) < patches.sigmoid()).float()
    error = torch.distributions.Laplace(0.0, 0.02).sample((count, 1, 1))
    known, every = (torch.ones(count, *more, dtype=torch.bool) for more in ((1, 1), ()))
    targets = replace(
        Targets.unknown(torch.full((count,), 0.1), 1), expansion=error, moving=labels,
        course=labels, expansion_known=known, moving_known=known, course_known=known,
        contact_s=contact, contact_known=every,
        hazard=(contact[:, None] <= torch.tensor(HORIZONS_S)).float(),
        hazard_known=every[:, None].expand(-1, 5))
    return Answers(HeadOutputs(
        expansion=torch.zeros(count, 1, 1),
        log_scale=torch.full((count, 1, 1), math.log(0.02 / boldness)),
        moving=boldness * patches, course=boldness * patches + 1,
        contact=boldness * true, clearance=torch.zeros(count, CLEARANCE_BINS + 1)), targets)


def test_calibration_undoes_boldness():
    answers = bold_answers(3.0)
    found = calibrate(answers)
    for name in ('contact', 'expansion'):
        assert found[name][0] == pytest.approx(3.0, rel=0.1), name
    assert found['moving'] == pytest.approx((1 / 3, 0.0), abs=0.08)
    assert found['course'] == pytest.approx((1 / 3, -1 / 3), abs=0.08)
    before = figures(answers)['expected_calibration_error']
    after = figures(answers, found)['expected_calibration_error']
    assert after < 0.25 * before and after < 0.02


def test_a_damaged_state_is_told(tmp_path):
    (tmp_path / 'state.pt').write_bytes(b'nothing')
    with pytest.raises(StateError, match='remove it to begin anew'):
        read_state(tmp_path)


@pytest.mark.parametrize(('changed', 'words'), [
    ({'seconds': 5.0}, 'seconds'), ({'batch': 1.5}, 'batch'), ({'lr': 'fast'}, 'no.* number'),
    ({'image_size': 40}, 'multiples of 2 and 16'), ({'start_share': 0.5}, 'weights'),
    ({'batch': 2, 'recordings': 'walk'}, 'batch 2 x recording_share 0.25 gives no clip')])
def test_wrong_keys_are_refused_by_name(changed, words):
    with pytest.raises(ValueError, match=words):
        make_config(**changed)


def make_truth():
    """Truth of two far walls that stand still."""
    shape = (2, SIDE, SIDE)
    inf, no = torch.full(shape, math.inf), torch.zeros(shape, dtype=torch.bool)
    return Truth(depth=torch.full(shape, 4.0), looming=torch.zeros(shape), moving=no.clone(),
                 flow=torch.zeros(*shape, 2), enters=no.clone(), enter_time=inf.clone(),
                 clearance=inf, shape=torch.zeros(shape, dtype=torch.int16))


def targets_of(truth):
    """Targets of a shape that moves before a camera with a focal length of 40 px."""
    scenes = SimpleNamespace(velocity=torch.ones(2, 1, 3), yaw_rate=torch.zeros(2, 1),
                             intrinsics=torch.tensor([[40.0, 99.0, 16.0, 16.0]] * 2))
    each, frames = torch.ones(2), torch.zeros(2, 4, SIDE, SIDE, 3, dtype=torch.uint8)
    clips = WorldClips(frames, INTERVAL_S * each, each.long(), truth, scenes, each,
                       2 * each, INTERVAL_S * torch.arange(4).repeat(2, 1))
    return clip_targets(clips)


def test_expansion_is_the_patch_mean_of_looming_times_interval():
    truth = make_truth()
    truth.looming[:, :16, :16], truth.looming[:, :16, 16:] = 1.0, -2.0
    truth.looming[:, 16:, :8] = 4.0
    assert torch.allclose(targets_of(truth).expansion[0],
                          torch.tensor([[0.1, -0.2], [0.2, 0.0]]))


def test_patches_that_move_in_part_are_not_asked_and_a_thin_pole_on_course_counts():
    truth = make_truth()
    truth.moving[:, :16, :16] = True            # all of it
    truth.moving[:, :16, 16:20] = True          # a quarter
    truth.moving[:, 16, 0] = True               # a single pixel
    truth.enters[:, :16, :5] = True
    targets = targets_of(truth)
    assert targets.moving_known[0].tolist() == [[True, False], [True, True]]
    assert targets.moving[0].tolist() == [[1, 0], [0, 0]]
    assert targets.course[0, 0, 0] == 1 and targets.course_known[0, 0, 0]
