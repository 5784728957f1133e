# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The steps between the matrix products of a transformer: in CUDA kernels, and in PyTorch.

PyTorch spends a kernel, and a trip through memory, on every elementary step there. Each kernel of
`encoder.cu` computes a chain of steps. `PlainSteps` does the same operation by operation on every
device: the reference for the kernels, and what runs instead of them.

M tokens of all clips, N tokens of one clip, D width, F width of the MLP, d channels of a head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from vjepa_ros.model.rope import rotate
from vjepa_ros.runtime.cuda.compiler import (
    Kernel,
    KernelsMissing,
    compile_kernel,
    one_each,
    source_of,
)

FLOAT8 = torch.float8_e4m3fn
LARGEST = 448.0         # of float8_e4m3fn
NORM_THREADS = 128   # of the norm, at most: four values of a row each, and again
BLOCK = 256
WIDE = 8             # half precision values that a thread moves at once (16 bytes)


class Steps(Protocol):
    """Steps of a forward pass, see `Kernels`."""

    def norm(self, x: Tensor, branch: Tensor | None, weight: Tensor, bias: Tensor,
             out: Tensor) -> None:
        """Add `branch` to `x` and write its layer norm."""
        ...

    def rotate(self, qkv: Tensor, cosine: Tensor, sine: Tensor) -> None:
        """Encode positions into queries and keys, in place."""
        ...

    def remember(self, qkv: Tensor, cosine: Tensor, sine: Tensor, kept: Tensor, slots: Tensor,
                 room: Tensor) -> None:
        """Encode positions, and remember keys and values beside earlier ones."""
        ...

    def gelu(self, values: Tensor) -> None:
        """Apply GELU in place."""
        ...

    def norm8(self, x: Tensor, branch: Tensor | None, shift: Tensor, out: Tensor) -> None:
        """Add `branch` to `x` and write its scaled and shifted norm as float8."""
        ...

    def gelu8(self, values: Tensor, gains: Tensor, shifts: Tensor, out: Tensor) -> None:
        """Write the scaled and shifted GELU as float8."""
        ...


class PlainSteps:
    """`Steps` for clips of one shape.

    Parameters
    ----------
    head_dim : int
        Channels of a head.
    eps : float
        Of the layer norms.
    gain : float
        Of `norm8`.

    """

    def __init__(self, head_dim: int, eps: float, gain: float):
        self._head_dim, self._eps, self._gain = head_dim, eps, gain

    def norm(self, x: Tensor, branch: Tensor | None, weight: Tensor, bias: Tensor,
             out: Tensor) -> None:
        """Compute `Kernels.norm`."""
        if branch is not None:
            x.add_(branch)
        out.copy_(F.layer_norm(x, x.shape[1:], weight, bias, self._eps))

    def rotate(self, qkv: Tensor, cosine: Tensor, sine: Tensor) -> None:
        """Compute `Kernels.rotate`."""
        tokens, width = cosine.shape[0], qkv.shape[1] // 3
        both = qkv[:, :2 * width].unflatten(0, (-1, tokens)).unflatten(2, (-1, self._head_dim))
        turned = rotate(both.transpose(1, 2).float(), cosine, sine)
        both.copy_(turned.transpose(1, 2))

    def remember(self, qkv: Tensor, cosine: Tensor, sine: Tensor, kept: Tensor, slots: Tensor,
                 room: Tensor) -> None:
        """Compute `Kernels.remember`."""
        clips = len(slots)
        for own, *tables in zip(qkv.chunk(clips), cosine, sine, strict=True):
            self.rotate(own, *tables)
        parts = qkv.view(clips, -1, 3, kept.shape[1], self._head_dim).permute(2, 3, 0, 1, 4)
        kept[:, :, slots[:, -1]] = parts[1:]
        torch.index_select(kept, 2, slots.flatten(), out=room)

    def gelu(self, values: Tensor) -> None:
        """Compute `Kernels.gelu`."""
        values.copy_(F.gelu(values.float()))

    def norm8(self, x: Tensor, branch: Tensor | None, shift: Tensor, out: Tensor) -> None:
        """Compute `Kernels.norm8`."""
        if branch is not None:
            x.add_(branch)
        out.copy_(eight(self._gain * F.layer_norm(x, x.shape[1:], eps=self._eps) + shift))

    def gelu8(self, values: Tensor, gains: Tensor, shifts: Tensor, out: Tensor) -> None:
        """Compute `Kernels.gelu8`."""
        out.copy_(eight(F.gelu(values.float()) * gains + shifts))


def eight(values: Tensor) -> Tensor:
    """Convert to float8 (e4m3), clamped to its range."""
    return values.clamp(-LARGEST, LARGEST).to(FLOAT8)


