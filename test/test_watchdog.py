# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""A guard that is killed or hangs is noticed: heartbeat, liveliness and command_watchdog."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip('rclpy')

from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import Twist
from guard_rig import Every, GUARD, LAUNCHED, Late, NS, QUICK, RELIABLE, Rig, WATCHDOG, twist_of
from node_fixtures import values_of
from rclpy.duration import Duration
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.qos import LivelinessPolicy, QoSProfile
from ros_harness import NodeProcess, Session, ros_session
from std_msgs.msg import Header

from vjepa_ros.ros.command.peers import QOS

pytestmark = [pytest.mark.ros, pytest.mark.any_distro]

TIMEOUT_S = 0.3
BEATING = {**QUICK, 'heartbeat': 0.4}
CONFIRMED = {**BEATING, 'watchdog': True}       # as guarded.launch.py watchdog:=true sets it
REMAP = {'cmd_vel': 'cmd_vel_out', 'heartbeat': '/collision_guard/heartbeat'}
WITHIN_S = 0.1           # beyond the timeout
WATCHED = 'the guard is active'


def shares_memory(process: NodeProcess) -> bool:
    """Whether Fast DDS of a process has mapped memory that others may have locked."""
    maps = Path(f'/proc/{process.pid}/maps').read_text().splitlines()
    return any('/dev/shm/fast' in line for line in maps)


@contextmanager
def watched() -> Iterator[tuple[Session, NodeProcess, Callable[..., int]]]:
    """A watchdog, and how often it has stopped the base, once it says something if wanted."""
    with ros_session(env=LAUNCHED) as ros, ros.spawn(
            WATCHDOG, {'timeout': TIMEOUT_S}, REMAP) as dog:
        assert not shares_memory(dog)
        told: list[DiagnosticArray] = []
        ros.node.create_subscription(DiagnosticArray, '/diagnostics', lambda msg: told.append(
            msg) if msg.status[0].name.startswith('command_watchdog') else None, 10)
        dog.wait_for_output('watches')

        def stops(said: str = '') -> int:
            seen = len(told)
            assert ros.spin_until(lambda: len(told) > seen + 1 and told[-1].status[0].message == (
                said or told[-1].status[0].message))
            return int(values_of(told[-1].status[0])['stops'])

        yield ros, dog, stops


@contextmanager
def driving(ros: Session, params: dict[str, object] = CONFIRMED
            ) -> Iterator[tuple[Rig, NodeProcess]]:
    """A guard in a process of its own that passes commands."""
    with ros.spawn(GUARD, params) as process:
        rig = Rig(ros, process)
        with rig.driving():
            rig.wait_for_speed(1.0)
            yield rig, process


