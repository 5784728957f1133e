# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What a predictor of twists expects of the plans of a base, from the camera that looks ahead."""

from __future__ import annotations

import math

import numpy as np

from vjepa_ros.model.twist_paths import View
from vjepa_ros.perception.looming_cells import LoomingCells
from vjepa_ros.planning.local_config import Mount, SIDEWAYS, Twist
from vjepa_ros.runtime.imagination import Foreseen, Imagination

LASTS_S = 0.5      # older features say nothing of plans from now on
# Something moves by itself where the mean of the greatest probabilities, averaged over this time,
# is so high. What moved so long ago still counts: it may stand for a moment.
GREATEST, MEAN_S, MOVES, MOVED_S = 4, 0.5, 0.2, 1.0


class ImaginedRisk:
    """Scores plans on the newest features.

    Looming measures what stands still better than it is imagined here, and puts what moves by
    itself in a wrong place. So plans are judged by this while something in view moves.

    Parameters
    ----------
    model
        The predictor of twists; several robots may share it.
    counts
        Whether plans are judged by it; else it is for drawings alone.

    Attributes
    ----------
    model, counts
        As given.
    age_s
        Of the features that it plans on [s]; inf: there are none.
    moved_s
        Since the camera saw something that moves by itself [s].
    """

    def __init__(self, model: Imagination, counts: bool = True) -> None:
        self.model, self.counts = model, counts
        self.forget()

    @property
    def judges(self) -> bool:
        """Whether plans are to be judged by it now."""
        return self.counts and self.ready and self.moved_s <= MOVED_S

    @property
    def ready(self) -> bool:
        """Whether there are features, and new enough ones."""
        return self.age_s <= LASTS_S

    def see(self, features: np.ndarray, cells: LoomingCells, interval_s: float, mount: Mount,
            twist: Twist, age_s: float = 0.0) -> None:
        """Take the newest features of a camera.

        Parameters
        ----------
        features
            (T', Hp, Wp, D) float32 of the encoder that the predictor belongs to, T' at least 2,
            of the whole picture.
        cells
            Of the same picture; they tell its field of view.
        interval_s
            Time between two frames of the encoder [s].
        mount
            Pose of the camera.
        twist
            Of the robot when the picture was taken.
        age_s
            Age of the picture [s].

        Raises
        ------
        ValueError
            For features of another shape or that are not finite, a camera that does not look
            ahead, and a picture without a field of view. What was seen before is dropped.
        """
        since = max(0.0, self.age_s - age_s)
        self._seen, self.age_s = None, math.inf
        if abs(mount.yaw) > SIDEWAYS:
            raise ValueError(f'its yaw is {mount.yaw:g} rad, but a predictor of twists needs a '
                             f'camera that looks ahead, within {SIDEWAYS:g} rad')
        view = View(mount.height, 0.0, mount.x, _extent(cells.across), _extent(cells.down),
                    interval_s, *twist)
        if self.counts:         # what is only drawn now and then is looked at then
            self.model.see(features, view)
        self._seen, self.age_s = (features[-2:], view), age_s
        moving = np.sort(np.nan_to_num(cells.moving))[-GREATEST:]
        new = 1 - math.exp(-min(since, LASTS_S) / MEAN_S)
        self._moving += new * (float(moving.mean()) - self._moving)
        if self._moving > MOVES:
            self.moved_s = age_s

    def wait(self, dt: float) -> None:
        """Let time pass [s]."""
        self.age_s += dt
        self.moved_s += dt

    def forget(self) -> None:
        """Drop what was seen."""
        self._seen: tuple[np.ndarray, View] | None = None
        self.age_s = self.moved_s = math.inf
        self._moving = 0.0

    def contact(self, plans: np.ndarray, durations_s: np.ndarray) -> np.ndarray:
        """Return the probability (N, K) of a contact until the end of each step.

        Parameters
        ----------
        plans
            (N, K, 3) ahead, to the left [m/s], turn to the left [rad/s].
        durations_s
            (K,) of the steps [s].

        Raises
        ------
        ValueError
            When it has seen nothing.
        """
        return self.foresee(plans, durations_s).contact

    def foresee(self, plans: np.ndarray, durations_s: np.ndarray) -> Foreseen:
        """Return all that is imagined of plans, see `contact`."""
        if self._seen is None:
            raise ValueError('there are no features to plan on; call see() first')
        if self.model.view is not self._seen[1]:       # it has looked through other eyes since
            self.model.see(*self._seen)
        return self.model.imagine(plans, durations_s)


def _extent(tangents: np.ndarray) -> float:
    """Return the tangent of half a field of view from those of the middles of its cells."""
    places = np.unique(np.round(tangents, 4))
    if len(places) < 2:
        raise ValueError('its looming_field has no cells, so its field of view is not known')
    return float(0.5 * (places[-1] - places[0]) * len(places) / (len(places) - 1))
