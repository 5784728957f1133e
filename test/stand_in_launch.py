# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run a launch file of this package where launch and launch_ros are not installed.

They have no wheels. Only what the launch files use is here, and it does as launch_ros does: it
makes the same commands. ``python stand_in_launch.py FILE NAME:=VALUE...`` starts them.
"""

from __future__ import annotations

import json
import logging
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from ament_index_python.packages import get_package_prefix


class Entity:
    """What a launch file makes: its arguments, by their names as well."""

    def __init__(self, *given: Any, **named: Any) -> None:
        self.given, self.named = given, named

    def perform(self, context: SimpleNamespace) -> str:
        """The value of a LaunchConfiguration."""
        return context.launch_configurations[self.given[0]]


class StandIn(ModuleType):
    """A module of launch: each of its names is a class of entities."""

    def __getattr__(self, name: str) -> type:
        return type(name, (Entity,), {})


def modules() -> dict[str, ModuleType]:
    """The modules that launch files import, by name."""
    made = {name: StandIn(name) for name in (
        'launch', 'launch.actions', 'launch.launch_description_sources', 'launch.substitutions',
        'launch_ros', 'launch_ros.actions', 'launch_ros.parameter_descriptions')}
    vars(made['launch'])['logging'] = SimpleNamespace(get_logger=logging.getLogger)
    return made


def nodes_of(file: Path, given: dict[str, str]) -> list[Entity]:
    """The nodes that a launch file starts."""
    context = SimpleNamespace(launch_configurations=dict(given))
    found = []
    for entity in runpy.run_path(str(file))['generate_launch_description']().given[0]:
        if type(entity).__name__ == 'DeclareLaunchArgument':
            name, choices = entity.given[0], entity.named['choices']
            value = context.launch_configurations.setdefault(name, entity.named['default_value'])
            if choices and value not in choices:
                raise RuntimeError(f'{name} is {value!r}, must be one of {choices}')
            continue
        for action in entity.named['function'](context):
            if type(action).__name__ == 'IncludeLaunchDescription':
                path = action.given[0].given[0].given[0][-1]
                found += nodes_of(file.parent / path, dict(action.named['launch_arguments']))
            else:
                found.append(action)
    return found


def parameters(source: Any, folder: Path) -> str:
    """The file in which parameters reach a node."""
    if isinstance(source, Entity):
        assert not source.named.get('allow_substs'), 'a file could run a program'
        text = Path(source.given[0]).read_text(encoding='utf-8')
    else:
        plain = {name: value.named['value_type'](value.given[0])
                 if isinstance(value, Entity) else value for name, value in source.items()}
        text = json.dumps({'/**': {'ros__parameters': plain}})      # which is YAML, too
    number, path = tempfile.mkstemp('.yaml', dir=folder, text=True)
    with open(number, 'w', encoding='utf-8') as file:
        file.write(text)
    return path


def command(node: Entity, folder: Path) -> list[str]:
    """The command that starts a node."""
    named = node.named
    if 'cmd' in named:
        return named['cmd']
    program = Path(get_package_prefix(named['package'])) / 'lib' / named['package'] / \
        named['executable']
    words = [str(program), *named['arguments'], '--ros-args']
    if 'name' in named:
        words += ['-r', f"__node:={named['name']}"]
    if named['namespace']:
        words += ['-r', f"__ns:=/{named['namespace'].lstrip('/')}"]
    for source in named['parameters']:
        words += ['--params-file', parameters(source, folder)]
    for own, topic in named.get('remappings', ()):
        words += ['-r', f'{own}:={topic}']
    return words


def commands(file: Path, given: dict[str, str], folder: Path
             ) -> Iterator[tuple[list[str], dict[str, str], float | None]]:
    """Words, environment and pause before a respawn [s] of each command of a launch file."""
    for node in nodes_of(file, given):
        env = {**os.environ, **node.named.get('additional_env', {})}
        yield (command(node, folder), env,
               node.named['respawn_delay'] if node.named.get('respawn') else None)


class Process(threading.Thread):
    """A process that is started again as launch does, unless the launch ends."""

    def __init__(self, words: list[str], env: dict[str, str], delay_s: float | None) -> None:
        super().__init__()
        self._words, self._env, self._delay_s = words, env, delay_s
        self._ending = threading.Event()
        self._starting = threading.Lock()
        self._child = subprocess.Popen(words, env=env)
        self.start()

    def run(self) -> None:
        while self._child.wait() is not None and self._delay_s is not None:
            if self._ending.wait(self._delay_s):
                return
            with self._starting:
                if not self._ending.is_set():
                    self._child = subprocess.Popen(self._words, env=self._env)

    def interrupt(self) -> None:
        """Pass an interrupt on, and start it no more."""
        self._ending.set()
        with self._starting:
            self._child.send_signal(signal.SIGINT)

    @property
    def code(self) -> int:
        """Its exit code, once it has ended for good."""
        self.join()
        return abs(self._child.returncode)


def main(file: str, *arguments: str) -> int:
    """Start all nodes, pass on an interrupt, and wait for their end."""
    sys.modules.update(modules())
    logging.basicConfig(level=logging.INFO, format='[%(levelname)s] [%(name)s]: %(message)s')
    with tempfile.TemporaryDirectory() as folder:
        running = [Process(*each)
                   for each in commands(Path(file), given_by(arguments), Path(folder))]
        signal.signal(signal.SIGINT, lambda *_: [one.interrupt() for one in running])
        return max(one.code for one in running)


def given_by(arguments: Sequence[str]) -> dict[str, str]:
    """Launch arguments by name."""
    return dict(argument.split(':=', 1) for argument in arguments)


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
