# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Every file of config/ is read by the parser of ROS and taken by the node that it is for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip('rclpy')

import rclpy
from rclpy.node import Node
from ros_harness import ros_session

from vjepa_ros.ros.action_planner.node import PlannerNode
from vjepa_ros.ros.collision_guard.node import CollisionGuard
from vjepa_ros.ros.perception_node.node import VjepaNode
from vjepa_ros.ros.twist_planner.node import TwistPlannerNode

pytestmark = pytest.mark.ros

CONFIG = Path(__file__).resolve().parents[1] / 'config'
FILES = sorted(CONFIG.glob('*.yaml'))
OTHERS = {'action_planner': PlannerNode, 'collision_guard': CollisionGuard,
          'twist_planner': TwistPlannerNode}
OURS = [file for file in FILES if not file.stem.startswith('nav2')]


@contextmanager
def started(make: Any, file: Path, **options: Any) -> Iterator[Any]:
    """A node of this process that reads a parameter file as `--params-file` does."""
    with ros_session() as ros:
        context = rclpy.Context()
        rclpy.init(args=['--ros-args', '--params-file', str(file)], context=context,
                   domain_id=ros.domain_id)
        try:
            node = make(context=context, **options)
            try:
                yield node
            finally:
                node.destroy_node()
        finally:
            rclpy.shutdown(context=context)


def flat(values: dict, before: str = '') -> dict[str, Any]:
    """Nested parameters by their whole names."""
    found = {}
    for name, value in values.items():
        found |= (flat(value, f'{before}{name}.') if isinstance(value, dict)
                  else {before + name: value})
    return found


def sections(content: dict, before: str = '') -> dict[str, dict[str, Any]]:
    """Parameters by the name of the node they are for."""
    if 'ros__parameters' in content:
        return {before: flat(content['ros__parameters'])}
    found = {}
    for name, inner in content.items():
        found |= sections(inner, f'{before}/{name.lstrip("/")}')
    return found


def plain(value: Any) -> Any:
    return list(value) if isinstance(value, (tuple, list)) or hasattr(value, 'tolist') else value


@pytest.mark.parametrize('file', OURS, ids=lambda file: file.stem)
def test_the_node_of_a_file_takes_each_of_its_parameters(file):
    with started(OTHERS.get(file.stem, VjepaNode), file) as node:
        node.params.read()                               # raises, naming what was refused
        for name, value in sections(yaml.safe_load(file.read_text()))['/**'].items():
            assert plain(node.params.get(name)) == value, name


@pytest.mark.parametrize('file', FILES, ids=lambda file: file.stem)
def test_the_parser_of_ros_reads_what_stands_in_a_file(file):
    for path, values in sections(yaml.safe_load(file.read_text())).items():
        space, _, name = path.rpartition('/')
        with started(Node, file, node_name=name.replace('**', 'anything'),
                     namespace=space) as node:
            got = {key: override.value for key, override in node._parameter_overrides.items()}
        for key, value in values.items():
            if value != []:                              # which has no type in ROS
                assert (type(plain(got[key])), plain(got[key])) == (type(value), value), key
