# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Measure how accurate the perception is, on recordings with labels and on rendered clips."""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from vjepa_ros import __version__
from vjepa_ros.cli.console import print_error, real
from vjepa_ros.lab.evaluation import document as evaluate_document
from vjepa_ros.lab.evaluation import world as evaluate_world
from vjepa_ros.lab.evaluation.figures import assemble
from vjepa_ros.lab.evaluation.pictures import Picture, pictures_of, world_failures
from vjepa_ros.lab.evaluation.recording_replay import (
    Item,
    MARKS,
    METHODS,
    Played,
    Setup,
    open_item,
    play,
    read_items,
    remade,
)
from vjepa_ros.lab.evaluation.world import WorldPart, WorldRun
from vjepa_ros.lab.report.live_view import log_to
from vjepa_ros.lab.report.measurement import fill, hardware, versions
from vjepa_ros.lab.report.report import json_safe
from vjepa_ros.lab.worker_pool import WorkerPool, usual_jobs
from vjepa_ros.lab.world.rendering.render import drawing_device
from vjepa_ros.looming.gyroscope import JITTER_S
from vjepa_ros.model.checkpoint.load import WeightsError
from vjepa_ros.model.variants import VARIANTS
from vjepa_ros.perception.settings import Settings, TrackConfig
from vjepa_ros.runtime.device import DeviceError, choose_device, device_name
from vjepa_ros.runtime.engine import Engine, EngineConfig
from vjepa_ros.sources import SourceError

NO_HEADS = ('the model has no learned heads (none are bundled for this size, and neither '
            '--weights nor --heads names a file with heads)')
MOST_ON_GPU = 6     # processes, whose contexts and scenes share its memory
NOT_ASKED = 'not requested'
WORLD_KEYS = {'world': 'standard', 'rough': 'rough'}     # names of the worlds by key of the report


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    marks = '\n'.join(f'  PATH::{m:<9} {text}' for m, text in MARKS.items() if m)
    parser = argparse.ArgumentParser(
        prog='vjepa-ros evaluate', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog='The truth of a recording without labels can be given after its path:\n'
               + marks)
    parser.add_argument('paths', nargs='*', metavar='PATH[::MARK]', help='recording folder '
                        '(frames/ and labels.csv), image folder, video, rosbag2')
    parser.add_argument('--world', type=int, default=0, metavar='N',
                        help='also evaluate on N held-out rendered clips (2000 in the documents)')
    parser.add_argument('--rough', type=int, default=0, metavar='N',
                        help='also evaluate on N held-out clips of the rough world, see '
                        '`vjepa-ros train --world`')
    parser.add_argument('--method', nargs='+', choices=METHODS,
                        help='methods to run (default: all that the model supports)')
    parser.add_argument('--json', type=Path, metavar='FILE', help='write all figures')
    parser.add_argument('--html', type=Path, metavar='FILE', help='write a page with plots and '
                        'overlays')
    parser.add_argument('--document', type=Path, metavar='FILE', help='write tables, plots and '
                        f'failures between the marks <!-- {evaluate_document.BLOCK}:begin --> and '
                        f'<!-- {evaluate_document.BLOCK}:end --> of a Markdown file')
    parser.add_argument('--jobs', type=int, default=0, metavar='N', help='processes for '
                        'recordings and rendered clips; 0: one for each core with work, at most '
                        f'{MOST_ON_GPU} on a GPU')
    parser.add_argument('--model-size', default='tiny', choices=tuple(VARIANTS))
    parser.add_argument('--weights', default='', metavar='FILE', help='safetensors file of the '
                        'encoder, with or without heads (default: the bundled one)')
    parser.add_argument('--heads', default='', metavar='FILE', help='safetensors file of heads')
    parser.add_argument('--num-frames', type=int, default=EngineConfig.num_frames, metavar='N')
    parser.add_argument('--image-size', type=int, default=EngineConfig.image_size, metavar='PX')
    parser.add_argument('--device', default='auto', help='for the model and the '
                        'renderer: auto, cpu, cuda, cuda:N or mps')
    parser.add_argument('--imu', action='store_true', help='use the angular rates of recordings '
                        '(imu.csv, or motion.csv) and rendered cameras as a gyroscope; looming is '
                        'measured on the host')
    parser.add_argument('--imu-offset', type=float, default=0.0, metavar='S', help='added to the '
                        'stamps of the rates; positive where pictures are stamped late')
    parser.add_argument('--imu-jitter', type=float, default=JITTER_S, metavar='S', help='standard '
                        f'error of the stamps of pictures (default: {JITTER_S})')
    parser.add_argument('--topic', metavar='TOPIC', help='image topic of bags')
    parser.add_argument('--rate', type=real(0.01, 1000), metavar='HZ', help='rate at which '
                        'pictures without stamps were taken; others are thinned to it')
    return parser


