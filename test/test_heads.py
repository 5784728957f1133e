# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Heads compute what they say and start sensibly; one that is registered is trained and run."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from bundles import meta
from sessions import clips_of, lively_heads
from tiny_world import TinyWorld

from vjepa_ros.lab.training import losses
from vjepa_ros.lab.training.network import Batch, Network
from vjepa_ros.lab.training.validation import answer, calibrate
from vjepa_ros.lab.world.targets import clip_targets
from vjepa_ros.model.checkpoint.load import load_model, save_bundle
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.head_specs import (
    Binary,
    Binned,
    CONTACT_BINS,
    CONTACT_EDGES,
    Calibration,
    HEADS,
    HeadSpec,
    Laplace,
    LogBins,
    contact_bin,
    contact_cdf,
    expected_log_contact,
)
from vjepa_ros.model.heads import Heads
from vjepa_ros.model.variants import VARIANTS
from vjepa_ros.runtime.model import Model, ModelConfig
from vjepa_ros.runtime.onnx import ClipGraph

pytestmark = pytest.mark.usefixtures('one_thread')
DIM = 48


def features(seed=1, shape=(2, 3, 4, 5, DIM)):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_untrained_heads_see_nothing_expand_and_no_time_preferred():
    out = Heads.for_variant(VARIANTS['tiny'])(features(shape=(2, 3, 4, 5, 192)))
    assert (out.expansion == 0).all()
    torch.testing.assert_close(out.log_scale.exp(), torch.full((2, 4, 5), 0.05), rtol=0.01, atol=0)
    assert (out.moving.sigmoid() < 0.2).all() and (out.course.sigmoid() < 0.2).all()
    torch.testing.assert_close(out.contact.softmax(-1), torch.full((2, 21), 1 / 21))
    torch.testing.assert_close(out.clearance.softmax(-1), torch.full((2, 13), 1 / 13))


def test_what_follows_from_the_weights_alone_is_computed_once():
    heads, seen = lively_heads(), features()
    with torch.no_grad():
        exact = vars(heads(seen))
        names = set(heads.state_dict())
        fixed = vars(heads.fix()(seen))
        assert set(heads.state_dict()) == names         # a file would have nothing more
        for pooler in (heads.pooler, heads.patch_pooler):
            pooler.cross_attention_block.xattn.q.weight.fill_(math.nan)     # is not asked again
        again = vars(heads(seen))
    for name, wanted in exact.items():
        assert torch.equal(fixed[name], wanted) and torch.equal(again[name], wanted)


def test_dense_heads_look_at_their_own_patch_of_the_newest_two_tubelets():
    heads, x = lively_heads(DIM), features()
    before = heads(x)
    for tubelet, seen in ((0, False), (1, True), (2, True)):
        moved = x.clone()
        moved[:, tubelet, 3, 4] += torch.linspace(-1, 1, DIM)
        after = heads(moved)
        for name in ('expansion', 'log_scale', 'moving', 'course'):
            changed = getattr(after, name) != getattr(before, name)
            assert changed[:, 3, 4].all() == seen
            changed[:, 3, 4] = False
            assert not changed.any()
        assert not torch.equal(after.contact, before.contact)  # pooling sees all of them


def test_a_stated_scale_never_reaches_zero():
    heads = lively_heads(DIM)
    heads.dense[-1].bias.data[1] = -80.0
    assert heads(features()).log_scale.exp().min().item() == pytest.approx(2e-4, rel=1e-3)


def test_heads_compute_in_float32_where_training_uses_half():
    heads, x = lively_heads(DIM), features()
    exact = heads(x)
    with torch.autocast('cpu', torch.bfloat16):
        same = heads(x)
    for name, value in vars(exact).items():
        assert torch.equal(getattr(same, name), value), name
    assert heads(x.half()).expansion.dtype == torch.float32


