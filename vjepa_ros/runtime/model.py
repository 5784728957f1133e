# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""A model that serves: encoder and heads on a device, and the noise floor of its features."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Sequence, Set
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.model.checkpoint.download import located
from vjepa_ros.model.checkpoint.load import WeightsReport, load_model
from vjepa_ros.model.encoder import Encoder, pooled
from vjepa_ros.model.head_specs import Calibration
from vjepa_ros.model.heads import Heads
from vjepa_ros.model.variants import (
    IMAGE_SIZE,
    NUM_FRAMES,
    PATCH,
    TUBELET,
    VARIANTS,
    find_variant,
)
from vjepa_ros.parameter import DEVICE, DEVICES, check_ranges, parameter
from vjepa_ros.runtime.cuda.compiler import waking
from vjepa_ros.runtime.device import (
    DeviceChoice,
    OperatorError,
    PRECISIONS,
    SessionError,
    all_operators_on,
    choose_device,
    cpu_instead,
    device_name,
)
from vjepa_ros.runtime.memory import (
    OutOfMemory,
    SMALLER,
    is_out_of_memory,
    release_memory,
)
from vjepa_ros.runtime.noise_floor import NoiseFloor, measure_noise_floor
from vjepa_ros.runtime.prediction import Pass, Prediction
from vjepa_ros.runtime.runner import Clip, DeviceClip, QueuedRunner, Runner
from vjepa_ros.runtime.streaming import Keys

log = logging.getLogger(__name__)

PER = ('grid', 'tubelet', 'clip')  # what a feature vector may stand for
MOST_WARM = 8  # numbers of clips in a pass that are made ready: as many as a GPU keeps graphs of
UNCALIBRATED = Calibration()
Item = TypeVar('Item')

MIN_FRAMES = 2 * TUBELET  # motion compares two tubelets


@dataclass(frozen=True)
class ModelConfig:
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
        'auto', 'Number format of the model; fp8 and int8: by torchao, as many layers as stay '
        'exact enough, fp8 on NVIDIA GPUs from compute capability 8.9 on, int8 on those from 8.0 '
        'on and on CPUs without bf16 instructions', choices=('auto', *PRECISIONS))
    cpu_threads: int = parameter(0, 'CPU threads of PyTorch; 0 keeps its default', low=0, high=256)
    model_version: str = 'auto'     # generation of V-JEPA; auto: that of the weights
    weights_part: str = 'auto'      # encoder of a file with several, see `load_encoder`
    seed: int = 0  # seed of random weights
    fetched: tuple[str, ...] | None = None  # names of the hub that may be fetched; None: all
    shrunk: str = ''  # why this is less than what was asked for; '' where it is not

    def __post_init__(self):
        check_ranges(self)


class NotFinite(SessionError):
    """The model computes values that are not finite."""


