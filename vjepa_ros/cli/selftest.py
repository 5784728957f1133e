# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test that models compute the right numbers on this machine, in every precision it has.

Each is compared with the plain network in float32 on the CPU. Exit code 1 means that something is
wrong; the problems are listed. --json writes all results; about you they have only the kind of
your machine. Please send them in for untested hardware.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from safetensors.torch import save_file
from torch import nn

from vjepa_ros.cli.console import print_error, save, steps
from vjepa_ros.detector import ObstacleDetector
from vjepa_ros.lab.report.measurement import provenance, without, write_json
from vjepa_ros.model.checkpoint.load import bundled_file, load_model
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.variants import IMAGENET_MEAN, IMAGENET_STD, find_variant
from vjepa_ros.perception.types import Assessment
from vjepa_ros.runtime.device import DeviceError, choose_device, device_name
from vjepa_ros.runtime.model import Model, ModelConfig
from vjepa_ros.runtime.prediction import Prediction
from vjepa_ros.sources import PlayOptions, open_source

# Largest rms error of features relative to their rms in float32 on the CPU, by precision. Plain
# networks have errors below 0.002 in fp16 and 0.016 in bf16 (docs/notebook/numerics.md).
LIMITS = {'fp32': 1e-4, 'fp16': 4e-3, 'bf16': 0.03, 'fp8': 0.03, 'int8': 0.03}
SCORES = ('motion_score', 'obstacle_score', 'collision_probability', 'collision_if_ahead')
SCORE_LIMIT = 0.05  # of scores, which are 0..1
LEVEL_LIMIT = 0.15  # of the levels may differ: a score at a threshold may fall to either side
CLIP_S, STEP_S = 5.0, 0.25      # of the clip of the synthetic drive
DRIVE = PlayOptions(rate=10.0, start_s=5.5, max_frames=32)
SPEED_RUNS = 10
NEVER_TESTED = {'cameras, brakes, delays of a robot': 'no test on a desk replaces yours',
                'nodes, guard, topics': 'their tests are `make test`, which needs ROS 2'}


class Network(NamedTuple):
    """A network, and the shape of its clips."""

    size: str = 'tiny'
    version: str = 'auto'
    num_frames: int = ModelConfig.num_frames
    image_size: int = ModelConfig.image_size

    def __str__(self) -> str:
        return f'{self.size} {self.version}, {self.num_frames} x {self.image_size} px'


# Bundled weights at their own size, and random ones.
USUAL = (Network(), Network('tiny', '2.0', 4, 96))
# Another head width, a grid unseen in pretraining, and the size for robots with a GPU.
FULL = (*USUAL, Network('large', '2.0', 16, 256), Network('huge', '2.0', 4, 64),
        Network('base', '2.1', 4, 224))


def main(argv: Sequence[str] | None = None) -> int:
    """Command line: test, print the table, write the file; 1 when anything is wrong."""
    parser = argparse.ArgumentParser(prog='vjepa-ros selftest', description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--device', default='auto', metavar='NAME',
                        help='auto, cpu, cuda, cuda:N or mps (default: auto)')
    parser.add_argument('--full', action='store_true',
                        help='also test sizes up to huge, with random weights; takes minutes and '
                        'about 8 GB of memory')
    parser.add_argument('--json', type=Path, metavar='FILE', help='write all figures')
    args = parser.parse_args(argv)
    console = Console()
    logging.getLogger('vjepa_ros').setLevel(logging.ERROR)
    # Without the path of the file, which is sent in.
    words = without(sys.argv[2:] if argv is None else argv, ['--json'])
    try:
        device = choose_device(args.device, True, 'auto').device
    except DeviceError as error:
        print_error(f'SELF-TEST NOT DONE: {error}', console, args)
        result = {'ok': False, 'problems': [str(error)], **provenance('selftest', words, None)}
    else:
        result = {**provenance('selftest', words, device),
                  **_tested(device, FULL if args.full else USUAL, console)}
        _show(result, console)
    return save('--json', args.json, partial(write_json, result=result), console) or int(
        not result['ok'])