def stands_in_time(rig: Rig, dog: NodeProcess, harm: Callable[[], None]) -> None:
    """The last that a base has heard is a zero, in time after a signal, if it ever moved."""
    with Late(dog.pid) as late:
        began = time.time_ns()
        harm()
        rig.ros.spin_for(TIMEOUT_S + WITHIN_S)
        rig.ros.spin_until(lambda: not rig.out or rig.twist.linear.x == 0, 5.0)
    moved = [when for when, twist in rig.out if twist.linear.x and when <= began + NS // 50]
    if moved:
        zeros = [when for when, twist in rig.out if when > moved[-1] and not twist.linear.x]
        assert zeros, f'the base goes on\n{dog.output}'
        assert (zeros[0] - began) / NS < TIMEOUT_S + WITHIN_S + late.worst_s
    rig.ros.spin_for(0.2)
    assert not rig.out or rig.twist.linear.x == 0


def test_a_guard_that_hangs_is_replaced_by_zeros_until_it_goes_on():
    with watched() as (ros, dog, stops), driving(ros) as (rig, process):
        before = stops(WATCHED)     # on a busy computer a guard may be late by itself
        assert not shares_memory(process)
        stands_in_time(rig, dog, lambda: process.send(signal.SIGSTOP))
        process.send(signal.SIGCONT)
        rig.wait_for_speed(1.0)
        rig.ros.spin_for(0.2)
        assert all(twist.linear.x == 1 for _, twist in rig.out[-2:])    # no zeros between
        assert stops(WATCHED) > before


def test_a_guard_that_is_killed_is_replaced_by_zeros_and_one_that_ends_is_not():
    with watched() as (ros, dog, stops):
        with driving(ros) as (rig, process):
            before = 1 + stops(WATCHED)
            stands_in_time(rig, dog, lambda: process.send(signal.SIGKILL))
        with driving(ros) as (rig, process):
            assert stops(WATCHED) >= before
            before = stops()
            process.terminate_and_check()
            assert rig.wait(lambda: rig.twist.linear.x == 0)
            ros.spin_for(0.2)                # all zeros have been sent, not all are read
            count = len(rig.out)
            ros.spin_for(3 * TIMEOUT_S)
            assert len(rig.out) == count and stops() == before


@pytest.mark.parametrize(('how', 'drives', 'after_s'), [
    (signal.SIGSTOP, False, 0.0), (signal.SIGKILL, True, 0.0),
    (signal.SIGSTOP, True, 0.6), (signal.SIGKILL, False, 0.9)])
def test_a_guard_that_is_lost_in_the_first_second_is_replaced_by_zeros(how, drives, after_s):
    with watched() as (ros, dog, _), ros.spawn(GUARD, CONFIRMED) as process:
        rig = Rig(ros, process)
        with rig.driving():
            if drives:
                rig.wait(lambda: rig.twist and rig.twist.linear.x)
            else:
                process.wait_for_output(': active')
            rig.ros.spin_for(after_s)
            stands_in_time(rig, dog, lambda: process.send(how))


def test_a_guard_drives_only_while_a_watchdog_confirms_it_and_a_base_listens():
    remap = REMAP | {'cmd_vel': 'out'}
    with ros_session() as ros, ros.compose(GUARD, CONFIRMED, {'cmd_vel_out': 'out'}) as process:
        rig = Rig(ros, process)
        with rig.driving():
            rig.wait_for_state('nobody listens on cmd_vel_out')
            with ros.spawn(WATCHDOG, {'timeout': TIMEOUT_S}, remap):
                ros.spin_for(1.0)
                rig.wait_for_state('nobody listens on cmd_vel_out')   # nor is the watchdog a base
                rig.listen_to('out')
                rig.wait_for_speed(1.0)
            rig.wait_for_state('the watchdog has not confirmed')
            rig.wait_for_speed(0.0)
            other = ros.node.create_publisher(Header, '/collision_guard/heartbeat_heard', 1)
            stamp = Header(frame_id='ready')                 # of the beat of another guard
            with Every(0.05, lambda: other.publish(stamp)):
                ros.spin_for(0.5)
                rig.wait_for_state('the watchdog has not confirmed')
            with ros.spawn(WATCHDOG, {'timeout': TIMEOUT_S}, remap):
                rig.wait_for_speed(1.0)


def test_motion_without_any_guard_is_stopped_for_as_long_as_it_lasts_unless_one_has_ended():
    with watched() as (ros, dog, _):
        got: list[float] = []
        ros.node.create_subscription(Twist, 'cmd_vel_out', lambda msg: got.append(msg.linear.x),
                                     100)
        hand = ros.node.create_publisher(Twist, 'cmd_vel_out', RELIABLE)
        beats = ros.node.create_publisher(Header, '/collision_guard/heartbeat', QOS)
        assert ros.spin_until(lambda: hand.get_subscription_count() > 1)
        with Every(0.05, lambda: hand.publish(twist_of(0.4))):
            dog.wait_for_output('no guard was ever heard')
            got.clear()
            ros.spin_for(1.0)
            assert got.count(0.0) > 5
        ros.spin_until(lambda: 'has ended: no more zeros' in dog.output)
        ros.spin_for(0.2)
        got.clear()
        ros.spin_for(0.5)
        assert got == []
        beats.publish(Header(frame_id='unconfigured'))        # people drive it themselves now
        with Every(0.05, lambda: hand.publish(twist_of(0.4))):
            ros.spin_for(1.5)
        assert 0.4 in got and 0.0 not in got


def test_subscribers_that_ask_for_it_are_told_by_dds_that_a_guard_hangs():
    with ros_session() as ros:
        gone: list[str] = []
        lease = Duration(seconds=BEATING['heartbeat'])
        ros.node.create_subscription(
            Twist, 'cmd_vel_out', lambda msg: None,
            QoSProfile(depth=1, deadline=lease, liveliness=LivelinessPolicy.MANUAL_BY_TOPIC,
                       liveliness_lease_duration=lease),
            event_callbacks=SubscriptionEventCallbacks(
                deadline=lambda event: gone.append('deadline'),
                liveliness=lambda event: event.not_alive_count and gone.append('liveliness')))
        with driving(ros, BEATING) as (rig, process):
            ros.spin_for(1.0)
            assert gone == []
            process.send(signal.SIGSTOP)
            assert rig.wait(lambda: {'deadline', 'liveliness'} <= set(gone))
            process.send(signal.SIGCONT)
