# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Keep the embeddings of a run as a LanceDB table with an index, for searches among millions.

Needs the Python package ``lancedb`` (https://github.com/lancedb/lancedb), the extra ``lance``.
"""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vjepa_ros.fleet.similarity import (
    Moment,
    NOWHERE,
    PLACE,
    Span,
    embeddings_of,
    spread,
    standard_of,
    standardised,
)
from vjepa_ros.fleet.tables import arrow, read_rows

FOLDER, TABLE = 'lance', 'moments'     # of the results, and in it
FACTS = 'vjepa_ros.json'
INDEXED = 100_000        # rows from which on there is an index; fewer are compared one by one
PROBES, REFINED = 40, 10     # parts of the index that are read; candidates compared exactly
NEIGHBOURS = 50          # rows around a moment that are as much like the example


def lancedb() -> Any:
    """Import LanceDB; ValueError with the remedy where it is missing."""
    try:
        return importlib.import_module('lancedb')
    except ImportError as error:
        raise ValueError('embeddings in Lance, and searches among more than a million, need '
                         f'LanceDB ({error}): pip install lancedb') from error


def write_lance(results: Path, files: Sequence[Path]) -> int:
    """Write the table of a run, unless it is there already, and return its rows."""
    names = [file.name for file in files]
    facts = _facts(results)
    if facts and facts['files'] == names:
        return facts['rows']
    draft = results / f'.{FOLDER}.tmp'
    shutil.rmtree(draft, ignore_errors=True)
    size = next((len(found) for file in files if (found := _first(file)) is not None), 0)
    centre, scale = standard_of(files, size)
    table = lancedb().connect(draft).create_table(
        TABLE, _batches(files, centre, scale), schema=_schema(size))
    rows = table.count_rows()
    if rows >= INDEXED:
        index = importlib.import_module('lancedb.index')
        table.create_index('vector', config=index.IvfPq(distance_type='cosine'))
    (draft / FACTS).write_text(json.dumps({
        'files': names, 'rows': rows, 'centre': centre.tolist(), 'scale': scale.tolist()}))
    shutil.rmtree(results / FOLDER, ignore_errors=True)
    draft.rename(results / FOLDER)
    return rows


def search_lance(results: Path, files: Sequence[Path], example: np.ndarray, count: int,
                 apart_s: float, besides: Span = NOWHERE) -> list[Moment]:
    """Return the moments most like an example, as `vjepa_ros.fleet.similarity.search` does.

    From `INDEXED` rows on the index chooses candidates, so that one may be missed.
    """
    facts = _facts(results)
    if not facts or facts['files'] != [file.name for file in files]:
        raise ValueError('among so many moments a search needs a table in Lance: give the command '
                         'of these results again with --embeddings lance; nothing is scored twice')
    centre, scale = np.array(facts['centre']), np.array(facts['scale'])
    if len(centre) != len(example):
        raise ValueError(f'the results have embeddings of {len(centre)} numbers, the example has '
                         f'{len(example)}; they must come from the same weights')
    table = lancedb().connect(results / FOLDER).open_table(TABLE)
    one = standardised(example, centre, scale).astype(np.float32)
    limit = NEIGHBOURS * count
    while True:
        found = table.search(one).distance_type('cosine').nprobes(PROBES).refine_factor(
            REFINED).limit(limit).select([*PLACE, '_distance']).to_arrow().to_pylist()
        moments = spread((Moment(likeness=1.0 - row.pop('_distance'), **row) for row in found
                          if not besides.holds(row['bag'], row['topic'], row['at_s'])),
                         count, apart_s)
        if len(moments) == count or len(found) < limit:
            return moments
        limit *= 4


def _facts(results: Path) -> dict[str, Any]:
    file = results / FOLDER / FACTS
    return json.loads(file.read_text()) if file.is_file() else {}


def _first(file: Path) -> list[float] | None:
    return next((one for one in read_rows([file], ['embedding'])['embedding'].to_pylist()
                 if one is not None), None)


def _schema(size: int) -> Any:
    pa = arrow()
    text, types = pa.string(), {'at_s': pa.float64(), 'stamp_ns': pa.int64()}
    return pa.schema([*((name, types.get(name, text)) for name in PLACE),
                      ('vector', pa.list_(pa.float32(), size))])


def _batches(files: Sequence[Path], centre: np.ndarray, scale: np.ndarray) -> Iterator[Any]:
    """Yield the rows of each file with their standardised embeddings."""
    pa = arrow()
    schema = _schema(len(centre))
    for file in files:
        embeddings = embeddings_of(file, len(centre))
        if not len(embeddings):
            continue
        table = read_rows([file], PLACE)
        vectors = standardised(embeddings, centre, scale).astype(np.float32)
        columns = [table[name].combine_chunks().cast(schema.field(name).type) for name in PLACE]
        columns.append(pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)),
                                                         len(centre)))
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