def _tested(device: torch.device, networks: Sequence[Network], console: Console
            ) -> dict[str, Any]:
    """Test a device; the result is ready for JSON, and its ``ok`` tells whether all is right."""
    left_out, precisions = dict(NEVER_TESTED), []
    for precision in LIMITS:
        try:
            choose_device(str(device), True, precision)
            precisions.append(precision)
        except DeviceError as error:
            left_out[precision] = str(error)
    found: list[dict[str, Any]] = []
    with steps(console) as say:
        for network in networks:
            say(f'{network}: reference on the CPU')
            with TemporaryDirectory() as folder:
                weights = ''
                if not bundled_file(network.size, network.version):
                    weights = f'{folder}/random.safetensors'
                    save_file(_lively(network).state_dict(), weights)
                reference = Reference(network, weights)
                for precision in precisions:
                    say(f'{network}, {precision}')
                    found.append(_attempt(str(network), precision, partial(
                        reference.try_precision, precision, str(device))))
        say('from image to assessment')
        found.append(_attempt('default model', 'image to assessment',
                              partial(compare_detectors, str(device))))
    problems = [f'{each["model"]}, {each["path"]}: {each["problem"]}'
                for each in found if not each['ok']]
    return {'ok': not problems, 'problems': problems, 'device': device_name(device),
            'torch_threads': torch.get_num_threads(), 'paths': found, 'left_out': left_out}


