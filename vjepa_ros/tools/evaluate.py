# SPDX-License-Identifier: Apache-2.0
"""Measure how accurate the perception is, on recordings with labels and on rendered clips."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from vjepa_ros import __version__
from vjepa_ros.model.checkpoint import WeightsError
from vjepa_ros.model.variants import VARIANTS
from vjepa_ros.perception.config import TrackConfig
from vjepa_ros.perception.settings import Settings
from vjepa_ros.runtime.device import DeviceError, choose_device, device_name
from vjepa_ros.runtime.engine import Engine, EngineConfig
from vjepa_ros.sources import SourceError
from vjepa_ros.tools import evaluate_baselines as baselines
from vjepa_ros.tools import evaluate_document, evaluate_page, evaluate_table, evaluate_world
from vjepa_ros.tools.evaluate_figures import assemble
from vjepa_ros.tools.evaluate_input import MARKS, Item, read_items
from vjepa_ros.tools.evaluate_pictures import Picture, pictures_of, world_failures
from vjepa_ros.tools.evaluate_run import METHODS, Played, Setup, open_item, play
from vjepa_ros.tools.evaluate_world import WorldRun
from vjepa_ros.tools.machine import hardware, versions
from vjepa_ros.tools.report import json_safe
from vjepa_ros.tools.terminal import log_to

NO_HEADS = ('the model has no learned heads (no file comes with the package for this size, and '
            'none was given with --weights or --heads)')
NOT_ASKED = 'not asked for'


def run(args: argparse.Namespace, console: Console, command: str) -> int:
    """Evaluate and write what was asked for; 0 when all was done."""
    start = time.monotonic()
    items = read_items(args.paths)
    engine, missing = load_engine(args)
    methods = tuple(m for m in METHODS if m not in missing)
    setup = Setup(methods, Settings(), TrackConfig(
        num_frames=args.num_frames, image_size=args.image_size), engine, args.topic)
    with Progress(TextColumn('{task.description}'), BarColumn(), MofNCompleteColumn(),
                  TimeRemainingColumn(), console=console) as progress:
        played = [play_one(item, setup, progress) for item in items]
        missing |= add_variance(played, setup, args, progress)
        world = run_world(args, setup, progress)
        report = assemble(played, methods[-1], missing, world and world.figures,
                          configuration(args, setup, items, command)
                          | {'minutes': round((time.monotonic() - start) / 60, 1)})
        pictures: dict[str, list[Picture]] = {}
        if world is not None:
            pictures['world'] = world_failures(world, methods[-1])
        if args.html or args.document:
            bar = progress.add_task('pictures', total=len(played))
            for each in played:
                name = each.item.name
                pictures[name] = pictures_of(each, setup, methods[-1],
                                             report['sequences'][name])
                progress.advance(bar)
    if engine is not None:
        engine.close()
    evaluate_table.show(report, console)
    for reason in evaluate_table.reasons(report):
        console.print(reason, style='dim', markup=False, highlight=False, soft_wrap=True)
    write(args, report, played, pictures, world, console)
    return 0


def load_engine(args: argparse.Namespace) -> tuple[Engine | None, dict[str, str]]:
    """The model when a method needs its heads, and why methods are left out."""
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


def play_one(item: Item, setup: Setup, progress: Progress) -> Played:
    """Play one recording under a progress bar."""
    with open_item(item, setup) as source:
        bar = progress.add_task(item.name, total=source.frame_count)
    return play(item, setup, lambda: progress.advance(bar))


def add_variance(played: Sequence[Played], setup: Setup, args: argparse.Namespace,
                 progress: Progress) -> dict[str, str]:
    """Add the variance score where it can be judged; why it is missing, if it is."""
    if args.baseline_size == 'none':
        return {'variance': NOT_ASKED}
    picks = {p.item.name: baselines.frames_to_score(p.truth, args.baseline_frames)
             for p in played if baselines.has_both_labels(p.truth)}
    total = sum(p.size for p in picks.values())
    if not total:
        return {'variance': 'no recording has frames labelled with and without collision and '
                            f'{baselines.NUM_FRAMES} frames before them'}
    bar = progress.add_task(f'variance baseline ({args.baseline_size})', total=total)
    with closing(baselines.VarianceScore(args.baseline_size, args.device)) as score:
        for each in played:
            if each.item.name in picks:
                each.outcomes['variance'] = score.score(
                    each, setup, picks[each.item.name], lambda: progress.advance(bar))
    return {}


def run_world(args: argparse.Namespace, setup: Setup, progress: Progress) -> WorldRun | None:
    """The rendered clips under a progress bar, None when none were asked for."""
    if not args.world:
        return None
    bar = progress.add_task('world', total=args.world)
    return evaluate_world.evaluate(args.world, setup, str(choose_device(args.device).device),
                                   lambda: progress.advance(bar))


def configuration(args: argparse.Namespace, setup: Setup, items: Sequence[Item],
                  command: str) -> dict[str, Any]:
    """What was run with what, for everyone who wants to do it again."""
    machine, choice = hardware(), choose_device(args.device)
    on = 'no GPU' if choice.device.type == 'cpu' else device_name(choice.device)
    installed = versions()
    if setup.engine is None:
        model = 'no encoder: the geometric method needs none'
    else:
        report = setup.engine.report
        model = f'{args.model_size}, {"trained" if report.trained else "random"} weights, heads'
    variance = 'none' if args.baseline_size == 'none' else (
        f'{args.baseline_size} encoder with random weights (seed {baselines.SEED}), last '
        f'{baselines.NUM_FRAMES} frames at {baselines.IMAGE_SIZE} px, {baselines.MODE}; at most '
        f'{args.baseline_frames} labelled frames per recording that has both labels')
    return {
        'method': setup.methods[-1], 'methods': list(setup.methods), 'version': __version__,
        'date': datetime.now().astimezone().strftime('%Y-%m-%d %H:%M %Z'),
        'machine': f'{machine["logical_cores"]} cores of {machine["cpu"]}, {on}, Python '
                   f'{installed["python"]}, PyTorch {installed["torch"]}',
        'command': command, 'model': model, 'num_frames': args.num_frames,
        'image_size': args.image_size, 'variance_baseline': variance,
        'recordings': {i.name: MARKS[i.mark] for i in items},
        'settings': asdict(setup.settings), 'track': asdict(setup.track), 'notes': notes(args),
    }


def notes(args: argparse.Namespace) -> list[str]:
    """What a reader must know before the figures."""
    out = ['The first frames of a recording are not assessed, because a clip must fill (1.75 s '
           'with the defaults); the figures are over the frames that were.',
           'A probability that is unknown ranks lowest.']
    if not args.paths:
        out.append('No real recordings were given: these figures are of rendered clips only.')
    return out


def write(args: argparse.Namespace, report: dict[str, Any], played: Sequence[Played],
          pictures: dict[str, list[Picture]], world: WorldRun | None, console: Console) -> None:
    """The files that were asked for."""
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(json_safe(report), indent=1, ensure_ascii=False, allow_nan=False)
        args.json.write_text(text + '\n', encoding='utf-8')
    if args.html:
        args.html.parent.mkdir(parents=True, exist_ok=True)
        args.html.write_text(evaluate_page.render(report, played, pictures, world),
                             encoding='utf-8')
    if args.document:
        evaluate_document.write(args.document, report, played, pictures, world)
    for path in (args.json, args.html, args.document):
        if path:
            console.print(f'wrote {path}', highlight=False, soft_wrap=True)


def make_parser() -> argparse.ArgumentParser:
    """Options of the command."""
    marks = '\n'.join(f'  PATH::{m:<9} {text}' for m, text in MARKS.items() if m)
    parser = argparse.ArgumentParser(
        prog='vjepa-ros evaluate', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog='What is known of a recording without labels can be said behind its path:\n'
               + marks)
    parser.add_argument('paths', nargs='*', metavar='PATH[::MARK]', help='recording folder '
                        '(frames/ and labels.csv), image folder, video, rosbag2')
    parser.add_argument('--world', type=int, default=0, metavar='N',
                        help='also evaluate on N held-out rendered clips (2000 in the documents)')
    parser.add_argument('--method', nargs='+', choices=METHODS,
                        help='methods to run (default: all that the model allows)')
    parser.add_argument('--json', type=Path, metavar='FILE', help='write all figures')
    parser.add_argument('--html', type=Path, metavar='FILE', help='write a page with plots and '
                        'overlays')
    parser.add_argument('--document', type=Path, metavar='FILE', help='write tables, plots and '
                        f'failures between the marks <!-- {evaluate_document.BLOCK}:begin --> and '
                        f'<!-- {evaluate_document.BLOCK}:end --> of a Markdown file')
    parser.add_argument('--baseline-size', default='large', choices=(*VARIANTS, 'none'),
                        help='encoder of the upstream variance score (default: large, as '
                             'upstream; about 10 s per frame on two CPU cores)')
    parser.add_argument('--baseline-frames', type=int, default=12, metavar='N', help='labelled '
                        'frames of a recording it is computed for, evenly spread (default: 12)')
    parser.add_argument('--model-size', default='tiny', choices=tuple(VARIANTS))
    parser.add_argument('--weights', default='', metavar='FILE', help='safetensors file of the '
                        'encoder, with or without heads (default: the one of the package)')
    parser.add_argument('--heads', default='', metavar='FILE', help='safetensors file of heads')
    parser.add_argument('--num-frames', type=int, default=8, metavar='N')
    parser.add_argument('--image-size', type=int, default=192, metavar='PX')
    parser.add_argument('--device', default='auto', help='auto, cpu, cuda, cuda:N or mps')
    parser.add_argument('--topic', metavar='TOPIC', help='image topic of bags')
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; 0 when everything was evaluated and written."""
    parser = make_parser()
    args = parser.parse_args(argv)
    console = Console()
    log_to(console)
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        check(args)
        return run(args, console, shlex.join(['vjepa-ros', 'evaluate', *words]))
    except (SourceError, WeightsError, DeviceError, ValueError, OSError) as error:
        console.print(f'vjepa-ros evaluate: {error}', style='red', markup=False, highlight=False,
                      soft_wrap=True)
        return 1


def check(args: argparse.Namespace) -> None:
    """Refuse what makes no sense before anything is loaded.

    Raises
    ------
    ValueError
        Naming the option, its value and the remedy.
    """
    if not args.paths and not args.world:
        raise ValueError('there is nothing to evaluate; name recordings, or ask for rendered '
                         'clips with --world N')
    if args.world < 0:
        raise ValueError(f'--world is {args.world}, must be 0 or more')
    if args.baseline_frames < 1:
        raise ValueError(f'--baseline-frames is {args.baseline_frames}, must be at least 1; '
                         '--baseline-size none leaves the baseline out')
    if args.document and not args.document.is_file():
        raise ValueError(f"--document '{args.document}' is not a file; make it with the two "
                         f'marks of the block {evaluate_document.BLOCK} in it')
