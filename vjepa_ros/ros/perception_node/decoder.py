# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Decode and upload the images of all cameras, for the next clip while a device computes.

A camera that is alone is decoded by the worker. Several cameras have a thread each, so that a
slow image of one holds up no other. The worker lets the threads decode what has come before it
chooses clips. While it waits for a device, they decode what comes meanwhile, so that the frames
of the next clip are ready when the pass is over. Where the model runs on the CPU they start
nothing then: they would compete with the model for the cores and delay its result.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from vjepa_ros.perception.camera_state import CameraState
from vjepa_ros.ros.common.message_conversion import ImageError, read
from vjepa_ros.ros.perception_node.camera_input import CameraInput, Frame, Waiting
from vjepa_ros.sources.gain import GainControl

OnError = Callable[[str, str, Exception], None]   # camera, what was done, what went wrong
PATIENCE_S = 0.03        # a pass waits so long for an image, to serve the cameras together


class _Lane:
    """The decoding of one camera."""

    def __init__(self, camera: CameraInput, lock: threading.Lock) -> None:
        self.camera = camera
        self.gain = GainControl()
        self.decoding = threading.Lock()   # keeps the order: one thread at once
        self.ahead_ns: int | None = None   # stamp of the last image decoded during this pass
        self.wake = threading.Condition(lock)
        self.thread: threading.Thread | None = None
        self.job: tuple[CameraState, int] | None = None    # what to decode for; None: rest
        self.begun_s = 0.0                 # steady time since which there is a job
        self.slow = False                  # whether the last image took longer than `PATIENCE_S`

    def enough(self, spacing_ns: int) -> bool:
        """Return whether what waits adds nothing to what was decoded during this pass."""
        newest = self.camera.queue.newest_ns
        return newest is None or (self.ahead_ns is not None
                                  and 0 < newest - self.ahead_ns < spacing_ns)

    @property
    def until_s(self) -> float:
        """Steady time until which to wait for its job [s]; long ago where there is none."""
        waits = self.job is not None and not self.slow
        return self.begun_s + PATIENCE_S if waits else -math.inf


