# SPDX-License-Identifier: Apache-2.0
"""Decode and upload the images of all cameras, those of the next clip while a device computes.

The worker decodes what has come whenever it looks for news. While it waits for a device, a second
thread does so in its place, so that the frames of the next clip are ready when the pass is over.
Where the model itself runs on the CPU that thread sleeps: it would take turns with the model on
the same cores and put its result off.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from vjepa_ros.perception.geometry import Prepared
from vjepa_ros.perception.track import Track
from vjepa_ros.ros.camera_input import CameraInput
from vjepa_ros.ros.convert import ImageError, decode
from vjepa_ros.ros.inbox import Inbox, Waiting

OnError = Callable[[str, str, Exception], None]   # camera, what was done, what went wrong


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

    def __init__(self, camera: CameraInput) -> None:
        self.camera = camera
        self.ready = Inbox()
        self.decoding = threading.Lock()   # keeps the order: one thread at once
        self.state = threading.Lock()      # held for moments only, also by the executor
        self.epoch = 0                     # of `clear`: what was taken before is thrown away
        self.skipped = 0
        self.ahead_ns: int | None = None   # stamp of the last image decoded during this pass

    def enough(self, spacing_ns: int) -> bool:
        """Whether what waits adds nothing to what was decoded during this pass."""
        newest = self.camera.inbox.newest_ns
        return newest is None or (self.ahead_ns is not None
                                  and 0 < newest - self.ahead_ns < spacing_ns)


class Decoder:
    """Turns the messages of cameras into frames, in order, each once.

    Parameters
    ----------
    cameras
        Where the messages wait.
    on_error
        Told of what should not happen; a malformed image goes to its camera instead.
    """

    def __init__(self, cameras: Mapping[str, CameraInput], on_error: OnError) -> None:
        self._lanes = {name: _Lane(camera) for name, camera in cameras.items()}
        self._on_error = on_error
        self._wake = threading.Condition()
        self._news = False
        self._running = True
        self._tracks: Mapping[str, Track] | None = None   # what to decode for; None: rest
        self._spacing_ns = 0
        self._thread: threading.Thread | None = None

    def stop(self) -> None:
        """End the thread, if there is one, after the image it may be at."""
        with self._wake:
            self._running = False
            self._wake.notify()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread to end; False when it is still at an image."""
        if self._thread is not None:
            self._thread.join(max(0.0, timeout_s))
        return self._thread is None or not self._thread.is_alive()

    def notify(self) -> None:
        """A message has come."""
        with self._wake:
            self._news = True
            if self._tracks is not None:
                self._wake.notify()

    @contextmanager
    def ahead(self, tracks: Mapping[str, Track], spacing_ns: int) -> Iterator[None]:
        """Inside of this block, decode and prepare what comes for these tracks, see `take`.

        The first image of each camera at once, further ones if they are apart by `spacing_ns`:
        of a pass so long that many come, no more are decoded than without this.
        """
        with self._wake:
            for lane in self._lanes.values():
                lane.ahead_ns = None
            if self._thread is None and self._running:
                self._thread = threading.Thread(target=self._loop, name='vjepa_decoder',
                                                daemon=True)
                self._thread.start()
            self._tracks, self._spacing_ns, self._news = tracks, spacing_ns, True
            self._wake.notify()
        try:
            yield
        finally:
            with self._wake:
                self._tracks = None

    def take(self, name: str, track: Track, spacing_ns: int) -> tuple[list[Frame], int]:
        """All frames of a camera that came since the last call, and how many were skipped.

        What is not decoded yet is decoded here. Of frames closer together than `spacing_ns` only
        some are given; the newest is always given, see `Inbox.take`.
        """
        lane = self._lanes[name]
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

    def _loop(self) -> None:
        while True:
            with self._wake:
                while self._running and not (self._news and self._tracks is not None):
                    self._wake.wait()
                if not self._running:
                    return
                self._news = False
                tracks, spacing_ns = self._tracks, self._spacing_ns
            for name, lane in self._lanes.items():
                if not lane.enough(spacing_ns):
                    self._decode(lane, tracks[name], spacing_ns)

    def _decode(self, lane: _Lane, track: Track, spacing_ns: int) -> None:
        """Decode what waits at a camera; what goes wrong with one image costs that image."""
        with lane.decoding:
            with lane.state:
                epoch = lane.epoch
                waiting, skipped = lane.camera.inbox.take(spacing_ns)
                lane.skipped += skipped
            for item in waiting:
                try:
                    frame = _frame(item, track)
                except ImageError as error:
                    lane.camera.refuse(error)
                    continue
                except Exception as error:
                    # An image must not end the thread, or cost other cameras theirs.
                    self._on_error(lane.camera.name, 'decoding', error)
                    continue
                with lane.state:
                    lane.ahead_ns = frame.stamp_ns
                    if lane.epoch == epoch:
                        lane.ready.put(frame)
                    else:
                        lane.skipped += 1


def _frame(item: Waiting, track: Track) -> Frame:
    begin = time.perf_counter()
    rgb = decode(item.message)
    middle = time.perf_counter()
    prepared = track.prepare(rgb)
    end = time.perf_counter()
    return Frame(rgb, prepared, track, item.stamp_ns, item.arrival_ns,
                 item.message.header.frame_id,
                 {'decode': (middle - begin) * 1e3, 'preprocess': (end - middle) * 1e3})
