# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test the parts of training: targets, losses, masks, batches, averages, and learning itself."""

from __future__ import annotations

import math
import zipfile
from dataclasses import fields, replace
from types import SimpleNamespace

import pytest
import torch
from tiny_world import TinyWorld

from vjepa_ros.lab.training import loop, losses
from vjepa_ros.lab.training.config import (
    Phases,
    TrainConfig,
    differences,
    rate_factor,
)
from vjepa_ros.lab.training.feeds import (
    REUSE_GAP,
    CachedFeed,
    Draw,
    Order,
    WorldFeed,
    block_places,
    hidden_places,
    random_places,
)
from vjepa_ros.lab.training.network import Batch, Network, normalised
from vjepa_ros.lab.training.optimizers import Average, make_optimizer
from vjepa_ros.lab.training.parallel import Team
from vjepa_ros.lab.training.state import StateError, read_state, write_state
from vjepa_ros.lab.training.validation import Answers, answer, calibrate, figures, headline
from vjepa_ros.lab.world.seeds import TRAINING_SEEDS, derive
from vjepa_ros.lab.world.targets import (
    HORIZONS_S,
    Targets,
    clip_targets,
    joined,
    world_targets,
)
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.head_specs import (
    CLEARANCE_BINS,
    CLEARANCE_EDGES,
    CONTACT_BINS,
    CONTACT_EDGES,
    HEADS,
    HeadOutputs,
)
from vjepa_ros.model.heads import Heads
from vjepa_ros.model.predictor import Predictor
from vjepa_ros.model.variants import Variant

pytestmark = pytest.mark.usefixtures('one_thread')
TINY = Variant('test', 48, 2, 3, 96)
CPU = torch.device('cpu')
ALONE = Team(0, 1, CPU)


def make_truth(looming=0.0, moving=False, enters=False, enter_time=math.inf, depth=2.0,
               side=32, count=1):
    """Truth that is the same everywhere; a callable fills a tensor (count, side, side)."""
    def field(value, dtype):
        values = torch.zeros(count, side, side, dtype=dtype)
        if callable(value):
            value(values)
        else:
            values[:] = value
        return values

    return SimpleNamespace(looming=field(looming, torch.float32),
                           moving=field(moving, torch.bool), enters=field(enters, torch.bool),
                           enter_time=field(enter_time, torch.float32),
                           depth=field(depth, torch.float32),
                           flow=torch.zeros(count, side, side, 2))


def make_targets(count=4, side=2, contact_s=1.0, interval_s=0.1, **changed):
    truth = make_truth(side=16 * side, count=count)
    targets = world_targets(truth, torch.full((count,), interval_s),
                            torch.full((count,), contact_s), torch.full((count,), 2.0))
    return replace(targets, **changed)


def make_outputs(count=4, side=2, **changed):
    zero = torch.zeros(count, side, side)
    return HeadOutputs(**{'expansion': zero, 'log_scale': zero, 'moving': zero, 'course': zero,
                          'contact': torch.zeros(count, CONTACT_BINS + 1),
                          'clearance': torch.zeros(count, CLEARANCE_BINS + 1)} | changed)


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


def make_feed(count=8, seed=0, blocks=False, **options):
    return WorldFeed(TinyWorld, count, Draw(seed, 0, CPU, blocks), **options)


def same(a, b):
    """Whether two batches are the same."""
    pairs = [(a.frames, b.frames), (a.kept, b.kept), (a.hidden, b.hidden),
             *((getattr(a.targets, f.name), getattr(b.targets, f.name)) for f in fields(Targets))]
    return all(x is y is None or torch.equal(x, y) for x, y in pairs)


class TestSeeds:
    def test_every_stream_step_and_rank_draws_its_own(self):
        drawn = {derive(7, stream, step, rank) for stream in ('a', 'b') for step in range(50)
                 for rank in range(3)}
        assert len(drawn) == 300
        assert max(drawn) < TRAINING_SEEDS     # what is above belongs to the fixed splits

    def test_a_seed_never_changes(self):
        # A run of today must be continued tomorrow with the same clips.
        assert derive(0, 'scenes', 3, 1) == 907075613


