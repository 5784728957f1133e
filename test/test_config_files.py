# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Parameter files: each of config/ is taken by its node, and a misspelt name is a warning."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip('rclpy')

from ros_harness import QUIET, logged, ros_session

from vjepa_ros.ros.collision_guard.node import CollisionGuard
from vjepa_ros.ros.local_planner.node import LocalPlannerNode
from vjepa_ros.ros.perception_node.node import VjepaNode
from vjepa_ros.ros.sim.camera_source import CameraSource

pytestmark = pytest.mark.ros

CONFIG = Path(__file__).resolve().parents[1] / 'config'
OTHERS = {'collision_guard': CollisionGuard, 'local_planner': LocalPlannerNode}
FILES = sorted(file for file in CONFIG.glob('*.yaml') if not file.stem.startswith('nav2'))

MISSPELT = {
    VjepaNode: ('front.mount.hight', 'front.mount.height'),
    CollisionGuard: ('stop_distanse', 'stop_distance'),
    LocalPlannerNode: ('robot.half_with', 'robot.half_width'),
    CameraSource: ('start_dellay', 'start_delay')}
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
              'front.yaw: 0.0\nmax_rate: 5.0\nhorizon: 3.0\nloop: true\nsettle: 1.0\n'
              'qos_overrides./camera/image_raw.subscription.reliability: reliable\n')
    found = remarks(make, tmp_path, f'{others}{wrong}: 1\nzzzz: 1')
    assert found.keys() == {wrong, 'zzzz'}        # the others are those of other nodes
    assert right in found[wrong] and found['zzzz'] == ''


@pytest.mark.any_distro
@pytest.mark.parametrize(('make', 'text', 'name', 'lists'), [
    (VjepaNode, 'cameras: [front]\nleft.transport: raw', 'left.transport', "'cameras'"),
    (CollisionGuard, 'sources: [front]\nrear.direction: backward', 'rear.direction',
     "'sources' or 'ranges'"),
    (LocalPlannerNode, 'sources: [front]\nrear.height: 1.0', 'rear.height', "'sources'")])
def test_a_parameter_of_a_camera_that_is_not_configured_is_said_to_be_one(
        make, text, name, lists, tmp_path):
    ((found, remark),) = remarks(make, tmp_path, text).items()
    assert found == name and lists in remark
