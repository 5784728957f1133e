# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Notice a camera that sends the same picture over and over, with new stamps."""

from __future__ import annotations

import cv2
import numpy as np

EVERY = 4                # pixels in each direction between those that are compared, about
LEAST_FRAMES = 4         # that are the same to the last bit
LEAST_S = 0.5            # and for how long
NS = 1e9


class FrozenWatch:
    """Whether the pictures of one camera have not changed by a single bit for a while.

    The noise of a real sensor changes some pixel of every frame, also of a scene that stands and
    behind a jpeg. A rendered camera without noise does not while nothing moves: who uses this must
    know whether the camera should have seen a change.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget the pictures."""
        self._shown: tuple[np.ndarray, int] | None = None
        self._seen: np.ndarray | None = None
        self._since_ns = self._newest_ns = 0
        self._frames = 0

    def show(self, rgb: np.ndarray, stamp_ns: int) -> None:
        """As `see`, but look at it later: when asked, or when the next is shown.

        Until then the picture must not change. There is time for it while a model runs.
        """
        self.look()
        self._shown = rgb, stamp_ns

    def look(self) -> None:
        """Look at what was shown, and let go of it."""
        if self._shown is not None:
            shown, self._shown = self._shown, None
            self.see(*shown)

    def see(self, rgb: np.ndarray, stamp_ns: int) -> None:
        """Take a picture, RGB uint8 (H, W, 3), with its stamp [ns]."""
        height, width = rgb.shape[:2]
        # A copy, for the buffer may be used again for the next picture. Slices of NumPy take ten
        # times as long.
        part = cv2.resize(rgb, (-(-width // EVERY), -(-height // EVERY)),
                          interpolation=cv2.INTER_NEAREST)
        # After a clock was set back, times of before can not be compared.
        if (self._seen is None or stamp_ns < self._newest_ns
                or not np.array_equal(part, self._seen)):
            self._seen = part
            self._since_ns, self._frames = stamp_ns, 0
        self._newest_ns = stamp_ns
        self._frames += 1

    @property
    def unchanged_s(self) -> float:
        """How long the newest picture has been the same to the last bit [s]; 0: it is new."""
        self.look()
        return max(0, self._newest_ns - self._since_ns) / NS

    @property
    def frozen(self) -> bool:
        """Whether the newest pictures are the same, for `LEAST_S` and `LEAST_FRAMES`."""
        self.look()
        return (self._frames >= LEAST_FRAMES
                and self._newest_ns - self._since_ns >= LEAST_S * NS)
