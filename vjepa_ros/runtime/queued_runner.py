# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run passes on MPS without waiting for them.

One thread gives the device all its work, in order, and waits for it; so nothing depends on how a
device orders the work of several threads. It uploads each frame once.
"""

from __future__ import annotations

import traceback
from collections import OrderedDict, deque
from collections.abc import Hashable, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import repeat

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.runtime.cuda.frame_upload import Clip, DeviceClip, Keys, MOST_BYTES
from vjepa_ros.runtime.device import SessionError
from vjepa_ros.runtime.forward.base import Work
from vjepa_ros.runtime.host_runner import HostRunner
from vjepa_ros.runtime.outputs import Flight, Landed

DEPTH = 2  # passes under way: one that computes and one that waits


@dataclass(frozen=True)
class _Frames:
    """The frames of a pass."""

    rows: list[list[Hashable]]  # for each clip the names of its frames
    new: dict[Hashable, np.ndarray]  # frames (S, S, 3) uint8 that are not on the device, by name
    drop: list[Hashable]  # names of frames to free there, before the pass


@dataclass(frozen=True)
class _Flight:
    """A pass under way."""

    future: Future[Landed]

    def done(self) -> bool:
        """Return whether it is over."""
        return self.future.done()

    arrived = done

    def land(self) -> Landed:
        """Wait for the results, or raise what went wrong."""
        return self.future.result()


class QueuedRunner(HostRunner):
    """Passes in a thread of their own. The methods are called by one thread at once.

    The first pass of a kind is over when `start` returns, so that a device without memory for it
    is known there. After a pass has failed, those behind it fail as well, and the next ones start
    afresh.

    Parameters
    ----------
    forward, read, device
        See `HostRunner`.

    Attributes
    ----------
    uploads : int
        Frames uploaded so far.

    """

    def __init__(self, forward: Work, read: Work | None, device: torch.device):
        super().__init__(forward, read, device)
        self._thread = ThreadPoolExecutor(1, 'passes')
        self._flying: deque[Future[Landed]] = deque()
        self._proven: set[tuple[object, ...]] = set()   # kinds of passes that have run
        self._failed = ''
        # Frames on the device after all passes under way, least recently used first. What is
        # there now, the thread alone knows.
        self._names: OrderedDict[Hashable, None] = OrderedDict()
        self._gone: list[Hashable] = []
        self._there: dict[Hashable, Tensor] = {}
        self._frame_bytes = 0
        self.uploads = 0

    @property
    def nbytes(self) -> int:
        """Bytes of frames that are kept on the device."""
        return len(self._names) * self._frame_bytes

    def start(self, clips: Sequence[Clip], keys: Sequence[Keys] | None, features: bool,
              heads: bool, valid: Sequence[np.ndarray] | None = None,
              stamps: Sequence[np.ndarray] | None = None) -> Flight:
        """Copy what the device does not have, and queue a pass.

        `valid` is unused, see `HostRunner`.
        """
        while len(self._flying) >= DEPTH:
            wait([self._flying.popleft()])
        if self._failed:
            self.trim()
        forward, slots, read = self._find(clips, keys, stamps)
        frames = self._take(clips, keys, read)
        future = self._thread.submit(self._run, forward, frames, slots, stamps, features, heads)
        kind = (forward, *map(len, frames.rows), features, heads)
        if kind not in self._proven:
            future.result()
            self._proven.add(kind)
        self._flying.append(future)
        return _Flight(future)

    def _take(self, clips: Sequence[Clip], keys: Sequence[Keys] | None, read: slice) -> _Frames:
        """Copy the frames of this part of clips that are not on the device yet."""
        rows, new = list[list[Hashable]](), dict[Hashable, np.ndarray]()
        once = list[Hashable]()
        for number, clip in enumerate(clips):
            assert not isinstance(clip, DeviceClip), 'there is no geometry on this device'
            rows.append([])
            for frame, key in zip(clip[read], repeat(None) if keys is None else keys[number][read],
                                  strict=keys is not None):
                name = object() if key is None else key
                if name not in self._names and name not in new:
                    new[name] = np.array(frame)
                    self._frame_bytes = frame.nbytes
                rows[-1].append(name)
                if key is None:
                    once.append(name)
                else:
                    self._names[name] = None
                    self._names.move_to_end(name)
        drop, self._gone = self._gone, once
        most = max(sum(map(len, rows)), MOST_BYTES // self._frame_bytes)
        while len(self._names) > most:
            drop.append(self._names.popitem(last=False)[0])
        return _Frames(rows, new, drop)

    @torch.inference_mode()
    def _run(self, forward: Work, frames: _Frames, slots: list[int] | None,
             stamps: Sequence[np.ndarray] | None, features: bool, heads: bool) -> Landed:
        if self._failed:
            raise SessionError(f'the pass before this one failed: {self._failed}')
        try:
            begin = self._clock()
            for name in frames.drop:
                self._there.pop(name, None)
            for name, frame in frames.new.items():
                self._there[name] = torch.from_numpy(frame).to(self._device)
            self.uploads += len(frames.new)
            pixels = torch.stack([torch.stack([self._there[name] for name in row])
                                  for row in frames.rows])
            if slots is not None and stamps is not None and self.stream is not None:
                self.stream.send(slots, stamps)
            return self._pass(forward, pixels, features, heads, begin)
        except BaseException as error:
            self._failed = str(error) or type(error).__name__
            traceback.clear_frames(error.__traceback__)    # they keep what was allocated
            raise

    def apply(self, clips: Sequence[Clip], function: Work) -> np.ndarray:
        """Apply a function to the pixels (B, T, S, S, 3) uint8; its result as float32."""
        return self._thread.submit(super().apply, clips, function).result()

    def keep(self, frames: Set[Hashable]) -> None:
        """Forget other frames than these, and the tubelets that end in others."""
        super().keep(frames)
        gone = self._names.keys() - frames
        for name in gone:
            del self._names[name]
        self._gone += gone

    def trim(self) -> None:
        """Wait for what runs, then free what can be made again."""
        wait(self._flying)
        self._flying.clear()
        self._thread.submit(self._there.clear).result()
        self._names.clear()
        self._gone, self._failed = [], ''
        self._proven.clear()
        super().trim()

    def close(self) -> None:
        """Wait for what runs, then drop frames and networks."""
        self._thread.shutdown()
        self._there.clear()
        self._names.clear()
        super().close()
