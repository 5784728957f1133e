# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Looming at one frame: started while a model runs, finished when it is needed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from vjepa_ros.clip.resize import View
from vjepa_ros.clip.ring import FrameRing
from vjepa_ros.looming.estimator import LoomingField
from vjepa_ros.perception.collision import Optics, find_threats
from vjepa_ros.perception.frame_store import Geometry
from vjepa_ros.perception.patch_maps import looming_map
from vjepa_ros.perception.settings import Settings
from vjepa_ros.perception.types import Threat
from vjepa_ros.runtime.errors import SessionError

T = TypeVar('T')


@dataclass(frozen=True)
class OnCourse:
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


class LoomingJob:
    """The looming field of the frame that is the newest when the job is made.

    `finish` alone gives the field. `start` and `proceed` may come before it, so that a device
    works on one camera while the host is busy with another; left out or called twice they change
    nothing. A step that fails raises, and is tried again by the next call until `give_up`. A step
    that comes after a newer frame raises SessionError, unless the field was there before.

    Parameters
    ----------
    geometry
        Where the frames are.
    ring
        The frames.
    optics
        Of the source image.

    Attributes
    ----------
    key
        Of the frame.
    failed
        Whether measuring was given up.
    looming_s, ahead_s
        Time that the host has spent on the field, and on all else that needs no model and was
        done before the result [s].
    """

    def __init__(self, geometry: Geometry, ring: FrameRing, optics: Optics) -> None:
        self.key = ring.newest_key
        self.failed = False
        self.looming_s = self.ahead_s = 0.0
        self._geometry, self._ring, self._optics = geometry, ring, optics
        self._size = ring.size
        self._done = False
        self._field: LoomingField | None = None
        self._on_course: tuple[object, OnCourse] | None = None

    def start(self) -> None:
        """Start, where a device can go on by itself."""
        if not self._done and self._geometry.on_device:
            self._timed(lambda: self._geometry.begin(self._ring, self._optics))

    def proceed(self) -> None:
        """Go on with what `start` has begun; the device then works on it again."""
        if not self._done:
            self._timed(self._geometry.proceed)

    def finish(self) -> LoomingField | None:
        """The looming field, computed once; None: unknown."""
        if not self._done:
            self._field = self._timed(lambda: self._geometry.looming(self._ring, self._optics))
            self._done = True
        return self._field

    def give_up(self) -> None:
        """Do without the field: measuring it has failed."""
        self._done, self.failed, self._field = True, True, None

    def on_course(self, optics: Optics, settings: Settings, view: View | None) -> OnCourse:
        """What the field says, computed once for the same arguments.

        Parameters
        ----------
        optics, settings
            See `find_threats`.
        view
            For the grid; None: it is not wanted.
        """
        field, asked = self.finish(), (optics, settings, view)
        if self._on_course is None or self._on_course[0] != asked:
            clock = time.perf_counter()
            grid = None if view is None else looming_map(view, field, settings.min_confidence)
            threat = find_threats(field, self._size, optics, settings)
            self._on_course = asked, OnCourse(threat, grid)
            self.ahead_s += time.perf_counter() - clock
        return self._on_course[1]

    def _timed(self, step: Callable[[], T]) -> T:
        if self._ring.newest_key != self.key:
            raise SessionError('looming can only be measured at the newest frame')
        clock = time.perf_counter()
        try:
            return step()
        finally:
            self.looming_s += time.perf_counter() - clock
