# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Make an encoder fast on the CPU: the same numbers from fewer and better kernels.

Plain PyTorch 2.13 multiplies in float32 in its fused attention, does without AVX-512 on AMD in
float32, and passes over memory again and again for rotations, pixels and GELU.
B clips, T frames, N tokens, H heads, D width, C channels of a head.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vjepa_ros.model.blocks import LayerMemory, Steps, bias_of, extended
from vjepa_ros.model.encoder import Encoder, PatchEmbed
from vjepa_ros.model.rope import Positions
from vjepa_ros.model.variants import IMAGENET_MEAN, IMAGENET_STD, PATCH
from vjepa_ros.runtime.device import AMX, AVX512_BF16, cpu_features
from vjepa_ros.runtime.streaming import CacheSlots, StoredLayer

log = logging.getLogger(__name__)

SCORES = 4 << 20  # scores at a time: 8 MB of bf16, which malloc reuses and does not map anew
# What TorchScript raises for code that it does not know, and in builds that lack an operator.
PROBLEMS = (RuntimeError, TypeError, ValueError, AttributeError, OSError)
WARM_RUNS = 2       # in which TorchScript learns what it runs


def speed_up(encoder: Encoder) -> None:
    """Convert an encoder in place, in its final precision; it then takes uint8 clips, too."""
    if isinstance(encoder.patch_embed, PixelEmbed):     # by an earlier model
        return
    plain = encoder._positions
    encoder.patch_embed = PixelEmbed(encoder.patch_embed)
    if encoder.version != '2.0':
        encoder.patch_embed_img = PixelEmbed(encoder.patch_embed_img)
    encoder._positions = HalfPositions(plain.head_dim, plain.version)
    for block in encoder.blocks:
        block.steps = CpuSteps()
        # Scores do not depend on the order of channels in queries and keys. With the two of each
        # pair in different halves, swapping them takes no pass over memory.
        for parameter in (block.attn.qkv.weight, bias_of(block.attn.qkv)):
            rows = parameter.detach().unflatten(0, (3, block.attn.heads, -1))  # 3 H C (D)
            # A new tensor: the old one may be a file that is mapped into memory.
            parameter.data = torch.cat((_halves(rows[:2], dim=2), rows[2:])).flatten(0, 2)


def reordered(pixels: Tensor) -> Tensor:
    """Reorder (B, T, H, W, 3) to (B, 3, T, H, W); the weights of `PixelEmbed` normalise."""
    return pixels.permute(0, 4, 1, 2, 3)


class PixelEmbed(PatchEmbed):
    """`PatchEmbed` on uint8 pixels: the normalisation is part of its weights."""

    std: Tensor
    mean: Tensor

    def __init__(self, plain: PatchEmbed):
        nn.Module.__init__(self)        # not its base, whose weights are in another order
        self.frames = plain.frames
        weight = plain.proj.weight.detach().double()  # D 3 frames 16 16
        colour = (3, 1, 1, 1)
        std = 255 * weight.new_tensor(IMAGENET_STD).view(colour)
        mean = 255 * weight.new_tensor(IMAGENET_MEAN).view(colour)
        weight = weight / std
        self.bias = _fixed(bias_of(plain.proj) - (weight * mean).sum((1, 2, 3, 4)))
        # In the order in which pixels lie in a clip, colours innermost: copied 48 bytes at a time.
        self.weight = _fixed(weight.permute(0, 2, 3, 4, 1).flatten(1))
        self.register_buffer('std', std.float(), persistent=False)
        self.register_buffer('mean', mean.float(), persistent=False)

    def forward(self, clip: Tensor) -> Tensor:
        """Embed uint8 or normalised pixels (B, 3, T, height, width): (B, N, D) float32."""
        if clip.dtype != torch.uint8:
            clip = clip.float() * self.std + self.mean
        x = clip.unflatten(4, (-1, PATCH)).unflatten(3, (-1, PATCH))
        x = x.unflatten(2, (-1, self.frames))
        x = x.permute(0, 2, 4, 6, 3, 5, 7, 1)  # B T' Hp Wp frames 16 16 3
        x = x.to(torch.float32, memory_format=torch.contiguous_format).flatten(4).flatten(1, 3)
        if has_fused_linear(x.dtype):
            return _scripted_onednn()(x, self.weight, self.bias, 'none')
        return F.linear(x, self.weight, self.bias)


