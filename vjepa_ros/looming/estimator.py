# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Estimate looming (closing speed over distance) per image cell from stamped grey frames."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np

from vjepa_ros.looming.affine import WindowFitter
from vjepa_ros.looming.expansion import PairLooming, View, not_exact, pair_looming, prefer
from vjepa_ros.looming.flow import SAMPLE_PX, Aligner, FlowMeter, grain, noise_energy, signal_share

_DEFAULT_VIEW = math.radians(65.0)   # horizontal field of view assumed without a focal length
PROBE_S = 0.08  # age of the frame that shows how fast the image moves
MOST_EXPANSION = 0.1   # relative change of size between the frames compared


@dataclass(frozen=True)
class LoomingSettings:
    """Settings of the looming estimate.

    Attributes
    ----------
    cell_px : side of a cell in px, a multiple of 8
    max_baseline_s : oldest frame compared with the newest one when newer ones exist, s
    max_gap_s : a frame older than this is never compared with the newest one, s
    target_px : displacement in px per 384 px of width that nine tenths of the image stay below
        by the choice of the older frame, and nearly all below twice it
    looseness_px : displacement error in px that a block may show and still belong to its window
    slant : spread of the relative change of 1/distance over a surface that is expected, 1/px
    min_confidence : confidence below which looming is unknown (NaN)
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
    rate : (Hc, Wc) float32, -dZ/dt / Z in 1/s; positive approaches, NaN unknown
    confidence : (Hc, Wc) float32 in [0, 1]
    sigma : (Hc, Wc) float32, standard error of rate in 1/s (inf where nothing was measured)
    flow : (Hc, Wc, 2) float32, motion of the image at the cell's centre without the camera's
        rotation, px/s, forward in time; NaN where rate is
    centers : (Hc, Wc, 2) float32, centre x, y of each cell in px of the grey image
    rotation : (3,) float32, rotation of the camera in rad/s: pitch (up positive), yaw (right
        positive), roll (clockwise positive)
    direction : (3,) float32 unit vector of the camera's motion (right, down, ahead), or None
    dt_s : time between the frames compared, s
    cell_px : side of a cell, px
    gray_size : width, height of the grey image
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


class LoomingEstimator:
    """Looming field of a short history of grey frames (keeps nothing but scratch buffers)."""

    def __init__(self, settings: LoomingSettings | None = None) -> None:
        self.settings = settings or LoomingSettings()
        self._size: tuple[int, int] | None = None
        self._lens: tuple[object, View] | None = None

    def estimate(self, history: Sequence[tuple[int, np.ndarray]],
                 focal_px: float | None = None,
                 center: tuple[float, float] | None = None) -> LoomingField | None:
        """Looming at the newest frame of a history.

        Parameters
        ----------
        history : (stamp in ns, grey uint8 (h, w)), oldest first, any spacing
        focal_px : focal length in px of the grey image; None assumes 65 degrees across
        center : principal point x, y in px; None is the middle

        Returns
        -------
        LoomingField, or None with fewer than two frames or none within max_gap_s.

        Raises
        ------
        ValueError : stamps that do not increase, frames of other type or size than the newest
        """
        check_history(history)
        if len(history) < 2:
            return None
        newest_ns, newest = history[-1]
        h, w = newest.shape
        self._prepare(w, h)
        view = self._view(focal_px, center)
        newest = self._crop(newest)
        ages = [(newest_ns - ns) * 1e-9 for ns, _ in history[:-1]]
        k, large = self._older_frame(newest, ages, history)
        if k is None:
            return None
        pair = self._compare(newest, self._crop(history[k][1]), ages[k], view, large)
        return self._field(pair, (w, h))

    def _prepare(self, w: int, h: int) -> None:
        """Buffers for frames of this size."""
        if self._size == (w, h):
            return
        c = self.settings.cell_px
        cols, rows = w // c, h // c
        least = max(48, 3 * c)
        if min(w, h) < least:
            raise ValueError(f'frames are {w}x{h}, expected at least {least}x{least}')
        self._size, self._grid = (w, h), (rows, cols)
        self._left, self._top = (w - cols * c) // 2, (h - rows * c) // 2
        x = self._left + (np.arange(cols) + 0.5) * c - 0.5
        y = self._top + (np.arange(rows) + 0.5) * c - 0.5
        self._centers = np.stack(np.meshgrid(x, y), -1).reshape(-1, 2)
        self._places = self._centers.reshape(rows, cols, 2).astype(np.float32)
        self._places.flags.writeable = False    # all fields share it
        step = SAMPLE_PX
        x = self._left + (np.arange(cols * c // step) + 0.5) * step - 0.5
        y = self._top + (np.arange(rows * c // step) + 0.5) * step - 0.5
        self._samples = np.stack(np.meshgrid(x, y), -1)
        self._meter = FlowMeter((cols * c, rows * c))
        self._blunt = WindowFitter((rows, cols), c, c, 3)
        self._narrow = WindowFitter((rows, cols), c, c // 2, 6)
        self._wide = [WindowFitter((rows, cols), c, c, n) for n in (5, 7)]

    def _view(self, focal_px: float | None, center: tuple[float, float] | None) -> View:
        asked = self._size, focal_px, center
        if self._lens is not None and self._lens[0] == asked:
            return self._lens[1]
        w, h = self._size
        focal = focal_px or w / 2 / math.tan(_DEFAULT_VIEW / 2)
        cx, cy = center or ((w - 1) / 2, (h - 1) / 2)
        view = View((self._centers - (cx, cy)) / focal, (self._samples - (cx, cy)) / focal, focal)
        self._lens = asked, view
        return view

    def _crop(self, gray: np.ndarray) -> np.ndarray:
        rows, cols = self._grid
        c = self.settings.cell_px
        return np.ascontiguousarray(gray[self._top:self._top + rows * c,
                                         self._left:self._left + cols * c])

    def _older_frame(self, newest: np.ndarray, ages: list[float],
                     history: Sequence[tuple[int, np.ndarray]]) -> tuple[int | None, bool]:
        """Index of the frame to compare with, and whether to expect a large displacement.

        Noise counts less over a longer time, but fast parts are lost when they move too far.
        """
        s = self.settings
        usable = [k for k, a in enumerate(ages) if a <= s.max_baseline_s]
        if not usable:
            return (len(ages) - 1 if ages[-1] <= s.max_gap_s else None), True
        if len(usable) == 1:
            return usable[0], True
        near = min(usable, key=lambda k: abs(math.log(ages[k] / PROBE_S)))
        typical, fastest, expansion = self._meter.pace(newest, self._crop(history[near][1]))
        goal = s.target_px * self._meter.size[0] / 384
        wanted = ages[near] * min(goal / max(typical, 1e-3), 2 * goal / max(fastest, 1e-3),
                                  MOST_EXPANSION / max(expansion, 1e-3))
        wanted = min(wanted, s.max_baseline_s)
        best = min(usable, key=lambda k: abs(math.log(ages[k] / wanted)))
        return best, fastest * ages[best] / ages[near] > goal

    def _compare(self, newer: np.ndarray, older: np.ndarray, dt_s: float, view: View,
                 large: bool) -> PairLooming:
        """Looming from one pair of frames, over the cells in order."""
        s, grid = self.settings, self._narrow
        flow, miss = self._meter.dense(newer, older, large)
        trust = 1 / (1 + (miss / (1.5 + 0.05 * cv2.magnitude(*cv2.split(flow)))) ** 4)
        # First at half the resolution, to get near enough and to learn the rotation.
        samples = Aligner(newer, older, 2).samples(flow)
        noise = noise_energy(samples)
        loose = 2 * s.looseness_px
        weight = trust * signal_share(samples, noise, 2)
        moments = self._blunt.moments(samples, weight)
        fits = self._blunt.fit(moments, noise, grain(2), loose, thorough=False)
        start = self._blunt.settle(fits, moments, noise, loose)
        motion = view.camera_motion(fits)
        # Then what is left without rotation, which bends the field within a window.
        base, base_affine = view.turn_field(motion.rotation), view.turn_affine(motion.rotation)
        samples = Aligner(newer, older).samples(grid.spread(start), base, samples.exposure)
        noise = noise_energy(samples)
        weight = trust * signal_share(samples, noise, 1)
        loose = s.looseness_px
        moments = grid.moments(samples, weight)
        fits = grid.fit(moments, noise, grain(1), loose, start=start - base_affine)
        seen = grid.seen(moments, noise)
        for wider in self._wide:
            vague = not_exact(fits, dt_s, seen)
            if len(vague):
                wide = wider.fit(wider.moments(samples, weight, vague), noise, grain(1), loose)
                fits = prefer(fits, wide, vague)
        vouched = seen * grid.fitting(fits.theta, moments, noise, loose)
        fits = replace(fits, theta=fits.theta + base_affine)
        return pair_looming(fits, view, motion, vouched, dt_s, s.slant)

    def _field(self, result: PairLooming, size: tuple[int, int]) -> LoomingField:
        """Result of the cells on the grid, with what is not known as NaN."""
        unknown = ~(result.confidence >= self.settings.min_confidence)
        shape, motion = self._grid, result.motion
        rate, confidence, sigma, flow = (part.astype(np.float32, order='C') for part in (
            result.rate, result.confidence, result.sigma, result.flow))
        rate[unknown] = flow[unknown] = np.nan
        return LoomingField(
            rate.reshape(shape), confidence.reshape(shape), sigma.reshape(shape),
            flow.reshape(*shape, 2), self._places,
            (motion.rotation / result.dt_s).astype(np.float32),
            None if motion.direction is None else motion.direction.astype(np.float32),
            result.dt_s, float(self.settings.cell_px), size)


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
