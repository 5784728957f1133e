# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Read the image topic of a camera that delivers: raw, compressed or a video."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from rclpy.lifecycle import LifecycleNode
from rclpy.qos import ReliabilityPolicy
from sensor_msgs.msg import CompressedImage, Image

from vjepa_ros.parameter import TRANSPORTS
from vjepa_ros.ros.common.endpoints import subscribe
from vjepa_ros.ros.common.message_conversion import VideoInput, video_type
from vjepa_ros.sources.encodings import ImageError

try:
    from rclpy.event_handler import SubscriptionEventCallbacks
except ImportError:   # Humble keeps it here
    from rclpy.qos_event import SubscriptionEventCallbacks

SEARCH_AFTER_S = 0.3     # silence after which to look for a transport that is published
SILENT_S = 1.0           # least silence of a topic that is published, until others are read
REFUSED = 5              # images in a row that cannot be read; a topic of such is silent
KINDS = TRANSPORTS[1:]   # the preferred one first
PACKETS = 30             # of a video that may wait for the executor


class Transport:
    """The image topics of one camera, of which one is in use.

    With 'auto' this is the first of those that are published. When it falls silent the others are
    read beside it, and one that still delivers after the same time takes over. A video has to be
    published before it can be subscribed: its type is not known sooner.
    """

    def __init__(self, node: LifecycleNode, name: str, wanted: str,
                 take: Callable[[Any, int], None], refuse: Callable[[ImageError, str], None],
                 on_incompatible: Callable[[str, Any], None]) -> None:
        self._node, self._name = node, name
        self.wanted = self._fitting(wanted)
        self._take, self._refuse, self._on_incompatible = take, refuse, on_incompatible
        self.chosen = self.reason = ''     # transport in use, '' while not subscribed, and why it
        self._subscriptions: dict[str, Any] = {}
        self._first_s: dict[str, float] = {}     # image of each transport beside a silent one
        self.last_s = self._read_s = time.monotonic()    # of any image, and of a readable one
        self._patience_s = SILENT_S
        self._refused_in_a_row = 0
        self._video = VideoInput()
        self._refused = ''           # why the topic of a video can not be read

    @property
    def named(self) -> str:
        """Return the resolved topic, after remapping."""
        return self._node.resolve_topic_name(f'{self._name}/image_raw')

    def _fitting(self, wanted: str) -> str:
        """Return the transport; a topic remapped to a compressed one is read compressed."""
        raw, _, own = self.named.rpartition('/')
        if own not in KINDS[1:]:
            return wanted
        if wanted not in ('auto', own):
            raise ValueError(f"camera '{self._name}': the transport is '{wanted}', but its images "
                             f'are remapped to {self.named}; set the transport to {own}, or remap '
                             f'{self._name}/image_raw to {raw}')
        return own

    @property
    def topics(self) -> dict[str, str]:
        """Return the resolved image topic of each transport."""
        raw = self.named.removesuffix('/compressed').removesuffix('/ffmpeg')
        return {kind: raw if kind == 'raw' else f'{raw}/{kind}' for kind in KINDS}

    @property
    def topic(self) -> str:
        """Return the resolved topic in use, '' while not subscribed."""
        return self.topics.get(self.chosen, '')

    def open(self) -> None:
        """Subscribe."""
        self.last_s = self._read_s = time.monotonic()
        self._refused_in_a_row = 0
        if self.wanted == 'ffmpeg':
            self.look(SILENT_S)
        else:    # undecided means raw until it turns out that another delivers
            self.chosen, self.reason = ('raw', 'it is read first') if self.wanted == 'auto' \
                else (self.wanted, 'its transport is set')
            self._subscribe(self.chosen)

    def close(self) -> None:
        """Unsubscribe."""
        self.chosen = self.reason = ''
        self._leave_others()

    def _leave_others(self) -> None:
        """Unsubscribe from all but the transport in use."""
        self._first_s.clear()
        for kind in {*self._subscriptions} - {self.chosen}:
            self._node.destroy_subscription(self._subscriptions.pop(kind))

    def look(self, patience_s: float) -> None:
        """Read what delivers; called now and then. Others are tried after a silence [s]."""
        self._patience_s = max(SILENT_S, patience_s)
        silent_s = time.monotonic() - self._read_s if self.chosen else math.inf
        if silent_s <= SEARCH_AFTER_S:
            self._leave_others()
        elif self.wanted in ('auto', 'ffmpeg'):
            present = [kind for kind, topic in self.topics.items() if self.wanted in ('auto', kind)
                       and self._node.get_publishers_info_by_topic(topic)]
            if self.chosen not in present:
                self._use(next(filter(self._subscribe, present), ''), 'is not published')
            elif silent_s > self._patience_s:
                for kind in present:
                    self._subscribe(kind)

    def _use(self, kind: str, why: str) -> None:
        """Take the images of a transport that is subscribed, and say what the other lacks."""
        if kind:
            self.reason = f'{self.topic} {why}' if self.chosen else 'it is published'
            self.chosen, self._video = kind, VideoInput()
            self._read_s, self._refused_in_a_row = time.monotonic(), 0
            self._leave_others()
            self._node.get_logger().info(
                f"camera '{self._name}': reading {self.topic} ({kind}): {self.reason}")

    def _subscribe(self, kind: str) -> bool:
        """Subscribe to a transport unless that is done; False where that is refused."""
        if kind in self._subscriptions:
            return True
        topic = self.topics[kind]
        more: dict[str, Any] = {'overridable': True, 'event_callbacks': SubscriptionEventCallbacks(
            incompatible_qos=partial(self._on_incompatible, topic))}
        if kind != 'ffmpeg':
            made = subscribe(self._node, Image if kind == 'raw' else CompressedImage,
                             f'{self._name}/image_raw' if kind == 'raw' else topic,
                             partial(self._on_image, kind), **more)
        else:
            # Each packet counts, so a reliable stream is read as such, and some may wait.
            found = self._node.get_publishers_info_by_topic(topic)
            reliable = all(i.qos_profile.reliability == ReliabilityPolicy.RELIABLE for i in found)
            try:
                made = subscribe(self._node, video_type(found[0].topic_type if found else ''),
                                 topic, self._on_packet, PACKETS, reliable, **more)
            except ImageError as error:
                if str(error) != self._refused:      # every look finds the same
                    self._refused = str(error)
                    self._refuse(error, topic)
                return False
        self._subscriptions[kind] = made
        return True

    def judge(self, readable: bool) -> None:
        """Note whether an image that was taken can be read."""
        self._refused_in_a_row = 0 if readable else self._refused_in_a_row + 1

    def _on_image(self, kind: str, msg: Any) -> None:
        if kind == self.chosen or self._takes_over(kind):
            self._arrived(msg, len(msg.data))

    def _on_packet(self, msg: Any) -> None:
        """Decode a packet here: the queue may leave out pictures, but never packets."""
        if self.chosen != 'ffmpeg' and not self._takes_over('ffmpeg'):
            return
        self.last_s = time.monotonic()
        try:
            picture = self._video.picture(msg)
        except ImageError as error:
            self.judge(readable=False)
            self._refuse(error, self.topics['ffmpeg'])
        else:
            self._arrived(picture, picture.nbytes)

    def _takes_over(self, kind: str) -> bool:
        """Note an image of another transport; whether the one in use has been silent since."""
        now_s = time.monotonic()
        first_s = self._first_s.setdefault(kind, now_s)
        if self._read_s > first_s:
            self._first_s[kind] = now_s
        elif now_s - first_s >= self._patience_s:
            self._use(kind, 'brings nothing that can be read')
        return kind == self.chosen

    def _arrived(self, msg: Any, size: int) -> None:
        self.last_s = time.monotonic()
        if self._refused_in_a_row < REFUSED:
            self._read_s = self.last_s
        self._take(msg, size)
