# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Fit an affine displacement to the image evidence in a window around every cell.

The fit minimises the grey difference left (Lucas-Kanade with an affine model; Shi and Tomasi,
"Good Features to Track", CVPR 1994) over blocks of the window, each weighted by how well it
agrees (Geman-McClure weights, iterated), so that the larger part decides where a window shows
two motions. All cells are fitted at once from sums per block.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vjepa_ros.looming.flow import SAMPLE_PX, Samples

UNIT = 24.0         # px; coordinates in a window are divided by it, for the conditioning
_SHIFT_PRIOR = 50.0  # px; displacements are not larger than about this
_SLOPE_PRIOR = 0.5   # 1/px; displacement gradients are not larger than about this
_OWN_PX = 0.2        # px; a cell that shows its displacement this well has half its say
_FAKE = 4.0          # caution against evidence that is only noise
_SCALE = np.tile([1, 1 / UNIT, 1 / UNIT], 2).astype(np.float32)  # theta in px, px per px
_EYE = np.eye(6, dtype=np.float32)
_NEIGHBOURS = [(j, i) for j in (0, 1, -1) for i in (0, 1, -1)]
_USED = [*range(21), *range(24, 27), 30, 36]  # of 7 channels x 6 monomials
_SQUARES = np.array([[0, 1, 2], [1, 3, 4], [2, 4, 5]])  # products of (1, x, y) in (1 x y xx xy yy)


@dataclass(frozen=True)
class AffineFits:
    """One affine displacement per cell: v(p) = shift + slope (p - centre)."""

    theta: np.ndarray        # (C, 6) shift x px, its slopes in x and y px/px; shift y, slopes
    covariance: np.ndarray   # (C, 6, 6) of theta, or (C, 2, 2) of the shift alone
    residual: np.ndarray     # (C,) weighted mean squared grey difference left
    inliers: np.ndarray      # (C,) share of the window's evidence that agrees with the fit
    misfit: np.ndarray       # (C,) mean difference left over the allowed one, capped, unweighted

    @property
    def shift(self) -> np.ndarray:
        """Displacement at the cell's centre, (C, 2) px."""
        return self.theta[:, ::3]

    @property
    def shift_covariance(self) -> np.ndarray:
        """Covariance of the shift, (C, 2, 2) px^2."""
        c = self.covariance
        return c if c.shape[1] == 2 else c[:, ::3, ::3]

    @property
    def slope(self) -> np.ndarray:
        """d displacement / d position, (C, 2, 2) px per px."""
        return self.theta.reshape(-1, 2, 3)[:, :, 1:]


