# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Frames of one camera on a device, uploaded once when they arrive, and resized there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional as F

from vjepa_ros.clip.device_resize import DeviceGrey, DeviceView
from vjepa_ros.clip.resize import View
from vjepa_ros.looming.gpu.structure import DeviceStructure
from vjepa_ros.looming.structure import Structure
from vjepa_ros.perception.straight_view import StraightView
from vjepa_ros.runtime.cuda.graph_replay import DeviceStream, Replay
from vjepa_ros.runtime.memory import is_out_of_memory
from vjepa_ros.runtime.runner import DeviceClip


@dataclass(frozen=True)
class Upload:
    """An image on its way to a device, see `DeviceFrames.upload`."""

    image: torch.Tensor  # (H, W, 3) uint8 on the device
    arrived: torch.cuda.Event | None  # when it is there; None: it is

    @property
    def nbytes(self) -> int:
        """Size on the device and in pinned memory [bytes]."""
        return 2 * self.image.nbytes


class DeviceFrames:
    """A store of frames, each as the model's input and as a grey image for looming.

    Parameters
    ----------
    queue
        Where the work is done.
    view
        How an image becomes the input of the model.
    grey_size
        Width and height of the grey image [px].
    capacity
        Frames in the store.

    Attributes
    ----------
    grey
        (capacity, h, w) uint8 on the device.
    how
        How images are resized, for diagnostics.
    """

    def __init__(self, queue: DeviceStream, view: View, grey_size: tuple[int, int],
                 capacity: int) -> None:
        self.queue, self.capacity = queue, capacity
        device, side = queue.device, view.image_size
        self._pin = device.type == 'cuda'
        width, height = view.source_size
        with queue.here():
            def zeros(*shape: int) -> torch.Tensor:
                return torch.zeros(shape, dtype=torch.uint8, device=device)

            self._raw = zeros(height, width, 3)
            self._rgb, self._small = zeros(capacity, side, side, 3), zeros(1, side, side, 3)
            self._rows = list(self._rgb)
            self.grey = zeros(capacity, *grey_size[::-1])
            self._dim = zeros(1, *grey_size[::-1])
            self._view = DeviceView(view, device)
            self._make_grey = DeviceGrey(view.source_size, grey_size, device)
            valid = view.patch_valid()
            self._measure = DeviceStructure(side, valid, device)
        self._structure = np.zeros((capacity, len(Structure._fields), *valid.shape), np.float32)
        self._made = Replay(queue, self._work, 1, 'resizing', first=np.zeros(1, np.int64))
        self.how = 'graph' if self._made.captured else 'eager'
        # Images come on a queue of their own: they wait neither for graphs nor for the model.
        self._arrivals = queue.beside()
        self._own: tuple[np.ndarray, torch.Tensor] | None = None
        self._ready: torch.cuda.Event | None = None
        self._last: int | None = None       # row of the last image, until `_structure` has it
        self._used: torch.cuda.Event | None = None

    @property
    def captured(self) -> bool:
        """Whether images are resized by a CUDA graph."""
        return self._made.captured

    @property
    def nbytes(self) -> int:
        """Bytes of the store on the device."""
        return sum(part.nbytes for part in (self._raw, self._rgb, self.grey, self._small,
                                            self._dim))

    def copy_of(self, rgb: np.ndarray) -> np.ndarray:
        """Copy an image into memory from which `put` uploads it directly."""
        staged = self._staged(rgb)
        self._own = staged.numpy(), staged
        return self._own[0]

    def upload(self, rgb: np.ndarray) -> Upload | None:
        """Start the upload of an image (H, W, 3) uint8 before `put`, in any thread.

        Returns None where the device has no memory for it; `put` needs none.
        """
        staged = self._staged(rgb)
        with self._arrivals.here():
            try:
                return Upload(staged.to(self.queue.device, non_blocking=True),
                              self._arrivals.mark())
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                return None

    def put(self, rgb: np.ndarray, row: int, upload: Upload | None = None) -> None:
        """Queue an image (H, W, 3) uint8, uploaded already or not, for a row of the store."""
        if upload is None:
            own, self._own = self._own, None
            image = self._staged(rgb) if own is None or own[0] is not rgb else own[1]
        else:
            image = upload.image
        self._settle()      # the numbers given before are read no more
        # What looks at the frames of before, among them perhaps that of this row.
        self.queue.wait_for(self._used)
        if upload is not None:
            self.queue.wait_for(upload.arrived)
        with self.queue.lightly() if self._made.captured else self.queue.here():
            self._raw.copy_(image, non_blocking=True)
            if upload is not None and self.queue.stream is not None:
                # Its memory came from the other queue and must not be used again before.
                image.record_stream(self.queue.stream)
            self._made.start_here((row,))
            self._ready = self.queue.mark()
        self._last = row

    def clip(self, rows: Sequence[int]) -> DeviceClip:
        """Return a clip of some rows, for the model."""
        return DeviceClip([self._rows[row] for row in rows], self._ready, self._mark_used)

    def pixels(self, rows: Sequence[int]) -> list[np.ndarray]:
        """Return the same on the host, T times (S, S, 3) uint8."""
        with self.queue.here():
            return list(self._rgb[list(rows)].cpu().numpy())

    def structure(self, rows: Sequence[int]) -> Iterator[Structure]:
        """Return the structure of some rows, in place."""
        self._settle()
        return (Structure(*self._structure[row]) for row in rows)

    def _settle(self) -> None:
        """Wait for the last image, and take what came back of it."""
        if self._ready is not None:
            self._ready.synchronize()
        if self._last is not None:
            self._structure[self._last] = self._made.finish()
            self._last = None

    def _staged(self, rgb: np.ndarray) -> torch.Tensor:
        staged = torch.empty(rgb.shape, dtype=torch.uint8, pin_memory=self._pin)
        # PyTorch copies with several threads, which takes ten times as long where they compete.
        np.copyto(staged.numpy(), rgb)
        return staged

    def _mark_used(self, event: torch.cuda.Event) -> None:
        self._used = event

    def _work(self, row: torch.Tensor) -> torch.Tensor:
        """Fill a row of the store, `row` is (1,) its number; return its structure."""
        self._view.apply(self._raw, self._small[0])
        self._make_grey.apply(self._raw, self._dim[0])
        self._rgb.index_copy_(0, row, self._small)
        self.grey.index_copy_(0, row, self._dim)
        return self._measure(self._small[0])


