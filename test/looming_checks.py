# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What an estimator of looming has to find in films with known truth, wherever it computes."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from looming_films import FOCAL, SIZE, Wall, cells, film, whole

from vjepa_ros.looming.estimator import LoomingField


class Estimator(Protocol):
    """Looming on the host or on a device."""

    def estimate(self, history: list, focal_px: float) -> LoomingField: ...


def ttc_error(field: LoomingField, rate: np.ndarray, where: np.ndarray | None = None) -> float:
    """Median relative error of the time to contact over the known cells; fails when few are."""
    known = np.isfinite(field.rate) & (where if where is not None else True)
    wanted = where.sum() if where is not None else known.size
    assert known.sum() > 0.4 * wanted, f'only {known.sum()} of {wanted} cells known'
    found, true = field.rate[known], cells(rate)[known]
    return float(np.median(np.abs(true / np.where(found == 0, 1e-9, found) - 1)))


def check_wall(estimator: Estimator, ttc: float, dt: float) -> None:
    """The time to contact with a wall straight ahead."""
    history, rate, _ = film([Wall((0, 0, 2))], velocity=(0, 0, 2 / ttc), dt=dt)
    assert ttc_error(estimator.estimate(history, FOCAL), rate) < 0.05


def check_wall_while_turning(estimator: Estimator, ttc: float, turn: tuple) -> None:
    """The same while the camera turns, and how it turns."""
    history, rate, _ = film([Wall((0, 0, 2))], velocity=(0, 0, 2 / ttc), turn=turn, dt=1 / 15)
    field = estimator.estimate(history, FOCAL)
    assert ttc_error(field, rate) < 0.1
    assert np.abs(field.rotation - turn).max() < 0.05


def check_turning_alone(estimator: Estimator, dt: float, turn: tuple) -> None:
    """Nothing looms where the camera only turns."""
    history, _, _ = film([Wall((0, 0, 3))], turn=turn, dt=dt)
    field = estimator.estimate(history, FOCAL)
    known = np.isfinite(field.rate)
    assert known.mean() > 0.4
    assert np.median(np.abs(field.rate[known])) < 0.01
    assert np.abs(field.rate[known]).max() < 0.06


def check_object_before_background(estimator: Estimator, ttc: float, aside: float) -> None:
    """An object looms, and what is still behind it does not."""
    thing = Wall((0.2, 0.1, 1.5), half=(0.35, 0.3), velocity=(aside, 0, -1.5 / ttc), look=1,
                 texel=0.0025)
    history, rate, which = film([Wall((0, 0, 4), texel=0.0068), thing], dt=1 / 15)
    field = estimator.estimate(history, FOCAL)
    assert ttc_error(field, rate, whole(which, 1)) < 0.1
    behind = field.rate[whole(which, 0)]
    assert np.nanmedian(np.abs(behind)) < 0.01
    assert np.nanpercentile(np.abs(behind), 95) < 0.03


def check_still_scene(estimator: Estimator, noise: float, dt: float, count: int) -> None:
    """A still scene is known not to loom, and the camera not to turn."""
    history, _, _ = film([Wall((0, 0, 2))], dt=dt, count=count, noise=noise)
    field = estimator.estimate(history, FOCAL)
    known = np.isfinite(field.rate)
    assert known.mean() > 0.9
    assert np.abs(field.rate[known]).mean() < 0.002
    assert np.abs(field.rate[known]).max() < 0.01
    assert np.abs(field.rotation).max() < 0.01


def noisy(level: float, noise: float, count: int = 5) -> list[tuple[int, np.ndarray]]:
    """Frames of one grey level with noise: stamps [ns] and (288, 384) uint8."""
    rng = np.random.default_rng(7)
    frames = np.clip(np.round(level + rng.normal(size=(count, *SIZE[::-1])) * noise), 0, 255)
    return [(int(1e8) * (k + 1), f) for k, f in enumerate(frames.astype(np.uint8))]
