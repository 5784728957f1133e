# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Integrate the rotation of a camera between two frames from the rates of a gyroscope.

The rates of a strapdown gyroscope are integrated by the midpoint rule (Titterton and Weston,
"Strapdown Inertial Navigation Technology", IET 2004, chapter 11). The covariance states what
limits a rotation: noise, the zero-rate offset, scale and alignment, and stamps of images that are
off or a shutter that rolls.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

MOST_RATE = 35.0       # rad/s, 2000 degrees/s: the range of common gyroscopes
MOST_GAP_S = 0.05      # between samples; what a robot does in a longer one is lost
HELD_S = 0.01          # after the newest sample: its rate still holds
KEPT_S = 3.0           # samples older than this leave
KEPT = 20_000          # samples at most
# Standard deviations. Data sheets of MEMS gyroscopes state noise densities of 0.5e-4 to 1e-4 and
# scale errors of 1 to 3 %; alignment to a camera is known to about a degree.
NOISE = 2e-4           # rad/s per root of Hz
SCALE = 0.02           # part of the rotation, along and across its axis
# Of stamps of images: some milliseconds, and the rows of a rolling shutter are 10 to 30 ms apart.
JITTER_S = 0.005
FIRST_BIAS = 0.05      # rad/s, of the zero-rate offset before it was seen
SEEN_BIAS = 0.003      # rad/s, of what one pair of pictures of a still scene tells of it
BIAS_WALK = 3e-4       # rad/s per root of s, by which it drifts with temperature
MOST_BIAS = 0.2        # rad/s; a larger offset is a fault
NS = 1e9


class GyroscopeError(ValueError):
    """The gyroscope can not tell a rotation; the text says why."""


@dataclass(frozen=True)
class Turn:
    """Rotation of the camera between two frames."""

    # (3,) rad about x (pitch, up), y (yaw, right), z (roll), as in `CameraMotion`
    rotation: np.ndarray
    covariance: np.ndarray  # (3, 3) rad^2
    dt_s: float  # time between the frames [s]
    newer_ns: int  # stamp of the newer frame [ns]

    def apart(self, rotation: np.ndarray) -> float:
        """Return by how many standard errors another rotation (3,) [rad] differs."""
        error = rotation - self.rotation
        return math.sqrt(error @ np.linalg.solve(self.covariance, error))


