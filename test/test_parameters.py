# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Parameters of all nodes: checks, configurations, documents, and files read as rcl does."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from vjepa_ros.cli import parameter_docs
from vjepa_ros.guard.settings import GuardSettings
from vjepa_ros.parameter import SCHEMAS as NODES
from vjepa_ros.parameter import Schema, schema_of, schemas
from vjepa_ros.perception.settings import Settings
from vjepa_ros.planning.obstacle_memory import LocalConfig
from vjepa_ros.ros.doctor import ERROR, judge_file
from vjepa_ros.ros.parameter_file import read_file, readable, unknown, values_of

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


@pytest.mark.parametrize(('name', 'group', 'limit'), [
    ('vjepa_node', 'camera', 45), ('collision_guard', 'source', 25),
    ('local_planner', 'source', 25)])
def test_an_owner_is_asked_for_few_parameters(name, group, limit):
    schema = schema_of(name)
    assert len((*schema.rows, *schema.rows_of(group))) <= limit


@pytest.mark.parametrize(('schema', 'config', 'part'), [
    (GUARD, GuardSettings, 'settings'), (TWIST, LocalConfig, 'twist'),
    (PERCEPTION, Settings, 'settings')], ids=['guard', 'twist', 'perception'])
def test_each_parameter_reaches_its_own_setting(schema, config, part):
    for row in (row for row in schema.rows if row.config is config and row.kind is float):
        value = row.default * 1.01 + 0.001
        found = getattr(schema.read({**defaults(schema, 'camera'), row.name: value}), part)
        assert found == replace(config(), **{row.sets: value}), row.name


@pytest.mark.parametrize(('schema', 'change', 'named'), [
    (PERCEPTION, {'cameras': ('a', 'b', 'a')}, 'once'),
    (PERCEPTION, {'thresholds.danger_ttc': 3.0}, 'danger'),
    (PERCEPTION, {'roi': (0.5, 0.0, 0.4, 1.0)}, 'roi'),
    (PERCEPTION, {'obstacles.scan': True}, 'base_frame'),
    (GUARD, {'sources': ()}, 'empty'), (GUARD, {'stop_on': ('tired',)}, 'tired'),
    (TWIST, {'sources': ('cruise',)}, 'cruise')])
def test_values_that_do_not_fit_together_are_refused_by_name(schema, change, named):
    assert named in schema.problem({**defaults(schema), **change})


@pytest.mark.parametrize(('name', 'value', 'allowed'), [
    ('clip_fps', True, 'double'), ('clip_fps', math.nan, 'finite'),
    ('num_frames', 7, 'multiple of 2'), ('allow_random_weights', 1, 'bool such as false'),
    ('model_size', 'Tiny', 'tiny, small'), ('weights', '$(command ls)', 'nothing resolves'),
    ('device', 'cuda:x', 'cuda:N'), ('cameras', 'front', 'such as ["camera"]'),
    ('cameras', ['/front'], 'ROS names'), ('roi', [0.0, math.nan, 1.0, 1.0], 'finite')])
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


ROW = PERCEPTION.row


def block(text: str, node: str = '/**') -> str:
    """A parameter file with these lines."""
    lines = [f'{node}:', '  ros__parameters:', *(f'    {line}' for line in text.splitlines())]
    return '\n'.join(lines) + '\n'


@pytest.fixture
def file(tmp_path) -> Path:
    return tmp_path / 'mine.yaml'


def by_rcl(args: list[str], name: str = 'vjepa_node', namespace: str = '') -> dict[str, Any]:
    """The parameters that rclpy gives a node with this command line."""
    pytest.importorskip('rclpy')
    from rclpy.context import Context
    from rclpy.node import Node

    context = Context()
    context.init(args=args)
    try:
        node = Node(name, namespace=namespace, context=context, enable_rosout=False,
                    start_parameter_services=False)
        given = {key: list(each.value) if hasattr(each.value, '__len__') and not isinstance(
            each.value, str) else each.value for key, each in node._parameter_overrides.items()}
        node.destroy_node()
        return given
    finally:
        context.try_shutdown()


FILES = {
    'types': block('a: 0x10\nb: off\nc: 1.5\nd: a text\ne: [1, 2]\nf: "5"\ng: -.inf\nh: 010\n'
                   'i: !!str 5\nj: [on, off]\nk: 2026-01-01\nl: .5\nm: ["1", x]'),
    'nested': 'robot1:\n  vjepa_node:\n    ros__parameters:\n      a: {b: {c: 1}, d: [x]}\n',
    'the last wins': block('a: 1', 'vjepa_node') + block('a: 2'),
    'wildcards': ''.join(block(f'p{i}: 1', name) for i, name in enumerate((
        '/**', '/*', '/*/vjepa_node', '/**/vjepa_node', '/robot1/*', '/robot1/**',
        '/robot1/*/vjepa_node', '"*"', '"**"', '/other', 'robot1/vjepa_node'))),
    'no parameters': 'vjepa_node:\n  ros__parameters: {}\n'}


@pytest.mark.ros
@pytest.mark.parametrize('namespace', ['', 'robot1/arm'])
@pytest.mark.parametrize('text', FILES.values(), ids=FILES)
def test_a_node_gets_what_rcl_gives_it(file, text, namespace):
    file.write_text(text)
    mine = values_of(read_file(file), 'vjepa_node', namespace) or {}
    args = ['--ros-args', '--params-file', str(file)]
    assert mine == by_rcl(args, namespace=namespace)
    with readable(args, unknown) as (written, _):      # and rcl reads what is written for it
        assert mine == by_rcl(written, namespace=namespace)


REFUSED = [
    (block('a: [1, 2.0]'), "'a'.*alike"), (block('a: &x 1\nb: *x'), 'line 4.*aliases'),
    (block('a:'), "line 3.*'a' has no value"), ('/**: {a: 1}\n', 'ros__parameters'),
    (block('a: é').encode('latin-1'), 'YAML'),
    (block('a: ' + '{b: ' * 3000 + '1' + '}' * 3000), 'YAML')]


@pytest.mark.parametrize(('text', 'words'), REFUSED, ids=[words for _, words in REFUSED])
def test_what_is_no_parameter_file_is_refused_alike_with_line_and_remedy(file, text, words):
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=words) as refused:
        read_file(file)
    assert 'mine.yaml' in str(refused.value) and '\n' not in str(refused.value)
    (finding,) = judge_file(file, schemas())
    assert finding.level == ERROR and str(refused.value)[:-90] in finding.text


@pytest.mark.parametrize(('text', 'wanted'), [
    ('precision: off', {'precision': 'off'}), ('cameras: [y]', {'cameras': ['y']}),
    ('max_rate: 5', {'max_rate': 5.0}), ('roi: [0, 0.1, 1, 1]', {'roi': [0.0, 0.1, 1.0, 1.0]}),
    ('autostart: on', {'autostart': True}), ('cameras: []', {'cameras': []})])
def test_what_is_clear_is_taken_and_rcl_gets_it_so(file, text, wanted):
    """Rcl refuses some of these files, takes texts for truth values and 5 for no double."""
    file.write_text(block(text))
    assert values_of(read_file(file, ROW), 'vjepa_node') == wanted
    with readable(['--ros-args', '--params-file', str(file)], ROW) as (args, _):
        written = yaml.safe_load(Path(args[-1]).read_text())
    assert written == {'/**': {'ros__parameters': wanted}}
