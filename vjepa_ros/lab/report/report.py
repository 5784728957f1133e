# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Write what a run did as one self-contained web page, a summary file and a video."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import cv2
import numpy as np

from vjepa_ros.lab.report.page import render_page
from vjepa_ros.lab.report.plots import Series

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


log = logging.getLogger(__name__)

NEEDED = ('frames_in', 'device', 'model', 'trained')
JUDGED_TTC = (0.3, 6.0)    # true times to contact [s] at which estimates are judged
GIF_WIDTH, GIF_FPS = 480, 8.0


def write_report(out_dir: Path, records: Sequence[dict[str, Any]],
                 frames: Sequence[tuple[int, np.ndarray]], meta: dict[str, Any]) -> dict[str, Any]:
    """Write ``report.html`` and ``summary.json`` into a folder, which is made if needed.

    Parameters
    ----------
    out_dir
        The folder.
    records
        One per assessment, oldest first: stamp_ns, level (0..3 or 255), flags, motion_score,
        obstacle_score, collision_probability, time_to_contact [s], looming_rate [1/s], bearing
        [rad], true_ttc [s], true_looming [1/s], latency_ms and timings (milliseconds by stage).
        Unknown is NaN, None or missing; an infinite time means that nothing comes nearer.
    frames
        (index of the record, overlay as BGR uint8 image); about nine of them are shown.
    meta
        Needed: frames_in, device, model, trained (bool). Used when given: title, source, date,
        command, video (name of a file beside the page), notes (sentences), configuration
        (mapping, also written to the summary).

    Returns
    -------
    dict
        What was written to ``summary.json``. There unknown numbers are null and infinite
        ones the strings ``"inf"`` and ``"-inf"``, because JSON has neither.

    Raises
    ------
    ValueError
        When ``meta`` lacks a needed entry or a frame names no record.
    """
    missing = [name for name in NEEDED if name not in meta]
    if missing:
        raise ValueError(f'meta lacks {missing}; needed are {list(NEEDED)}')
    wrong = [index for index, _ in frames if not 0 <= index < len(records)]
    if wrong:
        raise ValueError(f'frames name records {wrong}, but there are {len(records)}')
    out_dir = Path(out_dir)
    out_dir.mkdir(parents=True, exist_ok=True)
    summary = summarise(records, meta)
    text = json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False)
    (out_dir / 'summary.json').write_text(text + '\n', encoding='utf-8')
    page = render_page(records, pick_frames(records, frames), meta, summary)
    (out_dir / 'report.html').write_text(page, encoding='utf-8')
    return summary


