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
import importlib.util
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from vjepa_ros.cli.console import add_model, end_like_ctrl_c, print_error, ros_problem, save, whole
from vjepa_ros.guard.settings import GuardSettings
from vjepa_ros.lab.drive.episode_page import write_page
from vjepa_ros.lab.drive.figures import (
    WORDS,
    draw,
    figures,
    figures_of_goals,
    write_recordings,
)
from vjepa_ros.lab.drive.figures import write as write_film
from vjepa_ros.lab.drive.jobs import BATCH, MOST_JOBS, Recipe, SETS, drive_all
from vjepa_ros.lab.drive.loop import LoopConfig, MODES, Outcome
from vjepa_ros.lab.report.bag_writer import NEEDS
from vjepa_ros.lab.report.measurement import accelerator, hardware, versions, write_json
from vjepa_ros.lab.worker_pool import usual_jobs
from vjepa_ros.lab.world.episodes.episode import EpisodeConfig
from vjepa_ros.model.checkpoint.files import WeightsError
from vjepa_ros.perception.types import Level
from vjepa_ros.ros.common.processes import ProcessFailed
from vjepa_ros.runtime.device import DeviceError, choose_device
from vjepa_ros.runtime.engine import EngineConfig

HELD_OUT_SEED = 7_000      # seeds from here on were not used for tuning
TUNING_SEED = 1
Outcomes = dict[str, list[Outcome]]
# What was driven, the outcomes by mode, more of the configuration, and a remark or ''.
Driven = tuple[Recipe, Outcomes, dict[str, Any], str]


def guard_settings(words: Sequence[str]) -> GuardSettings:
    """Read settings of the guard from words such as 'braking=2'."""
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


def report(outcomes: Outcomes, recipe: Recipe, about: dict[str, Any]) -> dict[str, Any]:
    """Return the figures with their configuration, ready for JSON."""
    result = (figures if recipe.set == 'stop' else figures_of_goals)(outcomes)
    details = result.pop('details')
    result['configuration'] = {
        'set': recipe.set, 'seed': recipe.seed, 'episode': asdict(recipe.episode),
        'guard': asdict(recipe.loop.guard), 'twist': asdict(recipe.loop.twist),
        'latency_pictures': recipe.loop.latency, 'odometry': recipe.loop.odometry,
        'width_px': recipe.loop.width, 'model': recipe.engine.model_size,
        **about, 'details': details}
    return result


def lines(result: dict[str, Any]) -> list[str]:
    """Return the result as lines of text."""
    details = result['configuration']['details']
    if 'progress_kept' not in result:
        return [f'{WORDS[mode]:<19} success {one["success"]:.3f}, SPL {one["spl"]:.3f}, '
                f'{_shown(one["collisions_per_km"], "{:.1f}")} collisions per km, '
                f'{one["stops_per_episode"]:.2f} stops per episode, '
                f'{_shown(one["plan_ms"], "{:.1f} ms")} to plan'
                for mode, one in result.items() if mode in WORDS]
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


def _shown(value: float | None, how: str) -> str:
    return '-' if value is None else how.format(value)


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
    parser.add_argument('--plot', type=Path, metavar='FILE',
                        help='plot of the figures and of one episode (default: beside the JSON '
                        'file)')
    parser.add_argument('--follow', type=int, nargs='+', default=[], metavar='N',
                        help='numbers of episodes to record; the first is plotted (default: the '
                        'first episode)')
    parser.add_argument('--film', type=Path, metavar='DIR',
                        help='folder for the images of the recorded episodes')
    parser.add_argument('--video', type=Path, metavar='FILE',
                        help='video of the first recorded episode in all modes, side by side; '
                        'needs --film')
    parser.add_argument('--mcap', type=Path, metavar='DIR',
                        help='folder for an MCAP file of each recorded episode in each mode, for '
                        'Foxglove (config/foxglove.json); its pictures need --film')
    parser.add_argument('--page', type=Path, metavar='FILE',
                        help='page and film of the first episode with the planner: camera, '
                        'view from above; needs --ros, --film and --set get_past')
    add_model(parser)
    parser.add_argument('--jobs', type=whole(), metavar='N',
                        help='processes (default: one for each core)')
    parser.add_argument('--batch', type=whole(), metavar='N',
                        help='episodes at once in a process (default: 13 on a GPU, else 1)')
    parser.add_argument('--guard', nargs='+', default=[], metavar='NAME=NUMBER',
                        help='settings of the guard that differ from its defaults')
    parser.add_argument('--latency', type=whole(), metavar='N',
                        help='images after which an assessment can act (default: 1)')
    parser.add_argument('--no-odometry', action='store_true',
                        help='run guard and planner without the speed of the robot')
    parser.add_argument('--ros', action='store_true',
                        help='run the real nodes over DDS; time is simulated, as fast as real '
                        'time or slower, as the computer allows')
    parser.add_argument('--real-time', action='store_true',
                        help='with --ros: in real time, even if the computer is too slow')
    return parser


