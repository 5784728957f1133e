# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Descriptions of weights files, and the clips that weights were trained on."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from vjepa_ros.model.checkpoint.files import ANEW, KEY, WeightsError
from vjepa_ros.model.checkpoint.layouts import ACTIONS, COLLISION, HUGGING_FACE, Part
from vjepa_ros.model.checkpoint.readers import Opened
from vjepa_ros.model.head_specs import Binned, Calibration, HEADS

FORMAT = 1
RATE = 4.0  # of pre-training and of the action-conditioned model [Hz]
CONVERTED = 'vjepa_ros_checkpoint'  # of the safetensors metadata of converted files
COLLISION_RATE = 8.0  # of the published collision head [Hz]


@dataclass(frozen=True)
class BundleMeta:
    """Description of an encoder with heads, or of heads alone."""

    # variant, version: encoder that the file holds or was trained on
    variant: str
    version: str
    # num_frames, image_size: clips of training: frames, and pixels per side
    num_frames: int
    image_size: int
    resize_mode: str  # how images were brought to that size
    # Shortest and longest time between two frames in training [s]
    interval_s: tuple[float, float]
    # `half_width` and `height` [m] of the volume that `course`, `contact` and `clearance` are
    # about
    robot: dict[str, float]
    # How many times a frame stood in a clip: (1, 2) is each once, or each twice as with a camera
    # at half the rate of the clip
    holds: tuple[int, ...] = (1, 2)
    calibration: Calibration = field(default_factory=Calibration)  # belongs to the heads
    # For heads alone the hash of the FILE of their encoder. For a file with an encoder the hash
    # of its tensors, which `save_bundle` fills in.
    backbone_sha256: str = ''
    has_encoder: bool = False  # whether the encoder is in the file; `save_bundle` fills it in
    # training, metrics: seed, command, hardware; figures on held-out data
    training: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    licence: str = 'Apache-2.0'  # of the numbers in the file
    window: int = 0  # tubelets that a tubelet attends to in a block-causal encoder; 0 in others
    # Further ways to bring images to that size that training showed
    other_modes: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Convert to the text in the metadata of a file."""
        calibration = self.calibration.to_json()
        data = {'format': FORMAT, **vars(self), **_edges(calibration), 'calibration': calibration}
        return json.dumps(data, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> BundleMeta:
        """Read what `to_json` wrote; ValueError with the reason for anything else."""
        try:
            data = json.loads(text)
            if data['format'] != FORMAT:
                raise ValueError(f'its format is {data["format"]}, and this version of vjepa_ros '
                                 f'reads format {FORMAT}')
            for name, ours in _edges(data['calibration']).items():
                theirs = data[name]
                if len(theirs) != len(ours) or not all(map(math.isclose, theirs, ours)):
                    raise ValueError(f'its {name} are not those of this version of vjepa_ros')
            return cls._from(data)
        except KeyError as error:
            raise ValueError(f'its description lacks {error}') from error
        except (TypeError, AttributeError, OverflowError, RecursionError,
                json.JSONDecodeError) as error:
            raise ValueError(f'its description is damaged: {error}') from error

    @classmethod
    def _from(cls, data: Mapping[str, Any]) -> BundleMeta:
        shortest, longest = map(float, data['interval_s'])
        return cls(
            str(data['variant']), str(data['version']), int(data['num_frames']),
            int(data['image_size']), str(data['resize_mode']), (shortest, longest),
            {key: float(value) for key, value in data['robot'].items()},
            tuple(map(int, data['holds'])), Calibration.from_json(data['calibration']),
            str(data['backbone_sha256']), bool(data['has_encoder']), dict(data['training']),
            dict(data['metrics']), str(data['licence']), int(data.get('window', 0)),
            tuple(map(str, data.get('other_modes', ()))))


def _edges(heads: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    """Borders of the bins of the heads that every file has, and of those named."""
    return {f'{spec.name}_edges': spec.kind.bins.edges for spec in HEADS.values()
            if isinstance(spec.kind, Binned) and (not spec.optional or spec.name in heads)}


@dataclass(frozen=True)
class HeadsReport:
    """Where the heads come from."""

    # path, sha256: file and its hash
    path: str
    sha256: str
    meta: BundleMeta  # description of its training; check it before you trust the heads


@dataclass(frozen=True)
class Profile:
    """The clips that weights were trained on.

    Published files do not say; it follows from their layout, and from their published names where
    the same network exists for several sizes.
    """

    resize_mode: str = ''  # 'meta', 'hf' or 'squash'; '' unknown
    image_size: int | None = None  # pixels per side; None unknown
    num_frames: int | None = None  # frames of a clip; None unknown
    clip_fps: float | None = None  # rate [Hz]; None unknown
    window: int = 0  # see `BundleMeta`

    def to_json(self) -> dict[str, str | float | None]:
        """Convert to what a converted file stores."""
        return asdict(self)

    def __str__(self) -> str:
        return ', '.join((
            f'resize mode {self.resize_mode or "unknown"}',
            f'{self.image_size} pixels' if self.image_size else 'size unknown',
            f'{self.num_frames} frames' if self.num_frames else 'frames unknown',
            f'{self.clip_fps:g} Hz' if self.clip_fps else 'rate unknown'))


def profile_of(opened: Opened, parts: list[Part], encoder: Part | None) -> Profile:
    """Return the profile of a checkpoint, as far as it can be known."""
    if KEY in opened.metadata:  # rates are a range there
        try:
            meta = BundleMeta.from_json(opened.metadata[KEY])
        except ValueError as error:
            raise WeightsError(f"file '{opened.path}' cannot be used: {error}; {ANEW}") from error
        return Profile(meta.resize_mode, meta.image_size, meta.num_frames,
                       window=meta.window if meta.has_encoder else 0)
    if CONVERTED in opened.metadata:
        return _kept(opened.metadata[CONVERTED])
    kinds = {part.kind for part in parts}
    if COLLISION in kinds:
        return Profile('squash', 256, 16, COLLISION_RATE)
    if encoder is not None and encoder.layout == HUGGING_FACE:
        size, frames = (_count(opened.config.get(key)) for key in ('crop_size',
                                                                   'frames_per_clip'))
        # Classifiers were trained at a step of frames in videos of other rates.
        tuned = 'Classification' in str(opened.config.get('architectures'))
        return Profile('hf', size, frames, None if tuned else RATE)
    if ACTIONS in kinds:
        return Profile('meta', 256, 8, RATE)
    if encoder is None:
        return Profile()
    size = _published_size(opened.path.name, 'norms_block.0.weight' in encoder.stored)
    return Profile('meta', size, None, RATE)


def _kept(text: str) -> Profile:
    """Return the profile in the metadata of a converted file; empty if unreadable."""
    try:
        found = json.loads(text)['profile']
        return Profile(str(found['resize_mode']), _count(found['image_size']),
                       _count(found['num_frames']),
                       float(found['clip_fps']) if found['clip_fps'] else None,
                       _count(found.get('window')) or 0)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return Profile()


def _published_size(name: str, is_new: bool) -> int | None:
    """Pixels of training by the name of a published file; None for any other name."""
    if is_new:
        return 384 if re.match(r'vjepa2_1_vit\w+_384\.', name) else None
    match = re.match(r'vit[lhg](-384)?\.pth?$', name)
    return (384 if match[1] else 256) if match else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None
