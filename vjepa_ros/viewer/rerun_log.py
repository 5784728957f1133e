# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Write pictures, maps, looming, assessments and states into a Rerun recording.

Needs the Python package ``rerun-sdk`` (https://rerun.io), the extra ``view`` of this package.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

import cv2
import numpy as np

from vjepa_ros.clip.optics import Optics
from vjepa_ros.perception.looming_cells import LoomingCells
from vjepa_ros.perception.types import Assessment, Region, Result
from vjepa_ros.visualization.overlay import COOL, FAST_RATE, HOT, SLOW_RATE
from vjepa_ros.visualization.panel import LEVEL_COLORS

rr: Any = import_module('rerun')
rrb: Any = import_module('rerun.blueprint')

TIME = 'time'
EPOCH_NS = 10**17        # earlier stamps (before 1973) count from the start of a source
ARROW_S = 0.5            # an arrow shows where a cell will be after this time,
LONGEST = 1.5            # but is at most so many cells long
MIN_CONFIDENCE = 0.2     # of a cell that gets an arrow
STILL = (150, 150, 150)  # of what does not come nearer
REGION_COLORS = {True: (229, 48, 48), False: (255, 180, 60)}   # on course, and passing by
CONTACT_SHOWN_S = 10.0
SCORES = ('collision_probability', 'collision_if_ahead', 'motion_score', 'obstacle_score')
MARGIN = 0.05            # of the axis of a plot, beyond both ends: else the last number is cut off
MAPS = {'motion_map': 1.0, 'moving_map': 1.0, 'looming_map': 1.0}   # name: end of the colours
QUALITY = 85
_LEVELS = {level.name.lower(): color[::-1] for level, color in LEVEL_COLORS.items()}
STATE_COLORS = {         # RGB, of cameras and of nodes
    **_LEVELS, 'active': _LEVELS['clear'], 'free': _LEVELS['clear'], 'idle': STILL,
    'inactive': STILL, 'unconfigured': STILL, 'slowed': _LEVELS['caution'],
    'turned': _LEVELS['caution'], 'stopped': _LEVELS['warning'], 'fault': _LEVELS['danger'],
    **dict.fromkeys(('override', 'uncovered', 'unmeasured'), _LEVELS['unknown'])}
SPEED_COLORS = {'asked': STILL, 'sent': (40, 120, 229)}


class RerunLog:
    """One recording of any number of cameras and nodes."""

    def __init__(self, recording: Any, live: bool) -> None:
        self.recording, self._log, self._live = recording, recording.log, live
        self._cameras: dict[str, set[str]] = {}        # with their maps, and 'image' if shown
        self._last: dict[str, str] = {}
        self._parts: set[str] = set()

    def at(self, stamp_ns: int) -> None:
        """Set the time [ns] of what is logged next."""
        if stamp_ns > EPOCH_NS:
            self.recording.set_time(TIME, timestamp=np.datetime64(stamp_ns, 'ns'))
        else:
            self.recording.set_time(TIME, duration=np.timedelta64(stamp_ns, 'ns'))

    def picture(self, camera: str, image: np.ndarray | bytes, name: str = 'image') -> None:
        """Log an 'image' or 'overlay': RGB (H, W, 3) uint8, or a file of JPEG or PNG."""
        if isinstance(image, np.ndarray):
            image = cv2.imencode('.jpg', image[..., ::-1],
                                 [cv2.IMWRITE_JPEG_QUALITY, QUALITY])[1].tobytes()
        kind = 'image/png' if image[:4] == b'\x89PNG' else 'image/jpeg'
        self._add_camera(camera, name)
        self._log(f'cameras/{camera}/{name}', rr.EncodedImage(contents=image, media_type=kind))

    def map(self, camera: str, name: str, grid: np.ndarray) -> None:
        """Log one of `MAPS` (Hp, Wp); NaN is unknown."""
        self._add_camera(camera, name)
        self._log(f'cameras/{camera}/maps/{name}', rr.DepthImage(
            np.nan_to_num(grid, nan=0.0), colormap='turbo', depth_range=(0.0, MAPS[name])))

    def cells(self, camera: str, cells: LoomingCells, optics: Optics) -> None:
        """Log looming as arrows: where each cell goes, coloured by how fast it comes nearer."""
        # Flow of a plain wall is noise, although the heads know well that the wall stays away.
        known = (np.isfinite(cells.drift_across) & (cells.confidence >= MIN_CONFIDENCE)
                 & (np.abs(cells.rate) > cells.sigma))
        rays = np.stack((cells.across, cells.down), -1)[known]
        at, drift = optics.pixels(rays), np.stack((cells.drift_across, cells.drift_down), -1)
        way = drift[known] * (optics.fx, optics.fy) * ARROW_S
        # The optical axis lies in the middle of the picture, or nearly.
        longest = LONGEST * 2.0 * math.sqrt(abs(optics.cx * optics.cy) / max(1, len(cells)))
        way *= np.minimum(1.0, longest / np.maximum(np.hypot(*way.T), 1e-9))[:, None]
        self._add_camera(camera, 'image')
        self._log(f'cameras/{camera}/image/looming', rr.Arrows2D(
            origins=at, vectors=way, colors=_colors(cells.rate[known]),
            radii=rr.Radius.ui_points(1.0)))

    def regions(self, camera: str, regions: Iterable[Region]) -> None:
        """Log boxes of what comes nearer, with their time to contact."""
        found = list(regions)
        self._add_camera(camera, 'image')
        self._log(f'cameras/{camera}/image/regions', rr.Boxes2D(
            array=np.array([(r.x, r.y, r.width, r.height) for r in found]).reshape(-1, 4),
            array_format=rr.Box2DFormat.XYWH,
            labels=[f'{r.time_to_contact:.1f} s' + ('' if r.on_course else ', passes')
                    for r in found], colors=[REGION_COLORS[r.on_course] for r in found]))

    def assessment(self, camera: str, a: Assessment) -> None:
        """Log level, time to contact and scores; unknown values are gaps."""
        self._add_camera(camera)
        for name in ('', *SCORES):       # what is unknown or infinite is a gap
            value = getattr(a, name or 'time_to_contact')
            self._scalar(f'plots/scores/{camera}/{name}' if name else f'plots/contact/{camera}',
                         value if math.isfinite(value) else math.nan)
        self._scalar(f'plots/timings/{camera}/latency', a.latency_ms)
        self.level(camera, a.level.name.lower())

    def level(self, camera: str, level: str) -> None:
        """Log a level, by its name in lower case."""
        self._change(f'states/{camera}', level)

    def result(self, camera: str, result: Result, optics: Optics) -> None:
        """Log all of a result but pictures; ``optics`` are those of the source image."""
        self.assessment(camera, result.assessment)
        self.regions(camera, result.assessment.regions)
        self.cells(camera, LoomingCells.of(result, optics), optics)
        for name in MAPS:
            grid = getattr(result, name)
            if grid is not None:
                self.map(camera, name, grid)

    def stages(self, camera: str, stages_ms: Mapping[str, float]) -> None:
        """Log the times of stages [ms]."""
        for name, ms in stages_ms.items():
            self._scalar(f'plots/timings/{camera}/{name}', ms)

    def state(self, node: str, state: str, reason: str) -> None:
        """Log the state of a node, and its reason where more than its numbers changes."""
        self._change(f'states/{node}', state)
        words = re.sub(r'[\d.]+', '', reason)
        if self._last.get(f'log/{node}') != words:
            self._last[f'log/{node}'] = words
            self._add('log')
            self._log(f'log/{node}', rr.TextLog(f'{node}: {reason}'))

    def speed(self, node: str, name: str, ahead: float) -> None:
        """Log a speed [m/s] that was ``asked`` of a node, or ``sent`` by it."""
        self._add('speeds')
        path = f'plots/speeds/{node}/{name}'
        if path not in self._last:
            self._last[path] = name
            self._log(path, rr.SeriesLines(colors=SPEED_COLORS[name], names=f'{node} {name}'),
                      static=True)
        self._scalar(path, ahead)

    def _scalar(self, path: str, value: float) -> None:
        self._log(path, rr.Scalars(float(value)))

    def _change(self, path: str, state: str) -> None:
        if path not in self._last:
            self._log(path, rr.StateConfiguration(
                values=list(STATE_COLORS), colors=list(STATE_COLORS.values())), static=True)
        if self._last.get(path) != state:
            self._last[path] = state
            self._log(path, rr.StateChange(state=state))

    def _add_camera(self, camera: str, name: str = '') -> None:
        maps = self._cameras.get(camera)
        if maps is None or (name and name not in maps):
            self._cameras.setdefault(camera, set()).update({name} - {''})
            self.recording.send_blueprint(self.blueprint())

    def _add(self, part: str) -> None:
        if part not in self._parts:
            self._parts.add(part)
            self.recording.send_blueprint(self.blueprint())

    def blueprint(self) -> Any:
        """Return the layout: pictures above, then plots, then states."""
        pictures = [rrb.Spatial2DView(origin=f'cameras/{camera}/image', name=camera)
                    for camera, shown in sorted(self._cameras.items()) if 'image' in shown]
        detail = [view for camera, shown in sorted(self._cameras.items()) for view in (
            rrb.Spatial2DView(origin=f'cameras/{camera}/overlay', name=f'{camera} overlay'),
            *(rrb.Spatial2DView(origin=f'cameras/{camera}/maps/{name}',
                                name=f'{camera} {name.replace("_", " ")}')
              for name in sorted(MAPS.keys() & shown)))]
        alone = len(self._cameras) == 1
        above = rrb.Horizontal(
            *pictures, *detail[:1], rrb.Vertical(*detail[1:]),
            column_shares=[*[4] * (len(pictures) + 1), 2]) if alone and len(detail) > 1 else \
            rrb.Horizontal(*[rrb.Grid(*pictures)][:len(pictures)], rrb.Tabs(*detail))
        plots = [rrb.TimeSeriesView(
                     origin='plots/contact', name='time to contact, s',
                     axis_y=_axis(CONTACT_SHOWN_S)),
                 rrb.TimeSeriesView(origin='plots/scores', name='scores, 0 to 1',
                                    axis_y=_axis(1.0)),
                 rrb.TimeSeriesView(origin='plots/timings', name='timings, ms')]
        if 'speeds' in self._parts:
            plots.append(rrb.TimeSeriesView(origin='plots/speeds', name='speeds ahead, m/s'))
        states = [rrb.StateTimelineView(origin='states', name='levels and states')]
        if 'log' in self._parts:
            states.append(rrb.TextLogView(origin='log', name='reasons'))
        return rrb.Blueprint(
            rrb.Vertical(above, rrb.Horizontal(*plots), rrb.Horizontal(*states),
                         row_shares=[5, 3, 2]),
            rrb.TimePanel(timeline=TIME, state='collapsed',
                          play_state='following' if self._live else None),
            rrb.BlueprintPanel(state='collapsed'), rrb.SelectionPanel(state='collapsed'))


def _axis(end: float) -> Any:
    """Return an axis from 0 to a number; both are written on it."""
    return rrb.ScalarAxis(range=(-MARGIN * end, (1.0 + MARGIN) * end))


def _colors(rate: np.ndarray) -> np.ndarray:
    """Return (N, 3) uint8 RGB of looming rates [1/s], as overlays are tinted."""
    part = np.clip((rate - SLOW_RATE) / (FAST_RATE - SLOW_RATE), 0.0, 1.0)[:, None]
    warm = (COOL + part * (HOT - COOL))[:, ::-1]
    return np.where(rate[:, None] < SLOW_RATE, STILL, warm).astype(np.uint8)
