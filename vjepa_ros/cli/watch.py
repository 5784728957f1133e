# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run the perception on a camera, video, folder or bag and show what it sees, without ROS."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from rich.console import Console

from vjepa_ros.cli.console import add_model, add_source, folder, print_error
from vjepa_ros.detector import ObstacleDetector
from vjepa_ros.lab.report.live_view import KEEP, Status, View, log_to
from vjepa_ros.lab.report.measurement import command
from vjepa_ros.lab.report.report import write_outputs
from vjepa_ros.model.checkpoint.load import WeightsError
from vjepa_ros.overlay import Layers, OverlayStatus, draw_overlay
from vjepa_ros.perception.types import Result
from vjepa_ros.runtime.device import DeviceError
from vjepa_ros.sources import PlayOptions, SUPPORTED, Source, SourceError, SourceFrame, open_source
from vjepa_ros.sources.base import Pacer

WAKE_S = 0.1
TITLE = 'vjepa_ros'
QUIT_KEYS = (27, ord('q'))


def groups(source: Source, realtime: bool, seconds: float | None = None, limit: int = 64
           ) -> Iterator[list[SourceFrame]]:
    """Yield frames one by one, or in real time all that arrived since the last group.

    It ends after so many seconds of the source. Of more waiting frames than the limit the oldest
    are dropped.
    """
    begin_ns = None
    for frames in _arriving(source, limit) if realtime else ([frame] for frame in source):
        yield frames
        begin_ns = frames[0].stamp_ns if begin_ns is None else begin_ns
        if seconds and frames[-1].stamp_ns - begin_ns >= seconds * 1e9:
            return


def _arriving(source: Source, limit: int) -> Iterator[list[SourceFrame]]:
    """Yield all frames that arrived in real time since the last group."""
    waiting: deque[SourceFrame] = deque(maxlen=limit)
    news, ended, stop = (threading.Event() for _ in range(3))
    errors: list[SourceError] = []

    def play() -> None:
        pacer = Pacer()
        try:
            for frame in source:
                now = time.monotonic_ns()
                due = now if source.live else pacer.due_ns(frame.stamp_ns, now)
                if stop.wait(max(0.0, (due - now) / 1e9)):
                    return
                waiting.append(frame)
                news.set()
        except SourceError as error:
            errors.append(error)
        finally:
            ended.set()
            news.set()

    thread = threading.Thread(target=play, name='feed', daemon=True)
    thread.start()
    try:
        while waiting or not ended.is_set():
            news.wait(WAKE_S)       # short, for Ctrl-C
            news.clear()
            if frames := [waiting.popleft() for _ in range(len(waiting))]:
                yield frames
    finally:
        stop.set()
        thread.join(2.0)
    if errors:
        raise errors[0]


def window_problem() -> str:
    """Return why no window can be shown here, '' when one can."""
    if re.search(r'GUI:\s+NONE', cv2.getBuildInformation()):
        return 'this OpenCV was built without windows (opencv-python-headless)'
    # Some builds of OpenCV end the process when they find no display.
    if sys.platform.startswith('linux') and not (os.environ.get('DISPLAY')
                                                 or os.environ.get('WAYLAND_DISPLAY')):
        return 'there is no display (DISPLAY is not set)'
    return ''


def show_window(bgr: np.ndarray) -> bool:
    """Show a picture; False when the user quits (q, Escape, or the window closed)."""
    cv2.imshow(TITLE, bgr)
    key = cv2.waitKey(1) & 0xFF
    return key not in QUIT_KEYS and cv2.getWindowProperty(TITLE, cv2.WND_PROP_VISIBLE) >= 1


class Watch:
    """One source, one detector, and what became of it."""

    def __init__(self, detector: ObstacleDetector, source: Source, status: Status) -> None:
        self.detector, self.source, self.status = detector, source, status
        self._recent: deque[int] = deque(maxlen=30)
        engine = detector.engine
        status.model, status.device = engine.config.model_size, str(engine.choice.device)
        status.precision, status.trained = engine.choice.precision, engine.report.trained

    def take(self, frames: list[SourceFrame]) -> tuple[Result | None, np.ndarray]:
        """Add frames, assess the newest, and return its result and overlay (BGR)."""
        start, newest, status = time.perf_counter(), frames[-1], self.status
        if not status.frames_in:
            status.begin_ns = frames[0].stamp_ns
        for frame in frames:
            self.detector.add_frame(frame.rgb, frame.stamp_ns / 1e9, frame.frame_id, frame.gain)
            self._recent.append(frame.stamp_ns)
        result = self.detector.result()
        # Only the stamps of a camera are of the wall clock.
        latency_ms = (time.time_ns() - newest.stamp_ns) / 1e6 if self.source.live else \
            (time.perf_counter() - start) * 1e3
        status.frames_in += len(frames)
        span_s = (self._recent[-1] - self._recent[0]) / 1e9
        status.rate_in_hz = (len(self._recent) - 1) / span_s if span_s > 0 else math.nan
        if result is None:
            status.phase = 'filling the first clip'
        else:
            true = (newest.truth or {}).get('time_to_contact_s', math.nan)
            if not math.isnan(true):
                status.truth[newest.stamp_ns] = true
            status.add(replace(result.assessment, stamp_ns=newest.stamp_ns,
                               latency_ms=latency_ms))
        return result, self._draw(result, latency_ms)

    def _draw(self, result: Result | None, latency_ms: float) -> np.ndarray:
        """Return the overlay (BGR) of a result, or of the newest frame while the clip fills."""
        track, run = self.detector.track, self.status
        status = OverlayStatus(
            camera='', model=run.model, device=run.device, fill=track.ring.fill,
            num_frames=track.config.num_frames, rate_in_hz=run.rate_in_hz, latency_ms=latency_ms,
            untrained=not run.trained, focal_px=track.optics().fx if track.ring.size[0] else None)
        if result is None:
            return draw_overlay(track.image, None, Layers(view=track.view), status)
        return draw_overlay(result.image, result.assessment,
                            Layers(result.moves, result.looming_map, result.view), status)

    def configuration(self) -> dict[str, Any]:
        """Return the settings that the report names."""
        engine, track = self.detector.engine, self.detector.track.config
        return {'precision': engine.choice.precision, 'num_frames': engine.config.num_frames,
                'image_size': engine.config.image_size, 'clip_fps': track.clip_fps,
                'resize_mode': track.resize_mode, 'weights': engine.report.path or 'random'}


