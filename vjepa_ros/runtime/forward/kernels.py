# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""CUDA kernels for what lies between the matrix products of a transformer.

PyTorch spends a kernel, and a trip through memory, on every elementary step there. These do
each chain of steps in one. They are compiled at run time by NVRTC, which comes with PyTorch: no
compiler and no headers are needed on the robot. PyTorch 2.9 and later offer it; see
`available`.

M tokens of all clips, N tokens of one clip, D width, F width of the MLP, d channels of a head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from vjepa_ros.runtime.forward.kernel_source import (
    GELU,
    GELU8,
    GREY,
    HALF,
    NORM,
    PACK4,
    PATCHES,
    ROTATE,
    UNIT,
)

NORM_THREADS = 128   # of the norm, at most: four values of a row each, and again
BLOCK = 256
WIDE = 8             # half precision values that a thread moves at once (16 bytes)
TOKEN_PIXELS = 2 * 16 * 16 * 3
Made = TypeVar('Made')


class KernelsMissing(RuntimeError):
    """The kernels cannot be made here; the message says why."""


@dataclass(frozen=True)
class Kernels:
    """The kernels for one network on one device; each call is one launch on the current stream.

    Make them with `build`.
    """

    patches_: Any
    add_norm_: Any
    norm_: Any
    last_norm_: Any
    rotate_: Any
    gelu_: Any
    dim: int
    norm8_: Any = None
    add_norm8_: Any = None
    gelu8_: Any = None

    def patches(self, pixels: Tensor, tokens: Tensor) -> None:
        """uint8 (B, T, H, W, 3) to tokens (M, 1536) of (pixel - GREY) UNIT.

        Each token is in the order frame, row, column, colour.
        """
        self.patches_((tokens.shape[0], 1, 1), (192, 1, 1), [pixels, tokens])

    def norm(self, x: Tensor, branch: Tensor | None, weight: Tensor, bias: Tensor,
             out: Tensor) -> None:
        """`x` (M, D) float32 += `branch` (M, D); `out` (M, D) = layer norm of `x`."""
        kernel = self.norm_ if branch is None else self.add_norm_
        if out.dtype == torch.float32:
            kernel = self.last_norm_
        kernel((x.shape[0], 1, 1), (_norm_threads(self.dim), 1, 1),
               [x, x if branch is None else branch, weight, bias, out])

    def rotate(self, qkv: Tensor, cosine: Tensor, sine: Tensor) -> None:
        """Encode positions into queries and keys of `qkv` (M, 3 D), tables (N, d) float32."""
        count = qkv.shape[0] * 2 * self.dim // WIDE
        self.rotate_((-(-count // BLOCK), 1, 1), (BLOCK, 1, 1), [qkv, cosine, sine, count])

    def gelu(self, values: Tensor) -> None:
        """GELU of all values, in place."""
        count = values.numel() // WIDE
        self.gelu_((-(-count // BLOCK), 1, 1), (BLOCK, 1, 1), [values, count])

    def norm8(self, x: Tensor, branch: Tensor | None, shift: Tensor, out: Tensor) -> None:
        """`x` as in `norm`; `out` (M, D) float8 = GAIN times its norm, plus `shift` (D,) float32.

        The norm has no weights here.
        """
        kernel = self.norm8_ if branch is None else self.add_norm8_
        kernel((x.shape[0], 1, 1), (_norm_threads(self.dim), 1, 1),
               [x, x if branch is None else branch, shift, shift, out])

    def gelu8(self, values: Tensor, gains: Tensor, shifts: Tensor, out: Tensor) -> None:
        """`out` (M, F) float8 = GELU of `values` (M, F) times `gains` plus `shifts`, (F,) each."""
        count = values.numel() // WIDE
        self.gelu8_((-(-count // BLOCK), 1, 1), (BLOCK, 1, 1),
                    [values, gains, shifts, out, values.shape[1] // WIDE, count])


def build(dim: int, head_dim: int, grid: tuple[int, int, int], dtype: torch.dtype,
          eps: float, gain: float = 0.0) -> Kernels:
    """Compile the kernels for the current device.

    Parameters
    ----------
    dim, head_dim : int
        D, a multiple of 64, and d, a multiple of 8.
    grid : (int, int, int)
        Tubelets, patch rows and columns of one clip.
    dtype : torch.dtype
        float16 or bfloat16.
    eps : float
        Of the layer norms.
    gain : float
        When not 0: make the kernels for float8, too, with GAIN of `Kernels.norm8`.

    Raises
    ------
    KernelsMissing
        When PyTorch offers no compiler, or it fails.
    """
    compile_kernel = compiler()
    if dtype not in HALF:
        raise KernelsMissing(f'they are for half precision, not for {dtype}')
    if dim % 64 or head_dim % 8:
        raise KernelsMissing(f'they need a width that is a multiple of 64 and heads of a '
                             f'multiple of 8 channels, not {dim} and {head_dim}')
    _, rows, cols = grid
    known = {'D': dim, 'HEAD': head_dim, 'N': grid[0] * rows * cols, 'ROWS': rows, 'COLS': cols,
             'THREADS': (threads := _norm_threads(dim)), 'EACH': -(-dim // 4 // threads),
             'EPS': f'{eps}f', 'GAIN': f'{gain}f',
             'GREY': f'{GREY}.f', 'UNIT': f'{UNIT}f'}

    def made(name: str, source: str, **more: int) -> Any:
        given = ''.join(f'#define {k} {v}\n' for k, v in {**known, **more}.items())
        try:
            return compile_kernel(given + HALF[dtype] + source, name)
        except (RuntimeError, OSError) as error:
            raise KernelsMissing(f'kernel {name}: {error}') from error

    eight = {} if not gain else {
        'norm8_': made('add_norm', PACK4 + NORM, ADD=0, EIGHT=1),
        'add_norm8_': made('add_norm', PACK4 + NORM, ADD=1, EIGHT=1),
        'gelu8_': made('gelu8', PACK4 + GELU8)}
    return Kernels(
        made('patches', PATCHES), made('add_norm', NORM, ADD=1), made('add_norm', NORM, ADD=0),
        made('add_norm', NORM, ADD=1, FULL=1), made('rotate', ROTATE), made('gelu', GELU), dim,
        **eight)


def _norm_threads(dim: int) -> int:
    return min(NORM_THREADS, -(-dim // 128) * 32)


def compiler() -> Callable[..., Any]:
    """What PyTorch compiles kernels with; KernelsMissing where it does not."""
    found = getattr(torch.cuda, '_compile_kernel', None)
    if found is None:
        raise KernelsMissing(f'PyTorch {torch.__version__} does not compile kernels at run time; '
                             '2.9 and later do')
    if torch.version.cuda is None:
        raise KernelsMissing('they are written for NVIDIA GPUs')
    return found


def begin_build(build: Callable[[torch.device], Made], device: torch.device,
                name: str) -> Future[Made] | None:
    """Begin to compile kernels for a device, in a thread of that name; None off CUDA."""
    if device.type != 'cuda':
        return None
    worker = ThreadPoolExecutor(1, name)
    try:
        return worker.submit(build, device)
    finally:
        worker.shutdown(wait=False)


@contextmanager
def loading_on(device: torch.device) -> Iterator[None]:
    """Load compiled kernels into a device, in any thread."""
    with torch.cuda.device(device):
        # A new thread has no CUDA context, and modules are loaded into one, until it does work.
        torch.zeros(1, device=device)
        yield
