# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Read recipes: the keys of a training run with their defaults and ranges, and its stages."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import Field, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml

from vjepa_ros.clip.resize import MODES
from vjepa_ros.lab.world.scenes.scene_spec import WORLDS, WorldConfig
from vjepa_ros.model.variants import IMAGE_SIZE, NUM_FRAMES, PATCH, TUBELET, VARIANTS

RECIPES = Path(__file__).parents[1] / 'recipes'
DEFAULT_CLIPS = 200_000     # where neither recipe nor command tells a length
FLOOR = 0.01                # of the learning rate at the end
BOTH, ALL = 'both', 'all'   # worlds: the standard and the rough one, or every one


def key(default: Any, text: str, allowed: Collection[Any] = (), free: bool = False) -> Any:
    """Declare a key: its range, or all values of a text; `free` may change in a continued run."""
    return field(default=default, metadata={'text': text, 'allowed': allowed, 'free': free})


@dataclass(frozen=True)
class TrainConfig:
    """One stage of a recipe."""

    out: str = key('runs/train', 'folder of the stage', free=True)
    model_size: str = key('tiny', 'size of the encoder', VARIANTS)
    weights: str = key('', 'file to start from; empty: the stage before, or random weights')
    window: int = key(0, 'tubelets that a tubelet of a block-causal encoder attends to, itself '
                      'and the latest before it; 0: all attend to all', (0, 64))
    matching: bool = key(False, 'a block-causal encoder compares its frames before its blocks')
    heads_only: bool = key(False, 'train the heads of a frozen encoder')
    auxiliary: bool = key(False, 'also train patches to predict time of entry, depth and flow')
    seconds: float = key(0.0, 'length [s of training]; start-up, validation and writing do not '
                         'count', (0, 1e9))
    clips: int = key(0, f'length in clips ({DEFAULT_CLIPS:,} if `seconds` is 0, too)', (0, 1e12))
    ends_at: float = key(1.0, 'part of that length after which the stage ends, its learning rate '
                         'still high', (0.01, 1))
    start_share: float = key(0.0, 'share of the start weights in the weights that are saved',
                             (0, 1))
    batch: int = key(64, 'clips per step, over all processes', (1, 1 << 20))
    reuse: int = key(1, 'steps that use a rendered clip, mirrored anew', (1, 64))
    seed: int = key(0, 'of random weights and data', (0, 1 << 62))
    world: str = key('standard', 'what is rendered; both: standard and rough, half of each; all: '
                     'as many of each', (*WORLDS, BOTH, ALL))
    num_frames: int = key(NUM_FRAMES, 'frames per clip, even', (2 * TUBELET, 256))
    image_size: int = key(IMAGE_SIZE, f'pixels per side, a multiple of {PATCH}', (2 * PATCH, 2048))
    textures: int = key(200, 'painted textures', (30, 100_000))
    optimizer: str = key('adamw', 'muon: of PyTorch 2.9 or newer, for the matrices of the blocks',
                         ('adamw', 'muon'))
    lr: float = key(1e-3, 'highest learning rate', (1e-8, 1))
    warmup: float = key(0.04, 'part of the run over which it rises', (0, 0.5))
    weight_decay: float = key(0.05, 'of the matrices', (0, 1))
    clip_norm: float = key(1.0, 'largest norm of a gradient', (1e-6, 1e6))
    average: float = key(0.999, 'decay of the moving average of the weights, which is saved',
                         (0, 1))
    recordings: tuple[str, ...] = key((), 'recording folders and bags to learn from, too')
    recording_share: float = key(0.25, 'part of each batch that comes from them', (0, 1))
    image_topic: str = key('', 'image topic of bags; empty: the first')
    label_topic: str = key('', 'topic of bags that tells of contacts of the robot')
    label_field: str = key('', 'field of its messages, with dots; empty: data, or range')
    label_threshold: str = key('', "numbers that mean contact, such as '<0.3' or '>10'")
    label_horizon: float = key(1.0, 'horizon of the column `collision` of labels.csv [s]',
                               (0.05, 60))
    resize_mode: str = key('squash', 'how recordings are fitted into the square', MODES)
    calibration_clips: int = key(1000, 'rendered clips to calibrate on; 0: none', (0, 10**7),
                                 True)
    held_out_clips: int = key(2000, 'rendered clips for the figures; 0: none', (0, 10**7), True)
    validations: int = key(8, 'how often the stage is judged on the way', (0, 10_000))
    validation_clips: int = key(200, 'rendered clips for that', (0, 10**6))
    checkpoint_s: float = key(120.0, 'seconds between checkpoints', (0, 1e9), True)
    progress_s: float = key(10.0, 'seconds between reports', (0, 1e9), True)
    workers: int = key(1, 'threads that draw scenes ahead', (1, 64), True)
    device: str = key('auto', 'auto, cpu, cuda or cuda:N', free=True)
    precision: str = key('auto', 'of matrix products; auto: bf16 where it is fast',
                         ('auto', 'fp32', 'bf16'), True)
    compile: bool = key(False, 'compile the blocks of the encoder', free=True)
    compile_world: bool = key(False, 'compile the renderer', free=True)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> TrainConfig:
        known = {f.name: f for f in fields(cls)}
        if values.keys() - known:
            raise ValueError(f'unknown keys {", ".join(sorted(values.keys() - known))}; '
                             '`vjepa-ros train --help` lists those there are')
        config = cls(**{name: _read(known[name], value) for name, value in values.items()})
        config._check()
        return config

    def _check(self) -> None:
        if self.clips and self.seconds:
            raise ValueError(f'clips is {self.clips} and seconds {self.seconds}: give the length '
                             'as one of them')
        if self.num_frames % TUBELET or self.image_size % PATCH:
            raise ValueError(f'num_frames is {self.num_frames} and image_size {self.image_size}: '
                             f'they must be multiples of {TUBELET} and {PATCH}')
        if self.window and not 2 <= self.window <= self.tubelets:
            raise ValueError(f'window is {self.window}, must be 0, or from 2 to the '
                             f'{self.tubelets} tubelets of num_frames {self.num_frames}')
        if self.matching and not self.window:
            raise ValueError('matching is for block-causal encoders: set window, too')
        if self.window and self.recordings:
            raise ValueError('recordings are for encoders with window 0: block-causal ones learn '
                             'from rendered clips alone')
        if self.heads_only and not self.weights:
            raise ValueError('heads_only needs the weights of the encoder that the heads are for; '
                             'set `weights`')
        if self.heads_only and self.optimizer != 'adamw':
            raise ValueError(f"optimizer is '{self.optimizer}', which is for blocks; heads_only "
                             'needs adamw')
        if self.recordings and not self.from_recordings:
            raise ValueError(f'batch {self.batch} x recording_share {self.recording_share} gives '
                             'no clip of recordings; raise `batch` or `recording_share`')
        if self.start_share and not self.weights:
            raise ValueError('start_share needs weights to start from')

    @property
    def worlds(self) -> tuple[WorldConfig, ...]:
        """Worlds whose clips are rendered, equally many of each."""
        chosen = {BOTH: WORLDS[:2], ALL: WORLDS}.get(self.world, (self.world,))
        return tuple(WorldConfig(name, training=name != 'standard') for name in chosen)

    @property
    def tubelets(self) -> int:
        """Most tubelets of a clip that a block-causal encoder sees."""
        return self.num_frames // TUBELET

    @property
    def from_recordings(self) -> int:
        return round(self.batch * self.recording_share) if self.recordings else 0

    def progress(self, clips: int, seconds: float) -> float:
        """Return the part of the planned length that is done, 0..1."""
        done = seconds / self.seconds if self.seconds else clips / (self.clips or DEFAULT_CLIPS)
        return min(1.0, done)

    def rate(self, progress: float) -> float:
        if progress < self.warmup:
            return self.lr * max(progress / self.warmup, 1e-3)
        part = (progress - self.warmup) / (1.0 - self.warmup)
        return self.lr * (FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * part)))

    def differences(self, given: TrainConfig) -> list[str]:
        """List what a continued run must not change, as 'name: then, now'."""
        old, new = asdict(self), asdict(given)
        return [f'{f.name}: {old[f.name]!r} then, {new[f.name]!r} now' for f in fields(self)
                if not f.metadata['free'] and old[f.name] != new[f.name]]


