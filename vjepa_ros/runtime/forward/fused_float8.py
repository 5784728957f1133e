# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run an encoder with the matrices of its layers in float8 (e4m3), as many as are exact enough.

A number of float8 has four bits of mantissa, so that each product is off by some 4 % whatever its
scale, and the features of an encoder whose matrices all are in float8 by 3 to 13 %. So the
matrices are chosen by `vjepa_ros.runtime.forward.narrow_formats`, and the others stay in bf16.

No scale is computed while clips run. The norm of D numbers is at most sqrt(D), its weights and
biases become a part of the next matrix, and with that each hidden value of the MLP has a bound,
too (by Cauchy and Schwarz): nothing can overflow with factors that follow from the weights, and
as float8 keeps its precision over a range of 2^14, a bound that is never met costs none. What all
tokens have in common, their mean over trial clips, is left to the bias, which is exact. Products
are those of `torch._scaled_mm` with one scale for each matrix. The output of the attention stays
in bf16: its product is the smallest, and its input would need a pass of its own.

M tokens, K and L inputs and outputs of a matrix, D width, F width of the MLP.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from vjepa_ros.model.blocks import EPS
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.variants import PATCH, TUBELET
from vjepa_ros.runtime.forward.fused import FusedEncoder, Layer
from vjepa_ros.runtime.forward.kernels import build
from vjepa_ros.runtime.forward.narrow_formats import Part
from vjepa_ros.runtime.forward.reference_ops import FLOAT8, LARGEST, PlainSteps, Steps, eight

QKV, MLP = 'qkv', 'mlp'
LEAST_BOUND = 2.0 ** -10        # of a hidden value, relative to the largest bound of its layer


class Matrix(NamedTuple):
    """A matrix (K, L) in float8, column by column, its scale and that of its input, its bias."""

    values: Tensor
    scale: Tensor
    input_scale: Tensor
    bias: Tensor


class Narrow(NamedTuple):
    """The matrices of one layer and what `Steps` needs to make their inputs.

    Factors and means of the inputs are part of the matrices and biases.
    """

    qkv: Matrix | None
    fc1: Matrix | None
    fc2: Matrix | None
    shift1: Tensor
    shift2: Tensor
    gains: Tensor
    shifts: Tensor


class Means(NamedTuple):
    """Means over tokens of both norms of a layer without their weights, and of hidden values."""

    norm1: Tensor
    hidden: Tensor
    norm2: Tensor


