# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What the benchmark runs in turns: the encoder alone, image to assessment, and two baselines.

The baselines have random weights, and find their inputs on the device.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from vjepa_ros.model.variants import PATCH, TUBELET, find_variant
from vjepa_ros.perception.pipeline import Perception
from vjepa_ros.perception.settings import Settings, TrackConfig, Wants
from vjepa_ros.runtime.model import Model, ModelConfig
from vjepa_ros.sources import PlayOptions, open_source

INPUTS = 4          # sets of random data, used in turn
WARM_RUNS = 3
LEAST_RUNS = 3
BLOCK = 10          # runs of one contender before the next has its turn
RESUME_RUNS = 16    # frames until a stream is remembered again
RATE_HZ = 15.0                      # of the camera
APPROACH_S, SCENE_S = 4.5, 2.0      # when the synthetic robot drives, and for how long
TRIALS = 10         # runs to choose the kind of attention
HF_WARM_RUNS = 5    # compiled: compile, record the graph, replay
# Kinds of fused attention; older PyTorch lacks one of them.
BACKENDS = {name: getattr(SDPBackend, f'{name.upper()}_ATTENTION')
            for name in ('flash', 'cudnn', 'efficient')
            if hasattr(SDPBackend, f'{name.upper()}_ATTENTION')}


@dataclass(frozen=True)
class Case:
    """One configuration to measure; sizes without bundled weights run with random ones."""

    model_size: str = 'tiny'
    model_version: str = 'auto'
    num_frames: int = ModelConfig.num_frames
    image_size: int = ModelConfig.image_size
    cameras: int = 1
    device: str = 'auto'
    precision: str = 'auto'
    compile: str = ModelConfig.compile
    weights: str = ''
    cpu_threads: int = 0
    source: tuple[int, int] = (640, 480)    # width and height of the images [px]
    geometry: str = 'auto'

    @property
    def tokens(self) -> int:
        """Tokens of one clip."""
        return self.num_frames // TUBELET * (self.image_size // PATCH) ** 2

    def load(self) -> Model:
        """Load the model."""
        names = ('model_size', 'model_version', 'num_frames', 'image_size', 'device', 'precision',
                 'compile', 'weights', 'cpu_threads')
        # A fallback to the CPU would be measured as if it were the device.
        return Model.load(ModelConfig(allow_random_weights=True, require_device=True,
                                        **{name: getattr(self, name) for name in names}))


class Contender:
    """Something that is measured in turns with others."""

    def step(self) -> dict[str, float]:
        """Run once on an input that differs from the last; milliseconds by name."""
        raise NotImplementedError

    def resume(self) -> None:
        """Get ready for a turn, which is not measured."""


class Encode(Contender):
    """The encoder on random clips, and on a stream where its weights are block-causal."""

    def __init__(self, engine: Model, case: Case) -> None:
        self._engine = engine
        shape = (case.cameras, case.num_frames, case.image_size, case.image_size, 3)
        random = np.random.default_rng(0)
        self._clips = cycle([list(random.integers(0, 256, shape, np.uint8))
                             for _ in range(INPUTS)])
        self._streamed = 0      # tubelets of the stream so far
        self.step()

    def resume(self) -> None:
        """Encode anew what the engine has forgotten meanwhile."""
        self.step()

    def step(self) -> dict[str, float]:
        """Encode clips, and the next tubelet of a stream."""
        clips = next(self._clips)
        start = time.perf_counter()
        self._engine.encode(clips)
        call = 1e3 * (time.perf_counter() - start)
        times = {'encode': self._engine.timings['encode'], 'call': call}
        if self._engine.not_streaming:
            return times
        self._streamed += 1
        stamps = TUBELET * self._streamed + np.arange(len(clips[0]), dtype=np.float64)
        keys = [[(camera, stamp) for stamp in stamps] for camera in range(len(clips))]
        self._engine.keep({key for each in keys for key in each})
        self._engine.run(clips, features=False, keys=keys, stamps=[stamps] * len(clips))
        return {**times, 'stream_encode': self._engine.timings['encode']}


