# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The parameters of all nodes: checks, the configurations they make, documents and files."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from vjepa_ros.cli import parameter_docs
from vjepa_ros.guard.settings import GuardSettings
from vjepa_ros.parameter import SCHEMAS as NODES
from vjepa_ros.parameter import Schema, schema_of
from vjepa_ros.perception.settings import Settings
from vjepa_ros.planning.obstacle_memory import LocalConfig

ROOT = Path(__file__).resolve().parents[1]
SCHEMAS = {name: schema_of(name) for name in NODES}
PERCEPTION, GUARD, TWIST = (
    SCHEMAS[name] for name in ('vjepa_node', 'collision_guard', 'local_planner'))


def defaults(schema: Schema, *names: str) -> dict:
    """Default values, with those of each name in a list."""
    return {row.name: row.default for row in (
        *schema.rows, *(row for name in names for row in schema.rows_of(name)))}


@pytest.mark.parametrize('schema', SCHEMAS.values(), ids=SCHEMAS)
def test_defaults_and_limits_are_legal_and_nothing_beyond(schema):
    rows = (*schema.rows, *schema.rows_of('NAME'))
    assert len({row.name for row in schema.rows}) == len(schema.rows)
    assert schema.problem(defaults(schema)) == ''
    for row in rows:
        assert row.text and row.check(row.default) == (row.default, '')
        if row.kind in (int, float) and row.low is not None:
            for limit, beyond in ((row.low, -1), (row.high, 1)):
                assert row.check(row.kind(limit))[1] == ''
                assert row.check(row.kind(limit) + beyond * max(row.multiple, 1))[1] != ''


@pytest.mark.parametrize(('schema', 'config', 'part'), [
    (GUARD, GuardSettings, 'settings'), (TWIST, LocalConfig, 'twist'),
    (PERCEPTION, Settings, 'settings')], ids=['guard', 'twist', 'perception'])
def test_each_parameter_reaches_its_own_setting(schema, config, part):
    for row in (row for row in schema.rows if row.config is config and row.kind is float):
        value = row.default * 1.01 + 0.001
        found = getattr(schema.read({**defaults(schema, 'camera'), row.name: value}), part)
        assert found == replace(config(), **{row.sets: value}), row.name


@pytest.mark.parametrize(('schema', 'change', 'named'), [
    (PERCEPTION, {'cameras': ()}, 'cameras'), (PERCEPTION, {'cameras': ('a', 'b', 'a')}, 'once'),
    (PERCEPTION, {'cameras': ('overlay',)}, 'overlay'),
    (PERCEPTION, {'thresholds.danger_ttc': 3.0}, 'danger'),
    (PERCEPTION, {'roi': (0.5, 0.0, 0.4, 1.0)}, 'roi'),
    (PERCEPTION, {'obstacles.scan': True}, 'base_frame'),
    (PERCEPTION, {'obstacles.max_height': 0.04}, 'above 0.05'),
    (PERCEPTION, {'camera.imu_rotation': (1.0, 1.0)}, 'camera.imu_rotation'),
    (GUARD, {'sources': ()}, 'empty'), (GUARD, {'ranges': ('camera',)}, 'once'),
    (GUARD, {'stop_time_to_contact': 9.0}, 'stop_time_to_contact'),
    (TWIST, {'sources': ('cruise',)}, 'cruise'), (GUARD, {'stop_on': ('tired',)}, 'tired')])
def test_values_that_do_not_fit_together_are_refused_by_name(schema, change, named):
    assert named in schema.problem({**defaults(schema), **change})


@pytest.mark.parametrize(('name', 'value', 'allowed'), [
    ('clip_fps', True, 'double'), ('clip_fps', math.nan, 'finite'),
    ('num_frames', 7, 'multiple of 2'), ('num_frames', 8.0, 'int such as'),
    ('max_rate', '1e-1', 'double such as 15.0'), ('max_rate', [5.0], 'double such as 15.0'),
    ('allow_random_weights', 1, 'bool such as false'), ('model_size', 'Tiny', 'tiny, small'),
    ('weights', 1234, 'string such as ""'), ('weights', '$(command ls)', 'nothing resolves'),
    ('device', 'cuda:x', 'cuda:N'), ('cameras', 'front', 'such as ["camera"]'),
    ('cameras', ['/front'], 'ROS names'), ('cameras', [True], 'such as ["camera"]'),
    ('roi', [0.0, math.nan, 1.0, 1.0], 'finite'), ('roi', None, 'double[]')])
def test_illegal_values_are_refused_with_name_value_and_what_is_allowed(name, value, allowed):
    got, problem = PERCEPTION.row(name).check(value)
    assert got is None
    assert f"'{name}'" in problem and allowed in problem and repr(value) in problem


@pytest.mark.parametrize('name', [parameter_docs.PAGE, *parameter_docs.FILES])
def test_tables_and_files_of_parameters_are_up_to_date(name):
    text = (ROOT / (name if '/' in name else f'config/{name}')).read_text(encoding='utf-8')
    wanted = parameter_docs.page(text) if name == parameter_docs.PAGE else (
        parameter_docs.yaml_text(*parameter_docs.FILES[name]))
    assert text == wanted, 'run python -m vjepa_ros.cli.parameter_docs'
