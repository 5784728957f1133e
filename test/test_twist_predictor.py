# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test the predictor of twists: its network, its file, and plans that are scored with it."""

from __future__ import annotations

import json
import math
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from bundles import meta, save_constant_bundle
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from vjepa_ros.cli.main import main as command
from vjepa_ros.model import twist_predictor
from vjepa_ros.model.checkpoint.files import WEIGHTS_FOLDER, WeightsError
from vjepa_ros.model.checkpoint.inspection import examine
from vjepa_ros.model.checkpoint.load import (
    bundled_file,
    load_model,
    save_bundle,
)
from vjepa_ros.model.checkpoint.twist_files import has_twists, load_twists, save_twists
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.heads import Heads
from vjepa_ros.model.twist_paths import View, WAY_DIM, around, poses, rays
from vjepa_ros.model.twist_predictor import CELLS, TwistPredictor, coarse
from vjepa_ros.model.variants import find_variant
from vjepa_ros.runtime.imagination import Imagination

PASTS, PLANS, STEPS, DIM, KNOWN = 2, 5, 4, 32, 16
VIEW = View(height=0.5, pitch=-0.1, ahead=0.3, across=0.8, down=0.6, interval_s=0.25, vx=0.7)
LASTS = torch.tensor([0.25, 0.5, 0.5, 0.5])
SIZE = find_variant('tiny')


def draws(*shape: int, seed: int = 2) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope='module')
def predictor():
    made = TwistPredictor(DIM, KNOWN, width=64, depth=2)
    made.init_random(0)
    for layer in (made.contact, made.clearance, made.touch, made.features):
        torch.nn.init.normal_(layer.weight, generator=torch.Generator().manual_seed(1))
    return made


@pytest.fixture(scope='module')
def given():
    return (draws(PASTS, 6, 6, DIM + KNOWN), draws(PASTS, PLANS, STEPS, 3), LASTS,
            VIEW.tensor().expand(PASTS, -1))


@torch.no_grad()
def test_steps_at_once_give_what_steps_one_by_one_give(predictor, given):
    found = predictor(*given)
    at_once = predictor(*given, truth=found.features)
    for name, value in vars(found).items():
        torch.testing.assert_close(getattr(at_once, name), value, atol=1e-4, rtol=1e-4)
    assert found.features.shape == (PASTS, PLANS, STEPS, CELLS, DIM)
    until = found.contact_until
    assert ((until > 0) & (until < 1)).all() and (until.diff(dim=-1) >= 0).all()
    ends = LASTS.cumsum(0)
    torch.testing.assert_close(found.contact_within(ends, ends), until)
    half = found.contact_within(ends, ends[:1] / 2)[..., 0]
    assert ((half > 0) & (half < until[..., 0])).all()


