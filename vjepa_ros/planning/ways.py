# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Search the ground for ways: lengths to a goal over a grid of costs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

LONGER = 1.0824        # ways over edges and corners of cells, at most: 1 / cos(22.5 degrees)
_STEPS = tuple((dz, dx) for dz in (-1, 0, 1) for dx in (-1, 0, 1) if dz or dx)


@dataclass(frozen=True)
class Grid:
    """Square cells over a rectangle of the ground."""

    # low, high: (2,) least and greatest x and z [m]
    low: np.ndarray
    high: np.ndarray
    cell: float  # side of a cell [m]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows (z) and columns (x)."""
        wide, deep = np.ceil((self.high - self.low) / self.cell).astype(int)
        return int(deep), int(wide)

    def middles(self) -> np.ndarray:
        """(R, C, 2) x and z of the middles of cells [m]."""
        z, x = np.indices(self.shape)
        return self.low + self.cell * (np.stack((x, z), -1) + 0.5)

    def index(self, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of places (..., 2); those outside get the nearest cell."""
        at = np.floor((np.asarray(place) - self.low) / self.cell).astype(int)
        rows, columns = self.shape
        return np.clip(at[..., 1], 0, rows - 1), np.clip(at[..., 0], 0, columns - 1)

    def lengths(self, cost: np.ndarray, goal: np.ndarray) -> np.ndarray:
        """Return the length of the shortest way from each cell to a goal (2,) [m]."""
        # Over edges and corners of cells, so up to `LONGER` times too long. All cells are relaxed
        # at once until nothing changes (Bellman and Ford). A cost multiplies lengths, from 1 on.
        rows, columns = self.shape
        best = np.full((rows + 2, columns + 2), np.inf)
        row, column = (int(v) for v in self.index(goal))
        best[row + 1, column + 1] = 0 if np.isfinite(cost[row, column]) else np.inf
        inner, paid = best[1:-1, 1:-1], self.cell * cost
        diagonal = math.sqrt(2) * paid
        while True:
            new = inner.copy()
            for dz, dx in _STEPS:
                near = best[1 + dz:1 + dz + rows, 1 + dx:1 + dx + columns]
                np.minimum(new, near + (diagonal if dz and dx else paid), out=new)
            if np.array_equal(new, inner):
                return new
            inner[...] = new
