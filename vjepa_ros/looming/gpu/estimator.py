# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The looming estimate of `vjepa_ros.looming.estimator` with its pixels on a GPU.

Everything that touches pixels or samples (choice of the older frame, displacement, evidence,
window fits) runs on the device in two steps of static shape, each one CUDA graph. What is to be
told of a few hundred cells, the motion of the camera between these steps and looming after them,
is work of kernels of our own. Where there are none the host does it, with the same code as without
a device.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.looming.affine import AffineFits
from vjepa_ros.looming.estimator import (
    PROBE_S,
    LoomingEstimator,
    LoomingField,
    LoomingSettings,
    check_history,
)
from vjepa_ros.looming.expansion import pair_looming
from vjepa_ros.looming.flow import grain
from vjepa_ros.looming.gpu.align import Aligner, noise_energy, signal_share
from vjepa_ros.looming.gpu.choice import choose_kernels
from vjepa_ros.looming.gpu.fit import DeviceFitter, Fits, turn_affine, turned
from vjepa_ros.looming.gpu.flow import DenseFlow, GlobalMotion, Pace, look_up
from vjepa_ros.looming.gpu.frame_pair import HEAD, MOST_FRAMES, Belief, choose
from vjepa_ros.looming.gpu.kernels import LoomingKernels, told_pair
from vjepa_ros.looming.rotation import matrix
from vjepa_ros.runtime.cuda.graph_replay import Queue, Replay

log = logging.getLogger(__name__)

_FIRST = 8          # numbers of a cell: shift, its covariance, inliers, misfit
_SECOND = 45        # theta, covariance, inliers, misfit, vouched
_LENS = 4           # numbers given to `_second`: focal length, centre, slant
_TURN = 10          # and after them, without kernels: matrix of the rotation, time


@dataclass
class _Held:
    """What the first step leaves for the second."""

    newer: Tensor
    older: Tensor
    trust: Tensor
    start: Tensor
    exposure: Tensor
    fits: Fits
    dt_s: Tensor


