# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Compare ways to run an encoder on one thread of this CPU: speed, and error against float32.

Times are processor time, so that other programs on the machine hardly change them. That is why
one thread is used: threads that wait for each other spend it, too. The ways take turns, so that a
processor that is slower for a while is so for all of them.
"""

from __future__ import annotations

import argparse
import copy
import logging
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import date
from pathlib import Path
from typing import Any
from unittest import mock

import cv2
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from vjepa_ros.model.checkpoint import load_encoder
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.files import WeightsError
from vjepa_ros.runtime import cpu
from vjepa_ros.runtime.device import DeviceChoice
from vjepa_ros.runtime.int8 import Int8Forward, check_products, clips_for, prepare_int8
from vjepa_ros.runtime.onnx import ExportError, Graph, export, packages
from vjepa_ros.tools.bench import RATE_HZ, approach_frames
from vjepa_ros.tools.checkpoint_words import refuse
from vjepa_ros.tools.json_file import write_json
from vjepa_ros.tools.limits import check_ranges
from vjepa_ros.tools.machine import hardware, versions

CLIP_HZ = 4.0
LOW, FULL = torch.bfloat16, torch.float32
# Clips (1, T, S, S, 3) uint8 to features.
Run = Callable[[Tensor], Tensor]


def main(argv: Sequence[str] | None = None) -> int:
    """Command line: measure, print the table, write the file."""
    parser = argparse.ArgumentParser(prog='vjepa-ros cpu-study', description=__doc__)
    parser.add_argument('--model-size', default='tiny')
    parser.add_argument('--num-frames', type=int, default=8, metavar='T')
    parser.add_argument('--image-size', type=int, default=192, metavar='S')
    parser.add_argument('--runs', type=int, default=20, help='of each way (default: 20)')
    parser.add_argument('--json', type=Path, metavar='FILE', help='file to write')
    args = parser.parse_args(argv)
    check_ranges(parser, args, {'runs': (1, math.inf)})
    logging.getLogger('vjepa_ros').setLevel(logging.ERROR)
    console = Console()
    try:
        with console.status('measuring'):
            result = study(args.model_size, args.num_frames, args.image_size, args.runs)
    except (WeightsError, ValueError) as error:
        return refuse(error)
    command = (f'vjepa-ros cpu-study --model-size {args.model_size} --num-frames '
               f'{args.num_frames} --image-size {args.image_size} --runs {args.runs}')
    if args.json:
        write_json(args.json, {'command': command, **result})
    console.print(make_table(result))
    for name, why in result['left_out'].items():
        console.print(f'left out: {name}: {why}', highlight=False, soft_wrap=True)
    return 0


def study(size: str, frames: int, side: int, runs: int) -> dict[str, Any]:
    """Measure all ways; the result is ready for JSON.

    Parameters
    ----------
    size
        Row of the table of variants. Its weights are those of the package, or random.
    frames, side
        T and S of the clip, which shows a drive at an obstacle.
    runs
        Measurements of each way.
    """
    encoder, report = load_encoder(size, allow_random_weights=True)
    clip = torch.from_numpy(drive(frames, side))[None]
    left_out: dict[str, str] = {}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            exact = plain(encoder, FULL)(clip)
        with ExitStack() as stack:
            made = {name: stack.enter_context(way)
                    for name, way in ways(encoder, frames, side, left_out)}
            with torch.inference_mode():
                spent = processor_ms(made, clip, runs)
                rows = [{'name': name, 'processor_ms': round(spent[name], 1),
                         'error': float(f'{error(run(clip), exact):.2g}')}
                        for name, run in made.items()]
    finally:
        torch.set_num_threads(threads)
    return {'date': date.today().isoformat(), 'hardware': hardware(), 'versions': versions(),
            'model': {'size': size, 'frames': frames, 'image_size': side,
                      'weights': Path(report.path).name if report.path else 'random'},
            'threads': 1, 'ways': rows, 'left_out': left_out}


def drive(frames: int, side: int) -> np.ndarray:
    """(T, S, S, 3) uint8 of the synthetic drive, at the rate of clips."""
    pictures = [rgb for _, rgb in approach_frames()][::max(1, round(RATE_HZ / CLIP_HZ))]
    return np.stack([cv2.resize(pictures[n % len(pictures)], (side, side),
                                interpolation=cv2.INTER_AREA) for n in range(frames)])


def ways(encoder: Encoder, frames: int, side: int, left_out: dict[str, str]
         ) -> Iterator[tuple[str, Any]]:
    """Names of the ways, and what gives each of them for as long as it is needed."""
    yield 'PyTorch, fp32', _given(plain(encoder, FULL))
    yield 'PyTorch, bf16', _given(plain(encoder, LOW))
    yield 'made fast, fp32', _given(fast(encoder, FULL))
    yield 'made fast, bf16, attention of PyTorch', _patched(
        encoder, products_are_faster=lambda: False)
    yield 'made fast, bf16', _given(fast(encoder, LOW))
    if wrong := check_products():
        left_out['int8'] = wrong
    else:
        yield 'made fast, fp32, all linear layers int8', _given(narrow(encoder, frames, side))
        chosen = narrow(encoder, frames, side, all_of_it=False)
        yield f'precision int8: {chosen.note.partition(", the rest")[0]}', _given(chosen)
    try:
        packages()
    except ExportError as error:
        left_out['onnxruntime'] = str(error)
    else:
        yield 'onnxruntime, fp32', _exported(encoder, frames, side)


def plain(encoder: Encoder, dtype: torch.dtype) -> Run:
    """The encoder as PyTorch runs it."""
    graph = Graph(_copy(encoder, dtype))
    return lambda clip: graph(clip)[0]


def fast(encoder: Encoder, dtype: torch.dtype) -> Run:
    """The encoder as the session runs it."""
    made = _copy(encoder, dtype)
    cpu.speed_up(made)
    return lambda clip: made(clip.permute(0, 4, 1, 2, 3))


def narrow(encoder: Encoder, frames: int, side: int, all_of_it: bool = True) -> Int8Forward:
    """The encoder with all linear layers in int8, or with those that the session would choose."""
    made, shape = _copy(encoder, FULL), (frames, side, side, 3)
    if not all_of_it:
        return prepare_int8(made, DeviceChoice(torch.device('cpu'), torch.int8, 'study'), shape)
    whole = Int8Forward(made, clips_for(shape))
    whole.choose(frozenset(whole.parts))
    return whole


@contextmanager
def _given(run: Run) -> Iterator[Run]:
    yield run


@contextmanager
def _patched(encoder: Encoder, **parts: object) -> Iterator[Run]:
    run = fast(encoder, LOW)

    def patched(clip: Tensor) -> Tensor:
        with mock.patch.multiple(cpu, **parts):
            return run(clip)
    yield patched


@contextmanager
def _exported(encoder: Encoder, frames: int, side: int) -> Iterator[Run]:
    runtime = packages()['onnxruntime']
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    with tempfile.TemporaryDirectory() as folder:
        done = export(Graph(_copy(encoder, FULL)), Path(folder) / 'encoder.onnx', frames, side)
        session = runtime.InferenceSession(str(done.files[0]), options,
                                           providers=['CPUExecutionProvider'])
        yield lambda clip: torch.from_numpy(session.run(None, {'pixels': clip.numpy()})[0])


def _copy(encoder: Encoder, dtype: torch.dtype) -> Encoder:
    made = copy.deepcopy(encoder)
    made.set_branch_precision(dtype)
    return made


def processor_ms(made: Mapping[str, Run], clip: Tensor, runs: int) -> dict[str, float]:
    """Median processor time of each way [ms], after two calls that do not count."""
    spent: dict[str, list[float]] = {name: [] for name in made}
    for count in range(runs + 2):
        for name, run in made.items():
            start = time.process_time()
            run(clip)
            if count > 1:
                spent[name].append(1e3 * (time.process_time() - start))
    return {name: float(np.median(each)) for name, each in spent.items()}


def error(got: Tensor, exact: Tensor) -> float:
    """Root mean square of the difference, relative to that of the exact values."""
    return ((got - exact).square().mean() / exact.square().mean()).sqrt().item()


def make_table(result: dict[str, Any]) -> Table:
    """The result as a table for people."""
    model = result['model']
    table = Table(title=f'{model["size"]} ({model["weights"]}), {model["frames"]} frames of '
                        f'{model["image_size"]} px on one thread of {result["hardware"]["cpu"]}',
                  title_justify='left')
    table.add_column('way')
    for name in ('processor ms', 'error of the features'):
        table.add_column(name, justify='right')
    for row in result['ways']:
        table.add_row(row['name'], f'{row["processor_ms"]:.1f}', f'{100 * row["error"]:.2g} %')
    return table
