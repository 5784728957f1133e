# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Encode each tubelet of a camera once: a block-causal encoder with a cache of keys and values.

The newest tubelet of a clip is encoded (`decode`); keys, values and features of earlier ones are
cached. When one is missing, the clip is encoded as a whole (`prefill`), in a pass with others like
it. All that a pass reads is at fixed addresses, so that CUDA graphs can hold both kinds of pass.

B clips, T = 2 W frames, W tubelets, P places (patches) of a tubelet, L layers, H heads, d channels
of a head, D width.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence, Set

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.model.blocks import LayerMemory
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.variants import BACK_S, MOST_WINDOW, PATCH, TUBELET

MAX_BYTES = 512 << 20   # of the cache, for all cameras
MOST_TUBELETS = 256     # in the cache
LEAST_CLIPS = 4         # of a pass, at any size

# For each frame of a clip a key that no other frame has; None for a frame that never comes again.
Keys = Sequence[Hashable]
Work = Callable[[Tensor], Tensor]       # pixels to features, or features to packed heads
# From the pixels (B, 2, S, S, 3) uint8 of the newest tubelets (with matching 3 frames, after
# the newest frame of the tubelets before), `Encoder.times` of these, and what each block
# remembers, to features (B, 1, Hp, Wp, D) float32.
Step = Callable[[Tensor, Tensor, Sequence[LayerMemory]], Tensor]


