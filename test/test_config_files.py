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

from rcl_interfaces.srv import GetParameters, ListParameters, SetParameters
from rclpy.parameter import Parameter, parameter_value_to_python
from ros_harness import NodeProcess, QUIET, Session, logged, ros_env, ros_session

from vjepa_ros.ros.collision_guard.node import CollisionGuard
from vjepa_ros.ros.local_planner.node import LocalPlannerNode
from vjepa_ros.ros.perception_node.node import VjepaNode
from vjepa_ros.ros.sim.camera_source import CameraSource

pytestmark = pytest.mark.ros

CONFIG = Path(__file__).resolve().parents[1] / 'config'
OTHERS = {'collision_guard': CollisionGuard, 'local_planner': LocalPlannerNode}
FILES = sorted(file for file in CONFIG.glob('*.yaml') if not file.stem.startswith('nav2'))

MISSPELT = {VjepaNode: ('front.mount.hight', 'front.mount.height'),
            CameraSource: ('max_framess', 'max_frames')}
IGNORED = re.compile(r"parameter '(\S+)' is ignored: [^;]*(?:; (.*))?")


@contextmanager
def started(make: type, file: Path) -> Iterator[Any]:
    """A node of this process that reads a parameter file as `--params-file` does."""
    with ros_session() as ros:
        node = make(context=ros.context, cli_args=[*QUIET, '--params-file', str(file)])
        try:
            yield node
        finally:
            node.destroy_node()


def flat(values: dict, before: str = '') -> dict[str, Any]:
    """Nested parameters by their whole names."""
    return {inner: value for name, given in values.items() for inner, value in (
        flat(given, f'{before}{name}.') if isinstance(given, dict) else {before + name: given}
        ).items()}


def plain(value: Any) -> Any:
    return list(value) if isinstance(value, (tuple, list)) or hasattr(value, 'tolist') else value


@pytest.mark.parametrize('file', FILES, ids=lambda file: file.stem)
def test_the_node_of_a_file_takes_each_of_its_parameters(file):
    with logged() as lines, started(OTHERS.get(file.stem, VjepaNode), file) as node:
        assert not any('is ignored' in line for line in lines)
        node.params.read()                               # raises, naming what was refused
        content = yaml.safe_load(file.read_text())['/**']['ros__parameters']
        for name, value in flat(content).items():
            assert plain(node.params.get(name)) == value, name


def remarks(make: type, folder: Path, text: str) -> dict[str, str]:
    """What a node that reads these parameters says of those that it does not have."""
    file = folder / 'mine.yaml'
    file.write_text('/**:\n  ros__parameters:\n'
                    + ''.join(f'    {line}\n' for line in text.splitlines()))
    with logged() as lines, started(make, file):
        said = IGNORED.findall('\n'.join(lines))
    assert len(said) == len(dict(said))                 # each name once
    return dict(said)


@pytest.mark.any_distro
@pytest.mark.parametrize('make', MISSPELT, ids=lambda make: make.__name__)
def test_a_misspelt_parameter_is_a_warning_with_the_one_that_is_meant(make, tmp_path):
    wrong, right = MISSPELT[make]
    others = ('cameras: [front]\nsources: [front]\nuse_sim_time: false\nfront.mount.height: 0.3\n'
              'front.yaw: 0.0\nmax_rate: 5.0\ncruise: 1.0\nloop: true\nsettle: 1.0\n'
              'qos_overrides./camera/image_raw.subscription.reliability: reliable\n')
    found = remarks(make, tmp_path, f'{others}{wrong}: 1\nzzzz: 1')
    assert found.keys() == {wrong, 'zzzz'}        # the others are those of other nodes
    assert right in found[wrong] and found['zzzz'] == ''


@pytest.mark.any_distro
@pytest.mark.parametrize(('make', 'text', 'name', 'remark'), [
    (VjepaNode, 'cameras: [front]\nleft.transport: raw', 'left.transport', "not in 'cameras'")])
def test_a_parameter_of_another_camera_says_what_to_do(make, text, name, remark, tmp_path):
    ((found, said),) = remarks(make, tmp_path, text).items()
    assert found == name and remark in said


# -- processes, as launch files and ros2 run start them -------------------------------------------

