# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Collect the output of the recorder process for the report and the live view."""

from __future__ import annotations

import json
import math
import threading
from typing import Any

from vjepa_ros.lab.report.live_view import Point, Status
from vjepa_ros.perception.types import Assessment, Level, Quality

STAGE = 'stage_ms.'      # prefix of the stage times in the diagnostics
SCORES = ('motion_score', 'obstacle_score', 'collision_probability', 'collision_if_ahead',
          'time_to_contact', 'looming_rate', 'bearing', 'elevation', 'known_fraction')


class Recording:
    """Output of the recorder so far.

    `take` may run in another thread than the rest.

    Parameters
    ----------
    status
        Updated for the live view.

    Attributes
    ----------
    ready : threading.Event
        Set when the recorder has subscribed.
    model, camera : dict of str to str
        The newest diagnostics of the node.
    frames_sent : int
        Frames that the camera published.
    states : int
        Number of diagnostics so far.
    """

    def __init__(self, status: Status) -> None:
        self.ready = threading.Event()
        self.model: dict[str, str] = {}
        self.camera: dict[str, str] = {}
        self.frames_sent = 0
        self.states = 0
        self._status = status
        self._results: list[dict[str, Any]] = []
        self._truth: dict[int, dict[str, Any]] = {}
        self._first_ns = self._last_ns = 0

    def take(self, line: str) -> None:
        """Take one line of JSON; other lines, such as output of libraries, are ignored."""
        if not line.startswith('{'):
            return
        message = json.loads(line)
        getattr(self, '_on_' + message.pop('kind'))(message)

    @property
    def configure_failed(self) -> bool:
        """Whether the node failed to load its model."""
        state = self.model.get('state', '')
        return state == 'unconfigured' and self.model['message'] != state

    @property
    def played_s(self) -> float:
        """Time from the first to the newest frame of the camera [s]."""
        return (self._last_ns - self._first_ns) / 1e9

    def covers(self, stamp_ns: int) -> bool:
        """Return whether a time lies between the first and the newest frame of the camera."""
        return self._first_ns <= stamp_ns <= self._last_ns

    @property
    def results(self) -> int:
        """Return the number of assessments so far."""
        return len(self._results)

    def records(self) -> list[dict[str, Any]]:
        """Return all assessments by stamp, each with the truth of its stamp."""
        unknown = {'true_ttc': math.nan, 'true_looming': math.nan}
        return sorted(({**r, **self._truth.get(r['stamp_ns'], unknown)} for r in self._results),
                      key=lambda record: record['stamp_ns'])

    def _on_ready(self, message: dict[str, Any]) -> None:
        self.ready.set()

    def _on_frames(self, message: dict[str, Any]) -> None:
        self.frames_sent = message['count']
        self._first_ns, self._last_ns = message['first_ns'], message['last_ns']

    def _on_truth(self, message: dict[str, Any]) -> None:
        self._truth[message.pop('stamp_ns')] = message

    def _on_result(self, message: dict[str, Any]) -> None:
        # Assessments have no stage times; those of the diagnostics are at most a second old.
        timings = {k[len(STAGE):]: float(v) for k, v in self.camera.items()
                   if k.startswith(STAGE) and v != 'unknown'}
        self._results.append({**message, 'timings': timings})
        stamp = message['stamp_ns']
        self._first_ns = self._first_ns or stamp
        truth = self._truth.get(stamp, {}).get('true_ttc', math.nan)
        seen = Assessment(camera='', stamp_ns=stamp, frame_id='', level=Level(message['level']),
                          flags=Quality(message['flags']), **{k: message[k] for k in SCORES})
        self._status.add(Point((stamp - self._first_ns) / 1e9, seen, truth,
                               message['latency_ms']))

    def _on_sides(self, message: dict[str, Any]) -> None:
        self._status.sides = message['sides']

    def _on_state(self, message: dict[str, Any]) -> None:
        self.states += 1
        self.model = message.get('model', self.model)
        self.camera = message.get('camera', self.camera)
        status, model = self._status, self.model
        if 'device' in model:
            status.model = f"{model['model']} on {model['device']}, {model['precision']}"
            status.trained = model['trained'] == 'True'
        if model.get('state') == 'active' and status.parts.get('node') == 'starting':
            status.parts['node'] = 'ready'
        if self.camera:
            status.frames_in = int(self.camera['frames_in'])
            rate = self.camera['rate_in_hz']
            status.rate_in_hz = math.nan if rate == 'unknown' else float(rate)
