# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Tell intrinsics that a camera can have from numbers that only look like some."""

from __future__ import annotations

import math

NARROWEST, WIDEST = math.radians(1.0), math.radians(179.0)   # fields of view
MOST_PIXELS = 65535      # of one side
ASIDE = 1.0              # of the image, by which its centre may lie beside it, as when rectified


def pinhole_problem(intrinsics: tuple[float, float, float, float], size: tuple[int, int]) -> str:
    """What is wrong with fx, fy, cx, cy [px] of a picture of a size [px]; '' for nothing."""
    if not all(1 <= side <= MOST_PIXELS for side in size):
        return f'its size is {size[0]} x {size[1]}'
    fx, fy, cx, cy = intrinsics
    for axis, focal, centre, side in (('x', fx, cx, size[0]), ('y', fy, cy, size[1])):
        least, most = (side / 2 / math.tan(angle / 2) for angle in (WIDEST, NARROWEST))
        if not least <= focal <= most:       # also what is no number
            return (f'its focal length f{axis} is {focal:g} px, which {side} pixels can not have '
                    f'({least:.3g}..{most:.3g})')
        if not -ASIDE * side <= centre <= (1 + ASIDE) * side:
            return f'its centre c{axis} is {centre:g} px, far outside of {side} pixels'
    return ''
