# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Find what is on collision course in a looming field.

Notation: a surface point at image position p (relative to nothing in particular) with looming
rate L = -dZ/dt / Z and derotated flow v moves as if it expanded from its own focus of expansion
p - v / L. The camera will pass the point at the lateral distance Z |v| / (L f): the ratio of the
miss distance to the present distance is the angle |v| / (L f), whatever the scale of the scene
(Lee 1976, "A theory of visual control of braking based on information about time-to-collision";
constant bearing, decreasing range). A point is on course when that angle is small.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import attrgetter, mul
from typing import NamedTuple, TypeVar

import cv2
import numpy as np

from vjepa_ros.clip.optics import Optics
from vjepa_ros.clip.resize import middle
from vjepa_ros.looming.estimator import LoomingField
from vjepa_ros.perception.danger import approaches, level_rates
from vjepa_ros.perception.settings import Settings
from vjepa_ros.perception.types import Region, Threat

MIN_CELLS = 3        # a region of fewer cells is taken for noise
PEAK_CELLS = 6       # cells that the looming of the course is averaged over
COURSE_CELLS = 1.5   # weight of cells on course that makes their region, or the peak, count whole
# The margin up and down relative to sideways: the ground ahead of a fast robot passes below the
# camera at a few degrees only, while what stands in the way reaches to the height of the camera.
UPRIGHT_MARGIN = 0.2
_ZERO = np.float32(0)
UNKNOWN = Threat(math.nan, math.nan, math.nan, 0.0)


@dataclass(frozen=True)
class CourseField(LoomingField):
    """A looming field that also says what is on course."""

    course: np.ndarray  # (Hc, Wc) float32, how far a cell is on collision course, 0..1


