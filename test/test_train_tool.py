# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test `vjepa-ros train` from its options and recipes to its files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import cv2
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tiny_world import TINY, TinyWorld

from vjepa_ros.cli import train as tool
from vjepa_ros.lab.training import run
from vjepa_ros.lab.training.config import plan, read_recipe
from vjepa_ros.lab.training.loop import read_state
from vjepa_ros.model.checkpoint import load
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.variants import VARIANTS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures('tiny_training')]

SHORT = ('--set', 'model_size=test', 'batch=8', 'num_frames=4', 'image_size=32',
         'validation_clips=8', 'validations=2', 'progress_s=0', 'precision=fp32')


def train(folder, *words, clips=32):
    return tool.main(['--out', str(folder), *SHORT, 'calibration_clips=40', 'held_out_clips=60',
                      '--clips', str(clips), *words])


def test_a_run_leaves_everything_behind(tmp_path, caplog):
    assert train(tmp_path) == 0
    assert 'after 32 clips' in caplog.text
    assert cv2.imread(str(tmp_path / 'curves.png')).std() > 5
    encoder, _, report = load.load_model('test', weights=tmp_path / 'test.safetensors')
    meta = report.heads.meta
    assert (meta.num_frames, meta.image_size, meta.has_encoder) == (4, 32, True)
    assert meta.calibration['contact'][0] != 1.0
    metrics = json.loads((tmp_path / 'metrics.json').read_text())
    assert metrics['held_out']['standard']['clips'] == 60
    assert meta.metrics == {'held_out': metrics['held_out']}
    assert [h['part'] for h in metrics['history'] if h['kind'] == 'validation'] == [1, 2]
    # What is saved is the average, which differs from the newest weights.
    state, name = read_state(tmp_path), 'encoder.norm.weight'
    assert torch.allclose(encoder.state_dict()['norm.weight'], state.average[name], atol=1e-3)
    assert not torch.equal(state.average[name], state.network[name])


def test_a_stopped_run_is_continued(tmp_path, monkeypatch, capsys):
    class Impatient(TinyWorld):
        def film(self, sample):
            if len(self.filmed) == 1:
                os.kill(os.getpid(), signal.SIGTERM)
            return super().film(sample)

    monkeypatch.setattr(run, 'ClipWorld', Impatient)
    words = ['--set', 'validations=0', 'optimizer=muon', 'reuse=2']
    assert train(tmp_path / 'a', *words) == 0
    assert not (tmp_path / 'a' / 'test.safetensors').exists()
    assert read_state(tmp_path / 'a').step == 2
    unfinished = tmp_path / 'a' / 'unfinished.safetensors'
    assert load.load_model('test', weights=unfinished)[1] is not None  # safe, if all else is lost
    monkeypatch.setattr(run, 'ClipWorld', TinyWorld)
    assert train(tmp_path / 'a', *words, 'lr=0.5') == 2
    assert 'lr: 0.001 then, 0.5 now' in ' '.join(capsys.readouterr().err.split())
    for name in 'ab':
        assert train(tmp_path / name, *words) == 0
    assert not unfinished.exists()
    one, two = (read_state(tmp_path / name).average for name in 'ab')
    assert all(torch.equal(one[k], two[k]) for k in one)


@pytest.mark.parametrize(('words', 'said'), [
    (('--set', 'color=red'), 'unknown keys color'), (('--recipe', 'huge'), 'of the package: tiny'),
    (('--weights', 'missing.safetensors'), 'missing.safetensors'),
    (('--device', 'cuda:77'), 'cuda:77'), (('--set', 'reuse=3'), 'multiple of reuse'),
    (('--recording', 'nowhere'), 'nowhere')])
def test_what_cannot_work_is_said_in_words(tmp_path, capsys, words, said):
    assert train(tmp_path, *words) == 2
    assert said in ' '.join(capsys.readouterr().err.split())


RECIPE = """
model_size: test
optimizer: muon
stages:
  - {name: a, clips: 60, ends_at: 0.5}
  - {name: b, clips: 10, heads_only: true, optimizer: adamw, auxiliary: true}
  - {name: c, clips: 40, window: 2, num_frames: 8, start_share: 1, world: both}
"""


