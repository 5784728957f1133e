# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test the command that measures accuracy, on small recordings whose truth is known."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from bundles import constant_heads, meta
from scenes import Approach

from vjepa_ros.cli import evaluate
from vjepa_ros.lab.evaluation import world as evaluate_world
from vjepa_ros.lab.evaluation.metrics import clip_figures, joined
from vjepa_ros.lab.evaluation.recording_replay import Setup
from vjepa_ros.lab.evaluation.world import Film, films, shown, truth_of
from vjepa_ros.lab.training import validation
from vjepa_ros.lab.training.network import Batch, Network
from vjepa_ros.lab.world.clips import ClipWorld, clip_targets
from vjepa_ros.model.checkpoint.load import load_model, save_bundle
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.variants import find_variant
from vjepa_ros.perception.camera_state import CameraState
from vjepa_ros.perception.settings import Settings, TrackConfig
from vjepa_ros.runtime.model import Model, ModelConfig

RATE = 10.0
REAL = ('himax_2', 'himax_10', 'kitti_street', 'euroc_still::still')


def write_recording(folder: Path, distances: np.ndarray, speed: float = 0.0) -> None:
    """Frames of a wall, and labels: collision within 2 s, and the time to contact."""
    (folder / 'frames').mkdir(parents=True)
    wall, rows = Approach((160, 120), 4.0), ['frame,stamp_s,collision,time_to_contact_s']
    for i, distance in enumerate(distances):
        cv2.imwrite(str(folder / 'frames' / f'{i:03d}.png'), wall.frame(4.0 - distance))
        ttc = distance / speed if speed > 0 else math.inf
        rows.append(f'{i:03d}.png,{i / RATE:.3f},{int(ttc < 2)},{ttc:g}')
    (folder / 'labels.csv').write_text('\n'.join(rows) + '\n')


def evaluated(out: Path, *words: str) -> dict:
    """The figures that the command writes."""
    assert evaluate.main([*words, '--json', str(out)]) == 0
    return json.loads(out.read_text())


@pytest.fixture(scope='module')
def recordings(tmp_path_factory) -> Path:
    """A wall that comes nearer at 1 m/s from 4.2 m, and one that stays."""
    root = tmp_path_factory.mktemp('recordings')
    write_recording(root / 'closing', 4.2 - np.arange(36) / RATE, speed=1.0)
    write_recording(root / 'still', np.full(26, 3.0))
    return root


def test_an_approaching_wall_is_seen_and_a_still_one_is_not_and_a_document_tells(recordings,
                                                                                tmp_path):
    document = tmp_path / 'accuracy.md'
    document.write_text('before\n<!-- accuracy:begin -->\nold<!-- accuracy:end -->\nafter\n')
    figures = evaluated(tmp_path / 'figures.json', str(recordings / 'closing'),
                        str(recordings / 'still'), '--method', 'geometric', '--jobs', '1',
                        '--document', str(document))['sequences']
    assert figures['closing']['collision_auc'] > 0.9
    assert figures['closing']['ttc_median_relative_error'] < 0.15
    assert figures['closing']['looming_mae_per_s'] < 0.15
    assert figures['still']['looming_when_still_per_s'] < 0.01
    assert figures['still']['false_alarms_per_minute'] == 0.0
    assert figures['still']['collision_auc'] is None          # one class only
    text = document.read_text()
    assert text.startswith('before\n<!-- accuracy:begin -->\n') and '\nold' not in text
    assert text.endswith('<!-- accuracy:end -->\nafter\n')
    shown = re.findall(r'\]\((accuracy/[\w.]+)\)', text.partition('-->')[2])
    assert {'accuracy/closing.png', 'accuracy/still.png'} == set(shown)
    assert all(cv2.imread(str(tmp_path / name)) is not None for name in shown)


def test_where_heads_do_not_hold_the_report_says_why(recordings, tmp_path):
    weights, encoder = tmp_path / 'w.safetensors', Encoder(find_variant('tiny'))
    encoder.init_random(0)
    save_bundle(weights, meta(interval_s=(0.03, 0.1)), encoder=encoder.state_dict(),
                heads=constant_heads().state_dict())
    figures = evaluated(tmp_path / 'figures.json', str(recordings / 'still'), '--weights',
                        str(weights), '--num-frames', '4', '--image-size', '64', '--device', 'cpu')
    said = figures['sequences']['still']['heads_problem']
    assert f'not valid in {figures["pooled"]["frames_scored"]} frames' in said
    assert 'interval' in said


