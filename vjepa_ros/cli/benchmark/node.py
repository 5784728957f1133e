# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Measure what the node costs beyond its model: image stamp to assessment received, over DDS.

Camera, node and receiver run as three processes of this machine. The stamp is the time at which a
picture is due to be published; it was read and decoded before. Counted from there: waking up,
making the message, DDS, the node with all that it does, DDS again, and the receiver's executor
until its callback runs. The session is the part of it from the full clip to the assessment (model,
motion, looming), on the clock of the node's worker; overhead is all but that.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

import cv2
import torch
from rich.console import Console
from rich.table import Table

from vjepa_ros.cli.argparse_ranges import check_ranges
from vjepa_ros.cli.benchmark.case import add_options, image_size
from vjepa_ros.cli.benchmark.dds import run_benchmark
from vjepa_ros.cli.benchmark.node_overhead import PARTS, OverheadError, node_results, summarise
from vjepa_ros.cli.demo_processes import NODE, Plan, Trio
from vjepa_ros.lab.report.host_info import accelerator, hardware, versions
from vjepa_ros.lab.report.terminal import View
from vjepa_ros.ros.common.processes import ProcessFailed
from vjepa_ros.sources import SUPPORTED, SourceError, open_source

WITHOUT = ('cameras', 'engine', 'cpu_threads', 'saved', 'source')   # options of `benchmark`
METHODS = ('fused', 'geometric', 'learned')
CLIP_FPS = 4.0            # about that of the node by default
SPARE_S = 1.0             # for what comes late
MAX_PICTURES = 100        # more are played again from the first on
JPEG_QUALITY = 90         # as camera_source compresses
PROBLEMS = (ProcessFailed, SourceError, OverheadError, OSError)
SHOWN = {'model_size': str, 'model_version': str, 'num_frames': int, 'image_size': int,
         'clip_fps': float, 'precision': str, 'execution': str, 'device': str,
         'looming_method': str, 'resize_mode': str, 'trained': str}


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog='vjepa-ros benchmark-node', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, WITHOUT)
    parser.add_argument('--looming-method', default='fused', choices=METHODS,
                        help='where looming comes from (default: fused)')
    parser.add_argument('--source', type=image_size, default=(1280, 720), metavar='VALUE',
                        help='width and height of the images (default: 1280x720)')
    parser.add_argument('--scene', default='synthetic', metavar='SCENE',
                        help=f'what they show: {SUPPORTED} (default: synthetic)')
    parser.add_argument('--transport', default='raw', choices=('raw', 'compressed'),
                        help='how they are sent (default: raw)')
    parser.add_argument('--rate', type=float, default=5.0, metavar='HZ',
                        help='of the camera; so low that no frame waits for the one before, '
                        'which would be queueing and no overhead (default: 5)')
    parser.add_argument('--seconds', type=float, default=30.0, metavar='S',
                        help='how long is measured (default: 30)')
    parser.add_argument('--warmup', type=float, default=5.0, metavar='S',
                        help='left out after the first result (default: 5)')
    parser.add_argument('--json', type=Path, metavar='FILE', help='write the figures')
    return parser


def parameters(args: argparse.Namespace) -> dict[str, object]:
    """Parameters of the node for a command line."""
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
    """Rate of the clips: a whole fraction of the camera's, as the learned heads want it [Hz]."""
    return rate_hz / max(1, round(rate_hz / CLIP_FPS))


def store_pictures(args: argparse.Namespace, folder: Path) -> int:
    """Write the scene as jpeg pictures, so that drawing them costs nothing while measuring.

    Returns
    -------
    int
        How many there are.
    """
    folder.mkdir()
    wanted = min(MAX_PICTURES, math.ceil((args.warmup + args.seconds) * args.rate))
    number = 0
    with open_source(args.scene, rate=args.rate, size=args.source, max_frames=wanted) as source:
        for number, frame in enumerate(source, start=1):
            cv2.imwrite(str(folder / f'{number:05d}.jpg'), frame.rgb[..., ::-1],
                        (cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY))
        if source.intrinsics is not None:
            fx, fy, cx, cy = source.intrinsics
            (folder / 'calib.txt').write_text(f'P: {fx} 0 {cx} 0 0 {fy} {cy} 0 0 0 1 0\n')
    if number == 0:
        raise SourceError(f"scene '{args.scene}' has no picture")
    return number


