# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run an encoder with as many matrices in float8 (e4m3) as keep its features exact.

A number of float8 has four bits of mantissa, so that each product is off by some 4 % whatever its
scale, and the features of an encoder whose matrices all are in float8 by 3 to 13 %. So
`vjepa_ros.runtime.forward.narrow_formats` chooses the matrices, and the others stay in bf16.

No scale is computed while clips run. The norm of D numbers is at most sqrt(D), its weights and
biases become a part of the next matrix, and with that each hidden value of the MLP has a bound,
too (Cauchy-Schwarz): with factors that follow from the weights nothing can overflow, and as float8
keeps its precision over a range of 2^14, a bound that is never met costs none. What all tokens
have in common, their mean over trial clips, moves into the bias, which is exact. Each matrix has
one scale. The output of the attention stays in bf16: its product is the smallest, and its input
would need a pass of its own.

M tokens, K and L inputs and outputs of a matrix, D width, F width of the MLP.
"""

from __future__ import annotations

import logging
import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from vjepa_ros.model.blocks import EPS
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.runtime.cuda.compiler import KernelsMissing
from vjepa_ros.runtime.device import DeviceChoice, SessionError
from vjepa_ros.runtime.forward.base import CLOSE, Normalise, PlainForward, STEPS, on_device
from vjepa_ros.runtime.forward.fused import FusedEncoder, Layer, token_grid_of
from vjepa_ros.runtime.forward.kernels import FLOAT8, LARGEST, PlainSteps, Steps, build, eight
from vjepa_ros.runtime.forward.narrow_formats import (
    Part,
    choose,
    describe,
    failed,
    max_error,
    trials,
    useless,
)
from vjepa_ros.runtime.memory import is_out_of_memory
from vjepa_ros.runtime.torch_private import scaled_mm

log = logging.getLogger(__name__)

QKV, MLP = 'qkv', 'mlp'
LEAST_BOUND = 2.0 ** -10        # of a hidden value, relative to the largest bound of its layer
REMEDY = 'set `precision` to bf16 or auto'
ROWS = 64           # of the data that kernels are checked with
SAME = 0.01         # relative difference of kernels and PyTorch, where few values round apart


class Matrix(NamedTuple):
    """A matrix (K, L) in float8, column by column, its scale and that of its input, its bias."""

    values: Tensor
    scale: Tensor
    input_scale: Tensor
    bias: Tensor

    def apply(self, x: Tensor) -> Tensor:
        """Multiply `x` (M, K) float8: (M, L) bfloat16."""
        return scaled_mm(x, self.input_scale, self.values, self.scale, self.bias)


class NarrowQkv(NamedTuple):
    """Queries, keys and values of a layer in float8, and the shift of their input."""

    matrix: Matrix
    shift: Tensor


class NarrowMlp(NamedTuple):
    """The MLP of a layer in float8, and what `Steps` needs to make the inputs of its matrices."""

    fc1: Matrix
    fc2: Matrix
    shift: Tensor
    gains: Tensor
    shifts: Tensor


class Float8Encoder(FusedEncoder):
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
        if steps is None:
            variant, device = encoder.variant, encoder.patch_embed.proj.weight.device
            with torch.cuda.device(device):
                steps = build(variant.dim, variant.head_dim, token_grid_of(clip_shape),
                              torch.bfloat16, EPS, norm_gain(variant.dim))
        super().__init__(encoder, clip_shape, steps)
        self.parts: dict[Part, int] = {}
        for number, layer in enumerate(self._layers):
            self.parts[number, QKV] = layer.qkv[0].numel()
            self.parts[number, MLP] = layer.fc1[0].numel() + layer.fc2[0].numel()
        self.chosen: frozenset[Part] = frozenset()
        self._qkv: dict[int, NarrowQkv] = {}
        self._mlps: dict[int, NarrowMlp] = {}
        self._means: list[Tensor] | None = None     # while `calibrate` runs

    @property
    def nbytes(self) -> int:
        """Bytes of the matrices in float8."""
        matrices = [one.matrix for one in self._qkv.values()]
        matrices += [matrix for one in self._mlps.values() for matrix in (one.fc1, one.fc2)]
        return sum(matrix.values.nbytes for matrix in matrices)

    def calibrate(self, pixels: Tensor) -> None:
        """Make the matrices in float8 with the means of clips (B, T, H, W, 3) uint8."""
        self.chosen, means = frozenset(), []
        self._means = means
        self(pixels)
        self._means = None
        gain = norm_gain(self.dim)
        for number, layer in enumerate(self._layers):
            norm1, hidden, norm2 = means[3 * number:3 * number + 3]
            self._qkv[number] = narrow_qkv(layer, gain, norm1)
            self._mlps[number] = narrow_mlp(layer, gain, norm2, hidden)

    def settle(self) -> None:
        """Free the matrices that are not chosen."""
        self._qkv = {n: one for n, one in self._qkv.items() if (n, QKV) in self.chosen}
        self._mlps = {n: one for n, one in self._mlps.items() if (n, MLP) in self.chosen}

    def _queries(self, number: int, x: Tensor, branch: Tensor | None, y: Tensor) -> Tensor:
        if (number, QKV) in self.chosen:
            narrow = self._qkv[number]
            return narrow.matrix.apply(self._norm8(x, branch, narrow.shift))
        out = super()._queries(number, x, branch, y)
        self._record_norm(x)
        return out

    def _mlp(self, number: int, x: Tensor, branch: Tensor, y: Tensor) -> Tensor:
        if (number, MLP) in self.chosen:
            narrow = self._mlps[number]
            hidden = narrow.fc1.apply(self._norm8(x, branch, narrow.shift))
            out = torch.empty_like(hidden, dtype=FLOAT8)
            self.steps.gelu8(hidden, narrow.gains, narrow.shifts, out)
            return narrow.fc2.apply(out)
        out = super()._mlp(number, x, branch, y)
        self._record_norm(x)
        return out

    def _hidden(self, y: Tensor, layer: Layer) -> Tensor:
        out = super()._hidden(y, layer)
        if self._means is not None:
            self._means.append(out.float().mean(0))
        return out

    def _record_norm(self, x: Tensor) -> None:
        if self._means is not None:
            self._means.append(F.layer_norm(x, (self.dim,), eps=EPS).mean(0))

    def _norm8(self, x: Tensor, branch: Tensor | None, shift: Tensor) -> Tensor:
        out = torch.empty_like(x, dtype=FLOAT8)
        self.steps.norm8(x, branch, shift, out)
        return out


def norm_gain(dim: int) -> float:
    """Return the power of two that takes a norm less its mean, at most 2 sqrt(D), into float8."""
    return 2.0 ** math.floor(math.log2(LARGEST / (2 * math.sqrt(dim))))


def narrow_qkv(layer: Layer, gain: float, norm: Tensor) -> NarrowQkv:
    """Convert the matrix of queries, keys and values.

    `norm`: (D,) mean of that norm.
    """
    matrix, bias = _joined(layer.norm1, layer.qkv)
    return NarrowQkv(_matrix(matrix, bias + matrix @ norm, 1 / gain), -gain * norm)


def narrow_mlp(layer: Layer, gain: float, norm: Tensor, hidden: Tensor) -> NarrowMlp:
    """Convert the matrices of an MLP; `hidden` (F,) is the mean of its hidden layer."""
    fc1, fc1_bias = _joined(layer.norm2, layer.fc1)
    bound = math.sqrt(fc1.shape[1]) * fc1.norm(dim=1) + fc1_bias.abs() + hidden.abs()
    # A hidden value that is always nearly 0 must not blow up the range of the second matrix.
    bound = bound.clamp_min(float(bound.max()) * LEAST_BOUND).clamp_min(torch.finfo().tiny)
    gains = torch.exp2(torch.floor(torch.log2(LARGEST / bound)))
    fc2, fc2_bias = layer.fc2[0].T.float(), layer.fc2[1].float()
    return NarrowMlp(_matrix(fc1, fc1_bias + fc1 @ norm, 1 / gain),
                     _matrix(fc2 / gains, fc2_bias + fc2 @ hidden, 1.0),
                     -gain * norm, gains, -gains * hidden)


def _joined(norm: tuple[Tensor, Tensor], linear: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Matrix (L, K) and bias of a linear layer after a norm without weights."""
    matrix, bias = linear[0].T.float(), linear[1].float()
    return matrix * norm[0].float(), bias + matrix @ norm[1].float()


