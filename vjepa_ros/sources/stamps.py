# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Find when the pictures of a folder were taken: in a table beside them, or in their names."""

from __future__ import annotations

import itertools
import logging
import re
from datetime import datetime, timezone
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from vjepa_ros.sources.base import MAX_STAMP_S, SourceError, inside, read_text

IMAGE_SUFFIXES = ('.png', '.jpg', '.jpeg', '.bmp', '.tif', '.tiff', '.webp', '.pgm', '.ppm')
# Of EuRoC, TUM, this package, KITTI raw and KITTI odometry.
TABLES = ('data.csv', 'rgb.txt', 'stamps.csv', 'timestamps.txt', 'times.txt')
PLACES = ('', 'data', 'frames', 'rgb', 'images')     # of pictures, beside a table
UNITS = {'ns': 9, 'us': 6, 'µs': 6, 'ms': 3, 's': 0, 'sec': 0, 'seconds': 0}
UNIT = re.compile(r'(?:\[|_|^)(ns|us|µs|ms|s|sec|seconds)\]?$')
DATE = re.compile(r'(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(\.\d+)?')
# A time since 1970 in s, ms, µs or ns at the end of a name, or seconds with their fraction.
EPOCH = re.compile(r'(?:^|.*[^\d.])(\d{10}|\d{13}|\d{16}|\d{19})'
                   r'(?:\.(\d+)|[_-](\d{3}|\d{6}|\d{9}))?')
SECONDS = re.compile(r'\d{1,9}\.\d{2,9}')
EPOCH_S = 1e9, 2e9       # years 2001 to 2033; dates such as 2026113012 are above
MOST_OTHERS = 0.1        # of the pictures may have other names
_log = logging.getLogger(__name__)
Stamped = list[tuple[Path, int]]


def natural_key(path: Path) -> list[Any]:
    """Return a sorting key that puts ``frame2`` before ``frame10``."""
    return [(0, int(part), '') if part.isdecimal() else (1, 0, part)
            for part in re.split(r'(\d+)', path.name.lower()) if part]


def images_in(folder: Path) -> list[Path]:
    """Return the pictures directly in a folder, in natural order."""
    return sorted((p for p in folder.iterdir() if p.suffix.lower() in IMAGE_SUFFIXES
                   and not p.name.startswith('.')), key=natural_key)


def has_table(folder: Path) -> bool:
    """Return whether a folder has a table of stamps and pictures that may belong to it."""
    return any((folder / name).exists() for name in TABLES) and _place(folder) is not None


def _place(folder: Path) -> Path | None:
    return next((folder / name for name in PLACES
                 if (folder / name).is_dir() and images_in(folder / name)), None)


def stamped(folder: Path) -> Stamped:
    """Return the pictures of a folder with their stamps [ns], in order; nothing without stamps."""
    place = _place(folder)
    if place is None:
        return []
    for home in dict.fromkeys((folder, place.parent, folder.parent)):
        for table in (home / name for name in TABLES):
            if table.exists() and (found := _by_table(table, place, home in (folder, place))):
                return found
    return _by_names(images_in(place))


def _by_table(table: Path, place: Path, own: bool) -> Stamped:
    """Return the pictures of a table; nothing where one of another folder does not fit."""
    rows, pictures = _read(table), images_in(place)
    if not any(name for _, name, _ in rows):
        if len(rows) != len(pictures) and own:
            raise SourceError(f"'{table}' has {len(rows)} stamps for {len(pictures)} pictures in "
                              f"'{place}'; correct it, or remove it and give the rate (--rate)")
        found = [(path, stamp, where) for path, (stamp, _, where)
                 in zip(pictures, rows, strict=False)] if len(rows) == len(pictures) else []
    else:
        found = [(path, stamp, where) for stamp, name, where in rows
                 if (path := picture_path(table.parent, name, where, PLACES)) is not None
                 and (own or path.parent.resolve() == place.resolve())]
        if not found and own:
            raise SourceError(f"'{table}' lists {len(rows)} pictures, and none is there; the "
                              f"first is '{rows[0][1]}'")
        if found and (len(found) < len(rows) or len(found) < len(pictures)):
            _log.warning("'%s' lists %d pictures, and '%s' has %d: played are the %d in both",
                         table, len(rows), place, len(pictures), len(found))
    for (_, before, _), (path, stamp, where) in itertools.pairwise(found):
        if stamp <= before:
            raise SourceError(f"{where}: the stamp of '{path.name}' is not after the one before")
    return [(path, stamp) for path, stamp, _ in found]


