# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Frames of one camera on a device: uploaded once when they arrive, resized and measured there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

import numpy as np
import torch
from torch.nn import functional as F

from vjepa_ros.clip.device_resize import DeviceGrey, DeviceView, means_of
from vjepa_ros.clip.optics import Optics
from vjepa_ros.clip.resize import View
from vjepa_ros.clip.ring import Frame
from vjepa_ros.looming.estimator import LoomingField
from vjepa_ros.looming.gpu.estimator import DeviceLooming
from vjepa_ros.looming.gpu.kernels import prepare_kernels
from vjepa_ros.looming.gpu.structure import DeviceStructure
from vjepa_ros.looming.gyroscope import Gyroscope
from vjepa_ros.looming.structure import Structure
from vjepa_ros.perception.frame_store import EVERYTHING, MIN_LOOMING_SIDE, grey_size, lens_of
from vjepa_ros.perception.settings import TrackConfig
from vjepa_ros.perception.straight_view import StraightView, straight_view
from vjepa_ros.runtime.cuda.graph_replay import DeviceStream, Replay
from vjepa_ros.runtime.memory import is_out_of_memory
from vjepa_ros.runtime.runner import DeviceClip


def open_stream(device: torch.device) -> DeviceStream:
    """Return a stream for frames and looming, whose kernels are compiled now."""
    prepare_kernels(device)
    means_of(device)
    return DeviceStream(device)


