# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Write what a run did as one self-contained web page, a summary file and a video."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from vjepa_ros.lab.report.page import render_page
from vjepa_ros.lab.report.plots import Series

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