class DeviceLooming(LoomingEstimator):
    """Looming field of a short history of grey frames, computed on a device.

    Parameters
    ----------
    queue : where the pixels are worked on; frames come by it
    settings : as without a device

    Attributes
    ----------
    reason : why there are no kernels of our own although it is a GPU; ''
    how : how the device works, in words; any thread may ask
    """

    def __init__(self, queue: Queue, settings: LoomingSettings | None = None) -> None:
        super().__init__(settings)
        self.queue = queue
        self.reason = ''
        self._kernels: LoomingKernels | None = None
        self._frames: Tensor | None = None
        self.how = 'not started'

    def estimate(self, history: Sequence[tuple[int, np.ndarray]],
                 focal_px: float | None = None,
                 center: tuple[float, float] | None = None) -> LoomingField | None:
        """As without a device, of frames that are brought there first."""
        check_history(history)
        if len(history) < 2:
            return None
        history = history[-MOST_FRAMES:]
        shape = (MOST_FRAMES, *history[0][1].shape)
        frames = self._frames
        if frames is None or frames.shape != shape:
            frames = torch.zeros(shape, dtype=torch.uint8, device=self.queue.device)
        stacked = torch.from_numpy(np.stack([gray for _, gray in history]))
        self.queue.settle()
        frames[:len(history)] = stacked.to(self.queue.device)
        if frames.device.type == 'cuda':
            torch.cuda.synchronize(frames.device)
        recent = [(ns, row) for row, (ns, _) in enumerate(history)]
        if not self.begin(frames, recent, focal_px, center):
            return None
        self.proceed()
        return self.finish()

    def begin(self, frames: Tensor, recent: Sequence[tuple[int, int]], focal_px: float | None,
              center: tuple[float, float] | None) -> bool:
        """Queue the work on the newest frame of a history.

        Parameters
        ----------
        frames : (M, h, w) uint8 on the device; another tensor than the last time costs a
            new start of about a second
        recent : (stamp in ns, row of `frames`), oldest first, stamps ascending
        focal_px, center : see `estimate`

        Returns
        -------
        bool
            False where there is nothing to compare with; then neither `proceed` nor `finish`
            may be called, otherwise both must.
        """
        chosen = self._candidates(recent)
        if chosen is None:
            return False
        rows, ages, near = chosen
        self._ready(frames)
        self._rays = self._view(focal_px, center)
        h, w = frames.shape[1:]
        self._center = center or ((w - 1) / 2, (h - 1) / 2)
        given = np.zeros(HEAD + 2 * MOST_FRAMES, np.float32)
        goal = self.settings.target_px * self._grid[1] * self.settings.cell_px / 384
        given[:HEAD] = (recent[-1][1], rows[near], ages[near], len(rows) == 1, goal,
                         self.settings.max_baseline_s)
        given[HEAD:HEAD + len(rows)] = rows
        given[HEAD + MOST_FRAMES:] = np.inf
        given[HEAD + MOST_FRAMES:][:len(rows)] = ages
        self._ages = ages
        self._lens_given = np.array([self._rays.focal_px, *self._center, self.settings.slant],
                                    np.float32)
        self._first.start(given)
        return True

    def proceed(self) -> None:
        """Queue the second step; without kernels the host first tells how the camera moved."""
        if self._kernels is not None:
            self._second.start(np.pad(self._lens_given, (0, _TURN)))
            return
        found = self._first.finish()
        cells = found[:-1].reshape(-1, _FIRST).astype(np.float64)
        self._dt_s = self._ages[int(found[-1])]
        theta = np.zeros((len(cells), 6))
        theta[:, ::3] = cells[:, :2]
        fits = AffineFits(theta, cells[:, 2:6].reshape(-1, 2, 2), np.zeros(len(cells)),
                          cells[:, 6], cells[:, 7])
        self._motion = self._rays.camera_motion(fits)
        turn = np.array(matrix(self._motion.rotation)).ravel()
        self._second.start(np.array([*self._lens_given, *turn, self._dt_s], np.float32))

    def finish(self) -> LoomingField:
        """Wait for the second step and make looming of it."""
        found = self._second.finish()
        if self._kernels is not None:
            dt_s = self._ages[int(self._first.finish()[-1])]
            return self._field(told_pair(found, dt_s), self._size)
        found = found.reshape(-1, _SECOND).astype(np.float64)
        fits = AffineFits(found[:, :6], found[:, 6:42].reshape(-1, 6, 6), np.zeros(len(found)),
                          found[:, 42], found[:, 43])
        pair = pair_looming(fits, self._rays, self._motion, found[:, 44], self._dt_s,
                            self.settings.slant)
        return self._field(pair, self._size)

    def _candidates(self, recent: Sequence[tuple[int, int]]
                    ) -> tuple[list[int], list[float], int] | None:
        """Rows and ages [s] of the frames to choose from, and which of them shows the pace."""
        newest_ns = recent[-1][0]
        held = [(row, (newest_ns - ns) * 1e-9) for ns, row in recent[:-1]]
        usable = [one for one in held if one[1] <= self.settings.max_baseline_s]
        if not usable:
            usable = [one for one in held[-1:] if one[1] <= self.settings.max_gap_s]
        if not usable:
            return None
        # Of a very fast camera every second frame or fewer, evenly.
        step = -(-len(usable) // MOST_FRAMES)
        rows, ages = (list(values) for values in zip(*usable[::-1][::step][::-1], strict=True))
        near = min(range(len(ages)), key=lambda k: abs(math.log(ages[k] / PROBE_S)))
        return rows, ages, near

    def _ready(self, frames: Tensor) -> None:
        """Make everything that depends on where and how large the frames are."""
        if self._frames is frames:
            return
        if self._frames is not None:
            self.queue.settle()
        device, (h, w) = self.queue.device, frames.shape[1:]
        self._prepare(w, h)
        c, (rows, cols) = self.settings.cell_px, self._grid
        size = cols * c, rows * c
        self._span = slice(self._top, self._top + size[1]), slice(self._left, self._left + size[0])
        with self.queue.here():
            self._kernels, self.reason = choose_kernels(device)
            self._pace = Pace(size, device, self._kernels)
            self._flow = DenseFlow(size, device, kernels=self._kernels)
            self._global = GlobalMotion(size, device, self._kernels)
            self._belief = Belief(size, device, self._kernels)
            self._half, self._full = (Aligner(size, device, reduce, self._kernels)
                                      for reduce in (2, 1))
            self._fit_blunt, self._fit_narrow, *self._fit_wide = (
                DeviceFitter(fitter, device, self._kernels)
                for fitter in (self._blunt, self._narrow, *self._wide))
            self._fit_blunt.prepare(grain(2), 2 * self.settings.looseness_px)
            for fitter in (self._fit_narrow, *self._fit_wide):
                fitter.prepare(grain(1), self.settings.looseness_px)
            at = torch.as_tensor(self._samples, dtype=torch.float32, device=device)
            self._spots = at.permute(2, 0, 1)                                         # 2 Hs Ws
            self._cells_at = torch.as_tensor(self._centers.T.copy(), dtype=torch.float32,
                                             device=device)                          # 2 C
            ys, xs = torch.meshgrid(torch.arange(size[1], device=device),
                                    torch.arange(size[0], device=device), indexing='ij')
            self._pixels = torch.stack([xs, ys], -1).float()
            self._per_px = torch.tensor([2 / (n - 1) for n in size], device=device)
        self._frames, self.how = frames, 'not started'
        try:
            self._first = Replay(self.queue, self._displace, HEAD + 2 * MOST_FRAMES, 'looming')
            # It reads what the first leaves where its graph has put it.
            self._second = Replay(self.queue, self._refine, _LENS + _TURN, 'looming',
                                  capture=self._first.captured)
        except BaseException:
            self._frames = None     # half of it is nothing: the next frame starts anew
            raise
        captured = self._first.captured and self._second.captured
        without = f' without kernels: {self.reason}' if self.reason else ''
        self.how = ('graph' if captured else 'eager') + (
            ' of kernels' if self._kernels else without)

    def _displace(self, given: Tensor) -> Tensor:
        """First step: displacement, and blunt fits for the motion of the camera."""
        s, kernels = self.settings, self._kernels
        newer, near = self._picture(given[:2])
        pace = self._pace(newer, near)
        best, row, dt_s, large = choose(given, pace, kernels)
        older = self._picture(row)[0]
        guess = self._global(newer, older, large > 0.5)
        at = (self._pixels * guess[:, None, None, :1] + guess[:, None, None, 1:])
        warped = look_up(older[:, None], at * self._per_px - 1)[:, 0]
        found, back = self._flow(torch.cat([newer, warped]), torch.cat([warped, newer])).chunk(2)
        flow, trust = self._belief(found, back, guess)
        samples = self._half.samples(self._half.prepared(newer), self._half.prepared(older), flow)
        noise = noise_energy(samples, kernels)
        weight = signal_share(samples, trust, noise, 2, kernels)
        moments = self._fit_blunt.moments(samples, weight)
        loose = 2 * s.looseness_px
        fits = self._fit_blunt.fit(moments, noise, grain(2), loose, thorough=False)
        start = self._fit_blunt.settle(fits, self._fit_blunt.own(moments), noise, loose)
        self._held = _Held(newer, older, trust, start, samples.exposure, fits, dt_s)
        if kernels is not None:
            return best
        told = torch.cat([fits.theta[..., ::3], fits.covariance.flatten(2),
                          fits.inliers[..., None], fits.misfit[..., None]], -1)
        return torch.cat([told.flatten(), best])

    def _refine(self, given: Tensor) -> Tensor:
        """Second step: exact fits of what is left without rotation, with kernels also looming."""
        s, held, grid, kernels = self.settings, self._held, self._fit_narrow, self._kernels
        lens, turn, dt_s = given[:_LENS], given[_LENS:-1], given[-1:]
        focal, center = lens[0], lens[1:3]
        if kernels is not None:
            rough = kernels.motion(_of_one(held.fits), self._cells_at, lens)
            turn, dt_s = rough[45:].float(), held.dt_s
        turn = turn.view(3, 3)
        spots = (self._spots - center[:, None, None]) / focal
        base = (turned(spots.flatten(1), turn)[0].view_as(spots) - spots) * focal
        base_affine = turn_affine((self._cells_at - center[:, None]) / focal, turn, focal)
        start = grid.spread(held.start)
        samples = self._full.samples(self._full.prepared(held.newer),
                                     self._full.prepared(held.older), start, start - base,
                                     held.exposure)
        noise = noise_energy(samples, kernels)
        weight = signal_share(samples, held.trust, noise, 1, kernels)
        moments = grid.moments(samples, weight)
        loose = s.looseness_px
        fits = grid.fit(moments, noise, grain(1), loose, held.start - base_affine)
        own = grid.own(moments)
        seen = grid.seen(own, noise)
        for wider in self._fit_wide:
            fits = fits.widened(wider.fit(wider.moments(samples, weight), noise, grain(1), loose),
                                seen, dt_s, kernels)
        vouched = seen * grid.fitting(fits.theta, own, noise, loose)
        if kernels is not None:
            fits = _of_one(replace(fits, theta=fits.theta + base_affine))
            motion = kernels.motion(fits, self._cells_at, lens, rough)
            rates = kernels.rates(fits, vouched[0], self._cells_at, lens, dt_s, motion)
            return torch.cat([motion.float(), rates])
        return torch.cat([fits.theta + base_affine, fits.covariance.flatten(2),
                          fits.inliers[..., None], fits.misfit[..., None], vouched[..., None]],
                         -1)[0]

    def _picture(self, rows: Tensor) -> Tensor:
        """Frames of some rows, one after the other: (len, 1, h, w) float32 without the rim."""
        down, across = self._span
        return self._frames.index_select(0, rows.long())[:, None, down, across].float()


def _of_one(fits: Fits) -> tuple[Tensor, ...]:
    """The parts of the fits of the first pair."""
    return fits.theta[0], fits.covariance[0], fits.inliers[0], fits.misfit[0]
