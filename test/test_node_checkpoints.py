# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test how a running node changes checkpoints: good ones are taken and named, others refused."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re

import checkpoints
import numpy as np
import pytest
import torch
from checkpoints import encoder_state, hugging_face_names, prefixed
from safetensors.torch import save_file

pytest.importorskip('rclpy')

from node_fixtures import Camera, node_running, now_ns
from ros_harness import ros_session

from vjepa_ros.model.variants import find_variant
from vjepa_ros.ros import read

pytestmark = [pytest.mark.ros, pytest.mark.any_distro]

LOAD_S = 60.0   # a generous limit: a change takes about a second on an idle machine


class Harm:
    """A pickle that makes a file when it is loaded without care."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f'touch {self.path}',)


@pytest.fixture(scope='module')
def good(tmp_path_factory):
    """Checkpoints of different layouts and networks."""
    folder = tmp_path_factory.mktemp('good')
    theirs = folder / 'vjepa2-vitl-fpc64-256'
    theirs.mkdir()
    (theirs / 'config.json').write_text(json.dumps(
        {'model_type': 'vjepa2', 'crop_size': 256, 'frames_per_clip': 64}))
    save_file(prefixed(hugging_face_names(encoder_state(seed=3)), 'encoder.'),
              theirs / 'model.safetensors')
    small = folder / 'small.safetensors'
    save_file(prefixed(encoder_state(variant=find_variant('small')), 'encoder.'), small)
    return {
        'meta': checkpoints.meta_20(folder / 'vitl.pt'), 'theirs': theirs, 'small': small,
        'dense': checkpoints.meta_21(folder / 'vjepa2_1_vitb_dist_vitG_384.pt')}


@pytest.fixture(scope='module')
def node(good):
    """An active node with the weights `good['meta']` and a camera that looks at a picture.

    Random weights are allowed: a file that fails must not lead there all the same.
    """
    with ros_session() as session, node_running(
            session, autostart=True, weights=str(good['meta'])) as running, \
            Camera(session, rate=20.0):
        assert running.ros.spin_until(lambda: running.state == 'active', 60.0)
        yield running


def serve(node, path, part='auto', **values):
    """Ask for a checkpoint and wait until the node serves it; what diagnostics then say."""
    wanted = {'model_size': 'tiny', 'model_version': '2.0', 'weights_part': part, **values}
    node.set(weights=str(path), **wanted)
    return node.wait_for('model', lambda v: (
        v['weights'], v['model'], v['model_change']) == (str(path), wanted['model_size'], 'none')
        and part in ('auto', v['weights_part']), LOAD_S)


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def features(node):
    """Those of a picture that is taken from now on."""
    asked = now_ns()
    with node.listen('features') as got:
        assert node.ros.spin_until(lambda: got and read.stamp_ns(got[-1]) > asked, 60.0)
        return read.features(got[-1])


# Values that the node is given, and what its diagnostics then say.
CHANGES = {
    'theirs': ({}, {
        'weights_layout': 'Hugging Face', 'weights_part': 'encoder', 'model_version': '2.0',
        'weights_made_for': 'resize mode hf, 256 pixels, 64 frames, 4 Hz'}),
    'meta': ({'part': 'encoder'}, {
        'weights_layout': 'Meta', 'weights_part': 'encoder', 'model_version': '2.0',
        'weights_made_for': 'resize mode meta, 256 pixels, frames unknown, 4 Hz'}),
    'dense': ({'model_version': '2.1'}, {
        'weights_layout': 'Meta', 'weights_part': 'ema_encoder', 'model_version': '2.1',
        'weights_made_for': 'resize mode meta, 384 pixels, frames unknown, 4 Hz'}),
    'small': ({'model_size': 'small'}, {
        'weights_layout': 'Meta', 'weights_part': 'encoder', 'model': 'small'})}


@pytest.mark.parametrize('name', CHANGES)
def test_a_checkpoint_is_taken_while_the_node_runs_and_named(node, good, name):
    values, said = CHANGES[name]
    path = good[name]
    said = {'model': 'tiny', 'trained': 'True', 'weights_dtype': 'float32', **said,
            'weights_sha256': sha256(path / 'model.safetensors' if path.is_dir() else path)}
    before, since = features(node), node.written
    found = serve(node, path, **values)
    assert {key: found[key] for key in said} == said
    assert str(path) in node.wait_for_log('loaded .* tensors', since)
    after = features(node)
    assert after.shape[-1] == (384 if name == 'small' else 192)
    assert after.shape != before.shape or np.abs(after - before).max() > 0.1
    assert not node.assess().untrained


def broken_files(folder):
    """Path of a file that is wrong in each way, and what must be said of it."""
    state = encoder_state(seed=9)

    def saved(name, content):
        torch.save(content, folder / name)
        return folder / name

    def without(prefix):
        return {key: value for key, value in state.items() if not key.startswith(prefix)}

    whole = saved('whole.pt', {'target_encoder': state}).read_bytes()
    (folder / 'truncated.pt').write_bytes(whole[:len(whole) // 2])
    (folder / 'text.pt').write_text('not a checkpoint')
    (folder / 'pickle.pt').write_bytes(pickle.dumps(Harm(folder / 'harmed')))
    save_file(prefixed(encoder_state(variant=find_variant('small')), 'encoder.'),
              folder / 'small.safetensors')
    broken = state['blocks.3.mlp.fc1.weight'].clone()
    broken[5, 7] = float('nan')
    weight = 'blocks.0.attn.proj.weight'
    return {
        'truncated': (folder / 'truncated.pt', 'truncated or damaged.*get the file anew'),
        'other variant': (folder / 'small.safetensors', "does not fit model size 'tiny'.*"
                          "wrong shape.*fits model size 'small' version 2.0"),
        'other version': (saved('21.pt', {'ema_encoder': encoder_state('2.1')}),
                          r"does not fit model size 'tiny' version 2\.0.*version 2\.1"),
        'missing block': (saved('block.pt', {'encoder': without('blocks.5.')}),
                          r'12 missing \(blocks\.5\.'),
        'swapped prefix': (saved('swapped.pt', {'encoder': checkpoints.predictor_state(),
                                                'predictor': state}), 'swapped prefixes'),
        'NaN inside': (saved('nan.pt', {'encoder': {**state, 'blocks.3.mlp.fc1.weight': broken}}),
                       r'hold NaN or infinity \(blocks\.3\.mlp\.fc1\.weight\)'),
        'wrong type': (saved('int8.pt', {'encoder': {**state, weight: state[weight].char()}}),
                       r'wrong type \(blocks\.0\.attn\.proj\.weight int8\)'),
        'no checkpoint': (folder / 'text.pt', 'is not a checkpoint'),
        'bare pickle': (folder / 'pickle.pt', 'bare pickle, which could run any code'),
        'code inside': (saved('code.pt', {'encoder': state, 'extra': Harm(folder / 'harmed')}),
                        'would run code.*refused'),
        'missing file': (folder / 'none.pt', 'does not exist'),
    }


def test_each_way_a_checkpoint_can_be_wrong_is_told_and_the_old_model_keeps_serving(
        node, good, tmp_path):
    old = serve(node, good['meta'])
    before, said, reports = features(node), {}, []
    with node.listen('assessment') as got:
        for kind, (path, problem) in broken_files(tmp_path).items():
            since = node.written
            node.set(weights=str(path))
            log = node.wait_for_log(r'the old one keeps serving: [^\n]*\n', since, LOAD_S)
            said[kind] = re.search(r'keeps serving: WeightsError: ([^\n]*)\n', log)[1]
            assert re.search(problem, said[kind]), (kind, said[kind])
            assert str(path) in said[kind], kind
            asked = now_ns()
            assert node.ros.spin_until(
                lambda t=asked: got and read.stamp_ns(got[-1]) > t, 60.0), kind
            np.testing.assert_allclose(features(node), before, atol=1e-3, err_msg=kind)
            reports.append(node.reports['model'])
        # What failed last is in the diagnostics until something else is asked for.
        node.wait_for('model', lambda v: str(path) in v['model_change'], LOAD_S)
        reports.append(node.reports['model'])
    assert reports[-1].level == b'\x01' and said[kind] in reports[-1].message
    for report in reports:
        values = {one.key: one.value for one in report.values}
        assert {key: values[key] for key in ('weights', 'weights_sha256', 'trained', 'state')} == {
            'weights': str(good['meta']), 'weights_sha256': sha256(good['meta']),
            'trained': 'True', 'state': 'active'}
        assert values['errors'] == '0'
    assert len({text.split("'", 2)[2] for text in said.values()}) == len(said)  # all differ
    assert not any(read.assessment(msg).untrained for msg in got)
    assert not (tmp_path / 'harmed').exists()
    assert serve(node, good['meta'])['weights_sha256'] == old['weights_sha256']
