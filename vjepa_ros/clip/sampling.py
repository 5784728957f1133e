# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What the frame ring answers: the fate of a frame, and the frames of a clip, chosen by stamp."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np


class Push(Enum):
    """What became of a frame that was offered to the ring."""

    ACCEPTED = 'accepted'
    RESET = 'reset'                # accepted as the first frame after a reset
    DUPLICATE = 'duplicate'        # same stamp as a frame already held: dropped
    REORDERED = 'reordered'        # late, inserted at its place
    TOO_LATE = 'too_late'          # late and older than everything held: dropped

    @property
    def stored(self) -> bool:
        """Whether the frame is now in the ring."""
        return self in (Push.ACCEPTED, Push.RESET, Push.REORDERED)


@dataclass(frozen=True)
class Sample:
    """The frames of one clip, as chosen by stamp.

    Attributes
    ----------
    slots
        Storage slots of the chosen frames, oldest first (length ``num_frames``).
    stamps_ns
        Their stamps [ns]; a slow camera makes neighbours equal.
    newest_ns, frame_id, size
        Stamp [ns], frame id and source size (width, height) [px] of the newest frame.
    span_s
        Time from the first to the last chosen frame [s].
    rate_hz
        Effective rate: distinct frames per second over the span. At most ``clip_fps``, lower
        when the camera is slower than that.
    distinct
        Number of different frames in the clip.
    """

    slots: tuple[int, ...]
    stamps_ns: tuple[int, ...]
    newest_ns: int
    frame_id: str
    size: tuple[int, int]
    span_s: float
    rate_hz: float
    distinct: int


def evenly(stamps_ns: Sequence[int], count: int, step_ns: float) -> list[int]:
    """Places of the stamps nearest to `count` times, one every `step_ns`, the newest the last.

    `stamps_ns` ascend [ns]; of two that are equally near the later one is taken.
    """
    return [_nearest(stamps_ns, stamps_ns[-1] - round(step_ns * back))
            for back in range(count - 1, -1, -1)]


def most_redundant(stamps_ns: Sequence[int]) -> int:
    """Place of the stamp that leaves the smallest hole; never the newest or the oldest."""
    holes = [later - earlier for earlier, later in zip(stamps_ns, stamps_ns[2:], strict=False)]
    return 1 + int(np.argmin(holes)) if holes else 0


def _nearest(stamps_ns: Sequence[int], target_ns: int) -> int:
    right = bisect.bisect_left(stamps_ns, target_ns)
    if right == 0:
        return 0
    if right == len(stamps_ns):
        return right - 1
    before, after = target_ns - stamps_ns[right - 1], stamps_ns[right] - target_ns
    return right if after <= before else right - 1
