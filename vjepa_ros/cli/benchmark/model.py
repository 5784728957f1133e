# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Measure the speed of a model, alone and from image to assessment, against baselines.

encode: time on the device to normalise and encode clips that are there already. call: the same on
the clock of the host, with upload and download. end to end: image on the host to assessment, one
new frame per camera; beyond encode: end to end without the encoder, run by run. ratio: baseline
over ours; for the floor, ours over the floor. Sizes without weights run with random ones, because
speed does not depend on weights.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from vjepa_ros.cli.benchmark import baselines, clock
from vjepa_ros.cli.benchmark import case as cases
from vjepa_ros.cli.benchmark.case import Case, Encode, EndToEnd, case_of, loadable, memory, option
from vjepa_ros.cli.benchmark.clock import Contender, statistics
from vjepa_ros.cli.benchmark.clock import measure as take_turns
from vjepa_ros.cli.benchmark.compare import devices_of
from vjepa_ros.cli.benchmark.suite import SUITES, suite_rows, sweep_rows
from vjepa_ros.cli.console import folder, positive, steps, whole
from vjepa_ros.lab.report.measurement import process_age
from vjepa_ros.model.checkpoint.load import WeightsError
from vjepa_ros.runtime.device import DeviceError, device_name
from vjepa_ros.runtime.session import SessionError

PROBLEMS = (ValueError, DeviceError, SessionError, WeightsError)
BASELINES = {'hf': ('hf_eager', 'hf_compiled'), 'floor': ('floor',)}    # and names in the result
NOT_COMPILED = 'is measured on CUDA only, where the compiled model replays a CUDA graph'
LABELS = {'hf_eager': 'Hugging Face, eager', 'hf_compiled': 'Hugging Face, compiled',
          'floor': 'floor: products and attention only'}
SUITE_OPTIONS = {'suite', 'rows', 'out'}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subject."""
    cases.add_options(parser)
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
    many = parser.add_mutually_exclusive_group()
    many.add_argument('--sweep', action='store_true',
                      help='measure all sizes, each in its own process, with their usual frames '
                      'and image size unless given')
    parser.add_argument('--sizes', default='', metavar='A,B',
                        help='sweep: only these sizes')
    parser.add_argument('--plot', type=Path, metavar='FILE',
                        help='sweep: PNG to write (default: benchmark.png in --out)')
    many.add_argument('--suite', choices=tuple(SUITES),
                      help='measure a list of configurations, each in its own process')
    many.add_argument('--compare', default='', metavar='A,B',
                      help='measure the same on several devices, such as cpu,mps or cpu,cuda; '
                      'prints ms, FPS and the factor, and writes a file into --out')
    parser.add_argument('--rows', default='', metavar='A,B',
                        help='suite: only these rows')
    parser.add_argument('--out', type=folder, default=Path('benchmark_output'), metavar='FOLDER',
                        help='sweep, suite and compare: folder of the JSON files (default: '
                        'benchmark_output)')


def check(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """End the program for options that have no effect together."""
    given = {name for name, value in vars(args).items() if value != parser.get_default(name)}
    if args.suite:
        what, idle = '--suite, whose rows set their own options', given - SUITE_OPTIONS
    elif args.compare:
        what, idle = '--compare', given & {'json', 'rows', 'sizes', 'plot', 'device'}
    elif args.sweep:
        what, idle = '--sweep', given & {'json', 'rows', 'model_size'}
    else:
        what = 'neither --sweep, --suite nor --compare'
        idle = given & {'sizes', 'plot', 'rows', 'out'}
    if idle:
        files = '; --out FOLDER receives a JSON file for each row' if 'json' in idle else ''
        parser.error(f'{", ".join(map(option, sorted(idle)))} has no effect with {what}{files}')
    try:
        suite_rows(args.suite, args.rows) if args.suite else sweep_rows(args.sizes, [])
        devices_of(args.compare) if args.compare else None
    except ValueError as error:
        parser.error(str(error))


def measure(args: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Measure the case of a command line; the result is ready for JSON.

    A baseline that fails is reported in the result.
    """
    imports_s = process_age()
    if 'hf' in args.baseline and baselines.huggingface_problem():
        raise ValueError(baselines.huggingface_problem())
    case = case_of(args)
    with ExitStack() as stack:
        say = stack.enter_context(steps(console))
        loaded = stack.enter_context(loadable(case))
        say('loading and warming the engine')
        before = time.perf_counter()
        ours = EndToEnd(loaded)
        stack.callback(ours.close)
        engine = ours.engine
        start = {'load_s': round(time.perf_counter() - before, 3),
                 **{f'load_{name}_s': value for name, value in engine.load_s.items()}}
        encode = Encode(engine, case)
        start['first_result_s'] = round(time.perf_counter() - before, 3)
        if imports_s == imports_s:
            start['imports_s'] = round(imports_s, 3)
            start['ready_s'] = round(imports_s + start['first_result_s'], 3)
        encode.warm()
        contenders: dict[str, Contender] = {'ours': encode}
        if not args.encode_only:
            say('filling the clip')
            ours.fill()
            contenders['end_to_end'] = ours
        held = memory(engine)
        facts = _add_baselines(contenders, case, engine.choice, args.baseline, say)
        say('measuring')
        samples = take_turns(contenders, args.iterations, args.seconds)
    return {'configuration': _configuration(case, engine, ours.geometry or case.geometry),
            **_times(case, samples), 'memory_bytes': held, 'start': start,
            **_compared(facts, samples)}


