# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Estimate looming (closing speed over distance) per image cell from stamped grey frames."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np

from vjepa_ros.looming.affine import OWN_PX, WindowFitter
from vjepa_ros.looming.ego_motion import Rays
from vjepa_ros.looming.expansion import PairLooming, pair_looming
from vjepa_ros.looming.flow import SAMPLE_PX, FlowMeter, evidence

_DEFAULT_FOV = math.radians(65.0)   # horizontal field of view assumed without a focal length
PROBE_S = 0.08  # preferred age of the frame that shows how fast the image moves
MOST_EXPANSION = 0.1   # relative change of size between the frames compared


@dataclass(frozen=True)
class LoomingSettings:
    """Settings of the looming estimate.

    Attributes
    ----------
    cell_px
        Side of a cell in px, a multiple of 8.
    max_baseline_s
        Age of the oldest frame compared with the newest one when newer ones exist, s.
    max_gap_s
        A frame older than this is never compared with the newest one, s.
    target_px
        The older frame is chosen so that nine tenths of the image move by less than this, in px
        per 384 px of width, and nearly all by less than twice it.
    looseness_px
        Displacement error in px that a block may show and still belong to its window.
    slant
        Expected spread of the relative change of 1/distance over a surface, 1/px.
    min_confidence
        Confidence below which looming is unknown (NaN).
    """

    cell_px: int = 16
    max_baseline_s: float = 0.35
    max_gap_s: float = 1.5
    target_px: float = 12.0
    looseness_px: float = 0.15
    slant: float = 0.01
    min_confidence: float = 0.3

    def __post_init__(self) -> None:
        """Refuse values that make no sense."""
        if self.cell_px < 8 or self.cell_px % 8:
            raise ValueError(f'cell_px is {self.cell_px}, expected a positive multiple of 8')
        for name in ('max_baseline_s', 'max_gap_s', 'target_px', 'looseness_px', 'slant'):
            if not getattr(self, name) > 0:
                raise ValueError(f'{name} is {getattr(self, name)}, expected a value above 0')
        if not 0 <= self.min_confidence <= 1:
            raise ValueError(f'min_confidence is {self.min_confidence}, expected 0 to 1')


@dataclass(frozen=True)
class LoomingField:
    """Looming per cell of a grid over the grey image.

    Attributes
    ----------
    rate
        (Hc, Wc) float32, -dZ/dt / Z in 1/s; positive approaches, NaN unknown.
    confidence
        (Hc, Wc) float32 in [0, 1].
    sigma
        (Hc, Wc) float32, standard error of rate in 1/s (inf where nothing was measured).
    flow
        (Hc, Wc, 2) float32, motion of the image at the cell's centre without the camera's
        rotation, px/s, forward in time; NaN where rate is.
    centers
        (Hc, Wc, 2) float32, centre x, y of each cell in px of the grey image.
    rotation
        (3,) float32, rotation of the camera in rad/s: pitch (up positive), yaw (right positive),
        roll (clockwise positive).
    direction
        (3,) float32 unit vector of the camera's motion (right, down, ahead), or None.
    dt_s
        Time between the frames compared, s.
    cell_px
        Side of a cell, px.
    gray_size
        Width, height of the grey image.
    """

    rate: np.ndarray
    confidence: np.ndarray
    sigma: np.ndarray
    flow: np.ndarray
    centers: np.ndarray
    rotation: np.ndarray
    direction: np.ndarray | None
    dt_s: float
    cell_px: float
    gray_size: tuple[int, int]