def check(args: argparse.Namespace) -> None:
    """Refuse impossible options before anything is loaded."""
    if not any((args.paths, args.world, args.rough)):
        raise ValueError('there is nothing to evaluate; give recordings, or request rendered '
                         'clips with --world N or --rough N')
    if not (math.isfinite(args.imu_offset) and 0 <= args.imu_jitter < 1):
        raise ValueError(f'--imu-offset is {args.imu_offset}, --imu-jitter {args.imu_jitter}; '
                         'must be a number, and 0 or more and below 1')
    for name in ('world', 'rough', 'jobs'):
        if getattr(args, name) < 0:
            raise ValueError(f'--{name} is {getattr(args, name)}, must be at least 0')
    if args.document and not args.document.is_file():
        raise ValueError(f"--document '{args.document}' is not a file; create it with the two "
                         f'marks of the block {evaluate_document.BLOCK}')
    if args.document:
        try:
            fill(args.document.read_text(encoding='utf-8'), evaluate_document.BLOCK, '')
        except ValueError as error:
            raise ValueError(f"--document '{args.document}' cannot be filled: {error}; add both "
                             'marks') from error


def run(args: argparse.Namespace, console: Console, command: str) -> int:
    """Evaluate and write the requested files; return the exit code."""
    start = time.monotonic()
    items = read_items(args.paths)
    engine, missing = load_engine(args)
    methods = tuple(m for m in METHODS if m not in missing)
    setup = Setup(methods, Settings(), TrackConfig(
        num_frames=args.num_frames, image_size=args.image_size,
        geometry='host' if args.imu else TrackConfig.geometry), engine, args.topic,
        imu=(args.imu_offset, args.imu_jitter), use_imu=args.imu, rate=args.rate)
    with Progress(TextColumn('{task.description}'), BarColumn(), MofNCompleteColumn(),
                  TimeRemainingColumn(), console=console) as progress:
        bar = progress.add_task('recordings', total=frame_count(items, setup),
                                visible=bool(items))
        setup = replace(setup, tick=lambda: progress.advance(bar))
        with WorkerPool(process_count(args, items), remade(setup), setup) as workers:
            played, parts = play_all(items, args, workers, progress, bar)
            processes = workers.count
        worlds = {key: evaluate_world.gathered(own) for key, name in WORLD_KEYS.items()
                  if (own := [part for part in parts if part.world == name])}
        report = assemble(played, methods[-1], missing,
                          {key: world.figures for key, world in worlds.items()},
                          configuration(args, setup, items, command)
                          | {'processes': processes,
                             'minutes': round((time.monotonic() - start) / 60, 1)})
        pictures = {key: world_failures(world, methods[-1]) for key, world in worlds.items()}
        if args.html or args.document:
            drawn = progress.add_task('pictures', total=len(played))
            for each in played:
                name = each.item.name
                pictures[name] = pictures_of(each, setup, methods[-1],
                                             report['sequences'][name])
                progress.advance(drawn)
    if engine is not None:
        engine.close()
    evaluate_document.show(report, console)
    for name, one in report['sequences'].items():
        if 'gyroscope_used' in one:
            console.print(f'{name}: gyroscope used at {one["gyroscope_used"]:.0%} of the frames',
                          one['gyroscope_problem'], highlight=False, markup=False, soft_wrap=True)
    for reason in evaluate_document.reasons(report):
        console.print(reason, style='dim', markup=False, highlight=False, soft_wrap=True)
    write(args, report, played, pictures, worlds, console)
    return 0


def process_count(args: argparse.Namespace, items: Sequence[Item]) -> int:
    """Return the number of processes: as requested, or one for each core with work."""
    on_gpu = choose_device(args.device).device.type != 'cpu'
    return args.jobs or usual_jobs(len(items) + len(world_tasks(args, '')),
                                   MOST_ON_GPU if on_gpu else None)


def world_tasks(args: argparse.Namespace, device: str) -> list[tuple[Any, ...]]:
    """Return the tasks for the rendered clips."""
    return (evaluate_world.tasks('standard', args.world, device)
            + evaluate_world.tasks('rough', args.rough, device))


