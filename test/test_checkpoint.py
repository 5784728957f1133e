# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Weights of every published layout are fetched, load and are converted, or say why not."""

import hashlib
import http.server
import json
import os
import pickle
import subprocess
import sys
import threading
import types
from dataclasses import replace
from pathlib import Path

import bundles
import numpy as np
import pytest
import torch
from bundles import (
    encoder_state,
    hugging_face_names,
    predictor_state,
    prefixed,
    save_causal_bundle,
)
from golden import cases
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from sessions import SIZE, lively_heads

from vjepa_ros import cli
from vjepa_ros.model.checkpoint import download as fetching
from vjepa_ros.model.checkpoint.download import download, located
from vjepa_ros.model.checkpoint.files import Opened, file_sha256
from vjepa_ros.model.checkpoint.layouts import (
    BundleMeta,
    Profile,
    fits,
    parts_of,
    variant_of,
    version_of,
)
from vjepa_ros.model.checkpoint.load import (
    WeightsError,
    convert,
    examine,
    load_encoder,
    load_model,
    read_meta,
    save_bundle,
)
from vjepa_ros.model.head_specs import Calibration
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
    ('module.backbone.', 'auto', 'target_encoder'), ('', 'encoder', 'encoder')])
def test_the_asked_encoder_of_a_training_checkpoint_is_taken(tmp_path, wrapper, asked, taken):
    path = bundles.meta_20(tmp_path / 'vitl.pt', STATE, OTHER, wrapper)
    encoder, report = load_encoder('tiny', weights=path, weights_part=asked)
    assert equal(encoder.state_dict(), OTHER if taken == 'target_encoder' else STATE)
    assert not any(p.requires_grad for p in encoder.parameters())
    assert (report.part, report.layout) == (taken, 'Meta')
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


def without(lost):
    return {key: value for key, value in STATE.items() if lost not in key}


@pytest.mark.parametrize(('asked', 'content', 'problem'), [
    ('small', {'encoder': STATE}, r"'small'.*nearest to model size 'tiny'.*Set `model_size`"),
    ('tiny', {'encoder': NEW}, "version 2.0.*2 missing.*12 unexpected.*'tiny' version 2.1"),
    ('tiny', {'encoder': without('blocks.5.')}, r'12 missing \(blocks\.5\.attn.*It is damaged'),
    ('tiny', STATE | {'norm.bias': torch.zeros(5)}, r'norm\.bias \(5,\) instead of \(192,\)'),
    ('tiny', {'encoder': STATE | {'norm.bias': torch.full((192,), torch.nan)}},
     r'damaged: there is NaN or infinity in norm\.bias;.*again'),
    ('tiny', {'encoder': STATE, 'extra': Harm()}, 'would run code.*system.*`weights`'),
    ('tiny', {'stuff.weight': torch.zeros(3)}, r'no encoder of V-JEPA 2, but: stuff\.weight'),
    ('tiny', {'a': STATE, 'b': OTHER}, r"several encoders \('a\.', 'b\.'\)"),
    ('tiny', {'encoder': STATE | {'pos_embed': torch.ones(1, 1568, 192)}}, 'like V-JEPA 1'),
    ('tiny', pickle.dumps(Harm()), 'bare pickle.*could run any code'),
    ('tiny', b'hello', 'not a checkpoint.*`weights`'),
    ('tiny', b'version https://git-lfs.github.com/spec/v1\n', 'Git LFS.*git lfs pull'),
    ('tiny', b'\n<!DOCTYPE html><html>', 'a web page')], ids=range(13))
