# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Fit an affine displacement to the image evidence in a window around every cell.

The fit minimises the remaining grey difference (Lucas-Kanade with an affine model; Shi and Tomasi,
"Good Features to Track", CVPR 1994) over the blocks of a window. Blocks are weighted by how well
they agree (Geman-McClure weights, iterated), so the larger part decides where a window shows two
motions. All cells are fitted at once from sums per block.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vjepa_ros.looming.flow import SAMPLE_PX, Samples

UNIT = 24.0          # px; coordinates in a window are divided by it, for the conditioning
OWN_PX = 0.2         # px; a cell that shows its displacement this well has half its weight
FAKE = 4.0           # factor of caution against evidence that is only noise
SCALE = np.tile([1, 1 / UNIT, 1 / UNIT], 2).astype(np.float32)  # theta in px, px per px
NEIGHBOURS = [(j, i) for j in (0, 1, -1) for i in (0, 1, -1)]
USED = [*range(21), *range(24, 27), 30, 36]  # of 7 channels x 6 monomials
WANTED_S = (0.015, 0.06)  # standard error 1/s, absolute and relative, that needs no wider window
WIDER_SEEN = 0.3     # texture of its own from which a cell may take a wider window
WIDER_GAIN = 0.7     # part of the standard error that a wider window must reach
WIDER_INLIERS = 0.25  # share of the evidence that must agree there
_SHIFT_PRIOR = 50.0  # px; displacements are not larger than about this
_SLOPE_PRIOR = 0.5   # 1/px; displacement gradients are not larger than about this
_EYE = np.eye(6, dtype=np.float32)
_SQUARES = np.array([[0, 1, 2], [1, 3, 4], [2, 4, 5]])  # products of (1, x, y) in (1 x y xx xy yy)


@dataclass(frozen=True)
class AffineFits:
    """One affine displacement per cell: v(p) = shift + slope (p - centre)."""

    theta: np.ndarray  # (C, 6) shift x [px], its slopes in x and y [px/px]; shift y, its slopes
    covariance: np.ndarray  # (C, 6, 6) of theta, or (C, 2, 2) of the shift alone
    inliers: np.ndarray  # (C,) share of the window's evidence that agrees with the fit
    misfit: np.ndarray  # (C,) mean remaining difference over the allowed one, capped, unweighted

    @cached_property
    def expansion(self) -> tuple[np.ndarray, np.ndarray]:
        """Half the divergence of cells, negated, and its standard error, (C,) each."""
        c = self.covariance
        return (-(self.theta[:, 1] + self.theta[:, 5]) / 2,
                np.sqrt(np.maximum(c[:, 1, 1] + c[:, 5, 5] + 2 * c[:, 1, 5], 1e-12)) / 2)

    def vague(self, dt_s: float, seen: np.ndarray) -> np.ndarray:
        """Find textured cells (indices) that a wider window should measure."""
        a, sd = self.expansion
        return np.flatnonzero((seen > WIDER_SEEN)
                              & (sd > dt_s * WANTED_S[0] + WANTED_S[1] * np.abs(a)))

    def widened(self, wide: AffineFits, cells: np.ndarray) -> AffineFits:
        """Replace fits of `cells` by those of wide windows, where these are more exact."""
        take = ((wide.expansion[1] < WIDER_GAIN * self.expansion[1][cells])
                & (wide.inliers > WIDER_INLIERS))
        cells = cells[take]
        parts = []
        for ours, theirs in ((self.theta, wide.theta), (self.covariance, wide.covariance),
                             (self.inliers, wide.inliers), (self.misfit, wide.misfit)):
            part = ours.copy()
            part[cells] = theirs[take]
            parts.append(part)
        return AffineFits(*parts)


