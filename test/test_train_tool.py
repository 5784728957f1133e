# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test `vjepa-ros train` from its options to its files."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tiny_world import TINY, TinyWorld

from vjepa_ros.cli import train as tool
from vjepa_ros.lab.training import run
from vjepa_ros.lab.training.state import read_state
from vjepa_ros.lab.world.clips import ClipWorld
from vjepa_ros.model.checkpoint.load import (
    WeightsError,
    load_encoder,
    load_heads,
    load_model,
    read_meta,
)
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.variants import VARIANTS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures('tiny_training')]

SHORT = ('--model-size', 'test', '--clips', '32', '--batch', '8', '--num-frames', '4',
         '--image-sizes', '32', '--validation-clips', '8', '--validations', '2',
         '--calibration-clips', '40', '--held-out-clips', '60', '--progress-s', '0',
         '--precision', 'fp32')
HERE = Path(__file__).resolve().parent


def train(folder, *words):
    return tool.main(['--out', str(folder), *SHORT, *words])


def backbone(folder: Path) -> Path:
    """A weights file of an encoder alone, as another program would bring it."""
    encoder = Encoder(TINY)
    encoder.init_random(3)
    path = folder / 'backbone.safetensors'
    save_file({k: v.contiguous() for k, v in encoder.state_dict().items()}, path)
    return path


def test_a_run_leaves_everything_behind(tmp_path, capsys):
    assert train(tmp_path) == 0
    assert 'after 32 clips' in capsys.readouterr().err
    assert cv2.imread(str(tmp_path / 'curves.png')).std() > 5
    encoder, heads, report = load_model('test', weights=tmp_path / 'test.safetensors')
    assert heads is not None
    meta = report.heads.meta
    assert (meta.num_frames, meta.image_size, meta.has_encoder) == (4, 32, True)
    assert meta.robot.keys() == {'half_width', 'height'}
    assert meta.calibration['contact'][0] != 1.0
    metrics = json.loads((tmp_path / 'metrics.json').read_text())
    assert metrics['held_out']['standard']['clips'] == 60
    assert meta.metrics == {'held_out': metrics['held_out']}
    assert [h['part'] for h in metrics['history'] if h['kind'] == 'validation'] == [1, 2]
    assert metrics['training']['clips'] == 32
    # What is saved is the average, which differs from the newest weights.
    state, name = read_state(tmp_path), 'encoder.norm.weight'
    assert torch.allclose(encoder.state_dict()['norm.weight'], state.average[name], atol=1e-3)
    assert not torch.equal(state.average[name], state.network[name])


def test_seconds_are_those_of_training_and_are_told(tmp_path, caplog, monkeypatch):
    judged = run._Run._figures
    monkeypatch.setattr(run._Run, '_figures', lambda self: (time.sleep(2.0), judged(self))[1])
    begun = time.monotonic()
    assert train(tmp_path, '--clips', '0', '--seconds', '3') == 0
    whole, = re.findall(r'trained for (\d+) s; .* took (\d+) s', caplog.text)
    trained, rest = map(int, whole)
    assert trained == round(read_state(tmp_path).seconds) >= 3
    assert rest >= 4 and trained + rest <= time.monotonic() - begun + 1


def test_a_machine_without_matplotlib_can_train(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, 'matplotlib.figure', None)
    assert train(tmp_path, '--validations', '0') == 0
    assert (tmp_path / 'test.safetensors').is_file()
    assert not (tmp_path / 'curves.png').exists()


