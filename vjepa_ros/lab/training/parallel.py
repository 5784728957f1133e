# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Train in one process, or in several that `torchrun` starts."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist

from vjepa_ros.runtime.device import DeviceError, choose_device

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Team:
    """The processes of a run, seen from one of them."""

    # rank, size: number of this process from 0, and number of processes
    rank: int
    size: int
    device: torch.device  # where this one trains
    # For agreements on the CPU, which do not make an accelerator wait
    control: dist.ProcessGroup | None = None

    @property
    def leads(self) -> bool:
        """Whether this process writes and reports."""
        return self.rank == 0

    def agree(self, *numbers: float) -> list[float]:
        """Return the numbers of the first process, in all of them."""
        if self.size == 1:
            return list(numbers)
        box = torch.tensor(numbers, dtype=torch.float64)
        dist.broadcast(box, 0, group=self.control)
        return box.tolist()

    def wait(self) -> None:
        """Return when all processes are here."""
        if self.size > 1:
            dist.barrier(group=self.control)


@contextmanager
def team(device: str) -> Iterator[Team]:
    """Join the processes of `torchrun`, or be alone."""
    size = int(os.environ.get('WORLD_SIZE', '1'))
    if size == 1:
        yield Team(0, 1, _pick(device))
        return
    local = int(os.environ.get('LOCAL_RANK', '0'))
    picked = _pick(device)
    if picked.type == 'cuda':
        if local >= torch.cuda.device_count():
            raise DeviceError(f'process {local} of torchrun has no GPU of its own: this machine '
                              f'has {torch.cuda.device_count()}')
        picked = torch.device('cuda', local)
        torch.cuda.set_device(picked)
    dist.init_process_group('nccl' if picked.type == 'cuda' else 'gloo')
    try:
        control = dist.new_group(backend='gloo')
        assert isinstance(control, dist.ProcessGroup)   # every process is a member
        yield Team(dist.get_rank(), size, picked, control)
    finally:
        dist.destroy_process_group()


def _pick(device: str) -> torch.device:
    choice = choose_device(device, require=True)
    if choice.device.type == 'mps':
        log.info('training uses the CPU: some of its operations are missing on mps')
        return torch.device('cpu')
    return choice.device
