# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run an encoder on the CPU with as many matrices in int8 as keep its features exact.

Products are those of oneDNN, which VNNI instructions make faster than those of float32: weights
with one scale per output, inputs as unsigned bytes over their present range. Attention, norms and
the residual stream stay in float32. `balance` first gives the inputs of a matrix similar sizes, so
that a few of them do not take the digits of all; up to rounding it changes nothing. Then
`vjepa_ros.runtime.forward.narrow_formats` chooses the matrices; the others stay in float32.

On a CPU without VNNI the same functions add pairs of products in 16 bits, which overflow;
`check_products` finds that.

M tokens, K and L inputs and outputs of a matrix, D width.
"""

from __future__ import annotations

import logging
import math
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vjepa_ros.model.blocks import Block
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.variants import PATCH, TUBELET
from vjepa_ros.runtime.device import DeviceChoice, SessionError
from vjepa_ros.runtime.forward.cpu import PixelForward, bind, bound
from vjepa_ros.runtime.forward.narrow_formats import (
    Part,
    choose,
    describe,
    failed,
    trials,
    useless,
)

log = logging.getLogger(__name__)

REMEDY = 'set `precision` to fp32 or auto'
QKV, PROJ, MLP = 'qkv', 'projection', 'MLP'
PARTS = {QKV: ('attn.qkv',), PROJ: ('attn.proj',), MLP: ('mlp.fc1', 'mlp.fc2')}
LEVELS = 254        # of an input: its zero is rounded, and the largest must stay below 256
LARGEST = 127       # of a weight
EXACT = 0.03        # error of a product of random numbers that rounding to int8 explains
MOST_BALANCE = 8    # by which an input may shrink or grow: other clips may have other ranges
PROBE_FRAMES, PROBE_SIDE = 4, 64    # of the clips that sort the matrices
ENOUGH, MOST_TRIALS = 256, 4        # tokens of a trial: few tokens predict others badly


class Int8Linear(nn.Module):
    """A linear layer in int8, for `vjepa_ros.runtime.forward.cpu.FastBlock`.

    Parameters
    ----------
    linear : nn.Linear
        In float32, on the CPU.

    Attributes
    ----------
    nbytes : int
        Of its own weights; the bias is that of `linear`.

    """

    def __init__(self, linear: nn.Linear):
        super().__init__()
        weight = linear.weight.detach()
        scale = weight.abs().amax(1).clamp_min_(torch.finfo().tiny) / LARGEST
        values = (weight / scale[:, None]).round_().to(torch.int8)
        self.bias = linear.bias
        self.nbytes = values.nbytes + scale.nbytes
        # No buffers: only oneDNN's product can read its own layout.
        self._values = torch.ops.onednn.qlinear_prepack(values, None)
        self._scale, self._zero = scale, torch.zeros(len(scale), dtype=torch.int64)

    def forward(self, x: Tensor, gelu: bool = False) -> Tensor:
        """Return (..., L) float32 of `x` (..., K) float32, after an exact GELU if wanted."""
        low, high = (value.item() for value in torch.aminmax(x))
        if not math.isfinite(high - low):
            return x.new_full((*x.shape[:-1], len(self._scale)), math.nan)
        low, high = min(low, 0.0), max(high, 0.0)
        scale = max((high - low) / LEVELS, torch.finfo().tiny)
        zero = round(-low / scale)
        # Half more, as the conversion truncates.
        q = torch.add(torch.tensor(zero + 0.5), x, alpha=1 / scale).to(torch.uint8)
        return torch.ops.onednn.qlinear_pointwise(
            q, scale, zero, self._values, self._scale, self._zero, self.bias, 1.0, 0,
            torch.float32, 'gelu' if gelu else 'none', [], 'none')


@lru_cache
def check_products() -> str:
    """Return what is wrong with products in int8 here; '' if they are right."""
    generator = torch.Generator().manual_seed(0)
    plain = nn.Linear(256, 64).requires_grad_(False)
    plain.weight.normal_(generator=generator)
    plain.bias.normal_(generator=generator)
    x = torch.randn(48, 256, generator=generator)
    # All products of this row are as large as possible: they overflow 16 bits first.
    x[0], plain.weight[0] = 8, 8
    try:
        for gelu in (False, True):
            wanted = F.linear(x, plain.weight, plain.bias)
            wanted = F.gelu(wanted) if gelu else wanted
            got = Int8Linear(plain)(x, gelu)
            error = max(float((a - b).norm() / b.norm()) for a, b in
                        ((got[0, 0], wanted[0, 0]), (got[1:, 1:], wanted[1:, 1:])))
            if not error <= EXACT:
                return f'its products are off by {error:.2g}'
    # Private operators of PyTorch: a build may lack them, or have them with other arguments.
    except (AttributeError, RuntimeError, TypeError, NotImplementedError) as error:
        reason = str(error).partition('\n')[0]
        return f'PyTorch {torch.__version__} has no products for it ({reason})'
    return ''


class _Watch(nn.Module):
    """A linear layer that records mean and reach of its inputs (K)."""

    def __init__(self, layer: nn.Linear):
        super().__init__()
        self.layer, self.bias = layer, layer.bias
        self.mean = self.reach = torch.empty(0)

    def forward(self, x: Tensor, gelu: bool = False) -> Tensor:
        """Apply the layer."""
        rows = x.flatten(0, -2)
        self.mean = rows.mean(0)
        self.reach = torch.maximum(rows.amax(0) - self.mean, self.mean - rows.amin(0))
        return bound(self.layer, gelu)(x)

    def take(self) -> Tensor:
        """Fit the layer to inputs without their mean, divided by the result (K)."""
        layer, tiny = self.layer, torch.finfo().tiny
        size = (self.reach.clamp_min(tiny) / layer.weight.abs().amax(0).clamp_min(tiny)).sqrt()
        size = (size / size.median()).clamp(1 / MOST_BALANCE, MOST_BALANCE)
        layer.bias.data = layer.bias + layer.weight @ self.mean
        layer.weight.data = layer.weight * size
        return size


@torch.no_grad()
def balance(forward: PixelForward, encoder: Encoder, clips: Tensor) -> None:
    """Move means and sizes of the inputs of matrices into what comes before and after them.

    Each input gets the mean 0 on `clips` (B, T, S, S, 3) uint8, and a size between its own and
    that which suits its weights. The input of qkv and of the MLP is a norm, whose weights and
    biases change; that of the projection is a mean of values, which are rows of qkv. `forward`
    is the pass of `encoder`, in float32, whose weights are replaced.
    """
    names = ('attn.qkv', 'attn.proj', 'mlp.fc1')
    watched = [[_Watch(_layer(block, name)) for name in names] for block in encoder.blocks]
    for block, watches in zip(encoder.blocks, watched, strict=True):
        for name, watch in zip(names, watches, strict=True):
            _exchange(block, name, watch)
    bind(encoder)
    forward(clips)
    for block, (qkv, proj, fc1) in zip(encoder.blocks, watched, strict=True):
        for name, watch in zip(names, (qkv, proj, fc1), strict=True):
            _exchange(block, name, watch.layer)
        for watch, norm in ((qkv, block.norm1), (fc1, block.norm2)):
            size = watch.take()
            norm.weight.data = norm.weight / size
            norm.bias.data = (norm.bias - watch.mean) / size
        size = proj.take()
        values = slice(2 * len(size), None)
        weight, bias = qkv.layer.weight.clone(), qkv.layer.bias.clone()
        weight[values] /= size[:, None]
        bias[values] = (bias[values] - proj.mean) / size
        qkv.layer.weight.data, qkv.layer.bias.data = weight, bias
    bind(encoder)


def _layer(block: Block, name: str) -> nn.Linear:
    layer = block.get_submodule(name)
    assert isinstance(layer, nn.Linear)
    return layer


def _exchange(block: Block, name: str, layer: nn.Module) -> None:
    owner, _, last = name.partition('.')
    setattr(block.get_submodule(owner), last, layer)


class Int8Forward(PixelForward):
    """The encoder made fast for the CPU, with matrices in int8.

    Parameters
    ----------
    encoder : Encoder
        In float32. It is changed in place.
    clips : Tensor
        (B, T, S, S, 3) uint8, for `balance`.

    Attributes
    ----------
    parts : dict of Part to int
        What can be in int8, and the number of weights in it.
    chosen : frozenset of Part
        What is; nothing at first.

    """

    def __init__(self, encoder: Encoder, clips: Tensor):
        super().__init__(encoder)
        balance(self, encoder, clips)
        # Block, name, in float32 and in int8, of each layer of a part.
        self._layers: dict[Part, list[tuple[Block, str, nn.Linear, Int8Linear]]] = {
            (number, part): [(block, name, full := _layer(block, name), Int8Linear(full))
                             for name in names]
            for number, block in enumerate(encoder.blocks) for part, names in PARTS.items()}
        self.parts: dict[Part, int] = {part: sum(full.weight.numel() for _, _, full, _ in layers)
                                       for part, layers in self._layers.items()}
        self.chosen: frozenset[Part] = frozenset()

    @property
    def nbytes(self) -> int:
        """Bytes of the matrices in int8."""
        return sum(one.nbytes for one in self._encoder.modules() if isinstance(one, Int8Linear))

    def choose(self, chosen: frozenset[Part]) -> None:
        """Put these parts into int8 and the others into float32."""
        for part, layers in self._layers.items():
            for block, name, full, narrow in layers:
                _exchange(block, name, narrow if part in chosen else full)
        bind(self._encoder)
        self.chosen = chosen

    def features(self, pixels: Tensor, chosen: frozenset[Part]) -> Tensor:
        """Compute features of clips with these parts in int8, which stay so."""
        self.choose(chosen)
        with torch.inference_mode():
            return self(pixels)

    def settle(self) -> None:
        """Free what is not chosen, in int8 and in float32."""
        self._layers.clear()


def prepare_int8(encoder: Encoder, choice: DeviceChoice, clip_shape: tuple[int, ...]
                 ) -> Int8Forward:
    """Make the forward pass in int8, with as many matrices in int8 as keep the features exact."""
    if wrong := check_products():
        raise SessionError(f"precision 'int8' does not run on {choice.device}: {wrong}; {REMEDY}")
    frames, side, _, colours = clip_shape
    tokens = frames // TUBELET * (side // PATCH) ** 2
    count = min(MOST_TRIALS, math.ceil(ENOUGH / tokens))
    clips = torch.cat([trials(clip_shape, seed) for seed in range(count)])
    side = min(side, PROBE_SIDE)
    small = trials((min(frames, PROBE_FRAMES), side, side, colours))
    try:
        made = Int8Forward(encoder, clips)
        chosen, error = choose(made.parts, lambda parts: made.features(clips, parts),
                               probe=lambda parts: made.features(small, parts))
        made.choose(chosen)
    except RuntimeError as problem:
        raise failed('int8', choice.device, problem, REMEDY) from problem
    if not chosen:
        raise useless('int8', 'int8', REMEDY)
    made.note = describe('int8', 'fp32', made.parts, chosen, error)
    made.settle()
    log.info('int8 on %s: %s', choice.device, made.note)
    return made
