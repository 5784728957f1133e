# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Read the image topic of a camera that delivers: raw, compressed or a video."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
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

SEARCH_AFTER_S = 0.3     # silence after which another transport is looked for
TRY_S = 0.5              # silence of a topic that is published, after which others are tried
# One that is tried takes over after so long, with so many times as many images and some more.
SILENT_S, OTHER_SHARE, TAKES_OVER = 1.0, 1.5, 2
STEADY_S = 3.0           # else they are tried for so long, while the one in use delivers
REST_S = 30.0            # then before they are tried again
REFUSED = 5              # images in a row that cannot be read; a topic of such delivers nothing
KINDS = TRANSPORTS[1:]   # the preferred one first
PACKETS = 30             # of a video that may wait for the executor


@dataclass
class _Trial:
    """A transport that is read beside the one in use; its images are only counted."""

    begun_s: float  # of its subscription, and from the first image on when that came [steady s]
    used: int = 0  # images of the transport in use so far, then
    count: int = 0  # images that came


class Transport:
    """The image topics of one camera, of which one is in use.

    With 'auto' this is the first of those that are published, until it falls silent or sends
    little. Then the others are read beside it, and what delivers takes over. A video has to be
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
        self._trials: dict[str, _Trial] = {}
        self._images = 0             # of the transport in use, that can be read
        self.last_s = self._read_s = time.monotonic()    # of any, and of a readable one
        self._refused_in_a_row = 0
        self._unreadable: dict[str, float] = {}     # when a transport was left as such
        self._rest_s = -math.inf     # until then none is tried while the one in use delivers
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
        self._refused_in_a_row, self._rest_s = 0, -math.inf
        if self.wanted == 'ffmpeg':
            self.look()
        else:    # undecided means raw until it turns out that another delivers
            self.chosen, self.reason = ('raw', 'it is read first') if self.wanted == 'auto' \
                else (self.wanted, 'its transport is set')
            self._subscribe(self.chosen)

    def close(self) -> None:
        """Unsubscribe."""
        for subscription in self._subscriptions.values():
            self._node.destroy_subscription(subscription)
        self._subscriptions.clear()
        self._trials.clear()
        self.chosen = self.reason = ''

    def look(self) -> None:
        """Read what delivers; called now and then."""
        if self.wanted not in ('auto', 'ffmpeg'):
            return
        now = time.monotonic()
        silent_s = now - self._read_s if self.chosen else math.inf
        if silent_s > SEARCH_AFTER_S:
            present = [kind for kind, topic in self.topics.items()
                       if self.wanted in ('auto', kind)
                       and self._node.get_publishers_info_by_topic(topic)]
            if present and self.chosen not in present:
                if self._subscribe(present[0]):
                    self._use(present[0], f'{self.topic} is not published' if self.chosen else
                              'it is published')
            elif silent_s > SILENT_S or (silent_s > TRY_S and now >= self._rest_s):
                for kind in present:
                    if (kind not in (self.chosen, *self._trials)
                            and now - self._unreadable.get(kind, -math.inf) > REST_S
                            and self._subscribe(kind)):
                        self._trials[kind] = _Trial(now)
        if silent_s < SILENT_S and self._trials and all(
                now - trial.begun_s >= STEADY_S for trial in self._trials.values()):
            self._trials.clear()
            self._rest_s = now + REST_S
        for kind in {*self._subscriptions} - {self.chosen, *self._trials}:
            self._node.destroy_subscription(self._subscriptions.pop(kind))

    def _use(self, kind: str, reason: str) -> None:
        """Take the images of a transport that is subscribed, and say why."""
        now = time.monotonic()
        if self._refused_in_a_row >= REFUSED:
            self._unreadable[self.chosen] = now
        self._rest_s, self._refused_in_a_row = now + REST_S, 0
        self._trials.pop(kind, None)
        self.chosen, self.reason = kind, reason
        self._node.get_logger().info(
            f"camera '{self._name}': reading {self.topic} ({kind}): {reason}")

    def _subscribe(self, kind: str) -> bool:
        """Subscribe to a transport unless that is done; False where that is refused."""
        if kind in self._subscriptions:
            return True
        topic = self.topics[kind]
        more: dict[str, Any] = {'overridable': True, 'event_callbacks': SubscriptionEventCallbacks(
            incompatible_qos=partial(self._on_incompatible, topic))}
        if kind != 'ffmpeg':
            self._subscriptions[kind] = subscribe(
                self._node, Image if kind == 'raw' else CompressedImage,
                f'{self._name}/image_raw' if kind == 'raw' else topic,
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
            if str(error) != self._refused:      # every look finds the same
                self._refused = str(error)
                self._refuse(error, topic)
            return False
        self._video = VideoInput()
        return True

    def _arrived(self, kind: str) -> bool:
        """Note an image of a transport; return whether it is used."""
        now = time.monotonic()
        if kind != self.chosen:
            trial = self._trials.get(kind)
            if trial is None:        # no longer used, and not unsubscribed yet
                return False
            if not trial.count:
                trial.begun_s, trial.used = now, self._images
            trial.count += 1
            used, tried_s = self._images - trial.used, now - trial.begun_s
            if trial.count < OTHER_SHARE * used + TAKES_OVER or tried_s < SILENT_S:
                return False
            self._use(kind, f'it has delivered {trial.count} images in {tried_s:.1f} s, '
                      f'{self.topic} {used} that can be read')
        self.last_s = now
        if self._refused_in_a_row < REFUSED:
            self._read_s = now
            self._images += 1
        return True

    def judge(self, readable: bool) -> None:
        """Note whether an image that was taken can be read."""
        self._refused_in_a_row = 0 if readable else self._refused_in_a_row + 1

    def _on_image(self, kind: str, msg: Image | CompressedImage) -> None:
        if self._arrived(kind):
            self._take(msg, len(msg.data))

    def _on_packet(self, msg: Any) -> None:
        """Decode a packet here: the queue may leave out pictures, but never packets."""
        if self.chosen == 'ffmpeg':
            self.last_s = time.monotonic()
        elif time.monotonic() - self._read_s < TRY_S:     # only counted: the next one needs a key
            self._video = VideoInput()
            self._arrived('ffmpeg')
            return
        try:
            picture = self._video.picture(msg)
        except ImageError as error:
            self.judge(readable=False)
            self._refuse(error, self.topics['ffmpeg'])
        else:
            if self._arrived('ffmpeg'):
                self._take(picture, picture.nbytes)
