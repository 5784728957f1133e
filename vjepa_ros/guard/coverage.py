# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Where sources look, and where none does."""

from __future__ import annotations

import math
from collections.abc import Iterable

from vjepa_ros.guard.types import Motion

ANGLE = math.radians(60.0)   # a source looks where motion within this goes
ROUNDING = 1e-6              # rad
NAMED = {'forward': 0.0, 'left': math.pi / 2, 'backward': math.pi, 'right': -math.pi / 2}


def looks(motion: Motion, yaws: Iterable[float]) -> bool:
    """Whether one of the sources that look along some yaws [rad] looks where a motion goes."""
    speed = math.hypot(motion.vx, motion.vy)
    return any(motion.along(yaw) > math.cos(ANGLE) * speed for yaw in yaws)


def uncovered(yaws: Iterable[float]) -> list[tuple[float, float]]:
    """Directions of motion that no source looks at: (from, to) counter-clockwise [rad].

    Parameters
    ----------
    yaws
        Directions of the sources [rad], one at least.
    """
    known = sorted(yaw % (2 * math.pi) for yaw in yaws)
    arcs = []
    for one, other in zip(known, [*known[1:], known[0] + 2 * math.pi], strict=True):
        width = other - one - 2 * ANGLE
        if width > ROUNDING:
            low = one + ANGLE
            low -= 2 * math.pi if low > math.pi else 0.0
            arcs.append((low, low + width))
    return arcs


def where(arcs: list[tuple[float, float]]) -> str:
    """Such directions in words, '' for none."""
    if not arcs:
        return ''
    names = [name for name, yaw in NAMED.items()
             if any(_within(yaw, low, high) for low, high in arcs)]
    parts = [f'{math.degrees(low):.0f} to {math.degrees(high):.0f}' for low, high in arcs]
    degrees = f'{" and ".join(parts)} degrees from forward (left positive)'
    return f'no source looks {", ".join([*names, degrees])}'


def _within(yaw: float, low: float, high: float) -> bool:
    return (yaw - low) % (2 * math.pi) <= high - low
