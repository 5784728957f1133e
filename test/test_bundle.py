# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""A weights file of the package is used when it fits, and says clearly why when it does not."""

import hashlib
import json
from dataclasses import replace

import pytest
import torch
from checkpoints import encoder_state
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from sessions import SIZE, lively_heads

from vjepa_ros.model.checkpoint import files
from vjepa_ros.model.checkpoint.layouts import BundleMeta
from vjepa_ros.model.checkpoint.load import (
    WeightsError,
    load_model,
    read_meta,
    save_bundle,
)
from vjepa_ros.model.head_specs import Calibration

pytestmark = pytest.mark.usefixtures('one_thread')
META = BundleMeta(
    'test', '2.0', 4, 64, 'squash', (1 / 30, 0.5), {'half_width': 0.4, 'height': 1.2}, (1, 2),
    Calibration({'contact': (1.3, -0.2), 'moving': (0.9, 0.1),
                 'course': (1.1, -0.3), 'expansion': (1.7,), 'clearance': (0.8, 0.6)}),
    training={'seed': 5}, metrics={'auc': {'3s': 0.97, '1s': None}})


ENCODER = encoder_state(variant=SIZE)
HEADS = lively_heads().state_dict()


def saved(path, meta=META, **parts):
    save_bundle(path, meta, **(parts or {'encoder': ENCODER, 'heads': HEADS}))
    return path


def test_encoder_and_heads_come_back_as_saved_in_half_precision(tmp_path):
    path = saved(tmp_path / 'a.safetensors')
    encoder, heads, report = load_model(SIZE, weights=path)
    for built, state in ((encoder, ENCODER), (heads, HEADS)):
        for key, value in state.items():
            assert torch.equal(built.state_dict()[key], value.half().float()), key
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert (report.trained, report.sha256, report.dtype) == (True, digest, 'float16')
    assert (report.heads.path, report.heads.sha256) == (str(path), digest)
    meta = read_meta(path)
    assert meta.has_encoder and len(meta.backbone_sha256) == 64
    assert replace(meta, has_encoder=False, backbone_sha256='') == META


def test_a_file_is_replaced_completely_or_not_at_all(tmp_path):
    path = saved(tmp_path / 'a.safetensors')
    before = path.read_bytes()
    with pytest.raises(ValueError, match='finite in float16'):
        saved(path, encoder=ENCODER | {'norm.bias': torch.full((48,), 1e6)})
    assert path.read_bytes() == before
    saved(path, encoder=encoder_state(seed=1, variant=SIZE))
    assert path.read_bytes() != before
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ['a.safetensors']


@pytest.mark.parametrize(('change', 'problem'), [
    (lambda m: m.update(format=2), 'format is 2.*reads format 1'),
    (lambda m: m.pop('interval_s'), "lacks 'interval_s'"),
    (lambda m: m.update(num_frames='many'), 'many'),
    (lambda m: m.update(robot=None), 'damaged'),
    (lambda m: m['contact_edges'].pop(), 'contact_edges'),
    (lambda m: m['calibration']['contact'].update(temperature=0), 'contact temperature is 0'),
    (lambda m: m.update(backbone_sha256='0' * 64), 'is damaged: its tensors have the hash')])
def test_a_description_that_cannot_be_used_is_refused(tmp_path, change, problem):
    path = saved(tmp_path / 'a.safetensors')
    with safe_open(path, framework='pt') as file:
        meta = json.loads(file.metadata()['vjepa_ros'])
    change(meta)
    save_file(load_file(path), path, metadata={'vjepa_ros': json.dumps(meta)})
    with pytest.raises(WeightsError, match=rf"weights file '.*a\.safetensors'.*{problem}"):
        load_model(SIZE, weights=path)


def heads_file(tmp_path, meta=META):
    """Heads alone, beside the encoder that they belong to, as another program wrote it."""
    backbone = tmp_path / 'backbone.safetensors'
    save_file(ENCODER, backbone)
    meta = replace(meta, backbone_sha256=files.file_sha256(backbone))
    return backbone, saved(tmp_path / 'heads.safetensors', meta, heads=HEADS)


def test_heads_are_loaded_onto_the_encoder_they_were_trained_on(tmp_path):
    backbone, path = heads_file(tmp_path)
    encoder, heads, report = load_model(SIZE, weights=backbone, heads=path)
    assert not report.heads.meta.has_encoder
    assert torch.equal(heads.norm.weight, HEADS['norm.weight'])
    assert torch.equal(encoder.patch_embed.proj.weight, ENCODER['patch_embed.proj.weight'])


@pytest.mark.parametrize(('meta', 'use', 'problem'), [
    ({}, {'weights': 'other', 'heads': 'heads'}, r'heads\.safe.*other weights.*other\.safe'),
    ({}, {'weights': 'random', 'heads': 'heads'}, 'trained on other weights.*random'),
    ({'variant': 'large'}, {'weights': 'backbone', 'heads': 'heads'},
     r"model size 'large'.*`model_size` is 'test'.*`model_size` to large"),
    ({}, {'weights': 'backbone', 'heads': 'backbone'}, 'has no heads.*`heads`'),
    ({}, {'weights': 'heads', 'heads': ''}, 'no encoder.*but: heads; set `weights`'),
    ({}, {'weights': 'backbone', 'heads': 'none'}, 'none.*does not exist; set `heads`')])
def test_heads_that_do_not_belong_to_the_weights_are_refused(tmp_path, meta, use, problem):
    heads_file(tmp_path, replace(META, **meta))
    save_file(encoder_state(seed=8, variant=SIZE), tmp_path / 'other.safetensors')
    given = {key: value if value in ('', 'random') else tmp_path / f'{value}.safetensors'
             for key, value in use.items()}
    with pytest.raises(WeightsError, match=problem):
        load_model(SIZE, allow_random_weights=True, **given)
