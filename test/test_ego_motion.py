# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The motion of the camera from displacements with known truth."""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np

from vjepa_ros.looming.affine import AffineFits
from vjepa_ros.looming.ego_motion import CameraMotion, Rays

FOCAL = 300.0


class Scene(NamedTuple):
    """Displacements of cells, one in seven of them wrong."""

    at: np.ndarray          # (N, 2) directions in the newer frame
    to: np.ndarray          # (N, 2) in the older one
    covariance: np.ndarray  # (N, 2, 2) px^2
    rotation: np.ndarray    # true rotation
    direction: np.ndarray   # true direction
    moves: bool


def scene(seed: int) -> Scene:
    """Draw a scene in which the camera stands, turns, moves or does both."""
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
    ends = np.c_[moved, np.ones(count)] @ cv2.Rodrigues(rotation)[0].T
    to = ends[:, :2] / ends[:, 2:]
    root = random.normal(size=(count, 2, 2)) * random.uniform(0.05, 0.6)
    to += np.einsum('nij,nj->ni', root, random.normal(size=(count, 2))) / FOCAL
    wrong = random.random(count) < 0.15
    to[wrong] += random.normal(0, 10 / FOCAL, (wrong.sum(), 2))
    covariance = root @ root.transpose(0, 2, 1) + 0.001 * np.eye(2)
    return Scene(at, to, covariance, rotation, -way, bool(near.any()))


def motion(one: Scene, count: int | None = None) -> CameraMotion:
    """What the first cells of a scene show."""
    at, to, covariance = (each[:count] for each in one[:3])
    theta = np.zeros((len(at), 6))
    theta[:, ::3] = (to - at) * FOCAL
    fits = AffineFits(theta, covariance, np.ones(len(at)), np.zeros(len(at)))
    return Rays(at, np.zeros((1, 1, 2)), FOCAL).camera_motion(fits)


def test_rotation_and_direction_are_those_of_the_camera():
    kinds, errors, apart = set(), [], []
    for seed in range(120):
        one = scene(seed)
        found = motion(one)
        kinds.add(found.kind)
        # Moving sideways past a few cells looks like turning.
        if len(one.at) > 100 and (not one.moves or abs(one.direction[2]) > 0.7):
            errors.append(np.abs(found.rotation - one.rotation).max())
            if found.kind == 'move' and found.direction is not None:
                apart.append(found.direction @ one.direction)
    assert kinds == {'still', 'turn', 'move', 'unknown'}
    assert np.median(errors) < 3e-4 and np.percentile(errors, 90) < 5e-3
    assert np.median(apart) > 0.99 and len(apart) > 5


def test_few_cells_tell_nothing():
    one = scene(3)
    found = motion(one, 7)
    assert found.kind == 'unknown' and found.direction is None and found.agreement == 0
    np.testing.assert_array_equal(found.rotation, 0)
