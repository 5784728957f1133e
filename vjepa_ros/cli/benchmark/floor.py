# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The floor under the encoder's time: its matrix products and attention, and nothing else.

No norms, no positions, no biases, no residuals, no activation. On CUDA the products are replayed
from a graph, so that gaps between launches are left out too.
"""

from __future__ import annotations

from contextlib import nullcontext
from itertools import cycle

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from vjepa_ros.cli.benchmark.case import Case
from vjepa_ros.cli.benchmark.clock import device_ms
from vjepa_ros.model.variants import PATCH, TUBELET, find_variant

INPUTS = 4          # sets of random data that take turns
TRIALS = 10         # runs that choose the kind of attention
WARM_RUNS = 3
# Older PyTorch lacks one of them.
BACKENDS = {name: getattr(SDPBackend, f'{name.upper()}_ATTENTION')
            for name in ('flash', 'cudnn', 'efficient')
            if hasattr(SDPBackend, f'{name.upper()}_ATTENTION')}


class Floor:
    """Bare matrix products and attention in the shapes of a case, ready to run.

    On CUDA every kind of fused attention is tried, and the fastest is taken: a floor that a
    better kernel goes below would be none.

    Parameters
    ----------
    case
        Sizes.
    device, dtype
        Where, and in which type.

    Attributes
    ----------
    attention : str
        Kind of attention in use.
    tried_ms : dict of str to float
        Median of a few runs with each kind.
    """

    def __init__(self, case: Case, device: torch.device, dtype: torch.dtype) -> None:
        self._device = device
        self._variant = find_variant(case.model_size)
        self._shape = (case.cameras, case.tokens)
        dim, mlp = self._variant.dim, self._variant.mlp
        made = {'device': device, 'dtype': dtype}
        # Variance one in and out: zeros or overflow would change what the device draws in power.
        self._patch = torch.randn(dim, 3 * TUBELET * PATCH ** 2, **made) / 1536 ** 0.5
        self._layers = [tuple(torch.randn(*shape, **made) / shape[1] ** 0.5 for shape in
                              ((3 * dim, dim), (dim, dim), (mlp, dim), (dim, mlp)))
                        for _ in range(self._variant.depth)]
        self._sets = [[torch.randn(*self._shape, width, **made)
                       for width in (3 * TUBELET * PATCH ** 2, dim, dim, dim)]
                      for _ in range(INPUTS)]
        self._turn = cycle(self._sets)
        self._static = [x.clone() for x in self._sets[0]]
        self.attention, self.tried_ms = 'default', {}
        self._graph: torch.cuda.CUDAGraph | None = None
        if device.type == 'cuda':
            self._choose()
        else:
            for _ in range(WARM_RUNS):
                self.step()

    @torch.inference_mode()
    def step(self) -> dict[str, float]:
        """Run once; the time [ms] is called encode."""
        for static, new in zip(self._static, next(self._turn), strict=True):
            static.copy_(new)
        work = self._graph.replay if self._graph is not None else self._work
        return {'encode': device_ms(self._device, work)}

    def _work(self) -> None:
        patches, *acts = self._static
        heads = self._variant.heads
        F.linear(patches, self._patch)
        for number, (qkv, proj, fc1, fc2) in enumerate(self._layers):
            split = F.linear(acts[number % 3], qkv).unflatten(-1, (3, heads, -1))
            q, k, v = split.permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
            F.linear(mixed, proj)
            F.linear(F.linear(acts[(number + 1) % 3], fc1), fc2)

    def _choose(self) -> None:
        graphs: dict[str, torch.cuda.CUDAGraph] = {}
        for name, backend in {'default': None, **BACKENDS}.items():
            try:
                graphs[name] = self._capture(backend)
            except RuntimeError as error:       # this kind does not take these shapes or types
                if 'kernel' not in str(error).lower():
                    raise
                continue
            self._graph = graphs[name]
            times = sorted(self.step()['encode'] for _ in range(TRIALS))
            self.tried_ms[name] = round(times[TRIALS // 2], 4)
        self.attention = min(self.tried_ms, key=self.tried_ms.__getitem__)
        self._graph = graphs[self.attention]

    def _capture(self, backend: SDPBackend | None) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with torch.inference_mode(), torch.cuda.device(self._device), \
                nullcontext() if backend is None else sdpa_kernel(backend):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):       # libraries set themselves up outside the graph
                for _ in range(WARM_RUNS):
                    self._work()
            torch.cuda.current_stream().wait_stream(side)
            with torch.cuda.graph(graph):
                self._work()
        return graph


def floor_dtype(dtype: torch.dtype) -> torch.dtype:
    """Type of the floor: that of the run, or of what is left of it beside narrower matrices."""
    if dtype == torch.int8:
        return torch.float32
    return dtype if dtype in (torch.float32, torch.float16) else torch.bfloat16


def random_patches(case: Case, device: torch.device, dtype: torch.dtype, count: int
                   ) -> list[Tensor]:
    """Normalised random clips (cameras, frames, 3, side, side) on a device."""
    shape = (case.cameras, case.num_frames, 3, case.image_size, case.image_size)
    return [torch.randn(shape, device=device, dtype=dtype) for _ in range(count)]
