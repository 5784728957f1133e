# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Define a training run: its options, and schedules of what changes during it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

from vjepa_ros.lab.world.scenes.scene_spec import WORLDS, WorldConfig
from vjepa_ros.model.variants import IMAGE_SIZE, NUM_FRAMES, PATCH, TUBELET, find_variant

FLOOR = 0.01          # of the learning rate at the end


@dataclass(frozen=True)
class Phases:
    """A value that changes at given parts of the run."""

    values: tuple[float, ...]  # one after the other
    ends: tuple[float, ...]  # part of the run, 0..1, at which each of them ends; the last is 1

    @classmethod
    def parse(cls, text: str, name: str) -> Phases:
        """Read ``VALUE`` or ``VALUE:SHARE,VALUE:SHARE,...`` with shares that add up to 1."""
        parts = [part.split(':') for part in text.split(',')]
        if len(parts) > 1 and any(len(part) != 2 for part in parts):
            raise ValueError(f"{name} '{text}' needs VALUE:SHARE for each of its parts")
        try:
            values = [float(part[0]) for part in parts]
            shares = [float(part[1]) if len(part) == 2 else 1.0 for part in parts]
        except (ValueError, IndexError):
            raise ValueError(f"{name} '{text}' is neither a number nor numbers with shares such "
                             "as '128:0.7,256:0.3'") from None
        if any(share <= 0 for share in shares) or abs(sum(shares) - 1) > 1e-6:
            raise ValueError(f"{name} '{text}': the shares must be above 0 and add up to 1")
        ends = [sum(shares[:i + 1]) for i in range(len(shares))]
        return cls(tuple(values), (*ends[:-1], 1.0))

    def at(self, progress: float) -> float:
        """Return the value at a part of the run, 0..1."""
        return next((v for v, end in zip(self.values, self.ends, strict=True) if progress < end),
                    self.values[-1])


def rate_factor(progress: float, warmup: float) -> float:
    """Factor on the learning rate: linear rise over `warmup`, then half a cosine to FLOOR."""
    if progress < warmup:
        return max(progress / warmup, 1e-3)
    part = min(1.0, (progress - warmup) / max(1e-9, 1.0 - warmup))
    return FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * part))


def momentum(step: int, limit: float) -> float:
    """Share of the old average that is kept at a step: short at first, then `limit`."""
    return min(limit, (1 + step) / (10 + step))


@dataclass
class Budget:
    """How much of the run is done, counted in clips or in seconds of training."""

    clips: int  # planned clips, 0 when time decides
    seconds: float  # planned seconds, 0 when clips decide
    clips_done: int = 0  # over all calls of the run
    # Over all calls of the run, without start-up, validation and writing
    seconds_done: float = 0.0

    @property
    def progress(self) -> float:
        """Part of the run that is done, 0..1."""
        done = self.clips_done / self.clips if self.clips else self.seconds_done / self.seconds
        return min(1.0, done)

    @property
    def spent(self) -> bool:
        """Whether the run is complete."""
        return self.progress >= 1.0


OBJECTIVES = ('supervised', 'jepa', 'both')
PRECISIONS = ('auto', 'fp32', 'bf16')
OPTIMIZERS = ('adamw', 'muon')
BOTH = 'both'         # worlds
# May differ when a run is continued: they decide how and where it runs, not what it computes.
FREE = ('out', 'device', 'precision', 'compile', 'compile_world', 'workers', 'stop_after',
        'checkpoint_s', 'held_out_clips', 'calibration_clips', 'progress_s', 'reuse')


