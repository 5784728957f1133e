# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Decide whether the learned heads hold for the clips of a camera, and say why they do not."""

from __future__ import annotations

import logging

import numpy as np

from vjepa_ros.clip.sampling import Sample
from vjepa_ros.model.checkpoint.metadata import BundleMeta
from vjepa_ros.perception.config import TrackConfig, Wants
from vjepa_ros.perception.learned_field import range_problem
from vjepa_ros.perception.settings import Settings
from vjepa_ros.runtime.outputs import Output

log = logging.getLogger(__name__)


class HeadsUse:
    """The learned heads as one camera may use them. Each kind of trouble is logged once.

    Parameters
    ----------
    camera
        Its name, for log lines.
    meta
        What the heads say about themselves; None without heads.
    config
        Shape of the camera's clips.
    """

    def __init__(self, camera: str, meta: BundleMeta | None, config: TrackConfig) -> None:
        self.camera = camera
        self.meta = meta
        self.config = config
        self._told: set[str] = set()

    def problem(self, sample: Sample) -> str:
        """Why the heads do not hold for a clip; '' when they do or there are none."""
        if self.meta is None:
            return ''
        problem = range_problem(self.meta, self.config.num_frames, self.config.image_size,
                                self.config.resize_mode, sample)
        if problem:
            self._tell(problem.partition(' is ')[0], f'the learned heads do not hold, geometry '
                       f'is used instead: {problem}')
        return problem

    def wanted(self, sample: Sample, wants: Wants, settings: Settings) -> bool:
        """Whether the heads hold for a clip and somebody will use what they say."""
        geometric = settings.looming_method == 'geometric'
        if settings.looming_method == 'learned' and self.meta is None:
            self._tell('none', "looming_method is 'learned', but no heads are loaded: geometry is "
                       'used; give `weights` with heads, or `heads`')
        if self.meta is None or self.problem(sample):
            return False
        return wants.features or wants.moving or (wants.looming and not geometric)

    def broken(self, output: Output | None) -> str:
        """What is wrong with the numbers of the heads; '' for nothing."""
        if output is None or output.heads is None or all(
                np.isfinite(values).all() for values in vars(output.heads).values()):
            return ''
        problem = 'the heads give values that are not finite; set `precision: fp32`'
        self._tell('broken', f'{problem}; geometry is used meanwhile')
        return problem

    def _tell(self, kind: str, text: str) -> None:
        if kind not in self._told:
            self._told.add(kind)
            log.warning('%s: %s', self.camera, text)
