# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Compare engine and detector on a device with float32 on the CPU."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from vjepa_ros.cli.selftest.cases import ExecutionPath, Model, limits
from vjepa_ros.detector import ObstacleDetector
from vjepa_ros.model.checkpoint.load import load_model
from vjepa_ros.model.head_specs import Laplace, specs_of
from vjepa_ros.model.variants import IMAGENET_MEAN, IMAGENET_STD
from vjepa_ros.perception.types import Assessment
from vjepa_ros.runtime.engine import Engine
from vjepa_ros.runtime.outputs import Output, pack, unpack
from vjepa_ros.sources import PlayOptions, open_source

SPEED_S, SPEED_RUNS = 1.5, 30
CLIP_S, STEP_S = 5.0, 0.25          # of the clip of the synthetic drive
# The drive for the detector: times of its frames, and largest allowed differences.
DRIVE_S, FRAMES, RATE_HZ = 5.5, 32, 10.0
SCORES = ('motion_score', 'obstacle_score', 'collision_probability', 'collision_if_ahead')
LIMIT = 0.05        # of scores, which are 0..1
UNEQUAL = 0.15      # of the levels: a score at a threshold may fall to either side


@dataclass(frozen=True)
class Check:
    """One comparison: an error and its limit."""

    name: str
    value: float
    limit: float

    @property
    def ok(self) -> bool:
        """Whether the error is within its limit; NaN is not."""
        return bool(self.value <= self.limit)


@dataclass
class Outcome:
    """How one path ran one model; `problem` says why it did not run."""

    model: str
    path: str
    execution: str = ''     # as the engine reports it
    encode_ms: float = float('nan')
    load_s: float = float('nan')
    memory_bytes: int = 0
    checks: list[Check] = field(default_factory=list)
    problem: str = ''

    @property
    def ok(self) -> bool:
        """Whether it ran, and passed at least one check and all of them."""
        return not self.problem and bool(self.checks) and all(c.ok for c in self.checks)


@dataclass(frozen=True)
class Reference:
    """Clips, and the outputs of the plain network for them in float32 on the CPU."""

    clips: list[np.ndarray]
    outputs: list[Output]


def clips_of(model: Model) -> list[np.ndarray]:
    """Return a clip of a drive at an obstacle, and one of random pixels."""
    side = (model.image_size, model.image_size)
    with open_source('synthetic', PlayOptions(rate=1 / STEP_S, size=side, start_s=CLIP_S,
                                              max_frames=model.num_frames)) as source:
        drive = [frame.rgb for frame in source]
    noise = np.random.default_rng(5).integers(0, 256, (model.num_frames, *side, 3), np.uint8)
    return [np.stack(drive), noise]


@torch.inference_mode()
def make_reference(model: Model) -> Reference:
    """Run the plain network, without session, graph, cache or low precision."""
    encoder, heads, report = load_model(model.size, model.version, model.weights)
    clips = clips_of(model)
    mean, std = np.array(IMAGENET_MEAN), np.array(IMAGENET_STD)
    outputs = []
    for clip in clips:
        pixels = ((clip / 255.0 - mean) / std).astype(np.float32)
        features = encoder(torch.from_numpy(pixels).permute(3, 0, 1, 2)[None])
        said = None
        if heads is not None and report.heads is not None:
            packed = pack(report.heads.meta.calibration.apply(heads(features)))
            said = unpack(packed.numpy(), features.shape[2], features.shape[3], heads.specs)[0]
        outputs.append(Output(features[0].numpy(), said))
    return Reference(clips, outputs)


def try_path(model: Model, path: ExecutionPath, device: str, reference: Reference) -> Outcome:
    """Run a path and compare it with the reference."""
    outcome = Outcome(model.name, path.name)
    start = time.perf_counter()
    try:
        engine = Engine.load(path.config(model, device))
    except (RuntimeError, ValueError, TypeError, OSError, ImportError) as error:
        # A self-test is there to find whatever keeps a path from running.
        outcome.problem = f'does not load: {type(error).__name__}: {error}'.strip()
        return outcome
    outcome.execution = str(getattr(engine, 'execution', ''))
    outcome.load_s = time.perf_counter() - start
    try:
        outcome.checks = compare(engine, reference, limits(path.precision))
        outcome.encode_ms = _speed(engine, reference.clips[0])
        outcome.memory_bytes = engine.memory_bytes()
    except (RuntimeError, ValueError, TypeError) as error:
        outcome.problem = f'does not run: {type(error).__name__}: {error}'.strip()
    finally:
        engine.close()
    return outcome


