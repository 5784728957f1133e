# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Baselines for the encoder: its bare matrix products, and the transformers library.

The floor is the matrix products and attention of the encoder, without norms, positions, biases,
residuals and activations. On CUDA it is replayed from a graph, without gaps between launches.
V-JEPA 2 of the transformers library runs as its users run it, on normalised clips that are on the
device. Both have the shape of the case and random weights.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from itertools import cycle
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from vjepa_ros.cli.benchmark.case import Case
from vjepa_ros.cli.benchmark.clock import device_ms
from vjepa_ros.model.variants import PATCH, TUBELET, find_variant

INPUTS = 4          # sets of random data, used in turn
TRIALS = 10         # runs to choose the kind of attention
WARM_RUNS = 3
HF_WARM_RUNS = {'eager': 2, 'compiled': 5}     # compiled: compile, record the graph, replay
# Kinds of fused attention; older PyTorch lacks one of them.
BACKENDS = {name: getattr(SDPBackend, f'{name.upper()}_ATTENTION')
            for name in ('flash', 'cudnn', 'efficient')
            if hasattr(SDPBackend, f'{name.upper()}_ATTENTION')}


def attention(name: str) -> AbstractContextManager[object]:
    """Use one of `BACKENDS`, or the choice of PyTorch for 'default'."""
    return nullcontext() if name == 'default' else sdpa_kernel(BACKENDS[name])


def fastest_attention(device: torch.device, take_ms: Callable[[str], float]
                      ) -> tuple[str, dict[str, float]]:
    """Return the fastest kind of attention, and the times [ms] of all that run.

    On CUDA every kind is tried, because a floor must not be slower than any kernel.
    """
    tried: dict[str, float] = {}
    for name in ('default', *(BACKENDS if device.type == 'cuda' else ())):
        try:
            tried[name] = round(take_ms(name), 4)
        except RuntimeError as error:       # this kind does not take these shapes or types
            if 'kernel' not in str(error).lower():
                raise
    return min(tried, key=tried.__getitem__), tried


class Floor:
    """Bare matrix products and attention in the shapes of a case, ready to run.

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
        dim, mlp = self._variant.dim, self._variant.mlp
        made = {'device': device, 'dtype': dtype}
        # Variance one in and out, because zeros or overflow would change the power draw.
        self._patch = torch.randn(dim, 3 * TUBELET * PATCH ** 2, **made) / 1536 ** 0.5
        self._layers = [tuple(torch.randn(*shape, **made) / shape[1] ** 0.5 for shape in
                              ((3 * dim, dim), (dim, dim), (mlp, dim), (dim, mlp)))
                        for _ in range(self._variant.depth)]
        sets = [[torch.randn(case.cameras, case.tokens, width, **made)
                 for width in (3 * TUBELET * PATCH ** 2, dim, dim, dim)] for _ in range(INPUTS)]
        self._turn = cycle(sets)
        self._static = [x.clone() for x in sets[0]]
        self._replay = self._work
        ways: dict[str, Callable[[], None]] = {}

        def take_ms(name: str) -> float:
            ways[name] = self._replay = self._ready(name)
            runs = TRIALS if device.type == 'cuda' else WARM_RUNS
            return sorted(self.step()['encode'] for _ in range(runs))[runs // 2]

        self.attention, self.tried_ms = fastest_attention(device, take_ms)
        self._replay = ways[self.attention]

    @torch.inference_mode()
    def step(self) -> dict[str, float]:
        """Run once; ``encode`` is the time [ms]."""
        for static, new in zip(self._static, next(self._turn), strict=True):
            static.copy_(new)
        return {'encode': device_ms(self._device, self._replay)}

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

    def _ready(self, name: str) -> Callable[[], None]:
        """Prepare the work with a kind of attention: a graph on CUDA."""
        if self._device.type != 'cuda':
            return self._work
        graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream(self._device)
        with torch.inference_mode(), torch.cuda.device(self._device), attention(name):
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):       # libraries initialise outside the graph
                for _ in range(WARM_RUNS):
                    self._work()
            torch.cuda.current_stream().wait_stream(side)
            with torch.cuda.graph(graph):
                self._work()
        return graph.replay


def floor_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type of the floor: that of the run, or of its parts beside narrower matrices."""
    if dtype == torch.int8:
        return torch.float32
    return dtype if dtype in (torch.float32, torch.float16) else torch.bfloat16


def huggingface_problem() -> str:
    """Return why the transformers library cannot be measured here; '' when it can."""
    if find_spec('transformers') is None:
        return ('--baseline hf needs the transformers library, which is not installed here: '
                'pip install transformers')
    return ''


def make_huggingface(case: Case, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """Make a `VJEPA2Model` in the shape of a case, with random weights."""
    from transformers.models.vjepa2 import (  # pyright: ignore[reportMissingImports]  # optional
        VJEPA2Config,
        VJEPA2Model,
    )
    variant = find_variant(case.model_size)
    config = VJEPA2Config(
        crop_size=case.image_size, frames_per_clip=case.num_frames, hidden_size=variant.dim,
        num_hidden_layers=variant.depth, num_attention_heads=variant.heads,
        mlp_ratio=(variant.mlp + 0.5) / variant.dim,    # the library rounds down
        pred_num_hidden_layers=1)                       # the predictor does not run
    with torch.device('meta'):      # its initialisation takes long on the CPU
        model: nn.Module = VJEPA2Model(config)
    model = nn.Module.to(model, dtype).to_empty(device=device).eval()
    with torch.no_grad():
        for module in model.modules():
            for name, values in module.named_parameters(recurse=False):
                if isinstance(module, nn.LayerNorm):
                    values.fill_(1.0 if name == 'weight' else 0.0)
                else:
                    values.normal_(std=0.02)
    return model


class HuggingFace:
    """`VJEPA2Model` without its predictor, ready to run.

    Parameters
    ----------
    model
        From `make_huggingface`; several contenders may share it.
    case, device, dtype
        As in `make_huggingface`.
    compiled
        Use ``torch.compile(mode='reduce-overhead')``, which also replays a CUDA graph.
    """

    def __init__(self, model: nn.Module, case: Case, device: torch.device, dtype: torch.dtype,
                 compiled: bool) -> None:
        self._device, self._compiled = device, compiled
        self._call: Any = torch.compile(model, mode='reduce-overhead') if compiled else model
        shape = (case.cameras, case.num_frames, 3, case.image_size, case.image_size)
        clips = [torch.randn(shape, device=device, dtype=dtype) for _ in range(INPUTS)]
        self._clips = cycle(clips)
        self._static: Tensor = clips[0].clone()
        for _ in range(HF_WARM_RUNS['compiled' if compiled else 'eager']):
            self.step()

    @torch.inference_mode()
    def step(self) -> dict[str, float]:
        """Run once; ``encode`` is the time [ms]."""
        self._static.copy_(next(self._clips))
        if self._compiled:
            torch.compiler.cudagraph_mark_step_begin()
        return {'encode': device_ms(
            self._device, lambda: self._call(self._static, skip_predictor=True))}
