# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Show where the time of a model goes: stages, layers, operators, and the cost of each precision.

Stages are those of the running engine. Layers are timed in the plain network, one after the other,
because graphs and compiled code have none.
"""

from __future__ import annotations

import argparse
import logging
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, replace
from datetime import date
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from vjepa_ros.cli.benchmark.case import Case, Encode, EndToEnd, add_options, case_of, memory
from vjepa_ros.cli.benchmark.clock import Contender, measure, statistics
from vjepa_ros.cli.console import positive, print_error, save, steps, whole
from vjepa_ros.cli.selftest.parity import relative
from vjepa_ros.lab.report.measurement import accelerator, hardware, versions, write_json
from vjepa_ros.model.checkpoint.load import WeightsError, load_model
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.runtime.device import DeviceChoice, DeviceError, choose_device, device_name
from vjepa_ros.runtime.engine import Engine, EngineConfig
from vjepa_ros.runtime.session import SessionError

PRECISIONS = ('fp32', 'fp16', 'bf16', 'fp8', 'int8')
INSIDE = ('qkv', 'projection', 'fc1', 'fc2')    # parts within another part
# Modules of a block by their names in it; '' is the block.
BLOCK = {'': 'block', '.norm1': 'norm 1', '.attn': 'attention', '.attn.qkv': 'qkv',
         '.attn.proj': 'projection', '.norm2': 'norm 2', '.mlp': 'mlp', '.mlp.fc1': 'fc1',
         '.mlp.fc2': 'fc2'}
WARM_RUNS, TRACED_RUNS = 2, 3


def parts(encoder: Encoder) -> dict[nn.Module, str]:
    """Return the modules to time and what they are called in the result."""
    last = 'norm' if encoder.version == '2.0' else f'norms_block.{len(encoder.norms_block) - 1}'
    found = {'patch_embed': 'patch embedding', last: 'final norm'}
    for number in range(len(encoder.blocks)):
        found |= {f'blocks.{number}{name}': what for name, what in BLOCK.items()}
    return {encoder.get_submodule(name): what for name, what in found.items()}


@torch.inference_mode()
def time_layers(case: Case, choice: DeviceChoice, runs: int) -> dict[str, float]:
    """Return the time [ms] of each part of the plain network in a run, over all blocks.

    On CUDA it is the time of the kernels, without gaps between launches; else that of the CPU.
    """
    encoder, _, _ = load_model(case.model_size, case.model_version, case.weights,
                               allow_random_weights=True)
    encoder.set_branch_precision(choice.branches)
    encoder = encoder.to(choice.device).eval()
    side = case.image_size
    pixels = torch.randn(case.cameras, 3, case.num_frames, side, side, device=choice.device)
    for _ in range(WARM_RUNS):
        encoder(pixels)
    named = parts(encoder)
    running: dict[nn.Module, record_function] = {}

    def begin(module: nn.Module, inputs: object) -> None:
        running[module] = record_function(named[module])
        running[module].__enter__()

    def end(module: nn.Module, inputs: object, output: object) -> None:
        running.pop(module).__exit__(None, None, None)

    with ExitStack() as stack:
        for module in named:
            stack.callback(module.register_forward_pre_hook(begin).remove)
            stack.callback(module.register_forward_hook(end).remove)
        cuda = choice.device.type == 'cuda'
        with profile(activities=_activities(cuda)) as recorded:
            for _ in range(runs):
                encoder(pixels)
    # On a GPU there are events of these names, too: from the first kernel to the last, with gaps.
    times = {event.key: _event_ms(event, cuda, own=False) / runs
             for event in recorded.key_averages()
             if event.key in named.values() and event.device_type.name == 'CPU'}
    return {name: times[name] for name in dict.fromkeys(named.values())}


def record(contender: Contender, cuda: bool, trace: Path | None = None, top: int = 15
           ) -> list[dict[str, Any]]:
    """Profile some runs as they are in use: a CUDA graph shows its kernels.

    Parameters
    ----------
    contender
        Warmed up.
    cuda
        Whether to record and rank GPU kernels instead of CPU operators.
    trace
        Chrome trace to write.
    top
        Number of operators to return.

    Returns
    -------
    list of dict
        ``name``, ``ms`` and ``calls`` in a run of the most expensive operators or kernels.
    """
    with profile(activities=_activities(cuda)) as recorded:
        for _ in range(TRACED_RUNS):
            contender.step()
    if trace is not None:
        trace.parent.mkdir(parents=True, exist_ok=True)
        recorded.export_chrome_trace(str(trace))
    times = [(_event_ms(event, cuda) / TRACED_RUNS, event) for event in recorded.key_averages()]
    times = sorted((t for t in times if t[0] > 0), key=lambda t: -t[0])[:top]
    return [{'name': event.key[:120], 'ms': round(ms, 4), 'calls': event.count / TRACED_RUNS}
            for ms, event in times]


def _activities(cuda: bool) -> list[ProfilerActivity]:
    return [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if cuda else [])


def _event_ms(event: Any, cuda: bool, own: bool = True) -> float:
    """Return the time of an event [ms]; `own`: without what it calls."""
    # Older PyTorch names the device's time after CUDA.
    device = 'device' if hasattr(event, 'device_time_total') else 'cuda'
    name = f'{device if cuda else "cpu"}_time_total'
    return 1e-3 * getattr(event, f'self_{name}' if own else name)


def run(case: Case, runs: int = 20, seconds: float = 5.0, trace: Path | None = None,
        say: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Profile a case; the result is ready for JSON.

    Raises
    ------
    ValueError, DeviceError, SessionError, WeightsError
        When the case cannot be run.
    """
    say('stages')
    with closing(EndToEnd(case)) as whole:
        choice = whole.engine.choice
        encode = Encode(whole.engine, case)
        encode.warm()
        whole.fill()
        samples = measure({'ours': encode, 'whole': whole}, runs, seconds)
        held = memory(whole.engine)
        execution = str(getattr(whole.engine, 'execution', ''))
        say('operators')
        operators = record(encode, choice.device.type == 'cuda', trace)
    say('layers')
    layers = time_layers(case, choice, runs)
    precisions = compare_precisions(case, runs, seconds, say)
    stages = {name.removeprefix('stage:'): statistics(values)
              for name, values in samples['whole'].items()}
    return {
        'date': date.today().isoformat(), 'hardware': {**hardware(), **accelerator(choice.device)},
        'versions': versions(), 'torch_threads': torch.get_num_threads(),
        'configuration': {**asdict(case), 'device': str(choice.device),
                          'device_name': device_name(choice.device),
                          'precision': choice.precision, 'execution': execution},
        'encode_ms': statistics(samples['ours']['encode']), 'stages_ms': stages,
        'layer_totals_ms': {name: round(ms, 4) for name, ms in layers.items()},
        'operators': operators,
        'precisions': precisions, 'memory_bytes': held}


