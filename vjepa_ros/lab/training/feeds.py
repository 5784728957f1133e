# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Supply training with batches: rendered anew, or cached features; choose what is hidden."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from vjepa_ros.lab.training.network import Batch, Network
from vjepa_ros.lab.world.clips import ClipWorld, WorldClips
from vjepa_ros.lab.world.seeds import SPLIT_BATCH, derive, generator
from vjepa_ros.lab.world.targets import Targets, clip_targets, joined, mirror
from vjepa_ros.model.variants import PATCH

SHORT_SHARE = 0.2              # of the steps with the fewest tubelets
BLOCKS = 8                     # blocks drawn for each clip
BLOCK_AREA = (0.10, 0.25)      # of the image
BLOCK_ASPECT = (0.75, 1.5)


def places_kept(share: float, rows: int, cols: int) -> int:
    """Return the number of places that a share keeps, at least one."""
    return max(1, round(share * rows * cols))


def random_places(count: int, kept: int, places: int, generator: torch.Generator) -> Tensor:
    """Choose places evenly at random, (count, kept) int64, ascending."""
    order = torch.rand(count, places, generator=generator).argsort(1)
    return order[:, :kept].sort(1).values


def block_places(count: int, kept: int, rows: int, cols: int,
                 generator: torch.Generator) -> Tensor:
    """Choose the places that large blocks leave over, (count, kept) int64, ascending.

    Blocks of random size and place are drawn for each clip, as in V-JEPA. So that all clips
    keep equally many places, places outside the blocks are kept first and in random order, then
    those inside.
    """
    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, BLOCKS, generator=generator)

    area = uniform(*BLOCK_AREA) * rows * cols
    aspect = torch.exp(uniform(math.log(BLOCK_ASPECT[0]), math.log(BLOCK_ASPECT[1])))
    inside = torch.ones(count, BLOCKS, rows, cols, dtype=torch.bool)
    for axis, side, length in ((2, rows, (area * aspect).sqrt()),
                               (3, cols, (area / aspect).sqrt())):
        length = length.round().clamp(1, side)
        start = (uniform(0, 1) * (side - length + 1)).floor()
        at = torch.arange(side).view(1, 1, -1)
        line = (at >= start[..., None]) & (at < (start + length)[..., None])
        inside &= line.unsqueeze(3 if axis == 2 else 2)
    # Blocks are laid down until about as much is hidden as is wanted: fewer blocks when much is
    # kept. What is covered by an early block is hidden first.
    first = torch.where(inside, torch.arange(BLOCKS).view(1, -1, 1, 1), BLOCKS).amin(1)
    rank = first.flatten(1).float() + torch.rand(count, rows * cols, generator=generator)
    return rank.argsort(1, descending=True)[:, :kept].sort(1).values


def hidden_places(kept: Tensor, places: int) -> Tensor:
    """Return the other places, (B, places - n) int64, ascending."""
    seen = torch.zeros(len(kept), places, dtype=torch.bool).scatter_(1, kept, True)
    return seen.int().argsort(dim=1, stable=True)[:, :places - kept.shape[1]]


Worlds = Callable[[int], Sequence[ClipWorld]]
REUSE_GAP = 8       # steps between two uses of a clip, so that no batch resembles the one before


@dataclass(frozen=True)
class Order:
    """What one step wants."""

    step: int  # number of the step
    size: int  # pixels per side
    kept: float  # share of places the encoder sees


@dataclass(frozen=True)
class Draw:
    """How one process of a run draws its batches."""

    # seed, rank: of the run and of this process
    seed: int
    rank: int
    device: torch.device  # where batches end up
    # Hide large blocks and report what is hidden (for JEPA), or drop places evenly
    blocks: bool = False
    lengths: tuple[int, int] = (0, 0)  # fewest and most tubelets that a block-causal encoder sees

    def tubelets(self, random: torch.Generator) -> int:
        """Draw how many tubelets are seen: sometimes the fewest, as after a stream begins."""
        fewest, most = self.lengths
        short = float(torch.rand((), generator=random)) < SHORT_SHARE
        return fewest if short else most

    def places(self, count: int, order: Order,
               random: torch.Generator) -> tuple[Tensor | None, Tensor | None]:
        """Draw the places to keep and to hide for `count` clips, see `Batch`."""
        if order.kept == 1:
            return None, None
        side = order.size // PATCH
        kept = places_kept(order.kept, side, side)
        if not self.blocks:
            return upload(random_places(count, kept, side * side, random), self.device), None
        seen = block_places(count, kept, side, side, random)
        hidden = hidden_places(seen, side * side)
        return upload(seen, self.device), upload(hidden, self.device)

    def flip(self, count: int, random: torch.Generator) -> Tensor:
        """Draw which of `count` clips are mirrored, (count,) bool."""
        return upload(torch.rand(count, generator=random) < 0.5, self.device)


