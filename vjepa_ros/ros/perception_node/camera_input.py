# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Subscribe to one camera: its images and camera_info, and what is wrong with them."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rclpy.lifecycle import LifecycleNode
from rclpy.qos import qos_policy_name_from_kind
from sensor_msgs.msg import CameraInfo

from vjepa_ros.clip.optics import Distortion
from vjepa_ros.clip.ring import Frame as Resized
from vjepa_ros.perception.camera_state import CameraState
from vjepa_ros.ros.common.endpoints import subscribe
from vjepa_ros.ros.common.message_conversion import ImageError
from vjepa_ros.ros.common.process import LARGE_IMAGES
from vjepa_ros.ros.perception_node.parameters import CameraConfig
from vjepa_ros.ros.perception_node.transport import Transport
from vjepa_ros.sources.base import Intrinsics
from vjepa_ros.sources.camera_info import calibration_problem, lens

REPEAT_S = 60.0          # between warnings of repeated silences
RATE_WINDOW_S = 3.0      # of a rate; at least the two newest events count
LARGE_IMAGE_REMEDY = (
    f'large raw images need FASTDDS_BUILTIN_TRANSPORTS="{LARGE_IMAGES}" in the environment of the '
    'camera process, or compressed transport')


@dataclass(eq=False)
class Frame:
    """An image of a camera that waits for the worker, first as a message, then decoded."""

    message: Any  # None once it is decoded
    stamp_ns: int  # of the message
    arrival_ns: int  # when it came
    size: int  # of message or pixels [bytes]
    claimed: bool = False  # whether it was given out for decoding
    left_out: int = 0  # images just before it that were dropped or skipped
    frame_id: str = ''
    rgb: Any = None  # (H, W, 3) uint8, once it is decoded
    gain: int = 0  # number of the gain that made 8 bits of 16, see `GainControl.reduce`
    prepared: Resized | None = None  # by `CameraState.prepare` of `track`
    track: CameraState | None = None
    decode_ms: float = 0.0
    prepare_ms: float = 0.0


class FrameQueue:
    """The bounded queue of one camera between executor, decoder and worker; the newest wins.

    Messages are decoded where they are, and taken out in order. Two may wait in any case.
    """

    def __init__(self, limit: int = 64, max_bytes: int = 32 << 20) -> None:
        self._limit, self._max_bytes = limit, max_bytes
        self._lock = threading.Lock()
        self._frames: list[Frame] = []
        self._skipped = 0
        self.dropped = 0         # because the queue was full

    @property
    def waits(self) -> bool:
        """Whether nobody has claimed the newest image."""
        with self._lock:
            return bool(self._frames) and not self._frames[-1].claimed

    def put(self, frame: Frame) -> None:
        """Add an image; when full, one of the older ones goes (and is counted)."""
        with self._lock:
            self._frames.append(frame)
            if len(self._frames) > 2:
                self._thin()

    def claim(self, spacing_ns: int) -> list[Frame]:
        """Return the images to decode now, oldest first; each must be given to `finish`.

        Of images closer together than `spacing_ns` only some stay in the queue, with the newest.
        """
        with self._lock:
            kept: deque[Frame] = deque()
            for frame in reversed(self._frames):
                apart = kept[0].stamp_ns - frame.stamp_ns if kept else 0
                idle = frame.rgb is not None or not frame.claimed
                if 0 < apart < spacing_ns and frame.stamp_ns and idle:
                    self._skipped += 1
                    kept[0].left_out += 1 + frame.left_out
                else:
                    kept.appendleft(frame)
            self._frames, claimed = list(kept), []
            for frame in kept:
                if not frame.claimed:
                    frame.claimed = True
                    claimed.append(frame)
            return claimed

    def finish(self, frame: Frame) -> None:
        """Count a claimed image by its pixels; without any it could not be decoded and goes."""
        with self._lock:
            if frame not in self._frames:      # dropped or cleared meanwhile
                return
            if frame.rgb is None:
                self._frames.remove(frame)
                return
            frame.message = None
            frame.size = frame.rgb.nbytes + (
                0 if frame.prepared is None else frame.prepared.nbytes)
            if len(self._frames) > 2:
                self._thin()

    def take(self) -> tuple[list[Frame], int]:
        """Return frames up to the first image not decoded yet, and how many were skipped."""
        with self._lock:
            taken = []
            while self._frames and self._frames[0].rgb is not None:
                taken.append(self._frames.pop(0))
            skipped, self._skipped = self._skipped, 0
        return taken, skipped

    def clear(self) -> None:
        """Forget everything that waits; it counts as skipped."""
        with self._lock:
            self._skipped += len(self._frames)
            self._frames = []

    def _thin(self) -> None:
        # What goes is the image whose neighbours are closest: the spacing of the others stays
        # even, however long nobody takes them.
        frames = self._frames
        while len(frames) > self._limit or (
                len(frames) > 2 and sum(frame.size for frame in frames) > self._max_bytes):
            gone = min(range(1, len(frames) - 1), key=lambda i: (
                frames[i + 1].arrival_ns - frames[i - 1].arrival_ns))
            frames[gone + 1].left_out += 1 + frames[gone].left_out
            del frames[gone]
            self.dropped += 1


