# SPDX-License-Identifier: Apache-2.0
"""Write the parameter tables of both nodes into the README."""

from __future__ import annotations

import sys
from pathlib import Path

from vjepa_ros.ros.source_table import SOURCE_TABLE
from vjepa_ros.ros.table import TABLE, Param, camera_rows, markdown
from vjepa_ros.tools.blocks import fill

BLOCKS: dict[str, tuple[Param, ...]] = {'parameters': (*TABLE, *camera_rows('NAME')),
                                        'source-parameters': SOURCE_TABLE}


def main(argv: list[str]) -> int:
    """Rewrite README.md (or the file given); 0 when done."""
    path = Path(argv[0] if argv else 'README.md')
    text = path.read_text()
    for name, rows in BLOCKS.items():
        text = fill(text, name, markdown(rows))
    path.write_text(text)
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