def compare(engine: Engine, reference: Reference, allowed: Mapping[str, float]) -> list[Check]:
    """Run all checks of a loaded model."""
    first, second = reference.clips
    a = engine.run([first])[0]
    kept = _features(a).copy()
    b = engine.run([second])[0]
    changed = float(np.abs(_features(a) - kept).max())      # before the first clip runs again
    again = engine.run([first])[0]
    both = engine.run([first, second])
    alone = engine.encode([first])[0]
    wanted = [_features(output) for output in reference.outputs]
    pairs = [(kept, wanted[0]), (_features(b), wanted[1]), (alone, wanted[0])]
    found = {
        'features': max(relative(*pair) for pair in pairs),
        'worst token': max(worst_token(*pair) for pair in pairs),
        'repeated': relative(_features(again), kept),
        'kept': changed,
        'together': max(relative(_features(each), right)
                        for each, right in zip(both, wanted, strict=True))}
    if reference.outputs[0].heads is not None:
        found['heads'] = max(map(_heads, (a, b), reference.outputs))
    return [Check(name, value, allowed[name]) for name, value in found.items()]


def relative(got: np.ndarray, wanted: np.ndarray) -> float:
    """Return rms of the difference over rms; NaN, which fails, for shapes or infinities."""
    if got.shape != wanted.shape or not np.isfinite(got).all():
        return float('nan')
    difference = got.astype(np.float64) - wanted
    return float(np.sqrt(np.square(difference).mean()
                         / np.square(wanted, dtype=np.float64).mean()))


def worst_token(got: np.ndarray, wanted: np.ndarray) -> float:
    """Return the largest rms of the difference within a token, over the rms of all."""
    if got.shape != wanted.shape or not np.isfinite(got).all():
        return float('nan')
    errors = np.square(got.astype(np.float64) - wanted).mean(-1)
    return float(np.sqrt(errors.max() / np.square(wanted, dtype=np.float64).mean()))


def _features(output: Output) -> np.ndarray:
    if output.features is None:
        raise RuntimeError('the engine gave no features')
    return output.features


def _heads(got: Output, wanted: Output) -> float:
    if got.heads is None:
        return float('nan')
    errors = []
    for spec in specs_of(vars(wanted.heads)):
        for name in spec.array_shapes(1, 1):
            a, b = getattr(got.heads, name), getattr(wanted.heads, name)
            # Probabilities are compared as they are.
            errors.append(relative(a, b) if isinstance(spec.kind, Laplace)
                          else float(np.abs(a - b).max()))
    return max(errors, key=lambda value: (np.isnan(value), value))


def _speed(engine: Engine, clip: np.ndarray) -> float:
    times: list[float] = []
    end = time.monotonic() + SPEED_S
    while len(times) < 3 or (len(times) < SPEED_RUNS and time.monotonic() < end):
        engine.encode([clip])
        times.append(engine.timings['encode'])
    return float(np.median(times))


def as_json(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Convert outcomes for JSON; unknown values are null."""
    def plain(value: float) -> float | None:
        return float(f'{value:.4g}') if np.isfinite(value) else None

    return [{'model': o.model, 'path': o.path, 'execution': o.execution, 'ok': o.ok,
             'problem': o.problem,
             'encode_ms': plain(o.encode_ms), 'load_s': plain(o.load_s),
             'memory_bytes': o.memory_bytes,
             'checks': {c.name: {'error': plain(c.value), 'limit': c.limit, 'ok': c.ok}
                        for c in o.checks}} for o in outcomes]


def assessments(device: str, precision: str) -> list[Assessment]:
    """Assess a drive at an obstacle frame by frame."""
    seen = []
    with ObstacleDetector(device=device, precision=precision, require_device=True) as detector, \
            open_source('synthetic', PlayOptions(rate=RATE_HZ, start_s=DRIVE_S,
                                                 max_frames=FRAMES)) as source:
        for frame in source:
            detector.add_frame(frame.rgb, frame.stamp_ns / 1e9)
            found = detector.assess()
            if found is not None:
                seen.append(found)
    return seen


def compare_detectors(device: str) -> Outcome:
    """Compare the default model in its own precision with float32 on the CPU."""
    outcome = Outcome('default model', 'image to assessment')
    wanted = assessments('cpu', 'fp32')
    try:
        got = assessments(device, 'auto')
    except (RuntimeError, ValueError, TypeError) as error:
        outcome.problem = f'does not run: {type(error).__name__}: {error}'.strip()
        return outcome
    if len(got) != len(wanted) or not got:
        outcome.problem = f'gives {len(got)} assessments, not {len(wanted)}'
        return outcome
    for name in SCORES:
        errors = [_difference(getattr(a, name), getattr(b, name))
                  for a, b in zip(got, wanted, strict=True)]
        outcome.checks.append(Check(name, float(np.quantile(errors, 0.9)), LIMIT))
    unequal = [a.level != b.level for a, b in zip(got, wanted, strict=True)]
    outcome.checks.append(Check('level', float(np.mean(unequal)), UNEQUAL))
    outcome.encode_ms = float(np.median([a.timings['encode'] for a in got]))
    return outcome


def _difference(a: float, b: float) -> float:
    if math.isnan(a) or math.isnan(b):
        return 0.0 if math.isnan(a) and math.isnan(b) else 1.0
    return abs(a - b)
