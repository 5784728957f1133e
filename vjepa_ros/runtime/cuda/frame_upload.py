# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Upload each frame once, however many clips show it, and gather clips on the device."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence, Set
from itertools import islice

import numpy as np
import torch
from torch import Tensor

MOST_BYTES = 256 << 20  # of frames that are kept for later passes
TURNS = 2               # uploads of numbers under way at most, as of passes

# Of a clip: the identity of each frame, None for one that will not come again.
Keys = Sequence[Hashable]


def words(frames: Tensor) -> Tensor:
    """View contiguous frames (M, S, S, 3) uint8, S a multiple of 16, as rows of int64."""
    count, *sides = frames.shape
    return frames.view(count, math.prod(sides)).view(torch.int64)


class SlotMap:
    """Which slot holds which frame; the least recently used is replaced first.

    There are as many slots as one pass needs. They double, up to `most`, when an evicted frame is
    asked for again: more slots would have saved an upload.

    Parameters
    ----------
    most : int
        Slots to grow to for frames that come again; a single pass gets what it needs.

    """

    def __init__(self, most: int):
        self.most = most
        self.capacity = 0
        self._slots: OrderedDict[Hashable, int] = OrderedDict()  # least recently used first
        self._free: list[int] = []
        self._gone: OrderedDict[Hashable, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def keys(self) -> Set[Hashable]:
        """Return the frames that have a slot now; changes with them."""
        return self._slots.keys()

    def wants(self, keys: Sequence[Hashable]) -> int:
        """Return how many slots there should be before `find` is called with `keys`."""
        distinct = set(keys)
        again = any(key in self._gone and key not in self._slots for key in distinct)
        grown = min(2 * self.capacity, self.most) if again else 0
        return max(len(distinct), grown, self.capacity)

    def grow(self, capacity: int) -> None:
        """Add slots."""
        # Lowest first, so that new frames are neighbours.
        self._free = [*range(capacity - 1, self.capacity - 1, -1), *self._free]
        self.capacity = capacity
        self._gone.clear()

    def find(self, keys: Sequence[Hashable]) -> tuple[list[int], dict[int, int]]:
        """Assign slots to frames, and say which must be filled."""
        for key in keys:
            if key in self._slots:
                self._slots.move_to_end(key)
        found, fill = [], {}
        for number, key in enumerate(keys):
            if key not in self._slots:
                slot = self._free.pop() if self._free else self._evict()
                self._slots[key] = slot
                self._gone.pop(key, None)
                fill[slot] = number
            found.append(self._slots[key])
        return found, fill

    def release(self, keys: Sequence[Hashable]) -> None:
        """Let these frames be replaced before all others."""
        for key in reversed(keys):
            self._slots.move_to_end(key, last=False)

    def forget(self, keys: Sequence[Hashable]) -> None:
        """Remove frames that could not be filled."""
        for key in keys:
            if key in self._slots:
                self._free.append(self._slots.pop(key))

    def _evict(self) -> int:
        key, slot = self._slots.popitem(last=False)
        if not isinstance(key, _Once):
            self._gone[key] = None
            if len(self._gone) > max(self.most, self.capacity):
                self._gone.popitem(last=False)
        return slot


class _Once:
    """The key of a frame that never comes again."""


class FrameStore:
    """Frames of a session on its device; `Collector` copies them from there.

    All methods work on the current stream; the caller ensures that no frame is replaced before it
    is gathered.

    Parameters
    ----------
    device : torch.device
        Where the frames lie.
    clip_shape : tuple of int
        (T, S, S, 3) of a clip, S a multiple of 16.
    most_bytes : int
        Bytes of frames to grow to, see `SlotMap`.

    Attributes
    ----------
    uploads : int
        Frames uploaded so far.
    words : Tensor
        The frames as `words` gives them; another tensor after `send` and `reset`.

    """

    def __init__(self, device: torch.device, clip_shape: tuple[int, ...],
                 most_bytes: int = MOST_BYTES):
        self._device = device
        self._frame = clip_shape[1:]
        self._map = SlotMap(most_bytes // math.prod(self._frame))
        self._hold(torch.empty((0, *self._frame), dtype=torch.uint8, device=device))
        self._pin = device.type == 'cuda'
        self.uploads = 0

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return self._data.nbytes

    def send(self, clips: Sequence[HostClip], keys: Sequence[Keys] | None) -> list[int]:
        """Upload the frames of clips that are not here yet.

        `clips`: sequence of ndarray (T, S, S, 3) uint8 each; may be changed when this returns.
        """
        frames = [frame for clip in clips for frame in clip]
        flat = ([None] * len(frames) if keys is None
                else [key for clip in keys for key in clip])
        flat = [_Once() if key is None else key for key in flat]
        capacity = self._map.wants(flat)
        if capacity > self._map.capacity:
            self._grow(capacity)
        slots, fill = self._map.find(flat)
        try:
            self._fill({slot: frames[number] for slot, number in fill.items()})
        except BaseException:
            self._map.forget([flat[number] for number in fill.values()])
            raise
        self._map.release([key for key in flat if isinstance(key, _Once)])
        return slots

    def reset(self) -> None:
        """Free all memory, and keep only the frames of one pass from now on."""
        self._map = SlotMap(0)
        self._hold(self._data.new_empty((0, *self._frame)))

    def _hold(self, data: Tensor) -> None:
        self._data, self.words = data, words(data)

    def _grow(self, capacity: int) -> None:
        data = self._data.new_empty((capacity, *self._frame))
        data[:len(self._data)].copy_(self._data)
        if self._device.type == 'cuda':
            torch.cuda.synchronize(self._device)  # the old frames may still be read
        self._hold(data)
        self._map.grow(capacity)

    def _fill(self, new: dict[int, np.ndarray]) -> None:
        """Upload frames into slots, neighbours in one copy."""
        if not new:
            return
        order = sorted(new)
        # From PyTorch's cache, which reuses pinned memory only after its last copy.
        staged = torch.empty((len(order), *self._frame), dtype=torch.uint8, pin_memory=self._pin)
        view = staged.numpy()
        for place, slot in enumerate(order):
            view[place] = new[slot]
        for first, last in _runs(order):
            low = order[first]
            self._data[low:low + last - first].copy_(staged[first:last], non_blocking=True)
        self.uploads += len(order)


def _runs(slots: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Split ascending numbers into ranges of places without a hole."""
    first = 0
    for place in range(1, len(slots) + 1):
        if place == len(slots) or slots[place] != slots[place - 1] + 1:
            yield first, place
            first = place


class DeviceClip:
    """A clip of frames on the device, in a store of its owner; nothing is uploaded for it.

    Parameters
    ----------
    frames : Tensor
        (M, S, S, 3) uint8, contiguous, on the device of the session.
    rows : sequence of int
        Numbers of the frames of the clip, oldest first.
    ready : torch.cuda.Event, optional
        After it the frames are there; None: they are.
    used : callable, optional
        Called with the event after which the frames may be replaced.
    as_words : Tensor, optional
        The frames as `words` gives them, where that is known.

    Attributes
    ----------
    words : Tensor
        The frames as `words` gives them.

    """

    dtype = np.dtype(np.uint8)

    def __init__(self, frames: Tensor, rows: Sequence[int],
                 ready: torch.cuda.Event | None = None,
                 used: Callable[[torch.cuda.Event], None] | None = None,
                 as_words: Tensor | None = None):
        self.shape = (len(rows), *frames.shape[1:])
        self.ready = ready
        self.used = used
        self.words = words(frames) if as_words is None else as_words
        self.rows = rows

    def copy_to(self, out: Tensor) -> None:
        """Queue a copy into a contiguous (T, S, S, 3) tensor on the current stream."""
        rows = torch.tensor(self.rows, device=self.words.device)
        torch.index_select(self.words, 0, rows, out=words(out))


# (T, S, S, 3) uint8 of a clip, oldest frame first: an array, or its frames; or on the device.
HostClip = np.ndarray | Sequence[np.ndarray]
Clip = HostClip | DeviceClip


class Rows:
    """Numbers on the device, at a fixed address.

    Parameters
    ----------
    count : int
        How many there are each time.
    device : torch.device
        Where they are wanted.
    dtype : torch.dtype
        Their type.

    Attributes
    ----------
    there : Tensor
        (count,) on the device.

    """

    def __init__(self, count: int, device: torch.device, dtype: torch.dtype = torch.int64):
        cuda = device.type == 'cuda'
        self.there = torch.empty(count, dtype=dtype, device=device)
        # Each with the event of the copy that reads it: before that it must not change.
        self._staged: deque[tuple[Tensor, torch.cuda.Event | None]] = deque(
            (torch.empty(count, dtype=dtype, pin_memory=cuda),
             torch.cuda.Event() if cuda else None) for _ in range(TURNS))

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return self.there.nbytes

    def send(self, numbers: Sequence[int] | np.ndarray) -> Tensor:
        """Upload numbers on the current stream; the result is always the same tensor."""
        self._staged.rotate()
        staged, sent = self._staged[0]
        if sent is not None:
            sent.synchronize()
        staged.numpy()[:] = numbers
        self.there.copy_(staged, non_blocking=True)
        if sent is not None:
            sent.record()
        return self.there


def numbers_of(clips: Sequence[Clip], slots: Sequence[int], frames: int) -> list[int]:
    """Return the number of each frame of some clips in the store that holds it, clip by clip."""
    left = iter(slots)
    return [number for clip in clips for number in (
        clip.rows if isinstance(clip, DeviceClip) else islice(left, frames))]


class Collector:
    """Copies the frames of clips into the input of a pass, on the current stream.

    Parameters
    ----------
    pixels : Tensor
        (B, T, S, S, 3) uint8, contiguous.

    """

    def __init__(self, pixels: Tensor):
        self._frames = pixels.shape[1]
        self._rows: Rows | None = None      # a stream sends the numbers with others
        self._all = words(pixels.view(-1, *pixels.shape[2:]))
        self._each = self._all.split(self._frames)

    def send(self, numbers: Sequence[int]) -> Tensor:
        """Upload what `collect` takes, from `numbers_of` the same clips."""
        if self._rows is None:
            self._rows = Rows(len(numbers), self._all.device)
        return self._rows.send(numbers)

    def collect(self, clips: Sequence[Clip], rows: Tensor, store: FrameStore) -> None:
        """Fill the pixels.

        `rows`: (B T,) int64 on the device, `numbers_of` the clips.
        """
        only = clips[0] if len(clips) == 1 else None
        if isinstance(only, DeviceClip):
            torch.index_select(only.words, 0, rows, out=self._all)
            return
        if not any(isinstance(clip, DeviceClip) for clip in clips):
            torch.index_select(store.words, 0, rows, out=self._all)
            return
        for clip, mine, out in zip(clips, rows.split(self._frames), self._each, strict=True):
            source = clip if isinstance(clip, DeviceClip) else store
            torch.index_select(source.words, 0, mine, out=out)
