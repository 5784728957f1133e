# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The linters of ROS 2 find nothing, with the settings that this package has for them."""

from __future__ import annotations

from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PATHS = [str(REPOSITORY / name) for name in ('vjepa_ros', 'launch', 'setup.py')]
pytestmark = pytest.mark.slow


def test_ament_flake8_finds_nothing():
    linter = pytest.importorskip('ament_flake8.main', reason='`make ament` installs ament_flake8')
    assert linter.main(['--config', str(REPOSITORY / 'setup.cfg'), *PATHS,
                        str(REPOSITORY / 'test')]) == 0


def test_ament_pep257_finds_nothing_in_what_users_import():
    linter = pytest.importorskip('ament_pep257.main', reason='`make ament` installs ament_pep257')
    # D105: special methods do what Python says of them.
    public = [str(REPOSITORY / 'vjepa_ros' / name) for name in (
        '__init__.py', 'detector.py', 'perception/types.py', 'ros/read.py', 'guard', 'sources')]
    assert linter.main(['--convention', 'numpy', '--add-ignore', 'D105', '--', *public]) == 0
