# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Measure one case with its baselines, and put the figures together."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import date
from functools import cache
from typing import Any

import torch

from vjepa_ros.cli.benchmark import huggingface
from vjepa_ros.cli.benchmark.case import Case, loadable
from vjepa_ros.cli.benchmark.clock import Contender, measure, statistics
from vjepa_ros.cli.benchmark.floor import Floor, floor_dtype
from vjepa_ros.cli.benchmark.ours import Encode, EndToEnd, memory
from vjepa_ros.lab.report.host_info import accelerator, hardware, process_age, versions
from vjepa_ros.runtime.device import device_name

log = logging.getLogger(__name__)

BASELINES = ('hf', 'floor')
NAMES = {'hf': ('hf_eager', 'hf_compiled'), 'floor': ('floor',)}    # in the result
NOT_COMPILED = ('is measured on CUDA alone: what its users compile for speed there replays a CUDA '
                'graph')
FLOOR_NOTE = 'matrix products and attention alone, on random data'
MEANING = {
    'encode_ms': 'time of the device for normalising and encoding clips that are there already',
    'encode_call_ms': 'the same call on the clock of the host, with upload and download of all '
                      'features',
    'end_to_end_ms': 'host image in, assessment out, one new frame per camera',
    'beyond_encode_ms': 'end to end less the encoder, run by run',
    'start': 'imports: from the start of the process until loading begins; load: until the '
             'engine is loaded and warm, of which load_weights reads them, load_prepare brings '
             'them to the device and checks the kernels, load_warm runs and captures the first '
             'passes, load_noise_floor measures it; first result: load and the first features; '
             'ready: all',
    'baselines': 'encoder alone on inputs that are on the device, by the same clock; left_out '
                 'says why one was not measured',
    'ratios': 'baseline over ours, except floor: ours over floor'}


class Measured:
    """Contenders and what is known of them before they are measured."""

    def __init__(self) -> None:
        self.contenders: dict[str, Contender] = {}
        self.facts: dict[str, dict[str, Any]] = {}

    def add(self, name: str, make: Callable[[], Contender], **facts: Any) -> None:
        """Make and warm a contender; one that fails is reported and left out."""
        start = time.perf_counter()
        self.facts[name] = dict(facts)
        try:
            self.contenders[name] = make()
        except (RuntimeError, ValueError, TypeError, OSError, ImportError) as error:
            self.facts[name]['error'] = f'{type(error).__name__}: {error}'.strip()[:600]
            log.error('%s cannot be measured: %s', name, self.facts[name]['error'])
        self.facts[name]['warm_up_s'] = round(time.perf_counter() - start, 3)


def run(case: Case, baselines: Sequence[str] = (), iterations: int = 100, seconds: float = 10.0,
        end_to_end: bool = True, say: Callable[[str], None] = lambda text: None,
        advance: Callable[[str, int], None] = lambda name, done: None) -> dict[str, Any]:
    """Measure a case; the result is ready for JSON.

    Parameters
    ----------
    case
        What to measure.
    baselines
        Out of `BASELINES`.
    iterations, seconds
        Limits for every contender, see `measure`.
    end_to_end
        Whether to measure from host image to assessment as well.
    say, advance
        Told what is going on, and the progress of every contender.

    Raises
    ------
    ValueError
        For a case that this version or the model cannot run.
    DeviceError, SessionError, WeightsError
        When the engine does not load. A baseline that fails is reported in the result instead.
    """
    imports_s = process_age()
    with ExitStack() as stack:
        if case.saved:
            say('saving random weights')
        with loadable(case) as loaded:
            say('loading and warming the engine')
            before = time.perf_counter()
            ours = EndToEnd(loaded)
            stack.callback(ours.close)
            start = {'load_s': round(time.perf_counter() - before, 3)}
        engine = ours.engine
        start.update({f'load_{name}_s': value for name, value in engine.load_s.items()})
        encode = Encode(engine, case)
        start['first_result_s'] = round(time.perf_counter() - before, 3)
        if imports_s == imports_s:
            start['imports_s'] = round(imports_s, 3)
            start['ready_s'] = round(imports_s + start['first_result_s'], 3)
        encode.warm()
        measured = Measured()
        measured.contenders['ours'] = encode
        if end_to_end:
            say('filling the clip')
            ours.fill()
            measured.contenders['end_to_end'] = ours
        before_baselines = memory(engine)
        _add_baselines(measured, case, engine.choice, baselines, say)
        say('measuring')
        samples = measure(measured.contenders, iterations, seconds, advance)
    return _result(case, engine, samples, measured, before_baselines, start)


