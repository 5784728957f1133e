# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Say when a recorded frame is due, so that a source plays in real time without drifting."""

from __future__ import annotations


class Pacer:
    """Ties stamps to a steady clock at the first frame; later frames keep that tie.

    A backward stamp (a recording that starts again) is due one frame after the one before.
    """

    def __init__(self) -> None:
        self._offset_ns: int | None = None
        self._last_ns = 0
        self._gap_ns = 100_000_000

    def due_ns(self, stamp_ns: int, now_ns: int) -> int:
        """Time on the steady clock at which the frame with this stamp is to be shown."""
        if self._offset_ns is None:
            self._offset_ns = now_ns - stamp_ns
        elif stamp_ns <= self._last_ns:
            self._offset_ns += self._last_ns + self._gap_ns - stamp_ns
        else:
            self._gap_ns = stamp_ns - self._last_ns
        self._last_ns = stamp_ns
        return stamp_ns + self._offset_ns

    def overdue_before(self, now_ns: int) -> int:
        """Stamp before which frames are more than one frame late, and better left out."""
        if self._offset_ns is None:
            raise RuntimeError('no frame has been played yet')
        return now_ns - self._offset_ns - self._gap_ns
