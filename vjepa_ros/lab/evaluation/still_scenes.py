# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Judge looming on every patch of real cameras that move through still scenes.

The truth of a place is the speed of the camera along its optical axis over the depth there. A
patch has the mean over those of its cells whose depth is known, if these are half of them or more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vjepa_ros.clip.resize import View
from vjepa_ros.lab.evaluation.metrics import Patches, patch_figures
from vjepa_ros.perception.patch_maps import looming_map
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
    """Collects what every method says of the patches of a recording, beside their truth."""

    def __init__(self, scene: StillScene, min_confidence: float) -> None:
        self._scene, self._min_confidence = scene, min_confidence
        self._index = {stamp: n for n, stamp in enumerate(scene.stamps_ns.tolist())}
        self._parts: list[Patches] = []

    def take(self, stamp_ns: int, results: Mapping[str, Result]) -> None:
        """Take the results of all methods at a frame; none while the clip fills."""
        if not results:
            return
        n, scene = self._index[stamp_ns], self._scene
        view = next(iter(results.values())).view
        truth = patch_truth(scene.depth_m[n], float(scene.closing_m_s[n]), view)
        judged = ~np.isnan(truth)
        turning = np.full(judged.sum(), math.degrees(scene.turning_rad_s[n]))
        self._parts.append(Patches(truth[judged], turning, {
            method: self._said(result)[:, judged] for method, result in results.items()}))

    def _said(self, result: Result) -> np.ndarray:
        """Return rate and standard error (2, Hp, Wp) as published: NaN where unknown."""
        field, rate = result.looming, result.looming_map
        assert rate is not None, 'looming was wanted'
        sigma = None if field is None else replace(field, rate=field.sigma)
        return np.stack([rate, looming_map(result.view, sigma, self._min_confidence)])

    def patches(self) -> Patches | None:
        """Return all patches; None where nothing was judged."""
        return pooled(self._parts) if self._parts else None


def pooled(parts: Sequence[Patches]) -> Patches:
    return Patches(np.concatenate([p.truth for p in parts]),
                   np.concatenate([p.turning_deg_s for p in parts]),
                   {method: np.concatenate([p.said[method] for p in parts], axis=1)
                    for method in parts[0].said})


def figures(found: Mapping[str, Patches]) -> dict[str, Any]:
    """Return the figures of every method by sequence, and over all patches of all sequences."""
    together = dict(found) | ({'pooled': pooled([*found.values()])} if found else {})
    return {name: {method: patch_figures(patches.truth, patches.turning_deg_s, *said)
                   for method, said in patches.said.items()}
            for name, patches in together.items()}
