# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Print the messages of a topic as YAML or JSON lines: assessments and regions by their names."""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Sequence
from typing import Any, TYPE_CHECKING

import yaml
from rich.console import Console

from vjepa_ros.cli.console import positive, print_error, ros_problem, whole
from vjepa_ros.viewer.messages import json_line, readable

if TYPE_CHECKING:
    from vjepa_ros.ros.listener import Listener

SILENT_S = 3.0           # after which it says why nothing comes
PUBLISHED = ('assessment', 'obstacles', 'state')      # named where the wanted topic is not there


def find(topic: str, topics: dict[str, str]) -> str:
    """Return the published topic that is meant; '' for none."""
    name = f'/{topic.lstrip("/")}'
    if name in topics:
        return name
    ends = [one for one in topics if one.endswith(name)]
    return ends[0] if len(ends) == 1 else ''


def missing(topic: str, topics: dict[str, str], domain: int, waited_s: float) -> str:
    """Return the words for a topic that nobody publishes."""
    last = topic.rpartition('/')[2]
    ends = tuple(f'/{one}' for one in (last, *PUBLISHED))
    near = sorted(one for one in topics if one.endswith(ends))
    there = f'published are, among others: {", ".join(near)}' if near else (
        'no topic of this package is published: start a node, for example with `ros2 launch '
        'vjepa_ros vjepa.launch.py`, or activate the one that runs (`vjepa-ros top` shows its '
        'state), and compare ROS_DOMAIN_ID')
    return (f"nobody publishes '{topic}' in ROS domain {domain} (waited {waited_s:g} s); {there}")


def echo(args: argparse.Namespace, ros: Listener) -> int:
    """Print until the wanted number of messages has come; the exit code."""
    ros.spin(args.wait, lambda: find(args.topic, ros.topics()))
    topics = ros.topics()
    topic = find(args.topic, topics)
    if not topic:
        return print_error('vjepa-ros echo: ' + missing(args.topic, topics, ros.domain_id,
                                                        args.wait))
    left = [1 if args.once else args.count]

    def take(_: str, msg: Any) -> None:
        if left[0] != 0:
            left[0] -= 1
            values = readable(msg)
            print(json_line(values) if args.json else '---\n' + yaml.safe_dump(
                values, sort_keys=False, allow_unicode=True), end='\n' if args.json else '',
                flush=True)

    ros.subscribe(topic, topics[topic], take)
    said, heard = '', time.monotonic()
    while left[0] != 0:
        before = left[0]
        ros.spin(min(SILENT_S, args.timeout), lambda before=before: left[0] != before)
        if left[0] != before:
            heard = time.monotonic()
            continue
        silence = ros.silence(topic)
        if silence != said:
            said = silence
            print_error(f'vjepa-ros echo: {silence}')
        if time.monotonic() - heard >= args.timeout:
            return print_error(f'vjepa-ros echo: no message within --timeout {args.timeout:g}')
    return 0


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog='vjepa-ros echo', description=__doc__)
    parser.add_argument('topic', metavar='TOPIC', help='its name, or the end of the name of only '
                        'one topic, such as front/assessment')
    parser.add_argument('--json', action='store_true', help='one line of JSON for each message: '
                        'null is unknown, "inf" infinite (default: YAML)')
    parser.add_argument('--once', action='store_true', help='end after one message')
    parser.add_argument('--count', type=whole(1), default=-1, metavar='N',
                        help='end after N messages')
    parser.add_argument('--wait', type=positive, default=5.0, metavar='S',
                        help='how long to wait for a publisher (default: %(default)g)')
    parser.add_argument('--timeout', type=positive, default=math.inf, metavar='S',
                        help='end with exit code 1 where no message comes for so long (default: '
                        'say why, and wait on)')
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 when the wanted messages were printed, or after Ctrl-C."""
    args = make_parser().parse_args(argv)
    problem = ros_problem()
    if problem:
        return print_error(f'vjepa-ros echo: {problem}', Console(stderr=True))
    from vjepa_ros.ros.listener import ListenError, Listener

    try:
        with Listener('vjepa_ros_echo') as ros:
            return echo(args, ros)
    except ListenError as error:
        return print_error(f'vjepa-ros echo: {error}')
    except KeyboardInterrupt:
        return 0
    except BrokenPipeError:      # of `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
