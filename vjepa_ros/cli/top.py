# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Show a live table of cameras, nodes, guard and planners: rates, latency, drops, levels."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live

from vjepa_ros.cli.console import positive, print_error, ros_problem
from vjepa_ros.viewer.messages import CLOUD, States, camera_of
from vjepa_ros.viewer.table import render

if TYPE_CHECKING:
    from vjepa_ros.ros.listener import Listener

REFRESH_S = 0.25         # of the table in a terminal, and of the list of topics
SETTLE_S = 2.5           # with `--once`: nodes report each second, and results then have a rate


def listen(ros: Listener, states: States, seconds: float) -> set[str]:
    """Subscribe to what is published by now, take messages for a while [s]; return its nodes."""
    nodes: set[str] = set()
    for topic, kind in ros.topics().items():
        if states.wants(topic, kind):
            if not topic.endswith('/diagnostics'):
                nodes.add(camera_of(topic)[0] if kind == CLOUD else topic[1:].rpartition('/')[0])
            ros.subscribe(topic, kind,
                          lambda name, msg: states.take(name, msg, time.monotonic()))
    ros.spin(seconds)
    return nodes - {''}


def top(args: argparse.Namespace, ros: Listener, console: Console) -> int:
    """Show the table until Ctrl-C, or once; the exit code."""
    states, begin, first, known = States(), time.monotonic(), 0.0, 0
    title = f'vjepa-ros top · ROS domain {ros.domain_id}'
    live = Live(console=console, get_renderable=lambda: render(states, time.monotonic(), title),
                refresh_per_second=round(1 / REFRESH_S)) \
        if console.is_terminal and not args.once else None
    with live or nullcontext():
        while True:
            silent = listen(ros, states, REFRESH_S) - {node for node, _ in states.told}
            now = time.monotonic()
            # Who else is there may not have been found, or have reported, yet.
            if len(states.told) > known or (first and silent and now - begin < args.wait):
                first, known = now, len(states.told)
            if not first and now - begin > args.wait:
                return print_error(
                    f'vjepa-ros top: no node of this package reports on /diagnostics in ROS domain'
                    f' {ros.domain_id} (waited {args.wait:g} s); start one, for example with '
                    '`ros2 launch vjepa_ros vjepa.launch.py`, and compare ROS_DOMAIN_ID')
            if live is None and first and now - first > SETTLE_S:
                console.print(render(states, now, title))
                if args.once:
                    return 0
                first = now


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog='vjepa-ros top', description=__doc__)
    parser.add_argument('--once', action='store_true', help='print the table once and end; '
                        'without a terminal it is printed again and again')
    parser.add_argument('--wait', type=positive, default=10.0, metavar='S',
                        help='how long to wait for the first node (default: %(default)g)')
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 after `--once` or Ctrl-C, 1 when no node reports."""
    args = make_parser().parse_args(argv)
    problem = ros_problem()
    if problem:
        return print_error(f'vjepa-ros top: {problem}')
    from vjepa_ros.ros.listener import Listener

    try:
        with Listener('vjepa_ros_top') as ros:
            return top(args, ros, Console())
    except KeyboardInterrupt:
        return 0
