# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Estimate looming (closing speed over distance) per image cell from stamped grey frames.

Without camera rotation a smooth surface is displaced by v(p) = q(p) (w - p z), so the slope of v
is -a I + v h': a is the looming, h the slant of the surface. Across v only a remains (compare
Koenderink and van Doorn, "Invariant properties of the motion parallax field due to the movement
of rigid bodies relative to an observer", Optica Acta 22, 1975). Where a cell moves along the line
that the camera's own motion gives it, the length of v shows the same with less noise. Looming per
time step is a = V dt / Z of the older frame; of the newer one it is a / (1 - a).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import cv2
import numpy as np

from vjepa_ros.looming.affine import AffineFits, OWN_PX, WindowFitter
from vjepa_ros.looming.ego_motion import (
    CameraMotion,
    Derotation,
    FOCAL_ERROR,
    LEAST_DEPTH,
    MOST_TURN,
    Rays,
)
from vjepa_ros.looming.flow import FlowMeter, SAMPLE_PX, evidence
from vjepa_ros.looming.gyroscope import Gyroscope, GyroscopeError, Turn

LEAST_SIDE = 48                     # px of a picture
_DEFAULT_FOV = math.radians(65.0)   # horizontal field of view assumed without a focal length
PROBE_S = 0.08  # preferred age of the frame that shows how fast the image moves
MOST_EXPANSION = 0.1   # relative change of size between the frames compared
DOUBT_S = (0.02, 0.25)  # standard error 1/s, absolute and relative, at which confidence is half
STATIC_ODDS = 1.5      # a cell belongs to the still scene rather than to a mover, beforehand
ANY_LOOMING = 0.3      # width over which the looming per step of a mover may differ
TAPER = 0.33           # distance from that point, as a share of the focal length
FINEST = 1e-4          # looming per step is never known better than this
# The rotation of a gyroscope is doubted where it explains less than this share of the image, or
# displacements refine it by more than so many standard errors. It is not used then if the image
# alone explains so many times more, or as much.
DOUBTED, APART, BETTER = 0.4, 4.0, 1.25
_SLOPES = np.ix_([1, 2, 4, 5], [1, 2, 4, 5])    # of a covariance of theta
_EYE = np.eye(2)[..., None]
_TRACE = np.array([[1.0], [0.0], [0.0], [1.0]])


@dataclass(frozen=True)
class LoomingSettings:
    """Settings of the looming estimate."""

    cell_px: int = 16  # side of a cell in px, a multiple of 8
    # Age of the oldest frame compared with the newest one when newer ones exist, s
    max_baseline_s: float = 0.35
    max_gap_s: float = 1.5  # a frame older than this is never compared with the newest one, s
    # The older frame is chosen so that nine tenths of the image move by less than this, in px
    # per 384 px of width, and nearly all by less than twice it
    target_px: float = 12.0
    # Displacement error in px that a block may show and still belong to its window
    looseness_px: float = 0.15
    # Expected spread of the relative change of 1/distance over a surface, 1/px
    slant: float = 0.01
    min_confidence: float = 0.3  # confidence below which looming is unknown (NaN)


