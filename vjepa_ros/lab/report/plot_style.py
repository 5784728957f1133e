# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""How plots look: colours of text and lines, and axes without what draws the eye."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, SOFT, GRID, FRAME = '#1c2430', '#5c6b7c', '#e3e8ee', '#b8c2cd'


def open_axes(axes: Axes) -> None:
    """Draw the grid behind the data, and no frame above and on the right."""
    axes.set_axisbelow(True)
    for side in ('top', 'right'):
        axes.spines[side].set_visible(False)


def soften(figure: Figure, size: float) -> None:
    """Draw frames, numbers and names of all axes paler than the data; `size` of text [pt]."""
    for axes in figure.axes:
        axes.tick_params(colors=SOFT, labelsize=size * 0.92)
        for text in (axes.xaxis.label, axes.yaxis.label):
            text.set_color(SOFT)
        for spine in axes.spines.values():
            spine.set_color(FRAME)
