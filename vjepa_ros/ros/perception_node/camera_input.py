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
from functools import partial
from typing import Any

import numpy as np
from rclpy.lifecycle import LifecycleNode
from rclpy.qos import ReliabilityPolicy, qos_policy_name_from_kind
from sensor_msgs.msg import CameraInfo, CompressedImage, Image

from vjepa_ros.clip.optics import Distortion
from vjepa_ros.clip.ring import Frame as Resized
from vjepa_ros.parameter import TRANSPORTS
from vjepa_ros.perception.camera_track import Track
from vjepa_ros.ros.common.endpoints import subscribe
from vjepa_ros.ros.common.message_conversion import ImageError, stamp_ns
from vjepa_ros.ros.common.video import VideoInput, video_type
from vjepa_ros.ros.perception_node.imu_input import ImuInput
from vjepa_ros.ros.perception_node.statistics import Rate
from vjepa_ros.sources.base import Intrinsics
from vjepa_ros.sources.camera_info import calibration_problem, lens

try:
    from rclpy.event_handler import SubscriptionEventCallbacks
except ImportError:   # Humble keeps it here
    from rclpy.qos_event import SubscriptionEventCallbacks

MIXED_RESETS = 3         # since the last check, after which to look for several publishers
SEARCH_AFTER_S = 0.3     # silence after which another transport is looked for
# Silence of a topic that is published, after which others are read beside it, and after which
# one that has delivered so many images meanwhile takes its place.
TRY_S, SILENT_S, TAKES_OVER = 0.5, 1.0, 2
# Else they are compared for so long. A preferred one needs this share of the images of the one in
# use, another one so many times as many and some more.
STEADY_S, PREFERRED_SHARE, OTHER_SHARE = 3.0, 0.8, 1.5
PAUSE_S = 10.0, 60.0     # then before they are compared again, and the longest: it doubles
COMPRESSED, FFMPEG = '/compressed', '/ffmpeg'
KINDS = TRANSPORTS[1:]   # the preferred one first
PACKETS = 30             # of a video that may wait for the executor
REPEAT_S = 60.0          # between warnings of repeated silences
LARGE_IMAGE_REMEDY = (
    'large raw images need FASTDDS_BUILTIN_TRANSPORTS="DEFAULT?max_msg_size=64KB&'
    'sockets_size=4MB" in the environment of the camera process, or compressed transport')


@dataclass
class _Trial:
    """A transport that is read beside the one in use; its images are only counted."""

    begun_s: float  # of its subscription, and from the first image on when that came [steady s]
    used: int = 0  # images of the transport in use so far, then
    count: int = 0  # images that came
    in_a_row: int = 0  # of these, since the last image of the transport in use


