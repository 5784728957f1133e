# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The steps between the matrix products of a transformer, in operations of PyTorch.

The same as `vjepa_ros.runtime.forward.kernels.Kernels`, operation by operation and for every
device: the reference for the kernels, and what runs instead of them.
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from vjepa_ros.model.rope import rotate

FLOAT8 = torch.float8_e4m3fn
LARGEST = 448.0         # of float8_e4m3fn


class Steps(Protocol):
    """Steps of a forward pass, see `vjepa_ros.runtime.forward.kernels.Kernels`."""

    def norm(self, x: Tensor, branch: Tensor | None, weight: Tensor, bias: Tensor,
             out: Tensor) -> None:
        """Add `branch` to `x` and write its layer norm."""
        ...

    def rotate(self, qkv: Tensor, cosine: Tensor, sine: Tensor) -> None:
        """Encode positions into queries and keys, in place."""
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
