# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Small drawing primitives that look alike with every OpenCV from 4.5 on.

All functions draw in place on BGR uint8 images; colours are BGR, places are pixels.
"""

from __future__ import annotations

from functools import lru_cache

import cv2
import numpy as np

Color = tuple[int, int, int]

FONT = cv2.FONT_HERSHEY_SIMPLEX
CAP_PX = 22.0          # height of capital letters at font scale 1
WHITE: Color = (255, 255, 255)
INK: Color = (24, 22, 20)


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
    """Shorten a string to a width, with dots at its end."""
    if text_width(string, px) <= width:
        return string
    low, high = 0, len(string)
    while low < high:  # the longest prefix that fits
        mid = (low + high + 1) // 2
        low, high = (mid, high) if text_width(string[:mid] + '..', px) <= width else (low, mid - 1)
    return string[:low].rstrip() + '..' if low else ''


def contrast(color: Color) -> Color:
    """Black or white, whichever reads better on a colour."""
    blue, green, red = color
    return INK if 0.114 * blue + 0.587 * green + 0.299 * red > 140 else WHITE


def shade(image: np.ndarray, box: tuple[float, float, float, float], keep: float,
          add: float = 0.0) -> None:
    """Darken a box (x0, y0, x1, y1): every value becomes ``value * keep + add``."""
    height, width = image.shape[:2]
    x0, y0 = max(0, round(box[0])), max(0, round(box[1]))
    x1, y1 = min(width, round(box[2])), min(height, round(box[3]))
    if x1 > x0 and y1 > y0:
        part = image[y0:y1, x0:x1]
        part[...] = cv2.convertScaleAbs(part, alpha=keep, beta=add)


def pill(image: np.ndarray, string: str, x: float, y: float, px: float, fill: Color,
         *, bold: bool = False) -> None:
    """Write a string on a filled label whose top left corner is (x, y), kept in the image."""
    wide, high = label_size(string, px, bold)
    x = min(max(0, x), image.shape[1] - wide)
    y = min(max(0, y), image.shape[0] - high)
    cv2.rectangle(image, (round(x), round(y)), (round(x + wide), round(y + high)), fill, -1)
    text(image, string, (x + px * 0.5, y + high / 2), px, contrast(fill), bold=bold)


def label_size(string: str, px: float, bold: bool = False) -> tuple[int, int]:
    """Width and height of the label that `pill` draws."""
    return round(text_width(string, px, bold) + px), round(px * 1.9)


def bar(image: np.ndarray, box: tuple[float, float, float, float], part: float,
        color: Color) -> None:
    """Draw a horizontal bar filled up to `part` (0..1); an unknown (NaN) one stays crossed."""
    x0, y0, x1, y1 = (round(v) for v in box)
    cv2.rectangle(image, (x0, y0), (x1, y1), (70, 66, 62), -1)
    if np.isnan(part):
        for x in range(x0, x1, max(4, y1 - y0)):
            cv2.line(image, (x, y1), (min(x1, x + y1 - y0), y0), (120, 114, 110), 1, cv2.LINE_AA)
    else:
        end = x0 + round((x1 - x0) * min(1.0, max(0.0, part)))
        if end > x0:
            cv2.rectangle(image, (x0, y0), (end, y1), color, -1)


def brackets(image: np.ndarray, box: tuple[float, float, float, float], color: Color,
             stroke: int) -> None:
    """Draw the four corners of a box."""
    x0, y0, x1, y1 = (round(v) for v in box)
    arm = max(4, round(min(x1 - x0, y1 - y0) * 0.25))
    for x, dx in ((x0, arm), (x1, -arm)):
        for y, dy in ((y0, arm), (y1, -arm)):
            cv2.line(image, (x, y), (x + dx, y), color, stroke, cv2.LINE_AA)
            cv2.line(image, (x, y), (x, y + dy), color, stroke, cv2.LINE_AA)


@lru_cache(maxsize=8)
def _slanted(string: str, px: int) -> tuple[np.ndarray, np.ndarray]:
    """Make what to add and to subtract (h, w, 3) uint8 for a slanted string with a dark rim."""
    wide, slope = text_width(string, px, True), np.radians(24)
    width = round(wide * np.cos(slope) + 4 * px * np.sin(slope)) + 2
    height = round(wide * np.sin(slope) + 4 * px * np.cos(slope)) + 2
    plane = np.zeros((4 * px, wide), np.uint8)
    cv2.putText(plane, string, (0, 3 * px), FONT, px / CAP_PX, 255, _stroke(px, True),
                cv2.LINE_AA)
    turn = cv2.getRotationMatrix2D((wide / 2, 2 * px), 24, 1.0)
    turn[:, 2] += width / 2 - wide / 2, height / 2 - 2 * px
    mask = cv2.warpAffine(plane, turn, (width, height))
    rim = cv2.subtract(cv2.dilate(mask, np.ones((3, 3), np.uint8)), mask)
    light, dark = (cv2.merge([cv2.convertScaleAbs(m, alpha=a)] * 3)
                   for m, a in ((mask, 52 / 255), (rim, 52 / 255)))
    return light, dark


def watermark(image: np.ndarray, string: str, px: float) -> None:
    """Write a string slanted all over the image, light with a dark rim, seen through."""
    light, dark = _slanted(string, round(px))
    step_y, step_x = light.shape[0], light.shape[1] + round(px)
    height, width = image.shape[:2]
    for row, top in enumerate(range(-step_y // 2, height, step_y)):
        for left in range(-(row % 2) * step_x // 2, width, step_x):
            y, x = max(0, -top), max(0, -left)
            part = image[top + y:top + step_y, left + x:left + light.shape[1]]
            mark = slice(y, y + part.shape[0]), slice(x, x + part.shape[1])
            part[...] = cv2.subtract(cv2.add(part, light[mark]), dark[mark])