class WindowFitter:
    """Affine fits in windows of `across` x `across` blocks around cells of one grid."""

    def __init__(self, grid: tuple[int, int], cell_px: int, block_px: int, across: int) -> None:
        """Prepare for a grid of (rows, columns) cells; block_px divides cell_px."""
        self.grid, self.cell_px, self.block_px = grid, cell_px, block_px
        rows, cols = grid
        n, k = cell_px // block_px, block_px // SAMPLE_PX
        self._blocks = (rows * n, cols * n, k)
        at = ((np.arange(k) + 0.5) * SAMPLE_PX - block_px / 2) / UNIT
        x, y = (a.ravel() for a in np.meshgrid(at, at))
        self._inner = np.stack([np.ones_like(x), x, y, x * x, x * y, y * y], -1)    # k*k 6
        self._inner = self._inner.astype(np.float32)
        at = ((np.arange(across) + 0.5) - across / 2) * block_px / UNIT
        dx, dy = (a.ravel() for a in np.meshgrid(at, at))
        self._mine = np.maximum(np.abs(dx), np.abs(dy)) * UNIT < cell_px / 2
        self._move = _translations(dx, dy)
        self._spread2 = np.tile([1, (dx ** 2).mean(), (dy ** 2).mean()], 2).astype(np.float32)
        # Row of every cell's blocks in the table of blocks, whose last row is empty.
        i = np.arange(across) - (across - n) // 2
        r = np.arange(rows)[:, None] * n + i
        c = np.arange(cols)[:, None] * n + i
        index = r[:, None, :, None] * cols * n + c[None, :, None, :]
        out = ((r < 0) | (r >= rows * n))[:, None, :, None] | ((c < 0) | (c >= cols * n))[:, None]
        index[out] = rows * n * cols * n
        self._index = np.ascontiguousarray(index.reshape(rows * cols, across ** 2).T)   # B C
        prior = np.tile([1 / _SHIFT_PRIOR ** 2] + [1 / (_SLOPE_PRIOR * UNIT) ** 2] * 2, 2)
        self._prior = np.diag(prior).astype(np.float32)

    def moments(self, s: Samples, trust: np.ndarray, cells: np.ndarray | None = None,
                ) -> np.ndarray:
        """Sums per cell and block (C, B, 26), samples weighted by trust (Hs, Ws)."""
        rows, cols, k = self._blocks
        trust = (trust * s.inside).astype(np.float32)
        data = np.stack([s.gxx * trust, s.gxy * trust, s.gyy * trust, s.hx * trust, s.hy * trust,
                         s.energy * trust, trust], -1)
        data = data.reshape(rows, k, cols, k, 7).transpose(0, 2, 4, 1, 3)
        sums = (data.reshape(-1, k * k) @ self._inner).reshape(rows * cols, 42)
        table = np.zeros((rows * cols + 1, 26), np.float32)
        table[:-1] = sums[:, _USED]
        index = self._index if cells is None else self._index[:, cells]
        picked = table.take(index.ravel(), axis=0).reshape(*index.shape, 26)
        return np.ascontiguousarray((picked @ self._move).transpose(1, 0, 2))

    def fit(self, moments: np.ndarray, noise: float, grain: float, looseness: float,
            rounds: int = 2, start: np.ndarray | None = None,
            thorough: bool = True) -> AffineFits:
        """Robust fits.

        Parameters
        ----------
        moments : (C, B, 26) from `moments`
        noise : expected mean squared grey difference of a perfect fit
        grain : squared slope that noise adds to the evidence, per unit of its energy
        looseness : displacement error in px that a block may show and still belong
        rounds : number of reweighted solutions
        start : (C, 6) px and px per px, the solution the first weights are taken from
        thorough : False gives the covariance of the shift alone, as if all else were certain
        """
        count = np.maximum(moments[..., 25], 1e-6)
        evidence = moments[..., 0] + moments[..., 12]
        limit = 4 * (count * noise + looseness ** 2 * evidence)
        weight = np.ones_like(count) if start is None else \
            _agreement(moments, (start / _SCALE).astype(np.float32), limit)[1]
        for k in range(rounds):
            sums = (weight[:, None] @ moments)[:, 0]
            matrix, goal = (sums @ _GRAM).reshape(-1, 6, 6), sums[:, 18:24]
            # The last part keeps rounding from turning an empty direction into a negative one.
            matrix += self._prior * noise + _EYE * (
                1e-6 * np.trace(matrix, axis1=1, axis2=2))[:, None, None]
            if k < rounds - 1 or not thorough:
                theta = np.linalg.solve(matrix, goal[..., None])[..., 0]
            else:
                inverse = np.linalg.inv(matrix.astype(np.float64))
                theta = (inverse @ goal[..., None])[..., 0].astype(np.float32)
            left, weight = _agreement(moments, theta, limit)
        total = np.maximum((weight * count).sum(1), 1e-6)
        residual = (weight * left).sum(1) / total
        variance = np.maximum(residual, 0.3 * noise)[:, None, None]
        if thorough:
            # What is left unexplained has slopes every way, as noise has, and so seems to see
            # also along an edge, where nothing is known: the part of the matrix it makes is
            # doubted.
            fake = (_FAKE * grain) * (residual * total)[:, None] * self._spread2
            doubt = (matrix + _EYE * fake[:, None]) * variance
            # Noise differs from pixel to pixel, but what a plane or one motion cannot explain
            # is the same over a block: the blocks' gradients show it (Huber's sandwich).
            slope = (theta @ _GRADIENT).reshape(-1, 26, 6)
            slope[:, 18:24] = -_EYE
            pull = weight[..., None] * (moments @ slope)
            covariance = inverse @ (doubt + pull.transpose(0, 2, 1) @ pull) @ inverse
            covariance *= _SCALE[:, None] * _SCALE
        else:
            xx, xy, yy = (matrix[:, i, j] for i, j in ((0, 0), (0, 3), (3, 3)))
            covariance = np.stack([yy, -xy, -xy, xx], -1).reshape(-1, 2, 2) * variance
            covariance /= (xx * yy - xy * xy)[:, None, None]
        inliers = (weight * evidence).sum(1) / np.maximum(evidence.sum(1), 1e-6)
        misfit = np.minimum(left / limit, 2.0).mean(1)
        return AffineFits(theta * _SCALE, covariance, residual, inliers, misfit)

    def own(self, moments: np.ndarray) -> np.ndarray:
        """Moments (C, 26) of the cell in the middle of the window alone."""
        return moments[:, self._mine].sum(1)

    def seen(self, moments: np.ndarray, noise: float) -> np.ndarray:
        """How far (C,), 0 to 1, a cell has texture of its own to show a displacement."""
        own = self.own(moments)
        evidence = own[:, 0] + own[:, 12]
        return evidence / (evidence + noise / _OWN_PX ** 2)

    def fitting(self, theta: np.ndarray, moments: np.ndarray, noise: float,
                looseness: float) -> np.ndarray:
        """How far (C,), 0 to 1, a cell itself moves as found for its window."""
        own = self.own(moments)
        left = (_energy_terms((theta / _SCALE).astype(np.float32)) * own).sum(1)
        limit = 4 * (own[:, 25] * noise + looseness ** 2 * (own[:, 0] + own[:, 12])) + 1e-6
        return 1 / (1 + (np.maximum(left, 0) / limit) ** 2)

    def settle(self, fits: AffineFits, moments: np.ndarray, noise: float,
               looseness: float) -> np.ndarray:
        """Per cell the fit (C, 6) of its own or a neighbouring window that explains it best.

        A window across the outline of an object mixes two motions; one shifted by a cell often
        does not (the idea of Kuwahara's edge-preserving filter).
        """
        rows, cols = self.grid
        own = self.own(moments)
        limit = 4 * (np.maximum(own[:, 25], 1e-6) * noise
                     + looseness ** 2 * (own[:, 0] + own[:, 12]))
        around = np.pad(fits.theta.reshape(rows, cols, 6), ((1, 1), (1, 1), (0, 0)), mode='edge')
        quality = np.pad(fits.misfit.reshape(rows, cols), 1, constant_values=9.0)
        theta = np.empty((9, rows, cols, 6), np.float32)
        score = np.empty((9, rows, cols), np.float32)
        for k, (j, i) in enumerate(_NEIGHBOURS):
            theta[k] = around[1 + j:1 + j + rows, 1 + i:1 + i + cols]
            # Move the reference point from the neighbour's centre to this one's.
            theta[k, ..., 0] -= self.cell_px * (i * theta[k, ..., 1] + j * theta[k, ..., 2])
            theta[k, ..., 3] -= self.cell_px * (i * theta[k, ..., 4] + j * theta[k, ..., 5])
            score[k] = quality[1 + j:1 + j + rows, 1 + i:1 + i + cols] + 0.05 * (abs(i) + abs(j))
        theta = theta.reshape(9, -1, 6)
        terms = _energy_terms((theta / _SCALE).reshape(-1, 6)).reshape(9, -1, 26)
        left = np.einsum('kcf,cf->kc', terms, own) / limit
        best = np.argmin(score.reshape(9, -1) + np.clip(left, 0, 2), axis=0)
        return np.take_along_axis(theta, best[None, :, None], 0)[0]

    def spread(self, theta: np.ndarray) -> np.ndarray:
        """Displacement (Hs, Ws, 2) in px per sample from the fit of each sample's cell."""
        rows, cols = self.grid
        n = self.cell_px // SAMPLE_PX
        at = ((np.arange(n) + 0.5) * SAMPLE_PX - self.cell_px / 2).astype(np.float32)
        t = theta.reshape(rows, 1, cols, 1, 2, 3).astype(np.float32)
        field = t[..., 0] + t[..., 1] * at[:, None] + t[..., 2] * at[:, None, None, None]
        return field.reshape(rows * n, cols * n, 2)


