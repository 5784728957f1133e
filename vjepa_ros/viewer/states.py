# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Keep the newest of what nodes say about themselves and their cameras."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vjepa_ros.perception.types import Assessment
from vjepa_ros.ros import read
from vjepa_ros.viewer.messages import diagnostic

CLOUD, DIAGNOSTICS = 'sensor_msgs/msg/PointCloud2', 'diagnostic_msgs/msg/DiagnosticArray'
OWN = re.compile(r'(?P<node>[^:]+): (?P<part>model|guard|planner|(camera|source) .+)')
WINDOW = 30              # assessments of which the rate is taken


@dataclass
class Told:
    """The newest status of a part of a node: as `messages.diagnostic`, and when it came [s]."""

    level: str
    message: str
    values: Mapping[str, Any]
    at_s: float

    def number(self, name: str) -> float:
        """Return a value as a number; NaN where it is none."""
        value = self.values.get(name, math.nan)
        return float(value) if isinstance(value, (int, float)) else math.nan

    def text(self, name: str) -> str:
        """Return a value as text; '' where there is none."""
        value = self.values.get(name, '')
        return '' if value in ('none', '') or value != value else str(value)


@dataclass
class Seen:
    """The newest assessment of a camera, and when the last ones came [s]."""

    assessment: Assessment
    times_s: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))

    @property
    def rate_hz(self) -> float:
        """Return how many come per second; NaN unknown."""
        span = self.times_s[-1] - self.times_s[0]
        return (len(self.times_s) - 1) / span if span > 0 else math.nan


class States:
    """What the nodes of this package have said so far, each by node and part.

    Attributes
    ----------
    told
        Statuses by (node, part): part is 'model', 'guard', 'planner', 'camera NAME' or
        'source NAME'.
    seen
        Assessments by (node, camera).
    """

    def __init__(self) -> None:
        self.told: dict[tuple[str, str], Told] = {}
        self.seen: dict[tuple[str, str], Seen] = {}

    @staticmethod
    def wants(topic: str, kind: str) -> bool:
        """Return whether `take` understands a topic of this type."""
        last = topic.rpartition('/')[2]
        return (kind == CLOUD and last == 'assessment') or (
            kind == DIAGNOSTICS and last in ('diagnostics', 'state'))

    def take(self, topic: str, msg: Any, now_s: float) -> None:
        """Take a message that came at this steady time [s]; foreign ones are passed over."""
        if hasattr(msg, 'status'):
            for one in msg.status:
                self._take_status(one, now_s)
            return
        node, camera = camera_of(topic)
        try:
            found = read.assessment(msg, camera)
        except ValueError:       # of another package
            return
        seen = self.seen.setdefault((node, camera), Seen(found))
        seen.assessment = found
        seen.times_s.append(now_s)

    def _take_status(self, status: Any, now_s: float) -> None:
        match = OWN.fullmatch(status.name)
        if match:
            got = diagnostic(status)
            self.told[match['node'], match['part']] = Told(got['level'], got['message'],
                                                           got['values'], now_s)


def camera_of(topic: str) -> tuple[str, str]:
    """Return node (as in its statuses) and camera of a topic ``/NODE/CAMERA/OUTPUT``."""
    node, camera = topic.lstrip('/').rsplit('/', 2)[:2] if topic.count('/') > 2 else ('', '')
    return node, camera
