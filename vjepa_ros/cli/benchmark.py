# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Measure the speed of a model, alone and from image to assessment, against baselines.

encode: time on the device to normalise and encode clips that are there already. encode call: the
same on the clock of the host, with upload and download. end to end: image on the host to
assessment, one new frame per camera; beyond encode: end to end without the encoder, run by run.
ratio: baseline over ours; for the floor, ours over the floor. Sizes without weights run with
random ones, because speed does not depend on weights.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, fields
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from vjepa_ros.cli.console import add_model, positive, print_error, save, steps, whole
from vjepa_ros.cli.contenders import (
    Case,
    Contender,
    Encode,
    EndToEnd,
    Floor,
    HuggingFace,
    WARM_RUNS,
    statistics,
    take_turns,
)
from vjepa_ros.lab.report.measurement import (
    accelerator,
    command,
    hardware,
    process_age,
    versions,
    without,
    write_json,
)
from vjepa_ros.model.checkpoint.load import WeightsError
from vjepa_ros.model.encoder import VERSIONS
from vjepa_ros.model.variants import PATCH
from vjepa_ros.perception.settings import GEOMETRIES
from vjepa_ros.runtime.device import DeviceError, SessionError, WANTED, device_name
from vjepa_ros.runtime.model import Model

BASELINES = {'hf': ('hf_eager', 'hf_compiled'), 'floor': ('floor',)}    # and names in the result
LABELS = {'hf_eager': 'Hugging Face, eager', 'hf_compiled': 'Hugging Face, compiled',
          'floor': 'floor: products and attention only'}
PATHS = ('--json', '--profile', '--weights')    # which belong to one machine
TIMES = ('encode_ms', 'stream_encode_ms', 'encode_call_ms', 'end_to_end_ms', 'beyond_encode_ms')
COMPARED = {'encode_ms': 'encoder alone, a clip', 'stream_encode_ms': 'encoder alone, a stream',
            'end_to_end_ms': 'image to assessment'}