class Gyroscope:
    """Angular rates of one camera. Samples may come from another thread.

    `rotation`: quaternion x, y, z, w of the gyroscope in the optical frame of the camera (x right,
    y down, z ahead); None: its axes are those. `offset_s` is added to the stamps of samples:
    positive where the pictures are stamped late. `jitter_s`: standard error of the stamps of
    pictures on the clock of the samples.
    """

    def __init__(self, rotation: Sequence[float] | None = None, offset_s: float = 0.0,
                 jitter_s: float = JITTER_S) -> None:
        self.matrix = np.eye(3) if rotation is None else rotation_matrix(rotation)
        self.problem = ''   # why it can not be used at all, such as an unknown rotation
        # Zero-rate offset in the optical frame [rad/s], learned while the camera stands still.
        self.bias = np.zeros(3)
        self._learned: tuple[int, float] | None = None     # stamp [ns], variance of the bias
        self._jitter_s = jitter_s
        self._offset_ns = round(offset_s * NS)
        self._samples: deque[tuple[int, tuple[float, float, float]]] = deque(maxlen=KEPT)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._samples)

    def push(self, stamp_ns: int, rate: Sequence[float] | np.ndarray) -> None:
        """Take a sample: its stamp [ns] and angular rate (3,) [rad/s] about its own axes.

        A sample that is not a rate counts as a fault of its time. One that is older than the last
        is left out, unless time has jumped back by more than a second, which starts anew.
        """
        x, y, z = rate
        stamp_ns += self._offset_ns
        with self._lock:
            if self._samples and stamp_ns <= self._samples[-1][0]:
                if self._samples[-1][0] - stamp_ns < NS:
                    return
                self._samples.clear()
            self._samples.append((stamp_ns, (float(x), float(y), float(z))))
            while stamp_ns - self._samples[0][0] > KEPT_S * NS:
                self._samples.popleft()

    def clear(self) -> None:
        with self._lock:
            self._samples.clear()

    def covers(self, stamp_ns: int) -> bool:
        """Return whether the samples reach to a stamp [ns]."""
        with self._lock:
            return bool(self._samples) and self._samples[-1][0] + HELD_S * NS >= stamp_ns

    def turn(self, older_ns: int, newer_ns: int) -> Turn:
        """Integrate the rotation of the camera from an older to a newer stamp [ns]."""
        if self.problem:
            raise GyroscopeError(self.problem)
        stamps, rates = self._since(older_ns)
        if (late_s := (newer_ns - stamps[-1]) / NS) > HELD_S:
            raise GyroscopeError(f'the newest angular rate is {late_s:.3g} s older than the image')
        if (early_s := (stamps[0] - older_ns) / NS) > 0:
            raise GyroscopeError(f'angular rates begin {early_s:.3g} s after the older image')
        last = int(np.searchsorted(stamps, newer_ns)) + 1
        # Seconds before the newer frame, which float64 holds exactly enough.
        times, rates = (stamps[:last] - newer_ns) / NS, rates[:last]
        # Not greater, so that NaN counts, too.
        if not np.abs(rates).max() <= MOST_RATE:
            raise GyroscopeError(f'angular rates are no numbers or above {MOST_RATE:g} rad/s')
        if len(times) > 1 and (gap_s := np.diff(times).max()) > MOST_GAP_S:
            raise GyroscopeError(f'angular rates are {gap_s:.3g} s apart, more than '
                                 f'{MOST_GAP_S:g} s')
        dt_s = (newer_ns - older_ns) / NS
        inner = times[(times > -dt_s) & (times < 0)]
        at = np.concatenate([[-dt_s], inner, [0.0]])
        rates = np.stack([np.interp(at, times, axis) for axis in rates.T], -1)
        rates = rates @ self.matrix.T - self.bias
        steps = (rates[:-1] + rates[1:]) / 2 * np.diff(at)[:, None]
        matrix = np.eye(3)
        for step in steps:
            matrix = matrix @ cv2.Rodrigues(step)[0]
        rotation = cv2.Rodrigues(matrix)[0].ravel()
        ends = rates[[0, -1]]
        even = (NOISE ** 2 * dt_s + self._bias_variance(newer_ns) * dt_s ** 2
                + SCALE ** 2 * rotation @ rotation)
        return Turn(rotation, even * np.eye(3) + self._jitter_s ** 2 * ends.T @ ends, dt_s,
                    newer_ns)

    def _since(self, older_ns: int) -> tuple[np.ndarray, np.ndarray]:
        """Return stamps (N,) [ns] and rates (N, 3) from the last sample before a stamp on."""
        found = []
        with self._lock:
            for sample in reversed(self._samples):
                found.append(sample)
                if sample[0] <= older_ns:
                    break
        if not found:
            raise GyroscopeError('no angular rates have come')
        stamps, rates = zip(*reversed(found), strict=True)
        return np.array(stamps, np.int64), np.array(rates)

    def learn(self, turn: Turn, seen: np.ndarray) -> None:
        """Correct the bias by a rotation (3,) [rad] that was seen while the camera stood still.

        `turn` is that of the gyroscope for the same frames. A Kalman filter of one variance for
        all axes.
        """
        error = (turn.rotation - seen) / turn.dt_s
        if np.abs(self.bias + error).max() > MOST_BIAS:
            return
        variance = self._bias_variance(turn.newer_ns)
        gain = variance / (variance + SEEN_BIAS ** 2)
        self.bias = self.bias + gain * error
        self._learned = turn.newer_ns, (1 - gain) * variance

    def _bias_variance(self, at_ns: int) -> float:
        """Return the variance of the bias at a stamp [ns]; time that has jumped back adds none."""
        if self._learned is None:
            return FIRST_BIAS ** 2
        learned_ns, variance = self._learned
        return variance + BIAS_WALK ** 2 * max(0.0, (at_ns - learned_ns) / NS)


def rotation_matrix(quaternion: Sequence[float]) -> np.ndarray:
    """Return the matrix (3, 3) of a quaternion x, y, z, w; ValueError when it has not length 1."""
    if len(quaternion) != 4:
        raise ValueError(f'it has {len(quaternion)} numbers, must be a quaternion x, y, z, w')
    x, y, z, w = quaternion
    length = math.sqrt(x * x + y * y + z * z + w * w)
    if not abs(length - 1) < 0.01:
        raise ValueError(f'the quaternion {[x, y, z, w]} has length {length:.3g}, must be x, y, '
                         'z, w with length 1')
    x, y, z, w = x / length, y / length, z / length, w / length
    return np.array([[1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
                     [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
                     [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)]])
