# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The work of one pass on a GPU, as CUDA graphs where they can be captured.

A graph replays hundreds of kernels with one launch. It reads and writes at fixed addresses: for
each number of clips there is one static input, and static outputs in a pool of memory that
belongs to the graphs of a session alone.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable

import torch
from torch import Tensor

from vjepa_ros.model.variants import PATCH
from vjepa_ros.runtime.cuda.gather import Collector
from vjepa_ros.runtime.feature_change import ChangeReader
from vjepa_ros.runtime.forward.base import Forward
from vjepa_ros.runtime.memory import CAPTURING, abandon_pool, clear_workspaces, is_out_of_memory

log = logging.getLogger(__name__)

MOST_GRAPHS = 8  # numbers of clips that stay captured
WARM_PASSES = 3  # kernels are chosen, compiled and loaded in the first

Read = Callable[[Tensor], Tensor]  # features to what the heads say, packed


class Stage:
    """The work for one number of clips, run kernel by kernel.

    Attributes
    ----------
    pixels : Tensor
        (B, T, S, S, 3) uint8, to be filled before `encode`.
    collector : Collector
        Fills them with frames.
    valid : Tensor or None
        (B, Hp, Wp) float32, to be filled before `change`: 1 where a patch shows the image. None
        without `change`.
    nbytes : int
        Bytes that it keeps on the device.

    """

    def __init__(self, forward: Forward, read: Read | None, pixels: Tensor, change: bool):
        self._forward = forward
        self._read = read
        self.pixels = pixels
        self.collector = Collector(pixels)
        self.nbytes = pixels.nbytes + self.collector.nbytes
        self.valid: Tensor | None = None
        if change:
            grid = [len(pixels), *(side // PATCH for side in pixels.shape[2:4])]
            self.valid = torch.ones(grid, dtype=torch.float32, device=pixels.device)
            self._change = ChangeReader(pixels.device)
            self.nbytes += self.valid.nbytes

    def encode(self) -> Tensor:
        """Features of the pixels."""
        return self._forward(self.pixels)

    def read(self, features: Tensor) -> Tensor:
        """What the heads say about the features that `encode` gave."""
        return self._read(features)

    def change(self, features: Tensor) -> Tensor:
        """Change of the features that `encode` gave, see `ChangeReader`."""
        return self._change(features, self.pixels, self.valid)


class GraphStage(Stage):
    """The same, captured. What it returns is overwritten by the next pass of as many clips.

    Made on the current stream, which must not be the default one, after the kernels are warm.
    """

    def __init__(self, forward: Forward, read: Read | None, pixels: Tensor, change: bool,
                 pool: tuple[int, int]):
        super().__init__(forward, read, pixels, change)
        how = {'pool': pool, 'stream': torch.cuda.current_stream(pixels.device),
               # Another session may serve in another thread meanwhile.
               'capture_error_mode': 'thread_local'}
        self._encode_graph = torch.cuda.CUDAGraph()
        self._read_graph: torch.cuda.CUDAGraph | None = None
        # Without a workspace of before, the graphs get one in their own pool, which nobody frees
        # while they live; and none of theirs is left behind for work outside of them.
        clear_workspaces()
        try:
            with torch.cuda.graph(self._encode_graph, **how):
                self._features = forward(pixels)
            if read is not None:
                self._read_graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self._read_graph, **how):
                    self._packed = read(self._features)
            if change:
                self._change_graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self._change_graph, **how):
                    self._changed = super().change(self._features)
        finally:
            clear_workspaces()

    def encode(self) -> Tensor:
        self._encode_graph.replay()
        return self._features

    def read(self, features: Tensor) -> Tensor:
        self._read_graph.replay()
        return self._packed

    def change(self, features: Tensor) -> Tensor:
        self._change_graph.replay()
        return self._changed


