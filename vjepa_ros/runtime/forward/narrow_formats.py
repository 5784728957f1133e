# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Choose which parts of an encoder run in a narrow format, so that its features stay exact."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.runtime.device import SessionError
from vjepa_ros.runtime.memory import is_out_of_memory
from vjepa_ros.runtime.noise_floor import random_scene

# Rms error of the features that a narrow format may add, relative to their rms, on the clips of
# `trials`. With up to 1.7 % of bf16, and other clips than these, that stays below 3 %.
MOST = 0.018
STEP = 3            # by which the picture of a trial moves from frame to frame [px]

Part = tuple[int, str]          # layer, and which of its matrices
Key = TypeVar('Key', bound=Hashable)


def trials(clip_shape: tuple[int, ...], seed: int = 0) -> Tensor:
    """Make clips (2, T, S, S, 3) uint8: a picture that moves, and random pixels."""
    frames, side = clip_shape[:2]
    rng = np.random.default_rng(seed)
    wide = random_scene(rng, side + STEP * frames)
    moving = [wide[STEP * n:][:side, STEP * n:STEP * n + side] for n in range(frames)]
    noise = rng.integers(0, 256, clip_shape, dtype=np.uint8)
    return torch.from_numpy(np.stack([np.rint(np.stack(moving)).astype(np.uint8), noise]))


def choose(parts: Mapping[Key, int], features: Callable[[frozenset[Key]], Tensor],
           most: float = MOST, probe: Callable[[frozenset[Key]], Tensor] | None = None
           ) -> tuple[frozenset[Key], float]:
    """Choose as many parts for the narrow format as keep the features exact.

    All parts if possible. Otherwise each is tried alone, they are sorted by squared error per
    weight, and the longest prefix is taken with which the features are exact enough.

    `features`: callable Features (B, ...) of some clips with a set of parts in the narrow format.
    """
    exact = features(frozenset())
    error = max_error(features(frozenset(parts)), exact)
    if error <= most:
        return frozenset(parts), error
    probe = probe or features
    known = probe(frozenset())
    cost = {part: max_error(probe(frozenset([part])), known) ** 2 / worth
            for part, worth in parts.items()}
    order = sorted((part for part in parts if cost[part] < float('inf')), key=cost.__getitem__)
    errors = {0: 0.0}
    low, high = 0, len(order)
    while low < high:
        middle = (low + high + 1) // 2
        errors[middle] = max_error(features(frozenset(order[:middle])), exact)
        low, high = (middle, high) if errors[middle] <= most else (low, middle - 1)
    return frozenset(order[:low]), errors[low]


def describe(narrow: str, wide: str, parts: Mapping[Part, int], chosen: frozenset[Part],
             error: float) -> str:
    """Say which parts are in the format `narrow`, the rest in `wide`, for logs and diagnostics."""
    kinds = dict.fromkeys(name for _, name in parts)
    depth = len(parts) // len(kinds)
    counts = ', '.join(f'{kind} of {sum(name == kind for _, name in chosen)}' for kind in kinds)
    share = sum(parts[one] for one in chosen) / sum(parts.values())
    return (f'{narrow}: {counts} of {depth} layers ({100 * share:.0f} % of their weights), the '
            f'rest {wide}, so that the features change by {100 * error:.1f} % on trial clips')


def failed(precision: str, device: torch.device, error: RuntimeError, remedy: str) -> SessionError:
    """Make the error for a format that could not be tried."""
    why = ('there is no memory to try it' if is_out_of_memory(error)
           else f'{type(error).__name__}: {error}')
    return SessionError(f"precision '{precision}' does not run on {device}: {why}; {remedy}")


def useless(precision: str, narrow: str, remedy: str) -> SessionError:
    """Make the error for weights of which nothing may be in the format `narrow`."""
    return SessionError(
        f"precision '{precision}' is of no use for these weights: no matrix can be in {narrow} "
        f'without an error of the features that is too large; {remedy}')


def max_error(got: Tensor, exact: Tensor) -> float:
    """Return the largest error of a clip, rms over rms; infinity if a number is not finite."""
    off, size = (values.flatten(1).double().square().sum(1).sqrt()
                 for values in (got - exact, exact))
    error = float((off / size).max())
    return error if error == error else float('inf')