def _add_baselines(measured: Measured, case: Case, choice: Any, baselines: Sequence[str],
                   say: Callable[[str], None]) -> None:
    device, dtype = choice.device, floor_dtype(choice.dtype)
    if 'floor' in baselines:
        say('floor: warming up')
        measured.add('floor', lambda: Floor(case, device, dtype), dtype=_name(dtype),
                     what=FLOOR_NOTE)
        floor = measured.contenders.get('floor')
        if floor is not None:
            measured.facts['floor'].update(attention=floor.attention, tried_ms=floor.tried_ms)
    if 'hf' in baselines:
        # What its users run: half precision on accelerators, float32 on a CPU.
        dtype = torch.float32 if device.type == 'cpu' else dtype
        facts = {'dtype': _name(dtype), 'transformers': _transformers()}
        model = cache(lambda: huggingface.make_model(case, device, dtype))
        ways = ('eager', 'compiled') if device.type == 'cuda' else ('eager',)
        if device.type != 'cuda':
            measured.facts['hf_compiled'] = {'left_out': NOT_COMPILED}
        for way in ways:
            say(f'Hugging Face {way}: warming up')
            measured.add(f'hf_{way}', lambda way=way, dtype=dtype: huggingface.HuggingFace(
                model(), case, device, dtype, way == 'compiled'), **facts)


def _result(case: Case, engine: Any, samples: Mapping[str, Mapping[str, list[float]]],
            measured: Measured, memory_bytes: dict[str, int], start: dict[str, float]
            ) -> dict[str, Any]:
    choice = engine.choice
    encode = statistics(samples['ours']['encode'])
    result: dict[str, Any] = {
        'date': date.today().isoformat(), 'hardware': {**hardware(), **accelerator(choice.device)},
        'versions': versions(), 'torch_threads': torch.get_num_threads(),
        'configuration': {
            **asdict(case), 'source': list(case.source), 'tokens': case.tokens,
            'compile': engine.config.compile,
            'device': str(choice.device), 'device_name': device_name(choice.device),
            'execution': str(getattr(engine, 'execution', '')),
            'execution_reason': str(getattr(engine, 'execution_reason', '')),
            'geometry': getattr(measured.contenders.get('end_to_end'), 'geometry', case.geometry),
            'precision': choice.precision, 'chosen_because': choice.reason,
            'weights': _weights(case, engine)},
        'meaning': MEANING, 'encode_ms': encode,
        'encode_call_ms': statistics(samples['ours']['call'])}
    if 'end_to_end' in samples:
        times = samples['end_to_end']
        result['end_to_end_ms'] = statistics(times['end_to_end'])
        if 'beyond_encode' in times:
            result['beyond_encode_ms'] = statistics(times['beyond_encode'])
        result['stages_ms'] = {name.removeprefix('stage:'): statistics(values)['median']
                               for name, values in times.items() if name.startswith('stage:')}
    result['throughput_clips_per_s'] = {
        name: round(1e3 * case.cameras / result[f'{name}_ms']['median'], 3)
        for name in ('encode', 'end_to_end') if f'{name}_ms' in result}
    result['memory_bytes'] = memory_bytes
    result['start'] = start
    result['baselines'], result['ratios'] = {}, {}
    for name, facts in {**_not_asked(), **measured.facts}.items():
        found = dict(facts)
        if name in samples:
            found.update(statistics(samples[name]['encode']))
            ratio = found['median'] / encode['median']
            result['ratios'][name] = round(1 / ratio if name == 'floor' else ratio, 3)
        result['baselines'][name] = found
    return result


def _not_asked() -> dict[str, dict[str, Any]]:
    return {name: {'left_out': f'was not asked for; add --baseline {asked}'}
            for asked, names in NAMES.items() for name in names}


def failures(result: Mapping[str, Any]) -> list[str]:
    """What of a result could not be measured, in words."""
    return [f'{name}: {found["error"]}' for name, found in result['baselines'].items()
            if 'error' in found]


def _weights(case: Case, engine: Any) -> str:
    if case.saved:
        return 'random, read from a file (untrained; speed does not depend on weights)'
    if engine.report.trained:
        return 'trained'
    return 'random (untrained; speed does not depend on weights)'


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix('torch.')


def _transformers() -> str:
    from importlib import metadata
    return metadata.version('transformers')
