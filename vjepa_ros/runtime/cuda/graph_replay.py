# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Repeat work of static shape on a device, as CUDA graphs where they can be captured.

A graph replays hundreds of kernels with one launch. It reads and writes at fixed addresses: a pass
has one static input for each number of clips, and static outputs in a pool of memory that belongs
to the graphs of one session alone.
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

from vjepa_ros.model.variants import PATCH, TUBELET
from vjepa_ros.runtime.cuda.frame_upload import Collector
from vjepa_ros.runtime.forward.base import Work, closed
from vjepa_ros.runtime.memory import CAPTURING, is_out_of_memory
from vjepa_ros.runtime.noise_floor import ChangeReader
from vjepa_ros.runtime.torch_private import abandon_pool, clear_workspaces

if TYPE_CHECKING:
    from torch.cuda import _POOL_HANDLE as Pool

log = logging.getLogger(__name__)

WARM_RUNS = 2   # kernels are chosen and loaded in the first
MOST_GRAPHS = 8  # numbers of clips that stay captured
WARM_PASSES = 3  # kernels are chosen, compiled and loaded in the first


class Fork:
    """Work beside that of the current stream, in CUDA graphs, too; without CUDA in turn.

    Parameters
    ----------
    device : torch.device
        Where the work is done.

    """

    def __init__(self, device: torch.device):
        self._device = device
        self._side: torch.cuda.Stream | None = None

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Queue the block beside what follows it, until `rejoin`."""
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
        """Let what follows wait for what was queued `aside`."""
        if self._side is not None:
            torch.cuda.current_stream(self._device).wait_stream(self._side)


class Queue:
    """An order of work on a device.

    On CUDA a stream of high priority; elsewhere all work is done when a call returns.

    Parameters
    ----------
    device : torch.device
        Where the work is done.

    Attributes
    ----------
    fork : Fork
        For work beside each other within it.

    """

    def __init__(self, device: torch.device):
        self.device, self.fork = device, Fork(device)
        self.stream: torch.cuda.Stream | None = None
        self._beside: Queue | None = None
        if device.type == 'cuda':
            with torch.cuda.device(device):
                self.stream = torch.cuda.Stream(device, priority=-1)

    def beside(self) -> Queue:
        """Return a second queue of the device, the same at every call.

        PyTorch has 32 streams and then hands out the first ones again: a new one each time would
        in the end be that of a capture.
        """
        if self._beside is None:
            self._beside = Queue(self.device)
        return self._beside

    @contextlib.contextmanager
    def here(self) -> Iterator[None]:
        """Queue what the block does."""
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
        if self.stream is None:
            return None
        event = torch.cuda.Event(enable_timing=True)
        event.record(self.stream)
        return event

    def wait_for(self, event: torch.cuda.Event | None) -> None:
        """Let all further work wait for an event of another queue."""
        if self.stream is not None and event is not None:
            self.stream.wait_event(event)

    def settle(self) -> None:
        """Wait until everything is done."""
        if self.stream is not None:
            self.stream.synchronize()


class Replay:
    """A function on the device from numbers of the host to numbers of the host.

    Both copies are part of the graph: starting it is a single call.

    Parameters
    ----------
    queue : Queue
        Where it runs. Made and called by one thread at once.
    work : callable
        From the numbers (n,) on the device to a float32 tensor there, or to None if it has no
        result. It must not wait for the device, and its shapes must not depend on values.
    count : int
        n.
    what : str
        Its name, for the log.
    capture : bool
        Whether to try.
    first : array of n numbers, optional
        Input of the runs before the first `start`, in the type of all inputs; zeros in float32
        when omitted.

    Attributes
    ----------
    captured : bool
        Whether it is a CUDA graph.
    reason : str
        Why it is not; ''.

    """

    def __init__(self, queue: Queue, work: Callable[[Tensor], Tensor | None], count: int,
                 what: str, capture: bool = True, first: np.ndarray | None = None):
        self._queue = queue
        self._work: Callable[[Tensor], Tensor | None] | None = work     # until there is a graph
        self.captured, self.reason = False, ''
        self._graph: torch.cuda.CUDAGraph | None = None
        self._done: torch.cuda.Event | None = None
        numbers = torch.from_numpy(np.zeros(count, np.float32) if first is None else first)
        pin = queue.stream is not None
        with queue.here():
            self._staged = torch.empty(count, dtype=numbers.dtype, pin_memory=pin).copy_(numbers)
            self._numbers = self._staged.numpy()
            self._given = self._staged.to(queue.device, copy=True)
            self._landed = work(self._given)
            if pin and self._landed is not None:
                self._landed = torch.empty(self._landed.shape, dtype=torch.float32,
                                           pin_memory=True)
            if queue.stream is not None and capture:
                self._capture(what, queue.stream)

    def start(self, numbers: np.ndarray | Sequence[float]) -> None:
        """Queue a run. The one before must be finished."""
        stream = self._queue.stream
        if self._graph is None or stream is None:
            with self._queue.here():
                self.start_here(numbers)
                self._done = self._queue.mark()
            return
        with self._queue.lightly():
            self.start_here(numbers)
            if self._done is None:
                self._done = torch.cuda.Event()
            self._done.record(stream)

    def start_here(self, numbers: np.ndarray | Sequence[float]) -> None:
        """Queue a run within `Queue.here`, without an end for `finish`."""
        self._numbers[:] = numbers
        if self._graph is not None:
            self._graph.replay()
        else:
            self._run()

    def done(self) -> bool:
        """Return whether `finish` would not wait."""
        return self._done is None or self._done.query()

    def finish(self) -> np.ndarray:
        """Wait for the result of the last `start`; it holds until the next."""
        if self._done is not None:
            self._done.synchronize()
        assert self._landed is not None, 'the work has no result'
        return self._landed.numpy()

    def _run(self) -> None:
        self._given.copy_(self._staged, non_blocking=True)
        assert self._work is not None
        found = self._work(self._given)
        if self._queue.stream is None:
            self._landed = found
        elif found is not None and self._landed is not None:
            self._landed.copy_(found, non_blocking=True)

    def _capture(self, what: str, stream: torch.cuda.Stream) -> None:
        for _ in range(WARM_RUNS):
            self._run()
        stream.synchronize()
        graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
        with CAPTURING:
            # As in `Stage.capture`: the graph gets a workspace of its own, which nobody frees.
            clear_workspaces()
            try:
                with torch.cuda.graph(graph, pool=pool, stream=stream,
                                      capture_error_mode='thread_local'):
                    self._run()
            except RuntimeError as error:
                abandon_pool(pool, self._queue.device)
                if is_out_of_memory(error):
                    raise
                self.reason = f'CUDA graph capture failed: {type(error).__name__}: {error}'
                log.warning('%s: %s; it runs kernel by kernel instead, which is slower', what,
                            self.reason)
                return
            finally:
                clear_workspaces()
        self._graph, self.captured = graph, True
        self._work = None   # often a method of the owner: memory must not wait for `gc`


class Stage:
    """The work of a pass for one number of clips.

    Parameters
    ----------
    forward, read : callable
        See `Stages`.
    pixels : Tensor
        See below.
    fork : Fork, optional
        Computes the change, beside the heads; None: it is not wanted.

    Attributes
    ----------
    pixels : Tensor
        (B, T, S, S, 3) uint8, to be filled before `encode`.
    collector : Collector
        Fills them with frames.
    valid : Tensor
        (B, Hp, Wp) float32, to be filled before `read`: 1 where a patch shows the image.
    nbytes : int
        Bytes that it keeps on the device.
    encode : callable
        Computes the features of the pixels.
    read : callable
        Computes the packed heads (B, n) from the features that `encode` gave, and behind them
        their change where it is wanted.
    change : tuple of int, optional
        (T', Hp, Wp) of the change of a clip, see `ChangeReader`; None where it is not wanted.

    """

    def __init__(self, forward: Work, read: Work, pixels: Tensor, fork: Fork | None):
        self.pixels = pixels
        self.collector = Collector(pixels)
        grid = [len(pixels), *(side // PATCH for side in pixels.shape[2:4])]
        self.valid = valid = torch.ones(grid, dtype=torch.float32, device=pixels.device)
        self.nbytes = pixels.nbytes + valid.nbytes
        self.encode: Callable[[], Tensor] = lambda: forward(pixels)
        self.read: Work = read
        self.change: tuple[int, ...] | None = None
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

        Called on the current stream, which must not be the default one, when the kernels are
        warm. On an error the stage runs kernel by kernel as before.
        """
        stream = torch.cuda.current_stream(self.pixels.device)
        plain_read = self.read
        # Without an older workspace the graphs get one in their own pool, which nobody frees
        # while they live; and none of theirs is left for work outside of them.
        clear_workspaces()
        try:
            encode, features = _captured(self.encode, pool, stream)
            read = _captured(lambda: plain_read(features), pool, stream)[0]
        finally:
            clear_workspaces()
        self.encode = encode
        self.read = lambda features: read()


def _captured(work: Callable[[], Tensor], pool: Pool, stream: torch.cuda.Stream
              ) -> tuple[Callable[[], Tensor], Tensor]:
    """Capture work as a CUDA graph: a function that replays it, and its static result."""
    graph = torch.cuda.CUDAGraph()
    # Another session may serve in another thread meanwhile.
    with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode='thread_local'):
        out = work()

    def replay() -> Tensor:
        graph.replay()
        return out

    return replay, out


