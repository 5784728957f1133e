# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test the command that measures accuracy, on small recordings whose truth is known."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import cv2
import numpy as np
import pytest
from scenes import Approach

from vjepa_ros.cli import evaluate
from vjepa_ros.lab.evaluation import metrics
from vjepa_ros.lab.evaluation import world as evaluate_world
from vjepa_ros.lab.evaluation.metrics import Outcome, Truth, clip_figures, joined
from vjepa_ros.lab.evaluation.recording_replay import Setup
from vjepa_ros.lab.evaluation.world import films, truth_of
from vjepa_ros.lab.training import validation
from vjepa_ros.lab.training.network import Batch, Network
from vjepa_ros.lab.world.clips import ClipWorld, clip_targets
from vjepa_ros.lab.world.scenes.scene import SPACINGS_S
from vjepa_ros.model.checkpoint.load import load_model
from vjepa_ros.model.variants import BACK_S, NUM_FRAMES, TUBELET
from vjepa_ros.perception.settings import Settings, TrackConfig
from vjepa_ros.runtime.model import Model, ModelConfig

RATE = 10.0
NAN, INF = math.nan, math.inf
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
                        str(recordings / 'still'), '--jobs', '1',
                        '--document', str(document))['sequences']
    # No AUC: a wall that fills the view does not show how far away it is, so it blocks the way.
    assert figures['closing']['ttc_median_relative_error'] < 0.1
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


def test_a_rendered_stream_fills_a_memory_at_the_shortest_spacings():
    spacings = NUM_FRAMES // TUBELET - 1 + evaluate_world.HISTORY
    assert spacings * SPACINGS_S[0] >= BACK_S[-1]


def test_the_heads_alone_have_the_figures_that_training_gives_them(bank):
    """On the same clips, with the bundled heads: the two paths may not differ."""
    encoder, heads, report = load_model('tiny')
    facts = report.heads.meta
    count = facts.num_frames + TUBELET * evaluate_world.HISTORY
    clips = ClipWorld(facts.image_size, count, bank=bank, stream=True).clips(77, 6)
    answers = validation.answer(Network(encoder, heads), [
        Batch(clips.frames, clip_targets(clips), clips.stamps_s.double())])
    expected = validation.figures(answers, facts.calibration)
    engine = Model.load(ModelConfig(device='cpu', precision='fp32'))
    setup = Setup(Settings(), TrackConfig(), engine)
    rendered = list(films(clips, exact=True))
    outputs = evaluate_world.encoded(rendered, setup)
    for film, output in zip(rendered, outputs, strict=True):
        evaluate_world.judged(film, setup, output)          # every clip fills the memory
    engine.close()
    said = joined([evaluate_world.heads_outcome(output.heads, film.interval_s)
                   for film, output in zip(rendered, outputs, strict=True)])
    found = clip_figures(truth_of(clip_targets(clips)), said)
    assert found['collision_auc']['3'] is not None and found['moving_auc'] is not None
    for key, value in found.items():
        assert value == pytest.approx(expected[key], rel=1e-3, abs=1e-4), key


@pytest.mark.parametrize(('words', 'text'), [
    ([], r'nothing to evaluate.*--rail.*--world'),
    (['nowhere.mp4'], r"'nowhere.mp4' does not exist"),
    (['synthetic', '--weights', 'nowhere.safetensors'], r'nowhere\.safetensors'),
])
def test_mistakes_are_named_with_their_remedy(words, text, capsys):
    assert evaluate.main(words) == 1
    assert re.search(text, ' '.join(capsys.readouterr().out.split()))


def test_ranking_and_calibration_error_by_hand():
    for scores, labels, auc in (
            ([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1], 0.75),          # 3 of 4 pairs in order
            ([0.5, 0.5, 0.9], [0, 1, 1], 0.75),                   # ties count half
            ([NAN, 0.0, 0.3], [1, 0, 0], 0.0)):                   # unknown ranks below 0
        assert metrics.roc_auc(scores, labels) == pytest.approx(auc)
    # Positives at ranks 1, 3 and 6: precisions 1, 2/3 and 3/6.
    assert metrics.average_precision([0.9, 0.8, 0.7, 0.6, 0.5, 0.4], [1, 0, 1, 0, 0, 1]) == (
        pytest.approx((1 + 2 / 3 + 1 / 2) / 3))
    # Bin 0: three predictions of 0.1, one of them true; bin 1: one prediction of 0.9, true.
    found = metrics.reliability([0.1, 0.1, 0.1, 0.9], [1, 0, 0, 1], bins=2)
    assert found.error == pytest.approx(0.75 * (1 / 3 - 0.1) + 0.25 * 0.1)


