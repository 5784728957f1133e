# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The result types of the package: what is known about one camera at one moment."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from vjepa_ros.clip.resize import View
    from vjepa_ros.perception.learned import LearnedField


class Level(IntEnum):
    """How urgent the view is.

    UNKNOWN is the highest number on purpose: a consumer that tests ``level >= Level.WARNING``
    then also stops when nothing is known.
    """

    CLEAR = 0
    CAUTION = 1
    WARNING = 2
    DANGER = 3
    UNKNOWN = 255


class Quality(IntFlag):
    """What a consumer must know before it trusts an assessment (uint16)."""

    UNTRAINED = 1            # features come from random weights
    LOW_TEXTURE = 2          # too little of the region of interest can be measured
    PARTIAL_VIEW = 4         # the encoder sees only a part of the image
    STALE = 8                # the newest frame is too old, of the future, or of unknown age
    WARMING_UP = 16          # first results after a reset: smoothing has not settled
    SLOW_CAMERA = 32         # the camera is slower than 5 Hz, or for whole clips than clip_fps
    ASSUMED_INTRINSICS = 64  # no camera_info: angles come from an assumed field of view
    LOOMING_UNKNOWN = 128    # no time to contact can be given
    DEVICE_FALLBACK = 256    # another device, or a smaller model, than asked for
    DISAGREEMENT = 512       # looming and the probability of contact contradict each other
    HEADS_OUT_OF_RANGE = 1024  # no learned heads are valid for clips like this one
    FROZEN = 2048            # the picture does not change by a single bit
    NOT_FINITE = 16384       # the model computed values that are not finite

    @property
    def names(self) -> tuple[str, ...]:
        """Lower-case names of the set flags, in the order of their bits."""
        return tuple(f.name.lower() for f in Quality if f in self and f.name)


# With any of these nothing is known, whatever was measured.
BLIND = Quality.STALE | Quality.NOT_FINITE

KNOWN_FLAGS = functools.reduce(operator.or_, Quality)
TOLERANCE = 1e-3         # of limits, for numbers that were rounded
MOST = 1e6               # of a quantity without a limit of its own
# What the numbers of an assessment can be; each may also be NaN, which is unknown.
LIMITS = {
    **dict.fromkeys(('motion_score', 'obstacle_score', 'collision_probability',
                     'collision_if_ahead', 'known_fraction'), (0.0, 1.0)),
    **dict.fromkeys(('time_to_contact', 'clearance'), (0.0, math.inf)),
    **dict.fromkeys(('bearing', 'elevation'), (-math.pi, math.pi)),
    **dict.fromkeys(('clip_span', 'clip_rate', 'collision_horizon', 'still'), (0.0, MOST)),
    **dict.fromkeys(('looming_rate', 'approach_speed'), (-MOST, MOST)),
    'latency_ms': (-math.inf, math.inf)}


def problem_of(flags: int, values: Mapping[str, float]) -> str:
    """Return why flags and numbers by name are no assessment, with the remedy; '' if they are."""
    unknown = int(flags) & ~int(KNOWN_FLAGS)
    if unknown:
        return (f'flags has the bits {unknown:#x}, which this version does not know: run the same '
                'version of vjepa_ros on both sides')
    for name, value in values.items():
        low, high = LIMITS[name]
        if value < low - TOLERANCE or value > high + TOLERANCE:
            return f'{name} is {value:g}, must be {low:g} to {high:g}, or NaN for unknown'
    return ''


@dataclass(frozen=True)
class Region:
    """A connected part of the image that comes nearer.

    Attributes
    ----------
    x, y, width, height
        Box in pixels of the source image.
    bearing, elevation
        Direction of the centre [rad], right and up positive, from the optical axis.
    time_to_contact
        Time until its surface reaches the plane of the camera [s].
    looming_rate
        Closing speed over distance [1/s].
    side
        'LEFT', 'CENTER' or 'RIGHT' third of the image.
    confidence
        Mean confidence of its patches, 0..1.
    on_course
        Whether it will meet the camera (rather than pass beside, above or below it).
    """

    x: float
    y: float
    width: float
    height: float
    bearing: float
    elevation: float
    time_to_contact: float
    looming_rate: float
    side: str
    confidence: float
    on_course: bool


@dataclass(frozen=True)
class Threat:
    """Contact according to patches, before smoothing."""

    # Looming rate of what is on course [1/s]: 0 when the view is known and nothing on course
    # approaches, NaN when too little is known
    course_rate: float
    bearing: float  # direction of it [rad], NaN when nothing approaches
    elevation: float
    observed_fraction: float  # part of the region of interest that can be observed, 0..1


