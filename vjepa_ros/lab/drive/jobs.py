# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Drive batches of episodes, in one process or several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import cv2
import numpy as np

from vjepa_ros.lab.drive.loop import Loop, MODES, Moment, Outcome, Recorder
from vjepa_ros.lab.worker_pool import WorkerPool, visible_gpus
from vjepa_ros.lab.world.clips import BANK_SEED
from vjepa_ros.lab.world.episodes import episode, get_past
from vjepa_ros.lab.world.episodes.episode import EpisodeConfig
from vjepa_ros.lab.world.episodes.world import EpisodeWorld
from vjepa_ros.lab.world.rendering.render import drawing_device
from vjepa_ros.lab.world.textures.bank import Materials, TextureBank
from vjepa_ros.runtime.device import choose_device
from vjepa_ros.runtime.model import Model, ModelConfig

MOST_JOBS = 16       # on a GPU, whose memory holds a context and the scenes of each
BATCH = {'cuda': 13, 'cpu': 1}
# Episodes about stopping in time, and about getting to the goal around what is in the way.
SETS = {'stop': episode.draw, 'get_past': get_past.draw}


@dataclass(frozen=True)
class Recipe:
    """What to drive."""

    seed: int  # seed of the episodes
    engine: ModelConfig  # the model; its device also renders
    episode: EpisodeConfig = field(default_factory=EpisodeConfig)
    follow: frozenset[int] = frozenset()  # numbers of episodes to record
    film: Path | None = None  # folder for the images of these, by mode; None writes none
    set: str = 'stop'  # which episodes, one of `SETS`
    width: int = 384  # of rendered images [px]


class Driver:
    """Drives batches of episodes with a model and textures that are loaded once."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        device = drawing_device(choose_device(recipe.engine.device).device)
        self.bank = TextureBank.procedural(BANK_SEED).to(device)
        self.materials = Materials(self.bank.groups, self.bank.walks)

    @cached_property
    def engine(self) -> Model:
        """Load the model; driving without guard does not load it."""
        return Model.load(self.recipe.engine)

    def drive(self, mode: str, numbers: Sequence[int]) -> list[Outcome]:
        """Drive some episodes in one mode."""
        recipe = self.recipe
        write = None
        if recipe.film is not None:
            write = partial(_write_image, recipe.film / mode)
        engine = None if mode == MODES[0] else self.engine
        episodes = [SETS[recipe.set](recipe.seed, number, self.materials, recipe.episode)
                    for number in numbers]
        world = EpisodeWorld(episodes, recipe.episode, self.bank, recipe.width)
        return Loop(world, mode, engine, Recorder(recipe.follow, write)).run()

    def part(self, mode: str, numbers: Sequence[int]) -> tuple[str, list[Outcome]]:
        """Return the mode and what `drive` returns."""
        return mode, self.drive(mode, numbers)


def _write_image(folder: Path, number: int, picture: np.ndarray, moment: Moment) -> None:
    """Write the next image of an episode as PNG."""
    folder = folder / f'{number:04d}'
    folder.mkdir(parents=True, exist_ok=True)
    index = len(list(folder.iterdir()))
    cv2.imwrite(str(folder / f'{index:04d}.png'), picture[..., ::-1])


def drive_all(recipe: Recipe, modes: Sequence[str], numbers: Sequence[int], jobs: int,
              batch: int, done: Callable[[str, list[Outcome]], object]
              ) -> dict[str, list[Outcome]]:
    """Drive all episodes in all modes."""
    parts = [numbers[i:i + batch] for i in range(0, len(numbers), batch)]
    tasks = [(Driver.part, mode, part) for mode in modes for part in parts]
    gpus = [] if ':' in recipe.engine.device else visible_gpus()
    with WorkerPool(jobs, partial(Driver, recipe), gpus=gpus) as pool:
        driven = pool.run(tasks, lambda ended: done(*ended))
    found: dict[str, list[Outcome]] = {mode: [] for mode in modes}
    for mode, outcomes in driven:
        found[mode] += outcomes
    return found
