# SPDX-License-Identifier: Apache-2.0
"""A pass that is under way, and the results that a caller waits for."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from vjepa_ros.runtime.outputs import Output


@dataclass(frozen=True)
class Landed:
    """What one pass gives.

    Attributes
    ----------
    clips : int
        How many it was of.
    features : ndarray, optional
        (B, T', Hp, Wp, D) float32.
    packed : ndarray, optional
        (B, ...) float32 of the heads, see `pack`.
    change : ndarray, optional
        (B, T', Hp, Wp) float32, see `ChangeReader`.
    timings : dict of str to float
        Milliseconds by stage.

    """

    clips: int
    features: np.ndarray | None
    packed: np.ndarray | None
    change: np.ndarray | None
    timings: dict[str, float]


class Flight(Protocol):
    """A pass under way."""

    def done(self) -> bool:
        """Whether `land` would not wait."""

    def land(self) -> Landed:
        """Wait for the results. May be called again."""


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
        self.timings: dict[str, float] = {}

    def done(self) -> bool:
        """Whether `result` would not wait."""
        return all(flight.done() for flight in tuple(self._flights))

    def result(self) -> list[Output]:
        """Wait for the results: one for each clip, see `EncoderSession.run`."""
        with self._lock:
            if self._outputs is None:
                landed = [flight.land() for flight in self._flights]
                self._outputs = [output for one in landed for output in self._build(one)]
                self.timings = dict(sum((Counter(one.timings) for one in landed), Counter()))
                self._flights = ()
                if landed:
                    self._report(self.timings)
            return self._outputs