class DeviceFrames:
    """A store of frames, each as the model's input and as a grey image for looming.

    Attributes
    ----------
    grey
        (capacity, h, w) uint8 on the device.
    captured
        Whether images are resized by a CUDA graph.
    """

    def __init__(self, stream: DeviceStream, view: View, grey_size: tuple[int, int],
                 capacity: int) -> None:
        self.stream, self.capacity = stream, capacity
        device, side = stream.device, view.image_size
        width, height = view.source_size
        with stream.here():
            def zeros(*shape: int) -> torch.Tensor:
                return torch.zeros(shape, dtype=torch.uint8, device=device)

            self._raw = zeros(height, width, 3)
            self._rgb, self._small = zeros(capacity, side, side, 3), zeros(1, side, side, 3)
            self._rows = list(self._rgb)
            self.grey = zeros(capacity, *grey_size[::-1])
            self._dim = zeros(1, *grey_size[::-1])
            self._view = DeviceView(view, device)
            self._make_grey = DeviceGrey(view.source_size, grey_size, device)
            valid = view.patch_valid
            self._measure = DeviceStructure(side, valid, device)
        self._structure = np.zeros((capacity, len(Structure._fields), *valid.shape), np.float32)
        self._made = Replay(stream, self._work, np.zeros(1, np.int64), 'resizing')
        self.captured = self._made.captured
        # Images come on a stream of their own: they wait neither for graphs nor for the model.
        self._arrivals = stream.beside()
        self._ready: torch.cuda.Event | None = None
        self._last: int | None = None       # row of the last image, until `_structure` has it
        self._used: torch.cuda.Event | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the store on the device."""
        return sum(part.nbytes for part in (self._raw, self._rgb, self.grey, self._small,
                                            self._dim))

    def upload(self, rgb: np.ndarray) -> torch.Tensor | None:
        """Upload an image (H, W, 3) uint8 before `put`, in any thread.

        Returns None where the device has no memory for it; `put` needs none.
        """
        with self._arrivals.lightly():
            try:
                return _tensor(rgb).to(self.stream.device)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                return None

    def put(self, rgb: np.ndarray, row: int, uploaded: torch.Tensor | None = None) -> None:
        """Put an image (H, W, 3) uint8, uploaded already or not, into a row of the store."""
        self._settle()      # the numbers given before are read no more
        # What looks at the frames of before, among them perhaps that of this row.
        self.stream.wait_for(self._used)
        with self.stream.lightly() if self.captured else self.stream.here():
            self._raw.copy_(_tensor(rgb) if uploaded is None else uploaded)
            if uploaded is not None and self.stream.stream is not None:
                # Its memory came from the other stream and must not be used again before.
                uploaded.record_stream(self.stream.stream)
            self._made.start_here((row,))
            self._ready = self.stream.mark()
        self._last = row

    def clip(self, rows: Sequence[int]) -> DeviceClip:
        """Return a clip of some rows, for the model."""
        return DeviceClip([self._rows[row] for row in rows], self._ready, self._mark_used)

    def pixels(self, rows: Sequence[int]) -> list[np.ndarray]:
        """Return the same on the host, T times (S, S, 3) uint8."""
        with self.stream.here():
            return list(self._rgb[list(rows)].cpu().numpy())

    def structure(self, rows: Sequence[int]) -> Iterable[Structure]:
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

    def _mark_used(self, event: torch.cuda.Event) -> None:
        self._used = event

    def _work(self, row: torch.Tensor) -> torch.Tensor:
        """Fill a row of the store, `row` is (1,) its number; return its structure."""
        self._view.apply(self._raw, self._small[0])
        self._make_grey.apply(self._raw, self._dim[0])
        self._rgb.index_copy_(0, row, self._small)
        self.grey.index_copy_(0, row, self._dim)
        return self._measure(self._small[0])


def _tensor(rgb: np.ndarray) -> torch.Tensor:
    """Return an image as a tensor of the same memory, where that is allowed."""
    return torch.from_numpy(np.require(rgb, requirements=('C', 'W')))


class StraightFrames:
    """The grey images of a store, as a lens without distortion would show them.

    Attributes
    ----------
    frames
        (capacity, h, w) uint8; only the rows of the last `draw` are right.
    """

    def __init__(self, stream: DeviceStream, grey: torch.Tensor, view: StraightView) -> None:
        self.view, self._stream, self._grey = view, stream, grey
        with stream.here():
            # Another place for each view, so that looming starts anew with it.
            self.frames = torch.zeros_like(grey)
            size = np.array(grey.shape[:0:-1])
            self._at = torch.as_tensor(view.places * (2 / (size - 1)) - 1, dtype=torch.float32,
                                       device=grey.device)[None]
        self._drawn: dict[int, int] = {}

    def draw(self, recent: Sequence[Frame]) -> None:
        """Queue the straight pictures of frames that are not there yet."""
        with self._stream.here():
            for frame in recent:
                if self._drawn.get(frame.row) != frame.key:
                    picture = F.grid_sample(self._grey[frame.row][None, None].float(), self._at,
                                            padding_mode='border', align_corners=True)
                    self.frames[frame.row].copy_(picture[0, 0].round_())
        self._drawn = {frame.row: frame.key for frame in recent}


class DeviceGeometry:
    """Frames and looming on a device, see `HostGeometry`; `capacity` frames may be held."""

    on_device = True

    def __init__(self, config: TrackConfig, view: View, stream: DeviceStream,
                 capacity: int) -> None:
        self.view = view
        self.grey_size = grey_size(view.source_size, config.looming_width)
        # More than the ring holds: the last one to leave may still be in use.
        self._frames = DeviceFrames(stream, view, self.grey_size, capacity + 2)
        self._estimator = DeviceLooming(stream, EVERYTHING)
        self._next = 0
        self._begun: int | None = None      # key of the frame whose looming is under way
        self._halfway = False               # and whether its second step is, too
        self._straight: StraightFrames | None = None    # where the lens is distorted

    @property
    def where(self) -> str:
        """Return the device, how frames and looming are computed there, and the memory."""
        straight = self._straight    # diagnostics read it from another thread
        size = self._frames.nbytes + (0 if straight is None else straight.frames.nbytes)
        how = 'graph' if self._frames.captured else 'eager'
        return (f'{self._frames.stream.device} (frames {how}, {size >> 20} MB, '
                f'looming {self._estimator.how})')

    def prepare(self, rgb: np.ndarray) -> Frame:
        """Upload an image."""
        return Frame(uploaded=self._frames.upload(rgb))

    def place(self, frame: Frame, held: Sequence[Frame]) -> None:
        """Find a row for a frame."""
        taken = {other.row for other in held}
        while self._next in taken:
            self._next = (self._next + 1) % self._frames.capacity
        frame.row = self._next

    def store(self, frame: Frame, rgb: np.ndarray) -> None:
        """Put a frame into its row."""
        uploaded, frame.uploaded = frame.uploaded, None
        self._frames.put(rgb, frame.row, uploaded)
        self._next = (frame.row + 1) % self._frames.capacity

    def clip(self, frames: Sequence[Frame]) -> DeviceClip:
        """Return the encoder's input on the device."""
        return self._frames.clip([frame.row for frame in frames])

    def pixels(self, frames: Sequence[Frame]) -> list[np.ndarray]:
        """Return the encoder's input on the host."""
        return self._frames.pixels([frame.row for frame in frames])

    def structure(self, frames: Sequence[Frame]) -> Iterable[Structure]:
        """Return the structure of frames."""
        return self._frames.structure([frame.row for frame in frames])

    def begin(self, recent: Sequence[Frame], optics: Optics, gyroscope: Gyroscope | None) -> None:
        """Queue the first step of looming at the newest frame."""
        if self._begun == recent[-1].key or min(self.grey_size) < MIN_LOOMING_SIDE:
            return
        if self._begun is not None:
            # Nobody needs looming at that frame, nor its errors.
            with suppress(np.linalg.LinAlgError):
                self._complete()
        view = straight_view(optics, self.view.source_size, self.grey_size, EVERYTHING.cell_px)
        frames = self._frames.grey
        if view is None:
            self._straight = None
        else:
            if self._straight is None or self._straight.view is not view:
                self._straight = StraightFrames(self._frames.stream, self._frames.grey, view)
            self._straight.draw(recent)
            frames = self._straight.frames
        if self._estimator.begin(
                frames, [(frame.stamp_ns, frame.row) for frame in recent],
                *lens_of(optics, self.view.source_size, self.grey_size, view, gyroscope)):
            self._begun, self._halfway = recent[-1].key, False

    def proceed(self) -> None:
        """Queue what waits for the host."""
        if self._begun is None or self._halfway:
            return
        begun, self._begun = self._begun, None      # stays None where this fails
        self._estimator.proceed()
        self._begun, self._halfway = begun, True

    def looming(self, recent: Sequence[Frame], optics: Optics,
                gyroscope: Gyroscope | None) -> LoomingField | None:
        """Return the looming field at the newest frame."""
        self.begin(recent, optics, gyroscope)
        return self._complete() if self._begun is not None else None

    def _complete(self) -> LoomingField:
        self.proceed()
        self._begun = None
        found = self._estimator.finish()
        return found if self._straight is None else self._straight.view.back(found)
