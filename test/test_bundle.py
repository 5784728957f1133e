# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""A weights file of the package is used when it fits, and says clearly why when it does not."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from vjepa_ros.model.checkpoint import files
from vjepa_ros.model.checkpoint.load import (
    WeightsError,
    load_encoder,
    load_model,
    read_meta,
    save_bundle,
)
from vjepa_ros.model.checkpoint.metadata import BundleMeta
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.head_specs import (
    Calibration,
)
from vjepa_ros.model.heads import Heads
from vjepa_ros.model.lora import adapter_state, add_adapters
from vjepa_ros.model.variants import VARIANTS, Variant
from vjepa_ros.runtime.engine import Engine, EngineConfig
from vjepa_ros.runtime.onnx import Graph

pytestmark = pytest.mark.usefixtures('one_thread')
REAL_FOLDER = files.WEIGHTS_FOLDER  # the tests look elsewhere
SIZE = Variant('test', 48, 2, 1, 96)
META = BundleMeta(
    'test', '2.0', 4, 64, 'squash', (1 / 30, 0.5), {'half_width': 0.4, 'height': 1.2}, (1, 2),
    Calibration({'contact': (1.3, -0.2), 'moving': (0.9, 0.1),
                 'course': (1.1, -0.3), 'expansion': (1.7,), 'clearance': (0.8, 0.6)}),
    training={'seed': 5}, metrics={'auc': {'3s': 0.97, '1s': None}})


@pytest.fixture(autouse=True)
def nothing_bundled(tmp_path, monkeypatch):
    """A folder of the tests instead of the weights of the package."""
    folder = tmp_path / 'bundled'
    folder.mkdir()
    monkeypatch.setattr(files, 'WEIGHTS_FOLDER', folder)
    return folder


def encoder_state(variant=SIZE, seed=7):
    encoder = Encoder(variant)
    encoder.init_random(seed)
    return encoder.state_dict()


def heads_state(variant=SIZE, seed=3):
    heads = Heads.for_variant(variant, seed)
    generator = torch.Generator().manual_seed(seed)
    for layer in (heads.dense[-1], heads.contact, heads.clearance):
        layer.weight.data.normal_(std=0.1, generator=generator)
    return heads.state_dict()


def saved(path, meta=META, variant=SIZE, **parts):
    parts = parts or {'encoder': encoder_state(variant), 'heads': heads_state(variant)}
    save_bundle(path, replace(meta, variant=variant.name), **parts)
    return path


def halved(state):
    return {key: value.half().float() for key, value in state.items()}


def with_metadata(path, change):
    """Rewrite the description of a file."""
    with safe_open(path, framework='pt') as file:
        meta = json.loads(file.metadata()['vjepa_ros'])
    change(meta)
    save_file(load_file(path), path, metadata={'vjepa_ros': json.dumps(meta)})
    return path


# -- the file -------------------------------------------------------------------------------------

def test_encoder_and_heads_come_back_as_saved_in_half_precision(tmp_path):
    path = saved(tmp_path / 'a.safetensors')
    encoder, heads, report = load_model(SIZE, weights=path)
    for built, state in ((encoder, encoder_state()), (heads, heads_state())):
        for key, value in halved(state).items():
            assert torch.equal(built.state_dict()[key], value), key
    assert {p.dtype for p in [*encoder.parameters(), *heads.parameters()]} == {torch.float32}
    assert not any(p.requires_grad for p in [*encoder.parameters(), *heads.parameters()])
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert (report.trained, report.sha256, report.dtype) == (True, digest, 'float16')
    assert (report.heads.path, report.heads.sha256) == (str(path), digest)
    assert not report.heads.adapted


def test_the_description_comes_back_as_saved(tmp_path):
    path = saved(tmp_path / 'a.safetensors')
    meta = read_meta(path)
    assert meta.has_encoder
    assert len(meta.backbone_sha256) == 64
    assert replace(meta, has_encoder=False, backbone_sha256='') == META


def test_a_file_is_replaced_completely_or_not_at_all(tmp_path):
    path = saved(tmp_path / 'a.safetensors')
    before = path.read_bytes()
    with pytest.raises(ValueError, match='float16 cannot'):
        saved(path, encoder=encoder_state() | {'norm.bias': torch.full((48,), 1e6)})
    assert path.read_bytes() == before
    saved(path, encoder=encoder_state(seed=1))
    assert path.read_bytes() != before
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ['a.safetensors']


@pytest.mark.parametrize(('parts', 'problem'), [
    ({'adapters': {'blocks.0.attn.qkv.up': torch.zeros(2)}}, 'neither an encoder nor heads'),
    ({'heads': heads_state()}, 'hash of the file of their encoder'),
    ({'encoder': encoder_state(), 'adapters': {'a': torch.zeros(1)}}, 'merged')])
def test_what_makes_no_file_is_refused(tmp_path, parts, problem):
    with pytest.raises(ValueError, match=problem):
        save_bundle(tmp_path / 'a.safetensors', META, **parts)


@pytest.mark.parametrize(('change', 'problem'), [
    (lambda m: m.update(format=2), 'format is 2.*reads format 1'),
    (lambda m: m.pop('interval_s'), "lacks 'interval_s'"),
    (lambda m: m.update(num_frames='many'), 'many'),
    (lambda m: m.update(robot=None), 'damaged'),
    (lambda m: m['contact_edges'].pop(), 'contact_edges'),
    (lambda m: m['clearance_edges'].reverse(), 'clearance_edges'),
    (lambda m: m['calibration']['contact'].update(temperature=0), 'contact temperature is 0')])
