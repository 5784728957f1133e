# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Nodes that survive failing callbacks, and whose transitions complete or leave no trace."""

from __future__ import annotations

import functools
import logging
import math
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from lifecycle_msgs.msg import State
from lifecycle_msgs.srv import ChangeState
from rcl_interfaces.msg import ParameterType, SetParametersResult
from rcl_interfaces.srv import SetParameters
from rclpy.clock import (
    Clock,
    ClockType,  # pyright: ignore[reportPrivateImportUsage] # clock_type is not in Humble
)
from rclpy.exceptions import ParameterException
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.impl.rcutils_logger import RcutilsLogger
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.node import Node
from rclpy.parameter import Parameter

import vjepa_ros
from vjepa_ros.parameter import LONGEST, nearest

Transition = TypeVar('Transition', bound=Callable[..., TransitionCallbackReturn])
SUCCESS = TransitionCallbackReturn.SUCCESS
FAILURE = TransitionCallbackReturn.FAILURE
ERROR = TransitionCallbackReturn.ERROR
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
        self.steady = Clock(clock_type=ClockType.STEADY_TIME)
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
        return super().set_parameters_atomically(parameter_list)

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


def transition(
        undo: str, on_failure: TransitionCallbackReturn) -> Callable[[Transition], Transition]:
    """Wrap a transition callback: an error is logged, kept in ``last_failure``, and undone."""
    def wrap(method: Transition) -> Transition:
        @functools.wraps(method)
        def run(self: ManagedNode, state: LifecycleState) -> TransitionCallbackReturn:
            name = method.__name__.removeprefix('on_')
            try:
                answer = method(self, state)
            except Exception as error:
                self.last_failure = f'{name} failed: {error}'
                tell_error(self.get_logger(), self.last_failure, error)
                try:
                    getattr(self, undo)()
                except Exception as another:
                    # The first failure is the one to correct; rclpy would not tell of this one.
                    tell_error(self.get_logger(), f'{undo} failed, too: {another}', another)
                    return ERROR
                return on_failure
            if answer == SUCCESS:
                self.last_failure = ''
            return answer
        return cast(Transition, run)
    return wrap


class ManagedNode(ResilientNode, LifecycleNode, ABC):
    """A lifecycle node whose `halt` and `release` are safe in every state."""

    def __init__(self, node_name: str, **kwargs: Any) -> None:
        super().__init__(node_name, **kwargs)
        self._survive_wrong_requests()
        self.last_failure = ''      # why the last transition failed; '' after one that did not

    def _survive_wrong_requests(self) -> None:
        """Answer a transition that is not allowed now, of which rclpy up to Jazzy would die."""
        service = getattr(self, '_service_change_state', None)
        if service is None:   # a node without its lifecycle services
            return
        serve = service.callback

        def guarded(request: ChangeState.Request,
                    response: ChangeState.Response) -> ChangeState.Response:
            try:
                return serve(request, response)
            except rclpy_implementation.RCLError as error:
                wanted = request.transition.label or request.transition.id
                self.get_logger().warning(f'transition {wanted} refused: {error}')
                response.success = False
                return response

        service.callback = guarded

    @property
    def state(self) -> str:
        """Label of the lifecycle state."""
        return self._state_machine.current_state[1]

    @property
    def may_interrupt(self) -> bool:
        """Return whether Ctrl-C ends it at once: loading can take long."""
        return self.state == 'configuring'

    @abstractmethod
    def halt(self) -> None:
        """Stop work and output, unsubscribe."""

    @abstractmethod
    def release(self) -> None:
        """Halt, and release everything that configure made."""

    @property
    def failure(self) -> str:
        """Return what is wrong with the node itself, for diagnostics; '' for nothing."""
        return '; '.join(text for text in (self.last_failure, self.callback_failure) if text)

    @transition(undo='halt', on_failure=ERROR)
    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop work and output."""
        self.halt()
        self.get_logger().info('deactivated')
        return super().on_deactivate(state)

    @transition(undo='release', on_failure=ERROR)
    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Release everything that configure made."""
        answer = super().on_cleanup(state)
        self.release()
        return answer

    @transition(undo='release', on_failure=ERROR)
    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Release everything, from any state."""
        self.halt()      # first: a last word needs publishers that are still enabled
        answer = super().on_shutdown(state)
        self.release()
        return answer

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Release everything and become unconfigured; where that fails, finalize the node."""
        try:
            self.release()
            return super().on_error(state)
        except Exception as error:
            self.last_failure = f'the node could not be released: {error}; restart its process'
            self.get_logger().fatal(f'{self.last_failure}\n{traceback.format_exc()}')
            return FAILURE

    def undo_activate(self) -> None:
        """Take back a half-done activation: the publishers may be enabled already."""
        self.halt()
        super().on_deactivate(LifecycleState('activating', State.TRANSITION_STATE_ACTIVATING))

    def destroy_node(self) -> None:
        """Release everything and destroy the node."""
        self.release()
        super().destroy_node()

    def start_alone(self) -> None:
        """Configure and activate as soon as the executor runs."""
        self._autostart_timer = self.create_timer(0.0, self._on_autostart, clock=self.steady)

    def _on_autostart(self) -> None:
        self.destroy_timer(self._autostart_timer)
        if self.state == 'unconfigured' and self.trigger_configure() == SUCCESS:
            self.trigger_activate()
        if self.state != 'active':
            self.get_logger().error(f"autostart ended in state '{self.state}'; correct the cause "
                                    'above and request configure and activate')
