# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Displacements of a few hundred cells, explained by turning and moving of the camera.

There are few of them, so calls of NumPy count and not numbers: components lie in one array,
what does not depend on the hypothesis is made once, hypotheses are tried side by side.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import cv2
import numpy as np

from vjepa_ros.looming.rotation import LEAST_DEPTH, matrix, turn_rows

AGREE = 9.0            # squared standard deviations up to which a displacement agrees
TURN_PRIOR = 0.2       # rad; what the camera may have turned where nothing tells
LOOSE_PX = 0.05       # error of the model in px, beside the stated covariance
LOOSE_SHARE = 0.02    # and as a share of the displacement (lens distortion, focal length)
NEAR_PX = 15.0        # parallax beyond this is as unlikely as one standard deviation
SOFT = 4.0            # squared standard deviations that halve a weight's root
WALL_ROUNDS = 4
BEHIND = 0.2           # of its weight a cell keeps that would lie behind the camera
LEAST_VARIANCE = 1e-14  # far below all others: of a cell exactly where the camera moves to
_KEPT = np.array([1.0, BEHIND])
_EYE = np.eye(8)
SINGULAR = 'the displacements of the cells lead to a singular matrix'
_ACROSS = np.array([[1.0], [-1.0]])


class Look(NamedTuple):
    """Displacements as a rotation leaves them."""

    rotation: np.ndarray    # (3,)
    left: np.ndarray        # (2, N) displacement left without the rotation
    pull: np.ndarray        # (2, N) the same times the inverse of its covariance
    z: np.ndarray           # (N,) squared standard deviations by which turning alone misses


class Lines(NamedTuple):
    """Displacements against the lines that moving along a direction gives them."""

    miss: np.ndarray        # (..., N) distance from the line
    variance: np.ndarray    # (..., N) of it
    ahead: np.ndarray       # (..., N) progress along the line
    along: np.ndarray       # (..., 2, N) unit vector of the line
    speed: np.ndarray       # (..., N) length of that vector before


class Move(NamedTuple):
    """An explanation by turning and moving."""

    rotation: np.ndarray
    direction: np.ndarray
    covariance: np.ndarray  # (6, 6), or (3, 3) of the direction where the rotation was given
    cost: float
    agrees: np.ndarray      # (N,) cells that it explains
    share: float            # of the evidence


