# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Repeat work of static shape on a device, as CUDA graphs where they can be captured.

A graph replays hundreds of kernels with one launch. It reads and writes at fixed addresses, in a
pool of memory of its own.
"""

from __future__ import annotations

import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.model.heads import Branch
from vjepa_ros.model.variants import PATCH, TUBELET
from vjepa_ros.runtime.memory import (
    CAPTURING,
    abandon_pool,
    clear_workspaces,
    is_out_of_memory,
)
from vjepa_ros.runtime.noise_floor import ChangeReader
from vjepa_ros.runtime.streaming import Work

if TYPE_CHECKING:
    from torch.cuda import _POOL_HANDLE as Pool

log = logging.getLogger(__name__)

WARM_RUNS = 3   # kernels are chosen, compiled and loaded in the first
MOST_GRAPHS = 8  # numbers of clips that stay captured


class Fork(Branch):
    """Work beside that of the current stream, in CUDA graphs, too; without CUDA in turn."""

    def __init__(self, device: torch.device):
        self._device = device
        self._side: torch.cuda.Stream | None = None

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        if self._device.type != 'cuda':
            yield
            return
        current = torch.cuda.current_stream(self._device)
        if self._side is None:
            self._side = torch.cuda.Stream(self._device, priority=current.priority)
        self._side.wait_stream(current)
        with torch.cuda.stream(self._side):
            yield

    def rejoin(self) -> None:
        if self._side is not None:
            torch.cuda.current_stream(self._device).wait_stream(self._side)


class DeviceStream:
    """An order of work: a CUDA stream of high priority, or that of calls elsewhere."""

    def __init__(self, device: torch.device):
        self.device = device
        self.stream: torch.cuda.Stream | None = None
        self._beside: DeviceStream | None = None
        if device.type == 'cuda':
            with torch.cuda.device(device):
                self.stream = torch.cuda.Stream(device, priority=-1)

    def beside(self) -> DeviceStream:
        """Return a second stream, the same each time: PyTorch has 32 and then repeats them."""
        if self._beside is None:
            self._beside = DeviceStream(self.device)
        return self._beside

    @contextlib.contextmanager
    def here(self) -> Iterator[None]:
        if self.stream is None:
            with torch.no_grad():
                yield
            return
        # Not inference mode: what PyTorch makes while it captures would be of no use outside.
        with (torch.cuda.device(self.device), torch.inference_mode(False), torch.no_grad(),
              torch.cuda.stream(self.stream)):
            yield

    def lightly(self) -> contextlib.AbstractContextManager[object]:
        """Queue copies and replays of graphs, for which much less has to be entered."""
        return contextlib.nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def mark(self) -> torch.cuda.Event | None:
        """Return an event that comes when all work queued so far is done; None: it is."""
        return None if self.stream is None else mark(self.stream)

    def wait_for(self, event: torch.cuda.Event | None) -> None:
        if self.stream is not None and event is not None:
            self.stream.wait_event(event)


def mark(stream: torch.cuda.Stream) -> torch.cuda.Event:
    """Return an event, with a time, that comes when all work of a stream so far is done."""
    event = torch.cuda.Event(enable_timing=True)
    event.record(stream)
    return event


@contextlib.contextmanager
def capturing(pool: Pool, device: torch.device) -> Iterator[None]:
    """Let the block capture graphs into a pool, which a failure leaves unusable."""
    with CAPTURING:
        # Without an older workspace a graph gets one in its own pool, which nobody frees while it
        # lives; and none of its own is left for work outside of it.
        clear_workspaces()
        try:
            yield
        except RuntimeError:
            abandon_pool(pool, device)
            raise
        finally:
            clear_workspaces()


def capture(work: Callable[[], Tensor | None], pool: Pool, stream: torch.cuda.Stream
            ) -> tuple[torch.cuda.CUDAGraph, Tensor | None]:
    """Capture work within `capturing`: the graph, and its static result."""
    graph = torch.cuda.CUDAGraph()
    # Another model may serve in another thread meanwhile.
    with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode='thread_local'):
        out = work()
    return graph, out


def capture_problem(error: BaseException) -> str:
    """Say why a capture has failed: the first error, because ending it is another one."""
    while error.__context__ is not None:
        error = error.__context__
    return f'CUDA graph capture failed: {type(error).__name__}: {error}'


class Replay:
    """A function on the device that takes numbers of the host and returns numbers to it.

    Both copies are part of the graph. `work` makes of the numbers (n,) on the device, at first
    `first`, a float32 tensor there, without waiting for the device. Called by one thread at once.
    """

    def __init__(self, queue: DeviceStream, work: Callable[[Tensor], Tensor], first: np.ndarray,
                 what: str):
        self._queue = queue
        self._work: Callable[[Tensor], Tensor] | None = work     # until there is a graph
        self._graph: torch.cuda.CUDAGraph | None = None
        numbers = torch.from_numpy(first)
        pin = queue.stream is not None
        with queue.here():
            self._staged = torch.empty(len(first), dtype=numbers.dtype,
                                       pin_memory=pin).copy_(numbers)
            self._numbers = self._staged.numpy()
            self._given = self._staged.to(queue.device, copy=True)
            self._landed = work(self._given)
            if pin:
                self._landed = torch.empty(self._landed.shape, dtype=torch.float32,
                                           pin_memory=True)
            if queue.stream is not None:
                self._capture(what, queue.stream)

    @property
    def captured(self) -> bool:
        return self._graph is not None

    def start(self, numbers: np.ndarray | Sequence[float]) -> None:
        """Queue a run on the current stream. The one before must be finished."""
        self._numbers[:] = numbers
        if self._graph is not None:
            self._graph.replay()
        else:
            self._run()

    def finish(self) -> np.ndarray:
        """Return the result of the last `start`, which has ended; it holds until the next."""
        return self._landed.numpy()

    def _run(self) -> None:
        self._given.copy_(self._staged, non_blocking=True)
        assert self._work is not None
        found = self._work(self._given)
        if self._queue.stream is None:
            self._landed = found
        else:
            self._landed.copy_(found, non_blocking=True)

    def _capture(self, what: str, stream: torch.cuda.Stream) -> None:
        for _ in range(WARM_RUNS - 1):
            self._run()
        stream.synchronize()
        pool = torch.cuda.graph_pool_handle()
        try:
            with capturing(pool, self._queue.device):
                self._graph, _ = capture(self._run, pool, stream)
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            log.warning('%s: %s; it runs kernel by kernel instead, which is slower', what,
                        capture_problem(error))
            return
        self._work = None   # often a method of the owner: memory must not wait for `gc`


class Stage:
    """The work of a pass for one number of clips; `fork` computes the change beside the heads."""

    def __init__(self, forward: Work, read: Work, pixels: Tensor, fork: Fork | None):
        self.pixels = pixels    # (B, T, S, S, 3) uint8, to be filled before `encode`
        grid = [len(pixels), *(side // PATCH for side in pixels.shape[2:4])]
        # 1 where a patch shows the image, to be filled before `read`.
        self.valid = valid = torch.ones(grid, dtype=torch.float32, device=pixels.device)
        self.shown: list[np.ndarray] = []       # what `valid` has, which hardly ever changes
        self.nbytes = pixels.nbytes + valid.nbytes
        self.encode: Callable[[], Tensor] = lambda: forward(pixels)
        # Packed heads (B, n) from these features, and behind them their change if it is wanted.
        self.read: Work = read
        self.change: tuple[int, ...] = ()   # (T', Hp, Wp) of a clip, see `ChangeReader`
        if fork is not None:
            # Its constants must stay where graphs read them.
            self._changes = changes = ChangeReader(pixels.device)
            self.change = (pixels.shape[1] // TUBELET, *grid[1:])

            def both(features: Tensor) -> Tensor:
                with fork.aside():
                    changed = changes(features, pixels, valid).flatten(1)
                heads = read(features)
                fork.rejoin()
                return torch.cat([heads, changed], 1)

            self.read = both

    def capture(self, pool: Pool) -> None:
        """Replace the work by CUDA graphs, whose results the next pass overwrites.

        Called on the current stream, not the default one, when the kernels are warm. After an
        error the stage runs kernel by kernel as before.
        """
        stream, plain = torch.cuda.current_stream(self.pixels.device), self.read
        with capturing(pool, self.pixels.device):
            encode, features = capture(self.encode, pool, stream)
            assert features is not None
            read, said = capture(lambda: plain(features), pool, stream)
        assert said is not None

        def encoded() -> Tensor:
            encode.replay()
            return features

        def spoken(_: Tensor) -> Tensor:
            read.replay()
            return said

        self.encode, self.read = encoded, spoken


class GraphCache:
    """Stages by number of clips, all made and run on one stream; the least recently used go."""

    def __init__(self, forward: Work, read: Work, clip_shape: tuple[int, ...],
                 stream: torch.cuda.Stream, fork: Fork):
        self._forward, self._read, self._clip_shape = forward, read, clip_shape
        self._stream, self._fork = stream, fork
        self._kept: OrderedDict[int, Stage] = OrderedDict()
        self._pool: Pool | None = None
        self._pool_bytes = 0
        self._change = False    # until a pass asks for it: most never do
        self.captured, self.reason = True, ''   # False from the first failure on, and why

    def has(self, clips: int, change: bool) -> bool:
        """Return whether `get` has nothing to make or to warm."""
        return clips in self._kept and self._change >= change

    def get(self, clips: int, change: bool) -> Stage:
        """Return the stage for so many clips, warm; `change` if it will be asked for it."""
        if change and not self._change:
            self._stream.synchronize()
            self.reset()
            self._change = True
        if clips not in self._kept:
            while len(self._kept) >= MOST_GRAPHS:
                self._stream.synchronize()
                self._kept.popitem(last=False)
            with torch.cuda.stream(self._stream):
                self._kept[clips] = self._make(clips)
        self._kept.move_to_end(clips)
        return self._kept[clips]

    def reset(self) -> None:
        """Drop all stages. Nothing may be running."""
        self._kept.clear()
        self._pool = None  # of which the device gets the memory back with the last graph
        self._pool_bytes = 0

    @property
    def nbytes(self) -> int:
        """Bytes of inputs, outputs and intermediate results that stay on the device."""
        # A copy: diagnostics ask while another thread adds one.
        return self._pool_bytes + sum(stage.nbytes for stage in list(self._kept.values()))

    def _make(self, clips: int) -> Stage:
        device = self._stream.device
        pixels = torch.zeros((clips, *self._clip_shape), dtype=torch.uint8, device=device)
        stage = Stage(self._forward, self._read, pixels, self._fork if self._change else None)
        for _ in range(WARM_RUNS):
            stage.read(stage.encode())
        self._stream.synchronize()
        if not self.captured:
            return stage
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        try:
            stage.capture(self._pool)
        except RuntimeError as error:
            # With fewer clips a pass there may be room for a graph; with one there is not.
            if is_out_of_memory(error) and clips > 1:
                raise
            self.captured, self.reason = False, capture_problem(error)
            log.warning('%s on %s; passes run kernel by kernel instead, which is slower',
                        self.reason, device)
            # The graphs of before are whole, but their pool is the one that was abandoned.
            self._stream.synchronize()
            self.reset()
            return stage
        self._pool_bytes = sum(
            segment['total_size'] for segment in torch.cuda.memory_snapshot()
            if tuple(segment.get('segment_pool_id', ())) == tuple(self._pool))
        return stage
