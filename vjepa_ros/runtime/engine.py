# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""A model ready to serve: loaded and warmed, and the noise floor of its features."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Hashable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from vjepa_ros.model.checkpoint.download import located
from vjepa_ros.model.checkpoint.load import WeightsReport, load_model
from vjepa_ros.model.variants import IMAGE_SIZE, NUM_FRAMES, PATCH, TUBELET, find_variant
from vjepa_ros.runtime.cuda.frame_upload import Clip, Keys
from vjepa_ros.runtime.cuda.prewarm import waking
from vjepa_ros.runtime.device import (
    DeviceChoice,
    all_operators_on,
    choose_device,
    computing_with,
    device_name,
    load_on,
)
from vjepa_ros.runtime.forward.compilation import MODES
from vjepa_ros.runtime.memory import limited_memory
from vjepa_ros.runtime.noise_floor import NoiseFloor, measure_noise_floor
from vjepa_ros.runtime.outputs import Output, Pending
from vjepa_ros.runtime.session import EncoderSession, UNCALIBRATED
from vjepa_ros.runtime.streaming import STREAMING

log = logging.getLogger(__name__)

MIN_FRAMES = 2 * TUBELET  # motion compares two tubelets


@dataclass(frozen=True)
class EngineConfig:
    """Everything that decides how a model is loaded.

    Attributes
    ----------
    model_size, model_version : str
        Row of `VARIANTS` and generation.
    weights : str
        Checkpoint of the encoder, see `load_encoder`. '' takes the file that the package brings
        for this size, if it brings one; 'random' takes random weights even so.
    weights_part : str
        Which encoder of a file with several, see `load_encoder`.
    heads : str
        File with heads that were trained on these weights; '' takes those in the file of the
        encoder, if there are any.
    allow_random_weights : bool
        Whether the model may run untrained.
    num_frames : int
        Frames per clip, even, at least 4.
    image_size : int
        Pixels per side of the input, a multiple of 16, at least 32.
    device, precision : str
        See `choose_device`.
    require_device : bool
        Fail when the device is missing.
    compile : str
        Whether torch.compile is used: 'off', 'auto' or 'on', see `choose_compile`.
    streaming : str
        'auto': encode each tubelet once where the weights are block-causal; 'off': whole clips.
    memory_fraction : float
        Part of the memory of an accelerator, 0..1, that this process may use.
    seed : int
        Seed of random weights.
    cpu_threads : int
        Threads of PyTorch on the CPU, for the whole process; 0 leaves them as they are.
    fetched : tuple of str, optional
        Names of the Hugging Face hub that may be fetched, see `located`; all when omitted.
    shrunk : str
        Why this is less than what was asked for; '' where it is not.

    """

    model_size: str = 'tiny'
    model_version: str = 'auto'
    weights: str = ''
    weights_part: str = 'auto'
    heads: str = ''
    allow_random_weights: bool = False
    num_frames: int = NUM_FRAMES
    image_size: int = IMAGE_SIZE
    device: str = 'auto'
    require_device: bool = False
    precision: str = 'auto'
    compile: str = 'auto'
    streaming: str = 'auto'
    memory_fraction: float = 1.0
    seed: int = 0
    cpu_threads: int = 0
    fetched: tuple[str, ...] | None = None
    shrunk: str = ''

    def __post_init__(self):
        if self.num_frames < MIN_FRAMES or self.num_frames % TUBELET:
            raise ValueError(f'num_frames is {self.num_frames}, but must be even and at least '
                             f'{MIN_FRAMES}: frames are encoded in pairs, and motion compares '
                             'two pairs')
        if self.image_size < 2 * PATCH or self.image_size % PATCH:
            raise ValueError(f'image_size is {self.image_size}, but must be a multiple of '
                             f'{PATCH} and at least {2 * PATCH}')
        if self.compile not in MODES:
            raise ValueError(f"compile is '{self.compile}', but must be one of "
                             f"{', '.join(MODES)}")
        if self.streaming not in STREAMING:
            raise ValueError(f"streaming is '{self.streaming}', but must be one of "
                             f"{', '.join(STREAMING)}")
        if not 0 < self.memory_fraction <= 1:
            raise ValueError(f'memory_fraction is {self.memory_fraction}, but must be above 0 and '
                             'at most 1')
        if self.cpu_threads < 0:
            raise ValueError(f'cpu_threads is {self.cpu_threads}, but must be 0 or more')


