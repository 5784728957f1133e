# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Memory that grows steadily is told from memory that does not, and devices from their limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from vjepa_ros.ros.perception_node.diagnostics import MemoryTrend
from vjepa_ros.runtime import memory

MB = 1 << 20
SECONDS = np.arange(0, 1300.0)
# Of a node with 700 MB: what it uses at each second, and whether that is a leak.
NOISE = np.random.default_rng(0).uniform(0, 40, SECONDS.size)
COURSES = {
    'flat': (700 + 0 * SECONDS, False),
    'with peaks': (700 + 300 * (SECONDS % 37 < 3), False),
    'a start that takes long': (700 - 400 * np.exp(-SECONDS / 60), False),
    'up and down': (700 + 100 * np.sin(SECONDS / 150), False),
    'a little': (700 + 0.005 * SECONDS, False),
    'a leak': (700 + 0.1 * SECONDS, True),
    'a leak under noise and peaks': (700 + 0.1 * SECONDS + NOISE + 300 * (SECONDS % 37 < 3), True)}


@pytest.mark.parametrize(('used', 'leaks'), COURSES.values(), ids=COURSES)
def test_steady_growth_is_told_from_all_else(used, leaks):
    trend, said = MemoryTrend(), []
    assert math.isnan(trend.bytes_per_hour) and not trend.steady
    for now_s, value in zip(SECONDS, used, strict=True):
        trend.add(round(value * MB), float(now_s))
        said.append(trend.steady)
    assert not any(said[:599]) and said[-1] == leaks and (leaks or not any(said))
    if leaks:
        assert trend.bytes_per_hour / MB == pytest.approx(360, rel=0.1)


def test_a_device_tells_its_memory_and_a_cpu_none(monkeypatch):
    assert memory.device_memory(torch.device('cpu')) is None
    monkeypatch.setattr(torch.cuda, 'mem_get_info', lambda device: (2 << 30, 8 << 30))
    held = memory.device_memory(torch.device('cuda'))
    assert held is not None and (held.used, held.limit, held.share) == (6 << 30, 8 << 30, 0.75)
    monkeypatch.setattr(torch.mps, 'driver_allocated_memory', lambda: 3 << 30)
    monkeypatch.setattr(torch.mps, 'recommended_max_memory', lambda: 12 << 30)
    held = memory.device_memory(torch.device('mps'))
    assert held is not None and held.share == 0.25
