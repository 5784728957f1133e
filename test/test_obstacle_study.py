# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test the study of obstacles in metres, and the parameters for Nav2 that are handed out."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import yaml
from test_obstacles import HOW, MOUNT, SIZE, SPEED, box, seen

from vjepa_ros.perception.config import TrackConfig
from vjepa_ros.perception.obstacles_points import LEAST_ACROSS, LEVELS
from vjepa_ros.perception.settings import Settings
from vjepa_ros.ros.table import ROWS
from vjepa_ros.tools import obstacle_study
from vjepa_ros.tools.evaluate_run import Setup
from vjepa_ros.tools.obstacle_cases import (
    Scene,
    Tally,
    Way,
    figures,
    judged_columns,
    way_found,
    way_of,
)

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.usefixtures('one_thread')


@pytest.fixture(scope='module')
def scene():
    """A box 2 m ahead, with the truth of its front."""
    result, lens = seen(box(2.0))
    left, height = (v.ravel() for v in np.meshgrid(np.linspace(-0.6, 0.6, 60),
                                                   np.linspace(0.01, 0.79, 40)))
    return Scene({'geometric': result}, SIZE, lens, MOUNT, SPEED, np.full(left.shape, 2.0), left,
                 height, np.zeros(left.shape, bool))


def test_columns_are_compared_with_the_nearest_surface_they_show(scene):
    setup = Setup(('geometric',), Settings(), TrackConfig())
    found, rows = judged_columns(scene, setup, Way(HOW, 'geometric'))
    assert found.withheld == ''
    table = np.array(rows)
    hit = np.isfinite(table[:, 2])
    assert hit.sum() >= 5
    assert (table[hit, 2] == 2.0).all()
    assert np.median(np.abs(table[hit, 0] / 2.0 - 1)) < 0.1
    assert way_found(found) == pytest.approx(2.0, rel=0.15)
    assert way_of(scene, HOW) == 2.0
    # Odometry that says twice the speed puts everything twice as far away.
    double, _ = judged_columns(scene, setup, Way(HOW, 'geometric', odometry=2.0))
    assert np.nanmedian(double.reach) > 1.5 * np.nanmedian(found.reach)


def test_figures_count_what_they_say():
    tally = Tally([(2.0, 0.1, 2.0, 0.0), (3.0, 0.1, 2.0, 1.0), (1.0, 0.1, math.nan, math.nan)],
                  [(2.0, 2.0), (math.inf, 3.0), (math.inf, math.inf), (4.0, 20.0)],
                  Counter({'stale': 1}), 5)
    found = figures(tally, HOW)
    assert found['published'] == 4
    assert found['withheld'] == {'stale': 1}
    assert found['with_nothing_there'] == pytest.approx(1 / 3)
    assert (found['error_still'], found['error_moving']) == (0.0, 0.5)
    assert found['within_30_percent'] == 0.5
    assert (found['ways_blocked'], found['ways_found']) == (2, 0.5)
    assert (found['ways_free'], found['ways_blocked_falsely']) == (2, 0.5)
    both = Tally()
    both.add(tally)
    both.add(tally)
    assert (both.clips, len(both.columns), both.withheld['stale']) == (10, 6, 2)


def test_the_page_has_one_row_for_each_way_and_a_dash_for_none():
    rows = [{'name': name, 'clips': 2, **dict.fromkeys(obstacle_study.COLUMNS),
             'published': 1, 'columns': 3} for name in obstacle_study.WAYS]
    page = obstacle_study.document({'command': 'c', 'clips': 2, 'first_seed': 1, 'date': 'd',
                                    'machine': 'm', 'weights_sha256': 'abc', 'rows': rows})
    assert sum(line.startswith(tuple(f'| {n} ' for n in obstacle_study.WAYS))
               for line in page.splitlines()) == len(rows)
    assert '–' in page


def test_a_document_without_marks_is_refused_before_anything_is_rendered(tmp_path, capsys):
    page = tmp_path / 'page.md'
    page.write_text('nothing')
    assert obstacle_study.main(['--document', str(page)]) == 1
    assert obstacle_study.BLOCK in capsys.readouterr().out


def test_the_parameters_for_nav2_fit_what_is_published():
    content = yaml.safe_load((ROOT / 'config/nav2_collision_monitor.yaml').read_text())
    monitor = content['collision_monitor']['ros__parameters']
    for name in monitor['observation_sources']:
        source = monitor[name]
        assert source['type'] == 'pointcloud'
        assert source['topic'].endswith('/obstacle_points')
        assert source['source_timeout'] > 0          # 0 would take silence for clear
        for limit in ('min_height', 'max_height'):
            assert source[limit] == ROWS[f'obstacles.{limit}'].default
    for name in monitor['polygons']:
        assert monitor[name]['min_points'] <= LEAST_ACROSS * len(LEVELS)
    layer = content['local_costmap']['local_costmap']['ros__parameters']['vjepa_layer']
    assert not layer['points']['clearing']
    assert layer['scan']['clearing']
    assert layer['scan']['inf_is_valid']
    manager = content['lifecycle_manager_vjepa']['ros__parameters']
    assert manager['bond_timeout'] == 0.0
    assert manager['service_timeout'] >= 60.0
