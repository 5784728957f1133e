# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What a model gives for one clip, as NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.model.bins import LogBins
from vjepa_ros.model.calibration import Calibration
from vjepa_ros.model.heads import CLEARANCE, CONTACT, HeadOutputs, Heads
from vjepa_ros.runtime.feature_change import Change

# Waits for features; gives the time that they took when all else had come [ms].
Arrival = Callable[[], float]

LARGEST_LOG = 20.0  # a scale beyond exp(20) says no more than that nothing is known


@dataclass(frozen=True)
class HeadArrays:
    """Calibrated results of the heads for one clip; times count in frame intervals.

    Attributes
    ----------
    expansion : ndarray
        (Hp, Wp) float32 looming rate times frame interval; positive: closing in.
    scale : ndarray
        (Hp, Wp) float32 scale b of the Laplace distribution of its error: the mean absolute
        error; the standard deviation is sqrt(2) b.
    moving, course : ndarray
        (Hp, Wp) float32 probability that the surface moves by itself; that it will enter the
        robot's volume at constant velocities.
    contact : ndarray
        (K+1,) float32 probability of each bin of `CONTACT_EDGES`; the last one: later or never.
    clearance : ndarray
        (C+1,) float32 probability of each bin of `CLEARANCE_EDGES` [m]; the last one: farther
        or free.

    """

    expansion: np.ndarray
    scale: np.ndarray
    moving: np.ndarray
    course: np.ndarray
    contact: np.ndarray
    clearance: np.ndarray

    def contact_within(self, intervals: float | Sequence[float] | np.ndarray) -> np.ndarray:
        """Probability that anything enters the robot's volume within times.

        Parameters
        ----------
        intervals : float or array
            Times over frame interval, above 0.

        Returns
        -------
        ndarray
            float32 0..1 in the shape of `intervals`, see `LogBins.cumulative`.

        """
        return _below(CONTACT, self.contact, intervals)

    def clearance_within(self, metres: float | Sequence[float] | np.ndarray) -> np.ndarray:
        """Probability that a surface in the corridor ahead is nearer than distances [m]."""
        return _below(CLEARANCE, self.clearance, metres)


def _below(bins: LogBins, probability: np.ndarray,
           values: float | Sequence[float] | np.ndarray) -> np.ndarray:
    values = np.asarray(values, np.float32)
    below = bins.cumulative(torch.from_numpy(probability)[None],
                            torch.from_numpy(values.reshape(1, -1)))
    return below.numpy().reshape(values.shape)


class Output:
    """What was asked for about one clip.

    Parameters
    ----------
    features : ndarray, optional
        (T', Hp, Wp, D) float32, when asked for; perhaps still being written.
    heads : HeadArrays, optional
        When the model has heads.
    change : Change, optional
        When asked for and made where the features are; elsewhere they say it.
    arrival : callable, optional
        Waits for the features; None: they are there.

    """

    def __init__(self, features: np.ndarray | None = None, heads: HeadArrays | None = None,
                 change: Change | None = None, arrival: Arrival | None = None):
        self.heads = heads
        self.change = change
        self._features = features
        self._arrival = arrival

    @property
    def has_features(self) -> bool:
        """Whether there are features, without waiting for them."""
        return self._features is not None

    @property
    def features(self) -> np.ndarray | None:
        """(T', Hp, Wp, D) float32, whole: what is still on its way is waited for."""
        self.arrive()
        return self._features

    def arrive(self) -> float:
        """Wait for the features; time that they took when all else had come [ms]."""
        return 0.0 if self._arrival is None else self._arrival()


def numbers(outputs: HeadOutputs) -> tuple[Tensor, ...]:
    """The fields of `HeadArrays`, in their order, of calibrated outputs (logits, logarithms)."""
    return (outputs.expansion, outputs.log_scale.clamp(max=LARGEST_LOG).exp(),
            outputs.moving.sigmoid(), outputs.course.sigmoid(),
            outputs.contact.softmax(-1), outputs.clearance.softmax(-1))


def pack(outputs: HeadOutputs) -> Tensor:
    """Calibrated outputs as numbers to use, in one tensor, so that one download brings all.

    Parameters
    ----------
    outputs : HeadOutputs
        Calibrated; logits and logarithms.

    Returns
    -------
    Tensor
        (B, 4 Hp Wp + K + 1 + C + 1) float32: expansion, scale, moving, course, contact,
        clearance.

    """
    return torch.cat([one.flatten(1) for one in numbers(outputs)], dim=1)


def reading(heads: Heads, calibration: Calibration) -> Callable[[Tensor], Tensor]:
    """Features of clips to what the heads say about them, calibrated and packed."""
    return lambda features: pack(calibration.apply(heads(features)))


def unpack(packed: np.ndarray, rows: int, cols: int) -> list[HeadArrays]:
    """The arrays of each clip, from `pack`."""
    end = 4 * rows * cols
    dense, contact, clearance = np.split(packed, [end, end + CONTACT.count + 1], axis=1)
    maps = dense.reshape(-1, 4, rows, cols)
    return [HeadArrays(*each, *last) for each, *last
            in zip(maps, contact, clearance, strict=True)]
