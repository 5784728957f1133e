# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Parameter files: read as rcl reads them, alike by nodes, score, doctor and launch files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from vjepa_ros.parameter import schema_of, schemas
from vjepa_ros.ros.doctor import ERROR, judge_file
from vjepa_ros.ros.parameter_file import read_file, readable, unknown, values_of

ROW = schema_of('vjepa_node').row


def block(text: str, node: str = '/**') -> str:
    """A parameter file with these lines."""
    lines = [f'{node}:', '  ros__parameters:', *(f'    {line}' for line in text.splitlines())]
    return '\n'.join(lines) + '\n'


@pytest.fixture
def file(tmp_path) -> Path:
    return tmp_path / 'mine.yaml'


# -- the rules of rcl -----------------------------------------------------------------------------

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
    'two documents': '---\n' + block('a: 1') + '---\n' + block('b: 2'),
    'nested': 'robot1:\n  vjepa_node:\n    ros__parameters:\n      a: {b: {c: 1}, d: [x]}\n',
    'the last wins': block('a: 1', 'vjepa_node') + block('a: 2'),
    'wildcards': ''.join(block(f'p{i}: 1', name) for i, name in enumerate((
        '/**', '/*', '/*/vjepa_node', '/**/vjepa_node', '/robot1/*', '/robot1/**',
        '/robot1/*/vjepa_node', '"*"', '"**"', '/other', 'robot1/vjepa_node'))),
    'UTF-16': block('a: 1').encode('utf-16'),
    'no parameters': 'vjepa_node:\n  ros__parameters: {}\n'}


@pytest.mark.ros
@pytest.mark.parametrize('namespace', ['', 'robot1/arm'])
@pytest.mark.parametrize('text', FILES.values(), ids=FILES)
def test_a_node_gets_what_rcl_gives_it(file, text, namespace):
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    mine = values_of(read_file(file), 'vjepa_node', namespace) or {}
    args = ['--ros-args', '--params-file', str(file)]
    assert mine == by_rcl(args, namespace=namespace)
    with readable(args, unknown) as (written, _):      # and rcl reads what is written for it
        assert mine == by_rcl(written, namespace=namespace)


REFUSED = [
    (block('a: [1, 2.0]'), "'a'.*alike"), (block('a: &x 1\nb: *x'), 'line 4.*aliases'),
    (block('a:'), "line 3.*'a' has no value"), ('- a\n', 'line 1.*NODE'),
    ('/**: {a: 1}\n', 'ros__parameters'), (block('a: 1', 'v-node'), "'v-node'"),
    (block('a: é').encode('latin-1'), 'YAML'), (block('a: [{b: 1}, 2]'), "'a'.*one value"),
    (block('a: ' + '{b: ' * 3000 + '1' + '}' * 3000), 'YAML')]


@pytest.mark.parametrize(('text', 'words'), REFUSED, ids=[words for _, words in REFUSED])
def test_what_is_no_parameter_file_is_refused_alike_with_line_and_remedy(file, text, words):
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=words) as refused:
        read_file(file)
    assert 'mine.yaml' in str(refused.value) and '\n' not in str(refused.value)
    (finding,) = judge_file(file, schemas())
    assert finding.level == ERROR and str(refused.value)[:-90] in finding.text


# -- texts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(('text', 'wanted'), [
    ('precision: off', {'precision': 'off'}), ('cameras: [y]', {'cameras': ['y']}),
    ('weights: 1234', {'weights': '1234'}), ('y.imu_topic: n', {'y.imu_topic': 'n'}),
    ('max_rate: 5', {'max_rate': 5.0}), ('roi: [0, 0.1, 1, 1]', {'roi': [0.0, 0.1, 1.0, 1.0]}),
    ('autostart: on', {'autostart': True}), ('cameras: []', {'cameras': []}),
    ('thresholds: {}\nmax_rate: 5.0', {'max_rate': 5.0})])
def test_what_is_clear_is_taken_and_rcl_gets_it_so(file, text, wanted):
    """Rcl refuses some of these files, takes texts for truth values and 5 for no double."""
    file.write_text(block(text))
    assert values_of(read_file(file, ROW), 'vjepa_node') == wanted
    with readable(['--ros-args', '--params-file', str(file)], ROW) as (args, _):
        written = yaml.safe_load(Path(args[-1]).read_text())
    assert written == {'/**': {'ros__parameters': wanted}}


@pytest.mark.ros
def test_a_later_word_wins_over_a_file_whatever_types_they_have(file):
    """Rcl keeps both, and takes the truth value or the integer."""
    file.write_text(block('heads: off\nmax_rate: 5\nweights: off'))
    args = ['node', '--ros-args', '--params-file', str(file), '-p', 'max_rate:=7.5', '--param',
            'heads:=auto', '-p', 'vjepa_node:weights:=on', '-r', 'a:=b', '--', '-p', 'x']
    with readable(args, ROW) as (written, found):
        assert (written[0], written[-4:]) == ('node', args[-4:])
        assert found.keys() == {str(file)}
        assert by_rcl(written) == {'heads': 'auto', 'max_rate': 7.5, 'weights': 'on'}
