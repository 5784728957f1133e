# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Measure what the node costs beyond its model: image stamp to assessment received, over DDS.

Camera, node and receiver run as three processes on this machine. The stamp is the time at which a
picture is due for publication; it has been read and decoded before. Latency runs from there to the
callback of the receiver: waking up, making the message, DDS, the node, DDS again, and the
receiver's executor. The session is the part from full clip to assessment (model, motion, looming)
in the worker of the node; overhead is the rest.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cv2
import numpy as np
from rich.console import Console
from rich.table import Table

from vjepa_ros.cli.benchmark import case, clock
from vjepa_ros.cli.benchmark.clock import statistics
from vjepa_ros.cli.console import real
from vjepa_ros.cli.demo_processes import DemoProcesses, NODE, Plan
from vjepa_ros.lab.report.live_view import View
from vjepa_ros.ros.common.processes import ProcessFailed
from vjepa_ros.sources import PlayOptions, SUPPORTED, SourceError, open_source

WITHOUT = ('cameras', 'engine', 'cpu_threads', 'saved_weights', 'source')   # options of a model
METHODS = ('fused', 'geometric', 'learned')
CLIP_FPS = 4.0            # about that of the node by default
SPARE_S = 1.0             # for what comes late
MAX_PICTURES = 100        # more are played again from the first on
JPEG_QUALITY = 90         # as camera_source compresses
SHOWN = {'model_size': str, 'model_version': str, 'num_frames': int, 'image_size': int,
         'clip_fps': float, 'precision': str, 'execution': str, 'device': str,
         'looming_method': str, 'resize_mode': str, 'trained': str}
# What the model itself does, of the stages of a pass; the heads are part of it on CUDA.
MODEL = ('gather', 'upload', 'encode', 'heads', 'download')
PARTS = {
    'transport': 'stamp of the image to its arrival in the node',
    'wait': 'arrival to the worker thread beginning with it',
    'decode': 'message to RGB',
    'preprocess': 'into the frame memory: resized, and grey for looming',
    'session': 'clip to assessment: model, motion, looming, assessment',
    'rest': 'of the node before it publishes',
    'back': 'publishing the assessment, to its arrival at the receiver'}
LEAST_SHARE = 0.9         # of the frames, less one, must have a result of their own
_LINE = re.compile(r'result (\{.*\})\s*$')


class OverheadError(RuntimeError):
    """What was recorded gives no overhead."""


PROBLEMS = (ProcessFailed, SourceError, OverheadError)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subject."""
    case.add_options(parser, WITHOUT)
    parser.add_argument('--looming-method', default='fused', choices=METHODS,
                        help='where looming comes from (default: fused)')
    parser.add_argument('--source', type=case.image_size, default=(1280, 720), metavar='VALUE',
                        help='width and height of the images (default: 1280x720)')
    parser.add_argument('--scene', default='synthetic', metavar='SCENE',
                        help=f'what the images show: {SUPPORTED} (default: synthetic)')
    parser.add_argument('--transport', default='raw', choices=('raw', 'compressed'),
                        help='how images are sent (default: raw)')
    parser.add_argument('--rate', type=real(1.0, 60.0), default=5.0, metavar='HZ',
                        help='frames per second of the camera; low enough that no frame waits '
                        'for the one before (default: 5)')
    parser.add_argument('--seconds', type=real(1.0, 3600.0), default=30.0, metavar='S',
                        help='how long to measure (default: 30)')
    parser.add_argument('--warmup', type=real(0.0, 600.0), default=5.0, metavar='S',
                        help='time left out after the first result (default: 5)')


def parameters(args: argparse.Namespace) -> dict[str, object]:
    """Return the parameters of the node for a command line."""
    found: dict[str, object] = {
        name: getattr(args, name) for name in (
            'device', 'model_size', 'model_version', 'num_frames', 'image_size', 'precision',
            'weights')}
    if args.compile:
        found['compile'] = args.compile
    # A fallback to the CPU would be measured as if it were the device.
    return {**found, 'require_device': True, 'allow_random_weights': True,
            'looming.method': args.looming_method, 'clip_fps': clip_fps(args.rate)}


def clip_fps(rate_hz: float) -> float:
    """Return the rate of clips [Hz]: a whole fraction of the camera's, as the heads need."""
    return rate_hz / max(1, round(rate_hz / CLIP_FPS))


