# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Read the angular rates of a robot from a recording folder.

``imu.csv`` has the columns stamp_s, x_rad_s, y_rad_s, z_rad_s. ``motion.csv`` has stamp_s, qw, qx,
qy, qz, the orientation of the body in the world. Axes of the body: x ahead, y left, z up.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np

from vjepa_ros.sources.base import SourceError, read_text

# Rotation of a body in the optical frame of a camera that looks ahead: quaternion x, y, z, w.
BODY_IN_OPTICAL = (0.5, -0.5, 0.5, 0.5)
# Poses often come over a link that delivers several at once, with the time of their arrival. So
# the mean of so many stamps, in the order of the file, counts. It leaves even stamps as they are.
EVENED = 31
MOST_APART_S = 0.2     # no rates between poses farther apart
RATES = ('stamp_s', 'x_rad_s', 'y_rad_s', 'z_rad_s')
POSES = ('stamp_s', 'qw', 'qx', 'qy', 'qz')


def read_angular_rates(folder: Path) -> tuple[np.ndarray, np.ndarray] | None:
    """Read the rates of a recording: imu.csv, else motion.csv.

    Returns
    -------
    (ndarray, ndarray) or None
        (N,) stamps on the clock of labels.csv [s], ascending; (N, 3) rates [rad/s]. None without
        either file.

    Raises
    ------
    SourceError
        Naming file and line, when a column is missing or a value is no number.
    """
    if (path := folder / 'imu.csv').exists():
        rows = _read(path, RATES)
        rows = rows[np.argsort(rows[:, 0], kind='stable')]
        return rows[:, 0], rows[:, 1:]
    if (path := folder / 'motion.csv').exists():
        return rates_of_poses(*np.split(_read(path, POSES), [1], axis=1))
    return None


def rates_of_poses(stamps_s: np.ndarray, orientation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Make rates of orientations by finite differences.

    Parameters
    ----------
    stamps_s
        (N,) or (N, 1) times of arrival [s], in the order of the poses.
    orientation
        (N, 4) quaternions w, x, y, z of the body in the world.

    Returns
    -------
    ndarray, ndarray
        (M,) times [s], ascending; (M, 3) rates of the body [rad/s].
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


def _read(path: Path, columns: tuple[str, ...]) -> np.ndarray:
    rows = []
    reader = csv.DictReader(io.StringIO(read_text(path), newline=''))
    missing = [c for c in columns if c not in (reader.fieldnames or ())]
    if missing:
        raise SourceError(f"'{path}' lacks the columns {missing}; expected {list(columns)}")
    for row in reader:
        try:
            rows.append([float(row[c]) for c in columns])
        except (TypeError, ValueError):
            raise SourceError(f"'{path}' line {reader.line_num}: a value of {list(columns)} "
                              'is not a number; correct it') from None
    if not rows:
        raise SourceError(f"'{path}' has no rows")
    return np.array(rows)
