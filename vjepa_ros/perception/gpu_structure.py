# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Structure of pictures in PyTorch, for a GPU that has them: `vjepa_ros.perception.structure`."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from vjepa_ros.perception.structure import GRAIN, Whole

GREY_WEIGHTS, GREY_BITS = (9798, 19235, 3735), 15   # OpenCV's of red, green and blue, over 2^15


class DeviceStructure:
    """What `Structure.of` gives for pictures of a side [px], on a device; nothing waits for it."""

    def __init__(self, side: int, valid: np.ndarray, device: torch.device) -> None:
        self._blocks = side // GRAIN
        whole = Whole.of((self._blocks, self._blocks), valid)

        def put(values: np.ndarray) -> Tensor:
            return torch.as_tensor(values, device=device)

        self._weight, self._count = put(whole.weight[..., 0]), put(whole.count[..., 0])
        self._slope = None if whole.fit is None else (put(whole.shapes), put(whole.fit))
        self._colors = torch.tensor(GREY_WEIGHTS, dtype=torch.float32, device=device)
        self._patch = self._blocks // len(valid)

    def __call__(self, rgb: Tensor) -> Tensor:
        """Measure a picture (S, S, 3) uint8: spread, mean and steep, (3, Hp, Wp) float32."""
        gray = self.coarse(rgb)
        steep = gray
        if self._slope is not None:
            shapes, fit = self._slope
            steep = gray - (shapes @ (fit @ gray.flatten())).view_as(gray)
        pictures = torch.stack([gray, steep])
        own = functional.avg_pool2d(torch.stack([pictures, pictures.square()]), self._patch)
        padded = functional.pad(own * self._weight, (1, 1, 1, 1), mode='replicate')
        mean, square = functional.avg_pool2d(padded, 3, 1, divisor_override=1) / self._count
        spread = (square - mean.square()).clamp_min(0).sqrt()
        return torch.stack([spread[0], own[0, 0], spread[1]])

    def coarse(self, rgb: Tensor) -> Tensor:
        """Compute `structure.coarse`: whole numbers in float32; all on the way are exact."""
        total = rgb.view(self._blocks, GRAIN, self._blocks, GRAIN, 3).sum((1, 3),
                                                                          dtype=torch.float32)
        grey = (total.mul_(1 / GRAIN ** 2).round_() * self._colors).sum(-1)
        return grey.mul_(0.5 ** GREY_BITS).add_(0.5).floor_()