class TestTargets:
    def test_expansion_is_the_patch_mean_of_looming_times_interval(self):
        def fill(values):
            values[:, :16, :16], values[:, :16, 16:] = 0.5, -1.0
            values[:, 16:, :8] = 2.0
        targets = world_targets(make_truth(looming=fill), torch.tensor([0.2]), torch.ones(1),
                                torch.ones(1))
        assert torch.allclose(targets.expansion[0], torch.tensor([[0.1, -0.2], [0.2, 0.0]]))

    def test_patches_that_move_in_part_are_not_asked(self):
        def fill(values):
            values[:, :16, :16] = True            # all of it
            values[:, :16, 16:20] = True          # a quarter
            values[:, 16, 0] = True               # a single pixel
        targets = world_targets(make_truth(moving=fill), torch.tensor([0.2]), torch.ones(1),
                                torch.ones(1))
        assert targets.moving_known[0].tolist() == [[True, False], [True, True]]
        assert targets.moving[0].tolist() == [[1, 0], [0, 0]]

    def test_a_thin_pole_on_course_counts(self):
        def fill(values):
            values[:, :16, :5] = True
        targets = world_targets(make_truth(enters=fill), torch.tensor([0.2]), torch.ones(1),
                                torch.ones(1))
        assert targets.course[0, 0, 0] == 1
        assert targets.course_known[0, 0, 0]


class TestLosses:
    def test_laplace_is_the_negative_log_likelihood(self):
        one = torch.ones(1)
        known = torch.ones(1, dtype=torch.bool)
        value = losses.laplace(0.3 * one, math.log(0.1) * one, 0.1 * one, known, 0.5)
        density = torch.distributions.Laplace(0.3, 0.1).log_prob(torch.tensor(0.1))
        assert value.item() == pytest.approx(-density.item(), rel=1e-5)

    def test_well_known_values_do_not_pull_the_others_away(self):
        def pulls(evenness):
            mean = torch.tensor([0.3, 0.3], requires_grad=True)
            scale = torch.tensor([math.log(0.001), math.log(0.1)], requires_grad=True)
            losses.laplace(mean, scale, torch.zeros(2), torch.ones(2, dtype=torch.bool),
                           evenness).backward()
            return mean.grad
        rates = [(g[0] / g[1]).item() for g in map(pulls, (0.0, 0.5, 1.0))]
        assert rates == pytest.approx([100, 10, 1], rel=1e-4)

    @pytest.mark.parametrize(('seconds', 'bin_'), [
        (0.0, 0), (0.0249, 0), (CONTACT_EDGES[3] * 0.1001, 3), (11.9, CONTACT_BINS - 1),
        (12.1, CONTACT_BINS), (math.inf, CONTACT_BINS)])
    def test_the_right_bin_costs_little(self, seconds, bin_):
        logits = torch.full((4, CONTACT_BINS + 1), -20.0)
        logits[:, bin_] = 20.0
        targets = make_targets(contact_s=seconds)
        outputs = make_outputs(contact=logits)
        assert losses.loss_of(HEADS['contact'], outputs, targets).item() < 1e-6

    @pytest.mark.parametrize('size', [1e4, -1e4])
    def test_gradients_are_finite_whatever_the_heads_say(self, size):
        outputs = make_outputs()
        leaves = {name: torch.full_like(value, size, requires_grad=True)
                  for name, value in vars(outputs).items()}
        with torch.no_grad():
            leaves['contact'][:, ::2] *= -1
        targets = make_targets(contact_s=0.3, danger=torch.ones(4),
                               danger_known=torch.ones(4, dtype=torch.bool))
        total = sum(losses.head_losses(HeadOutputs(**leaves), targets).values())
        total.backward()
        assert total.isfinite()
        assert all(leaf.grad.isfinite().all() for leaf in leaves.values())

    def test_people_call_both_dangerous_what_comes_and_what_blocks_the_way(self):
        def value(contact_bin, clearance_bin):
            certain = [torch.full((4, n + 1), -20.0) for n in (CONTACT_BINS, CLEARANCE_BINS)]
            certain[0][:, contact_bin], certain[1][:, clearance_bin] = 20.0, 20.0
            outputs = make_outputs(contact=certain[0], clearance=certain[1])
            known = torch.ones(4, dtype=torch.bool)
            return losses.danger(outputs, make_targets(danger=torch.ones(4),
                                                       danger_known=known)).item()
        assert value(0, CLEARANCE_BINS) < 1e-3            # contact at once, way free
        assert value(CONTACT_BINS, 0) < 1e-3              # nothing comes, way blocked
        assert value(CONTACT_BINS, CLEARANCE_BINS) > 10

    def test_what_is_unknown_may_be_anything(self):
        known = torch.tensor([True, False])
        assert losses.masked_mean(torch.tensor([2.0, math.nan]), known) == 2
        assert losses.masked_mean(torch.tensor([math.inf, math.nan]), known & False) == 0


