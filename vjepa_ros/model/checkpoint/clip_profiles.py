# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The clips that weights were trained on: size, rate and how images were brought to that size.

Published files do not say it themselves; it follows from their layout, and from the names under
which they were published where the same network exists for several sizes.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass

from vjepa_ros.model.checkpoint.files import ANEW, WeightsError
from vjepa_ros.model.checkpoint.layouts import ACTIONS, COLLISION, HUGGING_FACE, Part
from vjepa_ros.model.checkpoint.metadata import KEY, BundleMeta
from vjepa_ros.model.checkpoint.readers import Opened

RATE = 4.0  # of pre-training and of the action-conditioned model [Hz]
CONVERTED = 'vjepa_ros_checkpoint'  # of the safetensors metadata of converted files
COLLISION_RATE = 8.0  # of the published collision head [Hz]


@dataclass(frozen=True)
class Profile:
    """What clips must look like for weights.

    Attributes
    ----------
    resize_mode : str
        'meta', 'hf' or 'squash'; '' unknown.
    image_size : int, optional
        Pixels per side; None unknown.
    num_frames : int, optional
        Frames of a clip; None unknown.
    clip_fps : float, optional
        Rate [Hz]; None unknown.

    """

    resize_mode: str = ''
    image_size: int | None = None
    num_frames: int | None = None
    clip_fps: float | None = None

    def to_json(self) -> dict[str, str | float | None]:
        """As stored in a converted file."""
        return asdict(self)

    def __str__(self) -> str:
        return ', '.join((
            f'resize mode {self.resize_mode or "unknown"}',
            f'{self.image_size} pixels' if self.image_size else 'size unknown',
            f'{self.num_frames} frames' if self.num_frames else 'frames unknown',
            f'{self.clip_fps:g} Hz' if self.clip_fps else 'rate unknown'))


def profile_of(opened: Opened, parts: list[Part], encoder: Part | None) -> Profile:
    """The profile that belongs to a checkpoint, as far as it can be known.

    Parameters
    ----------
    opened : Opened
        The checkpoint.
    parts : list of Part
        All in it.
    encoder : Part, optional
        The one that counts.

    """
    if KEY in opened.metadata:  # rates are a range there
        try:
            meta = BundleMeta.from_json(opened.metadata[KEY])
        except ValueError as error:
            raise WeightsError(f"file '{opened.path}' cannot be used: {error}; {ANEW}") from error
        return Profile(meta.resize_mode, meta.image_size, meta.num_frames)
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
    """The profile in the metadata of a converted file; unknown when it cannot be read."""
    try:
        found = json.loads(text)['profile']
        return Profile(str(found['resize_mode']), _count(found['image_size']),
                       _count(found['num_frames']),
                       float(found['clip_fps']) if found['clip_fps'] else None)
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
