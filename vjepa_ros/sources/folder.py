# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Play single pictures, folders of pictures, and recordings with labels."""

from __future__ import annotations

import csv
import io
import itertools
import math
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from vjepa_ros.sources.angular_rates import read_angular_rates
from vjepa_ros.sources.base import (
    FIRST_STAMP_NS,
    Intrinsics,
    MAX_STAMP_S,
    Play,
    PlayOptions,
    Source,
    SourceError,
    SourceFrame,
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
from vjepa_ros.sources.stamps import IMAGE_SUFFIXES, TABLES, images_in, picture_path, stamped

DEFAULT_RATE_HZ = 10.0
_KINDS = {'.jpg': 'jpeg', '.jpeg': 'jpeg', '.png': 'png'}
_OTHER = ('BMP', 'TIFF', 'WEBP', 'PPM')
MAX_BYTES = 512 << 20    # of a picture
_COLUMNS = ('frame', 'stamp_s', 'collision', 'time_to_contact_s')


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
    """Pictures of a folder with the stamps of a table or of their names, else taken at ``rate``.

    Stamps that start at 0 are shifted to start at 1 s.
    """

    def __init__(self, folder: Path, options: PlayOptions):
        frames, rate = stamped(folder), options.rate
        if frames:
            rate = _rate([stamp for _, stamp in frames])
            shift = FIRST_STAMP_NS if frames[0][1] <= 0 else 0
            self._frames = [(path, stamp + shift) for path, stamp in frames]
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
            self._frames = [(path, FIRST_STAMP_NS + round(number * 1e9 / rate))
                            for number, path in enumerate(paths)]
        shape = load(self._frames[0][0])[0].shape
        super().__init__(f"image folder '{folder}'", options, (shape[1], shape[0]),
                         math.nan if rate is None else rate, len(self._frames),
                         read_calibration(folder / 'calib.txt', (shape[1], shape[0])))

    def _play(self) -> Play:
        for path, stamp in self._frames:
            yield stamp, partial(_frame, path, stamp, None)


def _rate(stamps: list[int]) -> float:
    """Return the mean rate of stamps [Hz], NaN for one."""
    return (len(stamps) - 1) * 1e9 / (stamps[-1] - stamps[0]) if len(stamps) > 1 else math.nan


class RecordingSource(Source):
    """Folder with ``frames/``, ``labels.csv`` and optionally ``calib.txt`` and angular rates.

    The columns of the labels are frame, stamp_s, collision and time_to_contact_s; an empty cell
    means unknown. Stamps that start at 0 are shifted to start at 1 s.
    """

    def __init__(self, folder: Path, options: PlayOptions):
        self._folder = folder
        self._rows, self._shift_ns = read_labels(folder)
        shape = load(self._rows[0][0])[0].shape
        stamps = [stamp for _, stamp, _ in self._rows]
        super().__init__(f"recording '{folder}'", options, (shape[1], shape[0]), _rate(stamps),
                         len(stamps),
                         read_calibration(folder / 'calib.txt', (shape[1], shape[0])))

    def angular_rates(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Return `read_angular_rates` with stamps (N,) int64 [ns] on the clock of the frames."""
        found = read_angular_rates(self._folder)
        if found is None:
            return None
        return np.round(found[0] * 1e9).astype(np.int64) + self._shift_ns, found[1]

    def _play(self) -> Play:
        for path, stamp, truth in self._rows:
            yield stamp, partial(_frame, path, stamp, truth)


def _frame(path: Path, stamp_ns: int, truth: dict[str, Any] | None) -> SourceFrame:
    rgb, data, kind = load(path)
    return SourceFrame(stamp_ns, rgb, truth=None if truth is None else dict(truth), encoded=data,
                       encoding=kind)


def read_labels(folder: Path) -> tuple[list[tuple[Path, int, dict[str, Any]]], int]:
    """Picture, stamp in ns and truth of every row of ``labels.csv``; and what was added to stamps.

    Raises
    ------
    SourceError
        Naming the line, when a column, picture or value is missing or wrong.
    """
    table = folder / 'labels.csv'
    rows: list[tuple[Path, int, dict[str, Any]]] = []
    reader = csv.DictReader(io.StringIO(read_text(table), newline=''))
    try:
        missing = [c for c in _COLUMNS[:2] if c not in (reader.fieldnames or ())]
        if missing:
            raise SourceError(f"'{table}' lacks the columns {missing}; it has "
                              f'{reader.fieldnames}, expected {list(_COLUMNS)}')
        for row in reader:
            where = f"'{table}' line {reader.line_num}"
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
    except csv.Error as error:
        raise SourceError(f"'{table}' line {reader.reader.line_num}: {error}; correct it, or copy "
                          'the file again') from error
    if not rows:
        raise SourceError(f"'{table}' has no rows")
    shift = FIRST_STAMP_NS if rows[0][1] <= 0 else 0
    return [(path, stamp + shift, truth) for path, stamp, truth in rows], shift


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
    """Return fx, fy, cx, cy [px] of the first row of a KITTI calibration file, None without it.

    A row is a projection matrix (3, 4): 12 numbers, optionally after a name and a colon. It must
    be plausible for pictures of a size.
    """
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
