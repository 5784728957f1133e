# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Processes: killed ones come back, children are never left behind, dead ones block nobody.

``python test/test_recovery.py [KILLS] [RESPAWN]`` measures how soon, with the default parameters.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

pytest.importorskip('rclpy')

from node_fixtures import Camera, Heard, NS
from ros_harness import NodeProcess, Session, ros_env, ros_session
from sensor_msgs.msg import PointCloud2
from test_launch import made

from vjepa_ros.ros import read
from vjepa_ros.ros.common import process
from vjepa_ros.ros.common.process import (
    LARGE_IMAGES,
    LET_START_S,
    NETWORK_ONLY,
    VARIABLE,
    avoiding_abandoned_queues,
)
from vjepa_ros.ros.common.processes import Children

SIZE = (640, 480)
ASSESSMENT = '/vjepa_node/camera/assessment'
# Those of the launch files: with shared memory alone, what a killed process leaves behind there
# keeps images from the next one for up to two seconds.
TRANSPORTS = {'FASTDDS_BUILTIN_TRANSPORTS': LARGE_IMAGES}
LONGEST_S = 120.0
# As launch does it, with the pause [s] of the launch files.
RESPAWNED = '(while :; do {}; sleep 0.2; done) &'


@contextmanager
def launched(folder: Path, respawn: str) -> Iterator[tuple[Session, NodeProcess, Heard, float]]:
    """A camera, the launched perception node, its assessments, and how soon the first came [s]."""
    with ExitStack() as stack:
        ros = stack.enter_context(ros_session(TRANSPORTS))
        nodes = made(folder, 'vjepa.launch.py', f'respawn:={respawn}', 'device:=cpu').values()
        program = [sys.executable, '-m', 'vjepa_ros.ros.perception_node']
        script = [RESPAWNED.format(shlex.join([*program, *node.argv])) for node in nodes]
        env = ros_env(ros.domain_id, {name: value for node in nodes for name, value
                                      in node.env.items() if name not in os.environ} | TRANSPORTS)
        heard = Heard()
        ros.node.create_subscription(PointCloud2, ASSESSMENT, heard.take, 10)
        stack.enter_context(Camera(ros, rate=30.0, size=SIZE))
        launch = NodeProcess(['bash', '-c', '\n'.join([*script, 'wait'])], env)
        stack.callback(launch.close)
        yield ros, launch, heard, first_since(ros, launch, heard, time.time_ns())[-1]


def pid_of(launch: NodeProcess) -> int | None:
    """The process that the launch file started and that takes part in DDS, if there is one."""
    for child in psutil.Process(launch.pid).children(recursive=True):
        if '/dev/shm/fast' in Path(f'/proc/{child.pid}/maps').read_text():
            return child.pid
    return None


def first_since(ros: Session, launch: NodeProcess, heard: Heard, since_ns: int) -> list[float]:
    """Seconds from a time [ns] to the first frame of the next assessment, and to itself."""
    assert ros.spin_until(lambda: heard and heard.sent_ns[-1] > since_ns, LONGEST_S), launch.output
    place = next(at for at, sent in enumerate(heard.sent_ns) if sent > since_ns)
    seen = read.assessment(heard[place], 'camera')
    moments = (seen.stamp_ns - seen.clip_span_s * NS, heard.sent_ns[place])
    return [(moment - since_ns) / NS for moment in moments]


def kill(ros: Session, launch: NodeProcess, heard: Heard) -> list[float]:
    """Kill the node; seconds from then on as `first_since` tells them."""
    pid = pid_of(launch)
    killed_ns = time.time_ns()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    moments = first_since(ros, launch, heard, killed_ns)
    assert pid_of(launch) != pid and moments[0] > 0     # nothing is left of before
    return moments


@pytest.mark.slow
@pytest.mark.ros
def test_a_killed_node_sees_again_about_as_soon_as_one_that_was_started(tmp_path):
    with launched(tmp_path, 'true') as (ros, launch, heard, start_s):
        assert kill(ros, launch, heard)[-1] < 3.0 * start_s


@pytest.mark.slow
@pytest.mark.ros
def test_a_node_that_stands_by_sees_sooner_than_one_that_was_started(tmp_path):
    with launched(tmp_path, 'standby') as (ros, launch, heard, start_s):
        for _ in range(2):                   # the second was started in place of the first
            ros.spin_for(LET_START_S + 2 * start_s)
            assert kill(ros, launch, heard)[-1] < start_s
            assert 'takes over' in launch.output


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


@pytest.mark.ros
@pytest.mark.any_distro
def test_who_stands_by_takes_over_from_one_that_is_killed(tmp_path):
    env, module = {VARIABLE: str(tmp_path / 'turn')}, f'vjepa_ros.ros.{NAME}'
    with ros_session(TRANSPORTS) as ros, ros.spawn(module, env=env) as first:
        first.wait_for_output(READY)
        with ros.spawn(module, env=env) as second:
            second.wait_for_output('stands by')
            assert ros.spin_until(lambda: NAME in ros.node.get_node_names())
            assert ros.node.get_node_names().count(NAME) == 1 and READY not in second.output
            first.kill()
            second.wait_for_output('takes over')
            second.wait_for_output(READY)
            second.terminate_and_check()


def main(kills: int, respawn: str) -> None:
    """Print how long each recovery took."""
    with tempfile.TemporaryDirectory() as folder, \
            launched(Path(folder), respawn) as (ros, launch, heard, _):
        taken_s = []
        for _ in range(kills):
            ros.spin_for(2.0 if respawn == 'true' else LET_START_S + 6.0)
            taken_s.append(kill(ros, launch, heard)[-1])
            print(f'{taken_s[-1]:.2f}', flush=True)
        print(f'median {statistics.median(taken_s):.1f} s, worst {max(taken_s):.1f} s')


if __name__ == '__main__':
    given = dict(enumerate(sys.argv))
    main(int(given.get(1, 10)), given.get(2, 'true'))
