# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Measure the speed of a model, alone and from image to assessment, against baselines.

encode: time on the device to normalise and encode clips that are there already. encode call: the
same on the clock of the host, with upload and download. end to end: image on the host to
assessment, one new frame per camera; beyond encode: end to end without the encoder, run by run.
ratio: baseline over ours; for the floor, ours over the floor. Sizes without weights run with
random ones, because speed does not depend on weights. Baselines have random weights, and find
their inputs on the device.
"""

from __future__ import annotations

import argparse
import logging
import math
import re
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import profile, record_function

from vjepa_ros.cli.console import add_model, positive, print_error, save, steps, whole
from vjepa_ros.lab.report.measurement import (
    command,
    process_age,
    provenance,
    without,
    write_json,
)
from vjepa_ros.model.checkpoint.load import WeightsError
from vjepa_ros.model.encoder import VERSIONS
from vjepa_ros.model.variants import PATCH, TUBELET, find_variant
from vjepa_ros.perception.pipeline import Perception
from vjepa_ros.perception.settings import PLACES, Settings, TrackConfig, Wants
from vjepa_ros.runtime.device import DeviceError, SessionError, WANTED, device_name
from vjepa_ros.runtime.model import Model, ModelConfig
from vjepa_ros.sources import PlayOptions, open_source

OF_MODEL = ('model_size', 'model_version', 'weights', 'num_frames', 'image_size',
            'precision', 'cpu_threads')
LABELS = {'hf': 'Hugging Face', 'floor': 'floor: products and attention only'}
PATHS = ('--json', '--profile', '--weights')    # which belong to one machine
TIMES = ('encode_ms', 'stream_encode_ms', 'encode_call_ms', 'end_to_end_ms', 'beyond_encode_ms')
COMPARED = {'encode_ms': 'encoder alone, a clip', 'stream_encode_ms': 'encoder alone, a stream',
            'end_to_end_ms': 'image to assessment'}
Step = Callable[[], dict[str, float]]   # runs once on an input not the last one; ms by name
INPUTS = 4          # sets of random data, used in turn
WARM_RUNS = 3
LEAST_RUNS = 3
BLOCK = 10          # runs of one contender before the next has its turn
RATE_HZ = 15.0                      # of the camera
APPROACH_S, SCENE_S = 4.5, 2.0      # when the synthetic robot drives, and for how long
TRIALS = 10         # runs to choose the kind of attention
# PyTorch 2.4 lacks one of them.
BACKENDS = {name: kind for name, kind in SDPBackend.__members__.items()
            if name.endswith('_ATTENTION')}


def make_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(prog='vjepa-ros benchmark', description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add_model(parser, 'num_frames', 'image_size', 'precision', 'cpu_threads')
    parser.add_argument('--model-version', default='auto', choices=('auto', *VERSIONS))
    parser.add_argument('--cameras', type=whole(), default=1, metavar='N',
                        help='clips in one forward pass (default: 1)')
    parser.add_argument('--source', type=_image_size, default=(640, 480), metavar='SIZE',
                        help='width and height of the images (default: 640x480)')
    parser.add_argument('--frames-on', default='auto', choices=PLACES, help='where frames are '
                        'resized (default: auto)')
    parser.add_argument('--baseline', action='append', default=[], choices=tuple(LABELS),
                        help='also measure hf, the transformers library, or floor, only the '
                        'matrix products and attention; may be repeated')
    parser.add_argument('--iterations', type=whole(), default=100, metavar='N',
                        help='runs of each contender (default: 100)')
    parser.add_argument('--seconds', type=positive, default=10.0, metavar='S',
                        help='stop each contender after this time, but after 3 runs at least '
                        '(default: 10)')
    parser.add_argument('--encode-only', action='store_true',
                        help='measure the encoder only, not image to assessment')
    parser.add_argument('--compare', type=_devices, metavar='A,B',
                        help='measure the same on several devices, such as cpu,mps or cpu,cuda; '
                        'prints ms, FPS and the factor')
    parser.add_argument('--profile', type=Path, metavar='FILE',
                        help='write a trace of one run of each contender by torch.profiler, '
                        'after measuring')
    parser.add_argument('--json', type=Path, metavar='FILE', help='write the figures')
    return parser


def _image_size(text: str) -> tuple[int, int]:
    match = re.fullmatch(r'(\d+)x(\d+)', text)
    if match is None or min(int(match[1]), int(match[2])) < PATCH:
        raise argparse.ArgumentTypeError(f"'{text}' is not a width and height such as 1280x720, "
                                         f'each at least {PATCH}')
    return int(match[1]), int(match[2])


def _devices(text: str) -> list[str]:
    names = text.split(',')
    if len(names) < 2 or 'auto' in names or not all(map(WANTED.fullmatch, names)):
        raise argparse.ArgumentTypeError(f"'{text}' must name two or more of cpu, mps, cuda and "
                                         'cuda:N, with commas between')
    return names


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 1 when something could not be measured, 130 after Ctrl-C."""
    words = list(sys.argv[2:] if argv is None else argv)
    parser = make_parser()
    args = parser.parse_args(words)
    if args.compare and (args.device != 'auto' or args.profile):
        parser.error('--device and --profile have no effect with --compare')
    console = Console()
    logging.getLogger('vjepa_ros').setLevel(logging.ERROR)
    results, failed = {}, 0
    for device in args.compare or [args.device]:
        try:
            results[device] = measure(args, device, words, console)
        except (ValueError, DeviceError, SessionError, WeightsError, OSError,
                torch.cuda.OutOfMemoryError) as error:
            failed = print_error(f'{device}: NOT MEASURED: {error}', console, args)
        except KeyboardInterrupt:
            console.print('stopped; nothing was written')
            return 130
    if not results:
        return 1
    result = _compared(results, words, console) if args.compare else results[args.device]
    if not args.compare:
        console.print(_table(result))
    return save('--json', args.json, lambda path: write_json(path, result), console) or failed


