# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Feed the frames of a source to a consumer that may be slower than the source."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator

from vjepa_ros.sources import Source, SourceError, SourceFrame
from vjepa_ros.sources.base import Pacer

WAKE_S = 0.1


class Feed:
    """Frames in groups: all that arrived since the last group, oldest first.

    Parameters
    ----------
    source
        Source of the frames.
    realtime
        Whether a thread plays the source in real time, and a group has the frames that arrived
        meanwhile. Otherwise a group is one frame, as fast as the consumer takes them.
    limit
        Largest number of waiting frames; beyond it the oldest are dropped.
    """

    def __init__(self, source: Source, realtime: bool, limit: int = 64) -> None:
        self._source, self._realtime = source, realtime
        self._waiting: deque[SourceFrame] = deque(maxlen=limit)
        self._news = threading.Condition()
        self._stop = threading.Event()
        self._ended = False
        self._error: SourceError | None = None
        self.dropped = 0

    def __iter__(self) -> Iterator[list[SourceFrame]]:
        """Yield groups until the source ends.

        Raises
        ------
        SourceError
            When the source fails, after its last frames.
        """
        if not self._realtime:
            for frame in self._source:
                yield [frame]
            return
        thread = threading.Thread(target=self._play, name='feed', daemon=True)
        thread.start()
        try:
            yield from self._groups()
        finally:
            self._stop.set()
            thread.join(2.0)

    def _groups(self) -> Iterator[list[SourceFrame]]:
        while True:
            with self._news:
                if not self._waiting and not self._ended:
                    self._news.wait(WAKE_S)   # short, for Ctrl-C
                frames, ended = list(self._waiting), self._ended
                self._waiting.clear()
            if frames:
                yield frames
            elif ended:
                break
        if self._error is not None:
            raise self._error

    def _play(self) -> None:
        pacer = Pacer()
        try:
            for frame in self._source:
                now = time.monotonic_ns()
                due = now if self._source.live else pacer.due_ns(frame.stamp_ns, now)
                if self._stop.wait(max(0.0, (due - now) / 1e9)):
                    return
                with self._news:
                    self.dropped += len(self._waiting) == self._waiting.maxlen
                    self._waiting.append(frame)
                    self._news.notify()
        except SourceError as error:
            self._error = error
        finally:
            with self._news:
                self._ended = True
                self._news.notify()