class Rate:
    """Events per second over a sliding window. Any thread may use it."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=1024)
        self._lock = threading.Lock()
        self.total = 0

    def tick(self, now_s: float) -> None:
        """Count one event at a steady time [s]."""
        with self._lock:
            self._times.append(now_s)
            self.total += 1

    def hz(self, now_s: float) -> float:
        """Return the rate in the window that ends now [Hz]; 0 once the next event is overdue."""
        with self._lock:
            while len(self._times) > 2 and now_s - self._times[0] > RATE_WINDOW_S:
                self._times.popleft()
            span = self._times[-1] - self._times[0] if self._times else 0.0
            hz = (len(self._times) - 1) / span if span > 0 else 0.0
            overdue = hz and now_s - self._times[-1] > max(RATE_WINDOW_S, 2 / hz)
            return 0.0 if overdue else hz


class CameraInput:
    """The input side of one camera: callbacks only store, the worker takes from `queue`."""

    def __init__(self, node: LifecycleNode, name: str, config: CameraConfig) -> None:
        self._node = node
        self.name = name
        self.images = Transport(node, name, config.transport, self._put, self.refuse,
                                self._on_incompatible)
        self.notify: Callable[[], object] = lambda: None     # called after an image was queued
        self.frame_id = ''          # of the newest image, '' before the first
        self.queue = FrameQueue()
        self.rate = Rate()
        self.counts: Counter[str] = Counter()
        self.last_fault = ''        # why the last refused image was refused
        self.fault_s = -math.inf    # and when [steady s]
        self.info: CameraInfo | None = None
        self.info_problem = ''      # why it can not be used for the newest image
        # The last camera_info and image size, and what they were found to be.
        self._known: tuple[object, tuple[Intrinsics | None, Distortion | None]] = (
            None, (None, None))
        self._info_subscription: Any = None
        self._begin()

    def _begin(self) -> None:
        self.silent = False         # whether nothing has come for the timeout of `watch`
        self._published_since: float | None = None   # seen while it is silent
        self._came = False          # whether an image has come since activation
        self._warned: dict[str, float] = {}  # kinds of problems since activation, and when

    def open(self) -> None:
        """Subscribe (on activate)."""
        self._begin()
        self._info_subscription = subscribe(
            self._node, CameraInfo, f'{self.name}/camera_info', self._on_info)
        self.images.open()

    def close(self) -> None:
        """Unsubscribe and forget what waits (on deactivate)."""
        if self._info_subscription is not None:
            self._node.destroy_subscription(self._info_subscription)
            self._info_subscription = None
        self.images.close()
        self.queue.clear()

    @property
    def silent_s(self) -> float:
        """Time since the last frame, or since `open` [s]."""
        return time.monotonic() - self.images.last_s

    def watch(self, timeout_s: float) -> None:
        """Check for silence longer than a timeout [s]; whoever publishes has that time, too."""
        self.images.look(timeout_s / 2)
        now_s, silent_s = time.monotonic(), self.silent_s
        if silent_s < timeout_s:
            self.silent, self._published_since = False, None
            return
        if not self.silent:
            self.silent = True
            self.counts['silences'] += 1
        published = any(self._publishers().values())
        if not published:
            self._published_since = None
        elif self._published_since is None:
            self._published_since = now_s
        if not published or now_s - (self._published_since or now_s) >= timeout_s:
            self._warn('lost' if published else 'unpublished',
                       self._explain_silence(published, silent_s), REPEAT_S)

    def _warn(self, kind: str, text: str, again_s: float = math.inf) -> None:
        """Warn of a kind of problem once in an activation, or in a time [s]."""
        now = time.monotonic()
        if kind not in self._warned or now - self._warned[kind] >= again_s:
            self._warned[kind] = now
            self._node.get_logger().warning(f"camera '{self.name}': {text}")

    def refuse(self, error: ImageError, topic: str = '') -> None:
        """Count a malformed image of a topic, or of the one in use; warn once per kind."""
        self.counts[error.kind] += 1
        self.last_fault, self.fault_s = str(error), time.monotonic()
        self._warn(error.kind, f'image skipped on {topic or self.images.topic or self.name}: '
                        f'{error} (further images of this kind are only counted, see '
                        '/diagnostics)')

    def lens_for(self, size: tuple[int, int]) -> tuple[Intrinsics | None, Distortion | None]:
        """Return (fx, fy, cx, cy) and distortion of images of a size [px]; None: not known."""
        info = self.info
        if info is None:
            self.info_problem = ''
            return None, None
        # A camera sends the same one with each image.
        roi = info.roi
        key = (size, info.width, info.height, info.k.tobytes(), info.p.tobytes(), bytes(info.d),
               info.distortion_model, info.binning_x, info.binning_y,
               roi.x_offset, roi.y_offset, roi.width, roi.height)
        if self._known[0] != key:
            found, self.info_problem = (None, None), ''
            try:
                found = lens(info, size, self.images.named)
            except ValueError as error:
                self.info_problem = str(error)
            self._known = key, found
        found = self._known[1]
        # Drivers without a calibration send zeros; that is flagged, and reported for obstacles.
        if found[0] is None and (info.k[0] != 0 or info.p[0] != 0):
            self.counts['camera_info'] += 1
            self._warn(
                f'camera_info: {self.info_problem[:24]}',    # whatever its numbers
                f'{self._info_topic} is not used, assumed_fov is used instead: '
                f'{self.info_problem} (further ones are only counted, see /diagnostics)')
        return found

    @property
    def _info_topic(self) -> str:
        return self._node.resolve_topic_name(f'{self.name}/camera_info')

    def calibration_problem(self) -> str:
        """Return why there are no intrinsics, as far as is known before an image; '' for none."""
        if self.info is None:
            return f'no camera_info on {self._info_topic} (start it or remap it)'
        return calibration_problem(self.info, self.images.named) or self.info_problem

    def _put(self, msg: Any, size: int) -> None:
        self._came = True
        self.frame_id = msg.header.frame_id
        self.rate.tick(self.images.last_s)
        stamp = msg.header.stamp        # without a call: this is the way of every frame
        self.queue.put(Frame(msg, stamp.sec * 1_000_000_000 + stamp.nanosec,
                             self._node.get_clock().now().nanoseconds, size))
        self.notify()

    def _on_info(self, msg: CameraInfo) -> None:
        self.info = msg

    def _on_incompatible(self, topic: str, event: Any) -> None:
        policy = qos_policy_name_from_kind(event.last_policy_kind)
        self.counts['incompatible_qos'] += 1
        self._warn(f'qos {policy}', f'a publisher on {topic} offers an incompatible '
                        f'{policy}; no image will arrive from it. Set the parameter '
                        f"'qos_overrides.{topic}.subscription.{policy.lower()}' to what it offers "
                        'when starting the node')

    def _publishers(self) -> dict[str, list]:
        """Return the publishers of each image topic that is read."""
        return {topic: self._node.get_publishers_info_by_topic(topic)
                for kind, topic in self.images.topics.items()
                if self.images.wanted in ('auto', kind)}

    def _explain_silence(self, published: bool, silent_s: float) -> str:
        images = self.images
        parts = [f'{topic} has {len(found)} publisher(s)'
                 for topic, found in self._publishers().items()]
        remedy = ('start the camera or remap its topic' if not published else
                  'the camera has stopped sending' if self._came else
                  f'the camera sends nothing yet, or it is lost: {LARGE_IMAGE_REMEDY}')
        others = [topic for kind, topic in images.topics.items()
                  if images.wanted not in ('auto', kind)
                  and self._node.get_publishers_info_by_topic(topic)]
        if others:
            raw, how = images.topics['raw'], "set it to 'auto'"
            if images.named != raw:
                how = f"remap {self.name}/image_raw to {raw}, with 'auto',"
            remedy += (f'. {" and ".join(others)} has a publisher, but the transport is set to '
                       f'{images.wanted}: {how} to read what delivers')
        return f'no frame for {silent_s:.1f} s ({"; ".join(parts)}); {remedy}'