class HalfPositions(Positions):
    """Position tables for heads whose even channels come before the odd ones."""

    def __init__(self, head_dim: int, version: str):
        super().__init__(head_dim, version)
        self._plain = Positions(head_dim, version)

    def tables(self, grid: tuple[int, int, int], device: torch.device, dtype: torch.dtype
               ) -> tuple[Tensor, Tensor]:
        key = (grid, device, dtype)
        if key not in self.kept:
            cos, sin = super().tables(grid, device, dtype)
            self.kept[key] = _halves(cos), _halves(sin)
        return self.kept[key]

    def tables_at(self, turns: Tensor, grid: tuple[int, int, int], dtype: torch.dtype
                  ) -> tuple[Tensor, Tensor]:
        cos, sin = self._plain.tables_at(turns, grid, dtype)
        return _halves(cos), _halves(sin)


class CpuSteps(Steps):
    """Steps of a block without what PyTorch wastes on a CPU, with tables of `HalfPositions`."""

    def linear(self, layer: nn.Linear, x: Tensor) -> Tensor:
        if _fuses(layer):
            return _scripted_onednn()(x, layer.weight, layer.bias, 'none')
        return layer(x)

    def hidden(self, layer: nn.Linear, x: Tensor) -> Tensor:
        if _fuses(layer):
            return _scripted_onednn()(x, layer.weight, layer.bias, 'gelu')
        return F.gelu(layer(x))

    def split(self, qkv: Tensor, heads: int, cos: Tensor, sin: Tensor,
              memory: LayerMemory | None) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = turned(qkv, heads, cos, sin)
        return q, *extended(k, v, memory)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None) -> Tensor:
        """See `Steps.attend`; in bf16 scores are rounded first, which is faster without AMX."""
        if q.dtype != torch.bfloat16 or allowed is not None or not products_are_faster():
            return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        return attend_in_parts(q, k, v, SCORES)


def _fuses(layer: nn.Linear) -> bool:
    # Weights of torchao are of a type of their own, which oneDNN does not know.
    return type(layer.weight) is nn.Parameter and has_fused_linear(layer.weight.dtype)


class OneCall:
    """All blocks on a step of streams as one call, because other threads need Python, too.

    The encoder comes from `speed_up`; its linear layers keep their parameters from then on.
    """

    def __init__(self, encoder: Encoder):
        self._one_by_one = partial(type(encoder).run_blocks, encoder)
        self._traced = Traced(self._blocks, 'step of a stream')

    def __call__(self, x: Tensor, cos: Tensor, sin: Tensor, allowed: Tensor | None,
                 memory: Sequence[LayerMemory]) -> Tensor:
        layers = [layer for layer in memory if isinstance(layer, StoredLayer)]
        newest = layers[0].newest if len(layers) == len(memory) else None
        if allowed is not None or newest is None:
            return self._one_by_one(x, cos, sin, allowed, memory)
        given = layers[0].given
        return self._traced(x, cos, sin, given.slots, given.room, newest,
                            *map(attrgetter('kept'), layers))

    def _blocks(self, x: Tensor, cos: Tensor, sin: Tensor, slots: Tensor, room: Tensor,
                newest: Tensor, *kept: Tensor) -> Tensor:
        given = CacheSlots(slots, room, newest)
        return self._one_by_one(x, cos, sin, None, [StoredLayer(one, given, 1) for one in kept])


class Traced:
    """A function of tensors as TorchScript recorded it for the shapes it is called with.

    Python needs its global lock between two operators. Where another thread works in Python, too,
    each waits for the other again and again. TorchScript is deprecated for torch.compile, which
    needs a C++ compiler on the robot; where it does not serve, the function runs as it is. What it
    does may depend on shapes, not on values, and other tensors that it reads must stay the same.
    """

    def __init__(self, function: Callable[..., Tensor], name: str):
        self._function, self._name = function, name
        self._made: dict[tuple[torch.Size, ...], Callable[..., Tensor]] = {}

    def __call__(self, *given: Tensor) -> Tensor:
        shapes = tuple(map(attrgetter('shape'), given))
        if shapes not in self._made:
            self._made[shapes] = self._trace(given)
        return self._made[shapes](*given)

    def _trace(self, given: tuple[Tensor, ...]) -> Callable[..., Tensor]:
        try:
            with _quiet():
                made: Any = torch.jit.trace(self._function, given, check_trace=False)
            for _ in range(WARM_RUNS):
                made(*given)
        except PROBLEMS as error:
            log.info('%s runs operator by operator, because TorchScript does not take it: %s',
                     self._name, str(error).strip().partition('\n')[0])
            return self._function
        return made


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')     # deprecated; and shapes are recorded as they are
        yield


