# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
r"""Train encoder and heads on rendered scenes, or heads for your own backbone and recordings.

Examples
--------
Train the tiny model for 20 minutes and write runs/tiny/tiny.safetensors with a model card:

    vjepa-ros train --out runs/tiny --seconds 1200

The same in calls of at most 9 minutes (repeat the line until the run is complete):

    vjepa-ros train --out runs/tiny --seconds 1200 --stop-after 540 --resume

Train heads for your own ViT-L on rendered scenes and on a bag with a bumper topic:

    vjepa-ros train --out runs/large --heads-only --model-size large --weights vitl.safetensors \
        --clips 20000 --batch 16 --recording drive_bag --label-topic /bumper
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from rich.console import Console
from rich.logging import RichHandler
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from vjepa_ros.cli.console import folder, print_error
from vjepa_ros.clip.resize import MODES
from vjepa_ros.lab.training.config import (
    BOTH,
    OBJECTIVES,
    OPTIMIZERS,
    PRECISIONS,
    TrainConfig,
)
from vjepa_ros.lab.training.loop import Report, TrainingError
from vjepa_ros.lab.training.model_card import number
from vjepa_ros.lab.training.run import TOKENS_KEPT, ablate, train
from vjepa_ros.lab.world.scenes.scene_spec import WORLDS
from vjepa_ros.model.variants import VARIANTS
from vjepa_ros.runtime.device import DeviceError

DEFAULTS = {f.name: f.default for f in TrainConfig.__dataclass_fields__.values()}
DEFAULT_CLIPS = 200_000      # when neither --clips nor --seconds is given
LOG_EVERY_S = 20.0           # where there is no terminal


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    intro, _, examples = (__doc__ or '').partition('Examples\n--------\n')
    parser = argparse.ArgumentParser(
        prog='vjepa-ros train', description=intro.strip(), epilog='examples:\n\n' + examples,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    _length(parser.add_argument_group('where and how long'))
    _model(parser.add_argument_group('model and objective'))
    _clips(parser.add_argument_group('clips'))
    _backbone(parser.add_argument_group('your own backbone and recordings'))
    _optimisation(parser.add_argument_group('learning rate and machine'))
    _validation(parser.add_argument_group('validation'))
    return parser


def _add(group: argparse._ArgumentGroup, flag: str, text: str, **kind: Any) -> None:
    """Add the option for a field of `TrainConfig`, with its default."""
    name = flag.lstrip('-').replace('-', '_')
    default = DEFAULTS[name]
    shown = '' if default in ('', False, ()) or default is None else f' (default {default})'
    if default is False:
        group.add_argument(flag, action='store_true', help=text)
        return
    kind.setdefault('type', type(default))
    group.add_argument(flag, default=default, help=(text + shown).replace('%', '%%'), **kind)


def _length(group: argparse._ArgumentGroup) -> None:
    group.add_argument('--out', type=lambda text: str(folder(text)), required=True,
                       metavar='FOLDER', help='folder for everything that is written: weights '
                       'file, model card, metrics.json, curves.png, and state.pt to resume from')
    _add(group, '--clips', 'length of the run in clips; the learning rate decays over it '
         f'(without --clips and --seconds: {DEFAULT_CLIPS:,})', metavar='N')
    _add(group, '--seconds', 'length of the run in seconds of training, over all calls, to the '
         'next step; start-up, validation and writing do not count', metavar='S')
    _add(group, '--stop-after', 'end this call after so many seconds and write a checkpoint; 0: '
         'never. Continue with --resume', metavar='S')
    group.add_argument('--resume', action='store_true', help='continue the run in --out exactly '
                       'where it stopped; repeat the same options. Starts a new run when there '
                       'is none')
    _add(group, '--checkpoint-s', 'seconds between checkpoints', metavar='S')
    group.add_argument('--ablation', action='store_true', help='train with every objective for '
                       'the same length and compare them in ablation.md')


def _model(group: argparse._ArgumentGroup) -> None:
    _add(group, '--model-size', 'size of the encoder', choices=tuple(VARIANTS))
    _add(group, '--objective', 'supervised: labels train encoder and heads. jepa: the encoder '
         'learns to predict masked parts of a clip, as V-JEPA 2 does, and only the heads use '
         'labels. both: the sum', choices=OBJECTIVES)
    _add(group, '--auxiliary', 'also train each patch to predict its time to contact, distance '
         'and motion; dropped after training')
    _add(group, '--seed', 'of start weights and data; the same seed repeats a run on the same '
         'machine', metavar='N')
    _add(group, '--weights', 'safetensors file to start from, with heads and predictor if it '
         'has any (default: random weights)', metavar='FILE')


def _clips(group: argparse._ArgumentGroup) -> None:
    _add(group, '--batch', 'clips per step (and per process)', metavar='N')
    _add(group, '--world', 'standard: smooth drives and even frames. rough: drones, legged '
         'robots, hands, cars and trucks with the turns, shakes, sensors and uneven frames that '
         'they have. both: half of each', choices=(*WORLDS, BOTH))
    _add(group, '--num-frames', 'frames per clip', metavar='N')
    _add(group, '--window', 'train a block-causal encoder, in which a tubelet attends to so many, '
         'itself and the latest before it; 0: all attend to all', metavar='TUBELETS')
    _add(group, '--image-sizes', 'pixels per side, a multiple of 16. Several with their shares of '
         "the run, such as '128:0.7,256:0.3', because small images train faster. The result is "
         'for the last one', metavar='N')
    group.add_argument('--tokens-kept', default=None, metavar='SHARE', help='part of the patches '
                       'the encoder sees, 0..1; the others cost nothing. Several with their '
                       "shares of the run, such as '0.5:0.8,1.0:0.2' (default: "
                       + ', '.join(f'{value} for {key}' for key, value in TOKENS_KEPT.items())
                       + ')')
    _add(group, '--reuse', 'how many steps use a rendered clip, mirrored and thinned differently '
         'each time; above 1 where rendering is slower than training', metavar='N')
    _add(group, '--textures', 'painted textures of the world; another set is kept for validation',
         metavar='N')
    group.add_argument('--photos', nargs='+', default=(), metavar='PATH', help='photographs '
                       '(files or folders) to cut as many further textures from; any will do, '
                       'and they are not kept')


def _backbone(group: argparse._ArgumentGroup) -> None:
    _add(group, '--heads-only', 'freeze the encoder of --weights and train heads for it; they are '
         'saved in their own file, which records the encoder they belong to')
    _add(group, '--lora-rank', 'also train low-rank adapters of this rank in the frozen encoder, '
         'such as 16; 0: none', metavar='N')
    _add(group, '--cached-clips', 'encode so many rendered clips once and train on their features '
         'repeatedly; 0: always encode new clips. For large encoders on slow machines',
         metavar='N')
    group.add_argument('--recording', dest='recordings', nargs='+', default=(), metavar='PATH',
                       help='also learn from these: recording folders (frames/ and labels.csv), '
                       'or rosbag2 with --label-topic')
    _add(group, '--recording-share', 'part of every batch that comes from recordings, 0..1',
         metavar='SHARE')
    _add(group, '--image-topic', 'image topic of the bags (default: the first)', metavar='NAME')
    _add(group, '--label-topic', 'topic of the bags that reports contact of the robot: '
         'Bool (a bumper), Range, Float32, Int32 ..., or any type with --label-field',
         metavar='NAME')
    _add(group, '--label-field', 'field of the label message, with dots for nested fields; a '
         'non-empty list counts as contact (default: data, or range)',
         metavar='NAME')
    _add(group, '--label-threshold', "numbers that mean contact, such as '<0.3' or '>10'; a "
         'bare number means below for Range, above for others', metavar='X')
    _add(group, '--label-horizon', 'horizon [s] of the column `collision` of a recording folder',
         metavar='S')
    _add(group, '--resize-mode', 'how recordings are fitted into the square; run the node with '
         'the same', choices=MODES)


def _optimisation(group: argparse._ArgumentGroup) -> None:
    _add(group, '--optimizer', 'adamw, or muon: orthogonalised steps for the matrices of the '
         'blocks, adamw for the rest', choices=OPTIMIZERS)
    _add(group, '--lr', 'highest learning rate', metavar='X')
    _add(group, '--weight-decay', 'of the matrices', metavar='X')
    _add(group, '--warmup', 'part of the run over which the learning rate rises', metavar='SHARE')
    _add(group, '--clip-norm', 'largest norm of a gradient', metavar='X')
    _add(group, '--average', 'decay of the running mean of the weights, which is what is saved',
         metavar='X')
    _add(group, '--device', 'auto, cpu, cuda or cuda:N; with torchrun each process takes the GPU '
         'of its number', metavar='NAME')
    _add(group, '--precision', 'of the matrix products; auto: bf16 where the machine computes it '
         'fast', choices=PRECISIONS)
    _add(group, '--compile', 'compile the blocks of the encoder (minutes at the start; '
         'faster on GPUs)')
    _add(group, '--compile-world', 'compile the renderer')
    _add(group, '--workers', 'threads that draw scenes ahead', metavar='N')


def _validation(group: argparse._ArgumentGroup) -> None:
    _add(group, '--validations', 'how often the run is judged while it goes on', metavar='N')
    _add(group, '--validation-clips', 'rendered clips for that', metavar='N')
    _add(group, '--calibration-clips', 'rendered clips to calibrate on at the end; 0: none',
         metavar='N')
    _add(group, '--held-out-clips', 'rendered clips for the final figures; 0: none', metavar='N')
    _add(group, '--progress-s', 'seconds between reports', metavar='S')


def make_config(args: argparse.Namespace) -> TrainConfig:
    """Return the configuration for the options (ValueError naming what is wrong)."""
    values = {k: v for k, v in vars(args).items() if k not in ('resume', 'ablation')}
    for name in ('recordings', 'photos'):
        values[name] = tuple(values[name])
    if values['tokens_kept'] is None:
        values['tokens_kept'] = TOKENS_KEPT[args.objective]
    if not args.clips and not args.seconds:
        values['clips'] = DEFAULT_CLIPS
    return TrainConfig(**values)


class Screen:
    """Shows a run as a progress bar, with a line for every validation."""

    def __init__(self, console: Console):
        self._console = console
        self._bar = Progress(
            TextColumn('{task.description}'), BarColumn(None),
            TextColumn('{task.percentage:.1f}%'), TimeElapsedColumn(),
            TextColumn('{task.fields[text]}'), console=console, disable=not console.is_terminal)
        self._task: TaskID | None = None
        self._what = ''
        self._told = -math.inf

    def __enter__(self) -> Screen:
        self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._bar.stop()

    def progress(self, report: Report) -> None:
        """See `vjepa_ros.lab.training.run.Listener`."""
        losses = ' '.join(f'{k} {v:.3f}' for k, v in report.losses.items()
                          if v)      # unknown targets have no loss
        self._show('training', report.progress,
                   f'{report.clips:,} clips, {report.rate:.0f}/s ({report.data_share:.0%} data), '
                   f'{report.size:.0f} px: {losses}')

    def judged(self, clips: int, values: dict[str, float]) -> None:
        """See `vjepa_ros.lab.training.run.Listener`."""
        self._console.print(f'after {clips:,} clips: '
                            + ', '.join(f'{k} {number(v)}' for k, v in values.items()))

    def working(self, what: str, done: int, total: int) -> None:
        """See `vjepa_ros.lab.training.run.Listener`."""
        self._show(what, done / max(1, total), f'{done}/{total}')

    def _show(self, what: str, part: float, text: str) -> None:
        if not self._console.is_terminal:        # a log: a line now and then instead of a bar
            now = time.monotonic()
            if what != self._what or now - self._told >= LOG_EVERY_S:
                self._what, self._told = what, now
                self._console.print(f'{what} {part:.1%} {text}', soft_wrap=True)
            return
        if self._task is None or what != self._what:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task, self._what = self._bar.add_task(what, total=1.0, text=text), what
        self._bar.update(self._task, completed=part, text=text)


@contextmanager
def stop_on_signal() -> Iterator[list[int]]:
    """Yield a list that fills when the user or the system asks to stop (Ctrl-C, SIGTERM)."""
    asked: list[int] = []

    def handler(number: int, frame: FrameType | None) -> None:
        # A second Ctrl-C ends at once. SIGTERM may come twice, because torchrun forwards it.
        if number == signal.SIGINT and number in asked:
            raise KeyboardInterrupt
        asked.append(number)

    before = {s: signal.signal(s, handler) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for kind, old in before.items():
            signal.signal(kind, old)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 when complete or stopped on request, 2 for wrong options."""
    words = list(sys.argv[1:] if argv is None else argv)
    args = make_parser().parse_args(words)
    # One of the processes of torchrun reports.
    console = Console(stderr=True, quiet=os.environ.get('RANK', '0') != '0')
    logging.getLogger('vjepa_ros').addHandler(RichHandler(console=console, show_path=False))
    logging.getLogger('vjepa_ros').setLevel(logging.INFO)
    command = shlex.join(['vjepa-ros', 'train', *words])
    try:
        config = make_config(args)
        with Screen(console) as screen, stop_on_signal() as asked:
            options = {'resume': args.resume, 'command': command,
                       'stopped': lambda: bool(asked)}
            if args.ablation:
                results = ablate(config, screen, **options)
                return _show_ablation(results, config, console)
            result = train(config, screen, **options)
    except (ValueError, DeviceError, TrainingError) as error:
        print_error(f'vjepa-ros train: {error}', console, args)
        return 2
    if not result.complete:
        console.print(f'stopped after {result.clips:,} clips; repeat the command with --resume '
                      'to continue')
    elif result.outcome is not None:
        _show_figures(result.outcome.figures, console)
        console.print(f'wrote {result.outcome.weights}, {result.outcome.card} and '
                      f'{result.outcome.metrics}')
    return 0


def _show_figures(worlds: dict, console: Console) -> None:
    for world, figures in worlds.items():
        table = Table('contact within', 'AUC', 'average precision', box=None)
        for key, value in figures['collision_auc'].items():
            table.add_row(f'{key} s', number(value), number(figures['average_precision'][key]))
        console.print(f'{world} world', table)
        console.print(f'looming R2 {number(figures["looming_r2"])}, moving AUC '
                      f'{number(figures["moving_auc"])}, calibration error '
                      f'{number(figures["expected_calibration_error"])}, time to contact error '
                      f'{number(figures["ttc_median_relative_error"])}')


def _show_ablation(results: dict | None, config: TrainConfig, console: Console) -> int:
    if results is None:
        console.print('stopped; repeat the command with --resume to continue')
        return 0
    names = list(next(iter(results.values())))
    table = Table('objective', *names, box=None)
    for objective, values in results.items():
        table.add_row(objective, *(f'{v:,}' if isinstance(v, int) else number(v)
                                   for v in values.values()))
    console.print(table)
    console.print(f'wrote {config.out}/ablation.md')
    return 0


if __name__ == '__main__':
    sys.exit(main())
