# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Motion ends in time, for every base, whatever ends, stops, kills or holds up who commands it."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip('rclpy')

from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import Twist
from guard_rig import (
    CLEAR,
    Every,
    GUARD,
    LAUNCHED,
    Late,
    NS,
    PLANNER,
    QUICK,
    RELIABLE,
    Rig,
    WATCHDOG,
    cloud,
    guarding,
    twist_of,
)
from node_fixtures import Node, now_ns, values_of
from rcl_interfaces.msg import Parameter, ParameterValue
from rcl_interfaces.srv import GetParameters, SetParametersAtomically
from rclpy.duration import Duration
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.qos import LivelinessPolicy, QoSProfile
from ros_harness import NodeProcess, REPOSITORY, Session, arguments_of, ros_env, ros_session
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Header

from vjepa_ros.ros.command.node import ZEROS_S
from vjepa_ros.ros.command.peers import QOS
from vjepa_ros.ros.common.node import MOST_NAMES

pytestmark = pytest.mark.ros


def lasts(rig: Rig, late: Late) -> None:
    """The zeros that came last go on for as long as they have to, and no longer."""
    last = max(n for n, (_, twist) in enumerate(rig.out) if twist.linear.x)
    sent = [when for when, _ in rig.out[last + 1:]]
    assert len(sent) >= 5
    assert (0.8 * ZEROS_S - late.worst_s < (sent[-1] - sent[0]) / NS
            < ZEROS_S + 0.1 + late.worst_s)


@pytest.mark.parametrize('number', [signal.SIGHUP, signal.SIGABRT, signal.SIGRTMIN])
def test_each_signal_ends_a_guard_in_order_with_zeros_for_a_while(number):
    with ros_session(env=LAUNCHED) as ros, ros.spawn(GUARD, QUICK) as process:
        rig = Rig(ros, process).ready()
        with rig.driving(), Late(process.pid) as late:
            rig.wait_for_speed(1.0)
            process.send(number)
            ros.spin_until(lambda: not process.alive(), 30.0)
            assert process.wait() == 0, process.output
            ros.spin_for(0.2)
        lasts(rig, late)


def test_a_guard_that_the_terminal_stops_ends_motion_first_and_its_watchdog_goes_on():
    def stopped(process: object) -> bool:
        return Path(f'/proc/{process.pid}/stat').read_text().rpartition(')')[2].split()[0] == 'T'

    with ros_session(env=LAUNCHED) as ros, ros.spawn(
            GUARD, {**QUICK, 'heartbeat': 0.4}) as process, ros.spawn(
            WATCHDOG, {'timeout': 0.3}, {'cmd_vel': 'cmd_vel_out',
                                         'heartbeat': '/collision_guard/heartbeat'}) as dog:
        rig = Rig(ros, process).ready()
        said: list[str] = []
        ros.node.create_subscription(DiagnosticArray, '/diagnostics', lambda msg: said.append(
            msg.status[0].message), 10)
        rig.wait(lambda: 'the guard is active' in said)
        with rig.driving():
            rig.wait_for_speed(1.0)
            for each in (process, dog):
                each.send(signal.SIGTSTP)
            rig.wait(lambda: stopped(process))
            assert not stopped(dog)
            ros.spin_for(0.5)
            assert rig.twist.linear.x == 0
            count = len(rig.out)
            rig.wait(lambda: len(rig.out) > count + 2)           # by the watchdog
            assert {twist.linear.x for _, twist in rig.out[count:]} == {0}
            process.send(signal.SIGCONT)
            rig.wait_for_speed(1.0)
        dog.terminate_and_check()


def full_pipe() -> tuple[int, int]:
    out, into = os.pipe()
    os.set_blocking(into, False)
    with suppress(BlockingIOError):
        while True:
            os.write(into, b'x' * 4096)
    os.set_blocking(into, True)
    return out, into


def held_terminal() -> tuple[int, int]:
    """A terminal held by Ctrl-S."""
    out, into = pty.openpty()
    os.write(out, b'\x13')
    return out, into


