# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Parameter files: each of config/ is taken by its node, and a misspelt name is a warning."""

from __future__ import annotations

import re
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip('rclpy')

from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter
from ros_harness import NodeProcess, QUIET, logged, ros_env, ros_session

from vjepa_ros.ros.collision_guard.node import CollisionGuard
from vjepa_ros.ros.local_planner.node import LocalPlannerNode
from vjepa_ros.ros.perception_node.node import VjepaNode

pytestmark = pytest.mark.ros

CONFIG = Path(__file__).resolve().parents[1] / 'config'
OTHERS = {'collision_guard': CollisionGuard, 'local_planner': LocalPlannerNode}
FILES = sorted(file for file in CONFIG.glob('*.yaml') if not file.stem.startswith('nav2'))


def written(folder: Path, *lines: str) -> Path:
    file = folder / 'mine.yaml'
    file.write_text('/**:\n  ros__parameters:\n' + ''.join(f'    {line}\n' for line in lines))
    return file


@pytest.mark.parametrize('file', FILES, ids=lambda file: file.stem)
def test_the_node_of_a_file_takes_each_of_its_parameters(file):
    with logged() as lines, ros_session() as ros:
        node = OTHERS.get(file.stem, VjepaNode)(
            context=ros.context, cli_args=[*QUIET, '--params-file', str(file)])
        node.params.read()                               # raises, naming what was refused
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


@pytest.mark.any_distro
@pytest.mark.parametrize(('line', 'word', 'said'), [
    ('timeout: {a: 1', '', r"parameter file '.*', line 4: this is not YAML"),
    ('message: off', '', "'message' is 'off', must be one of twist, twist_stamped"),
    ('', 'timeout:={a: 1}', "-p 'timeout:={a: 1}': parameter 'timeout' must be one value"),
    ('start_type_description_service: 5', '', "service' to '5' of type 'INTEGER', expecting")])
def test_what_a_node_cannot_read_ends_it_with_one_line_that_has_the_remedy(line, word, said,
                                                                           tmp_path):
    file = written(tmp_path, line)
    words = ['--ros-args', '--params-file', str(file), *(('-p', word) if word else ())]
    with ros_session() as ros, closing(NodeProcess(
            [sys.executable, '-m', 'vjepa_ros.ros.command_watchdog', *words],
            ros_env(ros.domain_id))) as node:
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
        assert answer('approach_speed', '1e-1').endswith('must be a double such as 1.0')