def _attempt(model: str, path: str, test: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Run a test that returns facts with ``checks``: error and limit by name."""
    try:
        facts = test()
    # A self-test is there to find whatever keeps a model from running.
    except (RuntimeError, ValueError, TypeError, OSError, ImportError) as error:
        return {'model': model, 'path': path, 'ok': False, 'checks': {},
                'problem': f'does not run: {type(error).__name__}: {error}'.strip()}
    wrong = [f'the error of {name} is {error:.4g}, more than {limit:.3g}'
             for name, (error, limit) in facts['checks'].items() if not error <= limit]
    return {'model': model, 'path': path, **facts, 'ok': not wrong, 'problem': '; '.join(wrong),
            'checks': {name: {'error': error, 'limit': limit}
                       for name, (error, limit) in facts['checks'].items()}}


def _show(result: dict[str, Any], console: Console) -> None:
    table = Table('model', 'path', 'closest to its limit', 'error', 'allowed', 'encode ms', '',
                  title=f'{result["device"]}, PyTorch {result["versions"]["torch"]}',
                  title_justify='left', caption_justify='left',
                  caption='errors: rms relative to float32 on the CPU, and largest allowed')
    for each in result['paths']:
        name, worst = max(each['checks'].items(), default=('', {}),
                          key=lambda one: one[1]['error'] / max(one[1]['limit'], 1e-9))
        table.add_row(each['model'], f'{each["path"]} ({each.get("execution", "whole")})', name, *(
            '' if value is None else f'{value:.3g}'
            for value in (worst.get('error'), worst.get('limit'), each.get('encode_ms'))),
            '[green]ok' if each['ok'] else '[bold red]FAILED')
    console.print(table)
    for name, why in result['left_out'].items():
        console.print(f'not tested: {name}: {why}', highlight=False, markup=False)
    if result['ok']:
        console.print('[bold green]SELF-TEST PASSED[/]: every path is within its limit of '
                      'float32', highlight=False)
    else:
        console.print(Panel('\n'.join(result['problems']).replace('[', r'\['),
                            title='SELF-TEST FAILED: do not trust this machine with these '
                            'settings', style='bold red'), highlight=False)


class Reference:
    """Clips, and the outputs of the plain network for them in float32 on the CPU."""

    @torch.inference_mode()
    def __init__(self, network: Network, weights: str) -> None:
        self.network, self.weights = network, weights
        with open_source('synthetic', PlayOptions(
                rate=1 / STEP_S, size=(network.image_size, network.image_size), start_s=CLIP_S,
                max_frames=network.num_frames)) as source:
            drive = np.stack([frame.rgb for frame in source])
        self.clips = [drive, np.random.default_rng(5).integers(0, 256, drive.shape, np.uint8)]
        encoder = load_model(network.size, network.version, weights)[0]
        self.features: list[np.ndarray] = []
        mean, std = np.array(IMAGENET_MEAN), np.array(IMAGENET_STD)
        for clip in self.clips:
            pixels = torch.tensor((clip / 255.0 - mean) / std, dtype=torch.float32)
            self.features.append(encoder(pixels.permute(3, 0, 1, 2)[None])[0].numpy())

    def try_precision(self, precision: str, device: str) -> dict[str, Any]:
        """Load the model in a precision and compare it."""
        size, version, num_frames, image_size = self.network
        engine = Model.load(ModelConfig(
            model_size=size, model_version=version, num_frames=num_frames, image_size=image_size,
            weights=self.weights, device=device, precision=precision, require_device=True))
        try:
            checks, times = self.compare(engine, LIMITS[precision]), []
            for _ in range(SPEED_RUNS):
                engine.encode([self.clips[0]])
                times.append(engine.timings['encode'])
            return {'checks': checks, 'execution': engine.execution,
                    'encode_ms': round(float(np.median(times)), 3)}
        finally:
            engine.close()

    def compare(self, engine: Model, most: float) -> dict[str, tuple[float, float]]:
        """Return error and limit of each check of a loaded model."""
        first, second = self.clips
        a, = _features(engine.run([first]))
        kept = a.copy()
        b, = _features(engine.run([second]))
        changed = float(np.abs(a - kept).max())     # before the first clip runs again
        both = _features(engine.run([first, second]))
        pairs = [(kept, self.features[0]), (b, self.features[1]),
                 (engine.encode([first])[0], self.features[0])]
        return {
            'features': (max(relative(*pair) for pair in pairs), most),
            # One wrong token among thousands hardly moves the mean.
            'worst token': (max(relative(*pair, worst=True) for pair in pairs), 4 * most),
            'kept': (changed, 0.0),     # a result must not change when the next one is made
            'together': (max(map(relative, both, self.features)), most)}


def relative(got: np.ndarray, wanted: np.ndarray, worst: bool = False) -> float:
    """Return rms of the difference over rms, or of the worst token; inf for what is no number."""
    if got.shape != wanted.shape or not np.isfinite(got).all():
        return float('inf')
    errors = np.square(got.astype(np.float64) - wanted)
    error = errors.mean(-1).max() if worst else errors.mean()
    return float(np.sqrt(error / np.square(wanted, dtype=np.float64).mean()))


def _features(outputs: Sequence[Prediction]) -> list[np.ndarray]:
    return [np.asarray(one.features) for one in outputs]


def compare_detectors(device: str) -> dict[str, Any]:
    """Compare the default model and its heads in its own precision with float32 on the CPU."""
    wanted, got = assessments('cpu', 'fp32'), assessments(device, 'auto')
    if len(got) != len(wanted) or not got:
        raise RuntimeError(f'{len(got)} assessments, not {len(wanted)}')
    checks = {}
    for name in SCORES:
        a, b = (np.array([getattr(one, name) for one in each]) for each in (got, wanted))
        errors = np.where(np.isnan(a) & np.isnan(b), 0.0, np.nan_to_num(abs(a - b), nan=1.0))
        checks[name] = float(np.quantile(errors, 0.9)), SCORE_LIMIT
    unequal = [a.level != b.level for a, b in zip(got, wanted, strict=True)]
    checks['level'] = float(np.mean(unequal)), LEVEL_LIMIT
    return {'checks': checks, 'encode_ms': float(np.median([a.timings['encode'] for a in got]))}


def assessments(device: str, precision: str) -> list[Assessment]:
    """Assess a drive at an obstacle frame by frame."""
    with ObstacleDetector(device=device, precision=precision, require_device=True) as detector, \
            open_source('synthetic', DRIVE) as source:
        seen = []
        for frame in source:
            detector.add_frame(frame.rgb, frame.stamp_ns / 1e9)
            seen.append(detector.assess())
    return [one for one in seen if one is not None]


@torch.no_grad()
def _lively(network: Network) -> Encoder:
    """Make an encoder whose branches are as large as its residual stream, always the same."""
    # With the start values of training, branches hardly change the residual stream, and a wrong
    # rotation of queries and keys would stay below the limits of low precision.
    with torch.device('meta'):
        encoder = Encoder(find_variant(network.size), network.version)
    encoder.to_empty(device='cpu').requires_grad_(False)
    generator = torch.Generator().manual_seed(3)
    for name, values in encoder.named_parameters():
        flat = values.dim() == 1 or 'mod_embed' in name
        values.normal_(0, 0.1 if flat else values[0].numel() ** -0.5, generator=generator)
        if name.endswith('qkv.weight'):     # attention is then far from uniform
            values[:2 * encoder.variant.dim] *= 1.5
    for part in encoder.modules():
        if isinstance(part, nn.LayerNorm):
            part.weight.mul_(4.0).exp_()
    return encoder
