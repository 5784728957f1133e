# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Serve with less while memory is short, and return to what was asked for."""

from __future__ import annotations

import math
from dataclasses import replace

from vjepa_ros.model.variants import PATCH, TUBELET
from vjepa_ros.ros.common.logs import Logger
from vjepa_ros.ros.perception_node.model_swapper import Swapper
from vjepa_ros.ros.perception_node.parameters import NodeConfig
from vjepa_ros.ros.perception_node.worker import Worker
from vjepa_ros.runtime.device import DeviceChoice
from vjepa_ros.runtime.model import MIN_FRAMES, ModelConfig

FIRST_PAUSE_S, LONGEST_PAUSE_S = 30.0, 960.0     # before what was asked for is tried again
LEAST_SIDE = 64          # images are not made smaller [px]


def smaller(config: ModelConfig, choice: DeviceChoice) -> ModelConfig | None:
    """Return what needs less memory, and costs least; None when nothing is left.

    Half precision where a GPU computes in fp32, then half of the frames, then images with three
    quarters of the side.
    """
    # Where a GPU was free to choose and took fp32, half precision is slow or impossible there.
    if (choice.precision, config.precision) == ('fp32', 'fp32') and choice.device.type != 'cpu':
        return replace(config, precision='fp16')
    if config.num_frames > MIN_FRAMES:
        half = config.num_frames // 2 // TUBELET * TUBELET
        return replace(config, num_frames=max(MIN_FRAMES, half))
    side = max(LEAST_SIDE, config.image_size * 3 // 4 // PATCH * PATCH)
    return replace(config, image_size=side) if side < config.image_size else None


class OomFallback:
    """Choose what is loaded: what the parameters say, or less where memory ran out.

    Used by the executor alone.

    Parameters
    ----------
    worker, swapper
        Which tell that memory ran out, in a pass and while a model was loaded.
    log
        The node's logger.
    """

    def __init__(self, worker: Worker, swapper: Swapper, log: Logger) -> None:
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