def test_the_stages_of_a_recipe_follow_each_other(tmp_path, caplog, monkeypatch):
    monkeypatch.setitem(VARIANTS, 'test', replace(TINY, depth=12))
    recipe = tmp_path / 'mine.yaml'
    recipe.write_text(RECIPE)
    words = ('--recipe', str(recipe), '--set', 'c.num_frames=10', 'calibration_clips=0',
             'held_out_clips=0', 'num_frames=8')
    assert train(tmp_path / 'out', *words, clips=80) == 0
    assert [read_state(tmp_path / 'out' / name).clips for name in 'abc'] == [32, 16, 40]
    a, b, c = (load_file(tmp_path / 'out' / name / 'test.safetensors') for name in 'abc')
    # The second stage trained heads alone, and has both.
    assert all(torch.equal(b[n], value) for n, value in a.items() if n.startswith('encoder.'))
    assert not torch.equal(a['heads.dense.1.weight'], b['heads.dense.1.weight'])
    # The third started from both, and of its own steps it keeps nothing here.
    for name in ('encoder.blocks.0.attn.qkv.weight', 'heads.dense.1.weight'):
        assert torch.equal(c[name], b[name])
    assert load.read_meta(tmp_path / 'out' / 'c' / 'test.safetensors').window == 2
    assert train(tmp_path / 'out', *words, clips=80) == 0
    assert caplog.text.count('complete already') == 3


def test_the_recipe_of_the_package_adds_up_to_the_bundled_weights():
    stages = plan(read_recipe('tiny'), 'runs/tiny', {})
    steps = [round(stage.clips * stage.ends_at / stage.batch) for stage in stages]
    assert sum(n * stage.batch for n, stage in zip(steps, stages, strict=True)) == 4_399_872
    shared = plan(read_recipe('tiny'), 'runs/tiny', {'seconds': '60'})
    assert sum(stage.seconds * stage.ends_at for stage in shared) == pytest.approx(60)


def test_heads_for_a_backbone_are_saved_alone_and_know_their_encoder(tmp_path):
    encoder, weights = Encoder(TINY), tmp_path / 'backbone.safetensors'
    encoder.init_random(3)
    save_file({k: v.contiguous() for k, v in encoder.state_dict().items()}, weights)
    assert train(tmp_path / 'run', '--heads-only', '--weights', str(weights)) == 0
    path = tmp_path / 'run' / 'test-heads.safetensors'
    _, heads, report = load.load_model('test', weights=weights, heads=path)
    assert heads.dim == TINY.dim and not report.heads.meta.has_encoder
    with safe_open(path, framework='pt') as file:
        assert all(name.startswith('heads.') for name in file.keys())  # noqa: SIM118
    with pytest.raises(load.WeightsError, match='other weights'):
        load.load_model('test', weights='random', heads=path, allow_random_weights=True)


def test_two_processes_train_one_network_on_the_real_world(tmp_path):
    done = subprocess.run(
        [sys.executable, '-m', 'torch.distributed.run', '--standalone', '--nproc-per-node', '2',
         '-m', 'vjepa_ros', 'train', '--out', str(tmp_path), '--clips', '8', '--device', 'cpu',
         '--set', 'image_size=32', 'num_frames=4', 'batch=4', 'textures=30', 'precision=fp32',
         'auxiliary=true', 'optimizer=muon', 'validations=0', 'calibration_clips=4',
         'held_out_clips=4'], cwd=Path(__file__).resolve().parents[1],
        capture_output=True, text=True, timeout=500, env={**os.environ, 'OMP_NUM_THREADS': '1'})
    assert done.returncode == 0, done.stderr[-3000:]
    meta = load.read_meta(tmp_path / 'tiny.safetensors')
    assert meta.training['hardware'][0].startswith('2 x ')
    assert (meta.training['steps'], meta.training['clips']) == (2, 8)
    assert meta.metrics['held_out']['standard']['looming_r2'] is not None
