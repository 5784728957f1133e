# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Find recordings and cut them into chunks, which are scored independently of each other."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import re
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import parent_process
from pathlib import Path

from vjepa_ros.sources import PlayOptions, Source, SourceError, is_recording, listed, open_source
from vjepa_ros.sources.bag import BAG_SUFFIXES, image_topics, is_bag, is_bag_file
from vjepa_ros.sources.folder import images_in

VIDEO_SUFFIXES = ('.mp4', '.avi', '.mkv', '.webm', '.mov', '.m4v', '.mpg', '.mpeg', '.ts')
COMPRESSED, RAW = '/compressed', '/image_raw'
READ_S = 300             # for opening a recording, or reading its next picture
# Images that nodes publish.
DRAWN = ('overlay', 'motion_map', 'moving_map', 'looming_map')
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recording:
    """One camera of one recording."""

    path: str  # of the bag, video or folder
    topic: str  # image topic of a bag, else ''
    camera: str  # its name, as a node would be told
    duration_s: float = math.nan  # length [s]; NaN when unknown
    rate: float | None = None  # at which pictures without stamps were taken [Hz]

    def open(self) -> Source:
        """Open its frames; `SourceError` when that fails."""
        return open_source(self.path, PlayOptions(topic=self.topic or None, rate=self.rate))

    def __str__(self) -> str:
        return f'{self.path} {self.topic}'.rstrip()


@dataclass(frozen=True)
class Chunk:
    """A part of a recording."""

    recording: Recording
    begin_s: float  # since the start of the recording [s]
    end_s: float  # does not belong to it; inf: all the rest
    file: str  # for its rows; the name depends on all that decides them and on nothing else

    def __str__(self) -> str:
        return f'{self.recording} from {self.begin_s:g} s'

    def holds(self, at_s: float) -> bool:
        """Return whether a time since the start of the recording [s] belongs to it."""
        return self.begin_s <= at_s < self.end_s


@contextmanager
def reading() -> Iterator[None]:
    """End this process, unless it is the main one, when a library hangs within."""
    signal.alarm(0 if parent_process() is None else READ_S)
    try:
        yield
    finally:
        signal.alarm(0)


def find_recordings(paths: Iterable[str | Path]) -> tuple[list[Path], list[str]]:
    """Return the recordings that paths name or contain, in order, each once; and what is none."""
    found: dict[Path, None] = {}
    absent: list[str] = []
    for path in map(Path, paths):
        if not os.path.exists(path):          # False also where that may not be known
            absent.append(f"'{path}' does not exist; give bags, videos, recording folders, or "
                          'folders that contain them')
            continue
        unread: list[str] = []
        inside = _below(path, unread) if path.is_dir() else [path]
        absent += unread
        if not inside and not unread:
            absent.append(f"folder '{path}' contains no rosbag2 (metadata.yaml, "
                          f'{", ".join(BAG_SUFFIXES)}), video ({", ".join(VIDEO_SUFFIXES)}) '
                          'or recording (frames/ and labels.csv)')
        found.update(dict.fromkeys(inside))
    return list(found), absent


def _below(folder: Path, absent: list[str]) -> list[Path]:
    """Return the recordings in a folder, and note folders that cannot be read.

    Pictures beside other recordings are left out, which the log says.
    """
    try:
        if (folder / 'metadata.yaml').exists() or (is_recording(folder) and not is_bag(folder)):
            return [folder]
        pictures, found = images_in(folder), list[Path]()
        for path in sorted(folder.iterdir()):
            if path.name.startswith('.'):
                continue
            if path.is_dir() and not path.is_symlink():
                found += _below(path, absent)
            elif path.suffix.lower() in VIDEO_SUFFIXES or (is_bag_file(path)
                                                           and not path.is_dir()):
                found.append(path)
    except OSError as error:
        absent.append(f"folder '{folder}' cannot be read: {error}; check its permissions")
        return []
    if pictures and any(not path.is_dir() or is_recording(path) for path in found):
        log.warning("folder '%s': left out beside recordings are the pictures %s", folder,
                    listed([path.name for path in pictures]))
    elif pictures:
        found.insert(0, folder)
    return found


def cameras_of(path: Path, topics: Sequence[str] = ()) -> tuple[list[Recording], list[str]]:
    """Return the cameras of a recording, and what was asked for and is not there.

    Without `topics` a bag gives all its image topics, of a camera that was recorded raw and
    compressed the raw one, but for depth and what nodes have drawn, which the log names.
    """
    if not is_bag(path):
        return [Recording(str(path), '', 'camera')], []
    present = image_topics(path)
    if not present:
        return [], [f"bag '{path}' has no image topic"]
    delivering = [topic for topic, delivers in present.items() if delivers]
    pictures = [topic for topic in delivering if topic.rpartition('/')[0] not in delivering]
    cameras = [topic for topic in pictures if 'depth' not in topic
               and not set(DRAWN) & set(topic.split('/'))]
    if not topics and len(cameras) < len(pictures):
        others = ', '.join(topic for topic in pictures if topic not in cameras)
        if not cameras:
            return [], [f"bag '{path}' has no camera, only {others}; --topic scores one of these"]
        log.warning("bag '%s': left out is %s, no camera; --topic scores one", path, others)
    wanted = ['/' + topic.lstrip('/') for topic in topics] or cameras
    absent = [f"bag '{path}' has no image topic '{topic}'; it has: {', '.join(present)}"
              for topic in wanted if topic not in present]
    return [Recording(str(path), topic, topic.partition(RAW)[0].removesuffix(COMPRESSED).strip('/')
                      or 'camera') for topic in wanted if topic in present], absent


def looked_at(path: Path, topics: Sequence[str] = (), rate: float | None = None
              ) -> tuple[list[Recording], list[str]]:
    """Return the cameras of a recording with their lengths, and what cannot be read of it."""
    found: list[Recording] = []
    try:
        with reading():
            cameras, problems = cameras_of(path, topics)
    except (SourceError, OSError) as error:
        return [], [str(error)]
    for camera in cameras:
        try:
            with reading(), replace(camera, rate=rate).open() as source:
                found.append(replace(camera, rate=rate, duration_s=source.duration_s))
                problems += [f'{path}: {source.lost}'] if source.lost else []
        except (SourceError, OSError) as error:
            problems.append(str(error))
    return found, list(dict.fromkeys(problems))


def cut(recording: Recording, chunk_s: float, identity: str) -> list[Chunk]:
    """Return the chunks of a recording, each of a length [s]."""
    path = Path(recording.path)
    # What changes when the content of the recording changes.
    files = [Path(at, name) for at, _, names in os.walk(path) for name in names] \
        if path.is_dir() else [path]
    states = [(f.relative_to(path.parent), f.stat() if f.exists() else f.lstat()) for f in files]
    facts = [identity, recording.path, recording.topic, recording.rate, chunk_s,
             *sorted(f'{name} {state.st_size} {state.st_mtime_ns}' for name, state in states)]
    digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
    name = re.sub(r'[^A-Za-z0-9_-]+', '_', f'{path.stem}-{recording.camera}')
    # The last chunk goes on to the end: lengths of videos are estimates.
    count = max(1, math.floor(recording.duration_s / chunk_s)) \
        if math.isfinite(recording.duration_s) else 1
    return [Chunk(recording, n * chunk_s, math.inf if n == count - 1 else (n + 1) * chunk_s,
                  f'{name[:80]}-{digest}-{n:05d}.parquet') for n in range(count)]