def make_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(prog='vjepa-ros benchmark', description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add_model(parser, 'num_frames', 'image_size', 'precision', 'cpu_threads')
    parser.add_argument('--model-version', default='auto', choices=('auto', *VERSIONS))
    parser.add_argument('--cameras', type=whole(), default=1, metavar='N',
                        help='clips in one forward pass (default: 1)')
    parser.add_argument('--compile', default='auto', choices=('off', 'auto', 'on'),
                        help='whether torch.compile is used (default: auto)')
    parser.add_argument('--source', type=_image_size, default=Case.source, metavar='SIZE',
                        help='width and height of the images (default: 640x480)')
    parser.add_argument('--geometry', default='auto', choices=GEOMETRIES, help='where frames are '
                        'resized and looming is measured (default: auto)')
    parser.add_argument('--baseline', action='append', default=[], choices=tuple(BASELINES),
                        help='also measure hf, the transformers library, eager and (on CUDA) '
                        'compiled, or floor, only the matrix products and attention; may be '
                        'repeated')
    parser.add_argument('--iterations', type=whole(), default=100, metavar='N',
                        help='runs of each contender (default: 100)')
    parser.add_argument('--seconds', type=positive, default=10.0, metavar='S',
                        help='stop each contender after this time, but after 3 runs at least '
                        '(default: 10)')
    parser.add_argument('--encode-only', action='store_true',
                        help='measure the encoder only, not image to assessment')
    parser.add_argument('--compare', type=_devices, metavar='A,B',
                        help='measure the same on several devices, such as cpu,mps or cpu,cuda, '
                        'each in its own process; prints ms, FPS and the factor')
    parser.add_argument('--profile', type=Path, metavar='FILE',
                        help='write a trace of one run of each contender by torch.profiler, '
                        'after measuring')
    parser.add_argument('--json', type=Path, metavar='FILE', help='write the figures')
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 1 when something could not be measured, 130 after Ctrl-C."""
    words = list(sys.argv[2:] if argv is None else argv)
    parser = make_parser()
    args = parser.parse_args(words)
    if args.compare and (args.device != Case.device or args.profile):
        parser.error('--device and --profile have no effect with --compare')
    console = Console()
    logging.getLogger('vjepa_ros').setLevel(logging.ERROR)
    try:
        if args.compare:
            return compare(args, without(words, ('--compare', '--json')), console)
        result = measure(args, words, console)
    except (ValueError, DeviceError, SessionError, WeightsError, OSError) as error:
        return print_error(f'cannot measure: {error}', console, args)
    except KeyboardInterrupt:
        console.print('stopped; nothing was written')
        return 130
    console.print(_table(result))
    failed = save('--json', args.json, lambda path: write_json(path, result), console)
    for name, each in result['baselines'].items():
        if 'error' in each:
            failed = print_error(f'NOT MEASURED {name}: {each["error"]}', console, args)
    return failed


def measure(args: argparse.Namespace, words: Sequence[str], console: Console) -> dict[str, Any]:
    """Measure the case of a command line; a baseline that fails is reported in the result."""
    imports_s = process_age()
    if 'hf' in args.baseline and find_spec('transformers') is None:
        raise ValueError('--baseline hf needs the transformers library, which is not installed '
                         'here: pip install transformers')
    case = Case(**{f.name: getattr(args, f.name) for f in fields(Case)})
    with ExitStack() as stack:
        say = stack.enter_context(steps(console))
        say('loading and warming the engine')
        before = time.perf_counter()
        engine = case.load()
        stack.callback(engine.close)
        start = {'load_s': round(time.perf_counter() - before, 3),
                 **{f'load_{name}_s': value for name, value in engine.load_s.items()}}
        encode = Encode(engine, case)
        start['first_result_s'] = round(time.perf_counter() - before, 3)
        if not math.isnan(imports_s):
            start['ready_s'] = round(imports_s + start['first_result_s'], 3)
        for _ in range(WARM_RUNS):
            encode.step()
        contenders: dict[str, Contender] = {'ours': encode}
        geometry = case.geometry
        if not args.encode_only:
            say('filling the clip')
            contenders['end_to_end'] = whole_way = EndToEnd(engine, case)
            stack.callback(whole_way.close)
            geometry = whole_way.geometry
        held = _memory(engine)
        facts = _add_baselines(contenders, case, engine.choice, args.baseline, say)
        say('measuring')
        samples = take_turns(contenders, args.iterations, args.seconds)
        save('--profile', args.profile, lambda path: _profile(contenders, path), console)
        choice = engine.choice
        configuration = {
            **asdict(case), 'tokens': case.tokens, 'compile': engine.config.compile,
            'device': str(choice.device), 'device_name': device_name(choice.device),
            'execution': engine.execution, 'execution_reason': engine.execution_reason,
            'geometry': geometry, 'precision': choice.precision, 'chosen_because': choice.reason,
            'weights': 'trained' if engine.report.trained else 'random'}
    return {'command': command('benchmark', without(words, PATHS)),
            'date': date.today().isoformat(),
            'hardware': {**hardware(), **accelerator(choice.device)}, 'versions': versions(),
            'torch_threads': torch.get_num_threads(), 'configuration': configuration,
            'memory_bytes': held, 'start': start, **_figures(facts, samples)}


def _add_baselines(contenders: dict[str, Contender], case: Case, choice: Any, asked: list[str],
                   say: Callable[[str], None]) -> dict[str, dict[str, Any]]:
    """Make and warm up the baselines; return facts about each, or its error."""
    facts: dict[str, dict[str, Any]] = {}
    device, dtype = choice.device, choice.dtype
    if dtype not in (torch.float32, torch.float16):
        dtype = torch.float32 if dtype == torch.int8 else torch.bfloat16
    # As users run it: half precision on accelerators, float32 on a CPU.
    theirs = torch.float32 if device.type == 'cpu' else dtype

    def add(name: str, kind: torch.dtype, make: Callable[[], Contender]) -> None:
        say(f'{LABELS[name]}: warming up')
        facts[name] = {'dtype': str(kind).removeprefix('torch.')}
        try:
            contenders[name] = make()
        except (RuntimeError, ValueError, TypeError, OSError, ImportError) as error:
            facts[name]['error'] = f'{type(error).__name__}: {error}'.strip()[:600]

    if 'floor' in asked:
        add('floor', dtype, lambda: Floor(case, device, dtype))
        if isinstance(floor := contenders.get('floor'), Floor):
            facts['floor']['attention'] = floor.attention
    if 'hf' in asked:
        add('hf_eager', theirs, lambda: HuggingFace(case, device, theirs, False))
        if device.type == 'cuda':   # the compiled model replays a CUDA graph
            add('hf_compiled', theirs, lambda: HuggingFace(case, device, theirs, True))
    return facts


def _figures(facts: dict[str, dict[str, Any]],
             samples: Mapping[str, Mapping[str, list[float]]]) -> dict[str, Any]:
    """Return the statistics of encoder, end to end, stages and baselines."""
    ours, end_to_end = samples['ours'], samples.get('end_to_end', {})
    found: dict[str, Any] = {
        f'{"encode_call" if name == "call" else name}_ms': statistics(values)
        for name, values in (*ours.items(), *end_to_end.items()) if ':' not in name}
    if stages := {name.removeprefix('stage:'): statistics(values)['median']
                  for name, values in end_to_end.items() if ':' in name}:
        found['stages_ms'] = stages
    ratios = {}
    for name in facts.keys() & samples.keys():
        facts[name].update(statistics(samples[name]['encode']))
        ratio = facts[name]['median'] / found['encode_ms']['median']
        ratios[name] = round(1 / ratio if name == 'floor' else ratio, 3)
    return {**found, 'baselines': facts, 'ratios': ratios}


def _memory(engine: Model) -> dict[str, int]:
    """Return the memory of model and process in bytes."""
    found = {'engine': engine.memory_bytes()}
    device = engine.choice.device
    if device.type == 'cuda':
        found['device_allocated'] = torch.cuda.memory_allocated(device)
        found['device_peak'] = torch.cuda.max_memory_allocated(device)
    elif device.type == 'mps':
        found['device_allocated'] = torch.mps.current_allocated_memory()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {**found, 'process_peak': peak * (1 if sys.platform == 'darwin' else 1024)}


def _profile(contenders: Mapping[str, Contender], path: Path) -> None:
    """Write a trace of one run of each contender, for Perfetto or chrome://tracing."""
    from torch.profiler import ProfilerActivity, profile, record_function

    kinds = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        kinds.append(ProfilerActivity.CUDA)
    with profile(activities=kinds) as profiled:
        for name, contender in contenders.items():
            with record_function(name):
                contender.step()
    profiled.export_chrome_trace(str(path))


def _table(result: Mapping[str, Any]) -> Table:
    """Return the figures as a table."""
    c = result['configuration']
    title = (f'{c["model_size"]} {c["model_version"]}, {c["num_frames"]} frames of '
             f'{c["image_size"]} px, cameras: {c["cameras"]}, {c["device_name"]}, '
             f'{c["precision"]}, {c["execution"]}, weights {c["weights"]}')
    rows = {name.removesuffix('_ms').replace('_', ' '): result[name]
            for name in TIMES if name in result}
    rows |= {LABELS[name]: {**found, 'ratio': result['ratios'].get(name, 'failed')}
             for name, found in result['baselines'].items()}
    held = ', '.join(f'{name.replace("_", " ")} {value / 2**20:.0f} MiB'
                     for name, value in result['memory_bytes'].items())
    table = Table(title=title, title_justify='left', caption_justify='left',
                  caption=f'{held}; loaded in {result["start"]["load_s"]:.1f} s')
    columns = ('median', 'p95', 'p99', 'min', 'runs', 'ratio')
    table.add_column('time in ms')
    for name in columns:
        table.add_column(name, justify='right')
    for label, found in rows.items():
        cells = [found.get(name, '') for name in columns]
        table.add_row(label, *(f'{c:.3f}' if isinstance(c, float) else str(c) for c in cells))
    return table


def compare(args: argparse.Namespace, words: Sequence[str], console: Console) -> int:
    """Measure each device in its own process, print and write the figures; 0 when all ran."""
    results: dict[str, Any] = {}
    for name in track(args.compare, 'measuring', console=console, transient=True):
        problem, results[name] = measured_alone(['--device', name, *words])
        if problem:
            del results[name]
            console.print(f'{name}: NOT MEASURED\n{problem}', style='red', highlight=False,
                          markup=False)
    failed = len(results) < len(args.compare)
    table = Table(title='the same model on each device', title_justify='left')
    for name in ('measure', 'device', 'ms', 'FPS', 'factor'):
        table.add_column(name, justify='left' if name in ('measure', 'device') else 'right')
    rows: dict[str, dict[str, dict[str, float]]] = {}
    for measure_, text in COMPARED.items():
        base = math.nan
        for device, result in results.items():
            if measure_ in result:
                ms = result[measure_]['median']
                base = ms if math.isnan(base) else base
                fps = 1e3 * result['configuration']['cameras'] / ms
                rows.setdefault(measure_, {})[device] = {'ms': ms, 'fps': fps, 'factor': base / ms}
                table.add_row(text, device, f'{ms:.2f}', f'{fps:.1f}', f'{base / ms:.2f}')
    if results:
        console.print(table)
        failed |= save('--json', args.json, lambda path: write_json(path, {
            'command': command('benchmark', ['--compare', ','.join(args.compare),
                                             *without(words, PATHS)]),
            'compared': rows, 'devices': results}), console)
    return int(failed)


def measured_alone(words: Sequence[str]) -> tuple[str, dict[str, Any] | None]:
    """Measure in a process; return what went wrong, or '', and the result."""
    # Not a pipe, because background compilation may outlive the process and keep a pipe open.
    with tempfile.TemporaryDirectory() as folder:
        file, said = Path(folder) / 'result.json', Path(folder) / 'said'
        with said.open('w') as out:
            code = subprocess.run([sys.executable, '-m', 'vjepa_ros', 'benchmark', *words,
                                   '--json', str(file)], stdout=out, stderr=out).returncode
        if code:
            text = said.read_text(encoding='utf-8', errors='replace')
            return '\n'.join(text.strip().splitlines()[-12:]), None
        return '', json.loads(file.read_text(encoding='utf-8'))


def _image_size(text: str) -> tuple[int, int]:
    match = re.fullmatch(r'(\d+)x(\d+)', text)
    if match is None or min(int(match[1]), int(match[2])) < PATCH:
        raise argparse.ArgumentTypeError(f"'{text}' is not a width and height such as 1280x720, "
                                         f'each at least {PATCH}')
    return int(match[1]), int(match[2])


def _devices(text: str) -> list[str]:
    names = [name for name in text.split(',') if name]
    wrong = [name for name in names if name == 'auto' or not WANTED.fullmatch(name)]
    if wrong or len(set(names)) != len(names) or len(names) < 2:
        raise argparse.ArgumentTypeError(f"'{text}' must name two or more of cpu, mps, cuda and "
                                         'cuda:N, each once, with commas between')
    return names
