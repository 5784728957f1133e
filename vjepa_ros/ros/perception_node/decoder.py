# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Decode and upload the images of all cameras, those of the next clip while a device computes.

Each camera has a thread of its own: an image of one that takes long holds up no other. The worker
lets the threads decode what has come whenever it looks for news, and, while it waits for a device,
what comes meanwhile, so that the frames of the next clip are ready when the pass is over. Where
the model itself runs on the CPU they begin nothing then: they would take turns with the model on
the same cores and put its result off. A camera that is alone is decoded by the worker itself, but
for the frames of the next clip.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from vjepa_ros.perception.camera_track import Track
from vjepa_ros.perception.frame_store import Prepared
from vjepa_ros.ros.common.message_conversion import ImageError, decode
from vjepa_ros.ros.perception_node.camera_input import CameraInput
from vjepa_ros.ros.perception_node.frame_queue import Inbox, Waiting

OnError = Callable[[str, str, Exception], None]   # camera, what was done, what went wrong
PATIENCE_S = 0.03        # a pass waits so long for an image, to serve the cameras together


@dataclass(frozen=True)
class Frame:
    """A decoded image that waits for the worker.

    Attributes
    ----------
    rgb
        (H, W, 3) uint8.
    prepared, track
        What was made of it for the memory of a camera, and for which one.
    stamp_ns, arrival_ns, frame_id
        As the message said, and when it came [ns].
    spent_ms
        Milliseconds by stage.
    """

    rgb: np.ndarray
    prepared: Prepared
    track: Track
    stamp_ns: int
    arrival_ns: int
    frame_id: str
    spent_ms: Mapping[str, float]

    @property
    def size(self) -> int:
        """Bytes it holds."""
        return self.rgb.nbytes + self.prepared.nbytes


