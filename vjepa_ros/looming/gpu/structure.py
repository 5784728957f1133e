# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Structure of pictures in PyTorch, for a GPU that has them: `vjepa_ros.looming.structure`."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from vjepa_ros.clip.device_resize import DeviceGrey
from vjepa_ros.looming.structure import GRAIN, Whole, coarse_side


class DeviceStructure:
    """What `Structure.of` gives, on a device; nothing waits for it.

    Parameters
    ----------
    side
        S, of the pictures [px].
    valid
        (Hp, Wp) part of each patch that shows image, 0..1.
    device
        Where the pictures are.
    """

    def __init__(self, side: int, valid: np.ndarray, device: torch.device) -> None:
        shape = coarse_side(side), coarse_side(side)
        whole = Whole.of(shape, valid)

        def put(values: np.ndarray) -> Tensor:
            return torch.as_tensor(values, device=device)

        self._weight, self._count = put(whole.weight[..., 0]), put(whole.count[..., 0])
        self._slope = None if whole.fit is None else (put(whole.shapes), put(whole.fit))
        self._cells, self._grid = put(whole.cells.ravel()), whole.cells.shape
        self._grey = DeviceGrey((side, side), shape, device)
        self._coarse = torch.empty(shape, dtype=torch.uint8, device=device)

    def __call__(self, rgb: Tensor) -> Tensor:
        """Measure a picture (S, S, 3) uint8: spread, mean and steep, (3, Hp, Wp) float32."""
        self._grey.apply(rgb, self._coarse)
        gray = self._coarse.float()
        steep = gray
        if self._slope is not None:
            shapes, fit = self._slope
            steep = gray - (shapes @ (fit @ gray.flatten())).view_as(gray)
        pictures = torch.stack([gray, steep])
        own = functional.avg_pool2d(torch.stack([pictures, pictures.square()]), GRAIN)
        padded = functional.pad(own * self._weight, (1, 1, 1, 1), mode='replicate')
        mean, square = functional.avg_pool2d(padded, 3, 1, divisor_override=1) / self._count
        spread = (square - mean.square()).clamp_min(0).sqrt()
        found = torch.stack([spread[0], own[0, 0], spread[1]]).flatten(1)
        return found[:, self._cells].unflatten(1, self._grid)