class Model:
    """A loaded model, fed with uint8 clips of one fixed shape. Make one with `Model.load`.

    All methods may be called from any thread; passes are queued one after the other.
    """

    def __init__(self, config: ModelConfig, encoder: Encoder, report: WeightsReport,
                 choice: DeviceChoice, heads: Heads | None = None,
                 calibration: Calibration = UNCALIBRATED, runner: type[Runner] | None = None):
        self.config, self.report, self.choice = config, report, choice
        self.clip_shape = (config.num_frames, config.image_size, config.image_size, 3)
        # Milliseconds of the stages upload, encode, heads and download of the last results; on
        # CUDA by events of the device, with the change of the features in heads.
        self.timings: dict[str, float] = {}
        self.trouble = ''       # what was done about values that are not finite
        self._lock = threading.Lock()
        self._most: int | None = None   # clips of a pass, once memory has run out
        self._measuring = threading.Lock()
        self._noise_floor: NoiseFloor | None = None
        self._prepared = (1, False)
        self._trial: threading.Thread | None = None     # in fp32
        self._better: Model | None = None              # which has helped
        kind = runner or _runner_for(choice.device)
        self._runner = kind(encoder, heads, calibration, choice, self.clip_shape)

    @classmethod
    def load(cls, config: ModelConfig) -> Model:
        """Load and warm a model, in fp32 where its values are not finite in less."""
        # In half precision; whether there is room for the rest only a pass can show.
        need = 2 * find_variant(config.model_size).weights
        choice = choose_device(config.device, config.require_device, config.precision,
                               need_bytes=need)
        if config.cpu_threads:
            torch.set_num_threads(config.cpu_threads)

        try:
            return cls._finite_on(choice, config)
        except OperatorError as error:
            if config.require_device:
                raise
            choice = cpu_instead(error, config.precision)
        return cls._finite_on(choice, config)

    @classmethod
    def _finite_on(cls, choice: DeviceChoice, config: ModelConfig) -> Model:
        try:
            return cls._on(choice, config)
        except NotFinite:
            if choice.dtype == torch.float32:
                raise
        engine = cls._on(_in_fp32(choice), config)
        engine._tell(_instead(choice))
        return engine

    @classmethod
    def _on(cls, choice: DeviceChoice, config: ModelConfig) -> Model:
        """Load a model; on failure nothing stays allocated."""
        with waking(choice.device, choice.branches):
            weights = config.weights and located(config.weights, 'weights', config.fetched)
            encoder, heads, report = load_model(
                config.model_size, config.model_version, weights, config.heads,
                config.allow_random_weights, config.seed, config.weights_part)
        calibration = UNCALIBRATED if report.heads is None else report.heads.meta.calibration
        engine = cls(config, encoder, report, choice, heads, calibration)
        del encoder, heads
        try:
            with all_operators_on(choice.device):
                engine.warm()
        except BaseException:
            engine.close()
            raise
        log.info("model '%s' %s is ready on %s in %s (%s): %d frames of %d pixels",
                 config.model_size, report.version, device_name(choice.device),
                 choice.precision, engine.execution, config.num_frames, config.image_size)
        return engine

    @property
    def not_streaming(self) -> str:
        """Why it encodes whole clips; '' where it encodes each tubelet once."""
        return self._runner.not_streaming

    @property
    def execution(self) -> str:
        return self._runner.execution

    @property
    def execution_reason(self) -> str:
        return self._runner.execution_reason

    def memory_bytes(self) -> int:
        """Return the bytes of weights, what streams remember, buffers and graphs; 0 if closed."""
        return self._runner.nbytes    # no lock: diagnostics ask while an inference holds it

    # -- passes ----------------------------------------------------------------------------

    def warm(self, clips: int = 1, change: bool = False) -> None:
        """Run passes of up to `clips` clips, with `change` as those with `valid` run."""
        grey = np.random.default_rng(0).integers(0, 256, self.clip_shape, dtype=np.uint8)
        everything = np.ones((self.clip_shape[1] // PATCH, self.clip_shape[2] // PATCH), bool)
        least = max(clips - MOST_WARM, 0)
        finite = True
        for count in range(clips, least, -1) if self._runner.captured else (1,):
            given = [grey] * count
            valid = [everything] * count if change else None
            finite = self.run(given, valid=valid)[0].finite
            if not self.not_streaming:      # as a whole, then a step
                keys = [[(n, at) for at in range(len(grey))] for n in range(count)]
                stamps = [np.arange(len(grey), dtype=np.float64)] * count
                for _ in range(2):
                    finite &= self.run(given, True, keys, valid, stamps)[0].finite
        self.forget()
        if not finite:
            raise self._not_finite()

    def prepare(self, clips: int, change: bool = False) -> None:
        """Do what `warm` does where the first pass of a kind is slow."""
        self._prepared = clips, change
        if (clips > 1 or change) and self._runner.captured:
            self.warm(clips, change)

    def encode(self, clips: Sequence[Clip]) -> list[np.ndarray]:
        """Compute the features of clips alone, see `run`."""
        found = [one.features for one in self.run(clips) if one.finite]
        features = [one for one in found if one is not None]
        if len(features) < len(clips):
            raise self._not_finite()
        return features

    def run(self, clips: Sequence[Clip], features: bool = True,
            keys: Sequence[Keys] | None = None,
            valid: Sequence[np.ndarray] | None = None,
            stamps: Sequence[np.ndarray] | None = None) -> list[Prediction]:
        """Compute features and heads of clips in one forward pass.

        `clips`: each (num_frames, image_size, image_size, 3) uint8 RGB, oldest frame first, as one
        array, as frames, or as a `DeviceClip`; `features`: whether to download them; `keys`: the
        identity of each frame of a clip, None for one that never comes again; `valid`: for each
        clip (Hp, Wp) bool, patches that show the image: on CUDA the change of features comes, too;
        `stamps`: for each clip (num_frames,) float64, when frames were taken, in seconds since a
        fixed moment. With keys and stamps a model that streams encodes only the newest
        tubelet of a clip whose others it remembers.

        ValueError: something does not fit. SessionError: the model is closed, or there is no
        memory for a single clip; without memory for all they run in several passes. A clip with a
        value that is not finite gets a `Prediction` that says so; `encode` and `features` raise
        NotFinite for it.
        """
        return self.wait(self.submit(clips, features, keys, valid, stamps), features)

    def submit(self, clips: Sequence[Clip], features: bool = True,
               keys: Sequence[Keys] | None = None,
               valid: Sequence[np.ndarray] | None = None,
               stamps: Sequence[np.ndarray] | None = None) -> list[Prediction]:
        """Start a pass as `run` does, and return its predictions, to be given to `wait`.

        When this returns the clips may be changed: on a GPU their pass is queued, and `wait`
        raises later errors of the device; on the CPU it is over.
        """
        with self._lock:
            if self._better is not None:
                self._adopt(self._better)
            stream, groups = self._runner.stream, [list(range(len(clips)))]
            if stream is None or keys is None:
                stamps = None
            check_clips(clips, keys, stamps, self.clip_shape)
            self._open()
            if stream is not None and keys is not None and stamps is not None and len(clips) > 1:
                groups = stream.groups(keys)
            found: dict[int, Prediction] = {}

            def start(places: list[int]) -> None:
                if len(places) == len(clips):
                    one = self._runner.start(clips, keys, features, valid, stamps)
                else:
                    one = self._runner.start(
                        [clips[at] for at in places], _at(keys, places), features,
                        _at(valid, places), _at(stamps, places))
                for number, at in enumerate(places):
                    found[at] = Prediction(source=one, index=number,
                                           keys=() if keys is None else keys[at])

            try:
                self._set_threads()
                for group in groups:
                    self._in_parts(group, start)
            except BaseException:
                if stream is not None:
                    stream.cache.forget()       # what was to be remembered is not
                raise
        return [found[at] for at in range(len(clips))]

    def wait(self, predictions: Sequence[Prediction], features: bool = False) -> list[Prediction]:
        """Wait for predictions, and for their features only if asked to."""
        total, seen, broken = dict[str, float](), set[Pass](), list[Keys]()
        for prediction in predictions:
            one = prediction.source
            assert one is not None
            if one not in seen:
                seen.add(one)
                one.wait()
                late = {'download': one.wait_for_features()} if features else {}
                for stage, ms in (*one.timings.items(), *late.items()):
                    total[stage] = total.get(stage, 0.0) + ms
            prediction.fill(self.clip_shape[1] // PATCH, self._runner.specs)
            if not prediction.finite:
                broken.append(prediction.keys)
        if broken and self._runner.stream is not None:
            with self._lock:
                self._runner.stream.drop(broken)   # later tubelets would attend to them
        self.timings = total
        return list(predictions)

    def _in_parts(self, places: list[int], run: Callable[[list[int]], None]) -> None:
        while places:
            part = places[:self._most]
            try:
                run(part)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                problem = str(error).partition('\n')[0]
            else:
                places = places[len(part):]
                continue
            # Not above: the traceback of an error keeps what the failed pass has allocated.
            self._make_room(len(part), problem)

    def _make_room(self, failed: int, problem: str) -> None:
        """Free what can be made again, and take fewer clips from now on."""
        self._runner.trim()
        release_memory(self.choice.device)
        frames, side = self.clip_shape[:2]
        what = f'{failed} clips' if failed > 1 else 'one clip'
        what += f' of {frames} frames of {side} px in {self.choice.precision}'
        if failed <= 1:
            raise OutOfMemory(f'{self.choice.device} has no memory for {what} ({problem}); '
                              f'{SMALLER}')
        self._most = failed // 2
        log.warning('%s has no memory for %s in one pass (%s); at most %d in one pass from now on',
                    self.choice.device, what, problem, self._most)

    def _open(self) -> Encoder:
        if self._runner.encoder is None:
            raise SessionError('the model is closed')
        return self._runner.encoder

    def _set_threads(self) -> None:
        """Set the number of threads, which PyTorch keeps for each thread that has computed."""
        if self.config.cpu_threads and torch.get_num_threads() != self.config.cpu_threads:
            torch.set_num_threads(self.config.cpu_threads)

    def features(self, clips: Sequence[Clip], layers: Sequence[int] | None = None,
                 levels: int = 0, per: str = 'grid', newest: int = 0,
                 stamps: Sequence[np.ndarray] | None = None) -> list[np.ndarray]:
        """Compute features of clips from any depth, as grids or pooled."""
        if layers is not None and (levels or not len(layers)):
            raise ValueError(f'features of the layers {tuple(layers)} and of {levels} levels are '
                             'asked for; choose some layers or levels')
        if per not in PER:
            raise ValueError(f"features per '{per}' are asked for; choose {', '.join(PER)}")
        if not 0 <= newest <= self.clip_shape[0] // TUBELET:
            raise ValueError(f'features of the newest {newest} tubelets are asked for; a clip has '
                             f'{self.clip_shape[0] // TUBELET}')
        found: list[np.ndarray] = []
        with self._lock:
            encoder, times = self._open(), None
            if not encoder.window:
                stamps = None
            check_clips(clips, None, stamps, self.clip_shape)
            if stamps is not None:
                times = encoder.times(torch.from_numpy(np.stack(stamps)))[:, -newest:]

            def run(places: list[int]) -> None:
                when = None if times is None else times[places].to(self.choice.device)

                def look(pixels: Tensor) -> Tensor:
                    clip = self._runner.normalise(pixels[:, -TUBELET * newest:])
                    chosen = (encoder.variant.depth - 1,) if layers is None else layers
                    deep = ((encoder.dense(clip, levels, times=when),) if levels
                            else encoder.layers(clip, chosen, times=when))
                    if per != 'grid':
                        deep = tuple(pooled(one, per == 'tubelet') for one in deep)
                    return deep[0] if layers is None else torch.stack(deep, dim=1)

                found.extend(self._runner.apply([clips[at] for at in places], look))

            self._in_parts(list(range(len(clips))), run)
        if not all(np.isfinite(array).all() for array in found):
            raise self._not_finite()
        return found

    # -- streams ---------------------------------------------------------------------------

    @property
    def stream_reach(self) -> float:
        """How long before its clip a result depends on the past [s]; 0: not."""
        stream = self._runner.stream
        return 0 if stream is None else stream.reach

    def remembered(self) -> Set[Hashable]:
        """Return the frames in which tubelets end that need not be encoded again."""
        stream = self._runner.stream
        return frozenset() if stream is None else stream.cache.slots.keys()

    def forget(self) -> None:
        with self._lock:
            if self._runner.stream is not None:
                self._runner.stream.cache.forget()

    def keep(self, frames: Set[Hashable]) -> None:
        """Forget the tubelets that end in no frame of these, which cameras still hold."""
        with self._lock:
            if self._runner.stream is not None:
                self._runner.stream.keep(frames)

    # -- noise floor, and values that are not finite ---------------------------------------

    def noise_floor(self) -> NoiseFloor:
        """Return the change of the features of a still scene, measured by the first call."""
        with self._measuring:
            if self._noise_floor is None:
                shape = self.config.num_frames, self.config.image_size
                try:
                    self._noise_floor = measure_noise_floor(self.encode, *shape)
                except NotFinite:
                    self.retry(np.zeros(self.clip_shape, np.uint8),
                               np.arange(shape[0], dtype=np.float64))
                    self.settle()
                    if self._better is None:
                        raise
                    self._noise_floor = self._better.noise_floor()
            return self._noise_floor

    def retry(self, clip: np.ndarray, stamps: np.ndarray) -> None:
        """Try a clip whose prediction is not finite in fp32, in a thread, once.

        If that helps, the model runs in fp32 from the next pass on, see `trouble`.
        """
        if self.trouble or self._trial is not None:
            return
        if self.choice.dtype == torch.float32:
            self._tell(f'{not_finite(self.choice)}: what it makes of such clips is UNKNOWN; if '
                       'they do not end, set `weights` to another file')
            return
        self._trial = threading.Thread(target=self._try, args=(clip, stamps),
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
            other = Model._on(_in_fp32(self.choice), self.config)
            found, = other.run([clip], False, [range(len(clip))], stamps=[stamps])
            other.forget()
            why = '' if found.finite else 'its values are not finite there, either'
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

    def _adopt(self, better: Model) -> None:
        """Go on in fp32; called between two passes, with the lock."""
        old, self._runner, self._better = self._runner, better._runner, None
        self.choice, self._noise_floor = better.choice, better._noise_floor
        self._most = better._most
        old.close()
        release_memory(self.choice.device)

    def _tell(self, trouble: str) -> None:
        self.trouble = trouble
        log.warning('%s', trouble)

    def _not_finite(self) -> NotFinite:
        remedy = ('set `weights` to another file' if self.choice.dtype == torch.float32 else
                  'set `precision: fp32`')
        return NotFinite(f'{not_finite(self.choice)}; {remedy}')

    def close(self) -> None:
        """Wait for a running call, then free the memory; predictions stay available."""
        if self.settle() and self._better is not None:
            self._better.close()
        with self._lock:
            if self._runner.encoder is None:
                return
            self._runner.close()
        release_memory(self.choice.device)


def _runner_for(device: torch.device) -> type[Runner]:
    if device.type == 'cuda':
        from vjepa_ros.runtime.cuda.runner import CudaRunner  # robots without one do not load it

        return CudaRunner
    return QueuedRunner if device.type == 'mps' else Runner


def _at(values: Sequence[Item] | None, places: Sequence[int]) -> list[Item] | None:
    return None if values is None else [values[at] for at in places]


def not_finite(choice: DeviceChoice) -> str:
    """Say that a model which runs so computes values that are not finite."""
    return (f'the model computes values that are not finite on {choice.device} in '
            f'{choice.precision}')


def _in_fp32(choice: DeviceChoice) -> DeviceChoice:
    return replace(choice, dtype=torch.float32,
                   reason=f'{choice.reason}; in fp32, because {not_finite(choice)}')


def _instead(choice: DeviceChoice) -> str:
    return (f'{not_finite(choice)}; it runs in fp32 instead, which is slower: set '
            '`precision: fp32` to start so')


def check_clips(clips: Sequence[Clip], keys: Sequence[Keys] | None,
                stamps: Sequence[np.ndarray] | None, shape: tuple[int, ...]) -> None:
    """Raise ValueError for clips of another shape or type, and keys or stamps that do not fit."""
    for clip in clips:
        forms = ({(clip.dtype, clip.shape)} if isinstance(clip, np.ndarray | DeviceClip)
                 else {(frame.dtype, (len(clip), *frame.shape)) for frame in clip})
        if forms != {(np.dtype(np.uint8), shape)}:
            found = ' and '.join(f'{kind} {size}' for kind, size in sorted(forms, key=str))
            raise ValueError(f"a clip is {found or 'empty'}, expected uint8 {shape}")
    for what, given in (('keys', keys), ('stamps', stamps)):
        if given is not None and [*map(len, given)] != [shape[0]] * len(clips):
            raise ValueError(f'there are {what} for {[*map(len, given)]} frames, expected '
                             f'{shape[0]} for each of {len(clips)} clips')
    if stamps is None:
        return
    times = np.asarray(stamps)
    if not (times[:, 1::TUBELET] > times[:, ::TUBELET]).all():      # NaN is above nothing
        raise ValueError('stamps do not rise within each tubelet; leave out clips in which a '
                         'frame goes with itself')
