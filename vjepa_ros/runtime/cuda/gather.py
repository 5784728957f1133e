# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Fill the input of a pass with frames that are on the device."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice

import torch
from torch import Tensor

from vjepa_ros.runtime.cuda.frame_upload import Clip, DeviceClip, FrameStore, words

TURNS = 2   # uploads of numbers that may be under way: one for each pass that is


class Rows:
    """Numbers of frames on the device, in memory that is there once and for all.

    Parameters
    ----------
    count : int
        How many there are each time.
    device : torch.device
        Where they are wanted.

    """

    def __init__(self, count: int, device: torch.device):
        cuda = device.type == 'cuda'
        self._there = torch.empty(count, dtype=torch.int64, device=device)
        # With the event of the copy that reads each: before it the memory must not change.
        self._staged: deque[tuple[Tensor, torch.cuda.Event | None]] = deque(
            (torch.empty(count, dtype=torch.int64, pin_memory=cuda),
             torch.cuda.Event() if cuda else None) for _ in range(TURNS))

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return self._there.nbytes

    def send(self, numbers: Sequence[int]) -> Tensor:
        """These numbers on the device, in the order of the current stream; always one tensor."""
        self._staged.rotate()
        staged, sent = self._staged[0]
        if sent is not None:
            sent.synchronize()
        staged.numpy()[:] = numbers
        self._there.copy_(staged, non_blocking=True)
        if sent is not None:
            sent.record()
        return self._there


class Collector:
    """Copies the frames of clips into the input of a pass, on the current stream.

    Parameters
    ----------
    pixels : Tensor
        (B, T, S, S, 3) uint8, contiguous.

    """

    def __init__(self, pixels: Tensor):
        clips, self._frames = pixels.shape[:2]
        self._rows = Rows(clips * self._frames, pixels.device)
        self._all = words(pixels.view(-1, *pixels.shape[2:]))
        self._each = self._all.split(self._frames)

    @property
    def nbytes(self) -> int:
        """Bytes on the device, without the pixels."""
        return self._rows.nbytes

    def collect(self, clips: Sequence[Clip], slots: Sequence[int], store: FrameStore) -> None:
        """Fill the pixels.

        Parameters
        ----------
        clips : sequence of clips
            As many as there is room for.
        slots : sequence of int
            Where the frames of those that are not `DeviceClip` lie in `store`, clip by clip.
        store : FrameStore
            It has them.

        """
        if not any(isinstance(clip, DeviceClip) for clip in clips):
            torch.index_select(store.words, 0, self._rows.send(slots), out=self._all)
            return
        left = iter(slots)
        numbers = [number for clip in clips for number in (
            clip.rows if isinstance(clip, DeviceClip) else islice(left, self._frames))]
        rows = self._rows.send(numbers).split(self._frames)
        for clip, mine, out in zip(clips, rows, self._each, strict=True):
            source = clip if isinstance(clip, DeviceClip) else store
            torch.index_select(source.words, 0, mine, out=out)