def _read(where: Field, value: Any) -> Any:
    name, kind, allowed = where.name, type(where.default), where.metadata['allowed']
    if kind is tuple:
        return tuple(map(str, [value] if isinstance(value, str) else value or ()))
    if kind is str:
        value = '' if value is None else value      # KEY= on the command line, or null
        if allowed and value not in allowed:
            raise ValueError(f"{name} '{value}' is not one of {', '.join(allowed)}")
        return str(value)
    if kind is bool:
        if not isinstance(value, bool):
            raise ValueError(f"{name} '{value}' is neither true nor false")
        return value
    try:
        number = kind(float(value))      # 1e-3 is text to YAML
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} '{value}' is not a number") from None
    least, most = allowed
    if not least <= number <= most or number != float(value):
        raise ValueError(f'{name} is {value}, must be {kind.__name__} from {least:g} to {most:g}')
    return number


def read_recipe(name: str) -> dict[str, Any]:
    """Read a recipe of the package by its name, or a YAML file; '' has one stage of defaults."""
    if not name:
        return {}
    path = RECIPES / f'{name}.yaml'
    path = path if path.is_file() else Path(name)
    if not path.is_file():
        there = ', '.join(sorted(p.stem for p in RECIPES.glob('*.yaml')))
        raise ValueError(f"recipe '{name}' is neither a file nor one of the package: {there}")
    try:
        found = yaml.safe_load(path.read_text(encoding='utf-8'))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"recipe '{path}' cannot be read: {error}") from error
    stages = found.get('stages', []) if isinstance(found, dict) else None
    if not isinstance(stages, list) or not all(
            isinstance(one, dict) and isinstance(one.get('name'), str) for one in stages):
        raise ValueError(f"recipe '{path}' must have keys, and `stages` as a list of keys with a "
                         '`name` each')
    return found


