# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Hold figures of docs/accuracy.md: the bundled weights on real recordings with the defaults."""

from __future__ import annotations

import json

import pytest

from vjepa_ros.cli import evaluate

RECORDINGS = ('himax_2', 'himax_10', 'kitti_street', 'euroc_still::still')


@pytest.fixture(scope='module')
def figures(shared_data, one_thread, tmp_path_factory):
    """What `vjepa-ros evaluate` writes for the recordings."""
    path = tmp_path_factory.mktemp('accuracy') / 'figures.json'
    assert evaluate.main([*(str(shared_data / name) for name in RECORDINGS),
                          '--baseline-size', 'none', '--jobs', '1', '--json', str(path)]) == 0
    return json.loads(path.read_text(encoding='utf-8'))


def test_collisions_ahead_are_ranked_above_free_ways(figures):
    def auc(method):
        return figures['baselines'][method]['groups']['collision']['collision_auc']

    assert auc('fused') == figures['groups']['collision']['collision_auc'] >= 0.9
    assert auc('fused') > auc('geometric') + 0.3
    assert auc('brightness') < 0.7      # a score that must not work


def test_there_is_no_alarm_where_nothing_is_imminent(figures):
    for name in ('kitti_street', 'euroc_still'):
        assert figures['sequences'][name]['false_alarms_per_minute'] == 0, name
        assert figures['sequences'][name]['unknown_fraction'] < 0.05, name
    assert figures['sequences']['euroc_still']['looming_when_still_per_s'] < 0.01
