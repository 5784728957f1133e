# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run ROS programs of this package as child processes in a private DDS domain."""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import vjepa_ros
from vjepa_ros.ros.common.process import TUNING

# Shared memory alone never leaves the machine, and with room for several images none gets lost.
# The usual way to stay on the machine, ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST, makes rmw_fastrtps
# ignore these sizes, and then most raw images are lost to best-effort subscribers.
SHARED_MEMORY = {'FASTDDS_BUILTIN_TRANSPORTS': 'SHM?max_msg_size=64KB&sockets_size=4MB',
                 'ROS_AUTOMATIC_DISCOVERY_RANGE': 'SUBNET'}
BEFORE_SIZES = ('foxy', 'galactic', 'humble', 'iron')   # their Fast DDS has no such setting
# Settings for reaching a robot; the processes here talk only to each other.
FOREIGN = ('ROS_DISCOVERY_SERVER', 'ROS_STATIC_PEERS', 'ROS_SUPER_CLIENT',
           'FASTRTPS_DEFAULT_PROFILES_FILE', 'FASTDDS_DEFAULT_PROFILES_FILE', 'CYCLONEDDS_URI')
TAIL_LINES = 15


class ProcessFailed(RuntimeError):
    """A child process ended or did not get ready; the text holds the end of its log."""


@contextmanager
def free_domain() -> Iterator[int]:
    """Reserve a DDS domain that nobody on this machine uses, as long as the block lasts."""
    domains = list(range(1, 102))  # above 101 the ports meet the ephemeral range of Linux
    random.SystemRandom().shuffle(domains)
    for domain in domains:
        name = f'vjepa_ros_domain_{os.getuid()}_{domain}.lock'
        with open(Path(tempfile.gettempdir()) / name, 'w') as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                try:         # the first port of a DDS participant of the domain
                    probe.bind(('', 7400 + 250 * domain + 10))
                except OSError:
                    continue
            yield domain
            return
    raise ProcessFailed('no free DDS domain between 1 and 101 on this machine: end some of the '
                        'ROS programs that run here')


def takes_large_images(environ: Mapping[str, str]) -> bool:
    """Whether raw images pass between processes here without loss (else compress them)."""
    middleware = environ.get('RMW_IMPLEMENTATION') or 'rmw_fastrtps_cpp'
    return 'fastrtps' in middleware and environ.get('ROS_DISTRO') not in BEFORE_SIZES


def ros_environment(domain: int, log_folder: Path, environ: Mapping[str, str]
                    ) -> dict[str, str]:
    """Environment of a program that talks only to others of the domain on this machine."""
    env = {k: v for k, v in environ.items() if k not in FOREIGN}
    # The package may be run from a checkout that is not installed.
    paths = (str(Path(vjepa_ros.__file__).parents[1]), environ.get('PYTHONPATH', ''))
    env.update({
        'ROS_DOMAIN_ID': str(domain), 'PYTHONPATH': os.pathsep.join(p for p in paths if p),
        'PYTHONUNBUFFERED': '1', 'RCUTILS_LOGGING_BUFFERED_STREAM': '0',
        'RCUTILS_COLORIZED_OUTPUT': '0', 'ROS_LOG_DIR': str(log_folder)})
    if takes_large_images(environ):
        env.update(SHARED_MEMORY)
        env.pop('ROS_LOCALHOST_ONLY', None)
    elif environ.get('ROS_DISTRO') in BEFORE_SIZES:
        env['ROS_LOCALHOST_ONLY'] = '1'
    else:
        env['ROS_AUTOMATIC_DISCOVERY_RANGE'] = 'LOCALHOST'
    return {**TUNING, **env}


def middleware_hint(environ: Mapping[str, str]) -> str:
    """Return why processes may not find each other, for the end of an error; '' unknown."""
    middleware = environ.get('RMW_IMPLEMENTATION', '')
    return '' if 'zenoh' not in middleware else (
        f" (RMW_IMPLEMENTATION is '{middleware}', which needs its router: start it, or unset the "
        'variable)')


