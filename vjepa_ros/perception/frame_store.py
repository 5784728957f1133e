# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Store the frames of a camera and measure looming, on the host or on a device.

Both give the same clips and, within the bounds that the tests set, the same looming field. On a
GPU each image is uploaded once, when it arrives, and only small results come back.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import cv2
import numpy as np

from vjepa_ros.clip.device_resize import DeviceView
from vjepa_ros.clip.optics import Optics
from vjepa_ros.clip.resize import View
from vjepa_ros.clip.ring import FrameRing, Push, Sample
from vjepa_ros.looming.ego_motion import FOCAL_ERROR
from vjepa_ros.looming.estimator import LoomingEstimator, LoomingField, LoomingSettings
from vjepa_ros.looming.gpu.estimator import DeviceLooming
from vjepa_ros.looming.gyroscope import Gyroscope
from vjepa_ros.looming.structure import Structure, coarse
from vjepa_ros.perception.gpu_frames import DeviceFrames, StraightFrames, Upload
from vjepa_ros.perception.settings import TrackConfig
from vjepa_ros.perception.straight_view import StraightView, straight_view
from vjepa_ros.runtime.cuda.graph_replay import DeviceStream
from vjepa_ros.runtime.memory import is_out_of_memory, release_memory
from vjepa_ros.runtime.runner import Clip

log = logging.getLogger(__name__)

MIN_LOOMING_SIDE = 64   # px; optical flow needs a few cells in each direction
RING_BYTES = 512 << 20  # of the frames of one camera
# Everything with its confidence: what counts as known is a live setting.
EVERYTHING = LoomingSettings(min_confidence=0.0)


def grey_size(size: tuple[int, int], looming_width: int) -> tuple[int, int]:
    """Return `size`, or if larger the one with the area of a 4:3 image of `looming_width` [px]."""
    width, height = size
    # By area, not by width: a panorama of the same width would show nothing any more.
    scale = math.sqrt(0.75 * looming_width ** 2 / (width * height))
    return (max(2, round(width * scale)), max(2, round(height * scale))) if scale < 1 else size


def host_planes(rgb: np.ndarray, view: View, size: tuple[int, int]) -> dict[str, np.ndarray]:
    """Return what the ring keeps of an image (H, W, 3) uint8 on the host, as new arrays.

    `size`: width and height of the grey image [px].
    """
    small = rgb
    if size != view.source_size:
        small = cv2.resize(rgb, size, interpolation=cv2.INTER_AREA)
    return {'rgb': view.apply(rgb), 'gray': cv2.cvtColor(small, cv2.COLOR_RGB2GRAY)}


@dataclass(frozen=True)
class Prepared:
    """What was made of an image before `Geometry.push` takes it."""

    # Result of `host_planes`; empty on a device
    planes: Mapping[str, np.ndarray] = field(default_factory=dict)
    # The image on its way to the device; None on the host, or where it has not begun
    upload: Upload | None = None

    @property
    def nbytes(self) -> int:
        """Size [bytes]."""
        total = 0 if self.upload is None else self.upload.nbytes
        for plane in self.planes.values():
            total += plane.nbytes
        return total


class Geometry(Protocol):
    """Frames and looming of one camera whose images have one size. Used by one thread only.

    Attributes
    ----------
    view
        Geometry of the encoder's input.
    grey_size
        Width and height of the image that looming is measured in [px].
    on_device
        Whether the frames are on a device.
    """

    view: View
    grey_size: tuple[int, int]
    on_device: bool

    @property
    def where(self) -> str:
        """Where the frames are, for diagnostics."""
        ...

    def own(self, rgb: np.ndarray) -> np.ndarray:
        """Copy an image into memory that suits `push`."""
        ...

    def prepare(self, rgb: np.ndarray) -> Prepared:
        """Do what `push` can do earlier, in any thread; `rgb` must not change until then."""
        ...

    def push(self, ring: FrameRing, rgb: np.ndarray, stamp_ns: int, frame_id: str,
             arrival_ns: int | None, prepared: Prepared) -> Push:
        """Put an image into the ring, see `FrameRing.push`."""
        ...

    def frames(self, ring: FrameRing, sample: Sample) -> Clip:
        """Return the encoder's input of a sample in place; valid until the next `push`."""
        ...

    def pixels(self, ring: FrameRing, sample: Sample) -> list[np.ndarray]:
        """Return the same on the host."""
        ...

    def structure(self, ring: FrameRing, sample: Sample) -> Iterable[Structure]:
        """Return the structure of its frames, the newest first; valid until the next `push`."""
        ...

    def begin(self, ring: FrameRing, optics: Optics, gyroscope: Gyroscope | None = None) -> None:
        """Start looming at the newest frame, on a device."""
        ...

    def proceed(self) -> None:
        """Continue looming on a device as far as possible without waiting for it."""
        ...

    def measured(self) -> bool:
        """Return whether `looming` would not wait for a device."""
        ...

    def looming(self, ring: FrameRing, optics: Optics,
                gyroscope: Gyroscope | None = None) -> LoomingField | None:
        """Return the looming field at the newest frame; None: unknown."""
        ...


