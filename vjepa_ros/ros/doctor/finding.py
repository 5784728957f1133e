# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""A finding of the doctor, and what it has seen of a ROS graph (plain data, needs no ROS)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

OK, NOTE, WARNING, ERROR = LEVELS = ('ok', 'note', 'warning', 'error')


@dataclass(frozen=True)
class Finding:
    """A fact, or a problem with its remedy."""

    level: str  # one of `LEVELS`; 'ok' is a fact
    about: str  # device, topic, node or file
    # text, remedy: what was found, and what to do; a fact needs no remedy
    text: str
    remedy: str = ''


@dataclass
class Topic:
    """One topic, and what came on it while it was looked at."""

    types: tuple[str, ...]  # names such as 'sensor_msgs/msg/Image'
    # publishers, subscribers: full names of nodes, one for each endpoint
    publishers: tuple[str, ...]
    subscribers: tuple[str, ...]
    # Publisher, subscriber, and the policies on which they do not agree
    mismatches: tuple[tuple[str, str, str], ...] = ()
    sampled: bool = False  # whether this process subscribed to it
    # count, rate_hz, size: messages that came, their rate [Hz], and the bytes of the newest
    count: int = 0
    rate_hz: float = math.nan
    size: int = 0
    age_s: float = math.nan  # arrival minus stamp of the newest [s]; NaN without stamp
    unstamped: bool = False  # whether the stamp was 0


@dataclass
class NodeSeen:
    """A node of this package."""

    schema: str  # which of its nodes it is, such as 'perception_node'
    parameters: dict[str, Any]  # values by name
    reads: tuple[str, ...]  # topics that it subscribes to
    state: str = ''  # of its lifecycle; '' when it did not answer


@dataclass(frozen=True)
class Status:
    """One status of ``/diagnostics``; level 0 is OK, 1 WARN, 2 ERROR, 3 STALE."""

    level: int
    message: str
    values: Mapping[str, str]


@dataclass
class Graph:
    """What was seen of a ROS graph."""

    seconds: float  # how long topics were sampled [s]
    nodes_total: int = 0  # nodes in the graph, those of others included
    # topics, nodes, diagnostics: by their full names
    topics: dict[str, Topic] = field(default_factory=dict)
    nodes: dict[str, NodeSeen] = field(default_factory=dict)
    diagnostics: dict[str, Status] = field(default_factory=dict)
    # Nodes with diagnostics that did not answer what their parameters are
    mute: tuple[str, ...] = ()
    middleware: str = ''  # implementation that this process uses, such as rmw_fastrtps_cpp
