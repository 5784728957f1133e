# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What of a result needs no model, kept so that it can be made while the model runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from vjepa_ros.clip.resize import View
from vjepa_ros.clip.sampling import Sample
from vjepa_ros.looming.estimator import LoomingField
from vjepa_ros.looming.structure import Shown
from vjepa_ros.perception.collision import Optics, Threat, find_threats
from vjepa_ros.perception.patch_maps import looming_map
from vjepa_ros.perception.settings import Settings


@dataclass(frozen=True)
class Seen:
    """What follows of a looming field alone.

    Attributes
    ----------
    threat
        What is on course.
    grid
        (Hp, Wp) looming rate of the patches; None where it was not wanted.
    """

    threat: Threat
    grid: np.ndarray | None


class Ahead:
    """The newest of both kinds of one camera; each is made when it is first asked for."""

    def __init__(self) -> None:
        self._field: LoomingField | None = None
        self._seen: tuple[object, Seen] | None = None
        self._shown: tuple[Sample, Shown] | None = None

    def seen(self, field: LoomingField | None, size: tuple[int, int], optics: Optics,
             settings: Settings, view: View | None) -> Seen:
        """What follows of a field; arguments as for `find_threats`, `view` for the grid."""
        asked = size, optics, settings, view
        if self._seen is None or self._field is not field or self._seen[0] != asked:
            grid = None if view is None else looming_map(view, field, settings.min_confidence)
            self._field = field
            self._seen = asked, Seen(find_threats(field, size, optics, settings), grid)
        return self._seen[1]

    def shown(self, sample: Sample, view: View,
              pixels: Callable[[], Sequence[np.ndarray]]) -> Shown:
        """What the frames of a clip show; the same `sample` stands for the same `pixels`."""
        if self._shown is None or self._shown[0] is not sample:
            self._shown = sample, Shown.by(view.patch_valid(), pixels())
        return self._shown[1]