@dataclass(frozen=True)
class TrainConfig:
    """Options of one run; see `vjepa-ros train --help` for what they mean."""

    out: str  # folder for everything the run writes
    model_size: str = 'tiny'  # row of `VARIANTS`
    objective: str = 'supervised'  # supervised, jepa or both
    seed: int = 0  # decides weights and data
    # clips, seconds: planned length of the run; exactly one of them is above 0
    clips: int = 0
    seconds: float = 0.0
    # Stop this call after so many seconds, 0 for never; the run can be continued
    stop_after: float = 0.0
    batch: int = 64  # clips per step and process
    world: str = 'standard'  # standard or rough, see `WorldConfig`; both for half of each
    num_frames: int = NUM_FRAMES  # frames per clip, even, at least 4
    # Tubelets that a tubelet attends to in a block-causal encoder; 0 for one in which all attend
    # to all. Clips are longer than that, see `num_frames`.
    window: int = 0
    # image_sizes, tokens_kept: a value, or values with shares of the run, see `Phases.parse`
    image_sizes: str = str(IMAGE_SIZE)
    tokens_kept: str = '1.0'
    # lr, weight_decay, warmup, clip_norm, average: of the optimiser, the schedule and the moving
    # average of the weights
    lr: float = 1e-3
    weight_decay: float = 0.05
    warmup: float = 0.04
    clip_norm: float = 1.0
    average: float = 0.999
    # device, precision: auto, cpu, cuda, cuda:N; auto, fp32, bf16 (of the matrix products while
    # training)
    device: str = 'auto'
    precision: str = 'auto'
    # compile, compile_world: use `torch.compile` on the blocks of the encoder, and on the
    # renderer
    compile: bool = False
    compile_world: bool = False
    workers: int = 1  # threads that draw scenes ahead
    optimizer: str = 'adamw'  # adamw, or muon for the matrices of the blocks
    auxiliary: bool = False  # ask the dense heads more than what they are kept for
    reuse: int = 1  # steps that use a rendered clip
    # Painted textures of the world, and as many crops of photographs if there are any
    textures: int = 200
    photos: tuple[str, ...] = ()  # image files or folders to cut textures from
    weights: str = ''  # safetensors file the encoder starts from, '' for random
    heads_only: bool = False  # keep the encoder as it is and train heads
    lora_rank: int = 0  # rank of adapters in the frozen encoder, 0 for none
    # With a frozen encoder, encode so many clips once and train on them over and over
    cached_clips: int = 0
    recordings: tuple[str, ...] = ()  # recording folders and bags to learn from besides the world
    recording_share: float = 0.25  # part of every batch that comes from them, 0..1
    # image_topic, label_topic, label_field, label_threshold: see `vjepa_ros.lab.training.labels`
    image_topic: str = ''
    label_topic: str = ''
    label_field: str = ''
    label_threshold: str = ''
    label_horizon: float = 1.0  # time that a plain collision flag of a frame speaks about [s]
    resize_mode: str = 'squash'  # how recordings are fitted into the square input
    # calibration_clips, held_out_clips, validation_clips: rendered clips of the three splits
    calibration_clips: int = 1000
    held_out_clips: int = 2000
    validation_clips: int = 200
    validations: int = 8  # how often the validation clips are judged during the run
    # checkpoint_s, progress_s: seconds between checkpoints, and between reports of progress
    checkpoint_s: float = 120.0
    progress_s: float = 2.0

    def __post_init__(self):
        find_variant(self.model_size)
        _one_of('objective', self.objective, OBJECTIVES)
        _one_of('world', self.world, (*WORLDS, BOTH))
        _one_of('precision', self.precision, PRECISIONS)
        _one_of('optimizer', self.optimizer, OPTIMIZERS)
        if (self.clips > 0) == (self.seconds > 0) or min(self.clips, self.seconds) < 0:
            raise ValueError(f'clips is {self.clips} and seconds {self.seconds}: give the length '
                             'of the run as one of them')
        for name, low, high in (('batch', 1, 1 << 20), ('seed', 0, 1 << 62),
                                ('lr', 1e-8, 1), ('weight_decay', 0, 1), ('warmup', 0, 0.5),
                                ('clip_norm', 1e-6, 1e6), ('average', 0, 1),
                                ('workers', 1, 64), ('reuse', 1, 64), ('lora_rank', 0, 1024),
                                ('textures', 30, 100_000),
                                ('recording_share', 0, 1), ('label_horizon', 0.05, 60),
                                ('stop_after', 0, 1e9), ('validations', 0, 10_000),
                                ('held_out_clips', 0, 10**7), ('calibration_clips', 0, 10**7),
                                ('validation_clips', 0, 10**6), ('cached_clips', 0, 10**7)):
            if not low <= getattr(self, name) <= high:
                raise ValueError(f'{name} is {getattr(self, name)}, must be {low} to {high}')
        if self.num_frames < 2 * TUBELET or self.num_frames % TUBELET:
            raise ValueError(f'num_frames is {self.num_frames}, must be even and at least '
                             f'{2 * TUBELET}')
        if self.window and not 2 <= self.window < self.tubelets:
            raise ValueError(f'window is {self.window}, must be 0, or at least 2 and below the '
                             f'{self.tubelets} tubelets of num_frames {self.num_frames}')
        if any(size < 2 * PATCH or size % PATCH for size in self.sizes.values):
            raise ValueError(f"image_sizes '{self.image_sizes}': sizes must be multiples of "
                             f'{PATCH}, at least {2 * PATCH}')
        if not all(0 < kept <= 1 for kept in self.kept.values):
            raise ValueError(f"tokens_kept '{self.tokens_kept}': must be above 0, at most 1")
        self._check_parts()

    def _check_parts(self) -> None:
        if self.heads_only and self.objective != 'supervised':
            raise ValueError(f"objective '{self.objective}' trains the encoder, which heads_only "
                             'keeps as it is')
        if self.heads_only and self.optimizer != 'adamw':
            raise ValueError(f"optimizer '{self.optimizer}' is for the blocks of the encoder, "
                             'which heads_only keeps as they are')
        if self.lora_rank and not self.heads_only:
            raise ValueError(f'lora_rank is {self.lora_rank}, but adapters are for a frozen '
                             'encoder: add heads_only')
        if self.cached_clips and (not self.heads_only or self.lora_rank or self.recordings):
            raise ValueError('cached_clips needs heads_only without adapters and recordings: '
                             'features can be kept only where nothing changes them')
        if self.recordings and not self.from_recordings:
            raise ValueError(f'batch {self.batch} x recording_share {self.recording_share} gives '
                             'no clip of recordings; raise `batch` or `recording_share`')
        if self.heads_only and not self.weights:
            raise ValueError('heads_only needs the weights of the encoder that the heads are for')
        if self.window and (self.objective != 'supervised' or self.recordings):
            raise ValueError(f'window is {self.window}, but block-causal encoders learn from '
                             "rendered clips with objective 'supervised' alone")
        if self.objective == 'jepa' and any(kept == 1 for kept in self.kept.values):
            raise ValueError("objective 'jepa' hides a part of each clip: give "
                             f'tokens_kept below 1, such as 0.25, not {self.tokens_kept}')

    @property
    def sizes(self) -> Phases:
        """Pixels per side of a frame over the run."""
        return Phases.parse(self.image_sizes, 'image_sizes')

    @property
    def kept(self) -> Phases:
        """Share of places the encoder sees over the run."""
        return Phases.parse(self.tokens_kept, 'tokens_kept')

    @property
    def worlds(self) -> tuple[WorldConfig, ...]:
        """Worlds whose clips are rendered, equally many of each."""
        return tuple(WorldConfig(name, training=name == 'rough') for name in WORLDS
                     if self.world in (name, BOTH))

    @property
    def tubelets(self) -> int:
        """Most tubelets of a clip that a block-causal encoder sees."""
        # Of a stream whose frames stand twice, one tubelet fewer fits into the clip.
        return self.num_frames // TUBELET - 1

    @property
    def from_recordings(self) -> int:
        """Clips of a batch that come from recordings."""
        return round(self.batch * self.recording_share) if self.recordings else 0

    @property
    def image_size(self) -> int:
        """Pixels per side at the end of the run, which the result is for."""
        return int(self.sizes.values[-1])

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TrainConfig:
        """Back from JSON; unknown keys are refused."""
        known = {f.name for f in fields(cls)}
        if values.keys() - known:
            raise ValueError(f'unknown options {sorted(values.keys() - known)}')
        return cls(**{**values, **{name: tuple(values.get(name, ()))
                                   for name in ('recordings', 'photos')}})


def differences(saved: TrainConfig, given: TrainConfig) -> list[str]:
    """List options that a continued run must not change, as 'name: saved then, given now'."""
    return [f'{f.name}: {getattr(saved, f.name)!r} then, {getattr(given, f.name)!r} now'
            for f in fields(TrainConfig)
            if f.name not in FREE and getattr(saved, f.name) != getattr(given, f.name)]


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} '{value}' is not one of {', '.join(allowed)}")
