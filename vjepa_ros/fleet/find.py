# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Rank moments by their likeness to an example: exact cosine of embeddings, with NumPy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vjepa_ros.fleet.tables import read_rows

PLACE = ('bag', 'topic', 'camera', 'at_s', 'stamp_ns')


@dataclass(frozen=True)
class Moment:
    """A row that was found."""

    bag: str
    topic: str
    camera: str
    at_s: float
    stamp_ns: int
    likeness: float  # cosine of its embedding and that of the example, -1..1


class Span(NamedTuple):
    """A time of a camera, of a recording [s]."""

    bag: str
    topic: str
    begin_s: float
    end_s: float

    def holds(self, bag: str, topic: str, at_s: Any) -> Any:
        """Return whether a moment, or each of several of one camera, lies in it."""
        return ((bag, topic) == self[:2]) & (self.begin_s <= at_s) & (at_s <= self.end_s)


NOWHERE = Span('', '', 0.0, 0.0)


def search(files: Sequence[Path], example: np.ndarray, count: int, apart_s: float,
           besides: Span = NOWHERE) -> list[Moment]:
    """Return the moments most like an example (D,), the best first.

    Embeddings are standardised over the results: what all moments share, such as the camera
    itself, does not tell them apart. The files are read one after the other, twice: of all rows
    only the likeness stays in memory. Of moments of a camera closer than `apart_s` only the best
    counts.
    """
    total, squares, rows = np.zeros(len(example)), np.zeros(len(example)), 0
    for file in files:
        embeddings = _embeddings(file, len(example))
        total += embeddings.sum(axis=0, dtype=np.float64)
        squares += np.square(embeddings, dtype=np.float64).sum(axis=0)
        rows += len(embeddings)
    if not rows:
        raise ValueError('the results have no embeddings; score with --embeddings')
    centre = total / rows
    scale = np.maximum(np.sqrt(np.maximum(squares / rows - centre ** 2, 0.0)), 1e-6)
    one = (example - centre) / scale
    moments: list[Moment] = []
    for file in files:
        standard = (_embeddings(file, len(example)) - centre) / scale
        likeness = standard @ one / np.maximum(
            np.linalg.norm(standard, axis=1) * np.linalg.norm(one), 1e-12)
        table = read_rows([file], PLACE)
        found = (Moment(**{name: table[name][int(n)].as_py() for name in PLACE},
                        likeness=float(likeness[n]))
                 for n in np.argsort(-likeness, kind='stable'))
        # Enough of each file, whatever of the others is better.
        moments += _spread((m for m in found if not besides.holds(m.bag, m.topic, m.at_s)),
                           count, apart_s)
    return _spread(sorted(moments, key=lambda m: -m.likeness), count, apart_s)


def _embeddings(file: Path, size: int) -> np.ndarray:
    """Return the embeddings of a file, (N, D) float32; ValueError for those of another model."""
    column = read_rows([file], ['embedding'])['embedding'].combine_chunks()
    if column.null_count == len(column):
        return np.empty((0, size), np.float32)
    values = column.flatten().to_numpy(zero_copy_only=False)
    if len(values) != size * len(column):
        raise ValueError(f"'{file}' has embeddings of {len(values) // len(column)} numbers, the "
                         f'example has {size}; they must come from the same weights')
    return values.reshape(-1, size)


def _spread(moments: Iterable[Moment], count: int, apart_s: float) -> list[Moment]:
    """Return the first moments, without those close to a better one of their camera."""
    taken: list[Moment] = []
    for moment in moments:
        if all((t.bag, t.topic) != (moment.bag, moment.topic)
               or abs(t.at_s - moment.at_s) >= apart_s for t in taken):
            taken.append(moment)
            if len(taken) == count:
                break
    return taken