class Cells:
    """Displacements as arrays of components, in units of the focal length.

    Attributes
    ----------
    worth : (N,) what each cell counts; the sum is 1
    filled : share of the parts of the image that show anything
    """

    def __init__(self, points: np.ndarray, displaced: np.ndarray, covariance: np.ndarray,
                 focal_px: float) -> None:
        """Arguments as for `vjepa_ros.looming.camera_motion.camera_motion`."""
        self.at = points.T.copy()                                                       # 2 N
        x, y = self.at
        self.to = np.ones((3, len(x)))
        self.to[:2] = displaced.T
        sx, sxy, sy = covariance[:, 0, 0], covariance[:, 0, 1], covariance[:, 1, 1]
        apart = self.to[:2] - self.at
        apart *= apart
        loose = LOOSE_PX ** 2 + (LOOSE_SHARE * focal_px) ** 2 * (apart[0] + apart[1])
        self.spread = np.array([sy + loose, sx + loose, -2 * sxy]) / focal_px ** 2      # 3 N
        up, across, twice = self.spread
        det = across * up - (twice / 2) ** 2
        self.sure, self.both = self.spread[:2] / det, twice / (2 * det)
        self.rows = np.array(turn_rows(x, y)).swapaxes(0, 1).copy()                     # 3 2 N
        self.flat = self.rows.reshape(3, -1)
        weighted = _pulled(self.sure, self.both, self.rows)
        squares = (weighted[:, None] * self.rows).sum(2)
        self.squares = squares.reshape(9, -1)                                           # 9 N
        worth = 1 / (1 + (sx + sy) / 0.5)    # cells sure to half a pixel decide
        # Every part of the image has about the same say, however much texture it holds: what
        # moves on its own rarely fills all of them.
        part = 4 * _quantised(y, 3) + _quantised(x, 4)
        total = np.bincount(part, worth, 12)
        worth /= (total + 0.15 * total.max())[part]
        self.filled = worth.sum() / 12
        self.worth = worth / worth.sum()
        self.near2 = (NEAR_PX / focal_px) ** 2

    def look(self, rotation: np.ndarray) -> Look:
        """Take the rotation off the displacements."""
        left = self.rest(rotation)
        pull = _pulled(self.sure, self.both, left)
        z = left * pull
        return Look(rotation, left, pull, z[0] + z[1])

    def rest(self, rotation: np.ndarray) -> np.ndarray:
        """Displacement (2, N) left without the rotation, see `unturned`."""
        ray = np.array(matrix(rotation)).T @ self.to
        left, depth = ray[:2], np.maximum(ray[2], LEAST_DEPTH)
        left /= depth
        left -= self.at
        return left

    def lines(self, left: np.ndarray, t: np.ndarray) -> Lines:
        """What is left, (..., 2, N), against the lines of a direction t (..., 3)."""
        along = t[..., :2, None] - t[..., 2:, None] * self.at
        square = along * along
        speed = np.sqrt(square[..., 0, :] + square[..., 1, :])
        speed += 1e-6
        along /= speed[..., None, :]
        ax, ay = along[..., 0, :], along[..., 1, :]
        dx, dy = left[..., 0, :], left[..., 1, :]
        up, across, twice = self.spread
        variance = ax * ax * up + ay * ay * across + ax * ay * twice
        np.maximum(variance, LEAST_VARIANCE, out=variance)
        return Lines(ax * dy - ay * dx, variance, ax * dx + ay * dy, along, speed)

    def turn(self, worth: np.ndarray, rounds: int, seen: Look, started: bool = False,
             ) -> tuple[np.ndarray, float, Look]:
        """Rotation that explains most on its own: its covariance, the cost left and its look.

        `seen` is the look of where to start; only with `started` does it tell weights.
        """
        rotation, weight = seen.rotation, worth
        for k in range(rounds):
            if k or started:
                # Wide at first, so that a rough start reaches the majority.
                wide = max(_middle(seen.z) / 2, 1.0) if k < rounds - 2 else 1.0
                weight = worth / _squared(1 + seen.z / (SOFT * wide))
            most = max(weight.max(), 1e-9)
            prior = most / TURN_PRIOR ** 2
            normal = (self.squares @ weight).reshape(3, 3) + prior * _EYE[:3, :3]
            right = self.flat @ (weight * seen.pull).ravel() - prior * rotation
            rotation = rotation + _solved(normal, right)
            seen = self.look(rotation)
        covariance = _inverse(normal / most)
        return covariance, float(self.worth @ (seen.z / (SOFT + seen.z))), seen

    def turn_of_wall(self) -> np.ndarray:
        """Rotation if the scene were a wall facing the camera: what no affine map explains."""
        (x, y), n = self.at, self.at.shape[1]
        # Rows: six of the affine map, then the quadratic part of pitch and yaw.
        rows = np.zeros((8, 2, n))
        rows[0, 0] = rows[3, 1] = 1
        rows[1:3, 0] = rows[4:6, 1] = self.at
        np.multiply(self.at, -y, out=rows[6])
        np.multiply(self.at, x, out=rows[7])
        rows = rows.reshape(8, -1)
        goal = (self.to[:2] - self.at).ravel()
        base = weight = np.concatenate([self.worth, self.worth])
        found = np.zeros(8)
        for k in range(WALL_ROUNDS):
            if k:
                left = np.abs(goal - found @ rows)
                weight = base / _squared(1 + _squared(left / (2 * _middle(left) + 1e-5)))
            weighted = rows * weight
            found = _solved(weighted @ rows.T + 1e-9 * _EYE, weighted @ goal)
        return np.array([found[6], found[7], (found[4] - found[2]) / 2])

    def direction(self, looks: list[Look]) -> tuple[Look, np.ndarray]:
        """Of rotations the one that moves best, and its direction.

        The direction is that whose lines fit best after the rotation: least eigenvector,
        reweighted.
        """
        left = np.array([look.left for look in looks])                                # H 2 N
        (x, y), dx, dy = self.at, left[:, 0], left[:, 1]
        # Cross products of the rays (x, y, 1) and (x + dx, y + dy, 1).
        cross = np.array([-dy, dx, x * dy - y * dx]).swapaxes(0, 1).copy()            # H 3 N
        weight = self.worth / (dx * dx + dy * dy + self.near2)
        turned = cross.transpose(0, 2, 1)
        t = _least((cross * weight[:, None]) @ turned)
        seen = self.lines(left, t)
        z = seen.miss ** 2 / seen.variance
        wide = np.maximum(_middle(z), 1.0)[:, None]
        weight = self.worth / (_squared(seen.speed * (1 + z / (SOFT * wide))) * seen.variance)
        t = _least((cross * weight[:, None]) @ turned)
        seen = self.lines(left, t)
        deviation = np.sqrt(seen.variance)
        sign = np.where((np.tanh(seen.ahead / deviation) / deviation) @ self.worth >= 0, 1.0, -1.0)
        best = 0
        if len(looks) > 1:
            best = int(np.argmin(self.cost(seen._replace(ahead=seen.ahead * sign[:, None]))))
        return looks[best], t[best] * sign[best]

    def cost(self, seen: Lines) -> np.ndarray:
        """Robust cost of motions: share of the evidence they leave unexplained, softly."""
        z = seen.miss ** 2 / seen.variance + np.where(_behind(seen), AGREE, 0.0)
        far = seen.ahead ** 2 / self.near2
        return (z / (SOFT + z) + 0.01 * (far / (1 + far))) @ self.worth

    def move(self, rotation: np.ndarray, t: np.ndarray, left: np.ndarray | None = None,
             fixed: bool = False, rounds: int = 4) -> Move:
        """Gauss-Newton over direction and (unless fixed) rotation, from a start.

        `left` is what the rotation leaves, None to work it out.
        """
        x, y = self.at
        left = self.rest(rotation) if left is None else left
        seen = self.lines(left, t)
        size, kinds = (3, 1) if fixed else (6, 2)
        rows_x, rows_y = self.rows.reshape(3, 2, 1, -1).swapaxes(0, 1)                  # 3 1 N
        # By rotation and direction: of the distance from the line; and of the progress along it,
        # by rotation only, as a little prior against parallax that decides between turning and
        # moving sideways.
        rows = np.zeros((size, kinds, len(x)))
        weights, misses = np.empty((2, kinds, len(x)))
        for k in range(rounds):
            z = seen.miss ** 2 / seen.variance
            wide = max(_middle(z), 1.0) if k < rounds // 2 else 1.0
            weight = self.worth / (_squared(1 + z / (SOFT * wide)) * seen.variance)
            weight *= _KEPT[_behind(seen).view(np.int8)]
            weights[0], misses[0] = weight, seen.miss
            (dx, dy), by_move = left, rows[-3:, 0]
            by_move[0], by_move[1], by_move[2] = dy, -dx, dx * y - dy * x
            by_move /= seen.speed
            if not fixed:
                weights[1] = self.worth / (self.near2 + _squared(seen.ahead))
                misses[1] = seen.ahead
                np.multiply(rows_x, seen.along[::-1] * _ACROSS, out=rows[:3])
                rows[:3] -= rows_y * seen.along
            weighted = (rows * weights).reshape(size, -1)
            normal = weighted @ rows.reshape(size, -1).T
            total = normal.trace()
            normal[-3:, -3:] += total * (t[:, None] * t)
            step = _solved(normal + (1e-10 * total + 1e-12) * _EYE[:size, :size],
                           weighted @ misses.ravel())
            t = t - step[-3:]
            t /= math.sqrt(t @ t)
            if not fixed:
                rotation = rotation - step[:3]
                left = self.rest(rotation)
            seen = self.lines(left, t)
        agrees = (_squared(seen.miss) < AGREE * seen.variance) & ~_behind(seen)
        covariance = _inverse(normal / self.worth.max() + 1e-3 * _EYE[:size, :size])
        return Move(rotation, t, covariance, float(self.cost(seen)), agrees,
                     float(self.worth @ agrees))


