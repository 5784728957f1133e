# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Drive simulated robots through random episodes, without guard, with it, and with the planner.

The rendered camera feeds the perception, its assessments feed the guard, and the guard drives the
robot. The controller is blind: it follows its route into whatever stands there. An episode ends
with the first contact. Those of the set 'stop' also end when an undisturbed robot would reach its
goal; those of 'get_past', which all have a way around, at the goal or after three times that
time.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from vjepa_ros.cli.console import (
    add_model,
    end_like_ctrl_c,
    print_error,
    ros_problem,
    save,
    whole,
)
from vjepa_ros.guard.settings import GuardSettings
from vjepa_ros.lab.drive.loop import MODES, Outcome, Recipe, SETS, drive_all
from vjepa_ros.lab.drive.page import WORDS, figures, figures_of_goals, write_page
from vjepa_ros.lab.report.measurement import provenance, write_json
from vjepa_ros.lab.report.page import number
from vjepa_ros.lab.worker_pool import LoadError, usual_jobs
from vjepa_ros.lab.world.episodes.episode import EpisodeConfig
from vjepa_ros.model.checkpoint.files import WeightsError
from vjepa_ros.planning.obstacle_memory import LocalConfig
from vjepa_ros.ros.common.processes import ProcessFailed
from vjepa_ros.runtime.device import DeviceError, choose_device
from vjepa_ros.runtime.model import ModelConfig

HELD_OUT_SEED = 7_000      # seeds from here on were not used for tuning
TUNING_SEED = 1
MOST_JOBS = 16       # on a GPU, whose memory holds a context and the scenes of each
BATCH = {'cuda': 13, 'cpu': 1}
Outcomes = dict[str, list[Outcome]]


def report(outcomes: Outcomes, recipe: Recipe, about: Mapping[str, object]) -> dict[str, Any]:
    """Return the figures with their configuration, ready for JSON."""
    result = (figures if recipe.set == 'stop' else figures_of_goals)(outcomes)
    details = result.pop('details')
    result['configuration'] = {
        'set': recipe.set, 'seed': recipe.seed, 'episode': asdict(recipe.episode),
        'guard': asdict(GuardSettings()), 'twist': asdict(LocalConfig()),
        'width_px': recipe.width, 'model': recipe.engine.model_size, **about, 'details': details}
    return result


def lines(result: dict[str, Any]) -> list[str]:
    """Return the result as lines of text."""
    details, text = result['configuration']['details'], []
    if 'free_episodes' in details:
        text.append(f'{details["episodes"]} episodes, {details["free_episodes"]} of them without '
                    'collision when nothing guards the robot')
    for mode in (m for m in MODES if m in result):
        shown = dict(result[mode])
        if mode in details.get('progress_kept', ()):
            shown |= {name: details[name][mode]
                      for name in ('times_fewer_collisions', 'progress_kept')}
            shown['needless_stops'] = details[mode]['needless_stops_per_episode']
        figures_ = (f'{name.replace("_", " ")} {number(value, 4)}'
                    for name, value in shown.items())
        text.append(f'{WORDS[mode]:<18} {", ".join(figures_)}')
    return text


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog='vjepa-ros drive', description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--set', choices=tuple(SETS), default='stop',
                        help='episodes about stopping in time, or about getting to the goal '
                        '(default: stop)')
    parser.add_argument('--episodes', type=whole(), default=200, metavar='N',
                        help='how many (default: 200)')
    parser.add_argument('--seed', type=whole(0), default=HELD_OUT_SEED, metavar='S',
                        help=f'of the episodes; settings were tuned on seed {TUNING_SEED} '
                        f'(default: {HELD_OUT_SEED})')
    parser.add_argument('--first', type=whole(0), default=0, metavar='N',
                        help='number of the first episode (default: 0)')
    parser.add_argument('--modes', nargs='+', choices=MODES,
                        help='modes to drive (default: all); the set stop always runs '
                        'without_guard')
    parser.add_argument('--json', type=Path, metavar='FILE', help='write the figures, also while '
                        'it drives: then of what has ended, marked as unfinished')
    parser.add_argument('--page', type=Path, metavar='FILE',
                        help='write a page of the figures, and of the film and course of one '
                        'episode in the last mode')
    parser.add_argument('--follow', type=whole(0), metavar='N',
                        help='number of the episode on the page (default: the first)')
    add_model(parser)
    parser.add_argument('--jobs', type=whole(), metavar='N',
                        help='processes (default: one for each core)')
    parser.add_argument('--batch', type=whole(), metavar='N',
                        help='episodes at once in a process (default: 13 on a GPU, else 1)')
    parser.add_argument('--ros', action='store_true',
                        help='run the real nodes over DDS; time is simulated, as fast as real '
                        'time or slower, as the computer allows')
    return parser