def _matrix(values: Tensor, bias: Tensor, input_scale: float) -> Matrix:
    scale = values.abs().max().clamp_min(torch.finfo().tiny) / LARGEST
    return Matrix(eight(values / scale).contiguous().T, scale,
                  torch.tensor(input_scale, device=values.device), bias.bfloat16())


def plain_steps(encoder: Encoder) -> PlainSteps:
    """Make the steps of a `Float8Encoder` by operations of PyTorch."""
    return PlainSteps(encoder.variant.head_dim, EPS, norm_gain(encoder.variant.dim))


def prepare_float8(encoder: Encoder, choice: DeviceChoice, normalise: Normalise,
                   clip_shape: tuple[int, ...]) -> Float8Encoder:
    """Make the forward pass in fp8, with as many matrices in float8 as keep the features exact.

    Kernels of this package serve if they compute what PyTorch does; otherwise PyTorch's own
    operations do, with a warning.
    """
    device = choice.device
    try:
        with torch.no_grad(), on_device(device):
            clips = trials(clip_shape).to(device)
            plain = torch.cat([PlainForward(encoder, normalise)(clip[None]) for clip in clips])
        made = _checked(encoder, clip_shape, device)
        with torch.no_grad(), on_device(device):
            made.calibrate(clips)

        def features(chosen: frozenset[Part]) -> Tensor:
            made.chosen = chosen
            with torch.no_grad(), on_device(device):
                return made(clips)

        _require_close(features(frozenset()), plain, 'bf16', device)
        chosen, error = choose(made.parts, features)
        _require_close(features(chosen), plain, 'fp8', device)
    except RuntimeError as error:
        if isinstance(error, SessionError):
            raise
        raise failed('fp8', device, error, REMEDY) from error
    if not chosen:
        raise useless('fp8', 'float8', REMEDY)
    made.settle()
    made.note = describe('float8', 'bf16', made.parts, made.chosen, error)
    log.info('fp8 on %s: %s', device, made.note)
    return made