@torch.no_grad()
def test_plans_are_independent_and_steps_see_no_later_action(predictor, given):
    present, twists, lasts, view = given
    whole = predictor(*given)
    alone = predictor(present[1:], twists[1:, 3:4], lasts, view[1:])
    torch.testing.assert_close(alone.features, whole.features[1:, 3:4], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(alone.contact, whole.contact[1:, 3:4], atol=1e-4, rtol=1e-4)
    later = twists.clone()
    later[:, :, 2:] += 1
    changed = (predictor(present, later, lasts, view).features - whole.features).abs()
    changed = changed.amax((0, 1, 3, 4))
    assert (changed[:2] < 1e-5).all() and (changed[2:] > 1e-3).all()


@pytest.mark.parametrize('pitch', [0.0, -0.3])
def test_a_way_passes_the_rays_of_what_lies_on_it(pitch):
    view = replace(VIEW, pitch=pitch, ahead=0.0)
    lines = rays(view.tensor()[None], 12, 12)
    # An arc to the right and ahead; a point on the ground there, seen by the camera.
    way = poses(torch.tensor([[[[1.0, 0.0, -0.4]] * 2]]), torch.tensor([1.0, 1.0]),
                torch.zeros(1), torch.tensor([1.0, 2.0]))
    x, z, _ = way[0, 0, 1].tolist()
    assert x > 0.5 and z > 1.5
    below, ahead = (view.height * math.cos(pitch) + z * math.sin(pitch),
                    z * math.cos(pitch) - view.height * math.sin(pitch))
    col = (x / ahead / view.across + 1) * 6 - 0.5
    row = (below / ahead / view.down + 1) * 6 - 0.5
    told = around(way[:, :, :, None].expand(-1, -1, -1, 2, -1), lines,
                  torch.tensor([view.height]), torch.tensor([1.0, 2.0]))
    assert told.shape == (1, 1, 2, 144, WAY_DIM)
    nearest = told[0, 0, 1].view(12, 12, WAY_DIM)[round(row), round(col)]
    along, beside, height = 3 * nearest[1], nearest[5], nearest[9]
    assert along == pytest.approx(math.hypot(x, z), rel=0.02)
    assert abs(beside) < 0.15 and abs(height) < 0.25
    far = told[0, 0, 1].view(12, 12, WAY_DIM)[round(row), 0]
    assert abs(far[5]) > 0.8


@pytest.mark.parametrize(('change', 'named'), [
    ({'height': 0.0}, 'height'), ({'pitch': 2.0}, 'pitch'), ({'vx': math.nan}, 'vx'),
    ({'across': -1.0}, 'across'), ({'interval_s': math.inf}, 'interval_s')])
def test_a_camera_that_cannot_be_is_refused_by_name(change, named):
    with pytest.raises(ValueError, match=f'^{named} is'):
        replace(VIEW, **change)


@pytest.fixture(scope='module')
def files(tmp_path_factory):
    """An encoder with heads, the same with a predictor, and the predictor alone."""
    folder = tmp_path_factory.mktemp('twists')
    plain, whole, alone = (folder / f'{name}.safetensors' for name in ('plain', 'whole', 'alone'))
    encoder, heads = Encoder(SIZE, '2.1', 4), Heads.for_variant(SIZE)
    encoder.init_random(0)
    facts = meta(variant='tiny', version='2.1', window=4)
    save_bundle(plain, facts, encoder=encoder.state_dict(), heads=heads.state_dict())
    made = TwistPredictor(SIZE.dim, heads.hidden, 64, 1)
    made.init_random(0)
    torch.nn.init.normal_(made.features.weight, std=0.02)
    about = {'training': {'steps': 3}}
    save_twists(whole, plain, made.state_dict(), about)
    save_twists(alone, plain, made.state_dict(), about, alone=True)
    assert has_twists('tiny', whole) and not has_twists('tiny', plain)
    return plain, whole, alone, made


def test_the_predictor_of_the_package_belongs_to_its_weights():
    steps = load_twists().meta.twists['training']['steps']
    assert steps > 2000
    assert f'{steps:,} steps' in (WEIGHTS_FOLDER / 'tiny_twists.md').read_text()


def test_a_predictor_comes_back_from_the_file_of_its_encoder_and_from_its_own(files, capsys):
    plain, whole, alone, made = files
    for paths in ((whole,), (plain, alone)):
        found = load_twists('tiny', *paths)
        for key, value in made.state_dict().items():
            torch.testing.assert_close(found.predictor.state_dict()[key], value, atol=1e-3,
                                       rtol=1e-3)
        assert found.meta.twists['training'] == {'steps': 3}
    before, after = (load_model('tiny', weights=path) for path in (plain, whole))
    assert before[2].tensors_sha256 == after[2].tensors_sha256
    part = next(one for one in examine(whole).parts if one.kind == 'twist predictor')
    assert part.complete and part.parameters == sum(p.numel() for p in made.parameters())
    assert command(['inspect', str(whole), '--json']) == 0
    assert 'twists' in {one['name'] for one in json.loads(capsys.readouterr().out)['parts']}


def test_a_predictor_reads_for_itself_whatever_becomes_of_the_heads(files, tmp_path):
    plain, _, alone, made = files
    encoder, heads, _ = load_model('tiny', weights=plain)
    made.read_as(heads)
    x = draws(1, 2, 3, 4, SIZE.dim)
    with torch.no_grad():
        assert torch.equal(made.present(x)[..., SIZE.dim:], heads.known(x))
        heads.dense[1].bias.add_(1)
    other = tmp_path / 'heads_trained_on.safetensors'
    save_bundle(other, meta(variant='tiny', version='2.1', window=4),
                encoder=encoder.state_dict(), heads=heads.state_dict())
    found = [load_twists('tiny', path, alone).predictor.state_dict() for path in (plain, other)]
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_inspect_says_how_weights_run_and_to_which_a_predictor_belongs(files, capsys, monkeypatch):
    monkeypatch.setenv('COLUMNS', '160')

    def shown(path):
        assert command(['inspect', str(path)]) == 0
        return capsys.readouterr().out

    plain, whole, alone, _ = files
    streams, belongs = 'streams: block-causal, window of 4 tubelets', 'belongs to'
    own = load_model('tiny', weights=plain)[2].tensors_sha256
    for path, runs, told in ((plain, True, False), (whole, True, True), (alone, False, True)):
        text = shown(path)
        assert (streams in text, f'{own[:16]} (not the bundled weights)' in text) == (runs, told)
        assert (belongs in text) == told and 'whole clips' not in text
        assert (examine(path).belongs_to, examine(path).is_for_bundled) == (own * told, False)
    assert '(the bundled weights)' in shown(WEIGHTS_FOLDER / 'tiny_twists.safetensors')
    bundled = shown(bundled_file('tiny'))
    assert streams in bundled and belongs not in bundled
    assert 'whole clips' in shown(save_constant_bundle(plain.with_name('clips.safetensors')))


def test_a_predictor_of_other_weights_is_refused(files, tmp_path):
    plain, _, alone, made = files
    encoder, heads, _ = load_model('tiny', weights=plain)
    with torch.no_grad():
        encoder.blocks[0].mlp.fc1.bias.add_(1)
    other = tmp_path / 'other.safetensors'
    save_bundle(other, meta(variant='tiny', version='2.1', window=4),
                encoder=encoder.state_dict(), heads=heads.state_dict())
    with pytest.raises(WeightsError, match='belongs to other weights'):
        load_twists('tiny', other, alone)
    tensors = load_file(files[1])
    tensors['encoder.blocks.0.mlp.fc1.bias'] += 1
    with safe_open(files[1], 'pt') as file:
        save_file(tensors, other, metadata=file.metadata())
    problems = {part.kind: part.problem for part in examine(other).parts}
    assert 'another encoder' in problems['twist predictor'] and not problems['encoder']
    with pytest.raises(WeightsError, match='has no twist predictor'):
        load_twists('tiny', plain)
    with pytest.raises(WeightsError, match='has no encoder'):
        load_twists('tiny', alone)
    state = {key: value for key, value in made.state_dict().items() if key != 'contact.weight'}
    save_twists(other, plain, state, {})
    with pytest.raises(WeightsError, match=r'contact\.weight'):
        load_twists('tiny', other)
    part = next(one for one in examine(other).parts if one.kind == 'twist predictor')
    assert part.missing == ('contact.weight',)


@pytest.mark.parametrize('precision', ['fp32', 'bf16'])
def test_plans_are_scored_as_by_the_network(files, precision):
    model = Imagination.load('tiny', files[1], device='cpu', precision=precision)
    assert model.encoder_sha256 and model.meta.window == 4
    features, twists = draws(4, 6, 6, SIZE.dim).numpy(), draws(3, STEPS, 3).numpy()
    model.see(features, VIEW)
    found = model.imagine(twists, LASTS)
    reference = load_twists('tiny', files[1])
    with torch.no_grad():
        wanted = reference.predictor(
            reference.predictor.present(torch.from_numpy(features)[None]),
            torch.from_numpy(twists)[None], LASTS, VIEW.tensor()[None])
    close = 1e-5 if precision == 'fp32' else 0.05
    np.testing.assert_allclose(found.contact, wanted.contact_until[0], atol=close)
    np.testing.assert_allclose(found.features, wanted.features[0], atol=4 * close)
    np.testing.assert_allclose(found.clearance.sum(-1), 1, atol=1e-5)
    assert torch.equal(coarse(torch.from_numpy(features)).mean(-1).round(decimals=4).abs(),
                       torch.zeros(4, CELLS))


@torch.no_grad()
def test_plans_that_are_scored_in_parts_are_scored_alike(files, monkeypatch):
    made, (asked, parts) = files[3], (files[3]._met, [])
    monkeypatch.setattr(made, '_met', lambda *given: parts.append(1) or asked(*given))
    present, twists = draws(2, 3, 4, SIZE.dim + 256), draws(2, 5, STEPS, 3)
    view = VIEW.tensor().expand(2, -1)
    whole = made(present, twists, LASTS, view)
    monkeypatch.setattr(twist_predictor, '_NUMBERS', 1)
    for one, other in zip(vars(whole).values(),
                          vars(made(present, twists, LASTS, view)).values(), strict=True):
        torch.testing.assert_close(one, other)
    assert len(parts) == 1 + 5


@pytest.mark.parametrize('recorded', [True, False])
def test_threads_of_a_cpu_score_parts_of_the_plans(files, recorded, monkeypatch, caplog):
    if not recorded:
        def refuse(*args, **options):
            raise RuntimeError('cannot be recorded')
        monkeypatch.setattr(torch.jit, 'trace', refuse)
        caplog.set_level('INFO')
    monkeypatch.setattr(torch, 'get_num_threads', lambda: 3)
    asked = []
    monkeypatch.setattr(torch, 'set_num_threads', asked.append)
    model = Imagination.load('tiny', files[1], device='cpu', precision='fp32')
    parts, score = [], model._part
    monkeypatch.setattr(model, '_part', lambda part, *given: (
        parts.append((threading.current_thread().name[:5], len(part))), score(part, *given))[1])
    twists = draws(50, STEPS, 3).numpy()
    for seed in (1, 2):     # plans are of the newest features
        features = draws(4, 6, 6, SIZE.dim, seed=seed).numpy()
        model.see(features, VIEW)
        parts.clear()
        found = model.imagine(twists, LASTS)
        assert sorted(parts[-3:]) == [('MainT', 17), ('plans', 16), ('plans', 17)]
        assert asked[-1] == 3 and set(asked) == {1, 3}
        reference = load_twists('tiny', files[1])
        with torch.no_grad():
            wanted = reference.predictor(
                reference.predictor.present(torch.from_numpy(features)[None]),
                torch.from_numpy(twists)[None], LASTS, VIEW.tensor()[None])
        np.testing.assert_allclose(found.contact, wanted.contact_until[0], atol=1e-5)
        np.testing.assert_allclose(found.features, wanted.features[0], atol=4e-5)
    assert ('scoring of plans runs operator by operator' in caplog.text) is not recorded


@pytest.mark.parametrize(('features', 'twists', 'lasts', 'words'), [
    (np.zeros((4, 6, 6, 7)), None, None, 'features are'),
    (np.zeros((1, 6, 6, SIZE.dim)), None, None, 'at least 2'),
    (np.full((2, 6, 6, SIZE.dim), np.nan), None, None, 'not finite'),
    (None, np.zeros((1, 2, 3)), [0.5, 0.5], 'no features yet'),
    (np.zeros((2, 6, 6, SIZE.dim)), np.zeros((1, 2, 3)), [0.5], 'twists are'),
    (np.zeros((2, 6, 6, SIZE.dim)), np.zeros((1, 2, 3)), [0.5, 0.0], 'above 0'),
    (np.zeros((2, 6, 6, SIZE.dim)), np.full((1, 1, 3), np.inf), [0.5], 'finite')])
def test_what_cannot_be_scored_is_refused(features, twists, lasts, words):
    model = Imagination.random('tiny', 'cpu', 'fp32')
    with pytest.raises(ValueError, match=words):
        if features is not None:
            model.see(features, VIEW)
        model.imagine(twists, lasts)


def test_a_plan_of_a_base_is_measured(tmp_path):
    file = tmp_path / 'plan.json'
    assert command(['benchmark', 'plan', '--base', '--image-size', '32', '--samples', '4',
                    '--steps', '2', '--device', 'cpu', '--runs', '3', '--json', str(file)]) == 0
    found = json.loads(file.read_text())
    assert (found['configuration']['plans'], found['configuration']['steps']) == (4, 2)
    assert found['plan_ms']['min'] > found['imagine_ms']['min'] > 0
