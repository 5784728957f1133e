# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Measure how many clips the renderer draws per second, with their ground truth.

Scenes are sampled and uploaded beforehand, so that only drawing is timed; sampling is timed
separately. Every batch is waited for. Without --compile the CPU draws with one thread.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count, cycle
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from vjepa_ros.cli.benchmark import clock
from vjepa_ros.cli.benchmark.clock import device_ms
from vjepa_ros.cli.console import positive, steps, whole
from vjepa_ros.lab.world.clips import ClipWorld, WorldClips
from vjepa_ros.lab.world.rendering.truth import truth
from vjepa_ros.lab.world.scenes.sampler import Sample
from vjepa_ros.lab.world.scenes.scene_spec import WorldConfig
from vjepa_ros.model.variants import IMAGE_SIZE, NUM_FRAMES
from vjepa_ros.runtime.device import computing_with

PROBLEMS = (RuntimeError,)
BATCH = {'cuda': 64, 'cpu': 4}  # clips by default
BATCHES = 4                     # of different scenes that are drawn in turn
SAMPLING_S = 5.0                # at most
SEED = 1


class Drawing:
    """Draws batches of scenes in turn, and times [ms] drawing (``film``) and ``truth``."""

    def __init__(self, world: ClipWorld, samples: Sequence[Sample]) -> None:
        self._world, self._samples = world, cycle(samples)
        self.first: list[WorldClips] = []
        # With compilation and textures.
        self.first_s = device_ms(world.device, lambda: self.first.append(
            world.film(samples[0]))) / 1e3

    def step(self) -> dict[str, float]:
        """Draw the next batch."""
        world, sample = self._world, next(self._samples)
        return {'film': device_ms(world.device, lambda: world.film(sample)),
                'truth': device_ms(world.device, lambda: truth(
                    sample.scenes, world.bank, (world.size, world.size), world.config.robot,
                    compile=world.compile))}


class Sampling:
    """Samples batches of scenes on the CPU."""

    def __init__(self, world: ClipWorld, batch: int) -> None:
        self._world, self._batch, self._seeds = world, batch, count(SEED + BATCHES)

    def step(self) -> dict[str, float]:
        """Sample the next batch."""
        return {'sample': device_ms(torch.device('cpu'), lambda: self._world.sample(
            next(self._seeds), self._batch))}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subject."""
    parser.add_argument('--device', choices=('cuda', 'cpu'),
                        help='where clips are drawn (default: cuda where there is one)')
    parser.add_argument('--size', type=whole(8), default=IMAGE_SIZE, metavar='PX',
                        help=f'side of the pictures (default: {IMAGE_SIZE})')
    parser.add_argument('--frames', type=whole(), default=NUM_FRAMES, metavar='N',
                        help=f'frames of a clip (default: {NUM_FRAMES})')
    parser.add_argument('--batch', type=whole(), metavar='N',
                        help='clips that are drawn at once (default: 64 on cuda, 4 on cpu)')
    parser.add_argument('--seconds', type=positive, default=10.0, metavar='S',
                        help='how long to measure each renderer (default: 10)')
    parser.add_argument('--compile', action='store_true',
                        help='also measure the compiled renderer, in turn, and report the ratio')
    parser.add_argument('--rough', action='store_true',
                        help='also measure the rough world, in turn, and report the ratio')


def check(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """End the program when the device is not available."""
    if args.device == 'cuda' and not torch.cuda.is_available():
        parser.error('argument --device: PyTorch finds no CUDA device here')


def measure(args: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Measure the renderer, with --compile also compiled; the result is ready for JSON."""
    device = args.device or ('cuda' if torch.cuda.is_available() else 'cpu')
    batch = args.batch or BATCH[device]
    with steps(console) as say:
        say('sampling scenes')
        worlds = {'plain': ClipWorld(args.size, args.frames, device)}
        plain = worlds['plain']
        if args.compile:
            worlds['compiled'] = ClipWorld(args.size, args.frames, device, plain.bank,
                                           compile=True)
        if args.rough:
            worlds |= {f'rough {name}': ClipWorld(
                args.size, args.frames, device, plain.bank, WorldConfig('rough'),
                compile=world.compile) for name, world in worlds.items()}
        with computing_with(1):
            plain.sample(SEED, batch)
            sampling = clock.measure({'sampling': Sampling(plain, batch)}, math.inf,
                                     min(args.seconds, SAMPLING_S))['sampling']['sample']
        ways = {}
        for name, world in worlds.items():
            say(f'{name}: first batch')
            ways[name] = Drawing(world, [_sent(world, SEED + n, batch) for n in range(BATCHES)])
        agreement = _agreement(ways['plain'].first[0], ways['compiled'].first[0]) \
            if args.compile else {}
        for way in ways.values():
            way.first.clear()
            way.step()
        if device == 'cuda':
            torch.cuda.reset_peak_memory_stats()
        say('measuring')
        taken = clock.measure(ways, math.inf, args.seconds)
    film = {name: float(np.median(times['film'])) for name, times in taken.items()}
    result = {
        'configuration': {'device': device, 'size': args.size, 'frames': args.frames,
                          'batch': batch, 'samples_per_pixel': plain.samples},
        'scenes_sampled_per_s_one_core': _rates(sampling, batch),
        'ways': {name: {'clips_per_s': _rates(times['film'], batch),
                        'batch_ms': round(film[name], 3),
                        'truth_ms': round(float(np.median(times['truth'])), 3),
                        'first_batch_s': round(ways[name].first_s, 2)}
                 for name, times in taken.items()}}
    if device == 'cuda':
        result['peak_memory_gb'] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
    if args.compile:
        result['compiled_over_plain'] = round(film['plain'] / film['compiled'], 3)
        result['agreement'] = agreement
    if args.rough:
        fastest = 'compiled' if args.compile else 'plain'
        result['rough_over_standard'] = round(film[fastest] / film[f'rough {fastest}'], 3)
    return result


