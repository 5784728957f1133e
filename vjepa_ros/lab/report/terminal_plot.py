# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Draw curves in a terminal with Braille dots."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.text import Text

# Bit of each dot in a Braille cell, by row (0..3) and column (0..1).
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


class Canvas:
    """A field of Braille cells with axes in the units of the data.

    Parameters
    ----------
    columns, rows
        Size in characters; each holds 2 x 4 dots.
    x_range, y_range
        Data range of the field.
    """

    def __init__(self, columns: int, rows: int, x_range: tuple[float, float],
                 y_range: tuple[float, float]) -> None:
        self.columns, self.rows = max(1, columns), max(1, rows)
        self._x, self._y = x_range, y_range
        self._bits = [[0] * self.columns for _ in range(self.rows)]
        self._style = [[''] * self.columns for _ in range(self.rows)]

    def draw(self, points: Sequence[tuple[float, float, str]]) -> None:
        """Draw a line through points (x, y, style) over what is there.

        NaN and values outside the range break the line. The newest style wins where two lines
        share a cell.
        """
        last: tuple[float, float] | None = None
        for x, y, style in points:
            dot = self._dot(x, y)
            if dot is not None:
                self._line(last or dot, dot, style)
            last = dot

    def _line(self, a: tuple[float, float], b: tuple[float, float], style: str) -> None:
        steps = max(1, math.ceil(max(abs(b[0] - a[0]), abs(b[1] - a[1]))))
        for step in range(1, steps + 1):
            part = step / steps
            self._set(round(a[0] + part * (b[0] - a[0])), round(a[1] + part * (b[1] - a[1])),
                      style)

    def lines(self) -> list[Text]:
        """The rows, top first."""
        out = []
        for bits, styles in zip(self._bits, self._style, strict=True):
            line = Text(no_wrap=True)
            for bit, style in zip(bits, styles, strict=True):
                line.append(chr(0x2800 + bit) if bit else ' ', style)
            out.append(line)
        return out

    def _dot(self, x: float, y: float) -> tuple[float, float] | None:
        """Place of a point in dots from the upper left corner, None outside the field."""
        (x0, x1), (y0, y1) = self._x, self._y
        if not (x0 <= x <= x1 and y0 <= y <= y1):
            return None
        return ((x - x0) / (x1 - x0) * (2 * self.columns - 1),
                (y1 - y) / (y1 - y0) * (4 * self.rows - 1))

    def _set(self, column: int, row: int, style: str) -> None:
        self._bits[row // 4][column // 2] |= _DOTS[row % 4][column % 2]
        self._style[row // 4][column // 2] = style


def bar(value: float, width: int, style: str, rest: str = 'grey30') -> Text:
    """A bar of a value 0..1, dotted when unknown, in eighths of a character."""
    if math.isnan(value):
        return Text('╌' * width, rest)
    eighths = round(min(1.0, max(0.0, value)) * width * 8)
    full, part = divmod(eighths, 8)
    filled = '█' * full + (' ▏▎▍▌▋▊▉'[part] if part else '')
    return Text.assemble((filled, style), ('─' * (width - len(filled)), rest))
