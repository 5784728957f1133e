# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Find where a picture shows structure, and how long a view has stood still.

A covered lens shows no structure, however light falls through the cover: its picture is plain, or
changes as smoothly as a quadratic function of the position. So does the picture of a plain wall
right ahead. Heads may therefore warn of such a view, but never clear it.

The noise of a real sensor changes some pixel of every frame, so a picture that is equal to the
last bit was sent twice. But a driver that hangs may add noise, a clock or compression to one
picture. So a cell of a view also counts as standing if the slopes of the newer picture are those
of the older one, in each direction, and the difference of both says that it has moved by less
than a part of a pixel (Lucas and Kanade). The products of slopes of two pictures contain no
noise, unlike those of one. What shows a single edge does not count, for that may move along
itself: near the lines that run towards the place a robot drives to, nothing else is seen. What
changes in few cells, such as a burnt-in clock, does not count either; what stands in many does,
even if something moves behind it, as behind a grille.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import cv2
import numpy as np

GRAIN = 4                # px averaged before structure is looked for: noise is no structure
LEAST_STRUCTURE = 1.5    # standard deviation in grey levels of what shows something
MOSTLY_SHOWN = 0.5       # part of the patches with structure that makes the plain ones known, too
HARDLY_SHOWN = 0.05      # part of the patches with structure below which a frame shows nothing
BLACK = 12.0             # mean grey level below which a plain patch may be a covered one
# Of equal pictures: distance between the rows that are compared [px]; least number of frames, and
# their least time [s], of a frozen camera.
FROZEN_STEP, FROZEN_FRAMES, FROZEN_S = 16, 4, 0.5
AREA_PX = 240 * 180      # of the pictures that are compared
CELL_PX = 12
LOOK_NS = 190_000_000    # least time between looks at a view
LEAST_SLOPE = 0.15       # mean squared slope in each direction that shows structure
OVER_NOISE = 0.5         # and what it needs more, in mean squared differences of noise
LEAST_FIT = 0.2          # share of the structure of a cell that stands
FARTHEST_PX = 0.4        # motion of what stands
LEAST_CELLS = 9          # with structure, below which nothing is known
SIGHT_PX = (120, 90)     # of the picture in which detail is looked for
LEAST_DETAIL = 1.0       # standard deviation within a few pixels that is detail [grey levels]
INNER = 4.0              # factor on the share of the middle fifth that shows detail
STANDS = 0.5             # share of these that stand, from which the view does
NS = 1e9
_AREA = cv2.INTER_AREA
Roi = tuple[float, float, float, float]
WHOLE_VIEW: Roi = (0.0, 0.0, 1.0, 1.0)


class Structure(NamedTuple):
    """Structure of one picture in grey levels, (Hp, Wp) float32 each."""

    spread: np.ndarray  # standard deviation of each patch with its eight neighbours
    mean: np.ndarray  # of each patch alone
    steep: np.ndarray  # the spread of what no smooth slope of the light makes

    @classmethod
    def of(cls, gray: np.ndarray, valid: np.ndarray) -> Structure:
        """Measure a `coarse` picture, with `valid` of `Shown.by`."""
        whole, gray = Whole.of(gray.shape, valid), gray.astype(np.float32)
        steep = gray
        if whole.fit is not None:
            steep = gray - (whole.shapes @ (whole.fit @ gray.ravel())).reshape(gray.shape)
        # All at once: each call of OpenCV takes as long for one.
        values = np.dstack((gray, gray * gray, steep, steep * steep))
        own = cv2.resize(values, whole.weight.shape[1::-1], interpolation=_AREA)
        around = cv2.boxFilter(own * whole.weight, -1, (3, 3), normalize=False,
                               borderType=cv2.BORDER_REPLICATE) / whole.count
        mean = around[..., ::2]
        spread = np.sqrt(np.maximum(around[..., 1::2] - mean * mean, 0.0))
        return cls(spread[..., 0], own[..., 0], spread[..., 1])