def summarise(records: Sequence[dict[str, Any]], meta: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a run, ready for JSON; parameters as for `write_report`.

    ``ttc_median_relative_error`` is the median of ``|estimate - truth| / truth`` over the
    records whose true time to contact is 0.3 to 6 s and whose estimate is known; an estimate
    of infinity counts as an infinite error. ``ttc_coverage`` is the known part of them.
    """
    series = Series(records)
    latency = series.column('latency_ms')
    latency = latency[np.isfinite(latency)]
    error, coverage, judged = ttc_error(series.column('time_to_contact'),
                                        series.column('true_ttc'))
    extras = {key: meta[key] for key in ('source', 'date', 'command', 'configuration')
              if key in meta}
    return json_safe({
        'frames_in': meta['frames_in'],
        'assessments_out': len(records),
        'latency_ms': {'median': float(np.median(latency)) if latency.size else None,
                       'p95': float(np.percentile(latency, 95)) if latency.size else None},
        'ttc_median_relative_error': error,
        'ttc_coverage': coverage,
        'ttc_judged': judged,
        'level_changes': int((np.diff(series.level) != 0).sum()),
        'device': meta['device'],
        'model': meta['model'],
        'trained': bool(meta['trained']),
        **extras,
    })


def ttc_error(estimate: np.ndarray, truth: np.ndarray) -> tuple[float | None, float | None, int]:
    """Compare times to contact.

    Parameters
    ----------
    estimate, truth
        Seconds, NaN unknown, inf nothing comes nearer; equally long.

    Returns
    -------
    tuple
        Median relative error (None without a pair to compare), part of the judged records
        that has an estimate (None without truth), number of judged records.
    """
    judged = (truth >= JUDGED_TTC[0]) & (truth <= JUDGED_TTC[1])
    known = judged & ~np.isnan(estimate)
    if not judged.any():
        return None, None, 0
    coverage = float(known.sum() / judged.sum())
    if not known.any():
        return None, coverage, int(judged.sum())
    errors = np.abs(estimate[known] - truth[known]) / truth[known]
    # The median of an even number of errors would be inf - inf = NaN between two infinities.
    middle = np.sort(errors)[[(errors.size - 1) // 2, errors.size // 2]]
    median = float(middle.mean()) if np.isfinite(middle).all() else math.inf
    return median, coverage, int(judged.sum())


def json_safe(value: Any) -> Any:
    """Replace what JSON cannot hold: NaN by None, infinities by strings, arrays by lists."""
    if isinstance(value, dict):
        return {str(key): json_safe(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return json_safe(value.tolist())
    if isinstance(value, list | tuple):
        return [json_safe(item) for item in value]
    if isinstance(value, np.generic):
        return json_safe(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else 'inf' if value > 0 else '-inf'
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return str(value)


def pick_frames(records: Sequence[dict[str, Any]], frames: Sequence[tuple[int, np.ndarray]],
                count: int = 9) -> list[tuple[int, np.ndarray]]:
    """At most `count` frames in order: the most urgent one of each part of the run."""
    frames = sorted(frames, key=lambda item: item[0])
    if len(frames) <= count:
        return frames
    parts = np.array_split(np.arange(len(frames)), count)

    def urgency(place: int, part: np.ndarray) -> tuple[int, float, float]:
        record = records[frames[place][0]]
        level, ttc = int(record['level']), record.get('time_to_contact')
        ttc = math.inf if ttc is None or math.isnan(ttc) else float(ttc)
        return (level if level < 255 else -1), -ttc, -abs(place - float(part.mean()))

    return [frames[max(part, key=lambda place, part=part: urgency(place, part))]
            for part in parts]


def write_video(path_base: Path, frames: Iterable[np.ndarray], fps: float) -> Path:
    """Write a video, as ``.mp4`` where OpenCV can and as ``.gif`` otherwise.

    Parameters
    ----------
    path_base
        Path without extension.
    frames
        BGR uint8 images, may be a generator; all get the size of the first one.
    fps
        Frames per second.

    Returns
    -------
    pathlib.Path
        The file written.

    Raises
    ------
    ValueError
        When there is no frame or the rate is not positive.
    """
    if not (fps > 0 and math.isfinite(fps)):
        raise ValueError(f'fps is {fps}, must be positive')
    stream = iter(frames)
    first = next(stream, None)
    if first is None:
        raise ValueError(f'no frames to write to {path_base}')
    # Video codecs store colour at half resolution and want even sides.
    size = max(2, first.shape[1] // 2 * 2), max(2, first.shape[0] // 2 * 2)
    path = Path(path_base).with_suffix('.mp4')
    path.parent.mkdir(parents=True, exist_ok=True)
    _encode(path, [first, first], size, fps)
    works = _readable(path)
    path.unlink(missing_ok=True)

    def fitted() -> Iterable[np.ndarray]:
        yield _fit(first, size)
        yield from (_fit(image, size) for image in stream)

    if works:
        _encode(path, fitted(), size, fps)
        return path
    path = path.with_suffix('.gif')
    log.warning('this OpenCV (%s) writes no readable mp4 (codec mp4v); writing %s instead',
                cv2.__version__, path.name)
    _write_gif(path, fitted(), size, fps)
    return path


def _fit(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    if image.shape[1::-1] == size:
        return image
    return cv2.resize(image, size, interpolation=cv2.INTER_AREA)


def _encode(path: Path, frames: Iterable[np.ndarray], size: tuple[int, int], fps: float) -> None:
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*'mp4v'), fps, size)
    for image in frames:
        writer.write(_fit(image, size))
    writer.release()


def _readable(path: Path) -> bool:
    if not path.is_file():
        return False
    capture = cv2.VideoCapture(str(path))
    found, _ = capture.read()
    capture.release()
    return found


def _write_gif(path: Path, frames: Iterable[np.ndarray], size: tuple[int, int],
               fps: float) -> None:
    from PIL import Image
    stride = max(1, round(fps / GIF_FPS))
    small = min(GIF_WIDTH, size[0]), max(1, round(size[1] * min(1, GIF_WIDTH / size[0])))
    images = (Image.fromarray(np.ascontiguousarray(_fit(image, small)[..., ::-1])).quantize(128)
              for index, image in enumerate(frames) if index % stride == 0)
    next(images).save(path, save_all=True, append_images=images, loop=0,
                      duration=round(1000 * stride / fps))
