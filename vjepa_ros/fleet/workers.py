# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run tasks in processes that may die: what a dead one was at is tried once more, then given up.

One that waits too long for a file dies by itself.

The pools of the standard library give up everything when one of their processes dies.
"""

from __future__ import annotations

import signal
import tempfile
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

from vjepa_ros.lab.worker_pool import usable_cores

Task = TypeVar('Task')
ATTEMPTS = 2       # of a task, where its process dies
READ_S = 300       # for opening a recording, or reading its next picture
UNSTARTED = -1     # number of the task of a process that still loads
# Not forked, because neither CUDA nor the threads of PyTorch survive that.
_CONTEXT = get_context('spawn')


@dataclass(eq=False)
class _Worker:
    process: BaseProcess
    pipe: Connection
    at: int = UNSTARTED      # number of its task


class Workers(Generic[Task]):
    """Runs tasks in a number of processes.

    Parameters
    ----------
    count
        Number of processes.
    make
        Makes what a process needs, such as a model, once in each; picklable. It gets the number
        of threads for a process.
    done
        Called with a task, and its result or the text of what went wrong.
    """

    def __init__(self, count: int, make: Callable[[int], Callable[[Task], Any]],
                 done: Callable[[Task, Any, str], object]) -> None:
        self._count, self._make, self._done = count, make, done
        self._waiting: deque[int] = deque()
        self._workers: list[_Worker] = []
        self._leaving: list[BaseProcess] = []      # those without work; ending takes them a while
        self._deaths: dict[int, int] = {}

    def run(self, tasks: Sequence[Task]) -> None:
        """Run all tasks, in this order as far as there are processes."""
        self._waiting = deque(range(len(tasks)))
        # Also those that are killed leave nothing there.
        with tempfile.TemporaryDirectory(prefix='vjepa_ros_') as self._folder:
            try:
                while self._waiting or self._workers:
                    while self._waiting and len(self._workers) < min(
                            self._count, len(self._waiting) + len(self._workers)):
                        self._start()
                    pipes = {worker.pipe: worker for worker in self._workers}
                    for pipe in wait(list(pipes)):
                        self._hear(pipes[pipe], tasks)      # type: ignore[index]
            finally:
                for worker in self._workers:
                    worker.process.terminate()
                    self._leaving.append(worker.process)
                self._workers.clear()
                for process in self._leaving:
                    process.join()
                self._leaving.clear()

    def _start(self) -> None:
        here, there = _CONTEXT.Pipe()
        threads = max(1, usable_cores() // self._count)
        process = _CONTEXT.Process(target=_serve, daemon=True,
                                   args=(there, self._make, threads, self._folder))
        process.start()
        there.close()
        self._workers.append(_Worker(process, here))

    def _hear(self, worker: _Worker, tasks: Sequence[Task]) -> None:
        try:
            result, problem = worker.pipe.recv()
        except (EOFError, OSError):
            self._bury(worker, tasks)
            return
        if worker.at == UNSTARTED:
            if problem:
                raise ValueError(problem)
            self._deaths.pop(UNSTARTED, None)
        else:
            self._done(tasks[worker.at], result, problem)
        if not self._waiting:
            worker.pipe.close()
            self._workers.remove(worker)
            self._leaving.append(worker.process)
            return
        worker.at = self._waiting.popleft()
        worker.pipe.send(tasks[worker.at])

    def _bury(self, worker: _Worker, tasks: Sequence[Task]) -> None:
        worker.process.join()
        self._workers.remove(worker)
        code = worker.process.exitcode
        how = f'signal {-code}' if code is not None and code < 0 else f'exit code {code}'
        self._deaths[worker.at] = deaths = self._deaths.get(worker.at, 0) + 1
        if worker.at == UNSTARTED:
            if deaths >= ATTEMPTS:
                raise ValueError(f'processes end while they load the model ({how}), perhaps for '
                                 'lack of memory; try fewer with --jobs')
        elif code == -signal.SIGALRM:
            self._done(tasks[worker.at], None, f'a step of reading it took more than {READ_S} s; '
                       'it is left out')
        elif deaths < ATTEMPTS:
            self._waiting.append(worker.at)
        else:
            self._done(tasks[worker.at], None, f'its process ended twice ({how}), perhaps for '
                       'lack of memory; try fewer with --jobs')


@contextmanager
def reading() -> Iterator[None]:
    """End this process, unless it is the main one, when what is done within takes too long.

    A library that hangs hears nothing else.
    """
    if parent_process() is None:
        yield
        return
    signal.alarm(READ_S)
    try:
        yield
    finally:
        signal.alarm(0)


def _serve(pipe: Connection, make: Callable[[int], Callable[[Any], Any]], threads: int,
           folder: str) -> None:
    """Work on what comes through a pipe until it is closed."""
    tempfile.tempdir = folder
    try:
        work = make(threads)
    except Exception as error:
        pipe.send((None, str(error) or type(error).__name__))
        return
    pipe.send((None, ''))
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        try:
            answer = work(task), ''
        except (ValueError, OSError) as error:      # expected: of recordings, files and disks
            answer = None, str(error)
        except Exception:
            answer = None, traceback.format_exc()
        pipe.send(answer)
