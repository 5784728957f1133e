# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Pass what nodes publish, live or from a bag, on to a Rerun recording."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TYPE_CHECKING

import numpy as np

from vjepa_ros.clip.optics import Distortion, Optics
from vjepa_ros.ros import read
from vjepa_ros.sources.encodings import decode_raw
from vjepa_ros.viewer.messages import CLOUD, DIAGNOSTICS, camera_of, own_statuses

if TYPE_CHECKING:
    from vjepa_ros.viewer.rerun_log import RerunLog

IMAGE, COMPRESSED = 'sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage'
INFO = 'sensor_msgs/msg/CameraInfo'
OUTPUTS = {              # of the perception node, below ~/CAMERA/
    'assessment': CLOUD, 'obstacles': CLOUD, 'looming_field': CLOUD, 'motion_map': IMAGE,
    'moving_map': IMAGE, 'looming_map': IMAGE, 'map_info': INFO, 'overlay/compressed': COMPRESSED}
STAGE = 'stage_ms.'
What = tuple[str, str]   # one of `OUTPUTS`, 'image', 'diagnostics', 'state'; camera


def published(topics: Mapping[str, str], read_by: Callable[[str], Iterable[str]] = lambda node: ()
              ) -> dict[str, What]:
    """Return the topics of this package, with the pictures of its cameras, and what each is."""
    found: dict[str, What] = {}
    for topic, kind in topics.items():
        name = next((one for one in OUTPUTS if topic.endswith(f'/{one}')), '')
        if name and kind == OUTPUTS[name]:
            found[topic] = name, camera_of(topic.removesuffix(name) + 'output')[1]
        elif kind == DIAGNOSTICS and topic.rpartition('/')[2] in ('diagnostics', 'state'):
            found[topic] = topic.rpartition('/')[2], ''
    cameras = [camera_of(topic) for topic, (name, _) in found.items() if name == 'assessment']
    for node in {node for node, _ in cameras}:
        names = [camera for owner, camera in cameras if owner == node]
        found |= {topic: ('image', camera)
                  for topic, camera in _pictures(node, names, topics, read_by(node))}
    return found


def holds_outputs(topics: Mapping[str, str]) -> bool:
    """Return whether a bag has more of this package than diagnostics, which any robot has."""
    return any(name != 'diagnostics' for name, _ in published(topics).values())


def _pictures(node: str, cameras: list[str], topics: Mapping[str, str], heard: Iterable[str]
              ) -> Iterator[tuple[str, str]]:
    """Yield image topic and camera: the usual one, or the only one left that the node reads."""
    left = [one for one in heard if topics.get(one) in (IMAGE, COMPRESSED)]
    unknown = []
    for camera in cameras:
        raw = '/'.join(('', *node.split('/')[:-1], camera, 'image_raw'))
        usual = next((one for one in (f'{raw}/compressed', raw)
                      if topics.get(one) in (IMAGE, COMPRESSED)), '')
        left = [one for one in left if one.removesuffix('/compressed') != raw]
        if usual:
            yield usual, camera
        else:
            unknown.append(camera)
    if len(unknown) == len(left) == 1:
        yield left[0], unknown[0]


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
                for node, part, got in own_statuses(msg):
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
