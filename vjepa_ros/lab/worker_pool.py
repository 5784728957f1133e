# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Spread tasks over processes, each with its own context, such as a loaded model.

Threads of one process hardly help: between the layers of a small model, and in everything beside
the model, they wait for each other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from threading import Thread
from types import TracebackType
from typing import Any

import cv2
import torch

VISIBLE = 'CUDA_VISIBLE_DEVICES'
_context: Any = None     # of a process that was started here


class WorkerPool:
    """Runs tasks in processes, or in this process when one is enough.

    `count`: of processes; 1 runs the tasks here; `make`: makes the context, once in each process,
    and must be picklable; `here`: context for this process, when it exists already; `gpus`: names
    as in CUDA_VISIBLE_DEVICES, of which each process sees one in turn; without names all see what
    this process sees.
    """

    def __init__(self, count: int, make: Callable[[], Any], here: Any = None,
                 gpus: Sequence[str] = ()) -> None:
        self.count = count
        self._make, self._here = make, here
        self._pool: ProcessPoolExecutor | None = None
        if count > 1:
            threads = max(1, usable_cores() // count)
            # Not forked, because neither CUDA nor the threads of PyTorch survive that.
            start = get_context('spawn')
            self._pool = ProcessPoolExecutor(count, start, _prepare,
                                             (make, threads, gpus, start.Value('i')))

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def run(self, tasks: Sequence[tuple[Any, ...]], done: Callable[[Any], object]) -> list[Any]:
        """Run tasks and return their results in order."""
        if self._pool is None:
            self._here = self._make() if self._here is None else self._here
            results = []
            for function, *arguments in tasks:
                results.append(function(self._here, *arguments))
                done(results[-1])
            return results
        try:
            futures: list[Future] = [self._pool.submit(_work, *task) for task in tasks]
            for future in as_completed(futures):
                done(future.result())
        except BrokenProcessPool as error:
            raise OSError(f'one of {self.count} processes ended before its work was done, '
                          'perhaps for lack of memory; try fewer with --jobs') from error
        return [future.result() for future in futures]


def usual_jobs(tasks: int, most: int | None = None) -> int:
    """Return the number of processes for some tasks: one per core, at most `most`."""
    return max(1, min(usable_cores(), tasks, most or tasks))


def usable_cores() -> int:
    """Return the number of cores on which this process may run."""
    if hasattr(os, 'sched_getaffinity'):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def visible_gpus() -> list[str]:
    """Return the names of the GPUs that this process may use, as in CUDA_VISIBLE_DEVICES."""
    names = [name for name in os.environ.get(VISIBLE, '').split(',') if name]
    count = torch.cuda.device_count()
    return names[:count] or [str(n) for n in range(count)]


def _prepare(make: Callable[[], Any], threads: int, gpus: Sequence[str], started: Any) -> None:
    global _context
    Thread(target=_end_with_parent, daemon=True).start()
    with started.get_lock():
        number: int = started.value
        started.value += 1
    if gpus:      # CUDA reads it when it is first used, which nothing here has done yet
        os.environ[VISIBLE] = gpus[number % len(gpus)]
    torch.set_num_threads(threads)
    cv2.setNumThreads(threads)
    _context = make()


def _end_with_parent() -> None:
    """End when the process that started this one has ended, which a killed one does not tell."""
    parent = parent_process()
    assert parent is not None, 'this process was started by another'
    wait([parent.sentinel])
    os._exit(1)


def _work(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(_context, *arguments)