class Feed(Protocol):
    """Supplies training with batches."""

    def batch(self, order: Order) -> Batch:
        """Return the batch of a step, always the same."""
        ...


class WorldFeed:
    """Endless batches of rendered clips, the same for the same seed, step and rank.

    Drawing is cheap and rendering is not, so clips may be used several times: every step
    renders one part of its batch and takes the others from steps before, mirrored and thinned
    anew. What is needed and no longer there (after a pause, at another image size) is rendered
    again, so that a batch never depends on what happened before.

    Parameters
    ----------
    worlds : callable
        Gives the worlds of an image size, which take turns; called once per size.
    count : int
        Clips per batch, a multiple of `reuse`.
    draw : Draw
        How batches are drawn, and where clips are rendered.
    workers : int
        Threads that draw ahead.
    reuse : int
        Steps that use a clip, REUSE_GAP steps apart.

    Raises
    ------
    ValueError
        When `count` is no multiple of `reuse`.
    """

    def __init__(self, worlds: Worlds, count: int, draw: Draw, workers: int = 1,
                 reuse: int = 1) -> None:
        if count % reuse:
            raise ValueError(f'{count} clips of a batch cannot be made of {reuse} equal parts: '
                             'choose a batch that is a multiple of reuse')
        self._make_world = worlds
        self._worlds: dict[int, Sequence[ClipWorld]] = {}
        self._count, self._draw, self._reuse = count, draw, reuse
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix='scenes')
        self._drawn: dict[tuple[int, int], Future] = {}
        self._made: dict[tuple[int, int], tuple[Tensor, Targets, Tensor]] = {}
        self._ahead = 2 * workers

    def __enter__(self) -> WorldFeed:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(cancel_futures=True)

    def batch(self, order: Order) -> Batch:
        """Return the batch of a step; steps in another order than 0, 1, 2 only cost time."""
        parts = [(made_at(order.step, age), order.size) for age in range(self._reuse)]
        coming = [(order.step + ahead, order.size) for ahead in range(1, self._ahead + 1)]
        self._forget(order)
        for part in [*(p for p in parts if p not in self._made), *coming]:
            if part not in self._drawn:
                self._drawn[part] = self._pool.submit(
                    self.world(part).sample,
                    derive(self._draw.seed, 'scenes', part[0], self._draw.rank),
                    self._count // self._reuse)
        for part in parts:
            if part not in self._made:
                self._made[part] = self._film(part)
        frames = torch.cat([self._made[p][0] for p in parts])
        targets = joined([self._made[p][1] for p in parts])
        random = generator(self._draw.seed, 'places', order.step, self._draw.rank)
        # A mirrored scene is as likely as the scene itself, and danger has no side.
        flip = self._draw.flip(self._count, random)
        kept, hidden = self._draw.places(self._count, order, random)
        stamps = torch.cat([self._made[p][2] for p in parts])
        return Batch(mirror(frames, flip, 3), targets.flipped(flip), kept, hidden, stamps,
                     self._draw.tubelets(random))

    def _film(self, part: tuple[int, int]) -> tuple[Tensor, Targets, Tensor]:
        clips = self.world(part).film(upload(
            self._drawn.pop(part).result(), self._draw.device))
        return clips.frames, clip_targets(clips), clips.stamps

    def _forget(self, order: Order) -> None:
        oldest = order.step - (self._reuse - 1) * REUSE_GAP
        for step, size in list(self._made):
            if size != order.size or not oldest <= step <= order.step:
                del self._made[step, size]
        for part in [p for p in self._drawn if p[1] != order.size]:
            self._drawn.pop(part).cancel()

    def world(self, part: tuple[int, int]) -> ClipWorld:
        """Return the world that renders a part of a batch, (step, image size)."""
        made, size = part
        if size not in self._worlds:
            self._worlds[size] = self._make_world(size)
        worlds = self._worlds[size]
        # Those of a batch, REUSE_GAP steps apart, are of different worlds, too.
        return worlds[(made + made // REUSE_GAP) % len(worlds)]


def made_at(step: int, age: int) -> int:
    """Return the step that made the part of an age (0 is new) of the batch of a step.

    At the start of a run, when there are no old clips, those there are serve more often.
    """
    made = step - age * REUSE_GAP
    return made if made >= 0 else made % (step + 1)


def upload(values: Any, device: torch.device) -> Any:
    """Copy a tensor, or all tensors of a dataclass, to a device without waiting for it."""
    if isinstance(values, Tensor):
        if device.type == 'cuda':
            return values.pin_memory().to(device, non_blocking=True)
        return values.to(device)
    if is_dataclass(values) and not isinstance(values, type):
        return replace(values, **{f.name: upload(getattr(values, f.name), device)
                                  for f in fields(values)})
    return values


def split_batches(world: ClipWorld, first_seed: int, count: int,
                  batch: int = SPLIT_BATCH) -> list[Callable[[], WorldClips]]:
    """Return functions that render the clips of a fixed split, in pieces of a fixed size."""
    def piece(number: int) -> Callable[[], WorldClips]:
        return lambda: world.clips(first_seed + number, min(batch, count - number * batch))

    return [piece(number) for number in range(-(-count // batch))]


MEMORY_SHARE = 0.6       # of what is free
log = logging.getLogger(__name__)


class CachedFeed:
    """Batches of clips whose features are kept in memory in float16.

    Parameters
    ----------
    feed : WorldFeed
        Supplies the clips, in steps from 0 on.
    network : Network
        Its frozen encoder.
    count : int
        Clips to keep; rounded up to whole batches.
    size : int
        Pixels per side.
    batch : int
        Clips per batch.
    draw : Draw
        How batches are drawn.
    note : callable
        Told how far the encoding is: clips done and in all.

    Raises
    ------
    ValueError
        When the features would not fit into memory.
    """

    def __init__(self, feed: WorldFeed, network: Network, count: int, size: int, batch: int,
                 draw: Draw, note: Callable[[int, int], None]) -> None:
        self._batch, self._draw = batch, draw
        parts: list[Tensor] = []
        targets: list[Targets] = []
        with torch.no_grad():
            for step in range(-(-count // batch)):
                clips = feed.batch(Order(step, size, 1.0))
                features = network.features(clips).to(torch.float16).cpu()
                if not parts:
                    _check_memory(features.nbytes * -(-count // batch), count)
                parts.append(features)
                targets.append(clips.targets.to('cpu'))
                note((step + 1) * batch, -(-count // batch) * batch)
        self._features = torch.cat(parts)
        self._targets = joined(targets)

    def __len__(self) -> int:
        return len(self._features)

    def batch(self, order: Order) -> Batch:
        """Choose clips at random."""
        random = generator(self._draw.seed, 'cached', order.step, self._draw.rank)
        chosen = torch.randint(len(self), (self._batch,), generator=random)
        return Batch(torch.empty(0), self._targets.of(chosen).to(self._draw.device),
                     features=upload(self._features[chosen], self._draw.device).float())


def free_bytes(device: torch.device) -> int:
    """Return how much memory of a device is free."""
    if device.type == 'cuda':
        return torch.cuda.mem_get_info(device)[0]
    import psutil  # only needed here

    return psutil.virtual_memory().available


def _check_memory(needed: int, count: int) -> None:
    free = free_bytes(torch.device('cpu'))
    if needed > MEMORY_SHARE * free:
        raise ValueError(
            f'the features of {count} clips take {needed / 2**30:.1f} GiB and {free / 2**30:.1f} '
            f'GiB are free: keep at most {int(count * MEMORY_SHARE * free / needed)} clips')
    log.info('the features take %.2f GiB', needed / 2**30)
