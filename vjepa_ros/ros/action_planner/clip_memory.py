# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The newest clip of a base, from the messages of its camera."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vjepa_ros.clip.ring import FrameRing, NS
from vjepa_ros.planning.base_world import CLIP_FPS, Clip, FRAMES


class TooFew(ValueError):
    """There is no clip yet; the text gives cause and remedy."""


class ClipMemory:
    """Frames of one camera, each decoded and fitted once. Used by one thread only."""

    def __init__(self) -> None:
        self._ring = FrameRing(FRAMES, CLIP_FPS)

    def add(self, messages: Sequence[tuple[int, Any]],
            read: Callable[[Any], tuple[np.ndarray, tuple[int, int]]]) -> None:
        """Add the messages, with their stamps [ns], that are newer than the last one.

        Parameters
        ----------
        messages
            Oldest first.
        read
            Returns the frame (S, S, 3) of a message, and the size of its picture [px].
        """
        for stamp_ns, message in messages:
            newest = self._ring.newest_ns
            if newest is None or stamp_ns > newest or stamp_ns < newest - NS:
                frame, size = read(message)
                self._ring.push(stamp_ns, frame, size=size)

    def clip(self) -> tuple[Clip, tuple[int, int], float]:
        """Return the clip, the size of its pictures [px], and the time between two frames [s].

        Raises
        ------
        TooFew
            While there are too few frames.
        """
        sample = self._ring.sample()
        if sample is None:
            raise TooFew(f'the camera has shown {self._ring.fill} of the {FRAMES} pictures '
                         f'that a clip needs, {1 / CLIP_FPS:g} s apart; wait for more')
        stamps = np.asarray(sample.stamps_ns, np.float64) / NS
        return (Clip(self._ring.gather(sample), stamps - stamps[-1]), sample.size,
                sample.span_s / (FRAMES - 1))
