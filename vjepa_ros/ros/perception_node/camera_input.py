# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Subscribe to one camera: its images, camera_info and gyroscope, and what is wrong with them.

A callback takes microseconds, but for a packet of a video, which is decoded at once.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from rclpy.lifecycle import LifecycleNode
from rclpy.qos import ReliabilityPolicy, qos_policy_name_from_kind
from sensor_msgs.msg import CameraInfo

from vjepa_ros.clip.optics import Distortion
from vjepa_ros.ros.common.endpoints import subscribe
from vjepa_ros.ros.common.environment import LARGE_IMAGES
from vjepa_ros.ros.common.message_conversion import ImageError, stamp_ns
from vjepa_ros.ros.perception_node.decoder import Frame, FrameQueue
from vjepa_ros.ros.perception_node.diagnostics import Rate
from vjepa_ros.ros.perception_node.imu_input import ImuInput
from vjepa_ros.ros.perception_node.parameters import CameraConfig
from vjepa_ros.ros.perception_node.transport import SEARCH_AFTER_S, Transport
from vjepa_ros.sources.base import Intrinsics
from vjepa_ros.sources.camera_info import calibration_problem, lens

MIXED_RESETS = 3         # since the last check, after which to look for several publishers
REPEAT_S = 60.0          # between warnings of repeated silences
LARGE_IMAGE_REMEDY = (
    f'large raw images need FASTDDS_BUILTIN_TRANSPORTS="{LARGE_IMAGES}" in the environment of the '
    'camera process, or compressed transport')


class CameraInput:
    """The input side of one camera: callbacks only store, the worker takes from `queue`."""

    def __init__(self, node: LifecycleNode, name: str, config: CameraConfig) -> None:
        self._node = node
        self.name = name
        self.images = Transport(node, name, config.transport, self._put, self.refuse,
                                self._on_incompatible)
        self.notify: Callable[[], object] = lambda: None     # called after an image was queued
        self.imu = ImuInput(node, name, config, lambda: self.frame_id) \
            if config.imu_topic else None
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
        self._told: set[str] = set()     # causes, in this silence
        self._begin()

    def _begin(self) -> None:
        self.silent = False         # whether nothing has come for the timeout of `watch`
        self._published_since: float | None = None   # seen while no frame comes
        self._came: set[str] = set()     # since activation: image, info
        self._mixed: int | None = None
        self._warned: dict[str, float] = {}  # kinds of problems since activation, and when

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
        """Check for silence longer than a timeout [s]; warn once per silence and cause.

        Transport is a cause only where somebody has been publishing for the timeout, too: a camera
        that has just started may need time.
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
            cause = 'unpublished'
        elif time.monotonic() - self._published_since >= timeout_s:
            cause = 'lost'
        else:
            return
        if cause not in self._told:
            self._told.add(cause)
            self._warn(cause, self._explain_silence(cause, silent_s), REPEAT_S)

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
        self._came.add('image')
        self.frame_id = msg.header.frame_id
        self.rate.tick(self.images.last_s)
        self.queue.put(Frame(msg, stamp_ns(msg.header),
                             self._node.get_clock().now().nanoseconds, size))
        self.notify()

    def _on_info(self, msg: CameraInfo) -> None:
        self.info = msg
        self._came.add('info')

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

    def _warn_publishers(self) -> None:
        topic = self.images.topic or self.name
        found = self._node.get_publishers_info_by_topic(topic)
        if len(found) > 1:
            names = sorted(f'{i.node_namespace.rstrip("/")}/{i.node_name}' for i in found)
            self._warn('publishers', f'{len(found)} publishers on {topic} send in turn, so '
                            f'each image ends the clip of the other: {", ".join(names)}. Stop all '
                            "but one, or remap the topics of the others and add them to 'cameras'")

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
