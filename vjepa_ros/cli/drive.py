# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Drive simulated robots through random episodes, without guard, with it, and with the planner.

Episodes are rendered; the robot's camera feeds the perception, its assessments the velocity
guard, whose commands drive the robot. A controller that sees nothing follows its route and drives
into whatever stands there. An episode ends with the first contact, or when the robot would have
been at its goal.
"""

from __future__ import annotations

import argparse
import json
import shlex
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from vjepa_ros.cli.demo_processes import end_like_ctrl_c, ros_problem
from vjepa_ros.guard.settings import GuardSettings
from vjepa_ros.lab.drive.figures import figures
from vjepa_ros.lab.drive.jobs import BATCH, Recipe, drive_all, usual_jobs
from vjepa_ros.lab.drive.loop import MODES, LoopConfig, Outcome
from vjepa_ros.lab.drive.plot import WORDS, draw
from vjepa_ros.lab.drive.plot import write as write_film
from vjepa_ros.lab.report.measurement import accelerator, hardware, versions
from vjepa_ros.lab.world.episodes.episode import EpisodeConfig
from vjepa_ros.model.checkpoint.files import WeightsError
from vjepa_ros.model.variants import VARIANTS
from vjepa_ros.perception.types import Level
from vjepa_ros.ros.common.processes import ProcessFailed
from vjepa_ros.runtime.device import DeviceError, choose_device
from vjepa_ros.runtime.engine import EngineConfig

HELD_OUT_SEED = 7_000      # seeds from here on were not used to choose any setting
TUNING_SEED = 1


def guard_settings(words: Sequence[str]) -> GuardSettings:
    """Settings of the guard from words such as 'braking=2'.

    Raises
    ------
    ValueError
        Naming the word and what is allowed.
    """
    plain = GuardSettings()
    changes: dict[str, Any] = {}
    for word in words:
        name, _, value = word.partition('=')
        old = getattr(plain, name, None)
        if not isinstance(old, (bool, float, int)):
            raise ValueError(f"guard setting '{word}' is not known; give NAME=NUMBER of "
                             'vjepa_ros.guard.settings.GuardSettings')
        try:
            changes[name] = type(old)(float(value))
        except ValueError as error:
            raise ValueError(f"guard setting '{word}' needs a number after '='") from error
    return replace(plain, **changes)


def _progress(console: Console) -> Progress:
    return Progress(TextColumn('{task.description}'), BarColumn(), MofNCompleteColumn(),
                    TimeRemainingColumn(), console=console)


def run(recipe: Recipe, numbers: Sequence[int], modes: Sequence[str], jobs: int, batch: int,
        console: Console) -> dict[str, list[Outcome]]:
    """Drive with a progress bar."""
    with _progress(console) as progress:
        bar = progress.add_task('episodes', total=len(numbers) * len(modes))
        return drive_all(recipe, modes, numbers, jobs, batch,
                         lambda count: progress.advance(bar, count))


def report(outcomes: dict[str, list[Outcome]], recipe: Recipe, about: dict[str, Any],
           ) -> dict[str, Any]:
    """The figures with their configuration, ready for JSON."""
    result = figures(outcomes)
    details = result.pop('details')
    result['configuration'] = {
        'seed': recipe.seed, 'episode': asdict(recipe.episode),
        'guard': asdict(recipe.loop.guard), 'twist': asdict(recipe.loop.twist),
        'latency_pictures': recipe.loop.latency, 'odometry': recipe.loop.odometry,
        'width_px': recipe.loop.width, 'model': recipe.engine.model_size,
        **about, 'details': details}
    return result


def lines(result: dict[str, Any]) -> list[str]:
    """The result for people."""
    details = result['configuration']['details']
    text = [f'{details["episodes"]} episodes, {details["free_episodes"]} of them without '
            'collision when nothing guards the robot']
    for mode in (m for m in MODES if m in result):
        one = result[mode]
        line = (f'{WORDS[mode]:<18} {one["collisions_per_episode"]:.4f} collisions per episode, '
                f'progress {one["progress"]:.3f}')
        if mode in details['progress_kept']:
            fewer = details['times_fewer_collisions'][mode]
            kept = details['progress_kept'][mode]
            line += (f', {"none left" if fewer is None else f"{fewer:g} times fewer"}'
                     + ('' if kept is None else f', {kept:.1%} kept on free episodes')
                     + f', {details[mode]["needless_stops_per_episode"]:.2f} needless stops')
        text.append(line)
    return text


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog='vjepa-ros drive', description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--episodes', type=int, default=200, metavar='N',
                        help='how many (default: 200)')
    parser.add_argument('--seed', type=int, default=HELD_OUT_SEED, metavar='S',
                        help=f'of the episodes; settings were chosen on seed {TUNING_SEED} '
                        f'(default: {HELD_OUT_SEED})')
    parser.add_argument('--first', type=int, default=0, metavar='N',
                        help='number of the first episode (default: 0)')
    parser.add_argument('--modes', nargs='+', choices=MODES, default=list(MODES),
                        help='which (default: all); without_guard is always driven')
    parser.add_argument('--json', type=Path, metavar='FILE', help='where the figures go')
    parser.add_argument('--plot', type=Path, metavar='FILE',
                        help='picture of the figures and of one episode (default: beside the '
                        'JSON file)')
    parser.add_argument('--follow', type=int, nargs='+', default=[], metavar='N',
                        help='numbers of episodes whose course is kept; the first is plotted '
                        '(default: the first episode)')
    parser.add_argument('--film', type=Path, metavar='DIR',
                        help='folder for the pictures of the followed episodes')
    parser.add_argument('--video', type=Path, metavar='FILE',
                        help='video of the first followed episode in all modes, side by side; '
                        'needs --film')
    parser.add_argument('--device', default='auto', help='auto, cpu, cuda, cuda:N or mps: where '
                        'the model runs and the world is drawn')
    parser.add_argument('--jobs', type=int, metavar='N',
                        help='processes (default: one for each core)')
    parser.add_argument('--batch', type=int, metavar='N',
                        help='episodes at once in a process (default: 13 on a GPU, else 1)')
    parser.add_argument('--model-size', default='tiny', choices=tuple(VARIANTS))
    parser.add_argument('--weights', default='', metavar='FILE',
                        help='checkpoint of the encoder (default: that of the package)')
    parser.add_argument('--guard', nargs='+', default=[], metavar='NAME=NUMBER',
                        help='settings of the guard other than its defaults')
    parser.add_argument('--latency', type=int, metavar='N',
                        help='pictures after which what was seen can act (default: 1)')
    parser.add_argument('--no-odometry', action='store_true',
                        help='guard and planner are not told the speed of the robot')
    parser.add_argument('--ros', action='store_true',
                        help='run the loop over DDS with the real nodes; time is simulated and '
                        'goes as fast as real time, or slower where the computer is')
    parser.add_argument('--real-time', action='store_true',
                        help='with --ros: in real time, also where the computer is too slow')
    return parser


def _checked(parser: argparse.ArgumentParser, args: argparse.Namespace) -> Recipe:
    """What is to be driven; ends the program where an option is wrong."""
    for name, least in (('episodes', 1), ('first', 0), ('jobs', 1), ('batch', 1), ('latency', 1),
                        ('seed', 0)):
        value = getattr(args, name)
        if value is not None and value < least:
            parser.error(f'argument --{name}: {value} is out of range: at least {least}')
    for name in ('film', 'jobs', 'batch', 'latency') if args.ros else ('real_time',):
        if getattr(args, name):
            parser.error(f'argument --{name.replace("_", "-")}: '
                         + ('does not go with --ros' if args.ros else 'needs --ros'))
    if args.video and not args.film:
        parser.error('argument --video: needs --film, and does not go with --ros')
    try:
        guard = guard_settings(args.guard)
    except ValueError as error:
        parser.error(f'argument --guard: {error}')
    engine = EngineConfig(model_size=args.model_size, weights=args.weights, device=args.device,
                          require_device=args.device != 'auto')
    follow = frozenset(args.follow or [args.first])
    return Recipe(args.seed, engine, EpisodeConfig(),
                  LoopConfig(guard=guard, latency=args.latency or 1,
                             odometry=not args.no_odometry),
                  follow, args.film)


def main(argv: Sequence[str] | None = None) -> int:
    """Command line: drive, print the figures, write the files."""
    parser = make_parser()
    args = parser.parse_args(argv)
    recipe = _checked(parser, args)
    console = Console()
    modes = [m for m in MODES if m in args.modes or m == MODES[0]]
    numbers = range(args.first, args.first + args.episodes)
    begun = time.monotonic()
    try:
        device = choose_device(args.device).device
        if args.ros:
            return _main_ros(args, argv, recipe, numbers, modes, console)
        on_gpu = device.type == 'cuda'
        batch = args.batch or min(BATCH['cuda' if on_gpu else 'cpu'], args.episodes)
        tasks = len(modes) * -(-args.episodes // batch)
        jobs = args.jobs or usual_jobs(on_gpu, tasks)
        outcomes = run(recipe, numbers, modes, jobs, batch, console)
    except (WeightsError, DeviceError, OSError) as error:
        console.print(f'vjepa-ros drive: {error}', style='red', markup=False, highlight=False,
                      soft_wrap=True)
        return 1
    _tell(args, argv, recipe, outcomes, {'processes': jobs, 'batch': batch}, device, begun,
          console)
    return 0


def _main_ros(args: argparse.Namespace, argv: Sequence[str] | None, recipe: Recipe,
              numbers: Sequence[int], modes: Sequence[str], console: Console) -> int:
    """The same over DDS."""
    from vjepa_ros.lab.drive.ros import RosRun, slowness
    if ros_problem():
        console.print(f'vjepa-ros drive: {ros_problem()}', style='red')
        return 1
    begun = time.monotonic()
    run = RosRun(recipe.seed, real_time=args.real_time, odometry=not args.no_odometry,
                 node={'device': args.device, 'weights': args.weights,
                       'model_size': args.model_size},
                 guard=guard_parameters(args.guard, recipe.loop.guard))
    end_like_ctrl_c()
    try:
        with _progress(console) as progress:
            bar = progress.add_task('episodes over DDS', total=len(numbers) * len(modes))
            outcomes = run.drive(numbers, modes, Path('drive_logs'),
                                 lambda count: progress.advance(bar, count))
    except (ProcessFailed, OSError) as error:
        console.print(f'vjepa-ros drive: {error}', style='red', markup=False, highlight=False,
                      soft_wrap=True)
        return 1
    factors = [o.real_time_factor for rows in outcomes.values() for o in rows]
    driven = replace(recipe, episode=run.episode,
                     loop=replace(recipe.loop, odometry=run.told_speed))
    _tell(args, argv, driven, outcomes, {
        'over_dds': True, 'latency_pictures': None,
        'real_time_factor': round(min(factors), 3)},
        choose_device(args.device).device, begun, console)
    if hint := slowness(outcomes):
        console.print(hint, style='yellow', markup=False, highlight=False, soft_wrap=True)
    return 0


def guard_parameters(words: Sequence[str], settings: GuardSettings) -> dict[str, object]:
    """Parameters of the node for what words such as 'braking=2' have made of the settings."""
    found: dict[str, object] = {}
    for name in (word.partition('=')[0] for word in words):
        value = getattr(settings, name)
        group = name.partition('_')[0]
        found[name.replace('_', '.', 1) if group in ('release', 'override') else name] = (
            value.name.lower() if isinstance(value, Level) else value)
    return found


def _tell(args: argparse.Namespace, argv: Sequence[str] | None, recipe: Recipe,
          outcomes: dict[str, list[Outcome]], about: dict[str, Any], device: object,
          begun: float, console: Console) -> None:
    result = report(outcomes, recipe, {
        'date': date.today().isoformat(), 'command': shlex.join(
            ['vjepa-ros', 'drive', *(argv if argv is not None else [])]),
        'hardware': {**hardware(), **accelerator(torch.device(device))}, 'versions': versions(),
        'episodes': args.episodes, 'first': args.first, **about,
        'minutes': round((time.monotonic() - begun) / 60, 1)})
    for line in lines(result):
        console.print(line, highlight=False, soft_wrap=True)
    numbers = [o.number for o in outcomes[MODES[0]]]
    example = next((n for n in sorted(recipe.follow) if n in numbers), None)
    _write(args, result, outcomes, example, console)


def _write(args: argparse.Namespace, result: dict[str, Any],
           outcomes: dict[str, list[Outcome]], example: int | None, console: Console) -> None:
    plot = args.plot or (args.json.with_suffix('.png') if args.json else None)
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(result, indent=1) + '\n', encoding='utf-8')
    if plot:
        plot.parent.mkdir(parents=True, exist_ok=True)
        shown = {**result, 'details': result['configuration']['details']}
        draw(outcomes, shown, example).savefig(plot)
    video = None
    if args.video and example is not None:
        rate = result['configuration']['episode']['rate']
        video = write_film(args.video, args.film, list(outcomes), example, rate)
    for path in (args.json, plot, args.film, video):
        if path:
            console.print(f'wrote {path}', highlight=False)
