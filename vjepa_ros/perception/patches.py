# SPDX-License-Identifier: Apache-2.0
"""Masks and maps on the patch grid of a camera's clips."""

from __future__ import annotations

import numpy as np

from vjepa_ros.clip.preprocess import View, sample_to_patches
from vjepa_ros.perception.looming import LoomingField


def valid_mask(view: View) -> np.ndarray:
    """Patches that show the image and not the bars beside it, (Hp, Wp) bool."""
    return view.patch_valid() > 0.5


def roi_mask(view: View, roi: tuple[float, float, float, float]) -> np.ndarray:
    """Patches whose centre lies in the region of interest, (Hp, Wp) bool."""
    boxes = view.patch_boxes()
    x = 0.5 * (boxes[..., 0] + boxes[..., 2]) / view.source_size[0]
    y = 0.5 * (boxes[..., 1] + boxes[..., 3]) / view.source_size[1]
    return (x >= roi[0]) & (x <= roi[2]) & (y >= roi[1]) & (y <= roi[3])


def looming_map(view: View, field: LoomingField | None, min_confidence: float) -> np.ndarray:
    """Looming rate on the patch grid [1/s], (Hp, Wp) float32; NaN where not known that surely."""
    if field is None:
        return np.full(view.patch_valid().shape, np.nan, np.float32)
    rate = np.where(field.confidence >= min_confidence, field.rate, np.nan)
    return sample_to_patches(rate, field.centers, field.gray_size, view)
