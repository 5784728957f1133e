# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Write the parameter tables of all nodes into docs/parameters.md."""

from __future__ import annotations

import sys
from pathlib import Path

from vjepa_ros.lab.report.document_blocks import fill
from vjepa_ros.ros.action_planner.parameter_table import PLANNER_TABLE
from vjepa_ros.ros.collision_guard.parameter_table import GUARD_TABLE, range_rows, source_rows
from vjepa_ros.ros.common.source_table import SOURCE_TABLE
from vjepa_ros.ros.perception_node.parameter_table import TABLE, Param, camera_rows, markdown
from vjepa_ros.ros.twist_planner.parameter_table import TWIST_TABLE
from vjepa_ros.ros.twist_planner.parameter_table import source_rows as twist_source_rows

BLOCKS: dict[str, dict[str, tuple[Param, ...]]] = {
    'docs/parameters.md': {
        'vjepa_node': (*TABLE, *camera_rows('NAME')),
        'collision_guard': (*GUARD_TABLE, *source_rows('NAME'), *range_rows('RANGE')),
        'twist_planner': (*TWIST_TABLE, *twist_source_rows('NAME')),
        'action_planner': PLANNER_TABLE,
        'camera_source': SOURCE_TABLE,
    },
}


def main(argv: list[str]) -> int:
    """Rewrite the tables below the folder given, or here; 0 when done."""
    folder = Path(argv[0] if argv else '.')
    for name, blocks in BLOCKS.items():
        text = (folder / name).read_text(encoding='utf-8')
        for block, rows in blocks.items():
            text = fill(text, block, markdown(rows))
        (folder / name).write_text(text, encoding='utf-8')
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
