# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Every node says which of the parameters that it was given it does not have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip('rclpy')

from ros_harness import ros_session
from test_config_files import OTHERS, OURS, started

from vjepa_ros.ros.action_planner.node import PlannerNode
from vjepa_ros.ros.collision_guard.node import CollisionGuard
from vjepa_ros.ros.perception_node.node import VjepaNode
from vjepa_ros.ros.sim.camera_source import CameraSource
from vjepa_ros.ros.twist_planner.node import TwistPlannerNode

pytestmark = [pytest.mark.ros, pytest.mark.any_distro]

NODES = {
    VjepaNode: ('front.mount.hight', 'front.mount.height'),
    CollisionGuard: ('stop_distanse', 'stop_distance'),
    TwistPlannerNode: ('robot.half_with', 'robot.half_width'),
    PlannerNode: ('gap.repetition', 'gap.repetitions'),
    CameraSource: ('start_dellay', 'start_delay'),
}
WORDS = re.compile(r"parameter '(\S+)' is ignored: this node has none of that name(?:; (.*))?")


def remarks(make: type, folder: Path, capfd, text: str) -> dict[str, str]:
    """What a node that reads these parameters says of them."""
    file = folder / 'mine.yaml'
    file.write_text('/**:\n  ros__parameters:\n'
                    + ''.join(f'    {line}\n' for line in text.splitlines()))
    with started(make, file):
        said = WORDS.findall(capfd.readouterr().err)
    assert len(said) == len(dict(said))                 # each name once
    return dict(said)


@pytest.mark.parametrize('make', NODES, ids=lambda make: make.__name__)
def test_a_misspelt_parameter_is_a_warning_with_the_one_that_is_meant(make, tmp_path, capfd):
    wrong, right = NODES[make]
    text = f'cameras: [front]\nsources: [front]\nuse_sim_time: false\n{wrong}: 1\nzzzz: 1'
    assert remarks(make, tmp_path, capfd, text) == {wrong: f"do you mean '{right}'?", 'zzzz': ''}


def test_the_simulated_robot_says_it_too():
    with ros_session() as ros, ros.spawn('vjepa_ros.ros.sim.simulated_robot',
                                         {'setle': 1.0}) as robot:
        assert "do you mean 'settle'?" in robot.wait_for_output("parameter 'setle' is ignored")
        robot.terminate_and_check()


@pytest.mark.parametrize(('make', 'text', 'name', 'remark'), [
    (VjepaNode, 'cameras: [front]\nleft.transport: raw\nfront.transport: raw', 'left.transport',
     "'left' is not in 'cameras'"),
    (CollisionGuard, 'sources: [front]\nrear.direction: backward', 'rear.direction',
     "'rear' is not in 'sources' or 'ranges'"),
    (TwistPlannerNode, 'sources: [front]\nrear.height: 1.0', 'rear.height',
     "'rear' is not in 'sources'"),
])
def test_a_parameter_of_a_camera_that_is_not_configured_is_said_to_be_one(make, text, name, remark,
                                                                         tmp_path, capfd):
    assert remarks(make, tmp_path, capfd, text) == {name: remark}


@pytest.mark.parametrize('make', NODES, ids=lambda make: make.__name__)
def test_what_other_nodes_of_this_package_read_is_not_misspelt(make, tmp_path, capfd):
    text = ('cameras: [camera]\nsources: [camera]\ncamera.mount.height: 0.3\ncamera.yaw: 0.0\n'
            'camera.direction: forward\nmax_rate: 5.0\nstop_distance: 0.5\nhorizon: 3.0\n'
            'gap.plans: 4\nloop: true\nsettle: 1.0\nreaction: 1.0\n'
            'qos_overrides./camera/image_raw.subscription.reliability: reliable')
    assert remarks(make, tmp_path, capfd, text) == {}


@pytest.mark.parametrize('file', OURS, ids=lambda file: file.stem)
def test_no_file_of_the_package_holds_a_misspelt_name(file, capfd):
    with started(OTHERS.get(file.stem, VjepaNode), file):
        assert 'is ignored' not in capfd.readouterr().err
