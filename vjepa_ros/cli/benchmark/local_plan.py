# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Measure how long local_planner takes for a plan, without a predictor of contacts.

A plan towards a goal behind a wall that the robot remembers: from the memory to the twist, with
ways that are searched anew, on the CPU.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.table import Table

from vjepa_ros.cli.benchmark import clock
from vjepa_ros.planning.local_config import LocalConfig, Twist
from vjepa_ros.planning.local_planner import LocalPlanner, STEPS, WAYS_EVERY_S


def measure(samples: int, runs: int) -> dict[str, Any]:
    """Measure `runs` plans of `samples` sequences and the arcs, after one to warm up."""
    config = LocalConfig(samples=samples)
    planner, wall = LocalPlanner(config), np.zeros((60, 6))
    wall[:, 0], wall[:, 1], wall[:, 4] = 2.5, np.linspace(-4, 2, 60), 2 * config.evidence
    planner.memory.keep(wall)
    took, candidates = [], 0
    for _ in range(runs + 1):
        planner.move(Twist(), WAYS_EVERY_S)
        begun = time.perf_counter()
        candidates = len(planner.pursue(5 + 0j).candidates)
        took.append(1e3 * (time.perf_counter() - begun))
    return {'local_ms': clock.statistics(took[1:]), 'configuration': {
        'planner': 'local', 'samples': samples, 'candidates': candidates, 'steps': STEPS,
        'device': 'cpu', 'device_name': 'CPU'}}


def make_table(result: Mapping[str, Any]) -> Table:
    """Return the figures as a table."""
    about = result['configuration']
    return clock.make_table(
        f'local_planner: {about["candidates"]} candidates of {about["steps"]} steps',
        {'plan': result['local_ms']}, ('median', 'p95', 'p99', 'min', 'runs'),
        'without a predictor of contacts')
