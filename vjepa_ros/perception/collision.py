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
from collections.abc import Iterator
from dataclasses import dataclass

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


UNKNOWN = Threat(math.nan, math.nan, math.nan, math.nan, 0.0, ())


def find_threats(field: LoomingField | None, size: tuple[int, int], optics: Optics,
                 settings: Settings, course: np.ndarray | None = None) -> Threat:
    """Return regions, looming rate on course and obstacle score of one field.

    Parameters
    ----------
    field
        Looming on its own grid over the whole image, or None.
    size
        Source image (width, height) [px].
    optics
        Intrinsics of the source image.
    settings
        Region of interest, margins and thresholds.
    course
        (Hc, Wc) 0..1, how far each cell is on course; None computes it from the flow.
    """
    if field is None:
        return UNKNOWN
    scale = size[0] / field.gray_size[0]
    # Cells of a column share x, cells of a row share y.
    x = (field.centers[0, :, 0] + 0.5) / field.gray_size[0]
    y = (field.centers[:, 0, 1] + 0.5) / field.gray_size[1]
    left, top, right, bottom = settings.roi
    inside = ((y >= top) & (y <= bottom))[:, None] & ((x >= left) & (x <= right))
    usable = np.isfinite(field.rate) & (field.confidence >= settings.min_confidence) & inside
    count = int(np.count_nonzero(usable))
    if not count:
        return UNKNOWN
    known_fraction = float(count / np.count_nonzero(inside))
    rate = np.where(usable, field.rate, 0.0)
    if course is None:
        course = course_weight(field, rate, optics.fx / scale, settings)
    course_rate, peak = _peak(rate, course, field.confidence, usable)
    regions = _regions(_Cells(field, rate, usable, course, scale, size, optics),
                       level_rates(settings))
    ahead = bool(regions) and regions[0].on_course
    if known_fraction < settings.min_known and not ahead:      # that does not stand for all
        return Threat(math.nan, math.nan, math.nan, math.nan, known_fraction, regions)
    bearing = elevation = math.nan
    if ahead:
        course_rate = max(course_rate, regions[0].looming_rate)
        bearing, elevation = regions[0].bearing, regions[0].elevation
    elif approaches(course_rate, settings):
        x, y = field.centers[peak] * scale
        bearing, elevation = optics.direction(float(x), float(y))
    return Threat(course_rate, bearing, elevation,
                  _obstacle_score(rate, field.confidence, usable, settings),
                  known_fraction, regions)


def course_weight(field: LoomingField, rate: np.ndarray, focal: float,
                  settings: Settings) -> np.ndarray:
    """Return 1 where the camera will meet the cell, falling to 0 with the miss angle; (Hc, Wc).

    Parameters
    ----------
    field
        Gives the flow.
    rate
        (Hc, Wc) looming rate [1/s] without unknown values.
    focal
        Focal length [px of the grey image].
    settings
        Gives the margin.
    """
    speed = np.maximum(rate, 1e-3)[..., None]
    known = np.where(np.isnan(field.flow), 0.0, field.flow)
    miss = np.abs(known) / speed                              # px by which the camera passes it
    # Meeting any part of a cell is meeting it; its edge is not sharp, its fit reaches further.
    beside = np.maximum(0.0, miss - 0.4 * field.cell_px)
    wide = max(1.0, settings.collision_margin * focal)
    return np.exp(-0.5 * ((beside[..., 0] / wide) ** 2
                          + (beside[..., 1] / max(1.0, UPRIGHT_MARGIN * wide)) ** 2))


def _peak(rate: np.ndarray, course: np.ndarray, confidence: np.ndarray,
          usable: np.ndarray) -> tuple[float, tuple[int, int]]:
    """Return the looming rate of the strongest cells on course [1/s], and the strongest cell."""
    course = np.where(usable, course, 0.0)
    # One cell alone is noise: average 3x3 so that neighbours have to agree.
    strength = cv2.blur((np.maximum(rate, 0.0) * course * confidence).astype(np.float32), (3, 3),
                        borderType=cv2.BORDER_REPLICATE)
    count = min(PEAK_CELLS, strength.size)
    top = strength.ravel().argpartition(-count)[-count:]
    share = course.ravel()[top] * confidence.ravel()[top]
    place = divmod(int(strength.argmax()), strength.shape[1])
    whole = share.sum()
    if whole <= 0:
        return 0.0, place
    mean = float((share * rate.ravel()[top]).sum() / whole)
    return max(0.0, mean) * min(1.0, float(course.ravel()[top].sum()) / COURSE_CELLS), place


