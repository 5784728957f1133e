# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Judge looming on every patch of real cameras that move through still scenes.

The truth of a place is the speed of the camera along its optical axis over the depth there. A
patch has the mean over those of its cells whose depth is known, if these are half of them or more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from vjepa_ros.clip.resize import View
from vjepa_ros.lab.evaluation.metrics import Patches, patch_figures
from vjepa_ros.perception.types import Result
from vjepa_ros.sources.folder import StillScene


def patch_truth(depth_m: np.ndarray, closing_m_s: float, view: View) -> np.ndarray:
    """Return the looming rate [1/s] of each patch (Hp, Wp); NaN where it is not judged."""
    rows, columns = view.grid
    size = np.array(depth_m.shape[::-1])
    cells = np.stack(np.meshgrid(*map(np.arange, size)), -1)
    points = (cells + 0.5) * (np.array(view.source_size) / size) - 0.5
    place = np.floor((view.from_source(points) + 0.5) / view.patch).astype(int)
    inside = np.asarray(((place >= 0) & (place < (columns, rows))).all(-1))
    patch = place[..., 1] * columns + place[..., 0]
    known = inside & ~np.isnan(depth_m)

    def total(those: np.ndarray, values: np.ndarray | None = None) -> np.ndarray:
        weights = None if values is None else values[those]
        return np.bincount(patch[those], weights, rows * columns)

    have = total(known)
    judged = (have > 0) & (2 * have >= total(inside))
    mean = total(known, closing_m_s / depth_m) / np.maximum(have, 1)
    return np.where(judged, mean, math.nan).reshape(rows, columns)


class PatchReader:
    """Collects what is said of the patches of a recording, beside their truth."""

    def __init__(self, scene: StillScene) -> None:
        self._scene = scene
        self._index = {stamp: n for n, stamp in enumerate(scene.stamps_ns.tolist())}
        self._parts: list[Patches] = []

    def take(self, stamp_ns: int, result: Result) -> None:
        """Take the result at a frame."""
        n, scene = self._index[stamp_ns], self._scene
        truth = patch_truth(scene.depth_m[n], float(scene.closing_m_s[n]), result.view)
        judged = ~np.isnan(truth)
        turning = np.full(judged.sum(), math.degrees(scene.turning_rad_s[n]))
        self._parts.append(Patches(truth[judged], turning, *self._said(result)[:, judged]))

    def _said(self, result: Result) -> np.ndarray:
        """Return rate and standard error (2, Hp, Wp) as published: NaN where unknown."""
        rate, learned = result.looming_map, result.learned
        assert rate is not None, 'looming was wanted'
        sigma = np.full_like(rate, np.nan) if learned is None else np.where(
            np.isnan(rate), np.nan, learned.sigma)
        return np.stack([rate, sigma])

    def patches(self) -> Patches | None:
        """Return all patches; None where nothing was judged."""
        return pooled(self._parts) if self._parts else None


def pooled(parts: Sequence[Patches]) -> Patches:
    return Patches(*(np.concatenate([getattr(p, field.name) for p in parts])
                     for field in fields(Patches)))


def figures(found: Mapping[str, Patches]) -> dict[str, Any]:
    """Return the figures by sequence, and over all patches of all sequences."""
    together = dict(found) | ({'pooled': pooled([*found.values()])} if found else {})
    return {name: patch_figures(*(getattr(patches, field.name) for field in fields(Patches)))
            for name, patches in together.items()}