class Fp8Encoder(FusedEncoder):
    """A `FusedEncoder` that runs the parts in `chosen` in float8.

    Parameters
    ----------
    encoder : Encoder
        On the device, its branches in bfloat16.
    clip_shape : (int, int, int, int)
        T, H, W, 3.
    steps : Steps, optional
        See `FusedEncoder`.

    Attributes
    ----------
    parts : dict of Part to int
        What can be in float8, and the number of weights in it.
    chosen : frozenset of Part
        What is; nothing at first.

    """

    def __init__(self, encoder: Encoder, clip_shape: tuple[int, ...],
                 steps: Steps | None = None):
        super().__init__(encoder, clip_shape, steps or kernels8(encoder, clip_shape))
        self.parts: dict[Part, int] = {}
        for number, layer in enumerate(self._layers):
            self.parts[number, QKV] = layer.qkv[0].numel()
            self.parts[number, MLP] = layer.fc1[0].numel() + layer.fc2[0].numel()
        self.chosen: frozenset[Part] = frozenset()
        self._narrow: list[Narrow] = []
        self._seen: list[Tensor] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the matrices in float8."""
        return sum(part.values.nbytes for one in self._narrow for part in one[:3]
                   if part is not None)

    def calibrate(self, pixels: Tensor) -> None:
        """Make the matrices in float8 with the means of clips (B, T, H, W, 3) uint8."""
        self.chosen, self._seen = frozenset(), []
        self(pixels)
        gain = norm_gain(self.dim)
        means = zip(self._seen[::3], self._seen[1::3], self._seen[2::3], strict=True)
        self._narrow = [narrow(layer, gain, Means(*three))
                        for layer, three in zip(self._layers, means, strict=True)]
        self._seen = None

    def settle(self) -> None:
        """Forget the matrices that are not chosen."""
        self._narrow = [one._replace(
            **{} if (number, QKV) in self.chosen else {'qkv': None},
            **{} if (number, MLP) in self.chosen else {'fc1': None, 'fc2': None})
            for number, one in enumerate(self._narrow)]

    def _queries(self, number: int, x: Tensor, branch: Tensor | None, y: Tensor) -> Tensor:
        if (number, QKV) in self.chosen:
            made = self._narrow[number]
            return product(self._norm8(x, branch, made.shift1), made.qkv)
        out = super()._queries(number, x, branch, y)
        self._see(x)
        return out

    def _mlp(self, number: int, x: Tensor, branch: Tensor, y: Tensor) -> Tensor:
        if (number, MLP) in self.chosen:
            made = self._narrow[number]
            hidden = product(self._norm8(x, branch, made.shift2), made.fc1)
            out = torch.empty_like(hidden, dtype=FLOAT8)
            self.steps.gelu8(hidden, made.gains, made.shifts, out)
            return product(out, made.fc2)
        out = super()._mlp(number, x, branch, y)
        self._see(x)
        return out

    def _hidden(self, y: Tensor, layer: Layer) -> Tensor:
        out = super()._hidden(y, layer)
        if self._seen is not None:
            self._seen.append(out.float().mean(0))
        return out

    def _see(self, x: Tensor) -> None:
        if self._seen is not None:
            self._seen.append(F.layer_norm(x, (self.dim,), eps=EPS).mean(0))

    def _norm8(self, x: Tensor, branch: Tensor | None, shift: Tensor) -> Tensor:
        out = torch.empty_like(x, dtype=FLOAT8)
        self.steps.norm8(x, branch, shift, out)
        return out


def product(x: Tensor, matrix: Matrix) -> Tensor:
    """(M, L) bfloat16 of `x` (M, K) float8."""
    return torch._scaled_mm(x, matrix.values, scale_a=matrix.input_scale, scale_b=matrix.scale,
                            bias=matrix.bias, out_dtype=torch.bfloat16, use_fast_accum=True)


def norm_gain(dim: int) -> float:
    """The power of two that takes a norm less its mean, at most 2 sqrt(D), into float8."""
    return 2.0 ** math.floor(math.log2(LARGEST / (2 * math.sqrt(dim))))


def narrow(layer: Layer, gain: float, means: Means) -> Narrow:
    """The matrices of a layer for inputs that are `gain` times the norm without its weights."""
    qkv, qkv_bias = _joined(layer.norm1, layer.qkv)
    fc1, fc1_bias = _joined(layer.norm2, layer.fc1)
    bound = math.sqrt(fc1.shape[1]) * fc1.norm(dim=1) + fc1_bias.abs() + means.hidden.abs()
    # A hidden value that is always nearly 0 must not blow up the range of the second matrix.
    bound = bound.clamp_min(float(bound.max()) * LEAST_BOUND).clamp_min(torch.finfo().tiny)
    gains = torch.exp2(torch.floor(torch.log2(LARGEST / bound)))
    fc2, fc2_bias = layer.fc2[0].T.float(), layer.fc2[1].float()
    return Narrow(
        _matrix(qkv, qkv_bias + qkv @ means.norm1, 1 / gain),
        _matrix(fc1, fc1_bias + fc1 @ means.norm2, 1 / gain),
        _matrix(fc2 / gains, fc2_bias + fc2 @ means.hidden, 1.0),
        -gain * means.norm1, -gain * means.norm2, gains, -gains * means.hidden)


def _joined(norm: tuple[Tensor, Tensor], linear: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The matrix (L, K) and bias of a linear layer after a norm without weights."""
    matrix, bias = linear[0].T.float(), linear[1].float()
    return matrix * norm[0].float(), bias + matrix @ norm[1].float()


def _matrix(values: Tensor, bias: Tensor, input_scale: float) -> Matrix:
    scale = values.abs().max().clamp_min(torch.finfo().tiny) / LARGEST
    return Matrix(eight(values / scale).contiguous().T, scale,
                  torch.tensor(input_scale, device=values.device), bias.bfloat16())


def kernels8(encoder: Encoder, clip_shape: tuple[int, ...]) -> Steps:
    """The kernels for float8; KernelsMissing where they cannot be made."""
    variant, device = encoder.variant, encoder.patch_embed.proj.weight.device
    with torch.cuda.device(device):
        return build(variant.dim, variant.head_dim, _grid(clip_shape), torch.bfloat16, EPS,
                     norm_gain(variant.dim))


def plain8(encoder: Encoder, clip_shape: tuple[int, ...]) -> Steps:
    """The same by operations of PyTorch."""
    return PlainSteps(encoder.variant.head_dim, _grid(clip_shape), EPS,
                      norm_gain(encoder.variant.dim))


def _grid(clip_shape: tuple[int, ...]) -> tuple[int, int, int]:
    frames, height, width, _ = clip_shape
    return frames // TUBELET, height // PATCH, width // PATCH
