# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Executables where PyTorch or ROS is missing: they run if they do not need it, or name it."""

from __future__ import annotations

import sys

import cv2
import numpy as np
import pytest
from ros_harness import NodeProcess, ros_env

from vjepa_ros.ros.common.processes import free_domain

pytest.importorskip('rclpy')
pytestmark = [pytest.mark.ros, pytest.mark.any_distro]

# Starts an executable as its script does, on a Python that lacks a package.
START = """
import sys
package, name, *words = sys.argv[1:]
sys.modules[package] = None
from vjepa_ros.ros.common import process
sys.exit(getattr(process, name)(['--ros-args', *words]))
"""


def run(package: str, name: str, *words: str) -> tuple[int, str]:
    """The exit code and the output of an executable without a package."""
    with free_domain() as domain:
        process = NodeProcess([sys.executable, '-c', START, package, name, *words],
                              ros_env(domain))
        try:
            return process.wait(60), process.output
        finally:
            process.kill()


def test_a_camera_plays_pictures_without_pytorch(tmp_path):
    cv2.imwrite(str(tmp_path / '0.png'), np.zeros((48, 64, 3), np.uint8))
    code, said = run('torch', 'camera_source', '-p', f'source:={tmp_path}', '-p', 'rate:=10.0')
    assert code == 0 and 'frames played' in said, said


@pytest.mark.parametrize(('package', 'name'), [
    ('torch', 'simulated_robot'), ('rclpy', 'camera_source')])
def test_a_package_that_is_missing_is_named_with_the_remedy(package, name):
    code, said = run(package, name)
    assert code == 1
    assert f"{name} needs '{package}', which this Python does not have: source your ROS 2" in said
    assert 'Traceback' not in said
