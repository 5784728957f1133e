# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Write what nodes publish, live or from a bag, and what a detector says, into a Rerun recording.

Needs the Python package ``rerun-sdk`` (https://rerun.io), the extra ``view`` of this package.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

import cv2
import numpy as np

from vjepa_ros.clip.optics import Distortion, Optics
from vjepa_ros.overlay import COOL, FAST_RATE, HOT, LEVEL_COLORS, SLOW_RATE
from vjepa_ros.perception.looming_cells import LoomingCells
from vjepa_ros.perception.types import Assessment, Region, Result
from vjepa_ros.ros import read
from vjepa_ros.sources.encodings import decode_raw
from vjepa_ros.viewer.messages import (
    CLOUD,
    COMPRESSED,
    DIAGNOSTICS,
    IMAGE,
    INFO,
    STAGE,
    camera_of,
)

rr: Any = None
rrb: Any = None
with suppress(ModuleNotFoundError):      # which `cli/view` tells
    rr, rrb = import_module('rerun'), import_module('rerun.blueprint')

TIME = 'time'
EPOCH_NS = 10**17        # earlier stamps (before 1973) count from the start of a source
MIN_CONFIDENCE = 0.2     # of a cell that gets a point
STILL = (150, 150, 150)  # of what does not come nearer
REGION_COLORS = {True: (229, 48, 48), False: (255, 180, 60)}   # on course, and passing by
CONTACT_SHOWN_S = 10.0
SCORES = ('collision_probability', 'collision_if_ahead', 'motion_score', 'obstacle_score')
MARGIN = 0.05            # of the axis of a plot, beyond both ends: else the last number is cut off
MAPS = ('motion_map', 'moving_map', 'looming_map')
QUALITY = 85
_LEVELS = {level.name.lower(): color[::-1] for level, color in LEVEL_COLORS.items()}
STATE_COLORS = {         # RGB, of cameras and of nodes
    **_LEVELS, 'active': _LEVELS['clear'], 'free': _LEVELS['clear'], 'idle': STILL,
    'inactive': STILL, 'unconfigured': STILL, 'slowed': _LEVELS['caution'],
    'turned': _LEVELS['caution'], 'stopped': _LEVELS['warning'], 'fault': _LEVELS['danger'],
    **dict.fromkeys(('override', 'uncovered', 'unmeasured'), _LEVELS['unknown'])}
SPEED_COLORS = {'asked': STILL, 'sent': (40, 120, 229)}
PICTURES = IMAGE, COMPRESSED
OUTPUTS = {              # of the perception node, below ~/CAMERA/
    'assessment': CLOUD, 'obstacles': CLOUD, 'looming_field': CLOUD, 'motion_map': IMAGE,
    'moving_map': IMAGE, 'looming_map': IMAGE, 'map_info': INFO, 'overlay/compressed': COMPRESSED}
What = tuple[str, str]   # one of `OUTPUTS`, 'image', 'diagnostics', 'state'; camera


class RerunLog:
    """One recording of any number of cameras and nodes."""

    def __init__(self, recording: Any, live: bool) -> None:
        self.recording, self._log, self._live = recording, recording.log, live
        # Cameras with their maps, and 'image' if shown; '' has the parts that are of no camera.
        self._shown: dict[str, set[str]] = {'': set()}
        self._last: dict[str, str] = {}

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
        self._add(camera, name)
        self._log(f'cameras/{camera}/{name}', rr.EncodedImage(contents=image, media_type=kind))

    def map(self, camera: str, name: str, grid: np.ndarray) -> None:
        """Log one of `MAPS` (Hp, Wp); NaN is unknown."""
        self._add(camera, name)
        self._log(f'cameras/{camera}/maps/{name}', rr.DepthImage(
            np.nan_to_num(grid, nan=0.0), colormap='turbo', depth_range=(0.0, 1.0)))

    def cells(self, camera: str, cells: LoomingCells, optics: Optics) -> None:
        """Log looming as points, coloured by how fast what is there comes nearer."""
        known = (cells.confidence >= MIN_CONFIDENCE) & (np.abs(cells.rate) > cells.sigma)
        at = optics.pixels(np.stack((cells.across, cells.down), -1)[known])
        self._add(camera, 'image')
        self._log(f'cameras/{camera}/image/looming', rr.Points2D(
            at, colors=_colors(cells.rate[known]), radii=rr.Radius.ui_points(3.0)))

    def regions(self, camera: str, regions: Iterable[Region]) -> None:
        """Log boxes of what comes nearer, with their time to contact."""
        found = list(regions)
        self._add(camera, 'image')
        self._log(f'cameras/{camera}/image/regions', rr.Boxes2D(
            array=np.array([(r.x, r.y, r.width, r.height) for r in found]).reshape(-1, 4),
            array_format=rr.Box2DFormat.XYWH,
            labels=[f'{r.time_to_contact:.1f} s' + ('' if r.on_course else ', passes')
                    for r in found], colors=[REGION_COLORS[r.on_course] for r in found]))

    def assessment(self, camera: str, a: Assessment) -> None:
        """Log level, time to contact and scores; unknown values are gaps."""
        self._add(camera)
        for name in ('', *SCORES):       # what is unknown or infinite is a gap
            value = getattr(a, name or 'time_to_contact')
            self._scalar(f'plots/scores/{camera}/{name}' if name else f'plots/contact/{camera}',
                         value if math.isfinite(value) else math.nan)
        self._scalar(f'plots/timings/{camera}/latency', a.latency_ms)
        self._change(f'states/{camera}', a.level.name.lower())

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
            self._add('', 'log')
            self._log(f'log/{node}', rr.TextLog(f'{node}: {reason}'))

    def speed(self, node: str, name: str, ahead: float) -> None:
        """Log a speed [m/s] that was ``asked`` of a node, or ``sent`` by it."""
        self._add('', 'speeds')
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

    def _add(self, camera: str, name: str = '') -> None:
        shown = self._shown.get(camera)
        if shown is None or (name and name not in shown):
            self._shown.setdefault(camera, set()).update({name} - {''})
            self.recording.send_blueprint(self.blueprint())

    def blueprint(self) -> Any:
        """Return the layout: pictures above, then plots, then states."""
        parts, cameras = self._shown[''], sorted(self._shown.items())[1:]
        pictures = [rrb.Spatial2DView(origin=f'cameras/{camera}/image', name=camera)
                    for camera, shown in cameras if 'image' in shown]
        detail = [view for camera, shown in cameras for view in (
            rrb.Spatial2DView(origin=f'cameras/{camera}/overlay', name=f'{camera} overlay'),
            *(rrb.Spatial2DView(origin=f'cameras/{camera}/maps/{name}',
                                name=f'{camera} {name.replace("_", " ")}')
              for name in sorted(shown.intersection(MAPS))))]
        if len(cameras) == 1 and len(detail) > 1:
            above = rrb.Horizontal(*pictures, *detail[:1], rrb.Vertical(*detail[1:]),
                                   column_shares=[*[4] * (len(pictures) + 1), 2])
        else:
            above = rrb.Horizontal(*[rrb.Grid(*pictures)][:len(pictures)], rrb.Tabs(*detail))
        plots = [rrb.TimeSeriesView(
                     origin='plots/contact', name='time to contact, s',
                     axis_y=_axis(CONTACT_SHOWN_S)),
                 rrb.TimeSeriesView(origin='plots/scores', name='scores, 0 to 1',
                                    axis_y=_axis(1.0)),
                 rrb.TimeSeriesView(origin='plots/timings', name='timings, ms')]
        if 'speeds' in parts:
            plots.append(rrb.TimeSeriesView(origin='plots/speeds', name='speeds ahead, m/s'))
        states = [rrb.StateTimelineView(origin='states', name='levels and states')]
        if 'log' in parts:
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


# -- topics ---------------------------------------------------------------------------------------

def published(topics: Mapping[str, str], known: Mapping[str, What] = {}) -> dict[str, What]:
    """Return the topics of this package, with the pictures of its cameras, and what each is."""
    found = dict(known)
    for topic, kind in topics.items():
        name = next((one for one in OUTPUTS if topic.endswith(f'/{one}')), '')
        if name and kind == OUTPUTS[name]:
            found[topic] = name, camera_of(topic.removesuffix(name) + 'output')[1]
        elif kind == DIAGNOSTICS and topic.rpartition('/')[2] in ('diagnostics', 'state'):
            found[topic] = topic.rpartition('/')[2], ''
    for topic in [topic for topic, (name, _) in found.items() if name == 'assessment']:
        node, camera = camera_of(topic)
        raw = '/'.join(('', *node.split('/')[:-1], camera, 'image_raw'))
        for usual in (f'{raw}/compressed', raw):
            if topics.get(usual) in PICTURES and ('image', camera) not in found.values():
                found[usual] = 'image', camera
    return found


def holds_outputs(topics: Mapping[str, str]) -> bool:
    """Return whether a bag has more of this package than diagnostics, which any robot has."""
    return any(name != 'diagnostics' for name, _ in published(topics).values())


class Topics:
    """Passes messages on to a log."""

    def __init__(self, log: RerunLog) -> None:
        self._log = log
        self._optics: dict[str, Optics] = {}
        self.what: dict[str, What] = {}      # as `published` returns it
        self.problem = ''                    # why the last message could not be shown

    def take(self, topic: str, msg: Any) -> None:
        """Log one message; one of another package with a name of ours is passed over."""
        name, camera = self.what.get(topic, ('', ''))
        if not name:
            return
        if hasattr(msg, 'header'):       # else that of the message before
            self._log.at(read.stamp_ns(msg))
        try:
            if name in ('diagnostics', 'state'):
                for node, part, got in read.statuses(msg):
                    self._status(node, part, got)
            elif name == 'image':
                data = np.frombuffer(msg.data, np.uint8)
                self._log.picture(camera, data.tobytes() if hasattr(msg, 'format') else decode_raw(
                    data, msg.width, msg.height, msg.encoding, msg.step, bool(msg.is_bigendian)))
            else:
                self._output(name, camera, msg)
        except ValueError as error:
            self.problem = f"'{topic}': {error}"

    def _output(self, name: str, camera: str, msg: Any) -> None:
        log = self._log
        if name == 'assessment':
            log.assessment(camera, read.assessment(msg, camera))
        elif name == 'obstacles':
            log.regions(camera, read.obstacles(msg))
        elif name == 'overlay/compressed':
            log.picture(camera, bytes(msg.data), 'overlay')
        elif name == 'map_info':
            self._optics[camera] = _source_optics(msg)
        elif name == 'looming_field':
            if camera in self._optics:
                log.cells(camera, read.looming_field(msg), self._optics[camera])
        else:
            log.map(camera, name, read.grid(msg))

    def _status(self, node: str, part: str, got: dict[str, Any]) -> None:
        values = got['values']
        if part.startswith('camera '):
            camera = part.removeprefix('camera ')
            topic = values['image_topic']     # where it was remapped nothing else tells
            if topic.startswith('/') and ('image', camera) not in self.what.values():
                self.what[topic] = 'image', camera
            self._log.stages(camera, {
                key.removeprefix(STAGE): ms for key, ms in values.items()
                if key.startswith(STAGE) and isinstance(ms, (int, float))})
        elif part in ('guard', 'planner'):
            self._log.state(node, str(values.get('action', values.get('state', got['level']))),
                            got['message'])
            for name in ('asked', 'sent'):
                ahead = values.get(f'{name}.vx', math.nan)
                if isinstance(ahead, (int, float)):
                    self._log.speed(node, name, ahead)
        elif part == 'model':
            self._log.state(node, str(values.get('state', got['level'])), got['message'])


def _source_optics(msg: Any) -> Optics:
    """Return the intrinsics of the source image, of a map_info.

    The map covers `roi` of the source; bars beside it, of resize mode letterbox, do not count.
    """
    fx, cx, fy, cy = (float(msg.k[n]) for n in (0, 2, 4, 5))
    roi = msg.roi
    # Equal pixels of a map have equal sides in the source, but for the mode squash.
    across, down = roi.width / msg.width, roi.height / msg.height
    return Optics(fx * across, fy * down, (cx + 0.5) * across - 0.5 + roi.x_offset,
                  (cy + 0.5) * down - 0.5 + roi.y_offset, False, Distortion.of(msg))
