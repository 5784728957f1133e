# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Image evidence and affine fits to it in PyTorch, of N pairs of frames at once.

`vjepa_ros.looming.flow.evidence` and `vjepa_ros.looming.affine` give the formulas their reasons.
(Hs, Ws) samples of SAMPLE_PX, C cells of B blocks each. Nothing waits for the device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from vjepa_ros.looming import affine
from vjepa_ros.looming.affine import WANTED_S, WIDER_GAIN, WIDER_INLIERS, WIDER_SEEN, WindowFitter
from vjepa_ros.looming.flow import BLUR, EDGE_PX, SAMPLE_PX, grain
from vjepa_ros.looming.gpu.flow import Slopes, look_up, pixel_grid, unit
from vjepa_ros.looming.gpu.kernels import Fits, LoomingKernels, Window

_ENOUGH = (30, 50)     # samples needed to measure exposure, noise


@dataclass(frozen=True)
class Samples:
    """Evidence per sample of pairs, see `vjepa_ros.looming.flow.Samples`."""

    # (N, 7, Hs, Ws) gxx, gxy, gyy, hx, hy, energy, and the mean squared grey difference at the
    # displacement itself
    means: Tensor
    inside: Tensor  # (N, Hs, Ws) 1 where the match lies inside the older frame, else 0
    exposure: Tensor  # (N, 2) gain and offset applied to the older frame

    @property
    def gradients(self) -> Tensor:
        """Mean squared gradient (N, Hs, Ws)."""
        return self.means[:, 0] + self.means[:, 2]


