# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Checkpoints go from layout to layout bit for bit, and tools say what is in them."""

import json

import checkpoints
import pytest
import torch
from checkpoints import encoder_state, predictor_state, prefixed, probe_state
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from vjepa_ros.cli import main as cli
from vjepa_ros.model.ac_predictor import ActionPredictor
from vjepa_ros.model.checkpoint.conversion import convert
from vjepa_ros.model.checkpoint.inspection import examine, load_network
from vjepa_ros.model.checkpoint.load import WeightsError, load_encoder
from vjepa_ros.model.predictor import DensePredictor, Predictor

pytestmark = pytest.mark.usefixtures('one_thread')

STATE = encoder_state()
NEW = encoder_state('2.1')
WHOLE = {
    '2.0': prefixed(STATE, 'encoder.') | prefixed(predictor_state(), 'predictor.'),
    '2.1': prefixed(NEW, 'encoder.') | prefixed(predictor_state('2.1'), 'predictor.'),
    'ac': prefixed(STATE, 'encoder.') | prefixed(predictor_state('ac'), 'predictor.')}


def equal(first, second):
    return first.keys() == second.keys() and all(
        first[key].dtype == second[key].dtype and torch.equal(first[key], second[key])
        for key in first)


@pytest.mark.parametrize(('kind', 'layout'), [
    *((kind, layout) for kind in WHOLE for layout in ('safetensors', 'meta')),
    ('2.0', 'huggingface')])
def test_our_weights_come_back_bit_for_bit_from_every_layout(tmp_path, kind, layout):
    save_file(WHOLE[kind], tmp_path / 'ours.safetensors')
    there = convert(tmp_path / 'ours.safetensors', tmp_path / 'there', layout)
    assert all(part.complete for part in there.parts)
    convert(tmp_path / 'there', tmp_path / 'back.safetensors')
    assert equal(load_file(tmp_path / 'back.safetensors'), WHOLE[kind])


@pytest.mark.parametrize('make', [checkpoints.meta_20, checkpoints.meta_ac])
def test_the_state_of_training_and_the_other_encoder_stay_behind(tmp_path, make):
    path = make(tmp_path / 'vitl.pt')
    convert(path, tmp_path / 'a.safetensors', encoder_only=True)
    encoder, before = load_encoder('tiny', weights=path)
    found = load_file(tmp_path / 'a.safetensors')
    assert equal(found, prefixed(encoder.state_dict(), 'encoder.'))
    report = load_encoder('tiny', weights=tmp_path / 'a.safetensors')[1]
    assert report.profile == before.profile
    assert (report.others, report.ignored) == ((), ())
    with safe_open(tmp_path / 'a.safetensors', framework='pt') as file:
        about = json.loads(file.metadata()['vjepa_ros_checkpoint'])
    assert about['source_sha256'] == before.sha256
    assert about['parts'] == {'encoder': before.part}
    assert (about['variant'], about['version']) == ('tiny', '2.0')


@pytest.mark.parametrize(('kind', 'change', 'options', 'problem'), [
    ('2.0', {'encoder.norm.bias': torch.full((192,), 1e6)}, {'dtype': 'float16'},
     'too large for float16'),
    ('2.0', {'encoder.norm.bias': torch.full((192,), torch.nan)}, {}, 'not finite'),
    ('2.0', {'encoder.norm.bias': torch.zeros(3)}, {}, 'encoder that is not complete.*inspect'),
    ('2.0', {'stray': torch.zeros(3)}, {}, r'belong to no network \(stray\)'),
    ('2.0', {}, {'weights_part': 'ema_encoder'}, "no 'ema_encoder'"),
    ('2.0', {'predictor.action_encoder.weight': torch.zeros(64, 7)}, {}, 'not complete'),
    ('2.1', {}, {'layout': 'huggingface'}, 'Hugging Face does not have.*--encoder-only'),
    ('ac', {}, {'layout': 'huggingface'}, 'Hugging Face does not have.*--encoder-only')])
def test_what_cannot_be_converted_is_refused_and_leaves_nothing(tmp_path, kind, change, options,
                                                                problem):
    save_file(WHOLE[kind] | change, tmp_path / 'a.safetensors')
    with pytest.raises(WeightsError, match=problem):
        convert(tmp_path / 'a.safetensors', tmp_path / 'b', **options)
    assert [path.name for path in tmp_path.iterdir()] == ['a.safetensors']


@pytest.mark.parametrize(('make', 'kind', 'network'), [
    (checkpoints.meta_20, '2.0', Predictor), (checkpoints.meta_21, '2.1', DensePredictor),
    (checkpoints.meta_ac, 'ac', ActionPredictor)])
def test_predictors_are_loaded(tmp_path, make, kind, network):
    found, report = load_network(make(tmp_path / 'a.pt'), 'predictor')
    assert type(found) is network and equal(found.state_dict(), predictor_state(kind))
    assert report.keys_loaded == len(predictor_state(kind))
    assert report.sha256 == examine(tmp_path / 'a.pt').sha256
    with pytest.raises(WeightsError, match=r'no probe to load here, but .*encoder.*predictor'):
        load_network(tmp_path / 'a.pt', 'probe')


@pytest.mark.parametrize(('content', 'kind'), [
    ({'classifiers': [prefixed(probe_state(), 'module.')], 'epoch': 3}, 'probe'),
    ({'state_dict': {
        'model.temporal_processor.norm.weight': torch.ones(192),
        'model.classifier.classifier.0.weight': torch.zeros(8, 192)}}, 'collision head')])
def test_probes_and_collision_heads_are_recognised_but_not_run(tmp_path, content, kind):
    torch.save(content, tmp_path / 'a.pt')
    part, = examine(tmp_path / 'a.pt').parts
    assert (part.kind, part.complete) == (kind, True)
    for use in (lambda: load_encoder('tiny', weights=tmp_path / 'a.pt'),
                lambda: load_network(tmp_path / 'a.pt', 'predictor'),
                lambda: convert(tmp_path / 'a.pt', tmp_path / 'b')):
        with pytest.raises(WeightsError, match=kind.split()[0]):
            use()


def test_inspect_says_what_is_in_a_checkpoint(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv('COLUMNS', '160')
    path = checkpoints.meta_20(tmp_path / 'vitl.pt')
    assert cli.main(['inspect', str(path)]) == 0
    text = capsys.readouterr().out
    for words in ('target_encoder (default)', 'Meta', 'float32', 'scaler',
                  'resize mode meta, 256 pixels, frames unknown, 4 Hz',
                  'encoder: 1 not needed: pos_embed', examine(path).sha256):
        assert words in text, words


def test_inspect_names_what_is_missing_and_fails(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv('COLUMNS', '160')
    lost = [key for key in STATE if key.startswith(('blocks.3.', 'blocks.4.norm'))]
    state = {key: value for key, value in STATE.items() if key not in lost}
    torch.save({'encoder': state, 'statistics': {'mean': torch.zeros(3)}}, tmp_path / 'a.pt')
    assert cli.main(['inspect', str(tmp_path / 'a.pt')]) == 1
    text = capsys.readouterr().out
    assert 'encoder: 16 missing: blocks.3.attn.proj.bias' in text
    assert all(key in text for key in (*lost, 'statistics'))
    with pytest.raises(WeightsError, match=r'blocks\.3\.norm2\.weight, …\).*`vjepa-ros inspect`'):
        load_encoder('tiny', weights=tmp_path / 'a.pt')
