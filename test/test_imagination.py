# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Train a predictor of twists on rendered futures, and judge it beside others."""

from __future__ import annotations

import itertools
import json
import math
import os
import signal
from typing import Any

import numpy as np
import pytest
import torch
from bundles import constant_heads, meta
from render_scenes import Camera, scene

from vjepa_ros.cli import evaluate, train
from vjepa_ros.lab.training import imagination
from vjepa_ros.lab.training.config import TrainConfig
from vjepa_ros.lab.training.feeds import Draw, Order
from vjepa_ros.lab.training.imagination import (
    STEPS,
    imagination_losses,
    make_futures,
    make_pasts,
    view_of,
)
from vjepa_ros.lab.training.imagination_figures import config_of, figures, met, placed
from vjepa_ros.lab.training.imagination_run import PastFeed, build
from vjepa_ros.lab.training.network import Network
from vjepa_ros.lab.training.state import read_state
from vjepa_ros.lab.world.clips import ClipWorld
from vjepa_ros.lab.world.rendering.truth import Robot
from vjepa_ros.lab.world.scenes.scene_rng import SceneRng
from vjepa_ros.lab.world.textures.bank import TextureBank
from vjepa_ros.model.checkpoint.load import load_model, save_bundle
from vjepa_ros.model.checkpoint.twist_files import load_twists
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.twist_predictor import CELLS, TwistPredictor
from vjepa_ros.model.variants import find_variant
from vjepa_ros.perception.looming_cells import LoomingCells

pytestmark = pytest.mark.usefixtures('one_thread')
SIZE, SIDE, WINDOW = find_variant('tiny'), 48, 2


@pytest.fixture(scope='module')
def weights(tmp_path_factory):
    """An untrained encoder that streams, with heads that say the same of every clip."""
    path = tmp_path_factory.mktemp('weights') / 'tiny.safetensors'
    encoder = Encoder(SIZE, '2.1', WINDOW)
    encoder.init_random(0)
    made = dict.fromkeys(('data', 'objective', 'command', 'software'), 'none') | {
        'clips': 1, 'steps': 1, 'seed': 0, 'seconds': 1.0, 'hardware': []}
    save_bundle(path, meta(version='2.1', window=WINDOW, image_size=SIDE, training=made),
                encoder=encoder.state_dict(), heads=constant_heads(contact=3.0).state_dict())
    return path


@pytest.fixture(scope='module')
def filmed(weights):
    """A world, pasts of it of which two were filmed on, and who encoded them."""
    encoder, heads, _ = load_model('tiny', weights=weights)
    network = Network(encoder, heads).eval().requires_grad_(False)
    bank = TextureBank.procedural(0, count=30, size=32)
    world = ClipWorld(SIDE, 2 * WINDOW, 'cpu', bank, config_of('standard'), samples=1)
    predictor = TwistPredictor(SIZE.dim, heads.hidden, 64, 1)
    predictor.read_as(heads)
    pasts = make_pasts(world, network, predictor, world.sample(3, 4), 3, 2)
    return world, pasts, network, predictor


def test_the_twist_of_a_camera_is_that_of_its_base(monkeypatch):
    ahead, turn, speed = 0.4, 0.7, 1.2      # the camera is ahead of what the base turns about
    c, s = math.cos(0.3), math.sin(0.3)
    left = turn * ahead                     # of the camera, because of the turn
    past = scene((), Camera(yaw=0.3, pitch=-0.2, spin=(0.0, -turn, 0.0), velocity=(
        speed * s - left * c, 0.0, speed * c + left * s)))
    monkeypatch.setattr(SceneRng, 'normal', lambda *_: torch.zeros(1, 3))    # an exact odometry
    view = view_of(past, torch.tensor([ahead]), SceneRng(0, 1))[0]
    # The spin of the scene is about the axes of a camera that looks down a little.
    np.testing.assert_allclose(view[:3], [0.6, -0.2, ahead], atol=1e-5)
    assert view[6:].tolist() == pytest.approx([speed, left - turn * math.cos(0.2) * ahead,
                                               turn * math.cos(0.2)], abs=1e-4)


