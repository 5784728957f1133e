# SPDX-License-Identifier: Apache-2.0
"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SHARED = Path(os.environ.get('VJEPA_ROS_SHARED',
                             Path(__file__).resolve().parents[2] / 'shared' / 'data'))


@pytest.fixture(scope='session')
def shared_data() -> Path:
    """Folder of the real recordings that live beside the repository (skips when absent)."""
    if not SHARED.is_dir():
        pytest.skip(f'real recordings are not at {SHARED} (set VJEPA_ROS_SHARED)')
    return SHARED
