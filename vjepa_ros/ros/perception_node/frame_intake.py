# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Bring the frames of the cameras into the memories of the models."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

from vjepa_ros.clip.ring import Push
from vjepa_ros.perception.pipeline import Perception
from vjepa_ros.ros.perception_node.camera_input import CameraInput
from vjepa_ros.ros.perception_node.decoder import Decoder, Frame, OnError
from vjepa_ros.ros.perception_node.statistics import CameraStats


class Intake:
    """The input side of the worker. Used by its thread alone.

    Parameters
    ----------
    decoder
        Gives the frames.
    cameras, stats
        Input and statistics of each camera.
    now_ns
        The node's clock [ns].
    on_error
        Told of what should not happen.
    """

    def __init__(self, decoder: Decoder, cameras: Mapping[str, CameraInput],
                 stats: Mapping[str, CameraStats], now_ns: Callable[[], int],
                 on_error: OnError) -> None:
        self._decoder = decoder
        self._cameras = cameras
        self._stats = stats
        self._now_ns = now_ns
        self._on_error = on_error

    def meanwhile(self, perception: Perception) -> AbstractContextManager[None]:
        """What goes on beside a pass of this model: decoding for the next, if a device computes.

        On the CPU it would take the cores that the model computes on.
        """
        if perception.engine.choice.device.type == 'cpu':
            return nullcontext()
        return self._decoder.ahead(perception.tracks, _spacing_ns(perception))

    def settle(self, perception: Perception) -> None:
        """Let what has come be decoded, as far as that is worth waiting for, before `store`."""
        self._decoder.settle(perception.tracks, _spacing_ns(perception))

    def store(self, name: str, serving: Perception, candidate: Perception | None) -> bool:
        """Push what came from a camera into its memories; whether there is a new newest frame."""
        stats, track = self._stats[name], serving.tracks[name]
        frames, skipped = self._decoder.take(name, track, _spacing_ns(serving))
        stats.skipped += skipped
        fresh = False
        for frame in frames:
            start = time.perf_counter()
            # Simulated time may stand still while a frame is decoded.
            waited_ms = max(0.0, (self._now_ns() - frame.arrival_ns) / 1e6
                            - sum(frame.spent_ms.values()))
            try:
                fresh |= self._push(name, frame, serving) in (Push.ACCEPTED, Push.RESET)
                if candidate is not None:
                    self._push(name, frame, candidate)
            except Exception as error:
                # Neither other frames nor other cameras have to do with it.
                self._on_error(name, 'storing a frame', error)
                continue
            stats.take(frame, waited_ms, (time.perf_counter() - start) * 1e3)
        stats.observe(track)
        return fresh

    def _push(self, name: str, frame: Frame, perception: Perception) -> Push:
        track = perception.tracks[name]
        track.intrinsics = self._cameras[name].intrinsics_for(frame.rgb.shape[1::-1])
        return track.push(frame.rgb, frame.stamp_ns, frame.frame_id, frame.arrival_ns,
                          frame.prepared if frame.track is track else None)


def _spacing_ns(perception: Perception) -> int:
    """Frames closer together than this are not all needed when the worker is behind [ns]."""
    return round(min(0.25 / perception.config.clip_fps, 0.05) * 1e9)
