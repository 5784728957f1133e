# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test the table of parameters: checks with reasons, settings, documentation, configuration."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from pathlib import Path

import pytest
import yaml

from vjepa_ros.cli import parameter_docs
from vjepa_ros.lab.report.measurement import fill
from vjepa_ros.obstacles.config import ObstacleSettings
from vjepa_ros.perception.settings import Settings, TrackConfig
from vjepa_ros.ros.action_planner.parameters import SCHEMA as ACTION
from vjepa_ros.ros.collision_guard.parameters import SCHEMA as GUARD
from vjepa_ros.ros.common import parameter
from vjepa_ros.ros.perception_node.parameters import (
    SCHEMA,
    camera_rows,
    make_config,
    make_settings,
)
from vjepa_ros.ros.sim.parameters import ROBOT, SOURCE
from vjepa_ros.ros.twist_planner.parameters import SCHEMA as TWIST
from vjepa_ros.runtime.engine import EngineConfig

ROOT = Path(__file__).resolve().parents[1]
ROWS = {row.name: row for row in SCHEMA.rows}
DEFAULTS = {row.name: row.default for row in SCHEMA.rows}
SCHEMAS = {'vjepa_node': SCHEMA, 'collision_guard': GUARD, 'twist_planner': TWIST,
           'action_planner': ACTION, 'camera_source': SOURCE, 'simulated_robot': ROBOT}
ALL = [pytest.param(row, id=f'{node}-{row.name}') for node, schema in SCHEMAS.items()
       for row in (*schema.rows, *schema.rows_of('NAME'))]


# -- the rows of all nodes ------------------------------------------------------------------------

@pytest.mark.parametrize('row', ALL)
def test_every_default_is_legal_and_every_row_is_described(row):
    assert row.check(row.default) == (row.default, '')
    assert row.text
    assert row.effect in (parameter.LIVE, parameter.BACKGROUND, parameter.CONFIGURE,
                          parameter.STARTUP)
    assert row.kind in parameter.KINDS


@pytest.mark.parametrize('schema', SCHEMAS.values(), ids=SCHEMAS)
def test_names_are_unique_and_the_defaults_fit_together(schema):
    assert len({row.name for row in schema.rows}) == len(schema.rows)
    assert schema.problem({row.name: row.default for row in schema.rows}) == ''


@pytest.mark.parametrize('row', [row for row in ALL if row.values[0].kind in (int, float)
                                 and row.values[0].low is not None])
def test_the_limits_belong_to_the_range_and_nothing_beyond(row):
    for limit, beyond in ((row.low, -1), (row.high, 1)):
        assert row.check(row.kind(limit))[1] == ''
        value = row.kind(limit) + beyond * max(row.multiple, 1)
        assert row.check(value)[1] != ''


# -- those of the perception node -----------------------------------------------------------------

def test_the_defaults_are_those_of_the_modules_that_use_them():
    config = make_config({**DEFAULTS, **{row.name: row.default for row in camera_rows('camera')}})
    assert (config.engine, config.settings, config.obstacles.settings) == (
        EngineConfig(), Settings(), ObstacleSettings())
    assert replace(config.track, horizontal_fov=TrackConfig().horizontal_fov) == TrackConfig()
    assert config.track.horizontal_fov == pytest.approx(TrackConfig().horizontal_fov)


# -- single values --------------------------------------------------------------------------------

@pytest.mark.parametrize(('name', 'value', 'taken'), [
    ('clip_fps', 5, 5.0), ('clip_fps', 0.25, 0.25), ('num_frames', 16, 16),
    ('cameras', ['front', 'left/eye'], ('front', 'left/eye')),
    ('roi', [0, 0, 1, 1], (0.0, 0.0, 1.0, 1.0)), ('device', 'cuda:3', 'cuda:3'),
    ('allow_random_weights', True, True), ('smoothing.method', 'median', 'median')])
def test_legal_values_are_taken_in_the_type_of_the_row(name, value, taken):
    got, problem = ROWS[name].check(value)
    assert problem == ''
    assert got == taken
    assert type(got) is type(taken)


@pytest.mark.parametrize(('name', 'value', 'allowed'), [
    ('clip_fps', 0.0, '0.25..60'), ('clip_fps', 61.0, '0.25..60'), ('clip_fps', 'fast', 'double'),
    ('clip_fps', True, 'double'), ('clip_fps', math.nan, 'finite'),
    ('max_frame_age', math.inf, 'finite'), ('num_frames', 7, 'multiple of 2'),
    ('num_frames', 2, '4..64'), ('num_frames', 8.0, 'int'), ('image_size', 100, 'multiple of 16'),
    ('allow_random_weights', 1, 'bool'), ('model_size', 'Tiny', 'tiny, small'),
    ('model_size', 3, 'string'), ('device', 'gpu', 'cuda:N'), ('device', 'cuda:x', 'cuda:N'),
    ('resize_mode', 'stretch', 'letterbox'), ('weights', 5, 'string'),
    ('cameras', 'front', 'string[]'), ('cameras', ['a b'], 'ROS names'),
    ('cameras', ['/front'], 'ROS names'), ('cameras', [''], 'ROS names'),
    ('cameras', [1], 'string[]'), ('roi', [0.0, 0.0, 2.0, 1.0], '0..1'),
    ('roi', ['a'], 'double[]'), ('roi', [0.0, math.nan, 1.0, 1.0], 'finite'),
    ('thresholds.danger_ttc', -1.0, '0.05..60'), ('roi', None, 'double[]'),
    ('clip_fps', None, 'double')])
