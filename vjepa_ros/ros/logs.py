# SPDX-License-Identifier: Apache-2.0
"""Forward the log of the ROS-free rooms to the node's logger, and so to /rosout."""

from __future__ import annotations

import logging
from typing import Any


class RosLogHandler(logging.Handler):
    """A logging handler that writes to a node's logger.

    Parameters
    ----------
    logger
        The node's logger.
    """

    def __init__(self, logger: Any) -> None:
        super().__init__(logging.INFO)
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record at its severity."""
        try:
            text = self.format(record)   # with the traceback, where there is one
        except (TypeError, ValueError):   # a wrong log line must not fail what it tells of
            self.handleError(record)
            return
        # One call site per severity: rclpy binds the severity to the line that logs.
        if record.levelno >= logging.ERROR:
            self._logger.error(text)
        elif record.levelno >= logging.WARNING:
            self._logger.warning(text)
        else:
            self._logger.info(text)


def forward_logs(logger: Any) -> RosLogHandler:
    """Send the package's log to a node's logger from now on; undo with `stop_forwarding`."""
    handler = RosLogHandler(logger)
    package = logging.getLogger('vjepa_ros')
    package.addHandler(handler)
    package.setLevel(logging.INFO)
    return handler


def stop_forwarding(handler: RosLogHandler) -> None:
    """Undo `forward_logs`."""
    logging.getLogger('vjepa_ros').removeHandler(handler)
