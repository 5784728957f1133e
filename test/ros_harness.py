# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run nodes of this package and watch them from a test over real DDS.

`Session.compose` runs a node in a thread of this process, with a context and a DDS participant of
its own. `Session.spawn` runs it as a process, for tests of signals, exit codes and crashes. Every
session has a DDS domain of its own, limited to this machine.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from types import SimpleNamespace
from typing import Any
from unittest import mock

from vjepa_ros.ros.common.process import TUNING
from vjepa_ros.ros.common.processes import FOREIGN, free_domain, ros_environment

REPOSITORY = Path(__file__).resolve().parents[1]
# A test sees what a node of this process logs in its `output`.
QUIET = ['--ros-args', '--disable-stdout-logs', '--disable-external-lib-logs']
_TICK_S = 0.02
_REPORT_NS = 100_000_000        # at most, between diagnostics of a node of this process
# How long to wait for what must come: long enough for any machine, as only a failure costs it.
_PATIENCE_S = 90.0
_MEET_S, _ASK_AGAIN_S = 0.1, 20.0        # until a server has found a client, nearly always
# Variables that decide who hears this process.
_REACH = (*FOREIGN, 'ROS_LOCALHOST_ONLY', 'ROS_AUTOMATIC_DISCOVERY_RANGE',
          'FASTDDS_BUILTIN_TRANSPORTS')
_MODULES = {'vjepa_node': 'perception_node'}      # of executables with another name
_CLASSES = {'perception_node': 'VjepaNode', 'collision_guard': 'CollisionGuard',
            'command_watchdog': 'CommandWatchdog', 'local_planner': 'LocalPlannerNode'}
_takers: list[Callable[[str, str, str], None]] = []


def ros_env(domain_id: int, extra: Mapping[str, str | None] | None = None) -> dict[str, str]:
    """Environment of a process of the domain; a variable of ``extra`` that is None is removed."""
    folder = Path(tempfile.gettempdir()) / f'vjepa_ros_test_log_{os.getuid()}'
    env: dict[str, str | None] = {
        name: value for name, value in ros_environment(domain_id, folder, os.environ).items()
        if name in os.environ or name not in TUNING}
    env.setdefault('OMP_NUM_THREADS', '1')
    env.update(extra or {})
    return {name: value for name, value in env.items() if value is not None}


def class_of(name: str) -> Any:
    """The class of the node of an executable or module."""
    name = _MODULES.get(name, name)
    return resolve_name('vjepa_ros.ros.' + (
        f'{name}.node:{_CLASSES[name]}' if name in _CLASSES else 'sim.camera_source:CameraSource'))


def arguments_of(params: Mapping[str, Any] | None, remaps: Mapping[str, str] | None) -> list[str]:
    """Command line words that set parameters and remap names."""
    words = ['--ros-args']
    for name, value in (params or {}).items():
        words += ['-p', f'{name}:={json.dumps(value, default=str)}']      # JSON is YAML, too
    for old, new in (remaps or {}).items():
        words += ['-r', f'{old}:={new}']
    return words


# -- nodes ----------------------------------------------------------------------------------------

class Running(ABC):
    """A node that runs: what it has written so far, and its end."""

    pid: int

    def __init__(self) -> None:
        self._lines: list[str] = []

    @property
    def output(self) -> str:
        """What it has written so far: a process all, a node of this process its log."""
        return ''.join(self._lines)

    @abstractmethod
    def alive(self) -> bool: ...

    def wait_for_output(self, text: str, timeout: float = _PATIENCE_S) -> str:
        """Wait until a text was written; return all output so far."""
        end = time.monotonic() + timeout
        while text not in self.output:
            gone = not self.alive()
            time.sleep(_TICK_S)
            assert text in self.output or not (gone or time.monotonic() > end), (
                f'{text!r} was not written {"before the end" if gone else f"in {timeout} s"}, '
                f'but:\n{self.output}')
        return self.output


