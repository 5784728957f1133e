# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Measure the speed of every stage on the CPU of this machine."""

from __future__ import annotations

import argparse
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from itertools import cycle
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import vjepa_ros
from vjepa_ros.cli.argparse_ranges import check_ranges
from vjepa_ros.clip.resize import View
from vjepa_ros.detector import ObstacleDetector
from vjepa_ros.lab.report.host_info import hardware, versions
from vjepa_ros.lab.report.json_file import write_json
from vjepa_ros.lab.world.demo_scene.approach import ApproachScene
from vjepa_ros.looming.estimator import LoomingEstimator
from vjepa_ros.runtime.engine import Engine, EngineConfig
from vjepa_ros.sources.encodings import decode_compressed

RATE_HZ = 15.0
APPROACH_S = 4.5          # from here on the synthetic robot drives at an obstacle
SCENE_S = 4.0
GRAY_SIZE = (384, 288)    # what the looming estimate works on
HISTORY_S = 0.6
STAGE_LIMIT_S, LEAST_RUNS = 8.0, 3
NS = 1e9


@dataclass(frozen=True)
class Stage:
    """Times of one stage [ms]: on the clock, and of all processors together.

    Attributes
    ----------
    name, what
        Of the stage.
    median_ms, p95_ms, min_ms
        Of the time on the clock.
    cpu_ms
        Median of the time of the processors.
    runs
        Number of measurements.
    """

    name: str
    what: str
    median_ms: float
    p95_ms: float
    min_ms: float
    cpu_ms: float
    runs: int


def measure(name: str, what: str, work: Callable[[], object], runs: int, warm: int = 2) -> Stage:
    """Time a piece of work, after some calls that are not counted; see `Budget`."""
    for _ in range(warm):
        work()
    clock, cpu = [], []
    budget = Budget(runs)
    while budget.allows(len(clock)):
        before, start = time.process_time(), time.perf_counter()
        work()
        clock.append(1e3 * (time.perf_counter() - start))
        cpu.append(1e3 * (time.process_time() - before))
    return make_stage(name, what, clock, cpu)


class Budget:
    """How often a stage is measured: as often as wanted, less when the machine is slow."""

    def __init__(self, runs: int) -> None:
        self._runs, self._end = runs, time.monotonic() + STAGE_LIMIT_S

    def allows(self, done: int) -> bool:
        """Whether one more measurement is to be made after so many."""
        return done < self._runs and (done < LEAST_RUNS or time.monotonic() < self._end)


def make_stage(name: str, what: str, clock: Sequence[float], cpu: Sequence[float] = ()) -> Stage:
    """The statistics of measured times [ms]."""
    median, high = np.percentile(clock, (50, 95))
    busy = float(np.median(cpu)) if len(cpu) else float('nan')
    return Stage(name, what, float(median), float(high), float(min(clock)), busy, len(clock))


def run(runs: int = 40) -> dict[str, Any]:
    """Measure all stages; the result is ready for JSON.

    Parameters
    ----------
    runs
        Measurements of each stage, at least 1.
    """
    threads = cv2.getNumThreads()
    # The node works on images with one thread and leaves the others to the encoder.
    cv2.setNumThreads(1)
    try:
        frames = approach_frames()
        stages = [*_image_stages(frames, runs), *_encoder_stages(runs),
                  *_detector_stages(frames, runs)]
    finally:
        cv2.setNumThreads(threads)
    of = {stage.name: stage.median_ms for stage in stages}
    return {
        'date': date.today().isoformat(), 'hardware': hardware(), 'versions': versions(),
        'torch_threads': torch.get_num_threads(), 'opencv_threads': 1,
        'stages': [_rounded(asdict(stage)) for stage in stages],
        'ratios': {
            'farneback_over_looming': round(of['flow_farneback'] / of['looming'], 2),
            'encode_fp32_over_bf16': round(of['encode_fp32'] / of['encode_bf16'], 2)},
        'detector_hz': round(1e3 / of['detector'], 1),
    }


def approach_frames() -> list[tuple[int, np.ndarray]]:
    """Stamp [ns] and RGB picture (480, 640, 3) of a drive at an obstacle."""
    scene = ApproachScene()
    times = [APPROACH_S + n / RATE_HZ for n in range(round(SCENE_S * RATE_HZ))]
    return [(round(t * NS), scene.render(t)) for t in times]


def _image_stages(frames: list[tuple[int, np.ndarray]], runs: int) -> list[Stage]:
    rgb = frames[0][1]
    large = cv2.cvtColor(cv2.resize(rgb, (1280, 720)), cv2.COLOR_RGB2BGR)
    jpeg = cv2.imencode('.jpg', large, [cv2.IMWRITE_JPEG_QUALITY, 90])[1].tobytes()
    view = View('squash', rgb.shape[1::-1], 192)
    into = np.empty((192, 192, 3), np.uint8)
    grays = [(stamp, cv2.cvtColor(cv2.resize(image, GRAY_SIZE, interpolation=cv2.INTER_AREA),
                                  cv2.COLOR_RGB2GRAY)) for stamp, image in frames]
    length = round(HISTORY_S * RATE_HZ) + 1
    windows = cycle([grays[i:i + length] for i in range(len(grays) - length)])
    pairs = cycle(list(zip(grays, grays[3:], strict=False)))
    estimator, focal = LoomingEstimator(), 500 / 640 * GRAY_SIZE[0]

    def farneback() -> None:
        (_, older), (_, newer) = next(pairs)
        cv2.calcOpticalFlowFarneback(older, newer, None, 0.5, 3, 15, 3, 5, 1.2, 0)

    return [
        measure('decode', 'jpeg 1280x720 to RGB', lambda: decode_compressed(jpeg), runs),
        measure('preprocess', '640x480 to 192x192, squash', lambda: view.apply(rgb, out=into),
                runs),
        measure('looming', 'rate and confidence per cell, 384x288',
                lambda: estimator.estimate(next(windows), focal_px=focal), runs),
        measure('flow_farneback', "baseline: OpenCV's Farneback dense flow alone, 384x288",
                farneback, runs),
    ]


