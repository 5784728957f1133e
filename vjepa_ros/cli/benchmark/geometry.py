# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Measure resizing and looming step by step, on the host and on a device.

    python -m vjepa_ros.cli.benchmark.geometry [--device cuda] [--source 1280x720] [--json FILE]

prints the median milliseconds of each step of one frame: `own` (the copy from which an image is
uploaded), `put` (upload and resizing), `displace` and `refine` (the two pieces of looming on the
device, from handing over to the result), `between` and `field` (what the host does between and
after them; with kernels the motion of the camera and the rates are part of `refine`), `device`
(all of them), and `host` (resizing and looming as without a device). Nothing else runs on the
device meanwhile.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import numpy as np
import torch

from vjepa_ros.cli.benchmark.case import image_size
from vjepa_ros.cli.benchmark.ours import RATE_HZ, source_frames
from vjepa_ros.lab.report.host_info import hardware, versions
from vjepa_ros.perception.camera_track import Track
from vjepa_ros.perception.config import TrackConfig
from vjepa_ros.runtime.cuda.graph_replay import Queue
from vjepa_ros.runtime.device import choose_device, device_name

NS = 1e9
WARM = 8


def measure(device: torch.device, source: tuple[int, int], side: int,
            runs: int) -> tuple[dict[str, float], str]:
    """Median milliseconds by step, and how the device works, in words."""
    frames = source_frames(source)
    config = TrackConfig(num_frames=16, image_size=side)
    ours, host = Track('ours', config, queue=Queue(device)), Track('host', config)
    times: dict[str, list[float]] = {}

    def lap(name: str, since: float) -> float:
        ours._geometry._frames.queue.settle()
        now = time.perf_counter()
        times.setdefault(name, []).append(1e3 * (now - since))
        return now

    for number in range(runs + WARM):
        frame, stamp = frames[number % len(frames)], round((1 + number / RATE_HZ) * NS)
        clock = time.perf_counter()
        host.push(frame, stamp)
        host.looming()
        times.setdefault('host', []).append(1e3 * (time.perf_counter() - clock))
        clock = begun = time.perf_counter()
        owned = ours.own(frame)
        own = time.perf_counter()
        ours.push(owned, stamp)
        if ours.ring.fill < 2:
            ours.looming()
            continue
        times.setdefault('own', []).append(1e3 * (own - clock))
        clock = lap('put', own)
        looming = ours._geometry._estimator
        ours.looming_job().start()
        clock = lap('displace', clock)
        looming.proceed()
        handed = time.perf_counter()
        times.setdefault('between', []).append(1e3 * (handed - clock))
        clock = lap('refine', handed)
        looming.finish()
        clock = lap('field', clock)
        ours._geometry._begun = None
        times.setdefault('device', []).append(1e3 * (clock - begun))
    return {name: round(float(np.median(values[-runs:])), 4)
            for name, values in times.items()}, ours.geometry


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print and write as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('--device', default='auto', help='auto, cpu, cuda or cuda:N')
    parser.add_argument('--source', type=image_size, default=(1280, 720), metavar='WxH')
    parser.add_argument('--image-size', type=int, default=256, help="of the encoder's input")
    parser.add_argument('--runs', type=int, default=200)
    parser.add_argument('--json', type=Path, help='where to write the result')
    args = parser.parse_args(argv)
    device = choose_device(args.device, True, 'auto').device
    steps, how = measure(device, args.source, args.image_size, args.runs)
    words = ['python -m vjepa_ros.cli.benchmark.geometry', '--device', args.device, '--source',
             'x'.join(map(str, args.source)), '--image-size', str(args.image_size), '--runs',
             str(args.runs)]
    result = {'date': date.today().isoformat(), 'hardware': hardware(), 'versions': versions(),
              'device': device_name(device), 'geometry': how, 'source': list(args.source),
              'image_size': args.image_size, 'runs': args.runs,
              'command': ' '.join(words), 'median_ms': steps}
    print(f'{how}, {args.source[0]}x{args.source[1]} to {args.image_size} px')
    for name, value in steps.items():
        print(f'{name:>10} {value:8.3f} ms')
    if args.json is not None:
        args.json.write_text(json.dumps(result, indent=1) + '\n', encoding='utf-8')
    return 0


if __name__ == '__main__':
    raise SystemExit(main())