class NodeProcess(Running):
    """A spawned node; its process `popen` leads a process group of its own."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], cwd: Path | None = None):
        super().__init__()
        self.popen = subprocess.Popen(
            command, env=dict(env), cwd=cwd or REPOSITORY, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors='replace')
        self.pid = self.popen.pid
        self._reader = threading.Thread(target=lambda: self._lines.extend(self.popen.stdout),
                                        daemon=True)
        self._reader.start()

    @property
    def returncode(self) -> int | None:
        return self.popen.poll()

    def alive(self) -> bool:
        return self.popen.poll() is None

    def send(self, number: int) -> None:
        """Send a signal to the process alone, as `kill` does."""
        if self.alive():
            self.popen.send_signal(number)

    def wait(self, timeout: float = _PATIENCE_S) -> int:
        """Wait for the end and return the exit code; AssertionError with the output if none."""
        try:
            code = self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f'process did not end within {timeout} s; it wrote:\n{self.output}') from None
        self._reader.join(2.0)
        return code

    def terminate_and_check(self, number: int = signal.SIGINT, timeout: float = 30.0) -> None:
        """End the process by a signal; check that it exits with 0 and wrote no traceback."""
        assert self.alive(), f'had already ended with {self.returncode}:\n{self.output}'
        self.send(number)
        code = self.wait(timeout)
        assert code == 0, f'exit code {code}; it wrote:\n{self.output}'
        assert 'Traceback' not in self.output, self.output

    def close(self) -> None:
        """End the whole process group, politely first: killed ones leave shared memory behind."""
        if self.alive():
            self.send(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.popen.wait(10.0)
        self.kill()

    def kill(self) -> None:
        """End the whole process group at once, whatever state it is in."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.popen.wait(10.0)
        self._reader.join(2.0)
        if not self._reader.is_alive():
            self.popen.stdout.close()


class NodeThread(Running):
    """A node in a thread of this process; only that may spin `node`."""

    def __init__(self, module: str, arguments: Sequence[str], domain_id: int):
        import rclpy
        from rclpy.signals import SignalHandlerOptions

        super().__init__()
        self.pid = os.getpid()
        self._signals = SimpleNamespace(received=False, suspends=False)
        self._logger = ''
        _capture_logs(self._take)
        self._context = rclpy.Context()
        rclpy.init(args=list(arguments), context=self._context, domain_id=domain_id,
                   signal_handler_options=SignalHandlerOptions.NO)
        try:
            self.node = class_of(module.rpartition('.')[2])(context=self._context)
            self._logger = self.node.get_logger().name
            for timer in self.node.timers:       # tests wait for diagnostics again and again
                timer.timer_period_ns = min(timer.timer_period_ns, _REPORT_NS)
            if hasattr(self.node, 'start'):
                self.node.start()
        except BaseException:
            self._end()
            raise
        self._thread = threading.Thread(target=self._serve, name='served', daemon=True)
        self._thread.start()

    def _take(self, logger: str, severity: str, text: str) -> None:
        # Before the node is made its name is unknown.
        if not self._logger or logger == self._logger or logger.startswith(f'{self._logger}.'):
            self._lines.append(f'[{severity}] [{logger}]: {text}\n')

    def _serve(self) -> None:
        from vjepa_ros.ros.common.process import serve

        serve(self.node, self._signals)

    def _end(self) -> None:
        import rclpy

        rclpy.try_shutdown(context=self._context)
        _takers.remove(self._take)

    def alive(self) -> bool:
        return self._thread.is_alive()

    def wait(self, timeout: float = _PATIENCE_S) -> int:
        """Wait for the end of a node that ends by itself; its exit code."""
        self._thread.join(timeout)
        assert not self.alive(), f'the node did not end within {timeout} s:\n{self.output}'
        return self.node.exit_code

    def close(self) -> None:
        """End the node as a signal would, once."""
        if not self._signals.received:
            self._signals.received = True
            self._thread.join(_PATIENCE_S)
            self._end()
            assert not self.alive(), f'the node does not end; it logged:\n{self.output}'


def _capture_logs(take: Callable[[str, str, str], None]) -> None:
    """Pass on logger, severity and text of what nodes of this process log from now on."""
    from rclpy.impl.implementation_singleton import rclpy_implementation
    from rclpy.logging import LoggingSeverity

    _takers.append(take)
    write = rclpy_implementation.rclpy_logging_rcutils_log
    if getattr(write, 'captures', False):
        return

    def log(severity: Any, name: str, message: str, *where: Any) -> None:
        for give in list(_takers):
            give(name, LoggingSeverity(severity).name, message)
        write(severity, name, message, *where)

    log.captures = True
    rclpy_implementation.rclpy_logging_rcutils_log = log


