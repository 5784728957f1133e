# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Storage for the frames of one camera: made once, frames are copied into its slots."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

SERIALS = itertools.count()   # of the stored frames of all storages


class PlaneStore:
    """Equally many slots of several named arrays (planes), such as a picture and its grey one.

    It knows nothing of time: which slot is given back when is up to the owner.

    Parameters
    ----------
    wanted
        Slots that would be good to have.
    least
        Slots there must be, whatever they take.
    max_bytes
        Upper limit of all slots but the least [bytes]; `fit` asks for it.
    """

    def __init__(self, wanted: int, least: int, max_bytes: int) -> None:
        self._wanted = wanted
        self._least = least
        self.max_bytes = max_bytes
        self._planes: dict[str, np.ndarray] = {}
        self._serials: dict[int, int] = {}   # of the frame that was last written to a slot
        self._free: list[int] = []
        self.capacity = 0                    # slots, 0 before the first frame

    @property
    def nbytes(self) -> int:
        """Bytes of all slots."""
        return sum(plane.nbytes for plane in self._planes.values())

    @property
    def full(self) -> bool:
        """Whether no slot is free."""
        return not self._free

    def room(self, frame_bytes: int) -> int:
        """Slots there will be for frames of so many bytes."""
        return max(self._least, min(self._wanted, self.max_bytes // frame_bytes))

    def fit(self, planes: Mapping[str, np.ndarray]) -> None:
        """Make slots for frames like this one, if there are none; those of others are lost."""
        shapes = {key: plane.shape for key, plane in planes.items()}
        if self._planes and {k: p.shape[1:] for k, p in self._planes.items()} == shapes:
            return
        self.capacity = self.room(sum(plane.nbytes for plane in planes.values()))
        self._planes = {key: np.empty((self.capacity, *plane.shape), plane.dtype)
                        for key, plane in planes.items()}
        self._free = list(range(self.capacity))

    def put(self, planes: Mapping[str, np.ndarray]) -> int:
        """Copy a frame into a free slot, and say into which."""
        slot = self._free.pop()
        for key, plane in planes.items():
            np.copyto(self._planes[key][slot], plane)
        self._serials[slot] = next(SERIALS)
        return slot

    def give_back(self, slots: Sequence[int]) -> None:
        """These slots may be written again; until then they show what they did."""
        self._free.extend(slots)

    def serial(self, slot: int) -> int:
        """A number that no other frame here or in any other storage of the process has."""
        return self._serials[slot]

    def view(self, plane: str, slot: int) -> np.ndarray:
        """What a slot holds, which the next `put` may overwrite once it was given back."""
        return self._planes[plane][slot]

    def gather(self, plane: str, slots: Sequence[int],
               out: np.ndarray | None = None) -> np.ndarray:
        """A copy of several slots: (number of slots, *plane shape)."""
        return np.take(self._planes[plane], slots, axis=0, out=out, mode='clip')
