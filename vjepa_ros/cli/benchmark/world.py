# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Measure how many clips, with their truth, the rendered world gives per second.

Scenes are sampled and sent to the device beforehand, so that drawing alone is timed; sampling
them is timed apart. Every batch is waited for. Without --compile the CPU draws with one thread.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vjepa_ros.cli.argparse_ranges import check_above_zero, check_ranges
from vjepa_ros.lab.report.host_info import accelerator, hardware, versions
from vjepa_ros.lab.report.json_file import write_json
from vjepa_ros.lab.world.clips import ClipWorld, WorldClips
from vjepa_ros.lab.world.rendering.render import one_thread
from vjepa_ros.lab.world.rendering.truth import truth
from vjepa_ros.lab.world.scenes.sampler import Sample

BATCH = {'cuda': 64, 'cpu': 4}  # clips by default
BATCHES = 4                     # of different scenes that are drawn in turn
LEAST_RUNS = 3


@dataclass
class Way:
    """One way to draw: plain or compiled; times [s] of whole batches and of their truth alone.

    ``first_s`` is the first batch (compilation, textures), ``kernels_s`` the time between the
    device's own marks around each batch, on GPUs.
    """

    name: str
    world: ClipWorld
    first_s: float = 0.0
    peak_bytes: int = 0
    film_s: list[float] = field(default_factory=list)
    truth_s: list[float] = field(default_factory=list)
    kernels_s: list[float] = field(default_factory=list)