def test_a_stopped_run_is_continued(tmp_path, monkeypatch):
    stop_after = 2

    class Impatient(TinyWorld):
        def film(self, sample):
            if len(self.filmed) == stop_after - 1:
                os.kill(os.getpid(), signal.SIGTERM)
            return super().film(sample)

    monkeypatch.setattr(run, 'ClipWorld', Impatient)
    assert train(tmp_path / 'a', '--validations', '0') == 0
    assert not (tmp_path / 'a' / 'test.safetensors').exists()
    assert read_state(tmp_path / 'a').step == stop_after
    unfinished = tmp_path / 'a' / 'unfinished.safetensors'
    assert load_model('test', weights=unfinished)[1] is not None       # safe, if all else is lost
    monkeypatch.setattr(run, 'ClipWorld', TinyWorld)
    assert train(tmp_path / 'a', '--validations', '0') == 2            # not without being asked
    assert train(tmp_path / 'a', '--validations', '0', '--resume', '--lr', '0.5') == 2
    assert train(tmp_path / 'a', '--validations', '0', '--resume') == 0
    assert train(tmp_path / 'b', '--validations', '0', '--resume') == 0  # nothing there: from new
    assert not unfinished.exists()
    one, two = (read_state(tmp_path / name).average for name in 'ab')
    assert all(torch.equal(one[k], two[k]) for k in one)
    assert len(read_meta(tmp_path / 'a' / 'test.safetensors').training['hardware']) == 1


def test_only_a_second_ctrl_c_ends_at_once():
    before = signal.getsignal(signal.SIGTERM)
    with tool.stop_on_signal() as asked:
        for kind in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), kind)
        assert asked == [signal.SIGTERM, signal.SIGTERM, signal.SIGINT]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(('words', 'said'), [
    (('--batch', '0'), 'batch'), (('--weights', 'missing.safetensors'), 'missing.safetensors'),
    (('--device', 'cuda:77'), 'cuda:77'), (('--reuse', '3'), 'multiple of reuse'),
    (('--recording', 'nowhere'), 'nowhere')])
def test_what_cannot_work_is_said_in_words(tmp_path, capsys, words, said):
    assert train(tmp_path, *words) == 2
    assert said in capsys.readouterr().err.replace('\n', '')


def test_sizes_and_thinning_may_change_over_the_run(tmp_path):
    assert train(tmp_path, '--image-sizes', '32:0.5,48:0.5', '--tokens-kept', '0.5:0.5,1:0.5',
                 '--objective', 'both', '--reuse', '2') == 0
    history = json.loads((tmp_path / 'metrics.json').read_text())['history']
    sizes = [(h['size'], h['kept']) for h in history if h['kind'] == 'train']
    assert sizes == [(32, 0.5), (32, 0.5), (48, 1.0), (48, 1.0)]
    assert read_meta(tmp_path / 'test.safetensors').image_size == 48


def test_the_objectives_are_compared(tmp_path):
    assert train(tmp_path, '--ablation') == 0
    results = json.loads((tmp_path / 'ablation.json').read_text())
    assert results.keys() == {'supervised', 'jepa', 'both'}
    assert {r['clips'] for r in results.values()} == {32}
    table = (tmp_path / 'ablation.md').read_text()
    assert table.count('\n') == 5
    assert f'{results["both"]["auc_3s"]:.3f}' in table
    assert (tmp_path / 'jepa' / 'test.safetensors').is_file()


def test_heads_for_a_backbone_are_saved_alone_and_know_their_encoder(tmp_path):
    weights = backbone(tmp_path)
    assert train(tmp_path / 'run', '--heads-only', '--weights', str(weights)) == 0
    path = tmp_path / 'run' / 'test-heads.safetensors'
    heads, report = load_heads(path, *load_encoder('test', weights=weights))
    assert heads.dim == TINY.dim
    assert not report.meta.has_encoder
    with safe_open(path, framework='pt') as file:
        assert all(name.startswith('heads.') for name in file.keys())  # noqa: SIM118
    with pytest.raises(WeightsError, match='other weights'):
        load_heads(path, *load_encoder('test', weights='random', allow_random_weights=True))


