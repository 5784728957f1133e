# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""A process that stands by takes over when the one that runs ends, and not before."""

from __future__ import annotations

import pytest

pytest.importorskip('rclpy')

from ros_harness import ros_session
from security_policy import READY

from vjepa_ros.ros.common.environment import LARGE_IMAGES
from vjepa_ros.ros.common.process import VARIABLE

pytestmark = [pytest.mark.ros, pytest.mark.any_distro]
NAME = 'command_watchdog'
REACHABLE = {'FASTDDS_BUILTIN_TRANSPORTS': LARGE_IMAGES}      # what commands uses UDP alone


def test_who_stands_by_takes_over_from_one_that_is_killed(tmp_path):
    env, module = {VARIABLE: str(tmp_path / 'turn')}, f'vjepa_ros.ros.{NAME}'
    with ros_session(REACHABLE) as ros, ros.spawn(module, env=env) as first:
        first.wait_for_output(READY[NAME])
        with ros.spawn(module, env=env) as second, ros.spawn(module, env=env) as third:
            for process in (second, third):
                process.wait_for_output('stands by')
            ros.spin_for(0.5)
            assert ros.spin_until(lambda: NAME in ros.node.get_node_names())
            assert ros.node.get_node_names().count(NAME) == 1
            assert READY[NAME] not in second.output + third.output
            first.kill()
            assert ros.spin_until(lambda: 'takes over' in second.output + third.output)
            now, other = sorted((second, third), key=lambda one: 'takes over' not in one.output)
            now.wait_for_output(READY[NAME])
            other.terminate_and_check()              # one that waits ends at once, too
            assert 'takes over' not in other.output
            now.terminate_and_check()
