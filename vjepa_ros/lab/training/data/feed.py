# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Supply training with batches: scenes drawn ahead on threads, rendered when they are wanted."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from vjepa_ros.lab.training.data.masking import (
    block_places,
    hidden_places,
    places_kept,
    random_places,
)
from vjepa_ros.lab.training.network import Batch
from vjepa_ros.lab.world.clips import ClipWorld, WorldClips
from vjepa_ros.lab.world.seeds import SPLIT_BATCH, derive, generator
from vjepa_ros.lab.world.targets import Targets, clip_targets, joined, mirror
from vjepa_ros.model.variants import PATCH

Worlds = Callable[[int], ClipWorld]
REUSE_GAP = 8       # steps between two uses of a clip, so that no batch resembles the one before


@dataclass(frozen=True)
class Order:
    """What one step wants.

    Attributes
    ----------
    step : int
        Number of the step.
    size : int
        Pixels per side.
    kept : float
        Share of places the encoder sees.
    """

    step: int
    size: int
    kept: float


class Feed(Protocol):
    """Supplies training with batches."""

    def batch(self, order: Order) -> Batch:
        """The batch of a step, the same whenever it is asked for."""


class WorldFeed:
    """Endless batches of rendered clips, the same for the same seed, step and rank.

    Drawing is cheap and rendering is not, so clips may be used several times: every step
    renders one part of its batch and takes the others from steps before, mirrored and thinned
    anew. What is needed and no longer there (after a pause, at another image size) is rendered
    again, so that a batch never depends on what happened before.

    Parameters
    ----------
    worlds : callable
        Gives the world of an image size; called once per size.
    count : int
        Clips per batch, a multiple of `reuse`.
    seed, rank : int
        Of the run and of this process.
    device : torch.device
        Where clips are rendered and batches end up.
    blocks : bool
        Hide large blocks and tell what is hidden (for JEPA), or drop places evenly.
    workers : int
        Threads that draw ahead.
    reuse : int
        Steps that use a clip, REUSE_GAP steps apart.

    Raises
    ------
    ValueError
        When `count` is no multiple of `reuse`.
    """

    def __init__(self, worlds: Worlds, count: int, seed: int, rank: int, device: torch.device,
                 blocks: bool = False, workers: int = 1, reuse: int = 1):
        if count % reuse:
            raise ValueError(f'{count} clips of a batch cannot be made of {reuse} equal parts: '
                             'choose a batch that is a multiple of reuse')
        self._make_world = worlds
        self._worlds: dict[int, ClipWorld] = {}
        self._count, self._seed, self._rank = count, seed, rank
        self._device, self._blocks, self._reuse = device, blocks, reuse
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix='scenes')
        self._drawn: dict[tuple[int, int], Future] = {}
        self._made: dict[tuple[int, int], tuple[Tensor, Targets]] = {}
        self._ahead = 2 * workers

    def __enter__(self) -> WorldFeed:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(cancel_futures=True)

    def batch(self, order: Order) -> Batch:
        """The batch of a step. Steps are expected one after the other; others only cost time."""
        parts = [(made_at(order.step, age), order.size) for age in range(self._reuse)]
        coming = [(order.step + ahead, order.size) for ahead in range(1, self._ahead + 1)]
        self._forget(order)
        for part in [*(p for p in parts if p not in self._made), *coming]:
            if part not in self._drawn:
                self._drawn[part] = self._pool.submit(
                    self._world(part[1]).sample,
                    derive(self._seed, 'scenes', part[0], self._rank),
                    self._count // self._reuse)
        for part in parts:
            if part not in self._made:
                self._made[part] = self._film(part)
        frames = torch.cat([self._made[p][0] for p in parts])
        targets = joined([self._made[p][1] for p in parts])
        random = generator(self._seed, 'places', order.step, self._rank)
        # A mirrored scene is as likely as the scene itself, and danger has no side.
        flip = upload(torch.rand(self._count, generator=random) < 0.5, self._device)
        places = draw_places(order.size // PATCH, order.kept, self._count, self._blocks, random)
        kept, hidden = (p if p is None else upload(p, self._device) for p in places)
        return Batch(mirror(frames, flip, 3), targets.flipped(flip), kept, hidden)

    def _film(self, part: tuple[int, int]) -> tuple[Tensor, Targets]:
        clips = self._world(part[1]).film(upload(self._drawn.pop(part).result(), self._device))
        return clips.frames, clip_targets(clips)

    def _forget(self, order: Order) -> None:
        oldest = order.step - (self._reuse - 1) * REUSE_GAP
        for step, size in list(self._made):
            if size != order.size or not oldest <= step <= order.step:
                del self._made[step, size]
        for part in [p for p in self._drawn if p[1] != order.size]:
            self._drawn.pop(part).cancel()

    def _world(self, size: int) -> ClipWorld:
        if size not in self._worlds:
            self._worlds[size] = self._make_world(size)
        return self._worlds[size]


def made_at(step: int, age: int) -> int:
    """The step whose clips a step uses for the part of its batch of an age, 0 the new one.

    At the start of a run, when there are no old clips, those there are serve more often.
    """
    made = step - age * REUSE_GAP
    return made if made >= 0 else made % (step + 1)


def draw_places(side: int, share: float, count: int, blocks: bool,
                random: torch.Generator) -> tuple[Tensor | None, Tensor | None]:
    """Places to keep and to hide in an image of `side` x `side` patches, see `Batch`."""
    if share == 1:
        return None, None
    kept = places_kept(share, side, side)
    if not blocks:
        return random_places(count, kept, side * side, random), None
    seen = block_places(count, kept, side, side, random)
    return seen, hidden_places(seen, side * side)


def upload(values: Any, device: torch.device) -> Any:
    """Copy a tensor, or all tensors of a dataclass, to a device without waiting for it."""
    if isinstance(values, Tensor):
        if device.type == 'cuda':
            return values.pin_memory().to(device, non_blocking=True)
        return values.to(device)
    if is_dataclass(values):
        return replace(values, **{f.name: upload(getattr(values, f.name), device)
                                  for f in fields(values)})
    return values


def split_batches(world: ClipWorld, first_seed: int, count: int,
                  batch: int = SPLIT_BATCH) -> list[Callable[[], WorldClips]]:
    """Ways to get the clips of a fixed split, in pieces that do not depend on the machine.

    Parameters
    ----------
    world : ClipWorld
        Renders them.
    first_seed : int
        Such as HELD_OUT_SEED; each piece has the next seed.
    count : int
        Clips in all.
    batch : int
        Clips per seed; another number gives other clips.
    """
    def piece(number: int) -> Callable[[], WorldClips]:
        return lambda: world.clips(first_seed + number, min(batch, count - number * batch))

    return [piece(number) for number in range(-(-count // batch))]
