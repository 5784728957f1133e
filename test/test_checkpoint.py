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
from pathlib import Path

import checkpoints
import numpy as np
import pytest
import torch
from bundles import save_causal_bundle
from checkpoints import (
    encoder_state,
    hugging_face_names,
    predictor_state,
    prefixed,
    probe_state,
)
from golden import cases
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from sessions import SIZE

from vjepa_ros.cli import main as cli
from vjepa_ros.model.checkpoint import load
from vjepa_ros.model.checkpoint.conversion import convert
from vjepa_ros.model.checkpoint.files import FLAT, Opened, open_weights, unmap
from vjepa_ros.model.checkpoint.layouts import Profile, fits, parts_of, variant_of, version_of
from vjepa_ros.model.checkpoint.load import WeightsError, examine, load_encoder, load_network
from vjepa_ros.model.predictor import DensePredictor, Predictor
from vjepa_ros.model.variants import find_variant

pytestmark = pytest.mark.usefixtures('one_thread')

STATE = encoder_state()
OTHER = encoder_state(seed=2)
NEW = encoder_state('2.1')
SMALL = encoder_state(variant=SIZE)
CONFIG = {'model_type': 'vjepa2', 'architectures': ['VJEPA2Model'], 'crop_size': 256,
          'frames_per_clip': 64}


@pytest.fixture(autouse=True)
def own_memory(tmp_path, monkeypatch):
    """Nothing of the package is used."""
    monkeypatch.setattr(load, 'WEIGHTS_FOLDER', tmp_path / 'none')


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


@pytest.mark.parametrize('wrapper', ['', 'module.', 'module.backbone.'])
@pytest.mark.parametrize(('asked', 'taken'), [
    ('auto', 'target_encoder'), ('encoder', 'encoder'), ('target_encoder', 'target_encoder')])
def test_the_asked_encoder_of_a_training_checkpoint_is_taken(tmp_path, wrapper, asked, taken):
    path = checkpoints.meta_20(tmp_path / 'vitl.pt', STATE, OTHER, wrapper)
    encoder, report = load_encoder('tiny', weights=path, weights_part=asked)
    assert equal(encoder.state_dict(), OTHER if taken == 'target_encoder' else STATE)
    assert (report.part, report.layout, report.keys_loaded) == (taken, 'Meta', len(STATE))
    assert report.ignored == ('pos_embed',)
    assert {'predictor', 'opt', 'scaler', 'epoch'} <= set(report.others)
    assert (report.profile.resize_mode, report.profile.image_size) == ('meta', 256)
    assert report.profile.clip_fps == 4.0


@pytest.mark.parametrize('shards', [1, 3])
def test_a_folder_of_hugging_face_loads(tmp_path, shards):
    tensors = prefixed(hugging_face_names(STATE), 'encoder.')
    path = folder(tmp_path / 'vjepa2-vitl', tensors, shards)
    encoder, report = load_encoder('tiny', weights=path)
    assert equal(encoder.state_dict(), STATE)
    assert (report.layout, report.part) == ('Hugging Face', 'encoder')
    assert report.profile == Profile('hf', 256, 64, 4.0)
    assert len(report.sha256) == 64


