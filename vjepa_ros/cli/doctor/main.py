# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Say why perception is slow, silent or UNKNOWN: look at machine, ROS graph and parameters.

Without ROS, the machine and parameter files are looked at. With it, the graph is watched for some
seconds: topics with types, rates and ages, QoS, parameters and diagnostics of running nodes. Each
problem comes with its remedy. Exit code 1 means that there is an error.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.text import Text

from vjepa_ros.cli.console import positive, ros_problem
from vjepa_ros.cli.doctor import machine
from vjepa_ros.ros.doctor.finding import ERROR, Finding, Graph, NOTE, OK, WARNING

MARKS = {OK: ('✓', 'green'), NOTE: ('·', 'cyan'), WARNING: ('!', 'yellow'),
         ERROR: ('✗', 'bold red')}


def look(args: argparse.Namespace) -> dict[str, list[Finding]]:
    """Return all findings by section."""
    found = {'machine': [*machine.devices(args.device, args.precision), *machine.memory(),
                         *machine.packages()]}
    graph = Graph(0.0)
    if args.no_ros:
        found['ROS'] = [Finding(NOTE, 'ROS', 'not looked at (--no-ros)')]
    elif ros_problem():
        found['ROS'] = [Finding(NOTE, 'ROS', f'works without it: {ros_problem()}')]
    else:
        found['ROS'], graph = _ros(args.seconds)
    if args.params:
        from vjepa_ros.ros.common.parameter import schemas
        from vjepa_ros.ros.doctor.rules import judge_file

        known = schemas()
        found['parameter files'] = [finding for path in args.params
                                    for finding in judge_file(path, known)]
    if not any(finding.level == ERROR and finding.about == 'python'
               for finding in found['machine']):
        found['weights'] = list(machine.weights(_files(args, graph)))
    return found


def _ros(seconds: float) -> tuple[list[Finding], Graph]:
    """Watch the graph and judge it."""
    from vjepa_ros.ros.common.parameter import schemas
    from vjepa_ros.ros.doctor.graph import observe
    from vjepa_ros.ros.doctor.rules import judge

    graph = observe(seconds)
    return [*machine.middleware(os.environ, graph.middleware),
            *judge(graph, schemas())], graph


def _files(args: argparse.Namespace, graph: Graph) -> dict[str, str]:
    """Return the checkpoints that are given or that running nodes use, by their users."""
    if args.weights:
        return {'--weights': args.weights}
    used = {name: seen.parameters['weights'] for name, seen in graph.nodes.items()
            if seen.parameters.get('weights') not in (None, '', 'random')}
    return used or {'bundled weights': ''}


def show(found: dict[str, list[Finding]], console: Console) -> None:
    """Print findings as a list, section by section."""
    for section, findings in found.items():
        console.print(Text(section, style='bold'))
        for finding in findings:
            mark, style = MARKS[finding.level]
            line = Text.assemble((f'  {mark} ', style), (f'{finding.about}: ', 'bold'),
                                 finding.text)
            console.print(line, soft_wrap=True)
            if finding.remedy:
                console.print(Text(f'      → {finding.remedy}', style='cyan'), soft_wrap=True)
    console.print(Text(summary(each for findings in found.values() for each in findings),
                       style='bold'))


def summary(findings: Iterable[Finding]) -> str:
    """Return how many problems there are."""
    levels = [finding.level for finding in findings]
    return ', '.join(f'{count} {level}{"s" * (count != 1)}' for level in (ERROR, WARNING)
                     for count in [levels.count(level)])


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog='vjepa-ros doctor', description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--seconds', type=positive, default=4.0, metavar='S',
                        help='how long to watch topics (default: 4)')
    parser.add_argument('--params', type=Path, nargs='+', default=(), metavar='FILE',
                        help='also check these parameter files')
    parser.add_argument('--weights', default='', metavar='FILE', help='checkpoint to look at '
                        '(default: those of running nodes, else the bundled one)')
    parser.add_argument('--device', default='auto', metavar='NAME',
                        help='device to judge: auto, cpu, cuda, cuda:N or mps (default: auto)')
    parser.add_argument('--precision', default='auto', metavar='NAME',
                        help='precision to judge (default: auto)')
    parser.add_argument('--no-ros', action='store_true', help='do not look at the ROS graph')
    parser.add_argument('--json', action='store_true', help='print the findings as JSON')
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 1 when there is an error."""
    args = make_parser().parse_args(argv)
    logging.getLogger('vjepa_ros').setLevel(logging.ERROR)
    found = look(args)
    if args.json:
        sys.stdout.write(json.dumps({section: [asdict(each) for each in findings]
                                     for section, findings in found.items()}, indent=1) + '\n')
    else:
        show(found, Console())
    return int(any(each.level == ERROR for findings in found.values() for each in findings))