def store_pictures(args: argparse.Namespace, folder: Path) -> int:
    """Write the scene as JPEG files, so that rendering does not disturb; return their number."""
    folder.mkdir()
    wanted = min(MAX_PICTURES, math.ceil((args.warmup + args.seconds) * args.rate))
    number = 0
    with open_source(args.scene, PlayOptions(rate=args.rate, size=args.source,
                                             max_frames=wanted)) as source:
        for number, frame in enumerate(source, start=1):
            cv2.imwrite(str(folder / f'{number:05d}.jpg'), frame.rgb[..., ::-1],
                        (cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY))
        if source.intrinsics is not None:
            fx, fy, cx, cy = source.intrinsics
            (folder / 'calib.txt').write_text(f'P: {fx} 0 {cx} 0 0 {fy} {cy} 0 0 0 1 0\n')
    if number == 0:
        raise SourceError(f"scene '{args.scene}' has no picture")
    return number


def measure(args: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Run the three processes and return the figures.

    Raises
    ------
    ProcessFailed, SourceError, OverheadError, OSError
        Saying what went wrong.
    """
    with TemporaryDirectory(prefix='vjepa_ros_node_') as folder:
        return _measure(args, console, Path(folder))


def _measure(args: argparse.Namespace, console: Console, work: Path) -> dict[str, Any]:
    pictures = work / 'pictures'
    count = store_pictures(args, pictures)
    seconds = args.num_frames / clip_fps(args.rate) + args.warmup + args.seconds + SPARE_S
    width, height = args.source
    name = args.scene if args.scene.startswith('synthetic') else Path(args.scene).name
    plan = Plan(str(pictures), f'{name}, {width}x{height}, {args.transport}, {args.rate:g} Hz',
                seconds, loop=True, max_frame_gap=max(1.0, 2.5 / args.rate))
    processes = DemoProcesses(
        'vjepa-ros benchmark node', plan, node=parameters(args), camera={'rate': args.rate},
        recorder={'all_outputs': False}, transport=args.transport,
        node_words=('--log-level', f'{NODE}:=debug'))
    with View(processes.status, console) as view:
        processes.run(view, work)
    if processes.interrupted:
        raise KeyboardInterrupt
    with (work / 'node.log').open(encoding='utf-8', errors='replace') as log:
        logged = node_results(log)
    recording = processes.recording
    figures = summarise(recording.records(), logged, args.rate, args.warmup, args.seconds)
    model = {**recording.model, 'model_size': recording.model['model']}
    return {
        'middleware': _middleware(),
        'configuration': {
            **{key: kind(model[key]) for key, kind in SHOWN.items()},
            'weights': Path(model['weights']).name, 'scene': name, 'source': [width, height],
            'pictures': count, 'transport': args.transport, 'rate_hz': args.rate,
            'seconds': args.seconds, 'warmup_s': args.warmup,
            'heads': recording.camera['heads'].partition(':')[0]},
        **figures}


def _middleware() -> dict[str, str]:
    rmw = os.environ.get('RMW_IMPLEMENTATION') or 'rmw_fastrtps_cpp'
    found = {'rmw': rmw, 'ros_distro': os.environ.get('ROS_DISTRO', 'unknown')}
    try:
        found['rclpy'] = metadata.version('rclpy')
    except metadata.PackageNotFoundError:   # a ROS that was not installed by pip
        found['rclpy'] = 'unknown'
    return found


def node_results(log: Iterable[str]) -> dict[int, dict[str, Any]]:
    """Return what the node logged at level DEBUG about each result, by stamp [ns]."""
    found = {}
    for line in log:
        match = _LINE.search(line)
        if match:
            result = json.loads(match[1])
            found[result['stamp_ns']] = result
    return found


def split(received: Mapping[str, Any], logged: Mapping[str, Any]) -> dict[str, float]:
    """Split the latency of one result [ms].

    Parameters
    ----------
    received
        From the recorder: latency_ms, from stamp to arrival there.
    logged
        From the log of the node: latency_ms, from stamp to publishing; session_ms; stages_ms.

    Returns
    -------
    dict of str to float
        latency, session, model, overhead (latency less session), beyond_model (latency less
        model) and the `PARTS`, which add up to latency.
    """
    stages, whole = logged['stages_ms'], received['latency_ms']
    known = {name: stages[name] for name in ('transport', 'wait', 'decode', 'preprocess')}
    session = logged['session_ms']
    model = sum(stages.get(name, 0.0) for name in MODEL)
    rest = logged['latency_ms'] - sum(known.values()) - session
    return {'latency': whole, 'model': model, 'overhead': whole - session,
            'beyond_model': whole - model, **known, 'session': session, 'rest': rest,
            'back': whole - logged['latency_ms']}


def summarise(records: Sequence[Mapping[str, Any]], logged: Mapping[int, Mapping[str, Any]],
              rate_hz: float, warmup_s: float, seconds: float) -> dict[str, Any]:
    """Summarise a run.

    Parameters
    ----------
    records
        Results that the recorder received, in order of their stamps.
    logged
        From `node_results`.
    rate_hz
        Of the camera.
    warmup_s, seconds
        Left out from the first result on, and how much is measured after that.

    Returns
    -------
    dict
        overhead_ms, latency_ms, session_ms, model_ms, beyond_model_ms: `statistics`; parts_ms:
        those of `PARTS`; stages_ms: medians; counts.

    Raises
    ------
    OverheadError
        When nothing is left, lines of the node are missing, or it did not keep up with the
        camera: then frames wait for each other, which is no overhead.
    """
    if not records:
        raise OverheadError('no assessment was received')
    first = records[0]['stamp_ns'] + warmup_s * 1e9
    used = [r for r in records if first <= r['stamp_ns'] <= first + seconds * 1e9]
    if len(used) < 2:
        raise OverheadError(f'{len(used)} assessments were received after {warmup_s:g} s of '
                            'warm-up; measure longer')
    missing = sum(r['stamp_ns'] not in logged for r in used)
    if missing:
        raise OverheadError(f'the log of the node lacks the times of {missing} of '
                            f'{len(used)} results')
    frames = round((used[-1]['stamp_ns'] - used[0]['stamp_ns']) / 1e9 * rate_hz) + 1
    rows = [split(r, logged[r['stamp_ns']]) for r in used]
    figures = {name: statistics([row[name] for row in rows]) for name in rows[0]}
    busy = figures['latency']['median'] - figures['transport']['median']
    if len(used) < LEAST_SHARE * frames - 1 or busy > 1e3 / rate_hz:
        raise OverheadError(
            f'the node did not keep up: {len(used)} results for {frames} frames, each takes '
            f'{busy:.0f} ms of the {1e3 / rate_hz:.0f} ms between two; choose a lower --rate')
    stages = {name for r in used for name in logged[r['stamp_ns']]['stages_ms']}
    return {
        **{f'{name}_ms': figures[name]
           for name in ('overhead', 'latency', 'session', 'model', 'beyond_model')},
        'parts_ms': {name: figures[name] for name in PARTS},
        'stages_ms': {name: round(float(np.median([
            logged[r['stamp_ns']]['stages_ms'].get(name, 0.0) for r in used])), 3)
            for name in sorted(stages)},
        'counts': {'frames': frames, 'results': len(used)}}


def make_table(result: Mapping[str, Any]) -> Table:
    """Return the figures as a table."""
    c, counts = result['configuration'], result['counts']
    rows = {'latency: stamp to received': 'latency_ms', 'session': 'session_ms',
            'overhead: beyond the session': 'overhead_ms',
            'beyond the model alone': 'beyond_model_ms'}
    return clock.make_table(
        f'{c["model_size"]}, {c["num_frames"]} frames of {c["image_size"]} px on {c["device"]}, '
        f'{c["precision"]}; {"x".join(map(str, c["source"]))} {c["transport"]} at '
        f'{c["rate_hz"]:g} Hz',
        {**{label: result[key] for label, key in rows.items()},
         **{f'  {name}: {PARTS[name]}': found for name, found in result['parts_ms'].items()}},
        ('median', 'p95', 'p99'), f'{counts["results"]} results of {counts["frames"]} frames')
