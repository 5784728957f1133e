# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The commands echo and top, which show what running nodes say, as text and as a live table."""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import PurePath
from typing import Any, TYPE_CHECKING

import yaml
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from vjepa_ros.cli.console import positive, print_error, ros_problem, whole
from vjepa_ros.lab.report.live_view import LEVEL_STYLES
from vjepa_ros.perception.types import Assessment, Level
from vjepa_ros.viewer.messages import STAGE, States, Told, json_line, readable

if TYPE_CHECKING:
    from vjepa_ros.ros.listener import Listener

SILENT_S = 3.0           # after which echo says why nothing comes
PUBLISHED = ('assessment', 'obstacles', 'state')      # named where the wanted topic is not there
CONDITION_STYLES = {'ok': 'green', 'warn': 'yellow', 'error': 'bold red', 'stale': 'bold red'}
LATE_S = 3.0             # without a word for longer, a node may be gone: it reports each second
REFRESH_S = 0.25         # of the table in a terminal, and of the list of topics
SETTLE_S = 2.5           # with `--once`: nodes report each second, and results then have a rate


def listening(name: str, use: Callable[[Listener], int]) -> int:
    """Run a command with what listens to the ROS domain; its exit code, 0 after Ctrl-C."""
    if problem := ros_problem():
        return print_error(f'vjepa-ros {name}: {problem}')
    from vjepa_ros.ros.listener import ListenError, Listener

    try:
        with Listener(f'vjepa_ros_{name}') as ros:
            return use(ros)
    except ListenError as error:
        return print_error(f'vjepa-ros {name}: {error}')
    except KeyboardInterrupt:
        return 0
    except BrokenPipeError:      # of `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


# -- echo -----------------------------------------------------------------------------------------

