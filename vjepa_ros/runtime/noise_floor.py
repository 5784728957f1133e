# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Change of features between tubelets, and the part of it that noise causes.

Noise affects the features more where a patch carries little signal. The floor is therefore a
function of patch strength s, n_t(s) = offset_t + gain_t / s, fitted for every transition t between
consecutive tubelets to clips of still procedural scenes. (Rotary positions are absolute in time,
so even noiseless transitions differ.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import torch
from torch import Tensor

from vjepa_ros.model.encoder import Normalise
from vjepa_ros.model.variants import IMAGENET_MEAN, IMAGENET_STD, PATCH

SENSOR_SIGMA = 2.5  # noise of a pixel at the size of the model input [grey levels]
FLICKER = 1.0  # largest common change of brightness between frames [grey levels]
SCENES = 4
MIN_STRENGTH = 0.1  # the fit is not extrapolated to weaker patches
STEP = 4  # every 4th pixel in both directions is enough to know the strength of a patch

Encode = Callable[[Sequence[np.ndarray]], list[np.ndarray]]


@dataclass(frozen=True)
class NoiseFloor:
    """Change of the features of a still scene."""

    offset: np.ndarray  # (T'-1,) float32, of each transition: see the module
    gain: np.ndarray  # likewise
    spread: float  # standard deviation of measured over fitted change

    def expected(self, strength: np.ndarray) -> np.ndarray:
        """Return the change that noise alone causes: (Hp, Wp) strength -> (T'-1, Hp, Wp)."""
        weakness = 1.0 / np.maximum(strength, MIN_STRENGTH)
        return self.offset[:, None, None] + self.gain[:, None, None] * weakness


def patch_strength(clip: np.ndarray) -> np.ndarray:
    """Compute the rms of the normalised pixels of each patch, over all frames of the clip."""
    rows, cols = clip.shape[1] // PATCH, clip.shape[2] // PATCH
    pixels = clip[:, STEP // 2::STEP, STEP // 2::STEP].astype(np.uint16)
    # Whole numbers over the frames first: a third of the time of normalised pixels.
    total = pixels.sum(axis=0, dtype=np.uint32)
    squares = np.multiply(pixels, pixels, out=pixels).sum(axis=0, dtype=np.uint32)
    mean, spread = 255.0 * np.asarray(IMAGENET_MEAN), 255.0 * np.asarray(IMAGENET_STD)
    power = ((squares - 2.0 * mean * total) / len(clip) + mean ** 2) / spread ** 2
    patches = power.mean(axis=-1).reshape(rows, PATCH // STEP, cols, PATCH // STEP)
    return np.sqrt(np.maximum(patches.mean(axis=(1, 3)), 0.0)).astype(np.float32)


def tubelet_change(features: np.ndarray, valid: np.ndarray | None = None) -> np.ndarray:
    """Compute how far the feature of a patch moves from one tubelet to the next.

    The mean step of the `valid` patches (Hp, Wp) is subtracted: light and time move all alike.
    """
    steps = np.diff(features, axis=0)  # T'-1 Hp Wp D
    common = steps if valid is None else steps[:, valid][:, :, None]
    steps -= common.mean(axis=(1, 2))[:, None, None]
    return np.sqrt(np.einsum('thwd,thwd->thw', steps, steps) / features.shape[-1])


def measure_noise_floor(encode: Encode, num_frames: int, image_size: int) -> NoiseFloor:
    """Encode still scenes with sensor noise and fit the floor to the change they show."""
    rng = np.random.default_rng(0)
    strengths, changes = [], []
    for _ in range(SCENES):  # one at a time: measuring must not need more memory than serving
        clip = still_clip(random_scene(rng, image_size), num_frames, rng)
        strengths.append(patch_strength(clip))
        changes.append(tubelet_change(encode([clip])[0]))
    strength = np.maximum(np.stack(strengths).ravel(), MIN_STRENGTH)
    change = np.stack(changes, axis=1).reshape(num_frames // 2 - 1, -1)  # T'-1, patches
    fits = np.stack([_fit(strength, row) for row in change])
    floor = NoiseFloor(*fits.T.astype(np.float32), spread=0.0)
    ratio = change / floor.expected(strength[None])[:, 0]
    return NoiseFloor(floor.offset, floor.gain, float(np.std(ratio)))


def _fit(strength: np.ndarray, change: np.ndarray) -> np.ndarray:
    """Offset and gain, both at least 0, with the least relative error."""
    weight = 1.0 / np.maximum(change, 1e-6)
    terms = np.stack([weight, weight / strength], axis=1)  # relative to the measured change
    both = np.linalg.lstsq(terms, np.ones_like(change), rcond=None)[0]
    if (both >= 0).all():
        return np.maximum(both, 1e-6)
    # Keep the better single term.
    alone = terms.sum(axis=0) / np.square(terms).sum(axis=0)
    error = np.square(terms * alone - 1.0).sum(axis=0)
    return np.maximum(np.where(error == error.min(), alone, 0.0), 1e-6)


def random_scene(rng: np.random.Generator, size: int) -> np.ndarray:
    """Make a procedural picture from flat to strongly textured, from dark to bright."""
    light = _smooth(rng, size, 4, 0.0, 255.0, 1) + _smooth(rng, size, 4, -25.0, 25.0, 3)
    texture = 0.6 * _smooth(rng, size, size // 8, -1.0, 1.0, 1)
    texture = texture + 0.4 * _smooth(rng, size, size // 3, -1.0, 1.0, 3)
    contrast = 110.0 * np.maximum(_smooth(rng, size, 4, -0.3, 1.0, 1), 0.0)
    return np.clip(light + contrast * texture, 0.0, 255.0)


def still_clip(picture: np.ndarray, num_frames: int, rng: np.random.Generator,
               sigma: float = SENSOR_SIGMA, flicker: float = FLICKER) -> np.ndarray:
    """Repeat a picture (H, W, C) with fresh noise in every frame [grey levels]."""
    frames = np.empty((num_frames, *picture.shape), np.uint8)
    for number in range(num_frames):
        noise = sigma * rng.standard_normal(picture.shape, np.float32)
        noise += np.float32(rng.uniform(-flicker, flicker))
        frames[number] = np.clip(np.rint(picture + noise), 0, 255)
    return frames


def _smooth(rng: np.random.Generator, size: int, cells: int, low: float, high: float,
            channels: int) -> np.ndarray:
    """Random values on `cells` x `cells` knots, interpolated to (size, size, channels)."""
    knots = rng.uniform(low, high, (cells + 2, cells + 2, channels)).astype(np.float32)
    pixel = -(-size // cells)  # rounded up, so that the outer knots can be cut off
    field = cv2.resize(knots, (pixel * (cells + 2),) * 2, interpolation=cv2.INTER_CUBIC)
    return field.reshape(*field.shape[:2], channels)[pixel:pixel + size, pixel:pixel + size]


@dataclass(frozen=True)
class Change:
    steps: np.ndarray  # (T'-1, Hp, Wp) float32, see `tubelet_change`
    strength: np.ndarray  # (Hp, Wp) float32, see `patch_strength`


class ChangeReader:
    """Compute `tubelet_change` and `patch_strength` on the device of the features."""

    def __init__(self, device: torch.device):
        self._normalise = Normalise(device)

    def __call__(self, features: Tensor, pixels: Tensor, valid: Tensor) -> Tensor:
        """Return change and strength (B, T', Hp, Wp) of clips; `valid`: 1 where an image shows."""
        features = features.float()
        steps = features[:, 1:] - features[:, :-1]
        share = valid / valid.sum((1, 2), keepdim=True).clamp_min(1.0)
        common = (steps * share[:, None, :, :, None]).sum((2, 3), keepdim=True)
        change = (steps - common).square_().mean(-1).sqrt_()
        power = self._normalise(pixels[:, :, STEP // 2::STEP, STEP // 2::STEP]).square_()
        rows, cols = valid.shape[1:]
        each = PATCH // STEP
        strength = power.mean((1, 2)).view(-1, rows, each, cols, each).mean((2, 4)).sqrt_()
        return torch.cat([change, strength[:, None]], 1)