def keep_logs(work: Path, folder: Path) -> None:
    """Copy the logs of a failed run to where the user looks."""
    for log in sorted(work.glob('*.log')):
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(log, folder / log.name)


class Child:
    """One program of this package in a process group of its own; its log is in a file."""

    def __init__(self, name: str, module: str, arguments: Sequence[str],
                 env: Mapping[str, str], log: Path,
                 on_line: Callable[[str], None] | None = None) -> None:
        self.name = name
        self._log = log
        with log.open('wb') as file:
            self._popen = subprocess.Popen(
                [sys.executable, '-m', module, *arguments], env=dict(env),
                stdin=subprocess.DEVNULL, stdout=file if on_line is None else subprocess.PIPE,
                stderr=file, start_new_session=True)
        self._reader: threading.Thread | None = None
        if on_line is not None:
            self._reader = threading.Thread(target=self._read, args=(on_line,), daemon=True)
            self._reader.start()

    def _read(self, on_line: Callable[[str], None]) -> None:
        for line in self._popen.stdout or ():
            on_line(line.decode(errors='replace'))

    @property
    def returncode(self) -> int | None:
        """Exit code, None while it runs."""
        return self._popen.poll()

    def interrupt(self) -> None:
        """Ask it to end, as Ctrl-C does."""
        if self.returncode is None:
            self._popen.send_signal(signal.SIGINT)

    def wait(self, timeout_s: float) -> int | None:
        """Wait for its end and for its last line; the exit code, None when it still runs."""
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(timeout_s)
            if self._reader is not None:
                self._reader.join(2.0)
        return self.returncode

    def kill(self) -> None:
        """End the whole process group at once."""
        with suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()
        if self._reader is not None:
            self._reader.join(2.0)

    def failure(self, what: str) -> ProcessFailed:
        """Return an error about this child, with the end of its log."""
        lines = self._log.read_text(encoding='utf-8', errors='replace').strip().splitlines()
        tail = '\n'.join(f'  | {line}' for line in lines[-TAIL_LINES:] or ['(it wrote nothing)'])
        return ProcessFailed(f'the {self.name} process {what}; the end of its log:\n{tail}')


class Children:
    """Child processes that live and die together: after the block none is left."""

    def __init__(self, env: Mapping[str, str], log_folder: Path) -> None:
        self._env = env
        self.log_folder = log_folder
        self.all: dict[str, Child] = {}

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self, name: str, module: str, arguments: Sequence[str],
              on_line: Callable[[str], None] | None = None) -> Child:
        """Start one more child, see `Child`."""
        log = self.log_folder / f'{name}.log'
        self.all[name] = Child(name, module, arguments, self._env, log, on_line)
        return self.all[name]

    def check(self, may_end: Sequence[str] = ()) -> None:
        """Raise `ProcessFailed` when a child has ended that should run, or has ended badly."""
        for child in self.all.values():
            code = child.returncode
            if code is not None and (code != 0 or child.name not in may_end):
                child.wait(0.0)
                raise child.failure(f'ended with exit code {code}')

    def stop(self, timeout_s: float = 15.0) -> None:
        """Interrupt all that run, wait for them, and kill what is left of their groups."""
        for child in self.all.values():
            child.interrupt()
        end = time.monotonic() + timeout_s
        for child in self.all.values():
            child.wait(max(0.0, end - time.monotonic()))
        for child in self.all.values():
            child.kill()


def ros_arguments(node_name: str, parameters: Mapping[str, object]) -> list[str]:
    """Command line words that name a node and set its parameters (bool, int, float, str)."""
    words = ['--ros-args', '-r', f'__node:={node_name}']
    for name, value in parameters.items():
        # JSON is YAML, too: a text stays a text, whatever it looks like.
        words += ['-p', f'{name}:={json.dumps(value, ensure_ascii=False)}']
    return words
