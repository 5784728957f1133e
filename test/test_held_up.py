# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""A base stops in time whatever holds up who decides, and every request is answered."""

from __future__ import annotations

import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

pytest.importorskip('rclpy')

from guard_rig import GUARD, Late, NS, QUICK, Rig, WITHIN_S, guarding
from rcl_interfaces.msg import Parameter as ParameterMessage
from rcl_interfaces.msg import ParameterValue
from rcl_interfaces.srv import (
    GetParameters,
    SetParameters,
    SetParametersAtomically,
)
from ros_harness import REPOSITORY, ros_env, ros_session

from vjepa_ros.guard.settings import GuardSettings
from vjepa_ros.ros.common.node import MOST_NAMES
from vjepa_ros.ros.common.process import LARGE_IMAGES

pytestmark = pytest.mark.ros

# A peer that sends one large thing, made before, once it reads a line.
PEER = """
import sys, rclpy
from rcl_interfaces.msg import Parameter, ParameterValue
from rcl_interfaces import srv
from sensor_msgs.msg import PointCloud2, PointField
from std_msgs.msg import Header
rclpy.init()
node = rclpy.create_node('peer')
what, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
if what == 'cloud':
    thing = PointCloud2(fields=[PointField(name='x')] * count if name == 'fields' else [],
                        header=Header(frame_id='x' * (count if name == 'frame_id' else 1)))
    publisher = node.create_publisher(PointCloud2, 'vjepa_node/camera/assessment', 1)
    ready, send = publisher.get_subscription_count, publisher.publish
else:
    kind, field = {'set': (srv.SetParameters, 'parameters'),
                   'get': (srv.GetParameters, 'names')}[what]
    one = Parameter(name=name, value=ParameterValue(type=3, double_value=1.0)
                    ) if what == 'set' else name
    thing = kind.Request(**{field: [one] * count})
    client = node.create_client(kind, f'/collision_guard/{what}_parameters')
    ready, send = client.service_is_ready, client.call_async
while not ready():
    rclpy.spin_once(node, timeout_sec=0.1)
rclpy.spin_once(node, timeout_sec=0.5)
print('ready', flush=True)
sys.stdin.readline()
send(thing)
print('sent', flush=True)
while True:
    rclpy.spin_once(node)
"""
KNOWN, UNKNOWN = 'min_time_to_contact', 'nobody_has_this'


@pytest.fixture(scope='module')
def rig() -> Iterator[Rig]:
    # As launch files start it.
    with ros_session(env={'FASTDDS_BUILTIN_TRANSPORTS': LARGE_IMAGES}) as ros, ros.spawn(
            GUARD, QUICK) as process:
        yield Rig(ros, process).ready()


@contextmanager
def peer(rig: Rig, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A peer that is ready to send."""
    with subprocess.Popen([sys.executable, '-c', PEER, *words], env=ros_env(
            rig.ros.domain_id, rig.ros.env), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, cwd=REPOSITORY) as process:
        try:
            assert process.stdout.readline() == 'ready\n'
            yield process
        finally:
            process.kill()


def stops_in_time(rig: Rig) -> None:
    """Sight is lost as soon as the guard does not answer; the base stops, and stays."""
    told, heard_s = len(rig.states), time.monotonic()

    def silent() -> bool:
        nonlocal told, heard_s
        if len(rig.states) > told:
            told, heard_s = len(rig.states), time.monotonic()
        return time.monotonic() - heard_s > 0.3

    with Late(rig.process.pid) as late:
        rig.ros.spin_until(silent, 3.0)
        rig.looking = False
        rig.ros.spin_for(2.0)
    assert rig.twist.linear.x == 0, rig.process.output
    took_s = (rig.stopped_ns() - rig.looked_ns) / NS
    assert took_s < GuardSettings.source_timeout + WITHIN_S + late.worst_s


@pytest.mark.parametrize('words', [
    ('set', KNOWN, '1000'), ('get', KNOWN, '200000'), ('cloud', 'fields', '1000000'),
    *(pytest.param(words, marks=pytest.mark.slow) for words in (
        ('set', UNKNOWN, '100000'), ('cloud', 'frame_id', '50000000')))], ids='-'.join)
def test_no_request_or_message_delays_the_zero_when_sight_is_lost(rig, words):
    rig.again()
    with peer(rig, *words) as process, rig.driving():
        rig.wait_for_speed(1.0)
        process.stdin.write('\n')
        process.stdin.flush()
        assert rig.ros.spin_until(lambda: select.select([process.stdout], [], [], 0)[0])
        stops_in_time(rig)


def test_no_callback_delays_the_zero_and_no_late_decision_follows_it():
    with ros_session() as ros, guarding(ros) as rig, rig.driving():
        rig.wait_for_speed(1.0)
        slow = rig.process.node.create_timer(0.01, lambda: (slow.cancel(), time.sleep(1.5)))
        stops_in_time(rig)
        assert rig.process.node.callbacks_failed == 0


def test_a_request_that_is_too_large_or_malformed_is_answered():
    def value(of_type: int) -> ParameterMessage:
        return ParameterMessage(name='use_sim_time', value=ParameterValue(type=of_type))

    with ros_session() as ros, ros.compose(GUARD) as process:
        def ask(kind: type, service: str, **fields: list) -> object:
            return ros.call(kind, f'/collision_guard/{service}', kind.Request(**fields))

        right, wrong, many = value(1), value(255), MOST_NAMES + 1
        results = ask(SetParameters, 'set_parameters', parameters=[wrong, right, wrong]).results
        assert [result.successful for result in results] == [False, True, False]
        assert "'use_sim_time' has type 255, must be 0 to 9" in results[0].reason
        for params, reason in (([right, wrong], '255'), ([right] * many, '1,001 names')):
            result = ask(SetParametersAtomically, 'set_parameters_atomically',
                         parameters=params).result
            assert not result.successful and reason in result.reason
        for count, answered in ((MOST_NAMES, MOST_NAMES), (many, 0)):
            names = ['use_sim_time'] * count
            assert len(ask(GetParameters, 'get_parameters', names=names).values) == answered
        assert 'it has 1,001 names, at most 1,000 are answered' in process.output
        assert process.node.callbacks_failed == 0
