# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The last zero of a node that commands motion reaches a base in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest

pytestmark = pytest.mark.ros
pytest.importorskip('rclpy')

from geometry_msgs.msg import Twist  # noqa: E402
from guard_rig import CLEAR, GUARD, QUICK, Every, cloud  # noqa: E402
from lifecycle_msgs.srv import ChangeState  # noqa: E402
from node_fixtures import TRANSITIONS, now_ns  # noqa: E402
from ros_harness import REPOSITORY, NodeProcess, Session, ros_session  # noqa: E402
from sensor_msgs.msg import PointCloud2  # noqa: E402

PLANNER = 'vjepa_ros.ros.twist_planner'
AT_ONCE = 8              # nodes that end together; the last one is a twist_planner
BUSY = 4                 # processes that keep the cores from them
LONG = {'source_timeout': 10.0, 'command_timeout': 10.0}       # none of these may stop the base
WAYS = ('SIGTERM', 'SIGINT', 'SIGINT twice', 'active_shutdown', 'deactivate')


@contextmanager
def load() -> Iterator[None]:
    """Keep the cores busy with other things."""
    with ExitStack() as stack:
        for _ in range(BUSY):
            process = subprocess.Popen([sys.executable, '-c', 'while True: pass'])
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


def driving(ros: Session) -> Every:
    """A controller and a camera for all nodes."""
    camera = ros.node.create_publisher(PointCloud2, 'vjepa_node/camera/assessment', 10)
    controller = ros.node.create_publisher(Twist, 'cmd_vel_in', 1)
    command = Twist()
    command.linear.x = 1.0

    def act() -> None:
        camera.publish(cloud(replace(CLEAR, stamp_ns=now_ns())))
        controller.publish(command)

    return Every(0.05, act)


def start(ros: Session, stack: ExitStack, number: int) -> NodeProcess:
    module, params = (GUARD, {**QUICK, **LONG}) if number < AT_ONCE - 1 else (
        PLANNER, {**LONG, 'autostart': True, 'on_fault': 'pass'})
    return stack.enter_context(ros.spawn(module, params, {
        '__node': f'node{number}', 'cmd_vel_out': f'out{number}'}))


def end(ros: Session, process: NodeProcess, number: int, way: str) -> None:
    """End motion; after a transition nothing more may be needed, so the process is killed."""
    if way.startswith('SIG'):
        process.send(getattr(signal, way.partition(' ')[0]))
        if way.endswith('twice'):
            process.send(signal.SIGINT)
        return
    request = ChangeState.Request()
    request.transition.id = TRANSITIONS[way]
    assert ros.call(ChangeState, f'/node{number}/change_state', request).success
    process.send(signal.SIGKILL)


# Shared memory is what processes of one machine use; the other is the setting of docs/robot.md.
@pytest.mark.parametrize(('transport', 'reliability', 'rounds'), [
    ('SHM', 'reliable', 3), ('UDPv4?max_msg_size=64KB&sockets_size=4MB', 'best_effort', 2)])
def test_the_base_receives_the_last_zero_of_forty_shutdowns_under_load(transport, reliability,
                                                                       rounds):
    left = []
    with ros_session(env={'FASTDDS_BUILTIN_TRANSPORTS': transport}) as ros, ExitStack() as stack:
        stack.enter_context(driving(ros))
        bases = [stack.enter_context(ros.spawn(
            'base_process', remaps={'cmd_vel': f'out{n}', '__node': f'base{n}'},
            args=[reliability], env={'PYTHONPATH': f'{REPOSITORY}/test'}))
            for n in range(AT_ONCE)]

        def others(word: str) -> list[int]:
            """Bases whose newest speed is another one."""
            return [n for n, base in enumerate(bases)
                    if not base.output.rstrip().endswith(f'speed {word}')]

        for turn in range(rounds):
            with ExitStack() as nodes:
                running = [start(ros, nodes, n) for n in range(AT_ONCE)]
                assert ros.spin_until(lambda: not others('1.0')), [
                    (bases[n].output, running[n].output) for n in others('1.0')]
                with load():
                    for n, process in enumerate(running):
                        end(ros, process, n, WAYS[(n + turn) % len(WAYS)])
                    for process in running:
                        process.wait()
                ros.spin_until(lambda: not others('0.0'), 3.0)
                left += [(turn, n, WAYS[(n + turn) % len(WAYS)]) for n in others('0.0')]
    assert not left, f'{len(left)} of {rounds * AT_ONCE} bases go on: {left}'
