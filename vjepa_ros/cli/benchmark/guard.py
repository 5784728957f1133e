# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Measure the reaction of the collision_guard over DDS: latency, and stops when sight is lost.

The guard and a process that plays cameras and controller run on this machine. Latency is counted
in the guard, from the arrival of an assessment in its process to the return of the call that
publishes the command. A stop is counted from the stamp of the last assessment to the publication
of the first zero; `source_timeout` is part of it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from rich.table import Table

from vjepa_ros.cli.argparse_ranges import check_ranges
from vjepa_ros.cli.benchmark.dds import run_benchmark
from vjepa_ros.lab.report.host_info import hardware, versions
from vjepa_ros.ros.common.processes import (
    Children,
    ProcessFailed,
    free_domain,
    ros_arguments,
    ros_environment,
)

SOURCE_TIMEOUT_S = 0.5
# Releases at once, so that many stops fit into the time; what stops is not changed.
QUICK = {'autostart': True, 'release.hold': 0.05, 'release.acceleration': 50.0,
         'release.speed': 2.0, 'unseen_speed': 2.0, 'source_timeout': SOURCE_TIMEOUT_S}
SPARE_S = 90.0
LOAD = 'vjepa_ros.ros.collision_guard.load_test'


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog='vjepa-ros benchmark-guard', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--cameras', type=int, default=1, metavar='N',
                        help='that the guard listens to (default: 1)')
    parser.add_argument('--camera-rate', type=float, default=30.0, metavar='HZ',
                        help='assessments of each per second (default: 30)')
    parser.add_argument('--command-rate', type=float, default=50.0, metavar='HZ',
                        help='commands per second (default: 50)')
    parser.add_argument('--seconds', type=float, default=30.0, metavar='S',
                        help='how long latency is measured (default: 30)')
    parser.add_argument('--stops', type=int, default=20, metavar='N',
                        help='how often the cameras fall silent (default: 20)')
    parser.add_argument('--json', type=Path, metavar='FILE', help='write the figures')
    return parser


def measure(args: argparse.Namespace, work: Path) -> dict[str, Any]:
    """Run both processes; the figures.

    Raises
    ------
    ProcessFailed
        Saying what went wrong.
    """
    names = [f'camera{i}' for i in range(args.cameras)]
    lines: list[str] = []
    with free_domain() as domain, Children(
            ros_environment(domain, work, os.environ), work) as children:
        guard = ros_arguments('collision_guard', QUICK)
        guard += ['-p', f'sources:=[{", ".join(names)}]']
        children.start('guard', 'vjepa_ros.ros.collision_guard', guard)
        load = children.start('load', LOAD, ros_arguments('guard_load', {
            'cameras': ','.join(names), 'camera_rate': args.camera_rate,
            'command_rate': args.command_rate, 'seconds': args.seconds, 'stops': args.stops}),
            lines.append)
        if load.wait(args.seconds + 3.0 * args.stops + SPARE_S) != 0:
            raise load.failure('could not measure')
        children.check(may_end=('load',))
    found = json.loads(lines[-1])
    stops = sorted(found.pop('stops_ms'))
    return {
        'date': date.today().isoformat(), 'hardware': hardware(), 'versions': versions(),
        'configuration': {name: getattr(args, name) for name in (
            'cameras', 'camera_rate', 'command_rate', 'seconds', 'stops')},
        'latency_ms': {key: found[f'latency_ms.{key}'] for key in ('median', 'p99', 'worst')},
        'reaction_ms': {key: found[f'reaction_ms.{key}'] for key in ('median', 'p99', 'worst')},
        'assessments': int(found['latency.count']),
        'source_timeout_ms': 1e3 * SOURCE_TIMEOUT_S,
        'stop_ms': {'median': stops[len(stops) // 2], 'worst': stops[-1]} if stops else None}


def make_table(result: dict[str, Any]) -> Table:
    """The figures for people."""
    c = result['configuration']
    table = Table(title=f'{c["cameras"]} camera(s) at {c["camera_rate"]:g} Hz, commands at '
                  f'{c["command_rate"]:g} Hz', title_justify='left')
    for name in ('time in ms', 'median', 'p99', 'worst'):
        table.add_column(name, justify='left' if name.startswith('time') else 'right')
    for label, key in (('assessment arrived to command published', 'latency_ms'),
                       ('stamp of the assessment to command published', 'reaction_ms')):
        table.add_row(label, *(f'{result[key][k]:.2f}' for k in ('median', 'p99', 'worst')))
    if result['stop_ms']:
        stop = result['stop_ms']
        table.add_row(f'last stamp to stop (timeout {result["source_timeout_ms"]:.0f})',
                      f'{stop["median"]:.1f}', '', f'{stop["worst"]:.1f}')
    return table


def main(argv: Sequence[str] | None = None) -> int:
    """Command line: measure, print the table, write the file; 1 when it cannot be measured."""
    words = list(sys.argv[2:] if argv is None else argv)
    parser = make_parser()
    args = parser.parse_args(words)
    check_ranges(parser, args, {
        'cameras': (1, 16), 'camera_rate': (5.0, 200.0), 'command_rate': (5.0, 1000.0),
        'seconds': (1.0, 3600.0), 'stops': (0, 1000)})
    return run_benchmark('benchmark-guard', words, args.json, lambda _, work: measure(args, work),
                         make_table, (ProcessFailed, OSError))
