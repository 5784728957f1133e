# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test the parts of training: network, batches, state, calibration, and learning itself."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from tiny_world import TINY, TinyWorld

from vjepa_ros.lab.training import loop
from vjepa_ros.lab.training.config import TrainConfig
from vjepa_ros.lab.training.feeds import Draw, REUSE_GAP, WorldFeed
from vjepa_ros.lab.training.loop import StateError, read_state
from vjepa_ros.lab.training.network import Batch, Network, build
from vjepa_ros.lab.training.validation import Answers, calibrate, figures
from vjepa_ros.lab.world.clips import HORIZONS_S, TRAINING_SEEDS, Targets, clip_targets, derive
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.head_specs import CLEARANCE_BINS, CONTACT_BINS, CONTACT_EDGES, HeadOutputs
from vjepa_ros.model.heads import Heads
from vjepa_ros.model.variants import VARIANTS

pytestmark = pytest.mark.usefixtures('one_thread')
CPU = torch.device('cpu')


def make_config(**changed):
    return TrainConfig.of({'clips': 160, 'batch': 8, 'num_frames': 4, 'image_size': 32,
                           'precision': 'fp32', 'lr': 2e-3, 'progress_s': 1e9, **changed})


def make_feed(count=8, **options):
    return WorldFeed([TinyWorld(32)], count, Draw(0, 0, CPU), **options)


def test_a_run_of_today_can_be_continued_tomorrow_with_the_same_clips():
    assert derive(0, 'scenes', 3, 1) == 907075613 < TRAINING_SEEDS    # above are the fixed splits


def test_whatever_is_trained_takes_part_in_each_step(monkeypatch):
    # Otherwise processes that train together wait for gradients that never come.
    monkeypatch.setitem(VARIANTS, 'test', replace(TINY, depth=12))
    network, _ = build(make_config(model_size='test', window=2, num_frames=8,
                                   auxiliary=True))
    clips = TinyWorld(48, 8).clips(1, 3)
    sum(network(Batch(clips.frames, clip_targets(clips))).values()).backward()
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


@pytest.mark.parametrize('content', [b'nothing', {'format': 99}, {'format': loop.FORMAT, 'a': 3}])
def test_a_damaged_state_is_told(tmp_path, content):
    path = tmp_path / 'state.pt'
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(StateError, match='remove it to begin anew'):
        read_state(tmp_path)


@pytest.mark.parametrize(('changed', 'words'), [
    ({'seconds': 5.0}, 'seconds'), ({'batch': 1.5}, 'batch'), ({'lr': 'fast'}, 'no.* number'),
    ({'compile': 'yes'}, 'true nor false'), ({'image_size': 40}, 'multiples of 2 and 16'),
    ({'model_size': 'vast'}, 'vast'), ({'window': 3}, 'window'),
    ({'heads_only': True}, 'weights'), ({'start_share': 0.5}, 'weights'),
    ({'heads_only': True, 'optimizer': 'muon', 'weights': 'x'}, 'muon'),
    ({'batch': 2, 'recordings': 'walk'}, 'batch 2 x recording_share 0.25 gives no clip')])
def test_wrong_keys_are_refused_by_name(changed, words):
    with pytest.raises(ValueError, match=words):
        make_config(**changed)
