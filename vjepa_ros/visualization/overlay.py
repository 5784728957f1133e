# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Draw one camera's assessment over its image so that it is understood at a glance."""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np

from vjepa_ros.clip.resize import View
from vjepa_ros.looming.estimator import LoomingField
from vjepa_ros.perception.types import Assessment, Level, Region
from vjepa_ros.visualization import drawing
from vjepa_ros.visualization.panel import (
    LEVEL_COLORS,
    MOTION_BGR,
    OverlayStatus,
    Panel,
    SOFT,
    seconds,
)

__all__ = ['LEVEL_COLORS', 'Layers', 'OverlayStatus', 'draw_overlay']

MIN_WIDTH = 480            # smaller sources are enlarged to this width,
MAX_ENLARGED = 3840        # but none to a larger height [px]
EMPTY_SIZE = (640, 480)    # canvas when there has been no frame at all
MAX_ON_COURSE, MAX_ASIDE = 4, 3    # regions drawn; more of them only confuse


STEP = 8                                     # the tint is computed on every eighth pixel
COOL = np.array([40, 210, 255], np.float32)  # coming nearer slowly
HOT = np.array([40, 40, 255], np.float32)    # fast
SLOW_RATE, FAST_RATE = 0.1, 1.0              # looming rates [1/s] where the tint starts and ends


@dataclass(frozen=True)
class Layers:
    """What is drawn over the image."""

    # (Hp, Wp) 0..1 on the patches of `view`, NaN unknown; or None
    motion_map: np.ndarray | None = None
    looming: LoomingField | None = None  # looming of the whole image; or None
    # Geometry of the input of the model: what lies outside is dimmed; or None
    view: View | None = None
    # Cells of the looming field below this confidence are drawn as unknown
    min_confidence: float = 0.2


def draw_overlay(image_rgb: np.ndarray | None, assessment: Assessment | None, layers: Layers,
                 status: OverlayStatus, width: int = 0) -> np.ndarray:
    """Draw the overlay.

    `image_rgb`: (H, W, 3) uint8 RGB newest frame, not modified; None when there is none;
    `assessment`: none while the clip memory fills.
    """
    canvas, zoom = _canvas(image_rgb, width)
    stale = image_rgb is None or status.stale_s is not None
    panel = Panel(canvas, assessment, status, stale)
    if stale:
        _grey_out(canvas)
    else:
        if layers.view is not None:
            _dim_unseen(canvas, zoom, layers.view, max(1, round(panel.unit)))
        _tint(canvas, zoom, layers)
        if layers.looming is not None:
            _dot_unknown(canvas, layers.looming, layers.min_confidence,
                         max(1, round(2 * panel.unit)))
    if status.untrained or (assessment is not None and assessment.untrained):
        drawing.watermark(canvas, 'UNTRAINED', 17 * panel.unit)
    if not stale and assessment is not None:
        _regions(panel, zoom, assessment)
        _bearing(panel, zoom, assessment, status.focal_px)
    panel.banner()
    panel.footer()
    if stale:
        panel.stale_sign(empty=image_rgb is None)
    return canvas


