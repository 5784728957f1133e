# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The parameters of the twist planner reach it, and illegal ones are refused."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import pytest

from vjepa_ros.guard.settings import GuardSettings
from vjepa_ros.planning.twist_config import Mount, TwistConfig
from vjepa_ros.ros.twist_planner.parameters import (
    SCHEMA,
    make_config,
    make_twist,
    make_watch,
    source_rows,
)

DEFAULTS = {row.name: row.default for row in (*SCHEMA.rows, *source_rows('camera'))}


def test_every_setting_is_a_parameter_with_the_same_default():
    assert {row.sets for row in SCHEMA.rows if row.config is TwistConfig} == {
        field.name for field in fields(TwistConfig)}
    assert make_twist(DEFAULTS) == TwistConfig()
    assert make_watch(DEFAULTS) == replace(GuardSettings(), slow_on=())
    assert make_config(DEFAULTS).mounts == {'camera': Mount()}


def test_each_parameter_reaches_its_own_setting():
    for row in SCHEMA.rows:
        if row.config is TwistConfig and row.kind is float:
            value = row.default * 1.01 + 0.001
            assert make_twist({**DEFAULTS, row.name: value}) == replace(
                TwistConfig(), **{row.sets: value}), row.name
    for name in ('source_timeout', 'command_timeout', 'clock_tolerance', 'frozen_travel'):
        assert getattr(make_watch({**DEFAULTS, name: 0.7}), name) == 0.7
    config = make_config({**DEFAULTS, 'speed_timeout': 0.7, 'on_fault': 'pass', 'rate': 30.0,
                          'speed_from': 'own', 'message': 'twist_stamped', 'base_frame': 'b',
                          'camera.topic': 'eyes/front/', 'camera.yaw': 1.0, 'camera.x': 2.0,
                          'camera.y': 3.0, 'camera.height': 4.0})
    assert (config.speed_timeout, config.on_fault, config.rate, config.speed_from, config.stamped,
            config.base_frame) == (0.7, 'pass', 30.0, 'own', True, 'b')
    assert config.sources[0].topic == 'eyes/front'
    assert config.mounts['camera'] == Mount(1.0, 2.0, 3.0, 4.0)


@pytest.mark.parametrize(('values', 'word'), [
    ({'sources': ()}, 'at least one'), ({'sources': ('camera', 'camera')}, 'once'),
    ({'sources': ('rate',)}, 'rate'), ({'turns': (1.0,)}, 'turns'),
    ({'speeds': ()}, 'speeds'),
    ({'speeds': (1.0, 0.5)}, 'speeds'),
    ({'stop_on': ('missing',)}, 'timeout'),
    ({'robot.length': math.inf}, 'length')])
def test_what_does_not_fit_together_is_refused(values, word):
    assert word in SCHEMA.problem({**DEFAULTS, **values})