def _ros_conflict(args: argparse.Namespace) -> str:
    """Return which option does not go with the real nodes, or without them; ''."""
    for name in ('jobs', 'batch', 'latency') if args.ros else ('real_time',):
        if getattr(args, name):
            return (f'argument --{name.replace("_", "-")}: '
                    + ('does not go with --ros' if args.ros else 'needs --ros'))
    if args.ros and args.set == 'get_past' and (
            args.no_odometry or importlib.util.find_spec('nav_msgs') is None):
        return 'argument --ros: goals need odometry (nav_msgs, and no --no-odometry)'
    if args.page and not (args.ros and args.film and args.set == 'get_past'):
        return 'argument --page: needs --ros, --film and --set get_past'
    return ''


def _checked(parser: argparse.ArgumentParser, args: argparse.Namespace) -> Recipe:
    """Return what to drive; wrong options end the program."""
    if problem := _ros_conflict(args):
        parser.error(problem)
    numbers = _numbers(args)
    if outside := [number for number in args.follow if number not in numbers]:
        parser.error(f'argument --follow: {outside[0]} is not among the episodes {numbers[0]} to '
                     f'{numbers[-1]}')
    if args.video and not args.film:
        parser.error('argument --video: needs --film')
    if args.mcap and importlib.util.find_spec('rosbags') is None:
        parser.error(f'argument --mcap: {NEEDS}')
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
                  follow, args.film, args.set)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line: drive, print the figures and write the files."""
    parser = make_parser()
    args = parser.parse_args(argv)
    recipe, console, begun = _checked(parser, args), Console(), time.monotonic()
    # What guarding costs is told by a drive without it.
    modes = [m for m in MODES if m in (args.modes or MODES)
             or (m == MODES[0] and args.set == 'stop')]
    try:
        device = choose_device(args.device).device
        where = {'date': date.today().isoformat(),
                 'command': shlex.join(['vjepa-ros', 'drive', *(argv or [])]),
                 'hardware': {**hardware(), **accelerator(device)}, 'versions': versions(),
                 'episodes': args.episodes, 'first': args.first}
        driven, outcomes, about, hint = (
            _drive_over_dds(args, recipe, modes, console) if args.ros
            else _drive(args, recipe, modes, device, console, where))
    except (ProcessFailed, WeightsError, DeviceError, OSError) as error:
        return print_error(f'vjepa-ros drive: {error}', console, args)
    result = report(outcomes, driven, {
        **where, **about, 'minutes': round((time.monotonic() - begun) / 60, 1)})
    for line in lines(result):
        console.print(line, highlight=False, soft_wrap=True)
    failed = _write(args, result, outcomes, console)
    if hint:
        console.print(hint, style='yellow', markup=False, highlight=False, soft_wrap=True)
    return failed


def _drive(args: argparse.Namespace, recipe: Recipe, modes: Sequence[str], device: torch.device,
           console: Console, where: Mapping[str, object]) -> Driven:
    on_gpu = device.type == 'cuda'
    batch = args.batch or min(BATCH['cuda' if on_gpu else 'cpu'], args.episodes)
    jobs = args.jobs or usual_jobs(len(modes) * -(-args.episodes // batch),
                                   MOST_JOBS * torch.cuda.device_count() if on_gpu else None)
    ended: Outcomes = {mode: [] for mode in modes}
    with _progress(console) as progress:
        bar = progress.add_task('episodes', total=args.episodes * len(modes))

        def done(mode: str, outcomes: list[Outcome]) -> None:
            progress.advance(bar, len(outcomes))
            ended[mode] += outcomes
            numbers = set.intersection(*({o.number for o in rows} for rows in ended.values()))
            if args.json and numbers:      # what ends a drive of hours loses the last batches only
                write_json(args.json, report(
                    {mode: sorted((o for o in rows if o.number in numbers),
                                  key=lambda o: o.number) for mode, rows in ended.items()},
                    recipe, {**where, 'unfinished': True}))

        outcomes = drive_all(recipe, modes, _numbers(args), jobs, batch, done)
    return recipe, outcomes, {'processes': jobs, 'batch': batch}, ''


def _drive_over_dds(args: argparse.Namespace, recipe: Recipe, modes: Sequence[str],
                    console: Console) -> Driven:
    from vjepa_ros.lab.drive.ros import RosRun, slowness
    if ros_problem():
        raise OSError(ros_problem())
    run = RosRun(recipe.seed, recipe.set, film=args.film, real_time=args.real_time,
                 odometry=not args.no_odometry,
                 node={'device': args.device, 'weights': args.weights,
                       'model_size': args.model_size},
                 guard=guard_parameters(args.guard, recipe.loop.guard),
                 planner={})
    end_like_ctrl_c()
    with _progress(console) as progress:
        bar = progress.add_task('episodes over DDS', total=args.episodes * len(modes))
        outcomes = run.drive(_numbers(args), modes, Path('drive_logs'),
                             lambda count: progress.advance(bar, count))
    factors = [o.real_time_factor for rows in outcomes.values() for o in rows
               if o.real_time_factor is not None]
    driven = replace(recipe, episode=run.episode,
                     loop=replace(recipe.loop, odometry=run.told_speed))
    about = {'over_dds': True, 'latency_pictures': None,
             'real_time_factor': round(min(factors), 3)}
    return driven, outcomes, about, slowness(outcomes)


def _numbers(args: argparse.Namespace) -> range:
    return range(args.first, args.first + args.episodes)


def guard_parameters(words: Sequence[str], settings: GuardSettings) -> dict[str, object]:
    """Return the parameters of the guard node for words such as 'braking=2'."""
    found: dict[str, object] = {}
    for name in (word.partition('=')[0] for word in words):
        value = getattr(settings, name)
        group = name.partition('_')[0]
        found[name.replace('_', '.', 1) if group in ('release', 'override') else name] = (
            value.name.lower() if isinstance(value, Level) else value)
    return found


def _write(args: argparse.Namespace, result: dict[str, Any], outcomes: Outcomes,
           console: Console) -> int:
    example, rate = min(args.follow or [args.first]), result['configuration']['episode']['rate']
    plot = args.plot or (args.json.with_suffix('.png') if args.json else None)
    shown = {**result, 'details': result['configuration']['details']}
    driven = outcomes.get('with_planner', []) if args.page else []
    failed = (
        save('--json', args.json, partial(write_json, result=result), console)
        | save('--plot', plot, lambda path: draw(outcomes, shown, example).savefig(path), console)
        | save('--video', args.video, lambda path: [
            write_film(path, args.film, list(outcomes), example, rate)], console)
        | save('--mcap', args.mcap, lambda path: write_recordings(path, args.film, outcomes),
               console)
        | save('--page', args.page if driven else None, lambda path: write_page(
            path, args.film / 'with_planner' / f'{driven[0].number:04d}', driven[0],
            result['with_planner'], rate, result['configuration']['command']), console))
    if args.film:
        console.print(f'wrote {args.film}', highlight=False)
    return failed