class Decoder:
    """Turns the messages of cameras into frames, in order, each once.

    Parameters
    ----------
    cameras
        Where the messages wait.
    on_error
        Called on unexpected errors; a malformed image is reported to its camera instead.
    limits
        Returns the number of pixels and the aspect above which images are refused.
    on_ready
        Called when a frame is ready that `settle` has not waited for.

    Attributes
    ----------
    tracks
        For which the threads decode what comes, so that `notify` is needed; None: they rest.
    """

    def __init__(self, cameras: Mapping[str, CameraInput], on_error: OnError,
                 limits: Callable[[], tuple[int, float]], on_ready: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._lanes = {name: _Lane(camera, self._lock) for name, camera in cameras.items()}
        self.alone = len(self._lanes) == 1
        self._on_error = on_error
        self._limits = limits
        self._on_ready = on_ready
        self._settled = threading.Condition(self._lock)
        self._settling = False
        self._running = True
        self.tracks: Mapping[str, CameraState] | None = None
        self._spacing_ns = 0

    def stop(self) -> None:
        """End the threads after the images they may be at."""
        with self._lock:
            self._running = False
            self._settled.notify()
            for lane in self._lanes.values():
                lane.wake.notify()

    def join(self, timeout_s: float) -> bool:
        """Wait for the threads to end; False when one is still at an image."""
        deadline = time.monotonic() + timeout_s
        threads = [lane.thread for lane in self._lanes.values() if lane.thread is not None]
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def notify(self) -> None:
        """Handle a new message."""
        with self._lock:
            self._give_jobs()

    @contextmanager
    def ahead(self, tracks: Mapping[str, CameraState], spacing_ns: int) -> Iterator[None]:
        """Decode and prepare what comes for these tracks inside of this block.

        The first image of each camera at once, further ones if they are apart by `spacing_ns`:
        of a pass so long that many come, no more are decoded than without this.
        """
        with self._lock:
            self._begin(tracks, spacing_ns)
        try:
            yield
        finally:
            with self._lock:
                self.tracks = None

    def settle(self, tracks: Mapping[str, CameraState], spacing_ns: int) -> None:
        """Decode what has come for several cameras, each in its own thread, before `take`.

        Waits for it, but not for a camera whose images take long: those come when they are ready.
        """
        with self._lock:
            self._begin(tracks, spacing_ns)
            self._settling, until_s = True, time.monotonic() + PATIENCE_S
            while self._running and (left_s := self._left_s(until_s)) > 0:
                self._settled.wait(left_s)
            self.tracks, self._settling = None, False

    def take(self, name: str, track: CameraState, spacing_ns: int) -> tuple[list[Frame], int]:
        """Return the frames of a camera since the last call, and how many images were skipped.

        A camera that is alone is decoded here. Of frames closer together than `spacing_ns` only
        some are given; the newest is always given, see `FrameQueue.claim`.
        """
        lane = self._lanes[name]
        if self.alone:
            self._decode(lane, track, spacing_ns)
        return lane.camera.queue.take()

    # -- all with the lock -----------------------------------------------------------------

    def _begin(self, tracks: Mapping[str, CameraState], spacing_ns: int) -> None:
        self.tracks, self._spacing_ns = tracks, spacing_ns
        for lane in self._lanes.values():
            lane.ahead_ns = None
            if lane.thread is None and self._running:
                lane.thread = threading.Thread(target=self._loop, args=(lane,), daemon=True,
                                               name='vjepa_decoder')
                lane.thread.start()
        self._give_jobs()

    def _give_jobs(self) -> None:
        if self.tracks is None:
            return
        for name, lane in self._lanes.items():
            if lane.job is None and not lane.enough(self._spacing_ns):
                lane.job = self.tracks[name], self._spacing_ns
                lane.begun_s = time.monotonic()
                lane.wake.notify()

    def _left_s(self, until_s: float) -> float:
        until_s = min(until_s, max(lane.until_s for lane in self._lanes.values()))
        return until_s - time.monotonic()

    # -- the threads -----------------------------------------------------------------------

    def _loop(self, lane: _Lane) -> None:
        while True:
            with self._lock:
                while self._running and lane.job is None:
                    lane.wake.wait()
                if not self._running or lane.job is None:
                    return
                track, spacing_ns = lane.job
            self._decode(lane, track, spacing_ns)
            with self._lock:
                lane.job = None
                self._give_jobs()
                if lane.job is None:
                    self._settled.notify()

    def _decode(self, lane: _Lane, track: CameraState, spacing_ns: int) -> None:
        """Decode what waits at a camera; a failure costs one image."""
        with lane.decoding:
            for item in lane.camera.queue.claim(spacing_ns):
                begin_s, frame = time.monotonic(), None
                try:
                    frame = _frame(item, track, lane.gain, self._limits())
                    lane.ahead_ns = frame.stamp_ns
                    lane.camera.images.judge(readable=True)
                except ImageError as error:
                    lane.camera.images.judge(readable=False)
                    lane.camera.refuse(error)
                except Exception as error:
                    # An image must not end the thread, or cost other cameras theirs.
                    self._on_error(lane.camera.name, 'decoding', error)
                lane.slow = time.monotonic() - begin_s > PATIENCE_S
                lane.camera.queue.finish(item, frame)
                if not (frame is None or self.alone or self._settling):
                    self._on_ready()


def _frame(item: Waiting, track: CameraState, control: GainControl,
           limits: tuple[int, float]) -> Frame:
    begin, frame_id = time.perf_counter(), item.message.header.frame_id
    rgb, gain = read(item.message, *limits), 0
    if rgb.itemsize > 1:
        rgb, gain = control.reduce(rgb)
    middle = time.perf_counter()
    prepared = track.prepare(rgb)
    end = time.perf_counter()
    return Frame(rgb, prepared, track, item.stamp_ns, item.arrival_ns, frame_id,
                 {'decode': (middle - begin) * 1e3, 'preprocess': (end - middle) * 1e3}, gain=gain)
