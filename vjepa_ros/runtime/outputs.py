# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Results of a pass for each clip, as NumPy arrays, and a handle to wait for them."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import Protocol, TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.model.head_specs import (
    CONTACT,
    Calibration,
    HeadOutputs,
    HeadSpec,
    to_arrays,
)
from vjepa_ros.model.heads import Branch, Heads, IN_TURN
from vjepa_ros.runtime.noise_floor import Change

# Waits for features; returns the time that they took after all else had arrived [ms].
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
        """Compute the probability that anything enters the robot's volume within times."""
        values = np.asarray(intervals, np.float32)
        below = CONTACT.cumulative(torch.from_numpy(self.contact)[None],
                                   torch.from_numpy(values.reshape(1, -1)))
        return below.numpy().reshape(values.shape)


class Output:
    """The results for one clip.

    Parameters
    ----------
    features : ndarray, optional
        (T', Hp, Wp, D) float32, when asked for; perhaps still being written.
    heads : HeadArrays, optional
        When the model has heads.
    change : Change, optional
        When asked for, on CUDA; elsewhere it follows from the features.
    arrival : callable, optional
        Waits for the features; None: they are there.
    finite : bool
        Whether all that the model computed for the clip is finite; where it is not, there is
        nothing else.

    """

    def __init__(self, features: np.ndarray | None = None, heads: HeadArrays | None = None,
                 change: Change | None = None, arrival: Arrival | None = None,
                 finite: bool = True):
        self.finite = finite
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
        """(T', Hp, Wp, D) float32; waits for them."""
        self.arrive()
        return self._features

    def arrive(self) -> float:
        """Wait for the features; return their time after all else had arrived [ms]."""
        return 0.0 if self._arrival is None else self._arrival()


def pack(outputs: HeadOutputs) -> Tensor:
    """Pack calibrated outputs into one tensor, so that one download brings all."""
    return torch.cat([one.reshape(len(one), -1) for one in to_arrays(outputs).values()], dim=1)


def checked(features: Tensor) -> Tensor:
    """Return for each clip 0 where all its features are finite, else NaN: (B, 1) float32."""
    return features.flatten(1).sum(1, keepdim=True, dtype=torch.float32) * 0.0


def reading(heads: Heads, calibration: Calibration,
            branch: Branch = IN_TURN) -> Callable[[Tensor], Tensor]:
    """Make the function from features of clips to their calibrated and packed heads.

    Behind these comes the sum of `checked` for the features, and for the heads.
    """
    def read(features: Tensor) -> Tensor:
        packed = pack(calibration.apply(heads(features, branch)))
        return torch.cat([packed, checked(features) + checked(packed)], dim=1)

    return read


def unpack(packed: np.ndarray, rows: int, cols: int,
           specs: Sequence[HeadSpec]) -> list[HeadArrays]:
    """Unpack the arrays of each clip, from `pack` of these heads."""
    unpacked = []
    for clip in packed:
        arrays = {name: clip[start:end].reshape(shape)
                  for name, start, end, shape in _layout(rows, cols, tuple(specs))}
        unpacked.append(HeadArrays(**arrays))
    return unpacked


@lru_cache(16)
def _layout(rows: int, cols: int, specs: tuple[HeadSpec, ...]
            ) -> tuple[tuple[str, int, int, tuple[int, ...]], ...]:
    """Return name, start, end and shape of each array among the packed numbers of a clip."""
    layout, start = [], 0
    for spec in specs:
        for name, shape in spec.array_shapes(rows, cols).items():
            layout.append((name, start, start + math.prod(shape), shape))
            start += math.prod(shape)
    return tuple(layout)


@dataclass(frozen=True)
class Landed:
    """The results of one pass."""

    clips: int  # how many it had
    # (B, T', Hp, Wp, D) float32; not to be read before `arrival` was called
    features: np.ndarray | None
    # (B, ...) float32 of the heads, if they are asked for, see `pack`, and last of `checked`
    packed: np.ndarray
    change: np.ndarray | None  # (B, T', Hp, Wp) float32, see `ChangeReader`
    timings: dict[str, float]  # milliseconds by stage, without what `arrival` tells
    arrival: Arrival | None = None  # waits for the features; None: they are there


class Flight(Protocol):
    """A pass under way."""

    def done(self) -> bool:
        """Return whether everything is there, features too."""
        ...

    def arrived(self) -> bool:
        """Return whether `land` would not wait."""
        ...

    def land(self) -> Landed:
        """Wait for the results; `Landed.arrival` waits for features."""
        ...


@dataclass(frozen=True)
class Arrived:
    """A finished pass."""

    landed: Landed

    def done(self) -> bool:
        """Return True."""
        return True

    arrived = done

    def land(self) -> Landed:
        """Return the results."""
        return self.landed


class Pending:
    """The results of clips that were submitted. Any thread may ask for them, also twice.

    Parameters
    ----------
    flights : sequence of Flight
        The passes that the clips took, in order.
    build : callable
        A `Landed` to one `Output` for each of its clips.
    report : callable
        Gets the timings when the results are there.
    order : sequence of int, optional
        Place of each clip of the flights among the results; as they come when omitted.

    """

    def __init__(self, flights: Sequence[Flight], build: Callable[[Landed], list[Output]],
                 report: Callable[[dict[str, float]], None], order: Sequence[int] = ()):
        self._flights = flights
        self._build = build
        self._report = report
        self._order = order
        self._lock = threading.Lock()
        self._outputs: list[Output] | None = None
        self._arrivals: list[Arrival] = []      # that `result` has not waited for
        self.timings: dict[str, float] = {}

    def done(self) -> bool:
        """Return whether `result` would not wait."""
        return all(flight.done() for flight in tuple(self._flights))

    def arrived(self) -> bool:
        """Return whether `early` would not wait."""
        return all(flight.arrived() for flight in tuple(self._flights))

    def early(self) -> list[Output]:
        """Wait for everything but the features, for which `Output.features` waits.

        Their time is not among `timings`, see `Output.arrive`.
        """
        with self._lock:
            return self._land()

    def result(self) -> list[Output]:
        """Wait for the results: one for each clip, see `EncoderSession.run`."""
        with self._lock:
            outputs = self._land()
            if self._arrivals:
                late = [{'download': arrival()} for arrival in self._arrivals]
                self._tell([self.timings, *late])
                self._arrivals = []
            self._flights = ()
            return outputs

    def _land(self) -> list[Output]:
        if self._outputs is None:
            outputs, parts, arrivals = [], [], []
            for flight in self._flights:
                landed = flight.land()
                outputs += self._build(landed)
                parts.append(landed.timings)
                if landed.arrival is not None:
                    arrivals.append(landed.arrival)
            if self._order:
                placed = dict(zip(self._order, outputs, strict=True))
                outputs = [placed[at] for at in range(len(placed))]
            self._outputs, self._arrivals = outputs, arrivals
            if parts:
                self._tell(parts)
        return self._outputs

    def _tell(self, parts: Iterable[Mapping[str, float]]) -> None:
        total: dict[str, float] = {}
        for part in parts:
            for stage, ms in part.items():
                total[stage] = total.get(stage, 0.0) + ms
        self.timings = total
        self._report(total)
