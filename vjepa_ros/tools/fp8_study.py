# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What float8 costs and gains in each part of an encoder: error against float32, and time.

Rows: bf16, as the package runs it without fp8; the same with all qkv, all MLPs, all of both, and
what `precision: fp8` chooses in float8. Errors are rms over rms, the larger one of a drive and of
random pixels. Times are those of a CUDA graph; on a CPU, where all is computed step by step, they
say nothing about a GPU, but errors are the same.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from vjepa_ros.model.checkpoint import WeightsError, bundled_file, load_encoder
from vjepa_ros.runtime.device import PRECISIONS, DeviceChoice, DeviceError, device_name
from vjepa_ros.runtime.errors import SessionError
from vjepa_ros.runtime.forward import Normalise, PlainForward, on_device
from vjepa_ros.runtime.forward8 import prepare8
from vjepa_ros.runtime.fused8 import MLP, QKV, Fp8Encoder
from vjepa_ros.runtime.narrow import max_error
from vjepa_ros.tools.benchmark_case import command
from vjepa_ros.tools.benchmark_clock import device_ms
from vjepa_ros.tools.machine import accelerator, hardware, versions
from vjepa_ros.tools.selftest_parity import clips_of
from vjepa_ros.tools.selftest_paths import Model
from vjepa_ros.tools.selftest_weights import lively

WARM = 3


def study(model: Model, device: torch.device, runs: int, invented: bool = False
          ) -> dict[str, Any]:
    """Errors and times of a model on a device, ready for JSON.

    Parameters
    ----------
    model
        Size and shape of the clips.
    device
        Where.
    runs
        Of each row.
    invented
        Take the random weights of the self-test, under which errors are largest.

    Raises
    ------
    SessionError
        When fp8 does not run here.
    """
    encoder = (lively(model) if invented else
               load_encoder(model.size, model.version, model.weights, True)[0]).to(device).eval()
    normalise = Normalise(device)
    clips = torch.from_numpy(np.stack(clips_of(model))).to(device)
    with torch.no_grad(), on_device(device):
        exact = PlainForward(encoder, normalise)(clips)
        encoder.set_branch_precision(torch.bfloat16)
        shape = tuple(clips.shape[1:])
        choice = DeviceChoice(device, PRECISIONS['fp8'], 'to study it')
        ready = prepare8(encoder, choice, normalise, shape, keep=True)
        made = ready.encoder
        chosen, parts = made.chosen, frozenset(made.parts)
        rows = []
        for name, some in {
                'bf16': frozenset(), 'float8: qkv': frozenset(p for p in parts if p[1] == QKV),
                'float8: MLPs': frozenset(p for p in parts if p[1] == MLP),
                'float8: qkv and MLPs': parts, 'precision fp8': chosen}.items():
            made.chosen = some
            rows.append({'name': name, 'error': max_error(made(clips), exact),
                         'encode_ms': _median_ms(made, clips[:1], runs),
                         'part': sum(made.parts[p] for p in some) / sum(made.parts.values())})
    return {'model': model.name, 'device': device_name(device), 'execution': ready.kind,
            'note': ready.note, 'weights': 'of the self-test' if invented else
            'of the package' if bundled_file(model.size, model.version) else 'random',
            'rows': rows}


def _median_ms(made: Fp8Encoder, pixels: Tensor, runs: int) -> float:
    """Median time of one clip."""
    if pixels.device.type != 'cuda':
        return float(np.median([device_ms(pixels.device, lambda: made(pixels))
                                for _ in range(runs)]))
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM):
            made(pixels)
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        made(pixels)
    return float(np.median([device_ms(pixels.device, graph.replay) for _ in range(runs)][WARM:]))


def main(argv: Sequence[str] | None = None) -> int:
    """Command line: measure, print the table, write the file; 1 when fp8 does not run."""
    parser = argparse.ArgumentParser(prog='vjepa-ros fp8-study', description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--model-size', default='large', metavar='SIZE')
    parser.add_argument('--num-frames', type=int, default=16, metavar='T')
    parser.add_argument('--image-size', type=int, default=256, metavar='S')
    parser.add_argument('--device', default='cuda:0', metavar='NAME', help='cpu or cuda:N')
    parser.add_argument('--invented', action='store_true',
                        help='the random weights of the self-test, under which errors are largest')
    parser.add_argument('--runs', type=int, default=100, metavar='N')
    parser.add_argument('--json', type=Path, metavar='FILE')
    args = parser.parse_args(argv)
    if args.runs <= WARM:
        parser.error(f'argument --runs: {args.runs} is out of range: more than {WARM}')
    logging.getLogger('vjepa_ros').setLevel(logging.ERROR)
    console = Console()
    device = torch.device(args.device)
    try:
        found = study(Model(args.model_size, '2.0', args.num_frames, args.image_size), device,
                      args.runs, args.invented)
    except (SessionError, DeviceError, WeightsError, ValueError) as error:
        console.print(f'cannot measure: {error}', style='red', highlight=False, markup=False)
        return 1
    table = Table('', 'share', 'error', 'encode ms', title=f'{found["model"]}, {found["device"]}, '
                  f'{found["execution"]}', caption=found['note'])
    for row in found['rows']:
        table.add_row(row['name'], f'{100 * row["part"]:.0f} %', f'{100 * row["error"]:.2f} %',
                      f'{row["encode_ms"]:.3f}')
    console.print(table)
    words = sys.argv[2:] if argv is None else argv
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps({
            'command': command('fp8-study', words), 'date': date.today().isoformat(),
            'hardware': {**hardware(), **accelerator(device)}, 'versions': versions(),
            **found}, indent=1) + '\n', encoding='utf-8')
    return 0
