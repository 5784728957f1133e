# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test the parts of training: network, masks, batches, averages, state, and learning itself."""

from __future__ import annotations

import math
import zipfile
from dataclasses import fields, replace

import pytest
import torch
from tiny_world import TINY, TinyWorld

from vjepa_ros.lab.training import loop
from vjepa_ros.lab.training.config import TrainConfig, differences, rate_factor
from vjepa_ros.lab.training.feeds import (
    CachedFeed,
    Draw,
    Order,
    REUSE_GAP,
    WorldFeed,
    block_places,
    hidden_places,
    made_at,
    random_places,
)
from vjepa_ros.lab.training.network import Batch, Network, build, normalised
from vjepa_ros.lab.training.optimizers import Average
from vjepa_ros.lab.training.parallel import Team
from vjepa_ros.lab.training.state import StateError, read_state, write_state
from vjepa_ros.lab.training.validation import Answers, calibrate, figures
from vjepa_ros.lab.world.seeds import TRAINING_SEEDS, derive
from vjepa_ros.lab.world.targets import HORIZONS_S, Targets, clip_targets
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.head_specs import (
    CLEARANCE_BINS,
    CLEARANCE_EDGES,
    CONTACT_BINS,
    CONTACT_EDGES,
    HeadOutputs,
)
from vjepa_ros.model.heads import Heads
from vjepa_ros.model.predictor import Predictor
from vjepa_ros.model.variants import VARIANTS
from vjepa_ros.runtime.forward.base import Normalise

pytestmark = pytest.mark.usefixtures('one_thread')
CPU = torch.device('cpu')


def make_network(objective='supervised', seed=0, auxiliary=False):
    encoder = Encoder(TINY)
    encoder.init_random(seed)
    predictor = None
    if objective != 'supervised':
        predictor = Predictor(TINY.dim, 24, 1, 2)
        predictor.init_random(seed)
    return Network(encoder, Heads.for_variant(TINY, seed), objective, predictor, auxiliary)


def make_config(**changed):
    given = {'out': 'unused', 'clips': 160, 'batch': 8, 'num_frames': 4, 'image_sizes': '32',
             'precision': 'fp32', 'lr': 2e-3, 'progress_s': 1e9, **changed}
    return TrainConfig(**given)


def make_feed(count=8, blocks=False, **options):
    return WorldFeed(lambda size: [TinyWorld(size)], count, Draw(0, 0, CPU, blocks), **options)


def same(a, b):
    """Whether two batches are the same."""
    pairs = [(a.frames, b.frames), (a.kept, b.kept), (a.hidden, b.hidden),
             *((getattr(a.targets, f.name), getattr(b.targets, f.name)) for f in fields(Targets))]
    return all(x is y is None or torch.equal(x, y) for x, y in pairs)


def test_every_stream_step_and_rank_draws_its_own_seed_for_ever():
    drawn = {derive(7, stream, step, rank) for stream in ('a', 'b') for step in range(50)
             for rank in range(3)}
    assert len(drawn) == 300
    assert max(drawn) < TRAINING_SEEDS     # what is above belongs to the fixed splits
    # A run of today must be continued tomorrow with the same clips.
    assert derive(0, 'scenes', 3, 1) == 907075613


def test_the_rate_rises_then_falls_to_almost_nothing():
    values = [rate_factor(p / 100, 0.1) for p in range(101)]
    assert values.index(max(values)) == 10
    assert values[10] == pytest.approx(1)
    assert values[100] == pytest.approx(0.01)
    assert values[10:] == sorted(values[10:], reverse=True)
    assert 0 < values[0] < values[5] == pytest.approx(0.5)


@pytest.mark.parametrize(('choose', 'together'), [
    (lambda g: random_places(50, 72, 144, g), (0.0, 0.55)),
    (lambda g: block_places(50, 72, 12, 12, g), (0.75, 1.0))])
def test_places_are_different_and_blocks_hide_neighbours_together(choose, together):
    kept = choose(torch.Generator().manual_seed(0))
    assert kept.shape == (50, 72)
    assert (kept.diff(dim=1) > 0).all()
    assert kept.min() >= 0 and kept.max() < 144
    assert not torch.equal(kept[0], kept[1])
    seen = torch.zeros(50, 144).scatter_(1, kept, 1.0).view(-1, 12, 12)
    alike = 1 - (seen[:, 1:] - seen[:, :-1]).abs().mean().item()
    assert together[0] <= alike <= together[1]


