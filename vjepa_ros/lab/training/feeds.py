# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Supply training with batches of rendered clips."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from vjepa_ros.lab.training.network import Batch
from vjepa_ros.lab.world.clips import ClipWorld, SPLIT_BATCH, derive, generator
from vjepa_ros.lab.world.targets import Targets, clip_targets, joined, mirror

SHORT_SHARE = 0.2   # of the steps with the fewest tubelets
REUSE_GAP = 8       # steps between two uses of a clip, so that no batch resembles the one before


@dataclass(frozen=True)
class Draw:
    """How one process of a run draws its batches."""

    # seed, rank: of the run and of this process
    seed: int
    rank: int
    device: torch.device  # where batches end up
    lengths: tuple[int, int] = (0, 0)  # fewest and most tubelets that a block-causal encoder sees

    def tubelets(self, random: torch.Generator) -> int:
        """Draw how many tubelets are seen: sometimes the fewest, as after a stream begins."""
        fewest, most = self.lengths
        short = float(torch.rand((), generator=random)) < SHORT_SHARE
        return fewest if short else most

    def flip(self, count: int, random: torch.Generator) -> Tensor:
        """Draw which of `count` clips are mirrored, (count,) bool."""
        which = torch.rand(count, generator=random) < 0.5
        if self.device.type == 'cuda':      # from pinned memory a copy does not wait
            return which.pin_memory().to(self.device, non_blocking=True)
        return which


class WorldFeed:
    """Endless batches of rendered clips, the same for the same seed, step and rank.

    Drawing is cheap and rendering is not, so clips may be used several times: every step
    renders one part of its batch and takes the others from steps before, mirrored anew. What is
    needed and no longer there after a pause is rendered again, so that a batch never depends on
    what happened before. The worlds take turns; `workers` threads draw scenes ahead.
    """

    def __init__(self, worlds: Sequence[ClipWorld], count: int, draw: Draw, workers: int = 1,
                 reuse: int = 1) -> None:
        if count % reuse:
            raise ValueError(f'{count} clips of a batch cannot be made of {reuse} equal parts: '
                             'choose a batch that is a multiple of reuse')
        self._worlds, self._count, self._draw, self._reuse = worlds, count, draw, reuse
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix='scenes')
        self._drawn: dict[int, Future] = {}
        self._made: dict[int, tuple[Tensor, Targets, Tensor]] = {}
        self._ahead = 2 * workers

    def __enter__(self) -> WorldFeed:
        return self

    def __exit__(self, *exc: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def batch(self, step: int) -> Batch:
        """Return the batch of a step; steps in another order than 0, 1, 2 only cost time."""
        parts = [made_at(step, age) for age in range(self._reuse)]
        oldest = step - (self._reuse - 1) * REUSE_GAP
        self._made = {k: v for k, v in self._made.items() if oldest <= k <= step}
        for part in [*(p for p in parts if p not in self._made),
                     *range(step + 1, step + self._ahead + 1)]:
            if part not in self._drawn:
                self._drawn[part] = self._pool.submit(
                    self._world(part).sample,
                    derive(self._draw.seed, 'scenes', part, self._draw.rank),
                    self._count // self._reuse)
        for part in parts:
            if part not in self._made:
                clips = self._world(part).film(self._drawn.pop(part).result())
                self._made[part] = clips.frames, clip_targets(clips), clips.stamps
        frames, targets, stamps = zip(*(self._made[part] for part in parts), strict=True)
        random = generator(self._draw.seed, 'places', step, self._draw.rank)
        # A mirrored scene is as likely as the scene itself, and danger has no side.
        flip = self._draw.flip(self._count, random)
        return Batch(mirror(torch.cat(frames), flip, 3), joined(targets).flipped(flip),
                     torch.cat(stamps), self._draw.tubelets(random))

    def _world(self, made: int) -> ClipWorld:
        # Those of a batch, REUSE_GAP steps apart, are of different worlds, too.
        return self._worlds[(made + made // REUSE_GAP) % len(self._worlds)]


def made_at(step: int, age: int) -> int:
    """Return the step that made the part of an age (0 is new) of the batch of a step.

    At the start of a run, when there are no old clips, those there are serve more often.
    """
    made = step - age * REUSE_GAP
    return made if made >= 0 else made % (step + 1)


def split(worlds: Sequence[ClipWorld], first_seed: int, count: int) -> Iterator[Batch]:
    """Render the clips of a fixed split, `count` of each world, in pieces of a fixed size."""
    for world in worlds:
        for number in range(-(-count // SPLIT_BATCH)):
            clips = world.clips(first_seed + number,
                                min(SPLIT_BATCH, count - number * SPLIT_BATCH))
            yield Batch(clips.frames, clip_targets(clips), clips.stamps)