@dataclass(frozen=True)
class Kernels:
    """The kernels for one network on one device; each call is one launch on the current stream.

    Make them with `build`. Those for float8 exist on demand.
    """

    made: Mapping[str, Kernel]
    dim: int

    def norm(self, x: Tensor, branch: Tensor | None, weight: Tensor, bias: Tensor,
             out: Tensor) -> None:
        """Add `branch` (M, D) to `x` (M, D) float32, and write its layer norm to `out` (M, D)."""
        name = 'norm' if branch is None else 'add_norm'
        if out.dtype == torch.float32:
            name = 'last_norm'
        self.made[name]((x.shape[0], 1, 1), (_norm_threads(self.dim), 1, 1),
                        [x, x if branch is None else branch, weight, bias, out])

    def rotate(self, qkv: Tensor, cosine: Tensor, sine: Tensor) -> None:
        """Encode positions into queries and keys of `qkv` (M, 3 D), tables (N, d) float32."""
        count = qkv.shape[0] * 2 * self.dim // WIDE
        self.made['rotate'](*one_each(count, BLOCK), [qkv, cosine, sine, count])

    def remember(self, qkv: Tensor, cosine: Tensor, sine: Tensor, kept: Tensor, slots: Tensor,
                 room: Tensor) -> None:
        """Rotate a tubelet of each clip, and put its keys and values beside earlier ones.

        `qkv`: (B N, 3 D); the queries are rotated in place; `cosine, sine`: (B, N, d) float32;
        `kept`: (2, D / d, S, N, d) keys and values of tubelets; those of these join them;
        `slots`: (B, W) int64, where the tubelets of each clip belong in `kept`, these last;
        `room`: (2, D / d, B W, N, d) becomes the keys and values of all tubelets of the clips.
        """
        window = slots.shape[1]
        count = (qkv.shape[0] * self.dim + room.numel()) // WIDE
        self.made['remember'](*one_each(count, BLOCK),
                              [qkv, cosine, sine, kept, slots, room, slots.numel(), window,
                               kept.shape[2], count])

    def gelu(self, values: Tensor) -> None:
        """Apply GELU to all values, in place."""
        count = values.numel() // WIDE
        self.made['gelu'](*one_each(count, BLOCK), [values, count])

    def norm8(self, x: Tensor, branch: Tensor | None, shift: Tensor, out: Tensor) -> None:
        """Change `x` as `norm`; `out` (M, D) float8 becomes GAIN times its norm, plus `shift`.

        The norm has no weights here; `shift` is (D,) float32.
        """
        name = 'norm8' if branch is None else 'add_norm8'
        self.made[name]((x.shape[0], 1, 1), (_norm_threads(self.dim), 1, 1),
                        [x, x if branch is None else branch, shift, shift, out])

    def gelu8(self, values: Tensor, gains: Tensor, shifts: Tensor, out: Tensor) -> None:
        """Write GELU of `values` times `gains` plus `shifts`, (F,) each, to `out`, (M, F) both."""
        count = values.numel() // WIDE
        self.made['gelu8'](*one_each(count, BLOCK),
                           [values, gains, shifts, out, values.shape[1] // WIDE, count])


def build(dim: int, head_dim: int, grid: tuple[int, int, int], dtype: torch.dtype,
          eps: float, gain: float = 0.0) -> Kernels:
    """Compile the kernels for the current device."""
    if dtype not in (torch.bfloat16, torch.float16):
        raise KernelsMissing(f'they are for half precision, not for {dtype}')
    if dim % 64 or head_dim % 8:
        raise KernelsMissing(f'they need a width that is a multiple of 64 and heads of a '
                             f'multiple of 8 channels, not {dim} and {head_dim}')
    threads = _norm_threads(dim)
    known = {'D': dim, 'HEAD': head_dim, 'N': grid[0] * grid[1] * grid[2], 'THREADS': threads,
             'EACH': -(-dim // 4 // threads), 'EPS': f'{eps}f', 'GAIN': f'{gain}f',
             'HALF_IS_BF16': int(dtype == torch.bfloat16)}
    # The name of each kernel in its source, and what is defined for it.
    wanted = {'add_norm': ('add_norm', {'ADD': 1}), 'norm': ('add_norm', {}),
              'last_norm': ('add_norm', {'ADD': 1, 'FULL': 1}), 'rotate': ('rotate', {}),
              'remember': ('remember', {}), 'gelu': ('gelu', {})}
    if gain:
        wanted |= {'norm8': ('add_norm', {'EIGHT': 1}),
                   'add_norm8': ('add_norm', {'ADD': 1, 'EIGHT': 1}),
                   'gelu8': ('gelu8', {'EIGHT': 1})}
    made = {}
    for key, (name, more) in wanted.items():
        source = source_of('vjepa_ros.runtime.forward', 'encoder', **known, **more)
        made[key] = compile_kernel(source, name)
    return Kernels(made, dim)


def _norm_threads(dim: int) -> int:
    return min(NORM_THREADS, -(-dim // 128) * 32)
