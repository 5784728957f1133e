# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Estimate how the camera turned and which way it moved, from displacements over the image.

Turning moves every point by an amount that depends on its direction only; moving moves it by one
that depends on its distance and points away from one spot (Longuet-Higgins and Prazdny, "The
interpretation of a moving retinal image", Proc. R. Soc. B 208, 1980). Three explanations are
tried, the simplest first: the camera did not turn, it only turned, it turned and moved. Where a
gyroscope tells the rotation there is nothing to choose: the displacements refine it within its
covariance, and show the direction.

A rotation moves the pixels by a homography that depends on the lens alone (Hartley and Zisserman,
"Multiple View Geometry in Computer Vision", 2004, chapter 8), so `Derotation` takes the rotation
of a gyroscope out of pairs of frames exactly, whatever is seen.

There are a few hundred cells, so NumPy calls cost more than numbers: components are rows of one
array, what all hypotheses share is computed once, and hypotheses are tried side by side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import cv2
import numpy as np

from vjepa_ros.looming.affine import AffineFits
from vjepa_ros.looming.gyroscope import Gyroscope, MOST_BIAS, Turn

STILL_SHARE = 0.3      # share of the evidence without displacement that shows: it did not turn
FIXED_SHARE = 0.1      # the same, where other motion fills less than half of the image
TURN_SHARE = 0.9       # share of the evidence explained by turning that leaves nothing to explain
MOVE_GAIN = 0.1        # cost by which turning and moving must beat turning alone
LEAST_CELLS = 8        # cells needed for any statement
MOST_USED = 150        # about so many cells are used, evenly
AGREE = 9.0            # squared standard deviations up to which a displacement agrees
TURN_PRIOR = 0.2       # rad; prior standard deviation of the rotation
LOOSE_PX = 0.05        # px; error of the model, in addition to the stated covariance
LOOSE_SHARE = 0.02     # the same as a share of the displacement (lens distortion, focal length)
NEAR_PX = 15.0         # px; prior standard deviation of the parallax
SOFT = 4.0             # squared standard deviations at which the root of a weight is one half
WALL_ROUNDS = 4
BEHIND = 0.2           # share of its weight that a cell behind the camera keeps
LEAST_VARIANCE = 1e-14  # far below all others: of a cell exactly where the camera moves to
LEAST_DEPTH = 0.05     # of a rotated ray, so that none comes to lie behind the camera
STANDS_SHARE = 0.9     # share of the evidence without displacement that shows: it stood still
SINGULAR = 'the displacements of the cells lead to a singular matrix'
FOCAL_ERROR = 0.2      # standard error of an assumed focal length, as a share of it
MOST_TURN = 0.15       # of the image that a rotation may move out of it
_KEPT = np.array([1.0, BEHIND])
_EYE = np.eye(8)
_ACROSS = np.array([[1.0], [-1.0]])


@dataclass(frozen=True)
class CameraMotion:
    """Motion of the camera between two frames, as seen in the newer one."""

    rotation: np.ndarray  # (3,) rad about x (pitch, up), y (yaw, right), z (roll)
    direction: np.ndarray | None  # (3,) unit vector the camera moved along; None when unknown
    covariance: np.ndarray  # (6, 6) of rotation and direction
    agreement: float  # share of the evidence that the motion explains, 0 to 1
    kind: str  # 'still', 'turn', 'move' or 'unknown'


class Rays:
    """Directions x/z, y/z of the centres of cells (C, 2) and samples (Hs, Ws, 2) of a frame."""

    def __init__(self, cells: np.ndarray, samples: np.ndarray, focal_px: float) -> None:
        self.cells, self.focal_px = cells, focal_px
        self.at = np.ascontiguousarray(cells.T, np.float64)         # 2 C
        self.squares = self.at * self.at
        self.turn_rows = _turn_rows(self.at)                        # 2 3 C
        self._samples = samples
        flat = samples.reshape(-1, 2).T
        self._homogeneous = np.concatenate([flat, np.ones((1, flat.shape[1]))])
        self._cells = np.concatenate([self.at, np.ones((1, len(cells)))])

    def camera_motion(self, fits: AffineFits, start: CameraMotion | None = None,
                      turn: Turn | None = None) -> CameraMotion:
        """Explain fits by a motion of the camera; `turn` is its rotation by a gyroscope."""
        cells = self._evidence(fits)
        if cells is not None:
            return cells.camera_motion(start, turn)
        prior = np.diag([TURN_PRIOR ** 2] * 3 + [1.0] * 3)
        if turn is None:
            return CameraMotion(np.zeros(3), None, prior, 0.0, 'unknown')
        prior[:3, :3] = turn.covariance
        return CameraMotion(turn.rotation, None, prior, 0.0, 'unknown')

    def rotation_at_rest(self, fits: AffineFits) -> np.ndarray | None:
        """Return the rotation (3,) [rad] that fits show of a camera at rest; None: it moved."""
        cells = self._evidence(fits)
        return None if cells is None else cells.rotation_at_rest()

    def _evidence(self, fits: AffineFits) -> _Cells | None:
        cov, shift = fits.covariance, fits.theta[:, ::3]
        if cov.shape[1] != 2:
            cov = cov[:, ::3, ::3]
        use = np.flatnonzero((fits.inliers > 0.25) & (cov[:, 0, 0] + cov[:, 1, 1] < 9.0)
                             & (fits.misfit < 1.0) & np.isfinite(shift).all(1))
        use = use[::max(1, len(use) // MOST_USED)]
        if len(use) < LEAST_CELLS:
            return None
        rays = self.cells[use]
        return _Cells(rays, rays + shift[use] / self.focal_px, cov[use], self.focal_px)

    def turn_displacement(self, rotation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Compute the displacement, newer to older frame, that a rotation of the camera makes."""
        r = cv2.Rodrigues(rotation)[0]
        ends = r @ self._homogeneous
        field = (ends[:2] / np.maximum(ends[2], LEAST_DEPTH)).T.reshape(self._samples.shape)
        field = (field - self._samples).astype(np.float32) * self.focal_px
        ends = r @ self._cells
        depth = np.maximum(ends[2], LEAST_DEPTH)
        ends = ends[:2] / depth
        affine = np.empty((2, 3, ends.shape[1]))
        affine[:, 0] = (ends - self.at) * self.focal_px
        affine[:, 1:] = (r[:2, :2, None] - ends[:, None] * r[2, :2, None]) / depth
        affine[:, 1:] -= _EYE[:2, :2, None]
        return field, affine.reshape(6, -1).T


class _Look(NamedTuple):
    """Displacements without a rotation."""

    rotation: np.ndarray    # (3,)
    left: np.ndarray        # (2, N) displacement without the rotation
    pull: np.ndarray        # (2, N) the same times the inverse of its covariance
    z: np.ndarray           # (N,) squared standard deviations by which turning alone misses


class _Lines(NamedTuple):
    """Displacements relative to the lines that moving along a direction gives them."""

    miss: np.ndarray        # (..., N) distance from the line
    variance: np.ndarray    # (..., N) of it
    ahead: np.ndarray       # (..., N) progress along the line
    behind: np.ndarray      # (..., N) bool, cells that would lie behind the camera
    along: np.ndarray       # (..., 2, N) unit vector of the line
    speed: np.ndarray       # (..., N) length of that vector before


class _Move(NamedTuple):
    """An explanation by turning and moving."""

    motion: CameraMotion    # its covariance is that of the direction alone, without a rotation
    cost: float
    agrees: np.ndarray      # (N,) bool, cells that it explains


class _Cells:
    """Displacements as arrays of components, in units of the focal length."""

    def __init__(self, points: np.ndarray, displaced: np.ndarray, covariance: np.ndarray,
                 focal_px: float) -> None:
        """Take directions (N, 2) in the newer and the older frame; covariance (N, 2, 2) [px^2]."""
        self.at = points.T.copy()                                                       # 2 N
        self.middle = len(points) // 2      # of sorted values, by `numpy.partition`
        self.to = np.ones((3, len(points)))
        self.to[:2] = displaced.T
        sx, sxy, sy = covariance[:, 0, 0], covariance[:, 0, 1], covariance[:, 1, 1]
        apart = self.to[:2] - self.at
        apart *= apart
        loose = LOOSE_PX ** 2 + (LOOSE_SHARE * focal_px) ** 2 * (apart[0] + apart[1])
        self.spread = np.array([sy + loose, sx + loose, -2 * sxy]) / focal_px ** 2      # 3 N
        up, across, twice = self.spread
        det = across * up - (twice / 2) ** 2
        # The inverse of the covariance: its diagonal, and the other entry.
        self.sure, self.both = self.spread[:2] / det, twice / (2 * det)
        self.rows = _turn_rows(self.at).swapaxes(0, 1).copy()                           # 3 2 N
        self.flat = self.rows.reshape(3, -1)
        weighted = self.sure * self.rows + self.both * self.rows[:, ::-1]
        self.squares = (weighted[:, None] * self.rows).sum(2).reshape(9, -1)            # 9 N
        worth = 1 / (1 + (sx + sy) / 0.5)    # cells sure to half a pixel decide
        # Every part of the image weighs about the same, however much texture it has: what moves
        # on its own rarely fills all of them.
        low, steps = self.at.min(1, keepdims=True), np.array([[4], [3]])
        part = (self.at - low) * (steps / np.maximum(self.at.max(1, keepdims=True) - low, 1e-9))
        x, y = np.minimum(part, steps - 1).astype(int)
        total = np.bincount(4 * y + x, worth, 12)
        worth /= (total + 0.15 * total.max())[4 * y + x]
        self.filled = worth.sum() / 12      # share of the parts with any evidence
        self.worth = worth / worth.sum()
        self.near2 = (NEAR_PX / focal_px) ** 2

    def camera_motion(self, start: CameraMotion | None, turn: Turn | None) -> CameraMotion:
        """Choose the explanation; see `Rays.camera_motion`."""
        if turn is not None:
            return self.turned(turn, start)
        if start is not None and start.kind != 'unknown':
            return self.refined(start)
        unmoved = self.look(np.zeros(3))
        still = unmoved.z < AGREE
        cov, cost, seen = self.turn(self.worth, 5, unmoved)
        turned = seen.z < AGREE
        share = float(self.worth @ turned)
        # Cells that stay put are no coincidence, even a few, where another motion explains only a
        # part of the image: a large object that moves before a plain wall otherwise passes for a
        # turning camera.
        fixed = self.worth @ still >= FIXED_SHARE
        filled = self.worth * (~still * self.filled)
        if self.worth @ still >= max(STILL_SHARE, share / 2):
            return self.still(still, unmoved)
        if share >= TURN_SHARE and not (fixed and filled @ turned < 0.5):
            return self.with_direction(seen, cov, 'turn')
        starts = unmoved, seen, self.look(self.turn_of_wall())
        best, t = self.direction(*starts)
        found = self.move(starts[best], t)
        if fixed and filled @ found.agrees < 0.5:
            return self.still(still, unmoved)
        if found.cost > cost - MOVE_GAIN:
            return self.with_direction(seen, cov, 'turn')
        return found.motion

    def look(self, rotation: np.ndarray) -> _Look:
        """Take a rotation off the displacements."""
        ray = cv2.Rodrigues(rotation)[0].T @ self.to
        left = ray[:2]
        left /= np.maximum(ray[2], LEAST_DEPTH)
        left -= self.at
        pull = self.sure * left + self.both * left[::-1]
        z = left * pull
        return _Look(rotation, left, pull, z[0] + z[1])

    def lines(self, left: np.ndarray, t: np.ndarray) -> _Lines:
        """Compare what is left, (..., 2, N), with the lines of a direction t (..., 3)."""
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
        ahead = ax * dx + ay * dy
        return _Lines(ax * dy - ay * dx, variance, ahead, ahead <= -3 * np.sqrt(variance), along,
                      speed)

    def turn(self, worth: np.ndarray, rounds: int, seen: _Look, started: bool = False,
             known: Turn | None = None) -> tuple[np.ndarray, float, _Look]:
        """Find the rotation that explains most on its own.

        `seen` is the look at the start; weights follow from it only with `started`. `known` is
        the rotation by a gyroscope.
        """
        rotation, weight = seen.rotation, worth
        normal, most = _EYE[:3, :3], 1.0
        for k in range(rounds):
            if k or started:
                # Wide at first, so that a rough start reaches the majority.
                wide = 1.0
                if k < rounds - 2:
                    wide = max(np.partition(seen.z, self.middle)[self.middle] / 2, 1.0)
                weight = worth / np.square(1 + seen.z / (SOFT * wide))
            most = max(weight.max(), 1e-9)
            prior, mean = most / TURN_PRIOR ** 2 * _EYE[:3, :3], 0.0
            if known is not None:
                prior, mean = most * np.linalg.inv(known.covariance), known.rotation
            normal = (self.squares @ weight).reshape(3, 3) + prior
            right = self.flat @ (weight * seen.pull).ravel() - prior @ (rotation - mean)
            rotation = rotation + np.linalg.solve(normal, right)
            seen = self.look(rotation)
        return (np.linalg.inv(normal / most), float(self.worth @ (seen.z / (SOFT + seen.z))),
                seen)

    def turn_of_wall(self) -> np.ndarray:
        """Find the rotation if the scene were a wall: what no affine map explains."""
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
                wide = 2 * np.partition(left, n)[n] + 1e-5
                weight = base / np.square(1 + np.square(left / wide))
            weighted = rows * weight
            found = np.linalg.solve(weighted @ rows.T + 1e-9 * _EYE, weighted @ goal)
        return np.array([found[6], found[7], (found[4] - found[2]) / 2])

    def direction(self, *looks: _Look) -> tuple[int, np.ndarray]:
        """Choose among rotations the one after which a direction explains most.

        The direction is that whose lines fit best: least eigenvector, reweighted once.
        """
        left = np.empty((len(looks), *looks[0].left.shape))                           # H 2 N
        for k, look in enumerate(looks):
            left[k] = look.left
        (x, y), dx, dy = self.at, left[:, 0], left[:, 1]
        # Cross products of the rays (x, y, 1) and (x + dx, y + dy, 1).
        cross = np.array([-dy, dx, x * dy - y * dx]).swapaxes(0, 1).copy()            # H 3 N
        weight = self.worth / (dx * dx + dy * dy + self.near2)
        for again in (True, False):
            normal = (cross * weight[:, None]) @ cross.transpose(0, 2, 1)
            t = np.empty((len(left), 3))
            for k, matrix in enumerate(normal):
                t[k] = cv2.eigen(matrix)[2][-1]
            seen = self.lines(left, t)
            if again:
                z = seen.miss ** 2 / seen.variance
                wide = np.partition(z, self.middle)[:, self.middle, None]
                wide = np.maximum(wide, 1.0)
                weight = self.worth / (np.square(seen.speed * (1 + z / (SOFT * wide)))
                                       * seen.variance)
        deviation = np.sqrt(seen.variance)
        sign = np.where((np.tanh(seen.ahead / deviation) / deviation) @ self.worth >= 0, 1.0, -1.0)
        best = 0
        if len(left) > 1:
            ahead = seen.ahead * sign[:, None]
            seen = seen._replace(ahead=ahead, behind=ahead <= -3 * deviation)
            best = int(np.argmin(self.cost(seen)))
        return best, t[best] * sign[best]

    def cost(self, seen: _Lines) -> np.ndarray:
        """Compute the robust cost of motions: the share of the evidence left unexplained."""
        z = seen.miss ** 2 / seen.variance + np.where(seen.behind, AGREE, 0.0)
        far = seen.ahead ** 2 / self.near2
        return (z / (SOFT + z) + 0.01 * (far / (1 + far))) @ self.worth

    def move(self, look: _Look, t: np.ndarray, fixed: bool = False, rounds: int = 4,
             turn: Turn | None = None) -> _Move:
        """Refine direction and, unless fixed, rotation from a start (Gauss-Newton).

        `turn` is the rotation by a gyroscope. It says what is turning and what is parallax.
        """
        x, y = self.at
        known = None if turn is None else self.worth.max() * np.linalg.inv(turn.covariance)
        seen = self.lines(look.left, t)
        size, kinds = (3, 1) if fixed else (6, 2)
        rows_x, rows_y = self.rows.reshape(3, 2, 1, -1).swapaxes(0, 1)                  # 3 1 N
        # By rotation and direction: of the distance from the line; and of the progress along it,
        # by rotation only, as a small prior against parallax that decides between turning and
        # moving sideways.
        rows = np.zeros((size, kinds, len(x)))
        weights, misses = np.empty((2, kinds, len(x)))
        normal = _EYE[:size, :size]
        for k in range(rounds):
            z = seen.miss ** 2 / seen.variance
            wide = 1.0
            if k < rounds // 2:
                wide = max(np.partition(z, self.middle)[self.middle], 1.0)
            weight = self.worth / (np.square(1 + z / (SOFT * wide)) * seen.variance)
            weights[0], misses[0] = weight * _KEPT[seen.behind.view(np.int8)], seen.miss
            (dx, dy), by_move = look.left, rows[-3:, 0]
            by_move[0], by_move[1], by_move[2] = dy, -dx, dx * y - dy * x
            by_move /= seen.speed
            if not fixed:
                weights[1] = 0.0 if turn is not None else (
                    self.worth / (self.near2 + np.square(seen.ahead)))
                misses[1] = seen.ahead
                np.multiply(rows_x, seen.along[::-1] * _ACROSS, out=rows[:3])
                rows[:3] -= rows_y * seen.along
            weighted = (rows * weights).reshape(size, -1)
            normal = weighted @ rows.reshape(size, -1).T
            goal = weighted @ misses.ravel()
            if turn is not None and known is not None:
                normal[:3, :3] += known
                goal[:3] += known @ (look.rotation - turn.rotation)
            total = normal.trace()
            normal[-3:, -3:] += total * (t[:, None] * t)
            step = np.linalg.solve(normal + (1e-10 * total + 1e-12) * _EYE[:size, :size],
                                   goal)
            t = t - step[-3:]
            t /= math.sqrt(t @ t)
            if not fixed:
                look = self.look(look.rotation - step[:3])
            seen = self.lines(look.left, t)
        agrees = (np.square(seen.miss) < AGREE * seen.variance) & ~seen.behind
        covariance = np.linalg.inv(normal / self.worth.max() + 1e-3 * _EYE[:size, :size])
        share = float(self.worth @ agrees)
        motion = CameraMotion(look.rotation, t, covariance, share,
                              'move' if share > 0.4 else 'unknown')
        return _Move(motion, float(self.cost(seen)), agrees)

    def refined(self, start: CameraMotion) -> CameraMotion:
        """Fit a motion of the same kind again from a start."""
        seen, worth = self.look(start.rotation), self.worth
        if start.kind == 'move' and start.direction is not None:
            return self.move(seen, start.direction, rounds=3).motion
        if start.kind == 'still':
            worth = worth * (seen.z < AGREE)
        covariance, _, seen = self.turn(worth, 2, seen, started=True)
        return self.with_direction(seen, covariance, start.kind)

    def turned(self, turn: Turn, start: CameraMotion | None) -> CameraMotion:
        """Find the direction, and refine the rotation of a gyroscope."""
        seen = self.look(turn.rotation if start is None else start.rotation)
        if start is not None and start.direction is not None and start.kind != 'turn':
            return self.move(seen, start.direction, rounds=3, turn=turn).motion
        # Turning alone, within the error of the gyroscope, comes first here, too.
        covariance, cost, turned = self.turn(self.worth, 3, seen, started=True, known=turn)
        if start is None or start.direction is None:
            found = self.move(seen, self.direction(seen)[1], turn=turn)
            if found.cost <= cost - MOVE_GAIN:
                return found.motion
        return self.with_direction(turned, covariance, 'turn')

    def rotation_at_rest(self) -> np.ndarray | None:
        """Find the rotation if next to nothing moved, else None."""
        unmoved = self.look(np.zeros(3))
        still = unmoved.z < AGREE
        if self.worth @ still < STANDS_SHARE:
            return None
        return self.turn(self.worth * still, 1, unmoved)[2].rotation

    def still(self, still: np.ndarray, unmoved: _Look) -> CameraMotion:
        """Take the camera as not turning, by those cells (bool) without displacement."""
        covariance, _, seen = self.turn(self.worth * still, 1, unmoved)
        return self.with_direction(seen, covariance, 'still')

    def with_direction(self, seen: _Look, covariance: np.ndarray, kind: str) -> CameraMotion:
        """Add to a settled rotation the direction that explains the rest."""
        found = self.move(seen, self.direction(seen)[1], fixed=True).motion
        joint = np.zeros((6, 6))
        joint[:3, :3], joint[3:, 3:] = covariance, found.covariance
        return replace(found, covariance=joint, kind=kind)


def _turn_rows(at: np.ndarray) -> np.ndarray:
    """Displacement (2, 3, N) in x and y, newer to older frame, per rad of rotation, at (2, N)."""
    x, y = at
    return np.array([[-x * y, 1 + x * x, -y], [-1 - y * y, x * y, x]])


@dataclass(frozen=True)
class KnownTurn:
    """The rotation between two frames by a gyroscope."""

    turn: Turn  # the rotation; its covariance includes the error of the focal length
    pixels: np.ndarray  # (3, 3) homography of it, newer to older pixels
    lost: float  # share of the image, across or down, that it moves out of it


class Derotation:
    """Rotations between the newest frame of a history and older ones, by a gyroscope.

    `size, center`: width and height, and principal point x, y, of the part of the image in use
    [px]; `focal_error`: standard error of the focal length, as a share of it.
    """

    def __init__(self, gyroscope: Gyroscope, newest_ns: int, rays: Rays, size: tuple[int, int],
                 center: tuple[float, float], focal_error: float) -> None:
        self._gyroscope, self._newest_ns, self._rays = gyroscope, newest_ns, rays
        self._size, self._focal_error = np.array(size), focal_error
        self._lens = np.array([[rays.focal_px, 0, center[0]], [0, rays.focal_px, center[1]],
                               [0, 0, 1.0]])

    def since(self, older_ns: int) -> KnownTurn:
        """Return the rotation since an older frame, of stamp [ns]; GyroscopeError when unknown."""
        turn = self._gyroscope.turn(older_ns, self._newest_ns)
        # What looks like this rotation is that by another angle, if the focal length is wrong.
        doubt = self._focal_error ** 2 * np.outer(turn.rotation, turn.rotation)
        turn = replace(turn, covariance=turn.covariance + doubt)
        pixels = self._lens @ cv2.Rodrigues(turn.rotation)[0] @ np.linalg.inv(self._lens)
        middle = (self._size - 1) / 2
        end = pixels @ [*middle, 1.0]
        lost = 1.0      # beyond a quarter of a turn
        if end[2] > 0:
            lost = float((np.abs(end[:2] / end[2] - middle) / self._size).max())
        return KnownTurn(turn, pixels, lost)

    def learn(self, turn: Turn, fits: AffineFits) -> None:
        """Let the gyroscope learn its bias, if fits show that the camera was at rest."""
        if np.abs(turn.rotation).max() < MOST_BIAS * turn.dt_s:
            seen = self._rays.rotation_at_rest(fits)
            if seen is not None:
                self._gyroscope.learn(turn, seen)
