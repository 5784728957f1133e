# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Make lifecycle transitions that either complete or leave no trace, and never fail silently."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable

from lifecycle_msgs.srv import ChangeState
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn

from vjepa_ros.ros.common.logs import tell_error

Transition = Callable[[object, LifecycleState], TransitionCallbackReturn]


def transition(undo: str, on_failure: TransitionCallbackReturn) -> Callable[[Transition],
                                                                          Transition]:
    """Wrap a transition callback of a node.

    An exception is logged (rclpy would turn it into an error state without a word; see
    `tell_error`), kept in ``node.last_failure`` for diagnostics, undone by calling the node's
    method `undo`, and answered with `on_failure`; with ERROR when it could not be undone.
    """
    def wrap(method: Transition) -> Transition:
        @functools.wraps(method)
        def run(self: object, state: LifecycleState) -> TransitionCallbackReturn:
            name = method.__name__.removeprefix('on_')
            try:
                answer = method(self, state)
            except Exception as error:
                self.last_failure = f'{name} failed: {error}'
                tell_error(self.get_logger(), self.last_failure, error)
                return on_failure if _taken_back(self, undo) else TransitionCallbackReturn.ERROR
            if answer == TransitionCallbackReturn.SUCCESS:
                self.last_failure = ''
            return answer
        return run
    return wrap


def last_resort(method: Transition) -> Transition:
    """Wrap `on_error`: what fails there is logged, and finalizes the node."""
    @functools.wraps(method)
    def run(self: object, state: LifecycleState) -> TransitionCallbackReturn:
        try:
            return method(self, state)
        except Exception as error:
            self.last_failure = f'the node could not be released: {error}; restart its process'
            self.get_logger().fatal(f'{self.last_failure}\n{traceback.format_exc()}')
            return TransitionCallbackReturn.FAILURE
    return run


def _taken_back(node: object, undo: str) -> bool:
    """Undo a transition that failed; False when that failed, too."""
    try:
        getattr(node, undo)()
    except Exception as error:
        # The first failure is the one to correct; rclpy would not tell of this one.
        tell_error(node.get_logger(), f'{undo} failed, too: {error}', error)
        return False
    return True


def survive_wrong_requests(node: LifecycleNode) -> None:
    """Answer a transition that the present state does not allow, instead of dying of it.

    Up to Jazzy, rclpy lets the error of such a request escape from the executor.
    """
    service = getattr(node, '_service_change_state', None)
    if service is None:   # a node without its lifecycle services
        return
    serve = service.callback

    def guarded(request: ChangeState.Request,
                response: ChangeState.Response) -> ChangeState.Response:
        try:
            return serve(request, response)
        except rclpy_implementation.RCLError as error:
            wanted = request.transition.label or request.transition.id
            node.get_logger().warning(f'transition {wanted} refused: {error}')
            response.success = False
            return response

    service.callback = guarded