@dataclass(frozen=True)
class Frame:
    """A decoded image that waits for the worker."""

    rgb: np.ndarray  # (H, W, 3) uint8
    # prepared, track: result of `Track.prepare`, and of which track
    prepared: Resized | None
    track: Track
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
    """The input side of one camera.

    Callbacks run on the executor and only store; the worker takes from `queue`.

    Parameters
    ----------
    node
        The node that owns the subscriptions.
    name
        Camera name; topics are NAME/image_raw[/compressed, /ffmpeg] and NAME/camera_info.
    transport
        'raw', 'compressed', 'ffmpeg' or 'auto'.

    Attributes
    ----------
    notify
        Called after an image was queued.
    imu
        Its gyroscope; None where it has none.
    frame_id
        Of the newest image, '' before the first.
    chosen
        Transport in use: 'raw', 'compressed', 'ffmpeg', or '' while not subscribed.
    reason
        Why that one.
    """

    def __init__(self, node: LifecycleNode, name: str, transport: str) -> None:
        self._node = node
        self.name = name
        self.transport = self._fitting(transport)
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
        self.chosen = self.reason = ''
        self._subscriptions: dict[str, Any] = {}
        self._trials: dict[str, _Trial] = {}
        self._pause_s = PAUSE_S[0]
        self._rest_s = -math.inf     # until then none is tried while the one in use delivers
        self._video = VideoInput()
        self._warned: set[str] = set()   # kinds of problems, since activation
        self._told: set[str] = set()     # causes, in this silence
        self._last_arrival = time.monotonic()
        self._silent = False
        self._mixed: int | None = None
        self._published_since: float | None = None   # seen while no frame comes
        self._came: set[str] = set()     # since activation: image, info

    @property
    def _named(self) -> str:
        """Return the resolved topic, after remapping."""
        return self._node.resolve_topic_name(f'{self.name}/image_raw')

    def _fitting(self, transport: str) -> str:
        """Return the transport; a topic remapped to a compressed one is read compressed."""
        named = self._named
        own = named.rpartition('/')[2]
        if own not in ('compressed', 'ffmpeg'):
            return transport
        if transport not in ('auto', own):
            raise ValueError(f"camera '{self.name}': the transport is '{transport}', but its "
                             f'images are remapped to {named}; set the transport to {own}, or '
                             f'remap {self.name}/image_raw to {named.rpartition("/")[0]}')
        return own

    @property
    def topics(self) -> dict[str, str]:
        """Return the resolved image topic of each transport."""
        raw = self._named.removesuffix(COMPRESSED).removesuffix(FFMPEG)
        return dict(zip(KINDS, (raw, raw + COMPRESSED, raw + FFMPEG), strict=True))

    @property
    def topic(self) -> str:
        """Return the resolved topic in use, '' while not subscribed."""
        return self.topics.get(self.chosen, '')

    def open(self) -> None:
        """Subscribe (on activate)."""
        self._last_arrival = time.monotonic()
        self._silent = False
        self._published_since = None
        self._came.clear()
        self._mixed = None
        self._warned.clear()
        self._pause_s, self._rest_s = PAUSE_S[0], -math.inf
        self._subscriptions['info'] = subscribe(
            self._node, CameraInfo, f'{self.name}/camera_info', self._on_info)
        if self.transport == 'ffmpeg':
            self.choose_transport()
        else:    # undecided means raw until it turns out that another delivers
            self.chosen, self.reason = ('raw', 'it is read first') if self.transport == 'auto' \
                else (self.transport, 'its transport is set')
            self._subscribe(self.chosen)
        if self.imu is not None:
            self.imu.open()

    def close(self) -> None:
        """Unsubscribe and forget what waits (on deactivate)."""
        for subscription in self._subscriptions.values():
            self._node.destroy_subscription(subscription)
        self._subscriptions.clear()
        self._trials.clear()
        self.chosen = self.reason = ''
        self.queue.clear()
        if self.imu is not None:
            self.imu.close()

    def choose_transport(self) -> None:
        """Read the transport that delivers; called now and then.

        Of those that are published this is the first, until it falls silent or sends little. Then
        the others are read beside it, and what delivers takes over. Then those before it are tried
        now and then, and taken when they deliver steadily; in between they cost no bandwidth.

        A video has to be published before it can be subscribed: its type is not known sooner.
        """
        now, silent_s = time.monotonic(), self.silent_s if self.chosen else math.inf
        tried, rested = [], now >= self._rest_s
        if silent_s > SEARCH_AFTER_S or (rested and self._before()):
            present = [kind for kind, topic in self.topics.items()
                       if self.transport in ('auto', kind)
                       and self._node.get_publishers_info_by_topic(topic)]
            if silent_s > SEARCH_AFTER_S and present and self.chosen not in present:
                if self._subscribe(present[0]):
                    self._use(present[0], f'{self.topic} is not published' if self.chosen else
                              'it is published')
            elif silent_s > SILENT_S or (silent_s > TRY_S and rested):
                tried = [kind for kind in present if kind != self.chosen]
            elif rested:
                tried = [kind for kind in present if kind in self._before()]
        for kind in tried:
            if kind not in self._trials and self._subscribe(kind):
                self._trials[kind] = _Trial(now)
        if silent_s < SILENT_S and self._trials and all(
                now - trial.begun_s >= STEADY_S for trial in self._trials.values()):
            self._end_trials(now)
        for kind in {*KINDS} & {*self._subscriptions} - {self.chosen, *self._trials}:
            self._node.destroy_subscription(self._subscriptions.pop(kind))

    def _end_trials(self, now_s: float) -> None:
        """Use a transport that has delivered better than the one in use; then rest for longer."""
        for kind in KINDS:
            trial = self._trials.pop(kind, None)
            if trial is None:
                continue
            used = self.rate.total - trial.used
            least = PREFERRED_SHARE * used if kind in self._before() else OTHER_SHARE * used + 2
            if trial.count >= max(TAKES_OVER, least):
                self._trials.clear()
                self._use(kind, f'it has delivered {trial.count} images in {STEADY_S:g} s, '
                          f'{self.topic} {used}')
        self._pause_s = min(2.0 * self._pause_s, PAUSE_S[1])
        self._rest_s = now_s + self._pause_s

    def _before(self) -> tuple[str, ...]:
        """Return the transports that are preferred to the one in use."""
        return KINDS[:KINDS.index(self.chosen)] if self.transport == 'auto' else ()

    def _use(self, kind: str, reason: str) -> None:
        """Take the images of a transport that is subscribed, and say why."""
        self._rest_s = time.monotonic() + self._pause_s
        self._trials.pop(kind, None)
        self.chosen, self.reason = kind, reason
        self._node.get_logger().info(
            f"camera '{self.name}': reading {self.topic} ({kind}): {reason}")

    def watch(self, timeout_s: float, mixed: int = 0) -> None:
        """Check for silence; warn once per silence and cause.

        Transport is a cause only where somebody has been publishing for the timeout, too: a camera
        that has just started may need time.

        `timeout_s`: silence after which to warn [s].
        """
        silent_s = self.silent_s
        if self._mixed is None or mixed - self._mixed >= MIXED_RESETS:
            if self._mixed is not None and 'publishers' not in self._warned:
                self._warn_publishers()
            self._mixed = mixed
        if self.transport in ('auto', 'ffmpeg'):
            self.choose_transport()
        if silent_s > SEARCH_AFTER_S:
            self._look_for_publishers()
        else:
            self._published_since = None
        if silent_s < timeout_s:
            self._silent = False
            self._told.clear()
            return
        if not self._silent:
            self._silent = True
            self.counts['silences'] += 1
        since = self._published_since
        if since is None:
            self._warn_silence('unpublished', silent_s)
        elif time.monotonic() - since >= timeout_s:
            self._warn_silence('lost', silent_s)

    @property
    def silent_s(self) -> float:
        """Time since the last frame, or since `open` [s]."""
        return time.monotonic() - self._last_arrival

    @property
    def silent(self) -> bool:
        """Whether the camera has been silent for longer than the timeout."""
        return self._silent

    def refuse(self, error: ImageError, topic: str = '') -> None:
        """Count a malformed image of a topic, or of the one in use; warn once per kind."""
        self.counts[error.kind] += 1
        self.last_fault, self.fault_s = str(error), time.monotonic()
        if error.kind not in self._warned:
            self._warned.add(error.kind)
            topic = topic or self.topic or self.name
            self._node.get_logger().warning(
                f"camera '{self.name}': image skipped on {topic}: {error} (further images of "
                'this kind are only counted, see /diagnostics)')

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
                found, self.distortion = lens(info, size, self._named)
            except ValueError as error:
                self.info_problem = str(error)
            self._known = key, found
        found = self._known[1]
        # Drivers without a calibration send zeros; that is flagged, and reported for obstacles.
        if found is None and (info.k[0] != 0 or info.p[0] != 0):
            self.counts['camera_info'] += 1
            self._warn_info()
        return found

    def calibration_problem(self) -> str:
        """Return why there are no intrinsics, as far as is known before an image; '' for none."""
        if self.info is None:
            topic = self._node.resolve_topic_name(f'{self.name}/camera_info')
            return f'no camera_info on {topic} (start it or remap it)'
        return calibration_problem(self.info, self._named) or self.info_problem

    def _warn_info(self) -> None:
        """Warn once that camera_info is not used, whatever its numbers."""
        kind = f'camera_info: {self.info_problem[:24]}'
        if kind not in self._warned:
            self._warned.add(kind)
            topic = self._node.resolve_topic_name(f'{self.name}/camera_info')
            self._node.get_logger().warning(
                f"camera '{self.name}': {topic} is not used, assumed_fov is used instead: "
                f'{self.info_problem} (further ones are only counted, see /diagnostics)')

    def _subscribe(self, kind: str) -> bool:
        """Subscribe to a transport unless that is done; False where that is refused."""
        topic = self.topics[kind]
        more: dict[str, Any] = {'event_callbacks': SubscriptionEventCallbacks(
            incompatible_qos=partial(self._on_incompatible, topic))}
        if kind in self._subscriptions:
            return True
        if kind != 'ffmpeg':
            self._subscriptions[kind] = subscribe(
                self._node, Image if kind == 'raw' else CompressedImage,
                f'{self.name}/image_raw' if kind == 'raw' else topic,
                partial(self._on_image, kind), **more)
            return True
        # Each packet counts, so a reliable stream is read as such, and some may wait.
        found = self._node.get_publishers_info_by_topic(topic)
        reliable = all(i.qos_profile.reliability == ReliabilityPolicy.RELIABLE for i in found)
        try:
            self._subscriptions[kind] = subscribe(
                self._node, video_type(found[0].topic_type if found else ''), topic,
                self._on_packet, PACKETS, reliable, **more)
        except ImageError as error:
            if error.kind not in self._warned:      # once: every look finds the same
                self.refuse(error, topic)
            return False
        self._video = VideoInput()
        return True

    def _arrived(self, kind: str) -> bool:
        """Note an image of a transport; return whether it is used."""
        now = time.monotonic()
        if kind != self.chosen:
            trial, silent_s = self._trials.get(kind), self.silent_s
            if trial is None:        # no longer used, and not unsubscribed yet
                return False
            if not trial.count:
                trial.begun_s, trial.used = now, self.rate.total
            trial.count += 1
            trial.in_a_row += 1
            if trial.in_a_row < TAKES_OVER or silent_s < SILENT_S:
                return False
            self._use(kind, f'{self.topic} is published, but has sent nothing for '
                      f'{silent_s:.1f} s')
        for trial in self._trials.values():
            trial.in_a_row = 0
        self._last_arrival = now
        return True

    def _on_image(self, kind: str, msg: Image | CompressedImage) -> None:
        if self._arrived(kind):
            self._put(msg, len(msg.data))

    def _on_packet(self, msg: Any) -> None:
        """Decode a packet here: the queue may leave out pictures, but never packets."""
        if self.chosen == 'ffmpeg':
            self._last_arrival = time.monotonic()
        elif self.silent_s < TRY_S:      # only counted, so the next one needs a key frame
            self._video = VideoInput()
            self._arrived('ffmpeg')
            return
        try:
            picture = self._video.picture(msg)
        except ImageError as error:
            self.refuse(error, self.topics['ffmpeg'])
        else:
            if self._arrived('ffmpeg'):
                self._put(picture, picture.nbytes)

    def _put(self, msg: Any, size: int) -> None:
        self._came.add('image')
        self.frame_id = msg.header.frame_id
        self.rate.tick(self._last_arrival)
        self.queue.put(Waiting(msg, stamp_ns(msg.header),
                               self._node.get_clock().now().nanoseconds, size))
        self.notify()

    def _on_info(self, msg: CameraInfo) -> None:
        self.info = msg
        self._came.add('info')

    def _on_incompatible(self, topic: str, event: Any) -> None:
        policy = qos_policy_name_from_kind(event.last_policy_kind)
        self.counts['incompatible_qos'] += 1
        key = f'qos {policy}'
        if key not in self._warned:
            self._warned.add(key)
            self._node.get_logger().warning(
                f"camera '{self.name}': a publisher on {topic} offers an incompatible "
                f'{policy}; no image will arrive from it. Set the parameter '
                f"'qos_overrides.{topic}.subscription.{policy.lower()}' to what it offers when "
                'starting the node')

    def _look_for_publishers(self) -> None:
        """Note since when somebody publishes while no frame comes."""
        if not any(self._publishers().values()):
            self._published_since = None
        elif self._published_since is None:
            self._published_since = time.monotonic()

    def _publishers(self) -> dict[str, list]:
        """Return the publishers of each image topic that is read."""
        return {topic: self._node.get_publishers_info_by_topic(topic)
                for kind, topic in self.topics.items() if self.transport in ('auto', kind)}

    def _warn_publishers(self) -> None:
        topic = self.topic or self.name
        found = self._node.get_publishers_info_by_topic(topic)
        if len(found) > 1:
            self._warned.add('publishers')
            names = sorted(f'{i.node_namespace.rstrip("/")}/{i.node_name}' for i in found)
            self._node.get_logger().warning(
                f"camera '{self.name}': {len(found)} publishers on {topic} send in turn, so each "
                f'image ends the clip of the other: {", ".join(names)}. Stop all but one, or '
                "remap the topics of the others and add them to 'cameras'")

    def _warn_silence(self, cause: str, silent_s: float) -> None:
        """Warn with the whole explanation once, then in short and not every time."""
        if cause in self._told:
            return
        self._told.add(cause)
        if cause not in self._warned:
            self._warned.add(cause)
            self._node.get_logger().warning(self._explain_silence(cause, silent_s))
        else:
            self._node.get_logger().warning(
                f"camera '{self.name}': silent again (no frame for {silent_s:.1f} s)",
                throttle_duration_sec=REPEAT_S)

    def _explain_silence(self, cause: str, silent_s: float) -> str:
        parts = []
        for topic, found in self._publishers().items():
            reliable = sum(i.qos_profile.reliability == ReliabilityPolicy.RELIABLE for i in found)
            parts.append(f'{topic} has {len(found)} publisher(s), {reliable} reliable')
        remedy = 'start the camera or remap its topic' if cause == 'unpublished' else (
            self._explain_loss())
        others = [topic for kind, topic in self.topics.items()
                  if self.transport not in ('auto', kind)
                  and self._node.get_publishers_info_by_topic(topic)]
        if others:
            raw, how = self.topics['raw'], "set it to 'auto'"
            if self._named != raw:
                how = f"remap {self.name}/image_raw to {raw}, with 'auto',"
            remedy += (f'. {" and ".join(others)} has a publisher, but the transport is set to '
                       f'{self.transport}: {how} to read what delivers')
        return (f"camera '{self.name}': no frame for {silent_s:.1f} s ({'; '.join(parts)}); "
                f'{remedy}')

    def _explain_loss(self) -> str:
        """Return why nothing of a publisher arrives; camera_info is small and is not lost."""
        if 'image' in self._came:
            return 'the camera has stopped sending'
        if 'info' in self._came:
            return f'camera_info arrives, images do not: {LARGE_IMAGE_REMEDY}'
        info = self._node.resolve_topic_name(f'{self.name}/camera_info')
        if self._node.get_publishers_info_by_topic(info):
            return ('the camera is there but sends nothing, camera_info neither: it is still '
                    'starting, or waits for something')
        return f'the camera sends nothing yet, or it is lost: {LARGE_IMAGE_REMEDY}'
