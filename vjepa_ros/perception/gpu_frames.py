# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Frames of one camera on a device: uploaded once when they arrive, and resized there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from vjepa_ros.clip.device_resize import DeviceView, means_of
from vjepa_ros.clip.resize import View
from vjepa_ros.clip.ring import Frame
from vjepa_ros.perception.gpu_structure import DeviceStructure
from vjepa_ros.perception.structure import Structure
from vjepa_ros.runtime.cuda.graph_replay import DeviceStream, Replay
from vjepa_ros.runtime.memory import is_out_of_memory
from vjepa_ros.runtime.runner import DeviceClip


def open_stream(device: torch.device) -> DeviceStream:
    """Return a stream for frames, whose kernels are compiled now."""
    means_of(device)
    return DeviceStream(device)


class DeviceFrames:
    """Frames on a device as the model's input, see `HostFrames`; `capacity` may be held."""

    on_device = True

    def __init__(self, view: View, stream: DeviceStream, capacity: int) -> None:
        # More than the ring holds: the last one to leave may still be in use.
        self.view, self.stream, self._capacity = view, stream, capacity + 2
        device, side = stream.device, view.image_size
        width, height = view.source_size
        with stream.here():
            def zeros(*shape: int) -> torch.Tensor:
                return torch.zeros(shape, dtype=torch.uint8, device=device)

            self._raw = zeros(height, width, 3)
            self._rgb, self._small = zeros(self._capacity, side, side, 3), zeros(1, side, side, 3)
            self._rows = list(self._rgb)
            self._resize = DeviceView(view, device)
            valid = view.patch_valid
            self._measure = DeviceStructure(side, valid, device)
        self._structure = np.zeros((self._capacity, len(Structure._fields), *valid.shape),
                                   np.float32)
        self._made = Replay(stream, self._work, np.zeros(1, np.int64), 'resizing')
        # Images come on a stream of their own: they wait neither for graphs nor for the model.
        self._arrivals = stream.beside()
        self._ready: torch.cuda.Event | None = None
        self._last: int | None = None       # row of the last image, until `_structure` has it
        self._used: torch.cuda.Event | None = None
        self._next = 0

    @property
    def where(self) -> str:
        """Return the device, how frames are resized there, and the memory."""
        size = self._raw.nbytes + self._rgb.nbytes + self._small.nbytes
        how = 'graph' if self._made.captured else 'eager'
        return f'{self.stream.device} (frames {how}, {size >> 20} MB)'

    def prepare(self, rgb: np.ndarray) -> Frame:
        """Upload an image, in any thread; where the device has no memory `store` does that."""
        with self._arrivals.lightly():
            try:
                return Frame(uploaded=_tensor(rgb).to(self.stream.device))
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                return Frame()

    def place(self, frame: Frame, held: Sequence[Frame]) -> None:
        """Find a row for a frame."""
        taken = {other.row for other in held}
        while self._next in taken:
            self._next = (self._next + 1) % self._capacity
        frame.row = self._next

    def store(self, frame: Frame, rgb: np.ndarray) -> None:
        """Put a frame into its row."""
        uploaded, frame.uploaded = frame.uploaded, None
        self._settle()      # the numbers given before are read no more
        # What looks at the frames of before, among them perhaps that of this row.
        self.stream.wait_for(self._used)
        with self.stream.lightly() if self._made.captured else self.stream.here():
            self._raw.copy_(_tensor(rgb) if uploaded is None else uploaded)
            if uploaded is not None and self.stream.stream is not None:
                # Its memory came from the other stream and must not be used again before.
                uploaded.record_stream(self.stream.stream)
            self._made.start((frame.row,))
            self._ready = self.stream.mark()
        self._last = frame.row
        self._next = (frame.row + 1) % self._capacity

    def clip(self, frames: Sequence[Frame]) -> DeviceClip:
        """Return the encoder's input on the device."""
        return DeviceClip([self._rows[frame.row] for frame in frames], self._ready,
                          self._mark_used)

    def pixels(self, frames: Sequence[Frame]) -> list[np.ndarray]:
        """Return the encoder's input on the host."""
        with self.stream.here():
            return list(self._rgb[[frame.row for frame in frames]].cpu().numpy())

    def structure(self, frames: Sequence[Frame]) -> Iterable[Structure]:
        """Return the structure of frames, in place."""
        self._settle()
        return (Structure(*self._structure[frame.row]) for frame in frames)

    def _settle(self) -> None:
        """Wait for the last image, and take what came back of it."""
        if self._ready is not None:
            self._ready.synchronize()
        if self._last is not None:
            self._structure[self._last] = self._made.finish()
            self._last = None

    def _mark_used(self, event: torch.cuda.Event) -> None:
        self._used = event

    def _work(self, row: torch.Tensor) -> torch.Tensor:
        """Fill a row, `row` is (1,) its number; return its structure."""
        self._resize.apply(self._raw, self._small[0])
        self._rgb.index_copy_(0, row, self._small)
        return self._measure(self._small[0])


def _tensor(rgb: np.ndarray) -> torch.Tensor:
    """Return an image as a tensor of the same memory, where that is allowed."""
    return torch.from_numpy(np.require(rgb, requirements=('C', 'W')))
