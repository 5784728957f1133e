# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run passes on a CUDA or ROCm device without waiting for it.

Frames are uploaded on a stream of their own, while the previous pass computes. The results of a
pass follow it on its stream into pinned memory. The features, which are large, come last: readers
of the rest do not wait for them. Events on the device time each stage.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Hashable, Iterator, Sequence, Set
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.runtime.cuda.frame_upload import (
    Clip,
    Collector,
    DeviceClip,
    FrameStore,
    Keys,
    numbers_of,
)
from vjepa_ros.runtime.cuda.graph_replay import Fork, Stage, Stages
from vjepa_ros.runtime.forward.base import Work, closed
from vjepa_ros.runtime.outputs import Flight, Landed, checked
from vjepa_ros.runtime.streaming import StreamEncoder

Span = tuple[str, torch.cuda.Event, torch.cuda.Event]  # stage, begin, end

DEPTH = 2  # passes under way: one that computes and one that is uploaded


@dataclass(frozen=True)
class Said:
    """What `Stage.read` gives of a pass."""

    values: np.ndarray  # (B, n) float32 in pinned memory, which is being written
    wants_change: bool  # whether the change of the features is wanted
    # Of the change of a clip, which comes last; None: there is none
    change_shape: tuple[int, ...] | None

    def split(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Return packed heads and change, None where not wanted, once they are there."""
        packed, change = self.values, None
        if self.change_shape is not None:
            at = packed.shape[1] - math.prod(self.change_shape)
            # `reshape` copies where there are several clips.
            packed, change = packed[:, :at], packed[:, at:].reshape(-1, *self.change_shape)
        return packed, change if self.wants_change else None


class CudaFlight:
    """A pass on the device.

    Parameters
    ----------
    clips : int
        How many it is of.
    features : Tensor, optional
        Pinned memory that is being written.
    said : Said
        Heads and change.
    spans : list of (str, Event, Event)
        Stages with begin and end; after the last event all but the features is there.
    end : Event
        After it the features are there as well.
    host_ms : float
        Time of the host to queue the upload, which counts as upload.

    """

    def __init__(self, clips: int, features: Tensor | None, said: Said,
                 spans: list[Span], end: torch.cuda.Event, host_ms: float):
        self._clips = clips
        # An array keeps the memory from being handed out again.
        self._features = None if features is None else features.numpy()
        self._said = said
        self._spans = spans
        self._host_ms = host_ms
        self._early = spans[-1][2]
        self._end = end

    def done(self) -> bool:
        """Whether everything is there, features too."""
        return self._end.query()

    def arrived(self) -> bool:
        """Whether everything but the features is there."""
        return self._early.query()

    def wait(self) -> None:
        """Wait until everything is there."""
        self._end.synchronize()

    def land(self) -> Landed:
        """Return the results, in the pinned memory itself, which they own from now on."""
        self._early.synchronize()
        timings = {'upload': self._host_ms}
        for name, begin, end in self._spans:
            timings[name] = timings.get(name, 0.0) + begin.elapsed_time(end)
        packed, change = self._said.split()
        return Landed(self._clips, self._features, packed, change, timings,
                      None if self._end is self._early else self._arrive)

    def _arrive(self) -> float:
        self.wait()
        return self._early.elapsed_time(self._end)


class CudaRunner:
    """Passes on one device. `start`, `apply`, `trim` and `close` are called by one thread at once.

    Parameters
    ----------
    forward : callable
        Pixels to features.
    read : callable, optional
        Features to packed heads, see `reading`; without it they are only `checked`.
    device : torch.device
        Where they run.
    clip_shape : tuple of int
        (T, S, S, 3).

    """

    def __init__(self, forward: Work, read: Work | None, device: torch.device,
                 clip_shape: tuple[int, ...]):
        self._device = device
        with self._here():
            self._compute = torch.cuda.Stream(device)
            self._uploads = torch.cuda.Stream(device)
            self._frames = FrameStore(device, clip_shape)
            # Weights may still be on their way.
            self._compute.wait_stream(torch.cuda.current_stream(device))
            self._gathered = _mark(self._compute)
        # After it the frames are there; None: a pass waits for it already.
        self._uploaded: torch.cuda.Event | None = None
        self._fork = Fork(device)
        self._read: Work = read or checked
        self._stages = Stages(forward, self._read, clip_shape, self._compute, self._fork)
        self._clip_shape = clip_shape
        self._stream: StreamEncoder | None = None
        self._streams: dict[str, Stages] = {}
        self._flying: deque[CudaFlight] = deque()
        # Content of `valid` of each stage, which hardly ever changes.
        self._shown: WeakKeyDictionary[Stage, list[np.ndarray]] = WeakKeyDictionary()

    @property
    def stream(self) -> StreamEncoder | None:
        """Return what encodes clips with keys and stamps instead of `forward`, where set."""
        return self._stream

    @stream.setter
    def stream(self, stream: StreamEncoder | None) -> None:
        self._stream, self._streams = stream, {}
        if stream is not None:
            self._streams = {
                name: Stages(forward, self._read, self._clip_shape, self._compute, self._fork)
                for name, forward in (('step', stream.step), ('whole', stream.whole))}

    @property
    def captured(self) -> bool:
        """Whether passes are CUDA graphs, those of a stream, too."""
        return all(stages.captured for stages in (self._stages, *self._streams.values()))

    @property
    def reason(self) -> str:
        """Why they are not; ''."""
        return next(filter(None, (stages.reason for stages in
                                  (self._stages, *self._streams.values()))), '')

    @property
    def nbytes(self) -> int:
        """Bytes of frames, inputs, outputs and graphs on the device."""
        return (self._frames.nbytes + self._stages.nbytes
                + sum(stages.nbytes for stages in self._streams.values()))

    def start(self, clips: Sequence[Clip], keys: Sequence[Keys] | None, features: bool,
              heads: bool, valid: Sequence[np.ndarray] | None = None,
              stamps: Sequence[np.ndarray] | None = None) -> Flight:
        """Upload clips and queue a pass over them.

        `clips`: sequence of ndarray (T, S, S, 3) uint8 each; may be changed when this returns;
        `valid`: sequence of ndarray, optional For each clip (Hp, Wp) bool, patches that show the
        image: brings the change as well.
        """
        with self._here(), torch.cuda.stream(self._compute):
            while len(self._flying) >= DEPTH:
                self._flying.popleft().wait()
            begun = time.perf_counter()
            slots, spans = self._send(clips, keys)
            host_ms = 1e3 * (time.perf_counter() - begun)
            numbers = numbers_of(clips, slots, self._clip_shape[0])
            stage, rows = self._stage(keys, stamps, len(clips), valid is not None, numbers)
            spans += self._gather(clips, stage.collector, rows)
            marks, names = [spans[-1][2]], ['encode']
            found = stage.encode()
            marks.append(_mark(self._compute))
            spoken = heads or valid is not None
            plain = not spoken and self._read is not checked
            values = checked(found) if plain else self._read_of(stage, found, valid)
            if spoken:
                names.append('heads' if heads else 'change')
                marks.append(_mark(self._compute))
            said = Said(_download(values).numpy(), valid is not None,
                        None if plain else stage.change)
            end = _mark(self._compute)
            marks.append(end)
            brought = _download(found) if features else None
            if features:
                end = _mark(self._compute)
            spans += zip([*names, 'download'], marks, marks[1:], strict=False)
            flight = CudaFlight(len(clips), brought, said, spans, end, host_ms)
            # The device is busy now: time to drop the passes that are over.
            while self._flying and self._flying[0].done():
                self._flying.popleft()
            self._flying.append(flight)
            return flight

    def _stage(self, keys: Sequence[Keys] | None, stamps: Sequence[np.ndarray] | None, clips: int,
               change: bool, numbers: Sequence[int]) -> tuple[Stage, Tensor]:
        """Return the stage for a pass, ready but for its pixels, on the stream of passes.

        And the numbers of their frames on the device.
        """
        stream = self._stream
        if stream is None or keys is None or stamps is None:
            stage = self._stages.get(clips, change)
            return stage, stage.collector.send(numbers)
        ready = stream.ready(keys)
        stages = self._streams['step' if ready else 'whole']
        if not stages.has(clips, change):
            stream.idle(clips)      # for the passes that warm it
        return stages.get(clips, change), stream.prepare(keys, stamps, numbers)

    def _read_of(self, stage: Stage, features: Tensor,
                 valid: Sequence[np.ndarray] | None) -> Tensor:
        if valid is not None:
            shown = self._shown.get(stage)
            if shown is None or not all(map(np.array_equal, valid, shown)):
                shown = np.stack(valid)
                stage.valid.copy_(torch.from_numpy(shown.astype(np.float32)))
                self._shown[stage] = [*shown]
        return stage.read(features)

    def apply(self, clips: Sequence[Clip], function: Work) -> np.ndarray:
        """Apply a function to the pixels (B, T, S, S, 3) uint8; its result as float32."""
        with self._here():
            slots, _ = self._send(clips, None)
            with torch.cuda.stream(self._compute):
                pixels = torch.empty((len(clips), *self._clip_shape), dtype=torch.uint8,
                                     device=self._device)
                collector = Collector(pixels)
                numbers = numbers_of(clips, slots, self._clip_shape[0])
                self._gather(clips, collector, collector.send(numbers))
                return function(pixels).float().cpu().numpy()

    def keep(self, frames: Set[Hashable]) -> None:
        """Forget the tubelets that end in no frame of these; frames make room for others."""
        if self._stream is not None:
            self._stream.keep(frames)

    def trim(self) -> None:
        """Free graphs, buffers and frames, which can be made again."""
        with self._here():
            self._settle()
            for stages in (self._stages, *self._streams.values()):
                stages.reset()
            self._frames.reset()
            if self._stream is not None:
                self._stream.forget()

    def close(self) -> None:
        """Wait for what runs, then drop networks, graphs and buffers."""
        try:
            with self._here():
                self._settle()
        finally:
            for stages in (self._stages, *self._streams.values()):
                stages.close()
            self._stream, self._streams, self._read = None, {}, closed
            self._frames.reset()

    def _settle(self) -> None:
        self._flying.clear()
        self._compute.synchronize()
        self._uploads.synchronize()

    @contextlib.contextmanager
    def _here(self) -> Iterator[None]:
        # Not inference mode: tensors made while capturing would be of no use outside.
        with torch.cuda.device(self._device), torch.inference_mode(False), torch.no_grad():
            yield

    def _send(self, clips: Sequence[Clip], keys: Sequence[Keys] | None
              ) -> tuple[list[int], list[Span]]:
        """Upload; the slots of the frames, and the span of the copy if there was one."""
        here = [clip for clip in clips if not isinstance(clip, DeviceClip)]
        if not here:
            return [], []
        if keys is not None:
            keys = [key for key, clip in zip(keys, clips, strict=True)
                    if not isinstance(clip, DeviceClip)]
        before = self._frames.uploads
        with torch.cuda.stream(self._uploads):
            # Frames of the pass before may be replaced as soon as it has gathered them.
            self._uploads.wait_event(self._gathered)
            begin = _mark(self._uploads)
            slots = self._frames.send(here, keys)
            if self._frames.uploads == before:
                return slots, []
            self._uploaded = _mark(self._uploads)
        return slots, [('upload', begin, self._uploaded)]

    def _gather(self, clips: Sequence[Clip], collector: Collector, rows: Tensor) -> list[Span]:
        if self._uploaded is not None:
            self._compute.wait_event(self._uploaded)
            self._uploaded = None
        there = [clip for clip in clips if isinstance(clip, DeviceClip)]
        for clip in there:
            if clip.ready is not None:
                self._compute.wait_event(clip.ready)
        begin = _mark(self._compute)
        collector.collect(clips, rows, self._frames)
        self._gathered = _mark(self._compute)
        for clip in there:
            if clip.used is not None:
                clip.used(self._gathered)
        return [('upload', begin, self._gathered)]


def _mark(stream: torch.cuda.Stream) -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record(stream)
    return event


def _download(values: Tensor) -> Tensor:
    """Queue a copy into pinned memory."""
    out = torch.empty(values.shape, dtype=torch.float32, pin_memory=True)
    return out.copy_(values, non_blocking=True)