# Of matrices as small as here; those of NumPy take five times as long to be called.

def _solved(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    regular, found = cv2.solve(matrix, right[:, None])
    if not regular:
        raise np.linalg.LinAlgError(SINGULAR)
    return found[:, 0]


def _inverse(matrix: np.ndarray) -> np.ndarray:
    regular, found = cv2.invert(matrix)
    if not regular:
        raise np.linalg.LinAlgError(SINGULAR)
    return found


def _least(matrices: np.ndarray) -> np.ndarray:
    """Eigenvectors (H, 3) of the least eigenvalues of symmetric matrices (H, 3, 3)."""
    return np.array([cv2.eigen(matrix)[2][-1] for matrix in matrices])


def _pulled(sure: np.ndarray, both: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Vectors (..., 2, N) times symmetric matrices of diagonal (2, N) and the other entry (N,)."""
    out = sure * vectors
    out += both * vectors[..., ::-1, :]
    return out


def _behind(seen: Lines) -> np.ndarray:
    """Cells (bool) that would lie behind the camera."""
    return seen.ahead <= -3 * np.sqrt(seen.variance)


def _squared(values: np.ndarray) -> np.ndarray:
    return values * values


def _middle(values: np.ndarray) -> np.ndarray:
    """Median along the last axis, without the ceremony."""
    half = values.shape[-1] // 2
    return np.partition(values, half)[..., half]


def _quantised(values: np.ndarray, steps: int) -> np.ndarray:
    low, high = values.min(), values.max()
    return np.minimum((values - low) * (steps / max(high - low, 1e-9)), steps - 1).astype(int)