@pytest.mark.parametrize(('stamps', 'interval'), [
    # A clip of the rough world whose jitter leaves less than a memory waits for.
    ((-1.688, -1.511, -1.368, -1.006, -0.821, -0.51, -0.341, 0.0), 0.2592),
    ((-1.68, -1.44, -1.2, -0.96, -0.72, -0.48, -0.24, 0.0), 0.24)])
def test_a_stream_fills_its_memory_however_its_stamps_jitter(stamps, interval):
    film = Film(np.zeros((8, 32, 32, 3), np.uint8), interval, 1, (30.0, 30.0, 15.5, 15.5), stamps)
    config = film.track(TrackConfig(num_frames=8, image_size=32), stream=True)
    assert len(shown(film, CameraState('camera', config)).stamps_ns) == 8


@pytest.mark.parametrize('window', [0, 4])
def test_the_heads_alone_have_the_figures_that_training_gives_them(window, bank, tmp_path):
    """On the same clips, with the bundled heads: the two paths may not differ."""
    encoder, heads, report = load_model('tiny')
    facts, file = report.heads.meta, ''
    if not window:
        file = str(tmp_path / 'bidirectional.safetensors')
        encoder = Encoder(encoder.variant, '2.1').eval()
        encoder.init_random(0)
        facts = save_bundle(file, replace(facts, window=0), encoder=encoder.state_dict(),
                            heads=heads.state_dict())
    clips = ClipWorld(facts.image_size, 14 if window else 8, bank=bank).clips(77, 6)
    assert {*clips.hold.tolist()} == {1, 2}
    answers = validation.answer(Network(encoder, heads), [
        Batch(clips.frames, clip_targets(clips), stamps=clips.stamps)])
    expected = validation.figures(answers, facts.calibration)
    engine = Model.load(ModelConfig(device='cpu', precision='fp32', weights=file))
    setup = Setup(('fused',), Settings(), TrackConfig(), engine)
    assert evaluate_world.streams(setup) == bool(window)
    rendered = list(films(clips, exact=bool(window)))
    outputs = evaluate_world.encoded(rendered, setup)
    for film, output in zip(rendered, outputs, strict=True) if window else ():
        evaluate_world.judged(film, setup, output)          # every clip fills the memory
    engine.close()
    said = joined([evaluate_world.heads_outcome(output.heads, film.interval_s)
                   for film, output in zip(rendered, outputs, strict=True)])
    found = clip_figures(truth_of(clip_targets(clips)), said)
    assert found['collision_auc']['3'] is not None and found['moving_auc'] is not None
    for key, value in found.items():
        assert value == pytest.approx(expected[key], rel=1e-3, abs=1e-4), key


@pytest.mark.parametrize(('words', 'text'), [
    ([], r'nothing to evaluate.*--world'),
    (['nowhere.mp4', '--method', 'geometric'], r"'nowhere.mp4' does not exist"),
    (['synthetic', '--method', 'learned', '--weights', 'nowhere.safetensors'],
     r'nowhere\.safetensors'),
    (['synthetic', '--method', 'fused', '--model-size', 'gigantic'], '--weights'),
])
def test_mistakes_are_named_with_their_remedy(words, text, capsys):
    assert evaluate.main(words) == 1
    assert re.search(text, ' '.join(capsys.readouterr().out.split()))


@pytest.fixture(scope='module')
def real(shared_data, one_thread, tmp_path_factory):
    """Figures of the bundled weights with the defaults, as in docs/accuracy.md."""
    return evaluated(tmp_path_factory.mktemp('accuracy') / 'figures.json', '--jobs', '1',
                     '--world', '3', *(str(shared_data / name) for name in REAL))


def test_collisions_ahead_are_ranked_above_free_ways(real):
    def auc(method):
        return real['methods'][method]['groups']['collision']['collision_auc']

    assert auc('fused') == real['groups']['collision']['collision_auc'] >= 0.9
    assert auc('fused') > auc('geometric') + 0.3
    for group in (real['groups']['collision'], real['sequences']['himax_2']):
        # People label what stands near ahead, too, which does not come as things move now.
        assert 0.5 < group['collision_probability_auc'] < group['collision_if_ahead_auc'] <= 1


def test_there_is_no_alarm_where_nothing_is_imminent(real):
    for name in ('kitti_street', 'euroc_still'):
        assert real['sequences'][name]['false_alarms_per_minute'] == 0, name
        assert real['sequences'][name]['unknown_fraction'] < 0.05, name


def test_rendered_clips_are_judged_by_every_method(real):
    world = real['world']
    assert (world['clips'], world['heads_held']) == (3, 1.0)
    assert set(world['methods']) == {'geometric', 'learned', 'fused', 'heads'}
    assert world['methods']['fused']['moving_auc'] > 0.5
