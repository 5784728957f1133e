# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Checkpoints of every published layout load and are converted, or say clearly why not."""

import hashlib
import json
import os
import pickle
import subprocess
import sys
import zipfile

import checkpoints
import numpy as np
import pytest
import torch
from bundles import save_causal_bundle
from checkpoints import encoder_state, hugging_face_names, predictor_state, prefixed
from golden import cases
from safetensors.torch import load_file, save_file
from sessions import SIZE

from vjepa_ros import cli
from vjepa_ros.model.checkpoint.files import Opened
from vjepa_ros.model.checkpoint.layouts import Profile, fits, parts_of, variant_of, version_of
from vjepa_ros.model.checkpoint.load import WeightsError, convert, examine, load_encoder
from vjepa_ros.model.variants import find_variant

pytestmark = pytest.mark.usefixtures('one_thread')

STATE = encoder_state()
OTHER = encoder_state(seed=2)
NEW = encoder_state('2.1')
SMALL = encoder_state(variant=SIZE)
CONFIG = {'model_type': 'vjepa2', 'architectures': ['VJEPA2Model'], 'crop_size': 256,
          'frames_per_clip': 64}


def equal(first, second):
    return first.keys() == second.keys() and all(
        first[key].dtype == second[key].dtype and torch.equal(first[key], second[key])
        for key in first)


def folder(path, tensors, shards=1, **config):
    """A folder of Hugging Face."""
    path.mkdir()
    (path / 'config.json').write_text(json.dumps(CONFIG | config))
    if shards == 1:
        save_file(tensors, path / 'model.safetensors')
        return path
    where = {}
    for n in range(shards):
        keys = sorted(tensors)[n::shards]
        shard = f'model-{n + 1:05}-of-{shards:05}.safetensors'
        where |= dict.fromkeys(keys, shard)
        save_file({key: tensors[key] for key in keys}, path / shard)
    (path / 'model.safetensors.index.json').write_text(json.dumps({'weight_map': where}))
    return path


def written(path, state):
    """A state in the format that the name of a file says."""
    torch.save(state, path) if path.suffix == '.pt' else save_file(state, path)
    return path


@pytest.mark.parametrize(('wrapper', 'asked', 'taken'), [
    ('module.backbone.', 'auto', 'target_encoder'), ('module.', 'encoder', 'encoder'),
    ('', 'target_encoder', 'target_encoder')])
def test_the_asked_encoder_of_a_training_checkpoint_is_taken(tmp_path, wrapper, asked, taken):
    path = checkpoints.meta_20(tmp_path / 'vitl.pt', STATE, OTHER, wrapper)
    encoder, report = load_encoder('tiny', weights=path, weights_part=asked)
    assert equal(encoder.state_dict(), OTHER if taken == 'target_encoder' else STATE)
    assert not any(p.requires_grad for p in encoder.parameters())
    assert (report.part, report.layout, report.path) == (taken, 'Meta', str(path))
    assert report.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert {'predictor', 'opt', 'scaler', 'epoch'} <= set(report.others)
    assert report.profile == Profile('meta', 256, None, 4.0)


@pytest.mark.parametrize('shards', [1, 3])
def test_a_folder_of_hugging_face_loads(tmp_path, shards):
    path = folder(tmp_path / 'vjepa2-vitl', prefixed(hugging_face_names(STATE), 'encoder.'),
                  shards)
    encoder, report = load_encoder('tiny', weights=path)
    assert equal(encoder.state_dict(), STATE)
    assert (report.layout, report.part) == ('Hugging Face', 'encoder')
    assert report.profile == Profile('hf', 256, 64, 4.0)


@pytest.mark.parametrize(('prefix', 'more', 'others', 'mode', 'rate'), [
    # It was trained on a step of frames, and not on a rate.
    ('vjepa2.encoder.', {'classifier.weight': torch.zeros(5, 192),
                         'pooler.query_tokens': torch.zeros(1, 1, 192)}, ('probe',), 'hf', None),
    ('model.backbone.encoder.', {'model.temporal_processor.norm.weight': torch.ones(192),
                                 'model.classifier.classifier.0.weight': torch.zeros(8, 192)},
     ('collision head', 'hyper_parameters', 'epoch'), 'squash', 8.0)],
    ids=['classifier', 'collision'])
