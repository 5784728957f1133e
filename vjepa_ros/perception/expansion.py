# SPDX-License-Identifier: Apache-2.0
"""Turn the affine displacements of one pair of frames into looming per cell.

Without camera rotation a smooth surface is displaced by v(p) = q(p) (w - p z), so the slope of v
is -a I + v h': a is the looming, h the slant of the surface. Across v only a remains (compare
Koenderink and van Doorn, "Invariant properties of the motion parallax field due to the movement
of rigid bodies relative to an observer", Optica Acta 22, 1975). Where a cell moves along the line
that the camera's own motion gives it, the length of v says the same with less noise. Looming per
time step is a = V dt / Z of the older frame; of the newer one it is a / (1 - a).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from vjepa_ros.perception.affine import AffineFits
from vjepa_ros.perception.rotation import (
    CameraMotion,
    camera_motion,
    matrix,
    turn_rows,
    turned,
    unturned,
)

WANTED_S = (0.015, 0.06)  # standard error 1/s, absolute and relative, that needs no wider window
WIDER_SEEN = 0.3        # texture of its own from which a cell may take a wider window
WIDER_GAIN = 0.7        # and the part of the standard error that this must bring
WIDER_INLIERS = 0.25    # and the share of evidence that must agree there
_DOUBT_S = (0.02, 0.25)  # standard error 1/s, absolute and relative, at which confidence is half
_STATIC_ODDS = 1.5      # a cell belongs to the still scene rather than to a mover, beforehand
_ANY_LOOMING = 0.3      # width over which the looming per step of a mover may differ
_TAPER = 0.33           # distance from that point, as a share of the focal length
_FINEST = 1e-4          # looming per step is never known better than this
_SLOPES = [1, 2, 4, 5]  # of theta


@dataclass(frozen=True)
class PairLooming:
    """What one pair of frames says, over the cells in order."""

    rate: np.ndarray        # (C,) 1/s
    sigma: np.ndarray       # (C,) standard error, 1/s
    confidence: np.ndarray  # (C,) 0 to 1
    flow: np.ndarray        # (C, 2) px/s without the camera's rotation, forward in time
    motion: CameraMotion
    dt_s: float


def not_exact(fits: AffineFits, dt_s: float, seen: np.ndarray) -> np.ndarray:
    """Textured cells (indices) whose looming a wider window should measure."""
    a, sd = _plain(fits)
    return np.flatnonzero((seen > WIDER_SEEN)
                          & (sd > dt_s * WANTED_S[0] + WANTED_S[1] * np.abs(a)))


def prefer(narrow: AffineFits, wide: AffineFits, cells: np.ndarray) -> AffineFits:
    """Replace fits of the given cells by those of wide windows, where these are more exact."""
    take = ((_plain(wide)[1] < WIDER_GAIN * _plain(narrow)[1][cells])
            & (wide.inliers > WIDER_INLIERS))
    cells = cells[take]
    parts = []
    for field in fields(AffineFits):
        part = getattr(narrow, field.name).copy()
        part[cells] = getattr(wide, field.name)[take]
        parts.append(part)
    return AffineFits(*parts)


def _plain(fits: AffineFits) -> tuple[np.ndarray, np.ndarray]:
    """Half the divergence, and its standard error."""
    c = fits.covariance
    return (-(fits.theta[:, 1] + fits.theta[:, 5]) / 2,
            np.sqrt(np.maximum(c[:, 1, 1] + c[:, 5, 5] + 2 * c[:, 1, 5], 1e-12)) / 2)


class View:
    """Directions in which the cells and samples of a frame look."""

    def __init__(self, rays: np.ndarray, sample_rays: np.ndarray, focal_px: float) -> None:
        """rays (C, 2) of cells, sample_rays (Hs, Ws, 2), both x/z and y/z."""
        self.rays, self.focal_px = rays, focal_px
        self._x, self._y = sample_rays[..., 0], sample_rays[..., 1]

    def camera_motion(self, fits: AffineFits, start: CameraMotion | None = None) -> CameraMotion:
        """Motion of the camera from displacements newer to older frame, refining start."""
        cov = fits.shift_covariance
        use = np.flatnonzero((fits.inliers > 0.25) & (cov[:, 0, 0] + cov[:, 1, 1] < 9.0)
                             & (fits.misfit < 1.0))
        use = use[::max(1, len(use) // 150)]
        ends = self.rays[use] + fits.shift[use] / self.focal_px
        return camera_motion(self.rays[use], ends, cov[use], self.focal_px, start)

    def turn_field(self, rotation: np.ndarray) -> np.ndarray:
        """Displacement (Hs, Ws, 2) in px of the samples, newer to older, by the rotation."""
        x, y, _ = turned(self._x, self._y, rotation)
        return np.stack([x - self._x, y - self._y], -1).astype(np.float32) * self.focal_px

    def turn_affine(self, rotation: np.ndarray) -> np.ndarray:
        """The same at the cells with its slopes, (C, 6) like AffineFits.theta."""
        x, y, depth = turned(self.rays[:, 0], self.rays[:, 1], rotation)
        r = np.array(matrix(rotation))
        out = np.empty((len(x), 6))
        for k, end in ((0, x), (1, y)):
            out[:, 3 * k] = (end - self.rays[:, k]) * self.focal_px
            for j in (0, 1):
                out[:, 3 * k + 1 + j] = (r[k, j] - end * r[2, j]) / depth - (k == j)
        return out


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
    motion = view.camera_motion(fits, rough)
    cov_shift = fits.shift_covariance
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


def _cauchy(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return scale / (np.pi * (scale ** 2 + x ** 2))


def _confidence(fits: AffineFits, rate: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    """Confidence from the standard error and the agreement within the window."""
    doubt = _DOUBT_S[0] + _DOUBT_S[1] * np.abs(rate)
    return np.clip((fits.inliers - 0.1) / 0.2, 0, 1) / (1 + (sigma / doubt) ** 2)
