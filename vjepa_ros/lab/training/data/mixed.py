# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Mix clips of recordings into batches of rendered ones."""

from __future__ import annotations

import torch
from torch import Tensor

from vjepa_ros.lab.training.data.feed import Feed, Order, draw_places, upload
from vjepa_ros.lab.training.data.recordings import RecordingFeed
from vjepa_ros.lab.training.network import Batch
from vjepa_ros.lab.world.seeds import generator
from vjepa_ros.lab.world.targets import joined, mirror
from vjepa_ros.model.variants import PATCH


class MixedFeed:
    """Batches in which the last clips come from recordings.

    Parameters
    ----------
    world : Feed or None
        Supplies the others; None when all come from recordings.
    recordings : RecordingFeed
        Supplies the rest.
    count : int
        Clips per batch from recordings.
    seed, rank : int
        Of the run and of this process.
    device : torch.device
        Where batches end up.
    blocks : bool
        As for the world, see `WorldFeed`.
    """

    def __init__(self, world: Feed | None, recordings: RecordingFeed, count: int, seed: int,
                 rank: int, device: torch.device, blocks: bool = False):
        self._world, self._recordings, self._count = world, recordings, count
        self._seed, self._rank = seed, rank
        self._device, self._blocks = device, blocks

    def batch(self, order: Order) -> Batch:
        """The batch of a step."""
        random = generator(self._seed, 'recordings', order.step, self._rank)
        real = self._recordings.batch(self._count, order.size, random, self._device)
        flip = upload(torch.rand(self._count, generator=random) < 0.5, self._device)
        # Labels of recordings say nothing about single patches, so only pixels are mirrored.
        frames = mirror(real.frames, flip, 3)
        places = draw_places(order.size // PATCH, order.kept, self._count, self._blocks, random)
        kept, hidden = (p if p is None else upload(p, self._device) for p in places)
        if self._world is None:
            return Batch(frames, real.targets, kept, hidden)
        made = self._world.batch(order)
        return Batch(torch.cat((made.frames, frames)), joined((made.targets, real.targets)),
                     _both(made.kept, kept), _both(made.hidden, hidden))


def _both(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return None if a is None or b is None else torch.cat((a, b))