class HostGeometry:
    """Frames resized by OpenCV, looming by OpenCV and NumPy; see `Geometry`."""

    where, on_device = 'host', False

    def __init__(self, config: TrackConfig, view: View) -> None:
        self.view = view
        self.grey_size = grey_size(view.source_size, config.looming_width)
        self._history_s = config.looming_history
        self._estimator = LoomingEstimator(EVERYTHING)
        # Straight pictures of frames in the ring, by stamp, where the lens is distorted.
        self._straight: tuple[StraightView, dict[int, np.ndarray]] | None = None

    def own(self, rgb: np.ndarray) -> np.ndarray:
        """Copy an image."""
        return rgb.copy()

    def prepare(self, rgb: np.ndarray) -> Prepared:
        """Resize an image."""
        return Prepared(host_planes(rgb, self.view, self.grey_size))

    def push(self, ring: FrameRing, rgb: np.ndarray, stamp_ns: int, frame_id: str,
             arrival_ns: int | None, prepared: Prepared) -> Push:
        """Put an image into the ring."""
        planes = prepared.planes or self.prepare(rgb).planes
        push = ring.push(stamp_ns, planes, frame_id=frame_id, size=self.view.source_size,
                         arrival_ns=arrival_ns)
        if len(ring) == 1:      # stamps may come again with other pictures
            self._straight = None
        return push

    def frames(self, ring: FrameRing, sample: Sample) -> list[np.ndarray]:
        """Return the encoder's input of a sample in place."""
        return ring.frames(sample)

    pixels = frames

    def structure(self, ring: FrameRing, sample: Sample) -> Iterable[Structure]:
        """Measure the structure of its frames, of each when it is asked for."""
        valid = self.view.patch_valid()
        return (Structure.of(coarse(rgb), valid) for rgb in ring.frames(sample)[::-1])

    def begin(self, ring: FrameRing, optics: Optics, gyroscope: Gyroscope | None = None) -> None:
        """Do nothing: the host measures looming when asked for it."""

    def proceed(self) -> None:
        """Do nothing."""

    def measured(self) -> bool:
        """Return True: there is none."""
        return True

    def looming(self, ring: FrameRing, optics: Optics,
                gyroscope: Gyroscope | None = None) -> LoomingField | None:
        """Measure looming at the newest frame."""
        if min(self.grey_size) < MIN_LOOMING_SIDE:
            return None
        recent = ring.recent('gray', self._history_s)
        view = straight_view(optics, ring.size, self.grey_size, EVERYTHING.cell_px)
        if view is None:
            return self._estimator.estimate(
                recent, *_lens(optics, self.grey_size, ring.size), gyroscope,
                _focal_error(optics))
        known = {}
        if self._straight is not None and self._straight[0] is view:
            known = self._straight[1]
        shown = {ns: known[ns] if ns in known else view.picture(grey) for ns, grey in recent}
        self._straight = view, shown
        found = self._estimator.estimate(list(shown.items()), view.focal, view.center, gyroscope,
                                         0.0)
        return None if found is None else view.back(found)


