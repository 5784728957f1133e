# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""A model under measurement: its configuration, the encoder alone, and image to assessment."""

from __future__ import annotations

import argparse
import math
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from vjepa_ros.model.checkpoint.load import load_encoder
from vjepa_ros.model.encoder import VERSIONS
from vjepa_ros.model.variants import PATCH, TUBELET, VARIANTS, find_variant
from vjepa_ros.perception.pipeline import Perception
from vjepa_ros.perception.settings import Settings, TrackConfig, Wants
from vjepa_ros.runtime.engine import Engine, EngineConfig
from vjepa_ros.sources import PlayOptions, open_source

TORCH, ONNX = 'torch', 'onnx'
NO_ONNX = ("engine is 'onnx', but the engine runs torch alone: onnxruntime was slower on a CPU "
           'without bf16 instructions, and on one with them 5 to 8 % faster in fp32, where bf16 '
           'is faster still; docs/notebook/cpu.md has the figures')
ABOUT = {
    'model_size': f'one of {", ".join(VARIANTS)}', 'model_version': ', '.join(('auto', *VERSIONS)),
    'num_frames': 'frames in a clip', 'image_size': 'side of a frame in pixels',
    'cameras': 'clips in one forward pass', 'device': 'auto, cpu, cuda, cuda:N or mps',
    'precision': 'auto, fp32, fp16, bf16, fp8 or int8, as far as the device has it',
    'compile': "off, auto or on: whether torch.compile is used (default: the engine's)",
    'engine': 'what runs the model: torch; onnx is refused, with its measurements',
    'weights': "checkpoint, or 'random' (default: bundled weights, else random)",
    'cpu_threads': 'CPU threads of PyTorch; 0 keeps the default',
    'saved_weights': 'save random weights to a temporary file and load it, to measure the start '
                     'of a model with weights',
    'source': 'width and height of the images, such as 1280x720',
    'geometry': 'where frames are resized and looming is measured: auto, host or device'}
INPUTS = 4
RESUME_RUNS = 16    # frames until the past of each is remembered
WARM_RUNS = 3
RATE_HZ = 15.0              # of the camera
APPROACH_S, SCENE_S = 4.5, 2.0      # from here on, so long, the synthetic robot drives
NS = 1e9


@dataclass(frozen=True)
class Case:
    """One configuration to measure; `ABOUT` explains the fields, each an option.

    Sizes without weights run with random ones: speed does not depend on them. Raises ValueError
    for an unknown size or engine and for less than one camera.
    """

    model_size: str = 'tiny'
    model_version: str = 'auto'
    num_frames: int = EngineConfig.num_frames
    image_size: int = EngineConfig.image_size
    cameras: int = 1
    device: str = 'auto'
    precision: str = 'auto'
    compile: str = ''
    engine: str = TORCH
    weights: str = ''
    cpu_threads: int = 0
    saved_weights: bool = False
    source: tuple[int, int] = (640, 480)
    geometry: str = 'auto'

    def __post_init__(self) -> None:
        find_variant(self.model_size)
        if self.cameras < 1:
            raise ValueError(f'cameras is {self.cameras}, but must be at least 1')
        if self.engine != TORCH:
            raise ValueError(NO_ONNX if self.engine == ONNX else
                             f"engine is '{self.engine}', but must be {TORCH}")

    @property
    def tokens(self) -> int:
        """Tokens of one clip."""
        return self.num_frames // TUBELET * (self.image_size // PATCH) ** 2

    def engine_options(self) -> dict[str, Any]:
        """Arguments of `EngineConfig`."""
        options: dict[str, Any] = {name: getattr(self, name) for name in (
            'model_size', 'model_version', 'num_frames', 'image_size', 'device', 'precision',
            'weights', 'cpu_threads')}
        # A fallback to the CPU would be measured as if it were the device.
        options.update(allow_random_weights=True, require_device=True)
        return {**options, 'compile': self.compile} if self.compile else options


def option(name: str) -> str:
    """Return the option that sets a field."""
    return '--' + name.replace('_', '-')


