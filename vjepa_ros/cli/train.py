# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
r"""Train encoder and heads on rendered scenes, or heads for your own backbone and recordings.

A run is continued by the same command. What it does stands in a recipe: keys, and stages that
follow each other. Without a recipe there is one stage with the defaults of all keys.

Examples
--------
Train the tiny model for 20 minutes and write runs/tiny/tiny.safetensors with a model card:

    vjepa-ros train --out runs/tiny --seconds 1200

Train as the bundled weights were, on eight GPUs:

    torchrun --nproc-per-node 8 -m vjepa_ros train --recipe tiny --out runs/tiny

Train heads for your own ViT-L on rendered scenes and on a bag with a bumper topic:

    vjepa-ros train --out runs/large --heads-only --model-size large --weights vitl.safetensors \
        --clips 20000 --set batch=16 --recording drive_bag --label-topic /bumper
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from types import FrameType
from typing import Any

import yaml
from rich.console import Console
from rich.logging import RichHandler

from vjepa_ros.cli.console import folder, positive, print_error
from vjepa_ros.lab.report.measurement import command
from vjepa_ros.lab.report.page import number
from vjepa_ros.lab.training.config import TrainConfig, plan, read_recipe
from vjepa_ros.lab.training.loop import TrainingError
from vjepa_ros.lab.training.run import train
from vjepa_ros.runtime.device import DeviceError

# Keys with an option of their own.
OPTIONS = {'seconds': '--seconds', 'clips': '--clips', 'device': '--device',
           'model_size': '--model-size', 'weights': '--weights', 'heads_only': '--heads-only',
           'recordings': '--recording', 'label_topic': '--label-topic'}


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    intro, _, examples = (__doc__ or '').partition('Examples\n--------\n')
    keys = '\n'.join(f'  {f.name}={f.default!s:<{28 - len(f.name)}} {f.metadata["text"]}'
                     for f in fields(TrainConfig) if f.name != 'out')
    parser = argparse.ArgumentParser(
        prog='vjepa-ros train', description=intro.strip(),
        epilog=f'examples:\n\n{examples}\nkeys and their defaults:\n\n{keys}',
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--recipe', default='', metavar='NAME', help='tiny, or a YAML file')
    parser.add_argument('--out', type=folder, default='runs/train', metavar='FOLDER',
                        help='folder for everything that is written, with a folder for each stage '
                        'of a recipe (default: %(default)s)')
    parser.add_argument('--set', nargs='+', default=[], action='extend', metavar='KEY=VALUE',
                        help='change keys of all stages, or of one as STAGE.KEY=VALUE')
    parser.add_argument('--stop-after', type=positive, default=math.inf, metavar='S',
                        help='end this call after so many seconds, with a checkpoint; the same '
                        'command continues')
    for name, option in OPTIONS.items():
        known = next(f for f in fields(TrainConfig) if f.name == name)
        how: dict[str, Any] = {'nargs': '+'} if isinstance(known.default, tuple) else {}
        if known.default is False:
            how = {'action': 'store_true', 'default': None}
        parser.add_argument(option, dest=name, help=known.metadata['text'], **how)
    return parser


def stages(args: argparse.Namespace) -> list[TrainConfig]:
    """Return the stages that the options ask for (ValueError naming what is wrong)."""
    changes = {name: value for name in OPTIONS if (value := getattr(args, name)) is not None}
    for word in args.set:
        name, equals, value = word.partition('=')
        if not equals:
            raise ValueError(f"--set '{word}' is not KEY=VALUE")
        # '<0.3' and '>10' are no YAML.
        changes[name] = value if name.endswith('label_threshold') else yaml.safe_load(value)
    return plan(read_recipe(args.recipe), str(args.out), changes)


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


def main(argv: Sequence[str]) -> int:
    """Run the command line; 0 when complete or stopped on request, 2 for wrong options."""
    args = make_parser().parse_args(argv)
    end = time.monotonic() + args.stop_after
    # One of the processes of torchrun reports.
    console = Console(stderr=True, quiet=os.environ.get('RANK', '0') != '0')
    logging.getLogger('vjepa_ros').addHandler(RichHandler(console=console, show_path=False))
    logging.getLogger('vjepa_ros').setLevel(logging.INFO)
    try:
        todo = stages(args)
        with stop_on_signal() as asked:
            metrics = train(todo, command('train', argv),
                            lambda: bool(asked) or time.monotonic() >= end)
    except (ValueError, DeviceError, TrainingError, yaml.YAMLError) as error:
        print_error(f'vjepa-ros train: {error}', console, args)
        return 2
    if metrics is None:
        console.print('stopped; repeat the command to continue')
        return 0
    for world, found in metrics['held_out'].items():
        console.print(f'{world} world: AUC of contact within 1 s '
                      f'{number(found["collision_auc"]["1"])}, looming R2 '
                      f'{number(found["looming_r2"])}, moving AUC {number(found["moving_auc"])}')
    console.print(f'wrote {Path(todo[-1].out) / metrics["weights"]}, its card (.md) and '
                  'metrics.json', soft_wrap=True)
    return 0
