# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Spread tasks over processes, each with its own context, such as a loaded model."""

from __future__ import annotations

import os
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, as_completed, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait as wait_for
from threading import Thread
from typing import Any

import cv2
import torch

VISIBLE = 'CUDA_VISIBLE_DEVICES'
_make: Callable[[], Any] | None = None
_context: Any = None     # of a process that was started here, made for its first task


class LoadError(ValueError):
    """The context of a process cannot be made."""


def run_all(tasks: Sequence[tuple[Any, ...]], jobs: int, make: Callable[[], Any],
            done: Callable[[Any], object], gpus: Sequence[str] = ()) -> list[Any]:
    """Call functions with a context of each process, which sees one of the `gpus`, in order."""
    if jobs == 1:
        context, results = make(), []
        for function, *arguments in tasks:
            results.append(function(context, *arguments))
            done(results[-1])
        return results
    pool = _processes(jobs, make, gpus)
    try:
        futures: list[Future] = [pool.submit(_work, *task) for task in tasks]
        for future in as_completed(futures):
            done(future.result())
        return [future.result() for future in futures]
    except BrokenProcessPool as error:
        raise OSError(f'one of {jobs} processes ended before its work was done, perhaps for lack '
                      'of memory; try fewer with --jobs') from error
    finally:
        pool.shutdown(cancel_futures=True)


def run_each(tasks: Sequence[Any], jobs: int, make: Callable[[], Callable[[Any], Any]],
             done: Callable[[Any, Any, str], object]) -> None:
    """Run what `make` returns on tasks; those of a process that dies are tried once more."""
    waiting = deque(tasks)
    while waiting:
        for task in _until_one_dies(waiting, jobs, make, done):
            if _until_one_dies(deque([task]), 1, make, done):
                done(task, None, 'its process ended twice, for lack of memory (try fewer with '
                     '--jobs) or because a library hung')


def _until_one_dies(waiting: deque[Any], jobs: int, make: Callable[[], Callable[[Any], Any]],
                    done: Callable[[Any, Any, str], object]) -> list[Any]:
    """Take waiting tasks until a process dies; return those that it may have been at."""
    pool = _processes(min(jobs, len(waiting)), make)
    running: dict[Future, Any] = {}
    suspects = []
    try:
        while running or (waiting and not suspects):
            while waiting and len(running) < jobs and not suspects:
                task = waiting.popleft()
                try:
                    running[pool.submit(_work, _call, task)] = task
                except BrokenProcessPool:
                    suspects.append(task)
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                task, error = running.pop(future), future.exception()
                if isinstance(error, BrokenProcessPool):
                    suspects.append(task)
                elif isinstance(error, LoadError):
                    raise error
                elif error is None:
                    done(task, future.result(), '')
                elif isinstance(error, (ValueError, OSError)):   # of files, weights and disks
                    done(task, None, str(error) or type(error).__name__)
                else:
                    done(task, None, ''.join(traceback.format_exception(error)))
    finally:
        pool.shutdown(cancel_futures=True)
    return suspects


def _processes(count: int, make: Callable[[], Any], gpus: Sequence[str] = ()
               ) -> ProcessPoolExecutor:
    # Not forked, because neither CUDA nor the threads of PyTorch survive that.
    start = get_context('spawn')
    threads = max(1, usable_cores() // count)
    return ProcessPoolExecutor(count, start, _prepare, (make, threads, gpus, start.Value('i')))


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
    global _make
    Thread(target=_end_with_parent, daemon=True).start()
    with started.get_lock():
        number: int = started.value
        started.value += 1
    if gpus:      # CUDA reads it when it is first used, which nothing here has done yet
        os.environ[VISIBLE] = gpus[number % len(gpus)]
    torch.set_num_threads(threads)
    cv2.setNumThreads(threads)
    _make = make


def _end_with_parent() -> None:
    """End when the process that started this one has ended, which a killed one does not tell."""
    parent = parent_process()
    assert parent is not None, 'this process was started by another'
    wait_for([parent.sentinel])
    os._exit(1)


def _work(function: Callable[..., Any], *arguments: Any) -> Any:
    global _context
    if _context is None:
        assert _make is not None, 'this process was started by another'
        try:
            _context = _make()
        except (ValueError, OSError) as error:      # of weights and disks
            raise LoadError(str(error)) from error
    return function(_context, *arguments)


def _call(work: Callable[[Any], Any], task: Any) -> Any:
    return work(task)