class _Lane:
    """The images of one camera on their way."""

    def __init__(self, name: str, camera: CameraInput, lock: threading.Lock) -> None:
        self.name = name
        self.camera = camera
        self.ready = Inbox()
        self.decoding = threading.Lock()   # keeps the order: one thread at once
        self.state = threading.Lock()      # held for moments only, also by the executor
        self.epoch = 0                     # of `clear`: what was taken before is thrown away
        self.skipped = 0
        self.ahead_ns: int | None = None   # stamp of the last image decoded during this pass
        self.wake = threading.Condition(lock)
        self.thread: threading.Thread | None = None
        self.job: tuple[Track, int] | None = None    # for what to decode; None: rest
        self.begun_s = 0.0                 # steady time since which there is a job
        self.slow = False                  # the last image took longer than anybody waits

    def enough(self, spacing_ns: int) -> bool:
        """Whether what waits adds nothing to what was decoded during this pass."""
        newest = self.camera.inbox.newest_ns
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
        Told of what should not happen; a malformed image goes to its camera instead.
    max_pixels
        Gives the size above which images are refused.
    on_ready
        Called when a frame is ready that `settle` has not waited for.
    """

    def __init__(self, cameras: Mapping[str, CameraInput], on_error: OnError,
                 max_pixels: Callable[[], int], on_ready: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._lanes = {name: _Lane(name, camera, self._lock) for name, camera in cameras.items()}
        # With one camera there is none that the worker could keep waiting by decoding itself.
        self._alone = len(self._lanes) == 1
        self._on_error = on_error
        self._max_pixels = max_pixels
        self._on_ready = on_ready
        self._settled = threading.Condition(self._lock)
        self._settling = False
        self._running = True
        self._tracks: Mapping[str, Track] | None = None   # what to decode for; None: rest
        self._spacing_ns = 0

    def stop(self) -> None:
        """End the threads, if there are some, after the images they may be at."""
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
        """A message has come."""
        with self._lock:
            self._give_jobs()

    @contextmanager
    def ahead(self, tracks: Mapping[str, Track], spacing_ns: int) -> Iterator[None]:
        """Inside of this block, decode and prepare what comes for these tracks, see `take`.

        The first image of each camera at once, further ones if they are apart by `spacing_ns`:
        of a pass so long that many come, no more are decoded than without this.
        """
        with self._lock:
            self._begin(tracks, spacing_ns)
        try:
            yield
        finally:
            with self._lock:
                self._tracks = None

    def settle(self, tracks: Mapping[str, Track], spacing_ns: int) -> None:
        """Decode what has come for several cameras, each in its own thread, before `take`.

        Waits for it, but not for a camera whose images take long: those come when they are ready.
        """
        if self._alone:
            return
        with self._lock:
            self._begin(tracks, spacing_ns)
            self._settling, until_s = True, time.monotonic() + PATIENCE_S
            while self._running and (left_s := self._left_s(until_s)) > 0:
                self._settled.wait(left_s)
            self._tracks, self._settling = None, False

    def take(self, name: str, track: Track, spacing_ns: int) -> tuple[list[Frame], int]:
        """All frames of a camera that came since the last call, and how many were skipped.

        Of one that is alone, what is not decoded yet is decoded here. Of frames closer together
        than `spacing_ns` only some are given; the newest is always given, see `Inbox.take`.
        """
        lane = self._lanes[name]
        if self._alone:
            self._decode(lane, track, spacing_ns)
        with lane.state:
            dropped, lane.ready.dropped = lane.ready.dropped, 0
            frames, skipped = lane.ready.take(spacing_ns)
            skipped, lane.skipped = skipped + dropped + lane.skipped, 0
        return frames, skipped

    def clear(self) -> None:
        """Forget all that has come until now, also what is being decoded."""
        for lane in self._lanes.values():
            with lane.state:
                lane.epoch += 1
                lane.skipped += lane.camera.inbox.clear() + lane.ready.clear()

    # -- all with the lock -----------------------------------------------------------------

    def _begin(self, tracks: Mapping[str, Track], spacing_ns: int) -> None:
        self._tracks, self._spacing_ns = tracks, spacing_ns
        for lane in self._lanes.values():
            lane.ahead_ns = None
            if lane.thread is None and self._running:
                lane.thread = threading.Thread(target=self._loop, args=(lane,), daemon=True,
                                               name='vjepa_decoder')
                lane.thread.start()
        self._give_jobs()

    def _give_jobs(self) -> None:
        if self._tracks is None:
            return
        for lane in self._lanes.values():
            if lane.job is None and not lane.enough(self._spacing_ns):
                lane.job = self._tracks[lane.name], self._spacing_ns
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
                if not self._running:
                    return
                job = lane.job
            self._decode(lane, *job)
            with self._lock:
                lane.job = None
                self._give_jobs()
                if lane.job is None:
                    self._settled.notify()

    def _decode(self, lane: _Lane, track: Track, spacing_ns: int) -> None:
        """Decode what waits at a camera; what goes wrong with one image costs that image."""
        with lane.decoding:
            with lane.state:
                epoch = lane.epoch
                waiting, skipped = lane.camera.inbox.take(spacing_ns)
                lane.skipped += skipped
            for item in waiting:
                begin_s = time.monotonic()
                try:
                    frame = _frame(item, track, self._max_pixels())
                except ImageError as error:
                    lane.camera.refuse(error)
                    continue
                except Exception as error:
                    # An image must not end the thread, or cost other cameras theirs.
                    self._on_error(lane.camera.name, 'decoding', error)
                    continue
                finally:
                    lane.slow = time.monotonic() - begin_s > PATIENCE_S
                with lane.state:
                    lane.ahead_ns = frame.stamp_ns
                    if lane.epoch == epoch:
                        lane.ready.put(frame)
                    else:
                        lane.skipped += 1
                if not (self._alone or self._settling):
                    self._on_ready()


def _frame(item: Waiting, track: Track, max_pixels: int) -> Frame:
    begin = time.perf_counter()
    rgb = decode(item.message, max_pixels)
    middle = time.perf_counter()
    prepared = track.prepare(rgb)
    end = time.perf_counter()
    return Frame(rgb, prepared, track, item.stamp_ns, item.arrival_ns,
                 item.message.header.frame_id,
                 {'decode': (middle - begin) * 1e3, 'preprocess': (end - middle) * 1e3})
