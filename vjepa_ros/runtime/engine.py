# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""A model ready to serve: loaded and warmed, and the noise floor of its features."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch

from vjepa_ros.model.checkpoint.download import located
from vjepa_ros.model.checkpoint.load import WeightsReport, load_model
from vjepa_ros.model.variants import (
    IMAGE_SIZE,
    NUM_FRAMES,
    PATCH,
    TUBELET,
    VARIANTS,
    find_variant,
)
from vjepa_ros.parameter import DEVICE, DEVICES, parameter
from vjepa_ros.runtime.cuda.frame_upload import Clip, Keys
from vjepa_ros.runtime.cuda.prewarm import waking
from vjepa_ros.runtime.device import (
    DeviceChoice,
    PRECISIONS,
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
from vjepa_ros.runtime.session import EncoderSession, NotFinite, UNCALIBRATED, not_finite
from vjepa_ros.runtime.streaming import STREAMING

log = logging.getLogger(__name__)

MIN_FRAMES = 2 * TUBELET  # motion compares two tubelets


@dataclass(frozen=True)
class EngineConfig:
    """Everything that decides how a model is loaded."""

    model_size: str = parameter('tiny', 'Size of the encoder, a row of the table of variants',
                                choices=tuple(VARIANTS))
    device: str = parameter(
        'auto', 'Device of the model; auto: CUDA, else MPS, else the CPU', pattern=DEVICE,
        allowed=DEVICES)
    require_device: bool = parameter(
        False, 'Fail when the device is missing or lacks an operator, instead of running on the '
        'CPU with a warning')
    weights: str = parameter(
        '', 'Checkpoint of the encoder: file, folder or name on the Hugging Face hub; empty: the '
        'bundled one, which exists for tiny; random: none, run untrained')
    heads: str = parameter(
        '', 'Safetensors file of learned heads for these weights; empty: those in the weights '
        'file, if any')
    allow_random_weights: bool = parameter(
        False, 'Run untrained without weights; every output is marked untrained')
    num_frames: int = parameter(NUM_FRAMES, 'Number of frames in a clip', low=4, high=64,
                                multiple=2)
    image_size: int = parameter(IMAGE_SIZE, 'Side of the encoder input', low=32, high=1024,
                                multiple=16, unit='px')
    precision: str = parameter(
        'auto', 'Number format of the model; fp8: bf16 with those matrices in float8 that stay '
        'exact enough, on NVIDIA GPUs from compute capability 8.9 on, not for block-causal '
        'weights; int8: fp32 with such matrices in int8, on CPUs with VNNI but without bf16 '
        'instructions', choices=('auto', *PRECISIONS))
    cpu_threads: int = parameter(0, 'CPU threads of PyTorch; 0 keeps its default', low=0, high=256)
    model_version: str = 'auto'     # generation of V-JEPA; auto: that of the weights
    weights_part: str = 'auto'      # encoder of a file with several, see `load_encoder`
    # Whether torch.compile is used: 'off', 'auto' or 'on', see `choose_compile`
    compile: str = 'auto'
    # 'auto': encode each tubelet once where the weights are block-causal; 'off': whole clips
    streaming: str = 'auto'
    # Part of the memory of an accelerator, 0..1, that this process may use
    memory_fraction: float = 1.0
    seed: int = 0  # seed of random weights
    # Names of the Hugging Face hub that may be fetched, see `located`; all when omitted
    fetched: tuple[str, ...] | None = None
    shrunk: str = ''  # why this is less than what was asked for; '' where it is not

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
    trouble : str
        What was done about values that are not finite; '' where there were none.

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
        self.trouble = ''
        self._prepared = (1, False)
        self._trial: threading.Thread | None = None     # in fp32
        self._better: Engine | None = None              # which has helped

    @classmethod
    def load(cls, config: EngineConfig) -> Engine:
        """Load and warm a model; on failure nothing stays allocated.

        Where its values are not finite in less than fp32, it is loaded in fp32.
        """
        # In half precision; whether there is room for the rest only a pass can show.
        need = 2 * find_variant(config.model_size).weights
        choice = choose_device(config.device, config.require_device, config.precision,
                               need_bytes=need, memory_fraction=config.memory_fraction)
        if config.cpu_threads:
            torch.set_num_threads(config.cpu_threads)

        def made(chosen: DeviceChoice) -> Engine:
            with limited_memory(chosen.device, config.memory_fraction):
                try:
                    return cls._on(chosen, config)
                except NotFinite:
                    if chosen.dtype == torch.float32:
                        raise
                engine = cls._on(_in_fp32(chosen), config)
                engine._tell(_instead(chosen))
                return engine

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
                self._set_threads()
                shape = self.config.num_frames, self.config.image_size
                try:
                    self._noise_floor = measure_noise_floor(self._session.encode, *shape)
                except NotFinite:
                    self.retry(lambda: np.zeros((*shape, shape[1], 3), np.uint8),
                               np.arange(shape[0], dtype=np.float64))
                    self.settle()
                    if self._better is None:
                        raise
                    self._noise_floor = self._better.noise_floor()
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
        self._prepared = clips, change
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
        if self._better is not None:
            self._adopt(self._better)
        self._set_threads()
        spares = (keys is not None and len(keys) == 1 and not self.not_streaming
                  and self.choice.device.type == 'cpu' and self.choice.branches == torch.bfloat16
                  and self.remembered() >= set(keys[0][1:-1:TUBELET]))
        return computing_with(max(1, torch.get_num_threads() - spares))

    def features(self, clips: Sequence[Clip], layers: Sequence[int] | None = None,
                 levels: int = 0, per: str = 'grid', newest: int = 0,
                 stamps: Sequence[np.ndarray] | None = None) -> list[np.ndarray]:
        """Features of clips from any depth, as grids or pooled, see `EncoderSession.features`."""
        return self._session.features(clips, layers, levels, per, newest, stamps)

    def retry(self, clip: Callable[[], np.ndarray], stamps: np.ndarray) -> None:
        """Try a clip whose output is not finite in fp32, in a thread; once, and never again.

        If that helps, the model runs in fp32 from the next pass on, see `trouble`.
        """
        if self.trouble or self._trial is not None:
            return
        if self.choice.dtype == torch.float32:
            self._tell(f'{not_finite(self.choice)}: what it makes of such clips is UNKNOWN; if '
                       'they do not end, set `weights` to another file')
            return
        self._trial = threading.Thread(target=self._try, args=(np.array(clip()), stamps),
                                       name='vjepa_fp32', daemon=True)
        self._trial.start()

    def settle(self) -> bool:
        """Wait for the trial that `retry` has begun; return whether it has just helped."""
        if self._trial is not None:
            self._trial.join()
        return self._better is not None

    def _try(self, clip: np.ndarray, stamps: np.ndarray) -> None:
        other = None
        try:
            self._set_threads()
            other = Engine._on(_in_fp32(self.choice), self.config)
            output, = other.run([clip], False, [range(len(clip))], stamps=[stamps])
            other.forget()
            why = '' if output.finite else 'its values are not finite there, either'
            if other.report.tensors_sha256 != self.report.tensors_sha256:
                why = f"'{self.report.path}' has changed since it was loaded"
            other.noise_floor()
            other.prepare(*self._prepared)
        except Exception as error:
            # Whatever goes wrong is a trial that has not helped: what there is goes on.
            log.debug('the trial in fp32 has failed', exc_info=True)
            why = f'{type(error).__name__}: {error}'
        if not why:
            self._tell(_instead(self.choice))
            self._better = other
            return
        self._tell(f'{not_finite(self.choice)}, and fp32 does not help ({why}): what it makes of '
                   'such clips is UNKNOWN; set `weights` to another file')
        if other is not None:
            other.close()

    def _adopt(self, better: Engine) -> None:
        """Go on in fp32; called between two passes."""
        old, self._session, self._better = self._session, better._session, None
        self.choice, self._noise_floor = better.choice, better._noise_floor
        old.close()

    def _tell(self, trouble: str) -> None:
        self.trouble = trouble
        log.warning('%s', trouble)

    def _set_threads(self) -> None:
        """Set the number of threads, which PyTorch keeps for each thread that has computed."""
        if self.config.cpu_threads and torch.get_num_threads() != self.config.cpu_threads:
            torch.set_num_threads(self.config.cpu_threads)

    def memory_bytes(self) -> int:
        """Bytes the model holds, see `EncoderSession.memory_bytes`."""
        return self._session.memory_bytes()

    def close(self) -> None:
        """Wait for a running call and release the model. May be called twice."""
        if self.settle() and self._better is not None:
            self._better.close()
        self._session.close()


def _in_fp32(choice: DeviceChoice) -> DeviceChoice:
    return replace(choice, dtype=torch.float32,
                   reason=f'{choice.reason}; in fp32, because {not_finite(choice)}')


def _instead(choice: DeviceChoice) -> str:
    return (f'{not_finite(choice)}; it runs in fp32 instead, which is slower: set '
            '`precision: fp32` to start so')
