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

    # bag, topic, camera, at_s, stamp_ns: as in the row
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


def cosine(embeddings: np.ndarray, example: np.ndarray, centre: np.ndarray,
           scale: np.ndarray) -> np.ndarray:
    """Return the cosines (N,) of embeddings (N, D) and an example (D,), both standardised.

    What all moments share, such as the camera itself, does not tell them apart: centre and scale
    (D,) are mean and standard deviation of what is searched.
    """
    rows, one = (standardised(vectors, centre, scale) for vectors in (embeddings, example))
    length = np.linalg.norm(rows, axis=1) * np.linalg.norm(one)
    return rows @ one / np.maximum(length, 1e-12)


def standardised(vectors: np.ndarray, centre: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return vectors (..., D) less their centre (D,), over their scale (D,)."""
    return (vectors - centre) / np.maximum(scale, 1e-6)


def standard_of(files: Sequence[Path], size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation (D,) of the embeddings of files, read one by one."""
    total, squares, rows = np.zeros(size), np.zeros(size), 0
    for file in files:
        embeddings = embeddings_of(file, size)
        total += embeddings.sum(axis=0, dtype=np.float64)
        squares += np.square(embeddings, dtype=np.float64).sum(axis=0)
        rows += len(embeddings)
    if not rows:
        raise ValueError('the results have no embeddings; score with --embeddings')
    centre = total / rows
    return centre, np.sqrt(np.maximum(squares / rows - centre ** 2, 0.0))


def search(files: Sequence[Path], example: np.ndarray, count: int, apart_s: float,
           besides: Span = NOWHERE) -> list[Moment]:
    """Return the moments most like an example, the best first.

    The files are read one after the other, twice: of all rows only the likeness stays in memory.

    `example`: (D,) embedding; `apart_s`: of moments of a camera closer than this only the best
    counts [s].
    """
    centre, scale = standard_of(files, len(example))
    moments: list[Moment] = []
    for file in files:
        embeddings = embeddings_of(file, len(example))
        if not len(embeddings):
            continue
        likeness = cosine(embeddings, example, centre, scale)
        table = read_rows([file], PLACE)
        at_s = table['at_s'].to_numpy()
        bag, topic = (table[name][0].as_py() for name in ('bag', 'topic'))     # of all rows
        rows = np.flatnonzero(~besides.holds(bag, topic, at_s))
        # Enough of each file, whatever of the others is better.
        for n in rows[_peaks(likeness[rows], at_s[rows], count, apart_s)]:
            place = {name: table[name][int(n)].as_py() for name in PLACE}
            moments.append(Moment(**place, likeness=float(likeness[n])))
    return spread(sorted(moments, key=lambda m: -m.likeness), count, apart_s)


def embeddings_of(file: Path, size: int) -> np.ndarray:
    """Return the embeddings of a file, (N, D) float32; ValueError for those of another model."""
    column = read_rows([file], ['embedding'])['embedding'].combine_chunks()
    if column.null_count == len(column):
        return np.empty((0, size), np.float32)
    values = column.flatten().to_numpy(zero_copy_only=False)
    if len(values) != size * len(column):
        raise ValueError(f"'{file}' has embeddings of {len(values) // len(column)} numbers, the "
                         f'example has {size}; they must come from the same weights')
    return values.reshape(-1, size)


def _peaks(likeness: np.ndarray, at_s: np.ndarray, count: int, apart_s: float) -> list[int]:
    taken: list[int] = []
    for n in np.argsort(-likeness, kind='stable'):
        if all(abs(at_s[n] - at_s[t]) >= apart_s for t in taken):
            taken.append(int(n))
            if len(taken) == count:
                break
    return taken


def spread(moments: Iterable[Moment], count: int, apart_s: float) -> list[Moment]:
    """Return the first moments, without those close to a better one of their camera."""
    taken: list[Moment] = []
    for moment in moments:
        if all((t.bag, t.topic) != (moment.bag, moment.topic)
               or abs(t.at_s - moment.at_s) >= apart_s for t in taken):
            taken.append(moment)
            if len(taken) == count:
                break
    return taken
