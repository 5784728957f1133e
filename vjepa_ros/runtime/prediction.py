# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What a model says of a clip, as NumPy arrays; on a GPU it may still be under way."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.model.head_specs import (
    Calibration,
    HeadOutputs,
    HeadSpec,
    to_arrays,
)
from vjepa_ros.model.heads import Branch, Heads, IN_TURN
from vjepa_ros.runtime.noise_floor import Change


class HeadArrays(SimpleNamespace):
    """Calibrated results of the heads for one clip, by name, float32; times in frame intervals.

    expansion (Hp, Wp): looming rate times frame interval; positive: closing in
    scale (Hp, Wp): of the Laplace distribution of its error; standard deviation over sqrt(2)
    moving, course (Hp, Wp): probability that the surface moves by itself; that it will enter the
    robot's volume at constant velocities
    contact (K+1,), clearance (C+1,): probability of each bin of `CONTACT_EDGES` and
    `CLEARANCE_EDGES` [m]; the last one: later or never, farther or free
    """

    if TYPE_CHECKING:
        def __getattr__(self, name: str) -> np.ndarray: ...


class Pass:
    """One pass of a model over some clips. This one is over; on a GPU it may be under way."""

    def __init__(self, values: np.ndarray, features: np.ndarray | None,
                 timings: dict[str, float], change_shape: tuple[int, ...] = ()):
        # (B, n) float32: heads (see `pack`), a number that is NaN where the clip is not finite,
        # and the change of the features, if its shape (T', Hp, Wp) is given
        self.values = values
        self.features = features        # (B, T', Hp, Wp, D) float32
        self.timings = timings          # milliseconds by stage
        self.change_shape = change_shape

    def arrived(self) -> bool:
        return True

    def wait(self) -> None:
        """Wait for everything but the features, or raise what went wrong."""

    def wait_for_features(self) -> float:
        return 0.0


class Prediction:
    """What a model says of one clip. `Model.wait` fills in one of `Model.submit`."""

    def __init__(self, features: np.ndarray | None = None, heads: HeadArrays | None = None,
                 source: Pass | None = None, index: int = 0, keys: Sequence[Hashable] = ()):
        self.heads, self.source, self.keys = heads, source, keys    # keys of its frames
        self.change: Change | None = None   # where asked for, on CUDA; else it follows of features
        self.finite = True      # else there is nothing else
        self._features, self._index = features, index

    def fill(self, side: int, specs: Sequence[HeadSpec]) -> None:
        """Read the results of a pass that has arrived, with `side` patches per side."""
        source = self.source
        assert source is not None
        row, shape = source.values[self._index], source.change_shape
        end = len(row) - (math.prod(shape) if shape else 0)
        self.finite = math.isfinite(row[end - 1])
        if not self.finite:
            return
        if end > 1:
            self.heads = unpack(row, side, side, specs)
        if shape:
            changed = row[end:].reshape(shape)
            self.change = Change(changed[:-1], changed[-1])
        if source.features is not None:
            self._features = source.features[self._index]

    def arrived(self) -> bool:
        return self.source is None or self.source.arrived()

    @property
    def has_features(self) -> bool:
        return self._features is not None

    @property
    def features(self) -> np.ndarray | None:
        """(T', Hp, Wp, D) float32, when asked for; waits for them."""
        if self.source is not None:
            self.source.wait_for_features()
        return self._features


def pack(outputs: HeadOutputs) -> Tensor:
    """Pack calibrated outputs into one tensor, so that one download brings all."""
    return torch.cat([one.reshape(len(one), -1) for one in to_arrays(outputs).values()], dim=1)


def checked(features: Tensor) -> Tensor:
    """Return for each clip 0 where all its features are finite, else NaN: (B, 1) float32."""
    return features.flatten(1).sum(1, keepdim=True, dtype=torch.float32) * 0.0


def reading(heads: Heads, calibration: Calibration,
            branch: Branch = IN_TURN) -> Callable[[Tensor], Tensor]:
    """Make the function from features of clips to their packed heads, and last of `checked`."""
    def read(features: Tensor) -> Tensor:
        packed = pack(calibration.apply(heads(features, branch)))
        return torch.cat([packed, checked(features) + checked(packed)], dim=1)

    return read


def unpack(packed: np.ndarray, rows: int, cols: int, specs: Sequence[HeadSpec]) -> HeadArrays:
    """Unpack the heads of one clip, from `pack` of these heads."""
    arrays, start = {}, 0
    for name, shape in _shapes(rows, cols, tuple(specs)):
        end = start + math.prod(shape)
        arrays[name] = packed[start:end].reshape(shape)
        start = end
    return HeadArrays(**arrays)


@lru_cache(16)
def _shapes(rows: int, cols: int, specs: tuple[HeadSpec, ...]
            ) -> list[tuple[str, tuple[int, ...]]]:
    """Return name and shape of each array among the packed numbers of a clip."""
    return [item for spec in specs for item in spec.array_shapes(rows, cols).items()]