def test_illegal_values_are_refused_with_name_value_and_what_is_allowed(name, value, allowed):
    got, problem = ROWS[name].check(value)
    assert got is None
    assert f"'{name}'" in problem
    assert allowed in problem
    shown = list(value) if isinstance(value, tuple) else value
    assert repr(shown) in problem


# -- several values -------------------------------------------------------------------------------

@pytest.mark.parametrize(('change', 'named'), [
    ({'cameras': ()}, 'cameras'), ({'cameras': ('a', 'b', 'a')}, 'once'),
    ({'cameras': ('features',)}, 'features'), ({'cameras': ('thresholds',)}, 'thresholds'),
    ({'thresholds.danger_ttc': 3.0}, 'danger'), ({'thresholds.caution_ttc': 1.0}, 'caution'),
    ({'roi': (0.5, 0.0, 0.4, 1.0)}, 'roi'), ({'roi': (0.0, 1.0)}, 'roi')])
def test_values_that_do_not_fit_together_are_refused_with_the_reason(change, named):
    problem = SCHEMA.problem({**DEFAULTS, **change})
    assert named in problem


def test_all_thresholds_can_move_together():
    raised = {'thresholds.caution_ttc': 9.0, 'thresholds.warning_ttc': 7.0,
              'thresholds.danger_ttc': 5.0}
    assert SCHEMA.problem({**DEFAULTS, **raised}) == ''


def test_every_setting_of_perception_comes_from_the_table():
    changed = dict(DEFAULTS)
    for row in SCHEMA.rows:
        if (row.effect == parameter.LIVE and row.kind is float
                and not row.name.startswith('thresh')):
            changed[row.name] = row.low + 0.37 * (min(row.high, 10.0) - row.low)
    changed |= {'thresholds.caution_ttc': 9.0, 'thresholds.warning_ttc': 7.0,
                'thresholds.danger_ttc': 5.0, 'thresholds.motion': 0.5,
                'thresholds.obstacle': 0.6, 'thresholds.looming': 0.2, 'smoothing.window': 7,
                'smoothing.method': 'median', 'looming.method': 'learned',
                'roi': (0.1, 0.2, 0.8, 0.9)}
    made, default = make_settings(changed), Settings()
    same = [f.name for f in fields(Settings) if getattr(made, f.name) == getattr(default, f.name)]
    assert same == []


def test_each_camera_has_its_own_transport():
    row = camera_rows('left/eye')[0]
    assert row.name == 'left/eye.transport'
    assert row.check('compressed') == ('compressed', '')
    assert 'raw' in row.check('theora')[1]


# -- documents ------------------------------------------------------------------------------------

@pytest.mark.parametrize('name', parameter_docs.BLOCKS)
def test_the_tables_in_the_documents_are_up_to_date(name):
    text = (ROOT / name).read_text(encoding='utf-8')
    for block, rows in parameter_docs.BLOCKS[name].items():
        assert fill(text, block, parameter_docs.markdown(rows)) == text, \
            'run python -m vjepa_ros.cli.parameter_docs'


def test_the_documented_table_has_one_whole_line_per_parameter():
    lines = parameter_docs.markdown(SCHEMA.rows).splitlines()
    assert len(lines) == 2 + len(SCHEMA.rows)
    assert {line.count('|') for line in lines} == {8}


@pytest.mark.parametrize('name', parameter_docs.FILES)
def test_the_files_of_all_parameters_are_up_to_date(name):
    schema, above = parameter_docs.FILES[name]
    text = (ROOT / 'config' / name).read_text(encoding='utf-8')
    assert parameter_docs.yaml_text(schema, above) == text, \
        'run python -m vjepa_ros.cli.parameter_docs'
    shown = yaml.safe_load(text)['/**']['ros__parameters']
    rows = {row.name: row for row in (*schema.rows, *(
        row for parameter, make_rows in schema.lists.items()
        for listed in shown[parameter] for row in make_rows(listed)))}
    assert shown.keys() == rows.keys()
    for key, value in shown.items():
        kind = list if isinstance(rows[key].default, tuple) else rows[key].kind
        assert type(value) is kind, key                  # ROS refuses 1 for 1.0
        assert rows[key].check(value) == (rows[key].default, '')


def files_of_values() -> list[Path]:
    # Those of other nodes are checked elsewhere (test_obstacles.py) or generated.
    others = ('nav2', 'action_planner', 'collision_guard', 'twist_planner')
    return sorted(p for p in (ROOT / 'config').glob('*.yaml') if not p.name.startswith(others))


@pytest.mark.parametrize('path', files_of_values(), ids=lambda path: path.name)
def test_the_configuration_files_hold_legal_values(path):
    content = yaml.safe_load(path.read_text(encoding='utf-8'))
    nodes = [node['ros__parameters'] for key, node in content.items()
             if 'camera_source' not in key]
    assert nodes
    for values in map(flat, nodes):
        cameras = values.get('cameras', ['camera'])
        rows = {**ROWS, **{row.name: row for name in cameras for row in camera_rows(name)}}
        checked = dict(DEFAULTS)
        for name, value in values.items():
            if name.startswith('qos_overrides') or name == 'use_sim_time':
                continue
            assert name in rows, f'{path.name}: {name} is no parameter'
            checked[name], problem = rows[name].check(value)
            assert problem == '', f'{path.name}: {problem}'
        assert SCHEMA.problem(checked) == ''


def flat(values: dict, prefix: str = '') -> dict:
    out = {}
    for key, value in values.items():
        if isinstance(value, dict):
            out |= flat(value, f'{prefix}{key}.')
        else:
            out[f'{prefix}{key}'] = value
    return out


def test_there_are_configuration_files():
    assert {'default.yaml', 'cpu.yaml', 'jetson.yaml', 'apple.yaml',
            'multi_camera.yaml'} <= {path.name for path in files_of_values()}
