# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""A pass that is under way, and the results that a caller waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from vjepa_ros.runtime.outputs import Arrival, Output


@dataclass(frozen=True)
class Landed:
    """What one pass gives.

    Attributes
    ----------
    clips : int
        How many it was of.
    features : ndarray, optional
        (B, T', Hp, Wp, D) float32; not to be read before `arrival` was called.
    packed : ndarray, optional
        (B, ...) float32 of the heads, see `pack`.
    change : ndarray, optional
        (B, T', Hp, Wp) float32, see `ChangeReader`.
    timings : dict of str to float
        Milliseconds by stage, without what `arrival` tells.
    arrival : callable, optional
        Waits for the features; None: they are there.

    """

    clips: int
    features: np.ndarray | None
    packed: np.ndarray | None
    change: np.ndarray | None
    timings: dict[str, float]
    arrival: Arrival | None = None


class Flight(Protocol):
    """A pass under way."""

    def done(self) -> bool:
        """Whether everything is there, features too."""

    def land(self) -> Landed:
        """Wait for the results, but for features only `Landed.arrival` does."""


@dataclass(frozen=True)
class Arrived:
    """A pass that is over before anybody asks."""

    landed: Landed

    def done(self) -> bool:
        return True

    def land(self) -> Landed:
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

    """

    def __init__(self, flights: Sequence[Flight], build: Callable[[Landed], list[Output]],
                 report: Callable[[dict[str, float]], None]):
        self._flights = flights
        self._build = build
        self._report = report
        self._lock = threading.Lock()
        self._outputs: list[Output] | None = None
        self._arrivals: list[Arrival] = []      # that nobody has waited for here
        self.timings: dict[str, float] = {}

    def done(self) -> bool:
        """Whether `result` would not wait."""
        return all(flight.done() for flight in tuple(self._flights))

    def early(self) -> list[Output]:
        """As `result`, but features may still be on their way: `Output.features` waits for them.

        All else is there. The times of these features are not among `timings`, see
        `Output.arrive`.
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
            landed = [flight.land() for flight in self._flights]
            self._outputs = [output for one in landed for output in self._build(one)]
            self._arrivals = [one.arrival for one in landed if one.arrival is not None]
            if landed:
                self._tell(one.timings for one in landed)
        return self._outputs

    def _tell(self, parts: Iterable[Mapping[str, float]]) -> None:
        self.timings = _total(parts)
        self._report(self.timings)


def _total(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in parts:
        for stage, ms in part.items():
            total[stage] = total.get(stage, 0.0) + ms
    return total
