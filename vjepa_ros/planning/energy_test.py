# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test whether the best plan is better than others by more than the noise of the camera.

A search always returns a minimum, even of a meaningless energy. So the plan found and some plans
of the first, random iteration are judged again, several times, each time with other noise on the
pictures. All plans of a repetition share its noise. The gap of a repetition is the median energy
of the random plans minus that of the plan found. The search has not seen this noise: where actions
do not matter, gaps scatter around 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Change = Callable[[np.ndarray], np.ndarray]      # of the pixels of a picture


@dataclass(frozen=True)
class GapConfig:
    """Settings of the test.

    Attributes
    ----------
    repetitions : int
        Number of repetitions; 0 skips the test.
    plans : int
        Number of random plans to compare with.
    pixel_noise : float
        Standard deviation of the noise on the pixels [grey levels, 0 to 255].
    least : float
        Standard deviations of one gap that the mean gap must exceed.

    Raises
    ------
    ValueError
        With name and value of a setting that is out of range.
    """

    repetitions: int = 6
    plans: int = 8
    pixel_noise: float = 2.0
    least: float = 3.0

    def __post_init__(self) -> None:
        if self.repetitions < 0 or self.repetitions == 1:
            raise ValueError(f'repetitions is {self.repetitions}, but must be 0 (no test) or at '
                             'least 2: one gap has no spread')
        if self.plans < 1:
            raise ValueError(f'plans is {self.plans}, but must be at least 1')
        for name in ('pixel_noise', 'least'):
            if not (getattr(self, name) >= 0 and math.isfinite(getattr(self, name))):
                raise ValueError(f'{name} is {getattr(self, name)}, but must be at least 0')


USUAL_GAP = GapConfig()


@dataclass(frozen=True)
class Gap:
    """The measured gap.

    Attributes
    ----------
    mean, sigma : float
        Mean of the gaps, and standard deviation of one gap [energy].
    energy : float
        Mean energy of the plan found.
    least : float
        Standard deviations that the mean must exceed.
    """

    mean: float
    sigma: float
    energy: float
    least: float

    @property
    def ratio(self) -> float:
        """Mean gap in standard deviations; 0 without any gap."""
        if self.sigma > 0:
            return self.mean / self.sigma
        return math.copysign(math.inf, self.mean) if self.mean else 0.0

    @property
    def clear(self) -> bool:
        """Whether the plan found is better by more than noise."""
        return self.mean > 0 and self.ratio > self.least

    def __str__(self) -> str:
        return (f'gap {self.mean:.3g} with noise {self.sigma:.2g}, {self.ratio:.1f} standard '
                f'deviations where more than {self.least:g} are needed')


def gap_of(energies: np.ndarray, least: float) -> Gap:
    """Return the gap of energies (repetitions, 1 + plans), the plan found first.

    A spread below the rounding error of float32 counts as that error.
    """
    energies = np.asarray(energies, np.float64)
    gaps = np.median(energies[:, 1:], axis=1) - energies[:, 0]
    rounding = float(np.finfo(np.float32).eps * np.abs(energies).mean())
    return Gap(float(gaps.mean()), max(float(gaps.std(ddof=1)), rounding),
               float(energies[:, 0].mean()), least)


def noisy(picture: np.ndarray, sigma: float, random: np.random.Generator) -> np.ndarray:
    """Return pixels (..., 3) uint8 with normal noise of `sigma` grey levels."""
    changed = picture + random.normal(0.0, sigma, picture.shape)
    return np.clip(np.rint(changed), 0, 255).astype(np.uint8)


def unchanged(picture: np.ndarray) -> np.ndarray:
    """Return a picture as it is."""
    return picture
