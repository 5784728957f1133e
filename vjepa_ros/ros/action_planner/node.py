# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The lifecycle node of the action planner: connects parameters, inputs, worker and outputs."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import ExitStack
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.clock import (
    Clock,
    ClockType,  # pyright: ignore[reportPrivateImportUsage] # clock_type is not in Humble
)
from rclpy.lifecycle import LifecycleState, TransitionCallbackReturn
from std_msgs.msg import Header
from std_srvs.srv import Trigger

from vjepa_ros.planning.base_world import BaseWorld
from vjepa_ros.planning.goal_planner import Planner
from vjepa_ros.planning.world_model import WorldConfig, WorldModel
from vjepa_ros.ros.action_planner.diagnostics import Situation, report
from vjepa_ros.ros.action_planner.inputs import PlannerInputs
from vjepa_ros.ros.action_planner.outputs import PlannerOutputs
from vjepa_ros.ros.action_planner.parameters import PlannerConfig, SCHEMA
from vjepa_ros.ros.action_planner.worker import Job, PlannerWorker
from vjepa_ros.ros.common.declared_parameters import Declared
from vjepa_ros.ros.common.diagnostics import stamped
from vjepa_ros.ros.common.lifecycle import FAILURE, ManagedNode, SUCCESS, transition

WATCH_S = 0.25           # period of the check for a silent camera
NO_FRAMES_S = 2.0        # silence of the camera after which the node warns
POLL_S = 0.002           # period at which a waiting service checks for its answer
STOP_TIMEOUT_S = 1.2     # release waits this long for the thread


