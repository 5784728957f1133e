# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Look through a lens without distortion, in place of the one that a camera has.

Looming and ego-motion follow from straight rays. So the grey picture of a distorted lens is drawn
as a pinhole camera at the same place would see it, up to `WIDEST` aside, and the field that is
measured there is laid back on the cells of the picture as it is.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import cv2
import numpy as np

from vjepa_ros.clip.optics import Optics
from vjepa_ros.looming.estimator import CellGrid, LEAST_SIDE, LoomingField

WIDEST = math.tan(math.radians(58))    # a straight picture shows less and less beyond
COARSE = 4                             # px of the straight picture between rays that are tried
_CLOSE = 0.02                          # of a ray that was bent and straightened again


class StraightView:
    """The straight picture of a distorted lens; `grey`: its size, and that of the grey image.

    Attributes
    ----------
    focal, center
        Of the straight picture [px].
    tangents, points
        (Hc, Wc, 2) of the middles of its cells; where these lie in the source image [px].
    nearest
        (2, Hc, Wc) row and column of the cell of the grey image there.
    beside
        (Hc, Wc, 2) tangents less those of the middle of that cell.
    seen
        (Hc, Wc) whether the lens sees them.
    places
        (h, w, 2) float32 where each pixel of the straight picture lies in the grey image [px].
    """

    def __init__(self, optics: Optics, source: tuple[int, int], grey: tuple[int, int],
                 cell_px: int) -> None:
        w, h = grey
        scale = np.array(source) / grey
        row = np.linspace(-0.5, source[0] - 0.5, w + 1)
        aside = np.abs(optics.rays(np.stack((row, np.full_like(row, optics.cy)), -1))[:, 0])
        wide = np.nanmax(aside, initial=1e-3)      # no ray of some lenses ends at the edge
        self.focal = 0.5 * w / min(float(wide), WIDEST)
        self.center = 0.5 * (w - 1), 0.5 * (h - 1)
        self._ratio = (np.array((optics.fx, optics.fy)) / scale / self.focal).astype(np.float32)
        grid = CellGrid(grey, cell_px)
        cells = grid.centers.reshape(*grid.shape, 2)
        places = np.stack(np.meshgrid(np.arange(w), np.arange(h)), -1)
        points = optics.pixels(self._tangents(places))
        self.places = ((points + 0.5) / scale - 0.5).astype(np.float32)
        # To straighten rays takes long; where cells see all of their windows need not be exact.
        visible = self._seen_by(optics, self._tangents(places[::COARSE, ::COARSE]), source)[1]
        whole = cv2.blur(cv2.resize(visible.astype(np.float32), grey,
                                    interpolation=cv2.INTER_NEAREST), (cell_px + 1,) * 2,
                         borderType=cv2.BORDER_REPLICATE) > 0.99
        # Cells of the straight picture, seen from it, and from the picture as it is.
        self.tangents = self._tangents(cells)
        self.points, inside = self._seen_by(optics, self.tangents, source)
        first, steps = cells[0, 0], np.array(grid.shape)
        column, row = np.moveaxis(((self.points + 0.5) / scale - 0.5 - first) / cell_px, -1, 0)
        self.nearest = np.stack((np.clip(np.rint(row), 0, steps[0] - 1),
                                 np.clip(np.rint(column), 0, steps[1] - 1))).astype(int)
        rays = optics.rays((cells + 0.5) * scale - 0.5)
        self.beside = self.tangents - rays[tuple(self.nearest)]
        self.seen = inside & np.isfinite(self.beside).all(-1)
        at = np.nan_to_num(rays, nan=2 * WIDEST) * self.focal + self.center
        column, row = np.moveaxis((at - first) / cell_px, -1, 0)
        row, column = np.rint(row).astype(int), np.rint(column).astype(int)
        there = (row >= 0) & (row < steps[0]) & (column >= 0) & (column < steps[1])
        self._back = row.clip(0, steps[0] - 1), column.clip(0, steps[1] - 1)
        x, y = np.moveaxis(cells.round().astype(int), -1, 0)
        self._known = there & whole[y, x][self._back]
        self._beside = (at - cells[self._back]).astype(np.float32)

    def _tangents(self, places: np.ndarray) -> np.ndarray:
        return (places - self.center) / self.focal

    @staticmethod
    def _seen_by(optics: Optics, rays: np.ndarray, source: tuple[int, int]
                 ) -> tuple[np.ndarray, np.ndarray]:
        """Return where rays end in the source image, and whether the lens sees them at all."""
        points = optics.pixels(rays)
        # Far aside a polynomial bends rays back into the picture.
        again = optics.rays(points)
        with np.errstate(invalid='ignore'):
            same = (np.abs(again - rays) < _CLOSE).all(-1)
        inside = ((points > -0.5) & (points < np.array(source) - 0.5)).all(-1)
        return points, np.asarray(same & inside)

    def picture(self, grey: np.ndarray) -> np.ndarray:
        """Return the straight picture of a grey one (h, w) uint8."""
        return cv2.remap(grey, self.places[..., 0], self.places[..., 1], cv2.INTER_LINEAR,
                         borderMode=cv2.BORDER_REPLICATE)

    def back(self, field: LoomingField) -> LoomingField:
        """Lay a field of the straight picture on the cells of the picture as it is.

        Its flow is that through a lens without distortion that has the same focal lengths.
        """
        at, known = self._back, self._known
        unknown = np.float32(np.nan)
        rate = np.where(known, field.rate[at], unknown)
        # Near a cell the flow grows with the distance from it as the surface looms.
        flow = (field.flow[at] + rate[..., None] * self._beside) * self._ratio
        return replace(field, rate=rate,
                       confidence=np.where(known, field.confidence[at], np.float32(0)),
                       sigma=np.where(known, field.sigma[at], np.float32(np.inf)), flow=flow)


@lru_cache(8)       # lenses of all cameras
def straight_view(optics: Optics, source: tuple[int, int], grey: tuple[int, int],
                  cell_px: int) -> StraightView | None:
    """Return the straight view of a distorted lens, see `StraightView`.

    None for a lens without distortion, and for pictures of fewer than three cells a side.
    """
    if optics.distortion is None or min(grey) < max(LEAST_SIDE, 3 * cell_px):
        return None
    return StraightView(optics, source, grey, cell_px)
