# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Choose the fastest forward pass of an encoder that computes the same as the plain one."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from vjepa_ros.model.blocks import PLAIN_STEPS, Steps
from vjepa_ros.model.encoder import Encoder, Normalise
from vjepa_ros.model.variants import PATCH, TUBELET
from vjepa_ros.runtime.cuda.compiler import kernels_for
from vjepa_ros.runtime.device import DeviceChoice, INSTEAD
from vjepa_ros.runtime.forward.cpu import OneCall, reordered, speed_up
from vjepa_ros.runtime.forward.cuda import FusedEncoder
from vjepa_ros.runtime.forward.metal import MetalSteps, check_rotation
from vjepa_ros.runtime.forward.quantized import quantize
from vjepa_ros.runtime.streaming import CacheSlots, Step, StoredLayer, Work, plain_step

# Relative difference between two ways to compute in a precision that rounding explains.
CLOSE = {torch.bfloat16: 3e-2, torch.float16: 4e-3, torch.float32: 1e-4}
PLAIN, FUSED = 'plain', 'fused'     # operators of PyTorch, or kernels of this package


@dataclass
class Forward:
    """The part of a pass from uint8 clips (B, T, S, S, 3) on the device to features there."""

    # To (B, T', Hp, Wp, D) float32. A CUDA graph may hold it after a few calls: it must not wait
    # for the device or copy from the host, and what it reads must stay at its address.
    run: Work
    normalise: Work     # uint8 clips to the present input of the encoder
    kind: str = PLAIN
    note: str = ''      # what is quantised

    @classmethod
    def plain(cls, encoder: Encoder, normalise: Work, kind: str = PLAIN) -> Forward:
        return cls(lambda pixels: encoder(normalise(pixels)), normalise, kind)


def prepare(encoder: Encoder, choice: DeviceChoice, normalise: Normalise,
            clip_shape: tuple[int, ...]) -> Forward:
    """Make the best forward pass there is for an encoder; `clip_shape` is (T, S, S, 3).

    Kernels serve only where the features of a random clip are close; else the log says why not.
    """
    device, narrow = choice.device.type, choice.precision in INSTEAD
    forward = Forward.plain(encoder, normalise)
    if device == 'cpu':
        speed_up(encoder)
        forward = Forward.plain(encoder, reordered, FUSED)
        if not narrow:
            encoder.run_blocks = OneCall(encoder)
    if narrow:
        with _on(choice.device):
            forward.note = quantize(encoder, choice, forward.run, clip_shape)
        return forward
    kernels = device == 'mps' or (device == 'cuda' and choice.dtype != torch.float32)
    if encoder.window or not kernels:   # the kernels know no block-causal clips
        return forward

    def make() -> Forward:
        if device == 'cuda':
            return Forward(FusedEncoder(encoder, clip_shape), normalise, FUSED)
        check_rotation(encoder, clip_shape, CLOSE[choice.dtype])
        _set_steps(encoder, MetalSteps())
        return Forward.plain(encoder, normalise, FUSED)

    fused, _ = kernels_for('whole clips', choice.device, forward, make,
                           lambda one: _trial(one.run, clip_shape, choice.device),
                           CLOSE[choice.dtype])
    if fused is None:
        _set_steps(encoder, PLAIN_STEPS)
    return fused or forward


def _set_steps(encoder: Encoder, steps: Steps) -> None:
    for block in encoder.blocks:
        block.steps = steps


def _trial(forward: Work, clip_shape: tuple[int, ...], device: torch.device) -> Tensor:
    pixels = torch.randint(0, 256, (1, *clip_shape), dtype=torch.uint8,
                           generator=torch.Generator().manual_seed(0)).to(device)
    with torch.inference_mode(), _on(device):
        return forward(pixels).cpu()


@torch.inference_mode()
def prepare_step(encoder: Encoder, choice: DeviceChoice, normalise: Work, side: int
                 ) -> tuple[Step, str]:
    """Return the best step of a stream, as `prepare` does, and its kind."""
    plain = plain_step(encoder, normalise)
    if choice.device.type != 'cuda' or choice.dtype == torch.float32:
        return plain, PLAIN
    step, _ = kernels_for('a stream', choice.device, plain,
                          lambda: FusedEncoder(encoder, (TUBELET, side, side, 3), normalise).step,
                          lambda step: _step_trial(step, encoder, side), CLOSE[choice.dtype])
    return (plain, PLAIN) if step is None else (step, FUSED)


def _step_trial(step: Step, encoder: Encoder, side: int) -> Tensor:
    """Return the features of the second of two random tubelets of two streams."""
    device, generator = encoder.branch_device, torch.Generator().manual_seed(0)
    variant, found = encoder.variant, torch.empty(0)
    layers = torch.zeros((variant.depth, 2, variant.heads, 4, (side // PATCH) ** 2,
                          variant.head_dim), dtype=encoder.branch_dtype, device=device)
    with _on(device):
        for at, slots in ((0.0, [[0], [3]]), (2.0, [[0, 1], [3, 2]])):
            where = CacheSlots(torch.tensor(slots, device=device),
                               torch.zeros_like(layers[0, :, :, :2 * len(slots[0])]))
            memory = [StoredLayer(kept, where, 1) for kept in layers]
            pixels = torch.randint(0, 256, (2, encoder.step_frames, side, side, 3),
                                   dtype=torch.uint8, generator=generator).to(device)
            stamps = at + torch.tensor([[-0.3, -0.2, 0.0, 0.1], [-0.3, -0.2, 0.0, 0.07]],
                                       dtype=torch.float64)
            found = step(pixels, encoder.times(stamps)[:, -1:].to(device), memory).cpu()
    return found


def _on(device: torch.device) -> AbstractContextManager:
    return torch.cuda.device(device) if device.type == 'cuda' else nullcontext()
