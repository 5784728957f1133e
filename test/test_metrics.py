# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test the figures of merit against values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vjepa_ros.lab.evaluation import metrics
from vjepa_ros.lab.evaluation.metrics import Outcome, Truth

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(('scores', 'labels', 'auc'), [
    ([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1], 0.75),          # 3 of 4 pairs in order
    ([0.5, 0.5, 0.9], [0, 1, 1], 0.75),                   # ties count half
    ([NAN, 0.0, 0.3], [1, 0, 0], 0.0)])                   # unknown ranks below 0
def test_area_under_the_roc_curve_counts_pairs_in_order(scores, labels, auc):
    assert metrics.roc_auc(scores, labels) == pytest.approx(auc)


def test_average_precision_and_calibration_error_by_hand():
    # Positives at ranks 1, 3 and 6: precisions 1, 2/3 and 3/6.
    assert metrics.average_precision([0.9, 0.8, 0.7, 0.6, 0.5, 0.4], [1, 0, 1, 0, 0, 1]) == (
        pytest.approx((1 + 2 / 3 + 1 / 2) / 3))
    # Bin 0: three predictions of 0.1, one of them true; bin 1: one prediction of 0.9, true.
    found = metrics.reliability([0.1, 0.1, 0.1, 0.9], [1, 0, 0, 1], bins=2)
    assert found.error == pytest.approx(0.75 * (1 / 3 - 0.1) + 0.25 * 0.1)


def test_the_threshold_keeps_the_rate_of_false_alarms():
    scores, labels = [0.1, 0.2, 0.3, 0.4, 0.5, 0.35, 0.9], [0, 0, 0, 0, 0, 1, 1]
    for rate, threshold in ((0.2, 0.5), (0.4, 0.35), (0.0, 0.9)):    # 0.2: one of five
        assert metrics.threshold_at(scores, labels, rate) == threshold
    assert metrics.threshold_at([0.5, 0.5, 0.5], [0, 0, 1], 0.3) == INF
    assert math.isnan(metrics.threshold_at([0.5], [1], 0.1))


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