class WindowFitter:
    """Affine fits in windows of `across` x `across` blocks around cells of one grid."""

    def __init__(self, grid: tuple[int, int], cell_px: int, block_px: int, across: int) -> None:
        """Prepare for a grid of (rows, columns) cells; `block_px` divides `cell_px`."""
        self.grid, self.cell_px, self.block_px = grid, cell_px, block_px
        rows, cols = grid
        n, k = cell_px // block_px, block_px // SAMPLE_PX
        self.blocks = (rows * n, cols * n, k)
        at = ((np.arange(k) + 0.5) * SAMPLE_PX - block_px / 2) / UNIT
        x, y = (a.ravel() for a in np.meshgrid(at, at))
        self.inner = np.stack([np.ones_like(x), x, y, x * x, x * y, y * y], -1)    # k*k 6
        self.inner = self.inner.astype(np.float32)
        self._sums = np.kron(np.eye(7, dtype=np.float32), self.inner)[:, USED]  # 7*k*k 26
        at = ((np.arange(across) + 0.5) - across / 2) * block_px / UNIT
        dx, dy = (a.ravel() for a in np.meshgrid(at, at))
        self.mine = np.maximum(np.abs(dx), np.abs(dy)) * UNIT < cell_px / 2
        self.move = _translations(dx, dy)
        self.spread2 = np.tile([1, (dx ** 2).mean(), (dy ** 2).mean()], 2).astype(np.float32)
        # Row of every cell's blocks in the table of blocks, whose last row is empty.
        i = np.arange(across) - (across - n) // 2
        r = np.arange(rows)[:, None] * n + i
        c = np.arange(cols)[:, None] * n + i
        index = r[:, None, :, None] * cols * n + c[None, :, None, :]
        out = ((r < 0) | (r >= rows * n))[:, None, :, None] | ((c < 0) | (c >= cols * n))[:, None]
        index[out] = rows * n * cols * n
        self.index = np.ascontiguousarray(index.reshape(rows * cols, across ** 2).T)   # B C
        prior = np.tile([1 / _SHIFT_PRIOR ** 2] + [1 / (_SLOPE_PRIOR * UNIT) ** 2] * 2, 2)
        self.prior = np.diag(prior).astype(np.float32)
        # Of the neighbours of every cell, itself first: place, whether it exists, and distance.
        y, x = np.divmod(np.arange(rows * cols)[:, None], cols)
        down, right = np.array(NEIGHBOURS).T
        near_y, near_x = np.clip(y + down, 0, rows - 1), np.clip(x + right, 0, cols - 1)
        self._around = near_y * cols + near_x                                          # C 9
        self._beyond = (near_y != y + down) | (near_x != x + right)
        self._apart = (0.05 * (abs(down) + abs(right))).astype(np.float32)
        self._steps = (cell_px * np.array([right, down])).astype(np.float32)[..., None]  # 2 9 1

    def table(self, s: Samples, trust: np.ndarray) -> np.ndarray:
        """Sum up samples per block (N + 1, 26), weighted by trust (Hs, Ws); the last is empty."""
        rows, cols, k = self.blocks
        data = np.empty((7, rows, k, cols, k), np.float32)
        trust = np.multiply(trust, s.inside, out=data[6].reshape(trust.shape))
        np.multiply(s.means, trust, out=data[:6].reshape(s.means.shape))
        table = np.zeros((rows * cols + 1, 26), np.float32)
        np.matmul(data.transpose(1, 3, 0, 2, 4).reshape(rows * cols, -1), self._sums,
                  out=table[:-1])
        return table

    def moments(self, table: np.ndarray, cells: np.ndarray | None = None) -> np.ndarray:
        """Arrange the sums of `table` per cell and block, about the cell's centre: (C, B, 26)."""
        index = self.index if cells is None else self.index[:, cells]
        out = np.empty((*index.shape[::-1], 26), np.float32)
        np.matmul(table.take(index, axis=0), self.move, out=out.transpose(1, 0, 2))
        return out

    def fit(self, moments: np.ndarray, noise: float, grain: float, looseness: float,
            start: np.ndarray | None = None, thorough: bool = True) -> AffineFits:
        """Fit all cells robustly, in two rounds.

        `moments`: (C, B, 26) from `moments`; `start`: (C, 6) px and px per px, the solution the
        first weights are taken from.
        """
        count = np.maximum(moments[..., 25], 1e-6)
        evidence = moments[..., 0] + moments[..., 12]
        limit = 4 * (count * noise + looseness ** 2 * evidence)
        weight, inverse = np.ones_like(count), _EYE
        if start is not None:
            terms = _energy_terms((start / SCALE).astype(np.float32))
            left = np.maximum((moments @ terms[..., None])[..., 0], 0)
            weight = 1 / (1 + left / limit) ** 2
        for last in (False, True):
            sums = (weight[:, None] @ moments)[:, 0]
            matrix, goal = (sums @ GRAM).reshape(-1, 6, 6), sums[:, 18:24]
            # The last part keeps rounding from turning an empty direction into a negative one.
            diagonal = matrix.reshape(-1, 36)[:, ::7]
            diagonal += self.prior.diagonal() * noise + 1e-6 * diagonal.sum(1, keepdims=True)
            if not (last and thorough):
                theta = np.linalg.solve(matrix, goal[..., None])[..., 0]
            else:
                inverse = _inverse(matrix)
                theta = (inverse @ goal[..., None])[..., 0].astype(np.float32)
            left = np.maximum((moments @ _energy_terms(theta)[..., None])[..., 0], 0)
            weight = 1 / (1 + left / limit) ** 2
        total = np.maximum((weight * count).sum(1), 1e-6)
        residual = (weight * left).sum(1) / total
        variance = np.maximum(residual, 0.3 * noise)[:, None, None]
        if thorough:
            # What is left unexplained has slopes every way, as noise has, and so seems to see
            # also along an edge, where nothing is known: the part of the matrix it makes is
            # doubted.
            fake = (FAKE * grain) * (residual * total)[:, None] * self.spread2
            doubt = (matrix + _EYE * fake[:, None]) * variance
            # Noise differs from pixel to pixel, but what a plane or one motion cannot explain
            # is the same over a block: the blocks' gradients show it (Huber's sandwich).
            slope = (theta @ GRADIENT).reshape(-1, 26, 6)
            slope[:, 18:24] = -_EYE
            pull = weight[..., None] * (moments @ slope)
            covariance = inverse @ (doubt + pull.transpose(0, 2, 1) @ pull) @ inverse
            covariance *= SCALE[:, None] * SCALE
        else:
            xx, xy, yy = matrix[:, 0, 0], matrix[:, 0, 3], matrix[:, 3, 3]
            covariance = np.stack([yy, -xy, -xy, xx], -1).reshape(-1, 2, 2) * variance
            covariance /= (xx * yy - xy * xy)[:, None, None]
        inliers = (weight * evidence).sum(1) / np.maximum(evidence.sum(1), 1e-6)
        misfit = np.minimum(left / limit, 2.0).mean(1)
        return AffineFits(theta * SCALE, covariance, inliers, misfit)

    def own(self, moments: np.ndarray) -> np.ndarray:
        """Sum up the moments (C, 26) of the cell in the middle of the window alone."""
        return moments[:, self.mine].sum(1)

    def fitting(self, theta: np.ndarray, own: np.ndarray, noise: float,
                looseness: float) -> np.ndarray:
        """Compute how far (C,), 0 to 1, a cell itself moves as its window."""
        left = _energy_terms((theta / SCALE).astype(np.float32))
        left = np.maximum((left * own).sum(1), 0)
        limit = 4 * (own[:, 25] * noise + looseness ** 2 * (own[:, 0] + own[:, 12])) + 1e-6
        return 1 / (1 + (left / limit) ** 2)

    def settle(self, fits: AffineFits, own: np.ndarray, noise: float,
               looseness: float) -> np.ndarray:
        """Choose per cell the best fit (C, 6), of its own or a neighbouring window.

        A window across the outline of an object mixes two motions; one shifted by a cell often
        does not (the idea of Kuwahara's edge-preserving filter).
        """
        limit = 4 * (np.maximum(own[:, 25], 1e-6) * noise
                     + looseness ** 2 * (own[:, 0] + own[:, 12]))
        theta = fits.theta[self._around]                                               # C 9 6
        # Move the reference point from the neighbour's centre to this one's.
        right, down = self._steps
        theta[..., ::3] -= right * theta[..., 1::3] + down * theta[..., 2::3]
        score = np.where(self._beyond, 9.0, fits.misfit[self._around]) + self._apart
        scaled, normal = theta / SCALE, (own @ GRAM).reshape(-1, 6, 6)
        left = ((scaled @ normal - 2 * own[:, None, 18:24]) * scaled).sum(-1) + own[:, 24:25]
        best = np.argmin(score + np.minimum(np.maximum(left / limit[:, None], 0), 2), axis=1)
        return theta[np.arange(len(theta)), best]

    def spread(self, theta: np.ndarray) -> np.ndarray:
        """Compute the displacement (Hs, Ws, 2) in px of samples from the fits of their cells."""
        rows, cols = self.grid
        n = self.cell_px // SAMPLE_PX
        at = ((np.arange(n) + 0.5) * SAMPLE_PX - self.cell_px / 2).astype(np.float32)
        t = theta.reshape(rows, 1, cols, 1, 2, 3).astype(np.float32)
        field = t[..., 0] + t[..., 1] * at[:, None] + t[..., 2] * at[:, None, None, None]
        return field.reshape(rows * n, cols * n, 2)