def _checked(encoder: Encoder, clip_shape: tuple[int, ...], device: torch.device
             ) -> Float8Encoder:
    """Make the encoder with kernels that pass `check`, or without kernels."""
    plain = plain_steps(encoder)
    with torch.no_grad():
        if device.type == 'cuda':
            try:
                made = Float8Encoder(encoder, clip_shape)
                with on_device(device):
                    check(made.steps, plain, made.dim, device)
                return made
            # PyTorch raises either for a faulty kernel source.
            except (RuntimeError, SyntaxError) as error:
                if is_out_of_memory(error):
                    raise
                log.warning('fp8 runs without kernels of this package on %s, which is slow: %s',
                            device, error)
        made = Float8Encoder(encoder, clip_shape, plain)
        made.kind = STEPS
        return made


def check(steps: Steps, plain: Steps, dim: int, device: torch.device) -> None:
    """Compare the kernels that write float8 with PyTorch's operations; KernelsMissing if wrong."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device)

    x, branch, shift = 3 * random(ROWS, dim), random(ROWS, dim).bfloat16(), random(dim)
    values, shifts = 3 * random(ROWS, 4 * dim).bfloat16(), random(4 * dim)
    gains = torch.exp2(random(4 * dim).round())
    for name, given in (('norm8', None), ('norm8', branch), ('gelu8', None)):
        found = []
        for one in (steps, plain):
            if name == 'norm8':
                out, own = torch.empty_like(x, dtype=FLOAT8), x.clone()
                one.norm8(own, given, shift, out)
                found.append(torch.cat([out.float(), own]))
            else:
                out = torch.empty_like(values, dtype=FLOAT8)
                one.gelu8(values, gains, shifts, out)
                found.append(out.float())
        off = max_error(found[0][None], found[1][None])
        if off > SAME:
            raise KernelsMissing(f'kernel {name} differs by {off:.2g} from PyTorch')


def _require_close(got: Tensor, wanted: Tensor, what: str, device: torch.device) -> None:
    error, bound = max_error(got, wanted), CLOSE[torch.bfloat16]
    if error > bound:
        raise SessionError(f"precision 'fp8' computes wrong features on {device}: in {what} they "
                           f'differ by {error:.2g} from those of PyTorch in bf16, allowed is '
                           f'{bound:g}; {REMEDY}')
