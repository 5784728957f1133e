# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Affine fits in windows around cells in PyTorch: `vjepa_ros.looming.affine.WindowFitter`.

That module gives the formulas their reasons; here N pairs are fitted at once, C cells of B blocks
each. Nothing waits for the device.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.looming import affine
from vjepa_ros.looming.affine import WANTED_S, WIDER_GAIN, WIDER_INLIERS, WIDER_SEEN, WindowFitter
from vjepa_ros.looming.flow import SAMPLE_PX
from vjepa_ros.looming.gpu.evidence import Samples
from vjepa_ros.looming.gpu.kernels import Fits, LoomingKernels, Window


def expansion(fits: Fits) -> tuple[Tensor, Tensor]:
    """Compute half the divergence, negated, and its standard error, (N, C) each."""
    c = fits.covariance
    spread = c[..., 1, 1] + c[..., 5, 5] + 2 * c[..., 1, 5]
    return (-(fits.theta[..., 1] + fits.theta[..., 5]) / 2, spread.clamp_min(1e-12).sqrt() / 2)


class DeviceFitter:
    """A `WindowFitter` whose fits run on a device, by kernels where it has some."""

    def __init__(self, host: WindowFitter, device: torch.device, grain: float, looseness: float,
                 kernels: LoomingKernels | None = None) -> None:
        self._kernels, self._grain, self._looseness = kernels, grain, looseness
        inner = host.cell_px // host.block_px
        self._window = Window(host.grid, math.isqrt(len(host.mine)), inner, host.cell_px)
        spread2, prior = host.spread2, host.prior
        self._constants = torch.tensor(
            [grain, looseness, *spread2, prior[0, 0], prior[1, 1], affine.SCALE[1],
             host.block_px / affine.UNIT], dtype=torch.float32, device=device)

        def put(values: np.ndarray) -> Tensor:
            return torch.as_tensor(values, device=device)

        self._grid, self._cell_px, self._blocks = host.grid, host.cell_px, host.blocks
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
        n = self._cell_px // SAMPLE_PX
        at = (torch.arange(n, device=device) + 0.5) * SAMPLE_PX - self._cell_px / 2
        y, x = torch.meshgrid(at, at, indexing='ij')
        self._spots = torch.stack([torch.ones_like(x), x, y]).reshape(3, -1)          # 3 n*n

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
        table = torch.nn.functional.pad(table, (0, 0, 0, 1))      # the last row is empty
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
        theta = torch.nn.functional.pad(both.permute(0, 3, 1, 2), (1, 1, 1, 1), mode='replicate')
        quality = torch.nn.functional.pad(both[..., 6], (1, 1, 1, 1), value=9.0)
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
    seen = turn @ torch.nn.functional.pad(rays, (0, 0, 0, 1), value=1.0)
    depth = seen[2:].clamp_min(0.05)
    return seen[:2] / depth, depth


def turn_affine(rays: Tensor, turn: Tensor, focal: Tensor) -> Tensor:
    """Compute the displacement of cells by the rotation, (C, 6): `Rays.turn_displacement`."""
    ends, depth = turned_back(rays, turn)
    slope = (turn[:2, :2, None] - ends[:, None] * turn[2, :2, None]) / depth   # 2 2 C
    slope = slope - torch.eye(2, device=rays.device)[..., None]
    return torch.cat([((ends - rays) * focal)[:, None], slope], 1).flatten(0, 1).T
