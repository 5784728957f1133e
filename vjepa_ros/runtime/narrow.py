# SPDX-License-Identifier: Apache-2.0
"""Choose which parts of an encoder run in a narrow format, so that its features stay exact."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.runtime.noise import random_scene

# Rms error of the features that float8 may add, relative to their rms, on the clips of `trials`.
# With up to 1.7 % of bf16, and other clips than these, that stays below 3 %.
MOST = 0.018
STEP = 3            # by which the picture of a trial moves from frame to frame [px]

Look = Callable[[frozenset], Tensor]


def trials(clip_shape: tuple[int, ...]) -> Tensor:
    """Clips (2, T, S, S, 3) uint8: a picture that moves, and random pixels."""
    frames, side = clip_shape[:2]
    rng = np.random.default_rng(0)
    wide = random_scene(rng, side + STEP * frames)
    moving = [wide[STEP * n:][:side, STEP * n:STEP * n + side] for n in range(frames)]
    noise = rng.integers(0, 256, clip_shape, dtype=np.uint8)
    return torch.from_numpy(np.stack([np.rint(np.stack(moving)).astype(np.uint8), noise]))


def choose(parts: Mapping[Hashable, int], look: Look, most: float = MOST
           ) -> tuple[frozenset, float]:
    """As much in the narrow format as keeps the features exact.

    Each part is tried alone. They are ordered by error for what they are worth, and of this order
    the longest beginning is taken with which the features are exact enough.

    Parameters
    ----------
    parts : mapping of hashable to int
        What may be narrow, and how much it is worth.
    look : callable
        Features (B, ...) of some clips with a set of parts in the narrow format.
    most : float
        Largest error, of each clip.

    Returns
    -------
    frozenset, float
        The parts, and the error with them.

    """
    exact = look(frozenset())
    cost = {part: max_error(look(frozenset([part])), exact) ** 2 / worth
            for part, worth in parts.items()}
    order = sorted((part for part in parts if cost[part] < float('inf')), key=cost.__getitem__)
    errors = {0: 0.0}
    low, high = 0, len(order)
    while low < high:
        middle = (low + high + 1) // 2
        errors[middle] = max_error(look(frozenset(order[:middle])), exact)
        low, high = (middle, high) if errors[middle] <= most else (low, middle - 1)
    return frozenset(order[:low]), errors[low]


def max_error(got: Tensor, exact: Tensor) -> float:
    """Largest error of a clip, rms over rms; infinity where a number is not finite."""
    off, size = ((values.flatten(1).double().square().sum(1).sqrt()) for values in
                 (got - exact, exact))
    error = float((off / size).max())
    return error if error == error else float('inf')
