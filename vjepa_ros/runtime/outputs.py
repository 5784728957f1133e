# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What a model gives for one clip, as NumPy arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.model.bins import LogBins
from vjepa_ros.model.calibration import Calibration
from vjepa_ros.model.head_specs import CLEARANCE, CONTACT, HeadOutputs, HeadSpec, to_arrays
from vjepa_ros.model.heads import Heads
from vjepa_ros.runtime.feature_change import Change

# Waits for features; gives the time that they took when all else had come [ms].
Arrival = Callable[[], float]


class HeadArrays(SimpleNamespace):
    """Calibrated results of the heads for one clip, by name; times count in frame intervals.

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

    if TYPE_CHECKING:
        def __getattr__(self, name: str) -> np.ndarray: ...

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


def pack(outputs: HeadOutputs) -> Tensor:
    """Calibrated outputs as numbers to use, in one tensor, so that one download brings all.

    Parameters
    ----------
    outputs : HeadOutputs
        Calibrated; logits and logarithms.

    Returns
    -------
    Tensor
        (B, N) float32: the arrays of each head, in the order of the heads.

    """
    return torch.cat([one.reshape(len(one), -1) for one in to_arrays(outputs).values()], dim=1)


def reading(heads: Heads, calibration: Calibration) -> Callable[[Tensor], Tensor]:
    """Features of clips to what the heads say about them, calibrated and packed."""
    return lambda features: pack(calibration.apply(heads(features)))


def unpack(packed: np.ndarray, rows: int, cols: int,
           specs: Sequence[HeadSpec]) -> list[HeadArrays]:
    """The arrays of each clip, from `pack` of these heads."""
    shapes = {name: shape for spec in specs
              for name, shape in spec.array_shapes(rows, cols).items()}
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
    return [HeadArrays(**{name: part.reshape(shape) for (name, shape), part
                          in zip(shapes.items(), np.split(clip, ends[:-1]), strict=True)})
            for clip in packed]