@dataclass(frozen=True)
class Shown:
    """Visible structure in the pictures of a clip; needs no model."""

    # inside, seen, sure: (Hp, Wp) bool: patches that show image; of these those that can be told
    # anything about; those that can make a view CLEAR
    inside: np.ndarray
    seen: np.ndarray
    sure: np.ndarray
    # sees, saw: whether the newest frame of the clip shows structure at all; whether any frame
    # does
    sees: bool
    saw: bool

    @classmethod
    def by(cls, valid: np.ndarray, frames: Iterable[Structure]) -> Shown:
        """Look at the frames of a clip.

        `valid`: (Hp, Wp) part of each patch that shows image, 0..1.
        """
        inside = valid > 0.5
        patches = max(1, np.count_nonzero(inside))

        def part(which: np.ndarray) -> float:
            return np.count_nonzero(which & inside) / patches

        older = iter(frames)
        spread, mean, steep = next(older)
        showing = spread >= LEAST_STRUCTURE
        shows = part(showing)
        saw = sees = shows >= HARDLY_SHOWN
        if not sees:
            saw = any(part(frame.spread >= LEAST_STRUCTURE) >= HARDLY_SHOWN for frame in older)
        seen = inside & (showing | (shows >= MOSTLY_SHOWN))
        # CLEAR needs more than a danger does: structure that no smooth slope of the light makes.
        sure = showing & (steep >= LEAST_STRUCTURE)
        if part(sure) >= MOSTLY_SHOWN:
            sure |= mean >= BLACK
        return cls(inside, seen, sure, sees, saw)


