# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Measure how long the action-conditioned planner takes for a plan, against its floor.

The world model has random weights; speed does not depend on them. plan: from the newest picture
to the actions, with the goal encoded beforehand and without the test against noise, as in the
published figures. gap: that test. floor: only the matrix products and attention of the search, on
random data. On CUDA, times are taken between events of the device. With --base: the predictor of
twists, see `base_plan`; with --local: local_planner, see `local_plan`.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from vjepa_ros.cli.benchmark import base_plan, clock, local_plan
from vjepa_ros.cli.benchmark.baselines import BACKENDS, PlanFloor, attention, floor_dtype
from vjepa_ros.cli.benchmark.clock import device_ms, statistics
from vjepa_ros.cli.console import steps, whole
from vjepa_ros.model.variants import VARIANTS
from vjepa_ros.planning.action_space import ArmSpace
from vjepa_ros.planning.energy_test import GapConfig, USUAL_GAP
from vjepa_ros.planning.goal_planner import Plan, Planner
from vjepa_ros.planning.search import SearchConfig
from vjepa_ros.planning.world_model import PUBLISHED, WorldConfig, WorldModel
from vjepa_ros.runtime.device import DeviceError, device_name
from vjepa_ros.runtime.session import SessionError

PROBLEMS = (DeviceError, SessionError, ValueError)
NO_GAP = GapConfig(repetitions=0)
SIDE = (480, 640)  # of the random pictures [px]


class Bench:
    """A world model with random weights, and random pictures for it."""

    def __init__(self, config: WorldConfig, search: SearchConfig) -> None:
        self.world = WorldModel.load(config)
        self.search = search
        random = np.random.default_rng(0)
        self._pictures = [random.integers(0, 256, (*SIDE, 3), dtype=np.uint8) for _ in range(3)]
        self._turn = 0

    def plan(self, gap: GapConfig) -> tuple[float, Plan]:
        """Plan once, from another picture than the last; milliseconds, and the plan."""
        planner = Planner(self.world, ArmSpace(), self.search, gap)
        planner.set_goal(self._pictures[-1])
        planner.encode_goal()
        self._turn += 1
        found: list[Plan] = []
        took = device_ms(self.world.choice.device, lambda: found.append(planner.plan(
            self._pictures[self._turn % 2], np.zeros(7), seed=self._turn)))
        return took, found[0]

    def measure(self, runs: int, kind: str) -> dict[str, Any]:
        """Measure `runs` plans after one to warm up."""
        device = self.world.choice.device
        if device.type == 'cuda':
            torch.cuda.reset_peak_memory_stats(device)
        with attention(kind):
            plans = [self.plan(NO_GAP) for _ in range(runs + 1)][1:]
            judged = [self.plan(USUAL_GAP)[1] for _ in range(2)][1]
        least = statistics([took for took, _ in plans])
        shapes, search = self.world.shapes, self.search
        rollouts = shapes.rollout_flops(search.steps)
        flops = shapes.encode_flops() + search.samples * search.iterations * rollouts
        gap_flops = USUAL_GAP.repetitions * (
            2 * shapes.encode_flops() + (1 + USUAL_GAP.plans) * rollouts)
        peak = torch.cuda.max_memory_allocated(device) if device.type == 'cuda' else None
        return {
            'batch': self.world.batch, 'attention': kind, 'plan_ms': least,
            'encode_ms': statistics([1e3 * plan.seconds['encode'] for _, plan in plans]),
            'search_ms': statistics([1e3 * plan.seconds['search'] for _, plan in plans]),
            'gap_ms': round(1e3 * judged.seconds['gap'], 2),
            'plan_flops': flops, 'tflop_per_s': round(flops / least['median'] / 1e9, 1),
            'gap_flops': gap_flops, 'peak_memory_bytes': peak}

    def floor(self) -> dict[str, Any]:
        """Measure the floor of the search at the current number of plans in a pass."""
        search, batch, device = self.search, self.world.batch, self.world.choice.device
        floor = PlanFloor(self.world.shapes, self.world.config.random_predictor[2], batch,
                          search.steps, device, floor_dtype(self.world.choice.dtype))
        passes = search.iterations * search.samples / batch

        def work() -> None:
            for _ in range(math.ceil(passes)):
                floor.one_pass()

        times = [device_ms(device, work) * passes / math.ceil(passes) for _ in range(3)]
        return {'batch': batch, 'attention': floor.attention, 'tried_ms': floor.tried_ms,
                'search_ms': statistics(times)}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subject."""
    parser.add_argument('--local', action='store_true', help='a plan of local_planner with '
                        '--samples sampled sequences (default: 64)')
    parser.add_argument('--base', action='store_true', help='a plan of a base, by the predictor '
                        'of twists: --samples plans (default: 64) of --steps steps (default: 6)')
    parser.add_argument('--model-size', choices=tuple(VARIANTS),
                        help='size of the encoder (default: giant; with --base tiny)')
    parser.add_argument('--image-size', type=int, default=256, metavar='PX',
                        help='side of its input (default: 256)')
    parser.add_argument('--predictor', default=','.join(map(str, PUBLISHED)),
                        metavar='WIDTH,DEPTH,HEADS',
                        help='size of the predictor (default: as published)')
    parser.add_argument('--samples', type=int, metavar='N',
                        help='plans of an iteration (default: 400)')
    parser.add_argument('--elites', type=int, default=10, metavar='N',
                        help='the best of them that count (default: 10)')
    parser.add_argument('--iterations', type=int, default=10, metavar='N',
                        help='iterations (default: 10)')
    parser.add_argument('--steps', type=int, metavar='N',
                        help='steps of a plan (default: 2)')
    parser.add_argument('--device', default='auto', help='auto, cpu, cuda, cuda:N or mps')
    parser.add_argument('--precision', choices=('auto', 'fp32', 'fp16', 'bf16'), default='auto',
                        help='number format (default: auto)')
    parser.add_argument('--batch', default='0', metavar='A,B',
                        help='plans in one pass to try; 0 is what memory allows (default: 0)')
    parser.add_argument('--attention', default='default', metavar='A,B',
                        help=f'kinds of attention to try: default, {", ".join(BACKENDS)}')
    parser.add_argument('--runs', type=whole(), default=3, metavar='N',
                        help='plans that are timed, after one to warm up (default: 3)')
    parser.add_argument('--no-floor', action='store_true', help='leave out the floor')


def check(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """End the program for values that the planner refuses; fill in defaults."""
    usual = ('tiny', 64, 6) if args.base or args.local else ('giant', 400, 2)
    for name, value in zip(('model_size', 'samples', 'steps'), usual, strict=True):
        if getattr(args, name) is None:
            setattr(args, name, value)
    try:
        if args.local:
            return
        if args.base:
            base_plan.check(args.image_size, (args.samples, args.steps))
            return
        _configs(args)
        if min(map(int, args.batch.split(','))) < 0:
            raise ValueError(f"--batch is '{args.batch}', but takes numbers from 0")
        for kind in args.attention.split(','):
            if kind not in ('default', *BACKENDS):
                raise ValueError(f"--attention: '{kind}' is not one of default, "
                                 f'{", ".join(BACKENDS)}')
    except ValueError as error:
        parser.error(str(error))


def _configs(args: argparse.Namespace) -> tuple[WorldConfig, SearchConfig]:
    predictor = tuple(map(int, args.predictor.split(',')))
    if len(predictor) != 3 or min(predictor) < 1:
        raise ValueError(f"--predictor is '{args.predictor}', but takes three positive numbers")
    world = WorldConfig(
        model_size=args.model_size, weights='random', random_predictor=predictor,
        allow_random_weights=True, image_size=args.image_size, steps=args.steps,
        device=args.device, require_device=True, precision=args.precision)
    return world, SearchConfig(args.samples, args.elites, args.iterations, args.steps)


def measure(args: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Measure every batch size with every kind of attention, and the floor.

    Raises
    ------
    DeviceError, SessionError, ValueError
        When the world model does not load.
    """
    if args.local:
        return local_plan.measure(args.samples, args.runs)
    if args.base:
        return base_plan.measure(args.model_size, args.image_size, (args.samples, args.steps),
                                 args.runs, (args.device, args.precision))
    config, search = _configs(args)
    with steps(console) as say:
        say('loading a world model with random weights')
        bench = Bench(config, search)
        world = bench.world
        try:
            return {'configuration': _configuration(config, search, world),
                    **_measured(bench, args, say)}
        finally:
            world.close()


