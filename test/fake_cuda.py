# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Stand-ins for CUDA streams, events and graphs, which work at once and in order on the CPU.

A graph repeats the operations of its capture on the same tensors, so that what is not at a fixed
address, or comes from the host, shows as a wrong number.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

ADDRESS = torch.device('cuda:0')   # what a stream calls its device; tensors are made on the CPU


class Event:
    def __init__(self, enable_timing: bool = False) -> None:
        self.at = 0.0

    def record(self, stream: Stream) -> None:
        self.at = time.perf_counter()

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        assert self.at, 'waits for an event that was never recorded'

    def elapsed_time(self, end: Event) -> float:
        assert self.at
        assert end.at
        return 1e3 * (end.at - self.at)


class Stream:
    def __init__(self, device: torch.device = ADDRESS, priority: int = 0) -> None:
        self.device = torch.device('cpu')

    def synchronize(self) -> None: ...

    def wait_stream(self, other: Stream) -> None: ...

    def wait_event(self, event: Event) -> None:
        assert event.at, 'waits for an event that was never recorded'


class _Recorder(TorchDispatchMode):
    def __init__(self, calls: list[tuple]) -> None:
        super().__init__()
        self.calls = calls

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (),
                           kwargs: dict | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, out))
        return out


class Graph:
    def __init__(self) -> None:
        self.calls: list[tuple] = []

    def replay(self) -> None:
        assert self.calls, 'nothing was captured'
        for func, args, kwargs, out in self.calls:
            for old, new in zip(tree_leaves(out), tree_leaves(func(*args, **kwargs)),
                                strict=True):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


class FakeCuda:
    """What the stand-ins were asked for."""

    captures = 0
    abandoned = 0
    refuse = ''


def install(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """Put the stand-ins in place of CUDA until the test ends."""
    fake, current = FakeCuda(), [Stream()]

    @contextlib.contextmanager
    def stream(which: Stream) -> Iterator[None]:
        current.append(which)
        yield
        current.pop()

    @contextlib.contextmanager
    def graph(which: Graph, pool: Any, stream: Stream, capture_error_mode: str) -> Iterator[None]:
        assert stream is current[-1]
        assert pool is not None
        fake.captures += 1
        if fake.refuse:
            raise RuntimeError(fake.refuse)
        with _Recorder(which.calls):
            yield

    empty = torch.empty

    def unpinned(*args: Any, pin_memory: bool = False, **more: Any) -> torch.Tensor:
        return empty(*args, **more)

    for name, value in {
            'Event': Event, 'Stream': Stream, 'CUDAGraph': Graph, 'graph': graph,
            'stream': stream, 'current_stream': lambda device=None: current[-1],
            'device': lambda device: contextlib.nullcontext(), 'synchronize': lambda *_: None,
            'graph_pool_handle': lambda: (0, 1), 'memory_snapshot': list}.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch, 'empty', unpinned)
    def abandon(pool: Any, device: torch.device) -> None:
        fake.abandoned += 1

    # The builds of PyTorch for CUDA have the real ones, which want a real device.
    monkeypatch.setattr('vjepa_ros.runtime.cuda.graph_replay.clear_workspaces', lambda: None)
    monkeypatch.setattr('vjepa_ros.runtime.cuda.graph_replay.abandon_pool', abandon)
    return fake
