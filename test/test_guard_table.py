# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The parameters of the guard reach its settings, and illegal ones are refused."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import pytest

from vjepa_ros.guard.settings import GuardSettings
from vjepa_ros.ros.collision_guard.parameters import (
    LEVELS,
    SCHEMA,
    make_config,
    make_settings,
    range_rows,
    source_rows,
)

DEFAULTS = {row.name: row.default for row in (*SCHEMA.rows, *source_rows('camera'))}


def test_every_setting_is_a_parameter_with_the_same_default():
    assert {row.sets for row in SCHEMA.rows if row.config} == {
        field.name for field in fields(GuardSettings)}
    assert make_settings(DEFAULTS) == GuardSettings()


def test_each_parameter_reaches_its_own_setting():
    for row in SCHEMA.rows:
        if row.config and row.kind is float:
            value = row.default * 1.01 + 0.001
            found = make_settings({**DEFAULTS, row.name: value})
            name = row.name.replace('.', '_')
            assert found == replace(GuardSettings(), **{name: value}), row.name
    assert make_settings({**DEFAULTS, 'stop_level': 'warning'}).stop_level is LEVELS['warning']


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
    assert word in SCHEMA.problem({**DEFAULTS, **values})