def test_adapters_change_the_encoder_that_heads_are_loaded_for(tmp_path):
    weights = backbone(tmp_path)
    assert train(tmp_path / 'run', '--heads-only', '--weights', str(weights), '--lora-rank', '2',
                 '--lr', '0.01') == 0
    state = read_state(tmp_path / 'run')
    assert {name.split('.')[0] for name in state.network} == {'encoder', 'heads'}
    assert all(name.endswith(('.up', '.down')) for name in state.network
               if name.startswith('encoder.'))
    encoder, report = load_encoder('test', weights=weights)
    before = encoder.blocks[0].attn.qkv.weight.clone()
    _, heads_report = load_heads(tmp_path / 'run' / 'test-heads.safetensors', encoder, report)
    assert heads_report.adapted
    assert not torch.equal(before, encoder.blocks[0].attn.qkv.weight)


WORKER = """
import sys
sys.path[:0] = {paths!r}
from tiny_world import TINY, TinyWorld
from vjepa_ros.model.variants import VARIANTS
from vjepa_ros.cli.train import main
from vjepa_ros.lab.training import run
from vjepa_ros.lab.training.loop import Trainer
import os, torch
torch.set_num_threads(1)
VARIANTS['test'] = TINY
run.ClipWorld = TinyWorld
run._Run._paint = lambda self: 'textures'
train = Trainer.run
def watched(self, *args):
    done = train(self, *args)
    torch.save({{'network': {{n: p.detach() for n, p in self.network.named_parameters()}},
                'average': self.average.values, 'clips': self.budget.clips_done}},
               {out!r} + '/rank' + os.environ['RANK'])
    return done
Trainer.run = watched
sys.exit(main(sys.argv[1:]))
"""


def test_two_processes_train_one_network(tmp_path):
    script = tmp_path / 'worker.py'
    script.write_text(WORKER.format(paths=[str(HERE), str(HERE.parent)], out=str(tmp_path)))
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = free.getsockname()[1]
    done = subprocess.run(
        [sys.executable, '-m', 'torch.distributed.run', '--nproc-per-node', '2',
         '--master-addr', '127.0.0.1', '--master-port', str(port), str(script),
         '--out', str(tmp_path / 'run'), *SHORT, '--objective', 'both', '--tokens-kept', '0.5',
         '--auxiliary', '--optimizer', 'muon'],
        capture_output=True, text=True, timeout=500, env={**os.environ, 'OMP_NUM_THREADS': '1'})
    assert done.returncode == 0, done.stderr[-3000:]
    one, two = (torch.load(tmp_path / f'rank{rank}', weights_only=True) for rank in (0, 1))
    for kind in ('network', 'average'):
        assert one[kind].keys() == two[kind].keys()
        assert all(torch.equal(one[kind][n], two[kind][n]) for n in one[kind])
    assert one['clips'] == two['clips'] == 32        # 2 steps of 2 x 8 clips
    meta = read_meta(tmp_path / 'run' / 'test.safetensors')
    assert meta.training['steps'] == 2
    assert meta.training['hardware'][0].startswith('2 x ')


def test_the_real_world_is_trained_on(tmp_path, monkeypatch):
    worlds, photos = [], tmp_path / 'photos'

    class Watched(ClipWorld):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            worlds.append(self)
    monkeypatch.undo()
    monkeypatch.setitem(VARIANTS, 'test', TINY)
    monkeypatch.setattr(run, 'ClipWorld', Watched)
    photos.mkdir()
    cv2.imwrite(str(photos / 'a.png'), np.random.default_rng(0).integers(
        0, 255, (64, 64, 3), np.uint8))
    assert train(tmp_path, '--clips', '8', '--batch', '4', '--validations', '0', '--photos',
                 str(photos), '--textures', '30', '--calibration-clips', '4',
                 '--held-out-clips', '4') == 0
    training, judging = worlds
    assert not torch.equal(training.bank.atlas.texels[:64], judging.bank.atlas.texels[:64])
    assert '30 crops of photographs' in (tmp_path / 'test.md').read_text()
    meta = read_meta(tmp_path / 'test.safetensors')
    assert meta.interval_s == pytest.approx((1 / 30, 1 / 2))
    assert meta.metrics['held_out']['standard']['looming_r2'] is not None