def test_each_way_a_checkpoint_can_be_wrong_is_told_apart(tmp_path, asked, content, problem,
                                                          monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / 'a.pt'
    if isinstance(content, bytes):
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


@pytest.mark.parametrize(('content', 'others'), [
    (STATE | {'head.weight': torch.zeros(3), 'pos_embed': torch.rand(1, 8192, 192)}, 1),
    (prefixed(hugging_face_names(STATE), 'net.vision.encoder.'), 0)], ids=range(2))
def test_an_encoder_in_whatever_wrapper_is_loaded(tmp_path, content, others):
    encoder, report = load_encoder('tiny', weights=written(tmp_path / 'a.pt', content))
    assert equal(encoder.state_dict(), STATE) and len(report.others) == others


@pytest.mark.parametrize(('change', 'problem'), [
    (lambda path: (path / 'config.json').unlink(), r'no config\.json'),
    (lambda path: (path / 'config.json').write_text('{"model_type": "vit"}'), "type 'vjepa2'"),
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
def test_loading_takes_little_more_memory_than_the_encoder_itself(tmp_path):
    """A file several times as large as its encoder, as that of the action-conditioned model."""
    state = encoder_state(variant=find_variant('small'))
    rest = {'predictor_blocks.0.attn.proj.weight': torch.ones(25 * 2**20)}
    path = written(tmp_path / 'ac.pt', {
        'encoder': prefixed(state, 'module.'), 'predictor': prefixed(rest, 'module.')})
    written(tmp_path / 'warm.pt', STATE)
    ratio = float(subprocess.check_output(
        [sys.executable, '-c', PEAK, str(path)], cwd=tmp_path, text=True, timeout=400,
        env=os.environ | {'PYTHONPATH': str(cases.FOLDER.parents[1])}))
    assert 1.0 < ratio < 1.3


WHOLE = {kind: prefixed(encoder_state(kind), 'encoder.')
         | prefixed(predictor_state(kind), 'predictor.') for kind in ('2.0', '2.1')}


@pytest.mark.parametrize(('kind', 'make'), [
    ('2.0', lambda path: bundles.meta_20(path, target=STATE)),
    ('2.1', bundles.meta_21), ('2.0', lambda path: written(path, WHOLE['2.0']))])
def test_converted_weights_are_equal_bit_for_bit(tmp_path, kind, make):
    there = convert(make(tmp_path / 'a.pt'), tmp_path / 'there.safetensors')
    assert all(part.complete for part in there.parts)
    assert equal(load_file(tmp_path / 'there.safetensors'), WHOLE[kind])


def test_a_converted_block_causal_encoder_keeps_its_window(tmp_path):
    convert(save_causal_bundle(tmp_path / 'causal.safetensors'), tmp_path / 'a.safetensors')
    convert(tmp_path / 'a.safetensors', tmp_path / 'b.safetensors')
    assert load_encoder('tiny', weights=tmp_path / 'b.safetensors')[0].window == 2


@pytest.mark.parametrize(('change', 'options', 'problem'), [
    ({'encoder.norm.bias': torch.full((192,), 1e6)}, {'dtype': 'float16'},
     'too large for float16'),
    ({'encoder.norm.bias': torch.zeros(3)}, {}, 'encoder that is not complete.*inspect')])
def test_what_cannot_be_converted_is_refused_and_leaves_nothing(tmp_path, change, options,
                                                                problem):
    save_file(WHOLE['2.0'] | change, tmp_path / 'a.safetensors')
    with pytest.raises(WeightsError, match=problem):
        convert(tmp_path / 'a.safetensors', tmp_path / 'b', **options)
    assert [path.name for path in tmp_path.iterdir()] == ['a.safetensors']


def test_inspect_says_what_is_in_a_checkpoint_and_fails_where_something_is_missing(
        tmp_path, capsys, monkeypatch):
    monkeypatch.setenv('COLUMNS', '160')
    path = bundles.meta_20(tmp_path / 'vitl.pt')
    assert cli.main(['inspect', str(path)]) == 0
    text = capsys.readouterr().out
    assert 'target_encoder (default)' in text and examine(path).sha256 in text
    torch.save({'encoder': without('blocks.3.')}, tmp_path / 'a.pt')
    assert cli.main(['inspect', str(tmp_path / 'a.pt')]) == 1
    assert 'encoder: 12 missing: blocks.3.attn.proj.bias' in capsys.readouterr().out


META = BundleMeta(
    'test', '2.0', 4, 64, 'squash', (1 / 30, 0.5), {'half_width': 0.4, 'height': 1.2}, (1, 2),
    Calibration({'contact': (1.3, -0.2), 'moving': (0.9, 0.1),
                 'course': (1.1, -0.3), 'expansion': (1.7,), 'clearance': (0.8, 0.6)}),
    training={'seed': 5}, metrics={'auc': {'3s': 0.97, '1s': None}})
HEADS = lively_heads().state_dict()


def saved(path, meta=META, **parts):
    save_bundle(path, meta, **(parts or {'encoder': SMALL, 'heads': HEADS}))
    return path


def test_encoder_and_heads_come_back_as_saved_in_half_precision(tmp_path):
    path = saved(tmp_path / 'a.safetensors')
    encoder, heads, report = load_model(SIZE, weights=path)
    for built, state in ((encoder, SMALL), (heads, HEADS)):
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
        saved(path, encoder=SMALL | {'norm.bias': torch.full((48,), 1e6)})
    assert path.read_bytes() == before
    saved(path, encoder=encoder_state(seed=1, variant=SIZE))
    assert path.read_bytes() != before
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ['a.safetensors']


@pytest.mark.parametrize(('change', 'problem'), [
    (lambda m: m.update(format=2), 'format is 2.*reads format 1'),
    (lambda m: m.pop('interval_s'), "lacks 'interval_s'"),
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
    save_file(SMALL, backbone)
    meta = replace(meta, backbone_sha256=file_sha256(backbone))
    return backbone, saved(tmp_path / 'heads.safetensors', meta, heads=HEADS)


def test_heads_are_loaded_onto_the_encoder_they_were_trained_on(tmp_path):
    backbone, path = heads_file(tmp_path)
    encoder, heads, report = load_model(SIZE, weights=backbone, heads=path)
    assert not report.heads.meta.has_encoder
    assert torch.equal(heads.norm.weight, HEADS['norm.weight'])
    assert torch.equal(encoder.patch_embed.proj.weight, SMALL['patch_embed.proj.weight'])


@pytest.mark.parametrize(('meta', 'use', 'problem'), [
    ({}, {'weights': 'other', 'heads': 'heads'}, r'heads\.safe.*other weights.*other\.safe'),
    ({'variant': 'large'}, {'weights': 'backbone', 'heads': 'heads'},
     r"model size 'large'.*`model_size` is 'test'.*`model_size` to large"),
    ({}, {'weights': 'backbone', 'heads': 'backbone'}, 'has no heads.*`heads`'),
    ({}, {'weights': 'heads', 'heads': ''}, 'no encoder.*but: heads; set `weights`')])
def test_heads_that_do_not_belong_to_the_weights_are_refused(tmp_path, meta, use, problem):
    heads_file(tmp_path, replace(META, **meta))
    save_file(encoder_state(seed=8, variant=SIZE), tmp_path / 'other.safetensors')
    given = {key: value and tmp_path / f'{value}.safetensors' for key, value in use.items()}
    with pytest.raises(WeightsError, match=problem):
        load_model(SIZE, **given)


CONTENT = bytes(range(256)) * 20000
NAME = 'facebook/vjepa2-vitl-fpc64-256'


class Server(http.server.BaseHTTPRequestHandler):
    """Serve CONTENT everywhere but at /none; end early while `cut` is set."""

    protocol_version = 'HTTP/1.1'
    cut, tag = 0, '"1"'
    asked: list[str] = []

    def do_HEAD(self):
        self.start(200 if 'none' not in self.path else 404, len(CONTENT))

    def do_GET(self):
        wanted = self.headers.get('Range', '')
        type(self).asked.append(wanted)
        first = int(wanted[6:-1]) if wanted else 0
        rest = CONTENT[first:]
        self.start(206 if first else 200, len(rest))
        self.wfile.write(rest[:self.cut or None])
        self.close_connection = True

    def start(self, status, size):
        self.send_response(status)
        self.send_header('Content-Length', str(size))
        self.send_header('ETag', self.tag)
        self.end_headers()

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    """A server on this machine; the attributes of `Server` steer it."""
    for name, value in (('cut', 0), ('tag', '"1"'), ('asked', [])):
        monkeypatch.setattr(Server, name, value)
    with http.server.ThreadingHTTPServer(('127.0.0.1', 0), Server) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield f'http://127.0.0.1:{running.server_port}/'
        running.shutdown()
        thread.join()


@pytest.mark.parametrize(('tag', 'goes_on'), [('"1"', True), ('"2"', False)])
def test_an_interrupted_download_goes_on_where_it_stopped_if_the_file_is_the_same(
        server, tmp_path, tag, goes_on, monkeypatch):
    monkeypatch.setattr(Server, 'cut', 3_000_000)
    with pytest.raises(WeightsError, match='is kept: run the same command again'):
        download(server + 'a.pt', tmp_path, lambda *now: None)
    there = next(tmp_path.iterdir()).stat().st_size
    monkeypatch.setattr(Server, 'cut', 0)
    monkeypatch.setattr(Server, 'tag', tag)
    assert download(server + 'a.pt', tmp_path, lambda *now: None).read_bytes() == CONTENT
    assert Server.asked == ['', f'bytes={there}-' if goes_on else '']


def test_what_cannot_be_fetched_is_refused_and_leaves_nothing(server, tmp_path, monkeypatch):
    with pytest.raises(WeightsError, match='answers 404'):
        download(server + 'none.pt', tmp_path, lambda *now: None)
    full = types.SimpleNamespace(free=9)
    monkeypatch.setattr(fetching.shutil, 'disk_usage', lambda folder: full)
    with pytest.raises(WeightsError, match='choose another folder'):
        download(server + 'a.pt', tmp_path, lambda *now: None)
    assert os.listdir(tmp_path) == []


def test_a_file_is_fetched_completely_with_its_checksum(server, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr('vjepa_ros.cli.weights.BASE_URL', server)
    assert cli.main(['download', 'vitl', '--folder', str(tmp_path / 'new')]) == 0
    assert (tmp_path / 'new' / 'vitl.pt').read_bytes() == CONTENT
    assert hashlib.sha256(CONTENT).hexdigest() in capsys.readouterr().out


def snapshot_download(name, allow_patterns, local_files_only=False):
    """Stands for huggingface_hub: an empty cache, and a network that does not work."""
    if local_files_only:
        raise FileNotFoundError('not in the cache')
    raise RuntimeError('no route to host')


@pytest.mark.parametrize(('cause', 'problem'), [
    ('network', r"weights 'facebook/.*no route to host.*`weights`"),
    ('offline', 'HF_HUB_OFFLINE forbids'),
    ('library', 'no file or folder here.*pip install huggingface_hub')])
def test_a_name_that_can_not_be_fetched_is_an_error_and_never_random_weights(
        tmp_path, monkeypatch, cause, problem):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('HF_HUB_OFFLINE', '1' if cause == 'offline' else '0')
    hub = types.SimpleNamespace(snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, 'huggingface_hub', None if cause == 'library' else hub)
    with pytest.raises(WeightsError, match=problem):
        load_encoder('tiny', weights=NAME, allow_random_weights=True)
    (tmp_path / 'owner' / 'name').mkdir(parents=True)
    for path in ('owner/name', 'owner/none.pt', './owner/none', 'a/b/c', str(tmp_path / 'none')):
        assert located(path, 'weights') == Path(path)