class Engine:
    """A loaded model. Make one with `Engine.load`.

    Attributes
    ----------
    config : EngineConfig
        What was asked for.
    report : WeightsReport
        Where the weights come from.
    choice : DeviceChoice
        Where the model runs.
    load_s : dict of str to float
        Seconds that `load` took: weights, read; prepare, on the device with kernels that are
        checked; warm, with capture.

    """

    def __init__(self, config: EngineConfig, session: EncoderSession, report: WeightsReport,
                 load_s: Mapping[str, float] | None = None):
        self.config = config
        self.report = report
        self.choice: DeviceChoice = session.choice
        self.load_s = dict(load_s or {})
        self._session = session
        self._measuring = threading.Lock()
        self._noise_floor: NoiseFloor | None = None

    @classmethod
    def load(cls, config: EngineConfig) -> Engine:
        """Load and warm a model; on failure nothing stays allocated.

        Raises
        ------
        WeightsError, DeviceError, SessionError, ValueError
            With the parameter, its value and the remedy.

        """
        # In half precision; whether there is room for the rest only a pass can show.
        need = 2 * find_variant(config.model_size).weights
        choice = choose_device(config.device, config.require_device, config.precision,
                               need_bytes=need, memory_fraction=config.memory_fraction)
        if config.cpu_threads:
            torch.set_num_threads(config.cpu_threads)

        def made(chosen: DeviceChoice) -> Engine:
            with limited_memory(chosen.device, config.memory_fraction):
                return cls._on(chosen, config)

        return load_on(choice, made, config.require_device, config.precision)

    @classmethod
    def _on(cls, choice: DeviceChoice, config: EngineConfig) -> Engine:
        laps = [time.perf_counter()]
        with waking(choice.device, choice.branches):
            weights = config.weights and located(config.weights, 'weights', config.fetched)
            encoder, heads, report = load_model(
                config.model_size, config.model_version, weights, config.heads,
                config.allow_random_weights, config.seed, config.weights_part)
        laps.append(time.perf_counter())
        calibration = UNCALIBRATED if report.heads is None else report.heads.meta.calibration
        session = EncoderSession(encoder, choice, config.num_frames, config.image_size, heads,
                                 calibration, config.compile)
        del encoder, heads
        laps.append(time.perf_counter())
        try:
            if config.streaming == 'auto':
                session.stream()
            with all_operators_on(choice.device):
                session.warm()
        except BaseException:
            session.close()
            raise
        log.info("model '%s' %s is ready on %s in %s (%s): %d frames of %d pixels",
                 config.model_size, report.version, device_name(choice.device),
                 choice.precision, session.execution, config.num_frames, config.image_size)
        laps.append(time.perf_counter())
        took = {name: round(end - begin, 3) for name, (begin, end) in
                zip(('weights', 'prepare', 'warm'), pairwise(laps), strict=True)}
        log.debug('seconds to load: %s', took)
        return cls(config, session, report, took)

    def noise_floor(self) -> NoiseFloor:
        """Return the change of the features of a still scene, measured by the first call.

        That takes four passes. Errors are those of `encode`.
        """
        with self._measuring:
            if self._noise_floor is None:
                self._here()
                self._noise_floor = measure_noise_floor(
                    self._session.encode, self.config.num_frames, self.config.image_size)
            return self._noise_floor

    @property
    def timings(self) -> dict[str, float]:
        """Milliseconds of the stages of the last results, see `EncoderSession`."""
        return self._session.timings

    @property
    def execution(self) -> str:
        """How the model runs, see `EncoderSession.execution`."""
        return self._session.execution

    @property
    def execution_reason(self) -> str:
        """Why it does not run faster, see `EncoderSession.execution_reason`."""
        return self._session.execution_reason

    @property
    def not_streaming(self) -> str:
        """Why clips are encoded as a whole; '' where each tubelet is encoded once."""
        return self._session.not_streaming

    @property
    def stream_reach(self) -> int:
        """How far before its clip a result depends on the past [frame intervals]; 0: not."""
        return self._session.stream_reach

    def remembered(self) -> Set[Hashable]:
        """Return the tubelets that are remembered, see `EncoderSession.remembered`."""
        return self._session.remembered()

    def forget(self) -> None:
        """Forget all tubelets, see `EncoderSession.forget`."""
        if not self.not_streaming:
            self._session.forget()

    def keep(self, frames: Set[Hashable]) -> None:
        """Forget tubelets of frames that are gone, see `EncoderSession.keep`."""
        self._session.keep(frames)

    def prepare(self, clips: int, change: bool = False) -> None:
        """Make passes of up to `clips` clips ready where the first of a kind is slow.

        With `change` those that are asked for the change of the features, too.
        """
        if (clips > 1 or change) and self.choice.device.type == 'cuda':
            self._session.warm(clips, change)

    def encode(self, clips: Sequence[Clip]) -> list[np.ndarray]:
        """Features of clips alone, see `EncoderSession.encode`."""
        return self._session.encode(clips)

    def run(self, clips: Sequence[Clip], features: bool = True,
            keys: Sequence[Keys] | None = None,
            valid: Sequence[np.ndarray] | None = None,
            stamps: Sequence[np.ndarray] | None = None) -> list[Output]:
        """Run the model on clips, see `EncoderSession.run`."""
        with self._threads(keys):
            return self._session.run(clips, features, keys, valid, stamps)

    def submit(self, clips: Sequence[Clip], features: bool = True,
               keys: Sequence[Keys] | None = None,
               valid: Sequence[np.ndarray] | None = None,
               stamps: Sequence[np.ndarray] | None = None) -> Pending:
        """Start what `run` does, see `EncoderSession.submit`."""
        with self._threads(keys):
            return self._session.submit(clips, features, keys, valid, stamps)

    def _threads(self, keys: Sequence[Keys] | None) -> AbstractContextManager[None]:
        """Leave a core to looming beside a single tubelet in bf16, which gains little by it.

        The products of float32 take longer than threads take to meet, and do gain.
        """
        self._here()
        spares = (keys is not None and len(keys) == 1 and not self.not_streaming
                  and self.choice.device.type == 'cpu' and self.choice.branches == torch.bfloat16
                  and self.remembered() >= set(keys[0][1:-1:TUBELET]))
        return computing_with(max(1, torch.get_num_threads() - spares))

    def features(self, clips: Sequence[Clip], layers: Sequence[int] | None = None,
                 levels: int = 0, per: str = 'grid', newest: int = 0,
                 stamps: Sequence[np.ndarray] | None = None) -> list[np.ndarray]:
        """Features of clips from any depth, as grids or pooled, see `EncoderSession.features`."""
        return self._session.features(clips, layers, levels, per, newest, stamps)

    def _here(self) -> None:
        """Set the number of threads, which PyTorch keeps for each thread that has computed."""
        if self.config.cpu_threads and torch.get_num_threads() != self.config.cpu_threads:
            torch.set_num_threads(self.config.cpu_threads)

    def memory_bytes(self) -> int:
        """Bytes the model holds, see `EncoderSession.memory_bytes`."""
        return self._session.memory_bytes()

    def close(self) -> None:
        """Wait for a running call and release the model. May be called twice."""
        self._session.close()
