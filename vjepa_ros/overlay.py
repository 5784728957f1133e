# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Draw one camera's assessment over its image so that it is understood at a glance."""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np

from vjepa_ros.clip.resize import View
from vjepa_ros.perception.types import Assessment, Level, Quality, Region

Color = tuple[int, int, int]
Box = tuple[float, float, float, float]
MIN_WIDTH = 480            # smaller sources are enlarged to this width,
MAX_ENLARGED = 3840        # but none to a larger height [px]
EMPTY_SIZE = (640, 480)    # canvas when there has been no frame at all
MAX_ON_COURSE, MAX_ASIDE = 4, 3    # regions drawn; more of them only confuse
STEP = 8                                     # the tint is computed on every eighth pixel
COOL = np.array([40, 210, 255], np.float32)  # coming nearer slowly
HOT = np.array([40, 40, 255], np.float32)    # fast
SLOW_RATE, FAST_RATE = 0.1, 1.0              # looming rates [1/s] where the tint starts and ends
# Never green for anything but CLEAR.
LEVEL_COLORS = {
    Level.CLEAR: (80, 175, 76), Level.CAUTION: (0, 214, 255), Level.WARNING: (0, 140, 255),
    Level.DANGER: (48, 48, 229), Level.UNKNOWN: (180, 106, 132)}
MOTION_BGR = (255, 150, 60)
IDLE = (139, 125, 96)
AMBER = (80, 190, 255)
SOFT = (215, 210, 205)
FONT = cv2.FONT_HERSHEY_SIMPLEX
CAP_PX = 22.0          # height of capital letters at font scale 1
WHITE: Color = (255, 255, 255)
INK: Color = (24, 22, 20)
MARK = 0.2             # opacity of a watermark


@dataclass(frozen=True)
class Layers:
    """What is drawn over the image."""

    # (Hp, Wp) on the patches of `view`, NaN unknown; or None: motion 0..1, looming [1/s]
    motion_map: np.ndarray | None = None
    looming_map: np.ndarray | None = None
    # Geometry of the input of the model: what lies outside is dimmed; or None
    view: View | None = None


@dataclass(frozen=True)
class OverlayStatus:
    """State of the system around the assessment."""

    camera: str  # its name
    model: str = ''
    device: str = ''
    fill: int = 0  # frames in the clip memory,
    num_frames: int = 0  # of those that a clip needs
    rate_in_hz: float = math.nan  # of the camera
    rate_out_hz: float = math.nan  # of results
    latency_ms: float = math.nan  # age of the result
    warnings: tuple[str, ...] = ()  # short sentences, most important first
    # Age of the newest frame [s] when it is too old to be trusted; None when it is not; inf when
    # there has never been a frame
    stale_s: float | None = None
    # Whether the model is untrained (also taken from the flags of the assessment)
    untrained: bool = False
    # Horizontal focal length in source pixels, to place the bearing; None when unknown
    focal_px: float | None = None


def draw_overlay(image_rgb: np.ndarray | None, assessment: Assessment | None, layers: Layers,
                 status: OverlayStatus, width: int = 0) -> np.ndarray:
    """Draw the overlay.

    `image_rgb`: (H, W, 3) uint8 RGB newest frame, not modified; None when there is none;
    `assessment`: none while the clip memory fills.
    """
    canvas, zoom = _canvas(image_rgb, width)
    stale = image_rgb is None or status.stale_s is not None
    untrained = status.untrained or (assessment is not None and assessment.untrained)
    sheet = _Sheet(canvas, zoom, None if stale else assessment, status)
    if stale:
        grey = cv2.convertScaleAbs(cv2.cvtColor(canvas, cv2.COLOR_BGR2GRAY), alpha=0.45, beta=45)
        cv2.cvtColor(grey, cv2.COLOR_GRAY2BGR, dst=canvas)
    else:
        if layers.view is not None:
            _dim_unseen(sheet, layers.view)
        _tint(canvas, zoom, layers)
        if layers.looming_map is not None and layers.view is not None:
            _dot_unknown(canvas, layers.looming_map, layers.view, max(1, round(2 * sheet.unit)))
    if untrained:
        watermark(canvas, 'UNTRAINED', 17 * sheet.unit)
    if sheet.seen is not None:
        _regions(sheet, sheet.seen)
        _bearing(sheet, sheet.seen.bearing, sheet.seen.level)
    _banner(sheet, stale)
    _footer(sheet)
    if stale:
        age = math.inf if image_rgb is None or status.stale_s is None else status.stale_s
        _stale_sign(sheet, 'NO FRAMES' if math.isinf(age) else f'STALE {age:.1f} s')
    return canvas


