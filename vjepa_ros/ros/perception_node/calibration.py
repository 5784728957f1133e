# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The ~/calibrate service: watch a quiet scene, then set the thresholds from what was seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.clock import Clock
from rclpy.parameter import Parameter
from rclpy.task import Future
from std_srvs.srv import Trigger

from vjepa_ros.perception.types import Assessment

if TYPE_CHECKING:
    from vjepa_ros.ros.perception_node.node import VjepaNode

MIN_RESULTS = 5
# Scatter that is no sign of motion, whatever the mean: that of a camera that stands before a scene
# that stands, times 30 (looming of the EuRoC recording of a drone on the floor: 0.0003 1/s).
STILL_SIGMA = 0.01
# Parameter, attribute of the assessment, and the range a calibrated threshold may take.
THRESHOLDS = (('thresholds.motion', 'motion_score', 0.01, 0.99),
              ('thresholds.obstacle', 'obstacle_score', 0.01, 0.99),
              ('thresholds.looming', 'looming_rate', 0.01, 1.0))


@dataclass(frozen=True)
class Threshold:
    """A threshold computed from samples."""

    parameter: str  # its name
    # mean, sigma: of the samples
    mean: float
    sigma: float
    value: float  # the threshold; NaN when nothing was known
    problem: str = ''  # why the samples cannot come from a quiet scene, '' when they can

    def __str__(self) -> str:
        if self.problem:
            return f'{self.parameter}: {self.problem}'
        if math.isnan(self.value):
            return f'{self.parameter} unchanged (never known)'
        return (f'{self.parameter} = {self.value:.4f} (mean {self.mean:.4f}, '
                f'sigma {self.sigma:.4f})')


def make_threshold(parameter: str, values: Sequence[float], k: float, low: float,
                   high: float) -> Threshold:
    """Make a threshold of mean + k sigma of the known values, at least `low`.

    A scene is not quiet where that is more than `high`, or where sigma is more than the mean and
    than `STILL_SIGMA`: the values were small most of the time and large now and then. In the
    quietest scene of all both are about 0, and the threshold is `low`.
    """
    known = np.asarray([v for v in values if math.isfinite(v)])
    if not known.size:
        return Threshold(parameter, math.nan, math.nan, math.nan)
    mean, sigma = float(known.mean()), float(known.std())
    value, problem = mean + k * sigma, ''
    if value > high:
        problem = (f'mean {mean:.4f} + {k:g} sigma {sigma:.4f} is {value:.4f}, more than the '
                   f'{high:g} it may be')
    elif sigma > max(mean, STILL_SIGMA):
        problem = f'sigma {sigma:.4f} is more than the mean {mean:.4f}'
    return Threshold(parameter, mean, sigma, float(np.clip(value, low, high)), problem)


class Calibration:
    """Serves ~/calibrate without blocking the executor.

    Parameters
    ----------
    node
        The node whose thresholds are set.
    clock
        Steady clock of the watch.

    Attributes
    ----------
    group
        Callback group of the service: in the node's own group a waiting service would keep
        every other callback from running.
    """

    def __init__(self, node: VjepaNode, clock: Clock) -> None:
        self._node = node
        self._clock = clock
        self._done: Future | None = None
        self.group = ReentrantCallbackGroup()

    def cancel(self) -> None:
        """End a watch in progress; its caller gets a failure."""
        if self._done is not None:
            _finish(self._done, False)

    async def serve(self, request: Trigger.Request,
                    response: Trigger.Response) -> Trigger.Response:
        """Watch for ``calibration.seconds``, then set the thresholds and report them."""
        node, parts = self._node, self._node.parts
        if node.state != 'active' or parts is None:
            return _answer(response, False, f'the node is {node.state}; activate it to calibrate')
        if self._done is not None:
            return _answer(response, False, 'a calibration is already under way')
        seen: list[Assessment] = []   # not results: pictures and features of minutes are large
        done, watch_s, worker = Future(), parts.config.calibration_seconds, parts.worker
        self._done, engine = done, worker.perception.engine
        timer = node.create_timer(watch_s, lambda: _finish(done, True), clock=self._clock,
                                  callback_group=self.group)
        worker.listener = lambda result: seen.append(result.assessment)
        worker.notify()
        try:
            complete = await done
        finally:
            worker.listener = None
            self._done = None
            node.destroy_timer(timer)
        if not complete or node.state != 'active':
            return _answer(response, False, 'the node was deactivated during the calibration')
        if worker.perception.engine is not engine:
            return _answer(response, False, 'the model was changed during the calibration, and '
                           'another model has other scores; call it again')
        if len(seen) < MIN_RESULTS:
            return _answer(response, False, f'only {len(seen)} assessments in '
                           f'{parts.config.calibration_seconds:g} s, need {MIN_RESULTS}; check '
                           "the cameras or raise 'calibration.seconds'")
        return _answer(response, *self._apply(seen, parts.config.calibration_sigma))

    def _apply(self, seen: list[Assessment], k: float) -> tuple[bool, str]:
        made = [make_threshold(name, [getattr(a, field) for a in seen], k, low, high)
                for name, field, low, high in THRESHOLDS]
        wrong = [str(t) for t in made if t.problem]
        if wrong:
            return False, (f'the scene is not quiet, all thresholds stay as they are ({len(seen)} '
                           f'assessments): {"; ".join(wrong)}. Let camera and scene stand still, '
                           "and raise 'calibration.seconds' if that was a single event")
        known = [t for t in made if not math.isnan(t.value)]
        results = self._node.set_parameters([Parameter(t.parameter, value=t.value)
                                             for t in known])
        refused = [r.reason for r in results if not r.successful]
        text = f'{len(seen)} assessments, k = {k:g}: ' + ', '.join(map(str, made))
        self._node.get_logger().info(f'calibrated from {text}')
        return not refused, '; '.join([text, *refused])


def _finish(done: Future, complete: bool) -> None:
    if not done.done():
        done.set_result(complete)


def _answer(response: Trigger.Response, success: bool, message: str) -> Trigger.Response:
    response.success, response.message = success, message
    return response
