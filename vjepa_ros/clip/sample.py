# SPDX-License-Identifier: Apache-2.0
"""What the frame ring answers: the fate of a frame, and the frames of a clip."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


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
