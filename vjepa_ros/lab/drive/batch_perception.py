# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The perception of many simulated robots: one model, one camera for each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vjepa_ros.perception.camera_track import TrackConfig, Wants
from vjepa_ros.perception.pipeline import Perception
from vjepa_ros.perception.settings import Settings
from vjepa_ros.perception.types import Result
from vjepa_ros.runtime.engine import Engine

# What assessments are made from; pictures of change are for people.
_WANTS = Wants(features=True, looming=True, image=False, change=False, moving=True)


class Eyes:
    """Cameras of N robots.

    Parameters
    ----------
    engine
        The loaded model.
    intrinsics
        (N, 4) fx, fy, cx, cy [px], as camera_info tells them.
    settings
        Of the perception.
    """

    def __init__(self, engine: Engine, intrinsics: np.ndarray,
                 settings: Settings | None = None) -> None:
        self._names = [f'robot_{number}' for number in range(len(intrinsics))]
        config = TrackConfig(engine.config.num_frames, engine.config.image_size)
        self._perception = Perception(engine, config, self._names)
        self._settings = settings or Settings()
        for name, lens in zip(self._names, intrinsics, strict=True):
            self._perception.tracks[name].intrinsics = tuple(float(v) for v in lens)

    def see(self, which: Sequence[int], pictures: np.ndarray,
            stamp_s: float) -> dict[int, Result]:
        """Results for the newest pictures of some robots.

        Parameters
        ----------
        which
            Their numbers.
        pictures
            (len(which), H, W, 3) uint8 RGB.
        stamp_s
            When they were taken [s]; only moves forward.

        Returns
        -------
        dict of int to Result
            By number; robots whose pictures do not cover a clip yet are missing.
        """
        for number, picture in zip(which, pictures, strict=True):
            self._perception.tracks[self._names[number]].push(picture, round(stamp_s * 1e9))
        samples = self._perception.pending([self._names[number] for number in which])
        if not samples:
            return {}
        wants = dict.fromkeys(samples, _WANTS)
        # Stamps are simulated; by that clock every picture is new.
        results = self._perception.run(samples, self._settings, wants, lambda stamp: 0.0)
        numbers = {self._names[number]: number for number in which}
        return {numbers[name]: result for name, result in zip(samples, results, strict=True)}
