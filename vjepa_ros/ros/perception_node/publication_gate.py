# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Let results out: of the present activation only, and never once the node is inactive."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping

import numpy as np

from vjepa_ros.perception.pipeline import Perception, known_age
from vjepa_ros.perception.types import Result, with_timings
from vjepa_ros.ros.perception_node.camera_input import CameraInput
from vjepa_ros.ros.perception_node.outputs import LATE, OVERLAYS, Outputs, Publishing, make_header
from vjepa_ros.ros.perception_node.parameters import NodeConfig
from vjepa_ros.ros.perception_node.statistics import CameraStats
from vjepa_ros.visualization.overlay import OverlayStatus, draw_overlay


class Outlet:
    """The output side of the worker.

    Parameters
    ----------
    cameras, outputs
        Input and output side of each camera.
    now_ns
        The node's clock [ns] (simulated or not).
    log
        The node's logger.

    Attributes
    ----------
    stats
        What has been published, by camera.
    """

    def __init__(self, cameras: Mapping[str, CameraInput], outputs: Mapping[str, Outputs],
                 now_ns: Callable[[], int], log: object) -> None:
        self.stats = {name: CameraStats() for name in cameras}
        self._cameras = cameras
        self._outputs = outputs
        self._now_ns = now_ns
        self._log = log
        self._gate = threading.Lock()    # held while publishing
        self._open = False
        self._generation = 0             # of activations: an old one must not publish in a new

    def open(self) -> None:
        """Begin an activation."""
        with self._gate:
            self._open = True
            self._generation += 1

    def shut(self) -> None:
        """End it: nothing is published once this has returned."""
        with self._gate:
            self._open = False

    def admission(self) -> tuple[bool, int]:
        """Whether anything may be published now, and the number of the activation."""
        with self._gate:
            return self._open, self._generation

    def wanted(self) -> dict[str, frozenset[str]]:
        """Outputs with subscribers, by camera."""
        return {name: out.wanted() for name, out in self._outputs.items()}

    def age_s(self, stamp_ns: int) -> float:
        """Age of a stamp [ns] now [s]; NaN before simulated time starts."""
        return known_age(self._now_ns(), stamp_ns)

    def publish(self, result: Result, wanted: frozenset[str], generation: int,
                perception: Perception, config: NodeConfig) -> Result | None:
        """Publish what is at hand of one result, and count it.

        Parameters
        ----------
        result, wanted
            What is known, and the outputs that have subscribers.
        generation
            Activation in which it was begun.
        perception, config
            What made it.

        Returns
        -------
        Result, optional
            With the time of publishing; None when the activation has ended meanwhile.
        """
        a = result.assessment
        stats = self.stats[a.camera]
        latency_ms = self.age_s(a.stamp_ns) * 1e3
        start = time.perf_counter()
        how = Publishing(config.features_reduce, latency_ms, perception.tracks[a.camera].optics())
        with self._gate:
            if not self._open or generation != self._generation:
                return None
            self._outputs[a.camera].publish(result, wanted, how)
        result = with_timings(result, publish=(time.perf_counter() - start) * 1e3)
        stats.add(result, self.age_s(a.stamp_ns) * 1e3)
        stats.tell(self._log, a, latency_ms)
        return result

    def publish_late(self, result: Result, wanted: frozenset[str], generation: int,
                     perception: Perception, config: NodeConfig, switching: bool,
                     until_s: float) -> None:
        """Publish what takes time, after what `publish` publishes.

        Parameters
        ----------
        result, wanted, generation, perception, config
            As for `publish`.
        switching
            Whether another model waits to take over.
        until_s
            Steady time until which tf is waited for [s].
        """
        name = result.assessment.camera
        if wanted.isdisjoint(LATE):
            return
        with self._gate:
            if self._open and generation == self._generation:
                self._outputs[name].publish_late(
                    result, wanted, perception.tracks[name].optics(),
                    lambda: self._draw(name, perception, config, switching, result, None),
                    until_s)

    def publish_state(self, name: str, wanted: frozenset[str], silent_s: float | None,
                      generation: int, perception: Perception, config: NodeConfig,
                      switching: bool) -> None:
        """The overlay while there is no assessment: buffering, or a camera fallen silent."""
        track = perception.tracks[name]
        if wanted.isdisjoint(OVERLAYS):
            return
        stale_s = math.inf if track.image is None else silent_s
        bgr = self._draw(name, perception, config, switching, None, stale_s)
        newest = track.ring.newest_ns
        header = make_header(self._now_ns() if newest is None else newest, track.ring.frame_id)
        with self._gate:
            if self._open and generation == self._generation:
                self._outputs[name].publish_overlay(header, bgr, wanted)

    def _draw(self, name: str, perception: Perception, config: NodeConfig, switching: bool,
              result: Result | None, silent_s: float | None) -> np.ndarray:
        track, stats, now = perception.tracks[name], self.stats[name], time.monotonic()
        engine = perception.engine
        status = OverlayStatus(
            camera=name, model=engine.config.model_size, device=str(engine.choice.device),
            fill=track.ring.fill, num_frames=track.config.num_frames,
            rate_in_hz=self._cameras[name].rate.hz(now), rate_out_hz=stats.rate.hz(now),
            latency_ms=stats.latency.summary()[0], stale_s=silent_s,
            warnings=('switching model',) if switching else (),
            untrained=not engine.report.trained,
            focal_px=track.optics().fx if track.ring.size[0] else None)
        image = track.image if result is None else result.image
        return draw_overlay(
            image, None if result is None else result.assessment,
            None if result is None else result.moves,
            None if result is None else result.looming, track.view, status=status,
            width=config.overlay_width, min_confidence=config.settings.min_confidence)
