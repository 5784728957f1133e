# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run an encoder on the CPU with the matrices of its layers in int8, as many as are exact enough.

Products are those of oneDNN, which VNNI instructions make faster than those of float32: weights
with one scale per output, inputs as unsigned bytes with the range that they have at the moment.
Attention, norms and the residual stream stay in float32. So that few inputs do not take the digits
of all, `balance` first makes them of similar size, which changes no number of the network but by
rounding. The matrices are chosen by `vjepa_ros.runtime.forward.narrow_formats`; the others stay in
float32, too.

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
from vjepa_ros.runtime.device import DeviceChoice
from vjepa_ros.runtime.errors import SessionError
from vjepa_ros.runtime.forward.base import PixelForward
from vjepa_ros.runtime.forward.cpu import FastBlock, linear
from vjepa_ros.runtime.forward.narrow_formats import Part, choose, failed, told, trials, useless

log = logging.getLogger(__name__)

REMEDY = 'set `precision` to fp32 or auto'
QKV, PROJ, MLP = 'qkv', 'projection', 'MLP'
LEVELS = 254        # of an input: its zero is rounded, and the largest must still be below 256
LARGEST = 127       # of a weight
EXACT = 0.03        # error of a product of random numbers that rounding to int8 explains
MOST_BALANCE = 8    # by which an input may shrink or grow: another clip may have other ranges
PROBE_FRAMES, PROBE_SIDE = 4, 64    # of the clips that order the matrices
ENOUGH, MOST_TRIALS = 256, 4        # tokens of a trial: one of few says little of another


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
        # No buffers: the layout is oneDNN's own, which nothing but its product can read.
        self._values = torch.ops.onednn.qlinear_prepack(values, None)
        self._scale, self._zero = scale, torch.zeros(len(scale), dtype=torch.int64)

    def forward(self, x: Tensor, gelu: bool = False) -> Tensor:
        """(..., L) float32 of `x` (..., K) float32, after an exact GELU if wanted."""
        low, high = (value.item() for value in torch.aminmax(x))
        if not math.isfinite(high - low):
            return x.new_full((*x.shape[:-1], len(self._scale)), math.nan)
        low, high = min(low, 0.0), max(high, 0.0)
        scale = max((high - low) / LEVELS, torch.finfo().tiny)
        zero = round(-low / scale)
        # Half more, as what follows cuts off.
        q = to_bytes(torch.add(torch.tensor(zero + 0.5), x, alpha=1 / scale))
        return torch.ops.onednn.qlinear_pointwise(
            q, scale, zero, self._values, self._scale, self._zero, self.bias, 1.0, 0,
            torch.float32, 'gelu' if gelu else 'none', [], 'none')


def to_bytes(x: Tensor) -> Tensor:
    """uint8 of float32 values in 0..256, cut off."""
    return x.to(torch.int8).view(torch.uint8) if int8_wraps() else x.to(torch.uint8)


@lru_cache
def int8_wraps() -> bool:
    """Whether 128..255 become the same bytes by way of int8, which takes a third of the time.

    No standard says so, but it is what the instructions do; short rows run other code than long.
    """
    every = torch.arange(256) + 0.5
    return all(torch.equal(every[-n:].to(torch.int8).view(torch.uint8),
                           every[-n:].to(torch.uint8)) for n in (1, 7, 31, 100, 255, 256))


@lru_cache
def check_products() -> str:
    """What is wrong with products in int8 here; '' when they are right."""
    generator = torch.Generator().manual_seed(0)
    linear = nn.Linear(256, 64).requires_grad_(False)
    linear.weight.normal_(generator=generator)
    linear.bias.normal_(generator=generator)
    x = torch.randn(48, 256, generator=generator)
    # All products of this row are as large as they can be, those that overflow 16 bits first.
    x[0], linear.weight[0] = 8, 8
    try:
        for gelu in (False, True):
            wanted = F.linear(x, linear.weight, linear.bias)
            wanted = F.gelu(wanted) if gelu else wanted
            got = Int8Linear(linear)(x, gelu)
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
    """A linear layer that remembers mean and range of its inputs (K)."""

    def __init__(self, layer: nn.Linear):
        super().__init__()
        self.layer, self.bias = layer, layer.bias
        self.mean = self.reach = torch.empty(0)

    def forward(self, x: Tensor, gelu: bool = False) -> Tensor:
        rows = x.flatten(0, -2)
        self.mean = rows.mean(0)
        self.reach = torch.maximum(rows.amax(0) - self.mean, self.mean - rows.amin(0))
        return linear(x, self.layer.weight, self.layer.bias, gelu)


def balance(forward: PixelForward, encoder: Encoder, clips: Tensor) -> None:
    """Move means and sizes of the inputs of matrices into what comes before and after.

    Each input gets the mean 0 on these clips, and a size between its own and that which its
    weights call for. That of qkv and of the MLP is a norm, whose weights and biases take it;
    that of the projection is a mean of values, which are rows of qkv.

    Parameters
    ----------
    forward : PixelForward
        Of `encoder`, whose weights are replaced.
    encoder : Encoder
        In float32.
    clips : Tensor
        (B, T, S, S, 3) uint8.

    """
    places = [(owner, word) for block in encoder.blocks for owner, word in
              ((block.attn, 'qkv'), (block.attn, 'proj'), (block.mlp, 'fc1'))]
    watched = [_Watch(getattr(*place)) for place in places]
    for place, watch in zip(places, watched, strict=True):
        setattr(*place, watch)
    with torch.no_grad():
        forward(clips)
        for place, watch in zip(places, watched, strict=True):
            setattr(*place, watch.layer)
        for number, block in enumerate(encoder.blocks):
            _balance(block, *watched[3 * number:3 * number + 3])


