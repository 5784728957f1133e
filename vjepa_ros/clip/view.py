# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Geometry of a view: which part of a camera image the model sees, and where its patches lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vjepa_ros.model.variants import PATCH

MODES = ('crop', 'squash', 'letterbox', 'hf', 'meta')
# The evaluation profiles of the encoder enlarge by this before they crop.
PROFILE_ENLARGE = 256 / 224


@dataclass(frozen=True)
class ViewGeometry:
    """Where the square input of the model lies in the source image.

    Two kinds of numbers are used, both in pixels of the source or of the model input:

    - *points* name pixel centres: (0, 0) is the centre of the top left pixel;
    - *edges* (regions, boxes) name pixel borders: pixel i reaches from i to i + 1.

    Per axis the map is ``x_model + 0.5 = (x_source + 0.5 - origin) * scale``.

    Parameters
    ----------
    mode
        ``crop``: largest centred square. ``squash``: everything, aspect ratio lost.
        ``letterbox``: everything, bars added. ``hf`` and ``meta``: the two preprocessing
        profiles of published V-JEPA 2 weights (short side to ``int(image_size * 256 / 224)``,
        then the centre).
    source_size
        (width, height) of the camera image in pixels.
    image_size
        Side of the square model input in pixels, a multiple of ``patch``.
    patch
        Side of one patch in pixels of the model input.

    Raises
    ------
    ValueError
        When a parameter is out of range.
    """

    mode: str
    source_size: tuple[int, int]
    image_size: int
    patch: int = PATCH

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"resize mode '{self.mode}' is unknown; use one of {list(MODES)}")
        width, height = (int(n) for n in self.source_size)
        if width < 1 or height < 1:
            raise ValueError(f'source_size is {width}x{height}; both sides must be at least 1')
        if self.patch < 1 or self.image_size < 1 or self.image_size % self.patch:
            raise ValueError(f'image_size {self.image_size} must be a positive multiple of the '
                             f'patch size {self.patch}')
        object.__setattr__(self, 'source_size', (width, height))

    @cached_property
    def resized(self) -> tuple[int, int]:
        """(width, height) the seen part is resized to (``hf``, ``meta``: before cropping)."""
        (w, h), s = self.source_size, self.image_size
        if self.mode in ('crop', 'squash'):
            return s, s
        if self.mode == 'letterbox':
            # An extreme strip still gets one row or column of pixels.
            longest = max(w, h)
            return max(1, round(w * s / longest)), max(1, round(h * s / longest))
        short = int(s * PROFILE_ENLARGE)
        return (short, int(short * h / w)) if w <= h else (int(short * w / h), short)

    @cached_property
    def crop_offset(self) -> tuple[int, int]:
        """Integer (x, y) of the top left pixel kept.

        ``crop``: in the source image; ``hf`` and ``meta``: in the resized image;
        ``letterbox``: minus the size of the left and top bar; ``squash``: (0, 0).
        """
        if self.mode == 'squash':
            return 0, 0
        if self.mode == 'crop':
            (w, h), side = self.source_size, min(self.source_size)
            return (w - side) // 2, (h - side) // 2
        spare = tuple(n - self.image_size for n in self.resized)
        if self.mode == 'meta':
            # Python rounds halves to even, and so do the published crops.
            return round(spare[0] / 2), round(spare[1] / 2)
        if self.mode == 'hf':
            # The video processor of transformers >= 4.57 rounds down (older ones as `meta`).
            return spare[0] // 2, spare[1] // 2
        return -(-spare[0] // 2), -(-spare[1] // 2)

    @cached_property
    def scale(self) -> tuple[float, float]:
        """Model pixels per source pixel along x and y."""
        if self.mode == 'crop':
            ratio = self.image_size / min(self.source_size)
            return ratio, ratio
        return (self.resized[0] / self.source_size[0], self.resized[1] / self.source_size[1])

    @cached_property
    def origin(self) -> tuple[float, float]:
        """Source edge coordinates of the top left corner of the model input (may be negative)."""
        if self.mode == 'crop':
            return float(self.crop_offset[0]), float(self.crop_offset[1])
        return self.crop_offset[0] / self.scale[0], self.crop_offset[1] / self.scale[1]

    @property
    def grid(self) -> tuple[int, int]:
        """(rows, columns) of patches."""
        n = self.image_size // self.patch
        return n, n

    @cached_property
    def region(self) -> tuple[float, float, float, float]:
        """Part of the source that is seen, as edges (x0, y0, x1, y1) in source pixels."""
        low = [max(0.0, o) for o in self.origin]
        high = [min(float(n), o + self.image_size / s)
                for n, o, s in zip(self.source_size, self.origin, self.scale, strict=True)]
        return low[0], low[1], high[0], high[1]

    @property
    def coverage(self) -> float:
        """Fraction of the source area that is seen, in (0, 1]."""
        x0, y0, x1, y1 = self.region
        return (x1 - x0) * (y1 - y0) / (self.source_size[0] * self.source_size[1])

    @cached_property
    def _boxes(self) -> np.ndarray:
        edges = [np.clip(np.arange(n + 1) * self.patch / s + o, 0, size) for n, s, o, size in
                 zip(self.grid[::-1], self.scale, self.origin, self.source_size, strict=True)]
        boxes = np.empty((*self.grid, 4))
        boxes[..., 0], boxes[..., 2] = edges[0][None, :-1], edges[0][None, 1:]
        boxes[..., 1], boxes[..., 3] = edges[1][:-1, None], edges[1][1:, None]
        boxes.flags.writeable = False
        return boxes

    def patch_boxes(self) -> np.ndarray:
        """Edges (x0, y0, x1, y1) of every patch in source pixels, clipped to the image.

        Returns
        -------
        numpy.ndarray
            (Hp, Wp, 4) float64, read only. A patch that shows no image has no area.
        """
        return self._boxes

    @cached_property
    def _valid(self) -> np.ndarray:
        size = self._boxes[..., 2:] - self._boxes[..., :2]
        whole = self.patch * self.patch / (self.scale[0] * self.scale[1])
        valid = np.clip(size[..., 0] * size[..., 1] / whole, 0, 1).astype(np.float32)
        valid.flags.writeable = False
        return valid

    def patch_valid(self) -> np.ndarray:
        """Fraction of every patch that shows image, (Hp, Wp) float32, read only; bars are 0."""
        return self._valid

    def to_source(self, points: np.ndarray) -> np.ndarray:
        """Map points (..., 2) of the model input to points of the source image."""
        points = np.asarray(points, np.float64)
        return (points + 0.5) / np.array(self.scale) + np.array(self.origin) - 0.5

    def from_source(self, points: np.ndarray) -> np.ndarray:
        """Map points (..., 2) of the source image to points of the model input.

        A result below -0.5 or above ``image_size - 0.5`` lies outside the view.
        """
        points = np.asarray(points, np.float64)
        return (points + 0.5 - np.array(self.origin)) * np.array(self.scale) - 0.5

    def camera_info(self, fx: float, fy: float, cx: float,
                    cy: float) -> tuple[float, float, float, float]:
        """Scale pinhole intrinsics of the source image to the patch grid.

        One patch counts as one pixel, with pixel centres at whole numbers, so that a ray
        projected with the result names the patch it falls into when rounded.

        Parameters
        ----------
        fx, fy, cx, cy
            Focal lengths and principal point in source pixels.

        Returns
        -------
        tuple of float
            fx, fy, cx, cy in patches.
        """
        center = (self.from_source(np.array([cx, cy])) + 0.5) / self.patch - 0.5
        return (fx * self.scale[0] / self.patch, fy * self.scale[1] / self.patch,
                float(center[0]), float(center[1]))


class PatchCells:
    """Resample a grid of cells over the image onto the patches of a view.

    Each patch takes the cell whose centre is nearest to the centre of its visible part.

    Parameters
    ----------
    xs, ys
        Centres of the columns and of the rows of cells.
    size
        (width, height) of the image in whose pixels the centres are; it shows the whole source.
    view
        The view whose patches are wanted.
    """

    def __init__(self, xs: Sequence[float] | np.ndarray, ys: Sequence[float] | np.ndarray,
                 size: tuple[int, int], view: ViewGeometry) -> None:
        columns, touches_x = _nearest(np.asarray(xs, np.float64), 0, size[0], view)
        rows, touches_y = _nearest(np.asarray(ys, np.float64), 1, size[1], view)
        self._places = rows[:, None] * len(xs) + columns
        self._without = ~(touches_y[:, None] & touches_x[None, :] & (view.patch_valid() > 0))

    def of(self, values: np.ndarray) -> np.ndarray:
        """Resample (Hc, Wc) float32 to (Hp, Wp); NaN where no image or no cell is."""
        out = values.take(self._places)
        out[self._without] = np.nan
        return out


def middle(values: np.ndarray) -> float:
    """Return the median of numbers without NaN, ten times as fast as `np.median` for a few."""
    ascending = np.sort(values, axis=None)
    return float((ascending[(ascending.size - 1) // 2] + ascending[ascending.size // 2]) / 2)


def _nearest(cells: np.ndarray, axis: int, length: int,
             view: ViewGeometry) -> tuple[np.ndarray, np.ndarray]:
    """Per patch along one axis: index of the nearest cell and whether the two overlap."""
    extent = view.source_size[axis]
    cells = (cells + 0.5) * extent / length
    boxes = view.patch_boxes()
    line = boxes[0] if axis == 0 else boxes[:, 0]
    low, high = line[:, axis], line[:, axis + 2]
    distance = np.abs((low + high)[:, None] / 2 - cells[None, :])
    index = distance.argmin(axis=1)
    pitch = middle(np.diff(cells)) if len(cells) > 1 else extent
    return index, distance[np.arange(len(index)), index] <= (high - low + pitch) / 2
