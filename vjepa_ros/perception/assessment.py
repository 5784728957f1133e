# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Assess one clip from all that was measured of it, as a pure function."""

from __future__ import annotations

from dataclasses import dataclass

from vjepa_ros.clip.resize import View
from vjepa_ros.clip.sampling import Sample
from vjepa_ros.looming.estimator import LoomingField
from vjepa_ros.perception.collision import Optics
from vjepa_ros.perception.danger import age_problem
from vjepa_ros.perception.fusion import Judgement, judge
from vjepa_ros.perception.learned_field import LearnedField
from vjepa_ros.perception.settings import Settings
from vjepa_ros.perception.types import Quality, Threat


@dataclass(frozen=True)
class Measured:
    """What is known of a clip before it is assessed.

    Attributes
    ----------
    sample
        The clip.
    view, optics
        Geometry of the encoder's input; intrinsics of the source image.
    size, grey_size
        Of the source image and of the image that looming is measured in [px].
    looming
        Geometric looming at the newest frame; None when unknown or not wanted.
    by_geometry
        `find_threats` of it.
    learned
        What the heads say; None without heads, where they are not valid, or are not wanted.
    age_s
        Age of the newest frame [s]; NaN when unknown.
    frozen
        Whether the picture has stopped to change.
    geometry_failed
        Whether an error kept looming from being measured.
    heads_problem
        Why the heads are not valid for the clip; '' when they are or there are none.
    """

    sample: Sample
    view: View
    optics: Optics
    size: tuple[int, int]
    grey_size: tuple[int, int]
    looming: LoomingField | None
    by_geometry: Threat
    learned: LearnedField | None
    age_s: float
    frozen: bool = False
    geometry_failed: bool = False
    heads_problem: str = ''


def assess(known: Measured, settings: Settings) -> tuple[Judgement, Quality]:
    """What a clip says about contact, before smoothing, and what makes it less sure."""
    found = judge(known.looming, known.learned, known.size, known.grey_size, known.optics,
                  settings, by_geometry=known.by_geometry)
    flags = {
        Quality.GEOMETRY_FAILED: known.geometry_failed,
        Quality.PARTIAL_VIEW: known.view.coverage < 0.999,
        Quality.STALE: bool(age_problem(known.age_s, settings.max_frame_age)),
        Quality.SLOW_CAMERA: known.sample.distinct < len(known.sample.slots),
        Quality.ASSUMED_INTRINSICS: known.optics.assumed,
        Quality.FROZEN: known.frozen,
        Quality.HEADS_OUT_OF_RANGE: bool(known.heads_problem),
        Quality.DISAGREEMENT: found.disagrees}
    return found, Quality(sum(flag for flag, is_set in flags.items() if is_set))
