# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Draw one camera's assessment over its image so that it is understood at a glance."""

from __future__ import annotations

import math

import cv2
import numpy as np

from vjepa_ros.clip.view import ViewGeometry
from vjepa_ros.looming.estimator import LoomingField
from vjepa_ros.perception.types import Assessment, Level, Region
from vjepa_ros.visualization import drawing, heatmap
from vjepa_ros.visualization.panel import LEVEL_COLORS, SOFT, OverlayStatus, Panel, seconds

__all__ = ['LEVEL_COLORS', 'OverlayStatus', 'draw_overlay']

MIN_WIDTH = 480            # smaller sources are enlarged to this width
EMPTY_SIZE = (640, 480)    # canvas when there has been no frame at all
MAX_ON_COURSE, MAX_ASIDE = 4, 3    # regions drawn; more of them only confuse


def draw_overlay(image_rgb: np.ndarray | None, assessment: Assessment | None,
                 motion_map: np.ndarray | None, looming: LoomingField | None,
                 view: ViewGeometry | None, *, status: OverlayStatus, width: int = 0,
                 min_confidence: float = 0.2) -> np.ndarray:
    """Draw the overlay.

    Parameters
    ----------
    image_rgb
        (H, W, 3) uint8 RGB newest frame, not modified; None when there is none.
    assessment
        None while the clip memory fills.
    motion_map
        (Hp, Wp) 0..1, NaN unknown; or None.
    looming
        Looming of the whole image; or None.
    view
        Geometry of the input of the model: what lies outside is dimmed; or None.
    status
        The system around it.
    width
        Width of the result; 0 keeps that of the image. At least 480 in any case.
    min_confidence
        Cells of the looming field below this confidence are drawn as unknown.

    Returns
    -------
    numpy.ndarray
        (h, w, 3) uint8 BGR with the aspect ratio of the image.
    """
    canvas, zoom = _canvas(image_rgb, width)
    stale = image_rgb is None or status.stale_s is not None
    panel = Panel(canvas, assessment, status, stale)
    if stale:
        _grey_out(canvas)
    else:
        if view is not None:
            _dim_unseen(canvas, zoom, view, max(1, round(panel.unit)))
        heatmap.tint(canvas, zoom, motion_map, looming, view, min_confidence)
        if looming is not None:
            heatmap.dot_unknown(canvas, zoom, looming, min_confidence,
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
    """A BGR copy of the image in the wanted size and its size relative to the source."""
    if image_rgb is None:
        wide = max(MIN_WIDTH, width or EMPTY_SIZE[0])
        return np.full((wide * EMPTY_SIZE[1] // EMPTY_SIZE[0], wide, 3), 40, np.uint8), 1.0
    source_w = image_rgb.shape[1]
    wide = max(MIN_WIDTH, width or source_w)
    if wide == source_w:
        return cv2.cvtColor(image_rgb, cv2.COLOR_RGB2BGR), 1.0
    zoom = wide / source_w
    size = (wide, max(1, round(image_rgb.shape[0] * zoom)))
    how = cv2.INTER_AREA if zoom < 1 else cv2.INTER_LINEAR
    return cv2.cvtColor(cv2.resize(image_rgb, size, interpolation=how), cv2.COLOR_RGB2BGR), zoom


def _grey_out(canvas: np.ndarray) -> None:
    grey = cv2.convertScaleAbs(cv2.cvtColor(canvas, cv2.COLOR_BGR2GRAY), alpha=0.45, beta=45)
    cv2.cvtColor(grey, cv2.COLOR_GRAY2BGR, dst=canvas)


def _dim_unseen(canvas: np.ndarray, zoom: float, view: ViewGeometry, line: int) -> None:
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
            drawing.text(panel.canvas, string, x + px / 2, y + high / 2, px, SOFT, outline=True)


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
    drawing.text(panel.canvas, label, x + (12 * unit if fits else -12 * unit - room), y - 9 * unit,
              px, outline=True)


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