class _Sheet:
    """A canvas, and the places on it."""

    def __init__(self, canvas: np.ndarray, zoom: float, seen: Assessment | None,
                 status: OverlayStatus) -> None:
        self.canvas, self.zoom, self.seen, self.status = canvas, zoom, seen, status
        self.height, self.width = canvas.shape[:2]
        # Text grows slower than the image: large images are also looked at on larger screens.
        self.unit = max(0.85, min(self.width / 640, self.height / 360) ** 0.85)
        flags = seen.flags if seen is not None else Quality(0)
        words = (str(flag.name).replace('_', ' ') for flag in Quality if flag in flags)
        self.notes = '  |  '.join((*words, *status.warnings))
        # Rows between which the scene is free of panels.
        self.top = 34 * self.unit
        self.bottom = self.height - (56 if self.notes else 39) * self.unit


def _canvas(image_rgb: np.ndarray | None, width: int) -> tuple[np.ndarray, float]:
    """Make a BGR copy of the image in the wanted size; also its size relative to the source."""
    if image_rgb is None:
        wide = max(MIN_WIDTH, width or EMPTY_SIZE[0])
        return np.full((wide * EMPTY_SIZE[1] // EMPTY_SIZE[0], wide, 3), 40, np.uint8), 1.0
    source_w = image_rgb.shape[1]
    wide = max(MIN_WIDTH, width or source_w)
    if wide == source_w:
        return cv2.cvtColor(image_rgb, cv2.COLOR_RGB2BGR), 1.0
    zoom = min(wide / source_w, max(1.0, MAX_ENLARGED / image_rgb.shape[0]))
    size = (max(1, round(source_w * zoom)), max(1, round(image_rgb.shape[0] * zoom)))
    how = cv2.INTER_AREA if zoom < 1 else cv2.INTER_LINEAR
    return cv2.cvtColor(cv2.resize(image_rgb, size, interpolation=how), cv2.COLOR_RGB2BGR), zoom


# -- panels along the edges -----------------------------------------------------------------------

def _banner(sheet: _Sheet, stale: bool) -> None:
    """Write level and time to contact along the top, and rim the image when it matters."""
    canvas, unit, px = sheet.canvas, sheet.unit, 15 * sheet.unit
    level, word, color, detail = _headline(sheet, stale)
    shade(canvas, (0, 0, sheet.width, sheet.top), 0.22, 10)
    wide = text_width(word, px, True) + 22 * unit
    cv2.rectangle(canvas, (0, 0), (round(wide), round(sheet.top) - 1), color, -1)
    put_text(canvas, word, (11 * unit, sheet.top / 2), px, contrast(color), bold=True)
    x = wide + 12 * unit
    detail = fit_text(detail, sheet.width - x - 6 * unit, px)
    put_text(canvas, detail, (x, sheet.top / 2), px, bold=level is not None)
    if level in (Level.WARNING, Level.DANGER):
        rim = max(2, round((4 if level == Level.DANGER else 2.5) * unit))
        cv2.rectangle(canvas, (rim // 2, rim // 2),
                      (sheet.width - 1 - rim // 2, sheet.height - 1 - rim // 2), color, rim)
    fill, need = sheet.status.fill, sheet.status.num_frames
    if not stale and sheet.seen is None and need > 0:
        y = round(sheet.top)
        bar(canvas, (0, y, sheet.width, y + 4 * unit), fill / need, AMBER)


def _headline(sheet: _Sheet, stale: bool) -> tuple[Level | None, str, Color, str]:
    """Level, its word and colour, and the text beside it."""
    if stale:
        return None, 'NO DATA', LEVEL_COLORS[Level.UNKNOWN], 'not watching'
    if sheet.seen is None:
        fill, need = sheet.status.fill, sheet.status.num_frames
        return None, 'BUFFERING', IDLE, f'{fill}/{need} frames' if need else ''
    level, ttc = Level(sheet.seen.level), sheet.seen.time_to_contact
    detail = 'TTC unknown' if math.isnan(ttc) else (
        'nothing on course' if math.isinf(ttc) else f'TTC {_seconds(ttc)}')
    return level, level.name, LEVEL_COLORS[level], detail


def _footer(sheet: _Sheet) -> None:
    """Write scores, system status and warnings along the bottom."""
    unit, seen, px = sheet.unit, sheet.seen, 8.5 * sheet.unit
    shade(sheet.canvas, (0, sheet.bottom, sheet.width, sheet.height), 0.22, 10)
    y = sheet.bottom + 11 * unit
    speed = math.nan if seen is None else seen.approach_speed
    if_ahead = 'IF AHEAD' if math.isnan(speed) else f'IF {speed:g} M/S'
    scores = (('MOTION', MOTION_BGR, 'motion_score'), ('OBSTACLE', AMBER, 'obstacle_score'),
              ('COLLISION', (70, 70, 240), 'collision_probability'),
              (if_ahead, (200, 90, 200), 'collision_if_ahead'))
    cell = sheet.width / len(scores)
    for index, (name, color, field) in enumerate(scores):
        score = math.nan if seen is None else getattr(seen, field)
        x, end = index * cell + 8 * unit, (index + 1) * cell - 8 * unit
        right = end - text_width('0.00', px)
        put_text(sheet.canvas, '--' if math.isnan(score) else f'{score:.2f}', (right, y), px)
        name, right = fit_text(name, right - x, px), right - 6 * unit
        x += put_text(sheet.canvas, name, (x, y), px, SOFT) + 6 * unit
        if right > x + 8 * unit:      # there is room for it
            bar(sheet.canvas, (x, y - 3.5 * unit, right, y + 3.5 * unit), score, color)
    for line, color in ((_system(sheet), SOFT), (sheet.notes, AMBER)):
        y += 17 * unit
        line = fit_text(line, sheet.width - 16 * unit, 9 * unit)
        put_text(sheet.canvas, line, (8 * unit, y), 9 * unit, color)


def _system(sheet: _Sheet) -> str:
    status = sheet.status
    parts = [status.camera, status.model, status.device]
    rates = [status.rate_in_hz, status.rate_out_hz]
    if not all(map(math.isnan, rates)):      # of a recording that is scored both are unknown
        rate_in, rate_out = ('--' if math.isnan(rate) else f'{rate:.1f}' for rate in rates)
        parts.append(f'{rate_in} Hz in, {rate_out} out')
    if not math.isnan(status.latency_ms):
        parts.append(f'{status.latency_ms:.0f} ms')
    if sheet.seen is not None and status.fill < status.num_frames:
        parts.append(f'buffering {status.fill}/{status.num_frames}')
    return '  |  '.join(part for part in parts if part)


def _stale_sign(sheet: _Sheet, sign: str) -> None:
    """Write across the middle that this image must not be trusted."""
    px = 30 * sheet.unit
    px *= min(1.0, 0.8 * sheet.width / text_width(sign, px, True))
    x = (sheet.width - text_width(sign, px, True)) / 2
    middle = (sheet.top + sheet.bottom) / 2
    shade(sheet.canvas, (0, middle - px, sheet.width, middle + px), 0.35)
    put_text(sheet.canvas, sign, (x, middle), px, AMBER, bold=True)


# -- the scene ------------------------------------------------------------------------------------

def _dim_unseen(sheet: _Sheet, view: View) -> None:
    """Darken and frame off what the model does not see."""
    height, width = sheet.canvas.shape[:2]
    x0, y0, x1, y1 = (round(sheet.zoom * edge) for edge in view.region)
    if (x0, y0, x1, y1) == (0, 0, width, height):
        return
    for box in ((0, 0, width, y0), (0, y1, width, height), (0, y0, x0, y1),
                (x1, y0, width, y1)):
        shade(sheet.canvas, box, 0.42)
    cv2.rectangle(sheet.canvas, (x0, y0), (x1 - 1, y1 - 1), SOFT, max(1, round(sheet.unit)))


def _regions(sheet: _Sheet, seen: Assessment) -> None:
    """Frame what comes nearer; what is on course in the colour of the level."""
    ahead = [region for region in seen.regions if region.on_course][:MAX_ON_COURSE]
    aside = [region for region in seen.regions if not region.on_course][:MAX_ASIDE]
    # The most urgent one is drawn last, over the others.
    for region in reversed((*ahead, *aside)):
        x0, y0, x1, y1 = (round(edge) for edge in _clip_box(sheet, region))
        color, weight, px = (LEVEL_COLORS[Level(seen.level)], 2.4, 10.5) if region.on_course \
            else (SOFT, 1.0, 8.5)
        stroke = max(1, round(weight * sheet.unit))
        cv2.rectangle(sheet.canvas, (x0, y0), (x1, y1), INK, stroke + 2, cv2.LINE_AA)
        cv2.rectangle(sheet.canvas, (x0, y0), (x1, y1), color, stroke, cv2.LINE_AA)
        px *= sheet.unit
        pill(sheet.canvas, _seconds(region.time_to_contact), x0,
                     max(y0, sheet.top + 2 * px), px, color)


def _clip_box(sheet: _Sheet, region: Region) -> Box:
    """Box of a region on the canvas, kept between banner and footer."""
    zoom, low, high = sheet.zoom, sheet.top + 2, max(sheet.top + 4, sheet.bottom - 3)
    return (max(0.0, zoom * region.x), min(max(low, zoom * region.y), high - 2),
            min(sheet.width - 1.0, zoom * (region.x + region.width)),
            max(min(high, zoom * (region.y + region.height)), low + 2))


def _bearing(sheet: _Sheet, bearing: float, level: Level) -> None:
    """Point at the direction of the most urgent surface from the top edge of the footer."""
    focal_px, unit, y = sheet.status.focal_px, sheet.unit, round(sheet.bottom)
    if math.isnan(bearing) or not focal_px:
        return
    x = sheet.width / 2 + sheet.zoom * focal_px * math.tan(bearing)
    x = min(max(8 * unit, x), sheet.width - 8 * unit)
    line = max(1, round(unit))
    tip = np.array([[x, y - 13 * unit], [x - 8 * unit, y], [x + 8 * unit, y]])
    tip = np.rint(tip).astype(np.int32)
    cv2.fillConvexPoly(sheet.canvas, tip, LEVEL_COLORS[Level(level)], cv2.LINE_AA)
    cv2.polylines(sheet.canvas, [tip], True, INK, line, cv2.LINE_AA)
    label, px = f'{math.degrees(bearing):+.0f} deg', 9 * unit
    room = text_width(label, px)
    left = x + (12 * unit if x + 14 * unit + room < sheet.width else -12 * unit - room)
    put_text(sheet.canvas, label, (left, y - 9 * unit), px, outline=True)


def _seconds(value: float) -> str:
    return f'{value:.1f} s' if value < 99 else '> 99 s'


def _tint(canvas: np.ndarray, zoom: float, layers: Layers) -> None:
    """Tint in place: motion blue, looming from yellow to red."""
    motion, looming, view = layers.motion_map, layers.looming_map, layers.view
    if view is None:
        return
    height, width = canvas.shape[:2]
    size = (max(2, width // STEP), max(2, height // STEP))
    xs = (np.arange(size[0]) + 0.5) * width / size[0] / zoom - 0.5
    ys = (np.arange(size[1]) + 0.5) * height / size[1] / zoom - 0.5
    through = np.ones((size[1], size[0], 1), np.float32)
    paint = np.zeros((size[1], size[0], 3), np.float32)
    grid = [(view.from_source(np.stack([p, p], -1))[:, axis] + 0.5) / view.patch - 0.5
            for axis, p in enumerate((xs, ys))]
    rows, cols = view.grid
    seen = (((grid[1] >= -0.5) & (grid[1] <= rows - 0.5))[:, None]
            & (grid[0] >= -0.5) & (grid[0] <= cols - 0.5))
    if motion is not None:
        alpha = 0.34 * np.clip((_sample(motion, *grid) - 0.15) / 0.65, 0, 1)
        through, paint = _over(through, paint, alpha * seen, np.array(MOTION_BGR, np.float32))
    if looming is not None:
        urgency = seen * np.clip((_sample(looming, *grid) - SLOW_RATE) / (FAST_RATE - SLOW_RATE),
                                 0, 1)
        color = COOL + (HOT - COOL) * np.sqrt(urgency)[..., None]
        through, paint = _over(through, paint, 0.6 * np.sqrt(urgency), color)
    if through.min() == 1:
        return
    inverse = np.repeat(np.rint(through * 255), 3, axis=2).astype(np.uint8)
    inverse, paint = (cv2.resize(layer, (width, height), interpolation=cv2.INTER_LINEAR)
                      for layer in (inverse, np.rint(paint).astype(np.uint8)))
    cv2.multiply(canvas, inverse, dst=canvas, scale=1 / 255)
    cv2.add(canvas, paint, dst=canvas)


def _dot_unknown(canvas: np.ndarray, looming: np.ndarray, view: View, size: int) -> None:
    """Put a faint dot of `size` pixels on every patch whose looming is unknown."""
    unknown = np.isnan(looming) & (view.patch_valid > 0.5)
    points = (view.patch_centers[unknown] + 0.5) / np.array(view.source_size)
    points = np.rint(points * (canvas.shape[1], canvas.shape[0])).astype(int)
    step = np.arange(size) - size // 2
    for shift, part, light in ((size // 2 + 1, 0.5, 0), (0, 0.55, 255 * 0.45)):
        rows = np.clip(points[:, 1, None, None] + step[:, None] + shift, 0, canvas.shape[0] - 1)
        cols = np.clip(points[:, 0, None, None] + step[None, :] + shift, 0, canvas.shape[1] - 1)
        canvas[rows, cols] = (canvas[rows, cols] * part + light).astype(np.uint8)


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


# -- primitives that look alike with every OpenCV from 4.5 on: they draw in place, in BGR ------

def _stroke(px: float, bold: bool) -> int:
    # The stroke also selects the weight of the built-in fonts of OpenCV 5.
    return max(1, round(px / 11)) + (1 if bold and px > 13 else 0)


def text_width(string: str, px: float, bold: bool = False) -> int:
    """Width in pixels of a string whose capitals are `px` high."""
    return cv2.getTextSize(string, FONT, px / CAP_PX, _stroke(px, bold))[0][0]


def put_text(image: np.ndarray, string: str, place: tuple[float, float], px: float,
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


def fit_text(string: str, width: float, px: float) -> str:
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
    put_text(image, string, (x + px * 0.5, y + high / 2), px, contrast(fill))


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
            put_text(layer, string, (x, y), px)
    cv2.addWeighted(layer, MARK, image, 1.0 - MARK, 0.0, dst=image)