def run(device: str, size: int = 192, frames: int = 8, batch: int | None = None,
        seconds: float = 10.0, compile: bool = False, seed: int = 1,
        say: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Measure; the result is ready for JSON.

    Parameters
    ----------
    device
        'cpu' or 'cuda'.
    size, frames
        Side of the pictures [px] and frames of a clip.
    batch
        Clips that are drawn at once; `BATCH` by default.
    seconds
        How long each way is measured after the warm-up; at least `LEAST_RUNS` batches.
    compile
        Draw with compiled functions as well, in turn with the plain ones.
    seed
        Of the first batch of scenes.
    say
        Is told what is going on.
    """
    batch = batch or BATCH[device]
    plain = ClipWorld(size, frames, device)
    ways = [Way('plain', plain)]
    if compile:
        ways.append(Way('compiled', ClipWorld(size, frames, device, plain.bank, compile=True)))
    say('sampling scenes')
    sampling = _sampling(plain, batch, min(seconds, 5.0), seed + BATCHES)
    samples = [_sent(plain, seed + n, batch) for n in range(BATCHES)]
    first = []
    for way in ways:
        say(f'{way.name}: first batch')
        start = time.perf_counter()
        first.append(_film(way, samples[0]))
        way.first_s = time.perf_counter() - start
    agreement = _agreement(*first) if compile else None
    first.clear()
    for way in ways:
        _film(way, samples[1])
        way.film_s.clear()
        way.kernels_s.clear()
        way.peak_bytes = 0
    say('measuring')
    # In turn, so that what else the machine does meets all ways alike.
    end, count = time.monotonic() + seconds * len(ways), 0
    while count < LEAST_RUNS or time.monotonic() < end:
        for way in ways:
            _film(way, samples[count % BATCHES])
            _truth(way, samples[count % BATCHES])
        count += 1
    result = {
        'date': date.today().isoformat(), 'device': device,
        'hardware': {**hardware(), **accelerator(torch.device(device))},
        'versions': versions(), 'torch_threads': torch.get_num_threads(), 'size': size,
        'frames': frames, 'batch': batch, 'samples_per_pixel': plain.samples,
        'scenes_sampled_per_s_one_core': sampling,
        'ways': {way.name: _figures(way, batch) for way in ways}}
    if compile:
        a, b = (np.median(way.film_s) for way in ways)
        result['compiled_over_plain'] = round(float(a / b), 3)
        result['agreement'] = agreement
    return result


def _sampling(world: ClipWorld, batch: int, seconds: float, seed: int) -> dict[str, Any]:
    """Scenes per second that one thread samples."""
    times: list[float] = []
    with one_thread():
        world.sample(seed, batch)
        end = time.monotonic() + seconds
        while len(times) < LEAST_RUNS or time.monotonic() < end:
            start = time.perf_counter()
            world.sample(seed + len(times), batch)
            times.append(time.perf_counter() - start)
    return _rates(times, batch)


def _sent(world: ClipWorld, seed: int, batch: int) -> Sample:
    """A sample with all that is drawn on the world's device."""
    sample = world.sample(seed, batch)
    there = {name: getattr(sample, name).to(world.device) for name in ('hold', 'place', 'outcome')}
    return replace(sample, scenes=sample.scenes.map(lambda v: v.to(world.device)), **there)


def _wait(device: torch.device) -> None:
    if device.type == 'cuda':
        torch.cuda.synchronize(device)


def _film(way: Way, sample: Sample) -> WorldClips:
    """Draw a batch, wait for it and note how long it took."""
    device = way.world.device
    _wait(device)
    marks = []
    if device.type == 'cuda':
        torch.cuda.reset_peak_memory_stats(device)
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    start = time.perf_counter()
    if marks:
        marks[0].record()
    clips = way.world.film(sample)
    if marks:
        marks[1].record()
    _wait(device)
    way.film_s.append(time.perf_counter() - start)
    if marks:
        way.kernels_s.append(marks[0].elapsed_time(marks[1]) / 1e3)
        way.peak_bytes = max(way.peak_bytes, torch.cuda.max_memory_allocated(device))
    return clips


def _truth(way: Way, sample: Sample) -> None:
    """Work out the truth alone, wait for it and note how long it took."""
    world = way.world
    start = time.perf_counter()
    truth(sample.scenes, world.bank, (world.size, world.size), world.config.robot,
          compile=world.compile)
    _wait(world.device)
    way.truth_s.append(time.perf_counter() - start)


def _rates(times: Sequence[float], batch: int) -> dict[str, Any]:
    """Clips per second: median, and what 5 and 95 % of the runs stay below."""
    low, median, high = np.percentile(batch / np.array(times), (5, 50, 95))
    return {'median': round(float(median), 2), 'p5': round(float(low), 2),
            'p95': round(float(high), 2), 'runs': len(times)}


def _figures(way: Way, batch: int) -> dict[str, Any]:
    film = float(np.median(way.film_s))
    found = {'clips_per_s': _rates(way.film_s, batch), 'batch_ms': round(1e3 * film, 3),
             'truth_ms': round(1e3 * float(np.median(way.truth_s)), 3),
             'first_batch_s': round(way.first_s, 2)}
    if way.kernels_s:
        found['batch_ms_by_events'] = round(1e3 * float(np.median(way.kernels_s)), 3)
        found['peak_memory_gb'] = round(way.peak_bytes / 2**30, 2)
    return found


def _agreement(a: WorldClips, b: WorldClips) -> dict[str, float]:
    """How alike the pictures and the truth of the same scenes are, drawn in two ways."""
    gap = (a.frames.int() - b.frames.int()).abs()
    return {'grey_values_within_1': round((gap <= 1).float().mean().item(), 6),
            'pixels_of_the_same_shape':
                round((a.truth.shape == b.truth.shape).float().mean().item(), 6),
            'pixels_of_the_same_looming': round(torch.isclose(
                a.truth.looming, b.truth.looming, 1e-3, 1e-4).float().mean().item(), 6)}


def lines(result: dict[str, Any]) -> list[str]:
    """The result for people."""
    machine, scenes = result['hardware'], result['scenes_sampled_per_s_one_core']
    text = [f'{machine.get("gpu", machine["cpu"])}, torch {result["versions"]["torch"]}: batches '
            f'of {result["batch"]} clips, {result["frames"]} frames of {result["size"]} px']
    for name, way in result['ways'].items():
        rate = way['clips_per_s']
        text.append(f'{name:<9} {rate["median"]:.1f} clips/s with truth ({rate["p5"]:.1f} to '
                    f'{rate["p95"]:.1f} in {rate["runs"]} batches); truth {way["truth_ms"]:.1f} '
                    f'of {way["batch_ms"]:.1f} ms; first batch {way["first_batch_s"]:.1f} s')
    if 'compiled_over_plain' in result:
        text.append(f'compiled is {result["compiled_over_plain"]:.2f} times as fast')
    text.append(f'sampling  {scenes["median"]:.1f} scenes/s on one core')
    return text


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog='vjepa-ros bench-world', description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--device', choices=('cuda', 'cpu'),
                        help='where clips are drawn (default: cuda where there is one)')
    parser.add_argument('--size', type=int, default=192, metavar='PX',
                        help='side of the pictures (default: 192)')
    parser.add_argument('--frames', type=int, default=8, metavar='N',
                        help='frames of a clip (default: 8)')
    parser.add_argument('--batch', type=int, metavar='N',
                        help='clips that are drawn at once (default: 64 on cuda, 4 on cpu)')
    parser.add_argument('--seconds', type=float, default=10.0, metavar='S',
                        help='how long each way to draw is measured (default: 10)')
    parser.add_argument('--compile', action='store_true',
                        help='draw compiled as well, in turn, and give the ratio')
    parser.add_argument('--out', type=Path, metavar='FILE', help='JSON file to write')
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Command line: measure, print the figures, write the file."""
    parser = make_parser()
    args = parser.parse_args(argv)
    check_ranges(parser, args, {
        'size': (8, math.inf), 'frames': (1, math.inf), 'batch': (1, math.inf)})
    check_above_zero(parser, args, 'seconds')
    if args.device == 'cuda' and not torch.cuda.is_available():
        parser.error('argument --device: PyTorch finds no CUDA device here')
    device = args.device or ('cuda' if torch.cuda.is_available() else 'cpu')
    batch = args.batch or BATCH[device]
    result = run(device, args.size, args.frames, batch, args.seconds, args.compile,
                 say=lambda text: print(text, flush=True))
    command = (f'vjepa-ros bench-world --device {device} --size {args.size} --frames '
               f'{args.frames} --batch {batch} --seconds {args.seconds:g}'
               + (' --compile' if args.compile else ''))
    print('\n'.join(lines(result)))
    if args.out:
        write_json(args.out, {'command': command, **result})
        print(f'written: {args.out}')
    return 0