def test_a_description_that_cannot_be_used_is_refused(tmp_path, change, problem):
    path = with_metadata(saved(tmp_path / 'a.safetensors'), change)
    with pytest.raises(WeightsError,
                       match=rf"weights file '.*a\.safetensors'.*{problem}.*`weights`"):
        load_model(SIZE, weights=path)


def test_tensors_that_were_exchanged_are_noticed(tmp_path):
    path = saved(tmp_path / 'a.safetensors')
    with safe_open(path, framework='pt') as file:
        metadata = file.metadata()
    tensors = load_file(path)
    tensors['encoder.norm.bias'] += 0.5
    save_file(tensors, path, metadata=metadata)
    with pytest.raises(WeightsError, match='is damaged'):
        load_encoder(SIZE, weights=path)


# -- weights of the package -----------------------------------------------------------------------

def test_the_file_of_the_package_is_used_when_nothing_is_set(nothing_bundled):
    path = saved(nothing_bundled / 'test.safetensors')
    encoder, heads, report = load_model(SIZE)
    assert report.trained and report.path == str(path)
    assert torch.equal(encoder.norm.weight, encoder_state()['norm.weight'])
    assert heads is not None and report.heads.meta.training == {'seed': 5}


# -- heads in a file of their own -----------------------------------------------------------------

@pytest.fixture
def backbone(tmp_path):
    """Somebody's encoder, as another program wrote it."""
    path = tmp_path / 'backbone.safetensors'
    save_file(encoder_state(), path)
    return path


def heads_file(tmp_path, backbone, meta=META, **parts):
    meta = replace(meta, backbone_sha256=files.file_sha256(backbone))
    save_bundle(tmp_path / 'heads.safetensors', meta, **({'heads': heads_state()} | parts))
    return tmp_path / 'heads.safetensors'


def test_heads_are_loaded_onto_the_encoder_they_were_trained_on(tmp_path, backbone):
    path = heads_file(tmp_path, backbone)
    encoder, heads, report = load_model(SIZE, weights=backbone, heads=path)
    assert report.path == str(backbone) and report.heads.path == str(path)
    assert not report.heads.meta.has_encoder
    assert torch.equal(heads.norm.weight, heads_state()['norm.weight'])
    assert torch.equal(encoder.patch_embed.proj.weight,
                       encoder_state()['patch_embed.proj.weight'])


def test_adapters_change_the_encoder_as_they_did_in_training(tmp_path, backbone):
    trained, _ = load_encoder(SIZE, weights=backbone)
    generator = torch.Generator().manual_seed(0)
    for parameter in add_adapters(trained, 2):
        parameter.data.copy_(0.2 * torch.randn(parameter.shape, generator=generator).half())
    path = heads_file(tmp_path, backbone, adapters=adapter_state(trained))
    encoder, _, report = load_model(SIZE, weights=backbone, heads=path)
    clip = torch.randn(1, 3, 4, 32, 32, generator=generator)
    with torch.inference_mode():
        torch.testing.assert_close(encoder(clip), trained(clip), rtol=1e-4, atol=1e-4)
    assert report.heads.adapted


@pytest.mark.parametrize(('meta', 'use', 'problem'), [
    ({}, {'weights': 'other', 'heads': 'heads'}, r'heads\.safe.*other weights.*other\.safe'),
    ({}, {'weights': 'random', 'heads': 'heads'}, 'trained on other weights.*random'),
    ({'variant': 'large'}, {'weights': 'backbone', 'heads': 'heads'},
     r"model size 'large'.*`model_size` is 'test'.*`model_size` to large"),
    ({}, {'weights': 'backbone', 'heads': 'backbone'}, 'has no heads.*`heads`'),
    ({}, {'weights': 'heads', 'heads': ''}, 'heads without an encoder; set `heads`'),
    ({}, {'weights': 'backbone', 'heads': 'none'}, 'none.*does not exist; set `heads`')])
def test_heads_that_do_not_belong_to_the_weights_are_refused(tmp_path, backbone, meta, use,
                                                             problem):
    heads_file(tmp_path, backbone, replace(META, **meta))
    save_file(encoder_state(seed=8), tmp_path / 'other.safetensors')
    given = {key: value if value in ('', 'random') else tmp_path / f'{value}.safetensors'
             for key, value in use.items()}
    with pytest.raises(WeightsError, match=problem):
        load_model(SIZE, allow_random_weights=True, **given)


# -- in the engine --------------------------------------------------------------------------------

CLIP = np.random.default_rng(0).integers(0, 256, (4, 64, 64, 3), dtype=np.uint8)
CONFIG = EngineConfig(num_frames=4, image_size=64, device='cpu', precision='fp32')


def test_an_engine_runs_the_bundled_model_and_calibrates_once(nothing_bundled):
    saved(nothing_bundled / 'tiny.safetensors', variant=VARIANTS['tiny'])
    encoder, heads, report = load_model('tiny')
    graph = Graph(encoder, heads, report.heads.meta.calibration).eval()
    with torch.inference_mode():
        features, *expected = graph(torch.from_numpy(CLIP)[None])
    engine = Engine.load(CONFIG)
    try:
        output = engine.run([CLIP])[0]
    finally:
        engine.close()
    np.testing.assert_allclose(output.features, features[0], rtol=1e-3, atol=1e-4)
    for name, array in zip(graph.names[1:], expected, strict=True):
        np.testing.assert_allclose(getattr(output.heads, name), array[0], rtol=1e-3, atol=1e-5,
                                   err_msg=name)
