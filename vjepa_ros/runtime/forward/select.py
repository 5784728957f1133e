# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Choose the fastest forward pass of an encoder that computes the same as the plain one."""

from __future__ import annotations

import torch
from torch import Tensor

from vjepa_ros.model.encoder import Encoder
from vjepa_ros.runtime.device import DeviceChoice, SessionError
from vjepa_ros.runtime.forward.base import (
    CLOSE,
    Forward,
    Normalise,
    PlainForward,
    kernels_for,
    on_device,
)
from vjepa_ros.runtime.forward.cpu import PixelForward
from vjepa_ros.runtime.forward.float8 import prepare_float8
from vjepa_ros.runtime.forward.fused import FusedEncoder
from vjepa_ros.runtime.forward.int8 import prepare_int8
from vjepa_ros.runtime.forward.metal import MetalForward

INSTEAD = {'fp8': 'bf16', 'int8': 'fp32'}       # where narrow matrices are impossible


def prepare(encoder: Encoder, choice: DeviceChoice, normalise: Normalise,
            clip_shape: tuple[int, ...], fuse: bool = True) -> Forward:
    """Make the best forward pass there is for an encoder.

    On CUDA and MPS kernels serve only if their features of a random clip are close to those of
    the plain path; otherwise the log says why not.

    `clip_shape`: tuple of int (T, S, S, 3).
    """
    if encoder.window and choice.precision == 'fp8':
        raise SessionError("precision 'fp8' does not run block-causal encoders; set `precision` "
                           'to bf16')
    if choice.precision in INSTEAD:
        if not fuse:
            raise SessionError(f"precision '{choice.precision}' does not run with torch.compile; "
                               'set `compile` to off or auto, or `precision` to '
                               f'{INSTEAD[choice.precision]}')
        if choice.precision == 'int8':
            return prepare_int8(encoder, choice, clip_shape)
        return prepare_float8(encoder, choice, normalise, clip_shape)
    if fuse and choice.device.type == 'cpu':
        return PixelForward(encoder)
    plain = PlainForward(encoder, normalise)
    half = choice.dtype != torch.float32
    if encoder.window:      # which the kernels do not know
        return plain
    if fuse and (choice.device.type == 'mps' or (choice.device.type == 'cuda' and half)):
        return _checked(encoder, plain, choice, clip_shape)
    return plain


def _checked(encoder: Encoder, plain: PlainForward, choice: DeviceChoice,
             clip_shape: tuple[int, ...]) -> Forward:
    """Return the forward pass with kernels if it computes the same as `plain`, else `plain`."""
    made: list[MetalForward] = []

    def make() -> Forward:
        if choice.device.type == 'cuda':
            return FusedEncoder(encoder, clip_shape)
        made.append(MetalForward(encoder, plain.normalise, clip_shape, CLOSE[choice.dtype]))
        return made[0]

    fused = kernels_for('whole clips', plain, make,
                        lambda forward: _trial(forward, clip_shape, choice.device), choice)
    if fused is not None:
        return fused
    for metal in made:      # which works in the encoder itself
        metal.undo()
    return plain


def _trial(forward: Forward, clip_shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Compute the features of a random clip, brought to the CPU."""
    pixels = torch.randint(0, 256, (1, *clip_shape), dtype=torch.uint8,
                           generator=torch.Generator().manual_seed(0)).to(device)
    with torch.inference_mode(), on_device(device):
        return forward(pixels).cpu()
