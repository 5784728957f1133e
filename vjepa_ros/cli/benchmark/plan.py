# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Measure how long the action-conditioned planner takes for a plan, against its floor.

The world model has random weights, on which speed does not depend. plan: from the newest picture
to the actions, without the test against noise, with the goal encoded before; as the figures of
the published planner are meant. gap: that test. floor: the matrix products and attention of the
search alone, on random data. On CUDA times are those between marks of the device.
"""

from __future__ import annotations

import argparse
import logging
import math
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.attention import sdpa_kernel

from vjepa_ros.cli.argparse_ranges import check_ranges
from vjepa_ros.cli.benchmark.case import command
from vjepa_ros.cli.benchmark.clock import device_ms, statistics
from vjepa_ros.cli.benchmark.floor import BACKENDS, floor_dtype
from vjepa_ros.cli.benchmark.plan_floor import PlanFloor
from vjepa_ros.lab.report.host_info import accelerator, hardware, versions
from vjepa_ros.lab.report.json_file import write_json
from vjepa_ros.model.variants import VARIANTS
from vjepa_ros.planning.action_space import ArmSpace
from vjepa_ros.planning.energy_test import USUAL_GAP, GapConfig
from vjepa_ros.planning.goal_planner import Planner
from vjepa_ros.planning.plan import Plan
from vjepa_ros.planning.search import SearchConfig
from vjepa_ros.planning.weights import PUBLISHED, WorldConfig
from vjepa_ros.planning.world_model import WorldModel
from vjepa_ros.runtime.device import DeviceError, device_name
from vjepa_ros.runtime.session import SessionError

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
        """One plan from another picture than the last: milliseconds, and the plan."""
        planner = Planner(self.world, ArmSpace(), self.search, gap)
        planner.set_goal(self._pictures[-1])
        planner.encode_goal()
        self._turn += 1
        found: list[Plan] = []
        took = device_ms(self.world.choice.device, lambda: found.append(planner.plan(
            self._pictures[self._turn % 2], np.zeros(7), seed=self._turn)))
        return took, found[0]

    def measure(self, runs: int, attention: str, say: Any) -> dict[str, Any]:
        """Times of `runs` plans after one to warm up."""
        device = self.world.choice.device
        if device.type == 'cuda':
            torch.cuda.reset_peak_memory_stats(device)
        with nullcontext() if attention == 'default' else sdpa_kernel(BACKENDS[attention]):
            plans = [self.plan(NO_GAP) for _ in range(runs + 1)][1:]
            judged = [self.plan(USUAL_GAP)[1] for _ in range(2)][1]
        least = statistics([took for took, _ in plans])
        flops = plans[0][1].flops
        peak = torch.cuda.max_memory_allocated(device) if device.type == 'cuda' else None
        say(f'{self.world.batch} plans in one pass, attention {attention}: '
            f'{least["median"] / 1e3:.3f} s')
        return {
            'batch': self.world.batch, 'attention': attention, 'plan_ms': least,
            'encode_ms': statistics([1e3 * plan.seconds['encode'] for _, plan in plans]),
            'search_ms': statistics([1e3 * plan.seconds['search'] for _, plan in plans]),
            'gap_ms': round(1e3 * judged.seconds['gap'], 2),
            'plan_flops': flops, 'tflop_per_s': round(flops / least['median'] / 1e9, 1),
            'gap_flops': judged.flops - flops, 'peak_memory_bytes': peak}

    def floor(self, say: Any) -> dict[str, Any]:
        """The floor under the search at the present number of plans in a pass."""
        search, batch, device = self.search, self.world.batch, self.world.choice.device
        say('floor: trying kinds of attention')
        floor = PlanFloor(self.world.shapes, self.world.config.random_predictor[2], batch,
                          search.steps, device, floor_dtype(self.world.choice.dtype))
        passes = search.iterations * search.samples / batch

        def work() -> None:
            for _ in range(math.ceil(passes)):
                floor.one_pass()

        times = [device_ms(device, work) * passes / math.ceil(passes) for _ in range(3)]
        return {'batch': batch, 'attention': floor.attention, 'tried_ms': floor.tried_ms,
                'search_ms': statistics(times)}


def run(config: WorldConfig, search: SearchConfig, batches: Sequence[int],
        attention: Sequence[str] = ('default',), runs: int = 3, floor: bool = True,
        say: Any = lambda text: None) -> dict[str, Any]:
    """Measure; the result is ready for JSON.

    Parameters
    ----------
    config, search
        What to measure.
    batches
        Numbers of plans in one pass to try; 0 is what memory allows.
    attention
        Kinds of fused attention to try, 'default' or out of `BACKENDS`.
    runs
        Plans of each kind that are timed.
    floor
        Whether to measure the floor, at the number of plans in a pass that was fastest.
    say
        Told what is going on.

    Raises
    ------
    DeviceError, SessionError, ValueError
        When the world model does not load.
    """
    say('loading a world model with random weights')
    bench = Bench(config, search)
    world, tried = bench.world, []
    try:
        widest = min(world.batch, search.samples)
        for batch in batches:
            world.batch = min(batch, widest) if batch else widest
            tried += [bench.measure(runs, kind, say) for kind in attention]
        best = min(tried, key=lambda one: one['plan_ms']['median'])
        result = {
            'date': date.today().isoformat(),
            'hardware': {**hardware(), **accelerator(world.choice.device)},
            'versions': versions(), 'torch_threads': torch.get_num_threads(),
            'configuration': {
                'model_size': config.model_size, 'image_size': config.image_size,
                'predictor': list(config.random_predictor), 'samples': search.samples,
                'elites': search.elites, 'iterations': search.iterations, 'steps': search.steps,
                'device': str(world.choice.device),
                'device_name': device_name(world.choice.device),
                'precision': world.choice.precision, 'execution': world.kind,
                'weights': 'random'},
            **best, 'tried': tried}
        if floor:
            world.batch = best['batch']
            result['floor'] = bench.floor(say)
            result['ratio_to_floor'] = round(
                best['search_ms']['median'] / result['floor']['search_ms']['median'], 3)
    finally:
        world.close()
    return result


def lines(result: dict[str, Any]) -> list[str]:
    """The result in words."""
    told = result['configuration']
    text = [f"{told['samples']} plans x {told['iterations']} iterations x {told['steps']} steps, "
            f"encoder {told['model_size']} {told['image_size']} px, {told['device_name']}, "
            f"{told['precision']}, {told['execution']}",
            f"plan   {result['plan_ms']['median'] / 1e3:.3f} s (encode "
            f"{result['encode_ms']['median']:.1f} ms, search "
            f"{result['search_ms']['median'] / 1e3:.3f} s), {result['plan_flops'] / 1e15:.4g} "
            f"PFLOP, {result['tflop_per_s']:g} TFLOP/s, {result['batch']} plans in one pass",
            f"gap    {result['gap_ms']:.1f} ms"]
    if 'floor' in result:
        floor = result['floor']
        text.append(f"floor  {floor['search_ms']['median'] / 1e3:.3f} s of the search "
                    f"(attention {floor['attention']}); ratio {result['ratio_to_floor']:.2f}")
    if result['peak_memory_bytes']:
        text.append(f"memory {result['peak_memory_bytes'] / 2**30:.1f} GB at most")
    return text


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog='vjepa-ros benchmark-plan', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--model-size', choices=tuple(VARIANTS), default='giant',
                        help='size of the encoder (default: giant)')
    parser.add_argument('--image-size', type=int, default=256, metavar='PX',
                        help='side of its input (default: 256)')
    parser.add_argument('--predictor', default=','.join(map(str, PUBLISHED)),
                        metavar='WIDTH,DEPTH,HEADS',
                        help='size of the predictor (default: as published)')
    parser.add_argument('--samples', type=int, default=400, metavar='N',
                        help='plans of an iteration (default: 400)')
    parser.add_argument('--elites', type=int, default=10, metavar='N',
                        help='the best of them that count (default: 10)')
    parser.add_argument('--iterations', type=int, default=10, metavar='N',
                        help='iterations (default: 10)')
    parser.add_argument('--steps', type=int, default=2, metavar='N',
                        help='steps of a plan (default: 2)')
    parser.add_argument('--device', default='auto', help='auto, cpu, cuda, cuda:N or mps')
    parser.add_argument('--precision', choices=('auto', 'fp32', 'fp16', 'bf16'), default='auto',
                        help='number format (default: auto)')
    parser.add_argument('--batch', default='0', metavar='A,B',
                        help='plans in one pass to try; 0 is what memory allows (default: 0)')
    parser.add_argument('--attention', default='default', metavar='A,B',
                        help=f'kinds of attention to try: default, {", ".join(BACKENDS)}')
    parser.add_argument('--runs', type=int, default=3, metavar='N',
                        help='plans that are timed, after one to warm up (default: 3)')
    parser.add_argument('--no-floor', action='store_true', help='leave out the floor')
    parser.add_argument('--json', type=Path, metavar='FILE', help='write the figures')
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Command line: measure, print the figures, write the file."""
    words = list(sys.argv[2:] if argv is None else argv)
    parser = make_parser()
    args = parser.parse_args(words)
    kinds = args.attention.split(',')
    for kind in kinds:
        if kind not in ('default', *BACKENDS):
            parser.error(f"argument --attention: '{kind}' is not one of default, "
                         f'{", ".join(BACKENDS)}')
    check_ranges(parser, args, {'runs': (1, math.inf)})
    try:
        predictor = tuple(map(int, args.predictor.split(',')))
        batches = tuple(map(int, args.batch.split(',')))
        if len(predictor) != 3 or min(predictor) < 1 or min(batches) < 0:
            raise ValueError('--predictor takes three positive numbers, --batch numbers from 0')
        config = WorldConfig(
            model_size=args.model_size, weights='random', random_predictor=predictor,
            allow_random_weights=True, image_size=args.image_size, steps=args.steps,
            device=args.device, require_device=True, precision=args.precision)
        search = SearchConfig(args.samples, args.elites, args.iterations, args.steps)
    except ValueError as error:
        parser.error(str(error))
    logging.getLogger('vjepa_ros').setLevel(logging.ERROR)
    try:
        result = run(config, search, batches, kinds, args.runs, not args.no_floor,
                     lambda text: print(text, flush=True))
    except (DeviceError, SessionError, ValueError) as error:
        print(f'vjepa-ros benchmark-plan: {error}', file=sys.stderr)
        return 1
    print('\n'.join(lines(result)))
    if args.json:
        write_json(args.json, {'command': command('benchmark-plan', words), **result})
        print(f'written: {args.json}')
    return 0
