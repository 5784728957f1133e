# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The commands inspect, convert, export and download, which handle weights and their networks."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console, Group
from rich.markup import escape
from rich.panel import Panel
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from vjepa_ros.cli.console import CHECKPOINT, add_parameters, print_error, whole
from vjepa_ros.model.checkpoint import load
from vjepa_ros.model.checkpoint.download import BASE_URL, PUBLISHED, located
from vjepa_ros.model.checkpoint.download import download as fetch
from vjepa_ros.model.checkpoint.files import WeightsError, file_sha256
from vjepa_ros.model.checkpoint.layouts import AUTO
from vjepa_ros.runtime import onnx
from vjepa_ros.runtime.device import INSTEAD
from vjepa_ros.runtime.forward.quantized import served
from vjepa_ros.runtime.model import ModelConfig

SHOWN = 20  # of the parameters that are wrong or not needed


def inspect(argv: Sequence[str]) -> int:
    """Show the networks of a checkpoint; 0 when every one is complete, else 1."""
    parser = argparse.ArgumentParser(
        prog='vjepa-ros inspect', description='Show the networks of a checkpoint, what is '
        'missing, the clips it was made for, and whether this machine serves it quantised.')
    parser.add_argument('checkpoint', help=CHECKPOINT)
    parser.add_argument('--json', action='store_true', help='print the report as JSON')
    args = parser.parse_args(argv)
    try:
        found = load.examine(args.checkpoint)
    except WeightsError as error:
        return print_error(error, args=args)
    quantized = {precision: served(precision) for precision in INSTEAD}
    if args.json:
        print(json.dumps({**asdict(found), 'quantized': quantized}, indent=2))
    else:
        console = Console()
        console.print(_contents(found))
        for precision, how in quantized.items():
            console.print(f'{precision} here: {how}', highlight=False, markup=False,
                          soft_wrap=True)
    return 0 if found.parts and all(part.complete for part in found.parts) else 1


def _contents(found: load.Contents) -> Group:
    facts = {'path': found.path, 'size': f'{found.size / 1e6:,.1f} MB', 'sha256': found.sha256,
             'made for': str(found.profile)}
    if found.encoder:
        facts['runs'] = ('whole clips' if not found.profile.window else
                         f'streams: block-causal, window of {found.profile.window} tubelets')
    facts['also there'] = ', '.join(found.others) or 'nothing'
    about = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        about.add_row(f'[dim]{name}[/dim]', escape(value))
    parts = Table('part', 'network', 'names of', 'holds', 'complete', expand=False)
    for part in found.parts:
        name = f'{part.name} (default)' if part.name == found.encoder else part.name
        network = ' '.join(filter(None, (part.kind, part.variant, part.version)))
        parts.add_row(escape(name), network, part.layout,
                      f'{part.keys} tensors, {part.parameters / 1e6:,.1f} M {part.dtype}',
                      '[green]yes[/green]' if part.complete else '[red]no[/red]')
    remarks = [f'{part.name}: {text}' for part in found.parts for text in _remarks(part)]
    return Group(Panel(about, title='checkpoint', title_align='left', expand=False), parts,
                 *map(escape, remarks))


def _remarks(part: load.PartReport) -> list[str]:
    names = {'missing': part.missing, 'unexpected': part.unexpected,
             'wrong shape': part.mismatched, 'not needed': part.ignored}
    texts = [f'{len(found)} {what}: {", ".join(found[:SHOWN])}{", …" * (len(found) > SHOWN)}'
             for what, found in names.items() if found]
    if part.wrapper:
        texts.append(f"its names begin with '{part.wrapper}', which is left out")
    return [*texts, part.problem] if part.problem else texts


def convert(argv: Sequence[str]) -> int:
    """Write a checkpoint as safetensors; 0 when the file was written."""
    parser = argparse.ArgumentParser(
        prog='vjepa-ros convert', description='Write a checkpoint as safetensors, without '
        'training state, perhaps in another number format.')
    parser.add_argument('input', help=CHECKPOINT)
    parser.add_argument('output', help='file to write; it must not exist')
    parser.add_argument('--dtype', choices=(load.KEEP, *load.DTYPES),
                        default=load.KEEP, help='number format (default: %(default)s)')
    parser.add_argument('--weights-part', default=AUTO, metavar='NAME',
                        help='encoder to take, such as encoder or target_encoder (default: the '
                        'first of target_encoder, ema_encoder, encoder)')
    parser.add_argument('--encoder-only', action='store_true',
                        help='leave out predictors')
    args = parser.parse_args(argv)
    try:
        written = load.convert(args.input, args.output, args.dtype, args.weights_part,
                               args.encoder_only)
    except (WeightsError, OSError) as error:
        return print_error(error, args=args)
    Console().print(_contents(written))
    return 0


