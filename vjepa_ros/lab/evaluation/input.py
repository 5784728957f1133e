# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Read from the command line what is to be evaluated and what is known to be true there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vjepa_ros.sources import SourceError, SourceFrame

MARKS = {
    '': 'the truth is what the recording itself brings (labels.csv), or nothing',
    'negative': 'no collision is imminent in any frame, and nothing else is known',
    'still': 'neither camera nor scene moves: no collision, nothing comes nearer',
    'dark': 'one dark thing before a bright ground, whose size in the picture tells how near it '
            'is; the camera stands still',
}


@dataclass(frozen=True)
class Item:
    """One recording to evaluate.

    Attributes
    ----------
    path
        As for `vjepa_ros.sources.open_source`.
    mark
        A key of `MARKS`.
    name
        Of the sequence in tables and files; unique.
    """

    path: str
    mark: str
    name: str

    def truth(self, frame: SourceFrame) -> tuple[float, float]:
        """(collision 0/1/NaN, time to contact [s] or NaN) of one of its frames."""
        known = frame.truth or {}
        collision, ttc = known.get('collision'), known.get('time_to_contact_s')
        collision = math.nan if collision is None else float(collision)
        ttc = math.nan if ttc is None else float(ttc)
        if self.mark in ('negative', 'still'):
            if collision == 1:
                raise SourceError(
                    f"'{self.path}' is given as '::{self.mark}', but its labels say that a "
                    f'collision is imminent at {frame.stamp_ns * 1e-9:.3f} s; leave the mark out')
            collision = 0.0
        if self.mark == 'still':
            ttc = math.inf
        if ttc <= 0:
            raise SourceError(
                f"'{self.path}': time_to_contact_s is {ttc:g} at stamp "
                f'{frame.stamp_ns * 1e-9:.3f} s, must be above 0, inf (nothing comes nearer) '
                'or empty (unknown)')
        return collision, ttc


def read_items(words: Sequence[str]) -> list[Item]:
    """Paths with optional marks, such as ``motorway.mp4::negative``.

    Raises
    ------
    SourceError
        For a mark that is not known.
    """
    items: list[Item] = []
    for word in words:
        path, _, mark = word.partition('::')
        if mark not in MARKS:
            known = '; '.join(f'::{m} ({text})' for m, text in MARKS.items() if m)
            raise SourceError(f"'{word}' has the unknown mark '::{mark}'; there are {known}")
        stem = Path(path.rstrip('/')).stem or path
        taken = {item.name for item in items}
        name, number = stem, 2
        while name in taken:
            name, number = f'{stem}-{number}', number + 1
        items.append(Item(path, mark, name))
    return items