def _energy_terms(theta: np.ndarray) -> np.ndarray:
    """Coefficients (..., 26) of moments for the grey difference that theta (..., 6) leaves."""
    products = theta[..., :, None] * theta[..., None, :]
    out = products.reshape(*theta.shape[:-1], 36) @ GRAM.T
    np.multiply(theta, -2, out=out[..., 18:24])
    out[..., 24] = 1
    return out


def _inverse(matrix: np.ndarray) -> np.ndarray:
    """Invert positive definite matrices (C, 6, 6) in float64, all at once (Gauss and Jordan)."""
    # LAPACK, matrix by matrix, takes more than twice as long.
    out = matrix.transpose(1, 2, 0).astype(np.float64, order='C')
    for k in range(6):
        pivot, column = 1 / out[k, k], out[:, k].copy()
        row = out[k] * pivot
        out -= column[:, None] * row
        out[k], out[:, k], out[k, k] = row, -column * pivot, pivot
    return np.ascontiguousarray(out.transpose(2, 0, 1))


def _translations(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Matrices (B, 26, 26) taking moments about a block's centre to ones about the window's."""
    one = np.zeros((len(x), 6, 6), np.float32)
    one[:, range(6), range(6)] = 1
    one[:, 0, 1], one[:, 0, 2] = x, y
    one[:, 0, 3], one[:, 1, 3] = x * x, 2 * x
    one[:, 0, 4], one[:, 1, 4], one[:, 2, 4] = x * y, y, x
    one[:, 0, 5], one[:, 2, 5] = y * y, 2 * y
    out = np.zeros((len(x), 26, 26), np.float32)
    for k in (0, 6, 12):
        out[:, k:k + 6, k:k + 6] = one
    for k in (18, 21):
        out[:, k:k + 3, k:k + 3] = one[:, :3, :3]
    out[:, 24, 24] = out[:, 25, 25] = 1
    return out


def _gradient() -> np.ndarray:
    """Tensor (6, 26 * 6) from theta and moments to the normal matrix times theta."""
    out = np.zeros((6, 26, 6), np.float32)
    for a in (0, 1):
        for b in (0, 1):
            for i in range(3):
                for j in range(3):
                    out[3 * a + i, 6 * (a + b) + _SQUARES[i, j], 3 * b + j] = 1
    return out.reshape(6, -1)


GRADIENT = _gradient()
GRAM = GRADIENT.reshape(6, 26, 6).transpose(1, 0, 2).reshape(26, 36).copy()
