# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The floor under the time of a search: its matrix products and attention, and nothing else.

No norms, positions, biases, residuals, activations or energies, on random data. What plans have
in common in the first step is computed once here, too.
"""

from __future__ import annotations

from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import sdpa_kernel

from vjepa_ros.cli.benchmark.clock import device_ms
from vjepa_ros.cli.benchmark.floor import BACKENDS
from vjepa_ros.planning.cost import TOLD, Shapes

TRIALS = 3
MLP = 4  # times the width


class PlanFloor:
    """Passes of plans as bare products, ready to run.

    On CUDA every kind of fused attention is tried, and the fastest is taken.

    Parameters
    ----------
    shapes : Shapes
        Of the world model.
    heads : int
        Of its predictor.
    batch, steps : int
        Plans in one pass, and steps of a plan.
    device, dtype
        Where, and in which type.

    Attributes
    ----------
    attention : str
        Kind of attention in use.
    tried_ms : dict of str to float
        Least time of one pass with each kind.
    """

    def __init__(self, shapes: Shapes, heads: int, batch: int, steps: int, device: torch.device,
                 dtype: torch.dtype) -> None:
        self._shapes, self._heads, self._batch, self._steps = shapes, heads, batch, steps
        self._device = device
        made = {'device': device, 'dtype': dtype}
        p, d = shapes.width, shapes.encoder.dim

        def matrix(rows: int, cols: int) -> Tensor:
            # Variance one in and out: what numbers are there decides about the power drawn.
            return torch.randn(rows, cols, **made) / rows ** 0.5

        self._embed, self._project = matrix(d, p), matrix(p, d)
        self._layers = [(matrix(p, 3 * p), matrix(p, p), matrix(p, MLP * p), matrix(MLP * p, p))
                        for _ in range(shapes.depth)]
        self._tokens = torch.randn(batch * shapes.tokens, p, **made)
        self._features = torch.randn(batch * shapes.patches, d, **made)
        self._shared = torch.randn(TOLD * batch + shapes.patches, p, **made)
        self._qkv = torch.randn(batch, shapes.tokens, 3 * p, **made)
        self._seen = torch.randn(batch, steps * shapes.tokens, 2 * p, **made)
        self._backend: str = 'default'
        self.tried_ms: dict[str, float] = {}
        for name in ('default', *(BACKENDS if device.type == 'cuda' else ())):
            self._backend = name
            try:
                times = [device_ms(device, self.one_pass) for _ in range(TRIALS)]
            except RuntimeError as error:       # this kind does not take these shapes or types
                if 'kernel' not in str(error).lower():
                    raise
                continue
            self.tried_ms[name] = round(min(times), 3)
        self.attention = min(self.tried_ms, key=self.tried_ms.__getitem__)
        self._backend = self.attention

    @torch.inference_mode()
    def one_pass(self) -> None:
        """All steps of one pass of plans."""
        with nullcontext() if self._backend == 'default' else sdpa_kernel(
                BACKENDS[self._backend]):
            for step in range(self._steps):
                self._step(step)

    def _step(self, step: int) -> None:
        n, b, heads = self._shapes.tokens, self._batch, self._heads
        features = self._features if step else self._features[:self._shapes.patches]
        _ = features @ self._embed
        # Joining keys and values with those of the steps before is no product, so they stand
        # together already.
        k, v = self._seen[:, :(step + 1) * n].unflatten(2, (2, heads, -1)).permute(2, 0, 3, 1, 4)
        for number, (qkv, proj, fc1, fc2) in enumerate(self._layers):
            if step or number:
                made = (self._tokens @ qkv).view(b, n, -1)
            else:
                _ = self._shared @ qkv
                made = self._qkv
            q = made[:, :, :self._shapes.width].unflatten(2, (heads, -1)).transpose(1, 2)
            mixed = F.scaled_dot_product_attention(q, k, v)
            _ = mixed.transpose(1, 2).reshape(b * n, -1) @ proj
            _ = (self._tokens @ fc1) @ fc2
        _ = self._tokens @ self._project
