# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The lifecycle node: wires parameters, cameras, worker and outputs together."""

from __future__ import annotations

import time
from contextlib import ExitStack

import rclpy
import rclpy.clock
import rclpy.signals
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.clock import ClockType, JumpThreshold, TimeJump
from rclpy.duration import Duration
from rclpy.lifecycle import LifecycleState, TransitionCallbackReturn
from std_srvs.srv import Trigger

from vjepa_ros.perception.pipeline import Perception
from vjepa_ros.ros.common.declared_parameters import Declared
from vjepa_ros.ros.common.diagnostics import stamped
from vjepa_ros.ros.common.lifecycle import FAILURE, SUCCESS, ManagedNode, transition
from vjepa_ros.ros.perception_node.calibration import Calibration
from vjepa_ros.ros.perception_node.camera_input import CameraInput
from vjepa_ros.ros.perception_node.diagnostics import Situation, report
from vjepa_ros.ros.perception_node.model_swapper import Swapper
from vjepa_ros.ros.perception_node.obstacle_output import ObstacleOutput, Sources
from vjepa_ros.ros.perception_node.outputs import Outputs
from vjepa_ros.ros.perception_node.parameters import SCHEMA, NodeConfig
from vjepa_ros.ros.perception_node.worker import Worker
from vjepa_ros.runtime.engine import Engine

WATCH_S = 0.25
STOP_TIMEOUT_S = 1.2     # release waits this long for threads; Ctrl-C must end within 2 s


