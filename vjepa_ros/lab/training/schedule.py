# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What changes over a run: learning rate, image size, tokens kept, momentum of the average."""

from __future__ import annotations

import math
from dataclasses import dataclass

FLOOR = 0.01          # of the learning rate at the end


@dataclass(frozen=True)
class Phases:
    """A value that changes at given parts of the run.

    Attributes
    ----------
    values : tuple of float
        One after the other.
    ends : tuple of float
        Part of the run, 0..1, at which each of them ends; the last is 1.
    """

    values: tuple[float, ...]
    ends: tuple[float, ...]

    @classmethod
    def parse(cls, text: str, name: str) -> Phases:
        """Read ``VALUE`` or ``VALUE:SHARE,VALUE:SHARE,...`` with shares that add up to 1.

        Raises
        ------
        ValueError
            Naming the option, its text and what is wrong with it.
        """
        parts = [part.split(':') for part in text.split(',')]
        if len(parts) > 1 and any(len(part) != 2 for part in parts):
            raise ValueError(f"{name} '{text}' needs VALUE:SHARE for each of its parts")
        try:
            values = [float(part[0]) for part in parts]
            shares = [float(part[1]) if len(part) == 2 else 1.0 for part in parts]
        except (ValueError, IndexError):
            raise ValueError(f"{name} '{text}' is neither a number nor numbers with shares such "
                             "as '128:0.7,192:0.3'") from None
        if any(share <= 0 for share in shares) or abs(sum(shares) - 1) > 1e-6:
            raise ValueError(f"{name} '{text}': the shares must be above 0 and add up to 1")
        ends = [sum(shares[:i + 1]) for i in range(len(shares))]
        return cls(tuple(values), (*ends[:-1], 1.0))

    def at(self, progress: float) -> float:
        """The value at a part of the run, 0..1."""
        return next((v for v, end in zip(self.values, self.ends, strict=True) if progress < end),
                    self.values[-1])


def rate_factor(progress: float, warmup: float) -> float:
    """Factor on the learning rate: linear rise over `warmup`, then half a cosine to FLOOR."""
    if progress < warmup:
        return max(progress / warmup, 1e-3)
    part = min(1.0, (progress - warmup) / max(1e-9, 1.0 - warmup))
    return FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * part))


def momentum(step: int, limit: float) -> float:
    """Share of the old average that is kept at a step: short at first, then `limit`."""
    return min(limit, (1 + step) / (10 + step))


@dataclass
class Budget:
    """How much of the run is done, counted in clips or in seconds of training.

    Attributes
    ----------
    clips : int
        Planned clips, 0 when time decides.
    seconds : float
        Planned seconds, 0 when clips decide.
    clips_done : int
        Over all calls of the run.
    seconds_done : float
        Over all calls of the run, without start-up, validation and writing.
    """

    clips: int
    seconds: float
    clips_done: int = 0
    seconds_done: float = 0.0

    @property
    def progress(self) -> float:
        """Part of the run that is done, 0..1."""
        done = self.clips_done / self.clips if self.clips else self.seconds_done / self.seconds
        return min(1.0, done)

    @property
    def spent(self) -> bool:
        """Whether the run is complete."""
        return self.progress >= 1.0
