# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Write a model as an ONNX graph for other runtimes, checked against PyTorch."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from vjepa_ros.cli.console import print_error
from vjepa_ros.model.checkpoint.files import WeightsError
from vjepa_ros.model.checkpoint.layouts import AUTO
from vjepa_ros.model.checkpoint.load import load_model
from vjepa_ros.model.variants import VARIANTS
from vjepa_ros.runtime.model import ModelConfig
from vjepa_ros.runtime.onnx import ClipGraph, ExportError, Exported, StreamGraph, export, packages


def main(argv: Sequence[str]) -> int:
    """Run the command line; 0 when the graph was written and agrees with PyTorch."""
    args = make_parser().parse_args(argv)
    console = Console(stderr=args.json)
    try:
        packages()
        config = ModelConfig(
            model_size=args.model_size, model_version=args.model_version, weights=args.weights,
            weights_part=args.weights_part, heads=args.heads, num_frames=args.num_frames,
            image_size=args.image_size, allow_random_weights=args.allow_random_weights)
        if args.clips < 1:
            raise ValueError(f'--clips is {args.clips}, but must be at least 1')
        with console.status('writing and checking, half a minute or more'):
            encoder, heads, report = load_model(
                config.model_size, config.model_version, config.weights, config.heads,
                config.allow_random_weights, config.seed, config.weights_part)
            calibration = None if report.heads is None else report.heads.meta.calibration
            graph = (StreamGraph if args.stream else ClipGraph)(encoder, heads, calibration)
            done = export(graph, args.output, config.num_frames, config.image_size, args.clips)
    except (ExportError, WeightsError, ValueError, OSError) as error:
        return print_error(error, args=args)
    if args.json:
        sys.stdout.write(json.dumps({**vars(done), 'files': [str(f) for f in done.files]},
                                    indent=2) + '\n')
    else:
        console.print(view(done))
    return 0


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    default = ModelConfig()
    parser = argparse.ArgumentParser(prog='vjepa-ros export', description=__doc__,
                                     epilog='docs/export.md explains how to use the graph.')
    parser.add_argument('output', type=Path, help='file to write, such as vjepa.onnx')
    parser.add_argument('--model-size', default=default.model_size, choices=VARIANTS)
    parser.add_argument('--model-version', default=default.model_version, metavar='auto|2.0|2.1')
    parser.add_argument('--weights', default='', help='checkpoint (default: that of the package)')
    parser.add_argument('--weights-part', default=AUTO, metavar='NAME',
                        help='encoder of a file with several')
    parser.add_argument('--heads', default='', help='file with heads (default: those in weights)')
    parser.add_argument('--allow-random-weights', action='store_true')
    parser.add_argument('--num-frames', type=int, default=default.num_frames, metavar='T')
    parser.add_argument('--image-size', type=int, default=default.image_size, metavar='S')
    parser.add_argument('--clips', type=int, default=1, metavar='B',
                        help='clips in one pass, one for each camera (default: 1)')
    parser.add_argument('--stream', action='store_true',
                        help='write one step of a stream, which needs block-causal weights')
    parser.add_argument('--json', action='store_true', help='print the report as JSON')
    return parser


def view(done: Exported) -> Table:
    """Return the report as a table."""
    size = sum(file.stat().st_size for file in done.files) / 1e6
    table = Table(title=escape(f'{done.files[0]}: opset {done.opset}, {size:,.1f} MB'),
                  title_justify='left')
    for name in ('name', 'shape', 'deviation from PyTorch'):
        table.add_column(name)
    for name, shape in done.inputs.items():
        table.add_row(f'{name} (input)', escape(str(list(shape))), '')
    for name, shape in done.outputs.items():
        table.add_row(name, escape(str(list(shape))), f'{done.errors[name]:.1e}')
    return table