@dataclass(frozen=True)
class LoomingField:
    """Looming per cell of a grid over the grey image."""

    rate: np.ndarray  # (Hc, Wc) float32, -dZ/dt / Z in 1/s; positive approaches, NaN unknown
    confidence: np.ndarray  # (Hc, Wc) float32 in [0, 1]
    # (Hc, Wc) float32, standard error of rate in 1/s (inf where nothing was measured)
    sigma: np.ndarray
    # (Hc, Wc, 2) float32, motion of the image at the cell's centre without the camera's
    # rotation, px/s, forward in time; NaN where rate is
    flow: np.ndarray
    centers: np.ndarray  # (Hc, Wc, 2) float32, centre x, y of each cell in px of the grey image
    # (3,) float32, rotation of the camera in rad/s: pitch (up positive), yaw (right positive),
    # roll (clockwise positive)
    rotation: np.ndarray
    # (3,) float32 unit vector of the camera's motion (right, down, ahead), or None
    direction: np.ndarray | None
    dt_s: float  # time between the frames compared, s
    cell_px: float  # side of a cell, px
    gray_size: tuple[int, int]  # width, height of the grey image
    # '': the rotation is that of a gyroscope, refined; else why it is from the image alone.
    # None: no gyroscope was given.
    gyroscope: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class PairLooming:
    """Looming of the cells, in order, from one pair of frames."""

    rate: np.ndarray  # (C,) 1/s
    sigma: np.ndarray  # (C,) standard error, 1/s
    confidence: np.ndarray  # (C,) 0 to 1
    flow: np.ndarray  # (C, 2) px/s without the camera's rotation, forward in time
    motion: CameraMotion  # motion of the camera between the frames
    dt_s: float  # time between the frames, s
    apart: float = 0.0  # standard errors of a gyroscope by which its rotation was refined

    @property
    def explained(self) -> float:
        """Share of the image whose displacement is sure and due to the motion of the camera."""
        return self.motion.agreement * float(self.confidence.mean())

    @property
    def doubtful(self) -> bool:
        """Whether the rotation of a gyroscope, with which this was computed, may be wrong."""
        return self.explained < DOUBTED or self.apart > APART

    def or_plain(self, plain: PairLooming) -> tuple[PairLooming, str]:
        """Return this, made with a gyroscope, or what the image alone gives; and why, or ''."""
        least = self.explained * (BETTER if self.apart <= APART else 1 / BETTER)
        if plain.explained < least:
            return self, ''
        return plain, 'the image moves in another way than the gyroscope says'


