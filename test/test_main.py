# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The first word of the command line."""

from __future__ import annotations

import sys

import pytest

from vjepa_ros.cli import main as cli


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