@pytest.mark.parametrize(('prefix', 'more', 'others', 'mode', 'rate'), [
    # It was trained on a step of frames, and not on a rate.
    ('vjepa2.encoder.', {'classifier.weight': torch.zeros(5, 192),
                         'classifier.bias': torch.zeros(5),
                         'pooler.query_tokens': torch.zeros(1, 1, 192)}, ('probe',), 'hf', None),
    ('model.backbone.encoder.', {'model.temporal_processor.norm.weight': torch.ones(192),
                                 'model.classifier.classifier.0.weight': torch.zeros(8, 192)},
     ('collision', 'hyper_parameters', 'epoch'), 'squash', 8.0)],
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
    tensors = {line.split(' ', 1)[0]: torch.empty(
        [int(n) for n in line.split(' ', 1)[1].strip('()').split(',') if n.strip()],
        device='meta') for line in lines}
    part, = parts_of(Opened(cases.FOLDER, (), {'network': tensors}), 'weights')
    assert fits(part) == (part.kind not in ('probe', 'action predictor'))   # known, but not run
    if name.endswith('encoder'):
        assert variant_of(part).name == name.split('_')[1]
        assert version_of(part) == ('2.1' if name.startswith('21') else '2.0')
    else:
        assert part.kind == {'20': 'predictor', '21': 'dense predictor',
                             'ac': 'action predictor', 'pr': 'probe'}[name[:2]]


@pytest.mark.parametrize(('weights', 'allow', 'problem'), [
    ('', False, '`weights`.*`allow_random_weights: true`'),
    ('random', False, '`weights`.*`allow_random_weights: true`'),
    ('none.safetensors', False, 'does not exist'), ('none.safetensors', True, 'does not exist')])
def test_random_weights_need_leave_and_never_replace_a_missing_file(weights, allow, problem):
    with pytest.raises(WeightsError, match=problem):
        load_encoder('tiny', weights=weights, allow_random_weights=allow)


def test_random_weights_depend_on_the_seed_alone():
    before = torch.get_rng_state()
    first, second, other = (load_encoder(SIZE, allow_random_weights=True, seed=seed)
                            for seed in (3, 3, 4))
    assert torch.equal(before, torch.get_rng_state())
    first_state = first[0].state_dict()
    assert equal(first_state, second[0].state_dict())
    assert not equal(first_state, other[0].state_dict())
    assert (first[1].trained, first[1].path, first[1].sha256) == (False, '', '')


@pytest.mark.parametrize('prefix', ['', 'module.', 'backbone.', 'module.backbone.', 'encoder.'])
def test_a_file_is_loaded_whatever_wrapper_its_keys_carry(tmp_path, prefix):
    state, path = SMALL, tmp_path / 'a.safetensors'
    save_file(prefixed(state | {'pos_embed': torch.zeros(1, 4, 48)}, prefix), path)
    encoder, report = load_encoder(SIZE, weights=str(path))
    assert equal(encoder.state_dict(), state)
    assert not any(p.requires_grad for p in encoder.parameters())
    assert (report.trained, report.path, report.keys_loaded) == (True, str(path), len(state))
    assert report.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(('change', 'problem'), [
    ({'blocks.1.mlp.fc2.bias': None}, r'1 missing \(blocks\.1\.mlp\.fc2\.bias\)'),
    ({'blocks.1.adapter.weight': torch.zeros(2)}, r'1 unexpected \(blocks\.1\.adapter'),
    ({'neck.weight': torch.zeros(2)}, r'1 unexpected \(neck\.weight\)'),
    ({'temporal_embed': torch.zeros(2)}, r'1 unexpected \(temporal_embed\)'),
    ({'norm.bias': torch.zeros(5)}, r'norm\.bias \(5,\) instead of \(48,\)')])
def test_parameters_that_do_not_fit_are_named(tmp_path, change, problem):
    state = {key: value for key, value in (SMALL | change).items() if value is not None}
    save_file(state, tmp_path / 'a.safetensors')
    with pytest.raises(WeightsError, match=problem):
        load_encoder(SIZE, weights=tmp_path / 'a.safetensors')


@pytest.mark.parametrize(('state', 'asked', 'problem'), [
    (STATE, ('small', '2.0'), "does not fit model size 'small'.*size 'tiny'"),
    (NEW, ('tiny', '2.0'), "version 2.0.*fits model size 'tiny' version 2.1"),
    (STATE, ('tiny', '2.1'), "version 2.1.*fits model size 'tiny' version 2.0"),
    (SMALL, ('tiny', '2.0'), r'looks like version 2\.0 and fits none of the sizes')])
def test_a_file_of_another_kind_is_refused_with_those_it_fits(tmp_path, state, asked, problem):
    with pytest.raises(WeightsError, match=problem):
        load_encoder(*asked, written(tmp_path / 'a.pt', state))


class Harm:
    """A pickle that runs a command when it is loaded without care."""

    def __reduce__(self):
        return os.system, ('touch harmed',)


def archive(path):
    with zipfile.ZipFile(path, 'w') as made:
        made.writestr('notes.txt', 'hello')


@pytest.mark.parametrize(('content', 'problem'), [
    ({'encoder': {key: value for key, value in STATE.items() if 'blocks.5.' not in key}},
     r"12 missing \(blocks\.5\.attn.*nearest to model size 'tiny'.*not exactly"),
    ({'encoder': NEW}, r"2 missing.*12 unexpected.*The file fits model size 'tiny' version 2\.1"),
    ({'encoder': checkpoints.predictor_state(), 'predictor': STATE},
     "swapped prefixes: its 'encoder' has the parameters of a predictor"),
    ({'encoder': STATE | {'norm.bias': torch.full((192,), torch.nan)}},
     r'damaged: 1 of its parameters contain NaN.*\(norm\.bias\).*again'),
    ({'encoder': STATE | {'norm.bias': torch.zeros(192, dtype=torch.int8)}},
     r'wrong type \(norm\.bias int8\).*float16'),
    ({'encoder': STATE, 'extra': Harm()}, 'would run code.*system.*refused.*`weights`'),
    ({'stuff.weight': torch.zeros(3)}, r'not a V-JEPA checkpoint.*stuff'),
    ({'epoch': 3}, 'has no tensors by name'),
    ([torch.zeros(3)], 'has no tensors by name'),
    ({'a': STATE, 'b': OTHER}, "several encoders \\('a', 'b'\\)"),
    (pickle.dumps(Harm()), 'bare pickle.*could run any code.*`weights`'),
    (b'hello', 'not a checkpoint.*`weights`'), (b'', 'is empty'),
    (archive, 'an archive, but not a checkpoint')], ids=range(14))
def test_each_way_a_checkpoint_can_be_wrong_is_told_apart(tmp_path, content, problem, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / 'a.pt'
    if callable(content):
        content(path)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(WeightsError, match=rf"weights file '.*a\.pt'.*{problem}"):
        load_encoder('tiny', '2.0', path)
    assert not (tmp_path / 'harmed').exists()


@pytest.mark.parametrize('kept', [0.3, 0.999])
@pytest.mark.parametrize('suffix', ['pt', 'safetensors'])
def test_a_truncated_file_is_refused(tmp_path, suffix, kept):
    path = written(tmp_path / f'a.{suffix}', STATE)
    path.write_bytes(path.read_bytes()[:int(kept * path.stat().st_size)])
    with pytest.raises(WeightsError, match=r"weights file '.*truncated.*download the file again"):
        load_encoder('tiny', weights=path)


def older(places, masks=2):
    """A training checkpoint of V-JEPA 1."""
    encoder = prefixed(STATE | {'pos_embed': torch.rand(1, places, 192)}, 'module.backbone.')
    predictor = {key: value for key, value in predictor_state().items()
                 if key not in [f'mask_tokens.{n}' for n in range(masks, 3)]}
    return {'encoder': encoder, 'target_encoder': encoder, **checkpoints.training_state(encoder),
            'predictor': prefixed(predictor, 'module.backbone.')}


def only(*names, **shapes):
    return {name: torch.zeros(3) for name in names} | {
        name.replace('__', '.'): torch.zeros(shape) for name, shape in shapes.items()}


IMAGES = {'patch_embed__proj__weight': (192, 3, 16, 16), 'pos_embed': (1, 197, 192)}


@pytest.mark.parametrize(('content', 'problem'), [
    (older(1568), 'looks like V-JEPA 1.*position embedding'),
    (older(1568, 3), 'looks like V-JEPA 1'), (older(4608), 'looks like V-JEPA 1'),
    ({'encoder': older(8)['encoder']}, 'looks like V-JEPA 1'),
    ({'model': only('blocks.0.norm1.weight', 'cls_token', **IMAGES)}, 'an image transformer'),
    ({'encoder': STATE | only(**IMAGES) | {'pos_embed': torch.rand(1, 196, 192)}},
     'an image transformer'),
    ({'encoder': STATE | only(patch_embed__proj__weight=(192, 3, 1, 16, 16))},
     r'video transformer with patches of \(3, 1, 16, 16\)'),
    (only('blocks.0.ls1.gamma', 'cls_token', **IMAGES), 'DINOv2'),
    (only('videomae.encoder.layer.0.attention.attention.q_bias'), 'VideoMAE'),
    ({'module': only('blocks.0.attn.v_bias', 'blocks.0.attn.q_bias', 'fc_norm.weight')},
     'VideoMAE'),
    (only('vision_model.encoder.layers.0.mlp.fc1.weight', 'logit_scale'), 'CLIP'),
    (only('base_model.model.encoder.layer.0.attention.query.lora_A.weight'),
     r'adapters \(LoRA\).*merge'),
    (prefixed(STATE, 'net.') | only('net.blocks.0.attn.qkv.lora_B.weight'), 'LoRA.*merge'),
    (only('model.embed_tokens.weight', 'lm_head.weight'), 'a language model'),
    (only('conv1.weight', 'layer1.0.bn1.running_mean'), 'a convolutional network'),
    (only('head.weight', 'head.bias'), 'a classifier without its encoder'),
    ({'state': {0: {'exp_avg': torch.zeros(3)}}, 'param_groups': [{'lr': 1.0}]}, 'optimiser'),
    ({'optimizer': {'state': {}}, 'epoch': 2}, 'optimiser'),
    (b'version https://git-lfs.github.com/spec/v1\noid sha256:0\n', 'Git LFS.*git lfs pull'),
    (b'\n<!DOCTYPE html><html>', 'a web page'),
    (b'{"metadata": {}, "weight_map": {}}', 'JSON.*give the folder'),
    (b'\x1f\x8b\x08 and more', 'a compressed archive; unpack')], ids=range(22))
@pytest.mark.parametrize('suffix', ['.pt', '.safetensors'])
def test_what_is_no_encoder_of_v_jepa_2_is_called_by_its_name(tmp_path, content, problem, suffix):
    path = tmp_path / f'a{suffix}'
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif all(isinstance(one, torch.Tensor) for one in content.values()):
        written(path, content)
    else:
        if suffix == '.safetensors':
            problem = r"rename it to 'a\.pt'"
        torch.save(content, path)
    for use in (lambda: load_encoder('tiny', weights=path), lambda: examine(path)):
        with pytest.raises(WeightsError, match=problem) as told:
            use()
        assert 'anew' not in str(told.value) and 'again' not in str(told.value)


def test_one_shard_of_several_is_no_checkpoint(tmp_path):
    path = folder(tmp_path / 'model', prefixed(hugging_face_names(STATE), 'encoder.'), 2)
    with pytest.raises(WeightsError, match='is shard 1 of 2; give the folder'):
        load_encoder('tiny', weights=path / 'model-00001-of-00002.safetensors')


HEAD = only('head.weight', 'fc.bias')


@pytest.mark.parametrize(('content', 'wrapper', 'others'), [
    (STATE | HEAD, '', ('head', 'fc')),
    ({'state_dict': prefixed(STATE | HEAD, 'model.encoder.'), 'epoch': 3}, 'model.encoder.',
     ('head', 'fc', 'epoch')),
    (prefixed(STATE, 'state_dict.model.'), 'state_dict.model.', ()),
    ({'state_dict': {'model': STATE}}, '', ()),
    ({'ckpt': {'net': {'encoder': prefixed(STATE, 'module.'), 'predictor': HEAD}}},
     'encoder.module.', ('predictor',)),
    ({'state_dict': prefixed(STATE, 'video._orig_mod.module.') | only('temporal.0.weight')},
     'video._orig_mod.module.', ('temporal',)),
    (prefixed(hugging_face_names(STATE), 'net.vision.encoder.'), 'net.vision.encoder.', ())],
    ids=range(7))
def test_an_encoder_in_whatever_wrapper_is_loaded_and_says_so(
        tmp_path, caplog, capsys, content, wrapper, others):
    caplog.set_level('INFO')
    torch.save(content, tmp_path / 'a.pt')
    encoder, report = load_encoder('tiny', weights=tmp_path / 'a.pt')
    assert equal(encoder.state_dict(), STATE)
    assert report.others == others
    assert (f"begin with '{wrapper}'" in caplog.text) == bool(wrapper)
    assert cli.main(['inspect', str(tmp_path / 'a.pt')]) == 0
    assert wrapper in capsys.readouterr().out


@pytest.mark.parametrize('places', [8192, 2048])
def test_positions_that_rope_has_replaced_are_left_out(tmp_path, places):
    content = older(places, 3)
    torch.save(content, tmp_path / 'a.pt')
    assert equal(load_encoder('tiny', weights=tmp_path / 'a.pt')[0].state_dict(), STATE)


@pytest.mark.parametrize(('change', 'problem'), [
    (lambda path: (path / 'config.json').unlink(), r'no config\.json; set it to a file in it'),
    (lambda path: [(path / 'config.json').unlink(),
                   (path / 'adapter_config.json').write_text('{}')], 'holds adapters'),
    (lambda path: [*map(Path.unlink, path.glob('model*')), torch.save(1, path / 'a.bin')],
     r"lacks 'model\.safetensors'.*set it to a file in it: 'a\.bin'"),
    (lambda path: (path / 'config.json').write_text('{"model_type": "vit"}'), "type 'vit'"),
    (lambda path: (path / 'config.json').write_text('{'), 'not JSON'),
    (lambda path: (path / 'model-00002-of-00002.safetensors').unlink(),
     r"lacks 'model-00002-of-00002\.safetensors'"),
    (lambda path: (path / 'model.safetensors.index.json').write_text(
        '{"weight_map": {"a": "../a.safetensors"}}'), 'does not list files of the folder')])
def test_an_incomplete_folder_is_refused(tmp_path, change, problem):
    path = folder(tmp_path / 'model', prefixed(hugging_face_names(STATE), 'encoder.'), 2)
    change(path)
    with pytest.raises(WeightsError, match=problem):
        load_encoder('tiny', weights=path)


@pytest.mark.parametrize('suffix', ['pt', 'safetensors'])
def test_memory_that_was_given_back_is_read_again(tmp_path, suffix):
    tensors = open_weights(written(tmp_path / f'a.{suffix}', STATE), 'weights').groups[FLAT]
    for key, value in tensors.items():
        for _ in range(2):
            assert torch.equal(value, STATE[key]), key
            unmap(value)


PEAK = """
import sys
import torch
from vjepa_ros.model.checkpoint.load import load_encoder

def peak(name):
    with open('/proc/self/status') as status:
        return next(1024 * int(line.split()[1]) for line in status if line.startswith(name))

torch.set_num_threads(1)
kept = [load_encoder('tiny', weights='warm.pt')]     # what is not freed is not used again
for path in sys.argv[1:]:
    with open('/proc/self/clear_refs', 'w') as file:
        file.write('5')                              # the peak is counted from here
    before = peak('VmRSS')
    kept.append(load_encoder('small', weights=path))
    own = sum(4 * p.numel() for p in kept[-1][0].parameters())
    print((peak('VmHWM') - before) / own)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != 'linux', reason='reads peak memory from /proc')
def test_loading_takes_little_more_memory_than_the_encoder_itself(tmp_path):
    """Files several times as large as their encoder, as that of the action-conditioned model."""
    state = encoder_state(variant=find_variant('small'))
    rest = {'predictor_blocks.0.attn.proj.weight': torch.ones(25 * 2**20)}
    meta = written(tmp_path / 'ac.pt', {
        'encoder': prefixed(state, 'module.'), 'predictor': prefixed(rest, 'module.'),
        'opt': {'state': {0: {'exp_avg': torch.ones(10**7)}}, 'param_groups': []}})
    theirs = folder(tmp_path / 'model', prefixed(hugging_face_names(state), 'encoder.')
                    | prefixed(rest, 'predictor.'))
    written(tmp_path / 'warm.pt', STATE)
    done = subprocess.run([sys.executable, '-c', PEAK, str(meta), str(theirs)], cwd=tmp_path,
                          text=True, capture_output=True, timeout=400,
                          env=os.environ | {'PYTHONPATH': str(cases.FOLDER.parents[1])})
    assert done.returncode == 0, done.stderr
    ratios = [float(line) for line in done.stdout.split()]
    assert len(ratios) == 2 and all(1.0 < ratio < 1.3 for ratio in ratios)


WHOLE = {
    '2.0': prefixed(STATE, 'encoder.') | prefixed(predictor_state(), 'predictor.'),
    '2.1': prefixed(NEW, 'encoder.') | prefixed(predictor_state('2.1'), 'predictor.')}


@pytest.mark.parametrize('kind', WHOLE)
def test_converted_weights_are_equal_bit_for_bit(tmp_path, kind):
    save_file(WHOLE[kind], tmp_path / 'ours.safetensors')
    there = convert(tmp_path / 'ours.safetensors', tmp_path / 'there.safetensors')
    assert all(part.complete for part in there.parts)
    assert equal(load_file(tmp_path / 'there.safetensors'), WHOLE[kind])


def test_a_converted_block_causal_encoder_keeps_its_window(tmp_path):
    path = save_causal_bundle(tmp_path / 'causal.safetensors')
    assert convert(path, tmp_path / 'a.safetensors').window == 2
    convert(tmp_path / 'a.safetensors', tmp_path / 'b.safetensors')
    encoders = [load_encoder('tiny', weights=one)[0] for one in (path, tmp_path / 'b.safetensors')]
    assert [one.window for one in encoders] == [2, 2]
    assert equal(*(one.state_dict() for one in encoders))


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
    ('2.0', {}, {'weights_part': 'ema_encoder'}, "no 'ema_encoder'")])
def test_what_cannot_be_converted_is_refused_and_leaves_nothing(tmp_path, kind, change, options,
                                                                problem):
    save_file(WHOLE[kind] | change, tmp_path / 'a.safetensors')
    with pytest.raises(WeightsError, match=problem):
        convert(tmp_path / 'a.safetensors', tmp_path / 'b', **options)
    assert [path.name for path in tmp_path.iterdir()] == ['a.safetensors']


@pytest.mark.parametrize(('make', 'kind', 'network'), [
    (checkpoints.meta_20, '2.0', Predictor), (checkpoints.meta_21, '2.1', DensePredictor)])
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


def test_inspect_says_what_is_in_a_checkpoint_and_fails_where_something_is_missing(
        tmp_path, capsys, monkeypatch):
    monkeypatch.setenv('COLUMNS', '160')
    path = checkpoints.meta_20(tmp_path / 'vitl.pt')
    assert cli.main(['inspect', str(path)]) == 0
    text = capsys.readouterr().out
    for words in ('target_encoder (default)', 'Meta', 'float32', 'scaler',
                  'resize mode meta, 256 pixels, frames unknown, 4 Hz',
                  'encoder: 1 not needed: pos_embed', examine(path).sha256):
        assert words in text, words
    lost = [key for key in STATE if key.startswith(('blocks.3.', 'blocks.4.norm'))]
    state = {key: value for key, value in STATE.items() if key not in lost}
    torch.save({'encoder': state, 'statistics': {'mean': torch.zeros(3)}}, tmp_path / 'a.pt')
    assert cli.main(['inspect', str(tmp_path / 'a.pt')]) == 1
    text = capsys.readouterr().out
    assert 'encoder: 16 missing: blocks.3.attn.proj.bias' in text
    assert all(key in text for key in (*lost, 'statistics'))
