# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Find what is on collision course among the patches of a view.

The heads say of each patch how fast it comes nearer, and how probable it is that what it shows
will enter the volume of the robot. Patches that are on course and come nearer at about one rate
are one part, see `danger.ON_COURSE`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import mul
from typing import NamedTuple

import cv2
import numpy as np

from vjepa_ros.clip.optics import Optics
from vjepa_ros.clip.resize import View, middle
from vjepa_ros.perception.danger import approaches, level_rates
from vjepa_ros.perception.learned import LearnedField, stacked
from vjepa_ros.perception.patch_maps import score_mask
from vjepa_ros.perception.settings import Settings
from vjepa_ros.perception.types import Region, Threat

MIN_PATCHES = 2      # a region of fewer is taken for noise
PEAK_PATCHES = 4     # that the looming of the course is averaged over
COURSE_PATCHES = 0.9  # weight of patches on course that makes their region, or the peak, count
_ZERO = np.float32(0)
UNKNOWN = Threat(math.nan, math.nan, math.nan, 0.0)


@dataclass(frozen=True)
class PatchVerdict:
    """What the patches of a clip say of contact; where that comes from is found on demand."""

    threat: Threat  # what is on course
    _used: _Patches | None = None  # None: nothing is known
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

        The mean of min(1, rate * horizon) over that tenth of the known patches that looms most,
        each counting with its confidence.
        """
        used = self._used
        if used is None or (
                self.threat.observed_fraction < used.settings.min_known and not self._met):
            return math.nan
        settings = used.settings
        near = used.usable & (used.rate >= settings.looming_threshold)
        urgency = np.minimum(used.rate[near] * settings.collision_horizon, 1.0)
        urgency *= used.learned.confidence[near]
        urgency.sort()
        tenth = max(1, used.known // 10)
        return float(urgency[-tenth:].sum() / tenth) if urgency.size else 0.0


def judge_patches(given: Sequence[tuple[LearnedField, Optics]],
                  settings: Settings) -> list[PatchVerdict]:
    """Judge clips of one model, all at once: NumPy takes as long for many arrays as for one."""
    if not given:
        return []
    fields = [learned for learned, _ in given]
    rate, confidence, course = stacked(fields, 'rate', 'confidence', 'on_course')
    usable = np.array([learned.known(settings.min_confidence) for learned in fields])
    usable &= np.array([score_mask(learned.view, settings.roi) for learned in fields])
    rate, course = np.where(usable, rate, _ZERO), np.where(usable, course, _ZERO)
    share = course * confidence
    strength, peaks = _peaks(rate, course, share)
    # What might meet the camera: a part has at most the sum of the whole, but for rounding.
    near = rate >= np.float32(level_rates(settings)[-1])
    likely = (near.sum((1, 2)) >= MIN_PATCHES) & (
        (course * near).sum((1, 2)) >= 0.999 * COURSE_PATCHES)
    found = []
    for n, ((learned, optics), count) in enumerate(
            zip(given, usable.sum((1, 2)).tolist(), strict=True)):
        if not count:
            found.append(PatchVerdict(UNKNOWN))
            continue
        used = _Patches(learned, rate[n], usable[n], count, course[n], share[n], optics, settings)
        met = _met(used) if likely[n] else []
        found.append(PatchVerdict(_threat(
            used, met, peaks[n], strength[n], count / _most(learned.view, settings.roi)),
            used, met))
    return found


@lru_cache(16)      # views of all cameras
def _most(view: View, roi: tuple[float, float, float, float]) -> float:
    """Return how many patches a region of interest has, with those that a crop has cut."""
    (width, height), (x, y) = view.source_size, view.scale
    whole = width * x * height * y / view.patch ** 2
    return max(whole * (roi[2] - roi[0]) * (roi[3] - roi[1]),
               int(np.count_nonzero(score_mask(view, roi))))


def _threat(used: _Patches, met: Sequence[_Part], course_rate: float, strength: np.ndarray,
            observed_fraction: float) -> Threat:
    """Return the looming rate on course, and where it comes from."""
    if met:
        rates = [part.rate(used) for part in met]
        first = rates.index(max(rates))
        return Threat(max(course_rate, rates[first]),
                      *used.optics.direction(*met[first].middle(used)), observed_fraction)
    if observed_fraction < used.settings.min_known:      # that does not stand for all
        return replace(UNKNOWN, observed_fraction=observed_fraction)
    bearing = elevation = math.nan
    if approaches(course_rate, used.settings):
        peak = divmod(int(strength.argmax()), strength.shape[1])
        x, y = used.learned.view.patch_centers[peak]
        bearing, elevation = used.optics.direction(float(x), float(y))
    return Threat(course_rate, bearing, elevation, observed_fraction)


class _Patches(NamedTuple):
    """The patches of a clip as a verdict uses them; arrays are (Hp, Wp)."""

    learned: LearnedField
    rate: np.ndarray  # looming rate [1/s], 0 where not usable
    usable: np.ndarray
    known: int  # number of usable ones
    course: np.ndarray  # how far it is on course, 0..1, 0 where not usable
    share: np.ndarray  # how much it says about the looming of the course
    optics: Optics  # of the source image
    settings: Settings


def _peaks(rate: np.ndarray, course: np.ndarray, share: np.ndarray
           ) -> tuple[np.ndarray, list[float]]:
    """Return the strength of patches (N, Hp, Wp), and the looming rate of the strongest [1/s]."""
    # One patch alone is noise: average 3x3 so that neighbours have to agree.
    strength = np.stack([cv2.blur(each, (3, 3), borderType=cv2.BORDER_REPLICATE)
                         for each in np.maximum(rate, _ZERO) * share])
    flat = strength.reshape(len(strength), -1)
    count = min(PEAK_PATCHES, flat.shape[1])
    rows, top = np.arange(len(flat))[:, None], flat.argpartition(-count)[:, -count:]
    peaks = []
    # Python adds so few numbers much faster than NumPy.
    strongest = np.stack([share, rate, course]).reshape(3, *flat.shape)[:, rows, top].tolist()
    for shares, rates, courses in zip(*strongest, strict=True):
        whole = sum(shares)
        mean = sum(map(mul, shares, rates)) / whole if whole > 0 else 0.0
        peaks.append(max(0.0, mean) * min(1.0, sum(courses) / COURSE_PATCHES))
    return strength, peaks


def _met(used: _Patches) -> list[_Part]:
    """Return connected patches above the rate of each level that the camera will meet.

    What is too little on course by itself may be a part of something slower that is: that is one
    part, or more looming would give less alarm.
    """
    found: list[_Part] = []
    free, fastest = used.usable, used.rate.max()
    for least in level_rates(used.settings):
        if np.float32(least) > fastest:
            continue
        mask = free & (used.rate >= least)
        if np.count_nonzero(mask) >= MIN_PATCHES and used.course[mask].sum() >= COURSE_PATCHES:
            for part in _parts(used, mask):
                if part.on_course:
                    found.append(part)
                    free = free & ~part.mask
    return found


def _beside(used: _Patches, met: Sequence[_Part]) -> list[_Part]:
    """Return the other connected patches above the rate of each level."""
    found: list[_Part] = []
    left, fastest = used.usable, used.rate.max()
    for part in met:
        left = left & ~part.mask
    for least in level_rates(used.settings):
        if np.float32(least) <= fastest:
            for part in _parts(used, left & (used.rate >= least)):
                if not part.on_course:
                    found.append(part)
                    left = left & ~part.mask
    return found


class _Part(NamedTuple):
    """A connected part of the patches."""

    mask: np.ndarray  # (Hp, Wp) bool
    box: list[int]  # first column and row, width and height, number of patches
    on_course: bool  # whether enough of it will be met

    def rate(self, used: _Patches) -> float:
        """Return its looming rate [1/s]; of what is on course only the part that will be met."""
        rate = used.rate[self.mask]
        if not self.on_course:
            return middle(rate)
        share = used.share[self.mask]
        return float(np.dot(share, rate) / share.sum())

    def corners(self, used: _Patches) -> tuple[float, float, float, float]:
        """Return left, top, right, bottom in the source image [px]."""
        column, row, wide, tall, _ = self.box
        boxes = used.learned.view.patch_boxes
        left, top = boxes[row, column, :2].tolist()
        right, bottom = boxes[row + tall - 1, column + wide - 1, 2:].tolist()
        return left, top, right, bottom

    def middle(self, used: _Patches) -> tuple[float, float]:
        """Return its middle in the source image [px]."""
        x0, y0, x1, y1 = self.corners(used)
        return 0.5 * (x0 + x1), 0.5 * (y0 + y1)

    def region(self, used: _Patches) -> Region:
        """Describe the part."""
        rate, (x0, y0, x1, y1) = self.rate(used), self.corners(used)
        x, y = self.middle(used)
        third = x / used.learned.view.source_size[0]
        side = 'LEFT' if third < 1 / 3 else 'RIGHT' if third > 2 / 3 else 'CENTER'
        bearing, elevation = used.optics.direction(x, y)
        confidence = float(used.learned.confidence[self.mask].sum()) / self.box[4]
        return Region(x0, y0, x1 - x0, y1 - y0, bearing, elevation, 1.0 / rate, rate, side,
                      confidence, self.on_course)


def _parts(used: _Patches, mask: np.ndarray) -> list[_Part]:
    """Return the connected parts of a mask (Hp, Wp) bool that are no noise."""
    if np.count_nonzero(mask) < MIN_PATCHES:
        return []
    _, labels, stats, _ = cv2.connectedComponentsWithStats(mask.view(np.uint8), connectivity=4)
    boxes = stats.tolist()
    course = np.bincount(labels.ravel(), used.course.ravel(), len(boxes)).tolist()
    return [_Part(labels == one, box, course[one] >= COURSE_PATCHES)
            for one, box in enumerate(boxes) if one and box[cv2.CC_STAT_AREA] >= MIN_PATCHES]