@pytest.mark.parametrize('made', [full_pipe, held_terminal])
def test_a_guard_whose_log_nobody_reads_guards_on_and_tells_later(made):
    out, into = made()
    os.set_blocking(out, False)
    with ros_session(env=LAUNCHED) as ros, subprocess.Popen(
            [sys.executable, '-m', GUARD, *arguments_of({**QUICK, 'heartbeat': 0.4}, None)],
            env=ros_env(ros.domain_id, LAUNCHED),
            stdout=into, stderr=into, cwd=REPOSITORY) as process:
        try:
            rig = Rig(ros, SimpleNamespace(pid=process.pid, output='')).ready()
            with rig.driving():
                rig.wait_for_speed(1.0)
                with Late(process.pid) as late:
                    rig.looking = False
                    rig.wait_for_state('timeout')
            rig.stopped_in_time(rig.looked_ns, late)
            if made is held_terminal:
                os.write(out, b'\x11')
            text = ''

            def told() -> bool:
                nonlocal text
                with suppress(BlockingIOError):
                    text += os.read(out, 1 << 20).decode(errors='replace')
                return 'nobody read the output' in text

            assert ros.spin_until(told, 30.0), text
            process.terminate()
            assert process.wait(30.0) == 0
        finally:
            process.kill()
            os.close(out)
            os.close(into)


@pytest.mark.parametrize('way', ['silence', 'deactivate'])
def test_motion_ends_with_zeros_for_a_while_and_then_nothing(way):
    with ros_session() as ros, guarding(ros) as rig:
        with rig.driving():
            rig.wait_for_speed(1.0)
        with Late() as late:
            assert way == 'silence' or rig.change(way)
            rig.wait(lambda: rig.twist.linear.x == 0)
            ros.spin_for(1.0)
        if way == 'deactivate':              # nor is anything sent before the next command
            assert rig.change('activate')
            ros.spin_for(0.3)
        lasts(rig, late)


# -- who decides is held up -----------------------------------------------------------------------

