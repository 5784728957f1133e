# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
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

from vjepa_ros.looming.affine import AffineFits
from vjepa_ros.looming.camera_motion import CameraMotion, camera_motion
from vjepa_ros.looming.rotation import matrix, turn_rows, turned, unturned

WANTED_S = (0.015, 0.06)  # standard error 1/s, absolute and relative, that needs no wider window
WIDER_SEEN = 0.3        # texture of its own from which a cell may take a wider window
WIDER_GAIN = 0.7        # and the part of the standard error that this must bring
WIDER_INLIERS = 0.25    # and the share of evidence that must agree there
DOUBT_S = (0.02, 0.25)  # standard error 1/s, absolute and relative, at which confidence is half
STATIC_ODDS = 1.5      # a cell belongs to the still scene rather than to a mover, beforehand
ANY_LOOMING = 0.3      # width over which the looming per step of a mover may differ
TAPER = 0.33           # distance from that point, as a share of the focal length
FINEST = 1e-4          # looming per step is never known better than this
_SLOPES = np.ix_([1, 2, 4, 5], [1, 2, 4, 5])    # of a covariance of theta
_EYE = np.eye(2)[..., None]
_TRACE = np.array([[1.0], [0.0], [0.0], [1.0]])


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
        self.at = _rows(rays)                            # 2 C
        self.squares = self.at * self.at
        self.turn_rows = np.array(turn_rows(*self.at))   # 2 3 C
        self._x, self._y = sample_rays[..., 0], sample_rays[..., 1]

    def camera_motion(self, fits: AffineFits, start: CameraMotion | None = None) -> CameraMotion:
        """Motion of the camera from displacements newer to older frame, refining start."""
        cov = fits.shift_covariance
        use = np.flatnonzero((fits.inliers > 0.25) & (cov[:, 0, 0] + cov[:, 1, 1] < 9.0)
                             & (fits.misfit < 1.0) & np.isfinite(fits.shift).all(1))
        use = use[::max(1, len(use) // 150)]
        rays = self.rays[use]
        return camera_motion(rays, rays + fits.shift[use] / self.focal_px, cov[use],
                             self.focal_px, start)

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
    rays, focal = view.at, view.focal_px
    motion = view.camera_motion(fits, rough)
    # Components first, each a row: there are few cells, so every call should take all of them.
    theta, cov = _rows(fits.theta), _rows(fits.covariance).reshape(6, 6, -1)
    sx, sxy, sy = cov[0, 0], cov[0, 3], cov[3, 3]
    ends = theta[::3] / focal
    ends += rays
    x, y, depth = unturned(*ends, motion.rotation)
    out = np.array([x, y])
    shift = out - rays                                   # without rotation, unit focal length
    r = np.array(matrix(motion.rotation)).T[..., None]
    turn = (r[:2, :2] - out[:, None] * r[2, :2]) / depth                             # 2 2 C
    slope = turn[:, :1] * theta[1:3] + turn[:, 1:] * theta[4:]
    slope += turn
    slope -= _EYE
    a, variance = _across(slope.reshape(4, -1), cov, shift * focal, slant)
    # What is unknown along an edge may hide looming: a line that tapers towards the point the
    # camera moves to does not change at all.
    widest = (sx + sy) / 2 + np.sqrt(((sx - sy) / 2) ** 2 + sxy ** 2)
    tilt = 2.25 * motion.covariance.diagonal()
    variance = (variance + widest / (TAPER * focal) ** 2 + FINEST ** 2
                + view.squares[0] * tilt[1] + view.squares[1] * tilt[0])
    if motion.direction is not None:
        a, variance = _with_parallax(a, variance, view, shift, (sx, sxy, sy), motion)
    a = np.minimum(np.maximum(a, -3.0), 0.9)
    rest = 1 - a
    rate = a / (rest * dt_s)
    sigma = np.sqrt(variance) / (rest * rest * dt_s)
    confidence = _confidence(fits, rate, sigma) * vouched
    # What does not differ from standing still by more than its error is standing still.
    z4 = (rate / np.maximum(sigma, 1e-9)) ** 2
    z4 *= z4
    rate = rate * (z4 / (1 + z4))
    return PairLooming(rate, sigma, confidence, (shift * (-focal / dt_s)).T, motion, dt_s)


def _rows(values: np.ndarray) -> np.ndarray:
    """Values (C, ...) of the cells as rows (..., C) in float64."""
    return values.reshape(len(values), -1).T.astype(np.float64, order='C')


def _across(slope: np.ndarray, cov: np.ndarray, shift: np.ndarray,
            slant: float) -> tuple[np.ndarray, np.ndarray]:
    """Looming per time step and its variance, from slopes (4, C) whatever the slant.

    Least squares for a in slope = -a I + shift h', with h unknown but for its spread: with S the
    covariance of a cell's slopes, from `cov` (6, 6, C) and h, a = -i' S^-1 slope / (i' S^-1 i),
    where i = (1, 0, 0, 1). S is positive definite, so it can be eliminated in order, all cells at
    once.
    """
    by_slant = slant * shift
    by_slant = by_slant[:, None] * by_slant
    by_slant += 1e-10 * _EYE
    s = np.empty((4, 6, cov.shape[-1]))     # S, i, slope
    s[:, :4], s[:, 4], s[:, 5] = cov[_SLOPES], _TRACE, slope
    for k in (0, 1):
        s[k::2, k:4:2] += by_slant
    for k in range(3):
        s[k + 1:, k + 1:] -= (s[k + 1:, k] / s[k, k])[:, None] * s[k, k + 1:]
    identity = s[:, 4] / s.reshape(24, -1)[::7]
    precision = (identity * s[:, 4]).sum(0)
    return (identity * s[:, 5]).sum(0) / -precision, 1 / precision


def _with_parallax(a: np.ndarray, variance: np.ndarray, view: View, shift: np.ndarray,
                   cov: tuple[np.ndarray, np.ndarray, np.ndarray],
                   motion: CameraMotion) -> tuple[np.ndarray, np.ndarray]:
    """Join a with what the length of the displacement says, where cells move as the scene.

    shift is (2, C) in focal lengths, its covariance (xx, xy, yy) in px^2.
    """
    t, unit = motion.direction, 1 / view.focal_px ** 2
    lines = t[:2, None] - view.at * t[2]
    (mx, my), (dx, dy) = lines, shift
    cx, cxy, cy = (cov[0] + 0.05 ** 2) * unit, cov[1] * unit, (cov[2] + 0.05 ** 2) * unit
    det = cx * cy - cxy * cxy
    # Least squares for q in shift = q m; on an edge only the part across it counts.
    pull = np.array([cy * mx - cxy * my, cx * my - cxy * mx]) / det
    precision = pull[0] * mx + pull[1] * my + 1e-6
    q = (pull[0] * dx + pull[1] * dy) / precision
    b = t[2] * q
    # Derivatives of b by rotation and direction.
    by = t[2] * pull / precision
    rows = np.empty((6, len(q)))
    np.multiply(view.turn_rows[0], -by[0], out=rows[:3])
    rows[:3] -= by[1] * view.turn_rows[1]
    np.multiply(by, -q, out=rows[3:5])
    np.multiply(q, 1 + by[0] * view.at[0] + by[1] * view.at[1], out=rows[5])
    b_variance = (t[2] ** 2 / precision + ((motion.covariance @ rows) * rows).sum(0)
                  + FINEST ** 2)
    m2 = mx * mx + my * my + 1e-6
    across = np.maximum((my * my * cx - 2 * mx * my * cxy + mx * mx * cy) / m2, 1e-12)
    # Does the cell stand still, or move on its own? Either is weighed with heavy tails: of a
    # mover, displacement and looming may be anything, of the scene they agree with b.
    miss = (mx * dy - my * dx) / np.sqrt(m2)
    size, wide = np.sqrt(dx * dx + dy * dy), np.sqrt(across)
    odds = (STATIC_ODDS * ANY_LOOMING * _cauchy(a - b, np.sqrt(variance + b_variance))
            * 2 * (size + wide) * _cauchy(miss, wide))
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
    doubt = DOUBT_S[0] + DOUBT_S[1] * np.abs(rate)
    agreement = np.minimum(np.maximum((fits.inliers - 0.1) / 0.2, 0), 1)
    return agreement / (1 + (sigma / doubt) ** 2)