class EndToEnd(Contender):
    """One new image of each camera in, one assessment of each out, with a sliding clip."""

    def __init__(self, engine: Model, case: Case) -> None:
        self._engine = engine
        with open_source('synthetic', PlayOptions(
                rate=RATE_HZ, size=case.source, start_s=APPROACH_S,
                max_frames=round(SCENE_S * RATE_HZ))) as source:
            self._frames = [frame.rgb for frame in source]
        self._count = 0
        track = TrackConfig(num_frames=case.num_frames, image_size=case.image_size,
                            geometry=case.geometry)
        self._perception = Perception(engine, track,
                                      [f'camera_{n}' for n in range(case.cameras)])
        engine.prepare(case.cameras)
        results = 0
        while results <= WARM_RUNS:
            results += bool(self._next())
        # Where frames are resized and looming is measured.
        self.geometry = next(iter(self._perception.tracks.values())).geometry

    def resume(self) -> None:
        """Encode anew what the engine has forgotten meanwhile."""
        for _ in range(0 if self._engine.not_streaming else RESUME_RUNS):
            self._next()

    def step(self) -> dict[str, float]:
        """Take one frame of each camera and assess it."""
        start = time.perf_counter()
        timings = self._next()
        total = 1e3 * (time.perf_counter() - start)
        for track in self._perception.tracks.values():
            track.still.look()      # as in a node, which has sent the result by now
        found = {'end_to_end': total, **{f'stage:{name}': v for name, v in timings.items()}}
        return found | ({'beyond_encode': total - timings['encode']} if 'encode' in timings
                        else {})

    def close(self) -> None:
        """Release the model."""
        self._perception.close()

    def _next(self) -> dict[str, float]:
        """Return the stage times of the assessment [ms], none before the clip is full."""
        start = time.perf_counter()
        rgb = self._frames[self._count % len(self._frames)]
        self._count += 1
        tracks = self._perception.tracks.values()
        for track in tracks:
            # One camera runs as in `ObstacleDetector`, which owns a copy of each frame.
            owned = rgb.copy() if len(tracks) == 1 and not track.on_device else rgb
            track.push(owned, round(self._count / RATE_HZ * 1e9))
        preprocess = 1e3 * (time.perf_counter() - start)
        samples = self._perception.pending()
        if not samples:
            return {}
        results = self._perception.run(samples, Settings(), dict.fromkeys(samples, Wants()),
                                       lambda stamp: math.nan)
        return {'preprocess': preprocess, **results[0].assessment.timings}


class Floor(Contender):
    """Matrix products and attention of the encoder, without all that is between them.

    On CUDA they are replayed from a graph, with the fastest kind of `attention`: a floor must not
    be slower than any kernel.
    """

    def __init__(self, case: Case, device: torch.device, dtype: torch.dtype) -> None:
        self._device = device
        self._variant = find_variant(case.model_size)
        dim, mlp = self._variant.dim, self._variant.mlp
        made = {'device': device, 'dtype': dtype}
        # Variance one in and out, because zeros or overflow would change the power draw.
        self._patch = torch.randn(dim, 3 * TUBELET * PATCH ** 2, **made) / 1536 ** 0.5
        self._layers = [tuple(torch.randn(*shape, **made) / shape[1] ** 0.5 for shape in
                              ((3 * dim, dim), (dim, dim), (mlp, dim), (dim, mlp)))
                        for _ in range(self._variant.depth)]
        sets = [[torch.randn(case.cameras, case.tokens, width, **made)
                 for width in (3 * TUBELET * PATCH ** 2, dim, dim, dim)] for _ in range(INPUTS)]
        self._turn = cycle(sets)
        self._static = [x.clone() for x in sets[0]]
        self._replay, self.attention = self._work, 'default'
        if device.type != 'cuda':
            for _ in range(WARM_RUNS):
                self.step()
            return
        ways: dict[str, tuple[float, Callable[[], None]]] = {}
        for name in ('default', *BACKENDS):
            try:
                self._replay = self._graph(name)
                times = sorted(self.step()['encode'] for _ in range(TRIALS))
                ways[name] = times[TRIALS // 2], self._replay
            except RuntimeError as error:       # this kind does not take these shapes or types
                if 'kernel' not in str(error).lower():
                    raise
        self.attention = min(ways, key=lambda name: ways[name][0])
        self._replay = ways[self.attention][1]

    @torch.inference_mode()
    def step(self) -> dict[str, float]:
        """Run once; ``encode`` is the time [ms]."""
        for static, new in zip(self._static, next(self._turn), strict=True):
            static.copy_(new)
        return {'encode': device_ms(self._device, self._replay)}

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

    def _graph(self, name: str) -> Callable[[], None]:
        """Capture the work with a kind of attention."""
        graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream(self._device)
        chosen: AbstractContextManager[object] = (
            sdpa_kernel(BACKENDS[name]) if name in BACKENDS else nullcontext())
        with torch.inference_mode(), torch.cuda.device(self._device), chosen:
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):       # libraries initialise outside the graph
                for _ in range(WARM_RUNS):
                    self._work()
            torch.cuda.current_stream().wait_stream(side)
            with torch.cuda.graph(graph):
                self._work()
        return graph.replay


