# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Motion ends at each signal, when nobody reads the log, and with zeros for a while."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip('rclpy')

from diagnostic_msgs.msg import DiagnosticArray
from guard_rig import GUARD, Late, NS, QUICK, Rig, WITHIN_S, guarding
from lifecycle_msgs.srv import ChangeState
from node_fixtures import TRANSITIONS
from ros_harness import REPOSITORY, Session, arguments_of, ros_env, ros_session

from vjepa_ros.guard.settings import GuardSettings
from vjepa_ros.guard.types import Motion, STILL
from vjepa_ros.ros.command.output import CommandOutput, LATE_S, ZEROS_S
from vjepa_ros.ros.common.process import ENDING, LARGE_IMAGES, SUSPENDING

pytestmark = pytest.mark.ros

LAUNCHED = {'FASTDDS_BUILTIN_TRANSPORTS': LARGE_IMAGES}      # as launch files start nodes
WATCHDOG = 'vjepa_ros.ros.command_watchdog'
QUICKLY = {signal.SIGHUP, signal.SIGABRT, signal.SIGRTMIN}


def zeros(rig: Rig) -> list[int]:
    """When each of the zeros was published that came after the last motion [ns]."""
    last = max(n for n, (_, twist) in enumerate(rig.out) if twist.linear.x)
    return [when for when, _ in rig.out[last + 1:]]


def lasts(rig: Rig, late_s: float) -> None:
    """The zeros that came last go on for as long as they have to, and no longer."""
    sent = zeros(rig)
    assert len(sent) >= 5
    assert 0.8 * ZEROS_S - late_s < (sent[-1] - sent[0]) / NS < ZEROS_S + 0.1 + late_s


@pytest.mark.parametrize('number', [
    number if number in QUICKLY else pytest.param(number, marks=pytest.mark.slow)
    for number in sorted(ENDING) if number <= signal.SIGRTMIN or number == signal.SIGRTMAX])
def test_each_signal_ends_a_guard_in_order_with_zeros_for_a_while(number):
    with ros_session(env=LAUNCHED) as ros, ros.spawn(GUARD, QUICK) as process:
        rig = Rig(ros, process).ready()
        with rig.driving(), Late(process.pid) as late:
            rig.wait_for_speed(1.0)
            process.send(number)
            ros.spin_until(lambda: not process.alive(), 30.0)
            assert process.wait() == 0, process.output
            ros.spin_for(0.2)
        lasts(rig, late.worst_s)


@pytest.mark.parametrize('number', [signal.SIGTSTP, *(
    pytest.param(number, marks=pytest.mark.slow) for number in SUSPENDING - {signal.SIGTSTP})])
def test_a_guard_that_the_terminal_stops_ends_motion_first_and_its_watchdog_goes_on(number):
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
                each.send(number)
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
    """A pipe that is full."""
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
            env=ros_env(ros.domain_id, {**LAUNCHED, 'RCUTILS_COLORIZED_OUTPUT': None}),
            stdout=into, stderr=into, cwd=REPOSITORY) as process:
        try:
            rig = Rig(ros, SimpleNamespace(pid=process.pid, output='')).ready()
            for _ in range(2):
                rig.again()
                with rig.driving():
                    rig.wait_for_speed(1.0)
                    with Late(process.pid) as late:
                        rig.looking = False
                        rig.wait_for_state('timeout')
                took_s = (rig.stopped_ns() - rig.looked_ns) / NS
                assert took_s < GuardSettings.source_timeout + WITHIN_S + late.worst_s
            if made is held_terminal:
                os.write(out, b'\x11')
            text = ''

            def told() -> bool:
                nonlocal text
                with suppress(BlockingIOError):
                    text += os.read(out, 1 << 20).decode(errors='replace')
                return 'nobody read the output' in text

            assert ros.spin_until(told, 30.0), text
            assert ('\x1b[' in text) == (made is held_terminal)     # colours
            process.terminate()
            assert process.wait(30.0) == 0
        finally:
            process.kill()
            os.close(out)
            os.close(into)


def silence(ros: Session, rig: Rig) -> None:
    """A controller that says nothing more."""


def deactivate(ros: Session, rig: Rig) -> None:
    request = ChangeState.Request()
    request.transition.id = TRANSITIONS['deactivate']
    assert ros.call(ChangeState, '/collision_guard/change_state', request).success


@pytest.mark.parametrize('end', [silence, deactivate])
def test_motion_ends_with_zeros_for_a_while_and_then_nothing(end):
    with ros_session() as ros, guarding(ros) as rig:
        with rig.driving():
            rig.wait_for_speed(1.0)
        with Late() as late:
            end(ros, rig)
            rig.wait(lambda: rig.twist.linear.x == 0)
            ros.spin_for(1.0)
        lasts(rig, late.worst_s)


def test_a_command_ends_the_zeros_and_a_decision_that_is_late_becomes_one():
    sent: list[Motion] = []
    output, ahead, now = CommandOutput(sent.append, print, 0.02), Motion(1.0), time.monotonic()
    output.send(ahead, True, now + 60.0)
    output.stop()
    while len(sent) < 4:
        time.sleep(0.01)
    output.send(ahead, True, now + 60.0)
    count = len(sent)
    time.sleep(0.1)
    assert sent[1:] == [STILL] * (count - 2) + [ahead]
    output.send(ahead, True, now - LATE_S)
    assert sent[count] == STILL
    output.close()