class TestSchedule:
    @pytest.mark.parametrize('text', ['', '128:0.7,192', '128:0.7,192:0.4', '128:1.2,192:-0.2',
                                      'big', '1:2:3,4:5:6'])
    def test_wrong_phases_are_refused_by_name(self, text):
        with pytest.raises(ValueError, match='image_sizes'):
            Phases.parse(text, 'image_sizes')

    def test_the_rate_rises_then_falls_to_almost_nothing(self):
        values = [rate_factor(p / 100, 0.1) for p in range(101)]
        assert values.index(max(values)) == 10
        assert values[10] == pytest.approx(1)
        assert values[100] == pytest.approx(0.01)
        assert values[10:] == sorted(values[10:], reverse=True)
        assert 0 < values[0] < values[5] == pytest.approx(0.5)


class TestMasks:
    @pytest.mark.parametrize('choose', [
        lambda g: random_places(5, 20, 80, g), lambda g: block_places(5, 20, 8, 10, g)])
    def test_places_are_different_and_in_order(self, choose):
        kept = choose(torch.Generator().manual_seed(0))
        assert kept.shape == (5, 20)
        assert (kept.diff(dim=1) > 0).all()
        assert kept.min() >= 0
        assert kept.max() < 80
        assert not torch.equal(kept[0], kept[1])

    def test_blocks_hide_neighbours_together(self):
        def neighbours(kept):
            """Part of the pairs of neighbours of which both or none are seen."""
            seen = torch.zeros(len(kept), 144).scatter_(1, kept, 1.0).view(-1, 12, 12)
            return 1 - (seen[:, 1:] - seen[:, :-1]).abs().mean().item()
        random = torch.Generator().manual_seed(0)
        assert neighbours(block_places(50, 72, 12, 12, random)) > 0.75
        assert neighbours(random_places(50, 72, 144, random)) < 0.55


class TestNetwork:
    def batch(self, kept=None, hidden=None):
        clips = TinyWorld(48).clips(1, 3)
        targets = clip_targets(clips)
        return Batch(clips.frames, targets, kept, hidden)

    def test_pixels_are_normalised_as_at_run_time(self):
        from vjepa_ros.runtime.forward.base import Normalise
        frames = self.batch().frames
        expected = Normalise(frames.device)(frames[:1])[0]
        assert torch.allclose(normalised(frames)[0], expected, atol=1e-5)

    def test_targets_of_dropped_places_do_not_count(self):
        network = make_network()
        batch = self.batch(torch.tensor([[0, 4]] * 3))
        wrong = batch.targets.expansion.clone()
        wrong.view(3, 9)[:, [1, 2, 3, 5, 6, 7, 8]] = 100.0
        changed = replace(batch, targets=replace(batch.targets, expansion=wrong))
        assert network(batch)['expansion'] == network(changed)['expansion']

    def jepa_batch(self):
        kept = torch.tensor([[0, 1, 4]] * 3)
        return self.batch(kept, hidden_places(kept, 9))

    def test_labels_do_not_reach_the_encoder_under_jepa(self):
        network = make_network('jepa')
        batch = self.jepa_batch()
        target = network.features(batch.all_places()).detach()
        values = network(batch, target)
        sum(v for k, v in values.items() if k != 'jepa').backward(retain_graph=True)
        assert all(p.grad is None for p in network.encoder.parameters())
        assert any(p.grad.abs().sum() > 0 for p in network.heads.parameters())
        values['jepa'].backward()
        assert all(p.grad is not None for p in network.encoder.parameters())
        assert all(p.grad is not None for p in network.predictor.parameters())

    def test_with_nothing_hidden_the_predictor_still_takes_part(self):
        network = make_network('both')
        batch = self.batch()
        values = network(batch, network.features(batch).detach())
        assert values['jepa'].item() == 0
        sum(values.values()).backward()
        assert all(p.grad is not None for p in network.parameters())


