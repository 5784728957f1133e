# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run passes on a CUDA or ROCm device without waiting for it.

Results follow a pass on its stream into pinned memory; the features, which are large, come last.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.model.heads import Branch
from vjepa_ros.runtime.cuda.graph_replay import Fork, GraphCache, Stage, mark
from vjepa_ros.runtime.prediction import Pass
from vjepa_ros.runtime.runner import Clip, DeviceClip, Runner
from vjepa_ros.runtime.streaming import Keys, Work

STAGES = ('upload', 'encode', 'heads', 'download')


class CudaPass(Pass):
    """A pass on the device; `marks` lie between the `STAGES`, and features come by `end`."""

    def __init__(self, values: Tensor, features: Tensor | None, change_shape: tuple[int, ...],
                 marks: Sequence[torch.cuda.Event], end: torch.cuda.Event):
        # An array keeps the memory from being handed out again.
        super().__init__(values.numpy(), None if features is None else features.numpy(), {},
                         change_shape)
        self._marks, self._end = marks, end

    def arrived(self) -> bool:
        return self._marks[-1].query()

    def wait(self) -> None:
        self._marks[-1].synchronize()
        self.timings = {stage: begin.elapsed_time(end) for stage, (begin, end)
                        in zip(STAGES, pairwise(self._marks), strict=True)}

    def wait_for_features(self) -> float:
        """Wait for the features; return the time they took after all else had arrived [ms]."""
        early = self._marks[-1]
        if self._end is early:
            return 0.0
        self._end.synchronize()
        return early.elapsed_time(self._end)


class CudaRunner(Runner):
    """Passes on one CUDA device, as CUDA graphs where they can be captured."""

    eager = False

    def _open(self, device: torch.device) -> Branch:
        self._device = device
        with self._here():
            self._compute = torch.cuda.Stream(device)
            # Weights may still be on their way.
            self._compute.wait_stream(torch.cuda.current_stream(device))
        self._fork = Fork(device)
        self._graphs: dict[str, GraphCache] = {}
        return Fork(device)

    def _graphs_of(self, forward: Work) -> GraphCache:
        """Return the graphs of a kind of pass: of whole clips, or one of a stream."""
        name = getattr(forward, '__name__', '')
        if name not in self._graphs:
            self._graphs[name] = GraphCache(forward, self._read, self.clip_shape, self._compute,
                                            self._fork)
        return self._graphs[name]

    @property
    def captured(self) -> bool:
        return all(graphs.captured for graphs in list(self._graphs.values()))

    @property
    def reason(self) -> str:
        return next(filter(None, (graphs.reason for graphs in list(self._graphs.values()))), '')

    @property
    def nbytes(self) -> int:
        return super().nbytes + sum(graphs.nbytes for graphs in list(self._graphs.values()))

    def start(self, clips: Sequence[Clip], keys: Sequence[Keys] | None, features: bool,
              valid: Sequence[np.ndarray] | None = None,
              stamps: Sequence[np.ndarray] | None = None) -> Pass:
        """Queue a pass over clips, which may be changed when this returns, see `Model.run`."""
        change = valid is not None
        with self._here(), torch.cuda.stream(self._compute):
            forward, slots, read = self._plan(keys, stamps)
            graphs, stream = self._graphs_of(forward), self.stream
            if slots is None or stamps is None or stream is None:
                stage = graphs.get(len(clips), change)
            else:
                if not graphs.has(len(clips), change):
                    stream.idle(len(clips))     # for the passes that warm it
                stage = graphs.get(len(clips), change)
                stream.send(slots, stamps)
            marks = [mark(self._compute)]
            # The strength of a patch, a part of the change, is that of all frames.
            self._gather(clips, stage.pixels, slice(None) if change else read)
            marks.append(mark(self._compute))
            found = stage.encode()
            marks.append(mark(self._compute))
            if valid is not None:
                _show(stage, valid)
            values = stage.read(found)
            if stage.change and not change:
                values = values[:, :-math.prod(stage.change)]
            marks.append(mark(self._compute))
            said = _download(values)
            marks.append(mark(self._compute))
            brought = _download(found) if features else None
            end = mark(self._compute) if features else marks[-1]
            return CudaPass(said, brought, stage.change if change else (), marks, end)

    def _gather(self, clips: Sequence[Clip], pixels: Tensor, read: slice) -> None:
        there = [clip for clip in clips if isinstance(clip, DeviceClip)]
        for clip in there:
            if clip.ready is not None:
                self._compute.wait_event(clip.ready)
        for clip, out in zip(clips, pixels, strict=True):
            part = out[read]
            if isinstance(clip, DeviceClip):
                torch.cat([*clip.frames[read]], out=part.view(-1, *part.shape[2:]))
            else:
                staged = torch.empty(part.shape, dtype=torch.uint8, pin_memory=part.is_cuda)
                np.stack([*clip[read]], out=staged.numpy())
                part.copy_(staged, non_blocking=True)
        if there:
            gathered = mark(self._compute)
            for clip in there:
                clip.used(gathered)

    def apply(self, clips: Sequence[Clip], function: Work) -> np.ndarray:
        with self._here(), torch.cuda.stream(self._compute):
            pixels = torch.empty((len(clips), *self.clip_shape), dtype=torch.uint8,
                                 device=self._device)
            self._gather(clips, pixels, slice(None))
            return function(pixels).float().cpu().numpy()

    def trim(self) -> None:
        with self._here():
            self._compute.synchronize()
            for graphs in self._graphs.values():
                graphs.reset()
        super().trim()

    def close(self) -> None:
        try:
            with self._here():
                self._compute.synchronize()
        finally:
            self._graphs.clear()
            super().close()

    @contextlib.contextmanager
    def _here(self) -> Iterator[None]:
        # Not inference mode: tensors made while capturing would be of no use outside.
        with torch.cuda.device(self._device), torch.inference_mode(False), torch.no_grad():
            yield


def _show(stage: Stage, valid: Sequence[np.ndarray]) -> None:
    if not stage.shown or not all(map(np.array_equal, valid, stage.shown)):
        shown = np.stack(valid)
        stage.valid.copy_(torch.from_numpy(shown.astype(np.float32)))
        stage.shown = [*shown]


def _download(values: Tensor) -> Tensor:
    out = torch.empty(values.shape, dtype=torch.float32, pin_memory=True)
    return out.copy_(values, non_blocking=True)
