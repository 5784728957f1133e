# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The lifecycle node: connects parameters, cameras, worker and outputs."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.clock import JumpThreshold, TimeJump
from rclpy.duration import Duration
from rclpy.lifecycle import LifecycleState, TransitionCallbackReturn
from std_srvs.srv import Trigger

from vjepa_ros.perception.pipeline import Perception
from vjepa_ros.ros.common.declared_parameters import Declared
from vjepa_ros.ros.common.diagnostics import OK, WARN, stamped, status
from vjepa_ros.ros.common.node import FAILURE, ManagedNode, SUCCESS, transition
from vjepa_ros.ros.perception_node.camera_input import CameraInput
from vjepa_ros.ros.perception_node.diagnostics import (
    MemoryTrend,
    camera_status,
    model_problems,
    model_values,
)
from vjepa_ros.ros.perception_node.model_swapper import OomFallback, Swapper
from vjepa_ros.ros.perception_node.obstacle_output import Sources
from vjepa_ros.ros.perception_node.outputs import Outputs
from vjepa_ros.ros.perception_node.parameters import NodeConfig, SCHEMA
from vjepa_ros.ros.perception_node.worker import Worker
from vjepa_ros.runtime.model import Model

WATCH_S = 0.25
STOP_TIMEOUT_S = 1.2     # release waits this long for threads; Ctrl-C must end within 2 s


@dataclass
class Configured:
    """What exists between configure and cleanup."""

    config: NodeConfig  # parameters now
    worker: Worker  # serves a model
    swapper: Swapper  # loads the next one
    shortage: OomFallback  # chooses what to load where memory is short
    cameras: dict[str, CameraInput]  # input side of each
    outputs: dict[str, Outputs]  # output side of each
    sources: Sources  # of obstacles in metres

    @property
    def change(self) -> str:
        """What becomes of a change of the model."""
        if self.swapper.loading:
            return f'loading {self.swapper.loading}'
        if self.worker.swapping:
            return 'waiting for clips of the new model to fill'
        return f'failed: {self.swapper.error}' if self.swapper.error else 'none'