class Stages:
    """Stages by number of clips; the least recently used of too many is dropped.

    Parameters
    ----------
    forward : callable
        Pixels to features.
    read : callable
        Features to packed heads.
    clip_shape : tuple of int
        (T, S, S, 3).
    stream : torch.cuda.Stream
        The one on which all stages are made and run.
    fork : Fork
        For the change of features; not that of `read`.

    Attributes
    ----------
    captured : bool
        Whether passes are captured; False from the first failure on.
    reason : str
        Why they are not; ''.

    """

    def __init__(self, forward: Work, read: Work, clip_shape: tuple[int, ...],
                 stream: torch.cuda.Stream, fork: Fork):
        self._forward = forward
        self._read = read
        self._clip_shape = clip_shape
        self._stream = stream
        self._kept: OrderedDict[int, Stage] = OrderedDict()
        self._pool: Pool | None = None
        self._pool_bytes = 0
        self._change = False    # until a pass asks for it: most never do
        self._fork = fork
        self.captured = True
        self.reason = ''

    def get(self, clips: int, change: bool = False) -> Stage:
        """Return the stage for so many clips, warm; `change` if it will be asked for it."""
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

    def has(self, clips: int, change: bool = False) -> bool:
        """Return whether `get` has nothing to make or to warm."""
        return clips in self._kept and self._change >= change

    def reset(self) -> None:
        """Drop all stages. Nothing may be running."""
        self._kept.clear()
        self._pool = None  # of which the device gets the memory back with the last graph
        self._pool_bytes = 0

    def close(self) -> None:
        """Drop all stages and the networks. Nothing may be running."""
        self.reset()
        self._forward, self._read = closed, closed

    @property
    def nbytes(self) -> int:
        """Bytes of inputs, outputs and intermediate results that stay on the device."""
        # A copy: diagnostics ask while another thread adds one.
        return self._pool_bytes + sum(stage.nbytes for stage in list(self._kept.values()))

    def _make(self, clips: int) -> Stage:
        pixels = torch.zeros((clips, *self._clip_shape), dtype=torch.uint8,
                             device=self._stream.device)
        stage = Stage(self._forward, self._read, pixels, self._fork if self._change else None)
        self._warm(stage)
        problem = self._capture(stage) if self.captured else ''
        if not problem:
            return stage
        self.captured, self.reason = False, f'CUDA graph capture failed: {problem}'
        log.warning('%s on %s; passes run kernel by kernel instead, which is slower',
                    self.reason, self._stream.device)
        # The graphs of before are whole, but their pool is the one in which the capture failed.
        self._stream.synchronize()
        self.reset()
        return stage

    def _warm(self, stage: Stage) -> None:
        for _ in range(WARM_PASSES):
            stage.read(stage.encode())
        self._stream.synchronize()

    def _capture(self, stage: Stage) -> str:
        """Capture a stage; '' or why it cannot be."""
        with CAPTURING:
            if self._pool is None:
                self._pool = torch.cuda.graph_pool_handle()
            try:
                stage.capture(self._pool)
            except RuntimeError as error:
                abandon_pool(self._pool, self._stream.device)
                # With fewer clips a pass there may be room for a graph; with one there is not.
                if is_out_of_memory(error) and len(stage.pixels) > 1:
                    raise
                first = _first(error)
                return f'{type(first).__name__}: {first}'
            self._pool_bytes = _pool_bytes(self._pool)
            return ''


def _first(error: BaseException) -> BaseException:
    """Return the first error; ending the capture that it broke is another one."""
    while error.__context__ is not None:
        error = error.__context__
    return error


def _pool_bytes(pool: tuple[int, int]) -> int:
    return sum(segment['total_size'] for segment in torch.cuda.memory_snapshot()
               if tuple(segment.get('segment_pool_id', ())) == tuple(pool))