@dataclass(frozen=True)
class _Cells:
    """The cells of a field as `find_threats` uses them.

    Attributes
    ----------
    field
        The field.
    rate, usable, course
        (Hc, Wc) looming rate [1/s], 0 where not usable; whether it counts; how far it is on
        course, 0..1.
    scale, size, optics
        Pixels of the source image over those of the grey image; source image (width, height)
        [px] and its intrinsics.
    """

    field: LoomingField
    rate: np.ndarray
    usable: np.ndarray
    course: np.ndarray
    scale: float
    size: tuple[int, int]
    optics: Optics


def _regions(cells: _Cells, rates: tuple[float, ...]) -> tuple[Region, ...]:
    """Return connected cells above each rate [1/s], the highest first.

    What is too little on course by itself may be a part of something slower that is: that is one
    region, or more looming would give less alarm.
    """
    met: list[Region] = []
    beside: list[tuple[Region, np.ndarray]] = []      # and their cells
    free, left = cells.usable.copy(), cells.usable.copy()
    for least in rates:
        fast = cells.rate >= least
        for region, mask in _connected(cells, free & fast):
            if region.on_course:
                met.append(region)
                free &= ~mask
                beside = [(other, part) for other, part in beside if not (part & mask).any()]
        left &= free
        for region, mask in _connected(cells, left & fast):
            beside.append((region, mask))
            left &= ~mask
    found = met + [region for region, _ in beside]
    found.sort(key=lambda r: (not r.on_course, r.time_to_contact))
    return tuple(found)


def _connected(cells: _Cells, mask: np.ndarray) -> Iterator[tuple[Region, np.ndarray]]:
    """Yield connected parts of a mask that are no noise, as regions and as masks."""
    if np.count_nonzero(mask) < MIN_CELLS:
        return
    count, labels, boxes, _ = cv2.connectedComponentsWithStats(mask.view(np.uint8), connectivity=4)
    large = boxes[:, cv2.CC_STAT_AREA] >= MIN_CELLS
    large[0] = False                                    # the rest of the view
    flat, share = labels.ravel(), cells.course * cells.field.confidence
    course, confidence, met, closing = (
        np.bincount(flat, values.ravel(), count).tolist()
        for values in (cells.course, cells.field.confidence, share, share * cells.rate))
    for one in np.flatnonzero(large).tolist():
        # On course when enough of it will be met; then only the part that will be met counts.
        part, on_course = labels == one, course[one] >= COURSE_CELLS
        rate = closing[one] / met[one] if on_course else middle(cells.rate[part])
        x, y, wide, tall, area = boxes[one].tolist()
        yield _region(cells, (x, y, wide, tall), rate, confidence[one] / area, on_course), part


def _region(cells: _Cells, box: tuple[int, int, int, int], rate: float, confidence: float,
            on_course: bool) -> Region:
    """Return the region of the cells in a box: first column and row, width and height."""
    field, scale, size, optics = cells.field, cells.scale, cells.size, cells.optics
    half = 0.5 * field.cell_px
    column, row, wide, tall = box
    left, top = field.centers[row, column].tolist()
    right, bottom = field.centers[row + tall - 1, column + wide - 1].tolist()
    x0, x1 = max(0.0, (left - half) * scale), min(float(size[0]), (right + half) * scale)
    y0, y1 = max(0.0, (top - half) * scale), min(float(size[1]), (bottom + half) * scale)
    x, y = 0.5 * (x0 + x1), 0.5 * (y0 + y1)
    third = x / size[0]
    side = 'LEFT' if third < 1 / 3 else 'RIGHT' if third > 2 / 3 else 'CENTER'
    bearing, elevation = optics.direction(x, y)
    return Region(x0, y0, x1 - x0, y1 - y0, bearing, elevation, 1.0 / rate, rate, side,
                  confidence, on_course)


def _obstacle_score(rate: np.ndarray, confidence: np.ndarray, usable: np.ndarray,
                    settings: Settings) -> float:
    """Return the mean of min(1, rate * horizon) over the tenth of the cells that looms most."""
    near = usable & (rate >= settings.looming_threshold)
    urgency = np.clip(rate[near] * settings.collision_horizon, 0.0, 1.0) * confidence[near]
    urgency.sort()
    tenth = max(1, np.count_nonzero(usable) // 10)
    return float(urgency[-tenth:].sum() / tenth) if urgency.size else 0.0