def _canvas(image_rgb: np.ndarray | None, width: int) -> tuple[np.ndarray, float]:
    """Make a BGR copy of the image in the wanted size; also its size relative to the source."""
    if image_rgb is None:
        wide = max(MIN_WIDTH, width or EMPTY_SIZE[0])
        return np.full((wide * EMPTY_SIZE[1] // EMPTY_SIZE[0], wide, 3), 40, np.uint8), 1.0
    source_w = image_rgb.shape[1]
    wide = max(MIN_WIDTH, width or source_w)
    if wide == source_w:
        return cv2.cvtColor(image_rgb, cv2.COLOR_RGB2BGR), 1.0
    zoom = wide / source_w
    zoom = min(zoom, max(1.0, MAX_ENLARGED / image_rgb.shape[0]))
    size = (max(1, round(source_w * zoom)), max(1, round(image_rgb.shape[0] * zoom)))
    how = cv2.INTER_AREA if zoom < 1 else cv2.INTER_LINEAR
    return cv2.cvtColor(cv2.resize(image_rgb, size, interpolation=how), cv2.COLOR_RGB2BGR), zoom


def _grey_out(canvas: np.ndarray) -> None:
    grey = cv2.convertScaleAbs(cv2.cvtColor(canvas, cv2.COLOR_BGR2GRAY), alpha=0.45, beta=45)
    cv2.cvtColor(grey, cv2.COLOR_GRAY2BGR, dst=canvas)


def _dim_unseen(canvas: np.ndarray, zoom: float, view: View, line: int) -> None:
    """Darken and frame off what the model does not see."""
    height, width = canvas.shape[:2]
    x0, y0, x1, y1 = (round(zoom * edge) for edge in view.region)
    if (x0, y0, x1, y1) == (0, 0, width, height):
        return
    for box in ((0, 0, width, y0), (0, y1, width, height), (0, y0, x0, y1),
                (x1, y0, width, y1)):
        drawing.shade(canvas, box, 0.42)
    cv2.rectangle(canvas, (x0, y0), (x1 - 1, y1 - 1), SOFT, line)


def _regions(panel: Panel, zoom: float, assessment: Assessment) -> None:
    """Mark what comes nearer; what is on course in the colour of the level."""
    ahead = [r for r in assessment.regions if r.on_course][:MAX_ON_COURSE]
    aside = [r for r in assessment.regions if not r.on_course][:MAX_ASIDE]
    alarm, labels = LEVEL_COLORS[Level(assessment.level)], []
    boxes = [_clip_box(panel, zoom, region) for region in (*ahead, *aside)]
    # The most urgent one is drawn last, over the others.
    for region, box in reversed(list(zip((*ahead, *aside), boxes, strict=True))):
        color, weight = (alarm, 2.4) if region.on_course else (SOFT, 1.0)
        stroke = max(1, round(weight * panel.unit))
        drawing.brackets(panel.canvas, box, drawing.INK, stroke + 2)
        drawing.brackets(panel.canvas, box, color, stroke)
        if region.on_course:
            corners = [round(edge) for edge in box]
            cv2.rectangle(panel.canvas, corners[:2], corners[2:], color,
                          max(1, round(panel.unit)), cv2.LINE_AA)
    # Labels go the other way: the most urgent takes its place first, others give way.
    for region, box in zip((*ahead, *aside), boxes, strict=True):
        px = (10.5 if region.on_course else 8.5) * panel.unit
        string = seconds(region.time_to_contact)
        wide, high = drawing.label_size(string, px)
        x = min(max(0, box[0]), panel.width - wide)
        y = box[1] - high if box[1] - high >= panel.top else box[1]
        if any(x < u + w and u < x + wide and y < v + h and v < y + high
               for u, v, w, h in labels):
            continue
        labels.append((x, y, wide, high))
        if region.on_course:
            drawing.pill(panel.canvas, string, x, y, px, alarm)
        else:
            drawing.text(panel.canvas, string, (x + px / 2, y + high / 2), px, SOFT, outline=True)


def _clip_box(panel: Panel, zoom: float, region: Region) -> tuple[float, float, float, float]:
    """Box of a region on the canvas, kept between banner and footer."""
    low, high = panel.top + 2, max(panel.top + 4, panel.bottom - 3)
    return (max(0.0, zoom * region.x), min(max(low, zoom * region.y), high - 2),
            min(panel.width - 1.0, zoom * (region.x + region.width)),
            max(min(high, zoom * (region.y + region.height)), low + 2))


def _bearing(panel: Panel, zoom: float, assessment: Assessment,
             focal_px: float | None) -> None:
    """Point at the direction of the most urgent surface from the top edge of the footer."""
    y, unit = round(panel.bottom), panel.unit
    x = _bearing_x(panel.width, zoom, assessment, focal_px)
    if x is None:
        return
    x = min(max(8 * unit, x), panel.width - 8 * unit)
    middle, line = panel.width // 2, max(1, round(unit))
    cv2.line(panel.canvas, (middle, y - round(7 * unit)), (middle, y), drawing.INK, line + 2)
    cv2.line(panel.canvas, (middle, y - round(7 * unit)), (middle, y), SOFT, line)
    tip = np.array([[x, y - 13 * unit], [x - 8 * unit, y], [x + 8 * unit, y]])
    tip = np.rint(tip).astype(np.int32)
    color = LEVEL_COLORS[Level(assessment.level)]
    cv2.fillConvexPoly(panel.canvas, tip, color, cv2.LINE_AA)
    cv2.polylines(panel.canvas, [tip], True, drawing.INK, line, cv2.LINE_AA)
    degrees, px = math.degrees(assessment.bearing), 9 * unit
    label = f'{abs(degrees):.0f} deg {"right" if degrees > 0 else "left"}'
    label = 'straight ahead' if abs(degrees) < 0.5 else label
    room = drawing.text_width(label, px)
    fits = x + 14 * unit + room < panel.width
    left = x + (12 * unit if fits else -12 * unit - room)
    drawing.text(panel.canvas, label, (left, y - 9 * unit), px, outline=True)


def _bearing_x(width: int, zoom: float, assessment: Assessment,
               focal_px: float | None) -> float | None:
    """Column of the bearing: by the focal length, else by the region that has it."""
    bearing = assessment.bearing
    if math.isnan(bearing):
        return None
    if focal_px:
        return width / 2 + zoom * focal_px * math.tan(bearing)
    near = min(assessment.regions, key=lambda r: abs(r.bearing - bearing), default=None)
    if near is None or abs(near.bearing - bearing) > 0.02:
        return None
    return zoom * (near.x + near.width / 2)


def _tint(canvas: np.ndarray, zoom: float, layers: Layers) -> None:
    """Tint in place: motion blue, looming from yellow to red."""
    motion, looming, view = layers.motion_map, layers.looming, layers.view
    height, width = canvas.shape[:2]
    size = (max(2, width // STEP), max(2, height // STEP))
    xs = (np.arange(size[0]) + 0.5) * width / size[0] / zoom - 0.5
    ys = (np.arange(size[1]) + 0.5) * height / size[1] / zoom - 0.5
    through = np.ones((size[1], size[0], 1), np.float32)
    paint = np.zeros((size[1], size[0], 3), np.float32)
    if motion is not None and view is not None:
        grid = [(view.from_source(np.stack([p, p], -1))[:, axis] + 0.5) / view.patch - 0.5
                for axis, p in enumerate((xs, ys))]
        alpha = 0.34 * np.clip((_sample(motion, *grid) - 0.15) / 0.65, 0, 1)
        rows, cols = motion.shape
        alpha[(grid[1] < -0.5) | (grid[1] > rows - 0.5)] = 0
        alpha[:, (grid[0] < -0.5) | (grid[0] > cols - 0.5)] = 0
        through, paint = _over(through, paint, alpha, np.array(MOTION_BGR, np.float32))
    if looming is not None:
        rate = np.where(looming.confidence >= layers.min_confidence, looming.rate, np.nan)
        grid = _cell_coordinates(looming, (xs, ys), zoom, (width, height))
        urgency = np.clip((_sample(rate, *grid) - SLOW_RATE) / (FAST_RATE - SLOW_RATE), 0, 1)
        color = COOL + (HOT - COOL) * np.sqrt(urgency)[..., None]
        through, paint = _over(through, paint, 0.6 * np.sqrt(urgency), color)
    if through.min() == 1:
        return
    inverse = np.repeat(np.rint(through * 255), 3, axis=2).astype(np.uint8)
    inverse, paint = (cv2.resize(layer, (width, height), interpolation=cv2.INTER_LINEAR)
                      for layer in (inverse, np.rint(paint).astype(np.uint8)))
    cv2.multiply(canvas, inverse, dst=canvas, scale=1 / 255)
    cv2.add(canvas, paint, dst=canvas)


def _dot_unknown(canvas: np.ndarray, looming: LoomingField, min_confidence: float,
                 size: int) -> None:
    """Put a faint dot of `size` pixels on every cell whose looming is unknown."""
    unknown = ~(np.isfinite(looming.rate) & (looming.confidence >= min_confidence))
    points = (looming.centers[unknown] + 0.5) / np.array(looming.gray_size)
    points = np.rint(points * (canvas.shape[1], canvas.shape[0])).astype(int)
    step = np.arange(size) - size // 2
    for shift, part, light in ((size // 2 + 1, 0.5, 0), (0, 0.55, 255 * 0.45)):
        rows = np.clip(points[:, 1, None, None] + step[:, None] + shift, 0, canvas.shape[0] - 1)
        cols = np.clip(points[:, 0, None, None] + step[None, :] + shift, 0, canvas.shape[1] - 1)
        canvas[rows, cols] = (canvas[rows, cols] * part + light).astype(np.uint8)


def _cell_coordinates(looming: LoomingField, points: tuple[np.ndarray, np.ndarray], zoom: float,
                      canvas_size: tuple[int, int]) -> list[np.ndarray]:
    """Compute fractional columns and rows of the cell grid at source points."""
    axes = looming.centers[0, :, 0], looming.centers[:, 0, 1]
    found = []
    for axis, p in enumerate(points):
        gray = (p + 0.5) * looming.gray_size[axis] * zoom / canvas_size[axis] - 0.5
        pitch = float(axes[axis][1] - axes[axis][0]) if len(axes[axis]) > 1 else looming.cell_px
        found.append((gray - float(axes[axis][0])) / pitch)
    return found


def _sample(grid: np.ndarray, columns: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Sample a grid bilinearly at columns x rows; unknown counts as nothing to show."""
    x, y = np.meshgrid(columns.astype(np.float32), rows.astype(np.float32))
    known = np.nan_to_num(np.asarray(grid, np.float32), nan=0.0)
    return cv2.remap(known, x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)


def _over(through: np.ndarray, paint: np.ndarray, alpha: np.ndarray,
          color: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lay a colour over earlier ones; return the part let through, and the paint."""
    alpha = alpha[..., None].astype(np.float32)
    return through * (1 - alpha), paint * (1 - alpha) + alpha * color