class TestNetwork:
    def batch(self, kept=None):
        clips = TinyWorld(48).clips(1, 3)
        kept = None if kept is None else torch.tensor([kept] * 3)
        return Batch(clips.frames, clip_targets(clips), kept,
                     None if kept is None else hidden_places(kept, 9))

    def test_pixels_are_normalised_as_at_run_time(self):
        frames = self.batch().frames
        expected = Normalise(frames.device)(frames[:1])[0]
        assert torch.allclose(normalised(frames)[0], expected, atol=1e-5)

    def test_targets_of_dropped_places_do_not_count(self):
        network, batch = make_network(), replace(self.batch([0, 4]), hidden=None)
        wrong = batch.targets.expansion.clone()
        wrong.view(3, 9)[:, [1, 2, 3, 5, 6, 7, 8]] = 100.0
        changed = replace(batch, targets=replace(batch.targets, expansion=wrong))
        assert network(batch)['expansion'] == network(changed)['expansion']

    def test_labels_do_not_reach_the_encoder_under_jepa(self):
        network, batch = make_network('jepa'), self.batch([0, 1, 4])
        target = network.features(batch.all_places()).detach()
        values = network(batch, target)
        sum(v for k, v in values.items() if k != 'jepa').backward(retain_graph=True)
        assert all(p.grad is None for p in network.encoder.parameters())
        assert any(p.grad.abs().sum() > 0 for p in network.heads.parameters())
        values['jepa'].backward()
        for part in (network.encoder, network.predictor):
            assert all(p.grad is not None for p in part.parameters())

    def test_with_nothing_hidden_the_predictor_still_takes_part(self):
        network, batch = make_network('both'), self.batch()
        values = network(batch, network.features(batch).detach())
        assert values['jepa'].item() == 0
        sum(values.values()).backward()
        assert all(p.grad is not None for p in network.parameters())

    @pytest.mark.parametrize('window', [0, 2])
    def test_whatever_is_trained_takes_part_in_each_step(self, monkeypatch, window):
        # Otherwise processes that train together wait for gradients that never come.
        monkeypatch.setitem(VARIANTS, 'test', replace(TINY, depth=12))
        network, _ = build(make_config(model_size='test', window=window, num_frames=8,
                                       auxiliary=True))
        clips = TinyWorld(48, 8).clips(1, 3)
        sum(network(Batch(clips.frames, clip_targets(clips))).values()).backward()
        left = [n for n, p in network.named_parameters() if p.requires_grad and p.grad is None]
        assert not left


def test_the_average_follows_and_can_stand_in_for_the_parameters():
    network = make_network('jepa')
    average = Average(network)
    target = loop.target_encoder(network, average)
    weight, before = network.encoder.norm.weight, network.encoder.norm.weight.detach().clone()
    with torch.no_grad():
        weight.add_(1.0)
    average.update(0.75)
    assert torch.allclose(target.encoder.norm.weight, before + 0.25)      # without a copy
    with average.applied():
        assert torch.allclose(weight, before + 0.25)
        assert torch.allclose(average.values['encoder.norm.weight'], before + 1)
    assert torch.allclose(weight, before + 1)
    assert torch.allclose(average.values['encoder.norm.weight'], before + 0.25)


class TestFeed:
    @pytest.mark.parametrize(('step', 'reuse', 'workers'), [(3, 1, 2), (REUSE_GAP + 1, 2, 1)])
    def test_a_batch_depends_on_its_step_and_not_on_the_past(self, step, reuse, workers):
        order = Order(step, 32, 0.5)
        with make_feed(reuse=reuse) as fresh, \
                make_feed(reuse=reuse, workers=workers) as running:
            for before in range(step):
                running.batch(replace(order, step=before))
            assert same(fresh.batch(order), running.batch(order))
            assert not same(fresh.batch(order), running.batch(replace(order, step=step + 1)))

    def test_the_parts_of_a_batch_are_of_different_worlds(self):
        worlds = [TinyWorld(32), TinyWorld(32)]
        with WorldFeed(lambda size: worlds, 8, Draw(0, 0, CPU), reuse=2) as feed:
            for step in range(20):
                feed.batch(Order(step, 32, 1.0))
        assert [len(world.filmed) for world in worlds] == [10, 10]
        for step in range(REUSE_GAP, 3 * REUSE_GAP):
            chosen = [feed.world((made_at(step, age), 32)) for age in (0, 1)]
            assert chosen[0] is not chosen[1]

    def test_half_of_the_clips_are_mirrored_with_their_targets(self):
        world = TinyWorld(32)
        with WorldFeed(lambda size: [world], 64, Draw(0, 0, CPU)) as feed:
            batch = feed.batch(Order(0, 32, 1.0))
        plain = world.film(world.sample(derive(0, 'scenes', 0, 0), 64))
        mirrored = (batch.frames == plain.frames.flip(3)).flatten(1).all(1)
        assert ((batch.frames == plain.frames).flatten(1).all(1) != mirrored).all()
        assert 16 < mirrored.sum() < 48
        half = batch.targets.moving[mirrored]
        assert (half[:, :, 0] == 0).all()          # what moved on the left is on the right now
        assert half[:, :, 1].any()

    def test_features_of_a_frozen_encoder_are_kept(self):
        network, told = make_network(), []
        network.encoder.requires_grad_(False)
        with make_feed(count=4) as feed:
            cached = CachedFeed(feed, network, 10, 32, 4, Draw(0, 0, CPU),
                                lambda *n: told.append(n))
            first = feed.batch(Order(0, 32, 1.0))
        assert len(cached) == 12 and told[-1] == (12, 12)
        batch = cached.batch(Order(5, 32, 1.0))
        assert batch.features.shape == (4, 2, 2, 2, TINY.dim)
        assert (cached._features[:4].float() - network.features(first)).abs().max() < 1e-2
        assert network(batch)['expansion'].isfinite()