def _read(table: Path) -> list[tuple[int, str, str]]:
    """Return stamp [ns], name of the picture or '', and line of each row."""
    heading: list[str] = []
    rows = []
    for number, line in enumerate(read_text(table).splitlines(), 1):
        text = line.strip().lstrip('#').strip()
        cells = [cell.strip() for cell in text.split(',')] if ',' in text else text.split()
        if line.lstrip().startswith('#') or not any(cell[:1] in '-.0123456789' for cell in cells):
            heading = cells if any(map(_is_time, cells)) else heading
        elif cells:
            where = f"'{table}' line {number}"
            rows.append((_stamp(text, cells, heading, where), next(
                (c for c in cells if Path(c).suffix.lower() in IMAGE_SUFFIXES), ''), where))
    if not rows:
        raise SourceError(f"'{table}' has no rows")
    return rows


def _is_time(cell: str) -> bool:
    return any(word in cell.lower() for word in ('time', 'stamp', 'seconds'))


def _stamp(text: str, cells: list[str], heading: list[str], where: str) -> int:
    """Return the stamp of a row [ns]."""
    if date := DATE.search(text):
        at = datetime.fromisoformat(f'{date[1]}T{date[2]}').replace(tzinfo=timezone.utc)
        return int(at.timestamp()) * 10**9 + int(Decimal(date[3] or 0) * 10**9)
    column = next((n for n, cell in enumerate(heading) if _is_time(cell)), 0)
    # Of `# timestamp [ns], filename` the unit is a cell of its own where spaces part them.
    unit = next((UNITS[found[1]] for cell in heading[column:column + 2]
                 if (found := UNIT.search(cell.lower()))), None)
    try:
        value = Decimal(cells[column])
        if unit is None:      # by its size, as of times since 1970
            unit = max(0, (len(str(int(abs(value)))) - 9) // 3 * 3)
        if abs(value).scaleb(-unit) < MAX_STAMP_S:       # neither NaN nor infinite
            return round(value.scaleb(9 - unit))
    except (InvalidOperation, IndexError, ValueError, OverflowError):
        pass
    raise SourceError(f"{where}: '{cells[min(column, len(cells) - 1)][:40]}' is no time")


def picture_path(folder: Path, name: str, where: str, places: tuple[str, ...]) -> Path | None:
    """Return the path of a picture that a line names, inside of a folder; None if not there."""
    paths = [folder / place / name for place in places]
    try:
        path = next((path for path in paths if path.exists()), paths[0])
        there, within = path.exists(), inside(path, folder)
    except (OSError, ValueError, RuntimeError) as error:   # too long, a NUL, links in a circle
        raise SourceError(f"{where}: picture '{name[:100]}' is not a valid name: {error}; "
                          'correct the name') from error
    if Path(name).is_absolute() or '..' in Path(name).parts or not within:
        raise SourceError(f"{where}: picture '{name}' is outside of the recording; put it into "
                          f"'{path.parent}' and name it without a path")
    return path if there else None


def _by_names(paths: list[Path]) -> Stamped:
    """Return pictures whose names end with their times; nothing where they are counted."""
    found = sorted(((path, stamp) for path in paths if (stamp := _of_name(path.stem)) is not None),
                   key=lambda one: one[1])
    if len(found) < 2 or len(paths) - len(found) > MOST_OTHERS * len(paths):
        return []
    for (path, stamp), (other, following) in itertools.pairwise(found):
        if stamp == following:
            raise SourceError(f"'{path}' and '{other.name}' have the same stamp; give a folder "
                              'with the pictures of one camera')
    if others := [path.name for path in paths if _of_name(path.stem) is None]:
        _log.warning("'%s': left out is %s, whose name has no stamp", paths[0].parent,
                     ', '.join(others))
    return found


def _of_name(name: str) -> int | None:
    if SECONDS.fullmatch(name):
        return round(Decimal(name) * 10**9)
    if (match := EPOCH.fullmatch(name)) is None:
        return None
    whole, digits = match[1], match[2] or match[3] or ''
    if match[3] and len(whole) > 10:
        return None
    exponent = 9 - (len(whole) - 10)
    stamp = int(Decimal(f'{whole}.{digits or 0}').scaleb(exponent))
    return stamp if EPOCH_S[0] <= stamp / 1e9 < EPOCH_S[1] else None
