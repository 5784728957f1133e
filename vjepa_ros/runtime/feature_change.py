# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Change of the features from tubelet to tubelet, where the features are.

The same numbers as `vjepa_ros.runtime.noise_floor.tubelet_change` and `patch_strength` on the
host: what comes from the device is one number for each patch and tubelet instead of all features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.model.variants import IMAGENET_MEAN, IMAGENET_STD, PATCH
from vjepa_ros.runtime.noise_floor import STEP


@dataclass(frozen=True)
class Change:
    """Change of one clip.

    Attributes
    ----------
    steps : ndarray
        (T'-1, Hp, Wp) float32, see `tubelet_change`.
    strength : ndarray
        (Hp, Wp) float32, see `patch_strength`.

    """

    steps: np.ndarray
    strength: np.ndarray

    @classmethod
    def unpack(cls, packed: np.ndarray) -> Change:
        """From one clip of what `ChangeReader` gives."""
        return cls(packed[:-1], packed[-1])


class ChangeReader:
    """Makes the change of clips from features and pixels on one device.

    Parameters
    ----------
    device : torch.device
        Where both are.

    """

    def __init__(self, device: torch.device):
        row = {'dtype': torch.float32, 'device': device}
        self._mean = torch.tensor([255.0 * m for m in IMAGENET_MEAN], **row)
        self._gain = torch.tensor([1.0 / (255.0 * s) for s in IMAGENET_STD], **row)

    def __call__(self, features: Tensor, pixels: Tensor, valid: Tensor) -> Tensor:
        """Change and strength of the patches of clips.

        Parameters
        ----------
        features : Tensor
            (B, T', Hp, Wp, D), T' at least 2.
        pixels : Tensor
            (B, 2 T', 16 Hp, 16 Wp, 3) uint8.
        valid : Tensor
            (B, Hp, Wp) float32, 1 where a patch shows the image; only those enter the mean step.

        Returns
        -------
        Tensor
            (B, T', Hp, Wp) float32: the T'-1 steps, then the strength.

        """
        features = features.float()
        steps = features[:, 1:] - features[:, :-1]
        share = valid / valid.sum((1, 2), keepdim=True).clamp_min(1.0)
        common = (steps * share[:, None, :, :, None]).sum((2, 3), keepdim=True)
        change = (steps - common).square_().mean(-1).sqrt_()
        seen = pixels[:, :, STEP // 2::STEP, STEP // 2::STEP].float()
        power = ((seen - self._mean) * self._gain).square_().mean((1, 4))
        rows, cols = valid.shape[1:]
        each = PATCH // STEP
        strength = power.view(-1, rows, each, cols, each).mean((2, 4)).sqrt_()
        return torch.cat([change, strength[:, None]], 1)