class TestAverage:
    def test_it_moves_towards_the_parameters_and_can_stand_in_for_them(self):
        module = torch.nn.Linear(2, 1)
        start = module.weight.detach().clone()
        average = Average(module)
        with torch.no_grad():
            module.weight.add_(1.0)
        average.update(0.75)
        with average.applied():
            assert torch.allclose(module.weight, start + 0.25)
            assert torch.allclose(average.values['weight'], start + 1)
        assert torch.allclose(module.weight, start + 1)
        assert torch.allclose(average.values['weight'], start + 0.25)

    def test_a_target_encoder_follows_without_a_copy(self):
        network = make_network('jepa')
        average = Average(network)
        target = loop.target_encoder(network, average)
        before = target.encoder.norm.weight.clone()
        with torch.no_grad():
            network.encoder.norm.weight.add_(1.0)
        average.update(0.5)
        assert torch.allclose(target.encoder.norm.weight, before + 0.5)


class TestFeed:
    def test_the_same_step_is_the_same_batch(self):
        order = Order(3, 32, 0.5)
        with make_feed() as one, make_feed(workers=2) as other:
            for step in range(3):
                other.batch(replace(order, step=step))
            assert same(one.batch(order), other.batch(order))
            assert not same(one.batch(order), other.batch(replace(order, step=4)))

    def test_places_are_kept_or_hidden_as_wanted(self):
        with make_feed() as plain, make_feed(blocks=True) as blocks:
            assert plain.batch(Order(0, 64, 1.0)).kept is None
            thinned = plain.batch(Order(0, 64, 0.25))
            assert thinned.kept.shape == (8, 4)
            assert thinned.hidden is None
            assert blocks.batch(Order(0, 64, 0.25)).hidden.shape == (8, 12)

    def test_a_batch_with_reuse_does_not_depend_on_the_past(self):
        order = Order(REUSE_GAP + 1, 32, 0.5)
        with make_feed(reuse=2) as fresh, make_feed(reuse=2) as running:
            for step in range(order.step):
                running.batch(replace(order, step=step))
            assert same(fresh.batch(order), running.batch(order))

    def test_half_of_the_clips_are_mirrored_with_their_targets(self):
        world = TinyWorld(32)
        with WorldFeed(lambda size: world, 64, Draw(0, 0, CPU)) as feed:
            batch = feed.batch(Order(0, 32, 1.0))
        plain = world.film(world.sample(derive(0, 'scenes', 0, 0), 64))
        mirrored = (batch.frames == plain.frames.flip(3)).flatten(1).all(1)
        assert ((batch.frames == plain.frames).flatten(1).all(1) != mirrored).all()
        assert 16 < mirrored.sum() < 48
        half = batch.targets.moving[mirrored]
        assert (half[:, :, 0] == 0).all()          # what moved on the left is on the right now
        assert half[:, :, 1].any()

    def test_features_of_a_frozen_encoder_are_kept(self):
        network = make_network()
        network.encoder.requires_grad_(False)
        told = []
        with make_feed(count=4) as feed:
            cached = CachedFeed(feed, network, 10, 32, 4, Draw(0, 0, CPU),
                                lambda *n: told.append(n))
            first = feed.batch(Order(0, 32, 1.0))
        assert len(cached) == 12
        assert told[-1] == (12, 12)
        batch = cached.batch(Order(5, 32, 1.0))
        assert batch.features.shape == (4, 2, 2, 2, TINY.dim)
        known = network.features(first)
        match = (cached._features[:4].float() - known).abs().max()
        assert match < 1e-2
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
    trainer = loop.Trainer(config, network, ALONE)
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

    @pytest.mark.parametrize('objective', ['supervised', 'both'])
    def test_muon_takes_the_matrices_of_the_blocks_and_adamw_the_rest(self, objective):
        network = make_network(objective, auxiliary=True)
        state = make_optimizer(network, make_config(optimizer='muon')).param_groups
        inner = {id(p) for g in state if 'momentum' in g for p in g['params']}
        outer = [id(p) for g in state if 'betas' in g for p in g['params']]
        assert len(inner) + len(outer) == len(list(network.parameters()))
        assert inner.isdisjoint(outer)
        names = {n for n, p in network.named_parameters() if id(p) in inner}
        assert {n.split('.')[0] for n in names} == (
            {'encoder'} if objective == 'supervised' else {'encoder', 'predictor'})
        assert {n.split('.', 3)[3] for n in names} == {
            'attn.qkv.weight', 'attn.proj.weight', 'mlp.fc1.weight', 'mlp.fc2.weight'}
        taken = [(p, parts) for g in state if 'momentum' in g
                 for p, parts in zip(g['params'], g['parts'], strict=True)]
        fused = {id(p) for n, p in network.named_parameters() if n.endswith('attn.qkv.weight')}
        assert [parts for _, parts in taken] == [3 if id(p) in fused else 1 for p, _ in taken]
        assert {parts for _, parts in taken} == {1, 3}
        assert all('betas' in g for g in make_optimizer(network, make_config()).param_groups)

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

    def test_a_run_by_time_ends_annealed(self, monkeypatch):
        now = [0.0]

        def clock():
            now[0] += 0.1
            return now[0]
        monkeypatch.setattr(loop.time, 'monotonic', clock)
        trainer, told = run(make_config(clips=0, seconds=20.0, progress_s=2.0), FixedFeed())
        assert trainer.budget.spent
        assert told[-1].lr < 0.05 * max(t.lr for t in told)
        assert told[-1].progress == 1

    def test_a_frozen_encoder_stays_as_it_is(self):
        network = make_network()
        network.encoder.requires_grad_(False)
        before = {n: p.clone() for n, p in network.named_parameters()}
        run(make_config(clips=24), FixedFeed(), network)
        for name, parameter in network.named_parameters():
            assert torch.equal(parameter, before[name]) == name.startswith('encoder.'), name


