# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Train step by step, and keep the state of a run so that it continues exactly."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from vjepa_ros.lab.training.config import TrainConfig
from vjepa_ros.lab.training.network import Batch, Network
from vjepa_ros.model.checkpoint.files import FOREIGN
from vjepa_ros.runtime.device import DeviceError, choose_device

FORMAT = 2
FILE = 'state.pt'
log = logging.getLogger(__name__)


class TrainingError(RuntimeError):
    """Training cannot continue."""


class StateError(ValueError):
    """The state of a run is damaged or belongs to another run."""


@dataclass(frozen=True)
class DistributedContext:
    """One of the processes that `torchrun` has started, or the only one."""

    rank: int
    size: int
    device: torch.device  # where this one trains

    def agree(self, *numbers: float) -> list[float]:
        if self.size == 1:
            return list(numbers)
        box = torch.tensor(numbers, dtype=torch.float64)    # on the CPU: no GPU waits
        dist.broadcast(box, 0)
        return box.tolist()


@contextmanager
def distributed(device: str) -> Iterator[DistributedContext]:
    chosen = choose_device(device, require=True).device
    if chosen.type == 'mps':
        log.info('training uses the CPU: some of its operations are missing on mps')
        chosen = torch.device('cpu')
    size = int(os.environ.get('WORLD_SIZE', '1'))
    if size == 1:
        yield DistributedContext(0, 1, chosen)
        return
    if chosen.type == 'cuda':
        local = int(os.environ.get('LOCAL_RANK', '0'))
        if local >= torch.cuda.device_count():
            raise DeviceError(f'process {local} of torchrun has no GPU of its own: this machine '
                              f'has {torch.cuda.device_count()}')
        chosen = torch.device('cuda', local)
        torch.cuda.set_device(chosen)
    dist.init_process_group('cpu:gloo,cuda:nccl' if chosen.type == 'cuda' else 'gloo')
    try:
        yield DistributedContext(dist.get_rank(), size, chosen)
    finally:
        dist.destroy_process_group()


def make_optimizers(network: nn.Module, config: TrainConfig) -> list[torch.optim.Optimizer]:
    """Make AdamW, or Muon for matrices of the blocks and AdamW for the rest; matrices decay."""
    trained = {name: p for name, p in network.named_parameters() if p.requires_grad}
    inner = {name: p for name, p in trained.items()
             if config.optimizer == 'muon' and 'blocks.' in name and p.ndim == 2}
    outer = [p for name, p in trained.items() if name not in inner]
    groups = [{'params': [p for p in outer if p.ndim > 1], 'weight_decay': config.weight_decay},
              {'params': [p for p in outer if p.ndim <= 1], 'weight_decay': 0.0}]
    adamw = torch.optim.AdamW([g for g in groups if g['params']], lr=config.lr,
                              betas=(0.9, 0.98), fused=True)
    if not inner:
        return [adamw]
    if not hasattr(torch.optim, 'Muon'):
        raise ValueError(f"optimizer 'muon' needs PyTorch 2.9 or newer, this is "
                         f"{torch.__version__}: update PyTorch, or set optimizer to 'adamw'")
    return [adamw, torch.optim.Muon(inner.values(), config.lr, adjust_lr_fn='match_rms_adamw',
                                    weight_decay=config.weight_decay)]


def autocast_type(precision: str, device: torch.device) -> torch.dtype:
    """Choose the type of matrix products; `auto` is bf16 where GPU or CPU have it in hardware."""
    if precision != 'auto':
        return torch.bfloat16 if precision == 'bf16' else torch.float32
    if device.type == 'cuda':
        fast = torch.cuda.get_device_capability(device) >= (8, 0)
    else:
        # PyTorch says "supported" also where it only emulates bf16; these query the processor.
        fast = any(getattr(torch.cpu, name, bool)()
                   for name in ('_is_avx512_bf16_supported', '_is_amx_tile_supported'))
    return torch.bfloat16 if fast else torch.float32


@dataclass
class RunState:
    """Everything that continuing a run needs."""

    config: dict[str, Any]  # keys of the stage
    network: dict[str, Any]  # trained parameters
    average: dict[str, Any]  # their moving average
    optimizers: list[dict[str, Any]]
    step: int = 0
    clips: int = 0  # over all processes
    seconds: float = 0.0  # spent on training
    history: list[dict[str, Any]] = field(default_factory=list)  # what was reported
    calls: list[dict[str, Any]] = field(default_factory=list)  # when, where, how long each worked


def write_state(folder: Path, state: RunState) -> None:
    """Write the state; a crash while writing leaves the old one in place."""
    fresh = folder / f'{FILE}.new'
    torch.save({'format': FORMAT, **vars(state)}, fresh)
    os.replace(fresh, folder / FILE)
    log.info("step %d written to '%s'", state.step, folder / FILE)


def read_state(folder: Path) -> RunState | None:
    """Read the state of the run in a folder, on the CPU; None where there is none."""
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        values = torch.load(path, map_location='cpu', weights_only=True)
        if values.pop('format') != FORMAT:
            raise ValueError(f'its format is not {FORMAT}')
        return RunState(**values)
    except FOREIGN as error:
        raise StateError(f"'{path}' cannot be read: {type(error).__name__}: {error}; remove it to "
                         'begin anew') from error


