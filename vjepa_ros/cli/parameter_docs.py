# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Write the parameters of the nodes into docs/parameters.md and the files of ``config/``."""

from __future__ import annotations

import re
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import yaml

from vjepa_ros.lab.report.page import fill
from vjepa_ros.parameter import BACKGROUND, CONFIGURE, KINDS, LIVE, Param, STARTUP, Schema
from vjepa_ros.ros.collision_guard.parameters import SCHEMA as GUARD
from vjepa_ros.ros.collision_guard.parameters import range_rows, source_rows
from vjepa_ros.ros.command_watchdog import SCHEMA as WATCHDOG
from vjepa_ros.ros.local_planner.parameters import SCHEMA as TWIST
from vjepa_ros.ros.perception_node.parameters import SCHEMA as PERCEPTION
from vjepa_ros.ros.sim.parameters import SOURCE

WIDTH, COLUMN = 99, 36       # of the file, and where comments begin
INDENT = '    '
EFFECTS = {LIVE: 'Changes act at once.', CONFIGURE: 'Takes effect at the next configure.',
           BACKGROUND: 'A change is made ready in the background, then swapped in.',
           STARTUP: 'Read when the node starts.'}
# Each file with its parameters, and the text above them.
FILES: dict[str, tuple[Schema, str]] = {
    'default.yaml': (PERCEPTION, """\
All parameters of the perception node with their defaults. Copy this file, or keep only the lines
that you change:
  ros2 launch vjepa_ros vjepa.launch.py params_file:=/path/to/mine.yaml
"""),
    'collision_guard.yaml': (GUARD, """\
All parameters of collision_guard, between controller and base; docs/guard.md explains them.
  ros2 launch vjepa_ros guarded.launch.py guard_params_file:=/path/to/mine.yaml
It reads cmd_vel_in and publishes cmd_vel_out: remap both (launch arguments do).
With a second camera, sources: [camera, rear], there is also rear.direction: backward.
"""),
    'local_planner.yaml': (TWIST, """\
All parameters of local_planner, between controller and collision_guard; see docs/planning.md.
  ros2 launch vjepa_ros guarded.launch.py planner:=true planner_params_file:=/path/to/mine.yaml
It reads cmd_vel_in and publishes cmd_vel_out; cmd_vel_sent is what the guard sends to the base.
Remap all three (the launch file does). It plans and does not guard: a guard belongs behind it.
With a second camera, sources: [camera, rear], there are also rear.yaw: 3.1415 and rear.x: -0.3.
"""),
}
FOOT = """\
Written by python -m vjepa_ros.cli.parameter_docs. In square brackets: what is allowed, and the
unit. Values are what is written here: nothing resolves $(...) in a parameter file.
"""
PAGE = 'docs/parameters.md'
TABLES: dict[str, tuple[Param, ...]] = {
    'vjepa_node': (*PERCEPTION.rows, *PERCEPTION.rows_of('NAME')),
    'collision_guard': (*GUARD.rows, *source_rows('NAME'), *range_rows('RANGE')),
    'local_planner': (*TWIST.rows, *TWIST.rows_of('NAME')),
    'command_watchdog': WATCHDOG.rows,
    'camera_source': SOURCE.rows,
}


def yaml_text(schema: Schema, above: str) -> str:
    """Return a YAML file of all parameters of a node with their defaults."""
    lines = [f'# {line}' for line in (above + FOOT).splitlines()] + ['/**:', '  ros__parameters:']
    for title, rows in schema.sections.items():
        effect = Counter(row.effect for row in rows).most_common(1)[0][0]
        lines += ['', f'{INDENT}# --- {title}. {EFFECTS[effect]} ---']
        for row in rows:
            lines += _lines(row, effect)
            if row.name in schema.lists:
                lines.append(f'{INDENT}# For each name in {row.name}:')
                # Comments: a file that sets them warns wherever the names are other ones.
                for name in row.default or ('NAME',):
                    for one in schema.lists[row.name](name):
                        lines += _lines(replace(one, name=f'# {one.name}'), effect)
    return '\n'.join(lines).replace('ros__parameters:\n\n', 'ros__parameters:\n') + '\n'


def _lines(row: Param, usual: str) -> list[str]:
    """Return a parameter with its default, and its description beside it."""
    default = list(row.default) if isinstance(row.default, tuple) else row.default
    shown = yaml.safe_dump(default, default_flow_style=True, width=10_000).splitlines()[0]
    start = f'{INDENT}{row.name}: '
    values = textwrap.wrap(start + shown, WIDTH, subsequent_indent=' ' * (len(start) + 1),
                           break_on_hyphens=False)
    told = row.choices and all(re.search(rf'\b{re.escape(word)}\b', row.text)
                               for word in row.choices)
    allowed = ' '.join(filter(None, ('' if told else row.range_text, row.unit)))
    note = row.text + (f' [{allowed}]' if allowed else '')
    if row.effect != usual:
        note += f'. {EFFECTS[row.effect]}'
    notes = textwrap.wrap(note, WIDTH - COLUMN - len('# '), break_on_hyphens=False)
    if len(values[-1]) < COLUMN:
        values[-1] = f'{values[-1]:<{COLUMN}}# {notes.pop(0)}'
    aside = INDENT + '#' * row.name.startswith('#')
    return [*values, *(f'{aside:<{COLUMN}}# {line}' for line in notes)]


def markdown(rows: Iterable[Param]) -> str:
    """Return rows as a Markdown table."""
    lines = ['| Parameter | Type | Default | Allowed | Unit | Effect | Meaning |',
             '|---|---|---|---|---|---|---|']
    for row in rows:
        default = list(row.default) if isinstance(row.default, tuple) else row.default
        shown = str(default).lower() if row.kind is bool else repr(default)
        lines.append(f'| `{row.name}` | {KINDS[row.kind]} | `{shown}` | {row.range_text} | '
                     f'{row.unit} | {row.effect} | {row.text} |')
    return '\n'.join(lines) + '\n'


def page(text: str) -> str:
    """Return the page of parameters with its tables."""
    for name, rows in TABLES.items():
        text = fill(text, name, markdown(rows))
    return text


def main(argv: list[str]) -> int:
    """Rewrite the page and the files below the folder given, or here; 0 when done."""
    folder = Path(argv[0] if argv else '.')
    made = folder / PAGE
    made.write_text(page(made.read_text(encoding='utf-8')), encoding='utf-8')
    for name, content in FILES.items():
        (folder / 'config' / name).write_text(yaml_text(*content), encoding='utf-8')
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
