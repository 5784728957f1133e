# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The motion of the camera and the looming of its cells as the formulas stand.

One hypothesis after the other, one matrix a cell: slow, and plain enough to be compared with
`vjepa_ros.looming.camera_motion` and `vjepa_ros.looming.expansion`.
"""

from __future__ import annotations

import numpy as np

from vjepa_ros.looming.affine import AffineFits
from vjepa_ros.looming.camera_motion import CameraMotion
from vjepa_ros.looming.expansion import PairLooming, View, _cauchy, _confidence
from vjepa_ros.looming.rotation import matrix, unturned

_STILL_SHARE = 0.3     # of the evidence without displacement shows that the camera did not turn
_FIXED_SHARE = 0.1     # the same, where other motion is seen in less than half of the image
_TURN_SHARE = 0.9      # of the evidence explained by turning alone leaves nothing to explain
_MOVE_GAIN = 0.1       # cost by which turning and moving must beat turning alone
_TURN_PRIOR = 0.2      # rad; what the camera may have turned where nothing tells
_LEAST = 8             # cells needed for any statement
_LOOSE_PX = 0.05       # error of the model in px, beside the stated covariance
_LOOSE_SHARE = 0.02    # and as a share of the displacement (lens distortion, focal length)
_NEAR_PX = 15.0        # parallax beyond this is as unlikely as one standard deviation
_AGREE = 9.0           # squared standard deviations up to which a displacement agrees
_SOFT = 4.0            # squared standard deviations that halve a weight's root
_STATIC_ODDS = 1.5      # a cell belongs to the still scene rather than to a mover, beforehand
_ANY_LOOMING = 0.3      # width over which the looming per step of a mover may differ
_TAPER = 0.33           # distance from that point, as a share of the focal length
_FINEST = 1e-4          # looming per step is never known better than this
_SLOPES = [1, 2, 4, 5]  # of theta


def turn_rows(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Displacement (N, 3) in x and in y, newer to older frame, per rad of camera rotation."""
    one = np.ones_like(x)
    return np.stack([-x * y, one + x * x, -y], -1), np.stack([-one - y * y, x * y, x], -1)


def camera_motion(points: np.ndarray, displaced: np.ndarray, covariance: np.ndarray,
                  focal_px: float, start: CameraMotion | None = None) -> CameraMotion:
    """As `vjepa_ros.looming.camera_motion.camera_motion`, which says what is what."""
    if len(points) < _LEAST:
        covariance = np.diag([_TURN_PRIOR ** 2] * 3 + [1.0] * 3)
        return CameraMotion(np.zeros(3), None, covariance, 0.0, 'unknown')
    c = _Cells(points, displaced, covariance, focal_px)
    if start is not None and start.kind != 'unknown':
        return c.refined(start)
    still = c.misfit(np.zeros(3)) < _AGREE
    turn, cov, cost = c.turn(c.worth, rounds=5)
    share = float(c.worth @ (c.misfit(turn) < _AGREE))
    if c.worth @ still >= max(_STILL_SHARE, share / 2):
        rotation, cov, _ = c.turn(c.worth * still, rounds=1)
        return c.with_direction(rotation, cov, 'still')
    if share >= _TURN_SHARE and not c.fixed_scene(still, turn):
        return c.with_direction(turn, cov, 'turn')
    starts = [(s, c.direction(s)) for s in (np.zeros(3), turn, c.turn_of_wall())]
    start, t = min(starts, key=lambda s: c.cost(*s))
    rotation, t, joint, moved_cost, share = c.move(start, t)
    if c.fixed_scene(still, rotation, t):
        rotation, cov, _ = c.turn(c.worth * still, rounds=1)
        return c.with_direction(rotation, cov, 'still')
    if moved_cost > cost - _MOVE_GAIN:
        return c.with_direction(turn, cov, 'turn')
    return CameraMotion(rotation, t, joint, share, 'move' if share > 0.4 else 'unknown')


