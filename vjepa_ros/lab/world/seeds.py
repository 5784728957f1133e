# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Turn the seed of a run into the seeds of its parts, so that no part depends on another.

Every random choice of a run is a function of its seed, the step, the rank of the process and
the stream it is for. A run that is stopped and continued therefore draws the same numbers as
one that ran through, and no state of a generator has to be kept.
"""

from __future__ import annotations

import hashlib

import torch

TRAINING_SEEDS = 1_000_000_000       # training draws worlds with seeds below this
HELD_OUT_SEED = 1_000_000_000        # first seed of the clips that figures are given for
CALIBRATION_SEED = 2_000_000_000     # first seed of the clips that calibration is fitted on
VALIDATION_SEED = 2_100_000_000      # first seed of the clips that are watched while training
SPLIT_BATCH = 100                    # clips per seed in the splits above


def derive(seed: int, stream: str, *where: int) -> int:
    """Seed 0 .. TRAINING_SEEDS - 1 of a stream at a place, such as (step, rank)."""
    text = ' '.join([stream, str(seed), *map(str, where)])
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, 'little') % TRAINING_SEEDS


def generator(seed: int, stream: str, *where: int) -> torch.Generator:
    """Return a generator on the CPU for a stream at a place."""
    return torch.Generator().manual_seed(derive(seed, stream, *where))