def measure(args: argparse.Namespace, console: Console, work: Path) -> dict[str, Any]:
    """Run the three processes; the figures.

    Raises
    ------
    ProcessFailed, SourceError, OverheadError, OSError
        Saying what went wrong.
    """
    pictures = work / 'pictures'
    count = store_pictures(args, pictures)
    seconds = args.num_frames / clip_fps(args.rate) + args.warmup + args.seconds + SPARE_S
    width, height = args.source
    name = args.scene if args.scene.startswith('synthetic') else Path(args.scene).name
    plan = Plan(str(pictures), f'{name}, {width}x{height}, {args.transport}, {args.rate:g} Hz',
                seconds, loop=True, max_frame_gap=max(1.0, 2.5 / args.rate))
    trio = Trio('vjepa-ros benchmark-node', plan, node=parameters(args),
                camera={'rate': args.rate}, recorder={'all_outputs': False},
                transport=args.transport, node_words=('--log-level', f'{NODE}:=debug'))
    with View(trio.status, console) as view:
        trio.run(view, work)
    if trio.interrupted:
        raise KeyboardInterrupt
    with (work / 'node.log').open(encoding='utf-8', errors='replace') as log:
        told = node_results(log)
    recording = trio.recording
    figures = summarise(recording.records(), told, args.rate, args.warmup, args.seconds)
    model = {**recording.model, 'model_size': recording.model['model']}
    return {
        'date': date.today().isoformat(),
        'hardware': {**hardware(), **accelerator(torch.device(model['device']))},
        'versions': {**versions(), **_middleware()},
        'configuration': {
            **{key: kind(model[key]) for key, kind in SHOWN.items()},
            'weights': Path(model['weights']).name, 'scene': name, 'source': [width, height],
            'pictures': count, 'transport': args.transport, 'rate_hz': args.rate,
            'seconds': args.seconds, 'warmup_s': args.warmup,
            'heads': recording.camera['heads'].partition(':')[0]},
        'counted': {'overhead': 'latency less session, result by result',
                    'beyond_model': 'latency less the stages of the model alone', **PARTS},
        **figures}


def _middleware() -> dict[str, str]:
    rmw = os.environ.get('RMW_IMPLEMENTATION') or 'rmw_fastrtps_cpp'
    found = {'rmw': rmw, 'ros_distro': os.environ.get('ROS_DISTRO', 'unknown')}
    try:
        found['rclpy'] = metadata.version('rclpy')
    except metadata.PackageNotFoundError:   # a ROS that was not installed by pip
        found['rclpy'] = 'unknown'
    return found


def make_table(result: Mapping[str, Any]) -> Table:
    """The figures for people."""
    c = result['configuration']
    table = Table(title=f'{c["model_size"]}, {c["num_frames"]} frames of {c["image_size"]} px on '
                  f'{c["device"]}, {c["precision"]}; {"x".join(map(str, c["source"]))} '
                  f'{c["transport"]} at {c["rate_hz"]:g} Hz', title_justify='left')
    table.add_column('time in ms')
    for name in ('median', 'p95', 'p99'):
        table.add_column(name, justify='right')
    rows = [('latency: stamp to received', 'latency_ms'), ('session', 'session_ms'),
            ('overhead: beyond the session', 'overhead_ms'),
            ('beyond the model alone', 'beyond_model_ms')]
    for label, key in rows:
        table.add_row(label, *_figures(result[key]))
    table.add_section()
    for name, found in result['parts_ms'].items():
        table.add_row(f'  {name}: {PARTS[name]}', *_figures(found))
    counts = result['counts']
    table.caption = f'{counts["results"]} results of {counts["frames"]} frames'
    table.caption_justify = 'left'
    return table


def _figures(found: Mapping[str, Any]) -> list[str]:
    return [f'{found[key]:.2f}' for key in ('median', 'p95', 'p99')]


def main(argv: Sequence[str] | None = None) -> int:
    """Command line: measure, print the table, write the file; 1 when it cannot be measured."""
    words = list(sys.argv[2:] if argv is None else argv)
    parser = make_parser()
    args = parser.parse_args(words)
    check_ranges(parser, args, {
        'rate': (1.0, 60.0), 'seconds': (1.0, 3600.0), 'warmup': (0.0, 600.0)})
    logging.getLogger('vjepa_ros').setLevel(logging.ERROR)   # the table is what is wanted
    return run_benchmark('benchmark-node', words, args.json,
                         lambda console, work: measure(args, console, work), make_table, PROBLEMS)
