# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Play single pictures, folders of pictures, and recordings with labels.

The pictures of a folder have the stamps of a table beside them, or of their names.
"""

from __future__ import annotations

import io
import itertools
import logging
import math
import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from decimal import Decimal, InvalidOperation
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from vjepa_ros.sources.base import (
    FIRST_STAMP_NS,
    Intrinsics,
    MAX_STAMP_S,
    Play,
    PlayOptions,
    Source,
    SourceError,
    SourceFrame,
    inside,
    pinhole_problem,
    read_file,
    read_text,
)
from vjepa_ros.sources.encodings import (
    JPEG_START,
    MAX_PIXELS,
    PNG_START,
    check_size,
    decode_any,
    read_compressed,
)

DEFAULT_RATE_HZ = 10.0
_KINDS = {'.jpg': 'jpeg', '.jpeg': 'jpeg', '.png': 'png'}
_OTHER = ('BMP', 'TIFF', 'WEBP', 'PPM')
MAX_BYTES = 512 << 20    # of a picture
_COLUMNS = ('frame', 'stamp_s', 'collision', 'time_to_contact_s')
# Rotation of a body in the optical frame of a camera that looks ahead: quaternion x, y, z, w.
BODY_IN_OPTICAL = (0.5, -0.5, 0.5, 0.5)
# Poses often come over a link that delivers several at once, with the time of their arrival. So
# the mean of so many stamps, in the order of the file, counts. It leaves even stamps as they are.
EVENED = 31
MOST_APART_S = 0.2     # no rates between poses farther apart
RATES = ('stamp_s', 'x_rad_s', 'y_rad_s', 'z_rad_s')
POSES = ('stamp_s', 'qw', 'qx', 'qy', 'qz')
Rows = list[tuple[Path, int, dict[str, Any] | None]]     # picture, stamp [ns], truth
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


def load(path: Path) -> tuple[np.ndarray, bytes | None, str | None]:
    """Return pixels (H, W, 3) RGB, uint8 or uint16, and content and format of a jpeg or png."""
    try:
        data = read_file(path, MAX_BYTES)
        rgb = (read_compressed(data, MAX_PIXELS) if data.startswith((JPEG_START, PNG_START))
               else _decode_other(data))
    except UnidentifiedImageError as error:
        raise SourceError(f"'{path}' is no picture of a format that can be read; convert it to "
                          'jpeg or png') from error
    except SourceError:
        raise
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise SourceError(f"picture '{path}' cannot be read: {error}") from error
    kind = _KINDS.get(path.suffix.lower())
    return rgb, data if kind else None, kind


def _decode_other(data: bytes) -> np.ndarray:
    """Return the RGB pixels of a picture that is neither jpeg nor png."""
    with Image.open(io.BytesIO(data), formats=_OTHER) as picture:      # reads only the header
        width, height = picture.size
        check_size(width, height, MAX_PIXELS)
    return decode_any(np.frombuffer(data, np.uint8))


class StillSource(Source):
    """One picture, repeated without end."""

    def __init__(self, path: Path, options: PlayOptions):
        self._picture = load(path)
        shape = self._picture[0].shape
        super().__init__(f"picture '{path}'", options, (shape[1], shape[0]),
                         options.rate or DEFAULT_RATE_HZ)

    def _play(self) -> Play:
        for number in itertools.count():
            stamp = FIRST_STAMP_NS + round(number * 1e9 / self.rate_hz)
            yield stamp, partial(SourceFrame, stamp, self._picture[0], encoded=self._picture[1],
                                 encoding=self._picture[2])


class FolderSource(Source):
    """Pictures of a folder, with the stamps of a table or of their names, else taken at ``rate``.

    A recording has ``frames/``, ``labels.csv`` with the columns frame, stamp_s, collision and
    time_to_contact_s (an empty cell means unknown), and optionally ``calib.txt`` and angular
    rates. Stamps that start at 0 are shifted to start at 1 s.
    """

    def __init__(self, folder: Path, options: PlayOptions):
        self._folder, self._shift_ns, rate = folder, 0, options.rate
        recorded = is_labelled(folder)
        frames: Rows = read_labels(folder) if recorded else [
            (path, stamp, None) for path, stamp in stamped(folder)]
        if frames:
            self._shift_ns = FIRST_STAMP_NS if frames[0][1] <= 0 else 0
            span_s = (frames[-1][1] - frames[0][1]) / 1e9
            rate = (len(frames) - 1) / span_s if len(frames) > 1 else math.nan
        else:
            paths = images_in(folder)
            if not paths:
                raise SourceError(f"folder '{folder}' has no pictures "
                                  f'({", ".join(IMAGE_SUFFIXES)})')
            if rate is None:
                raise SourceError(
                    f"folder '{folder}' does not say when its {len(paths)} pictures were taken: "
                    f"names such as '{paths[0].name}' are no stamps, and there is none of "
                    f'{", ".join(TABLES)}; give the rate at which they were taken (--rate HZ, '
                    'parameter rate of camera_source)')
            frames = [(path, FIRST_STAMP_NS + round(number * 1e9 / rate), None)
                      for number, path in enumerate(paths)]
        self._frames = [(path, stamp + self._shift_ns, truth) for path, stamp, truth in frames]
        height, width = load(frames[0][0])[0].shape[:2]
        super().__init__(f"{'recording' if recorded else 'image folder'} '{folder}'", options,
                         (width, height), rate, len(frames),
                         read_calibration(folder / 'calib.txt', (width, height)))

    def angular_rates(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Return `read_angular_rates` with stamps (N,) int64 [ns] on the clock of the frames."""
        found = read_angular_rates(self._folder)
        if found is None:
            return None
        return np.round(found[0] * 1e9).astype(np.int64) + self._shift_ns, found[1]

    def _play(self) -> Play:
        for path, stamp, truth in self._frames:
            yield stamp, partial(self._frame, path, stamp, truth)

    @staticmethod
    def _frame(path: Path, stamp_ns: int, truth: dict[str, Any] | None) -> SourceFrame:
        rgb, data, kind = load(path)
        return SourceFrame(stamp_ns, rgb, truth=None if truth is None else dict(truth),
                           encoded=data, encoding=kind)