class CellGrid:
    """The grid of cells over grey images of one size, and of samples over the cells.

    Parameters
    ----------
    size
        Width and height of the images, px.
    cell_px
        Side of a cell, px.

    Attributes
    ----------
    shape
        Rows and columns of cells.
    inner
        Width and height of the part of the image that cells cover, px.
    span
        Rows and columns (slices) of that part.
    centers
        (C, 2) centre x, y of the cells, px.
    samples
        (Hs, Ws, 2) centre x, y of the samples, px.

    Raises
    ------
    ValueError
        For images with less than three cells, or 48 px, in a direction.
    """

    def __init__(self, size: tuple[int, int], cell_px: int) -> None:
        w, h = self.size = size
        least = max(48, 3 * cell_px)
        if min(w, h) < least:
            raise ValueError(f'frames are {w}x{h}, expected at least {least}x{least}')
        rows, cols = self.shape = h // cell_px, w // cell_px
        width, height = self.inner = cols * cell_px, rows * cell_px
        left, top = (w - width) // 2, (h - height) // 2
        self.span = slice(top, top + height), slice(left, left + width)

        def centers(step: int) -> np.ndarray:
            x = left + (np.arange(width // step) + 0.5) * step - 0.5
            y = top + (np.arange(height // step) + 0.5) * step - 0.5
            return np.stack(np.meshgrid(x, y), -1)

        places = centers(cell_px)
        self.cell_px = cell_px
        self.centers, self.samples = places.reshape(-1, 2), centers(SAMPLE_PX)
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

    def field(self, pair: PairLooming, min_confidence: float) -> LoomingField:
        """Arrange the looming of the cells in the grid, NaN below a confidence."""
        rate, flow = pair.rate.astype(np.float32), pair.flow.astype(np.float32, order='C')
        unknown = ~(pair.confidence >= min_confidence)
        rate[unknown] = flow[unknown] = np.nan
        motion, direction = pair.motion, pair.motion.direction
        return LoomingField(
            rate.reshape(self.shape), pair.confidence.astype(np.float32).reshape(self.shape),
            pair.sigma.astype(np.float32).reshape(self.shape), flow.reshape(*self.shape, 2),
            self._places, (motion.rotation / pair.dt_s).astype(np.float32),
            None if direction is None else direction.astype(np.float32), pair.dt_s,
            float(self.cell_px), self.size)


class LoomingEstimator:
    """Looming field of a short history of grey frames; keeps nothing but scratch buffers."""

    def __init__(self, settings: LoomingSettings | None = None) -> None:
        self._settings = settings or LoomingSettings()
        self._comparison: _Comparison | None = None

    def estimate(self, history: Sequence[tuple[int, np.ndarray]],
                 focal_px: float | None = None,
                 center: tuple[float, float] | None = None) -> LoomingField | None:
        """Estimate looming at the newest frame of a history.

        Parameters
        ----------
        history
            (stamp in ns, grey uint8 (h, w)), oldest first, any spacing.
        focal_px
            Focal length in px of the grey image; None assumes 65 degrees across.
        center
            Principal point x, y in px; None is the middle.

        Returns
        -------
        LoomingField or None
            None with fewer than two frames, or none within `max_gap_s`.

        Raises
        ------
        ValueError
            For stamps that do not increase, and frames of other type or size than the newest.
        """
        check_history(history)
        if len(history) < 2:
            return None
        h, w = history[-1][1].shape
        compare = self._comparison
        if compare is None or compare.grid.size != (w, h):
            compare = self._comparison = _Comparison((w, h), self._settings)
        stamps, _ = zip(*history, strict=True)
        ages = (stamps[-1] - np.array(stamps[:-1], np.int64)) * 1e-9
        newest = compare.inner(history[-1][1])
        chosen = compare.older_frame(newest, ages, history)
        if chosen is None:
            return None
        k, large = chosen
        rays = compare.grid.rays(focal_px, center)
        pair = compare.looming(newest, compare.inner(history[k][1]), float(ages[k]), rays, large)
        return compare.grid.field(pair, self._settings.min_confidence)


class _Comparison:
    """Comparison of two frames of one size."""

    def __init__(self, size: tuple[int, int], settings: LoomingSettings) -> None:
        self.settings, self.grid = settings, CellGrid(size, settings.cell_px)
        self._meter = FlowMeter(self.grid.inner)
        self._blunt, self._narrow, *self._wide = window_fitters(self.grid)

    def inner(self, gray: np.ndarray) -> np.ndarray:
        """Cut out the part of a frame that cells cover."""
        return np.ascontiguousarray(gray[self.grid.span])

    def older_frame(self, newest: np.ndarray, ages: np.ndarray,
                    history: Sequence[tuple[int, np.ndarray]]) -> tuple[int, bool] | None:
        """Choose the frame to compare with, and whether to expect a large displacement.

        Noise counts less over a longer time, but fast parts are lost when they move too far.
        """
        s = self.settings
        usable = np.flatnonzero(ages <= s.max_baseline_s)
        if not len(usable):
            return (len(ages) - 1, True) if ages[-1] <= s.max_gap_s else None
        if len(usable) == 1:
            return int(usable[0]), True
        logs = np.log(ages[usable])
        near = int(usable[np.abs(logs - math.log(PROBE_S)).argmin()])
        typical, fastest, expansion = self._meter.pace(newest, self.inner(history[near][1]))
        goal = s.target_px * self.grid.inner[0] / 384
        wanted = ages[near] * min(goal / max(typical, 1e-3), 2 * goal / max(fastest, 1e-3),
                                  MOST_EXPANSION / max(expansion, 1e-3))
        best = int(usable[np.abs(logs - math.log(min(wanted, s.max_baseline_s))).argmin()])
        return best, bool(fastest * ages[best] / ages[near] > goal)

    def looming(self, newer: np.ndarray, older: np.ndarray, dt_s: float, rays: Rays,
                large: bool) -> PairLooming:
        """Compute looming from one pair of frames, over the cells in order."""
        blunt, grid, loose = self._blunt, self._narrow, self.settings.looseness_px
        flow, miss = self._meter.dense(newer, older, large)
        trust = 1 / (1 + (miss / (1.5 + 0.05 * cv2.magnitude(*cv2.split(flow)))) ** 4)
        # First at half the resolution, to get near enough and to learn the rotation.
        samples = evidence(newer, older, flow, reduce=2)
        moments = blunt.moments(samples, trust * samples.signal)
        fits = blunt.fit(moments, samples.noise, samples.grain, 2 * loose, thorough=False)
        start = blunt.settle(fits, blunt.own(moments), samples.noise, 2 * loose)
        motion = rays.camera_motion(fits)
        # Then what is left without rotation, which bends the field within a window.
        base, base_affine = rays.turn_displacement(motion.rotation)
        samples = evidence(newer, older, grid.spread(start), 1, base, samples.exposure)
        noise, grain = samples.noise, samples.grain
        weight = trust * samples.signal
        moments = grid.moments(samples, weight)
        fits = grid.fit(moments, noise, grain, loose, start=start - base_affine)
        own = grid.own(moments)
        shown = own[:, 0] + own[:, 12]
        seen = shown / (shown + noise / OWN_PX ** 2)
        for wider in self._wide:
            vague = fits.vague(dt_s, seen)
            if len(vague):
                wide = wider.fit(wider.moments(samples, weight, vague), noise, grain, loose)
                fits = fits.widened(wide, vague)
        vouched = seen * grid.fitting(fits.theta, own, noise, loose)
        fits = replace(fits, theta=fits.theta + base_affine)
        return pair_looming(fits, rays, motion, vouched, dt_s, self.settings.slant)


def window_fitters(grid: CellGrid) -> list[WindowFitter]:
    """Make the fitters of a grid: one for half the resolution, a narrow one and wide ones."""
    c = grid.cell_px
    return [WindowFitter(grid.shape, c, block, across)
            for block, across in ((c, 3), (c // 2, 6), (c, 5), (c, 7))]


def check_history(history: Sequence[tuple[int, np.ndarray]]) -> None:
    """Raise ValueError where stamps do not increase or frames do not match."""
    if not history:
        return
    shape = history[-1][1].shape
    for k, (stamp, gray) in enumerate(history):
        if gray.ndim != 2 or gray.dtype != np.uint8:
            raise ValueError(f'frame {k} is {gray.dtype} of shape {gray.shape}, '
                             'expected uint8 of shape (height, width)')
        if gray.shape != shape:
            raise ValueError(f'frame {k} is {gray.shape[1]}x{gray.shape[0]}, the newest is '
                             f'{shape[1]}x{shape[0]}; start a new history when the size changes')
        if k and stamp <= history[k - 1][0]:
            raise ValueError(f'stamp {stamp} of frame {k} is not after {history[k - 1][0]}; '
                             'the history runs from the oldest to the newest frame')
