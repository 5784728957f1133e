# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Describe the place that a picture shows, to find it again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vjepa_ros.model.variants import find_variant
from vjepa_ros.runtime.engine import Engine

CELLS = 2       # per side, over which patches are averaged


def embed(engine: Engine, pictures: Sequence[np.ndarray]) -> np.ndarray:
    """Return the embeddings of pictures, of nothing but these.

    They are features from the middle of the encoder, averaged over `CELLS` x `CELLS` cells, of a
    tubelet that shows a picture twice. The last layer, and a past in which the camera moved, tell
    how things move, which hides the place (docs/score.md).

    `pictures`: uint8 (S, S, 3), as the encoder gets them.
    """
    middle = find_variant(engine.config.model_size).depth // 2 - 1
    stills = [[picture] * engine.config.num_frames for picture in pictures]
    found = engine.features(stills, layers=(middle,), newest=1)
    return np.array([cells_of(layers[0, 0]) for layers in found], np.float32)


def cells_of(features: np.ndarray) -> np.ndarray:
    """Return the means (CELLS^2 D,) of the features (Hp, Wp, D) of patches over cells."""
    rows = [part for half in np.array_split(features, CELLS)
            for part in np.array_split(half, CELLS, axis=1)]
    return np.concatenate([part.mean(axis=(0, 1)) for part in rows])