class HuggingFace(Contender):
    """`VJEPA2Model` of transformers without its predictor; compiled it replays a CUDA graph."""

    def __init__(self, case: Case, device: torch.device, dtype: torch.dtype,
                 compiled: bool) -> None:
        self._device, self._compiled = device, compiled
        model = _vjepa2_model(case, device, dtype)
        self._call: Any = torch.compile(model, mode='reduce-overhead') if compiled else model
        shape = (case.cameras, case.num_frames, 3, case.image_size, case.image_size)
        clips = [torch.randn(shape, device=device, dtype=dtype) for _ in range(INPUTS)]
        self._clips = cycle(clips)
        self._static: Tensor = clips[0].clone()
        for _ in range(HF_WARM_RUNS if compiled else WARM_RUNS):
            self.step()

    @torch.inference_mode()
    def step(self) -> dict[str, float]:
        """Run once; ``encode`` is the time [ms]."""
        self._static.copy_(next(self._clips))
        if self._compiled:
            torch.compiler.cudagraph_mark_step_begin()
        return {'encode': device_ms(
            self._device, lambda: self._call(self._static, skip_predictor=True))}


def _vjepa2_model(case: Case, device: torch.device, dtype: torch.dtype) -> nn.Module:
    from transformers.models.vjepa2 import (  # pyright: ignore[reportMissingImports]  # optional
        VJEPA2Config,
        VJEPA2Model,
    )
    variant = find_variant(case.model_size)
    config = VJEPA2Config(
        crop_size=case.image_size, frames_per_clip=case.num_frames, hidden_size=variant.dim,
        num_hidden_layers=variant.depth, num_attention_heads=variant.heads,
        mlp_ratio=(variant.mlp + 0.5) / variant.dim,    # the library rounds down
        pred_num_hidden_layers=1)                       # the predictor does not run
    with torch.device(device):      # random weights are drawn there
        model: nn.Module = VJEPA2Model(config)
    return nn.Module.to(model, dtype).eval()


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


def take_turns(contenders: Mapping[str, Contender], iterations: float, seconds: float
               ) -> dict[str, dict[str, list[float]]]:
    """Run contenders in turn, so that other load on the machine affects all alike."""
    samples: dict[str, dict[str, list[float]]] = {name: {} for name in contenders}
    spent, done = dict.fromkeys(contenders, 0.0), dict.fromkeys(contenders, 0)

    def open_(name: str) -> bool:
        return done[name] < iterations and (done[name] < LEAST_RUNS or spent[name] < seconds)

    while any(open_(name) for name in contenders):
        for name, contender in contenders.items():
            turn = 0
            if open_(name):
                contender.resume()
            # A slow contender runs once in its turn, so that turns stay short.
            while open_(name) and turn < BLOCK and (turn == 0 or spent[name] / done[name] < 0.5):
                start = time.perf_counter()
                for key, value in contender.step().items():
                    samples[name].setdefault(key, []).append(value)
                spent[name] += time.perf_counter() - start
                done[name] += 1
                turn += 1
    return samples


def statistics(samples: Sequence[float]) -> dict[str, Any]:
    """Return median, percentiles, minimum and number of times [ms]."""
    median, p95, p99 = (round(float(v), 4) for v in np.percentile(samples, (50, 95, 99)))
    return {'median': median, 'p95': p95, 'p99': p99, 'min': round(float(min(samples)), 4),
            'runs': len(samples)}
