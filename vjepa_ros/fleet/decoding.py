# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Decode a part of a recording: in this process, or ahead of scoring in a task of Ray."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from vjepa_ros.clip.optics import Distortion
from vjepa_ros.fleet.recordings import Recording
from vjepa_ros.fleet.workers import reading
from vjepa_ros.sources import SourceError, SourceFrame
from vjepa_ros.sources.base import Intrinsics, Load

FRAMES = 8       # that a task hands over at once
AHEAD = 4        # of those may wait, so that a long chunk needs no more memory than a short one


@dataclass(frozen=True)
class Part:
    """A part of a recording."""

    # intrinsics, distortion: of its camera, None where they are unknown
    intrinsics: Intrinsics | None
    distortion: Distortion | None
    # Time since the start of the recording [s] and how to get the frame, as
    # `vjepa_ros.sources.Source.excerpt` yields them
    frames: Iterator[tuple[float, Load]]


# Opens a recording from a time on up to another [s]; SourceError where that fails.
Opener = Callable[[Recording, float, float], AbstractContextManager[Part]]


@contextmanager
def decoded_here(recording: Recording, begin_s: float, end_s: float) -> Iterator[Part]:
    """Decode in this process."""
    with reading():
        source = recording.open()
    with source:
        yield Part(source.intrinsics, source.distortion,
                   _in_time(source.excerpt(begin_s, end_s)))


def _in_time(frames: Iterator[tuple[float, Load]]) -> Iterator[tuple[float, Load]]:
    """Yield frames, each of which is read within a limited time."""
    while True:
        with reading():
            found = next(frames, None)
        if found is None:
            return
        yield found


def decoded_apart(cpus: int) -> Opener:
    """Return what decodes in a task of the cluster, for which it reserves a number of cores."""
    @contextmanager
    def opener(recording: Recording, begin_s: float, end_s: float) -> Iterator[Part]:
        ray = importlib.import_module('ray')
        task = ray.remote(_decode).options(
            num_cpus=cpus, num_returns='streaming', _generator_backpressure_num_objects=AHEAD)
        stream = task.remote(recording, begin_s, end_s)
        try:
            lens, problem = ray.get(next(stream))
            if problem:
                raise SourceError(problem)
            intrinsics, distortion = lens
            yield Part(intrinsics, distortion, _received(ray, stream))
        finally:
            ray.cancel(stream)
    return opener


def _received(ray: Any, stream: Any) -> Iterator[tuple[float, Load]]:
    for reference in stream:
        items, end = ray.get(reference)
        for at_s, frame, problem in items:
            yield at_s, _load(frame, problem)
        if end:
            raise SourceError(end)


def _load(frame: SourceFrame | None, problem: str) -> Load:
    def load() -> SourceFrame:
        if frame is None:
            raise SourceError(problem)
        return frame
    return load


def _decode(recording: Recording, begin_s: float, end_s: float) -> Iterator[Any]:
    """Yield lens and problem, then lists of frames, each with what ended the recording."""
    try:
        with decoded_here(recording, begin_s, end_s) as part:
            yield (part.intrinsics, part.distortion), ''
            yield from _batches(part)
    except SourceError as error:     # while it is opened; later ones are told with the frames
        yield None, str(error)


def _batches(part: Part) -> Iterator[tuple[list[tuple[float, SourceFrame | None, str]], str]]:
    items: list[tuple[float, SourceFrame | None, str]] = []
    try:
        for at_s, load in part.frames:
            try:
                items.append((at_s, load(), ''))
            except SourceError as error:
                items.append((at_s, None, str(error)))
            if len(items) == FRAMES:
                yield items, ''
                items = []
    except SourceError as error:
        yield items, str(error)
        return
    yield items, ''