def _encoder_stages(runs: int) -> list[Stage]:
    stages = []
    for precision in ('fp32', 'bf16'):
        config = EngineConfig(device='cpu', precision=precision)
        engine = Engine.load(config)
        side, count = config.image_size, config.num_frames
        clip = np.random.default_rng(0).integers(0, 256, (count, side, side, 3), dtype=np.uint8)
        stages.append(measure(
            f'encode_{precision}',
            f'{config.model_size}, {count} frames of {side} px, {precision}',
            lambda engine=engine, clip=clip: engine.encode([clip]), runs))
        engine.close()
    return stages


def _detector_stages(frames: list[tuple[int, np.ndarray]], runs: int) -> list[Stage]:
    """The whole detector on the scene, over and over; motion and assess as it times them."""
    parts: dict[str, list[float]] = {'motion': [], 'assess': []}
    clock, cpu = [], []
    lap_ns = round(len(frames) / RATE_HZ * NS)
    with ObstacleDetector(device='cpu') as detector:
        count, precision = 0, detector.engine.choice.precision
        budget = Budget(runs)
        while budget.allows(len(clock)):
            lap, index = divmod(count, len(frames))
            stamp, rgb = frames[index]
            count += 1
            before, start = time.process_time(), time.perf_counter()
            detector.add_frame(rgb, (stamp + lap * lap_ns) / NS)
            seen = detector.assess()
            if seen is None:
                continue
            clock.append(1e3 * (time.perf_counter() - start))
            cpu.append(1e3 * (time.process_time() - before))
            for name, times in parts.items():
                times.append(seen.timings[name])
    return [
        make_stage('motion', 'motion map of the features', parts['motion']),
        make_stage('assess', 'regions, scores, smoothing and level', parts['assess']),
        make_stage('detector',
                   f'ObstacleDetector: add_frame and assess, 640x480, tiny, {precision}',
                   clock, cpu),
    ]


def _rounded(stage: dict[str, Any]) -> dict[str, Any]:
    values = {k: round(v, 3) if isinstance(v, float) else v for k, v in stage.items()}
    return {k: v for k, v in values.items() if v == v}


def make_table(result: dict[str, Any]) -> Table:
    """The result as a table for people."""
    machine = result['hardware']
    table = Table(title=f'{machine["cpu"]}, {machine["logical_cores"]} logical cores, '
                        f'{result["torch_threads"]} PyTorch threads', title_justify='left')
    for name in ('stage', 'what'):
        table.add_column(name)
    for name in ('median ms', 'p95 ms', 'min ms', 'CPU ms'):
        table.add_column(name, justify='right')
    for stage in result['stages']:
        values = (stage.get(key) for key in ('median_ms', 'p95_ms', 'min_ms', 'cpu_ms'))
        table.add_row(stage['name'], stage['what'],
                      *('' if v is None else f'{v:.2f}' for v in values))
    return table


def default_out() -> Path:
    """The documentation of a checkout, elsewhere the present folder."""
    root = Path(vjepa_ros.__file__).parents[1]
    if (root / 'package.xml').is_file():
        return root / 'docs' / 'benchmarks' / 'cpu.json'
    return Path('vjepa_ros_bench.json')


def main(argv: Sequence[str] | None = None) -> int:
    """Command line: measure, print the table, write the file."""
    parser = argparse.ArgumentParser(prog='vjepa-ros bench', description=__doc__)
    parser.add_argument('--runs', type=int, default=40, metavar='N',
                        help='measurements of each stage (default: 40)')
    parser.add_argument('--out', type=Path, metavar='FILE',
                        help='JSON file to write (default: docs/benchmarks/cpu.json in a '
                        'checkout, else vjepa_ros_bench.json)')
    args = parser.parse_args(argv)
    check_ranges(parser, args, {'runs': (1, math.inf)})
    console = Console()
    logging.getLogger('vjepa_ros').setLevel(logging.ERROR)  # the table is what is wanted
    with console.status('measuring, half a minute or so'):
        result = run(args.runs)
    command = 'vjepa-ros bench' + (f' --runs {args.runs}' if args.runs != 40 else '')
    out = args.out or default_out()
    write_json(out, {'command': command, **result})
    console.print(make_table(result))
    ratios = result['ratios']
    console.print(f'Farneback flow alone takes {ratios["farneback_over_looming"]:.1f} times as '
                  f'long as looming; fp32 takes {ratios["encode_fp32_over_bf16"]:.1f} times as '
                  f'long as bf16. The detector makes {result["detector_hz"]:.1f} assessments a '
                  f'second.\nwritten: {out}', highlight=False, soft_wrap=True)
    return 0
