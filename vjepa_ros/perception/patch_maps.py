# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Masks and maps on the patch grid of a camera's clips."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from vjepa_ros.clip.resize import View
from vjepa_ros.clip.view import PatchCells
from vjepa_ros.looming.estimator import LoomingField

MOST = 64   # views and regions of interest that are remembered; one or a few of each camera


@lru_cache(MOST)
def valid_mask(view: View) -> np.ndarray:
    """Patches that show the image and not the bars beside it, (Hp, Wp) bool, read only."""
    return _read_only(view.patch_valid() > 0.5)


@lru_cache(MOST)
def roi_mask(view: View, roi: tuple[float, float, float, float]) -> np.ndarray:
    """Patches whose centre lies in the region of interest, (Hp, Wp) bool, read only."""
    boxes = view.patch_boxes()
    x = 0.5 * (boxes[..., 0] + boxes[..., 2]) / view.source_size[0]
    y = 0.5 * (boxes[..., 1] + boxes[..., 3]) / view.source_size[1]
    return _read_only((x >= roi[0]) & (x <= roi[2]) & (y >= roi[1]) & (y <= roi[3]))


@lru_cache(MOST)
def score_mask(view: View, roi: tuple[float, float, float, float]) -> np.ndarray:
    """Patches that show the region of interest, (Hp, Wp) bool, read only."""
    return _read_only(valid_mask(view) & roi_mask(view, roi))


def looming_map(view: View, field: LoomingField | None, min_confidence: float) -> np.ndarray:
    """Looming rate on the patch grid [1/s], (Hp, Wp) float32; NaN where not known that surely."""
    if field is None:
        return np.full(view.patch_valid().shape, np.nan, np.float32)
    rate = np.where(field.confidence >= min_confidence, field.rate, np.nan)
    xs, ys = field.centers[0, :, 0], field.centers[:, 0, 1]
    return _cells(tuple(xs.tolist()), tuple(ys.tolist()), field.gray_size, view).of(rate)


_cells = lru_cache(MOST)(PatchCells)


def _read_only(mask: np.ndarray) -> np.ndarray:
    mask.flags.writeable = False    # it is given to all who ask
    return mask