def _add_baselines(contenders: dict[str, Contender], case: Case, choice: Any, asked: list[str],
                   say: Callable[[str], None]) -> dict[str, dict[str, Any]]:
    """Make and warm up the baselines; return facts about each, or its error."""
    facts: dict[str, dict[str, Any]] = {
        name: {'left_out': f'not requested; add --baseline {which}'}
        for which, names in BASELINES.items() for name in names}
    device, dtype = choice.device, baselines.floor_dtype(choice.dtype)

    def add(name: str, make: Callable[[], Any], **known: Any) -> None:
        say(f'{LABELS[name]}: warming up')
        facts[name] = known
        try:
            contenders[name] = make()
        except (RuntimeError, ValueError, TypeError, OSError, ImportError) as error:
            known['error'] = f'{type(error).__name__}: {error}'.strip()[:600]

    if 'floor' in asked:
        add('floor', lambda: baselines.Floor(case, device, dtype), dtype=_name(dtype))
        floor: Any = contenders.get('floor')
        if floor is not None:
            facts['floor'].update(attention=floor.attention, tried_ms=floor.tried_ms)
    if 'hf' in asked:
        # As users run it: half precision on accelerators, float32 on a CPU.
        theirs = torch.float32 if device.type == 'cpu' else dtype
        model = cache(lambda: baselines.make_huggingface(case, device, theirs))
        known = {'dtype': _name(theirs), 'transformers': metadata.version('transformers')}
        add('hf_eager', lambda: baselines.HuggingFace(model(), case, device, theirs, False),
            **known)
        facts['hf_compiled'] = {'left_out': NOT_COMPILED}
        if device.type == 'cuda':
            add('hf_compiled', lambda: baselines.HuggingFace(model(), case, device, theirs, True),
                **known)
    return facts


def _configuration(case: Case, engine: Any, geometry: str) -> dict[str, Any]:
    choice = engine.choice
    kind = 'trained' if engine.report.trained and not case.saved_weights else (
        'random, read from a file' if case.saved_weights else 'random')
    return {**asdict(case), 'tokens': case.tokens, 'compile': engine.config.compile,
            'device': str(choice.device), 'device_name': device_name(choice.device),
            'execution': str(getattr(engine, 'execution', '')),
            'execution_reason': str(getattr(engine, 'execution_reason', '')),
            'geometry': geometry, 'precision': choice.precision, 'chosen_because': choice.reason,
            'weights': kind}


def _times(case: Case, samples: Mapping[str, Mapping[str, list[float]]]) -> dict[str, Any]:
    found: dict[str, Any] = {'encode_ms': statistics(samples['ours']['encode']),
                             'encode_call_ms': statistics(samples['ours']['call'])}
    if 'stream_encode' in samples['ours']:
        # Of the same weights in turns.
        found['clip_encode_ms'] = found['encode_ms']
        found['stream_encode_ms'] = statistics(samples['ours']['stream_encode'])
    whole = samples.get('end_to_end', {})
    found.update({f'{name}_ms': statistics(whole[name])
                  for name in ('end_to_end', 'beyond_encode') if name in whole})
    if whole:
        found['stages_ms'] = {name.removeprefix('stage:'): statistics(values)['median']
                              for name, values in whole.items() if name.startswith('stage:')}
    found['throughput_clips_per_s'] = {
        name: round(1e3 * case.cameras / found[f'{name}_ms']['median'], 3)
        for name in ('encode', 'end_to_end') if f'{name}_ms' in found}
    return found


def _compared(facts: Mapping[str, dict[str, Any]],
              samples: Mapping[str, Mapping[str, list[float]]]) -> dict[str, Any]:
    """Return the baselines and their ratios to the encoder."""
    ours = statistics(samples['ours']['encode'])['median']
    ratios = {}
    for name in facts.keys() & samples.keys():
        facts[name].update(statistics(samples[name]['encode']))
        ratio = facts[name]['median'] / ours
        ratios[name] = round(1 / ratio if name == 'floor' else ratio, 3)
    return {'baselines': dict(facts), 'ratios': ratios}


def make_table(result: Mapping[str, Any]) -> Table:
    """Return the figures as a table."""
    c = result['configuration']
    title = (f'{c["model_size"]} {c["model_version"]}, {c["num_frames"]} frames of '
             f'{c["image_size"]} px, cameras: {c["cameras"]}, {c["device_name"]}, '
             f'{c["precision"]}, {c["execution"] or "eager"}, weights {c["weights"]}')
    rows = {name.removesuffix('_ms').replace('_', ' '): result[name] for name in (
        'encode_ms', 'stream_encode_ms', 'encode_call_ms', 'end_to_end_ms', 'beyond_encode_ms')
        if name in result}
    for name, found in result['baselines'].items():
        if 'left_out' not in found:
            rows[LABELS[name]] = {**found, 'ratio': result['ratios'].get(name, 'failed')}
    held = ', '.join(f'{name.replace("_", " ")} {value / 2**20:.0f} MiB'
                     for name, value in result['memory_bytes'].items())
    return clock.make_table(title, rows, ('median', 'p95', 'p99', 'min', 'runs', 'ratio'),
                            f'{held}; loaded in {result["start"]["load_s"]:.1f} s')


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix('torch.')
