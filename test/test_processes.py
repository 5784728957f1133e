# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Processes: children are never left behind, one stands by for another, dead ones block nobody."""

from __future__ import annotations

import fcntl
import os
import time

import psutil
import pytest

from vjepa_ros.ros.common import process
from vjepa_ros.ros.common.process import (
    LARGE_IMAGES,
    NETWORK_ONLY,
    VARIABLE,
    avoiding_abandoned_queues,
)
from vjepa_ros.ros.common.processes import Children


def test_nothing_is_left_of_children_that_ignore_signals_nor_of_their_children(tmp_path):
    (tmp_path / 'stubborn.py').write_text(
        'import signal, subprocess, sys, time\n'
        'signal.signal(signal.SIGINT, signal.SIG_IGN)\n'
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        'print(child.pid, flush=True)\n'
        'time.sleep(600)\n')
    lines = []
    with Children({**os.environ, 'PYTHONPATH': str(tmp_path)}, tmp_path) as children:
        child = children.start('node', 'stubborn', [], on_line=lines.append)
        while not lines:
            time.sleep(0.02)
        grandchild = psutil.Process(int(lines[0]))
        children.stop(timeout_s=0.3)
        assert child.returncode == -9
    while grandchild.is_running() and grandchild.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.02)


@pytest.mark.parametrize(('environ', 'expected'), [
    ({}, ['fastdds_port7001', 'fastdds_port7411', 'fastrtps_port7413']),
    ({'ROS_DOMAIN_ID': '4', 'FASTDDS_BUILTIN_TRANSPORTS': 'SHM'},
     ['fastdds_port7001', 'fastdds_port8411']),
    ({'FASTDDS_BUILTIN_TRANSPORTS': NETWORK_ONLY}, [])])
def test_queues_that_are_written_to_but_not_read_are_avoided(
        tmp_path, monkeypatch, environ, expected):
    monkeypatch.setattr(process, 'FOLDER', tmp_path)
    for number, names in (('12', ['fastdds_port7411', 'fastdds_port7415', 'fastdds_port7001']),
                          ('34', ['fastdds_port7411', 'fastrtps_port7413 (deleted)', 'fastdds_a7',
                                   'fastdds_port8411'])):
        (tmp_path / number).mkdir()
        (tmp_path / number / 'maps').write_text(''.join(
            f'7f00-7f01 rw-s 00000000 00:17 9    /dev/shm/{name}\n' for name in names))
    (tmp_path / '56').mkdir()                             # has ended
    with open(tmp_path / 'fastdds_port7415_el', 'w') as reader:
        fcntl.flock(reader, fcntl.LOCK_EX)
        with avoiding_abandoned_queues(environ, tmp_path) as avoided:
            assert avoided == expected
            for name in expected:
                with open(tmp_path / f'{name}_el') as other, pytest.raises(BlockingIOError):
                    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    for name in expected:                                 # no longer than the block lasts
        with open(tmp_path / f'{name}_el') as other:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


NAME, READY = 'command_watchdog', 'watches'
REACHABLE = {'FASTDDS_BUILTIN_TRANSPORTS': LARGE_IMAGES}      # what commands uses UDP alone


@pytest.mark.ros
@pytest.mark.any_distro
def test_who_stands_by_takes_over_from_one_that_is_killed(tmp_path):
    pytest.importorskip('rclpy')
    from ros_harness import ros_session

    env, module = {VARIABLE: str(tmp_path / 'turn')}, f'vjepa_ros.ros.{NAME}'
    with ros_session(REACHABLE) as ros, ros.spawn(module, env=env) as first:
        first.wait_for_output(READY)
        with ros.spawn(module, env=env) as second:
            second.wait_for_output('stands by')
            assert ros.spin_until(lambda: NAME in ros.node.get_node_names())
            assert ros.node.get_node_names().count(NAME) == 1 and READY not in second.output
            first.kill()
            second.wait_for_output('takes over')
            second.wait_for_output(READY)
            second.terminate_and_check()