def _balance(block: Block | FastBlock, qkv: _Watch, proj: _Watch, fc1: _Watch) -> None:
    for watch, norm in ((qkv, block.norm1), (fc1, block.norm2)):
        mean, size = watch.mean, _taken(watch)
        norm.weight.data = norm.weight / size
        norm.bias.data = (norm.bias - mean) / size
    mean, size = proj.mean, _taken(proj)
    values = slice(2 * len(mean), None)
    weight, bias = qkv.layer.weight.clone(), qkv.layer.bias.clone()
    weight[values] /= size[:, None]
    bias[values] = (bias[values] - mean) / size
    qkv.layer.weight.data, qkv.layer.bias.data = weight, bias


def _taken(watch: _Watch) -> Tensor:
    """Make a layer for inputs without their mean, divided by what is returned (K)."""
    layer, tiny = watch.layer, torch.finfo().tiny
    size = (watch.reach.clamp_min(tiny) / layer.weight.abs().amax(0).clamp_min(tiny)).sqrt()
    size = (size / size.median()).clamp(1 / MOST_BALANCE, MOST_BALANCE)
    layer.bias.data = layer.bias + layer.weight @ watch.mean
    layer.weight.data = layer.weight * size
    return size


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
    note : str
        How much of the encoder is in int8.
    nbytes : int
        Bytes of the matrices in int8.

    """

    def __init__(self, encoder: Encoder, clips: Tensor):
        super().__init__(encoder)
        balance(self, encoder, clips)
        self.note = ''
        self.parts: dict[Part, int] = {}
        self._layers: dict[Part, list[tuple[nn.Module, str, nn.Linear, Int8Linear]]] = {}
        for number, block in enumerate(encoder.blocks):
            for name, owner, words in ((QKV, block.attn, ('qkv',)), (PROJ, block.attn, ('proj',)),
                                       (MLP, block.mlp, ('fc1', 'fc2'))):
                full = [getattr(owner, word) for word in words]
                self.parts[number, name] = sum(one.weight.numel() for one in full)
                self._layers[number, name] = [(owner, word, one, Int8Linear(one))
                                              for word, one in zip(words, full, strict=True)]
        self.chosen: frozenset[Part] = frozenset()

    @property
    def nbytes(self) -> int:  # type: ignore[override]
        """Bytes of the matrices in int8."""
        return sum(one.nbytes for one in self._encoder.modules() if isinstance(one, Int8Linear))

    def choose(self, chosen: frozenset[Part]) -> None:
        """Put these parts into int8 and the others into float32."""
        for part, layers in self._layers.items():
            for owner, word, full, narrow in layers:
                setattr(owner, word, narrow if part in chosen else full)
        self.chosen = chosen

    def look(self, pixels: Tensor, chosen: frozenset[Part]) -> Tensor:
        """Features of clips with these parts in int8, which stay so."""
        self.choose(chosen)
        with torch.inference_mode():
            return self(pixels)

    def settle(self) -> None:
        """Forget what is not chosen, in int8 and in float32."""
        self._layers.clear()


def clips_for(clip_shape: tuple[int, ...]) -> Tensor:
    """Clips (B, T, S, S, 3) uint8 to try int8 with, more of them where they are small."""
    tokens = clip_shape[0] // TUBELET * (clip_shape[1] // PATCH) ** 2
    count = min(MOST_TRIALS, math.ceil(ENOUGH / tokens))
    return torch.cat([trials(clip_shape, seed) for seed in range(count)])


def prepare_int8(encoder: Encoder, choice: DeviceChoice, clip_shape: tuple[int, ...]
                 ) -> Int8Forward:
    """The forward pass in int8: as much of it as keeps the features near those in float32.

    Parameters
    ----------
    encoder, choice, clip_shape
        As for `vjepa_ros.runtime.forward.base.prepare`, with the branches in float32.

    Raises
    ------
    SessionError
        When int8 does not run here, or nothing can be in int8; with the remedy.

    """
    if wrong := check_products():
        raise SessionError(f"precision 'int8' does not run on {choice.device}: {wrong}; {REMEDY}")
    frames, side, _, colours = clip_shape
    clips = clips_for(clip_shape)
    side = min(side, PROBE_SIDE)
    small = trials((min(frames, PROBE_FRAMES), side, side, colours))
    try:
        made = Int8Forward(encoder, clips)
        chosen, error = choose(made.parts, lambda parts: made.look(clips, parts),
                               probe=lambda parts: made.look(small, parts))
        made.choose(chosen)
    except RuntimeError as problem:
        raise failed('int8', choice.device, problem, REMEDY) from problem
    if not chosen:
        raise useless('int8', 'int8', REMEDY)
    made.note = told('int8', 'fp32', made.parts, chosen, error)
    made.settle()
    log.info('int8 on %s: %s', choice.device, made.note)
    return made
