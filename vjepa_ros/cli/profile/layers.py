# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Time the layers of an encoder one by one, through hooks and, on CUDA, from graphs."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from vjepa_ros.cli.benchmark.case import Case
from vjepa_ros.cli.benchmark.clock import device_ms, synchronize
from vjepa_ros.model.checkpoint.bundle import load_model
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.runtime.device import DeviceChoice

WARM_RUNS = 2
GRAPH_RUNS = 20


@dataclass(frozen=True)
class Layer:
    """Median time of one layer [ms] in a plain forward pass; `block` is -1 outside blocks."""

    part: str
    block: int
    ms: float


class Watch:
    """Take the time of modules as they run, by hooks that stay until `remove`."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._marks: dict[nn.Module, list[Any]] = {}
        self._hooks: list[Any] = []
        self.inputs: dict[nn.Module, tuple[Any, ...]] = {}

    def add(self, module: nn.Module) -> None:
        """Watch a module."""
        self._hooks += [module.register_forward_pre_hook(self._before),
                        module.register_forward_hook(self._after)]

    def remove(self) -> None:
        """Take all hooks away."""
        for hook in self._hooks:
            hook.remove()

    def times(self) -> dict[nn.Module, float]:
        """Milliseconds of the last pass."""
        synchronize(self._device)
        if self._device.type == 'cuda':
            return {m: first.elapsed_time(last) for m, (first, last) in self._marks.items()}
        return {m: 1e3 * (last - first) for m, (first, last) in self._marks.items()}

    def _before(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        self.inputs[module] = inputs
        self._marks[module] = [self._mark()]

    def _after(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        self._marks[module].append(self._mark())

    def _mark(self) -> Any:
        if self._device.type == 'cuda':
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            return event
        synchronize(self._device)       # no marks of its own: wait for each layer
        return time.perf_counter()


def parts(encoder: Encoder) -> dict[nn.Module, tuple[str, int]]:
    """Modules to time, by name of the part and number of the block."""
    found: dict[nn.Module, tuple[str, int]] = {encoder.patch_embed: ('patch embedding', -1)}
    for number, block in enumerate(encoder.blocks):
        found.update({
            block.norm1: ('norm 1', number), block.attn.qkv: ('qkv', number),
            block.attn: ('attention', number), block.attn.proj: ('projection', number),
            block.norm2: ('norm 2', number), block.mlp.fc1: ('fc1', number),
            block.mlp: ('mlp', number), block.mlp.fc2: ('fc2', number),
            block: ('block', number)})
    last = encoder.norm if encoder.version == '2.0' else encoder.norms_block[-1]
    return {**found, last: ('final norm', -1)}


@torch.inference_mode()
def time_layers(case: Case, choice: DeviceChoice, runs: int,
                advance: Callable[[int], None] = lambda done: None
                ) -> tuple[list[Layer], dict[str, float]]:
    """Times of the layers of the plain network.

    Returns
    -------
    list of Layer
        As they ran. On CUDA between events in an eager pass, in which small layers take as long
        as their launches.
    dict of str to float
        On CUDA: milliseconds of each part over all blocks when replayed from a graph of its own,
        without gaps between launches; else empty.
    """
    with torch.cuda.device(choice.device) if choice.device.type == 'cuda' else nullcontext():
        return _time_layers(case, choice, runs, advance)


def _time_layers(case: Case, choice: DeviceChoice, runs: int, advance: Callable[[int], None]
                 ) -> tuple[list[Layer], dict[str, float]]:
    encoder, _, _ = load_model(case.model_size, case.model_version, case.weights,
                               allow_random_weights=True)
    encoder.set_branch_precision(choice.branches)
    encoder = encoder.to(choice.device).eval()
    side = case.image_size
    pixels = torch.randn(case.cameras, 3, case.num_frames, side, side, device=choice.device)
    for _ in range(WARM_RUNS):
        encoder(pixels)
    watch, named = Watch(choice.device), parts(encoder)
    for module in named:
        watch.add(module)
    taken: dict[nn.Module, list[float]] = defaultdict(list)
    try:
        for run in range(runs):
            encoder(pixels)
            for module, ms in watch.times().items():
                taken[module].append(ms)
            advance(run + 1)
    finally:
        watch.remove()
    layers = [Layer(part, block, float(np.median(taken[module])))
              for module, (part, block) in named.items()]
    graphs = {}
    if choice.device.type == 'cuda':
        for module, (part, block) in named.items():
            if block in (-1, 0):
                once = _replayed(module, watch.inputs[module], choice.device)
                graphs[part] = once * (1 if block < 0 else len(encoder.blocks))
    return layers, graphs


def totals(layers: list[Layer]) -> dict[str, float]:
    """Milliseconds of each part over all blocks, as they ran."""
    found: dict[str, float] = defaultdict(float)
    for layer in layers:
        found[layer.part] += layer.ms
    return dict(found)


def _replayed(module: nn.Module, inputs: tuple[Any, ...], device: torch.device) -> float:
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_RUNS):
            module(*inputs)
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        module(*inputs)
    graph.replay()
    return float(np.median([device_ms(device, graph.replay) for _ in range(GRAPH_RUNS)]))