def coarse(rgb: np.ndarray) -> np.ndarray:
    """Return the grey levels (S / GRAIN, S / GRAIN) uint8 of blocks of pixels (S, S, 3) uint8."""
    height, width = rgb.shape[:2]
    small = cv2.resize(rgb, (width // GRAIN, height // GRAIN), interpolation=_AREA)
    return cv2.cvtColor(small, cv2.COLOR_RGB2GRAY)


@dataclass(frozen=True)
class Whole:
    """The patches of a view that show image wholly: the edge of a letterbox is no structure."""

    weight: np.ndarray  # (Hp, Wp, 1) float32, 1 for these patches, else 0
    # (Hp, Wp, 1) float32, how many there are of a patch and its eight neighbours, at least 1
    count: np.ndarray
    # shapes, fit: (N, 6) quadratic functions of the place at each pixel of a coarse picture, and
    # what fits them to the pixels (6, N) of these patches; None where there are too few
    shapes: np.ndarray
    fit: np.ndarray | None

    @classmethod
    def of(cls, shape: tuple[int, ...], valid: np.ndarray) -> Whole:
        """Prepare for coarse pictures of a shape, with `valid` of `Shown.by`."""
        whole = valid > 0.999
        return _whole(shape, whole.shape, whole.tobytes())



@lru_cache(8)       # views of all cameras
def _whole(shape: tuple[int, ...], grid: tuple[int, ...], whole: bytes) -> Whole:
    y, x = np.meshgrid(np.linspace(-1, 1, shape[0]), np.linspace(-1, 1, shape[1]), indexing='ij')
    shapes = np.stack((np.ones_like(x), x, y, x * x, x * y, y * y), -1).reshape(-1, 6)
    patches = np.frombuffer(whole, bool).reshape(grid)
    used = np.repeat(np.repeat(patches, shape[0] // grid[0], 0), shape[1] // grid[1], 1).ravel()
    fit = None
    if used.sum() >= 2 * shapes.shape[1]:
        fit = np.zeros(shapes.T.shape, np.float32)
        fit[:, used] = np.linalg.pinv(shapes[used])
    weight = patches.astype(np.float32)
    count = cv2.boxFilter(weight, -1, (3, 3), normalize=False, borderType=cv2.BORDER_REPLICATE)
    return Whole(weight[..., None], np.maximum(count, 1.0)[..., None],
                 shapes.astype(np.float32), fit)


class StillView:
    """Follow the view of one camera.

    `sight`: share of the middle third of `roi` which shows detail, 0..1; less where its inner part
    shows hardly any. A cover before the lens shows none, nor does what lies out of focus, or a
    plain wall.
    """

    def __init__(self) -> None:
        # Part of the image that counts, as fractions (left, top, right, bottom): what belongs to
        # the robot stands in any case.
        self.roi = WHOLE_VIEW
        self.reset()

    def reset(self) -> None:
        self._rows: np.ndarray | None = None        # that are compared to the last bit
        self._unchanged_ns = self._frames = 0
        self._next: tuple[np.ndarray, int] | None = None     # to be looked at
        self._seen: np.ndarray | None = None
        self._known, self.sight = False, math.nan
        self._since_ns = self._looked_ns = self._newest_ns = 0

    @property
    def still_s(self) -> float:
        """How long the view has stood still [s]; 0: it moved at the last look; NaN: unknown."""
        if not self._known:
            return math.nan
        return (self._newest_ns - self._since_ns) / NS if self._since_ns < self._looked_ns else 0.0

    @property
    def unchanged_s(self) -> float:
        """How long the picture has been the same to the last bit [s]."""
        return (self._newest_ns - self._unchanged_ns) / NS

    @property
    def frozen(self) -> bool:
        """Whether the camera sends the same picture over and over, with new stamps.

        A rendered camera without noise does that while nothing moves: the caller must know
        whether the camera should have seen a change.
        """
        return self._frames >= FROZEN_FRAMES and self.unchanged_s >= FROZEN_S

    def show(self, rgb: np.ndarray, stamp_ns: int) -> None:
        """Take a picture, RGB uint8 (H, W, 3), with its stamp [ns]."""
        self.look()
        gap_ns, self._newest_ns = stamp_ns - self._newest_ns, stamp_ns
        if gap_ns < 0:      # earlier times can not be compared
            self._rows = self._seen = None
            self._known = False
        # Whole rows: memory gives them ten times as fast as the same number of pixels from
        # everywhere. The first row of most pictures has changed.
        rows, before = rgb[::FROZEN_STEP], self._rows
        if (before is None or not np.array_equal(rows[0], before[0])
                or not np.array_equal(rows, before)):
            # A copy, for the buffer may be used again for the next picture.
            self._rows, self._unchanged_ns, self._frames = rows.copy(), stamp_ns, 0
        self._frames += 1
        if self._seen is None or stamp_ns - self._looked_ns >= LOOK_NS:
            grey = _grey(rgb)
            self.sight = _sight(grey, self.roi)     # the level of this picture depends on it
            self._next = grey, stamp_ns
        # The next result is far away, and there is time; or the view stood, and a guard must
        # hear at once that it moves again.
        if gap_ns >= LOOK_NS or self._since_ns < self._looked_ns:
            self.look()

    def look(self) -> None:
        """Compare the last picture where that is due, best after its result has been sent."""
        if self._next is None:
            return
        (grey, stamp_ns), self._next = self._next, None
        self._looked_ns, picture, share = stamp_ns, _detail(grey), math.nan
        if picture is not None and self._seen is not None and picture.shape == self._seen.shape:
            share = standing_share(self._seen, picture, self.roi)
        self._known = not math.isnan(share)
        if not share >= STANDS:     # it has moved, or shows nothing
            self._seen, self._since_ns = picture, stamp_ns


def standing_share(older: np.ndarray, newer: np.ndarray, roi: Roi = WHOLE_VIEW) -> float:
    """Return the share of the cells with structure that stand; NaN where there are too few.

    Both pictures are results of `_detail` with the same shape.
    """
    newer = newer * (np.abs(older).mean() / max(float(np.abs(newer).mean()), 1e-3))   # exposure
    pair, apart = cv2.merge((older, newer)), older - newer
    (ax, bx), (ay, by) = (cv2.split(cv2.Sobel(pair, cv2.CV_32F, *step, ksize=1, scale=0.5))
                          for step in ((1, 0), (0, 1)))
    # Of each, and of both with one another, to which noise adds nothing: xx, yy and xy.
    own = _cells(0.5 * np.stack((ax * ax + bx * bx, ay * ay + by * by, ax * ay + bx * by), -1))
    both = _cells(np.stack((ax * bx, ay * by, 0.5 * (ax * by + ay * bx)), -1))
    goal = _cells(0.5 * np.stack(((ax + bx) * apart, (ay + by) * apart, 2 * apart * apart), -1))
    # Of the quietest cells: where the view moves, the difference of both is more than noise.
    quiet = np.stack((goal[..., 2], 2 * (own[..., 0] + own[..., 1]))).reshape(2, -1)
    noise = np.partition(quiet, quiet.shape[1] // 4)[:, quiet.shape[1] // 4].min()
    least = _weaker(own)
    shows = (least > LEAST_SLOPE) & _inside(least.shape, roi)
    clear = shows & (least > LEAST_SLOPE + OVER_NOISE * noise)
    if np.count_nonzero(clear) >= LEAST_CELLS:
        shows = clear
    count = int(np.count_nonzero(shows))
    if count < LEAST_CELLS:
        return math.nan
    (xx, yy, xy), (gx, gy, _) = (np.moveaxis(each[shows], -1, 0) for each in (both, goal))
    fits = _weaker(both[shows]) > LEAST_FIT * least[shows]
    moved = np.hypot(yy * gx - xy * gy, xx * gy - xy * gx) / np.maximum(xx * yy - xy * xy, 1e-9)
    return np.count_nonzero(fits & (moved < FARTHEST_PX)) / count


def _weaker(products: np.ndarray) -> np.ndarray:
    """Compute the smaller eigenvalue of symmetric matrices (..., 3) xx, yy, xy: along an edge."""
    xx, yy, xy = np.moveaxis(products, -1, 0)
    return 0.5 * (xx + yy - np.sqrt((xx - yy) ** 2 + 4 * xy * xy))


@lru_cache(8)       # of all cameras
def _inside(shape: tuple[int, int], roi: Roi) -> np.ndarray:
    """Return the cells (Hc, Wc) bool whose middle lies in a region of interest."""
    y, x = ((np.arange(count) + 0.5) / count for count in shape)
    return ((y >= roi[1]) & (y <= roi[3]))[:, None] & (x >= roi[0]) & (x <= roi[2])


def _cells(values: np.ndarray) -> np.ndarray:
    """Compute the means (Hc, Wc) of the cells of a picture (h, w)."""
    rows, columns = values.shape[0] // CELL_PX, values.shape[1] // CELL_PX
    return cv2.resize(values[:rows * CELL_PX, :columns * CELL_PX], (columns, rows),
                      interpolation=_AREA)


def _grey(rgb: np.ndarray) -> np.ndarray:
    """Return a picture in grey, uint8 (h, w), without single pixels that stand out."""
    height, width = rgb.shape[:2]
    scale = min(1.0, math.sqrt(AREA_PX / (width * height)))
    size = max(1, round(width * scale)), max(1, round(height * scale))
    grey = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)
    while min(grey.shape[1] / size[0], grey.shape[0] / size[1]) >= 2:
        # Halves are four times as fast as other parts.
        rows, columns = grey.shape[0] // 2, grey.shape[1] // 2
        grey = cv2.resize(grey[:2 * rows, :2 * columns], (columns, rows), interpolation=_AREA)
    return cv2.medianBlur(cv2.resize(grey, size, interpolation=_AREA), 3)


def _detail(grey: np.ndarray) -> np.ndarray | None:
    """Return what is left of a picture without slow shading, (h, w) float32.

    None where it is too small or too thin.
    """
    if min(grey.shape) < 3 * CELL_PX:
        return None
    values = grey.astype(np.float32)
    return values - cv2.blur(values, (17, 17))


def _sight(grey: np.ndarray, roi: Roi) -> float:
    values = cv2.resize(grey, SIGHT_PX, interpolation=_AREA).astype(np.float32)
    values -= cv2.blur(values, (5, 5))
    shows = cv2.blur(values * values, (7, 7)) >= LEAST_DETAIL ** 2
    third, fifth = _middle(roi)
    return float(min(shows[third].mean(), INNER * shows[fifth].mean()))


@lru_cache(8)       # of all cameras
def _middle(roi: Roi) -> list[tuple[slice, ...]]:
    """Return rows and columns of the middle third and fifth of a region of interest."""
    ways = list(zip(SIGHT_PX, roi[:2], roi[2:], strict=True))[::-1]
    return [tuple(slice(math.floor(count * (low + high - part * (high - low)) / 2),
                        math.ceil(count * (low + high + part * (high - low)) / 2))
                  for count, low, high in ways) for part in (1 / 3, 1 / 5)]
