# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Measure how fast the collision guard reacts over DDS: to assessments, and to their absence.

The guard and a process that stands in for cameras and controller run on this machine. Latency
runs from the arrival of an assessment in the guard to the return of the call that publishes the
command. A stop runs from the stamp of the last assessment to the first zero, and includes
`source_timeout`.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table

from vjepa_ros.cli.benchmark import clock
from vjepa_ros.cli.console import real, steps, whole
from vjepa_ros.ros.common.processes import (
    Children,
    ProcessFailed,
    free_domain,
    ros_arguments,
    ros_environment,
)

PROBLEMS = (ProcessFailed,)
SOURCE_TIMEOUT_S = 0.5
# Release at once, so that many stops fit into the time; stopping itself is unchanged.
QUICK = {'autostart': True, 'release.hold': 0.05, 'release.acceleration': 50.0,
         'release.speed': 2.0, 'unseen_speed': 2.0, 'source_timeout': SOURCE_TIMEOUT_S}
SPARE_S = 90.0
OPTIONS = ('cameras', 'camera_rate', 'command_rate', 'seconds', 'stops')


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subject."""
    parser.add_argument('--cameras', type=whole(1, 16), default=1, metavar='N',
                        help='cameras that the guard listens to (default: 1)')
    parser.add_argument('--camera-rate', type=real(5.0, 200.0), default=30.0, metavar='HZ',
                        help='assessments of each per second (default: 30)')
    parser.add_argument('--command-rate', type=real(5.0, 1000.0), default=50.0, metavar='HZ',
                        help='commands per second (default: 50)')
    parser.add_argument('--seconds', type=real(1.0, 3600.0), default=30.0, metavar='S',
                        help='how long to measure latency (default: 30)')
    parser.add_argument('--stops', type=whole(0, 1000), default=20, metavar='N',
                        help='how often the cameras fall silent (default: 20)')


def measure(args: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Run both processes and return the figures (`ProcessFailed` when one fails)."""
    names = [f'camera{i}' for i in range(args.cameras)]
    lines: list[str] = []
    with ExitStack() as stack:
        stack.enter_context(steps(console))('starting the guard and its cameras')
        work = Path(stack.enter_context(TemporaryDirectory(prefix='vjepa_ros_guard_')))
        domain = stack.enter_context(free_domain())
        children = stack.enter_context(Children(ros_environment(domain, work, os.environ), work))
        guard = ros_arguments('collision_guard', QUICK)
        guard += ['-p', f'sources:=[{", ".join(names)}]']
        children.start('guard', 'vjepa_ros.ros.collision_guard', guard)
        load = children.start(
            'load', 'vjepa_ros.ros.collision_guard.load_test', ros_arguments('guard_load', {
                'cameras': ','.join(names),
                **{name: getattr(args, name) for name in OPTIONS[1:]}}), lines.append)
        if load.wait(args.seconds + 3.0 * args.stops + SPARE_S) != 0:
            raise load.failure('could not measure')
        children.check(may_end=('load',))
    found = json.loads(lines[-1])
    stops = sorted(found.pop('stops_ms'))
    return {
        'configuration': {name: getattr(args, name) for name in OPTIONS},
        **{f'{name}_ms': {key: found[f'{name}_ms.{key}'] for key in ('median', 'p99', 'worst')}
           for name in ('latency', 'reaction')},
        'assessments': int(found['latency.count']),
        'source_timeout_ms': 1e3 * SOURCE_TIMEOUT_S,
        'stop_ms': {'median': stops[len(stops) // 2], 'worst': stops[-1]} if stops else None}


def make_table(result: Mapping[str, Any]) -> Table:
    """Return the figures as a table."""
    c = result['configuration']
    return clock.make_table(
        f'cameras: {c["cameras"]} at {c["camera_rate"]:g} Hz, commands at '
        f'{c["command_rate"]:g} Hz', {
            'assessment arrived to command published': result['latency_ms'],
            'stamp of the assessment to command published': result['reaction_ms'],
            f'last stamp to stop (timeout {result["source_timeout_ms"]:.0f})':
                result['stop_ms'] or {}}, ('median', 'p99', 'worst'))
