# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Write what a run did as one self-contained web page, a summary file and a video."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import cv2
import numpy as np

from vjepa_ros.lab.report.foxglove import Shown, write_mcap
from vjepa_ros.lab.report.page import render_page
from vjepa_ros.lab.report.plots import Series
from vjepa_ros.lab.report.video import evenly, frame_rate, write_video

log = logging.getLogger(__name__)

MCAP_NAME = 'recording.mcap'
FILE_NAMES = ('overlay.mp4', 'overlay.gif', MCAP_NAME)
T = TypeVar('T')
NEEDED = ('frames_in', 'device', 'model', 'trained')
JUDGED_TTC = (0.3, 6.0)    # true times to contact [s] at which estimates are judged


def write_outputs(out_dir: Path, records: Sequence[dict[str, Any]],
                  pictures: Sequence[tuple[int, Path]], meta: dict[str, Any],
                  maps: Sequence[tuple[int, Path]] = ()) -> tuple[dict[str, Any], list[Path]]:
    """Write page, summary, video and an MCAP file for Foxglove into a folder.

    `pictures`: stamp [ns] and JPEG file of each overlay, oldest first; some have no record;
    `maps`: stamp [ns] and file (.npy) of each looming map, oldest first.
    """
    out_dir.mkdir(parents=True, exist_ok=True)
    for name in FILE_NAMES:  # of an earlier run
        (out_dir / name).unlink(missing_ok=True)
    files = []
    if pictures:
        fps = frame_rate([stamp for stamp, _ in pictures])
        # The first pictures have another shape when no frame has arrived yet.
        shape = next((i.shape for _, p in reversed(pictures) if (i := load(p)) is not None), None)
        frames = (image for path in evenly(pictures, fps)
                  if (image := load(path)) is not None and image.shape == shape)
        video = write_video(out_dir / 'overlay', frames, fps)
        files.append(video)
        meta = {**meta, 'video': video.name}
    try:
        files.append(write_mcap(out_dir / MCAP_NAME, Shown(records, pictures, maps)))
    except ValueError as error:
        log.warning('%s is not written: %s', MCAP_NAME, error)
    index = {record['stamp_ns']: at for at, record in enumerate(records)}
    # Chosen before they are decoded, because a run has many pictures.
    chosen = pick_frames(records, [(index[stamp], path) for stamp, path in pictures
                                   if stamp in index])
    stills = [(at, image) for at, path in chosen if (image := load(path)) is not None]
    return write_report(out_dir, records, stills, meta), files


def summary_lines(summary: dict[str, Any], out_dir: Path, others: Sequence[Path]) -> list[str]:
    """Describe a run in three lines, and name its files."""
    latency, error = summary['latency_ms'], summary['ttc_median_relative_error']
    judged = 'no true time to contact is known for this source' if error is None else (
        f'median error of the time to contact {100 * error:.0f} %'
        if isinstance(error, float) else 'most true contacts were missed')
    times = '' if latency['median'] is None else (
        f', latency {latency["median"]:.0f} ms median, {latency["p95"]:.0f} ms p95')
    files = [out_dir / 'report.html', *others, out_dir / 'summary.json']
    kind = 'trained' if summary['trained'] else 'UNTRAINED, random weights'
    return [f'{summary["frames_in"]} frames in, {summary["assessments_out"]} assessments out'
            f'{times}',
            f'{judged}; {summary["level_changes"]} changes of level',
            f'model {summary["model"]} on {summary["device"]} ({kind})',
            'open ' + str(files[0]), *('     ' + str(path) for path in files[1:])]


def load(path: Path) -> np.ndarray | None:
    """Read a picture as BGR, None for a damaged file."""
    return cv2.imread(str(path))


def write_report(out_dir: Path, records: Sequence[dict[str, Any]],
                 frames: Sequence[tuple[int, np.ndarray]], meta: dict[str, Any]) -> dict[str, Any]:
    """Write ``report.html`` and ``summary.json`` into a folder, which is made if needed.

    `records`: one per assessment, oldest first: stamp_ns, level (0..3 or 255), flags,
    motion_score, obstacle_score, collision_probability, collision_if_ahead, time_to_contact [s],
    looming_rate [1/s], bearing [rad], true_ttc [s], true_looming [1/s], latency_ms and timings
    (milliseconds by stage).
    """
    missing = [name for name in NEEDED if name not in meta]
    if missing:
        raise ValueError(f'meta lacks {missing}; required are {list(NEEDED)}')
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
    """Compute the numbers of a run, ready for JSON; parameters as in `write_report`.

    ``ttc_median_relative_error`` is the median of ``|estimate - truth| / truth`` over the
    records whose true time to contact is 0.3 to 6 s and whose estimate is known; an estimate
    of infinity counts as an infinite error. ``ttc_coverage`` is the share with an estimate.
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

    `estimate, truth`: seconds, NaN unknown, inf nothing comes nearer; equally long.
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
    """Convert values for JSON: NaN to None, infinities to strings, arrays to lists."""
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


def pick_frames(records: Sequence[dict[str, Any]], frames: Sequence[tuple[int, T]],
                count: int = 9) -> list[tuple[int, T]]:
    """Return at most `count` frames in order: the most urgent one of each part of the run."""
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
