# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Where the frames of a camera live, and where looming is measured: on the host or on a device.

Both give the same clips and, up to what the tests bound, the same looming field. The host is the
plain way; on a GPU each image is uploaded once as it comes, and only small results come back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import cv2
import numpy as np

from vjepa_ros.clip.gpu.resize import DeviceView
from vjepa_ros.clip.resize import View
from vjepa_ros.clip.ring import FrameRing, Push, Sample
from vjepa_ros.looming.estimator import LoomingEstimator, LoomingField, LoomingSettings
from vjepa_ros.looming.gpu.estimator import DeviceLooming
from vjepa_ros.perception.collision import Optics
from vjepa_ros.perception.config import TrackConfig
from vjepa_ros.perception.gpu_frames import DeviceFrames, Upload
from vjepa_ros.runtime.cuda.frame_upload import Clip
from vjepa_ros.runtime.cuda.graph_replay import Queue
from vjepa_ros.runtime.memory import is_out_of_memory, release_memory

MIN_LOOMING_SIDE = 64   # px; optical flow needs a few cells in each direction
RING_BYTES = 512 << 20  # of the frames of one camera
# Everything with its confidence: what counts as known is a live setting.
EVERYTHING = LoomingSettings(min_confidence=0.0)


def grey_size(size: tuple[int, int], looming_width: int) -> tuple[int, int]:
    """Width and height with as many pixels as a 4:3 image of `looming_width`, or `size` itself."""
    width, height = size
    # By area, not by width: a panorama of the same width would show nothing any more.
    scale = math.sqrt(0.75 * looming_width ** 2 / (width * height))
    return (max(2, round(width * scale)), max(2, round(height * scale))) if scale < 1 else size


def host_planes(rgb: np.ndarray, view: View, looming_width: int) -> dict[str, np.ndarray]:
    """What the ring keeps of an image (H, W, 3) uint8 on the host, as new arrays."""
    size, dim = grey_size(view.source_size, looming_width), rgb
    if size != view.source_size:
        dim = cv2.resize(rgb, size, interpolation=cv2.INTER_AREA)
    return {'rgb': view.apply(rgb), 'gray': cv2.cvtColor(dim, cv2.COLOR_RGB2GRAY)}


@dataclass(frozen=True)
class Prepared:
    """What was made of an image before `Geometry.push` takes it.

    Attributes
    ----------
    planes
        What `host_planes` gave; empty on a device.
    upload
        The image on its way to the device; None on the host, or where it has not begun.
    """

    planes: Mapping[str, np.ndarray] = field(default_factory=dict)
    upload: Upload | None = None

    @property
    def nbytes(self) -> int:
        """Bytes it holds."""
        held = [*self.planes.values(), *([] if self.upload is None else [self.upload])]
        return sum(part.nbytes for part in held)


class Geometry(Protocol):
    """Frames and looming of one camera whose images have one size. Used by one thread only.

    Attributes
    ----------
    grey_size : width and height of the image that looming is measured in
    on_device : whether the frames are on a device
    """

    grey_size: tuple[int, int]
    on_device: bool

    def own(self, rgb: np.ndarray) -> np.ndarray:
        """A copy of an image, where it is best to have one."""

    def prepare(self, rgb: np.ndarray) -> Prepared:
        """Do of `push` what can be done before, in any thread; `rgb` must stay as it is."""

    def push(self, ring: FrameRing, rgb: np.ndarray, stamp_ns: int, frame_id: str,
             arrival_ns: int | None, prepared: Prepared) -> Push:
        """Put an image into the ring, see `FrameRing.push`."""

    def frames(self, ring: FrameRing, sample: Sample) -> Clip:
        """The encoder's input of a sample, where it lies; valid until the next `push`."""

    def pixels(self, ring: FrameRing, sample: Sample) -> Sequence[np.ndarray]:
        """The same on the host; of a device only where heads need it."""

    def begin(self, ring: FrameRing, optics: Optics) -> None:
        """Start looming at the newest frame, where that can go on by itself."""

    def proceed(self) -> None:
        """Go on with looming that was begun as far as that goes before `looming` waits for it."""

    def looming(self, ring: FrameRing, optics: Optics) -> LoomingField | None:
        """The looming field at the newest frame; None: unknown."""

    @property
    def where(self) -> str:
        """In words, for diagnostics."""


class HostGeometry:
    """Frames resized by OpenCV, looming by OpenCV and NumPy."""

    def __init__(self, config: TrackConfig, view: View) -> None:
        self._config, self._view = config, view
        self.grey_size = grey_size(view.source_size, config.looming_width)
        self._estimator = LoomingEstimator(EVERYTHING)

    where, on_device = 'host', False

    def own(self, rgb: np.ndarray) -> np.ndarray:
        return rgb.copy()

    def prepare(self, rgb: np.ndarray) -> Prepared:
        return Prepared(host_planes(rgb, self._view, self._config.looming_width))

    def push(self, ring: FrameRing, rgb: np.ndarray, stamp_ns: int, frame_id: str,
             arrival_ns: int | None, prepared: Prepared) -> Push:
        planes = prepared.planes or self.prepare(rgb).planes
        return ring.push(stamp_ns, planes, frame_id=frame_id, size=self._view.source_size,
                         arrival_ns=arrival_ns)

    def frames(self, ring: FrameRing, sample: Sample) -> list[np.ndarray]:
        return ring.frames(sample)

    pixels = frames

    def begin(self, ring: FrameRing, optics: Optics) -> None:
        """Nothing goes on by itself on the host."""

    def proceed(self) -> None:
        """Nothing was begun."""

    def looming(self, ring: FrameRing, optics: Optics) -> LoomingField | None:
        if min(self.grey_size) < MIN_LOOMING_SIDE:
            return None
        return self._estimator.estimate(ring.recent('gray', self._config.looming_history),
                                        *_lens(optics, self.grey_size, ring.size))