class VjepaNode(ManagedNode):
    """V-JEPA 2 obstacle and collision perception for one or many cameras."""

    def __init__(self, node_name: str = 'vjepa_node', **kwargs: Any) -> None:
        super().__init__(node_name, **kwargs)
        self._unfinished: list[Worker | Swapper] = []   # threads that outlived a release
        self.parts: Configured | None = None
        self._memory = MemoryTrend()
        self.params = Declared(self, SCHEMA, self._on_changed)
        self._diagnostics = self.create_publisher(DiagnosticArray, '/diagnostics', 10)
        # Steady timers: with simulated time a paused clock must not silence the watchdogs.
        self.create_timer(WATCH_S, self._on_watch, clock=self.steady)
        self.create_timer(1.0, self._on_report, clock=self.steady)
        self.create_service(Trigger, '~/reset', self._on_reset)
        self._jump = self.get_clock().create_jump_callback(
            JumpThreshold(min_forward=None, min_backward=Duration(nanoseconds=-1),
                          on_clock_change=True), post_callback=self._on_time_jump)
        if self.params.get('autostart'):
            self.start_alone()

    # -- lifecycle -------------------------------------------------------------------------

    @transition(undo='release', on_failure=FAILURE)
    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Read the parameters, load and warm the model, create the publishers."""
        config = self.params.read()
        cameras, outputs = {}, {}
        with ExitStack() as made:    # when something raises, all that was made is closed
            engine = Model.load(config.engine)
            made.callback(engine.close)
            perception = Perception(engine, config.track, config.cameras)
            sources = Sources(self, config.obstacles)
            made.callback(sources.close)
            for name, of_camera in config.by_camera.items():
                cameras[name] = CameraInput(self, name, of_camera)
                outputs[name] = Outputs(self, cameras[name], config, sources)
                made.callback(outputs[name].close)
            worker = Worker(perception, config, cameras, outputs, self.get_clock(),
                            self.get_logger())
            made.pop_all()
        swapper = Swapper(worker, self.get_logger())
        self.parts = Configured(
            config, worker, swapper, OomFallback(worker, swapper, self.get_logger()), cameras,
            outputs, sources)
        if not engine.report.trained:
            self.get_logger().warning(
                "the model runs with RANDOM weights ('allow_random_weights' is set): motion and "
                'features are untrained, contact is unknown; every output is flagged')
        self.get_logger().info(
            f"configured: model '{config.engine.model_size}' on {engine.choice.device} "
            f'({engine.choice.reason}), '
            f'{"no learned heads" if engine.report.heads is None else "with learned heads"}, '
            f'cameras {", ".join(config.cameras)}')
        return super().on_configure(state)

    @transition(undo='undo_activate', on_failure=FAILURE)
    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Subscribe and begin to work."""
        answer = super().on_activate(state)
        if answer == SUCCESS and self.parts is not None:
            self.parts.worker.resume()
            for camera in self.parts.cameras.values():
                camera.open()
            self.get_logger().info('active')
        return answer

    def halt(self) -> None:
        """Stop work and output (safe in every state)."""
        if self.parts is not None:
            with ExitStack() as steps:   # all of them, whatever one of them raises
                for camera in self.parts.cameras.values():
                    steps.callback(camera.close)
                steps.callback(self.parts.worker.pause)

    def release(self) -> None:
        """Release everything that configure made (safe in every state), whatever raises an error.

        An inference or a load that is too long to wait for releases its model when it returns.
        """
        parts = self.parts
        with ExitStack() as steps:   # in reverse order
            if parts is not None:
                self._unfinished += [parts.worker, parts.swapper]
                steps.callback(setattr, self, 'parts', None)
                steps.callback(parts.sources.close)
                for outputs in parts.outputs.values():
                    steps.callback(outputs.close)
            steps.callback(self._join, time.monotonic() + STOP_TIMEOUT_S)
            if parts is not None:
                steps.callback(parts.worker.stop)
                steps.callback(parts.swapper.close)
            steps.callback(self.halt)

    def _join(self, deadline_s: float) -> None:
        self._unfinished = [part for part in self._unfinished
                            if not part.join(deadline_s - time.monotonic())]
        if self._unfinished:
            self.get_logger().warning('a model is still busy; it is released when it returns')

    @property
    def ended(self) -> bool:
        """Whether no thread is left over from a release."""
        return not self._unfinished

    # -- callbacks (all short) -------------------------------------------------------------

    def _on_changed(self, structural: bool) -> None:
        """Apply changed parameters: live ones at once, a new model once it is loaded."""
        parts = self.parts
        try:
            if parts is None:
                self.params.declare_more()
                return
            config = self.params.read()
        except ValueError as error:
            self.get_logger().error(f'parameters not applied: {error}')
            return
        parts.config = parts.worker.config = config
        for outputs in parts.outputs.values():
            outputs.obstacles.apply(config.obstacles, config.settings)
        parts.swapper.request(parts.shortage.fitting(config), retry=structural)

    def _on_reset(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        if self.parts is None:
            response.success, response.message = False, 'not configured: there is nothing to reset'
            return response
        self.parts.worker.request_reset('service')
        response.success = True
        response.message = f'clips and levels of {", ".join(self.parts.cameras)} start anew'
        return response

    def _on_time_jump(self, jump: TimeJump) -> None:
        if self.parts is not None:
            self.parts.worker.request_reset('clock_jump')

    def _on_watch(self) -> None:
        """Check for silent cameras, short memory, and what obstacles in metres need."""
        parts, active = self.parts, self.state == 'active'
        if parts is None:
            return
        with ExitStack() as steps:   # all of them, whatever one of them raises
            for outputs in parts.outputs.values():
                steps.callback(outputs.obstacles.watch, active)
            if active:
                steps.callback(parts.shortage.watch, time.monotonic())
                for camera in parts.cameras.values():
                    steps.callback(camera.watch, parts.config.silence_s)

    def _on_report(self) -> None:
        """Once a second: publish diagnostics, show silent cameras as such."""
        self._diagnostics.publish(stamped(self, self._report()))

    def _report(self) -> list[DiagnosticStatus]:
        """Return a status of the node and one of each camera."""
        name, parts = self.get_fully_qualified_name().lstrip('/'), self.parts
        self._memory.measure()
        hardware, cameras = '', []
        problems = [self.failure, self._memory.problem]
        values: dict[str, object] = {'state': self.state, **self._memory.values}
        if parts is not None:
            worker, perception = parts.worker, parts.worker.perception
            hardware = str(perception.engine.choice.device)
            values |= model_values(perception)
            values |= {'errors': worker.errors, 'last_error': worker.last_error or 'none',
                       'model_change': parts.change}
            problems += [
                *model_problems(perception),
                f'{worker.errors} errors, last {worker.last_error}' if worker.errors else '',
                f'model not changed: {parts.swapper.error}' if parts.swapper.error else '']
            cameras = [camera_status(
                name, self.state, camera, worker.stats[camera.name], perception,
                2.0 / worker.config.max_rate, parts.outputs[camera.name].obstacles.report())
                for camera in parts.cameras.values()]
        message = '; '.join(filter(None, problems))
        return [status(f'{name}: model', WARN if message else OK, message or self.state, values,
                       hardware), *cameras]
