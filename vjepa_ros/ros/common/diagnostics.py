# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Make diagnostic_msgs from names and values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.node import Node

OK, WARN, ERROR, STALE = (DiagnosticStatus.OK, DiagnosticStatus.WARN, DiagnosticStatus.ERROR,
                          DiagnosticStatus.STALE)


def number(value: float) -> str:
    """Format a number; NaN is 'unknown'."""
    return 'unknown' if math.isnan(value) else f'{value:.3f}'


def status(name: str, level: bytes, message: str, values: Mapping[str, object],
           hardware: str = '') -> DiagnosticStatus:
    """Make one status."""
    # Bounded: a reason may quote what a stranger sent.
    return DiagnosticStatus(
        name=name, level=level, message=f'{message:.4000}', hardware_id=hardware,
        values=[KeyValue(key=k, value=f'{v!s:.4000}') for k, v in values.items()])


def stamped(node: Node, statuses: Iterable[DiagnosticStatus]) -> DiagnosticArray:
    """Make a message of statuses with the stamp of now."""
    array = DiagnosticArray(status=list(statuses))
    array.header.stamp = node.get_clock().now().to_msg()
    return array
