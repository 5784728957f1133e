# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What all lifecycle nodes of this package do alike: end orderly, and start by themselves."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod

from rclpy.clock import Clock
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn

from vjepa_ros.ros.common.logs import forward_logs, stop_forwarding
from vjepa_ros.ros.common.transitions import last_resort, survive_wrong_requests, transition

SUCCESS = TransitionCallbackReturn.SUCCESS
FAILURE = TransitionCallbackReturn.FAILURE
ERROR = TransitionCallbackReturn.ERROR
FAILED_S = 2.0           # callbacks count as failing until none has failed for this long


class ManagedNode(LifecycleNode, ABC):
    """A lifecycle node whose `halt` and `release` are safe in every state.

    Attributes
    ----------
    last_failure
        Why the last transition failed; '' after one that did not.
    callbacks_failed
        How many callbacks have raised an exception.
    """

    def __init__(self, node_name: str, **kwargs: object) -> None:
        super().__init__(node_name, **kwargs)
        survive_wrong_requests(self)
        self.last_failure = ''
        self.callbacks_failed = 0
        self._failed_callback, self._callback_failed_s = '', -math.inf
        self._log_handler = forward_logs(self.get_logger())

    @property
    def state(self) -> str:
        """Label of the lifecycle state."""
        return self._state_machine.current_state[1]

    @abstractmethod
    def halt(self) -> None:
        """Stop work and output, unsubscribe."""

    @abstractmethod
    def release(self) -> None:
        """Halt, and release everything that configure made."""

    @property
    def ended(self) -> bool:
        """Whether no thread is left over from a release."""
        return True

    def note_failed_callback(self, error: Exception) -> str:
        """Count a callback that has failed; what is to be told of it."""
        self.callbacks_failed += 1
        self._callback_failed_s = time.monotonic()
        self._failed_callback = f'a callback failed: {type(error).__name__}: {error}'
        return self._failed_callback

    @property
    def callback_failure(self) -> str:
        """How a callback failed lately; '' once none has failed for `FAILED_S`."""
        over = time.monotonic() - self._callback_failed_s > FAILED_S
        return '' if over else self._failed_callback

    @property
    def failure(self) -> str:
        """What is wrong with the node itself, for diagnostics; '' for nothing."""
        return '; '.join(text for text in (self.last_failure, self.callback_failure) if text)

    def on_failed_callback(self) -> None:
        """Called after a callback has failed."""

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

    @last_resort
    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Release everything and become unconfigured."""
        self.release()
        return super().on_error(state)

    def undo_activate(self) -> None:
        """Take back a half-done activation: the publishers may be enabled already."""
        self.halt()
        super().on_deactivate(None)

    def destroy_node(self) -> None:
        """Release everything and destroy the node."""
        self.release()
        stop_forwarding(self._log_handler)
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