def echo(argv: Sequence[str] | None = None) -> int:
    """Print messages; 0 when the wanted ones were printed, or after Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog='vjepa-ros echo', description='Print the messages of a topic as YAML or JSON lines: '
        'assessments and regions by their names.')
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
    args = parser.parse_args(argv)
    return listening('echo', lambda ros: _echo(args, ros))


def _find(topic: str, topics: dict[str, str]) -> str:
    """Return the published topic that is meant; '' for none."""
    name = f'/{topic.lstrip("/")}'
    if name in topics:
        return name
    ends = [one for one in topics if one.endswith(name)]
    return ends[0] if len(ends) == 1 else ''


def _missing(topic: str, topics: dict[str, str], domain: int, waited_s: float) -> str:
    """Return the words for a topic that nobody publishes."""
    last = topic.rpartition('/')[2]
    ends = tuple(f'/{one}' for one in (last, *PUBLISHED))
    near = sorted(one for one in topics if one.endswith(ends))
    there = f'published are, among others: {", ".join(near)}' if near else (
        'no topic of this package is published: start a node, for example with `ros2 launch '
        'vjepa_ros vjepa.launch.py`, or activate the one that runs (`vjepa-ros top` shows its '
        'state), and compare ROS_DOMAIN_ID')
    return (f"nobody publishes '{topic}' in ROS domain {domain} (waited {waited_s:g} s); {there}")


def _echo(args: argparse.Namespace, ros: Listener) -> int:
    """Print until the wanted number of messages has come; the exit code."""
    ros.spin(args.wait, lambda: _find(args.topic, ros.topics()))
    topics = ros.topics()
    topic = _find(args.topic, topics)
    if not topic:
        return print_error('vjepa-ros echo: ' + _missing(args.topic, topics, ros.domain_id,
                                                        args.wait))
    waiting: deque[Any] = deque()
    ros.subscribe(topic, topics[topic], lambda _, msg: waiting.append(msg))
    left, said, heard = 1 if args.once else args.count, '', time.monotonic()
    while left:
        ros.spin(min(SILENT_S, args.timeout), lambda: waiting)
        if waiting:
            values = readable(waiting.popleft())
            print(json_line(values) if args.json else '---\n' + yaml.safe_dump(
                values, sort_keys=False, allow_unicode=True).rstrip(), flush=True)
            left, heard = left - 1, time.monotonic()
            continue
        silence = ros.silence(topic)
        if silence != said:
            said = silence
            print_error(f'vjepa-ros echo: {silence}')
        if time.monotonic() - heard >= args.timeout:
            return print_error(f'vjepa-ros echo: no message within --timeout {args.timeout:g}')
    return 0


# -- top ------------------------------------------------------------------------------------------

def top(argv: Sequence[str] | None = None) -> int:
    """Show the table; 0 after `--once` or Ctrl-C, 1 when no node reports."""
    parser = argparse.ArgumentParser(
        prog='vjepa-ros top', description='Show a live table of cameras, nodes, guard and '
        'planners: rates, latency, drops, levels.')
    parser.add_argument('--once', action='store_true', help='print the table once and end; '
                        'without a terminal it is printed again and again')
    parser.add_argument('--wait', type=positive, default=10.0, metavar='S',
                        help='how long to wait for the first node (default: %(default)g)')
    args = parser.parse_args(argv)
    return listening('top', lambda ros: _top(args, ros, Console()))


def _top(args: argparse.Namespace, ros: Listener, console: Console) -> int:
    states, begin, first, known = States(), time.monotonic(), 0.0, 0
    title = f'vjepa-ros top · ROS domain {ros.domain_id}'
    live = Live(console=console, get_renderable=lambda: render(states, time.monotonic(), title),
                refresh_per_second=round(1 / REFRESH_S)) \
        if console.is_terminal and not args.once else None

    def take(topic: str, msg: Any) -> None:
        states.take(topic, msg, time.monotonic())

    with live or nullcontext():
        while True:
            for topic, kind in ros.topics().items():
                if states.wants(topic, kind):
                    ros.subscribe(topic, kind, take)
            ros.spin(REFRESH_S)
            now = time.monotonic()
            if len(states.told) > known:     # others may report soon, too
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


def render(states: States, now_s: float, title: str = 'vjepa-ros top') -> RenderableType:
    """Return the whole table at a steady time [s]."""
    rows: list[RenderableType] = []
    nodes = sorted({node for node, part in states.told if part == 'model'})
    for node in nodes:
        rows.append(_node(node, states.told[node, 'model'], now_s))
        if _parts(node, states, 'camera '):      # it has none before it is configured
            rows += [_cameras(node, states, now_s), _stages(node, states)]
        rows.append(Text())
    movers = [(node, part) for node, part in sorted(states.told) if part in ('guard', 'planner')]
    if movers:
        rows.append(_movers(movers, states, now_s))
    if not rows:
        rows.append(Text('no node of this package has reported on /diagnostics yet'))
    return Panel(Group(*rows), title=f'[bold]{title}', border_style='grey50', padding=(0, 1))


def _node(name: str, told: Told, now_s: float) -> RenderableType:
    parts = [told.text('model'), told.text('device'), told.text('precision'),
             told.text('execution')]
    line = Text.assemble((name, 'bold'), '  ', _condition(told, now_s), '  ',
                         (' · '.join(part for part in parts if part), 'cyan'))
    if told.text('trained') == 'False':
        line.append('  ').append(' UNTRAINED ', 'bold black on yellow')
    memory = [f'{label} {told.number(key):.0f} MB' for key, label in (
        ('memory_rss_mb', 'process'), ('model_memory_mb', 'model')) if told.number(key) >= 0]
    parts = [f'memory: {", ".join(memory)}'] if memory else []
    if told.text('weights'):
        parts.append(f'weights: {PurePath(told.text("weights")).name}'
                     + ('' if told.text('heads') else ', no heads'))
    parts += [f'{label}: {told.text(key)}' for key, label in (
        ('errors', 'errors'),
        ('last_error', 'last')) if told.text(key)]
    return Group(line, Text('   '.join(parts), 'grey70'))


def _condition(told: Told, now_s: float) -> Text:
    """Return the message of a status, or that its node has become silent."""
    silent_s = now_s - told.at_s
    if silent_s > LATE_S:
        return Text(f'silent for {silent_s:.0f} s', 'bold red')
    return Text(told.message, CONDITION_STYLES.get(told.level, ''))


def _cameras(node: str, states: States, now_s: float) -> RenderableType:
    # The state, which tells why, must be seen on 80 columns, too.
    table = Table(box=None, padding=(0, 1, 0, 0), header_style='grey70')
    for name in ('camera', 'level', 'contact', 'collides', 'Hz in', 'out', 'ms', 'p95', 'drops'):
        table.add_column(name, justify='left' if name in ('camera', 'level', 'contact')
                         else 'right', no_wrap=True)
    table.add_column('state', min_width=12)
    for part, told in _parts(node, states, 'camera '):
        a, at_s = states.seen.get((node, part), (None, -math.inf))
        if now_s - at_s > LATE_S:
            a = None
        name = a.level.name if a is not None else told.text('level').upper()
        style = LEVEL_STYLES[Level[name]] if name in Level.__members__ else ''
        table.add_row(
            part, Text(f' {name} ', f'bold black on {style}' if a is not None else style),
            _contact(a), _number(a.collision_probability if a is not None else math.nan, 2),
            _number(told.number('rate_in_hz'), 1), _number(told.number('rate_out_hz'), 1),
            _number(told.number('latency_ms_median'), 0),
            _number(told.number('latency_ms_p95'), 0), _dropped(told), _condition(told, now_s))
    return table


def _parts(node: str, states: States, kind: str) -> list[tuple[str, Told]]:
    """Return the names of cameras or sources of a node, with their statuses."""
    return [(part.removeprefix(kind), told) for (owner, part), told in sorted(states.told.items())
            if owner == node and part.startswith(kind)]


def _contact(a: Assessment | None) -> str:
    if a is None or math.isnan(a.time_to_contact):
        return 'unknown'
    if math.isinf(a.time_to_contact):
        return 'none'
    side = '' if math.isnan(a.bearing) else f' {math.degrees(a.bearing):+.0f}°'
    return f'{a.time_to_contact:.1f} s{side}'


def _dropped(told: Told) -> str:
    """Return what was dropped: frames that waited, and clips that were passed over."""
    return '+'.join(f'{told.number(name):.0f}' for name in ('dropped.inbox', 'dropped.skipped')
                    if told.number(name) >= 0)


def _stages(node: str, states: States) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style='grey70')
    table.add_column('camera', no_wrap=True)
    table.add_column('latency by stage, ms (median)')
    for part, told in _parts(node, states, 'camera '):
        found = {name.removeprefix(STAGE): told.number(name) for name in told.values
                 if name.startswith(STAGE)}
        text = Text()
        for name, ms in sorted(found.items(), key=lambda item: -item[1]):
            text.append(f'{name} ', 'grey70').append(
                f'{ms:.1f}   ', 'bold' if ms >= 10 else '')
        if found:
            table.add_row(part, text)
    return table


def _movers(movers: list[tuple[str, str]], states: States, now_s: float) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style='grey70')
    for name in ('node', 'asked', 'sent', 'took ms', 'state'):
        table.add_column(name, no_wrap=name != 'state')
    for node, part in movers:
        told = states.told[node, part]
        table.add_row(node, _motion(told, 'asked'), _motion(told, 'sent'),
                      _number(told.number('choice_ms'), 1), _condition(told, now_s))
        for source, of in _parts(node, states, 'source '):
            table.add_row(Text(f'  {source}', 'grey70'), '', '', '', _condition(of, now_s))
    return table


def _motion(told: Told, name: str) -> str:
    """Return a velocity: ahead [m/s] and turning [rad/s]."""
    ahead, turn = told.number(f'{name}.vx'), told.number(f'{name}.omega')
    return '–' if math.isnan(ahead) else f'{ahead:+.2f} m/s {turn:+.2f} rad/s'


def _number(value: float, digits: int) -> str:
    return '–' if math.isnan(value) else f'{value:.{digits}f}'