def test_r2_and_the_relative_error_are_judged_where_the_truth_is_known():
    assert metrics.r2([3.0, 3.0, 3.0], [1.0, 2.0, 6.0]) == pytest.approx(0.0)    # of the mean
    assert metrics.r2([9.0, NAN, 2.0, 6.0], [NAN, 1.0, 2.0, 6.0]) == 1.0
    truth, estimate = [2.0, 4.0, INF, NAN, 1.0, 2.0], [2.2, 3.0, 5.0, 1.0, NAN, INF]
    # Judged: 0.1, 0.25 and the infinite one, cut at 10.
    assert metrics.median_relative_error(estimate, truth) == pytest.approx(0.25)


def outcome(count, **columns):
    """Output of a method: nothing is known but the given columns."""
    blank = np.full(count, NAN)
    return Outcome(**{name: np.asarray(columns.get(name, blank), float) for name in (
        'collision_probability', 'collision_if_ahead', 'time_to_contact', 'looming_rate')},
        scored=np.ones(count, bool), level=np.asarray(columns.get('level', np.zeros(count))))


def test_false_alarms_are_stretches_without_any_danger_in_them():
    level = np.array([2, 2, 0, 3, 3, 255, 2, 0, 2, 1])
    danger = np.array([0, 0, 0, 0, 1, 1, 0, 0, NAN, 0])
    # Frames 0-1: false. 3-4 comes early but is right. 6: a new alarm, false. 8: not labelled.
    truth = Truth(np.arange(10) * 0.5, danger, np.full(10, NAN))
    assert metrics.false_alarms(truth, outcome(10, level=level)) == (2, pytest.approx(3.5 / 60))


def test_the_lead_is_from_the_first_alarm_within_the_danger_to_the_contact():
    danger = np.array([0, 0, 1, 1, 1, 0, 1, 1])
    ttc = np.array([NAN] * 4 + [0.3] + [NAN] * 3)
    score = outcome(8, collision_probability=[1, 0, 0, 1, 1, 0, 0, 0])
    first, second = metrics.leads(Truth(np.arange(8) * 0.5, danger, ttc), score, 0.5)
    assert first == pytest.approx(2.3 - 1.5)      # the last frame was 0.3 s before contact
    assert math.isnan(second)                     # missed


@pytest.fixture(scope='module')
def real(shared_data, one_thread, tmp_path_factory):
    """Figures of the bundled weights with the defaults, as in docs/accuracy.md."""
    return evaluated(tmp_path_factory.mktemp('accuracy') / 'figures.json', '--jobs', '1',
                     '--world', '6', *(str(shared_data / name) for name in REAL))


def test_collisions_ahead_are_ranked_above_free_ways(real):
    assert real['groups']['collision']['collision_auc'] >= 0.9
    for group in (real['groups']['collision'], real['sequences']['himax_2']):
        # People label what stands near ahead, too, which does not come as things move now.
        assert 0.5 < group['collision_probability_auc'] < group['collision_if_ahead_auc'] <= 1


def test_there_is_no_alarm_where_nothing_is_imminent(real):
    for name in ('kitti_street', 'euroc_still'):
        assert real['sequences'][name]['false_alarms_per_minute'] == 0, name
        assert real['sequences'][name]['unknown_fraction'] < 0.05, name


def test_rendered_clips_are_judged_as_published_and_by_the_heads(real):
    world = real['world']
    assert (world['clips'], world['heads_held']) == (6, 1.0)
    assert world['published']['looming_known'] < 1 == world['heads']['looming_known']
    assert world['published']['moving_auc'] > 0.5
