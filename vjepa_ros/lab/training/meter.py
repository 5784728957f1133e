# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Measure what training does between two reports, without making it wait."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from vjepa_ros.lab.training.data.feed import Order

AHEAD = 2            # steps that may be queued on an accelerator before the host waits


class Meter:
    """Adds up losses and times; only `losses` and `leave_out` wait for the device."""

    def __init__(self, device: torch.device):
        self._cuda = device.type == 'cuda'
        self._queued: list[torch.cuda.Event] = []
        self.lr, self.order = 0.0, Order(0, 0, 1.0)
        self.restart()

    def restart(self) -> None:
        """Begin a new stretch."""
        self.since = time.monotonic()
        self.steps = self.clips = 0
        self._sums: dict[str, Tensor] = {}
        self._data_s = 0.0
        self._began = self.since
        self._marks: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def leave_out(self) -> None:
        """Do not count the time so far, such as that of compiling."""
        if self._cuda:
            torch.cuda.synchronize()
        self.since = time.monotonic()
        self.clips = 0
        self._data_s = 0.0
        self._marks = []

    def begin(self) -> None:
        """A step begins."""
        self._began = time.monotonic()
        if self._cuda:
            self._begun = torch.cuda.Event(enable_timing=True)
            self._begun.record()

    def made(self) -> None:
        """Its batch is made, or ordered from the device."""
        self._data_s += time.monotonic() - self._began
        if self._cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append((self._begun, event))

    def end(self, losses: dict[str, Tensor], clips: int, lr: float, order: Order) -> None:
        """A step ends."""
        for name, value in losses.items():
            value = value.detach()
            self._sums[name] = self._sums[name] + value if name in self._sums else value
        self.steps += 1
        self.clips += clips
        self.lr, self.order = lr, order
        if self._cuda:
            event = torch.cuda.Event()
            event.record()
            self._queued.append(event)
            if len(self._queued) > AHEAD:
                self._queued.pop(0).synchronize()

    def losses(self) -> dict[str, float]:
        """Means of the losses (waits for the device)."""
        if not self._sums:
            return {}
        values = (torch.stack(list(self._sums.values())) / self.steps).tolist()
        return dict(zip(self._sums, values, strict=True))

    def times(self) -> tuple[float, float]:
        """Seconds of the stretch, and the part of them that making batches took."""
        seconds = time.monotonic() - self.since
        data_s = self._data_s
        if self._cuda:
            data_s = sum(a.elapsed_time(b) for a, b in self._marks) / 1e3
        return seconds, min(1.0, data_s / max(seconds, 1e-9))