def test_times_fall_into_the_bin_whose_edges_enclose_them():
    between = [math.sqrt(a * b) for a, b in pairwise(CONTACT_EDGES)]
    assert contact_bin(torch.tensor(between)).tolist() == list(range(CONTACT_BINS))
    outside = torch.tensor([[0.0, 0.1], [130.0, math.inf]])
    assert contact_bin(outside).tolist() == [[0, 0], [20, 20]]


def test_the_cumulative_probability_never_passes_one():
    # Sure logits of a long training run; the plain sum is 1 + 1e-7 for some of them.
    logits = 12 * torch.randn(20_000, 21, generator=torch.Generator().manual_seed(3))
    assert logits.softmax(-1)[:, :-1].cumsum(-1).max() > 1
    assert contact_cdf(logits, torch.full((20_000,), 200.0)).max() <= 1


def test_the_expected_time_is_that_of_the_likely_bin_whatever_the_chance_of_none():
    logits = torch.full((2, 21), -30.0)
    logits[:, 7] = 0.0
    logits[1, 20] = 10.0
    middle = 0.5 * (math.log(CONTACT_EDGES[7]) + math.log(CONTACT_EDGES[8]))
    assert expected_log_contact(logits).tolist() == pytest.approx([middle, middle], abs=1e-4)


CALIBRATION = Calibration({'contact': (2.0, 0.7), 'moving': (1.5, -0.25), 'course': (0.5, 1.0),
                           'expansion': (3.0,), 'clearance': (0.8, -0.4)})


def test_calibration_changes_what_it_names_and_nothing_else():
    raw = lively_heads(DIM)(features())
    out = CALIBRATION.apply(raw)
    assert torch.equal(out.expansion, raw.expansion)
    torch.testing.assert_close(out.log_scale.exp(), 3.0 * raw.log_scale.exp())
    torch.testing.assert_close(out.moving, 1.5 * raw.moving - 0.25)
    torch.testing.assert_close(out.course, 0.5 * raw.course + 1.0)
    torch.testing.assert_close(out.contact[:, :-1], raw.contact[:, :-1] / 2)
    torch.testing.assert_close(out.contact[:, -1], raw.contact[:, -1] / 2 + 0.7)
    torch.testing.assert_close(out.clearance[:, :-1], raw.clearance[:, :-1] / 0.8)
    torch.testing.assert_close(out.clearance[:, -1], raw.clearance[:, -1] / 0.8 - 0.4)


@pytest.mark.parametrize('change', [
    {'contact': (0.0, 0.0)}, {'contact': (math.nan, 0.0)}, {'moving': (-1.0, 0.0)},
    {'course': (1.0, math.inf)}, {'expansion': (-2.0,)}, {'contact': (1.0, math.nan)},
    {'clearance': (0.0, 0.0)}, {'clearance': (1.0, math.inf)}, {'contact': (1.0,)}])
def test_an_impossible_calibration_is_refused(change):
    with pytest.raises(ValueError, match='calibration'):
        Calibration(change)


TINY = VARIANTS['tiny']
FORMAT_1 = tuple(HEADS)
NEW = (
    HeadSpec('depth', Laplace(0.5, 1e-3, 'depth_log_scale', 'depth_scale'), False, 'log_depth',
             'scene_known', ('far',)),
    HeadSpec('alarm', Binary(-1.0), True, 'danger', 'danger_known'),
    HeadSpec('enter', Binned(LogBins(0.5, 50.0, 6), per_interval=True), False, 'enter_s',
             'scene_known'))
SHAPES = {'depth': (4, 4), 'depth_scale': (4, 4), 'alarm': (), 'enter': (4, 4, 7)}
CLIP = clips_of(1, 0, (4, 64, 64, 3))[0]


@pytest.fixture
def more_heads(monkeypatch):
    """Three more heads, one of each kind, one of them with a loss of its own."""
    for spec in NEW:
        monkeypatch.setitem(HEADS, spec.name, spec)
    monkeypatch.setitem(losses.LOSSES, 'far', lambda outputs, targets: losses.squared(
        outputs.depth, targets.log_depth, targets.scene_known))


