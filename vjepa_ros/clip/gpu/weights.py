# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Which pixels make a new one when an image is resized, and their weights: all whole numbers.

Sums of bytes times whole numbers are exact in any order, on any device, in integers as in
float64. So a value that lies on the border between two bytes falls to the same side everywhere.
"""

from __future__ import annotations

from math import gcd

import numpy as np

GREY_WEIGHTS = (9798, 19235, 3735)  # OpenCV's of red, green and blue, over 2^15
_LINEAR_BITS = 11                   # of OpenCV's weights of a linear resize


def halvings(size: tuple[int, int], wanted: tuple[int, int]) -> tuple[int, tuple[int, int]]:
    """How often the host's area average halves an image first, and the size that is left.

    See `vjepa_ros.clip.resize`; its last step is a halving, too, where that is all.
    """
    (w, h), (width, height), count = size, wanted, 0
    while not h % 2 and not w % 2 and h >= 2 * height and w >= 2 * width:
        w, h, count = w // 2, h // 2, count + 1
    return count, (w, h)


def is_half(size: tuple[int, int], wanted: tuple[int, int]) -> bool:
    """Whether OpenCV's area average only halves: then it rounds a half up, and not to even."""
    return size == (2 * wanted[0], 2 * wanted[1])


def area_weights(length: int, wanted: int) -> np.ndarray:
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


def linear_weights(length: int, wanted: int) -> tuple[np.ndarray, ...]:
    """Both neighbours of each new pixel, and their weights over 2^11."""
    at = ((np.arange(wanted) + 0.5) * (length / wanted) - 0.5).astype(np.float32)
    low = np.floor(at).astype(np.int64)
    part = at - low.astype(np.float32)
    weights = (np.rint(v * (1 << _LINEAR_BITS)).astype(np.int32) for v in (1 - part, part))
    return low.clip(0, length - 1), (low + 1).clip(0, length - 1), *weights


def triangle_weights(length: int, wanted: int) -> tuple[np.ndarray, int]:
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


def runs(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First and number (m,) of the weights of each row (m, n), and these (m, longest run)."""
    count = matrix.shape[1]
    used = matrix != 0
    first = used.argmax(1)
    number = count - used[:, ::-1].argmax(1) - first
    at = first[:, None] + np.arange(number.max())
    weight = np.take_along_axis(matrix, np.minimum(at, count - 1), 1)
    weight[at >= count] = 0
    return first, number, weight