def compare_precisions(case: Case, runs: int, seconds: float,
                       say: Callable[[str], None] = lambda text: None
                       ) -> dict[str, dict[str, Any]]:
    """Measure time, memory and error of every precision on the device of a case.

    Errors are rms relative to float32 on the same device, for a clip of random pixels.
    """
    clip = np.random.default_rng(2).integers(
        0, 256, (case.num_frames, case.image_size, case.image_size, 3), np.uint8)
    found: dict[str, dict[str, Any]] = {}
    exact: np.ndarray | None = None
    for precision in PRECISIONS:
        try:
            choose_device(case.device, True, precision)
        except DeviceError as error:
            found[precision] = {'left_out': str(error)}
            continue
        say(f'precisions: {precision}')
        each = replace(case, precision=precision)
        with closing(Engine.load(EngineConfig(**each.engine_options()))) as engine:
            features = engine.encode([clip])[0]
            exact = features.copy() if precision == 'fp32' else exact
            encode = Encode(engine, each)
            encode.warm()
            times = measure({'ours': encode}, runs, seconds)['ours']['encode']
            found[precision] = {
                'encode_ms': statistics(times), 'memory_bytes': engine.memory_bytes(),
                'error': None if exact is None else float(f'{relative(features, exact):.3g}')}
    return found


def make_tables(result: dict[str, Any]) -> list[Table]:
    """Return the result as tables."""
    c = result['configuration']
    stages = _table(f'stages: {c["model_size"]} {c["model_version"]}, {c["num_frames"]} frames of '
                    f'{c["image_size"]} px, {c["device_name"]}, {c["precision"]}',
                    'stage', 'median ms', 'p95 ms')
    for name, times in result['stages_ms'].items():
        stages.add_row(name.replace('_', ' '), f'{times["median"]:.3f}', f'{times["p95"]:.3f}')
    layers = _table('layers of the plain network, over all blocks', 'part', 'ms')
    for name, ms in result['layer_totals_ms'].items():
        layers.add_row(f'  {name}' if name in INSIDE else name, f'{ms:.3f}')
    operators = _table('operators of the engine, per run', 'operator', 'ms', 'calls')
    for each in result['operators']:
        operators.add_row(each['name'], f'{each["ms"]:.3f}', f'{each["calls"]:.0f}')
    precisions = _table('precisions', 'precision', 'encode ms', 'MiB', 'error')
    for name, each in result['precisions'].items():
        if 'left_out' in each:
            precisions.add_row(name, 'not here', '', '')
        else:
            precisions.add_row(name, f'{each["encode_ms"]["median"]:.3f}',
                               f'{each["memory_bytes"] / 2**20:.0f}', f'{each["error"]:.2g}')
    return [stages, layers, operators, precisions]


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify='left')
    for index, name in enumerate(columns):
        table.add_column(name, justify='right' if index else 'left',
                         overflow='ellipsis' if index == 0 else 'fold', no_wrap=True)
    return table


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line: profile, print the tables and write the files."""
    parser = argparse.ArgumentParser(prog='vjepa-ros profile', description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, without=('saved_weights',))
    parser.add_argument('--runs', type=whole(), default=20, metavar='N',
                        help='runs of each measurement (default: 20)')
    parser.add_argument('--seconds', type=positive, default=5.0, metavar='S',
                        help='stop each measurement after this time, but after 3 runs at least '
                        '(default: 5)')
    parser.add_argument('--trace', type=Path, metavar='FILE',
                        help='Chrome trace to write, for chrome://tracing or ui.perfetto.dev')
    parser.add_argument('--json', type=Path, metavar='FILE', help='write the figures')
    args = parser.parse_args(argv)
    console = Console()
    logging.getLogger('vjepa_ros').setLevel(logging.ERROR)
    with TemporaryDirectory() as work:
        # PyTorch does not tell where it could not write.
        trace = args.trace and Path(work) / args.trace.name
        try:
            with steps(console) as say:
                result = run(case_of(args), args.runs, args.seconds, trace, say)
        except (ValueError, DeviceError, SessionError, WeightsError) as error:
            return print_error(f'cannot profile: {error}', console, args)
        for table in make_tables(result):
            console.print(table)
        memory_bytes = result['memory_bytes']
        console.print(', '.join(f'{name.replace("_", " ")} {value / 2**20:.0f} MiB'
                                for name, value in memory_bytes.items()), highlight=False)
        return (save('--trace', args.trace, partial(shutil.copyfile, trace), console)
                | save('--json', args.json, partial(write_json, result=result), console))
