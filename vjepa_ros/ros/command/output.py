# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Send commands, and zeros from a thread of its own where nobody decides in time."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from vjepa_ros.guard.types import Motion, STILL

WAKE_S = 0.01            # period of the thread
LATE_S = 0.02            # time after its end that a decision has to be renewed by who decides
ZEROS_S = 0.3            # for which zeros follow the first one: it may be lost, or a base be new


class CommandOutput:
    """Publishes decisions, each of which holds until a time, and zeros once motion ends.

    A decision in motion that nobody renews in time ends: a callback may hold up the thread that
    decides. All motions are published under one lock, so none that is out of date follows a zero.
    `failed` is called with an error of `publish` in the thread; `period_s`: between two zeros.
    """

    def __init__(self, publish: Callable[[Motion], None], failed: Callable[[Exception], object],
                 period_s: float) -> None:
        self._publish, self._failed, self._period_s = publish, failed, period_s
        self._lock = threading.RLock()
        self._holds_until_s = math.inf           # steady times
        self._published_s = self._zeros_until_s = -math.inf
        self._closed = threading.Event()
        self.sent: Motion | None = None      # the last motion; None: nothing is to be sent
        self._thread = threading.Thread(target=self._watch, name='command output', daemon=True)
        self._thread.start()

    def send(self, motion: Motion | None, news: bool, holds_until_s: float) -> None:
        """Publish a decision that holds until a steady time; without news only a changed one."""
        with self._lock:
            if motion is not None and time.monotonic() > holds_until_s + LATE_S:
                motion = STILL
            if motion is not None and (news or motion != self.sent):
                self._put(motion)
            self.sent, self._holds_until_s = motion, holds_until_s

    def stop(self) -> None:
        """Send the zeros that end motion, if there is any."""
        with self._lock:
            if self.sent not in (None, STILL):
                self._put(STILL)
                self.sent = STILL

    @property
    def ending(self) -> bool:
        """Whether zeros still follow the first one."""
        return time.monotonic() < self._zeros_until_s

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _put(self, motion: Motion) -> None:
        now = time.monotonic()
        if motion != STILL:
            self._zeros_until_s = -math.inf
        elif self.sent not in (None, STILL):
            self._zeros_until_s = now + ZEROS_S
        self._published_s = now
        self._publish(motion)

    def _watch(self) -> None:
        while not self._closed.wait(WAKE_S):
            try:
                self._act(time.monotonic())
            except Exception as error:       # of DDS: the next zero may pass
                self._failed(error)

    def _act(self, now_s: float) -> None:
        with self._lock:
            if now_s > self._holds_until_s + LATE_S:
                self.stop()
            if self.ending and now_s - self._published_s >= self._period_s:
                self._put(STILL)
