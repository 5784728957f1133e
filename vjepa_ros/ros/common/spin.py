# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Serve a node until it is done or a signal comes, even when its callbacks fail, and its log."""

from __future__ import annotations

import logging
import math
import os
import signal
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import rclpy
from rcl_interfaces.msg import ParameterType, SetParametersResult
from rcl_interfaces.srv import SetParameters
from rclpy.exceptions import ParameterException
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.impl.rcutils_logger import RcutilsLogger
from rclpy.node import Node
from rclpy.parameter import Parameter

import vjepa_ros
from vjepa_ros.parameter import LONGEST, nearest
from vjepa_ros.ros.common.process import Signals, WAKE_S, lost_output

PACKAGE = Path(vjepa_ros.__file__).parent
MOST_NAMES = 1000        # in one request: more would keep the node from its work
MOST_REASON = 999        # letters of a reason: a name in it may be as long as a message
LARGEST_TYPE = ParameterType.PARAMETER_STRING_ARRAY
LOG_EVERY_S = 2.0        # at most one error is logged in this time
CLOCK = 'clock_callback'  # of rclpy, which raises an error at a negative time
LOOK_EVERY_S = 0.02      # the search for the name that is meant by a wrong one takes about 1 ms
FAILED_S = 2.0           # callbacks count as failing until none has failed for this long


class LogForwarder(logging.Handler):
    """Sends the log of the package's ROS-free parts to a node's logger, and so to /rosout."""

    def __init__(self, logger: RcutilsLogger) -> None:
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


def tell_error(logger: RcutilsLogger, text: str, error: BaseException) -> None:
    """Log an error: one of a wrong input in its words alone, any other with its traceback."""
    if _is_expected(error):
        logger.error(text)
    else:
        logger.error(f"{text}\n{''.join(traceback.format_exception(error))}".rstrip())


def _is_expected(error: BaseException) -> bool:
    """Whether it is of a class of this package or of rclpy, or a ValueError that one raises."""
    if type(error).__module__.partition('.')[0] in ('vjepa_ros', 'rclpy'):
        return True
    frames = traceback.extract_tb(error.__traceback__)
    if frames and Path(frames[-1].filename).name == 'qos_overriding_options.py':
        return True
    return (type(error) is ValueError and bool(frames)
            and Path(frames[-1].filename).is_relative_to(PACKAGE)
            and (frames[-1].line or '').startswith('raise '))


def _check(request: Any) -> None:
    """Check size and types of a request for parameters; ValueError with the reason."""
    parameters = getattr(request, 'parameters', ())
    names = parameters or getattr(request, 'names', None) or getattr(request, 'prefixes', ())
    if len(names) > MOST_NAMES:
        raise ValueError(f'it has {len(names):,} names, at most {MOST_NAMES:,} are answered; ask '
                         'for fewer at once')
    for parameter in parameters:
        if parameter.value.type > LARGEST_TYPE:
            raise ValueError(
                f"parameter '{parameter.name:.99}' has type {parameter.value.type}, must be 0 to "
                f'{LARGEST_TYPE} (rcl_interfaces/msg/ParameterType)')


def _refuse(response: Any, reason: str) -> bool:
    """Fill in a new response that says no; False when it has no room for the reason."""
    refused = SetParametersResult(successful=False, reason=reason)
    if hasattr(response, 'results'):
        response.results = [refused]
    elif isinstance(getattr(response, 'result', None), SetParametersResult):
        response.result = refused
    elif hasattr(response, 'message'):
        response.success, response.message = False, reason
    else:
        return False
    return True


