# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Subscribe to one camera and queue its messages.

A callback takes microseconds, but for a packet of a video, which is decoded at once.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from rclpy.lifecycle import LifecycleNode
from rclpy.qos import ReliabilityPolicy, qos_policy_name_from_kind
from sensor_msgs.msg import CameraInfo

from vjepa_ros.clip.optics import Distortion
from vjepa_ros.clip.ring import Frame as Resized
from vjepa_ros.perception.camera_state import CameraState
from vjepa_ros.ros.common.endpoints import subscribe
from vjepa_ros.ros.common.environment import LARGE_IMAGES
from vjepa_ros.ros.common.message_conversion import ImageError, stamp_ns
from vjepa_ros.ros.perception_node.imu_input import ImuInput
from vjepa_ros.ros.perception_node.statistics import Rate
from vjepa_ros.ros.perception_node.transport import SEARCH_AFTER_S, Transport
from vjepa_ros.sources.base import Intrinsics
from vjepa_ros.sources.camera_info import calibration_problem, lens

MIXED_RESETS = 3         # since the last check, after which to look for several publishers
REPEAT_S = 60.0          # between warnings of repeated silences
LARGE_IMAGE_REMEDY = (
    f'large raw images need FASTDDS_BUILTIN_TRANSPORTS="{LARGE_IMAGES}" in the environment of the '
    'camera process, or compressed transport')


@dataclass(frozen=True)
class Frame:
    """A decoded image that waits for the worker."""

    rgb: np.ndarray  # (H, W, 3) uint8
    # prepared, track: result of `CameraState.prepare`, and of which track
    prepared: Resized | None
    track: CameraState
    # stamp_ns, arrival_ns, frame_id: of the message, and when it came [ns]
    stamp_ns: int
    arrival_ns: int
    frame_id: str
    spent_ms: Mapping[str, float]  # milliseconds by stage
    left_out: int = 0  # images just before it that nobody took
    gain: int = 0  # number of the gain that made 8 bits of 16, see `GainControl.reduce`


@dataclass(eq=False)
class Waiting:
    """An image in a `FrameQueue`."""

    message: Any  # the image message
    # stamp_ns, arrival_ns: its stamp, and when it came [ns]
    stamp_ns: int
    arrival_ns: int
    size: int  # of message or frame [bytes]
    claimed: bool = False  # whether it was given out for decoding
    frame: Frame | None = None  # the decoded image
    left_out: int = 0  # images just before it that were dropped or skipped


class FrameQueue:
    """The bounded queue of one camera between executor, decoder and worker; the newest wins.

    The executor puts messages in. They are claimed and decoded where they are, and taken out in
    order. Nothing blocks, and the newest is never dropped.

    Parameters
    ----------
    limit
        Most images that wait.
    max_bytes
        Most bytes that wait; two images wait in any case.

    Attributes
    ----------
    dropped
        Images dropped because the queue was full.
    """

    def __init__(self, limit: int = 64, max_bytes: int = 32 << 20) -> None:
        self._limit = limit
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._items: deque[Waiting] = deque()
        self._bytes = 0
        self._skipped = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._items)

    @property
    def newest_ns(self) -> int | None:
        """Stamp of the newest image [ns] if nobody has claimed it, else None."""
        with self._lock:
            newest = self._items[-1] if self._items else None
            return None if newest is None or newest.claimed else newest.stamp_ns

    def put(self, item: Waiting) -> None:
        """Add an image; when full, one of the older ones goes (and is counted)."""
        with self._lock:
            self._items.append(item)
            self._bytes += item.size
            self._thin()

    def claim(self, spacing_ns: int) -> list[Waiting]:
        """Return the images to decode now, oldest first; each must be given to `finish`.

        Of images closer together than `spacing_ns` only some stay in the queue: a worker that is
        behind need not decode what no clip will use. The newest always stays.
        """
        with self._lock:
            kept: deque[Waiting] = deque()
            for item in reversed(self._items):
                apart = kept[0].stamp_ns - item.stamp_ns if kept else 0
                if 0 < apart < spacing_ns and item.stamp_ns and (
                        item.frame is not None or not item.claimed):
                    self._skipped += 1
                    self._bytes -= item.size
                    kept[0].left_out += 1 + item.left_out
                else:
                    kept.appendleft(item)
            self._items = kept
            claimed = []
            for item in kept:
                if not item.claimed:
                    item.claimed = True
                    claimed.append(item)
            return claimed

    def finish(self, item: Waiting, frame: Frame | None) -> None:
        """Replace a claimed image by its frame; None: it could not be decoded and goes."""
        with self._lock:
            if item not in self._items:      # dropped or cleared meanwhile
                return
            self._bytes -= item.size
            if frame is None:
                self._items.remove(item)
                return
            item.message, item.frame = None, frame
            item.size = frame.rgb.nbytes + (
                0 if frame.prepared is None else frame.prepared.nbytes)
            self._bytes += item.size
            self._thin()

    def take(self) -> tuple[list[Frame], int]:
        """Return frames up to the first image not decoded yet, and how many were skipped."""
        frames = []
        with self._lock:
            while self._items and (frame := self._items[0].frame) is not None:
                item = self._items.popleft()
                self._bytes -= item.size
                frames.append(replace(frame, left_out=item.left_out))
            skipped, self._skipped = self._skipped, 0
        return frames, skipped

    def clear(self) -> None:
        """Forget everything that waits; it counts as skipped."""
        with self._lock:
            self._skipped += len(self._items)
            self._items.clear()
            self._bytes = 0

    def _thin(self) -> None:
        # What goes is the image whose neighbours are closest: the spacing of the others stays
        # even, however long nobody takes them.
        while len(self._items) > self._limit or (
                self._bytes > self._max_bytes and len(self._items) > 2):
            times = [item.arrival_ns for item in self._items]
            gone = min(range(1, len(times) - 1), key=lambda i: times[i + 1] - times[i - 1])
            self._bytes -= self._items[gone].size
            self._items[gone + 1].left_out += 1 + self._items[gone].left_out
            del self._items[gone]
            self.dropped += 1


