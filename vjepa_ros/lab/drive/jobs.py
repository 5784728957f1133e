# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Spread episodes over processes, each with a model and textures of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path

import cv2
import numpy as np
import torch

from vjepa_ros.lab.drive.loop import MODES, Loop, LoopConfig, Moment, Outcome
from vjepa_ros.lab.world.clips import BANK_SEED
from vjepa_ros.lab.world.episodes.episode import EpisodeConfig, draw
from vjepa_ros.lab.world.textures.bank import Materials, TextureBank
from vjepa_ros.runtime.device import choose_device
from vjepa_ros.runtime.engine import Engine, EngineConfig

MOST_JOBS = 16       # each holds a context and what it renders in the memory of a GPU
BATCH = {'cuda': 13, 'cpu': 1}


@dataclass(frozen=True)
class Recipe:
    """What each process needs.

    Attributes
    ----------
    seed
        Of the episodes.
    engine
        The model; its device also draws.
    episode, loop
        How is driven, and guarded.
    follow
        Numbers of episodes whose moments are kept.
    film
        Folder for the last pictures of these, by mode; None writes none.
    """

    seed: int
    engine: EngineConfig
    episode: EpisodeConfig = field(default_factory=EpisodeConfig)
    loop: LoopConfig = field(default_factory=LoopConfig)
    follow: frozenset[int] = frozenset()
    film: Path | None = None


class _Maker:
    """What is loaded once and serves many batches."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        device = choose_device(recipe.engine.device).device
        self.bank = TextureBank.procedural(BANK_SEED).to(device)
        self.materials = Materials(self.bank.groups, self.bank.walks)

    @cached_property
    def engine(self) -> Engine:
        """The model; who drives without guard needs none."""
        return Engine.load(self.recipe.engine)

    def drive(self, mode: str, numbers: Sequence[int],
              tick: Callable[[], None] = lambda: None) -> list[Outcome]:
        """Drive some episodes in one mode."""
        recipe = self.recipe
        episodes = [draw(recipe.seed, number, self.materials, recipe.episode)
                    for number in numbers]
        film = None if recipe.film is None else _Film(recipe.film / mode)
        engine = None if mode == MODES[0] else self.engine
        loop = Loop(episodes, recipe.episode, self.bank, mode, engine, recipe.loop,
                    recipe.follow, None if film is None else film.add)
        return loop.run(tick)


class _Film:
    """Writes pictures of episodes as PNG, one folder each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, number: int, picture: np.ndarray, moment: Moment) -> None:
        folder = self._folder / f'{number:04d}'
        folder.mkdir(parents=True, exist_ok=True)
        shown = picture.copy()
        text = (f't {moment.time:.2f}  v {moment.speed:.2f} of {moment.wanted:.2f}  '
                f'd {moment.distance:.2f}  ttc {moment.time_to_contact:.1f}')
        for row, line in enumerate((text, f'{moment.state} {moment.reason}')):
            cv2.putText(shown, line, (4, 12 + 13 * row), cv2.FONT_HERSHEY_SIMPLEX, 0.36,
                        (0, 0, 0), 3, cv2.LINE_AA)
            cv2.putText(shown, line, (4, 12 + 13 * row), cv2.FONT_HERSHEY_SIMPLEX, 0.36,
                        (255, 255, 255), 1, cv2.LINE_AA)
        index = len(list(folder.iterdir()))
        cv2.imwrite(str(folder / f'{index:04d}.png'), shown[..., ::-1])


_maker: _Maker | None = None      # of a process that was started here


def _prepare(recipe: Recipe, threads: int) -> None:
    global _maker
    torch.set_num_threads(threads)
    cv2.setNumThreads(threads)
    _maker = _Maker(recipe)


def _work(mode: str, numbers: Sequence[int]) -> list[Outcome]:
    return _maker.drive(mode, numbers)


def usual_jobs(on_gpu: bool, tasks: int) -> int:
    """Processes for this machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()
    return max(1, min(cores or 1, tasks, MOST_JOBS if on_gpu else tasks))


def drive_all(recipe: Recipe, modes: Sequence[str], numbers: Sequence[int], jobs: int,
              batch: int, done: Callable[[int], None]) -> dict[str, list[Outcome]]:
    """Drive all episodes in all modes.

    Parameters
    ----------
    recipe
        What is driven.
    modes, numbers
        Which.
    jobs, batch
        Processes, and episodes that are driven at once in each.
    done
        Told how many episodes have ended.

    Returns
    -------
    dict of str to list of Outcome
        By mode, in the order of the numbers.

    Raises
    ------
    OSError
        When a process ends before its work is done.
    """
    parts = [list(numbers[i:i + batch]) for i in range(0, len(numbers), batch)]
    tasks = [(mode, part) for mode in modes for part in parts]
    found: dict[str, dict[int, Outcome]] = {mode: {} for mode in modes}

    def take(mode: str, outcomes: list[Outcome]) -> None:
        found[mode].update({o.number: o for o in outcomes})
        done(len(outcomes))

    if jobs == 1:
        maker = _Maker(recipe)
        for mode, part in tasks:
            take(mode, maker.drive(mode, part))
    else:
        threads = max(1, (os.cpu_count() or 1) // jobs)
        # Not forked: neither CUDA nor the threads of PyTorch survive that.
        with ProcessPoolExecutor(jobs, get_context('spawn'), _prepare,
                                 (recipe, threads)) as pool:
            try:
                futures = {pool.submit(_work, *task): task[0] for task in tasks}
                for future in as_completed(futures):
                    take(futures[future], future.result())
            except BrokenProcessPool as error:
                raise OSError(f'one of {jobs} processes ended before its work was done, perhaps '
                              'for want of memory; try fewer with --jobs') from error
    return {mode: [found[mode][n] for n in numbers] for mode in modes}
