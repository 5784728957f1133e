# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""How much arithmetic and memory a plan takes.

Floating-point operations of the matrix products and of attention, two for each multiplication
with its addition; norms, activations and rotations, below 1 %, are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from vjepa_ros.model.ac_predictor import ActionPredictor
from vjepa_ros.model.variants import PATCH, TUBELET, Variant

TOLD = 2  # tokens of a step besides the patches


@dataclass(frozen=True)
class Shapes:
    """Sizes that decide about the cost.

    Attributes
    ----------
    encoder : Variant
        Size of the encoder.
    width, depth : int
        Of the predictor, whose MLP is four times as wide.
    patches : int
        Of one picture.

    """

    encoder: Variant
    width: int
    depth: int
    patches: int

    @classmethod
    def of(cls, encoder: Variant, predictor: ActionPredictor, patches: int) -> Shapes:
        """Of two networks and the patches of a picture."""
        return cls(encoder, predictor.predictor_norm.normalized_shape[0],
                   len(predictor.predictor_blocks), patches)

    @property
    def tokens(self) -> int:
        """Tokens of one step of a plan."""
        return self.patches + TOLD

    def encode_flops(self) -> int:
        """To encode one picture."""
        n, d = self.patches, self.encoder.dim
        block = n * (8 * d * d + 4 * d * self.encoder.mlp) + 4 * n * n * d
        return self.encoder.depth * block + 2 * n * d * 3 * TUBELET * PATCH * PATCH

    def step_flops(self, step: int) -> int:
        """Of step number `step`, from 1, of one plan, with the steps before it kept."""
        n, p, d = self.tokens, self.width, self.encoder.dim
        block = 24 * n * p * p + 4 * n * (step * n) * p
        return self.depth * block + 2 * (2 * self.patches * d * p)

    def rollout_flops(self, steps: int) -> int:
        """Of all steps of one plan."""
        return sum(self.step_flops(step) for step in range(1, steps + 1))

    def bytes_per_plan(self, itemsize: int, steps: int) -> int:
        """Memory that one plan of a pass needs at most, in numbers of `itemsize` bytes."""
        n, p, d = self.tokens, self.width, self.encoder.dim
        # Before the last step keys and values, which stand beside the queries where they were
        # made first; while they are joined, those of one block twice.
        kept = self.depth * (steps - 1) * n * 3 * p + 2 * steps * n * 2 * p if steps > 1 else 0
        block = n * p * (1 + 3 + 1 + 1 + 4 + 1)   # norm, queries keys values, attention, MLP
        passing = 4 * n * p * 2 + 4 * n * d * 3   # residual stream and features in float32
        return itemsize * (kept + block + n * d) + passing