def measure(args: argparse.Namespace, device: str, words: Sequence[str], console: Console
            ) -> dict[str, Any]:
    """Measure what a command line asks for, on a device."""
    imports_s = process_age()
    if 'hf' in args.baseline and find_spec('transformers') is None:
        raise ValueError('--baseline hf needs the transformers library, which is not installed '
                         'here: pip install transformers')
    # A fallback to the CPU would be measured as if it were the device.
    config = ModelConfig(allow_random_weights=True, require_device=True, device=device,
                         **{name: getattr(args, name) for name in OF_MODEL})
    with steps(console) as say:
        say('loading and warming the model')
        before = time.perf_counter()
        engine = Model.load(config)
        start = {'load_s': round(time.perf_counter() - before, 3)}
        try:
            ours = Encode(engine, args.cameras)
            if not args.compare:        # else the process is older than that
                start['ready_s'] = round(imports_s + time.perf_counter() - before, 3)
            return {**provenance('benchmark', without(words, PATHS), engine.choice.device),
                    'torch_threads': torch.get_num_threads(), 'start': start,
                    **_figures(args, ours, console, say)}
        finally:
            engine.close()


def _figures(args: argparse.Namespace, ours: Encode, console: Console,
             say: Callable[[str], None]) -> dict[str, Any]:
    """Measure a model and the baselines in turns, then from image to assessment."""
    engine, choice, config = ours.engine, ours.engine.choice, ours.engine.config
    baselines: dict[str, Floor | HuggingFace] = {}
    for name in args.baseline:
        say(f'{LABELS[name]}: warming up')
        if name == 'floor':
            baselines[name] = Floor(config, args.cameras, choice.device, choice.branches)
        else:       # as users run it: half precision on accelerators, float32 on a CPU
            baselines[name] = HuggingFace(
                config, args.cameras, choice.device,
                torch.float32 if choice.device.type == 'cpu' else choice.branches)
    contenders: dict[str, Step] = {'ours': ours.step} | {
        name: each.step for name, each in baselines.items()}
    say('measuring')
    samples = take_turns(contenders, args.iterations, args.seconds)
    times, frames_on = samples['ours'], args.frames_on
    if not args.encode_only:
        say('from image to assessment')
        whole_way = EndToEnd(engine, args)
        frames_on = whole_way.where
        contenders['end_to_end'] = whole_way.step
        times |= take_turns({'end_to_end': whole_way.step}, args.iterations, args.seconds)[
            'end_to_end']
    save('--profile', args.profile, lambda path: _profile(contenders, path), console)
    found = {f'{name}_ms': statistics(each) for name, each in times.items()}
    facts = {name: each.facts | statistics(samples[name]['encode'])
             for name, each in baselines.items()}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    held = {'engine': engine.memory_bytes(),
            'process_peak': peak * (1 if sys.platform == 'darwin' else 1024)}
    if choice.device.type == 'cuda':
        held['device_peak'] = torch.cuda.max_memory_allocated(choice.device)
    median = found['encode_ms']['median']
    return {
        'configuration': {
            **{name: getattr(args, name) for name in OF_MODEL if name != 'weights'},
            'cameras': args.cameras, 'source': args.source, 'tokens': _tokens(config),
            'device': str(choice.device), 'device_name': device_name(choice.device),
            'execution': engine.execution, 'execution_reason': engine.execution_reason,
            'frames_on': frames_on, 'precision': choice.precision, 'chosen_because': choice.reason,
            'weights': 'trained' if engine.report.trained else 'random'},
        'memory_bytes': held, **found, 'baselines': facts,
        'ratios': {name: round(median / one['median'] if name == 'floor'
                               else one['median'] / median, 3) for name, one in facts.items()}}


