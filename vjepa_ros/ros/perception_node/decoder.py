# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Queue the images of each camera, and decode them, for the next clip while a device computes.

A camera that is alone is decoded by the worker. Several cameras have a thread each, so that a
slow image of one holds up no other: the worker lets them decode what has come before it chooses
clips. While it waits for a device, they decode what comes meanwhile. Where the model runs on the
CPU they start nothing then: they would compete with it for the cores and delay its result.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TYPE_CHECKING

from vjepa_ros.clip.ring import Frame as Resized
from vjepa_ros.perception.camera_state import CameraState
from vjepa_ros.ros.common.message_conversion import ImageError, read
from vjepa_ros.sources.gain import GainControl

if TYPE_CHECKING:
    from vjepa_ros.ros.perception_node.camera_input import CameraInput

PATIENCE_S = 0.03        # a pass waits so long for an image, to serve the cameras together


@dataclass(eq=False)
class Frame:
    """An image of a camera that waits for the worker, first as a message, then decoded."""

    message: Any  # None once it is decoded
    stamp_ns: int  # of the message
    arrival_ns: int  # when it came
    size: int  # of message or pixels [bytes]
    claimed: bool = False  # whether it was given out for decoding
    left_out: int = 0  # images just before it that were dropped or skipped
    frame_id: str = ''
    rgb: Any = None  # (H, W, 3) uint8, once it is decoded
    gain: int = 0  # number of the gain that made 8 bits of 16, see `GainControl.reduce`
    prepared: Resized | None = None  # by `CameraState.prepare` of `track`
    track: CameraState | None = None
    decode_ms: float = 0.0
    prepare_ms: float = 0.0

    @property
    def decoded(self) -> bool:
        """Whether it has pixels."""
        return self.rgb is not None


class FrameQueue:
    """The bounded queue of one camera between executor, decoder and worker; the newest wins.

    The executor puts messages in. They are claimed and decoded where they are, and taken out in
    order. Nothing blocks, and the newest is never dropped. Two images may wait in any case.
    """

    def __init__(self, limit: int = 64, max_bytes: int = 32 << 20) -> None:
        self._limit, self._max_bytes = limit, max_bytes
        self._lock = threading.Lock()
        self._frames: list[Frame] = []
        self._skipped = 0
        self.dropped = 0         # because the queue was full

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def newest_ns(self) -> int | None:
        """Stamp of the newest image [ns] if nobody has claimed it, else None."""
        with self._lock:
            newest = self._frames[-1] if self._frames else None
            return None if newest is None or newest.claimed else newest.stamp_ns

    def put(self, frame: Frame) -> None:
        """Add an image; when full, one of the older ones goes (and is counted)."""
        with self._lock:
            self._frames.append(frame)
            self._thin()

    def claim(self, spacing_ns: int) -> list[Frame]:
        """Return the images to decode now, oldest first; each must be given to `finish`.

        Of images closer together than `spacing_ns` only some stay in the queue: a worker that is
        behind need not decode what no clip will use. The newest always stays.
        """
        with self._lock:
            kept: deque[Frame] = deque()
            for frame in reversed(self._frames):
                apart = kept[0].stamp_ns - frame.stamp_ns if kept else 0
                idle = frame.decoded or not frame.claimed
                if 0 < apart < spacing_ns and frame.stamp_ns and idle:
                    self._skipped += 1
                    kept[0].left_out += 1 + frame.left_out
                else:
                    kept.appendleft(frame)
            self._frames = list(kept)
            claimed = [frame for frame in kept if not frame.claimed]
            for frame in claimed:
                frame.claimed = True
            return claimed

    def finish(self, frame: Frame) -> None:
        """Count a claimed image by its pixels; without any it could not be decoded and goes."""
        with self._lock:
            if frame not in self._frames:      # dropped or cleared meanwhile
                return
            if not frame.decoded:
                self._frames.remove(frame)
                return
            frame.message = None
            frame.size = frame.rgb.nbytes + (
                0 if frame.prepared is None else frame.prepared.nbytes)
            self._thin()

    def take(self) -> tuple[list[Frame], int]:
        """Return frames up to the first image not decoded yet, and how many were skipped."""
        with self._lock:
            count = next((i for i, frame in enumerate(self._frames) if not frame.decoded),
                         len(self._frames))
            taken, self._frames = self._frames[:count], self._frames[count:]
            skipped, self._skipped = self._skipped, 0
        return taken, skipped

    def clear(self) -> None:
        """Forget everything that waits; it counts as skipped."""
        with self._lock:
            self._skipped += len(self._frames)
            self._frames = []

    def _thin(self) -> None:
        # What goes is the image whose neighbours are closest: the spacing of the others stays
        # even, however long nobody takes them.
        frames = self._frames
        while len(frames) > self._limit or (
                len(frames) > 2 and sum(frame.size for frame in frames) > self._max_bytes):
            gone = min(range(1, len(frames) - 1), key=lambda i: (
                frames[i + 1].arrival_ns - frames[i - 1].arrival_ns))
            frames[gone + 1].left_out += 1 + frames[gone].left_out
            del frames[gone]
            self.dropped += 1