class TestJudging:
    def synthetic(self, sharpness, count=4000):
        """Answers whose logits are `sharpness` times too bold, about clips 0.1 s per frame."""
        random = torch.Generator().manual_seed(0)
        true = torch.randn(count, CONTACT_BINS + 1, generator=random)
        drawn = torch.distributions.Categorical(logits=true)
        torch.manual_seed(0)
        edges = torch.tensor([*CONTACT_EDGES, math.inf])
        bins = drawn.sample()
        contact = 0.1 * (edges[bins] * edges[bins + 1]).sqrt()
        free = torch.randn(count, CLEARANCE_BINS + 1, generator=random)
        edges = torch.tensor([*CLEARANCE_EDGES, math.inf])
        bins = torch.distributions.Categorical(logits=free).sample()
        clearance = (edges[bins] * edges[bins + 1]).sqrt()
        patches = torch.randn(count, 1, 1, generator=random)
        labels = (torch.rand(count, 1, 1, generator=random) < patches.sigmoid()).float()
        error = torch.distributions.Laplace(0.0, 0.02).sample((count, 1, 1))
        known = torch.ones(count, 1, 1, dtype=torch.bool)
        every = torch.ones(count, dtype=torch.bool)
        targets = Targets(
            interval_s=torch.full((count,), 0.1), expansion=error, moving=labels, course=labels,
            expansion_known=known, moving_known=known, course_known=known,
            contact_s=contact, contact_known=every,
            hazard=(contact[:, None] <= torch.tensor(HORIZONS_S)).float(),
            hazard_known=every[:, None].expand(-1, 5),
            clearance_m=clearance, clearance_known=every,
            danger=torch.zeros(count), danger_s=torch.ones(count), danger_known=~every,
            enter_s=error, log_depth=error, flow_x=error, flow_y=error, scene_known=~known)
        outputs = HeadOutputs(expansion=torch.zeros(count, 1, 1),
                              log_scale=torch.full((count, 1, 1), math.log(0.02 / sharpness)),
                              moving=sharpness * patches, course=sharpness * patches + 1,
                              contact=sharpness * true, clearance=sharpness * free)
        return Answers(outputs, targets)

    def test_calibration_undoes_boldness(self):
        answers = self.synthetic(3.0)
        found = calibrate(answers)
        assert found['contact'][0] == pytest.approx(3.0, rel=0.1)
        assert found['moving'] == pytest.approx((1 / 3, 0.0), abs=0.08)
        assert found['course'] == pytest.approx((1 / 3, -1 / 3), abs=0.08)
        assert found['expansion'][0] == pytest.approx(3.0, rel=0.1)
        assert found['clearance'][0] == pytest.approx(3.0, rel=0.1)
        before = figures(answers)['expected_calibration_error']
        after = figures(answers, found)['expected_calibration_error']
        assert after < 0.25 * before
        assert after < 0.02

    def test_figures_of_the_truth_itself_are_perfect(self):
        targets = make_targets(4, 2, interval_s=0.1)
        contact = torch.tensor([0.4, 1.2, 2.6, math.inf])
        moving = torch.eye(2).expand(4, 2, 2)
        expansion = torch.linspace(-0.1, 0.2, 16).view(4, 2, 2)
        targets = replace(targets, contact_s=contact, expansion=expansion, moving=moving,
                          hazard=(contact[:, None] <= torch.tensor(HORIZONS_S)).float())
        logits = torch.full((4, CONTACT_BINS + 1), -30.0)
        logits[torch.arange(4), torch.bucketize(contact / 0.1,
                                                torch.tensor(CONTACT_EDGES[1:]))] = 30.0
        outputs = make_outputs(expansion=expansion, moving=20 * moving - 10, contact=logits)
        values = figures(Answers(outputs, targets))
        brief = headline(values)
        assert brief['auc_3s'] == brief['auc_1s'] == brief['moving_auc'] == 1
        assert brief['looming_r2'] == pytest.approx(1)
        assert brief['ttc_error'] < 0.2            # half of a bin
        assert values['clips'] == 4

    def test_answers_come_in_order_and_leave_training_on(self):
        network = make_network().train()
        clips = [TinyWorld(32).clips(seed, 3) for seed in (1, 2)]
        batches = [Batch(c.frames, clip_targets(c))
                   for c in clips]
        answers = answer(network, batches)
        assert len(answers) == 6
        assert torch.equal(answers.targets.contact_s, joined([b.targets for b in batches])
                           .contact_s)
        alone = network.answers(network.features(batches[1]))
        assert torch.allclose(answers.outputs.contact[3:], alone.contact, atol=1e-5)
        assert network.training