def _middle(values: np.ndarray) -> float:
    """Median, without the ceremony."""
    return float(np.partition(values, len(values) // 2)[len(values) // 2])


def _quantised(values: np.ndarray, steps: int) -> np.ndarray:
    low, high = values.min(), values.max()
    return np.minimum((values - low) * (steps / max(high - low, 1e-9)), steps - 1).astype(int)


class _Cells:
    """Displacements as arrays of components, in units of the focal length."""

    def __init__(self, points: np.ndarray, displaced: np.ndarray, covariance: np.ndarray,
                 focal_px: float) -> None:
        self.x, self.y = points[:, 0], points[:, 1]
        self.to_x, self.to_y = displaced[:, 0], displaced[:, 1]
        self.rows_x, self.rows_y = turn_rows(self.x, self.y)
        sx, sxy, sy = covariance[:, 0, 0], covariance[:, 0, 1], covariance[:, 1, 1]
        size2 = ((displaced - points) ** 2).sum(1) * focal_px ** 2
        loose = _LOOSE_PX ** 2 + _LOOSE_SHARE ** 2 * size2
        self.sx, self.sxy, self.sy = (a / focal_px ** 2 for a in (sx + loose, sxy, sy + loose))
        det = self.sx * self.sy - self.sxy ** 2
        self.ix, self.ixy, self.iy = self.sy / det, -self.sxy / det, self.sx / det
        worth = 1 / (1 + (sx + sy) / 0.5)    # cells sure to half a pixel decide
        # Every part of the image has about the same say, however much texture it holds: what
        # moves on its own rarely fills all of them.
        part = 4 * _quantised(self.y, 3) + _quantised(self.x, 4)
        total = np.bincount(part, worth, 12)
        worth /= (total + 0.15 * total.max())[part]
        self.filled = worth.sum() / 12
        self.worth = worth / worth.sum()
        self.near2 = (_NEAR_PX / focal_px) ** 2

    def rest(self, rotation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Displacement left without the rotation."""
        x, y, _ = unturned(self.to_x, self.to_y, rotation)
        return x - self.x, y - self.y

    def misfit(self, rotation: np.ndarray) -> np.ndarray:
        """Squared standard deviations by which turning alone misses each cell."""
        dx, dy = self.rest(rotation)
        return self.ix * dx * dx + 2 * self.ixy * dx * dy + self.iy * dy * dy

    def agrees(self, rotation: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Cells (bool) that a motion explains."""
        miss, variance, ahead, *_ = self.misses(*self.rest(rotation), t)
        return (miss ** 2 < _AGREE * variance) & (ahead > -3 * np.sqrt(variance))

    def fixed_scene(self, still: np.ndarray, rotation: np.ndarray,
                    t: np.ndarray | None = None) -> bool:
        """Whether a few still cells outweigh a motion that explains only a part of the image.

        Cells that stay put are no coincidence; a large object that moves before a plain wall
        otherwise passes for a turning camera.
        """
        explained = self.misfit(rotation) < _AGREE if t is None else self.agrees(rotation, t)
        return (self.worth @ still >= _FIXED_SHARE
                and self.worth @ (explained & ~still) * self.filled < 0.5)

    def refined(self, start: CameraMotion) -> CameraMotion:
        """Motion of the same kind fitted again from a start."""
        if start.kind == 'move':
            rotation, t, joint, _, share = self.move(start.rotation, start.direction, rounds=3)
            return CameraMotion(rotation, t, joint, share, 'move' if share > 0.4 else 'unknown')
        worth = self.worth
        if start.kind == 'still':
            worth = worth * (self.misfit(start.rotation) < _AGREE)
        rotation, covariance, _ = self.turn(worth, 2, start.rotation)
        return self.with_direction(rotation, covariance, start.kind)

    def turn(self, worth: np.ndarray, rounds: int, start: np.ndarray | None = None,
             ) -> tuple[np.ndarray, np.ndarray, float]:
        """Rotation that explains most on its own, its covariance and the cost left."""
        rotation, weight = np.zeros(3) if start is None else start, worth
        for k in range(rounds):
            if k or start is not None:
                z = self.misfit(rotation)
                # Wide at first, so that a rough start reaches the majority.
                wide = max(_middle(z) / 2, 1.0) if k < rounds - 2 else 1.0
                weight = worth / (1 + z / (_SOFT * wide)) ** 2
            dx, dy = self.rest(rotation)
            wx = self.rows_x * (weight * self.ix)[:, None] \
                + self.rows_y * (weight * self.ixy)[:, None]
            wy = self.rows_x * (weight * self.ixy)[:, None] \
                + self.rows_y * (weight * self.iy)[:, None]
            normal = wx.T @ self.rows_x + wy.T @ self.rows_y
            prior = max(weight.max(), 1e-9) / _TURN_PRIOR ** 2
            normal += prior * np.eye(3)
            rotation = rotation + np.linalg.solve(normal, dx @ wx + dy @ wy - prior * rotation)
        z = self.misfit(rotation)
        covariance = np.linalg.inv(normal / max(weight.max(), 1e-9))
        return rotation, covariance, float(self.worth @ (z / (_SOFT + z)))

    def turn_of_wall(self) -> np.ndarray:
        """Rotation if the scene were a wall facing the camera: what no affine map explains."""
        x, y = self.x, self.y
        one, zero = np.ones_like(x), np.zeros_like(x)
        # Columns: six of the affine map, then the quadratic part of pitch and yaw.
        rows = np.concatenate([np.stack([one, x, y, zero, zero, zero, -x * y, x * x], -1),
                               np.stack([zero, zero, zero, one, x, y, -y * y, x * y], -1)])
        goal = np.concatenate([self.to_x - x, self.to_y - y])
        base = np.tile(self.worth, 2)
        weight, found = base, np.zeros(8)
        for _ in range(4):
            weighted = rows * weight[:, None]
            found = np.linalg.solve(weighted.T @ rows + 1e-9 * np.eye(8), goal @ weighted)
            left = np.abs(goal - rows @ found)
            weight = base / (1 + (left / (2 * _middle(left) + 1e-5)) ** 2) ** 2
        return np.array([found[6], found[7], (found[4] - found[2]) / 2])

    def misses(self, dx: np.ndarray, dy: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, ...]:
        """Distance of displacements from their lines, its variance, progress, line and speed."""
        ax, ay = t[0] - self.x * t[2], t[1] - self.y * t[2]
        speed = np.sqrt(ax * ax + ay * ay) + 1e-6
        ax, ay = ax / speed, ay / speed
        variance = ay * ay * self.sx - 2 * ax * ay * self.sxy + ax * ax * self.sy
        return ax * dy - ay * dx, variance, ax * dx + ay * dy, ax, ay, speed

    def cost(self, rotation: np.ndarray, t: np.ndarray) -> float:
        """Robust cost of a motion: share of the evidence it leaves unexplained, softly."""
        miss, variance, ahead, *_ = self.misses(*self.rest(rotation), t)
        z = miss ** 2 / variance + np.where(ahead < -3 * np.sqrt(variance), _AGREE, 0.0)
        far = ahead ** 2 / self.near2
        return float(self.worth @ (z / (_SOFT + z)) + 0.01 * (self.worth @ (far / (1 + far))))

    def direction(self, rotation: np.ndarray) -> np.ndarray:
        """Direction whose lines fit best after the rotation: least eigenvector, reweighted."""
        dx, dy = self.rest(rotation)
        # Cross products of the rays (x, y, 1) and (x + dx, y + dy, 1).
        cross = np.stack([-dy, dx, self.x * dy - self.y * dx], -1)
        weight = self.worth / (dx * dx + dy * dy + self.near2)
        t = np.array([0.0, 0.0, 1.0])
        for _ in range(2):
            t = np.linalg.eigh((cross * weight[:, None]).T @ cross)[1][:, 0]
            miss, variance, ahead, _, _, speed = self.misses(dx, dy, t)
            z = miss ** 2 / variance
            weight = self.worth / (speed ** 2 * variance
                                   * (1 + z / (_SOFT * max(_middle(z), 1.0))) ** 2)
        return t if (self.worth / np.sqrt(variance)) @ np.tanh(ahead / np.sqrt(variance)) >= 0 \
            else -t

    def move(self, rotation: np.ndarray, t: np.ndarray, fixed: bool = False, rounds: int = 4,
             ) -> tuple[np.ndarray, np.ndarray, np.ndarray, float, float]:
        """Gauss-Newton over direction and (unless fixed) rotation, from a start.

        Returns rotation, direction, their covariance (6, 6), cost and the share that agrees.
        """
        for k in range(rounds):
            if not (fixed and k):
                dx, dy = self.rest(rotation)
            miss, variance, ahead, ax, ay, speed = self.misses(dx, dy, t)
            z = miss ** 2 / variance
            wide = max(_middle(z), 1.0) if k < rounds // 2 else 1.0
            weight = self.worth / (1 + z / (_SOFT * wide)) ** 2 / variance
            weight[ahead < -3 * np.sqrt(variance)] *= 0.2   # would lie behind the camera
            by_turn = ay[:, None] * self.rows_x - ax[:, None] * self.rows_y
            by_move = np.stack([dy / speed, -dx / speed, (dx * self.y - dy * self.x) / speed], -1)
            rows = np.concatenate([np.zeros_like(by_turn) if fixed else by_turn, by_move], 1)
            weighted = rows * weight[:, None]
            normal, right = weighted.T @ rows, -miss @ weighted
            if not fixed:
                # A little prior against parallax decides between turning and moving sideways.
                along = -ax[:, None] * self.rows_x - ay[:, None] * self.rows_y
                slack = along * (self.worth / (self.near2 + ahead ** 2))[:, None]
                normal[:3, :3] += slack.T @ along
                right[:3] -= ahead @ slack
            size = np.trace(normal)
            normal[3:, 3:] += size * np.outer(t, t)
            step = np.linalg.solve(normal + (1e-10 * size + 1e-12) * np.eye(6), right)
            rotation = rotation + (0 if fixed else step[:3])
            t = t + step[3:]
            t /= np.linalg.norm(t)
        agrees = self.agrees(rotation, t)
        covariance = np.linalg.inv(normal / self.worth.max() + 1e-3 * np.eye(6))
        return rotation, t, covariance, self.cost(rotation, t), float(self.worth @ agrees)

    def with_direction(self, rotation: np.ndarray, covariance: np.ndarray,
                       kind: str) -> CameraMotion:
        """Settled rotation with the direction that explains the remaining displacement."""
        _, t, joint, _, share = self.move(rotation, self.direction(rotation), fixed=True)
        joint[:3], joint[:, :3] = 0, 0
        joint[:3, :3] = covariance
        return CameraMotion(rotation, t, joint, share, kind)


def _of_view(view: View, fits: AffineFits, start: CameraMotion) -> CameraMotion:
    cov = fits.covariance[:, [0, 3]][:, :, [0, 3]]
    use = np.flatnonzero((fits.inliers > 0.25) & (cov[:, 0, 0] + cov[:, 1, 1] < 9.0)
                         & (fits.misfit < 1.0))
    use = use[::max(1, len(use) // 150)]
    ends = view.rays[use] + fits.shift[use] / view.focal_px
    return camera_motion(view.rays[use], ends, cov[use], view.focal_px, start)


def pair_looming(fits: AffineFits, view: View, rough: CameraMotion,
                 vouched: np.ndarray, dt_s: float, slant: float) -> PairLooming:
    """Looming of every cell.

    Parameters
    ----------
    fits : displacement newer to older frame, px
    view : where the cells look
    rough : motion of the camera, to be refined
    vouched : (C,) 0 to 1, how far each cell shows its displacement itself
    dt_s : time between the frames
    slant : expected spread of h, 1/px
    """
    rays, focal = view.rays, view.focal_px
    motion = _of_view(view, fits, rough)
    cov_shift = fits.covariance[:, [0, 3]][:, :, [0, 3]]
    ends = rays + fits.shift / focal
    x, y, depth = unturned(ends[:, 0], ends[:, 1], motion.rotation)
    out = np.stack([x, y], -1)
    shift = out - rays                                   # without rotation, unit focal length
    r = np.array(matrix(motion.rotation)).T
    turn = (r[:2, :2] - out[..., None] * r[2, :2]) / depth[:, None, None]
    slope = turn @ (fits.slope + np.eye(2)) - np.eye(2)
    a, variance = _across(slope, fits.covariance[:, _SLOPES][:, :, _SLOPES], shift * focal, slant)
    # What is unknown along an edge may hide looming: a line that tapers towards the point the
    # camera moves to does not change at all.
    middle = (cov_shift[:, 0, 0] + cov_shift[:, 1, 1]) / 2
    widest = middle + np.hypot((cov_shift[:, 0, 0] - cov_shift[:, 1, 1]) / 2, cov_shift[:, 0, 1])
    variance = variance + widest / (_TAPER * focal) ** 2 + _FINEST ** 2
    tilt = np.diag(motion.covariance)
    variance = variance + 2.25 * (rays[:, 0] ** 2 * tilt[1] + rays[:, 1] ** 2 * tilt[0])
    if motion.direction is not None:
        a, variance = _with_parallax(a, variance, rays, shift, cov_shift, motion, focal)
    a = np.clip(a, -3.0, 0.9)
    rate = a / (1 - a) / dt_s
    sigma = np.sqrt(variance) / (1 - a) ** 2 / dt_s
    confidence = _confidence(fits, rate, sigma) * vouched
    # What does not differ from standing still by more than its error is standing still.
    z2 = (rate / np.maximum(sigma, 1e-9)) ** 2
    rate = rate * z2 ** 2 / (1 + z2 ** 2)
    return PairLooming(rate, sigma, confidence, -shift * (focal / dt_s), motion, dt_s)


def _across(slope: np.ndarray, cov: np.ndarray, shift: np.ndarray,
            slant: float) -> tuple[np.ndarray, np.ndarray]:
    """Looming per time step and its variance, from slopes whatever the slant.

    Least squares for a in slope = -a I + shift h', with h unknown but for its spread.
    """
    sx, sy = shift[:, 0], shift[:, 1]
    s = cov.astype(np.float64)
    two = slant ** 2
    for k in (0, 1):
        s[:, k, k] += two * sx * sx + 1e-10
        s[:, k, k + 2] += two * sx * sy
        s[:, k + 2, k] += two * sx * sy
        s[:, k + 2, k + 2] += two * sy * sy + 1e-10
    identity = np.array([1.0, 0, 0, 1])
    solved = np.linalg.solve(s, np.stack([np.broadcast_to(identity, (len(s), 4)),
                                          slope.reshape(-1, 4)], -1))
    precision = solved[:, 0, 0] + solved[:, 3, 0]
    return -(solved[:, 0, 1] + solved[:, 3, 1]) / precision, 1 / precision


def _with_parallax(a: np.ndarray, variance: np.ndarray, rays: np.ndarray, shift: np.ndarray,
                   cov: np.ndarray, motion: CameraMotion,
                   focal: float) -> tuple[np.ndarray, np.ndarray]:
    """Join a with what the length of the displacement says, where cells move as the scene."""
    t = motion.direction
    mx, my = t[0] - rays[:, 0] * t[2], t[1] - rays[:, 1] * t[2]
    c = (cov + 0.05 ** 2 * np.eye(2)) / focal ** 2
    det = c[:, 0, 0] * c[:, 1, 1] - c[:, 0, 1] ** 2
    ix, ixy, iy = c[:, 1, 1] / det, -c[:, 0, 1] / det, c[:, 0, 0] / det
    # Least squares for q in shift = q m; on an edge only the part across it counts.
    wx, wy = ix * mx + ixy * my, ixy * mx + iy * my
    precision = wx * mx + wy * my + 1e-6
    q = (wx * shift[:, 0] + wy * shift[:, 1]) / precision
    b = t[2] * q
    # Derivatives of b by rotation and direction.
    rows_x, rows_y = turn_rows(rays[:, 0], rays[:, 1])
    kx, ky = t[2] * wx / precision, t[2] * wy / precision
    by_turn = -(kx[:, None] * rows_x + ky[:, None] * rows_y)
    by_t = np.stack([-q * kx, -q * ky, q * (1 + kx * rays[:, 0] + ky * rays[:, 1])], -1)
    rows = np.concatenate([by_turn, by_t], 1)
    b_variance = (t[2] ** 2 / precision + ((rows @ motion.covariance) * rows).sum(1)
                  + _FINEST ** 2)
    m2 = mx * mx + my * my + 1e-6
    across = my * my * c[:, 0, 0] - 2 * mx * my * c[:, 0, 1] + mx * mx * c[:, 1, 1]
    across = np.maximum(across / m2, 1e-12)
    # Does the cell stand still, or move on its own? Either is weighed with heavy tails: of a
    # mover, displacement and looming may be anything, of the scene they agree with b.
    miss = (mx * shift[:, 1] - my * shift[:, 0]) / np.sqrt(m2)
    size = np.sqrt((shift ** 2).sum(1))
    odds = (_STATIC_ODDS * _ANY_LOOMING * _cauchy(a - b, np.sqrt(variance + b_variance))
            * 2 * (size + np.sqrt(across)) * _cauchy(miss, np.sqrt(across)))
    static = odds / (1 + odds)
    joint_variance = 1 / (1 / variance + 1 / b_variance)
    joint = joint_variance * (a / variance + b / b_variance)
    mean = static * joint + (1 - static) * a
    spread = (static * (joint_variance + (joint - mean) ** 2)
              + (1 - static) * (variance + (a - mean) ** 2))
    return mean, spread
