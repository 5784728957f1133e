# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Encode each tubelet of a camera once: a block-causal encoder with what it remembers.

The result for a clip is made of the newest tubelet, which is encoded, and of earlier ones, whose
keys, values and features are remembered. When one is missing, the clip is encoded as a whole, in a
pass with others like it, and remembered. What is remembered lies in slots at fixed addresses and
what a pass needs to know beside the pixels is uploaded into fixed places, so that CUDA graphs can
hold both kinds of pass.

B clips, T = 2 W frames, W tubelets, P places (patches) of a tubelet, L layers, H heads, d channels
of a head, D width.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence, Set

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.model.blocks import LayerMemory
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.variants import PATCH, TUBELET
from vjepa_ros.runtime.cuda.frame_upload import Keys, Rows, SlotMap
from vjepa_ros.runtime.forward.base import Step, Work

STREAMING = ('auto', 'off')
MAX_BYTES = 512 << 20   # of what is remembered of all cameras
MOST_TUBELETS = 256     # that are remembered
LEAST_CLIPS = 4         # of a pass, at any size

# Where keys and values of the newest tubelets of a pass belong: what a layer keeps (see
# `StoredLayer`), the slots of these tubelets (B,), and slots and room (see `_Inputs`).
Place = tuple[Tensor, list[int], Tensor, Tensor]


