# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Encode clips once and train heads on them over and over, for encoders that are slow."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch
from torch import Tensor

from vjepa_ros.lab.training.data.feed import Order, WorldFeed, upload
from vjepa_ros.lab.training.network import Batch, Network
from vjepa_ros.lab.world.seeds import generator
from vjepa_ros.lab.world.targets import Targets, joined

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
    seed, rank : int
        Of the run and of this process.
    note : callable
        Told how far the encoding is: clips done and in all.

    Raises
    ------
    ValueError
        When the features would not fit into memory.
    """

    def __init__(self, feed: WorldFeed, network: Network, count: int, size: int, batch: int,
                 seed: int, rank: int, note: Callable[[int, int], None]):
        self._batch, self._seed, self._rank = batch, seed, rank
        self._device = next(network.parameters()).device
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
        """Clips chosen at random."""
        random = generator(self._seed, 'cached', order.step, self._rank)
        chosen = torch.randint(len(self), (self._batch,), generator=random)
        return Batch(torch.empty(0), self._targets.of(chosen).to(self._device),
                     features=upload(self._features[chosen], self._device).float())


def _check_memory(needed: int, count: int) -> None:
    import psutil  # only needed here

    free = psutil.virtual_memory().available
    if needed > MEMORY_SHARE * free:
        raise ValueError(
            f'the features of {count} clips take {needed / 2**30:.1f} GiB and {free / 2**30:.1f} '
            f'GiB are free: keep at most {int(count * MEMORY_SHARE * free / needed)} clips')
    log.info('the features take %.2f GiB', needed / 2**30)