class VjepaNode(ManagedNode):
    """V-JEPA 2 obstacle and collision perception for one or many cameras.

    Subscribes to ``NAME/image_raw`` or ``NAME/image_raw/compressed`` and ``NAME/camera_info``
    for every name in the parameter ``cameras``, publishes under ``~/NAME/`` and on
    ``/diagnostics``, and serves ``~/reset`` and ``~/calibrate``.
    """

    def __init__(self, node_name: str = 'vjepa_node', **kwargs: object) -> None:
        super().__init__(node_name, **kwargs)
        self._unfinished: list[Worker | Swapper] = []   # threads that outlived a release
        self.config: NodeConfig | None = None
        self.worker: Worker | None = None
        self.swapper: Swapper | None = None
        self.cameras: dict[str, CameraInput] = {}
        self.outputs: dict[str, Outputs] = {}
        self.params = Declared(self, SCHEMA, self._on_changed, lambda: self.state == 'active')
        steady = rclpy.clock.Clock(clock_type=ClockType.STEADY_TIME)
        self._diagnostics = self.create_publisher(DiagnosticArray, '/diagnostics', 10)
        # Steady timers: with simulated time a paused clock must not silence the watchdogs.
        self.create_timer(WATCH_S, self._on_watch, clock=steady)
        self.create_timer(1.0, self._on_report, clock=steady)
        self.create_service(Trigger, '~/reset', self._on_reset)
        self._calibration = Calibration(self, steady)
        # A group of its own: while the service waits, everything else must go on.
        self.create_service(Trigger, '~/calibrate', self._calibration.serve,
                            callback_group=self._calibration.group)
        self._jump = self.get_clock().create_jump_callback(
            JumpThreshold(min_forward=None, min_backward=Duration(nanoseconds=-1),
                          on_clock_change=True), post_callback=self._on_time_jump)
        if self.params.get('autostart'):
            self.start_alone(steady)

    # -- lifecycle -------------------------------------------------------------------------

    @transition(undo='release', on_failure=FAILURE)
    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Read the parameters, load and warm the model, create the publishers."""
        config = self.params.read()
        engine, sources = Engine.load(config.engine), None
        try:
            perception = Perception(engine, config.track, config.cameras)
            sources = Sources.make(self, config.obstacles)
            for name, transport in zip(config.cameras, config.transports, strict=True):
                self.outputs[name] = Outputs(self, name)
                self.cameras[name] = CameraInput(self, name, transport, self._notify)
                self.outputs[name].obstacles = ObstacleOutput(
                    self, self.cameras[name], config.obstacles, config.settings, sources)
            self.worker = Worker(perception, config, self.cameras, self.outputs,
                                 lambda: self.get_clock().now().nanoseconds, self.get_logger())
        except BaseException:
            engine.close()
            if sources is not None:      # no output may have them yet that would close them
                sources.close()
            raise
        self.swapper = Swapper(self.worker, self.get_logger())
        self.config = config
        self.worker.start()
        if not engine.report.trained:
            self.get_logger().warning(
                "the model runs with RANDOM weights ('allow_random_weights' is set): time to "
                'contact is geometric and holds, motion and features are untrained; every '
                'output is flagged')
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
        if answer == SUCCESS:
            self.worker.resume()
            for camera in self.cameras.values():
                camera.open()
            self.get_logger().info('active')
        return answer

    def halt(self) -> None:
        """Stop work and output (safe in every state)."""
        with ExitStack() as parts:   # all of them, whatever one of them raises
            for camera in self.cameras.values():
                parts.callback(camera.close)
            if self.worker is not None:
                parts.callback(self.worker.pause)
            parts.callback(self._calibration.cancel)

    def release(self) -> None:
        """Release everything that configure made (safe in every state).

        An inference or a load that is too long to wait for releases its model when it returns.
        What raises an error does not keep the rest; the last error is raised at the end.
        """
        self._unfinished += [part for part in (self.worker, self.swapper) if part is not None]
        with ExitStack() as parts:   # in reverse order
            parts.callback(self._forget)
            for outputs in self.outputs.values():
                parts.callback(outputs.close)
            parts.callback(self._join, time.monotonic() + STOP_TIMEOUT_S)
            if self.worker is not None:
                parts.callback(self.worker.stop)
            if self.swapper is not None:
                parts.callback(self.swapper.close)
            parts.callback(self.halt)

    def _join(self, deadline_s: float) -> None:
        self._unfinished = [part for part in self._unfinished
                            if not part.join(deadline_s - time.monotonic())]
        if self._unfinished:
            self.get_logger().warning('a model is still busy; it is released when it returns')

    def _forget(self) -> None:
        self.worker = self.swapper = self.config = None
        self.cameras.clear()
        self.outputs.clear()

    @property
    def ended(self) -> bool:
        """Whether no thread is left over from a release."""
        return not self._unfinished

    # -- callbacks (all short) -------------------------------------------------------------

    def _notify(self) -> None:
        if self.worker is not None:
            self.worker.notify()

    def _on_changed(self, structural: bool) -> None:
        """Parameters have changed: live ones hold at once, a new model is made ready."""
        try:
            if self.worker is None:
                self.params.declare_more()
                return
            config = self.params.read()
        except ValueError as error:
            self.get_logger().error(f'parameters not applied: {error}')
            return
        self.config = self.worker.config = config
        for outputs in self.outputs.values():
            outputs.obstacles.apply(config.obstacles, config.settings)
        self.swapper.request(config, retry=structural)

    def _on_reset(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        if self.worker is None:
            response.success, response.message = False, 'not configured: there is nothing to reset'
            return response
        self.worker.request_reset('service')
        response.success = True
        response.message = f'clips and levels of {", ".join(self.cameras)} start anew'
        return response

    def _on_time_jump(self, jump: TimeJump) -> None:
        if self.worker is not None:
            self.worker.request_reset('clock_jump')

    def _on_watch(self) -> None:
        """Look for silent cameras, and for what obstacles in metres need."""
        active = self.state == 'active'
        with ExitStack() as parts:   # all of them, whatever one of them raises
            for outputs in self.outputs.values():
                parts.callback(outputs.obstacles.watch, active)
            if active:
                for camera in self.cameras.values():
                    parts.callback(camera.watch, self.config.no_frame_timeout,
                                   self.worker.stats[camera.name].mixed)

    def _on_report(self) -> None:
        """Once a second: publish diagnostics, show silent cameras as such."""
        if self.state == 'active':
            for camera in self.cameras.values():
                if camera.silent:
                    self.worker.report_silence(camera.name, camera.silent_s)
        self._diagnostics.publish(stamped(self, report(Situation(
            self.get_fully_qualified_name().lstrip('/'), self.state, self.worker, self.config,
            self.cameras, self.swapper.error if self.swapper else '',
            self.swapper.loading if self.swapper else '', self.failure,
            {name: out.obstacles.report() for name, out in self.outputs.items()}))))
