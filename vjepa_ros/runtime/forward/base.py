# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The part of a pass that kernels may speed up: from the pixels of clips to features.

`vjepa_ros.runtime.forward.select.prepare` chooses one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from vjepa_ros.model.blocks import LayerMemory
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.variants import IMAGENET_MEAN, IMAGENET_STD
from vjepa_ros.runtime.device import SessionError

Work = Callable[[Tensor], Tensor]       # pixels to features, or features to packed heads

# From the pixels (B, 2, S, S, 3) uint8 of the newest tubelets, `Encoder.times` of these, and what
# each block remembers, to features (B, 1, Hp, Wp, D) float32.
Step = Callable[[Tensor, Tensor, Sequence[LayerMemory]], Tensor]

PLAIN, FUSED = 'plain', 'fused'     # operators of PyTorch, or kernels of this package


class Normalise:
    """uint8 clips (B, T, H, W, 3) to the float32 input of the encoder (B, 3, T, H, W)."""

    def __init__(self, device: torch.device):
        self._mean = torch.tensor(IMAGENET_MEAN, dtype=torch.float32, device=device) * 255.0
        self._scale = 1.0 / (torch.tensor(IMAGENET_STD, dtype=torch.float32, device=device)
                             * 255.0)

    def __call__(self, pixels: Tensor) -> Tensor:
        return ((pixels - self._mean) * self._scale).permute(0, 4, 1, 2, 3)


class Forward:
    """uint8 clips (B, T, S, S, 3) on the device to features (B, T', Hp, Wp, D) float32 there.

    A call may be captured in a CUDA graph after a few calls with clips of the same shape. From
    then on it must neither wait for the device nor copy from the host, and what it reads besides
    the clips must stay at its address.
    """

    def __init__(self, encoder: Encoder, normalise: Work, kind: str = PLAIN):
        self._encoder = encoder
        self.normalise = normalise      # uint8 clips to the present input of the encoder
        self.kind = kind
        self.note = ''                  # what is quantised

    def __call__(self, pixels: Tensor) -> Tensor:
        return self._encoder(self.normalise(pixels))


def closed(pixels: Tensor) -> Tensor:
    raise SessionError('the model is closed')