def detector_of(source: Source, args: argparse.Namespace, **options: Any) -> ObstacleDetector:
    """Load a detector for the frames of a source, which knows its lens."""
    detector = ObstacleDetector(
        args.model_size, device=args.device, weights=args.weights, clip_fps=args.clip_fps,
        max_frame_gap=max(1.0, 2.5 / source.rate_hz) if source.rate_hz > 0 else 1.0, **options)
    if source.intrinsics is not None:
        detector.set_intrinsics(*source.intrinsics, source.distortion)
    return detector


def watch(args: argparse.Namespace, console: Console, line: str) -> int:
    """Play a source to its end (or until Ctrl-C) and write report, video and summary."""
    with open_source(args.source, PlayOptions(rate=args.rate, loop=args.loop,
                                              topic=args.topic)) as source, \
            tempfile.TemporaryDirectory(prefix='vjepa_ros_watch_') as work:
        console.print(f'{source.name}: loading the model', highlight=False, soft_wrap=True)
        with detector_of(source, args, img_size=args.image_size, num_frames=args.num_frames,
                         heads=args.heads, allow_random_weights=args.allow_random_weights,
                         require_device=args.device != 'auto') as detector:
            length = source.frame_count / source.rate_hz \
                if source.frame_count and not args.loop else math.inf
            span = min(length, args.max_seconds or math.inf)
            status = Status('vjepa-ros watch', source.name,
                            span_s=span if math.isfinite(span) else None)
            run, pictures = Watch(detector, source, status), deque[tuple[int, Path]]()
            failed = _play(run, Path(work), pictures, args, console)
            if not status.results:
                return print_error(failed or (
                    'the source ended before the first clip was full: nothing to report (a clip '
                    f'takes {detector.track.ring.span_s:g} s)'), console)
            console.print(f'writing {args.out}', highlight=False, soft_wrap=True)
            lines = write_outputs(args.out, status, pictures, {
                'command': line, 'configuration': run.configuration(),
                'notes': [failed] if failed else []})
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)
    return print_error(failed, console, args) if failed else 0


def _play(run: Watch, folder: Path, pictures: deque[tuple[int, Path]], args: argparse.Namespace,
          console: Console) -> str:
    """Play until the end, and write the overlays; return what went wrong, or ''."""
    problem = '' if args.no_window else window_problem()
    if problem:
        console.print(f'no window: {problem}', highlight=False, soft_wrap=True)
    shown = not args.no_window and not problem
    try:
        with View(run.status, console) as view:
            for frames in groups(run.source, args.realtime or run.source.live, args.max_seconds):
                _, overlay = run.take(frames)
                view.tick()
                path = folder / f'{run.status.frames_in:09d}.jpg'
                cv2.imwrite(str(path), overlay, [cv2.IMWRITE_JPEG_QUALITY, 90])
                pictures.append((frames[-1].stamp_ns, path))
                if len(pictures) > KEEP:
                    pictures.popleft()[1].unlink()
                if shown and not show_window(overlay):
                    break
    except KeyboardInterrupt:
        console.print('stopped')
    except SourceError as error:
        return str(error)
    finally:
        if shown:
            cv2.destroyAllWindows()
    return ''


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 when report, video and summary were written."""
    parser = argparse.ArgumentParser(prog='vjepa-ros watch', description=__doc__)
    parser.add_argument('source', metavar='SOURCE', help=SUPPORTED)
    add_source(parser)
    add_model(parser, 'heads', 'allow_random_weights', 'num_frames', 'image_size')
    parser.add_argument('--loop', action='store_true', help='start again at the end')
    parser.add_argument('--realtime', action='store_true', help='play files in real time '
                        '(default: every frame, as fast as possible)')
    parser.add_argument('--no-window', action='store_true', help='show the terminal view only')
    parser.add_argument('--out', type=folder, default=Path('watch_output'), metavar='DIR',
                        help='folder for report, video and summary (default: watch_output)')
    args = parser.parse_args(argv)
    console = Console()
    log_to(console)
    try:
        return watch(args, console, command('watch', argv or []))
    except (SourceError, WeightsError, DeviceError, ValueError, OSError) as error:
        return print_error(f'vjepa-ros watch: {error}', console, args)
