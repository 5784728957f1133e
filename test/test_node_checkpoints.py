# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test how a running node changes checkpoints, and when a node may fetch weights by name."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from types import SimpleNamespace

import checkpoints
import numpy as np
import pytest
import torch
from checkpoints import encoder_state, hugging_face_names, meta_ac, prefixed
from safetensors.torch import save_file

pytest.importorskip('rclpy')

from node_fixtures import Camera, node_running, now_ns
from ros_harness import ros_session
from test_planner_node import SMALL as SMALL_PLANNER
from test_planner_node import Planner

from vjepa_ros.model.variants import find_variant
from vjepa_ros.ros import read

pytestmark = [pytest.mark.ros, pytest.mark.any_distro]

LOAD_S = 60.0   # a generous limit: a change takes about a second on an idle machine


# -- files ----------------------------------------------------------------------------------------

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
    content = (path / 'model.safetensors' if path.is_dir() else path).read_bytes()
    said = {'model': 'tiny', 'trained': 'True', 'weights_dtype': 'float32', **said,
            'weights_sha256': hashlib.sha256(content).hexdigest()}
    before = features(node)
    found = serve(node, path, **values)
    assert {key: found[key] for key in said} == said
    after = features(node)
    assert after.shape[-1] == (384 if name == 'small' else 192)
    assert after.shape != before.shape or np.abs(after - before).max() > 0.1
    assert not node.assess().untrained


class Harm:
    """A pickle that makes a file when it is loaded without care."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f'touch {self.path}',)


def test_a_checkpoint_that_is_wrong_is_named_and_the_old_model_keeps_serving(node, good, tmp_path):
    old = serve(node, good['meta'])
    before, state = features(node), encoder_state(seed=9)
    torch.save({'encoder': state, 'extra': Harm(tmp_path / 'harmed')}, tmp_path / 'code.pt')
    torch.save({'target_encoder': state}, tmp_path / 'whole.pt')
    (tmp_path / 'cut.pt').write_bytes((tmp_path / 'whole.pt').read_bytes()[:100_000])
    with node.listen('assessment') as got:
        for name, problem in (('cut.pt', 'truncated or damaged'), ('code.pt', 'would run code'),
                              ('none.pt', 'does not exist')):
            since = node.written
            node.set(weights=str(tmp_path / name))
            log = node.wait_for_log(r'the old one keeps serving: [^\n]*\n', since, LOAD_S)
            assert re.search(f'{name}.*{problem}', log), log
            np.testing.assert_allclose(features(node), before, atol=1e-3, err_msg=name)
        # What failed last is in the diagnostics until something else is asked for.
        values = node.wait_for('model', lambda v: 'none.pt' in v['model_change'], LOAD_S)
        report = node.reports['model']
    assert report.level == b'\x01' and 'none.pt' in report.message
    for key in ('weights', 'weights_sha256', 'trained', 'state', 'errors'):
        assert values[key] == old[key]
    assert not any(read.assessment(msg).untrained for msg in got)
    assert not (tmp_path / 'harmed').exists()


# -- names of a hub -------------------------------------------------------------------------------

FIRST, OTHER = 'somebody/first', 'somebody/other'


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """Calls of a library of the hub; all its models are the same."""
    made, kept = [], {}
    (tmp_path / 'config.json').write_text(json.dumps({'model_type': 'vjepa2'}))
    save_file(prefixed(hugging_face_names(encoder_state()), 'encoder.'),
              tmp_path / 'model.safetensors')

    def snapshot_download(name, allow_patterns, local_files_only=False):
        made.append(f'{name} {"cache" if local_files_only else "fetch"}')
        if local_files_only and name not in kept:
            raise FileNotFoundError(name)
        return kept.setdefault(name, str(tmp_path))

    monkeypatch.setitem(sys.modules, 'huggingface_hub',
                        SimpleNamespace(snapshot_download=snapshot_download))
    monkeypatch.delenv('HF_HUB_OFFLINE', raising=False)
    return made


def test_a_name_that_is_set_while_the_node_runs_is_not_fetched(calls):
    with ros_session() as session, node_running(
            session, weights=FIRST, allow_random_weights=False) as node:
        node.do('configure', 'activate')
        assert calls == [f'{FIRST} cache', f'{FIRST} fetch']
        node.set(weights=OTHER)
        log = node.wait_for_log('the old one keeps serving: WeightsError: .*allow_download', 0,
                                LOAD_S)
        assert f"weights '{OTHER}'" in log and f'`vjepa-ros download {OTHER}`' in log
        assert calls[2:] == [f'{OTHER} cache']
        refused = node.try_set('allow_download', True)
        assert not refused.successful and 'restart' in refused.reason
        # Nor does a new configure fetch it; what was named at the start is served again.
        node.do('deactivate', 'cleanup')
        assert not node.change('configure')
        assert 'allow_download' in node.report().message
        assert calls[3:] == [f'{OTHER} cache']
        node.set(weights=FIRST)
        node.do('configure')
        assert calls[4:] == [f'{FIRST} cache']


def test_with_allow_download_it_is(calls, tmp_path):
    with ros_session() as session, node_running(
            session, allow_download=True) as node:
        node.do('configure')
        node.set(weights=OTHER, allow_random_weights=False)
        node.wait_for('model', lambda v: v['model_change'] == 'none'
                      and v['weights'] == str(tmp_path), LOAD_S)
        assert calls == [f'{OTHER} cache', f'{OTHER} fetch']


@pytest.mark.parametrize('name', ['weights', 'predictor'])
def test_so_it_is_with_the_planner(calls, tmp_path, name):
    path = str(meta_ac(tmp_path / 'ac.pt'))
    with ros_session() as session, session.compose(
            'vjepa_ros.ros.action_planner', {**SMALL_PLANNER, 'weights': path}) as process:
        planner = Planner(session, process)
        planner.set(**{name: OTHER})
        assert not planner.change('configure')
        planner.wait_for_log(f"{name} '{OTHER}'.*allow_download")
        assert calls == [f'{OTHER} cache']
