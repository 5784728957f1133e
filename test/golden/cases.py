# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What is computed with the reference implementation and with ours, by formula on any platform."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

FOLDER = Path(__file__).resolve().parent
SOURCE = 'facebookresearch/vjepa2'
COMMIT = '204698b45b3712590f06245fbfba32d3be539812'
SAMPLES = 700  # numbers that are stored of a larger output


@dataclass(frozen=True)
class EncoderCase:
    version: str
    size: tuple[int, int, int, int]     # width, depth, heads, MLP
    native: tuple[int, int]             # frames and pixels that the reference is built for
    shape: tuple[int, int, int, int]    # of the clips: B, T, H, W
    layers: tuple[int, ...] = ()        # blocks that are compared; the last alone when empty
    dense: bool = False                 # compares the taps of version 2.1 side by side


ENCODERS = {
    '20_native_256': EncoderCase('2.0', (128, 2, 2, 512), (4, 256), (1, 4, 256, 256)),
    '20_native_384': EncoderCase('2.0', (128, 2, 2, 512), (64, 384), (1, 2, 384, 384)),
    '20_heads_of_80': EncoderCase('2.0', (160, 2, 2, 640), (16, 256), (1, 8, 96, 96)),
    '20_giant_mlp': EncoderCase('2.0', (704, 1, 11, 3072), (64, 256), (1, 2, 64, 64)),
    '20_portrait': EncoderCase('2.0', (128, 2, 2, 512), (16, 256), (2, 6, 112, 48)),
    '20_landscape': EncoderCase('2.0', (128, 2, 2, 512), (16, 256), (1, 4, 64, 176)),
    '20_long': EncoderCase('2.0', (128, 2, 2, 512), (16, 256), (1, 64, 48, 32)),
    '20_layers': EncoderCase('2.0', (128, 4, 2, 512), (16, 256), (1, 4, 48, 80), layers=(1, 3)),
    '21_native_384': EncoderCase('2.1', (64, 12, 1, 256), (64, 384), (1, 2, 384, 384)),
    '21_square_256': EncoderCase('2.1', (64, 12, 1, 256), (64, 384), (1, 4, 256, 256)),
    '21_portrait': EncoderCase('2.1', (128, 12, 2, 512), (16, 256), (2, 6, 112, 48), dense=True),
    '21_depth_24': EncoderCase('2.1', (64, 24, 1, 256), (64, 384), (1, 4, 48, 80), dense=True),
    '21_depth_40': EncoderCase('2.1', (64, 40, 1, 279), (64, 384), (1, 4, 80, 48), dense=True),
    '21_depth_48': EncoderCase('2.1', (64, 48, 1, 315), (64, 384), (1, 4, 48, 48), dense=True),
    '21_layers': EncoderCase('2.1', (64, 12, 1, 256), (64, 384), (1, 4, 48, 80), layers=(2, 8)),
    '21_image': EncoderCase('2.1', (64, 12, 1, 256), (64, 384), (2, 1, 96, 160)),
    '21_long': EncoderCase('2.1', (64, 12, 1, 256), (16, 256), (1, 64, 48, 32)),
}


def noise(*shape: int, seed: int = 0) -> Tensor:
    """Numbers between -0.5 and 0.5 without a pattern."""
    index = torch.arange(math.prod(shape), dtype=torch.float64)
    values = (43758.5453 * torch.sin(12.9898 * index + 0.37 * seed)).remainder(1.0) - 0.5
    return values.reshape(shape).float()


@torch.no_grad()
def fill(module: nn.Module) -> nn.Module:
    """Give all parameters values that follow from their names, as large as trained ones."""
    for number, (name, value) in enumerate(sorted(module.state_dict().items())):
        if 'norm' in name and name.endswith('weight'):
            value.copy_(1.0 + 0.4 * noise(*value.shape, seed=number))
        elif value.ndim > 1 and value.shape[0] > 1:
            inputs = math.prod(value.shape[1:])
            value.copy_(math.sqrt(12 / inputs) * noise(*value.shape, seed=number))
        else:  # biases, tokens and embeddings
            value.copy_(noise(*value.shape, seed=number))
    return module.requires_grad_(False).eval()


def clip_of(case: EncoderCase) -> Tensor:
    batch, frames, height, width = case.shape
    return 4.0 * noise(batch, 3, frames, height, width, seed=1000)


def digest(output: Tensor) -> np.ndarray:
    """Norm of an output, then the output itself, or `SAMPLES` of its numbers."""
    flat = output.detach().float().flatten()
    if len(flat) > SAMPLES:
        flat = flat[torch.arange(SAMPLES) * 7919 % len(flat)]
    return np.concatenate([[output.double().norm().item()], flat.numpy()]).astype(np.float32)


def error(output: Tensor, expected: np.ndarray) -> float:
    """Largest error of an output, or of its norm, relative to the mean size of its numbers."""
    got = digest(output).astype(np.float64)
    assert got.shape == expected.shape
    size = expected[0] / math.sqrt(output.numel())
    return max(abs(got[0] / expected[0] - 1.0), np.abs(got[1:] - expected[1:]).max() / size)


def names_and_shapes(state: dict[str, Tensor]) -> str:
    return '\n'.join(f'{key} {tuple(value.shape)}' for key, value in sorted(state.items()))
