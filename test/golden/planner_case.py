# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What is planned with the reference implementation and with ours, from the same numbers.

As in `cases.py` everything follows from formulas, so that only results have to be stored.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

try:
    from golden.cases import noise
except ImportError:  # run as a script in this folder
    from cases import noise

COMMIT = 'c2963a47433ecca0ad4f06ec28bcfa8cb5b5cefb'
FILE = 'planner.npz'
SIDE = 64                       # of the pictures [px]
ENCODER = (128, 2, 2, 512)      # width, depth, heads, MLP
PREDICTOR = (128, 3, 2)         # width, depth, heads
SAMPLES, ELITES, ITERATIONS, STEPS = 24, 5, 4, 2
STATE = (0.4, -0.1, 0.3, 0.5, -0.4, 2.0, 0.35)


def picture(seed: int) -> np.ndarray:
    """(S, S, 3) uint8."""
    return ((noise(SIDE, SIDE, 3, seed=seed) + 0.5) * 255).round().to(torch.uint8).numpy()


def search_noise() -> Tensor:
    """(iterations, T, S, 4) with variance 1."""
    return math.sqrt(12) * noise(ITERATIONS, STEPS, SAMPLES, 4, seed=77)


def poses() -> tuple[Tensor, Tensor]:
    """States and actions (B, 7) with rotations of any size."""
    states, actions = noise(40, 7, seed=5), noise(40, 7, seed=6)
    states[:, 3:6] *= 2 * math.pi
    actions[:, 3:6] *= 2 * math.pi
    return states, 2.0 * actions
