# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""A head that is registered is trained, stored, run and exported, by its entry alone."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from bundles import meta
from tiny_world import TinyWorld

from vjepa_ros.lab.training import losses
from vjepa_ros.lab.training.network import Batch, Network
from vjepa_ros.lab.training.validation import answer, calibrate
from vjepa_ros.lab.world.targets import clip_targets
from vjepa_ros.model.checkpoint.load import load_model, save_bundle
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.head_specs import (
    HEADS,
    Binary,
    Binned,
    Calibration,
    HeadSpec,
    Laplace,
    LogBins,
)
from vjepa_ros.model.heads import Heads
from vjepa_ros.model.variants import VARIANTS
from vjepa_ros.runtime.engine import Engine, EngineConfig
from vjepa_ros.runtime.onnx import Graph

pytestmark = pytest.mark.usefixtures('one_thread')
TINY = VARIANTS['tiny']
FORMAT_1 = tuple(HEADS)
NEW = (
    HeadSpec('depth', Laplace(0.5, 1e-3, 'depth_log_scale', 'depth_scale'), False, 'log_depth',
             'scene_known', ('far',)),
    HeadSpec('alarm', Binary(-1.0), True, 'danger', 'danger_known'),
    HeadSpec('enter', Binned(LogBins(0.5, 50.0, 6), per_interval=True), False, 'enter_s',
             'scene_known'))
SHAPES = {'depth': (4, 4), 'depth_scale': (4, 4), 'alarm': (), 'enter': (4, 4, 7)}
CLIP = np.random.default_rng(0).integers(0, 256, (4, 64, 64, 3), dtype=np.uint8)


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

    engine = Engine.load(EngineConfig(num_frames=4, image_size=64, device='cpu',
                                      precision='fp32', weights=str(path)))
    try:
        arrays = vars(engine.run([CLIP])[0].heads)
    finally:
        engine.close()
    assert {name: arrays[name].shape for name in SHAPES} == SHAPES
    graph = Graph(encoder, heads, report.heads.meta.calibration).eval()
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
    features = torch.randn(1, 2, 2, 2, TINY.dim)
    assert not hasattr(heads(features), 'depth')

    before = torch.get_rng_state()
    heads.complete()
    assert torch.equal(before, torch.get_rng_state())
    for name, value in kept.items():
        assert torch.equal(heads.state_dict()[name], value), name
    assert heads.specs == tuple(HEADS.values())
    assert (heads(features).depth == 0).all()
    assert heads(features).alarm.sigmoid().item() == pytest.approx(1 / (1 + math.e))


def test_a_file_with_heads_that_are_not_registered_is_refused_in_words(more_heads, tmp_path,
                                                                       monkeypatch):
    path = tmp_path / 'more.safetensors'
    saved(path, network(), Calibration())
    monkeypatch.undo()
    with pytest.raises(ValueError, match='train the heads again'):
        load_model('tiny', weights=path)