def _onednn(x: Tensor, weight: Tensor, bias: Tensor, then: str) -> Tensor:
    """Apply the linear layer of oneDNN, and then nothing ('none') or an exact GELU ('gelu')."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, then, [], 'none')


@lru_cache
def _scripted_onednn() -> Callable[..., Tensor]:
    """Compile `_onednn` for TorchScript, which cannot record its empty list."""
    try:
        with _quiet():
            return torch.jit.script(_onednn)
    except PROBLEMS:
        return _onednn


def turned(qkv: Tensor, heads: int, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values (B, H, N, C) of (B, N, 3 D), rotated but for the values."""
    qkv = qkv.unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)   # 3 B H N C
    half = cos.shape[-1] // 2
    both = qkv[:2] * cos
    both[..., :half].addcmul_(qkv[:2, ..., half:], sin[..., :half])
    both[..., half:].addcmul_(qkv[:2, ..., :half], sin[..., half:])
    return both[0], both[1], qkv[2]


def attend_in_parts(q: Tensor, k: Tensor, v: Tensor, most: int) -> Tensor:
    """Compute attention as separate products, `most` scores at a time."""
    b, h, n, c = q.shape
    # Heads before clips, as a stream remembers keys and values.
    q, k = q.transpose(0, 1).flatten(0, 1), k.transpose(0, 1).flatten(0, 1)     # H*B N or M C
    v = v.transpose(0, 1).flatten(0, 1)
    m = k.shape[1]
    rows = min(n, max(1, most // m))
    heads = min(b * h, max(1, most // (m * rows)))
    buffer = q.new_empty([heads, rows, m])
    out = q.new_empty([b * h, n, c])
    for head in range(0, b * h, heads):
        keys, values = k[head:head + heads].transpose(1, 2), v[head:head + heads]
        for row in range(0, n, rows):
            part = q[head:head + heads, row:row + rows]
            scores = buffer[:part.shape[0], :part.shape[1]]
            torch.baddbmm(scores, part, keys, beta=0, alpha=1 / math.sqrt(c), out=scores)
            torch.softmax(scores, -1, out=scores)
            torch.bmm(scores, values, out=out[head:head + heads, row:row + rows])
    return out.unflatten(0, (h, b)).transpose(0, 1)


@lru_cache
def products_are_faster() -> bool:
    """Return whether bf16 products are fast here, but not in PyTorch's fused attention."""
    features = cpu_features()
    return AVX512_BF16 in features and AMX not in features


@lru_cache
def has_fused_linear(dtype: torch.dtype) -> bool:
    """Return whether the linear layer of oneDNN is here, faster than that of MKL, and right."""
    capability = torch.backends.cpu.get_cpu_capability()
    if not capability.startswith('AVX') or not torch.backends.mkldnn.is_available() or (
            dtype == torch.float32 and not capability.startswith('AVX512')):
        return False
    rows = torch.arange(-96.0, 96.0).view(8, 24).div(48).to(dtype)
    plain = F.gelu(F.linear(rows.float(), rows.float(), rows[:, 0].float()))
    try:
        found = _onednn(rows, rows, rows[:, 0].contiguous(), 'gelu')
    # A private operator of PyTorch: a build may lack it, or have it with other arguments or types.
    # The plain layers that run then compute the same, only slower.
    except (AttributeError, RuntimeError, TypeError, NotImplementedError) as error:
        log.info('no fused linear layers in %s: %s', dtype, str(error).partition('\n')[0])
        return False
    exact = 0.01 if dtype == torch.bfloat16 else 1e-5
    if torch.allclose(found.float(), plain, rtol=exact, atol=exact):
        return True
    log.warning('the linear layers of oneDNN deviate in %s, plain ones are used', dtype)
    return False


def _halves(x: Tensor, dim: int = -1) -> Tensor:
    """Copy with the even entries of a dimension before the odd ones."""
    size = x.shape[dim]
    order = torch.cat((torch.arange(0, size, 2), torch.arange(1, size, 2)))
    return x.index_select(dim, order.to(x.device))


def _fixed(x: Tensor) -> nn.Parameter:
    return nn.Parameter(x.float().contiguous(), requires_grad=False)