def _tokens(config: ModelConfig) -> int:
    """Return the tokens of one clip."""
    return config.num_frames // TUBELET * (config.image_size // PATCH) ** 2


def _profile(contenders: Mapping[str, Step], path: Path) -> None:
    """Write a trace of one run of each contender, for Perfetto or chrome://tracing."""
    with profile() as profiled:
        for name, step in contenders.items():
            with record_function(name):
                step()
    profiled.export_chrome_trace(str(path))


def _table(result: Mapping[str, Any]) -> Table:
    """Return the figures as a table."""
    c = result['configuration']
    title = (f'{c["model_size"]} {c["model_version"]}, {c["num_frames"]} frames of '
             f'{c["image_size"]} px, cameras: {c["cameras"]}, {c["device_name"]}, '
             f'{c["precision"]}, {c["execution"]}, weights {c["weights"]}')
    rows = {name.removesuffix('_ms').replace('_', ' '): result[name]
            for name in TIMES if name in result}
    rows |= {LABELS[name]: {**found, 'ratio': result['ratios'][name]}
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


def _compared(results: Mapping[str, Any], words: Sequence[str], console: Console
              ) -> dict[str, Any]:
    """Print and return ms, FPS and factor of each device."""
    table = Table('measure', 'device', title='the same model on each device',
                  title_justify='left')
    for column in ('ms', 'FPS', 'factor'):
        table.add_column(column, justify='right')
    rows: dict[str, dict[str, dict[str, float]]] = {}
    for measured, text in COMPARED.items():
        medians = {device: result[measured]['median'] for device, result in results.items()
                   if measured in result}
        for device, ms in medians.items():
            fps = 1e3 * results[device]['configuration']['cameras'] / ms
            factor = next(iter(medians.values())) / ms
            rows.setdefault(measured, {})[device] = {'ms': ms, 'fps': fps, 'factor': factor}
            table.add_row(text, device, f'{ms:.2f}', f'{fps:.1f}', f'{factor:.2f}')
    console.print(table)
    return {'command': command('benchmark', without(words, PATHS)), 'compared': rows,
            'devices': dict(results)}


# -- what is measured ------------------------------------------------------------------------

class Encode:
    """The encoder on random clips, and on a stream where its weights are block-causal."""

    def __init__(self, engine: Model, cameras: int) -> None:
        self.engine = engine
        random = np.random.default_rng(0)
        self._clips = cycle([list(random.integers(0, 256, (cameras, *engine.clip_shape), np.uint8))
                             for _ in range(INPUTS)])
        self._streamed = 0      # tubelets of the stream so far
        self.step()

    def step(self) -> dict[str, float]:
        """Encode clips, and the next tubelet of a stream."""
        clips, engine = next(self._clips), self.engine
        start = time.perf_counter()
        engine.encode(clips)
        call = 1e3 * (time.perf_counter() - start)
        times = {'encode': engine.timings['encode'], 'encode_call': call}
        if engine.not_streaming:
            return times
        self._streamed += 1
        stamps = TUBELET * self._streamed + np.arange(len(clips[0]), dtype=np.float64)
        keys = [[(camera, stamp) for stamp in stamps] for camera in range(len(clips))]
        engine.keep({key for each in keys for key in each})
        engine.run(clips, features=False, keys=keys, stamps=[stamps] * len(clips))
        return {**times, 'stream_encode': engine.timings['encode']}


class EndToEnd:
    """One new image of each camera in, one assessment of each out, with a sliding clip."""

    def __init__(self, engine: Model, args: argparse.Namespace) -> None:
        self._engine = engine
        with open_source('synthetic', PlayOptions(
                rate=RATE_HZ, size=args.source, start_s=APPROACH_S,
                max_frames=round(SCENE_S * RATE_HZ))) as source:
            self._frames = [frame.rgb for frame in source]
        self._count = 0
        config = TrackConfig(num_frames=args.num_frames, image_size=args.image_size,
                             frames_on=args.frames_on)
        self._perception = Perception(engine, config,
                                      [f'camera_{n}' for n in range(args.cameras)])
        self._tracks = list(self._perception.tracks.values())
        engine.prepare(args.cameras)
        while not self._next():
            pass        # until the clip is full
        self.where = self._tracks[0].where

    def step(self) -> dict[str, float]:
        """Take one frame of each camera and assess it."""
        start = time.perf_counter()
        timings = self._next()
        total = 1e3 * (time.perf_counter() - start)
        for camera in self._tracks:
            camera.still.look()      # as in a node, which has sent the result by now
        return {'end_to_end': total, 'beyond_encode': total - timings['encode']}

    def _next(self) -> Mapping[str, float]:
        """Return the stage times of the assessment [ms], none before the clip is full."""
        rgb = self._frames[self._count % len(self._frames)]
        self._count += 1
        for camera in self._tracks:
            # One camera runs as in `ObstacleDetector`, which owns a copy of each frame.
            owned = rgb.copy() if len(self._tracks) == 1 and not camera.on_device else rgb
            camera.push(owned, round(self._count / RATE_HZ * 1e9))
        samples = self._perception.pending()
        if not samples:
            return {}
        results = self._perception.run(samples, Settings(), dict.fromkeys(samples, Wants()),
                                       lambda stamp: math.nan)
        return results[0].assessment.timings


class Floor:
    """Matrix products and attention of the encoder, without all that is between them.

    On CUDA they are replayed from a graph, with the fastest kind of attention: a floor must not
    be slower than any kernel.
    """

    def __init__(self, config: ModelConfig, cameras: int, device: torch.device,
                 dtype: torch.dtype) -> None:
        self._device, self._variant = device, find_variant(config.model_size)
        dim, mlp = self._variant.dim, self._variant.mlp
        made = {'device': device, 'dtype': dtype}
        # Variance one in and out, because zeros or overflow would change the power draw.
        self._patch = torch.randn(dim, 3 * TUBELET * PATCH ** 2, **made) / 1536 ** 0.5
        self._layers = [tuple(torch.randn(*shape, **made) / shape[1] ** 0.5 for shape in
                              ((3 * dim, dim), (dim, dim), (mlp, dim), (dim, mlp)))
                        for _ in range(self._variant.depth)]
        sets = [[torch.randn(cameras, _tokens(config), width, **made)
                 for width in (3 * TUBELET * PATCH ** 2, dim, dim, dim)] for _ in range(INPUTS)]
        self._turn = cycle(sets)
        self._static = [x.clone() for x in sets[0]]
        self._run: Callable[[], object] = self._work
        self.facts = {'dtype': str(dtype).removeprefix('torch.')}
        if device.type == 'cuda':
            self.facts['attention'] = self._capture()

    @torch.inference_mode()
    def step(self) -> dict[str, float]:
        for static, new in zip(self._static, next(self._turn), strict=True):
            static.copy_(new)
        return {'encode': device_ms(self._device, self._run)}

    def _work(self) -> None:
        patches, *acts = self._static
        heads = self._variant.heads
        F.linear(patches, self._patch)
        for number, (qkv, proj, fc1, fc2) in enumerate(self._layers):
            split = F.linear(acts[number % 3], qkv).unflatten(-1, (3, heads, -1))
            q, k, v = split.permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
            F.linear(mixed, proj)
            F.linear(F.linear(acts[(number + 1) % 3], fc1), fc2)

    def _capture(self) -> str:
        """Capture the work with the fastest kind of attention, and name it."""
        graphs, times = dict[str, torch.cuda.CUDAGraph](), dict[str, float]()
        for name, backend in BACKENDS.items():
            graph = torch.cuda.CUDAGraph()
            try:
                with torch.inference_mode(), torch.cuda.device(self._device), \
                        sdpa_kernel(backend):
                    self._work()        # libraries initialise outside the graph
                    with torch.cuda.graph(graph):
                        self._work()
            except RuntimeError as error:       # this kind does not take these shapes or types
                if 'kernel' not in str(error).lower():
                    raise
                continue
            self._run, graphs[name] = graph.replay, graph
            times[name] = float(np.median([self.step()['encode'] for _ in range(TRIALS)]))
        fastest = min(times, key=times.__getitem__)
        self._run = graphs[fastest].replay
        return fastest


class HuggingFace:
    """`VJEPA2Model` of transformers in eager mode, without its predictor."""

    def __init__(self, config: ModelConfig, cameras: int, device: torch.device,
                 dtype: torch.dtype) -> None:
        from transformers.models.vjepa2 import (  # pyright: ignore[reportMissingImports]
            VJEPA2Config,
            VJEPA2Model,
        )
        self._device, variant = device, find_variant(config.model_size)
        with torch.device(device):      # random weights are drawn there
            model = VJEPA2Model(VJEPA2Config(
                crop_size=config.image_size, frames_per_clip=config.num_frames,
                hidden_size=variant.dim, num_hidden_layers=variant.depth,
                num_attention_heads=variant.heads,
                mlp_ratio=(variant.mlp + 0.5) / variant.dim,    # the library rounds down
                pred_num_hidden_layers=1))                      # the predictor does not run
        self._model = nn.Module.to(model, dtype).eval()
        shape = (cameras, config.num_frames, 3, config.image_size, config.image_size)
        self._clips = cycle([torch.randn(shape, device=device, dtype=dtype)
                             for _ in range(INPUTS)])
        self.facts = {'dtype': str(dtype).removeprefix('torch.')}

    @torch.inference_mode()
    def step(self) -> dict[str, float]:
        clip: Tensor = next(self._clips)
        return {'encode': device_ms(
            self._device, lambda: self._model(clip, skip_predictor=True))}


def device_ms(device: torch.device, work: Callable[[], object]) -> float:
    """Measure how long a device takes for some work [ms], with events on CUDA."""
    if device.type == 'cuda':
        torch.cuda.synchronize(device)
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.device(device):
            first.record()
            work()
            last.record()
        last.synchronize()
        return first.elapsed_time(last)
    start = time.perf_counter()
    work()
    if device.type == 'mps':
        torch.mps.synchronize()
    return 1e3 * (time.perf_counter() - start)


def take_turns(contenders: Mapping[str, Step], iterations: int, seconds: float
               ) -> dict[str, dict[str, list[float]]]:
    """Run contenders in turn, so that other load on the machine affects all alike."""
    for step in contenders.values():
        for _ in range(WARM_RUNS):
            step()
    samples = {name: defaultdict[str, list[float]](list) for name in contenders}
    left = dict.fromkeys(contenders, iterations)
    spent_s = dict.fromkeys(contenders, 0.0)
    while any(left.values()):
        for name, step in contenders.items():
            for _ in range(min(BLOCK, left[name])):
                start = time.perf_counter()
                for key, value in step().items():
                    samples[name][key].append(value)
                spent_s[name] += time.perf_counter() - start
                left[name] -= 1
                if spent_s[name] >= seconds and iterations - left[name] >= LEAST_RUNS:
                    left[name] = 0
                    break
    return {name: dict(times) for name, times in samples.items()}


def statistics(samples: Sequence[float]) -> dict[str, Any]:
    """Return median, percentiles, minimum and number of times [ms]."""
    median, p95, p99 = (round(float(v), 4) for v in np.percentile(samples, (50, 95, 99)))
    return {'median': median, 'p95': p95, 'p99': p99, 'min': round(float(min(samples)), 4),
            'runs': len(samples)}