class Trainer:
    """Trains a network, which is on the device of `here`, and holds the state of the run."""

    def __init__(self, config: TrainConfig, network: Network, here: DistributedContext):
        self.config, self.network, self.here = config, network, here
        self._average = AveragedModel(network)
        self.averaged = cast(Network, self._average.module)     # with the moving average
        self.step = self.clips = 0      # done so far
        self.seconds = 0.0
        self.history: list[dict[str, Any]] = []
        self._optimizers = make_optimizers(network, config)
        self._precision = autocast_type(config.precision, here.device)
        if config.compile:
            # Block by block: all blocks share one compilation of a tenth of the time.
            for block in network.encoder.blocks:
                block.compile(dynamic=False)
            if network.encoder.matching is not None:
                network.encoder.matching.compile(dynamic=False)
        self._runner: nn.Module = network
        if here.size > 1:
            self._runner = DistributedDataParallel(
                network, device_ids=[here.device] if here.device.type == 'cuda' else None)

    @property
    def progress(self) -> float:
        return self.config.progress(self.clips, self.seconds)

    def run(self, batch_of: Callable[[int], Batch], pause: Callable[[], None],
            late: Callable[[], bool]) -> bool:
        """Train until the stage is complete (then return True) or this call has to end."""
        self.network.train()
        began, before = time.monotonic(), self.seconds
        since, clips, steps, sums = began, self.clips, 0, {}
        starting = len(self.config.worlds)      # steps that compile and allocate, one for each
        while True:
            now = time.monotonic()
            spent, over, due = self.here.agree(
                before + (now - began), late(), now - since >= self.config.progress_s)
            if not starting:
                self.seconds = spent
            complete = self.progress >= self.config.ends_at
            if steps and (due or over or complete):
                means = {name: float(value) / steps for name, value in sums.items()}
                self._tell(means, (self.clips - clips) / max(time.monotonic() - since, 1e-9))
                pause()
                began += time.monotonic() - now
                since, clips, steps, sums = time.monotonic(), self.clips, 0, {}
            if complete or over:
                return complete
            for name, value in self._advance(batch_of(self.step)).items():
                sums[name] = sums.get(name, 0) + value.detach()
            steps += 1
            if starting:
                # Its time is not training.
                starting -= 1
                if self.here.device.type == 'cuda':
                    torch.cuda.synchronize()
                since = began = time.monotonic()
                clips = self.clips

    def _advance(self, batch: Batch) -> dict[str, Tensor]:
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group['lr'] = self.config.rate(self.progress)
        with self.autocast():
            losses = self._runner(batch)
            total = reduce(torch.add, losses.values())
        total.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), self.config.clip_norm)
        for optimizer in self._optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        # The average reaches back a short time at first.
        kept = min(self.config.average, (1 + self.step) / (10 + self.step))
        self._average.multi_avg_fn = get_ema_multi_avg_fn(kept)
        self._average.update_parameters(self.network)
        self.step += 1
        self.clips += len(batch) * self.here.size
        return losses

    def autocast(self) -> AbstractContextManager:
        return torch.autocast(self.here.device.type, self._precision,
                              enabled=self._precision != torch.float32)

    def _tell(self, losses: dict[str, float], rate: float) -> None:
        bad = [name for name, value in losses.items() if value != value or abs(value) > 1e12]
        if bad:
            raise TrainingError(
                f'the losses {", ".join(bad)} are not numbers at step {self.step}: continue from '
                'the last checkpoint with a lower lr, or with precision fp32')
        self.history.append({
            'kind': 'train', 'step': self.step, 'clips': self.clips, 'seconds': self.seconds,
            'losses': losses, 'rate': rate, 'lr': self.config.rate(self.progress)})
        log.info('%.1f %%, %s clips, %.3g clips/s, losses: %s', 100 * self.progress,
                 f'{self.clips:,}', rate, ' '.join(f'{k} {v:.3f}' for k, v in losses.items() if v))

    def state(self, calls: list[dict[str, Any]]) -> RunState:
        network, average = (_trained(one) for one in (self.network, self.averaged))
        return RunState(asdict(self.config), network, average,
                        [one.state_dict() for one in self._optimizers], self.step, self.clips,
                        self.seconds, self.history, calls)

    @torch.no_grad()
    def restore(self, state: RunState) -> None:
        for module, saved in ((self.network, state.network), (self.averaged, state.average)):
            for name, parameter in _trained(module).items():
                parameter.copy_(saved[name])
        for optimizer, values in zip(self._optimizers, state.optimizers, strict=True):
            optimizer.load_state_dict(values)
        self._average.n_averaged.fill_(state.step)
        self.step, self.clips, self.seconds = state.step, state.clips, state.seconds
        self.history = state.history


def _trained(module: nn.Module) -> dict[str, Tensor]:
    return {n: p.detach() for n, p in module.named_parameters() if p.requires_grad}