class PlannerNode(ManagedNode):
    """Plans actions towards a goal image with an action-conditioned world model.

    Subscribes to ``CAMERA/image_raw`` (or compressed), ``goal/image_raw`` (or compressed), and
    ``state`` or ``joint_states``; serves ``~/plan``, ``~/cancel`` and ``~/clear_goal``;
    publishes ``~/candidates``, ``~/best_action``, ``~/target_pose`` or ``~/twist``, and
    ``/diagnostics``.
    """

    def __init__(self, node_name: str = 'action_planner', **kwargs: Any) -> None:
        super().__init__(node_name, **kwargs)
        self.last_refusal = ''
        self._unfinished: list[PlannerWorker] = []   # threads that outlived a release
        self.config: PlannerConfig | None = None
        self.worker: PlannerWorker | None = None
        self.inputs: PlannerInputs | None = None
        self.outputs: PlannerOutputs | None = None
        self._timer: Any = None                      # of plans without a request,
        self._planned: Job | None = None             # and the last of these
        self.params = Declared(self, SCHEMA, lambda structural: None,
                               lambda: self.worker is not None, busy='configured')
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._diagnostics = self.create_publisher(DiagnosticArray, '/diagnostics', 10)
        self.create_timer(WATCH_S, self._on_watch, clock=steady)
        self.create_timer(1.0, self._on_report, clock=steady)
        # A group of its own: everything else continues while a caller waits for its plan.
        # Coroutines are fine.
        self.create_service(Trigger, '~/plan',
                            self._on_plan,  # pyright: ignore[reportArgumentType]
                            callback_group=ReentrantCallbackGroup())
        self.create_service(Trigger, '~/cancel', self._on_cancel)
        self.create_service(Trigger, '~/clear_goal', self._on_clear_goal)
        if self.params.get('autostart'):
            self.start_alone(steady)

    # -- lifecycle ---------------------------------------------------------------------------

    @transition(undo='release', on_failure=FAILURE)
    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Read the parameters, load and warm the world model, create the publishers."""
        config = self.params.read()
        world = (WorldModel.load(config.world) if isinstance(config.world, WorldConfig)
                 else BaseWorld.load(config.world))
        try:
            planner = Planner(world, config.space, config.search, config.gap)
            planner.warm()
            self.outputs = PlannerOutputs(self, config.action_space)
            self.inputs = PlannerInputs(self, config)
            self.worker = PlannerWorker(planner, self.get_logger())
        except BaseException:
            world.close()
            raise
        self.config = config
        self.worker.start()
        if not world.trained:
            self.get_logger().warning(
                "the world model runs with RANDOM weights ('allow_random_weights' is set): its "
                'plans mean nothing; every output says so')
        return super().on_configure(state)

    @transition(undo='undo_activate', on_failure=FAILURE)
    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Subscribe and serve."""
        answer = super().on_activate(state)
        if answer == SUCCESS and self.worker is not None and self.inputs is not None:
            self.worker.resume()
            self.inputs.open()
            if self.config is not None and self.config.plan_rate:
                self._timer = self.create_timer(1.0 / self.config.plan_rate, self._on_rate)
            self.get_logger().info('active')
        return answer

    def halt(self) -> None:
        """Stop work and output (safe in every state)."""
        with ExitStack() as parts:   # all of them, even when one raises
            if self._timer is not None:
                parts.callback(self.destroy_timer, self._timer)
                self._timer = None
            if self.inputs is not None:
                parts.callback(self.inputs.close)
            if self.outputs is not None:
                parts.callback(self.outputs.end_motion)
            if self.worker is not None:
                parts.callback(self.worker.pause)

    def release(self) -> None:
        """Release everything that configure made (safe in every state).

        A plan whose current step takes too long releases the model when that returns.
        """
        self._unfinished += [] if self.worker is None else [self.worker]
        with ExitStack() as parts:   # in reverse order
            parts.callback(self._forget)
            if self.outputs is not None:
                parts.callback(self.outputs.close)
            parts.callback(self._join, time.monotonic() + STOP_TIMEOUT_S)
            if self.worker is not None:
                parts.callback(self.worker.stop)
            parts.callback(self.halt)

    def _join(self, deadline_s: float) -> None:
        self._unfinished = [worker for worker in self._unfinished
                            if not worker.join(deadline_s - time.monotonic())]
        if self._unfinished:
            self.get_logger().warning('a plan is still under way; its model is released when '
                                      'it ends')

    def _forget(self) -> None:
        self.worker = self.inputs = self.outputs = self.config = None

    @property
    def ended(self) -> bool:
        """Whether all threads of released workers have ended."""
        return not self._unfinished

    # -- callbacks (all short) ---------------------------------------------------------------

    async def _on_plan(self, request: Trigger.Request,
                       response: Trigger.Response) -> Trigger.Response:
        """Plan from the newest image; answer when the plan is ready or refused."""
        try:
            job = self._submit()
        except ValueError as error:
            self._refuse(error)
            return _answer(response, False, f'refused: {error}')
        await _Until(job.done)
        assert job.answer is not None, 'set before done'
        success, message = job.answer
        self.last_refusal = '' if success else message
        return _answer(response, success, message)

    def _refuse(self, error: ValueError) -> None:
        """Report a plan that cannot start, and take the last twist back."""
        if str(error) != self.last_refusal:
            self.get_logger().warning(f'plan refused: {error}')
        self.last_refusal = str(error)
        if not (self.worker is not None and self.worker.busy):
            self._take_back()

    def _on_rate(self) -> None:
        """Plan again while there is a goal."""
        worker, inputs = self.worker, self.inputs
        if (self.state != 'active' or worker is None or inputs is None or inputs.goal is None
                or worker.busy):
            return
        if self._planned is not None and self._planned.answer is not None:
            success, message = self._planned.answer
            self.last_refusal = '' if success else message
            self._planned = None
        try:
            self._planned = self._submit()
        except ValueError as error:
            self._refuse(error)

    def _submit(self) -> Job:
        """Submit a job with the newest inputs; ValueError with the reason when it is refused."""
        worker, inputs, outputs = self.worker, self.inputs, self.outputs
        if self.state != 'active' or worker is None or inputs is None or outputs is None:
            raise ValueError(f'the node is {self.state}; activate it first')
        if worker.busy:
            raise ValueError('a plan is under way; wait for it, or call ~/cancel')
        if not worker.alive:
            raise ValueError('the planner has failed (see its log); clean up and configure again')
        config = self.params.read()
        problem = inputs.problem(config.max_age)
        if problem:
            raise ValueError(problem)
        state = inputs.state()
        header = Header(stamp=inputs.image.header.stamp, frame_id=inputs.frame_id)
        job = Job(inputs.image, inputs.goal, state, config,
                  lambda plan: outputs.publish(plan, header, state), outputs.stop, inputs.recent,
                  inputs.focal)
        worker.submit(job)
        return job

    def _on_cancel(self, request: Trigger.Request, response: Trigger.Response
                   ) -> Trigger.Response:
        if self.worker is not None and self.worker.cancel('it was cancelled'):
            self._take_back()
            return _answer(response, True, 'the plan under way is cancelled')
        return _answer(response, False, 'no plan is under way')

    def _on_clear_goal(self, request: Trigger.Request, response: Trigger.Response
                       ) -> Trigger.Response:
        if self.inputs is None or self.inputs.goal is None:
            return _answer(response, False, 'there is no goal')
        self.inputs.goal = None
        if self.worker is not None:
            self.worker.cancel('the goal was cleared')
        self._take_back()
        return _answer(response, True, 'there is no goal any more')

    def _take_back(self) -> None:
        """Take the last twist back: what it led to is no longer wanted."""
        if self.outputs is not None:
            self.outputs.stop()

    def _on_watch(self) -> None:
        """Check for a silent camera."""
        if self.state == 'active' and self.inputs is not None:
            self.inputs.camera.watch(NO_FRAMES_S)

    def _on_report(self) -> None:
        """Publish diagnostics once a second."""
        self._diagnostics.publish(stamped(self, [report(Situation(
            self.get_fully_qualified_name().lstrip('/'), self.state, self.worker, self.inputs,
            self.failure, self.last_refusal, self.get_clock().now().nanoseconds))]))


class _Until:
    """Waits for an event in a callback while the executor serves all others.

    The executor resumes a waiting callback continuously; a short pause here leaves the processor
    to the plan.
    """

    def __init__(self, event: threading.Event) -> None:
        self._event = event

    def __await__(self) -> Generator[None, None, None]:
        while not self._event.wait(POLL_S):
            yield


def _answer(response: Trigger.Response, success: bool, message: str) -> Trigger.Response:
    response.success, response.message = success, message
    return response
