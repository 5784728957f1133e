# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Tell what a node between controller and base does: ``~/state``, ``/diagnostics``, the log."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus

from vjepa_ros.ros.common.diagnostics import stamped
from vjepa_ros.ros.common.lifecycle import ManagedNode

STATE_S = 0.2            # longest time between two messages on ~/state
LOG_EVERY_S = 1.0


class Teller(ABC):
    """Publishes the state at every change of it and five times a second; diagnostics when asked.

    What was decided has a ``state``, a word, and a ``reason``, '' for none.

    Parameters
    ----------
    node
        The node that is told of.

    Attributes
    ----------
    jumps
        How often the clock jumped.
    refused
        How many messages could not be read.
    failed
        How many callbacks have raised an exception.
    """

    def __init__(self, node: ManagedNode) -> None:
        self._node = node
        self.failed = 0
        self._state = node.create_publisher(DiagnosticArray, '~/state', 10)
        self._diagnostics = node.create_publisher(DiagnosticArray, '/diagnostics', 10)
        self.renew()

    def renew(self) -> None:
        """Begin to count anew (on configure)."""
        self.jumps = self.refused = 0
        self._problems: list[str] = []
        self._told: tuple[str, ...] = ()
        self._told_s = -math.inf
        self._logged: tuple[str, ...] = ()
        self._logged_s = {True: -math.inf, False: -math.inf}     # warnings, and the rest

    @abstractmethod
    def key(self, decided: Any) -> tuple[str, ...]:
        """Return the part of a decision whose change is published at once."""

    @abstractmethod
    def warns(self, decided: Any) -> bool:
        """Whether a decision is a warning in the log."""

    @abstractmethod
    def statuses(self, name: str, label: str, decided: Any, problems: list[str], now_s: float
                 ) -> list[DiagnosticStatus]:
        """Everything there is to tell.

        Parameters
        ----------
        name
            Of the node.
        label
            Of its lifecycle state.
        decided
            None: nothing was.
        problems
            Errors of the wiring, and the last failure.
        now_s
            Time [s].
        """

    def tell(self, decided: Any, now_s: float) -> None:
        """Publish the state of an active node when it is due, log it when it has changed."""
        key, steady = self.key(decided), time.monotonic()     # a simulated clock may stand
        self._log(key, decided, steady)
        if key == self._told and steady - self._told_s < STATE_S:
            return
        self._told, self._told_s = key, steady
        self._send(self._state, 'active', decided, now_s, self._node.callback_failure)

    def _log(self, key: tuple[str, ...], decided: Any, steady_s: float) -> None:
        """Log what has changed, once a second at most; what lasts is logged later, never lost."""
        warns = self.warns(decided)
        if key == self._logged or steady_s - self._logged_s[warns] < LOG_EVERY_S:
            return
        self._logged, self._logged_s[warns] = key, steady_s
        text = decided.state + (f': {decided.reason}' if decided.reason else '')
        if warns:
            self._node.get_logger().warning(text)
        else:
            self._node.get_logger().info(text)

    def report(self, label: str, decided: Any, now_s: float, failure: str) -> None:
        """Publish diagnostics, and the state, too, while nothing else does."""
        if label != 'active':
            self._send(self._state, label, None, now_s, failure)
        self._send(self._diagnostics, label, decided, now_s, failure)

    def set_problems(self, problems: list[str]) -> None:
        """Take what is wrong with the wiring; what is new is logged."""
        for problem in problems:
            if problem not in self._problems:
                self._node.get_logger().error(problem)
        self._problems = problems

    def _send(self, publisher: Any, label: str, decided: Any, now_s: float, failure: str = ''
              ) -> None:
        name = self._node.get_fully_qualified_name().lstrip('/')
        told = decided is not None and failure in decided.reason
        problems = [failure, *self._problems] if failure and not told else self._problems
        publisher.publish(stamped(self._node, self.statuses(name, label, decided, problems,
                                                            now_s)))