def test_the_encoder_inside_another_network_loads(tmp_path, prefix, more, others, mode, rate):
    tensors = prefixed(hugging_face_names(STATE), prefix) | more
    if mode == 'hf':
        path = folder(tmp_path / 'ssv2', tensors, architectures=['VJEPA2ForVideoClassification'])
    else:
        path = written(tmp_path / 'badas_open.pt', {
            'state_dict': tensors, 'hyper_parameters': {'model': {'num_classes': 2}}, 'epoch': 3})
    encoder, report = load_encoder('tiny', weights=path)
    assert equal(encoder.state_dict(), STATE)
    assert report.others == others
    assert (report.profile.resize_mode, report.profile.clip_fps) == (mode, rate)


@pytest.mark.parametrize('name', [
    name for name in np.load(cases.FOLDER / 'names.npz').files if name != 'source'])
def test_every_published_network_is_recognised_by_its_names_and_shapes(name):
    lines = str(np.load(cases.FOLDER / 'names.npz')[name]).splitlines()
    tensors = {f'network.{line.split(" ", 1)[0]}': torch.empty(
        [int(n) for n in line.split(' ', 1)[1].strip('()').split(',') if n.strip()],
        device='meta') for line in lines}
    part, = parts_of(Opened(cases.FOLDER, (), tensors), 'weights')
    if name.endswith('encoder'):
        assert fits(part)
        assert variant_of(part).name == name.split('_')[1]
        assert version_of(part) == ('2.1' if name.startswith('21') else '2.0')
    else:
        assert part.kind == {'20': 'predictor', '21': 'dense predictor',
                             'ac': 'action predictor'}[name[:2]]


@pytest.mark.parametrize(('weights', 'allow', 'problem'), [
    ('', False, '`weights`.*`allow_random_weights: true`'),
    ('random', False, '`weights`.*`allow_random_weights: true`'),
    ('none.safetensors', True, 'does not exist')])
def test_random_weights_need_leave_and_never_replace_a_missing_file(weights, allow, problem):
    with pytest.raises(WeightsError, match=problem):
        load_encoder(SIZE, weights=weights, allow_random_weights=allow)


class Harm:
    """A pickle that runs a command when it is loaded without care."""

    def __reduce__(self):
        return os.system, ('touch harmed',)


def archive(path):
    with zipfile.ZipFile(path, 'w') as made:
        made.writestr('notes.txt', 'hello')


def without(lost):
    return {key: value for key, value in STATE.items() if lost not in key}


@pytest.mark.parametrize(('asked', 'content', 'problem'), [
    ('small', {'encoder': STATE}, r"'small'.*nearest to model size 'tiny'.*Set `model_size`"),
    ('tiny', {'encoder': NEW}, "version 2.0.*2 missing.*12 unexpected.*'tiny' version 2.1"),
    ('tiny', SMALL, 'fits none of the sizes'),
    ('tiny', {'encoder': without('blocks.5.')}, r'12 missing \(blocks\.5\.attn.*It is damaged'),
    ('tiny', STATE | {'neck.weight': torch.zeros(2)}, r'1 unexpected \(neck\.weight\)'),
    ('tiny', STATE | {'norm.bias': torch.zeros(5)}, r'norm\.bias \(5,\) instead of \(192,\)'),
    ('tiny', {'encoder': STATE | {'norm.bias': torch.full((192,), torch.nan)}},
     r'damaged: there is NaN or infinity in norm\.bias;.*again'),
    ('tiny', {'encoder': STATE | {'norm.bias': torch.zeros(192, dtype=torch.int8)}},
     r'wrong type \(norm\.bias int8\).*float16'),
    ('tiny', {'encoder': STATE, 'extra': Harm()}, 'would run code.*system.*`weights`'),
    ('tiny', {'stuff.weight': torch.zeros(3)}, r'no encoder of V-JEPA 2, but: stuff\.weight'),
    ('tiny', {'epoch': 3}, 'has no tensors by name'),
    ('tiny', {'a': STATE, 'b': OTHER}, r"several encoders \('a\.', 'b\.'\)"),
    ('tiny', {'encoder': STATE | {'pos_embed': torch.ones(1, 1568, 192)}}, 'like V-JEPA 1'),
    ('tiny', pickle.dumps(Harm()), 'bare pickle.*could run any code'),
    ('tiny', b'hello', 'not a checkpoint.*`weights`'), ('tiny', b'', 'is empty'),
    ('tiny', b'version https://git-lfs.github.com/spec/v1\n', 'Git LFS.*git lfs pull'),
    ('tiny', b'\n<!DOCTYPE html><html>', 'a web page'),
    ('tiny', archive, 'an archive, but no checkpoint')], ids=range(19))