def _agreement(moments: np.ndarray, theta: np.ndarray,
               limit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Summed squared grey difference left per block by theta, and the weight it gives."""
    left = np.maximum((moments @ _energy_terms(theta)[..., None])[..., 0], 0)
    return left, 1 / (1 + left / limit) ** 2


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


def _energy_terms(theta: np.ndarray) -> np.ndarray:
    """Coefficients (N, 26) with which moments give the grey difference left by theta (N, 6)."""
    out = np.empty((len(theta), 26), np.float32)
    np.matmul(theta[:, _LEFT] * theta[:, _RIGHT], _COLLECT, out=out[:, :18])
    np.multiply(theta, -2, out=out[:, 18:24])
    out[:, 24:] = 1, 0
    return out


def _collection() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which products of theta go into the coefficients of gxx, gxy and gyy, and how often."""
    pairs, collect = [], []
    for first, (i0, j0, factor) in ((0, (0, 0, 1)), (6, (0, 3, 2)), (12, (3, 3, 1))):
        for i in range(3):
            for j in range(3):
                pairs.append((i0 + i, j0 + j))
                row = np.zeros(18, np.float32)
                row[first + _SQUARES[i, j]] = factor
                collect.append(row)
    left, right = np.array(pairs).T
    return left, right, np.array(collect)


def _gradient() -> np.ndarray:
    """Tensor (6, 26 * 6) that with theta and moments gives matrix times theta."""
    out = np.zeros((6, 26, 6), np.float32)
    for a in (0, 1):
        for b in (0, 1):
            for i in range(3):
                for j in range(3):
                    out[3 * a + i, 6 * (a + b) + _SQUARES[i, j], 3 * b + j] = 1
    return out.reshape(6, -1)


_GRADIENT = _gradient()
_GRAM = _GRADIENT.reshape(6, 26, 6).transpose(1, 0, 2).reshape(26, 36).copy()
_LEFT, _RIGHT, _COLLECT = _collection()
