# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Train encoder and heads on rendered scenes, or heads on a backbone and recordings of one's own.

Examples
--------
Train the tiny model for 20 minutes and write runs/tiny/tiny.safetensors with its model card:

    vjepa-ros train --out runs/tiny --seconds 1200

The same, in calls of at most 9 minutes (give the same line until it says that it is complete):

    vjepa-ros train --out runs/tiny --seconds 1200 --stop-after 540 --resume

Train heads for a ViT-L that you have, on rendered scenes and on your own bag with a bumper:

    vjepa-ros train --out runs/large --heads-only --model-size large --weights vitl.safetensors \\
        --clips 20000 --batch 16 --recording drive_bag --label-topic /bumper
"""

from __future__ import annotations

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

from rich.console import Console
from rich.logging import RichHandler
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from vjepa_ros.cli.train_options import make_config, make_parser
from vjepa_ros.lab.training.ablation import ablate
from vjepa_ros.lab.training.config import TrainConfig
from vjepa_ros.lab.training.export.model_card import number
from vjepa_ros.lab.training.loop import Report, TrainingError
from vjepa_ros.lab.training.run import train
from vjepa_ros.runtime.device import DeviceError

LOG_EVERY_S = 20.0


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
                          if v)      # what nothing is known about costs nothing
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
    """A list that fills when the user or the system asks to end (Ctrl-C, SIGTERM)."""
    asked: list[int] = []

    def handler(number: int, frame: FrameType | None) -> None:
        # A second Ctrl-C ends at once. SIGTERM may well come twice: torchrun passes it on.
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
    """Command line; 0 when the run is complete or was stopped as asked, 2 for wrong options."""
    words = list(sys.argv[1:] if argv is None else argv)
    args = make_parser(__doc__).parse_args(words)
    # Of several processes that torchrun starts, one talks.
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
        console.print(f'vjepa-ros train: {error}', style='red', highlight=False, markup=False)
        return 2
    if not result.complete:
        console.print(f'stopped after {result.clips:,} clips; repeat the command with --resume '
                      'to go on')
    elif result.outcome is not None:
        _show_figures(result.outcome.figures, console)
        console.print(f'wrote {result.outcome.weights}, {result.outcome.card} and '
                      f'{result.outcome.metrics}')
    return 0


def _show_figures(figures: dict, console: Console) -> None:
    if not figures:
        return
    table = Table('contact within', 'AUC', 'average precision', box=None)
    for key, value in figures['collision_auc'].items():
        table.add_row(f'{key} s', number(value), number(figures['average_precision'][key]))
    console.print(table)
    console.print(f'looming R2 {number(figures["looming_r2"])}, moving AUC '
                  f'{number(figures["moving_auc"])}, calibration error '
                  f'{number(figures["expected_calibration_error"])}, time to contact error '
                  f'{number(figures["ttc_median_relative_error"])}')


def _show_ablation(results: dict | None, config: TrainConfig, console: Console) -> int:
    if results is None:
        console.print('stopped; repeat the command with --resume to go on')
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
