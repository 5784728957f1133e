# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The parameters of the guard: table and file say the same."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from pathlib import Path

import pytest
import yaml

from vjepa_ros.guard.settings import GuardSettings
from vjepa_ros.ros.collision_guard import parameter_table
from vjepa_ros.ros.collision_guard.parameter_table import (
    GUARD_TABLE,
    LEVELS,
    ROWS,
    SETTINGS,
    check_guard,
    make_config,
    make_settings,
    range_rows,
    source_rows,
)

ROOT = Path(__file__).resolve().parents[1]
DEFAULTS = {row.name: row.default for row in (*GUARD_TABLE, *source_rows('camera'))}


@pytest.mark.parametrize('row', [*GUARD_TABLE, *source_rows('NAME'), *range_rows('NAME')],
                         ids=lambda row: row.name)
def test_every_default_is_legal_and_described(row):
    assert row.check(row.default) == (row.default, '')
    assert row.text


def test_every_setting_is_a_parameter_with_the_same_default():
    names = {row.name.replace('.', '_') for row in SETTINGS}
    assert names == {field.name for field in fields(GuardSettings)}
    assert make_settings(DEFAULTS) == GuardSettings()


def test_each_parameter_reaches_its_own_setting():
    for row in SETTINGS:
        if row.kind is float:
            value = row.default * 1.01 + 0.001
            found = make_settings({**DEFAULTS, row.name: value})
            name = row.name.replace('.', '_')
            assert found == replace(GuardSettings(), **{name: value}), row.name
    assert make_settings({**DEFAULTS, 'stop_level': 'warning'}).stop_level is LEVELS['warning']


def test_the_parameter_file_names_all_parameters_with_their_defaults():
    content = yaml.safe_load((ROOT / 'config' / 'collision_guard.yaml').read_text())
    values = content['/**']['ros__parameters']
    shown = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
    assert shown == DEFAULTS
    for name, value in values.items():
        if name in ROWS and ROWS[name].kind is float:
            assert type(value) is float, name


def test_sources_and_ranges_get_topics_and_directions():
    values = {**DEFAULTS, 'sources': ('front', 'rear'), 'ranges': ('sonar',)}
    for rows in (source_rows('front'), source_rows('rear'), range_rows('sonar')):
        values |= {row.name: row.default for row in rows}
    values |= {'rear.direction': 'backward', 'rear.topic': 'other', 'sonar.direction': 'yaw',
               'sonar.yaw': 0.5}
    config = make_config(values)
    assert [(s.topic, s.yaw) for s in config.sources] == [
        ('vjepa_node/front/assessment', 0.0), ('other', math.pi)]
    assert [(r.topic, r.yaw) for r in config.ranges] == [('sonar', 0.5)]


@pytest.mark.parametrize(('values', 'word'), [
    ({'sources': ()}, 'empty'), ({'sources': ('camera', 'camera')}, 'once'),
    ({'sources': ('camera',), 'ranges': ('camera',)}, 'once'), ({'sources': ('rate',)}, 'rate'),
    ({'stop_time_to_contact': 9.0}, 'stop_time_to_contact'),
    ({'stop_on': ('missing',)}, 'timeout')])
def test_what_does_not_fit_together_is_refused(values, word):
    assert word in check_guard({**DEFAULTS, **values})


def test_the_table_module_needs_no_ros():
    assert 'rclpy' not in vars(parameter_table)
