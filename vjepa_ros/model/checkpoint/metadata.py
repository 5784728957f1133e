# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What a weights file of this package says about itself."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vjepa_ros.model.calibration import Calibration
from vjepa_ros.model.head_specs import HEADS, Binned

FORMAT = 1
KEY = 'vjepa_ros'  # of the safetensors metadata


@dataclass(frozen=True)
class BundleMeta:
    """Description of an encoder with heads, or of heads alone.

    Attributes
    ----------
    variant, version : str
        Encoder that the file holds or was trained on.
    num_frames, image_size : int
        Clips of training: frames, and pixels per side.
    resize_mode : str
        How images were brought to that size.
    interval_s : tuple of float
        Shortest and longest time between two frames in training [s].
    robot : dict of str to float
        `half_width` and `height` [m] of the volume that `course`, `contact` and `clearance` are
        about.
    holds : tuple of int
        How many times a frame stood in a clip: (1, 2) is each once, or each twice as with a
        camera at half the rate of the clip.
    calibration : Calibration
        Belongs to the heads.
    backbone_sha256 : str
        For heads alone the hash of the FILE of their encoder. For a file with an encoder the
        hash of its tensors, which `save_bundle` fills in.
    has_encoder : bool
        Whether the encoder is in the file; `save_bundle` fills it in.
    training, metrics : dict
        Objective, seed, command, hardware; figures on held-out data.
    licence : str
        Of the numbers in the file.

    """

    variant: str
    version: str
    num_frames: int
    image_size: int
    resize_mode: str
    interval_s: tuple[float, float]
    robot: dict[str, float]
    holds: tuple[int, ...] = (1, 2)
    calibration: Calibration = field(default_factory=Calibration)
    backbone_sha256: str = ''
    has_encoder: bool = False
    training: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    licence: str = 'Apache-2.0'

    def to_json(self) -> str:
        """As stored in the metadata of a file."""
        calibration = self.calibration.to_json()
        data = {'format': FORMAT, **vars(self), **_edges(calibration), 'calibration': calibration}
        return json.dumps(data, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> BundleMeta:
        """Read what `to_json` wrote; ValueError in words for anything else."""
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
            dict(data['metrics']), str(data['licence']))


def _edges(heads: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    """Borders of the bins of the heads that every file has, and of those named."""
    return {f'{spec.name}_edges': spec.kind.bins.edges for spec in HEADS.values()
            if isinstance(spec.kind, Binned) and (not spec.optional or spec.name in heads)}


@dataclass(frozen=True)
class HeadsReport:
    """Where the heads come from.

    Attributes
    ----------
    path, sha256 : str
        File and its hash.
    meta : BundleMeta
        What the file says about its training; consult it before the heads are believed.
    adapted : bool
        Whether the file also changed the encoder, by low-rank adapters.

    """

    path: str
    sha256: str
    meta: BundleMeta
    adapted: bool = False
