# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Resize camera images on a device, to the very bytes that the host gives.

Every step of `View.apply` is a sum of pixels with fixed weights followed by
rounding, one axis after the other, with whole numbers in float64 so that the sums are exact.
Where OpenCV itself sums in float32, a value on the border between two bytes may fall to the other
side; the tests count how rarely. Sums of bytes times whole numbers are exact in any order, on any
device. On CUDA kernels compute means: one for each step, instead of some twenty of PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from math import gcd

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.clip.resize import LETTERBOX_RGB, View, halvings
from vjepa_ros.runtime.cuda.compiler import (
    Kernel,
    compile_kernel,
    kernels_for,
    loading_on,
    one_each,
    source_of,
)

_LINEAR_BITS = 11                   # of OpenCV's weights of a linear resize
_THREADS = 128                      # of a block of a kernel
Step = Callable[[Tensor], Tensor]   # (H, W, 3) to another size or type


class DeviceView:
    """A view applied on a device; `problem` tells which can not be."""

    def __init__(self, view: View, device: torch.device) -> None:
        problem = self.problem(view)
        if problem:
            raise ValueError(problem)
        (x, y), s, size = view.crop_offset, view.image_size, view.source_size
        side = min(size)
        self._source = (slice(y, y + side), slice(x, x + side)) if view.mode == 'crop' else ...
        self._bars: Tensor | None = None
        self._inside = slice(0, s), slice(0, s)
        if view.mode in ('hf', 'meta'):
            self._steps = ((_antialiased if view.mode == 'hf' else _linear)(
                size, view.resized, device),) if size != view.resized else ()
            self._inside = slice(y, y + s), slice(x, x + s)
        elif view.mode == 'letterbox':
            self._steps = _shrinking(size, view.resized, device)
            self._bars = torch.tensor(LETTERBOX_RGB, dtype=torch.uint8,
                                      device=device).expand(s, s, 3).contiguous()
            self._place = slice(-y, view.resized[1] - y), slice(-x, view.resized[0] - x)
        else:
            self._steps = _shrinking((side, side) if view.mode == 'crop' else size, (s, s), device)

    @staticmethod
    def problem(view: View) -> str:
        """Why a view can only be applied on the host; ''."""
        if view.mode in ('hf', 'meta'):
            return ''
        size = (min(view.source_size),) * 2 if view.mode == 'crop' else view.source_size
        if size[0] < view.resized[0] or size[1] < view.resized[1]:
            return (f'images of {size[0]}x{size[1]} grow to {view.resized[0]}x{view.resized[1]}, '
                    'which is done on the host')
        return ''

    def apply(self, rgb: Tensor, out: Tensor) -> None:
        """Write the model's input (S, S, 3) uint8 of an image (H, W, 3) uint8 into `out`."""
        image = rgb[self._source]
        for step in self._steps:
            image = step(image)
        if self._bars is None:
            out.copy_(image[self._inside])
        else:
            out.copy_(self._bars)
            out[self._place].copy_(image)


def _shrinking(size: tuple[int, int], wanted: tuple[int, int],
               device: torch.device) -> tuple[Step, ...]:
    """Make the steps of the host's area average."""
    made = means_of(device)
    count, left = halvings(size, wanted)
    last = (made.area(left, wanted, device),) if left != wanted else ()
    return (made.halve,) * count + last


