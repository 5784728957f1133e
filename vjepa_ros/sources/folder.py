# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Play single pictures, folders of pictures, and recordings with labels.

The pictures of a folder have the stamps of a table beside them, or of their names. Of a scene that
stands still, depth and poses of the camera may lie beside them.
"""

from __future__ import annotations

import io
import itertools
import logging
import math
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal, InvalidOperation
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from vjepa_ros.sources import base, encodings
from vjepa_ros.sources.base import PlayOptions, Source, SourceError, SourceFrame

DEFAULT_RATE_HZ = 10.0
_KINDS = {'.jpg': 'jpeg', '.jpeg': 'jpeg', '.png': 'png'}
_OTHER = ('BMP', 'TIFF', 'WEBP', 'PPM')
MAX_BYTES = 512 << 20    # of a picture
LABELS = 'labels.csv'
MAX_STAMP_S = 9e9        # stamps in ns have 64 bits
SCENE = ('poses.npy', 'depth.npz', 'K.npy')      # of a scene that stands still
UNEVEN = 1e-3          # by which axes of a pose may differ from unit vectors at right angles
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
_log = logging.getLogger(__name__)
Line = tuple[list[str], list[str], str]     # heading and cells of a table, and where, in words
# Pictures with their stamps [ns], where these are told, in words, and truth.
Rows = list[tuple[Path, int, str, dict[str, Any] | None]]


def load(path: Path) -> tuple[np.ndarray, bytes | None, str | None]:
    """Return pixels (H, W, 3) RGB, uint8 or uint16, and content and format of a jpeg or png."""
    data = base.read_file(path, MAX_BYTES)
    try:
        if data.startswith((encodings.JPEG_START, encodings.PNG_START)):
            rgb = encodings.read_compressed(data)
        else:
            with Image.open(io.BytesIO(data), formats=_OTHER) as picture:     # reads the header
                width, height = picture.size
            encodings.check_size(width, height, encodings.MAX_PIXELS)
            rgb = encodings.decode_any(np.frombuffer(data, np.uint8))
    except UnidentifiedImageError as error:
        raise SourceError(f"'{path}' is no picture of a format that can be read; convert it to "
                          'jpeg or png') from error
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise SourceError(f"picture '{path}' cannot be read: {error}") from error
    kind = _KINDS.get(path.suffix.lower())
    return rgb, data if kind else None, kind


class StillSource(Source):
    """One picture, repeated without end."""

    def __init__(self, path: Path, options: PlayOptions):
        self._picture = load(path)
        shape = self._picture[0].shape
        super().__init__(f"picture '{path}'", options, (shape[1], shape[0]),
                         options.rate or DEFAULT_RATE_HZ)

    def _play(self) -> base.Play:
        for number in itertools.count():
            stamp = base.FIRST_STAMP_NS + round(number * 1e9 / self.rate_hz)
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
        self._rows = read_labels(folder) if recorded else stamped(folder)
        if self._rows:
            first_ns, last_ns = self._rows[0][1], self._rows[-1][1]
            self._shift_ns = base.FIRST_STAMP_NS if first_ns <= 0 else 0
            span_s = (last_ns - first_ns) / 1e9
            rate = (len(self._rows) - 1) / span_s if len(self._rows) > 1 else math.nan
        else:
            paths = images_in(folder)
            if not paths:
                raise SourceError(f"folder '{folder}' has no pictures "
                                  f'({", ".join(IMAGE_SUFFIXES)})')
            if rate is None:
                odd = next((path for path in paths if _of_name(path.stem) is None), paths[0])
                raise SourceError(
                    f"folder '{folder}' does not say when its {len(paths)} pictures were taken: "
                    f"names such as '{odd.name}' are no stamps, and there is none of "
                    f'{", ".join(TABLES)}; give the rate at which they were taken (--rate HZ, '
                    'parameter rate of camera_source)')
            self._rows = [(path, base.FIRST_STAMP_NS + round(number * 1e9 / rate), '', None)
                          for number, path in enumerate(paths)]
        height, width = load(self._rows[0][0])[0].shape[:2]
        super().__init__(f"{'recording' if recorded else 'image folder'} '{folder}'", options,
                         (width, height), rate, len(self._rows),
                         read_matrix(folder / 'K.npy', (width, height))
                         or read_calibration(folder / 'calib.txt', (width, height)))

    def scene(self) -> StillScene | None:
        """Return depth and motion of the camera, None where there are none; see `StillScene`."""
        return read_scene(self._folder, np.array([stamp + self._shift_ns
                                                  for _, stamp, _, _ in self._rows]))

    def _play(self) -> base.Play:
        for path, stamp_ns, _, truth in self._rows:
            stamp_ns += self._shift_ns
            yield stamp_ns, partial(self._frame, path, stamp_ns, truth)

    @staticmethod
    def _frame(path: Path, stamp_ns: int, truth: dict[str, Any] | None) -> SourceFrame:
        rgb, data, kind = load(path)
        return SourceFrame(stamp_ns, rgb, truth=None if truth is None else dict(truth),
                           encoded=data, encoding=kind)


def read_calibration(path: Path, size: tuple[int, int]) -> base.Intrinsics | None:
    """Return fx, fy, cx, cy [px] of the first row of a KITTI calibration file, None without it."""
    if not path.exists():
        return None
    first = base.read_text(path).strip().splitlines()[:1]
    text = first[0].split(':', 1)[-1] if first else ''
    try:
        p = [float(v) for v in text.split()]
    except ValueError:
        p = []
    if len(p) != 12 or not all(map(math.isfinite, p)) or p[0] <= 0 or p[5] <= 0:
        raise SourceError(f"'{path}' does not start with a row of 12 numbers (a KITTI projection "
                          f'matrix with positive focal lengths), but with {text[:60]!r}')
    return _plausible(path, (p[0], p[5], p[2], p[6]), size)


# -- scenes that stand still ----------------------------------------------------------------------

@dataclass(frozen=True)
class StillScene:
    """What a camera that moves through a scene without movers saw, and how it moved.

    Attributes
    ----------
    stamps_ns : ndarray (N,) int64
        Of the frames, as they are played [ns].
    depth_m : ndarray (N, h, w) float32
        Along the optical axis, in cells that part the whole picture evenly [m]; NaN unknown.
    closing_m_s, turning_rad_s : ndarray (N,)
        Speed along the optical axis [m/s], and of the rotation [rad/s], from the frame before to
        the one after.
    """

    stamps_ns: np.ndarray
    depth_m: np.ndarray
    closing_m_s: np.ndarray
    turning_rad_s: np.ndarray


def read_scene(folder: Path, stamps_ns: np.ndarray) -> StillScene | None:
    """Read what the files `SCENE` say of frames with rising stamps (N,); None without them.

    ``poses.npy`` is N x 4 x 4, from the camera (z ahead) to the world [m]; ``depth.npz`` has
    ``D``, N x h x w [m], 0 unknown; ``K.npy`` is 3 x 3, the intrinsics of the pictures [px].
    """
    poses_at, depth_at, _ = paths = [folder / name for name in SCENE]
    if not any(path.exists() for path in paths[:2]):
        return None
    for path in paths:
        if not path.exists():
            raise SourceError(f"'{path}' does not exist, but others of {', '.join(SCENE)} do; add "
                              'it, or remove them')
    poses, depth, count = _array(poses_at), _array(depth_at, 'D'), len(stamps_ns)
    if poses.shape != (count, 4, 4) or count < 2:
        raise SourceError(f"'{poses_at}' has the shape {poses.shape}, must be ({count}, 4, 4), a "
                          'pose for each picture, of which there must be 2 or more; store as many')
    axes = poses[:, :3, :3].astype(float)
    for number, (pose, turn) in enumerate(zip(poses, axes, strict=True)):
        if not (np.isfinite(pose).all() and np.linalg.det(turn) > 0
                and np.abs(turn.T @ turn - np.eye(3)).max() <= UNEVEN):
            raise SourceError(f"'{poses_at}': pose {number} is no rotation and place, but "
                              f'{np.round(pose[:3], 3).tolist()}; store camera to world')
    if depth.ndim != 3 or len(depth) != count or not depth.size:
        raise SourceError(f"'{depth_at}': D has the shape {depth.shape}, must be ({count}, h, w), "
                          'a depth for each picture; store as many')
    if (wrong := ~(np.isfinite(depth) & (depth >= 0))).any():
        at = tuple(np.argwhere(wrong)[0].tolist())
        raise SourceError(f"'{depth_at}': D has {depth[at]} at {at}, must be a distance in "
                          'metres; store 0 for unknown')
    at = np.arange(count)
    before, after = np.maximum(at - 1, 0), np.minimum(at + 1, count - 1)
    step_s = (stamps_ns[after] - stamps_ns[before]) / 1e9
    moved = poses[after, :3, 3] - poses[before, :3, 3]
    cosine = (np.einsum('nij,nij->n', axes[before], axes[after]) - 1) / 2
    return StillScene(stamps_ns, np.where(depth > 0, depth, np.nan).astype(np.float32),
                      np.einsum('ni,ni->n', moved, axes[:, :, 2]) / step_s,
                      np.arccos(np.clip(cosine, -1, 1)) / step_s)


def read_matrix(path: Path, size: tuple[int, int]) -> base.Intrinsics | None:
    """Return fx, fy, cx, cy [px] of a file with a camera matrix, None without it."""
    if not path.exists():
        return None
    matrix = _array(path)
    if matrix.shape != (3, 3):
        raise SourceError(f"'{path}' has the shape {matrix.shape}, must be (3, 3), the camera "
                          'matrix; correct it, or remove it')
    (fx, _, cx), (_, fy, cy), _ = matrix.astype(float).tolist()
    return _plausible(path, (fx, fy, cx, cy), size)


def _plausible(path: Path, found: base.Intrinsics, size: tuple[int, int]) -> base.Intrinsics:
    if problem := base.pinhole_problem(found, size):
        raise SourceError(f"'{path}' is an implausible calibration: {problem}; correct it, or "
                          'remove it')
    return found


def _array(path: Path, key: str = '') -> np.ndarray:
    """Return the numbers of a .npy file, or those of a name in a .npz file."""
    data = base.read_file(path, MAX_BYTES)
    try:
        if key:
            with zipfile.ZipFile(io.BytesIO(data)) as members:
                if (size := members.getinfo(f'{key}.npy').file_size) > MAX_BYTES:
                    raise ValueError(f'{key} has {size} bytes, at most {MAX_BYTES} are read')
                data = members.read(f'{key}.npy')
        array = np.load(io.BytesIO(data), allow_pickle=False)
        if array.dtype.kind not in 'fiu':
            raise ValueError(f'its values are {array.dtype}, no numbers')
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        how = f'numpy.savez as {key}' if key else 'numpy.save'
        raise SourceError(f"'{path}' cannot be read: {error}; store it with {how}") from error
    return array


# -- stamps of pictures ---------------------------------------------------------------------------

def natural_key(path: Path) -> list[Any]:
    """Return a sorting key that puts ``frame2`` before ``frame10``."""
    return [(0, int(part), '') if part.isdecimal() else (1, 0, part)
            for part in re.split(r'(\d+)', path.name.lower()) if part]


def images_in(folder: Path) -> list[Path]:
    """Return the pictures directly in a folder, in natural order."""
    return sorted((p for p in folder.iterdir() if p.suffix.lower() in IMAGE_SUFFIXES
                   and not p.name.startswith('.')), key=natural_key)


def is_labelled(folder: Path) -> bool:
    """Return whether a folder is a recording with labels."""
    return (folder / LABELS).exists() and (folder / 'frames').is_dir()


def has_table(folder: Path) -> bool:
    """Return whether a folder has labels, or a table of stamps and pictures."""
    return is_labelled(folder) or (
        any((folder / name).exists() for name in TABLES) and _place(folder) is not None)


def _place(folder: Path) -> Path | None:
    return next((folder / name for name in PLACES
                 if (folder / name).is_dir() and images_in(folder / name)), None)


def read_labels(folder: Path) -> Rows:
    """Return the rows of ``labels.csv``."""
    rows: Rows = []
    for line in _lines(folder / LABELS, ('frame', 'stamp_s')):
        name, where = _cell(line, 'frame'), line[2]
        path = picture_path(folder, name, where, ('frames',))
        if path is None:
            raise SourceError(f"{where}: picture '{folder / 'frames' / name}' does not exist")
        collision, contact_s = (_number(line, column) if _cell(line, column) else math.nan
                                for column in ('collision', 'time_to_contact_s'))
        if collision not in (0, 1) and not math.isnan(collision):
            raise SourceError(f'{where}: collision {collision:g} is not 0, 1 or empty')
        rows.append((path, _stamp(*line), where, {
            'collision': None if math.isnan(collision) else bool(collision),
            'time_to_contact_s': contact_s}))
    return _rising(rows)


def stamped(folder: Path) -> Rows:
    """Return the pictures of a folder with their stamps, in order; nothing without stamps."""
    place = _place(folder)
    if place is None:
        return []
    for home in (folder, place.parent):
        for table in (home / name for name in TABLES):
            if table.exists() and (found := _by_table(table, place, home == folder)):
                return found
    pictures = images_in(place)
    found = [(path, stamp, f"'{path}'", None) for path in pictures
             if (stamp := _of_name(path.stem)) is not None]
    if len(found) < max(2, len(pictures)):       # they are counted, or some are something else
        return []
    return _rising(sorted(found, key=lambda row: row[1]))


def _by_table(table: Path, place: Path, own: bool) -> Rows:
    """Return the pictures of a table; nothing where one of another folder does not fit."""
    lines, pictures = _lines(table), images_in(place)
    names = [next((cell for cell in cells if Path(cell).suffix.lower() in IMAGE_SUFFIXES), '')
             for _, cells, _ in lines]
    paths: list[Path | None] = [*pictures] if len(pictures) == len(lines) else [None] * len(lines)
    if any(names):
        paths = [picture_path(table.parent, name, line[2], PLACES)
                 for name, line in zip(names, lines, strict=True)]
    found: Rows = [(path, _stamp(*line), line[2], None)
                   for path, line in zip(paths, lines, strict=True) if path is not None
                   and (own or path.parent.resolve() == place.resolve())]
    if not found and own:
        raise SourceError(f"the {len(lines)} lines of '{table}' do not belong to the "
                          f"{len(pictures)} pictures in '{place}'"
                          + f", '{names[0]}' is not there" * any(names)
                          + '; correct it, or remove it and give the rate (--rate)')
    if found and (len(found) < len(lines) or len(found) < len(pictures)):
        _log.warning("'%s' lists %d pictures, and '%s' has %d: played are the %d in both",
                     table, len(lines), place, len(pictures), len(found))
    return _rising(found)


def _rising(rows: Rows) -> Rows:
    for (_, before, _, _), (path, stamp, where, _) in itertools.pairwise(rows):
        if stamp <= before:
            raise SourceError(f"{where}: the stamp of '{path.name}' is not after the one before")
    return rows


def picture_path(folder: Path, name: str, where: str, places: tuple[str, ...]) -> Path | None:
    """Return the path of a picture that a line names, inside of a folder; None if not there."""
    paths = [folder / place / name for place in places]
    try:
        path = next((path for path in paths if path.exists()), paths[0])
        there, within = path.exists(), base.inside(path, folder)
    except (OSError, ValueError, RuntimeError) as error:   # too long, a NUL, links in a circle
        raise SourceError(f"{where}: picture '{name[:100]}' is not a valid name: {error}; "
                          'correct the name') from error
    if Path(name).is_absolute() or '..' in Path(name).parts or not within:
        raise SourceError(f"{where}: picture '{name}' is outside of the recording; put it into "
                          f"'{path.parent}' and name it without a path")
    return path if there else None


def _of_name(name: str) -> int | None:
    if SECONDS.fullmatch(name):
        return round(Decimal(name) * 10**9)
    if (match := EPOCH.fullmatch(name)) is None:
        return None
    whole, digits = match[1], match[2] or match[3] or '0'
    if match[3] and len(whole) > 10:
        return None
    stamp = int(Decimal(f'{whole}.{digits}').scaleb(19 - len(whole)))
    return stamp if EPOCH_S[0] <= stamp / 1e9 < EPOCH_S[1] else None


# -- tables ---------------------------------------------------------------------------------------

def _lines(path: Path, columns: Sequence[str] = ()) -> list[Line]:
    """Return the lines of a table, which must have some columns."""
    heading: list[str] = []
    rows = []
    for number, line in enumerate(base.read_text(path).splitlines(), 1):
        text = line.strip().lstrip('#').strip()
        cells = [cell.strip() for cell in text.split(',')] if ',' in text else text.split()
        if line.lstrip().startswith('#') or not any(cell[:1] in '-.0123456789' for cell in cells):
            heading = cells if any(map(_is_time, cells)) else heading
        elif cells:
            rows.append((cells, f"'{path}' line {number}"))
    if not rows:
        raise SourceError(f"'{path}' has no rows")
    if missing := [column for column in columns if column not in heading]:
        raise SourceError(f"'{path}' lacks the columns {missing}; it has {heading}")
    return [(heading, *row) for row in rows]


def _is_time(cell: str) -> bool:
    return any(word in cell.lower() for word in ('time', 'stamp', 'seconds'))


def _cell(line: Line, column: str) -> str:
    return dict(zip(*line[:2], strict=False)).get(column, '')


def _number(line: Line, column: str) -> float:
    try:
        return float(_cell(line, column))
    except ValueError:
        raise SourceError(f"{line[2]}: {column} '{_cell(line, column)}' is not a number") from None


def _stamp(heading: list[str], cells: list[str], where: str) -> int:
    """Return the time of a line [ns]: a date, or a number in the unit of its column."""
    if date := DATE.search(' '.join(cells)):
        at = datetime.fromisoformat(f'{date[1]}T{date[2]}').replace(tzinfo=timezone.utc)
        return int(at.timestamp()) * 10**9 + int(Decimal(date[3] or 0) * 10**9)
    column = next((n for n, cell in enumerate(heading) if _is_time(cell)), 0)
    # Of `# timestamp [ns], filename` the unit is a cell of its own where spaces part them.
    unit = next((UNITS[found[1]] for cell in heading[column:column + 2]
                 if (found := UNIT.search(cell.lower()))), None)
    text = ''.join(cells[column:column + 1])
    try:
        value = Decimal(text)
        if unit is None:      # by its size, as of times since 1970
            unit = max(0, (len(str(int(abs(value)))) - 9) // 3 * 3)
        if abs(value).scaleb(-unit) < MAX_STAMP_S:       # neither NaN nor infinite
            return round(value.scaleb(9 - unit))
    except (InvalidOperation, ValueError, OverflowError):
        pass
    raise SourceError(f"{where}: '{text[:40]}' is no time")