class FixedFeed:
    """The same clips in every step."""

    def __init__(self, count=8):
        clips = TinyWorld(32).clips(5, count)
        self._batch = Batch(clips.frames, clip_targets(clips))

    def batch(self, order):
        return self._batch


def run(config, feed, network=None, state=None, steps=None):
    """Train; the trainer and the losses that were reported."""
    network = network or make_network(config.objective, auxiliary=config.auxiliary)
    trainer = loop.Trainer(config, network, Team(0, 1, CPU))
    if state is not None:
        trainer.restore(state)
    told = []
    trainer.run(feed, told.append, lambda: None,
                lambda: steps is not None and trainer.step >= steps)
    return trainer, told


@pytest.mark.slow
class TestLearning:
    @pytest.mark.parametrize('precision', ['fp32', 'bf16'])
    def test_muon_learns_and_the_patches_are_asked_more(self, precision):
        config = make_config(clips=8 * 80, progress_s=0.0, lr=3e-3, optimizer='muon',
                             auxiliary=True, precision=precision)
        trainer, told = run(config, FixedFeed())
        first, last = told[0].losses, told[-1].losses
        for name in ('contact', 'moving', 'enter', 'flow', 'depth', 'large'):
            assert last[name] < 0.7 * first[name], name
        before = make_network(auxiliary=True).state_dict()
        for name, value in trainer.network.state_dict().items():
            assert value.isfinite().all(), name
            if name.endswith('weight') and value.ndim == 2:
                assert not torch.equal(value, before[name]), name

    @pytest.mark.parametrize(('objective', 'changed'), [
        ('supervised', {}), ('both', {}),
        ('supervised', {'optimizer': 'muon', 'auxiliary': True, 'weight_decay': 0.1}),
        ('both', {'optimizer': 'muon', 'auxiliary': True})])
    def test_a_continued_run_is_the_run_that_went_through(self, tmp_path, objective, changed):
        config = make_config(clips=48, objective=objective, **changed,
                             tokens_kept='1.0' if objective == 'supervised' else '0.5',
                             reuse=2)
        options = {'blocks': objective == 'both', 'reuse': 2}
        with make_feed(**options) as feed:
            through, _ = run(config, feed)
        with make_feed(**options) as feed:
            half, _ = run(config, feed, steps=3)
        assert (through.step, half.step) == (6, 3)
        write_state(tmp_path, half.state([]))
        with make_feed(**options) as feed:
            fresh = make_network(objective, 9, config.auxiliary)
            rest, _ = run(config, feed, fresh, read_state(tmp_path))
        for name, parameter in through.network.named_parameters():
            assert torch.equal(parameter, dict(rest.network.named_parameters())[name]), name
            assert torch.equal(through.average.values[name], rest.average.values[name]), name

    def test_numbers_that_are_none_end_the_run(self):
        network = make_network()
        with torch.no_grad():
            network.heads.contact.bias.fill_(math.nan)
        with pytest.raises(loop.TrainingError, match=r'contact.*step 1'):
            run(make_config(progress_s=0.0), FixedFeed(), network)