def test_each_way_a_checkpoint_can_be_wrong_is_told_apart(tmp_path, asked, content, problem,
                                                          monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / 'a.pt'
    if callable(content):
        content(path)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(WeightsError, match=rf"weights file '.*a\.pt'.*{problem}"):
        load_encoder(asked, '2.0', path)
    assert not (tmp_path / 'harmed').exists()


@pytest.mark.parametrize(('suffix', 'kept'), [('pt', 0.3), ('safetensors', 0.999)])
def test_a_truncated_file_is_refused(tmp_path, suffix, kept):
    path = written(tmp_path / f'a.{suffix}', SMALL)
    path.write_bytes(path.read_bytes()[:int(kept * path.stat().st_size)])
    with pytest.raises(WeightsError, match=r"weights file '.*truncated.*download the file again"):
        load_encoder(SIZE, weights=path)


@pytest.mark.parametrize(('content', 'root', 'others'), [
    (STATE | {'head.weight': torch.zeros(3), 'pos_embed': torch.rand(1, 8192, 192)}, '', 1),
    ({'state_dict': prefixed(STATE | {'fc.bias': torch.zeros(3)}, 'model.encoder.'), 'epoch': 3},
     'state_dict.model.encoder.', 2),
    (prefixed(hugging_face_names(STATE), 'net.vision.encoder.'), 'net.vision.encoder.', 0)],
    ids=range(3))
def test_an_encoder_in_whatever_wrapper_is_loaded_and_says_so(tmp_path, caplog, content, root,
                                                              others):
    caplog.set_level('INFO')
    encoder, report = load_encoder('tiny', weights=written(tmp_path / 'a.pt', content))
    assert equal(encoder.state_dict(), STATE) and len(report.others) == others
    assert f"begin with '{root}'" in caplog.text


@pytest.mark.parametrize(('change', 'problem'), [
    (lambda path: (path / 'config.json').unlink(), r'no config\.json'),
    (lambda path: (path / 'config.json').write_text('{"model_type": "vit"}'), "type 'vjepa2'"),
    (lambda path: (path / 'config.json').write_text('{'), 'not JSON'),
    (lambda path: (path / 'model-00002-of-00002.safetensors').unlink(),
     r"lacks 'model-00002-of-00002\.safetensors'"),
    (lambda path: (path / 'model.safetensors.index.json').write_text(
        '{"weight_map": {"a": "../a.safetensors"}}'), 'does not list files of the folder')])
def test_an_incomplete_folder_is_refused(tmp_path, change, problem):
    path = folder(tmp_path / 'model', prefixed(hugging_face_names(SMALL), 'encoder.'), 2)
    with pytest.raises(WeightsError, match='is shard 1 of 2; give the folder'):
        load_encoder(SIZE, weights=path / 'model-00001-of-00002.safetensors')
    change(path)
    with pytest.raises(WeightsError, match=problem):
        load_encoder(SIZE, weights=path)


# Prints by how much the peak of memory grows, in sizes of the encoder that is loaded.
PEAK = """
import sys
import torch
from vjepa_ros.model.checkpoint.load import load_encoder

def peak(name):
    with open('/proc/self/status') as status:
        return next(1024 * int(line.split()[1]) for line in status if line.startswith(name))

torch.set_num_threads(1)
kept = load_encoder('tiny', weights='warm.pt')
with open('/proc/self/clear_refs', 'w') as file:
    file.write('5')                              # the peak is counted from here
before = peak('VmRSS')
encoder, _ = load_encoder('small', weights=sys.argv[1])
print((peak('VmHWM') - before) / sum(4 * p.numel() for p in encoder.parameters()))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != 'linux', reason='reads peak memory from /proc')
@pytest.mark.parametrize('layout', ['Meta', 'Hugging Face'])
def test_loading_takes_little_more_memory_than_the_encoder_itself(tmp_path, layout):
    """Files several times as large as their encoder, as that of the action-conditioned model."""
    state = encoder_state(variant=find_variant('small'))
    rest = {'predictor_blocks.0.attn.proj.weight': torch.ones(25 * 2**20)}
    if layout == 'Meta':
        path = written(tmp_path / 'ac.pt', {
            'encoder': prefixed(state, 'module.'), 'predictor': prefixed(rest, 'module.'),
            'opt': {'state': {0: {'exp_avg': torch.ones(10**7)}}, 'param_groups': []}})
    else:
        path = folder(tmp_path / 'model', prefixed(hugging_face_names(state), 'encoder.')
                      | prefixed(rest, 'predictor.'))
    written(tmp_path / 'warm.pt', STATE)
    ratio = float(subprocess.check_output(
        [sys.executable, '-c', PEAK, str(path)], cwd=tmp_path, text=True, timeout=400,
        env=os.environ | {'PYTHONPATH': str(cases.FOLDER.parents[1])}))
    assert 1.0 < ratio < 1.3


WHOLE = {kind: prefixed(encoder_state(kind), 'encoder.')
         | prefixed(predictor_state(kind), 'predictor.') for kind in ('2.0', '2.1')}


@pytest.mark.parametrize(('kind', 'make'), [
    ('2.0', lambda path: checkpoints.meta_20(path, target=STATE)),
    ('2.1', checkpoints.meta_21), ('2.0', lambda path: written(path, WHOLE['2.0']))])
def test_converted_weights_are_equal_bit_for_bit(tmp_path, kind, make):
    there = convert(make(tmp_path / 'a.pt'), tmp_path / 'there.safetensors')
    assert all(part.complete for part in there.parts)
    assert equal(load_file(tmp_path / 'there.safetensors'), WHOLE[kind])


def test_a_converted_block_causal_encoder_keeps_its_window(tmp_path):
    convert(save_causal_bundle(tmp_path / 'causal.safetensors'), tmp_path / 'a.safetensors')
    convert(tmp_path / 'a.safetensors', tmp_path / 'b.safetensors')
    assert load_encoder('tiny', weights=tmp_path / 'b.safetensors')[0].window == 2


def test_the_state_of_training_and_the_other_encoder_stay_behind(tmp_path):
    path = checkpoints.meta_20(tmp_path / 'vitl.pt')
    convert(path, tmp_path / 'a.safetensors', encoder_only=True)
    encoder, before = load_encoder('tiny', weights=path)
    assert equal(load_file(tmp_path / 'a.safetensors'), prefixed(encoder.state_dict(), 'encoder.'))
    report = load_encoder('tiny', weights=tmp_path / 'a.safetensors')[1]
    assert (report.profile, report.others) == (before.profile, ())


@pytest.mark.parametrize(('change', 'options', 'problem'), [
    ({'encoder.norm.bias': torch.full((192,), 1e6)}, {'dtype': 'float16'},
     'too large for float16'),
    ({'encoder.norm.bias': torch.full((192,), torch.nan)}, {}, 'not finite'),
    ({'encoder.norm.bias': torch.zeros(3)}, {}, 'encoder that is not complete.*inspect'),
    ({}, {'weights_part': 'ema_encoder'}, "no 'ema_encoder'")])
def test_what_cannot_be_converted_is_refused_and_leaves_nothing(tmp_path, change, options,
                                                                problem):
    save_file(WHOLE['2.0'] | change, tmp_path / 'a.safetensors')
    with pytest.raises(WeightsError, match=problem):
        convert(tmp_path / 'a.safetensors', tmp_path / 'b', **options)
    assert [path.name for path in tmp_path.iterdir()] == ['a.safetensors']


def test_inspect_says_what_is_in_a_checkpoint_and_fails_where_something_is_missing(
        tmp_path, capsys, monkeypatch):
    monkeypatch.setenv('COLUMNS', '160')
    path = checkpoints.meta_20(tmp_path / 'vitl.pt')
    assert cli.main(['inspect', str(path)]) == 0
    text = capsys.readouterr().out
    assert 'target_encoder (default)' in text and examine(path).sha256 in text
    torch.save({'encoder': without('blocks.3.')}, tmp_path / 'a.pt')
    assert cli.main(['inspect', str(tmp_path / 'a.pt')]) == 1
    assert 'encoder: 12 missing: blocks.3.attn.proj.bias' in capsys.readouterr().out
