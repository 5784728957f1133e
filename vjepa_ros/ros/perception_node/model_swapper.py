# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Load a new model while the old one keeps serving, and a smaller one where memory ran out."""

from __future__ import annotations

import math
import threading
from contextlib import ExitStack
from dataclasses import replace

from rclpy.impl.rcutils_logger import RcutilsLogger

from vjepa_ros.model.variants import PATCH, TUBELET
from vjepa_ros.perception.pipeline import Perception
from vjepa_ros.ros.common.node import tell_error
from vjepa_ros.ros.perception_node.parameters import NodeConfig
from vjepa_ros.ros.perception_node.worker import Worker, let_go
from vjepa_ros.runtime.device import DeviceChoice
from vjepa_ros.runtime.memory import is_out_of_memory
from vjepa_ros.runtime.model import MIN_FRAMES, Model, ModelConfig

FIRST_PAUSE_S, LONGEST_PAUSE_S = 30.0, 960.0     # before what was asked for is tried again
LEAST_SIDE = 64          # images are not made smaller [px]


class Swapper:
    """Turns requested configurations into ready models; only the newest request counts."""

    def __init__(self, worker: Worker, log: RcutilsLogger) -> None:
        self._worker = worker
        self._log = log
        self._lock = threading.Lock()
        self._wanted: NodeConfig | None = None
        self._latest = _key(worker.config)
        self._thread: threading.Thread | None = None
        self._closed = False
        self.error = ''
        self.starved = False         # whether memory ran out while a model was loaded
        self.loading = ''

    def request(self, config: NodeConfig, retry: bool = False) -> None:
        """Make another configuration ready; with `retry` also one that failed."""
        with self._lock:
            again = retry and self.error
            if self._closed or (_key(config) == self._latest and not again):
                return
            self._latest, self._wanted = _key(config), config
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name='vjepa_loader',
                                                daemon=True)
                self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether a model is being made ready, or waits for its clips to fill."""
        with self._lock:
            return self._thread is not None or self._worker.swapping

    def close(self) -> None:
        """Refuse further requests; a load in progress is thrown away when it returns."""
        with self._lock:
            self._closed, self._wanted = True, None

    def join(self, timeout_s: float) -> bool:
        """Wait for a load in progress; False when it goes on."""
        thread = self._thread
        if thread is not None:
            thread.join(max(0.0, timeout_s))
        return thread is None or not thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._lock:
                config, self._wanted = self._wanted, None
                if config is None:
                    self._thread = None
                    return
            try:
                self._make(config)
            except Exception as error:
                # Whatever goes wrong is a failed change, not a failed node: say why, keep serving.
                self.error = f'{type(error).__name__}: {error}'
                self.starved = is_out_of_memory(error)
                tell_error(self._log, 'model not changed, the old one keeps serving: '
                           f'{self.error}', error)
            finally:
                self.loading = ''

    def _make(self, config: NodeConfig) -> None:
        """Offer this configuration: with the model that serves, if it fits, or a new one."""
        # From here on nothing can be adopted, so the model that serves now stays alive.
        serving = self._worker.withdraw()
        self.error = ''
        if _key(config) == (serving.engine.config, serving.config):
            return
        self.loading = f'{config.engine.model_size} on {config.engine.device}'
        shared = serving.engine.config == config.engine
        engine = serving.engine if shared else Model.load(config.engine)
        with ExitStack() as on_error:
            if not shared:
                on_error.callback(engine.close)
            engine.noise_floor()     # measured now, and not when it serves
            made = Perception(engine, config.track, list(serving.tracks))
            on_error.pop_all()
        with self._lock:
            newest = self._wanted is None and not self._closed
            if newest:
                self._worker.offer(made)
        if not newest:
            let_go(made, serving)


def _key(config: NodeConfig) -> tuple[object, object]:
    return config.engine, config.track


def smaller(config: ModelConfig, choice: DeviceChoice) -> ModelConfig | None:
    """Return what needs less memory: less precision, frames, or pixels; None if nothing does."""
    # Where a GPU was free to choose and took fp32, half precision is slow or impossible there.
    if (choice.precision, config.precision) == ('fp32', 'fp32') and choice.device.type != 'cpu':
        return replace(config, precision='fp16')
    if config.num_frames > MIN_FRAMES:
        half = config.num_frames // 2 // TUBELET * TUBELET
        return replace(config, num_frames=max(MIN_FRAMES, half))
    side = max(LEAST_SIDE, config.image_size * 3 // 4 // PATCH * PATCH)
    return replace(config, image_size=side) if side < config.image_size else None


class OomFallback:
    """Choose what is loaded: what the parameters say, or less where memory ran out."""

    def __init__(self, worker: Worker, swapper: Swapper, log: RcutilsLogger) -> None:
        self._worker = worker
        self._swapper = swapper
        self._log = log
        self._asked = worker.config
        self._less: ModelConfig | None = None
        self._returning = False
        self._pause_s = FIRST_PAUSE_S
        self._due_s = math.inf       # when to try again what was asked for
        self._calm_s = -math.inf     # from when on a shortage is no sequel of the last one

    def fitting(self, config: NodeConfig) -> NodeConfig:
        """Return what to load for these parameters."""
        known, self._asked = self._asked, config
        same = (config.engine, config.track) == (known.engine, known.track)
        if not (same and config.degrades):
            self._less, self._returning = None, False
        return self._wanted()

    def watch(self, now_s: float) -> None:
        """Handle what has happened since the last call, at a steady time [s]."""
        if not self._asked.degrades or self._swapper.busy:
            return
        engine = self._worker.perception.engine
        in_pass, self._worker.starved = self._worker.starved is engine, None
        in_load, self._swapper.starved = self._swapper.starved, False
        returned, self._returning = self._returning, False
        if in_pass or (in_load and not returned):
            self._shrink(engine.choice, now_s)
        elif returned and engine.config == self._asked.engine:
            self._less, self._calm_s = None, now_s + LONGEST_PAUSE_S
            self._log.info('there is room again for the model that was asked for')
        elif returned:
            self._wait(now_s)
        elif self._less is not None and now_s >= self._due_s:
            self._returning = True
            self._swapper.request(self._asked, retry=True)

    def _wanted(self) -> NodeConfig:
        less = self._less
        if less is None:
            return self._asked
        return replace(self._asked, engine=less, track=replace(
            self._asked.track, num_frames=less.num_frames, image_size=less.image_size))

    def _shrink(self, choice: DeviceChoice, now_s: float) -> None:
        asked = self._asked.engine
        if self._less is None and now_s > self._calm_s:
            self._pause_s = FIRST_PAUSE_S
        less = smaller(self._less or asked, choice)
        self._wait(now_s)
        if less is None:
            self._log.error(f'{choice.device} has no memory even for {_shape(self._less or asked)}'
                            '; free some, or choose a smaller model_size',
                            throttle_duration_sec=FIRST_PAUSE_S)
            return
        why = (f'{choice.device} ran out of memory: {_shape(less)} instead of {_shape(asked)} '
               'until there is room again')
        self._less = replace(less, shrunk=why)
        self._log.warning(why)
        self._swapper.request(self._wanted(), retry=True)

    def _wait(self, now_s: float) -> None:
        self._due_s = now_s + self._pause_s
        self._pause_s = min(2.0 * self._pause_s, LONGEST_PAUSE_S)


def _shape(config: ModelConfig) -> str:
    return (f'{config.num_frames} frames of {config.image_size} px '
            f'(precision {config.precision})')
