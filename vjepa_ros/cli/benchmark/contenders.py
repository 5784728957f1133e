# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What is measured of a model: the encoder alone, and all from host image to assessment."""

from __future__ import annotations

import math
import sys
import time
from itertools import cycle

import cv2
import numpy as np
import torch

from vjepa_ros.cli.benchmark.case import Case
from vjepa_ros.lab.world.demo_scene.approach import ApproachScene
from vjepa_ros.perception.config import TrackConfig, Wants
from vjepa_ros.perception.pipeline import Perception
from vjepa_ros.perception.settings import Settings
from vjepa_ros.runtime.engine import Engine, EngineConfig

INPUTS = 4
WARM_RUNS = 3
RATE_HZ = 15.0              # of the camera
APPROACH_S, SCENE_S = 4.5, 2.0      # from here on, so long, the synthetic robot drives
NS = 1e9


class Encode:
    """`Engine.encode` on random clips.

    Its times are ``encode``, the device time of normalising and encoding as the engine reports it,
    and ``call``, the whole call on the clock of the host, with upload and download.
    """

    def __init__(self, engine: Engine, case: Case) -> None:
        self._engine = engine
        random = np.random.default_rng(0)
        shape = (case.cameras, case.num_frames, case.image_size, case.image_size, 3)
        self._clips = cycle([list(random.integers(0, 256, shape, np.uint8))
                             for _ in range(INPUTS)])
        self.step()

    def warm(self) -> None:
        """Run some times that are not counted."""
        for _ in range(WARM_RUNS):
            self.step()

    def step(self) -> dict[str, float]:
        """Run once on clips that differ from the last."""
        clips = next(self._clips)
        start = time.perf_counter()
        self._engine.encode(clips)
        call = 1e3 * (time.perf_counter() - start)
        return {'encode': self._engine.timings['encode'], 'call': call}


class EndToEnd:
    """One new image of each camera in, one assessment of each out, the clip sliding on.

    All cameras run in one pass of `Perception`. Besides ``end_to_end`` and ``beyond_encode``,
    the times are those that the assessment reports, and ``preprocess``, taking the frames. Those
    of the host follow each other and add up to the whole: preprocess, gather, submit, looming,
    await, motion, assess. Those of the model lie within submit, looming and await. ``geometry``
    names where frames are resized and looming is measured, once the clip is full.
    """

    def __init__(self, case: Case) -> None:
        self.geometry = ''
        self._source = case.source
        self._frames: list[np.ndarray] = []     # drawn by `fill`: that is no part of a start
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
        """Take frames until they make a clip, and some more; the first results are not counted."""
        self._frames = source_frames(self._source)
        results = 0
        while results <= WARM_RUNS:
            results += self._next()[0] is not None
        self.geometry = next(iter(self._perception.tracks.values())).geometry

    def step(self) -> dict[str, float]:
        """Take one frame of each camera and assess it."""
        start = time.perf_counter()
        timings, preprocess = self._next()
        total = 1e3 * (time.perf_counter() - start)
        if timings is None:
            raise RuntimeError('no assessment came of a frame, though the clip is full')
        timings = {'preprocess': preprocess, **timings}
        found = {'end_to_end': total}
        if 'encode' in timings:
            found['beyond_encode'] = total - timings['encode']
        return {**found, **{f'stage:{name}': value for name, value in timings.items()}}

    def close(self) -> None:
        """Release the model."""
        self._perception.close()

    def _next(self) -> tuple[dict[str, float] | None, float]:
        """The times that the assessment reports, and the time that taking the frames took."""
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
    """RGB pictures (height, width, 3) of a drive at an obstacle."""
    scene = ApproachScene()
    times = [APPROACH_S + n / RATE_HZ for n in range(round(SCENE_S * RATE_HZ))]
    return [cv2.resize(scene.render(t), size, interpolation=cv2.INTER_LINEAR) for t in times]


def memory(engine: Engine) -> dict[str, int]:
    """Bytes that the model and the process hold."""
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