def main(argv: Sequence[str]) -> int:
    """Run the command line; 0 when everything was driven and written."""
    parser = make_parser()
    args = parser.parse_args(argv)
    numbers = range(args.first, args.first + args.episodes)
    follow = args.first if args.follow is None else args.follow
    if follow not in numbers:
        parser.error(f'argument --follow: {follow} is not among the episodes {numbers[0]} to '
                     f'{numbers[-1]}')
    if args.ros and (args.jobs or args.batch):
        parser.error('argument --ros: does not go with --jobs and --batch')
    engine = ModelConfig(model_size=args.model_size, weights=args.weights, device=args.device,
                         require_device=args.device != 'auto')
    console = Console()
    with tempfile.TemporaryDirectory() as film:
        recipe = Recipe(args.seed, engine, follow=frozenset([follow] if args.page else []),
                        film=Path(film) if args.page else None, set=args.set)
        try:
            outcomes, result = _driven(args, recipe, numbers, argv, console)
        except (ProcessFailed, WeightsError, DeviceError, LoadError, OSError) as error:
            return print_error(f'vjepa-ros drive: {error}', console, args)
        told = lines(result)
        for line in told:
            console.print(line, highlight=False, soft_wrap=True)
        return save('--json', args.json, partial(write_json, result=result), console) | save(
            '--page', args.page, lambda path: write_page(path, outcomes, result, told, Path(film),
                                                         follow), console)


def _driven(args: argparse.Namespace, recipe: Recipe, numbers: range, argv: Sequence[str],
            console: Console) -> tuple[Outcomes, dict[str, Any]]:
    """Drive all episodes in all modes; also return their figures."""
    # What guarding costs is told by a drive without it.
    modes = [m for m in MODES if m in (args.modes or MODES)
             or (m == MODES[0] and args.set == 'stop')]
    begun, device = time.monotonic(), choose_device(args.device).device
    about = {**provenance('drive', argv, device), 'episodes': args.episodes, 'first': args.first}
    columns = (TextColumn('{task.description}'), BarColumn(), MofNCompleteColumn(),
               TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task('episodes', total=args.episodes * len(modes))
        advance = partial(progress.advance, bar)
        if args.ros:
            outcomes, recipe = _drive_over_dds(recipe, modes, numbers, advance)
            # Below 1 where this computer takes long; the result does not depend on it.
            about |= {'over_dds': True, 'real_time_factor': round(min(
                o.real_time_factor for rows in outcomes.values() for o in rows
                if o.real_time_factor is not None), 3)}
        else:
            outcomes = _drive(args, recipe, modes, numbers, device, about, advance)
    return outcomes, report(outcomes, recipe, {
        **about, 'minutes': round((time.monotonic() - begun) / 60, 1)})


def _drive(args: argparse.Namespace, recipe: Recipe, modes: Sequence[str], numbers: range,
           device: torch.device, about: dict[str, Any], advance: Any) -> Outcomes:
    on_gpu = device.type == 'cuda'
    batch = args.batch or min(BATCH['cuda' if on_gpu else 'cpu'], args.episodes)
    jobs = args.jobs or usual_jobs(len(modes) * -(-args.episodes // batch),
                                   MOST_JOBS * torch.cuda.device_count() if on_gpu else None)
    about |= {'processes': jobs, 'batch': batch}
    ended: Outcomes = {mode: [] for mode in modes}

    def done(mode: str, outcomes: list[Outcome]) -> None:
        advance(len(outcomes))
        ended[mode] += outcomes
        common = set.intersection(*({o.number for o in rows} for rows in ended.values()))
        if args.json and common:      # what ends a drive of hours loses the last batches only
            write_json(args.json, report(
                {mode: sorted((o for o in rows if o.number in common), key=lambda o: o.number)
                 for mode, rows in ended.items()}, recipe, {**about, 'unfinished': True}))

    return drive_all(recipe, modes, numbers, jobs, batch, done)


def _drive_over_dds(recipe: Recipe, modes: Sequence[str], numbers: range, advance: Any
                    ) -> tuple[Outcomes, Recipe]:
    from vjepa_ros.lab.drive.ros import SETTLE_S, drive_over_dds
    if problem := ros_problem():
        raise OSError(problem)
    recipe = replace(recipe, episode=EpisodeConfig(rate=10.0, settle_s=SETTLE_S))
    end_like_ctrl_c()
    return drive_over_dds(recipe, modes, numbers, Path('drive_logs'), advance), recipe