class CameraInput:
    """The input side of one camera: its images, camera_info and gyroscope, and what is wrong.

    Callbacks run on the executor and only store; the worker takes from `queue`.

    Attributes
    ----------
    images
        Its image topics, of which one is read.
    notify
        Called after an image was queued.
    imu
        Its gyroscope; None where it has none.
    frame_id
        Of the newest image, '' before the first.
    silent
        Whether nothing has come for longer than the timeout of `watch`.
    """

    def __init__(self, node: LifecycleNode, name: str, transport: str) -> None:
        self._node = node
        self.name = name
        self.images = Transport(node, name, transport, self._put, self.refuse,
                                self._on_incompatible)
        self.notify: Callable[[], object] = lambda: None
        self.imu: ImuInput | None = None
        self.frame_id = ''
        self.queue = FrameQueue()
        self.rate = Rate()
        self.counts: Counter[str] = Counter()
        self.last_fault = ''        # why the last refused image was refused
        self.fault_s = -math.inf    # and when [steady s]
        self.info: CameraInfo | None = None
        self.info_problem = ''      # why it can not be used for the newest image
        self.distortion: Distortion | None = None       # of it, where it can be used
        # The last camera_info and image size, and intrinsics or problem.
        self._known: tuple[object, Intrinsics | None] = (None, None)
        self._info_subscription: Any = None
        self._told: set[str] = set()     # causes, in this silence
        self._begin()

    def _begin(self) -> None:
        self.silent = False
        self._published_since: float | None = None   # seen while no frame comes
        self._came: set[str] = set()     # since activation: image, info
        self._mixed: int | None = None
        self._warned: set[str] = set()   # kinds of problems, since activation

    def open(self) -> None:
        """Subscribe (on activate)."""
        self._begin()
        self._info_subscription = subscribe(
            self._node, CameraInfo, f'{self.name}/camera_info', self._on_info)
        self.images.open()
        if self.imu is not None:
            self.imu.open()

    def close(self) -> None:
        """Unsubscribe and forget what waits (on deactivate)."""
        if self._info_subscription is not None:
            self._node.destroy_subscription(self._info_subscription)
            self._info_subscription = None
        self.images.close()
        self.queue.clear()
        if self.imu is not None:
            self.imu.close()

    @property
    def silent_s(self) -> float:
        """Time since the last frame, or since `open` [s]."""
        return time.monotonic() - self.images.last_s

    def watch(self, timeout_s: float, mixed: int = 0) -> None:
        """Check for silence; warn once per silence and cause.

        Transport is a cause only where somebody has been publishing for the timeout, too: a camera
        that has just started may need time.

        `timeout_s`: silence after which to warn [s].
        """
        silent_s = self.silent_s
        if self._mixed is None or mixed - self._mixed >= MIXED_RESETS:
            if self._mixed is not None:
                self._warn_publishers()
            self._mixed = mixed
        self.images.look()
        if silent_s <= SEARCH_AFTER_S or not any(self._publishers().values()):
            self._published_since = None
        elif self._published_since is None:
            self._published_since = time.monotonic()
        if silent_s < timeout_s:
            self.silent = False
            self._told.clear()
            return
        if not self.silent:
            self.silent = True
            self.counts['silences'] += 1
        if self._published_since is None:
            self._warn_silence('unpublished', silent_s)
        elif time.monotonic() - self._published_since >= timeout_s:
            self._warn_silence('lost', silent_s)

    def _warn_once(self, kind: str, text: str) -> None:
        """Warn of a kind of problem once in an activation."""
        if kind not in self._warned:
            self._warned.add(kind)
            self._node.get_logger().warning(f"camera '{self.name}': {text}")

    def refuse(self, error: ImageError, topic: str = '') -> None:
        """Count a malformed image of a topic, or of the one in use; warn once per kind."""
        self.counts[error.kind] += 1
        self.last_fault, self.fault_s = str(error), time.monotonic()
        self._warn_once(error.kind, f'image skipped on {topic or self.images.topic or self.name}: '
                        f'{error} (further images of this kind are only counted, see '
                        '/diagnostics)')

    def intrinsics_for(self, size: tuple[int, int]) -> Intrinsics | None:
        """Return (fx, fy, cx, cy) for images of a size [px], None without a usable camera_info.

        `distortion` is that of the same one.
        """
        info = self.info
        if info is None:
            self.info_problem, self.distortion = '', None
            return None
        # A camera sends the same one with each image.
        roi = info.roi
        key = (size, info.width, info.height, info.k.tobytes(), info.p.tobytes(), bytes(info.d),
               info.distortion_model, info.binning_x, info.binning_y,
               roi.x_offset, roi.y_offset, roi.width, roi.height)
        if self._known[0] != key:
            found, self.distortion, self.info_problem = None, None, ''
            try:
                found, self.distortion = lens(info, size, self.images.named)
            except ValueError as error:
                self.info_problem = str(error)
            self._known = key, found
        found = self._known[1]
        # Drivers without a calibration send zeros; that is flagged, and reported for obstacles.
        if found is None and (info.k[0] != 0 or info.p[0] != 0):
            self.counts['camera_info'] += 1
            self._warn_once(
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
        self._came.add('image')
        self.frame_id = msg.header.frame_id
        self.rate.tick(self.images.last_s)
        self.queue.put(Waiting(msg, stamp_ns(msg.header),
                               self._node.get_clock().now().nanoseconds, size))
        self.notify()

    def _on_info(self, msg: CameraInfo) -> None:
        self.info = msg
        self._came.add('info')

    def _on_incompatible(self, topic: str, event: Any) -> None:
        policy = qos_policy_name_from_kind(event.last_policy_kind)
        self.counts['incompatible_qos'] += 1
        self._warn_once(f'qos {policy}', f'a publisher on {topic} offers an incompatible '
                        f'{policy}; no image will arrive from it. Set the parameter '
                        f"'qos_overrides.{topic}.subscription.{policy.lower()}' to what it offers "
                        'when starting the node')

    def _publishers(self) -> dict[str, list]:
        """Return the publishers of each image topic that is read."""
        return {topic: self._node.get_publishers_info_by_topic(topic)
                for kind, topic in self.images.topics.items()
                if self.images.wanted in ('auto', kind)}

    def _warn_publishers(self) -> None:
        topic = self.images.topic or self.name
        found = self._node.get_publishers_info_by_topic(topic)
        if len(found) > 1:
            names = sorted(f'{i.node_namespace.rstrip("/")}/{i.node_name}' for i in found)
            self._warn_once('publishers', f'{len(found)} publishers on {topic} send in turn, so '
                            f'each image ends the clip of the other: {", ".join(names)}. Stop all '
                            "but one, or remap the topics of the others and add them to 'cameras'")

    def _warn_silence(self, cause: str, silent_s: float) -> None:
        """Warn with the whole explanation once, then in short and not every time."""
        if cause in self._told:
            return
        self._told.add(cause)
        if cause not in self._warned:
            self._warn_once(cause, self._explain_silence(cause, silent_s))
        else:
            self._node.get_logger().warning(
                f"camera '{self.name}': silent again (no frame for {silent_s:.1f} s)",
                throttle_duration_sec=REPEAT_S)

    def _explain_silence(self, cause: str, silent_s: float) -> str:
        images, parts = self.images, []
        for topic, found in self._publishers().items():
            reliable = sum(i.qos_profile.reliability == ReliabilityPolicy.RELIABLE for i in found)
            parts.append(f'{topic} has {len(found)} publisher(s), {reliable} reliable')
        remedy = 'start the camera or remap its topic' if cause == 'unpublished' else (
            self._explain_loss())
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

    def _explain_loss(self) -> str:
        """Return why nothing of a publisher arrives; camera_info is small and is not lost."""
        if 'image' in self._came:
            return 'the camera has stopped sending'
        if 'info' in self._came:
            return f'camera_info arrives, images do not: {LARGE_IMAGE_REMEDY}'
        if self._node.get_publishers_info_by_topic(self._info_topic):
            return ('the camera is there but sends nothing, camera_info neither: it is still '
                    'starting, or waits for something')
        return f'the camera sends nothing yet, or it is lost: {LARGE_IMAGE_REMEDY}'
