# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Lifecycle nodes whose transitions either complete or leave no trace, and never fail silently."""

from __future__ import annotations

import functools
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar, cast

from lifecycle_msgs.msg import State
from lifecycle_msgs.srv import ChangeState
from rclpy.clock import Clock
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn

from vjepa_ros.ros.common.spin import ResilientNode, tell_error

Transition = TypeVar('Transition', bound=Callable[..., TransitionCallbackReturn])
SUCCESS = TransitionCallbackReturn.SUCCESS
FAILURE = TransitionCallbackReturn.FAILURE
ERROR = TransitionCallbackReturn.ERROR


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
        """Return whether Ctrl-C ends it at once: nobody waits as long as loading can take."""
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

    def start_alone(self, clock: Clock) -> None:
        """Configure and activate as soon as the executor runs."""
        self._autostart_timer = self.create_timer(0.0, self._on_autostart, clock=clock)

    def _on_autostart(self) -> None:
        self.destroy_timer(self._autostart_timer)
        if self.state == 'unconfigured' and self.trigger_configure() == SUCCESS:
            self.trigger_activate()
        if self.state != 'active':
            self.get_logger().error(f"autostart ended in state '{self.state}'; correct the cause "
                                    'above and request configure and activate')