def is_labelled(folder: Path) -> bool:
    """Return whether a folder is a recording with labels."""
    return (folder / 'labels.csv').exists() and (folder / 'frames').is_dir()


def read_labels(folder: Path) -> Rows:
    """Return picture, stamp [ns] and truth of every row of ``labels.csv``."""
    rows: Rows = []
    for row, where in _table(folder / 'labels.csv', _COLUMNS[:2]):
        name = row['frame'] or ''
        path = picture_path(folder, name, where, ('frames',))
        if path is None:
            raise SourceError(f"{where}: picture '{folder / 'frames' / name}' does not exist")
        _number(row, 'stamp_s', where)
        stamp = round(Decimal(row['stamp_s'].strip()) * 10 ** 9)  # exact, also from an epoch
        if rows and stamp <= rows[-1][1]:
            raise SourceError(f'{where}: stamp_s {row["stamp_s"]} is not after the one before')
        collision = _number(row, 'collision', where, empty=math.nan)
        if not (math.isnan(collision) or collision in (0, 1)):
            raise SourceError(f"{where}: collision '{row['collision']}' is not 0, 1 or empty")
        rows.append((path, stamp, {
            'collision': None if math.isnan(collision) else bool(collision),
            'time_to_contact_s': _number(row, 'time_to_contact_s', where, empty=math.nan)}))
    return rows


def _table(path: Path, columns: Sequence[str]) -> Iterator[tuple[dict[str, str], str]]:
    """Yield the rows of a table that has some columns, and where each is, in words."""
    heading, rows = _read(path)
    missing = [c for c in columns if c not in heading]
    if missing:
        raise SourceError(f"'{path}' lacks the columns {missing}; it has {heading}, expected "
                          f'{list(columns)}')
    for cells, where in rows:
        yield dict(itertools.zip_longest(heading, cells[:len(heading)], fillvalue='')), where


def _read(path: Path) -> tuple[list[str], list[tuple[list[str], str]]]:
    """Return the heading of a table, and the cells of each row with its line."""
    heading: list[str] = []
    rows = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        text = line.strip().lstrip('#').strip()
        cells = [cell.strip() for cell in text.split(',')] if ',' in text else text.split()
        if line.lstrip().startswith('#') or not any(cell[:1] in '-.0123456789' for cell in cells):
            heading = cells if any(map(_is_time, cells)) else heading
        elif cells:
            rows.append((cells, f"'{path}' line {number}"))
    if not rows:
        raise SourceError(f"'{path}' has no rows")
    return heading, rows


def _is_time(cell: str) -> bool:
    return any(word in cell.lower() for word in ('time', 'stamp', 'seconds'))


def _number(row: dict[str, str], column: str, where: str, empty: float | None = None) -> float:
    text = (row.get(column) or '').strip()
    if not text and empty is not None:
        return empty
    try:
        value = float(text)
    except ValueError:
        raise SourceError(f"{where}: {column} '{text}' is not a number") from None
    if column == 'stamp_s' and not abs(value) < MAX_STAMP_S:
        raise SourceError(f"{where}: stamp_s '{text}' is not a finite number of seconds below "
                          f'{MAX_STAMP_S:.0e}')
    return value