@contextmanager
def logged() -> Iterator[list[str]]:
    """What nodes of this process log meanwhile, line by line."""
    lines: list[str] = []

    def take(logger: str, severity: str, text: str) -> None:
        lines.append(f'[{severity}] [{logger}]: {text}')

    _capture_logs(take)
    try:
        yield lines
    finally:
        _takers.remove(take)


# -- this process as a peer -----------------------------------------------------------------------

@dataclass
class Session:
    """One DDS domain with a node of this process in it."""

    domain_id: int
    context: Any
    node: Any
    env: Mapping[str, str | None]
    clients: dict[str, Any] = field(default_factory=dict)

    @contextmanager
    def spawn(self, module: str, params: Mapping[str, Any] | None = None,
              remaps: Mapping[str, str] | None = None,
              env: Mapping[str, str | None] | None = None) -> Iterator[NodeProcess]:
        """Run ``python -m module`` as a node; its whole process group is gone after the block."""
        process = NodeProcess([sys.executable, '-m', module, *arguments_of(params, remaps)],
                              ros_env(self.domain_id, {**self.env, **(env or {})}))
        try:
            yield process
        finally:
            process.close()

    @contextmanager
    def compose(self, module: str, params: Mapping[str, Any] | None = None,
                remaps: Mapping[str, str] | None = None) -> Iterator[NodeThread]:
        """Run the node of a module in a thread of this process; it is gone after the block."""
        node = NodeThread(module, arguments_of(params, remaps), self.domain_id)
        try:
            yield node
        finally:
            node.close()

    def spin_until(self, predicate: Callable[[], Any], timeout: float = _PATIENCE_S) -> Any:
        """Serve the node until the predicate is true; its last value (false = timed out)."""
        executor = self.node.executor
        if executor is None:
            from rclpy.executors import SingleThreadedExecutor
            executor = SingleThreadedExecutor(context=self.context)
            executor.add_node(self.node)
            self.node.harness_executor = executor  # the node itself holds only a weak reference
        end = time.monotonic() + timeout
        while not (value := predicate()) and time.monotonic() < end:
            executor.spin_once(timeout_sec=_TICK_S)
        return value

    def spin_for(self, seconds: float) -> None:
        """Serve the node of this session for a while."""
        self.spin_until(lambda: False, seconds)

    def client(self, service_type: Any, name: str) -> Any:
        """A client of a service that is ready; it is made once."""
        if name not in self.clients:
            self.clients[name] = self.node.create_client(service_type, name)
            assert self.spin_until(self.clients[name].service_is_ready), f'no service {name}'
            self.spin_for(_MEET_S)
        return self.clients[name]

    def call(self, service_type: Any, name: str, request: Any = None, timeout: float = _PATIENCE_S
             ) -> Any:
        """Call a service, again where the server has not found this client; its response."""
        client, calls = self.client(service_type, name), []
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            calls.append(client.call_async(request or service_type.Request()))
            if self.spin_until(lambda: any(call.done() for call in calls), _ASK_AGAIN_S):
                return next(call.result() for call in calls if call.done())
        raise AssertionError(f'no answer from {name} in {timeout} s')


@contextmanager
def ros_session(env: Mapping[str, str | None] | None = None) -> Iterator[Session]:
    """Join a fresh DDS domain with one node; `env`: for it and for those that are spawned."""
    import rclpy
    from rclpy.signals import SignalHandlerOptions

    with free_domain() as domain_id, _reaching({**ros_env(domain_id), **(env or {})}):
        context = rclpy.Context()
        try:
            # The first context of a process says where all its nodes log.
            rclpy.init(args=QUIET, context=context, domain_id=domain_id,
                       signal_handler_options=SignalHandlerOptions.NO)
            node = rclpy.create_node('tester', context=context)
            try:
                yield Session(domain_id, context, node, env or {})
            finally:
                executor = node.executor
                if executor is not None:
                    executor.shutdown(timeout_sec=2.0)
                node.destroy_node()
        finally:
            rclpy.try_shutdown(context=context)


@contextmanager
def _reaching(env: Mapping[str, str | None]) -> Iterator[None]:
    """Let this process be heard by whom a process with this environment is heard, for a while."""
    with mock.patch.dict(os.environ):
        for name in _REACH:
            os.environ.pop(name, None)
        os.environ.update({name: value for name in _REACH if (value := env.get(name))})
        yield
