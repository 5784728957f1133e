# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Play a synthetic scene with its truth."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

from vjepa_ros.sources.base import (
    FIRST_STAMP_NS,
    Play,
    PlayOptions,
    Source,
    SourceError,
    SourceFrame,
)

SCENES = ('approach',)
DEFAULT_RATE_HZ = 15.0


class SyntheticSource(Source):
    """One cycle of a scene; with ``loop`` the drive goes on without a break.

    Pictures are rendered for the wanted rate and size, so nothing is thinned or resized.
    """

    def __init__(self, scene: str, options: PlayOptions):
        if scene not in SCENES:
            raise SourceError(f"synthetic scene '{scene}' is unknown: {', '.join(SCENES)}")
        # Only who plays this needs the world, which brings PyTorch.
        try:
            from vjepa_ros.lab.world.demo_scene.approach import ApproachScene
        except ModuleNotFoundError as error:
            if error.name != 'torch':
                raise
            raise SourceError(f"synthetic scene '{scene}' needs 'torch', which this Python does "
                              'not have: install PyTorch, or play a recording or a camera, which '
                              'do not need it') from error
        rate = options.rate or DEFAULT_RATE_HZ
        try:
            self._scene = ApproachScene(options.size or (640, 480), options.seed)
        except ValueError as error:
            raise SourceError(f'synthetic scene: {error}') from error
        self._scene.prepare()   # now: a source that is open plays at once
        self._cycle = round(self._scene.period_s * rate)
        super().__init__(f"synthetic scene '{scene}'", options, self._scene.size, rate,
                         self._cycle, self._scene.intrinsics)

    def _repeated(self) -> Iterator[SourceFrame]:
        # Going on needs no second pass: the drive itself has no end.
        return self._once(0) if self.options.loop_mode == 'continue' else super()._repeated()

    def _play(self) -> Play:
        endless = self.options.loop and self.options.loop_mode == 'continue'
        for number in itertools.count() if endless else range(self._cycle):
            t = number / self.rate_hz
            yield FIRST_STAMP_NS + round(t * 1e9), partial(self._frame, t)

    def _frame(self, t: float) -> SourceFrame:
        return SourceFrame(FIRST_STAMP_NS + round(t * 1e9), self._scene.render(t),
                           truth=self._scene.truth(t).as_dict())
