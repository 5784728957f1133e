# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Fixtures shared by all tests."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from node_fixtures import Node
    from ros_harness import Session

    from vjepa_ros.lab.world.textures.bank import Materials, TextureBank

SHARED = Path(os.environ.get('VJEPA_ROS_SHARED',
                             Path(__file__).resolve().parents[2] / 'shared' / 'data'))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Pass over modules without ROS tests where only such are asked for: reading takes long."""
    wanted = config.option.markexpr.startswith('ros')
    if wanted and collection_path.match('test_*.py'):
        return 'mark.ros' not in collection_path.read_text(encoding='utf-8') or None
    return None


@pytest.fixture(scope='session')
def shared_data() -> Path:
    """Folder of the real recordings that live beside the repository (skips when absent)."""
    if not SHARED.is_dir():
        pytest.skip(f'real recordings are not at {SHARED} (set VJEPA_ROS_SHARED)')
    return SHARED


@pytest.fixture(scope='module')
def one_thread() -> Iterator[None]:
    """Small models gain nothing from threads, and lose much where other tests run beside them."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def ros() -> Iterator[Session]:
    """A fresh DDS domain."""
    from ros_harness import ros_session

    with ros_session() as session:
        yield session


@pytest.fixture(scope='module')
def again() -> Iterator[Node]:
    """A node with two cameras that tests begin anew; of 'hand' no image is lost."""
    from node_fixtures import exact, node_running
    from ros_harness import ros_session

    with ros_session() as session, node_running(
            session, cameras=['camera', 'hand'], **exact('hand/image_raw'),
            **exact('hand/image_raw/compressed')) as node:
        node.do('configure', 'activate')
        yield node


@pytest.fixture(scope='module')
def bank() -> TextureBank:
    """A few small textures."""
    from vjepa_ros.lab.world.textures.bank import TextureBank

    return TextureBank.procedural(1, count=30, size=64)


@pytest.fixture(scope='module')
def materials(bank: TextureBank) -> Materials:
    """What things may be made of."""
    from vjepa_ros.lab.world.textures.bank import Materials

    return Materials(bank.groups, bank.walks)


@pytest.fixture
def tiny_training(monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    """`vjepa-ros train` has a model 'test' and draws its clips in a moment."""
    from tiny_world import TINY, TinyWorld

    from vjepa_ros.lab.training import run
    from vjepa_ros.model.variants import VARIANTS

    monkeypatch.setitem(VARIANTS, 'test', TINY)
    monkeypatch.setattr(run, 'ClipWorld', TinyWorld)
    monkeypatch.setattr(run, 'paint', lambda config: 'textures')


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """Undo what a command line of the package does to its logger, so that tests stay apart."""
    log = logging.getLogger('vjepa_ros')
    before = (log.level, log.propagate, list(log.handlers))
    yield
    log.setLevel(before[0])
    log.propagate, log.handlers = before[1:]
