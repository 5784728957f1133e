# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Write the parameters of the nodes into docs/parameters.md and the files of ``config/``."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from vjepa_ros.cli import parameter_files
from vjepa_ros.lab.report.document_blocks import fill
from vjepa_ros.ros.action_planner.parameters import SCHEMA as ACTION
from vjepa_ros.ros.collision_guard.parameters import SCHEMA as GUARD
from vjepa_ros.ros.collision_guard.parameters import range_rows, source_rows
from vjepa_ros.ros.common.parameter import KINDS, Param
from vjepa_ros.ros.perception_node.parameters import SCHEMA as PERCEPTION
from vjepa_ros.ros.sim.parameters import SOURCE
from vjepa_ros.ros.twist_planner.parameters import SCHEMA as TWIST

BLOCKS: dict[str, dict[str, tuple[Param, ...]]] = {
    'docs/parameters.md': {
        'vjepa_node': (*PERCEPTION.rows, *PERCEPTION.rows_of('NAME')),
        'collision_guard': (*GUARD.rows, *source_rows('NAME'), *range_rows('RANGE')),
        'twist_planner': (*TWIST.rows, *TWIST.rows_of('NAME')),
        'action_planner': ACTION.rows,
        'camera_source': SOURCE.rows,
    },
}


def markdown(rows: Iterable[Param]) -> str:
    """Rows as a table."""
    lines = ['| Parameter | Type | Default | Allowed | Unit | Effect | Meaning |',
             '|---|---|---|---|---|---|---|']
    for row in rows:
        default = list(row.default) if isinstance(row.default, tuple) else row.default
        shown = str(default).lower() if row.kind is bool else repr(default)
        lines.append(f'| `{row.name}` | {KINDS[row.kind]} | `{shown}` | {row.range_text} | '
                     f'{row.unit} | {row.effect} | {row.text} |')
    return '\n'.join(lines) + '\n'


def main(argv: list[str]) -> int:
    """Rewrite documents and files below the folder given, or here; 0 when done."""
    folder = Path(argv[0] if argv else '.')
    for name, blocks in BLOCKS.items():
        text = (folder / name).read_text(encoding='utf-8')
        for block, rows in blocks.items():
            text = fill(text, block, markdown(rows))
        (folder / name).write_text(text, encoding='utf-8')
    parameter_files.write(folder / 'config')
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
