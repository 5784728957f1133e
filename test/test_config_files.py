# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Parameter files: each of config/ is taken by its node, and a misspelt name is a warning."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip('rclpy')

from rcl_interfaces.srv import GetParameters, SetParameters
from rclpy.parameter import Parameter, parameter_value_to_python
from ros_harness import NodeProcess, QUIET, Session, logged, ros_env, ros_session

from vjepa_ros.ros.collision_guard.node import CollisionGuard
from vjepa_ros.ros.local_planner.node import LocalPlannerNode
from vjepa_ros.ros.perception_node.node import VjepaNode

pytestmark = pytest.mark.ros

CONFIG = Path(__file__).resolve().parents[1] / 'config'
OTHERS = {'collision_guard': CollisionGuard, 'local_planner': LocalPlannerNode}
FILES = sorted(file for file in CONFIG.glob('*.yaml') if not file.stem.startswith('nav2'))


def flat(values: dict, before: str = '') -> dict[str, Any]:
    """Nested parameters by their whole names."""
    return {inner: value for name, given in values.items() for inner, value in (
        flat(given, f'{before}{name}.') if isinstance(given, dict) else {before + name: given}
        ).items()}


def plain(value: Any) -> Any:
    return list(value) if isinstance(value, (tuple, list)) or hasattr(value, 'tolist') else value


def written(folder: Path, *lines: str, node: str = '/**') -> Path:
    file = folder / 'mine.yaml'
    file.write_text(f'{node}:\n  ros__parameters:\n' + ''.join(f'    {line}\n' for line in lines))
    return file


@pytest.mark.parametrize('file', FILES, ids=lambda file: file.stem)
def test_the_node_of_a_file_takes_each_of_its_parameters(file):
    with logged() as lines, ros_session() as ros:
        node = OTHERS.get(file.stem, VjepaNode)(
            context=ros.context, cli_args=[*QUIET, '--params-file', str(file)])
        node.params.read()                               # raises, naming what was refused
        content = yaml.safe_load(file.read_text())['/**']['ros__parameters']
        for name, value in flat(content).items():
            assert plain(node.params.get(name)) == value, name
        node.destroy_node()
    assert not any('is ignored' in line for line in lines)


@pytest.mark.any_distro
def test_a_parameter_that_nobody_reads_is_a_warning_with_what_is_meant(tmp_path):
    file = written(
        tmp_path, 'cameras: [front]', 'front.mount.hight: 1', 'zzzz: 1', 'left.transport: raw',
        # Those of other nodes, and of ROS, are passed over.
        'sources: [front]', 'front.yaw: 0.0', 'cruise: 1.0', 'loop: true', 'use_sim_time: false',
        'qos_overrides./camera/image_raw.subscription.reliability: reliable')
    with logged() as lines, ros_session() as ros:
        VjepaNode(context=ros.context,
                  cli_args=[*QUIET, '--params-file', str(file)]).destroy_node()
    found = dict(re.findall(r"parameter '(\S+)' is ignored: [^;]*(?:; (.*))?", '\n'.join(lines)))
    assert found == {'front.mount.hight': "do you mean 'front.mount.height'?", 'zzzz': '',
                     'left.transport': "'left' is not in 'cameras'"}


# -- processes, as launch files and ros2 run start them -------------------------------------------

@contextmanager
def process(ros: Session, module: str, *words: str) -> Iterator[NodeProcess]:
    node = NodeProcess([sys.executable, '-m', f'vjepa_ros.ros.{module}', '--ros-args', *words],
                       ros_env(ros.domain_id))
    try:
        yield node
    finally:
        node.close()


def got(ros: Session, names: list[str]) -> dict[str, Any]:
    """Values of parameters by the service of the node."""
    answer = ros.call(GetParameters, '/vjepa_node/get_parameters',
                      GetParameters.Request(names=names), timeout=60.0)
    return {key: plain(parameter_value_to_python(value))
            for key, value in zip(names, answer.values, strict=True)}


@pytest.mark.any_distro
def test_texts_that_yaml_takes_for_something_else_reach_a_node_as_they_are(tmp_path):
    values = {'cameras': ['x', 'y'], 'y.imu_topic': 'n', 'weights': '1e5', 'assumed_fov': 60.0,
              'obstacles.base_frame': 'off'}
    file = written(tmp_path, *yaml.dump(values).splitlines(), node='/vjepa_node')
    with ros_session() as ros, process(ros, 'perception_node', '--params-file', str(file)) as node:
        assert got(ros, list(values)) == values
        assert not re.search(r'\[ERROR\]|\[WARN\]|Traceback', node.output), node.output
    words = [word for name, value in values.items()
             for word in ('-p', f'{name}:={json.dumps(value)}')]
    with ros_session() as ros, process(ros, 'perception_node', *words):
        assert got(ros, list(values)) == values


@pytest.mark.any_distro
@pytest.mark.parametrize(('line', 'word', 'said'), [
    ('timeout: {a: 1', '', r"parameter file '.*', line 4: this is not YAML"),
    ('message: off', '', "'message' is 'off', must be one of twist, twist_stamped"),
    ('', 'timeout:={a: 1}', "-p 'timeout:={a: 1}': parameter 'timeout' must be one value"),
    ('start_type_description_service: 5', '', "service' to '5' of type 'INTEGER', expecting")])
def test_what_a_node_cannot_read_ends_it_with_one_line_that_has_the_remedy(line, word, said,
                                                                           tmp_path):
    file = written(tmp_path, line)
    with ros_session() as ros, process(ros, 'command_watchdog', '--params-file', str(file),
                                       *(('-p', word) if word else ())) as node:
        assert node.wait(60.0) == 1
        (told,) = node.output.splitlines()
        assert re.search(rf'\[ERROR\] .*{said}', told)


@pytest.mark.any_distro
def test_a_wrong_name_and_a_wrong_type_are_answered_as_they_are_meant():
    with ros_session() as ros, ros.compose('vjepa_ros.ros.perception_node'):
        def answer(name: str, value: Any) -> Any:
            request = SetParameters.Request(parameters=[
                Parameter(name, value=value).to_parameter_msg()])
            return ros.call(SetParameters, '/vjepa_node/set_parameters', request).results[0].reason

        assert answer('max_rat', 5.0) == (
            "parameter 'max_rat' is not declared; do you mean 'max_rate'?")
        assert 'ros2 param list /vjepa_node' in answer('zzzzzz', 5.0)
        assert answer('max_rate', 5) == ''       # as ros2 param set reads whole numbers
        assert got(ros, ['max_rate']) == {'max_rate': 5.0}
        assert answer('approach_speed', '1e-1').endswith('must be a double such as 1.0')