def test_plans_of_a_past_share_its_present_and_the_first_was_filmed(filmed):
    world, pasts, *_ = filmed
    assert pasts.features.shape == (2, STEPS, CELLS, SIZE.dim) and len(pasts) == 4
    assert pasts.present.shape == (4, SIDE // 16, SIDE // 16, SIZE.dim + 256)
    one, again, other = (make_futures(world, pasts, seed, 5) for seed in (1, 1, 2))
    assert torch.equal(one.plans.twists, again.plans.twists)
    assert torch.equal(one.contact_s, again.contact_s)
    assert torch.equal(one.plans.twists[:, :1], pasts.plan.twists)
    assert not torch.equal(one.plans.twists[:, 3:], other.plans.twists[:, 3:])
    assert one.contact_s.shape == (4, 5)


def test_losses_fall_and_reach_every_parameter(filmed):
    world, pasts, *_ = filmed
    predictor = TwistPredictor(SIZE.dim, 256, 64, 1)
    predictor.init_random(0)
    optimizer = torch.optim.Adam(predictor.parameters(), 2e-3)
    futures = make_futures(world, pasts, 0, 6)
    before = [p.clone() for p in predictor.reader.parameters()]
    history = []
    for _ in range(30):
        losses = imagination_losses(predictor, pasts, futures)
        optimizer.zero_grad()
        torch.stack([*losses.values()]).sum().backward()
        optimizer.step()
        history.append({name: loss.item() for name, loss in losses.items()})
    trained = [p for p in predictor.parameters() if p.requires_grad]
    assert all(p.grad is not None and p.grad.isfinite().all() for p in trained)
    assert all(torch.equal(a, b) for a, b in zip(        # it reads as before
        predictor.reader.parameters(), before, strict=True))
    for name in ('contact', 'forced', 'rolled', 'clearance'):
        assert history[-1][name] < 0.9 * history[0][name], name


def test_figures_tell_those_who_know_from_those_who_do_not():
    random = np.random.default_rng(0)
    contact = np.where(random.random((40, 12)) < 0.5, random.uniform(0.1, 3, (40, 12)), np.inf)
    horizons = np.array((1.0, 2.0, 3.0))
    knows = (contact[..., None] <= horizons) * 0.5 + 0.5 / (1 + contact[..., None])
    same = np.repeat(random.random((40, 1, 3)), 12, axis=1)
    best, blind = figures(knows, contact, False), figures(same, contact)
    for horizon in ('1', '2', '3'):
        assert best[horizon]['auc_of_a_past'] == best[horizon]['auc'] == 1
        assert blind[horizon]['auc_of_a_past'] == 0.5
        assert best[horizon]['calibration_error'] is None
        assert blind[horizon]['calibration_error'] > 0.05
    assert best['rank'] > 0.99 and blind['rank'] == 0


def test_looming_cells_stand_in_the_way_of_those_who_drive_there():
    count, rate = 40, 0.5
    values = {'across': 0.1, 'down': 0.0, 'rate': rate, 'sigma': 0.01, 'confidence': 1.0}
    cells = LoomingCells(*(np.full(count, values.get(name, np.nan), np.float32)
                           for name in LoomingCells.__dataclass_fields__))
    points = placed(cells, speed=1.0, height=0.4)
    np.testing.assert_allclose(points[:, :2], [[0.2, 2.0]] * count, rtol=1e-5)
    assert not len(placed(cells, speed=0.1, height=0.4))
    times = np.arange(31) * 0.1
    straight = np.stack((0 * times, times, 0 * times), -1)
    aside = np.stack((-times, times, 0 * times), -1)
    found = met(points, np.stack((straight, aside)), Robot())
    assert found[0, 0] == 0 and found[0, 1] > 1 and not found[1].any()


def test_steps_draw_new_plans_from_pasts_of_all_worlds(filmed, monkeypatch):
    world = filmed[0]
    config = TrainConfig('unused', clips=1, batch=2, reuse=3)
    made = []

    class Watched:
        """A world with a number."""

        def __init__(self, number):
            self.number = number

        def __getattr__(self, name):
            return getattr(world, name)

    def drawn(seen, scenes):
        """Take a note instead of a picture, the most of a film; its grey tells scenes apart."""
        made.append(seen.number)
        grey = (1e4 * scenes.camera_position.abs().sum(-1) % 256).byte()
        return grey[..., None, None, None].expand(*grey.shape, SIDE, SIDE, 3)
    monkeypatch.setattr(imagination, '_drawn', drawn)

    def lessons(steps):
        made.clear()
        worlds: list[Any] = [Watched(0), Watched(1)]
        with PastFeed(worlds, *filmed[2:], config, Draw(0, 0, torch.device('cpu'))) as feed:
            return [feed.batch(Order(step, SIDE, 1.0)) for step in steps]

    through, seen = lessons(range(7)), made.copy()
    # Two pictures of each: its past and what followed. One of each world before the first step.
    assert seen == [0, 0, 1, 1, 0, 0, 1, 1]
    assert len({float(lesson.pasts.present.float().sum()) for lesson in through}) >= 3
    plans = [lesson.futures.plans.twists for lesson in through]
    assert all(not torch.equal(a, b) for a, b in itertools.pairwise(plans))
    again = lessons([3])[0]         # continued where new ones are due
    assert torch.equal(again.pasts.present, through[3].pasts.present)
    assert torch.equal(again.futures.contact_s, through[3].futures.contact_s)
    assert len(again) == 2 and len(again.pasts.features) == 1
    lessons([7, 8])                  # and the pasts before come back one by one
    assert made == [0, 0, 1, 1, 0, 0, 1, 1]


def test_a_run_goes_on_and_its_predictor_is_judged(weights, tmp_path, capsys, monkeypatch):
    few = TextureBank.procedural(0, count=30, size=32)
    monkeypatch.setattr(TextureBank, 'procedural', lambda *_: few)
    out, report = tmp_path / 'run', tmp_path / 'figures.json'
    words = ['--out', str(out), '--objective', 'twists', '--weights', str(weights), '--batch', '2',
             '--num-frames', str(2 * WINDOW), '--image-sizes', str(SIDE), '--reuse', '2',
             '--world', 'rough', '--device', 'cpu', '--held-out-clips', '2', '--validations', '1',
             '--validation-clips', '2', '--resume', '--clips', '8']
    batch, steps = PastFeed.batch, []

    def impatient(feed, order):
        if not steps:
            os.kill(os.getpid(), signal.SIGTERM)
        return batch(feed, order)

    monkeypatch.setattr(PastFeed, 'batch', impatient)
    found = None
    while not (out / 'tiny.safetensors').exists():
        assert train.main(words) == 0
        steps.append(read_state(out).step)
        found = load_twists('tiny', next(out.glob('*.safetensors')))
        assert found.meta.twists['training']['steps'] == steps[-1]
    assert steps == [1, 4] and not (out / 'unfinished.safetensors').exists()
    assert 'AUC of a past' in capsys.readouterr().err
    held_out = json.loads((out / 'metrics.json').read_text())['held_out']
    share = held_out['rough']['3']['contacts']
    assert 0 <= share <= 1 and f'{share:.3f} |' in (out / 'tiny.md').read_text()
    # What is saved is the average.
    assert found is not None
    average = read_state(out).average['predictor.norm.weight']
    assert torch.allclose(found.predictor.norm.weight, average, atol=1e-3)
    # A run with weights that bring a predictor begins with that.
    again, _ = build(TrainConfig(
        out='', clips=2, objective='twists', weights=str(out / 'tiny.safetensors'),
        num_frames=2 * WINDOW, image_sizes=str(SIDE)))
    assert torch.equal(again.predictor.norm.weight, found.predictor.norm.weight)
    read = found.predictor.reader.state_dict()
    assert all(one.requires_grad != name.startswith('predictor.reader.')
               for name, one in again.named_parameters())
    assert all(torch.equal(value, read[name])
               for name, value in again.predictor.reader.state_dict().items())
    given = ['--num-frames', str(2 * WINDOW), '--image-size', str(SIDE), '--device', 'cpu',
             '--futures', '2', '--jobs', '1', '--json', str(report)]
    assert evaluate.main(['--weights', str(out / 'tiny.safetensors'), *given]) == 0
    judged = json.loads(report.read_text())['futures']
    for key in ('world', 'rough'):
        assert set(judged[key]['judges']) == {'imagined', 'points', 'heads', 'way'}
        assert judged[key]['pasts'] == 2 and len(judged[key]['features']['error']) == STEPS
    assert 'AUC of a past within 3 s' in capsys.readouterr().out
    assert evaluate.main(['--weights', str(weights), *given]) == 0
    assert 'no twist predictor' in json.loads(report.read_text())['futures']['reason']


@pytest.mark.parametrize(('words', 'said'), [
    (('--num-frames', '6'), f'give {2 * WINDOW} and {SIDE}'), (('--auxiliary',), 'auxiliary'),
    (('--weights', ''), 'needs the weights')])
def test_what_no_predictor_can_be_trained_with_is_said(weights, tmp_path, capsys, words, said):
    assert train.main(['--out', str(tmp_path), '--objective', 'twists', '--weights', str(weights),
                       '--device', 'cpu', '--num-frames', str(2 * WINDOW), '--image-sizes',
                       str(SIDE), *words]) == 2
    assert said in capsys.readouterr().err.replace('\n', ' ')