def add_options(parser: argparse.ArgumentParser, without: Sequence[str] = ()) -> None:
    """Add the options of a case to a command line."""
    for name in (f.name for f in fields(Case) if f.name not in without):
        value = getattr(Case, name)
        if value is False:
            parser.add_argument(option(name), action='store_true', help=ABOUT[name])
            continue
        kind = image_size if name == 'source' else type(value)
        shown = 'x'.join(map(str, value)) if name == 'source' else value
        tail = '' if name in ('compile', 'weights') else f' (default: {shown})'
        parser.add_argument(option(name), type=kind, default=value, metavar='VALUE',
                            help=ABOUT[name] + tail)


def case_of(args: argparse.Namespace) -> Case:
    """Return the case that a command line describes (ValueError for an impossible one)."""
    return Case(**{f.name: getattr(args, f.name) for f in fields(Case) if hasattr(args, f.name)})


def image_size(text: str) -> tuple[int, int]:
    """Read width and height [px] from a word such as 1280x720, for argparse."""
    match = re.fullmatch(r'(\d+)x(\d+)', text)
    if match is None or min(int(match[1]), int(match[2])) < PATCH:
        raise argparse.ArgumentTypeError(f"'{text}' is not a width and height such as 1280x720, "
                                         f'each at least {PATCH}')
    return int(match[1]), int(match[2])


@contextmanager
def loadable(case: Case) -> Iterator[Case]:
    """Yield the case; with ``saved_weights``, its random weights are in a file meanwhile."""
    if not case.saved_weights:
        yield case
        return
    encoder, _ = load_encoder(case.model_size, case.model_version, 'random', True)
    with TemporaryDirectory() as folder:
        path = Path(folder) / 'random.safetensors'
        save_file(encoder.state_dict(), path)
        del encoder
        yield replace(case, weights=str(path))


class Encode:
    """`Engine.encode` on random clips.

    It times ``encode``, normalising and encoding on the device as the engine reports it, and
    ``call``, the whole call on the clock of the host with upload and download. Of block-causal
    weights it times ``stream_encode`` as well, the newest tubelet of a stream, in turns.
    """

    def __init__(self, engine: Engine, case: Case) -> None:
        self._engine = engine
        random = np.random.default_rng(0)
        shape = (case.cameras, case.num_frames, case.image_size, case.image_size, 3)
        self._clips = cycle([list(random.integers(0, 256, shape, np.uint8))
                             for _ in range(INPUTS)])
        self._streamed = 0      # tubelets of the stream so far
        self.step()

    def warm(self) -> None:
        """Run a few times before measuring."""
        for _ in range(WARM_RUNS):
            self.step()

    def resume(self) -> None:
        """Encode anew what the engine has forgotten meanwhile."""
        self.step()

    def step(self) -> dict[str, float]:
        """Run once on clips that differ from the last."""
        clips = next(self._clips)
        start = time.perf_counter()
        self._engine.encode(clips)
        call = 1e3 * (time.perf_counter() - start)
        times = {'encode': self._engine.timings['encode'], 'call': call}
        return times if self._engine.not_streaming else {**times, **self._stream(clips)}

    def _stream(self, clips: list[np.ndarray]) -> dict[str, float]:
        """Encode the next tubelet of each camera, which others follow at even times."""
        self._streamed += 1
        stamps = TUBELET * self._streamed + np.arange(len(clips[0]), dtype=np.float64)
        keys = [[(camera, stamp) for stamp in stamps] for camera in range(len(clips))]
        self._engine.keep({key for each in keys for key in each})
        self._engine.run(clips, features=False, keys=keys, stamps=[stamps] * len(clips))
        return {'stream_encode': self._engine.timings['encode']}


