# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The parameters of all nodes: checks, the configurations they make, documents and files."""

from __future__ import annotations

import math
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest
import yaml

from vjepa_ros.cli import parameter_docs
from vjepa_ros.guard.settings import GuardSettings
from vjepa_ros.lab.report.measurement import fill
from vjepa_ros.obstacles.config import ObstacleSettings
from vjepa_ros.perception.settings import Settings, TrackConfig
from vjepa_ros.perception.types import Level
from vjepa_ros.planning import local_config
from vjepa_ros.planning.local_config import LocalConfig
from vjepa_ros.ros.collision_guard.parameters import SCHEMA as GUARD
from vjepa_ros.ros.common import parameter
from vjepa_ros.ros.local_planner.parameters import SCHEMA as TWIST
from vjepa_ros.ros.perception_node.parameters import SCHEMA as PERCEPTION
from vjepa_ros.ros.sim.parameters import ROBOT, SOURCE
from vjepa_ros.runtime.engine import EngineConfig

ROOT = Path(__file__).resolve().parents[1]
ROWS = {row.name: row for row in PERCEPTION.rows}
SCHEMAS = {'vjepa_node': PERCEPTION, 'collision_guard': GUARD, 'local_planner': TWIST,
           'camera_source': SOURCE, 'simulated_robot': ROBOT}
ALL = [pytest.param(row, id=f'{node}-{row.name}') for node, schema in SCHEMAS.items()
       for row in (*schema.rows, *schema.rows_of('NAME'))]


def defaults(schema: parameter.Schema, *names: str) -> dict:
    """Default values, with those of each name in a list."""
    return {row.name: row.default for row in (
        *schema.rows, *(row for name in names for row in schema.rows_of(name)))}


@pytest.mark.parametrize('row', ALL)
def test_the_default_and_the_limits_are_legal_and_nothing_beyond(row):
    assert row.text
    assert row.check(row.default) == (row.default, '')
    if row.kind in (int, float) and row.low is not None:
        for limit, beyond in ((row.low, -1), (row.high, 1)):
            assert row.check(row.kind(limit))[1] == ''
            assert row.check(row.kind(limit) + beyond * max(row.multiple, 1))[1] != ''


@pytest.mark.parametrize('schema', SCHEMAS.values(), ids=SCHEMAS)
def test_names_are_unique_and_the_defaults_fit_together(schema):
    assert len({row.name for row in schema.rows}) == len(schema.rows)
    assert schema.problem(defaults(schema)) == ''


def test_the_defaults_are_those_of_the_modules_that_use_them():
    config = PERCEPTION.read(defaults(PERCEPTION, 'camera'))
    assert (config.engine, config.settings, config.obstacles.settings) == (
        EngineConfig(), Settings(), ObstacleSettings())
    assert replace(config.track, horizontal_fov=TrackConfig().horizontal_fov) == TrackConfig()
    assert config.track.horizontal_fov == pytest.approx(TrackConfig().horizontal_fov)
    assert GUARD.read(defaults(GUARD, 'camera')).settings == GuardSettings()
    twist = TWIST.read(defaults(TWIST, 'camera'))
    assert twist.twist == LocalConfig()
    assert twist.watch == replace(GuardSettings(), slow_on=())
    assert twist.mounts == {'camera': local_config.Mount()}


@pytest.mark.parametrize(('schema', 'config', 'part'), [
    (GUARD, GuardSettings, 'settings'), (TWIST, LocalConfig, 'twist'),
    (PERCEPTION, Settings, 'settings')], ids=['guard', 'twist', 'perception'])
def test_each_parameter_reaches_its_own_setting(schema, config, part):
    values = defaults(schema, 'camera')
    rows = [row for row in schema.rows if row.config is config]
    assert {row.sets for row in rows} == {field.name for field in fields(config)}
    for row in rows:
        if row.kind is float:
            value = row.default * 1.01 + 0.001
            found = getattr(schema.read({**values, row.name: value}), part)
            assert found == replace(config(), **{row.sets: value}), row.name


def test_cameras_and_range_sensors_get_topics_and_directions():
    values = {**defaults(GUARD, 'front', 'rear', 'sonar'), 'sources': ('front', 'rear'),
              'ranges': ('sonar',), 'rear.direction': 'backward', 'rear.topic': 'other',
              'sonar.direction': 'yaw', 'sonar.yaw': 0.5, 'sonar.topic': '',
              'stop_level': 'warning'}
    config = GUARD.read(values)
    assert [(s.topic, s.yaw) for s in config.sources] == [
        ('vjepa_node/front/assessment', 0.0), ('other', math.pi)]
    assert [(r.topic, r.yaw) for r in config.ranges] == [('sonar', 0.5)]
    assert config.settings.stop_level is Level.WARNING
    given = {'speed_timeout': 0.7, 'on_fault': 'pass', 'rate': 30.0, 'speed_from': 'own',
             'base_frame': 'b'}
    twist = TWIST.read({**defaults(TWIST, 'camera'), **given, 'message': 'twist_stamped',
                        'source_timeout': 0.9, 'camera.topic': 'eyes/front/', 'camera.yaw': 1.0,
                        'camera.x': 2.0, 'camera.y': 3.0, 'camera.height': 4.0})
    assert {name: getattr(twist, name) for name in given} == given
    assert twist.stamped and twist.watch.source_timeout == 0.9
    assert twist.sources[0].topic == 'eyes/front'
    assert twist.mounts['camera'] == local_config.Mount(1.0, 2.0, 3.0, 4.0)