class StraightFrames:
    """The grey images of a store, as a lens without distortion would show them.

    Parameters
    ----------
    queue
        Where the work is done.
    grey
        (capacity, h, w) uint8, see `DeviceFrames.grey`.
    view
        How the lens sees.

    Attributes
    ----------
    view
        As given.
    frames
        (capacity, h, w) uint8; only the rows of the last `draw` are right.
    """

    def __init__(self, queue: DeviceStream, grey: torch.Tensor, view: StraightView) -> None:
        self.view, self._queue, self._grey = view, queue, grey
        with queue.here():
            # Another place for each view, so that looming starts anew with it.
            self.frames = torch.zeros_like(grey)
            size = np.array(grey.shape[:0:-1])
            self._at = torch.as_tensor(view.places * (2 / (size - 1)) - 1, dtype=torch.float32,
                                       device=grey.device)[None]
        self._drawn: dict[int, int] = {}

    def draw(self, recent: Sequence[tuple[int, int]]) -> None:
        """Queue the straight pictures of (stamp in ns, row) that are not there yet."""
        with self._queue.here():
            for stamp_ns, row in recent:
                if self._drawn.get(row) != stamp_ns:
                    picture = F.grid_sample(self._grey[row][None, None].float(), self._at,
                                            padding_mode='border', align_corners=True)
                    self.frames[row].copy_(picture[0, 0].round_())
        self._drawn = {row: stamp_ns for stamp_ns, row in recent}