class PlainMeans:
    """Means of the pixels (H, W, 3) uint8 under each new one, in operators of PyTorch."""

    def halve(self, image: Tensor) -> Tensor:
        """Compute the mean of 2x2 pixels, halves rounded up as OpenCV does."""
        h, w = image.shape[:2]
        total = image.reshape(h // 2, 2, w // 2, 2, 3).sum((1, 3), dtype=torch.int32)
        return ((total + 2) >> 2).to(torch.uint8)

    def area(self, size: tuple[int, int], wanted: tuple[int, int], device: torch.device) -> Step:
        """Make a resize by area."""
        cols, rows = (_area_weights(n, m) for n, m in zip(size, wanted, strict=True))
        share = torch.as_tensor((rows.sum(1)[:, None] * cols.sum(1))[..., None],
                                dtype=torch.float64, device=device)
        down, across = _weighted(rows, 0, device), _weighted(cols, 1, device)

        def step(image: Tensor) -> Tensor:
            # One division: what is half a byte is exactly that, and rounds to the even one.
            return across(down(image)).div_(share).round_().clamp_(0, 255).to(torch.uint8)

        return step


class KernelMeans(PlainMeans):
    """The same by the compiled kernels of `resize.cu`, on the current device and stream."""

    def __init__(self, made: Mapping[str, Kernel]) -> None:
        self.made = made

    def halve(self, image: Tensor) -> Tensor:
        """See `PlainMeans.halve`."""
        h, w = image.shape[:2]
        out = image.new_empty((h // 2, w // 2, 3))
        count = out.numel()
        self.made['halve'](*one_each(count, _THREADS), [image.contiguous(), out, count, w // 2])
        return out

    def area(self, size: tuple[int, int], wanted: tuple[int, int], device: torch.device) -> Step:
        """See `PlainMeans.area`."""
        (left, columns), (top, rows) = (
            [torch.as_tensor(v, dtype=torch.int32, device=device)
             for v in _runs(_area_weights(n, m))] for n, m in zip(size, wanted, strict=True))
        shape, count = wanted[::-1], wanted[0] * wanted[1]
        numbers = [wanted[0], columns.shape[1], rows.shape[1]]

        def step(image: Tensor) -> Tensor:
            out = image.new_empty((*shape, 3))
            self.made['area'](*one_each(count, _THREADS), [
                image.contiguous(), out, left, columns, top, rows, count, image.shape[1],
                *numbers])
            return out

        return step


def kernel_source() -> str:
    """Read the source of the kernels."""
    return source_of('vjepa_ros.clip', 'resize')


@lru_cache(maxsize=16)
def means_of(device: torch.device) -> PlainMeans:
    """Return what computes means on a device: kernels on CUDA, else the log tells why not."""
    if device.type != 'cuda':
        return PlainMeans()
    plain = PlainMeans()
    with loading_on(device):
        made, _ = kernels_for('resizing images', device, plain, lambda: KernelMeans({
            name: compile_kernel(kernel_source(), name) for name in ('halve', 'area')}),
            lambda means: trial(means, device), 0.0)
    return made or plain


def trial(means: PlainMeans, device: torch.device) -> Tensor:
    """Resize a picture in each way."""
    size, wanted = (62, 46), (20, 15)
    image = torch.randint(256, (size[1], size[0], 3), dtype=torch.uint8,
                          generator=torch.Generator().manual_seed(0)).to(device)
    found = means.halve(image), means.area(size, wanted, device)(image)
    return torch.cat([part.flatten().float() for part in found])


def _weighted(matrix: np.ndarray, axis: int, device: torch.device) -> Step:
    """Product of a matrix (m, n), whose rows are short runs of weights, with an axis, float64.

    Pixel by pixel of the runs: whole matrices in float64 take robots' GPUs tens of milliseconds,
    for they are made for single precision.
    """
    first, weight = _runs(matrix)
    at = np.minimum(first[:, None] + np.arange(weight.shape[1]), matrix.shape[1] - 1)
    indices = [torch.as_tensor(v, device=device) for v in at.T]
    shape = (-1, 1, 1) if axis == 0 else (1, -1, 1)
    weights = [torch.as_tensor(v, dtype=torch.float64, device=device).view(shape)
               for v in weight.T]

    def step(image: Tensor) -> Tensor:
        total = image.index_select(axis, indices[0]).double().mul_(weights[0])
        for index, share in zip(indices[1:], weights[1:], strict=True):
            total.addcmul_(image.index_select(axis, index).double(), share)
        return total

    return step


def _linear(size: tuple[int, int], wanted: tuple[int, int], device: torch.device) -> Step:
    """Bilinear between the nearest pixels, with OpenCV's integer arithmetic.

    That of `VResizeLinear` in its resize.cpp, which drops some bits on the way.
    """
    left, right, near, far = _linear_weights(size[0], wanted[0], (-1, 1), device)
    above, below, upper, lower = _linear_weights(size[1], wanted[1], (-1, 1, 1), device)

    def step(image: Tensor) -> Tensor:
        image = image.to(torch.int32)
        wide = (image[:, left] * near + image[:, right] * far) >> 4
        return ((((wide[above] * upper) >> 16) + ((wide[below] * lower) >> 16) + 2) >> 2).to(
            torch.uint8)

    return step


def _antialiased(size: tuple[int, int], wanted: tuple[int, int], device: torch.device) -> Step:
    """Resize bytes as the antialiased bilinear of PyTorch does, with its integer weights."""
    (cols, bits), (rows, more_bits) = (_triangle_weights(n, m)
                                       for n, m in zip(size, wanted, strict=True))

    down, across = _weighted(rows, 0, device), _weighted(cols, 1, device)

    def rounded(values: Tensor, shift: int) -> Tensor:
        # What was not resized are whole multiples already.
        return (values.long() + (1 << shift - 1) >> shift).clamp_(0, 255).to(torch.uint8)

    # The bytes between the two passes are part of the definition.
    return lambda image: rounded(down(rounded(across(image), bits)), more_bits)


def _area_weights(length: int, wanted: int) -> np.ndarray:
    """Weight (wanted, length) of each pixel in the mean of each new one, times the same number.

    In parts of a pixel so small that all borders, old and new, lie between two of them.
    """
    part = gcd(length, wanted)
    old, new = wanted // part, length // part     # parts in an old and in a new pixel
    borders, pixels = np.arange(wanted + 1) * new, np.arange(length) * old
    overlap = (np.minimum(borders[1:, None], pixels + old)
               - np.maximum(borders[:-1, None], pixels)).clip(0)
    overlap[overlap * 1000 < old] = 0   # OpenCV leaves out such slivers
    return overlap


def _linear_weights(length: int, wanted: int, shape: tuple[int, ...], device: torch.device
                    ) -> tuple[Tensor, ...]:
    """Both neighbours of each new pixel, and their weights over 2^11 in a shape."""
    at = ((np.arange(wanted) + 0.5) * (length / wanted) - 0.5).astype(np.float32)
    low = np.floor(at).astype(np.int64)
    part = at - low.astype(np.float32)
    weights = (np.rint(v * (1 << _LINEAR_BITS)).astype(np.int32).reshape(shape)
               for v in (1 - part, part))
    return tuple(torch.as_tensor(v, device=device) for v in (
        low.clip(0, length - 1), (low + 1).clip(0, length - 1), *weights))


def _triangle_weights(length: int, wanted: int) -> tuple[np.ndarray, int]:
    """Integer weights (wanted, length) and their number of bits, as PyTorch makes them.

    From `_compute_index_ranges_int16_weights` of ATen's UpSampleKernel.
    """
    scale = length / wanted
    if length == wanted:
        return np.eye(length, dtype=np.int64) * (1 << 8), 8
    reach = max(scale, 1.0)
    out = np.zeros((wanted, length))
    for i in range(wanted):
        middle = scale * (i + 0.5)
        first = max(int(middle - reach + 0.5), 0)
        last = min(int(middle + reach + 0.5), length)
        at = np.arange(first, last)
        weight = np.maximum(0, 1 - np.abs((at - middle + 0.5) / reach))
        out[i, first:last] = weight / weight.sum()
    bits = 0
    while bits < 22 and int(0.5 + out.max() * (1 << bits + 1)) < 1 << 15:
        bits += 1
    return np.floor(out * (1 << bits) + 0.5).astype(np.int64), bits


def _runs(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Place (m,) of the first weight of each row (m, n), and its weights (m, longest run)."""
    count = matrix.shape[1]
    used = matrix != 0
    first = used.argmax(1)
    longest = (count - used[:, ::-1].argmax(1) - first).max()
    at = first[:, None] + np.arange(longest)
    weight = np.take_along_axis(matrix, np.minimum(at, count - 1), 1)
    weight[at >= count] = 0
    return first, weight