def plan(recipe: Mapping[str, Any], out: str, changes: Mapping[str, Any]) -> list[TrainConfig]:
    """Return the stages of a recipe, with keys changed in all of them (KEY) or one (STAGE.KEY)."""
    stages = [dict(stage) for stage in recipe.get('stages', [])] or [{'name': ''}]
    names = [stage['name'] for stage in stages]
    wrong = {word for word in changes if '.' in word} - {
        word for word in changes for name in names if name and word.startswith(f'{name}.')}
    if wrong:
        raise ValueError(f'{", ".join(sorted(wrong))}: the stages of the recipe are '
                         f'{", ".join(filter(None, names)) or "not named"}')
    length = {k: changes[k] for k in ('clips', 'seconds') if changes.get(k)}
    for_all = {k: v for k, v in changes.items() if '.' not in k and k not in length}
    made: list[TrainConfig] = []
    for stage in stages:
        name = stage.pop('name')
        own = {k.partition('.')[2]: v for k, v in changes.items()
               if name and k.startswith(f'{name}.')}
        values = {k: v for k, v in recipe.items() if k != 'stages'} | stage | for_all | own
        if made:
            values['weights'] = (stage | own).get('weights') or str(
                Path(made[-1].out) / f'{made[-1].model_size}.safetensors')
        made.append(TrainConfig.of(values | {'out': str(Path(out) / name)}))
    if not length:
        return made
    # Shared out among the stages as in the recipe.
    given = TrainConfig.of(length)
    sizes = [config.clips or config.seconds or DEFAULT_CLIPS for config in made]
    whole = sum(size * config.ends_at for size, config in zip(sizes, made, strict=True))
    return [replace(config, seconds=given.seconds * size / whole,
                    clips=max(1, round(given.clips * size / whole)) if given.clips else 0)
            for config, size in zip(made, sizes, strict=True)]
