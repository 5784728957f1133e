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
LINUX = 'Linux-x86_64'


def load_make_env():
    spec = importlib.util.spec_from_file_location('make_env', REQUIREMENTS / 'make_env.py')
    module = importlib.util.module_from_spec(spec)
    sys.modules['make_env'] = module   # its dataclasses look their module up
    spec.loader.exec_module(module)
    return module


make_env = load_make_env()


def python(version: str, makes_venvs: bool = True, has_rclpy: bool = False):
    numbers = tuple(map(int, version.split('.')))
    return make_env.Interpreter(f'/usr/bin/python{version}', numbers, makes_venvs, has_rclpy)


def arguments(steps) -> str:
    return ' '.join(word for step in steps for word in step.pip)


@pytest.mark.parametrize(('found', 'ros', 'said'), [
    ([python('3.9.18')], 'kilted', r'3\.10 to 3\.14.*3\.9\.18'),
    ([python('3.15.0')], 'kilted', r'3\.15\.0'),
    ([python('3.12.3', makes_venvs=False)], 'kilted', r'apt install python3\.12-venv'),
    ([python('3.11.7')], make_env.SYSTEM, r'source the setup\.bash')])
def test_without_an_interpreter_that_fits_the_remedy_is_named(found, ros, said):
    with pytest.raises(make_env.SetupError, match=said):
        make_env.choose(found, ros)
    found = [python('3.9.2'), python('3.11.7'), python('3.12.1')]
    assert make_env.choose(found, 'kilted').version == (3, 11, 7)        # the first that fits


def test_torch_is_installed_before_anything_that_could_pull_another():
    steps = make_env.plan('kilted', {}, LINUX)
    assert steps[0].pip == ('-r', 'requirements/torch.txt')
    assert 'ros-kilted.txt' in arguments(steps[1:])
    assert 'ros-jazzy.txt' not in arguments(steps)


def test_a_sourced_ros_gets_what_its_machine_lacks_and_no_wheels():
    there = {'numpy': '1.26.4', 'cv2': '4.6.0', 'torch': '2.5.0'}
    steps = make_env.plan(make_env.SYSTEM, there, LINUX)
    assert not re.search(r'ros-|torch|numpy|opencv', arguments(steps))
    steps = make_env.plan(make_env.SYSTEM, {'torch': '2.3.1'}, LINUX)
    assert re.search(r'torch\.txt.*numpy.*opencv', arguments(steps))


def test_both_distributions_get_the_same_pinned_packages():
    packages = {}
    for distro in ('kilted', 'jazzy'):
        lines = [line for line in (REQUIREMENTS / f'ros-{distro}.txt').read_text().splitlines()
                 if line and not line.startswith('#')]
        assert all(re.search(r'==\d', line) for line in lines)
        packages[distro] = {line.partition('==')[0].replace(distro, '*') for line in lines}
    assert packages['kilted'] == packages['jazzy']


class Pip:
    """Stands in for the commands of a set-up: records them, and fails when told to."""

    def __init__(self, venv: Path):
        self.venv, self.commands, self.fail_at = venv, [], None

    def __call__(self, command: list[str], log: Path) -> None:
        self.commands.append(' '.join(command))
        if self.fail_at == len(self.commands):
            raise KeyboardInterrupt
        if '-m venv' in self.commands[-1]:
            (self.venv / 'bin').mkdir(parents=True)
            (self.venv / 'bin' / 'python').touch()


@pytest.fixture
def pip(tmp_path):
    return Pip(tmp_path / '.venv')


def build(pip, ros='kilted', installed=None):
    pip.commands.clear()
    make_env.build(pip.venv, ros, python('3.11.7'), run=pip,
                   installed=lambda venv: installed or {})
    return pip.commands


def test_a_set_up_that_was_interrupted_starts_afresh(pip):
    pip.fail_at = 3
    with pytest.raises(KeyboardInterrupt):
        build(pip)
    assert not (pip.venv / '.ready-kilted').exists()
    (pip.venv / 'half.so').touch()
    pip.fail_at = None
    assert '-m venv' in build(pip)[0]
    assert not (pip.venv / 'half.so').exists()
    assert (pip.venv / '.ready-kilted').exists()


def test_an_environment_for_another_ros_is_made_afresh(pip):
    build(pip)
    commands = build(pip, make_env.SYSTEM)
    assert '-m venv --system-site-packages' in commands[0]
    assert not (pip.venv / '.ready-kilted').exists()


def test_the_numpy_of_a_sourced_ros_cannot_be_replaced(pip):
    commands = build(pip, make_env.SYSTEM, {'numpy': '1.21.5', 'cv2': '4.5.4'})
    assert all('-c ' in command for command in commands if 'pip install' in command)
    assert (pip.venv / 'constraints.txt').read_text() == 'numpy==1.21.5\n'


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
    ('', '', '.venv', 'kilted'),
    ('', 'kilted', '.venv', 'kilted'),
    ('', 'jazzy', '.venv-jazzy', 'jazzy'),
    ('humble', '', '.venv', 'system'),
    ('jazzy', 'jazzy', '.venv', 'system'),
    ('humble', 'kilted', '.venv-kilted', 'kilted'),
])
def test_each_ros_has_an_environment_of_its_own(make, sourced, distro, venv, ros):
    text = make('-n', 'test', *([f'DISTRO={distro}'] if distro else []), ROS_DISTRO=sourced)
    assert f'make_env.py {venv} --ros {ros}' in text
    assert f'{venv}/bin/python -m pytest' in text
    # Both halves where no distribution is named, else what depends on it.
    assert ("-m 'not ros and not slow'" in text) == (not distro)
    assert ("-m 'ros and not slow' " in text) == (not distro)
    assert ("-m 'ros and not slow and not any_distro'" in text) == bool(distro)