def noise_energy(s: Samples, kernels: LoomingKernels | None = None) -> Tensor:
    """Measure the squared grey difference (N,) that remains where frames match."""
    if kernels is not None and kernels.has_room(s.inside):
        return kernels.noise(s.means, s.inside)
    change = s.means[:, 6, ::2, ::2].flatten(1)
    live = ((s.inside[:, ::2, ::2] > 0.9) & (s.gradients[:, ::2, ::2] > 0.02)).flatten(1)
    count = live.sum(1)
    ascending = torch.where(live, change, torch.inf).sort(1)[0]
    quarter = ascending.gather(1, (count // 4).clamp_max(change.shape[1] - 1)[:, None])[:, 0]
    return torch.where(count < _ENOUGH[1], 1.0, (quarter / 0.6).clamp_min(0.05))


def weigh(s: Samples, trust: Tensor, noise: Tensor, reduce: int,
          kernels: LoomingKernels | None = None) -> Tensor:
    """Multiply trust with `vjepa_ros.looming.flow.Samples.signal`, (N, Hs, Ws) each."""
    if kernels is not None:
        return kernels.weigh(s.means, trust, noise, reduce)
    energy = functional.pad(s.gradients[:, None], (1, 0, 1, 0), mode='replicate')
    energy = functional.avg_pool2d(energy, 2, 1)[:, 0]
    return trust * ((energy / (2 * grain(reduce) * noise[:, None, None]) - 2) / 4).clamp(0, 1)


class Aligner:
    """Evidence of pairs of frames of one size, taken at 1/reduce of the resolution."""

    def __init__(self, size: tuple[int, int], device: torch.device, reduce: int,
                 kernels: LoomingKernels | None = None) -> None:
        self._kernels = kernels
        self._n, self._step = reduce, SAMPLE_PX // reduce
        self._size = w, h = size[0] // reduce, size[1] // reduce
        self._smooth = [torch.as_tensor(_smoothing(n), device=device) for n in (h, w)]
        if kernels is not None:
            return      # the rest is for the path without them
        self._slopes = Slopes(self._size, device)
        self._grid = unit(torch.as_tensor(pixel_grid(w, h), device=device), self._size)
        self._unit = torch.tensor([2 / (w - 1) / reduce, 2 / (h - 1) / reduce], device=device)
        at = (pixel_grid(size[0] // SAMPLE_PX, size[1] // SAMPLE_PX) + 0.5) * SAMPLE_PX - 0.5
        self._at = torch.as_tensor(at, device=device).permute(2, 0, 1)                # 2 Hs Ws
        self._last = torch.tensor([size[0] - EDGE_PX[1], size[1] - EDGE_PX[1]], device=device)

    def prepared(self, frames: Tensor) -> Tensor:
        """Shrink and blur frames (N, h, w), so that gradients mean something."""
        if self._n > 1:
            frames = functional.avg_pool2d(frames[:, None], self._n)[:, 0]
        return self._smooth[0] @ frames @ self._smooth[1].T

    def moved(self, older: Tensor, flow: Tensor) -> tuple[Tensor, Tensor]:
        """Look up older frames from `prepared` where a displacement takes each pixel.

        `older`: (N, h, w); `flow`: (N, 2, Hs, Ws) in px of the full resolution.
        """
        if self._kernels is not None:
            return self._kernels.align(older, flow)
        ends = self._at + flow
        inside = ((ends > EDGE_PX[0]) & (ends < self._last[:, None, None])).all(1).float()
        at = self._grid + self._per_pixel(flow).permute(0, 2, 3, 1) * self._unit
        return look_up(older[:, None], at)[:, 0], inside

    def samples(self, newer: Tensor, moved: Tensor, inside: Tensor, flow: Tensor,
                exposure: Tensor | None = None) -> Samples:
        """Compute evidence linearised at a displacement.

        `newer`: (N, h, w) from `prepared`; `flow`: (N, 2, Hs, Ws) px, that part of their
        displacement that the evidence is about; `exposure`: (N, 2) gain and offset of the older
        frame; measured when omitted.
        """
        kernels = self._kernels
        if exposure is None:
            means = functional.avg_pool2d(torch.stack([newer, moved], 1), self._step)
            exposure = (kernels.exposure(means, inside)
                        if kernels is not None and kernels.has_room(inside)
                        else measured_exposure(means, inside))
        if kernels is not None:
            return Samples(kernels.evidence(newer, moved, flow, exposure), inside, exposure)
        dense = self._per_pixel(flow)
        moved = torch.addcmul(exposure[:, 1, None, None], moved, exposure[:, 0, None, None])
        change = moved - newer
        # Mean slope of both frames: second-order convergence (Malis, ICRA 2004).
        ix, iy = ((s + t) * (0.5 / self._n)
                  for s, t in zip(self._slopes(moved), self._slopes(newer), strict=True))
        goal = ix * dense[:, 0] + iy * dense[:, 1] - change
        products = torch.stack([ix * ix, ix * iy, iy * iy, ix * goal, iy * goal, goal * goal,
                                change * change], 1)
        return Samples(functional.avg_pool2d(products, self._step), inside, exposure)

    def _per_pixel(self, flow: Tensor) -> Tensor:
        """Interpolate the displacement of samples for each pixel (N, 2, h, w)."""
        return functional.interpolate(flow, size=self._size[::-1], mode='bilinear',
                                      align_corners=False)


def _smoothing(length: int) -> np.ndarray:
    """Make the matrix (length, length) of OpenCV's Gaussian blur of 5 px, sigma 1."""
    out = np.zeros((length, length))
    for row in range(length):
        for shift, value in zip(range(-2, 3), BLUR, strict=True):
            at = abs(row + shift)
            out[row, 2 * (length - 1) - at if at >= length else at] += value
    return out.astype(np.float32)


def measured_exposure(means: Tensor, inside: Tensor) -> Tensor:
    """Measure the gain and offset (N, 2) that give older frames the brightness of newer ones.

    `means`: (N, 2, Hs, Ws) mean grey levels of samples, newer and older; `inside`: (N, Hs, Ws) 1
    where both frames show the sample.
    """
    y, x = means[:, :, ::2, ::2].flatten(2).unbind(1)
    seen = inside[:, ::2, ::2].flatten(1) > 0.9
    weight = seen.float()
    none = torch.where(seen, 0.0, torch.nan)
    gain, offset = torch.ones_like(y[:, :1]), torch.zeros_like(y[:, :1])
    neutral = torch.cat([gain, offset], 1)
    for _ in range(4):
        total = weight.sum(1, keepdim=True).clamp_min(1e-6)
        mx, my = ((weight * v).sum(1, keepdim=True) / total for v in (x, y))
        dx = weight * (x - mx)
        # A prior of gain 1 decides where there is no contrast to measure it.
        gain = (((dx * (y - my)).sum(1, keepdim=True) + 25.0 * total)
                / ((dx * (x - mx)).sum(1, keepdim=True) + 25.0 * total))
        offset = my - gain * mx
        rest = (y - gain * x - offset).abs()
        middle = (rest + none).nanmedian(1, keepdim=True)[0].nan_to_num(1.0)
        weight = seen / (1 + (rest / (3.0 * middle + 0.5)).square()).square()
    found = torch.cat([gain, offset], 1)
    return torch.where(seen.sum(1, keepdim=True) < _ENOUGH[0], neutral, found)


def expansion(fits: Fits) -> tuple[Tensor, Tensor]:
    """Compute half the divergence, negated, and its standard error, (N, C) each."""
    c = fits.covariance
    spread = c[..., 1, 1] + c[..., 5, 5] + 2 * c[..., 1, 5]
    return (-(fits.theta[..., 1] + fits.theta[..., 5]) / 2, spread.clamp_min(1e-12).sqrt() / 2)


class DeviceFitter:
    """A `WindowFitter` whose fits run on a device, by kernels where it has some."""

    def __init__(self, host: WindowFitter, device: torch.device, reduce: int, looseness: float,
                 kernels: LoomingKernels | None = None) -> None:
        self._kernels, self._grain, self._looseness = kernels, grain(reduce), looseness
        inner = host.cell_px // host.block_px
        self._window = Window(host.grid, math.isqrt(len(host.mine)), inner, host.cell_px)
        spread2, prior = host.spread2, host.prior
        self._constants = torch.tensor(
            [self._grain, looseness, *spread2, prior[0, 0], prior[1, 1], affine.SCALE[1],
             host.block_px / affine.UNIT], dtype=torch.float32, device=device)
        self._grid, self._cell_px, self._blocks = host.grid, host.cell_px, host.blocks
        n = self._cell_px // SAMPLE_PX
        at = (torch.arange(n, device=device) + 0.5) * SAMPLE_PX - self._cell_px / 2
        y, x = torch.meshgrid(at, at, indexing='ij')
        self._spots = torch.stack([torch.ones_like(x), x, y]).reshape(3, -1)          # 3 n*n
        if kernels is not None:
            return      # the rest is for the path without them

        def put(values: np.ndarray) -> Tensor:
            return torch.as_tensor(values, device=device)

        self._inner, self._move, self._index = put(host.inner), put(host.move), put(host.index)
        self._mine = put(host.mine.nonzero()[0])
        self._spread2, self._prior = put(host.spread2).double(), put(host.prior).double()
        self._scale = put(affine.SCALE)
        self._gram, self._gradient = put(affine.GRAM), put(affine.GRADIENT)
        self._used = torch.tensor(affine.USED, device=device)
        self._eye = torch.eye(6, dtype=torch.float64, device=device)
        self._tail = torch.tensor([1.0, 0.0], device=device)
        neighbours = torch.tensor(affine.NEIGHBOURS, dtype=torch.float32, device=device)
        self._far = 0.05 * neighbours.abs().sum(1)[:, None, None]                     # 9 1 1
        # Moves the reference point of theta from a neighbour's centre: theta @ matrix.
        shifts = torch.eye(6, device=device).repeat(9, 1, 1)
        for k in (0, 3):
            shifts[:, k + 1, k] = -self._cell_px * neighbours[:, 1]
            shifts[:, k + 2, k] = -self._cell_px * neighbours[:, 0]
        self._shifts = shifts[:, None]

    def room(self, pairs: int, windows: int = 1, thorough: bool = True) -> Fits:
        """Make room for fits (windows, N, C, ...) of `measure`."""
        shape = windows, pairs, self._grid[0] * self._grid[1]
        side = 6 if thorough else 2
        return Fits(*(self._constants.new_empty((*shape, *more))
                      for more in ((6,), (side, side), (), ())))

    def measure(self, s: Samples, trust: Tensor, noise: Tensor, out: Fits,
                start: Tensor | None = None) -> Tensor:
        """Fit as `WindowFitter.fit`, with trust (N, Hs, Ws), noise (N,) and start (N, C, 6).

        `out` (N, C, ...) gets the fits, thorough ones where it has room for a whole covariance.
        """
        if self._kernels is not None:
            table = self._kernels.table(s.means, trust, s.inside, self._blocks[2])
            return self._kernels.window_fit(table, noise, start, self._window, self._constants,
                                            out)
        moments = self._moments(s, trust)
        found = self._fit(moments, noise, start, out.covariance.shape[-1] > 2)
        for part, its in zip(out, found, strict=True):
            part.copy_(its)
        return moments[:, :, self._mine].sum(2)

    def _moments(self, s: Samples, trust: Tensor) -> Tensor:
        """Sum up samples per cell and block (N, C, B, 26), weighted by trust (N, Hs, Ws)."""
        rows, cols, k = self._blocks
        trust = trust * s.inside
        data = torch.cat([s.means[:, :6], torch.ones_like(s.means[:, :1])], 1)
        data = (data * trust[:, None]).view(-1, 7, rows, k, cols, k).permute(0, 2, 4, 1, 3, 5)
        sums = data.reshape(len(trust), rows * cols, 7, k * k) @ self._inner
        table = sums.flatten(2)[:, :, self._used]
        table = functional.pad(table, (0, 0, 0, 1))      # the last row is empty
        return (table[:, self._index] @ self._move).transpose(1, 2)

    def _fit(self, moments: Tensor, noise: Tensor, start: Tensor | None,
             thorough: bool) -> Fits:
        noise = noise[:, None, None]
        count = moments[..., 25].clamp_min(1e-6)
        evidence = moments[..., 0] + moments[..., 12]
        limit = 4 * (count * noise + self._looseness ** 2 * evidence)
        weight, inverse = torch.ones_like(count), self._eye
        if start is not None:
            weight = self._agreement(moments, start / self._scale, limit)[1]
        for last in (False, True):
            sums = (weight[..., None, :] @ moments)[..., 0, :]
            matrix = (sums @ self._gram).unflatten(-1, (6, 6)).double()
            goal = sums[..., 18:24].double()
            # The last part keeps rounding from turning an empty direction into a negative one.
            trace = matrix.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
            matrix = matrix + self._prior * noise[..., None] + self._eye * (1e-6 * trace)
            if last and thorough:
                inverse = eliminate(matrix, self._eye.expand_as(matrix))
                theta = (inverse @ goal[..., None])[..., 0].float()
            else:
                theta = eliminate(matrix, goal[..., None])[..., 0].float()
            left, weight = self._agreement(moments, theta, limit)
        total = (weight * count).sum(-1).clamp_min(1e-6)
        residual = (weight * left).sum(-1) / total
        variance = torch.maximum(residual, 0.3 * noise[..., 0])[..., None, None]
        if thorough:
            fake = (affine.FAKE * self._grain) * (residual * total)[..., None] * self._spread2
            doubt = (matrix + self._eye * fake[..., None, :]) * variance
            slope = (theta @ self._gradient).unflatten(-1, (26, 6))
            slope = torch.cat([slope[..., :18, :],
                               (-self._eye.float()).expand(*slope.shape[:2], 6, 6),
                               slope[..., 24:, :]], -2)
            pull = (weight[..., None] * (moments @ slope)).double()
            covariance = inverse @ (doubt + pull.transpose(-1, -2) @ pull) @ inverse
            covariance = (covariance * self._scale[:, None] * self._scale).float()
        else:
            xx, xy, yy = (matrix[..., i, j] for i, j in ((0, 0), (0, 3), (3, 3)))
            covariance = torch.stack([yy, -xy, -xy, xx], -1).unflatten(-1, (2, 2)) * variance
            covariance = (covariance / (xx * yy - xy * xy)[..., None, None]).float()
        inliers = (weight * evidence).sum(-1) / evidence.sum(-1).clamp_min(1e-6)
        misfit = (left / limit).clamp_max(2.0).mean(-1)
        return Fits(theta * self._scale, covariance, inliers, misfit)

    def settle(self, fits: Fits, own: Tensor, noise: Tensor) -> Tensor:
        """Choose per cell the best fit (N, C, 6), of its own or a neighbouring window."""
        if self._kernels is not None:
            return self._kernels.settle(fits, own, noise, self._window, self._constants)
        rows, cols = self._grid
        limit = 4 * (own[..., 25].clamp_min(1e-6) * noise[:, None]
                     + self._looseness ** 2 * (own[..., 0] + own[..., 12]))
        both = torch.cat([fits.theta, fits.misfit[..., None]], -1).unflatten(1, (rows, cols))
        theta = functional.pad(both.permute(0, 3, 1, 2), (1, 1, 1, 1), mode='replicate')
        quality = functional.pad(both[..., 6], (1, 1, 1, 1), value=9.0)
        places = [(slice(1 + j, 1 + j + rows), slice(1 + i, 1 + i + cols))
                  for j, i in affine.NEIGHBOURS]
        score = torch.stack([quality[:, y, x] for y, x in places])                    # 9 N r c
        tried = torch.stack([theta[:, :6, y, x] for y, x in places]).flatten(3)       # 9 N 6 C
        tried = tried.transpose(2, 3) @ self._shifts                                  # 9 N C 6
        left = (self._energy_terms(tried / self._scale) * own).sum(-1) / limit
        best = (score.flatten(2) + self._far + left.clamp(0, 2)).argmin(0)            # N C
        return tried.gather(0, best[None, ..., None].expand(1, -1, -1, 6))[0]

    def widened(self, fits: Fits, own: Tensor, noise: Tensor, dt_s: Tensor,
                base: Tensor) -> tuple[Fits, Tensor]:
        """Replace fits by those of ever wider windows where these are wanted and more exact.

        `dt_s`: (N,) time between the frames; `base`: (N, C, 6) what is added to all displacements
        in the end.
        """
        if self._kernels is not None:
            return self._kernels.widen(fits, own, noise, dt_s, base, self._constants)
        evidence = own[..., 0] + own[..., 12]
        seen = evidence / (evidence + noise[:, None] / affine.OWN_PX ** 2)
        expands, errors = expansion(fits)
        a, sd, found = expands[0].abs(), errors[0], [part[0] for part in fits]
        known, least = seen > WIDER_SEEN, dt_s[:, None] * WANTED_S[0]
        for number in range(1, len(errors)):
            take = (known & (sd > least + WANTED_S[1] * a) & (errors[number] < WIDER_GAIN * sd)
                    & (fits.inliers[number] > WIDER_INLIERS))
            found = [torch.where(take.view(*take.shape, *[1] * (ours.ndim - 2)),
                                 all_of_it[number], ours)
                     for ours, all_of_it in zip(found, fits, strict=True)]
            a = torch.where(take, expands[number].abs(), a)
            sd = torch.where(take, errors[number], sd)
        left = (self._energy_terms(found[0] / self._scale) * own).sum(-1)
        limit = 4 * (own[..., 25] * noise[:, None] + self._looseness ** 2 * evidence) + 1e-6
        agrees = 1 / (1 + (left.clamp_min(0) / limit).square())
        return Fits(found[0] + base, *found[1:]), seen * agrees

    def spread(self, theta: Tensor) -> Tensor:
        """Compute the displacement (N, 2, Hs, Ws) [px] of samples from the fits of their cells."""
        rows, cols = self._grid
        n = self._cell_px // SAMPLE_PX
        field = theta.unflatten(-1, (2, 3)) @ self._spots                             # N C 2 n*n
        field = field.view(-1, rows, cols, 2, n, n).permute(0, 3, 1, 4, 2, 5)
        return field.reshape(-1, 2, rows * n, cols * n)

    def _agreement(self, moments: Tensor, theta: Tensor, limit: Tensor) -> tuple[Tensor, Tensor]:
        left = (moments @ self._energy_terms(theta)[..., None])[..., 0].clamp_min(0)
        return left, 1 / (1 + left / limit).square()

    def _energy_terms(self, theta: Tensor) -> Tensor:
        products = (theta[..., :, None] * theta[..., None, :]).flatten(-2) @ self._gram[:18].T
        return torch.cat([products, -2 * theta, self._tail.expand(*theta.shape[:-1], 2)], -1)


def eliminate(matrix: Tensor, goal: Tensor) -> Tensor:
    """Solve positive definite systems (..., n, n) x = goal (..., n, m) by Gauss and Jordan.

    `torch.linalg.solve` asks the device for the outcome, which a graph cannot do; n is small.
    """
    n = matrix.shape[-1]
    eye = torch.eye(n, dtype=matrix.dtype, device=matrix.device)
    both = torch.cat([matrix, goal], -1)
    for k in range(n):
        row = both[..., k:k + 1, :] / both[..., k:k + 1, k:k + 1]
        both = torch.addcmul(both, both[..., k:k + 1] - eye[:, k:k + 1], row, value=-1)
    return both[..., n:]


def turned_back(rays: Tensor, turn: Tensor) -> tuple[Tensor, Tensor]:
    """Turn rays (2, M) of the newer frame back to the older one; also their depth (1, M)."""
    seen = turn @ functional.pad(rays, (0, 0, 0, 1), value=1.0)
    depth = seen[2:].clamp_min(0.05)
    return seen[:2] / depth, depth


def turn_affine(rays: Tensor, turn: Tensor, focal: Tensor) -> Tensor:
    """Compute the displacement of cells by the rotation, (C, 6): `Rays.turn_displacement`."""
    ends, depth = turned_back(rays, turn)
    slope = (turn[:2, :2, None] - ends[:, None] * turn[2, :2, None]) / depth   # 2 2 C
    slope = slope - torch.eye(2, device=rays.device)[..., None]
    return torch.cat([((ends - rays) * focal)[:, None], slope], 1).flatten(0, 1).T