class DeviceGeometry:
    """Frames and looming on a device, see `Geometry`. The ring holds the numbers of the frames.

    Parameters
    ----------
    config, view
        See `TrackConfig`; geometry of the encoder's input.
    queue
        Of the device.
    capacity
        Frames that the ring may hold.
    """

    NUMBER = np.dtype(np.int32)
    on_device = True

    def __init__(self, config: TrackConfig, view: View, queue: DeviceStream,
                 capacity: int) -> None:
        self.view = view
        self._history_s = config.looming_history
        self.grey_size = grey_size(view.source_size, config.looming_width)
        # More than the ring holds: the last one to leave may still be in use.
        self._frames = DeviceFrames(queue, view, self.grey_size, capacity + 2)
        self._estimator = DeviceLooming(queue, EVERYTHING)
        self._next = 0
        self._begun: int | None = None      # frame whose looming is under way
        self._halfway = False               # and whether its second step is, too
        self._straight: StraightFrames | None = None    # where the lens is distorted

    @property
    def where(self) -> str:
        """Return the device, how frames and looming are computed there, and the memory."""
        straight = self._straight    # diagnostics read it from another thread
        size = self._frames.nbytes + (0 if straight is None else straight.frames.nbytes)
        return (f'{self._frames.queue.device} (frames {self._frames.how}, {size >> 20} MB, '
                f'looming {self._estimator.how})')

    def own(self, rgb: np.ndarray) -> np.ndarray:
        """Copy an image into pinned memory."""
        return self._frames.copy_of(rgb)

    def prepare(self, rgb: np.ndarray) -> Prepared:
        """Start the upload of an image."""
        return Prepared(upload=self._frames.upload(rgb))

    def push(self, ring: FrameRing, rgb: np.ndarray, stamp_ns: int, frame_id: str,
             arrival_ns: int | None, prepared: Prepared) -> Push:
        """Put an image into the store of the device and its number into the ring."""
        # Frames of another size leave with this push; where the host held them they have no
        # numbers at all.
        held = (set() if not len(ring) or ring.size != self.view.source_size
                else set(ring.all('number')[:, 0].tolist()))
        while self._next in held:
            self._next = (self._next + 1) % self._frames.capacity
        push = ring.push(stamp_ns, {'number': np.array([self._next], self.NUMBER)},
                         frame_id=frame_id, size=self.view.source_size, arrival_ns=arrival_ns)
        if push.stored:
            try:
                self._frames.put(rgb, self._next, prepared.upload)
            except BaseException:
                ring.reset('upload_failed')     # its row shows another picture
                raise
            self._next = (self._next + 1) % self._frames.capacity
        return push

    def frames(self, ring: FrameRing, sample: Sample) -> Clip:
        """Return the encoder's input of a sample on the device."""
        return self._frames.clip(self._rows(ring, sample))

    def pixels(self, ring: FrameRing, sample: Sample) -> list[np.ndarray]:
        """Return the encoder's input of a sample on the host."""
        return self._frames.pixels(self._rows(ring, sample))

    def structure(self, ring: FrameRing, sample: Sample) -> Iterable[Structure]:
        """Return the structure of its frames."""
        return self._frames.structure(self._rows(ring, sample)[::-1])

    def begin(self, ring: FrameRing, optics: Optics, gyroscope: Gyroscope | None = None) -> None:
        """Queue the first step of looming at the newest frame."""
        if self._begun == ring.newest_key:
            return
        if self._begun is not None:
            # Nobody needs looming at that frame, nor its errors.
            with suppress(np.linalg.LinAlgError):
                self._complete()
        recent = [(ns, int(number[0]))
                  for ns, number in ring.recent('number', self._history_s)]
        if min(self.grey_size) < MIN_LOOMING_SIDE:
            return
        view = straight_view(optics, ring.size, self.grey_size, EVERYTHING.cell_px)
        if view is None:
            self._straight, frames = None, self._frames.grey
            lens = *_lens(optics, self.grey_size, ring.size), gyroscope, _focal_error(optics)
        else:
            if self._straight is None or self._straight.view is not view:
                self._straight = StraightFrames(self._frames.queue, self._frames.grey, view)
            self._straight.draw(recent)
            frames, lens = self._straight.frames, (view.focal, view.center, gyroscope, 0.0)
        if self._estimator.begin(frames, recent, *lens):
            self._begun, self._halfway = ring.newest_key, False

    def measured(self) -> bool:
        """Return whether nothing of looming is under way that is not done."""
        return self._begun is None or self._estimator.measured()

    def proceed(self) -> None:
        """Queue what waits for the host."""
        if self._begun is None or self._halfway:
            return
        begun, self._begun = self._begun, None      # stays None where this fails
        self._estimator.proceed()
        self._begun, self._halfway = begun, True

    def looming(self, ring: FrameRing, optics: Optics,
                gyroscope: Gyroscope | None = None) -> LoomingField | None:
        """Return the looming field at the newest frame."""
        self.begin(ring, optics, gyroscope)
        return self._complete() if self._begun is not None else None

    def _complete(self) -> LoomingField:
        self.proceed()
        self._begun = None
        found = self._estimator.finish()
        return found if self._straight is None else self._straight.view.back(found)

    @staticmethod
    def _rows(ring: FrameRing, sample: Sample) -> list[int]:
        return ring.gather(sample, 'number')[:, 0].tolist()


def geometry_for(config: TrackConfig, view: View, ring: FrameRing,
                 queue: DeviceStream | None) -> tuple[Geometry, str]:
    """Return the geometry for images of one size, and why it is not on the device or ''.

    The ring is empty, or drops its frames with the next one, which has another size. Its limit is
    set for what it will hold.
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
        return DeviceGeometry(config, view, queue, room), ''
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
    release_memory(queue.device)
    ring.store.max_bytes = RING_BYTES
    return HostGeometry(config, view), f'{queue.device} has no memory for {room} frames'


def _lens(optics: Optics, size: tuple[int, int],
          source: tuple[int, int]) -> tuple[float, tuple[float, float]]:
    """Return focal length and centre [px] of the grey image."""
    scale = size[0] / source[0]
    return optics.fx * scale, ((optics.cx + 0.5) * scale - 0.5, (optics.cy + 0.5) * scale - 0.5)


def _focal_error(optics: Optics) -> float:
    """Return the standard error of the focal length as a share of it."""
    return FOCAL_ERROR if optics.assumed else 0.0