def read_calibration(path: Path, size: tuple[int, int]) -> Intrinsics | None:
    """Return fx, fy, cx, cy [px] of the first row of a KITTI calibration file, None without it."""
    if not path.exists():
        return None
    first = read_text(path).strip().splitlines()[:1]
    text = first[0].split(':', 1)[-1] if first else ''
    try:
        p = [float(v) for v in text.split()]
    except ValueError:
        p = []
    if len(p) != 12 or not all(map(math.isfinite, p)) or p[0] <= 0 or p[5] <= 0:
        raise SourceError(f"'{path}' does not start with a row of 12 numbers (a KITTI projection "
                          f'matrix with positive focal lengths), but with {text[:60]!r}')
    found = p[0], p[5], p[2], p[6]
    problem = pinhole_problem(found, size)
    if problem:
        raise SourceError(f"'{path}' is an implausible calibration: {problem}; correct it, or "
                          'remove it')
    return found


# -- angular rates --------------------------------------------------------------------------------

def read_angular_rates(folder: Path) -> tuple[np.ndarray, np.ndarray] | None:
    """Read the rates of a recording: imu.csv, else motion.csv; None without either.

    ``imu.csv`` has the columns stamp_s, x_rad_s, y_rad_s, z_rad_s. ``motion.csv`` has stamp_s, qw,
    qx, qy, qz, the orientation of the body in the world. Axes of the body: x ahead, y left, z up.
    (N,) stamps on the clock of labels.csv [s], ascending; (N, 3) rates [rad/s].
    """
    if (path := folder / 'imu.csv').exists():
        rows = _numbers(path, RATES)
        rows = rows[np.argsort(rows[:, 0], kind='stable')]
        return rows[:, 0], rows[:, 1:]
    if (path := folder / 'motion.csv').exists():
        return rates_of_poses(*np.split(_numbers(path, POSES), [1], axis=1))
    return None


def rates_of_poses(stamps_s: np.ndarray, orientation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Make rates of orientations (N, 4), quaternions w, x, y, z of the body in the world.

    `stamps_s` (N,) or (N, 1) are times of arrival, in the order of the poses. Returns (M,) times
    [s], ascending, and (M, 3) rates of the body [rad/s], by finite differences.
    """
    stamps_s = stamps_s.ravel()
    # Each part alone: evened stamps would spread a gap over its neighbours.
    gaps = np.flatnonzero(np.diff(stamps_s) > MOST_APART_S) + 1
    times, rates = [], []
    for part, poses in zip(np.split(stamps_s, gaps), np.split(orientation, gaps), strict=True):
        evened = _evened(part)
        for k, step_s in enumerate(np.diff(evened)):
            if 0 < step_s <= MOST_APART_S:
                times.append(evened[k] + step_s / 2)
                rates.append(_difference(poses[k], poses[k + 1]) / step_s)
    return np.array(times), np.array(rates).reshape(-1, 3)


def _evened(stamps_s: np.ndarray) -> np.ndarray:
    """Replace each stamp by the mean of those around it, fewer towards both ends."""
    sums = np.concatenate([[0.0], np.cumsum(stamps_s - stamps_s[0])])
    k = np.arange(len(stamps_s))
    half = np.minimum(np.minimum(k, k[::-1]), EVENED // 2)
    return stamps_s[0] + (sums[k + half + 1] - sums[k - half]) / (2 * half + 1)


def _difference(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Rotation vector (3,) [rad] in the body from one orientation to another, w, x, y, z."""
    w = one @ other
    v = one[0] * other[1:] - other[0] * one[1:] - np.cross(one[1:], other[1:])
    length = np.linalg.norm(v)
    sign = 1.0 if w >= 0 else -1.0
    return v * (sign * 2 * np.arctan2(length, abs(w)) / max(float(length), 1e-12))


def _numbers(path: Path, columns: tuple[str, ...]) -> np.ndarray:
    return np.array([[_number(row, column, where) for column in columns]
                     for row, where in _table(path, columns)])


# -- stamps of pictures ---------------------------------------------------------------------------

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
    heading, lines = _read(table)
    rows = [(_stamp(cells, heading, where), next(
        (c for c in cells if Path(c).suffix.lower() in IMAGE_SUFFIXES), ''), where)
        for cells, where in lines]
    pictures = images_in(place)
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


def _stamp(cells: list[str], heading: list[str], where: str) -> int:
    """Return the stamp of a row [ns]."""
    if date := DATE.search(' '.join(cells)):
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