class EndToEnd:
    """One new image of each camera in, one assessment of each out, with a sliding clip.

    All cameras run in one pass of `Perception`. Besides ``end_to_end`` and ``beyond_encode``, it
    reports the stage times of the assessment and ``preprocess``, which takes the frames. Stages
    of the host follow each other and add up to the whole: preprocess, gather, submit, looming,
    await, motion, assess. Stages of the model lie within submit, looming and await. On several
    threads of a CPU looming, and the part of assess that needs no model, lie within submit, too:
    they share the processor with the encoder. Once the clip is full, ``geometry`` names where
    frames are resized and looming is measured.
    """

    def __init__(self, case: Case) -> None:
        self.geometry = ''
        self._source = case.source
        self._frames: list[np.ndarray] = []     # rendered by `fill`, which is not part of a start
        self._count = 0
        self.engine = Engine.load(EngineConfig(**case.engine_options()))
        track = TrackConfig(num_frames=case.num_frames, image_size=case.image_size,
                            geometry=case.geometry)
        self._perception = Perception(self.engine, track,
                                      [f'camera_{n}' for n in range(case.cameras)])
        prepare = getattr(self.engine, 'prepare', None)     # passes of several clips
        if prepare is not None:
            prepare(case.cameras)

    def fill(self) -> None:
        """Take frames until the clip is full, and a few more to warm up."""
        self._frames = source_frames(self._source)
        results = 0
        while results <= WARM_RUNS:
            results += self._next()[0] is not None
        self.geometry = next(iter(self._perception.tracks.values())).geometry

    def resume(self) -> None:
        """Encode anew what the engine has forgotten meanwhile."""
        for _ in range(0 if self.engine.not_streaming else RESUME_RUNS):
            self._next()

    def step(self) -> dict[str, float]:
        """Take one frame of each camera and assess it."""
        start = time.perf_counter()
        timings, preprocess = self._next()
        total = 1e3 * (time.perf_counter() - start)
        if timings is None:
            raise RuntimeError('a full clip gave no assessment')
        for track in self._perception.tracks.values():
            track.still.look()      # as in a node, which has sent the result by now
        timings = {'preprocess': preprocess, **timings}
        found = {'end_to_end': total}
        if 'encode' in timings:
            found['beyond_encode'] = total - timings['encode']
        return {**found, **{f'stage:{name}': value for name, value in timings.items()}}

    def close(self) -> None:
        """Release the model."""
        self._perception.close()

    def _next(self) -> tuple[dict[str, float] | None, float]:
        """Return the stage times of the assessment, and the time for taking the frames [ms]."""
        start = time.perf_counter()
        rgb = self._frames[self._count % len(self._frames)]
        self._count += 1
        tracks = self._perception.tracks.values()
        for track in tracks:
            # One camera runs as in `ObstacleDetector`, which owns a copy of each frame.
            track.push(track.own(rgb) if len(tracks) == 1 else rgb,
                       round(self._count / RATE_HZ * NS))
        taken = 1e3 * (time.perf_counter() - start)
        samples = self._perception.pending()
        if not samples:
            return None, taken
        results = self._perception.run(samples, Settings(), dict.fromkeys(samples, Wants()),
                                       lambda stamp: math.nan)
        return dict(results[0].assessment.timings), taken


def source_frames(size: tuple[int, int]) -> list[np.ndarray]:
    """Return pictures of a drive at an obstacle: RGB (height, width, 3) uint8."""
    with open_source('synthetic', PlayOptions(
            rate=RATE_HZ, size=size, start_s=APPROACH_S,
            max_frames=round(SCENE_S * RATE_HZ))) as source:
        return [frame.rgb for frame in source]


def memory(engine: Engine) -> dict[str, int]:
    """Return the memory of model and process in bytes."""
    found = {'engine': engine.memory_bytes()}
    device = engine.choice.device
    if device.type == 'cuda':
        found['device_allocated'] = torch.cuda.memory_allocated(device)
        found['device_peak'] = torch.cuda.max_memory_allocated(device)
        found['device_reserved'] = torch.cuda.memory_reserved(device)
    elif device.type == 'mps':
        found['device_allocated'] = torch.mps.current_allocated_memory()
    if sys.platform != 'win32':
        import resource
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found['process_peak'] = peak * (1 if sys.platform == 'darwin' else 1024)
    return found