class TubeletStore:
    """What is remembered of tubelets, in slots; the least recently used go first.

    Parameters
    ----------
    encoder : Encoder
        Block-causal, on its device and in its precision.
    places : int
        P.
    max_bytes : int
        Most that is kept, but for `LEAST_CLIPS` clips.

    Attributes
    ----------
    spare : int
        Number of slots, and of the one after them, for what is only tried out.
    layers : Tensor
        (L, 2, H, slots + 1, P, d) rotated keys, and values.
    features : Tensor
        (slots + 1, P, D) float32.

    """

    def __init__(self, encoder: Encoder, places: int, max_bytes: int = MAX_BYTES):
        variant = encoder.variant
        device, dtype = encoder.branch_device, encoder.branch_dtype
        self._each = (2 * variant.depth * dtype.itemsize + 4) * places * variant.dim
        slots = min(MOST_TUBELETS, max_bytes // self._each)
        slots = max(slots, LEAST_CLIPS * encoder.window)
        self.spare = slots
        self._ever_used = 0
        self.forget()
        self.layers = torch.empty((variant.depth, 2, variant.heads, slots + 1, places,
                                   variant.head_dim), dtype=dtype, device=device)
        self.features = torch.empty((slots + 1, places, variant.dim), device=device)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that are taken, whatever is remembered now."""
        # On a CPU a page costs nothing until it is first written, and is kept when its tubelet
        # is forgotten. Slots that were used before are taken first, so these are as many as
        # there ever were tubelets at once. Other devices give everything at the start.
        if self.layers.device.type == 'cpu':
            return self._ever_used * self._each
        return self.layers.nbytes + self.features.nbytes

    @property
    def keys(self) -> Set[Hashable]:
        """Return the tubelets that have a slot now."""
        return self._map.keys

    def find(self, ends: Sequence[Hashable]) -> list[int]:
        """Return the slot of each tubelet; those that are new get one."""
        slots = self._map.find(ends)[0]
        self._ever_used = max(self._ever_used, 1 + max(slots, default=-1))
        return slots

    def keep(self, frames: Set[Hashable]) -> None:
        """Forget the tubelets that end in no frame of these."""
        self._map.forget(list(self._map.keys - frames))

    def drop(self, ends: Set[Hashable]) -> None:
        """Forget these tubelets."""
        self._map.forget(list(self._map.keys & ends))

    def forget(self) -> None:
        """Forget everything."""
        self._map = SlotMap(self.spare)
        self._map.grow(self.spare)


class Whereabouts:
    """Where the tubelets of clips are.

    Attributes
    ----------
    slots : Tensor
        (B, W) slots of the tubelets of each clip, oldest first.
    room : Tensor
        (2, H, B W, P, d) for the keys and values of the clips, of one layer after the other.
    known : list of int
        Slots (B W,) on the host; empty where passes may be replayed for others.

    """

    def __init__(self, slots: Tensor, room: Tensor):
        self.slots, self.room = slots, room
        self.known: list[int] = []


class StoredLayer(LayerMemory):
    """Keys and values of one layer in the slots of a store.

    Parameters
    ----------
    kept : Tensor
        (2, H, slots + 1, P, d), one of `TubeletStore.layers`.
    given : Whereabouts
        Where the tubelets of the clips are.
    new : int
        How many of them, the newest, come with the pass.

    """

    def __init__(self, kept: Tensor, given: Whereabouts, new: int):
        super().__init__()
        self._kept, self._given, self._new = kept, given, new

    @property
    def place(self) -> Place | None:
        """Where `remember` puts keys and values; None where `extend` has to."""
        given = self._given
        if not given.known or self._new > 1:
            return None
        window = given.slots.shape[1]
        return self._kept, given.known[window - 1::window], given.slots, given.room

    @property
    def stored(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """Where one tubelet of each clip belongs; None where there are more of them."""
        return (self._kept, self._given.slots, self._given.room) if self._new == 1 else None

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Put keys and values (B, H, nP, d) of a pass into slots; return those of its clips."""
        place, slots = self.place, self._given.slots
        if place is not None:
            return remember(keys, values, place)
        newest = slots[:, -self._new:].flatten()
        for kept, part in zip(self._kept, (keys, values), strict=True):
            kept[:, newest] = part.transpose(0, 1).unflatten(2, (self._new, -1)).flatten(1, 2)
        if self._new == slots.shape[1]:
            return keys, values
        return _collected(self._kept, slots, self._given.room)


def remember(keys: Tensor, values: Tensor, place: Place) -> tuple[Tensor, Tensor]:
    """Put keys and values (B, H, P, d) into their place; return those of all tubelets of clips.

    TorchScript compiles it.
    """
    # Copies take a quarter of the time of one by index.
    kept, newest, slots, room = place
    for clip, slot in enumerate(newest):
        kept[0, :, slot].copy_(keys[clip])
        kept[1, :, slot].copy_(values[clip])
    return _collected(kept, slots, room)


def _collected(kept: Tensor, slots: Tensor, room: Tensor) -> tuple[Tensor, Tensor]:
    # One copy, of blocks that lie as attention reads them.
    torch.index_select(kept, 2, slots.flatten(), out=room)
    return by_clip(room, slots)


def by_clip(room: Tensor, slots: Tensor) -> tuple[Tensor, Tensor]:
    """View room (2, H, B W, P, d) as the keys, and values, of clips (B, H, W P, d)."""
    found = room.unflatten(2, slots.shape).flatten(3, 4).transpose(1, 2)
    return found[0], found[1]


class _Inputs(Whereabouts):
    """What passes of so many clips need beside the pixels, at fixed addresses.

    Parameters
    ----------
    clips : int
        B.
    encoder : Encoder
        See `StreamEncoder`.
    store : TubeletStore
        What the passes remember in.
    eager : bool
        See `StreamEncoder`.

    Attributes
    ----------
    times : Tensor
        See `Encoder.times`.
    frames : Tensor
        (B T,) int64, numbers of the frames of the clips, where the caller finds pixels by them.
    layers : dict
        By the number of new tubelets of a pass, the memory of its layers.

    """

    def __init__(self, clips: int, encoder: Encoder, store: TubeletStore, eager: bool):
        even = np.arange(encoder.window * TUBELET, dtype=np.float64)
        count = clips * encoder.window
        first = count + clips * len(even)       # of the times
        self._nothing = [store.spare] * count, np.stack([even] * clips)
        self._times_of = encoder.times_of
        times = encoder.times_of(even[None])
        device, size = encoder.branch_device, clips * times.size
        # One upload: whole numbers, and behind them the times, two in the place of one. MPS may
        # read a part of a buffer wrongly in another type, and has two.
        self._packed = np.zeros(first + -(-size // 2), np.int64)
        self._slots, self._frames = self._packed[:count], self._packed[count:first]
        self._times = self._packed[first:].view(np.float32)[:size]
        self._apart: Rows | None = None
        if device.type == 'mps':
            self._rows, self._apart = Rows(first, device), Rows(size, device, torch.float32)
            told = self._apart.there
        else:
            self._rows = Rows(len(self._packed), device)
            told = self._rows.there[first:].view(torch.float32)[:size]
        self.frames = self._rows.there[count:first]
        super().__init__(self._rows.there[:count].view(clips, -1),
                         store.layers[0, :, :, :1].repeat(1, 1, count, 1, 1))
        self.times = told.view(clips, *times.shape[1:])
        self.layers: dict[int, list[StoredLayer]] = {}
        self._eager = eager
        self.idle()

    def send(self, slots: Sequence[int], stamps: np.ndarray, frames: Sequence[int] = ()) -> None:
        """Upload slots (B W,) and what follows from stamps (B, T) float64, on the current stream.

        The float64 stays here: not every device has it. With `frames` (B T,), if there are any.
        """
        self.known = list(slots) if self._eager else []
        self._slots[:] = slots
        self._times[:] = self._times_of(stamps).ravel()
        if frames:
            self._frames[:] = frames
        if self._apart is not None:
            self._rows.send(self._packed[:len(self._slots) + len(self._frames)])
            self._apart.send(self._times)
        else:
            self._rows.send(self._packed)

    def idle(self) -> None:
        """Let the next passes remember nothing."""
        self.send(*self._nothing)


class StreamEncoder:
    """A block-causal encoder that remembers tubelets.

    Parameters
    ----------
    encoder : Encoder
        Block-causal, on its device and in its precision.
    normalise : callable
        Converts uint8 clips (B, T, S, S, 3) to its input.
    image_size : int
        S.
    eager : bool
        Whether each pass runs from here, and none is replayed from a graph.
    step : callable, optional
        Encodes the newest tubelets; the encoder itself does when omitted.

    """

    def __init__(self, encoder: Encoder, normalise: Work, image_size: int, eager: bool = False,
                 step: Step | None = None):
        self._encoder = encoder
        self._eager = eager
        self._normalise = normalise
        self._step: Step = step or (lambda pixels, times, memory: encoder.step(
            normalise(pixels), times, memory))
        self._side = image_size // PATCH
        self._store = TubeletStore(encoder, self._side ** 2)
        self._inputs: dict[int, _Inputs] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of memory for what is remembered, see `TubeletStore.nbytes`."""
        return self._store.nbytes

    @property
    def reach(self) -> int:
        """How far back a result depends on what was seen, before its clip [frame intervals].

        In each block a tubelet attends to those before it, which have attended to earlier ones.
        """
        return self._encoder.variant.depth * (self._encoder.window - 1) * TUBELET

    @property
    def remembered(self) -> Set[Hashable]:
        """Return the tubelets that are remembered now, by the key of their newer frame."""
        return self._store.keys

    def forget(self) -> None:
        """Forget everything."""
        self._store.forget()

    def drop(self, clips: Iterable[Keys]) -> None:
        """Forget the tubelets of clips."""
        self._store.drop({end for each in clips for end in each[1::TUBELET]})

    def keep(self, frames: Set[Hashable]) -> None:
        """Forget the tubelets that end in no frame of these."""
        self._store.keep(frames)

    def idle(self, clips: int) -> None:
        """Let passes of so many clips remember nothing until `prepare`."""
        self._inputs_for(clips).idle()

    def ready(self, keys: Sequence[Keys]) -> bool:
        """Return whether `step` can compute clips; else `whole` has to. See `prepare`."""
        return self._store.keys >= {end for each in keys for end in each[1:-1:TUBELET]}

    def groups(self, keys: Sequence[Keys]) -> list[list[int]]:
        """Return the places of the clips of each pass: those that are ready, then the others.

        No pass has more of them than there are slots for.
        """
        most = self._store.spare // self._encoder.window
        steps = [self.ready([each]) for each in keys]
        groups = [[at for at, step in enumerate(steps) if step is wanted]
                  for wanted in (True, False)]
        return [group[at:at + most] for group in groups for at in range(0, len(group), most)]

    def prepare(self, keys: Sequence[Keys], stamps: Sequence[np.ndarray],
                frames: Sequence[int] = ()) -> Tensor:
        """Upload what the pass of some clips needs, on the current stream.

        `frames`: sequence of int (B T,) numbers of the frames, where the caller finds pixels by
        them.
        """
        self.send(self.find(keys), stamps, frames)
        return self._inputs_for(len(stamps)).frames

    def find(self, keys: Sequence[Keys]) -> list[int]:
        """Return the slots of the tubelets of clips, for `send`; see `prepare`."""
        # A frame without a key never comes again, so its slot is never found again.
        return self._store.find([object() if end is None else end
                                 for each in keys for end in each[1::TUBELET]])

    def send(self, slots: Sequence[int], stamps: Sequence[np.ndarray],
             frames: Sequence[int] = ()) -> None:
        """Upload slots and stamps; the second half of `prepare`."""
        self._inputs_for(len(stamps)).send(slots, np.stack(stamps), frames)

    def step(self, pixels: Tensor) -> Tensor:
        """Encode the newest tubelet of clips whose others are remembered.

        `pixels`: (B, T, S, S, 3) uint8, or the newest tubelet of it.
        """
        given = self._inputs_for(len(pixels))
        features = self._step(pixels[:, -TUBELET:], given.times[:, -1:], self._memory(given, 1))
        return self._remembered(given.slots, features)

    def whole(self, pixels: Tensor) -> Tensor:
        """Encode all tubelets of clips, see `step`."""
        given = self._inputs_for(len(pixels))
        memory = self._memory(given, self._encoder.window)
        features = self._encoder(self._normalise(pixels), times=given.times, memory=memory)
        return self._remembered(given.slots, features)

    def _memory(self, given: _Inputs, new: int) -> Sequence[LayerMemory]:
        if new not in given.layers:
            given.layers[new] = [StoredLayer(kept, given, new) for kept in self._store.layers]
        return given.layers[new]

    def _remembered(self, slots: Tensor, newest: Tensor) -> Tensor:
        """Remember features (B, n, Hp, Wp, D) of the newest tubelets; return those of all."""
        store, new = self._store.features, newest.shape[1]
        store[slots[:, -new:].flatten()] = newest.flatten(0, 1).flatten(1, 2)
        return store[slots].unflatten(2, (self._side, self._side))

    def _inputs_for(self, clips: int) -> _Inputs:
        if clips not in self._inputs:
            self._inputs[clips] = _Inputs(clips, self._encoder, self._store, self._eager)
        return self._inputs[clips]


def why_not(encoder: Encoder, frames: int) -> str:
    """Return why an encoder cannot stream with clips of so many frames; '' when it can."""
    if not encoder.window:
        return 'the weights are bidirectional'
    if frames != TUBELET * encoder.window:
        return f'num_frames is {frames}, the weights stream with {TUBELET * encoder.window}'
    return ''
