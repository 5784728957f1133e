# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Turn rays, and tell how a turning camera displaces them."""

from __future__ import annotations

import math

import numpy as np

LEAST_DEPTH = 0.05    # of a ray that was turned, so that none comes to lie behind the camera


def matrix(rotation: np.ndarray) -> tuple[tuple[float, float, float], ...]:
    """Rotation matrix (3, 3) of a rotation vector in rad (Rodrigues)."""
    x, y, z = np.asarray(rotation, float).tolist()
    angle2 = x * x + y * y + z * z
    angle = math.sqrt(angle2)
    s, c = (1.0, 0.5) if angle < 1e-6 else (math.sin(angle) / angle,
                                            (1 - math.cos(angle)) / angle2)
    d = 1 - c * angle2
    return ((d + c * x * x, c * x * y - s * z, c * x * z + s * y),
            (c * x * y + s * z, d + c * y * y, c * y * z - s * x),
            (c * x * z - s * y, c * y * z + s * x, d + c * z * z))


def unturned(x: np.ndarray, y: np.ndarray,
             rotation: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Take directions x/z, y/z of the older frame to where they were without the rotation.

    Also returns the depth of the new ray, by which the old one was divided.
    """
    (a, b, c), (d, e, f), (g, h, i) = matrix(rotation)
    depth = np.maximum(c * x + f * y + i, LEAST_DEPTH)
    return (a * x + d * y + g) / depth, (b * x + e * y + h) / depth, depth


def turned(x: np.ndarray, y: np.ndarray,
           rotation: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where directions x/z, y/z of the newer frame were before the camera turned by rotation."""
    return unturned(x, y, -rotation)


def turn_rows(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Displacement (3, N) in x and in y, newer to older frame, per rad of camera rotation."""
    return np.array([-x * y, 1 + x * x, -y]), np.array([-1 - y * y, x * y, x])
