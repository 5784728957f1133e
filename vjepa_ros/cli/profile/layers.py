# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Time the layers of an encoder with PyTorch's profiler."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch
from torch import nn
from torch.autograd import DeviceType
from torch.profiler import profile, record_function

from vjepa_ros.cli.benchmark.case import Case
from vjepa_ros.cli.profile.trace import activities, device_ms
from vjepa_ros.model.checkpoint.bundle import load_model
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.runtime.device import DeviceChoice

WARM_RUNS = 2


def parts(encoder: Encoder) -> dict[nn.Module, str]:
    """Modules to time, by name of the part of a block that they are."""
    last = encoder.norm if encoder.version == '2.0' else encoder.norms_block[-1]
    found: dict[nn.Module, str] = {encoder.patch_embed: 'patch embedding', last: 'final norm'}
    for block in encoder.blocks:
        found.update({
            block: 'block', block.norm1: 'norm 1', block.attn: 'attention',
            block.attn.qkv: 'qkv', block.attn.proj: 'projection', block.norm2: 'norm 2',
            block.mlp: 'mlp', block.mlp.fc1: 'fc1', block.mlp.fc2: 'fc2'})
    return found


@torch.inference_mode()
def time_layers(case: Case, choice: DeviceChoice, runs: int) -> dict[str, float]:
    """Milliseconds of each part of the plain network in a run, over all blocks.

    On CUDA the time of its kernels, without gaps between launches; else that of the CPU.
    """
    encoder, _, _ = load_model(case.model_size, case.model_version, case.weights,
                               allow_random_weights=True)
    encoder.set_branch_precision(choice.branches)
    encoder = encoder.to(choice.device).eval()
    side = case.image_size
    pixels = torch.randn(case.cameras, 3, case.num_frames, side, side, device=choice.device)
    for _ in range(WARM_RUNS):
        encoder(pixels)
    named = parts(encoder)
    running: dict[nn.Module, Any] = {}

    def begin(module: nn.Module, inputs: Any) -> None:
        running[module] = record_function(named[module])
        running[module].__enter__()

    def end(module: nn.Module, inputs: Any, output: Any) -> None:
        running.pop(module).__exit__(None, None, None)

    with ExitStack() as stack:
        for module in named:
            stack.callback(module.register_forward_pre_hook(begin).remove)
            stack.callback(module.register_forward_hook(end).remove)
        cuda = choice.device.type == 'cuda'
        with profile(activities=activities(cuda)) as recorded:
            for _ in range(runs):
                encoder(pixels)
    # A GPU has events of these names, too: the time from the first kernel to the last, with gaps.
    times = {event.key: device_ms(event, cuda, own=False) / runs
             for event in recorded.key_averages()
             if event.key in set(named.values()) and event.device_type == DeviceType.CPU}
    return {name: times[name] for name in dict.fromkeys(named.values())}