@dataclass(frozen=True)
class Assessment:
    """Summary of one camera at the stamp of its newest frame. Unknown values are NaN, never 0.

    Attributes
    ----------
    camera, stamp_ns, frame_id
        Name of the camera; stamp [ns] and frame id of the newest frame.
    motion_score
        Where learned heads are valid: how much of the view moves by itself, not because the camera
        moves (mean of the moving map), 0..1. Otherwise: how much of the view changes beyond the
        noise floor of the model, whatever the reason, 0..1. `Result.learned` says which.
    obstacle_score
        How much of the view comes nearer within the horizon, on course or not, 0..1.
    collision_probability
        Probability of contact within ``collision_horizon`` as things move now, calibrated, 0..1.
    time_to_contact
        Of the most urgent surface on collision course [s]; inf when the view is known and
        nothing on course comes nearer.
    looming_rate
        Its closing speed over distance [1/s].
    bearing, elevation
        Its direction [rad], right and up positive; NaN when there is none.
    level, flags
        Urgency, and what limits the trust in it.
    regions
        All regions that come nearer, most urgent first.
    timings
        Milliseconds by stage.
    clip_span_s, clip_rate_hz
        Time from first to last frame of the clip [s] and its effective rate [Hz].
    known_fraction
        Part of the region of interest whose looming is known, 0..1.
    clearance
        Way ahead that is free with a probability of 0.8, whether anything moves or not, by the
        learned heads [m]; inf beyond 16 m, NaN without valid heads.
    collision_if_ahead
        Probability of contact within ``collision_horizon`` if the robot went ahead at
        ``approach_speed``, whatever it does now, by the learned heads: that the way ahead is
        shorter than their product, 0..1; NaN without valid heads and beyond what they tell of.
    approach_speed, collision_horizon
        What both probabilities assume: a twist of ``linear.x`` alone, along the optical axis
        [m/s], and a time [s].
    still_s
        How long the view has not moved by more than its noise [s]; 0: it has just moved. NaN
        where it shows too little structure to tell. A robot that drives meanwhile is blind.
    latency_ms
        Age of the newest frame when a node published this [ms]; NaN when that is unknown, and
        for what was never published.
    """

    camera: str
    stamp_ns: int
    frame_id: str
    motion_score: float
    obstacle_score: float
    collision_probability: float
    time_to_contact: float
    looming_rate: float
    bearing: float
    elevation: float
    level: Level
    flags: Quality
    regions: tuple[Region, ...] = ()
    timings: dict[str, float] = field(default_factory=dict)
    clip_span_s: float = float('nan')
    clip_rate_hz: float = float('nan')
    known_fraction: float = 0.0
    clearance: float = float('nan')
    collision_if_ahead: float = float('nan')
    approach_speed: float = float('nan')
    collision_horizon: float = float('nan')
    still_s: float = float('nan')
    latency_ms: float = float('nan')

    @property
    def untrained(self) -> bool:
        """Whether random weights made the features."""
        return Quality.UNTRAINED in self.flags


@dataclass(frozen=True)
class Result:
    """An assessment with the maps it was made from.

    Attributes
    ----------
    assessment
        The summary.
    motion_map, looming_map
        (Hp, Wp) float32 on the patch grid, NaN where unknown or outside the image; None when
        nobody asked for it. Change 0..1; looming rate [1/s].
    features
        (T', Hp, Wp, D) float32, or None when the encoder was not needed, or computed values that
        are not finite.
    view
        Geometry of the encoder's input (`vjepa_ros.clip.resize.View`).
    image
        RGB uint8 (H, W, 3): the newest frame; None when nobody asked for it.
    learned
        The heads (`vjepa_ros.perception.learned.LearnedField`); None when there are none,
        they are not valid, or nobody asked for them.
    heads_problem
        Why no heads are valid for this clip, with the remedy; '' when they are.
    unchanged_s
        How long the newest picture has been the same to the last bit [s]; 0: it changed.
    """

    assessment: Assessment
    motion_map: np.ndarray | None
    looming_map: np.ndarray | None
    features: np.ndarray | None
    view: View
    image: np.ndarray | None
    learned: LearnedField | None = None
    heads_problem: str = ''
    unchanged_s: float = 0.0

    @property
    def moving_map(self) -> np.ndarray | None:
        """(Hp, Wp) float32 probability that a patch moves by itself, NaN unknown.

        None without valid heads.
        """
        return None if self.learned is None else self.learned.moving

    @property
    def moves(self) -> np.ndarray | None:
        """Return what overlays show as moving: the moving map, else the map of change."""
        return self.motion_map if self.learned is None else self.learned.moving