class TestState:
    def test_no_state_and_damaged_state_are_told_apart(self, tmp_path):
        with pytest.raises(StateError, match='no run to continue'):
            read_state(tmp_path)
        (tmp_path / 'state.pt').write_bytes(b'nothing')
        with pytest.raises(StateError, match='cannot be read'):
            read_state(tmp_path)
        torch.save({'format': 99}, tmp_path / 'state.pt')
        with pytest.raises(StateError, match='format'):
            read_state(tmp_path)
        torch.save({'format': 1, 'step': 3}, tmp_path / 'state.pt')
        with pytest.raises(StateError, match=r'damaged.*remove it to begin anew'):
            read_state(tmp_path)
        with zipfile.ZipFile(tmp_path / 'state.pt', 'w') as archive:
            archive.writestr('state/data.pkl', b'\x80\x02h\x07.')
            archive.writestr('state/version', b'3\n')
        with pytest.raises(StateError, match=r'cannot be read: KeyError'):
            read_state(tmp_path)

    def test_options_that_decide_the_result_may_not_change(self):
        saved = make_config()
        assert differences(saved, make_config(device='cpu', stop_after=5.0)) == []
        assert differences(saved, make_config(lr=0.1)) == ['lr: 0.002 then, 0.1 now']

    @pytest.mark.parametrize(('changed', 'words'), [
        ({'clips': 0}, 'clips'), ({'seconds': 5.0}, 'seconds'), ({'batch': 0}, 'batch'),
        ({'num_frames': 5}, 'num_frames'), ({'image_sizes': '40'}, 'multiples of 16'),
        ({'tokens_kept': '0'}, 'tokens_kept'), ({'objective': 'guess'}, 'objective'),
        ({'model_size': 'vast'}, 'vast'), ({'lora_rank': 4}, 'heads_only'),
        ({'heads_only': True}, 'weights'), ({'objective': 'jepa'}, 'tokens_kept'),
        ({'heads_only': True, 'objective': 'both'}, 'heads_only'),
        ({'heads_only': True, 'optimizer': 'muon', 'weights': 'x'}, 'muon.*heads_only'),
        ({'optimizer': 'sgd'}, 'optimizer'),
        ({'cached_clips': 5}, 'cached_clips')])
    def test_wrong_options_are_refused_by_name(self, changed, words):
        with pytest.raises(ValueError, match=words):
            make_config(**changed)