class _Lane:
    """The decoding of one camera."""

    def __init__(self, camera: CameraInput) -> None:
        self.camera = camera
        self.gain = GainControl()
        self.decoding = threading.Lock()   # keeps the order: one thread at once
        self.pool = ThreadPoolExecutor(1, 'vjepa_decoder')
        self.job: Future | None = None     # of its thread; None: it rests
        self.begun_s = 0.0                 # steady time since which there is a job
        self.slow = False                  # whether the last image took longer than `PATIENCE_S`
        self.ahead_ns: int | None = None   # stamp of the last image decoded during this pass

    def has_news(self, spacing_ns: int) -> bool:
        """Whether what waits adds something to what was decoded during this pass."""
        newest = self.camera.queue.newest_ns
        return newest is not None and not (
            self.ahead_ns is not None and 0 < newest - self.ahead_ns < spacing_ns)


class Decoder:
    """Turns the messages of cameras into frames, in order, each once.

    `on_error` takes unexpected errors of a camera; a malformed image is reported to its camera.
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
        """Decode and prepare what comes for these tracks inside of this block.

        The first image of each camera at once, further ones if they are apart by `spacing_ns`:
        however many come in a long pass, no more are decoded than without this.
        """
        self._begin(tracks, spacing_ns)
        try:
            yield
        finally:
            self.tracks = None

    def settle(self, tracks: Mapping[str, CameraState], spacing_ns: int) -> None:
        """Decode what has come for several cameras, each in its own thread, before `take`.

        Waits for it, but not for a camera whose images take long: those come when they are ready.
        """
        self._settling = True
        self._begin(tracks, spacing_ns)
        until_s = time.monotonic() + PATIENCE_S
        while (now := time.monotonic()) < until_s:
            jobs = [lane.job for lane in self._lanes.values()
                    if lane.job is not None and not lane.slow and now < lane.begun_s + PATIENCE_S]
            if not jobs:
                break
            wait(jobs, until_s - now)
        self.tracks, self._settling = None, False

    def take(self, name: str, track: CameraState, spacing_ns: int) -> tuple[list[Frame], int]:
        """Return the frames of a camera since the last call, and how many images were skipped."""
        lane = self._lanes[name]
        if self.alone:
            self._decode(lane, track, spacing_ns)
        return lane.camera.queue.take()

    def _begin(self, tracks: Mapping[str, CameraState], spacing_ns: int) -> None:
        with self._lock:
            self.tracks, self._spacing_ns = tracks, spacing_ns
            for lane in self._lanes.values():
                lane.ahead_ns = None
            self._give_jobs()

    def _give_jobs(self) -> None:
        if self.tracks is None or not self._running:
            return
        for name, lane in self._lanes.items():
            if lane.job is None and lane.has_news(self._spacing_ns):
                lane.begun_s = time.monotonic()
                lane.job = lane.pool.submit(self._work, lane, self.tracks[name], self._spacing_ns)

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
                    lane.ahead_ns = frame.stamp_ns
                    lane.camera.images.judge(readable=True)
                except ImageError as error:
                    lane.camera.images.judge(readable=False)
                    lane.camera.refuse(error)
                except Exception as error:
                    # An image must not end the thread, or cost other cameras theirs.
                    self._on_error(lane.camera.name, 'decoding', error)
                lane.slow = time.monotonic() - begin_s > PATIENCE_S
                lane.camera.queue.finish(frame)
                if frame.decoded and not (self.alone or self._settling):
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