class ResilientNode(Node):
    """A node that `serve` can serve. It is the first of the node's base classes."""

    callbacks_failed = 0    # how many have raised an exception
    may_interrupt = False   # whether a signal may break into what runs now
    done = False            # whether there is nothing more to serve
    exit_code = 0           # of the process that ends because the node is done
    ended = True            # whether no thread is left over from a node that was destroyed
    _failed_callback, _callback_failed_s, _looked_s = '', -math.inf, -math.inf

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._forwarder = LogForwarder(self.get_logger())
        log = logging.getLogger('vjepa_ros')
        log.addHandler(self._forwarder)
        log.setLevel(logging.INFO)

    def destroy_node(self) -> None:
        """Destroy the node, and forward no log to it any more."""
        logging.getLogger('vjepa_ros').removeHandler(self._forwarder)
        super().destroy_node()

    def note_failed_callback(self, error: Exception) -> str:
        """Count and log a callback that has failed, and react to it; returns the reason."""
        self.callbacks_failed += 1
        self._callback_failed_s = time.monotonic()
        self._failed_callback = f'a callback failed: {type(error).__name__}: {error}'
        if CLOCK in (frame.name for frame in traceback.extract_tb(error.__traceback__)):
            self._failed_callback += '; /clock has a time that cannot be: stop who publishes it'
        self._log(self._failed_callback)
        try:
            self.on_failed_callback()
        except Exception as another:
            self._log(f'handling a failed callback failed, too: {another}')
        return self._failed_callback

    def _log(self, text: str) -> None:
        self.get_logger().error(f'{text}\n{traceback.format_exc()}',
                                throttle_duration_sec=LOG_EVERY_S)

    @property
    def callback_failure(self) -> str:
        """How a callback failed lately; '' once none has failed for `FAILED_S`."""
        over = time.monotonic() - self._callback_failed_s > FAILED_S
        return '' if over else self._failed_callback

    def set_parameters_atomically(self, parameter_list: list[Parameter]) -> SetParametersResult:
        """Set parameters; of one that is not declared, the answer says what may be meant."""
        for param in parameter_list:
            if not self.has_parameter(param.name):
                return SetParametersResult(successful=False, reason=self._undeclared(param.name))
        if not parameter_list:          # of which rclpy says that a callback has made it so
            return SetParametersResult(successful=True)
        return super().set_parameters_atomically(parameter_list)

    def get_parameter(self, name: str) -> Parameter:
        """Return a parameter; the log tells of one that is not declared: no answer can."""
        if not self.has_parameter(name):
            self.get_logger().warning(self._undeclared(name), throttle_duration_sec=LOG_EVERY_S)
        return super().get_parameter(name)

    def _undeclared(self, name: str) -> str:
        """Say that there is no such parameter, and which one may be meant."""
        now_s, near = time.monotonic(), ''
        if now_s - self._looked_s > LOOK_EVERY_S:    # who sends many names must not hold it up
            self._looked_s, near = now_s, nearest(name, self._parameters)
        known = f'ros2 param list {self.get_fully_qualified_name()} shows those that there are'
        return f"parameter '{name:.{LONGEST}}' is not declared; {near or known}"

    def on_failed_callback(self) -> None:
        """React to a failed callback; called after each."""

    def suspend(self) -> bool:
        """Get ready to be stopped, as by Ctrl-Z; False: go on instead."""
        return True

    def create_service(self, srv_type: Any, srv_name: str, callback: Callable[..., Any],
                       **kwargs: Any) -> Any:
        """Create a service that answers every request, whatever `callback` does."""
        return super().create_service(srv_type, srv_name, partial(self._answer, callback),
                                      **kwargs)

    def _answer(self, callback: Callable[..., Any], request: Any, response: Any) -> Any:
        if isinstance(request, SetParameters.Request) and len(request.parameters) <= MOST_NAMES:
            # One that is wrong must not keep the others from their results.
            response.results = [
                result for parameter in request.parameters for result in
                self._attempt(callback, type(request)(parameters=[parameter]),
                              type(response)()).results]
            return response
        return self._attempt(callback, request, response)

    def _attempt(self, callback: Callable[..., Any], request: Any, response: Any) -> Any:
        try:
            _check(request)
            return callback(request, response)
        except (ValueError, ParameterException) as error:
            reason = str(error)
        except Exception as error:           # who asks must not wait forever
            reason = self.note_failed_callback(error)
        reason, response = f'{reason:.{MOST_REASON}}', type(response)()
        if not _refuse(response, reason):
            self.get_logger().warning(
                f'{type(request).__name__.removesuffix("_Request")} refused: {reason}',
                throttle_duration_sec=LOG_EVERY_S)
        return response


def serve(node: ResilientNode, signals: Signals) -> bool:
    """Serve a node, then destroy it; False when one of its threads is left over."""
    executor = SingleThreadedExecutor(context=node.context)
    executor.add_node(node)
    signals.serves = True
    try:
        while not signals.received and not node.done and node.context.ok():
            _serve_once(executor, node)
            if signals.suspends:
                signals.suspends = False
                try:     # stop this process until SIGCONT, once the node has made that safe
                    if node.suspend():
                        os.kill(os.getpid(), signal.SIGSTOP)
                except Exception as error:
                    node.note_failed_callback(error)
            if lost_output():
                node.get_logger().warning(
                    'nobody read the output of this node for a while: lines of its log are '
                    'missing before this one, but were published on /rosout',
                    throttle_duration_sec=LOG_EVERY_S)
    except KeyboardInterrupt:
        node.get_logger().info('interrupted while configuring')
    executor.shutdown(timeout_sec=0.1)
    node.destroy_node()
    rclpy.try_shutdown(context=node.context)
    return node.ended


def _serve_once(executor: SingleThreadedExecutor, node: ResilientNode) -> None:
    try:
        executor.spin_once(timeout_sec=WAKE_S)
    except ExternalShutdownException:
        return   # the context is gone, and the loop ends
    except Exception as error:
        # One callback must not blind the robot: rclpy would end the process here.
        node.note_failed_callback(error)