# A peer that sends one large thing, made before, once it reads a line.
PEER = """
import sys, rclpy
from rcl_interfaces.msg import Parameter, ParameterValue
from rcl_interfaces.srv import SetParameters
from sensor_msgs.msg import PointCloud2, PointField
rclpy.init()
node = rclpy.create_node('peer')
thing = eval(sys.argv[1])
if isinstance(thing, PointCloud2):
    publisher = node.create_publisher(PointCloud2, 'vjepa_node/camera/assessment', 1)
    ready, send = publisher.get_subscription_count, publisher.publish
else:
    client = node.create_client(SetParameters, '/collision_guard/set_parameters')
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


@pytest.fixture(scope='module')
def launched() -> Iterator[Rig]:
    with ros_session(env=LAUNCHED) as ros, ros.spawn(GUARD, QUICK) as process:
        yield Rig(ros, process).ready()


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
    rig.stopped_in_time(rig.looked_ns, late)


@pytest.mark.parametrize('thing', [
    'SetParameters.Request(parameters=[Parameter(name="min_time_to_contact", '
    'value=ParameterValue(type=3, double_value=1.0))] * 1000)',
    'PointCloud2(fields=[PointField(name="x")] * 1_000_000)'])
def test_no_request_or_message_delays_the_zero_when_sight_is_lost(launched, thing):
    rig = launched
    rig.again()
    with subprocess.Popen([sys.executable, '-c', PEER, thing], env=ros_env(
            rig.ros.domain_id, rig.ros.env), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, cwd=REPOSITORY) as process, rig.driving():
        try:
            assert process.stdout.readline() == 'ready\n'
            rig.wait_for_speed(1.0)
            process.stdin.write('\n')
            process.stdin.flush()
            assert rig.ros.spin_until(lambda: select.select([process.stdout], [], [], 0)[0])
            stops_in_time(rig)
        finally:
            process.kill()


def test_no_callback_delays_the_zero_and_no_late_decision_follows_it():
    with ros_session() as ros, guarding(ros) as rig, rig.driving():
        rig.wait_for_speed(1.0)
        slow = rig.process.node.create_timer(0.01, lambda: (slow.cancel(), time.sleep(1.5)))
        stops_in_time(rig)
        assert rig.process.node.callbacks_failed == 0


@pytest.mark.parametrize(('types', 'reason'), [
    ([1, 255], "'use_sim_time' has type 255, must be 0 to 9"),
    ([1] * (MOST_NAMES + 1), '1,001 names')])
def test_a_request_that_is_too_large_or_malformed_is_answered(types, reason):
    request = SetParametersAtomically.Request(parameters=[
        Parameter(name='use_sim_time', value=ParameterValue(type=one)) for one in types])
    with ros_session() as ros, ros.compose(GUARD) as process:
        result = ros.call(SetParametersAtomically, '/collision_guard/set_parameters_atomically',
                          request).result
        assert not result.successful and reason in result.reason
        names = GetParameters.Request(names=['use_sim_time'] * len(types))
        found = ros.call(GetParameters, '/collision_guard/get_parameters', names).values
        assert len(found) == (0 if len(types) > MOST_NAMES else len(types))
        assert process.node.callbacks_failed == 0


# -- the last zero of a node reaches a base in another process ------------------------------------

# Nodes, and what ends them.
NODES = ((GUARD, QUICK, signal.SIGTERM), (GUARD, QUICK, 'active_shutdown'),
         (GUARD, QUICK, signal.SIGINT),
         (PLANNER, {'autostart': True, 'on_fault': 'pass'}, 'deactivate'))
LONG = {'source_timeout': 10.0, 'command_timeout': 10.0}       # none of these may stop the base
# With shared memory alone 3 of 60 runs on busy cores had a node that the others never found
# (2026-11-26); with both transports none of 56.
BOTH = {'FASTDDS_BUILTIN_TRANSPORTS': None, 'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST'}


def test_the_base_receives_the_last_zero_of_many_shutdowns_under_load():
    with ros_session(env=BOTH) as ros, ExitStack() as stack:
        camera = ros.node.create_publisher(PointCloud2, 'vjepa_node/camera/assessment', 10)
        controller = ros.node.create_publisher(Twist, 'cmd_vel_in', 1)

        def drive() -> None:
            camera.publish(cloud(replace(CLEAR, stamp_ns=now_ns())))
            controller.publish(twist_of(1.0))

        stack.enter_context(Every(0.05, drive))
        # The bases go on with the last command that they received, as the driver of a base does.
        speeds: list[list[float]] = [[] for _ in NODES]
        running = []
        for n, (module, params, _) in enumerate(NODES):
            ros.node.create_subscription(
                Twist, f'out{n}', lambda twist, n=n: speeds[n].append(twist.linear.x), RELIABLE)
            running.append(stack.enter_context(ros.spawn(module, {**params, **LONG}, {
                '__node': f'node{n}', 'cmd_vel_out': f'out{n}'})))

        def all_at(speed: float) -> bool:
            return all(heard[-1:] == [speed] for heard in speeds)

        assert ros.spin_until(lambda: all_at(1.0)), [process.output for process in running]
        for _ in range(4):                   # keep the cores busy with other things
            other = subprocess.Popen([sys.executable, '-c', 'while True: pass'])
            stack.callback(other.wait)
            stack.callback(other.kill)
        for n, (_, _, way) in enumerate(NODES):
            if isinstance(way, str):         # nothing more may be needed then
                Node(ros, running[n], f'/node{n}').do(way)
                way = signal.SIGKILL
            running[n].send(way)
        for process in running:
            process.wait()
        ros.spin_until(lambda: all_at(0.0), 3.0)
        assert all_at(0.0), [heard[-1] for heard in speeds]


# -- a guard that is killed or hangs: heartbeat, liveliness and command_watchdog -----------------

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
        # No zeros between, but for those that it earns itself where the computer is busy.
        assert rig.wait(lambda: all(twist.linear.x == 1 for _, twist in rig.out[-10:]))
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
