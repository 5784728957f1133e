# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What the planner has found: the plan, and how sure and how dear it is.

T steps, S samples, A numbers of an action.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from vjepa_ros.planning.energy_test import Gap


@dataclass(frozen=True)
class Plan:
    """What planning has found, or why it found nothing to act on.

    Attributes
    ----------
    refusal : str
        Why `actions` should not be taken; '' when they may.
    trained : bool
        False when a network has random weights: nothing here means anything then.
    names : tuple of str
        Of the A numbers of an action.
    actions : ndarray
        (T, A) the best plan; the first row is to be taken now. None when there is none. It is
        there also when the gap is noise, for those who want to look.
    told : ndarray
        (T, 7) the same as the model was told, and as a pose changes.
    samples, energies : ndarray
        (S, T, A) and (S,): the plans of the last iteration that came to its end.
    history : ndarray
        (iterations done, S) energies of all of them.
    iterations, wanted : int
        Iterations that came to their end, and that were asked for.
    stopped : str
        Why there are fewer: 'cancelled', 'budget' or ''.
    gap : Gap, optional
        How much better the plan is than random ones; None when it was not measured.
    flops : int
        Floating-point operations of what came to its end, see `cost`.
    energy_now : float
        Energy of the newest picture itself, as it is now; NaN when it was not encoded. It falls
        while the goal comes nearer.
    seconds : dict of str to float
        Time of encode, search, gap and total [s].

    """

    refusal: str
    trained: bool
    names: tuple[str, ...]
    actions: np.ndarray | None
    told: np.ndarray | None
    samples: np.ndarray
    energies: np.ndarray
    history: np.ndarray
    iterations: int
    wanted: int
    stopped: str
    gap: Gap | None
    flops: int
    energy_now: float = math.nan
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def ranks(self) -> np.ndarray:
        """(S,) int64: 0 for the sample of least energy."""
        ranks = np.empty(len(self.energies), np.int64)
        ranks[np.argsort(self.energies, kind='stable')] = np.arange(len(self.energies))
        return ranks

    def __str__(self) -> str:
        text = '' if self.trained else 'UNTRAINED (random weights): '
        text += f'refused: {self.refusal}' if self.refusal else 'plan found'
        if self.actions is not None:
            first = ', '.join(f'{name} {value:.4g}' for name, value in
                              zip(self.names, self.actions[0], strict=True))
            text += f'; first action {first}; least energy '
            text += f'{self.energies.min():.5g}, now {self.energy_now:.5g}'
        if self.gap is not None:
            text += f'; {self.gap}'
        stop = f' (stopped: {self.stopped})' if self.stopped else ''
        return (f'{text}; {self.iterations} of {self.wanted} iterations{stop}, '
                f'{self.flops / 1e12:.3g} TFLOP in {self.seconds.get("total", math.nan):.3g} s')