# Nodes with texts that YAML takes for something else.
NODES = {
    'perception_node': (VjepaNode, {
        'cameras': ['x', 'y'], 'y.imu_topic': 'n', 'weights': '1e5', 'assumed_fov': 6e1,
        'obstacles.base_frame': 'off'}),
    'collision_guard': (CollisionGuard, {'sources': ['y', 'n'], 'y.topic': '1234'})}


@contextmanager
def process(ros: Session, module: str, *words: str) -> Iterator[NodeProcess]:
    node = NodeProcess([sys.executable, '-m', f'vjepa_ros.ros.{module}', '--ros-args', *words],
                       ros_env(ros.domain_id))
    try:
        yield node
    finally:
        node.close()


def got(ros: Session, name: str, names: list[str]) -> dict[str, Any]:
    """Values of parameters by the services of a node."""
    answer = ros.call(GetParameters, f'{name}/get_parameters', GetParameters.Request(names=names))
    return {key: plain(parameter_value_to_python(value))
            for key, value in zip(names, answer.values, strict=False)}


@pytest.mark.any_distro
@pytest.mark.parametrize('module', NODES)
def test_a_dump_of_a_node_starts_it_again_with_the_same_parameters(module, tmp_path):
    make, given = NODES[module]
    with ros_session() as ros:
        words = [word for name, value in given.items()
                 for word in ('-p', f'{name}:={json.dumps(value)}')]
        node = make(context=ros.context, cli_args=[*QUIET, *words])
        name = node.get_fully_qualified_name()
        values = {key: plain(each.value) for key, each in node._parameters.items()
                  if not key.startswith('qos_overrides')}
        node.destroy_node()
        assert given.items() <= values.items()
        file = tmp_path / 'dump.yaml'
        file.write_text(yaml.dump({name: {'ros__parameters': values}}, default_flow_style=False))
        with process(ros, module, '--params-file', str(file)) as node:
            listed = ros.call(ListParameters, f'{name}/list_parameters', timeout=60.0)
            assert set(listed.result.names) >= values.keys()
            assert got(ros, name, list(values)) == values
            assert not re.search(r'\[ERROR\]|\[WARN\]|Traceback', node.output), node.output


@pytest.mark.any_distro
@pytest.mark.parametrize(('words', 'text', 'said'), [
    (('timeout: {a: 1',), '', r"parameter file '.*', line 4: this is not YAML"),
    (('message: off',), '', "'message' is 'off', must be one of twist, twist_stamped"),
    ((), 'timeout:={a: 1}', "-p 'timeout:={a: 1}': parameter 'timeout' must be one value"),
    (('start_type_description_service: 5',), '', "service' to '5' of type 'INTEGER', expecting")])
def test_what_a_node_cannot_read_ends_it_with_one_line_that_has_the_remedy(words, text, said,
                                                                           tmp_path):
    file = tmp_path / 'mine.yaml'
    file.write_text('/**:\n  ros__parameters:\n' + ''.join(f'    {word}\n' for word in words))
    with ros_session() as ros, process(ros, 'command_watchdog', '--params-file', str(file),
                                       *(('-p', text) if text else ())) as node:
        assert node.wait(60.0) == 1
        (line,) = node.output.splitlines()
        assert re.search(rf'\[ERROR\] .*{said}', line)


# -- set and get ----------------------------------------------------------------------------------

@pytest.mark.any_distro
def test_a_wrong_name_and_a_wrong_type_are_answered_as_they_are_meant():
    with ros_session() as ros, ros.compose('vjepa_ros.ros.perception_node'):
        def try_set(name: str, value: Any) -> Any:
            request = SetParameters.Request(parameters=[
                Parameter(name, value=value).to_parameter_msg()])
            return ros.call(SetParameters, '/vjepa_node/set_parameters', request).results[0]

        answer = try_set('max_rat', 5.0)
        assert not answer.successful
        assert answer.reason == "parameter 'max_rat' is not declared; do you mean 'max_rate'?"
        assert 'ros2 param list /vjepa_node' in try_set('zzzzzz', 5.0).reason
        # As ros2 param set reads whole numbers.
        assert try_set('max_rate', 5).successful
        assert got(ros, '/vjepa_node', ['max_rate']) == {'max_rate': 5.0}
        answer = try_set('approach_speed', '1e-1')     # which is a text to ros2 param set
        assert answer.reason.endswith("is '1e-1', must be a double such as 1.0")
