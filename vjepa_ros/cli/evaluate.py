# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Measure how accurate the perception is, on recordings with labels and on rendered clips."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from vjepa_ros import __version__
from vjepa_ros.cli.console import add_model, print_error, real, save, whole
from vjepa_ros.lab.evaluation import document, rail, still_scenes
from vjepa_ros.lab.evaluation import world as evaluate_world
from vjepa_ros.lab.evaluation.recording_replay import (
    MARKS,
    Played,
    Setup,
    assemble,
    play,
    read_items,
    remade,
)
from vjepa_ros.lab.report.live_view import log_to
from vjepa_ros.lab.report.measurement import command, hardware, versions, write_json
from vjepa_ros.lab.report.page import fill
from vjepa_ros.lab.worker_pool import run_all, usual_jobs
from vjepa_ros.lab.world.rendering.render import drawing_device
from vjepa_ros.model.checkpoint.load import WeightsError
from vjepa_ros.perception.settings import Settings, TrackConfig
from vjepa_ros.runtime.device import DeviceError, choose_device, device_name
from vjepa_ros.runtime.model import Model, ModelConfig
from vjepa_ros.sources import SourceError

OF_MODEL = 'heads', 'num_frames', 'image_size'
MOST_ON_GPU = 6     # processes, whose contexts and scenes share its memory
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
                        '(frames/ with labels.csv, or with depth and poses), image folder, '
                        'video, rosbag2')
    parser.add_argument('--world', type=whole(0), default=0, metavar='N',
                        help='also evaluate on N held-out rendered clips (`make evaluate`: 2000)')
    parser.add_argument('--rough', type=whole(0), default=0, metavar='N',
                        help='also evaluate on N held-out clips of the rough world')
    parser.add_argument('--rail', action='store_true', help='also evaluate on a rendered camera '
                        f'that steps towards {len(rail.RAILS)} textured planes')
    parser.add_argument('--json', type=Path, metavar='FILE', help='write all figures')
    parser.add_argument('--document', type=Path, metavar='FILE', help='write tables and plots '
                        f'between the marks <!-- {document.BLOCK}:begin --> and '
                        f'<!-- {document.BLOCK}:end --> of a Markdown file, which is made where '
                        'there is none')
    parser.add_argument('--jobs', type=whole(0), default=0, metavar='N', help='processes for '
                        'recordings and rendered clips; 0: one for each core with work, at most '
                        f'{MOST_ON_GPU} on a GPU')
    add_model(parser, *OF_MODEL)
    parser.add_argument('--topic', metavar='TOPIC', help='image topic of bags')
    parser.add_argument('--rate', type=real(0.01, 1000), metavar='HZ', help='rate at which '
                        'pictures without stamps were taken; others are thinned to it')
    return parser


def check(args: argparse.Namespace) -> None:
    """Refuse impossible options before anything is loaded."""
    if not any((args.paths, args.rail, args.world, args.rough)):
        raise ValueError('there is nothing to evaluate; give recordings, or request what is '
                         'rendered with --rail, --world N or --rough N')
    for path in filter(None, (args.json, args.document)):      # before minutes of work
        path.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise ValueError(f"'{path}' cannot be written; choose another path")
    if args.document and args.document.exists():
        try:
            fill(args.document.read_text(encoding='utf-8'), document.BLOCK, '')
        except ValueError as error:
            raise ValueError(f"--document '{args.document}' cannot be filled: {error}; add both "
                             'marks') from error


def run(args: argparse.Namespace, console: Console, words: Sequence[str]) -> int:
    """Evaluate and write the requested files; return the exit code."""
    start = time.monotonic()
    items = read_items(args.paths)
    engine = load_engine(args)
    setup = Setup(Settings(), TrackConfig(
        num_frames=args.num_frames, image_size=args.image_size), engine, args.topic, args.rate)
    device = choose_device(args.device).device
    tasks = [*((play, item) for item in [*items, *(rail.items() if args.rail else [])]), *(
        task for key, name in WORLD_KEYS.items()
        for task in evaluate_world.tasks(name, getattr(args, key), str(drawing_device(device))))]
    jobs = args.jobs or usual_jobs(len(tasks), None if device.type == 'cpu' else MOST_ON_GPU)
    with Progress(TextColumn('recordings, rails and hundreds of clips'), BarColumn(),
                  MofNCompleteColumn(), TimeElapsedColumn(), console=console) as progress:
        bar = progress.add_task('', total=len(tasks))
        made = run_all(tasks, jobs, (lambda: setup) if jobs == 1 else remade(setup),
                       lambda one: progress.advance(bar))
    played, rendered = made[:len(items)], made[len(items):]
    rails = [one for one in rendered if isinstance(one, Played)]
    parts = rendered[len(rails):]
    worlds = {key: evaluate_world.gathered(own) for key, name in WORLD_KEYS.items()
              if (own := [part for part in parts if part.world == name])}
    report = {'looming': still_scenes.figures({
        p.item.name: p.patches for p in played if p.patches is not None}),
        'rail': rail.figures(rails)} | assemble(played) | {
        key: worlds[key].figures() if key in worlds else None for key in WORLD_KEYS} | {
        'configuration': configuration(args, setup, words) | {
            'minutes': round((time.monotonic() - start) / 60, 1)}}
    engine.close()
    document.show(report, console)
    failed = save('--json', args.json, lambda path: write_json(path, report), console)
    return save('--document', args.document, lambda path: document.write(
        path, report, played, worlds), console) or failed


def load_engine(args: argparse.Namespace) -> Model:
    """Load the model (WeightsError where it has no heads)."""
    engine = Model.load(ModelConfig(
        model_size=args.model_size, weights=args.weights, device=args.device,
        require_device=args.device != 'auto', **{name: getattr(args, name) for name in OF_MODEL}))
    if engine.report.heads is None:
        engine.close()
        raise WeightsError('the model has no learned heads; name a file with heads by --weights '
                           'or --heads')
    return engine


def configuration(args: argparse.Namespace, setup: Setup, words: Sequence[str]
                  ) -> dict[str, Any]:
    """Return what ran with which settings on which machine."""
    machine, choice, installed = hardware(), choose_device(args.device), versions()
    on = 'no GPU' if choice.device.type == 'cpu' else device_name(choice.device)
    model = (f'{args.model_size}, {"trained" if setup.model.report.trained else "random"} '
             f'weights, heads, in {setup.model.choice.precision}')
    return {
        'version': __version__,
        'date': datetime.now().astimezone().strftime('%Y-%m-%d %H:%M %Z'),
        'machine': f'{machine["logical_cores"]} cores of {machine["cpu"]}, {on}, Python '
                   f'{installed["python"]}, PyTorch {installed["torch"]}',
        'command': command('evaluate', words), 'model': model, 'num_frames': args.num_frames,
        'image_size': args.image_size, 'settings': asdict(setup.settings),
        'track': asdict(setup.track)}


def main(argv: Sequence[str]) -> int:
    """Run the command line; 0 when everything was evaluated and written."""
    args, console = make_parser().parse_args(argv), Console()
    log_to(console)
    try:
        check(args)
        return run(args, console, argv)
    except (SourceError, WeightsError, DeviceError, ValueError, OSError) as error:
        return print_error(f'vjepa-ros evaluate: {error}', console, args)