class Stages:
    """Stages by number of clips; the least recently used of too many is dropped.

    Parameters
    ----------
    forward : Forward
        Pixels to features.
    read : callable, optional
        Features to what the heads say.
    clip_shape : tuple of int
        (T, S, S, 3).
    stream : torch.cuda.Stream
        The one on which all stages are made and run.

    Attributes
    ----------
    captured : bool
        Whether passes are captured; False from the first failure on.
    reason : str
        Why they are not; ''.

    """

    def __init__(self, forward: Forward, read: Read | None, clip_shape: tuple[int, ...],
                 stream: torch.cuda.Stream):
        self._forward = forward
        self._read = read
        self._clip_shape = clip_shape
        self._stream = stream
        self._kept: OrderedDict[int, Stage] = OrderedDict()
        self._pool: tuple[int, int] | None = None
        self._pool_bytes = 0
        self._change = False    # until a pass asks for it: most never do
        self.captured = True
        self.reason = ''

    def get(self, clips: int, change: bool = False) -> Stage:
        """The stage for so many clips, made and warm; with `change`, if that is asked for."""
        if change and not self._change:
            self._stream.synchronize()
            self.reset()
            self._change = True
        stage = self._kept.get(clips)
        if stage is None:
            while len(self._kept) >= MOST_GRAPHS:
                self._stream.synchronize()
                self._kept.popitem(last=False)
            with torch.cuda.stream(self._stream):
                stage = self._make(clips)
            self._kept[clips] = stage
        self._kept.move_to_end(clips)
        return stage

    def reset(self) -> None:
        """Drop all stages. Nothing may be running."""
        self._kept.clear()
        self._pool = None  # of which the device gets the memory back with the last graph
        self._pool_bytes = 0

    def close(self) -> None:
        """Drop all stages and let go of the networks. Nothing may be running."""
        self.reset()
        self._forward = self._read = None

    @property
    def nbytes(self) -> int:
        """Bytes of inputs, outputs and intermediate results that stay on the device."""
        # A copy: diagnostics ask while another thread adds one.
        return self._pool_bytes + sum(stage.nbytes for stage in list(self._kept.values()))

    def _make(self, clips: int) -> Stage:
        pixels = torch.zeros((clips, *self._clip_shape), dtype=torch.uint8,
                             device=self._stream.device)
        stage = Stage(self._forward, self._read, pixels, self._change)
        self._warm(stage)
        if not self.captured:
            return stage
        problem = self._capture(clips, pixels)
        if isinstance(problem, Stage):
            return problem
        self.captured, self.reason = False, f'CUDA graph capture failed: {problem}'
        log.warning('%s on %s; passes run kernel by kernel instead, which is slower',
                    self.reason, self._stream.device)
        # The graphs of before are whole, but their pool is the one in which the capture failed.
        self._stream.synchronize()
        self.reset()
        return stage

    def _warm(self, stage: Stage) -> None:
        for _ in range(WARM_PASSES):
            features = stage.encode()
            if self._read is not None:
                stage.read(features)
            if self._change:
                stage.change(features)
        self._stream.synchronize()

    def _capture(self, clips: int, pixels: Tensor) -> Stage | str:
        """The captured stage, or why there is none."""
        with CAPTURING:
            if self._pool is None:
                self._pool = torch.cuda.graph_pool_handle()
            try:
                stage = GraphStage(self._forward, self._read, pixels, self._change,
                                   self._pool)
            except RuntimeError as error:
                abandon_pool(self._pool, self._stream.device)
                # With fewer clips a pass there may be room for a graph; with one there is not.
                if is_out_of_memory(error) and clips > 1:
                    raise
                first = _first(error)
                return f'{type(first).__name__}: {first}'
            self._pool_bytes = _pool_bytes(self._pool)
            return stage


def _first(error: BaseException) -> BaseException:
    """What went wrong; ending the capture that it broke is an error of its own."""
    while error.__context__ is not None:
        error = error.__context__
    return error


def _pool_bytes(pool: tuple[int, int]) -> int:
    return sum(segment['total_size'] for segment in torch.cuda.memory_snapshot()
               if tuple(segment.get('segment_pool_id', ())) == tuple(pool))
