# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Cut events out of recordings: a rosbag2 with MCAP storage for each."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from vjepa_ros.fleet.recordings import Recording, state_of
from vjepa_ros.lab.report.bag_writer import BagWriter, QUALITY
from vjepa_ros.sources import SourceError
from vjepa_ros.sources.bag import Bag, is_bag, parsing
from vjepa_ros.sources.bag_storage import Topic

DRAFTS = '.drafts'
log = logging.getLogger(__name__)


def cut_clips(events: Sequence[Mapping[str, Any]], folder: Path, rate: float | None = None
              ) -> tuple[list[str], list[str]]:
    """Write a clip of each event, unless it is there already.

    A clip of a bag has the messages of all its topics, as they were recorded; one of pictures has
    them as jpeg, with their stamps.
    """
    names, problems = [], []
    for event in events:
        try:
            name = _name(event)
            if not (folder / name).exists():
                _write(event, folder, name, rate)
            names.append(name)
        except (SourceError, OSError) as error:
            names.append('')
            problems.append(f'{event["bag"]}: no clip of {event["begin_s"]:.1f} to '
                            f'{event["end_s"]:.1f} s: {error}')
    shutil.rmtree(folder / DRAFTS, ignore_errors=True)
    return names, problems


def _name(event: Mapping[str, Any]) -> str:
    """Return the name of a clip.

    Bags of a fleet have the same names, and one may be replaced by another: a digest tells them
    apart.
    """
    path = Path(event['bag'])
    facts = json.dumps([str(path), event['topic'], *state_of(path)])
    parts = (re.sub(r'[^A-Za-z0-9_-]+', '_', f'{path.stem}-{event["camera"]}')[:80],
             hashlib.sha256(facts.encode()).hexdigest()[:8],
             f'{event["begin_s"]:.3f}', f'{event["end_s"]:.3f}')
    return '-'.join(parts).replace('.', '_')


def _write(event: Mapping[str, Any], folder: Path, name: str, rate: float | None) -> None:
    """Write a clip under another name first, so that it is whole or not there."""
    draft = folder / DRAFTS / name
    shutil.rmtree(draft, ignore_errors=True)
    with parsing(f"clip '{name}'"), BagWriter(draft) as bag:
        if is_bag(Path(event['bag'])):
            _copy(event, bag.writer)
        else:
            for stamp_ns, frame_id, data in _jpegs(event, rate):
                bag.jpeg(f'/{event["camera"]}/image_raw/compressed', stamp_ns, data, frame_id)
    draft.rename(folder / name)


def _copy(event: Mapping[str, Any], writer: Any) -> None:
    path = Path(event['bag'])
    reader = Bag(path)
    try:
        start_ns = reader.start_time
        begin, end = (start_ns + round(event[at] * 1e9) for at in ('begin_s', 'end_s'))
        made: dict[Any, Any] = {}
        for connection, recorded_ns, raw in reader.messages(start=begin, stop=end + 1):
            key = connection.topic, connection.msgtype
            if key not in made:
                made[key] = _added(writer, reader, connection)
            if made[key] is not None:
                writer.write(made[key], recorded_ns, raw)
    finally:
        reader.close()


def _added(writer: Any, reader: Bag, topic: Topic) -> Any:
    """Add a topic to a clip; None for one whose type is not known, which the log says."""
    try:
        if topic.serialization == 'cdr':
            return writer.add_connection(topic.topic, topic.msgtype,
                                         typestore=reader.store(topic.msgtype))
        problem: object = f'it is written as {topic.serialization}, not as cdr'
    except SourceError as error:
        problem = error
    log.warning("clip: '%s' is left out: %s", topic.topic, problem)
    return None


def _jpegs(event: Mapping[str, Any], rate: float | None
           ) -> Iterator[tuple[int, str, np.ndarray]]:
    with Recording(event['bag'], event['topic'], event['camera'], rate=rate).open() as source:
        for _, load in source.excerpt(event['begin_s'], event['end_s']):
            frame = load()
            if frame.encoding == 'jpeg' and frame.encoded is not None:
                data = np.frombuffer(frame.encoded, np.uint8)
            else:
                data = cv2.imencode('.jpg', frame.rgb[..., ::-1],
                                    [cv2.IMWRITE_JPEG_QUALITY, QUALITY])[1].reshape(-1)
            yield frame.stamp_ns, frame.frame_id, data
