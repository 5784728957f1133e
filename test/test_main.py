# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The first word of the command line."""

from __future__ import annotations

import sys

import pytest

from vjepa_ros import cli


def test_a_missing_package_is_one_line_with_its_remedy(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, 'rich', None)
    monkeypatch.setitem(sys.modules, 'rich.console', None)
    monkeypatch.delitem(sys.modules, 'vjepa_ros.cli.find', raising=False)
    assert cli.main(['find', 'picture.jpg', 'results']) == 1
    assert 'pip install rich' in capsys.readouterr().err


def test_a_fault_of_our_own_is_not_called_a_missing_package(monkeypatch):
    monkeypatch.setitem(sys.modules, 'vjepa_ros.cli.find', None)
    with pytest.raises(ModuleNotFoundError):
        cli.main(['find', 'picture.jpg', 'results'])


@pytest.mark.parametrize(('distro', 'remedy'), [
    ('', "pip install '.[ros]'"), ('jazzy', f'jazzy is sourced, but {sys.executable}')])
def test_a_missing_rclpy_is_told_with_what_helps_here(distro, remedy, monkeypatch, capsys):
    monkeypatch.setattr('importlib.util.find_spec', lambda name: None)
    monkeypatch.setenv('ROS_DISTRO', distro)
    for command in ('echo', 'top'):
        assert cli.main([command, *['topic'] * (command == 'echo')]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert 'rclpy is missing' in line and remedy in line
