# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Maps on the patch grid of a camera: valid patches and motion.

Motion comes from the change of the features of a patch over the tubelets of a clip. With F_t(p)
the feature of patch p in tubelet t of D channels,

    c_t(p) = |F_{t+1}(p) - F_t(p) - mean_q(F_{t+1}(q) - F_t(q))| / sqrt(D)    change
    r(p)   = sqrt(mean_t (c_t(p) / n_t(s(p)))^2)                              in noise floors
    m(p)   = 1 - exp(-max(0, r(p) - r0) / R_SCALE)                            motion, 0 .. 1

where n_t(s) is the change that sensor noise alone causes in a patch of strength s, measured for
the loaded model (`vjepa_ros.runtime.noise_floor`), and r0 = max(R_QUIET, 1 + 4 spread).

Motion is 0 up to 2 noise floors, 0.5 at 4.1, 0.9 at 8.9. The noise floor corresponds to 2.5 grey
levels at the size of the model input. Stronger noise of a camera in the dark (above about 5 grey
levels after resizing) shows as motion, as does camera shake of more than about a quarter of an
input pixel where the texture is fine. A surface without texture shows no motion while it moves,
only its borders do. Untrained weights project the pixels at random: they show change, not its
meaning. Trained weights give the same features to the same motion a tubelet later, so a view that
slides evenly changes less than what starts, stops or turns.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from vjepa_ros.clip.resize import View
from vjepa_ros.runtime.noise_floor import Change, NoiseFloor, patch_strength, tubelet_change

CACHED = 64    # views and regions of interest; one or a few of each camera
R_QUIET = 2.0  # noise floors that count as no motion
R_SCALE = 3.0  # noise floors above r0 at which motion reaches 63 %
WEAK = 0.4     # strength assumed when the pixels are unknown


@lru_cache(CACHED)
def valid_mask(view: View) -> np.ndarray:
    """Return the patches that show image and not bars, (Hp, Wp) bool, read only."""
    return _read_only(view.patch_valid > 0.5)


@lru_cache(CACHED)
def score_mask(view: View, roi: tuple[float, float, float, float]) -> np.ndarray:
    """Return the patches of `valid_mask` centred in a region of interest, (Hp, Wp), read only."""
    boxes = view.patch_boxes
    x = 0.5 * (boxes[..., 0] + boxes[..., 2]) / view.source_size[0]
    y = 0.5 * (boxes[..., 1] + boxes[..., 3]) / view.source_size[1]
    inside = (x >= roi[0]) & (x <= roi[2]) & (y >= roi[1]) & (y <= roi[3])
    return _read_only(valid_mask(view) & inside)


def motion_map(features: np.ndarray, floor: NoiseFloor, clip: np.ndarray | None = None,
               valid: np.ndarray | None = None) -> np.ndarray:
    """Compute the motion of each patch.

    `valid`: (Hp, Wp) bool, patches that show the image and not the bars of a letterbox.
    """
    _check(features.shape[0], floor)
    if valid is not None:
        valid = np.asarray(valid, bool)
        if not valid.any():
            return np.full(features.shape[1:3], np.nan, np.float32)
    strength = np.full(features.shape[1:3], WEAK) if clip is None else patch_strength(clip)
    return motion_of(Change(tubelet_change(features, valid), strength), floor, valid)


def motion_of(change: Change, floor: NoiseFloor, valid: np.ndarray | None = None) -> np.ndarray:
    """Compute `motion_map` from a change of the features, made with the same `valid`."""
    _check(len(change.steps) + 1, floor)
    if valid is not None and not valid.any():
        return np.full(change.strength.shape, np.nan, np.float32)
    ratio = change.steps / floor.expected(change.strength)
    excess = np.sqrt(np.square(ratio).mean(axis=0)) - max(R_QUIET, 1.0 + 4.0 * floor.spread)
    motion = -np.expm1(-np.maximum(excess, 0.0) / R_SCALE)
    if valid is not None:
        motion[~valid] = np.nan
    return motion.astype(np.float32)


def motion_score(motion: np.ndarray, mask: np.ndarray | None = None) -> float:
    """Return how much of the view moves.

    `motion`: (Hp, Wp), see `motion_map`; `mask`: (Hp, Wp) bool region of interest; everything
    when omitted.
    """
    inside = np.isfinite(motion)
    if mask is not None:
        inside &= mask
    known = motion[inside]
    return float(known.mean()) if known.size else math.nan


def _check(tubelets: int, floor: NoiseFloor) -> None:
    if tubelets - 1 != floor.offset.size:
        raise ValueError(f'features of {tubelets} tubelets do not go with a noise floor '
                         f'of {floor.offset.size} transitions; measure it with the same clips')


def _read_only(mask: np.ndarray) -> np.ndarray:
    mask.flags.writeable = False    # all callers share it
    return mask
