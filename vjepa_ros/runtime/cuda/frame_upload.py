# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Frames on the device: each is uploaded once, however many clips show it."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

MOST_BYTES = 256 << 20  # of frames that are kept because they may be asked for again

# Of a clip: the identity of each frame, None for one that will not come again.
Keys = Sequence[Hashable]


def words(frames: Tensor) -> Tensor:
    """Contiguous frames (M, S, S, 3) uint8, S a multiple of 16, as rows of eight bytes each."""
    count, *sides = frames.shape
    return frames.view(count, math.prod(sides)).view(torch.int64)


class SlotMap:
    """Which slot holds which frame; the least recently used is replaced first.

    The number of slots starts at what one pass needs. It doubles, up to `most`, when a frame is
    asked for that had to leave before: more slots would have saved an upload.

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

    def wants(self, keys: Sequence[Hashable]) -> int:
        """How many slots there should be before `find` is asked for `keys`."""
        distinct = set(keys)
        again = any(key in self._gone and key not in self._slots for key in distinct)
        grown = min(2 * self.capacity, self.most) if again else 0
        return max(len(distinct), grown, self.capacity)

    def grow(self, capacity: int) -> None:
        """Add slots."""
        # The lowest come first, so that new frames lie side by side.
        self._free = [*range(capacity - 1, self.capacity - 1, -1), *self._free]
        self.capacity = capacity
        self._gone.clear()  # what left a smaller place says nothing of this one

    def find(self, keys: Sequence[Hashable]) -> tuple[list[int], dict[int, int]]:
        """Slots of frames, and those of them that must be filled.

        Parameters
        ----------
        keys : sequence of hashable
            Frames of one pass, not more distinct ones than there are slots.

        Returns
        -------
        list of int, dict of int to int
            The slot of each frame; and for each slot to fill the number of its frame in `keys`.

        """
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
        """Take back frames that could not be filled."""
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
    """The key of a frame that nobody will ask for again."""


class FrameStore:
    """Frames of a session on its device; `Collector` copies them from there.

    All methods work on the current stream; the caller sees to it that no frame is replaced
    before it is gathered.

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

    def send(self, clips: Sequence[Clip], keys: Sequence[Keys] | None) -> list[int]:
        """Upload the frames of clips that are not here yet.

        Parameters
        ----------
        clips : sequence of ndarray
            (T, S, S, 3) uint8 each. They are not needed any more when this returns.
        keys : sequence of sequence of hashable, optional
            Identity of each frame of each clip, see `Keys`.

        Returns
        -------
        list of int
            The slot of each frame, clip by clip.

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
        """Give all memory back and keep no frames any more beyond those of one pass."""
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
        # From the cache of PyTorch, which gives pinned memory out again after the last copy.
        staged = torch.empty((len(order), *self._frame), dtype=torch.uint8, pin_memory=self._pin)
        view = staged.numpy()
        for place, slot in enumerate(order):
            view[place] = new[slot]
        for first, last in _runs(order):
            low = order[first]
            self._data[low:low + last - first].copy_(staged[first:last], non_blocking=True)
        self.uploads += len(order)


def _runs(slots: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Ranges of places at which ascending numbers follow each other without a hole."""
    first = 0
    for place in range(1, len(slots) + 1):
        if place == len(slots) or slots[place] != slots[place - 1] + 1:
            yield first, place
            first = place


class DeviceClip:
    """A clip whose frames are on the device already, in a store of its owner.

    It stands where a clip of the host may stand; nothing is uploaded for it.

    Parameters
    ----------
    frames : Tensor
        (M, S, S, 3) uint8, contiguous, on the device of the session.
    rows : sequence of int
        Which of them make the clip, oldest first.
    ready : torch.cuda.Event, optional
        After it the frames are there; None: they are.
    used : callable, optional
        Is told the event after which the frames may be replaced.

    Attributes
    ----------
    words : Tensor
        The frames as `words` gives them.

    """

    dtype = np.dtype(np.uint8)

    def __init__(self, frames: Tensor, rows: Sequence[int],
                 ready: torch.cuda.Event | None = None,
                 used: Callable[[torch.cuda.Event], None] | None = None):
        self.shape = (len(rows), *frames.shape[1:])
        self.ready = ready
        self.used = used
        self.words = words(frames)
        self.rows = rows

    def copy_to(self, out: Tensor) -> None:
        """Queue a copy into a contiguous (T, S, S, 3) tensor on the current stream."""
        rows = torch.tensor(self.rows, device=self.words.device)
        torch.index_select(self.words, 0, rows, out=words(out))


# (T, S, S, 3) uint8 of a clip, oldest frame first: an array, its frames where each lies, or there.
Clip = np.ndarray | Sequence[np.ndarray] | DeviceClip


def check_clips(clips: Sequence[Clip], keys: Sequence[Keys] | None,
                shape: tuple[int, ...]) -> None:
    """Raise ValueError for a clip of another shape or type, or another number of keys."""
    for clip in clips:
        forms = ({(clip.dtype, clip.shape)} if isinstance(clip, np.ndarray | DeviceClip)
                 else {(frame.dtype, (len(clip), *frame.shape)) for frame in clip})
        if forms != {(np.dtype(np.uint8), shape)}:
            found = ' and '.join(f'{kind} {size}' for kind, size in sorted(forms, key=str))
            raise ValueError(f"a clip is {found or 'empty'}, expected uint8 {shape}")
    if keys is not None and [len(each) for each in keys] != [shape[0]] * len(clips):
        raise ValueError(f'there are keys for {[len(each) for each in keys]} frames, expected '
                         f'{shape[0]} for each of {len(clips)} clips')
