# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Repeat a piece of work of static shape on a device: as a CUDA graph where that is possible."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.runtime.memory import CAPTURING, abandon_pool, clear_workspaces, is_out_of_memory

log = logging.getLogger(__name__)

WARM_RUNS = 2   # kernels are chosen and loaded in the first


class Queue:
    """The order in which work is done on a device.

    On CUDA it is a stream of its own that goes first where others compete; elsewhere everything
    is done when a call returns.

    Parameters
    ----------
    device : torch.device
        Where the work is done.

    """

    def __init__(self, device: torch.device):
        self.device = device
        self.stream: torch.cuda.Stream | None = None
        self._beside: Queue | None = None
        if device.type == 'cuda':
            with torch.cuda.device(device):
                self.stream = torch.cuda.Stream(device, priority=-1)

    def beside(self) -> Queue:
        """A second queue of the device, the same at every call.

        PyTorch has 32 streams and then gives the first ones again: who takes a new one each time
        meets at last that of a capture.
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

    def mark(self) -> torch.cuda.Event | None:
        """An event that comes when what is queued now is done; None: it is."""
        if self.stream is None:
            return None
        event = torch.cuda.Event(enable_timing=True)
        event.record(self.stream)
        return event

    def wait_for(self, event: torch.cuda.Event | None) -> None:
        """Let what is queued from now on wait for an event of another queue."""
        if self.stream is not None and event is not None:
            self.stream.wait_event(event)

    def settle(self) -> None:
        """Wait until everything is done."""
        if self.stream is not None:
            self.stream.synchronize()


class Replay:
    """A function of numbers from the host that gives numbers to the host.

    Numbers come and go within the graph: to start it is a single call of the device.

    Parameters
    ----------
    queue : Queue
        Where it runs. Made and called by one thread at once.
    work : callable
        From the numbers (n,) on the device to a float32 tensor there, or to None where what it
        does is all. It must not wait for the device, and its shapes must not depend on values.
    count : int
        n.
    what : str
        Its name, for the log.
    capture : bool
        Whether to try; not after work that it depends on could not be captured.
    first : array of n numbers, optional
        Those of the runs before the first `start`, of the type that all will have. Without, zeros
        in float32.

    Attributes
    ----------
    captured : bool
        Whether it is a CUDA graph.
    reason : str
        Why it is not; ''.

    """

    def __init__(self, queue: Queue, work: Callable[[Tensor], Tensor | None], count: int,
                 what: str, capture: bool = True, first: np.ndarray | None = None):
        self._queue, self._work = queue, work   # None once there is a graph
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
            if pin and capture:
                self._capture(what)

    def start(self, numbers: np.ndarray | Sequence[float]) -> None:
        """Queue a run. The one before must be finished."""
        with self._queue.here():
            self.start_here(numbers)
            self._done = self._queue.mark()

    def start_here(self, numbers: np.ndarray | Sequence[float]) -> None:
        """The same within `Queue.here`, for who marks the end himself and wants no result."""
        self._numbers[:] = numbers
        if self._graph is not None:
            self._graph.replay()
        else:
            self._run()

    def finish(self) -> np.ndarray:
        """Wait for the result of the last `start`; it holds until the next."""
        if self._done is not None:
            self._done.synchronize()
        return self._landed.numpy()

    def _run(self) -> None:
        self._given.copy_(self._staged, non_blocking=True)
        found = self._work(self._given)
        if self._queue.stream is None:
            self._landed = found
        elif found is not None:
            self._landed.copy_(found, non_blocking=True)

    def _capture(self, what: str) -> None:
        stream = self._queue.stream
        for _ in range(WARM_RUNS):
            self._run()
        stream.synchronize()
        graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
        with CAPTURING:
            # As in `GraphStage`: the graph gets a workspace of its own, which nobody frees.
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
        self._work = None   # often a method of who holds this: memory must not wait for `gc`