class KeyValueCache:
    """Keys, values and features of tubelets in slots; the least recently used are replaced."""

    def __init__(self, encoder: Encoder, places: int):
        variant = encoder.variant
        device, dtype = encoder.branch_device, encoder.branch_dtype
        self._each = (2 * variant.depth * dtype.itemsize + 4) * places * variant.dim
        # Number of slots, and of the one after them, for what is only tried out.
        self.spare = max(min(MOST_TUBELETS, MAX_BYTES // self._each),
                         LEAST_CLIPS * encoder.window)
        self._ever_used = 0
        self.forget()
        # Rotated keys, and values (L, 2, H, slots + 1, P, d).
        self.layers = torch.empty((variant.depth, 2, variant.heads, self.spare + 1, places,
                                   variant.head_dim), dtype=dtype, device=device)
        self.features = torch.empty((self.spare + 1, places, variant.dim), device=device)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that are taken, whatever is cached now."""
        # On a CPU a page costs nothing until it is first written. Slots that were used before are
        # taken first, so these are as many as there ever were tubelets at once.
        if self.layers.device.type == 'cpu':
            return self._ever_used * self._each
        return self.layers.nbytes + self.features.nbytes

    def find(self, ends: Sequence[Hashable]) -> list[int]:
        """Return the slot of each tubelet; those that are new get one."""
        for end in ends:
            if end in self.slots:
                self.slots.move_to_end(end)
        for end in ends:
            if end not in self.slots:
                slot = self._free.pop() if self._free else self.slots.popitem(last=False)[1]
                self.slots[end] = slot
                self._ever_used = max(self._ever_used, slot + 1)
        return [self.slots[end] for end in ends]

    def drop(self, ends: Iterable[Hashable]) -> None:
        for end in ends:
            if end in self.slots:
                self._free.append(self.slots.pop(end))

    def forget(self) -> None:
        # By the key of the newer frame of each tubelet, least recently used first.
        self.slots: OrderedDict[Hashable, int] = OrderedDict()
        self._free = list(range(self.spare))[::-1]


class CacheSlots:
    """Where the cached tubelets of the clips of a pass are."""

    def __init__(self, slots: Tensor, room: Tensor, newest: Tensor | None = None):
        self.slots = slots      # (B, W) of the tubelets of each clip, oldest first
        # (2, H, B W, P, d) for the keys and values of the clips, of one layer after the other.
        self.room = room
        # Slots (B,) of the newest tubelets on the host; None where passes may be replayed for
        # others.
        self.newest = newest


class StoredLayer(LayerMemory):
    """Keys and values of one layer in the slots of a cache."""

    def __init__(self, kept: Tensor, given: CacheSlots, new: int):
        super().__init__()
        self.kept, self.given = kept, given     # kept: one of `KeyValueCache.layers`
        self._new = new     # tubelets of a clip, the newest, that come with the pass
        self.newest = given.newest if new == 1 else None

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Put keys and values (B, H, nP, d) of a pass into slots; return those of its clips."""
        slots, room = self.given.slots, self.given.room
        both = zip(self.kept, (keys, values), strict=True)
        if self.newest is not None:
            # Copies take a quarter of the time of one by index.
            for kept, part in both:
                for own, slot in zip(part, self.newest, strict=True):
                    kept.narrow(1, slot, 1).copy_(own[:, None])
        else:
            newest = slots[:, -self._new:].flatten()
            for kept, part in both:
                kept[:, newest] = part.transpose(0, 1).unflatten(2, (self._new, -1)).flatten(1, 2)
            if self._new == slots.shape[1]:
                return keys, values
        # One copy, of blocks that lie as attention reads them.
        torch.index_select(self.kept, 2, slots.flatten(), out=room)
        return by_clip(room, slots)


def by_clip(room: Tensor, slots: Tensor) -> tuple[Tensor, Tensor]:
    """View room (2, H, B W, P, d) as the keys, and values, of clips (B, H, W P, d)."""
    found = room.unflatten(2, slots.shape).flatten(3, 4).transpose(1, 2)
    return found[0], found[1]


class _Inputs(CacheSlots):
    """What passes of so many clips need beside the pixels, at fixed addresses."""

    def __init__(self, clips: int, encoder: Encoder, cache: KeyValueCache, eager: bool):
        even = torch.arange(encoder.window * TUBELET, dtype=torch.float64).repeat(clips, 1)
        device, self._times_of = encoder.branch_device, encoder.times
        super().__init__(
            torch.empty((clips, encoder.window), dtype=torch.int64, device=device),
            cache.layers[0, :, :, :1].repeat(1, 1, clips * encoder.window, 1, 1),
            torch.zeros(clips, dtype=torch.int64) if eager else None)
        self.times = torch.empty_like(encoder.times(even), device=device)
        self.layers: dict[int, list[StoredLayer]] = {}      # by the number of new tubelets
        self._nothing = torch.full_like(self.slots, cache.spare, device='cpu'), even
        self.idle()

    def send(self, slots: Tensor, stamps: Tensor) -> None:
        """Upload slots (B, W) and what follows from stamps (B, T) float64, which stay here."""
        if self.newest is not None:
            self.newest.copy_(slots[:, -1])
        upload(slots, self.slots)
        upload(self._times_of(stamps), self.times)

    def idle(self) -> None:
        self.send(*self._nothing)


def upload(numbers: Tensor, there: Tensor) -> None:
    """Queue a copy of numbers on the host to a tensor of their shape, on the current stream."""
    # PyTorch does not reuse the pinned memory that it hands out before the copy is done.
    staged = torch.empty(there.shape, dtype=there.dtype, pin_memory=there.is_cuda).copy_(numbers)
    there.copy_(staged, non_blocking=there.is_cuda)


class StreamEncoder:
    """A block-causal encoder with a cache of the tubelets it has encoded.

    `eager`: each pass runs from here, and none is replayed from a graph.
    """

    def __init__(self, encoder: Encoder, normalise: Work, image_size: int, eager: bool,
                 step: Step):
        self._encoder = encoder
        self._eager = eager
        self._normalise, self._step = normalise, step
        self._side, self.step_frames = image_size // PATCH, encoder.step_frames
        self.cache = KeyValueCache(encoder, self._side ** 2)
        # How long before its clip a result depends on what was seen [s]: in each block a tubelet
        # attends to those before it, which have attended to earlier ones.
        self.reach = encoder.variant.depth * BACK_S[encoder.window - 2]
        self._inputs: dict[int, _Inputs] = {}

    def drop(self, clips: Iterable[Keys]) -> None:
        self.cache.drop({end for each in clips for end in each[1::TUBELET]})

    def keep(self, frames: Set[Hashable]) -> None:
        """Forget the tubelets that end in no frame of these."""
        gone = self.cache.slots.keys() - frames
        if gone:
            self.cache.drop(gone)

    def idle(self, clips: int) -> None:
        """Let passes of so many clips remember nothing until `send`."""
        self._inputs_for(clips).idle()

    def ready(self, keys: Sequence[Keys]) -> bool:
        """Return whether `decode` can compute clips; else `prefill` has to."""
        return self.cache.slots.keys() >= {end for each in keys for end in each[1:-1:TUBELET]}

    def groups(self, keys: Sequence[Keys]) -> list[list[int]]:
        """Return the places of clips by pass: those that are ready, then the others, as fit."""
        most = self.cache.spare // self._encoder.window
        steps = [self.ready([each]) for each in keys]
        groups = [[at for at, step in enumerate(steps) if step is wanted]
                  for wanted in (True, False)]
        return [group[at:at + most] for group in groups for at in range(0, len(group), most)]

    def find(self, keys: Sequence[Keys]) -> list[int]:
        # A frame without a key never comes again, so its slot is never found again.
        return self.cache.find([object() if end is None else end
                                for each in keys for end in each[1::TUBELET]])

    def send(self, slots: Sequence[int], stamps: Sequence[np.ndarray]) -> None:
        self._inputs_for(len(stamps)).send(torch.tensor(slots).view(len(stamps), -1),
                                           torch.from_numpy(np.stack(stamps)))

    def decode(self, pixels: Tensor) -> Tensor:
        """Encode the newest tubelet of clips (B, T, S, S, 3) uint8 whose others are cached."""
        return self._run(pixels[:, -self.step_frames:], 1)

    def prefill(self, pixels: Tensor) -> Tensor:
        return self._run(pixels, self._encoder.window)

    def _run(self, pixels: Tensor, new: int) -> Tensor:
        given = self._inputs_for(len(pixels))
        if new not in given.layers:
            given.layers[new] = [StoredLayer(kept, given, new) for kept in self.cache.layers]
        memory, slots, stored = given.layers[new], given.slots, self.cache.features
        features = (self._step(pixels, given.times[:, -1:], memory) if new == 1 else
                    self._encoder(self._normalise(pixels), times=given.times, memory=memory))
        stored[slots[:, -new:].flatten()] = features.flatten(0, 1).flatten(1, 2)
        return stored[slots].unflatten(2, (self._side, self._side))

    def _inputs_for(self, clips: int) -> _Inputs:
        if clips not in self._inputs:
            self._inputs[clips] = _Inputs(clips, self._encoder, self.cache, self._eager)
        return self._inputs[clips]


def plain_step(encoder: Encoder, normalise: Work) -> Step:
    """Return the step of a stream that is the encoder's own."""
    return lambda pixels, times, memory: encoder.step(normalise(pixels), times, memory)


def why_not(encoder: Encoder, frames: int) -> str:
    """Return why an encoder cannot stream with clips of so many frames; '' when it can."""
    if not encoder.window:
        return 'the weights are bidirectional'
    if not 2 <= encoder.window <= MOST_WINDOW:
        return (f'the weights have a window of {encoder.window} tubelets, less than 2 or more '
                f'than {MOST_WINDOW}')
    if frames != TUBELET * encoder.window:
        return f'num_frames is {frames}, the weights stream with {TUBELET * encoder.window}'
    return ''