@pytest.mark.parametrize(('schema', 'change', 'named'), [
    (PERCEPTION, {'cameras': ()}, 'cameras'), (PERCEPTION, {'cameras': ('a', 'b', 'a')}, 'once'),
    (PERCEPTION, {'cameras': ('features',)}, 'features'),
    (PERCEPTION, {'thresholds.danger_ttc': 3.0}, 'danger'),
    (PERCEPTION, {'roi': (0.5, 0.0, 0.4, 1.0)}, 'roi'),
    (PERCEPTION, {'obstacles.scan': True}, 'base_frame'),
    (PERCEPTION, {'obstacles.min_height': 0.6}, 'min_height'),
    (GUARD, {'sources': ()}, 'empty'), (GUARD, {'ranges': ('camera',)}, 'once'),
    (GUARD, {'stop_time_to_contact': 9.0}, 'stop_time_to_contact'),
    (TWIST, {'sources': ('rate',)}, 'rate'), (TWIST, {'turns': (1.0,)}, 'turns'),
    (TWIST, {'speeds': ()}, 'speeds'), (TWIST, {'stop_on': ('missing',)}, 'timeout'),
])
def test_values_that_do_not_fit_together_are_refused_by_name(schema, change, named):
    assert named in schema.problem({**defaults(schema), **change})


@pytest.mark.parametrize(('name', 'value', 'allowed'), [
    ('clip_fps', 'fast', 'double'), ('clip_fps', True, 'double'),
    ('clip_fps', math.nan, 'finite'), ('num_frames', 7, 'multiple of 2'),
    ('num_frames', 8.0, 'int'),
    ('allow_random_weights', 1, 'bool'), ('model_size', 'Tiny', 'tiny, small'),
    ('model_size', 3, 'string'), ('device', 'cuda:x', 'cuda:N'),
    ('cameras', 'front', 'string[]'), ('cameras', ['a b'], 'ROS names'),
    ('cameras', ['/front'], 'ROS names'), ('cameras', [''], 'ROS names'),
    ('cameras', [1], 'string[]'), ('roi', [0.0, 0.0, 2.0, 1.0], '0..1'),
    ('roi', [0.0, math.nan, 1.0, 1.0], 'finite'), ('roi', None, 'double[]'),
    ('thresholds.danger_ttc', -1.0, '0.05..60')])
def test_illegal_values_are_refused_with_name_value_and_what_is_allowed(name, value, allowed):
    got, problem = ROWS[name].check(value)
    assert got is None
    assert f"'{name}'" in problem and allowed in problem and repr(value) in problem


@pytest.mark.parametrize('name', parameter_docs.BLOCKS)
def test_the_tables_in_the_documents_are_up_to_date(name):
    text = (ROOT / name).read_text(encoding='utf-8')
    for block, rows in parameter_docs.BLOCKS[name].items():
        assert fill(text, block, parameter_docs.markdown(rows)) == text, \
            'run python -m vjepa_ros.cli.parameter_docs'


@pytest.mark.parametrize('name', parameter_docs.FILES)
def test_the_files_of_all_parameters_are_up_to_date(name):
    schema, above = parameter_docs.FILES[name]
    text = (ROOT / 'config' / name).read_text(encoding='utf-8')
    assert parameter_docs.yaml_text(schema, above) == text, \
        'run python -m vjepa_ros.cli.parameter_docs'
    # Those of a camera are comments, so that they are not set where it has another name.
    text = re.sub(r'^    # (?=camera\.)', '    ', text, flags=re.MULTILINE)
    shown = yaml.safe_load(text)['/**']['ros__parameters']
    rows = {row.name: row for row in (*schema.rows, *(
        row for parameter, make_rows in schema.lists.items()
        for listed in shown[parameter] for row in make_rows(listed)))}
    assert shown.keys() == rows.keys()
    for key, value in shown.items():
        kind = list if isinstance(rows[key].default, tuple) else rows[key].kind
        assert type(value) is kind, key                  # ROS refuses 1 for 1.0
        assert rows[key].check(value) == (rows[key].default, '')
