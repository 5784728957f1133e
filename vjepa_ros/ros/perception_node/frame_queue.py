# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Hold what one thread has for the next, for one camera: bounded, newest wins."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar


@dataclass(frozen=True)
class Waiting:
    """A message that waits for the worker, with its stamp and arrival [ns] and size [bytes]."""

    message: Any
    stamp_ns: int
    arrival_ns: int
    size: int


class Item(Protocol):
    """What may wait: it has a stamp [ns] and a size [bytes]."""

    stamp_ns: int

    @property
    def size(self) -> int: ...


Kind = TypeVar('Kind', bound=Item)


class Inbox(Generic[Kind]):
    """A bounded queue between two threads that never blocks and never drops the newest.

    Parameters
    ----------
    limit
        Most messages that wait.
    max_bytes
        Most bytes that wait.
    """

    def __init__(self, limit: int = 64, max_bytes: int = 96 << 20) -> None:
        self._limit = limit
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._items: deque[Kind] = deque()
        self._bytes = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._items)

    @property
    def newest_ns(self) -> int | None:
        """Stamp of the newest message [ns], None when nothing waits."""
        with self._lock:
            return self._items[-1].stamp_ns if self._items else None

    def put(self, item: Kind) -> None:
        """Add a message; when full, every second of the older ones goes (and is counted)."""
        with self._lock:
            self._items.append(item)
            self._bytes += item.size
            full = len(self._items) > self._limit or self._bytes > self._max_bytes
            if full and len(self._items) > 1:
                # Halving keeps the spacing even; dropping the oldest would cut the clip short.
                kept = list(self._items)[::-1][::2][::-1]
                self.dropped += len(self._items) - len(kept)
                self._items = deque(kept)
                self._bytes = sum(i.size for i in kept)

    def take(self, spacing_ns: int) -> tuple[list[Kind], int]:
        """All waiting messages, oldest first, and how many were skipped.

        Of messages closer together than `spacing_ns` only some are given: a worker that is
        behind need not decode what no clip will use. The newest is always given.
        """
        with self._lock:
            items, self._items, self._bytes = list(self._items), deque(), 0
        kept: list[Kind] = []
        for item in reversed(items):
            apart = kept and kept[-1].stamp_ns - item.stamp_ns
            if kept and 0 < apart < spacing_ns and item.stamp_ns:
                continue
            kept.append(item)
        kept.reverse()
        return kept, len(items) - len(kept)

    def clear(self) -> int:
        """Forget everything that waits, and say how many that were."""
        with self._lock:
            number = len(self._items)
            self._items.clear()
            self._bytes = 0
        return number
