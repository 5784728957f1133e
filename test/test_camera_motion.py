# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The motion of the camera and the rates of its cells are those of the formulas, only faster."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields

import numpy as np
import plain_motion as plain
import pytest

from vjepa_ros.looming.affine import AffineFits
from vjepa_ros.looming.camera_motion import CameraMotion, camera_motion
from vjepa_ros.looming.expansion import PairLooming, View, pair_looming
from vjepa_ros.looming.rotation import turned

FOCAL = 300.0
SCENES = range(120)


def scene(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Directions, where they were, and its covariance: still, turning, moving or neither."""
    random = np.random.default_rng(seed)
    count = int(random.integers(8, 290))
    at = random.uniform(-0.6, 0.6, (count, 2)) * [1, 0.6]
    way = random.normal(size=3)
    way /= np.linalg.norm(way)
    near = random.uniform(0, 0.06, count) * (seed % 3 == 0) + 0.02 * (seed % 5 == 0)
    if seed % 4 == 0:
        near *= random.random(count) < 0.5      # the rest is far away
    moved = at - near[:, None] * (way[:2] - at * way[2])
    rotation = random.normal(0, 0.02, 3) * (seed % 2)
    to = np.stack(turned(*moved.T, rotation)[:2], -1)
    root = random.normal(size=(count, 2, 2)) * random.uniform(0.05, 0.6)
    to += np.einsum('nij,nj->ni', root, random.normal(size=(count, 2))) / FOCAL
    wrong = random.random(count) < 0.15
    to[wrong] += random.normal(0, 10 / FOCAL, (wrong.sum(), 2))
    return at, to, root @ root.transpose(0, 2, 1) + 0.001 * np.eye(2)


def assert_same(ours: CameraMotion | PairLooming, theirs: CameraMotion | PairLooming,
                *names: str, off: float = 1e-7) -> None:
    for name in names:
        one, other = getattr(ours, name), getattr(theirs, name)
        assert (one is None) == (other is None), name
        if one is not None:
            np.testing.assert_allclose(one, other, rtol=off, atol=off / 10, err_msg=name)


def assert_same_motion(ours: CameraMotion, theirs: CameraMotion, off: float = 1e-7) -> None:
    assert ours.kind == theirs.kind
    assert_same(ours, theirs, 'rotation', 'direction', 'covariance', 'agreement', off=off)


def test_the_motion_of_the_camera_is_that_of_the_formulas():
    kinds: Counter[str] = Counter()
    for seed in SCENES:
        given = (*scene(seed), FOCAL)
        first = plain.camera_motion(*given)
        assert_same_motion(camera_motion(*given), first)
        assert_same_motion(camera_motion(*given, first), plain.camera_motion(*given, first))
        kinds[first.kind] += 1
    assert all(kinds[kind] >= 3 for kind in ('still', 'turn', 'move', 'unknown')), kinds


def test_where_nothing_moves_a_cell_in_the_middle_does_no_harm():
    at = np.stack(np.meshgrid(np.arange(-3, 4), np.arange(-3, 4)), -1).reshape(-1, 2) / 20
    found = camera_motion(at, at, np.tile(0.01 * np.eye(2), (len(at), 1, 1)), FOCAL)
    assert found.kind == 'still' and found.agreement == pytest.approx(1)
    np.testing.assert_array_equal(found.direction, [0, 0, 1])


@pytest.mark.parametrize('seed', range(0, 40, 3))
@pytest.mark.parametrize('single', [False, True])
def test_the_rates_of_the_cells_are_those_of_the_formulas(seed: int, single: bool):
    random = np.random.default_rng(seed)
    at, to, _ = scene(seed)
    count = len(at)
    root = random.normal(size=(count, 6, 6)) * np.tile([0.1, 0.01, 0.01], 2)[:, None]
    covariance = root @ root.transpose(0, 2, 1)
    theta = random.normal(0, 0.03, (count, 6))
    theta[:, ::3] = (to - at) * FOCAL
    fits = AffineFits(theta, covariance, np.zeros(count), random.random(count),
                      random.random(count))
    if single:      # as the host gives them
        fits = AffineFits(*(getattr(fits, f.name).astype(np.float32) for f in fields(fits)))
    view = View(at, np.zeros((1, 1, 2)), FOCAL)
    rough = camera_motion(*scene(seed), FOCAL)
    given = fits, view, rough, random.random(count), 0.1, 0.01
    ours, theirs = pair_looming(*given), plain.pair_looming(*given)
    # The formulas leave numbers of single precision as they are, where ours do not.
    off = 1e-4 if single else 1e-7
    assert_same_motion(ours.motion, theirs.motion, off)
    assert_same(ours, theirs, 'rate', 'sigma', 'confidence', 'flow', off=off)