def load_engine(args: argparse.Namespace) -> tuple[Engine | None, dict[str, str]]:
    """Load the model when a method needs its heads; also return why methods are left out."""
    wanted = args.method or METHODS
    missing = {m: NOT_ASKED for m in METHODS if m not in wanted}
    learning = [m for m in wanted if m != 'geometric']
    if not learning:
        return None, missing
    given = {'heads': args.heads} if args.heads else {}
    config = EngineConfig(model_size=args.model_size, weights=args.weights,
                          num_frames=args.num_frames, image_size=args.image_size,
                          device=args.device, require_device=args.device != 'auto', **given)
    try:
        engine = Engine.load(config)
    except WeightsError:
        if args.weights or args.heads or 'geometric' not in wanted:
            raise
        engine = None
    if engine is not None and getattr(engine.report, 'heads', None) is not None:
        return engine, missing
    if engine is not None:
        engine.close()
    if 'geometric' not in wanted:
        raise WeightsError(f'--method {" ".join(wanted)} cannot run: {NO_HEADS}')
    return None, missing | dict.fromkeys(learning, NO_HEADS)


def play_all(items: Sequence[Item], args: argparse.Namespace, workers: WorkerPool,
             progress: Progress, bar: TaskID) -> tuple[list[Played], list[WorldPart]]:
    """Play the recordings, and assess the rendered clips with every method."""
    clips = progress.add_task('rendered clips', total=args.world + args.rough,
                              visible=bool(args.world + args.rough))
    device = str(drawing_device(choose_device(args.device).device))

    def done(made: Played | WorldPart) -> None:
        if isinstance(made, WorldPart):
            progress.advance(clips, made.truth.contact_time.size)
        elif workers.count > 1:     # else every frame was counted
            progress.advance(bar, made.truth.stamps_s.size)

    made = workers.run([*((play, item) for item in items), *world_tasks(args, device)], done)
    return made[:len(items)], made[len(items):]




def frame_count(items: Sequence[Item], setup: Setup) -> int | None:
    """Return the number of frames of all recordings, None when one does not tell."""
    counts = []
    for item in items:
        with open_item(item, setup) as source:
            counts.append(source.frame_count)
    return None if None in counts else sum(counts)


def configuration(args: argparse.Namespace, setup: Setup, items: Sequence[Item],
                  command: str) -> dict[str, Any]:
    """Return what ran with which settings on which machine."""
    machine, choice = hardware(), choose_device(args.device)
    on = 'no GPU' if choice.device.type == 'cpu' else device_name(choice.device)
    installed = versions()
    if setup.engine is None:
        model, precision = 'no encoder, which the geometric method does not need', None
    else:
        report, precision = setup.engine.report, setup.engine.choice.precision
        model = (f'{args.model_size}, {"trained" if report.trained else "random"} weights, heads, '
                 f'in {precision}')
    return {
        'method': setup.methods[-1], 'methods': list(setup.methods), 'version': __version__,
        'date': datetime.now().astimezone().strftime('%Y-%m-%d %H:%M %Z'),
        'machine': f'{machine["logical_cores"]} cores of {machine["cpu"]}, {on}, Python '
                   f'{installed["python"]}, PyTorch {installed["torch"]}',
        'command': command, 'model': model, 'precision': precision,
        'num_frames': args.num_frames, 'image_size': args.image_size,
        'recordings': {i.name: MARKS[i.mark] for i in items},
        'settings': asdict(setup.settings), 'track': asdict(setup.track), 'notes': notes(args),
    }


def notes(args: argparse.Namespace) -> list[str]:
    """Return what a reader must know before the figures."""
    out = ['The first frames of a recording are not assessed, because a clip must fill first '
           '(1.75 s with the defaults). The figures are over the assessed frames.',
           'An unknown probability ranks lowest.']
    if not args.paths:
        out.append('No real recordings were given: these figures are for rendered clips only.')
    return out


def write(args: argparse.Namespace, report: dict[str, Any], played: Sequence[Played],
          pictures: dict[str, list[Picture]], worlds: dict[str, WorldRun],
          console: Console) -> None:
    """Write the requested files."""
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(json_safe(report), indent=1, ensure_ascii=False, allow_nan=False)
        args.json.write_text(text + '\n', encoding='utf-8', errors='surrogateescape')
    parts = evaluate_document.sections(report, played, pictures, worlds) \
        if args.html or args.document else []
    if args.html:
        args.html.parent.mkdir(parents=True, exist_ok=True)
        args.html.write_text(evaluate_document.page(report, parts), encoding='utf-8',
                             errors='surrogateescape')
    if args.document:
        evaluate_document.write(args.document, report, parts)
    for path in (args.json, args.html, args.document):
        if path:
            console.print(f'wrote {path}', highlight=False, soft_wrap=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 when everything was evaluated and written."""
    parser = make_parser()
    args = parser.parse_args(argv)
    console = Console()
    log_to(console)
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        check(args)
        return run(args, console, shlex.join(['vjepa-ros', 'evaluate', *words]))
    except (SourceError, WeightsError, DeviceError, ValueError, OSError) as error:
        return print_error(f'vjepa-ros evaluate: {error}', console, args)
