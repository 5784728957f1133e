# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Spread an evaluation over processes, each with a model and one thread or a few of its own.

Threads of one process hardly help: between the layers of a small model, and in all that is not
the model, they wait for each other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from types import TracebackType
from typing import Any

import cv2
import torch

from vjepa_ros.lab.evaluation.recording_replay import Setup
from vjepa_ros.perception.settings import Settings, TrackConfig
from vjepa_ros.runtime.engine import Engine, EngineConfig

MOST_ON_GPU = 6                  # each holds a context and what it renders in its memory
Done = Callable[[Any], None]     # told what each task gave, in the order in which they end
_setup: Setup | None = None      # of a process that was started here


@dataclass(frozen=True)
class Recipe:
    """What each process makes its `Setup` of; the fields are those of `Setup`."""

    methods: tuple[str, ...]
    settings: Settings
    track: TrackConfig
    engine: EngineConfig | None
    topic: str | None = None

    def setup(self) -> Setup:
        """Load the model."""
        engine = None if self.engine is None else Engine.load(self.engine)
        return Setup(self.methods, self.settings, self.track, engine, self.topic)


class Workers:
    """Runs tasks in processes, or here when one is enough.

    Parameters
    ----------
    count
        Processes. With 1 the tasks run here, with `setup`.
    recipe
        For the processes.
    setup
        As made here.
    """

    def __init__(self, count: int, recipe: Recipe, setup: Setup) -> None:
        self.count = count
        self._here = setup
        self._pool: ProcessPoolExecutor | None = None
        if count > 1:
            threads = max(1, (os.cpu_count() or 1) // count)
            # Not forked: neither CUDA nor the threads of PyTorch survive that.
            self._pool = ProcessPoolExecutor(count, get_context('spawn'), _prepare,
                                             (recipe, threads))

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def run(self, tasks: Sequence[tuple[Any, ...]], done: Done) -> list[Any]:
        """What each task gives, in order.

        Parameters
        ----------
        tasks
            (function, argument, ...) of things that can be sent to a process; the function is
            called with the setup before the arguments. They are begun in this order.
        done
            Called after each task with what it gave.

        Raises
        ------
        OSError
            When a process ends before its work is done.
        """
        if self._pool is None:
            out = []
            for function, *arguments in tasks:
                out.append(function(self._here, *arguments))
                done(out[-1])
            return out
        try:
            futures: list[Future] = [self._pool.submit(_work, *task) for task in tasks]
            for future in as_completed(futures):
                done(future.result())
        except BrokenProcessPool as error:
            raise OSError(f'one of {self.count} processes ended before its work was done, '
                          'perhaps for want of memory; try fewer with --jobs') from error
        return [future.result() for future in futures]


def _prepare(recipe: Recipe, threads: int) -> None:
    global _setup
    torch.set_num_threads(threads)
    cv2.setNumThreads(threads)
    _setup = recipe.setup()


def _work(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(_setup, *arguments)


def recipe_of(setup: Setup) -> Recipe:
    """How another process makes the same setup."""
    return Recipe(setup.methods, setup.settings, setup.track,
                  None if setup.engine is None else setup.engine.config, setup.topic)


def usual_jobs(tasks: int, on_gpu: bool) -> int:
    """Processes for so many tasks on this machine: as many as it has cores for them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()
    return max(1, min(cores or 1, tasks, MOST_ON_GPU if on_gpu else tasks))
