# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Read the messages that a rosbag2 recording holds, without ROS."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vjepa_ros.sources import bag
from vjepa_ros.sources.bag import is_bag, parsing


class Bag:
    """An open recording.

    Parameters
    ----------
    reader
        From `vjepa_ros.sources.bag`.
    name
        For errors.

    Attributes
    ----------
    topics
        Type by name.
    """

    def __init__(self, reader: bag.Bag, name: str) -> None:
        self._reader, self._name = reader, name
        self.topics = {c.topic: c.msgtype for c in reader.connections}

    def messages(self, topics: Collection[str]) -> Iterator[tuple[str, Any]]:
        """Yield topic and message, in the order of recording."""
        wanted = [c for c in self._reader.connections if c.topic in topics]
        for connection, _, raw in self._reader.messages(wanted):
            with parsing(f"bag '{self._name}' cannot be read"):
                message = self._reader.deserialize(raw, connection.msgtype)
            yield connection.topic, message
        self._reader.tell()


@contextmanager
def opened(spec: str) -> Iterator[Bag | None]:
    """Yield the recording at a path; None where there is none."""
    path = Path(spec).expanduser()
    if not is_bag(path):
        yield None
        return
    reader = bag.Bag(path)
    try:
        yield Bag(reader, str(path))
    finally:
        reader.close()
