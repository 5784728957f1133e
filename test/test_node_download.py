# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Nodes fetch weights that were named at their start, and later ones only where they may."""

from __future__ import annotations

import json
import os

import pytest
from checkpoints import encoder_state, hugging_face_names, meta_ac, prefixed
from safetensors.torch import save_file

pytest.importorskip('rclpy')

from node_fixtures import node_process
from ros_harness import REPOSITORY, ros_session
from test_planner_node import SMALL as SMALL_PLANNER
from test_planner_node import Planner

pytestmark = [pytest.mark.slow, pytest.mark.ros, pytest.mark.any_distro]

LOAD_S = 60.0
FIRST, OTHER = 'somebody/first', 'somebody/other'
LIBRARY = """
import os, pathlib, shutil

HUB = pathlib.Path(os.environ['FAKE_HUB'])


def snapshot_download(name, allow_patterns, local_files_only=False):
    with (HUB / 'calls').open('a') as calls:
        calls.write(f'{name} {"cache" if local_files_only else "fetch"}\\n')
    kept = HUB / 'cache' / name
    if local_files_only and not kept.is_dir():
        raise FileNotFoundError(name)
    if not local_files_only:
        shutil.copytree(HUB / 'models', kept)
    return str(kept)
"""


class Hub:
    """A library of the hub that notes its calls; all its models are the same."""

    def __init__(self, folder):
        self.folder = folder
        (folder / 'models').mkdir()
        (folder / 'models' / 'config.json').write_text(json.dumps({'model_type': 'vjepa2'}))
        save_file(prefixed(hugging_face_names(encoder_state()), 'encoder.'),
                  folder / 'models' / 'model.safetensors')
        (folder / 'huggingface_hub.py').write_text(LIBRARY)
        (folder / 'calls').touch()
        self.env = {'FAKE_HUB': str(folder), 'HF_HUB_OFFLINE': None, 'PYTHONPATH': os.pathsep.join(
            (str(folder), str(REPOSITORY), os.environ.get('PYTHONPATH', '')))}

    @property
    def calls(self):
        return (self.folder / 'calls').read_text().split('\n')[:-1]


@pytest.fixture
def hub(tmp_path):
    return Hub(tmp_path)


def test_a_name_that_is_set_while_the_node_runs_is_not_fetched(hub):
    with ros_session() as session, node_process(
            session, env=hub.env, weights=FIRST, allow_random_weights=False) as node:
        node.do('configure', 'activate')
        assert hub.calls == [f'{FIRST} cache', f'{FIRST} fetch']
        node.set(weights=OTHER)
        log = node.wait_for_log('the old one keeps serving: WeightsError: .*allow_download', 0,
                                LOAD_S)
        assert f"weights '{OTHER}' is no file or folder here" in log
        assert f'`vjepa-ros download {OTHER}`' in log
        assert hub.calls[2:] == [f'{OTHER} cache']
        refused = node.try_set('allow_download', True)
        assert not refused.successful and 'restart' in refused.reason
        # Nor does a new configure fetch it; what was named at the start is served again.
        node.do('deactivate', 'cleanup')
        assert not node.change('configure')
        assert 'allow_download' in node.report().message
        assert hub.calls[3:] == [f'{OTHER} cache']
        node.set(weights=FIRST)
        node.do('configure')
        assert hub.calls[4:] == [f'{FIRST} cache']


def test_with_allow_download_it_is(hub):
    with ros_session() as session, node_process(
            session, env=hub.env, allow_download=True) as node:
        node.do('configure')
        node.set(weights=OTHER, allow_random_weights=False)
        node.wait_for('model', lambda v: v['weights'].endswith(OTHER), LOAD_S)
        assert hub.calls == [f'{OTHER} cache', f'{OTHER} fetch']


@pytest.mark.parametrize('name', ['weights', 'predictor'])
def test_so_it_is_with_the_planner(hub, tmp_path, name):
    path = str(meta_ac(tmp_path / 'ac.pt'))
    with ros_session() as session, session.spawn(
            'vjepa_ros.ros.action_planner', {**SMALL_PLANNER, 'weights': path}, env=hub.env
            ) as process:
        planner = Planner(session, process)
        planner.set(**{name: OTHER})
        assert not planner.change('configure')
        log = planner.wait_for_log('allow_download')
        assert f"{name} '{OTHER}' is no file or folder here" in log
        assert hub.calls == [f'{OTHER} cache']