def _sent(world: ClipWorld, seed: int, batch: int) -> Sample:
    """Return a sample whose scenes are on the device of the world."""
    sample = world.sample(seed, batch)
    there = {name: getattr(sample, name).to(world.device) for name in ('hold', 'place', 'outcome')}
    return replace(sample, scenes=sample.scenes.map(lambda v: v.to(world.device)), **there)


def _rates(times_ms: Sequence[float], batch: int) -> dict[str, Any]:
    """Return clips per second: median, 5th and 95th percentile of the runs."""
    low, median, high = np.percentile(1e3 * batch / np.array(times_ms), (5, 50, 95))
    return {'median': round(float(median), 2), 'p5': round(float(low), 2),
            'p95': round(float(high), 2), 'runs': len(times_ms)}


def _agreement(a: WorldClips, b: WorldClips) -> dict[str, float]:
    """Compare pictures and truth of the same scenes from two renderers, as shares of pixels."""
    same = {'grey_values_within_1': (a.frames.int() - b.frames.int()).abs() <= 1,
            'pixels_of_the_same_shape': a.truth.shape == b.truth.shape,
            'pixels_of_the_same_looming': torch.isclose(a.truth.looming, b.truth.looming,
                                                        1e-3, 1e-4)}
    return {name: round(alike.float().mean().item(), 6) for name, alike in same.items()}


def make_table(result: Mapping[str, Any]) -> Table:
    """Return the figures as a table."""
    c = result['configuration']
    rows = {name: {**way['clips_per_s'], **way}
            for name, way in result['ways'].items()}
    rows['sampling'] = result['scenes_sampled_per_s_one_core']
    more = ('clips with truth; sampling: scenes on one core' + (
        f'; compiled is {result["compiled_over_plain"]:.2f} times as fast'
        if 'compiled_over_plain' in result else '') + (
        f'; the rough world is {result["rough_over_standard"]:.2f} times as fast'
        if 'rough_over_standard' in result else ''))
    return clock.make_table(
        f'batches of {c["batch"]} clips, {c["frames"]} frames of {c["size"]} px on {c["device"]}',
        rows, ('median', 'p5', 'p95', 'runs', 'batch_ms', 'truth_ms', 'first_batch_s'), more,
        head='per second')