class DeviceGeometry:
    """Frames resized on a device, looming from there. The ring holds the numbers of the frames.

    Parameters
    ----------
    config, view : see `Track`
    queue : of the device
    capacity : frames that the ring may hold
    mirror : whether `pixels` will be asked for
    """

    NUMBER = np.dtype(np.int32)
    on_device = True

    def __init__(self, config: TrackConfig, view: View, queue: Queue, capacity: int,
                 mirror: bool) -> None:
        self._config, self._view = config, view
        self.grey_size = grey_size(view.source_size, config.looming_width)
        # Some more than the ring holds: the last one to leave may still be at work.
        self._frames = DeviceFrames(queue, view, self.grey_size, capacity + 2, mirror)
        self._estimator = DeviceLooming(queue, EVERYTHING)
        self._next = 0
        self._begun: int | None = None      # frame whose looming is under way
        self._halfway = False               # and whether its second step is, too

    @property
    def where(self) -> str:
        return (f'{self._frames.queue.device} (frames {self._frames.how}, '
                f'{self._frames.nbytes >> 20} MB, '
                f'looming {self._estimator.how})')

    def own(self, rgb: np.ndarray) -> np.ndarray:
        return self._frames.copy_of(rgb)

    def prepare(self, rgb: np.ndarray) -> Prepared:
        return Prepared(upload=self._frames.upload(rgb))

    def push(self, ring: FrameRing, rgb: np.ndarray, stamp_ns: int, frame_id: str,
             arrival_ns: int | None, prepared: Prepared) -> Push:
        # Frames of another size leave with this push; where the host held them they have no
        # numbers at all.
        held = (set() if not len(ring) or ring.size != self._view.source_size
                else set(ring.all('number')[:, 0].tolist()))
        while self._next in held:
            self._next = (self._next + 1) % self._frames.capacity
        push = ring.push(stamp_ns, {'number': np.array([self._next], self.NUMBER)},
                         frame_id=frame_id, size=self._view.source_size, arrival_ns=arrival_ns)
        if push.stored:
            try:
                self._frames.put(rgb, self._next, prepared.upload)
            except BaseException:
                ring.reset('upload_failed')     # its row shows another picture
                raise
            self._next = (self._next + 1) % self._frames.capacity
        return push

    def frames(self, ring: FrameRing, sample: Sample) -> Clip:
        return self._frames.clip(self._rows(ring, sample))

    def pixels(self, ring: FrameRing, sample: Sample) -> np.ndarray:
        return self._frames.pixels(self._rows(ring, sample))

    def begin(self, ring: FrameRing, optics: Optics) -> None:
        if self._begun == ring.newest_key:
            return
        if self._begun is not None:
            # Nobody asked for looming at that frame, nor for what is wrong with it.
            with suppress(np.linalg.LinAlgError):
                self._complete()
        recent = [(ns, int(number[0]))
                  for ns, number in ring.recent('number', self._config.looming_history)]
        if min(self.grey_size) >= MIN_LOOMING_SIDE and self._estimator.begin(
                self._frames.grey, recent, *_lens(optics, self.grey_size, ring.size)):
            self._begun, self._halfway = ring.newest_key, False

    def proceed(self) -> None:
        if self._begun is None or self._halfway:
            return
        begun, self._begun = self._begun, None      # for good where this fails
        self._estimator.proceed()
        self._begun, self._halfway = begun, True

    def looming(self, ring: FrameRing, optics: Optics) -> LoomingField | None:
        self.begin(ring, optics)
        return self._complete() if self._begun is not None else None

    def _complete(self) -> LoomingField:
        self.proceed()
        self._begun = None
        return self._estimator.finish()

    @staticmethod
    def _rows(ring: FrameRing, sample: Sample) -> list[int]:
        return ring.gather(sample, 'number')[:, 0].tolist()


def geometry_for(config: TrackConfig, view: View, ring: FrameRing, queue: Queue | None,
                 mirror: bool) -> tuple[Geometry, str]:
    """What a camera whose images have one size needs, and why it is not on the device; ''.

    The ring is empty, or forgets its frames with the next one, which has another size; its limit
    is set for what it will hold.
    """
    ring.store.max_bytes = RING_BYTES
    if queue is None:
        return HostGeometry(config, view), ''
    problem = DeviceView.problem(view)
    if problem:
        return HostGeometry(config, view), problem
    # The ring will hold numbers; the store of the device keeps the limit in its place.
    frame = 3 * config.image_size ** 2 + round(0.75 * config.looming_width ** 2)
    ring.store.max_bytes = RING_BYTES // frame * DeviceGeometry.NUMBER.itemsize
    room = ring.store.room(DeviceGeometry.NUMBER.itemsize)
    try:
        return DeviceGeometry(config, view, queue, room, mirror), ''
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
    release_memory(queue.device)
    ring.store.max_bytes = RING_BYTES
    return HostGeometry(config, view), f'{queue.device} has no memory for {room} frames'


def _lens(optics: Optics, size: tuple[int, int],
          source: tuple[int, int]) -> tuple[float, tuple[float, float]]:
    """Focal length and centre [px] of the grey image."""
    scale = size[0] / source[0]
    return optics.fx * scale, ((optics.cx + 0.5) * scale - 0.5, (optics.cy + 0.5) * scale - 0.5)