def export(argv: Sequence[str]) -> int:
    """Write a model as an ONNX graph; 0 when it was written and agrees with PyTorch."""
    parser = argparse.ArgumentParser(
        prog='vjepa-ros export', description='Write a model as an ONNX graph for other runtimes, '
        'checked against PyTorch.', epilog='docs/export.md explains how to use the graph.')
    parser.add_argument('output', type=Path, help='file to write, such as vjepa.onnx')
    add_parameters(parser, ModelConfig, 'model_size', 'weights', 'heads', 'allow_random_weights',
                   'num_frames', 'image_size')
    parser.add_argument('--model-version', default=AUTO, metavar='auto|2.0|2.1')
    parser.add_argument('--weights-part', default=AUTO, metavar='NAME',
                        help='encoder of a file with several')
    parser.add_argument('--clips', type=whole(), default=1, metavar='B',
                        help='clips in one pass, one for each camera (default: 1)')
    parser.add_argument('--stream', action='store_true',
                        help='write one step of a stream, which needs block-causal weights')
    parser.add_argument('--json', action='store_true', help='print the report as JSON')
    args = parser.parse_args(argv)
    console = Console(stderr=args.json)
    try:
        onnx.packages()
        with console.status('writing and checking, half a minute or more'):
            encoder, heads, report = load.load_model(
                args.model_size, args.model_version, args.weights, args.heads,
                args.allow_random_weights, weights_part=args.weights_part)
            calibration = None if report.heads is None else report.heads.meta.calibration
            graph = (onnx.StreamGraph if args.stream else onnx.ClipGraph)(
                encoder, heads, calibration)
            done = onnx.export(graph, args.output, args.num_frames, args.image_size, args.clips)
    except (onnx.ExportError, WeightsError, ValueError, OSError) as error:
        return print_error(error, args=args)
    if args.json:
        sys.stdout.write(json.dumps({**vars(done), 'files': [str(f) for f in done.files]},
                                    indent=2) + '\n')
        return 0
    size = sum(file.stat().st_size for file in done.files) / 1e6
    table = Table('name', 'shape', 'deviation from PyTorch', title_justify='left',
                  title=escape(f'{done.files[0]}: opset {done.opset}, {size:,.1f} MB'))
    for name, shape in {**done.inputs, **done.outputs}.items():
        error = f'{done.errors[name]:.1e}' if name in done.errors else 'input'
        table.add_row(name, escape(str(list(shape))), error)
    console.print(table)
    return 0


def download(argv: Sequence[str]) -> int:
    """Fetch published weights; 0 when they are on disk."""
    wide = max(map(len, PUBLISHED))
    parser = argparse.ArgumentParser(
        prog='vjepa-ros download', description="Fetch published weights: Meta's by the names "
        'below, or from the Hugging Face hub.\n\nMeta publishes no checksums; the one shown is of '
        'the file that arrived.', formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog='names:\n' + '\n'.join(f'  {name:<{wide}}  {file}: {what}'
                                      for name, (file, what) in PUBLISHED.items()))
    parser.add_argument('name', help='one of the names below, or a name of the Hugging '
                        'Face hub such as facebook/vjepa2-vitl-fpc64-256, which goes to its cache')
    parser.add_argument('--folder', type=Path, default=Path(), help='where to put the file '
                        '(default: the current folder)')
    args = parser.parse_args(argv)
    try:
        path = _fetched(args.name, args.folder)
    except WeightsError as error:
        return print_error(error, args=args)
    said = [f'weights: {path}']
    if path.is_file():
        said.append(f'sha256:  {file_sha256(path)}')
    for line in (*said, f'next:    vjepa-ros inspect {shlex.quote(str(path))}'):
        Console().print(line, soft_wrap=True, markup=False)
    return 0


def _fetched(name: str, folder: Path) -> Path:
    if '/' in name:
        path = located(name, 'checkpoint')
        if not path.exists():
            raise WeightsError(f"'{name}' is not a name of the Hugging Face hub, "
                               'which has the form OWNER/NAME')
        return path
    if name not in PUBLISHED:
        raise WeightsError(f"'{name}' is not published; names are {', '.join(PUBLISHED)}")
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as shown:
        task = shown.add_task(name, total=None)
        return fetch(BASE_URL + PUBLISHED[name][0], folder,
                     lambda there, total: shown.update(task, completed=there, total=total))
