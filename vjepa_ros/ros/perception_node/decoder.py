# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Decode the images of each camera, for the next clip while a device computes.

A camera that is alone is decoded by the worker. Several cameras have a thread each, so that a
slow image of one holds up no other: the worker lets them decode what has come before it chooses
clips. While it waits for a device, they decode what comes meanwhile. Where the model runs on the
CPU they start nothing then: they would compete with it for the cores and delay its result.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager

from vjepa_ros.perception.camera_state import CameraState
from vjepa_ros.ros.common.message_conversion import ImageError, read
from vjepa_ros.ros.perception_node.camera_input import CameraInput, Frame
from vjepa_ros.sources.gain import GainControl

PATIENCE_S = 0.03        # a pass waits so long for an image, to serve the cameras together


class _Lane:
    """The decoding of one camera."""

    def __init__(self, camera: CameraInput) -> None:
        self.camera = camera
        self.gain = GainControl()
        self.decoding = threading.Lock()   # keeps the order: one thread at once
        self.pool = ThreadPoolExecutor(1, 'vjepa_decoder')
        self.job: Future | None = None     # of its thread; None: it rests
        self.slow = False                  # whether the last image took longer than `PATIENCE_S`


class Decoder:
    """Turns the messages of cameras into frames, in order, each once.

    `on_ready` is called when a frame is ready that `settle` has not waited for.
    """

    def __init__(self, cameras: Mapping[str, CameraInput],
                 on_error: Callable[[str, str, Exception], None],
                 max_pixels: Callable[[], int], on_ready: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._lanes = {name: _Lane(camera) for name, camera in cameras.items()}
        self.alone = len(self._lanes) == 1
        self._on_error, self._on_ready = on_error, on_ready
        self._max_pixels = max_pixels
        self._settling = False
        self._running = True
        # For which the threads decode what comes, so that `notify` is needed; None: they rest.
        self.tracks: Mapping[str, CameraState] | None = None
        self._spacing_ns = 0

    def stop(self) -> None:
        """End the threads after the images they may be at."""
        with self._lock:
            self._running = False
            for lane in self._lanes.values():
                lane.pool.shutdown(wait=False)

    def join(self, timeout_s: float) -> bool:
        """Wait for the threads to end; False when one is still at an image."""
        jobs = [lane.job for lane in self._lanes.values() if lane.job is not None]
        return not wait(jobs, max(0.0, timeout_s)).not_done

    def notify(self) -> None:
        """Handle a new message."""
        with self._lock:
            self._give_jobs()

    @contextmanager
    def ahead(self, tracks: Mapping[str, CameraState], spacing_ns: int) -> Iterator[None]:
        """Decode and prepare what comes for these tracks inside of this block."""
        self._begin(tracks, spacing_ns)
        try:
            yield
        finally:
            self.tracks = None

    def settle(self, tracks: Mapping[str, CameraState], spacing_ns: int) -> None:
        """Decode in the threads of the cameras, and wait for those whose images are quick."""
        self._settling = True
        quick = [lane.job for lane in self._begin(tracks, spacing_ns) if not lane.slow]
        wait(filter(None, quick), PATIENCE_S)      # some may have ended
        self.tracks, self._settling = None, False

    def take(self, name: str, track: CameraState, spacing_ns: int) -> tuple[list[Frame], int]:
        """Return the frames of a camera since the last call, and how many images were skipped."""
        lane = self._lanes[name]
        if self.alone:
            self._decode(lane, track, spacing_ns)
        return lane.camera.queue.take()

    def _begin(self, tracks: Mapping[str, CameraState], spacing_ns: int) -> list[_Lane]:
        with self._lock:
            self.tracks, self._spacing_ns = tracks, spacing_ns
            return self._give_jobs()

    def _give_jobs(self) -> list[_Lane]:
        """Let the threads that rest decode what waits; return which do."""
        if self.tracks is None or not self._running:
            return []
        begun = [(name, lane) for name, lane in self._lanes.items()
                 if lane.job is None and lane.camera.queue.waits]
        for name, lane in begun:
            lane.job = lane.pool.submit(self._work, lane, self.tracks[name], self._spacing_ns)
        return [lane for _, lane in begun]

    def _work(self, lane: _Lane, track: CameraState, spacing_ns: int) -> None:
        """Decode in the thread of a camera."""
        if self._running:
            self._decode(lane, track, spacing_ns)
        with self._lock:
            lane.job = None
            self._give_jobs()

    def _decode(self, lane: _Lane, track: CameraState, spacing_ns: int) -> None:
        """Decode what waits at a camera; a failure costs one image."""
        with lane.decoding:
            for frame in lane.camera.queue.claim(spacing_ns):
                begin_s = time.monotonic()
                try:
                    self._fill(frame, track, lane.gain)
                    lane.camera.images.judge(readable=True)
                except ImageError as error:
                    lane.camera.images.judge(readable=False)
                    lane.camera.refuse(error)
                except Exception as error:
                    # An image must not end the thread, or cost other cameras theirs.
                    self._on_error(lane.camera.name, 'decoding', error)
                lane.slow = time.monotonic() - begin_s > PATIENCE_S
                lane.camera.queue.finish(frame)
                if frame.rgb is not None and not (self.alone or self._settling):
                    self._on_ready()

    def _fill(self, frame: Frame, track: CameraState, control: GainControl) -> None:
        begin = time.perf_counter()
        rgb = read(frame.message, self._max_pixels())
        if rgb.itemsize > 1:
            rgb, frame.gain = control.reduce(rgb)
        middle = time.perf_counter()
        frame.prepared, frame.track = track.prepare(rgb), track
        frame.frame_id, frame.rgb = frame.message.header.frame_id, rgb
        frame.decode_ms = (middle - begin) * 1e3
        frame.prepare_ms = (time.perf_counter() - middle) * 1e3