def _measured(bench: Bench, args: argparse.Namespace, say: Callable[[str], None]
              ) -> dict[str, Any]:
    world, tried = bench.world, []
    widest = min(world.batch, bench.search.samples)
    for batch in map(int, args.batch.split(',')):
        world.batch = min(batch, widest) if batch else widest
        for kind in args.attention.split(','):
            say(f'{world.batch} plans in one pass, attention {kind}')
            tried.append(bench.measure(args.runs, kind))
    best = min(tried, key=lambda one: one['plan_ms']['median'])
    if args.no_floor:
        return {**best, 'tried': tried}
    say('floor')
    world.batch = best['batch']
    floor = bench.floor()
    ratio = best['search_ms']['median'] / floor['search_ms']['median']
    return {**best, 'tried': tried, 'floor': floor, 'ratio_to_floor': round(ratio, 3)}


def _configuration(config: WorldConfig, search: SearchConfig, world: WorldModel
                   ) -> dict[str, Any]:
    return {'model_size': config.model_size, 'image_size': config.image_size,
            'predictor': list(config.random_predictor), 'samples': search.samples,
            'elites': search.elites, 'iterations': search.iterations, 'steps': search.steps,
            'device': str(world.choice.device), 'device_name': device_name(world.choice.device),
            'precision': world.choice.precision, 'execution': world.kind, 'weights': 'random'}


def make_table(result: Mapping[str, Any]) -> Table:
    """Return the figures as a table."""
    if 'local_ms' in result:
        return local_plan.make_table(result)
    if 'see_ms' in result:
        return base_plan.make_table(result)
    c = result['configuration']
    rows = {name: result[f'{name}_ms'] for name in ('plan', 'encode', 'search')}
    rows['test against noise'] = {'median': result['gap_ms']}
    caption = (f'{result["plan_flops"] / 1e15:.4g} PFLOP, {result["tflop_per_s"]:g} TFLOP/s, '
               f'{result["batch"]} plans in one pass, attention {result["attention"]}')
    if 'floor' in result:
        rows['floor of the search'] = result['floor']['search_ms']
        caption += f'; the search takes {result["ratio_to_floor"]:.2f} times its floor'
    if result['peak_memory_bytes']:
        caption += f'; {result["peak_memory_bytes"] / 2**30:.1f} GB at most'
    return clock.make_table(
        f'{c["samples"]} plans x {c["iterations"]} iterations x {c["steps"]} steps, encoder '
        f'{c["model_size"]} {c["image_size"]} px, {c["device_name"]}, {c["precision"]}, '
        f'{c["execution"]}', rows, ('median', 'p95', 'p99', 'min', 'runs'), caption)
