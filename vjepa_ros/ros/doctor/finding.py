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
    """A fact, or a problem with its remedy.

    Attributes
    ----------
    level
        One of `LEVELS`; 'ok' is a fact.
    about
        Device, topic, node or file.
    text, remedy
        What was found, and what to do; a fact needs no remedy.
    """

    level: str
    about: str
    text: str
    remedy: str = ''


@dataclass
class Topic:
    """One topic, and what came on it while it was looked at.

    Attributes
    ----------
    types
        Names such as 'sensor_msgs/msg/Image'.
    publishers, subscribers
        Full names of nodes, one for each endpoint.
    mismatches
        Publisher, subscriber, and the policies on which they do not agree.
    sampled
        Whether this process subscribed to it.
    count, rate_hz, size
        Messages that came, their rate [Hz], and the bytes of the newest.
    age_s
        Arrival minus stamp of the newest [s]; NaN without stamp.
    unstamped
        Whether the stamp was 0.
    """

    types: tuple[str, ...]
    publishers: tuple[str, ...]
    subscribers: tuple[str, ...]
    mismatches: tuple[tuple[str, str, str], ...] = ()
    sampled: bool = False
    count: int = 0
    rate_hz: float = math.nan
    size: int = 0
    age_s: float = math.nan
    unstamped: bool = False


@dataclass
class NodeSeen:
    """A node of this package.

    Attributes
    ----------
    schema
        Which of its nodes it is, such as 'perception_node'.
    parameters : dict of str to object
        Values by name.
    reads
        Topics that it subscribes to.
    state
        Of its lifecycle; '' when it did not answer.
    """

    schema: str
    parameters: dict[str, Any]
    reads: tuple[str, ...]
    state: str = ''


@dataclass(frozen=True)
class Status:
    """One status of ``/diagnostics``; level 0 is OK, 1 WARN, 2 ERROR, 3 STALE."""

    level: int
    message: str
    values: Mapping[str, str]


@dataclass
class Graph:
    """What was seen of a ROS graph.

    Attributes
    ----------
    seconds
        How long topics were sampled [s].
    nodes_total
        Nodes in the graph, those of others included.
    topics, nodes, diagnostics
        By their full names.
    mute
        Nodes with diagnostics that did not answer what their parameters are.
    middleware
        Implementation that this process uses, such as rmw_fastrtps_cpp.
    """

    seconds: float
    nodes_total: int = 0
    topics: dict[str, Topic] = field(default_factory=dict)
    nodes: dict[str, NodeSeen] = field(default_factory=dict)
    diagnostics: dict[str, Status] = field(default_factory=dict)
    mute: tuple[str, ...] = ()
    middleware: str = ''