def network() -> Network:
    encoder = Encoder(TINY)
    encoder.init_random(0)
    return Network(encoder.requires_grad_(False), Heads.for_variant(TINY, 1))


def batch(seed: int = 1) -> Batch:
    clips = TinyWorld(32).clips(seed, 8)
    targets = clip_targets(clips)
    known = torch.ones(8, dtype=torch.bool)
    return Batch(clips.frames, replace(targets, danger=(torch.arange(8) % 2).float(),
                                       danger_known=known))


def saved(path, trained: Network, calibration: Calibration) -> None:
    save_bundle(path, meta(calibration=calibration), encoder=trained.encoder.state_dict(),
                heads=trained.heads.state_dict())


def test_new_heads_are_trained_calibrated_saved_loaded_and_run(more_heads, tmp_path):
    made = network()
    optimizer = torch.optim.AdamW(made.heads.parameters(), 1e-3)
    before = made(batch())
    assert {'depth', 'far', 'alarm', 'enter'} < set(before)
    assert before['enter'].item() == pytest.approx(math.log(7))
    sum(before.values()).backward()
    for spec in NEW:
        assert made.heads.get_submodule(spec.name).weight.grad.abs().sum() > 0, spec.name
    optimizer.step()
    after = made(batch())
    for name in ('depth', 'far', 'alarm', 'enter'):
        assert after[name] < before[name], name

    calibration = calibrate(answer(made, [batch(2)]))
    assert calibration['depth'] != (1.0,) and calibration['alarm'] != (1.0, 0.0)
    path = tmp_path / 'more.safetensors'
    saved(path, made, calibration)
    encoder, heads, report = load_model('tiny', weights=path)
    assert heads.specs == tuple(HEADS.values())
    assert report.heads.meta.calibration['depth'] == calibration['depth']

    engine = Model.load(ModelConfig(num_frames=4, image_size=64, device='cpu',
                                      precision='fp32', weights=str(path)))
    try:
        arrays = vars(engine.run([CLIP])[0].heads)
    finally:
        engine.close()
    assert {name: arrays[name].shape for name in SHAPES} == SHAPES
    graph = ClipGraph(encoder, heads, report.heads.meta.calibration).eval()
    with torch.inference_mode():
        exported = dict(zip(graph.names, graph(torch.from_numpy(CLIP)[None]), strict=True))
    assert tuple(exported) == ('features', *arrays)
    for name, array in arrays.items():
        np.testing.assert_allclose(exported[name][0], array, rtol=1e-3, atol=1e-5, err_msg=name)


def test_a_file_without_the_new_heads_loads_and_training_adds_them(tmp_path, monkeypatch):
    old = network()
    path = tmp_path / 'old.safetensors'
    saved(path, old, Calibration())
    kept = {name: value.half().float() for name, value in old.heads.state_dict().items()}
    for spec in NEW:
        monkeypatch.setitem(HEADS, spec.name, spec)
    _, heads, report = load_model('tiny', weights=path)
    assert tuple(spec.name for spec in heads.specs) == FORMAT_1
    assert tuple(report.heads.meta.calibration.to_json()) == tuple(
        spec for spec in HEADS if spec in FORMAT_1)
    x = features(shape=(1, 2, 2, 2, TINY.dim))
    assert not hasattr(heads(x), 'depth')

    before = torch.get_rng_state()
    heads.complete()
    assert torch.equal(before, torch.get_rng_state())
    for name, value in kept.items():
        assert torch.equal(heads.state_dict()[name], value), name
    assert heads.specs == tuple(HEADS.values())
    assert (heads(x).depth == 0).all()
    assert heads(x).alarm.sigmoid().item() == pytest.approx(1 / (1 + math.e))


def test_a_file_with_heads_that_are_not_registered_is_refused_in_words(more_heads, tmp_path,
                                                                       monkeypatch):
    path = tmp_path / 'more.safetensors'
    saved(path, network(), Calibration())
    monkeypatch.undo()
    with pytest.raises(ValueError, match='train the heads again'):
        load_model('tiny', weights=path)
