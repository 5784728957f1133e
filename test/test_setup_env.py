# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Tests of the development environment: interpreter, requirements, interruption, Makefile."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
REQUIREMENTS = REPOSITORY / 'requirements'


spec = importlib.util.spec_from_file_location('make_env', REQUIREMENTS / 'make_env.py')
make_env = sys.modules['make_env'] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make_env)


def python(version: str, makes_venvs: bool = True):
    numbers = tuple(map(int, version.split('.')))
    return make_env.Interpreter(f'/usr/bin/python{version}', numbers, makes_venvs, False)


@pytest.mark.parametrize(('found', 'ros', 'said'), [
    ([python('3.9.18')], 'kilted', r'3\.10 to 3\.14.*3\.9\.18'),
    ([python('3.12.3', makes_venvs=False)], 'kilted', r'apt install python3\.12-venv'),
    ([python('3.11.7')], make_env.SYSTEM, r'source the setup\.bash')])
def test_without_an_interpreter_that_fits_the_remedy_is_named(found, ros, said):
    with pytest.raises(make_env.SetupError, match=said):
        make_env.choose(found, ros)
    found = [python('3.9.2'), python('3.11.7'), python('3.12.1')]
    assert make_env.choose(found, 'kilted').version == (3, 11, 7)        # the first that fits


def test_both_distributions_get_the_same_pinned_packages():
    packages = {}
    for distro in ('kilted', 'jazzy'):
        lines = [line for line in (REQUIREMENTS / f'ros-{distro}.txt').read_text().splitlines()
                 if line and not line.startswith('#')]
        assert all(re.search(r'==\d', line) for line in lines)
        packages[distro] = {line.partition('==')[0].replace(distro, '*') for line in lines}
    assert packages['kilted'] == packages['jazzy']


def test_a_set_up_that_was_interrupted_starts_afresh(tmp_path):
    venv, commands, fail_at = tmp_path / '.venv', [], 3

    def record(command: list[str], log: Path) -> None:
        commands.append(' '.join(command))
        if len(commands) == fail_at:
            raise KeyboardInterrupt
        if '-m venv' in commands[-1]:
            (venv / 'bin').mkdir(parents=True)
            (venv / 'bin/python').touch()

    def build() -> None:
        make_env.build(venv, 'kilted', python('3.11.7'), run=record, installed=lambda venv: {})

    with pytest.raises(KeyboardInterrupt):
        build()
    assert not (venv / '.ready-kilted').exists()
    (venv / 'half.so').touch()
    build()
    assert '-m venv' in commands[3]
    assert not (venv / 'half.so').exists()
    assert (venv / '.ready-kilted').exists()


@pytest.fixture
def make(tmp_path):
    """Function that says what make would run in a fresh clone."""
    if shutil.which('make') is None:
        pytest.skip('make is not installed here')
    shutil.copytree(REQUIREMENTS, tmp_path / 'requirements')
    shutil.copy(REPOSITORY / 'Makefile', tmp_path)
    shutil.copy(REPOSITORY / 'setup.py', tmp_path)

    def run(*words: str, code: int = 0, **environ: str) -> str:
        # Make passes its own variables down: started from `make test`, this is another make.
        env = {k: v for k, v in os.environ.items() if k not in (
            'ROS_DISTRO', 'MAKEFLAGS', 'MAKELEVEL', 'DISTRO', 'ARGS', 'SOURCE', 'PYTHON')}
        done = subprocess.run(['make', *words], cwd=tmp_path, env={**env, **environ}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.returncode == code, done.stdout
        return done.stdout
    return run


@pytest.mark.parametrize(('sourced', 'distro', 'venv', 'ros'), [
    ('', '', '.venv', 'kilted'), ('', 'jazzy', '.venv-jazzy', 'jazzy'),
    ('humble', '', '.venv', 'system'), ('jazzy', 'jazzy', '.venv', 'system'),
    ('humble', 'kilted', '.venv-kilted', 'kilted')])
def test_each_ros_has_an_environment_of_its_own(make, sourced, distro, venv, ros):
    text = make('-n', 'test', *([f'DISTRO={distro}'] if distro else []), ROS_DISTRO=sourced)
    assert f'make_env.py {venv} --ros {ros}' in text
    assert f'{venv}/bin/python -m pytest' in text
    # Both halves where no distribution is named, else what depends on it.
    assert ("-m 'not ros and not slow'" in text) == (not distro)
    assert ("-m 'ros and not slow' " in text) == (not distro)
    assert ("-m 'ros and not slow and not any_distro'" in text) == bool(distro)
