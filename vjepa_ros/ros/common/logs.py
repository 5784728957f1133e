# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Forward the log of the package's ROS-free parts to the node's logger, and so to /rosout."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path
from typing import Any, Protocol

import vjepa_ros

PACKAGE = Path(vjepa_ros.__file__).parent


class Logger(Protocol):
    """A node's logger."""

    def debug(self, message: str, **kwargs: Any) -> Any:
        """Log at level DEBUG."""

    def info(self, message: str, **kwargs: Any) -> Any:
        """Log at level INFO."""

    def warning(self, message: str, **kwargs: Any) -> Any:
        """Log at level WARN."""

    def error(self, message: str, **kwargs: Any) -> Any:
        """Log at level ERROR."""

    def is_enabled_for(self, severity: Any) -> bool:
        """Return whether messages of a severity are logged."""
        ...


class RosLogHandler(logging.Handler):
    """A logging handler that writes to a node's logger.

    Parameters
    ----------
    logger
        The node's logger.
    """

    def __init__(self, logger: Logger) -> None:
        super().__init__(logging.INFO)
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record at its severity."""
        try:
            # With the traceback, where there is one; names of files may be no UTF-8.
            text = self.format(record).encode(errors='backslashreplace').decode()
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


def forward_logs(logger: Logger) -> RosLogHandler:
    """Send the package's log to a node's logger from now on; undo with `stop_forwarding`."""
    handler = RosLogHandler(logger)
    package = logging.getLogger('vjepa_ros')
    package.addHandler(handler)
    package.setLevel(logging.INFO)
    return handler


def stop_forwarding(handler: RosLogHandler) -> None:
    """Undo `forward_logs`."""
    logging.getLogger('vjepa_ros').removeHandler(handler)


def tell_error(logger: Logger, text: str, error: BaseException) -> None:
    """Log an error: an expected one in its words alone, any other with its traceback.

    That of an expected one is logged at level DEBUG.
    """
    trace = f"{text}\n{''.join(traceback.format_exception(error))}".rstrip()
    if is_expected(error):
        logger.error(text)
        logger.debug(trace)
    else:
        logger.error(trace)


def is_expected(error: BaseException) -> bool:
    """Whether it tells of a wrong input, and not of a fault of the code.

    Such are the errors of its own classes, and a ValueError that a line of it raises. So are those
    by which ROS refuses a parameter that it declares itself, such as a QoS override.
    """
    if type(error).__module__.partition('.')[0] in ('vjepa_ros', 'rclpy'):
        return True
    frames = traceback.extract_tb(error.__traceback__)
    if frames and Path(frames[-1].filename).name == 'qos_overriding_options.py':
        return True
    return (type(error) is ValueError and bool(frames)
            and Path(frames[-1].filename).is_relative_to(PACKAGE)
            and (frames[-1].line or '').startswith('raise '))
