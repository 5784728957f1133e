# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Processes and actors share the GPUs of a machine; no GPU is needed to see it."""

from __future__ import annotations

import os
import time

import pytest
import torch

from vjepa_ros.fleet.cluster import share_of_gpu
from vjepa_ros.lab.worker_pool import VISIBLE, WorkerPool, visible_gpus


def gpu_of(context: object, seconds: float) -> str:
    """Return the GPU that this process sees, after the others have got work, too."""
    time.sleep(seconds)
    return os.environ.get(VISIBLE, '')


def test_processes_take_the_gpus_in_turn(monkeypatch):
    monkeypatch.delenv(VISIBLE, raising=False)
    with WorkerPool(3, object, gpus=['4', '7']) as pool:
        seen = pool.run([(gpu_of, 2.0)] * 3, lambda result: None)
    assert set(seen) == {'4', '7'} and VISIBLE not in os.environ


def test_the_gpus_that_a_process_may_use_are_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: 2)
    monkeypatch.delenv(VISIBLE, raising=False)
    assert visible_gpus() == ['0', '1']
    monkeypatch.setenv(VISIBLE, '3,GPU-8f')
    assert visible_gpus() == ['3', 'GPU-8f']
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: 0)
    assert visible_gpus() == []


@pytest.mark.parametrize(('gpus', 'actors', 'share'), [
    (2, 8, 0.25), (2, 3, 0.5), (1, 3, 1 / 3), (4, 2, 1), (2, 2, 1), (0, 4, 1)])
def test_actors_get_a_gpu_or_their_share_of_one(gpus, actors, share):
    assert share_of_gpu(gpus, actors) == share