class TestJudging:
    def synthetic(self, boldness, count=4000):
        """Answers whose logits are too bold, about clips of 0.1 s per frame."""
        torch.manual_seed(0)
        true, free = (torch.randn(count, n + 1) for n in (CONTACT_BINS, CLEARANCE_BINS))

        def drawn(logits, edges):
            edges = torch.tensor([*edges, math.inf])
            bins = torch.distributions.Categorical(logits=logits).sample()
            return (edges[bins] * edges[bins + 1]).sqrt()
        contact = 0.1 * drawn(true, CONTACT_EDGES)
        patches = torch.randn(count, 1, 1)
        labels = (torch.rand(count, 1, 1) < patches.sigmoid()).float()
        error = torch.distributions.Laplace(0.0, 0.02).sample((count, 1, 1))
        known, every = (torch.ones(count, *more, dtype=torch.bool) for more in ((1, 1), ()))
        targets = replace(
            Targets.unknown(torch.full((count,), 0.1), 1), expansion=error, moving=labels,
            course=labels, expansion_known=known, moving_known=known, course_known=known,
            contact_s=contact, contact_known=every,
            hazard=(contact[:, None] <= torch.tensor(HORIZONS_S)).float(),
            hazard_known=every[:, None].expand(-1, 5),
            clearance_m=drawn(free, CLEARANCE_EDGES), clearance_known=every)
        return Answers(HeadOutputs(
            expansion=torch.zeros(count, 1, 1),
            log_scale=torch.full((count, 1, 1), math.log(0.02 / boldness)),
            moving=boldness * patches, course=boldness * patches + 1,
            contact=boldness * true, clearance=boldness * free), targets)

    def test_calibration_undoes_boldness(self):
        answers = self.synthetic(3.0)
        found = calibrate(answers)
        for name in ('contact', 'expansion', 'clearance'):
            assert found[name][0] == pytest.approx(3.0, rel=0.1), name
        assert found['moving'] == pytest.approx((1 / 3, 0.0), abs=0.08)
        assert found['course'] == pytest.approx((1 / 3, -1 / 3), abs=0.08)
        before = figures(answers)['expected_calibration_error']
        after = figures(answers, found)['expected_calibration_error']
        assert after < 0.25 * before and after < 0.02


class TestState:
    def test_no_state_and_damaged_state_are_told_apart(self, tmp_path):
        path = tmp_path / 'state.pt'

        def archive():
            with zipfile.ZipFile(path, 'w') as file:
                file.writestr('state/data.pkl', b'\x80\x02h\x07.')
                file.writestr('state/version', b'3\n')
        for damage, said in (
                (lambda: None, 'no run to continue'),
                (lambda: path.write_bytes(b'nothing'), 'cannot be read'),
                (lambda: torch.save({'format': 99}, path), 'format'),
                (lambda: torch.save({'format': 1, 'step': 3}, path),
                 r'damaged.*remove it to begin anew'),
                (archive, 'cannot be read: KeyError')):
            damage()
            with pytest.raises(StateError, match=said):
                read_state(tmp_path)

    def test_options_that_decide_the_result_may_not_change(self):
        saved = make_config()
        assert differences(saved, make_config(device='cpu', stop_after=5.0)) == []
        assert differences(saved, make_config(lr=0.1)) == ['lr: 0.002 then, 0.1 now']

    @pytest.mark.parametrize(('changed', 'words'), [
        ({'clips': 0}, 'clips'), ({'seconds': 5.0}, 'seconds'), ({'batch': 0}, 'batch'),
        ({'num_frames': 5}, 'num_frames'), ({'image_sizes': '40'}, 'multiples of 16'),
        *(({'image_sizes': text}, 'image_sizes') for text in (
            '', '128:0.7,192', '128:0.7,192:0.4', '128:1.2,192:-0.2', 'big', '1:2:3,4:5:6')),
        ({'tokens_kept': '0'}, 'tokens_kept'), ({'objective': 'guess'}, 'objective'),
        ({'model_size': 'vast'}, 'vast'), ({'lora_rank': 4}, 'heads_only'),
        ({'heads_only': True}, 'weights'), ({'objective': 'jepa'}, 'tokens_kept'),
        ({'heads_only': True, 'objective': 'both'}, 'heads_only'),
        ({'heads_only': True, 'optimizer': 'muon', 'weights': 'x'}, 'muon.*heads_only'),
        ({'optimizer': 'sgd'}, 'optimizer'), ({'cached_clips': 5}, 'cached_clips')])
    def test_wrong_options_are_refused_by_name(self, changed, words):
        with pytest.raises(ValueError, match=words):
            make_config(**changed)
