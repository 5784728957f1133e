# SPDX-License-Identifier: Apache-2.0
"""Write the parameter tables of both nodes into the README."""

from __future__ import annotations

import sys
from pathlib import Path

from vjepa_ros.ros.source_table import SOURCE_TABLE
from vjepa_ros.ros.table import TABLE, Param, camera_rows, markdown

BLOCKS: dict[str, tuple[Param, ...]] = {'parameters': (*TABLE, *camera_rows('NAME')),
                                        'source-parameters': SOURCE_TABLE}


def fill(text: str) -> str:
    """The README with its tables made anew (ValueError when a mark is missing)."""
    for name, rows in BLOCKS.items():
        begin, end = f'<!-- {name}:begin -->\n', f'<!-- {name}:end -->'
        if begin not in text or end not in text:
            raise ValueError(f'the README has no block between {begin.strip()} and {end}')
        before, rest = text.split(begin, 1)
        text = before + begin + markdown(rows) + end + rest.split(end, 1)[1]
    return text


def main(argv: list[str]) -> int:
    """Rewrite README.md (or the file given); 0 when done."""
    path = Path(argv[0] if argv else 'README.md')
    path.write_text(fill(path.read_text()))
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
