# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Turn the affine displacements of one pair of frames into looming per cell.

Without camera rotation a smooth surface is displaced by v(p) = q(p) (w - p z), so the slope of v
is -a I + v h': a is the looming, h the slant of the surface. Across v only a remains (compare
Koenderink and van Doorn, "Invariant properties of the motion parallax field due to the movement
of rigid bodies relative to an observer", Optica Acta 22, 1975). Where a cell moves along the line
that the camera's own motion gives it, the length of v shows the same with less noise. Looming per
time step is a = V dt / Z of the older frame; of the newer one it is a / (1 - a).
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from vjepa_ros.looming.affine import AffineFits
from vjepa_ros.looming.ego_motion import LEAST_DEPTH, CameraMotion, Rays

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
    """Looming of the cells, in order, from one pair of frames.

    Attributes
    ----------
    rate
        (C,) 1/s.
    sigma
        (C,) standard error, 1/s.
    confidence
        (C,) 0 to 1.
    flow
        (C, 2) px/s without the camera's rotation, forward in time.
    motion
        Motion of the camera between the frames.
    dt_s
        Time between the frames, s.
    """

    rate: np.ndarray
    sigma: np.ndarray
    confidence: np.ndarray
    flow: np.ndarray
    motion: CameraMotion
    dt_s: float


def pair_looming(fits: AffineFits, rays: Rays, rough: CameraMotion,
                 vouched: np.ndarray, dt_s: float, slant: float) -> PairLooming:
    """Compute the looming of every cell.

    Parameters
    ----------
    fits
        Displacement newer to older frame, px.
    rays
        Directions of the cells.
    rough
        Motion of the camera, to be refined.
    vouched
        (C,) 0 to 1, how far each cell shows its displacement itself.
    dt_s
        Time between the frames, s.
    slant
        Expected spread of h, 1/px.
    """
    at, focal = rays.at, rays.focal_px
    motion = rays.camera_motion(fits, rough)
    # Components first, each a row: there are few cells, so every call should take all of them.
    theta = fits.theta.T.astype(np.float64, order='C')
    cov = fits.covariance.transpose(1, 2, 0).astype(np.float64, order='C')
    sx, sxy, sy = cov[0, 0], cov[0, 3], cov[3, 3]
    r = cv2.Rodrigues(motion.rotation)[0].T[..., None]
    x, y = theta[::3] / focal + at
    ends = r[:, 0] * x + r[:, 1] * y + r[:, 2]
    depth = np.maximum(ends[2], LEAST_DEPTH)
    out = ends[:2] / depth
    shift = out - at                                     # without rotation, unit focal length
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
                + rays.squares[0] * tilt[1] + rays.squares[1] * tilt[0])
    if motion.direction is not None:
        a, variance = _with_parallax(a, variance, rays, shift, (sx, sxy, sy), motion.direction,
                                     motion.covariance)
    a = np.minimum(np.maximum(a, -3.0), 0.9)
    rest = 1 - a
    rate = a / (rest * dt_s)
    sigma = np.sqrt(variance) / (rest * rest * dt_s)
    # By the standard error and the agreement within the window.
    agreement = np.minimum(np.maximum((fits.inliers - 0.1) / 0.2, 0), 1)
    doubt = sigma / (DOUBT_S[0] + DOUBT_S[1] * np.abs(rate))
    confidence = agreement / (1 + doubt ** 2) * vouched
    # What does not differ from standing still by more than its error is standing still.
    z4 = (rate / np.maximum(sigma, 1e-9)) ** 2
    z4 *= z4
    rate = rate * (z4 / (1 + z4))
    return PairLooming(rate, sigma, confidence, (shift * (-focal / dt_s)).T, motion, dt_s)


def _across(slope: np.ndarray, cov: np.ndarray, shift: np.ndarray,
            slant: float) -> tuple[np.ndarray, np.ndarray]:
    """Compute looming per time step and its variance from slopes (4, C), whatever the slant.

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


def _with_parallax(a: np.ndarray, variance: np.ndarray, rays: Rays, shift: np.ndarray,
                   cov: tuple[np.ndarray, np.ndarray, np.ndarray], t: np.ndarray,
                   motion_covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Combine a with the length of the displacement, where cells move as the scene.

    `shift` is (2, C) in focal lengths, `cov` its covariance (xx, xy, yy) in px^2, `t` (3,) the
    direction of the camera's motion, and `motion_covariance` (6, 6) that of its motion.
    """
    unit = 1 / rays.focal_px ** 2
    lines = t[:2, None] - rays.at * t[2]
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
    np.multiply(rays.turn_rows[0], -by[0], out=rows[:3])
    rows[:3] -= by[1] * rays.turn_rows[1]
    np.multiply(by, -q, out=rows[3:5])
    np.multiply(q, 1 + by[0] * rays.at[0] + by[1] * rays.at[1], out=rows[5])
    b_variance = (t[2] ** 2 / precision + ((motion_covariance @ rows) * rows).sum(0)
                  + FINEST ** 2)
    m2 = mx * mx + my * my + 1e-6
    across = np.maximum((my * my * cx - 2 * mx * my * cxy + mx * mx * cy) / m2, 1e-12)
    # Does the cell belong to the still scene, or move on its own? Both have heavy tails: of a
    # mover, displacement and looming may be anything; of the scene, they agree with b.
    miss = (mx * dy - my * dx) / np.sqrt(m2)
    size, wide = np.sqrt(dx * dx + dy * dy), np.sqrt(across)
    apart, scale = a - b, np.sqrt(variance + b_variance)
    odds = (STATIC_ODDS * ANY_LOOMING * scale / (np.pi * (scale * scale + apart * apart))
            * 2 * (size + wide) * wide / (np.pi * (across + miss * miss)))
    static = odds / (1 + odds)
    joint_variance = 1 / (1 / variance + 1 / b_variance)
    joint = joint_variance * (a / variance + b / b_variance)
    mean = static * joint + (1 - static) * a
    spread = (static * (joint_variance + (joint - mean) ** 2)
              + (1 - static) * (variance + (a - mean) ** 2))
    return mean, spread
