# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Small drawing primitives that look alike with every OpenCV from 4.5 on.

All functions draw in place on BGR uint8 images; colours are BGR, places are pixels.
"""

from __future__ import annotations

import cv2
import numpy as np

Color = tuple[int, int, int]
Box = tuple[float, float, float, float]

FONT = cv2.FONT_HERSHEY_SIMPLEX
CAP_PX = 22.0          # height of capital letters at font scale 1
WHITE: Color = (255, 255, 255)
INK: Color = (24, 22, 20)
MARK = 0.2             # opacity of a watermark


def _stroke(px: float, bold: bool) -> int:
    # The stroke also selects the weight of the built-in fonts of OpenCV 5.
    return max(1, round(px / 11)) + (1 if bold and px > 13 else 0)


def text_width(string: str, px: float, bold: bool = False) -> int:
    """Width in pixels of a string whose capitals are `px` high."""
    return cv2.getTextSize(string, FONT, px / CAP_PX, _stroke(px, bold))[0][0]


def text(image: np.ndarray, string: str, place: tuple[float, float], px: float,
         color: Color = WHITE, *, bold: bool = False, outline: bool = False) -> int:
    """Write a string and return its width."""
    scale, stroke = px / CAP_PX, _stroke(px, bold)
    at = round(place[0]), round(place[1] + px / 2)
    if outline:
        # A thicker dark copy would not line up: the stroke changes the width of letters.
        rim = max(1, round(px / 12))
        for dx, dy in ((-rim, 0), (rim, 0), (0, -rim), (0, rim), (rim, rim)):
            cv2.putText(image, string, (at[0] + dx, at[1] + dy), FONT, scale, INK, stroke,
                        cv2.LINE_AA)
    cv2.putText(image, string, at, FONT, scale, color, stroke, cv2.LINE_AA)
    return text_width(string, px, bold)


def fit(string: str, width: float, px: float) -> str:
    """Shorten a string to about a width, with dots at its end."""
    wide = text_width(string, px)
    if wide <= max(0.0, width):
        return string
    length = int(len(string) * width / wide) - 2
    return string[:length].rstrip() + '..' if length > 0 else ''


def contrast(color: Color) -> Color:
    """Black or white, whichever reads better on a colour."""
    blue, green, red = color
    return INK if 0.114 * blue + 0.587 * green + 0.299 * red > 140 else WHITE


def shade(image: np.ndarray, box: Box, keep: float, add: float = 0.0) -> None:
    """Darken a box (x0, y0, x1, y1): every value becomes ``value * keep + add``."""
    height, width = image.shape[:2]
    x0, y0 = max(0, round(box[0])), max(0, round(box[1]))
    x1, y1 = min(width, round(box[2])), min(height, round(box[3]))
    if x1 > x0 and y1 > y0:
        part = image[y0:y1, x0:x1]
        part[...] = cv2.convertScaleAbs(part, alpha=keep, beta=add)


def pill(image: np.ndarray, string: str, x: float, y: float, px: float, fill: Color) -> None:
    """Write a string on a filled label whose bottom left corner is (x, y), kept in the image."""
    wide, high = round(text_width(string, px) + px), round(px * 1.9)
    x, y = min(max(0, x), image.shape[1] - wide), max(0, y - high)
    cv2.rectangle(image, (round(x), round(y)), (round(x + wide), round(y + high)), fill, -1)
    text(image, string, (x + px * 0.5, y + high / 2), px, contrast(fill))


def bar(image: np.ndarray, box: Box, part: float, color: Color) -> None:
    """Draw a horizontal bar filled up to `part` (0..1); an unknown (NaN) one stays empty."""
    x0, y0, x1, y1 = (round(v) for v in box)
    cv2.rectangle(image, (x0, y0), (x1, y1), (70, 66, 62), -1)
    end = x0 + round((x1 - x0) * np.clip(np.nan_to_num(part), 0.0, 1.0))
    if end > x0:
        cv2.rectangle(image, (x0, y0), (end, y1), color, -1)


def watermark(image: np.ndarray, string: str, px: float) -> None:
    """Write a string all over the image, seen through."""
    height, width = image.shape[:2]
    layer, step = image.copy(), round(text_width(string, px) + 2 * px)
    for row, y in enumerate(range(0, height, round(4 * px))):
        for x in range(-(row % 2) * step // 2, width, step):
            text(layer, string, (x, y), px)
    cv2.addWeighted(layer, MARK, image, 1.0 - MARK, 0.0, dst=image)