class CellGrid:
    """The grid of cells over grey images of one size [px], and of samples over the cells."""

    def __init__(self, size: tuple[int, int], cell_px: int) -> None:
        w, h = self.size = size
        least = max(LEAST_SIDE, 3 * cell_px)
        if min(w, h) < least:
            raise ValueError(f'frames are {w}x{h}, expected at least {least}x{least}')
        rows, cols = self.shape = h // cell_px, w // cell_px
        # Width and height of the part of the image that cells cover, and its rows and columns.
        width, height = self.inner = cols * cell_px, rows * cell_px
        left, top = (w - width) // 2, (h - height) // 2
        self.span = slice(top, top + height), slice(left, left + width)

        def centers(step: int) -> np.ndarray:
            x = left + (np.arange(width // step) + 0.5) * step - 0.5
            y = top + (np.arange(height // step) + 0.5) * step - 0.5
            return np.stack(np.meshgrid(x, y), -1)

        places = centers(cell_px)
        self.cell_px = cell_px
        self.centers, self.samples = places.reshape(-1, 2), centers(SAMPLE_PX)  # C 2, Hs Ws 2
        self._places = places.astype(np.float32)
        self._places.flags.writeable = False    # all fields share it
        self._lens: tuple[float | None, tuple[float, float] | None] = None, None
        self._rays: Rays | None = None

    def rays(self, focal_px: float | None, center: tuple[float, float] | None) -> Rays:
        """Compute the directions of cells and samples; see `LoomingEstimator.estimate`."""
        if self._rays is None or self._lens != (focal_px, center):
            w, h = self.size
            focal = focal_px or w / 2 / math.tan(_DEFAULT_FOV / 2)
            middle = center or ((w - 1) / 2, (h - 1) / 2)
            self._rays = Rays((self.centers - middle) / focal, (self.samples - middle) / focal,
                              focal)
            self._lens = focal_px, center
        return self._rays

    def turns(self, gyroscope: Gyroscope, newest_ns: int, focal_px: float | None,
              center: tuple[float, float] | None, focal_error: float | None) -> Derotation:
        """Prepare the rotations that a gyroscope tells; see `LoomingEstimator.estimate`."""
        if focal_error is None:
            focal_error = FOCAL_ERROR if focal_px is None else 0.0
        w, h = self.size
        cx, cy = center or ((w - 1) / 2, (h - 1) / 2)
        top, left = (part.start for part in self.span)
        return Derotation(gyroscope, newest_ns, self.rays(focal_px, center), self.inner,
                          (cx - left, cy - top), focal_error)

    def field(self, pair: PairLooming, min_confidence: float) -> LoomingField:
        """Arrange the looming of the cells in the grid, NaN below a confidence."""
        known = pair.confidence >= min_confidence
        values = np.where(known, pair.rate, np.nan), pair.confidence, pair.sigma
        rate, confidence, sigma = np.array(values, np.float32).reshape(3, *self.shape)
        flow = np.where(known[:, None], pair.flow, np.nan).astype(np.float32, order='C')
        flow = flow.reshape(*self.shape, 2)
        motion, direction = pair.motion, pair.motion.direction
        return LoomingField(
            rate, confidence, sigma, flow, self._places,
            (motion.rotation / pair.dt_s).astype(np.float32),
            None if direction is None else direction.astype(np.float32), pair.dt_s,
            float(self.cell_px), self.size)


class LoomingEstimator:
    """Looming field of a short history of grey frames; keeps nothing but scratch buffers."""

    _grid: CellGrid

    def __init__(self, settings: LoomingSettings | None = None) -> None:
        self._settings = settings or LoomingSettings()
        self._size = 0, 0       # of frames, for which all is prepared

    def estimate(self, history: Sequence[tuple[int, np.ndarray]],
                 focal_px: float | None = None,
                 center: tuple[float, float] | None = None,
                 gyroscope: Gyroscope | None = None,
                 focal_error: float | None = None) -> LoomingField | None:
        """Estimate looming at the newest frame of a history, uint8 (h, w) each, oldest first.

        `focal_px`: focal length in px of the grey image; None assumes 65 degrees across;
        `center`: principal point x, y in px; None is the middle; `focal_error`: standard error of
        the focal length, as a share of it; None: 0, or 0.2 where it is assumed.
        """
        if len(history) < 2:
            return None
        h, w = history[-1][1].shape
        if self._size != (w, h):
            self._grid = CellGrid((w, h), self._settings.cell_px)
            self._meter = FlowMeter(self._grid.inner)
            self._blunt, self._narrow, *self._wide = window_fitters(self._grid)
            self._size = w, h
        rays, turns = self._grid.rays(focal_px, center), None
        if gyroscope is not None:
            turns = self._grid.turns(gyroscope, history[-1][0], focal_px, center, focal_error)
        pair, problem = self._best_pair(history, rays, turns)
        if pair is None:
            return None
        field = self._grid.field(pair, self._settings.min_confidence)
        return field if turns is None else replace(field, gyroscope=problem)

    def _best_pair(self, history: Sequence[tuple[int, np.ndarray]], rays: Rays,
                   turns: Derotation | None) -> tuple[PairLooming | None, str]:
        """Compare two frames, with a gyroscope if it is right; and why it is not, or ''."""
        try:
            pair = self._pair(history, rays, turns)
        except GyroscopeError as error:
            return self._pair(history, rays), str(error)
        if turns is None or pair is None or not pair.doubtful:
            return pair, ''
        plain = self._pair(history, rays)
        return (pair, '') if plain is None else pair.or_plain(plain)

    def _inner(self, gray: np.ndarray) -> np.ndarray:
        """Cut out the part of a frame that cells cover."""
        return np.ascontiguousarray(gray[self._grid.span])

    def _pair(self, history: Sequence[tuple[int, np.ndarray]], rays: Rays,
              turns: Derotation | None = None) -> PairLooming | None:
        """Compare the newest frame with an older one; None where there is none near enough."""
        newer = self._inner(history[-1][1])
        stamps, _ = zip(*history, strict=True)
        ages = (stamps[-1] - np.array(stamps[:-1], np.int64)) * 1e-9
        chosen = self._older_frame(newer, ages, history, turns)
        if chosen is None:
            return None
        k, large = chosen
        older, dt_s = self._inner(history[k][1]), float(ages[k])
        turn = pixels = None
        if turns is not None:
            known = turns.since(stamps[k])
            turn, pixels = known.turn, known.pixels
        blunt, grid, loose = self._blunt, self._narrow, self._settings.looseness_px
        flow, miss = self._meter.dense(newer, older, large, pixels)
        trust = 1 / (1 + (miss / (1.5 + 0.05 * cv2.magnitude(*cv2.split(flow)))) ** 4)
        # First at half the resolution, to get near enough and to learn the rotation.
        samples = evidence(newer, older, flow, reduce=2)
        moments = blunt.moments(blunt.table(samples, trust * samples.signal))
        fits = blunt.fit(moments, samples.noise, samples.grain, 2 * loose, thorough=False)
        start = blunt.settle(fits, blunt.own(moments), samples.noise, 2 * loose)
        motion = rays.camera_motion(fits, turn=turn)
        if turns is not None and turn is not None:
            turns.learn(turn, fits)
        # Then what is left without rotation, which bends the field within a window.
        base, base_affine = rays.turn_displacement(motion.rotation)
        samples = evidence(newer, older, grid.spread(start), 1, base, samples.exposure)
        noise, grain = samples.noise, samples.grain
        weight = trust * samples.signal
        moments = grid.moments(grid.table(samples, weight))
        fits = grid.fit(moments, noise, grain, loose, start=start - base_affine)
        own = grid.own(moments)
        shown = own[:, 0] + own[:, 12]
        seen = shown / (shown + noise / OWN_PX ** 2)
        table = None
        for wider in self._wide:
            vague = fits.vague(dt_s, seen)
            if not len(vague):
                break
            table = wider.table(samples, weight) if table is None else table
            wide = wider.fit(wider.moments(table, vague), noise, grain, loose)
            fits = fits.widened(wide, vague)
        vouched = seen * grid.fitting(fits.theta, own, noise, loose)
        fits = replace(fits, theta=fits.theta + base_affine)
        return pair_looming(fits, rays, motion, vouched, dt_s, self._settings.slant, turn)

    def _older_frame(self, newest: np.ndarray, ages: np.ndarray,
                     history: Sequence[tuple[int, np.ndarray]],
                     turns: Derotation | None = None) -> tuple[int, bool] | None:
        """Choose the frame to compare with, and whether to expect a large displacement.

        Noise counts less over a longer time, but fast parts are lost when they move too far. A
        known rotation does not count, as long as it leaves most of the image in view.
        """
        s = self._settings
        usable = np.flatnonzero(ages <= s.max_baseline_s)
        if not len(usable):
            return (len(ages) - 1, True) if ages[-1] <= s.max_gap_s else None
        if len(usable) == 1:
            return int(usable[0]), True
        logs = np.log(ages[usable])
        near = int(usable[np.abs(logs - math.log(PROBE_S)).argmin()])
        typical, fastest, expansion = self._meter.pace(
            newest, self._inner(history[near][1]),
            None if turns is None else turns.since(history[near][0]).pixels)
        goal = s.target_px * self._grid.inner[0] / 384
        wanted = ages[near] * min(goal / max(typical, 1e-3), 2 * goal / max(fastest, 1e-3),
                                  MOST_EXPANSION / max(expansion, 1e-3))
        best = int(usable[np.abs(logs - math.log(min(wanted, s.max_baseline_s))).argmin()])
        if turns is not None:
            while best < usable[-1] and turns.since(history[best][0]).lost > MOST_TURN:
                best += 1
        return best, bool(fastest * ages[best] / ages[near] > goal)


def window_fitters(grid: CellGrid) -> list[WindowFitter]:
    """Make the fitters of a grid: one for half the resolution, a narrow one and wide ones."""
    c = grid.cell_px
    return [WindowFitter(grid.shape, c, block, across)
            for block, across in ((c, 3), (c // 2, 6), (c, 5), (c, 7))]


def pair_looming(fits: AffineFits, rays: Rays, rough: CameraMotion,
                 vouched: np.ndarray, dt_s: float, slant: float,
                 known: Turn | None = None) -> PairLooming:
    """Compute the looming of every cell.

    `vouched`: (C,) 0 to 1, how far each cell shows its displacement itself.
    """
    at, focal = rays.at, rays.focal_px
    motion = rays.camera_motion(fits, rough, known)
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
    apart = 0.0 if known is None else known.apart(motion.rotation)
    return PairLooming(rate, sigma, confidence, (shift * (-focal / dt_s)).T, motion, dt_s, apart)


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
