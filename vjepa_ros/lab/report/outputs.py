# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Write report, summary and video of a run from its records and overlay pictures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import cv2
import numpy as np

from vjepa_ros.lab.report.report import pick_frames, write_report, write_video

T = TypeVar('T')
FPS_RANGE = (1.0, 30.0)
MAX_STILL_S = 5.0          # a picture is shown at most so long, whatever the stamps say
VIDEO_NAMES = ('overlay.mp4', 'overlay.gif')


def write_outputs(out_dir: Path, records: Sequence[dict[str, Any]],
                  pictures: Sequence[tuple[int, Path]], meta: dict[str, Any]
                  ) -> tuple[dict[str, Any], Path | None]:
    """Write everything into a folder.

    Parameters
    ----------
    out_dir
        The folder, made if needed.
    records
        See `vjepa_ros.lab.report.report.write_report`, oldest first.
    pictures
        Stamp [ns] and jpeg file of each overlay, oldest first; also of moments without a record.
    meta
        See `write_report`.

    Returns
    -------
    tuple
        The summary, and the video (None when there was no picture).
    """
    out_dir.mkdir(parents=True, exist_ok=True)
    for name in VIDEO_NAMES:  # of an earlier run, perhaps of the other kind
        (out_dir / name).unlink(missing_ok=True)
    video = None
    if pictures:
        fps = frame_rate([stamp for stamp, _ in pictures])
        # The sign "no frames" of the first moments has no camera to take its shape from.
        shape = next((i.shape for _, p in reversed(pictures) if (i := load(p)) is not None), None)
        frames = (image for path in evenly(pictures, fps)
                  if (image := load(path)) is not None and image.shape == shape)
        video = write_video(out_dir / 'overlay', frames, fps)
        meta = {**meta, 'video': video.name}
    index = {record['stamp_ns']: at for at, record in enumerate(records)}
    # Chosen before they are decoded: a run holds more pictures than memory should.
    chosen = pick_frames(records, [(index[stamp], path) for stamp, path in pictures
                                   if stamp in index])
    stills = [(at, image) for at, path in chosen if (image := load(path)) is not None]
    return write_report(out_dir, records, stills, meta), video


def summary_lines(summary: dict[str, Any], out_dir: Path, video: Path | None) -> list[str]:
    """What came of a run, in three lines, and where the files are."""
    latency, error = summary['latency_ms'], summary['ttc_median_relative_error']
    judged = 'no true time to contact is known for this source' if error is None else (
        f'median error of the time to contact {100 * error:.0f} %'
        if isinstance(error, float) else 'most true contacts were not seen')
    times = '' if latency['median'] is None else (
        f', latency {latency["median"]:.0f} ms median, {latency["p95"]:.0f} ms p95')
    files = [out_dir / 'report.html', *([video] if video else []), out_dir / 'summary.json']
    kind = 'trained' if summary['trained'] else 'UNTRAINED, random weights'
    return [f'{summary["frames_in"]} frames in, {summary["assessments_out"]} assessments out'
            f'{times}',
            f'{judged}; {summary["level_changes"]} changes of level',
            f'model {summary["model"]} on {summary["device"]} ({kind})',
            'open ' + str(files[0]), *('     ' + str(path) for path in files[1:])]


def frame_rate(stamps: Sequence[int]) -> float:
    """Frames per second of a video of pictures with these stamps [ns]."""
    gaps = [(b - a) / 1e9 for a, b in pairwise(stamps) if b > a]
    low, high = FPS_RANGE
    return min(high, max(low, 1.0 / median(gaps))) if gaps else low


def evenly(pictures: Iterable[tuple[int, T]], fps: float) -> Iterator[T]:
    """Repeat or leave out pictures so that a video of them runs in the time of their stamps.

    Parameters
    ----------
    pictures
        Stamp [ns] and picture, oldest first.
    fps
        Frames per second of the video.
    """
    time_s, shown = 0.0, 0   # of the video so far; frames given
    held: tuple[int, T] | None = None
    for stamp, picture in pictures:
        if held is not None:
            time_s += min(MAX_STILL_S, max(0.0, (stamp - held[0]) / 1e9))
            # A little early is on time: the stamps of a camera are not perfectly even.
            while shown < math.ceil(time_s * fps - 0.25):
                yield held[1]
                shown += 1
        held = stamp, picture
    if held is not None:
        yield held[1]


def load(path: Path) -> np.ndarray | None:
    """BGR picture of a file, None when the file is damaged."""
    return cv2.imread(str(path))