@dataclass(frozen=True)
class SourceVerdict:
    """What one field says of contact; where that comes from is worked out on demand."""

    cells: CourseField  # looming
    threat: Threat  # what is on course
    _used: _Cells | None = None  # None: nothing is known
    _met: Sequence[_Part] = ()  # what is on course

    def regions(self) -> tuple[Region, ...]:
        """Return what comes nearer, what is on course first, then the most urgent."""
        if self._used is None:
            return ()
        parts = (*self._met, *_beside(self._used, self._met))
        found = [part.region(self._used) for part in parts]
        found.sort(key=lambda region: (not region.on_course, region.time_to_contact))
        return tuple(found)

    def obstacle_score(self) -> float:
        """Return how much of the view comes nearer within the horizon, 0..1; NaN unknown.

        The mean of min(1, rate * horizon) over that tenth of the known cells that looms most, each
        counting with its confidence.
        """
        cells = self._used
        if cells is None or (
                self.threat.observed_fraction < cells.settings.min_known and not self._met):
            return math.nan
        settings = cells.settings
        near = cells.usable & (cells.rate >= settings.looming_threshold)
        urgency = np.minimum(cells.rate[near] * settings.collision_horizon, 1.0)
        urgency *= cells.field.confidence[near]
        urgency.sort()
        tenth = max(1, cells.known // 10)
        return float(urgency[-tenth:].sum() / tenth) if urgency.size else 0.0


Seen = tuple[CourseField, tuple[int, int], Optics]   # with the size of the source image [px]
T = TypeVar('T')


def alike(items: Sequence[T], kinds: Iterable[Hashable]) -> Iterable[list[T]]:
    """Return groups of items of one kind: NumPy takes as long for many arrays as for one."""
    groups: dict[Hashable, list[T]] = {}
    for item, kind in zip(items, kinds, strict=True):
        groups.setdefault(kind, []).append(item)
    return groups.values()


def stacked(items: Iterable[object], *names: str) -> Iterable[np.ndarray]:
    """Return arrays of attributes of items, an array for each of at least two names."""
    return map(np.array, zip(*map(attrgetter(*names), items), strict=True))


def judge_fields(given: Sequence[Seen], settings: Settings) -> list[SourceVerdict]:
    """Judge fields, those of one shape at once."""
    found = [SourceVerdict(field, UNKNOWN) for field, _, _ in given]
    for places in alike(range(len(given)), [field.rate.shape for field, _, _ in given]):
        _judge_alike(given, places, found, settings)
    return found


def _judge_alike(given: Sequence[Seen], places: Sequence[int], found: list[SourceVerdict],
                 settings: Settings) -> None:
    """Fill in the verdicts of fields of one shape of which anything is known."""
    fields = [given[place][0] for place in places]
    rate, confidence, course = stacked(fields, 'rate', 'confidence', 'course')
    rois = [in_roi(field, settings) for field in fields]
    usable = np.isfinite(rate)
    usable &= confidence >= settings.min_confidence
    usable &= np.array([inside for inside, _ in rois])
    rate, course = np.where(usable, rate, _ZERO), np.where(usable, course, _ZERO)
    share = course * confidence
    strength, peaks = _peaks(rate, course, share)
    # What might meet the camera: a part has at most the sum of the whole, but for rounding.
    near = rate >= np.float32(level_rates(settings)[-1])
    likely = (near.sum((1, 2)) >= MIN_CELLS) & (
        (course * near).sum((1, 2)) >= 0.999 * COURSE_CELLS)
    for n, (place, (_, most), count) in enumerate(
            zip(places, rois, usable.sum((1, 2)).tolist(), strict=True)):
        if count:
            cells = _Cells(fields[n], rate[n], usable[n], count, course[n], share[n],
                           *given[place][1:], settings)
            met = _met(cells) if likely[n] else []
            found[place] = SourceVerdict(fields[n], _threat(
                cells, met, peaks[n], strength[n], count / most), cells, met)


def _threat(cells: _Cells, met: Sequence[_Part], course_rate: float, strength: np.ndarray,
            observed_fraction: float) -> Threat:
    """Return the looming rate on course, and where it comes from."""
    if met:
        rates = [part.rate(cells) for part in met]
        first = rates.index(max(rates))
        return Threat(max(course_rate, rates[first]),
                      *cells.optics.direction(*met[first].middle(cells)), observed_fraction)
    if observed_fraction < cells.settings.min_known:      # that does not stand for all
        return replace(UNKNOWN, observed_fraction=observed_fraction)
    bearing = elevation = math.nan
    if approaches(course_rate, cells.settings):
        peak = divmod(int(strength.argmax()), strength.shape[1])
        x, y = cells.field.centers[peak] * cells.scale
        bearing, elevation = cells.optics.direction(float(x), float(y))
    return Threat(course_rate, bearing, elevation, observed_fraction)


def known_cells(field: LoomingField, least: float) -> np.ndarray:
    """Return the cells (Hc, Wc) bool whose rate is known with at least a confidence."""
    known = field.confidence >= least
    known &= np.isfinite(field.rate)
    return known


def in_roi(field: LoomingField, settings: Settings) -> tuple[np.ndarray, int]:
    """Return the cells (Hc, Wc) bool that are centred in the region of interest, and how many."""
    return _in_roi(field.centers.tobytes(), field.centers.dtype, field.rate.shape,
                   field.gray_size, settings.roi)


@lru_cache(16)      # grids of all cameras
def _in_roi(centers: bytes, dtype: np.dtype, shape: tuple[int, ...], gray_size: tuple[int, int],
            roi: tuple[float, float, float, float]) -> tuple[np.ndarray, int]:
    places = (np.frombuffer(centers, dtype).reshape(*shape, 2) + 0.5) / gray_size
    inside = np.asarray(((places >= roi[:2]) & (places <= roi[2:])).all(-1))
    inside.flags.writeable = False      # all fields of the grid share it
    return inside, int(np.count_nonzero(inside))


def course_weights(given: Sequence[tuple[LoomingField, float]], settings: Settings) -> np.ndarray:
    """Return 1 where the camera will meet a cell, falling to 0 with the miss angle; (N, Hc, Wc).

    `given`: fields of one shape and cell, with focal lengths as a part of the width of the image.
    """
    fields = [field for field, _ in given]
    rate, flow = stacked(fields, 'rate', 'flow')
    # Of a number and NaN, fmax takes the number.
    speed = np.fmax(rate, np.float32(1e-3))[..., None]
    miss = np.abs(flow) / speed                               # px by which the camera passes it
    # Meeting any part of a cell is meeting it; its edge is not sharp, its fit reaches further.
    beside = np.fmax(miss - 0.4 * fields[0].cell_px, 0.0)
    focal = np.array([focal * field.gray_size[0] for field, focal in given])
    wide = np.maximum(1.0, settings.collision_margin * focal)
    wide = np.array((wide, np.maximum(1.0, UPRIGHT_MARGIN * wide)), beside.dtype)
    beside /= wide.T[:, None, None]
    beside *= beside
    return np.exp(-0.5 * (beside[..., 0] + beside[..., 1]))


class _Cells(NamedTuple):
    """The cells of a field as a verdict uses them; arrays are (Hc, Wc)."""

    field: CourseField
    rate: np.ndarray  # looming rate [1/s], 0 where not usable
    usable: np.ndarray
    known: int  # number of usable ones
    course: np.ndarray  # how far it is on course, 0..1, 0 where not usable
    share: np.ndarray  # how much it says about the looming of the course
    size: tuple[int, int]  # of the source image [px]
    optics: Optics  # of the source image
    settings: Settings

    @property
    def scale(self) -> float:
        """Pixels of the source image over those of the grey image."""
        return self.size[0] / self.field.gray_size[0]


def _peaks(rate: np.ndarray, course: np.ndarray, share: np.ndarray
           ) -> tuple[np.ndarray, list[float]]:
    """Return the strength of cells (N, Hc, Wc), and the looming rate of the strongest [1/s]."""
    # One cell alone is noise: average 3x3 so that neighbours have to agree.
    strength = np.stack([cv2.blur(each, (3, 3), borderType=cv2.BORDER_REPLICATE)
                         for each in np.maximum(rate, _ZERO) * share])
    flat = strength.reshape(len(strength), -1)
    count = min(PEAK_CELLS, flat.shape[1])
    rows, top = np.arange(len(flat))[:, None], flat.argpartition(-count)[:, -count:]
    peaks = []
    # Python adds so few numbers much faster than NumPy.
    strongest = np.stack([share, rate, course]).reshape(3, *flat.shape)[:, rows, top].tolist()
    for shares, rates, courses in zip(*strongest, strict=True):
        whole = sum(shares)
        mean = sum(map(mul, shares, rates)) / whole if whole > 0 else 0.0
        peaks.append(max(0.0, mean) * min(1.0, sum(courses) / COURSE_CELLS))
    return strength, peaks


def _met(cells: _Cells) -> list[_Part]:
    """Return connected cells above the rate of each level that the camera will meet.

    What is too little on course by itself may be a part of something slower that is: that is one
    part, or more looming would give less alarm.
    """
    found: list[_Part] = []
    free, fastest = cells.usable, cells.rate.max()
    for least in level_rates(cells.settings):
        if np.float32(least) > fastest:
            continue
        mask = free & (cells.rate >= least)
        if np.count_nonzero(mask) >= MIN_CELLS and cells.course[mask].sum() >= COURSE_CELLS:
            for part in _parts(cells, mask):
                if part.on_course:
                    found.append(part)
                    free = free & ~part.mask
    return found


def _beside(cells: _Cells, met: Sequence[_Part]) -> list[_Part]:
    """Return the other connected cells above the rate of each level."""
    found: list[_Part] = []
    left, fastest = cells.usable, cells.rate.max()
    for part in met:
        left = left & ~part.mask
    for least in level_rates(cells.settings):
        if np.float32(least) <= fastest:
            for part in _parts(cells, left & (cells.rate >= least)):
                if not part.on_course:
                    found.append(part)
                    left = left & ~part.mask
    return found


class _Part(NamedTuple):
    """A connected part of the cells."""

    mask: np.ndarray  # (Hc, Wc) bool
    box: list[int]  # first column and row, width and height, number of cells
    on_course: bool  # whether enough of it will be met

    def rate(self, cells: _Cells) -> float:
        """Return its looming rate [1/s]; of what is on course only the part that will be met."""
        rate = cells.rate[self.mask]
        if not self.on_course:
            return middle(rate)
        share = cells.share[self.mask]
        return float(np.dot(share, rate) / share.sum())

    def corners(self, cells: _Cells) -> tuple[float, float, float, float]:
        """Return left, top, right, bottom in the source image [px]."""
        column, row, wide, tall, _ = self.box
        field, (width, height) = cells.field, cells.size
        half = 0.5 * field.cell_px
        left, top = field.centers[row, column].tolist()
        right, bottom = field.centers[row + tall - 1, column + wide - 1].tolist()
        return (max(0.0, (left - half) * cells.scale), max(0.0, (top - half) * cells.scale),
                min(float(width), (right + half) * cells.scale),
                min(float(height), (bottom + half) * cells.scale))

    def middle(self, cells: _Cells) -> tuple[float, float]:
        """Return its middle in the source image [px]."""
        x0, y0, x1, y1 = self.corners(cells)
        return 0.5 * (x0 + x1), 0.5 * (y0 + y1)

    def region(self, cells: _Cells) -> Region:
        """Describe the part."""
        rate, (x0, y0, x1, y1) = self.rate(cells), self.corners(cells)
        x, y = self.middle(cells)
        third = x / cells.size[0]
        side = 'LEFT' if third < 1 / 3 else 'RIGHT' if third > 2 / 3 else 'CENTER'
        bearing, elevation = cells.optics.direction(x, y)
        confidence = float(cells.field.confidence[self.mask].sum()) / self.box[4]
        return Region(x0, y0, x1 - x0, y1 - y0, bearing, elevation, 1.0 / rate, rate, side,
                      confidence, self.on_course)


def _parts(cells: _Cells, mask: np.ndarray) -> list[_Part]:
    """Return the connected parts of a mask (Hc, Wc) bool that are no noise."""
    if np.count_nonzero(mask) < MIN_CELLS:
        return []
    _, labels, stats, _ = cv2.connectedComponentsWithStats(mask.view(np.uint8), connectivity=4)
    boxes = stats.tolist()
    course = np.bincount(labels.ravel(), cells.course.ravel(), len(boxes)).tolist()
    return [_Part(labels == one, box, course[one] >= COURSE_CELLS)
            for one, box in enumerate(boxes) if one and box[cv2.CC_STAT_AREA] >= MIN_CELLS]
