# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test the study of the rule that joins heads and geometry."""

from __future__ import annotations

import json
import math

import cv2
import numpy as np
import pytest

from vjepa_ros.evaluation.clips import ClipTruth
from vjepa_ros.perception.belief import RULE, Rule
from vjepa_ros.perception.settings import Settings
from vjepa_ros.tools import fusion_cases, fusion_study
from vjepa_ros.tools.fusion_cases import Said
from vjepa_ros.training.seeds import (
    CALIBRATION_SEED,
    HELD_OUT_SEED,
    STUDY_SEED,
    TRAINING_SEEDS,
    VALIDATION_SEED,
)

SETTINGS = Settings()


def truth(*contact_s: float) -> ClipTruth:
    blank = np.zeros((len(contact_s), 2, 2))
    return ClipTruth(np.array(contact_s), np.full(len(contact_s), 0.1), blank, blank)


def said(hazard, rate, believed=None) -> Said:
    return Said(np.repeat(np.array(hazard, float)[:, None], 5, axis=1), np.array(rate, float),
                np.array(rate if believed is None else believed, float))


def figures(*arguments, rule: Rule = RULE) -> dict:
    return fusion_cases.figures(*arguments, rule, SETTINGS)


def test_warnings_are_counted_where_there_is_danger_and_where_there_is_none():
    known = truth(1.0, 2.0, 3.0, 10.0, math.inf)          # 3 s is neither near nor far
    found = figures(known, said([0.5] * 5, [1.0, 0.3, 1.0, 1.0, 0.1]))
    assert found['warned'] == 0.5 and found['cautioned'] == 1.0
    assert found['false_warnings'] == 0.5


def test_unknown_is_neither_a_warning_nor_a_sure_probability():
    known = truth(1.0, math.inf)
    found = figures(known, said([math.nan, math.nan], [math.nan, math.nan]))
    assert found['warned'] == 0.0 and found['false_warnings'] == 0.0
    assert found['log_loss'] == pytest.approx(math.log(2))
    sure = figures(known, said([1.0, 0.0], [1.0, 0.0]))
    wrong = figures(known, said([0.0, 1.0], [0.0, 1.0]))
    assert sure['log_loss'] < math.log(2) < wrong['log_loss'] < 6


@pytest.mark.parametrize(('cautious', 'reaches', 'leaves'), [
    (0.25, True, False),      # within the hysteresis of WARNING: it never ends
    (RULE.cautious, True, True), (1.0, False, True)])     # at 1 the smoothed rate falls short
def test_what_is_not_believed_must_become_caution_and_stay_no_warning(cautious, reaches, leaves):
    found = fusion_cases.timing(Rule(cautious=cautious), SETTINGS)
    assert (found['caution_after_s'] is not None) == reaches
    assert (found['warning_left_after_s'] is not None) == leaves


def test_every_number_of_the_rule_is_tried_and_the_used_one_is_among_them():
    tried = fusion_study.variations()
    assert {name for name, _ in tried} == set(vars(RULE))
    for name in vars(RULE):
        assert sum(n == name and rule == RULE for n, rule in tried) == 1


def test_the_clips_are_neither_those_of_training_nor_those_of_the_figures():
    others = (TRAINING_SEEDS, HELD_OUT_SEED, CALIBRATION_SEED, VALIDATION_SEED)
    assert max(others) + 1_000_000 < STUDY_SEED
    assert STUDY_SEED + 100 * fusion_study.SEEDS_APART < 2 ** 31


def test_the_study_writes_what_it_found(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fusion_study, 'TRIED', {'geometry_weight': (0.0,), 'on_course': ()})
    out = tmp_path / 'study'
    assert fusion_study.main(['--clips', '6', '--jobs', '1', '--device', 'cpu',
                              '--out', str(out)]) == 0
    found = json.loads((out / 'fusion.json').read_text())
    assert found['clips'] == 6 and found['first_seed'] == STUDY_SEED
    assert [(r['number'], r['used']) for r in found['rows']] == [
        ('geometry_weight', False), ('geometry_weight', True), ('on_course', True)]
    same = [{k: v for k, v in r.items() if k not in ('number', 'value')}
            for r in found['rows'] if r['used']]
    assert same[0] == same[1]
    assert found['rows'][0]['log_loss'] != found['rows'][1]['log_loss']
    text = (out / 'fusion.md').read_text()
    assert '### geometry_weight' in text and found['command'] in text
    assert cv2.imread(str(out / 'fusion.png')).shape[0] > 100


@pytest.mark.parametrize('words', [('--clips', '0'), ('--jobs', '-1'), ('--seed', '100')])
def test_mistakes_are_named(words, tmp_path, capsys):
    assert fusion_study.main([*words, '--out', str(tmp_path)]) == 1
    assert f'{words[0]} ' in capsys.readouterr().out
