# SPDX-License-Identifier: Apache-2.0
"""Compute the variance score of the upstream scripts, as their users get it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from vjepa_ros.clip.preprocess import View
from vjepa_ros.evaluation.sequence import Outcome, Truth
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.variants import find_variant
from vjepa_ros.runtime.device import choose_device
from vjepa_ros.runtime.session import EncoderSession
from vjepa_ros.tools.evaluate_run import Played, Setup, frames_of
from vjepa_ros.tools.motion_study import token_variance

NUM_FRAMES, IMAGE_SIZE, MODE = 16, 256, 'crop'   # as upstream: the last 16 frames, centre crop
SEED = 0


def has_both_labels(truth: Truth) -> bool:
    """Whether a ranking can be judged at all: frames with and without collision."""
    return bool((truth.collision == 1).any() and (truth.collision == 0).any())


def frames_to_score(truth: Truth, limit: int) -> np.ndarray:
    """Indices of at most `limit` labelled frames that have enough frames before them."""
    usable = np.flatnonzero(~np.isnan(truth.collision))
    usable = usable[usable >= NUM_FRAMES - 1]
    if usable.size <= limit:
        return usable
    return usable[np.unique(np.linspace(0, usable.size - 1, limit).round().astype(int))]


class VarianceScore:
    """`features.var(dim=1).mean()` of a random encoder over the last 16 frames.

    Parameters
    ----------
    size
        Encoder size; upstream has large.
    device
        As for `choose_device`.
    """

    def __init__(self, size: str, device: str = 'auto') -> None:
        encoder = Encoder(find_variant(size))
        encoder.init_random(SEED)
        self._session = EncoderSession(encoder, choose_device(device), NUM_FRAMES, IMAGE_SIZE)

    def score(self, played: Played, setup: Setup, picks: Sequence[int],
              tick: Callable[[], None]) -> Outcome:
        """Score some frames of a recording; `tick` is called after each of them."""
        wanted = set(map(int, picks))
        values = np.full(played.truth.stamps_s.size, np.nan)
        recent: deque[np.ndarray] = deque(maxlen=NUM_FRAMES)
        view = None
        for index, frame in enumerate(frames_of(played.item, setup)):
            size = (frame.rgb.shape[1], frame.rgb.shape[0])
            if view is None or view.source_size != size:
                view = View(MODE, size, IMAGE_SIZE)
                recent.clear()
            recent.append(view.apply(frame.rgb))
            if index in wanted and len(recent) == NUM_FRAMES:
                values[index] = token_variance(self._session.encode([np.stack(recent)])[0])
                tick()
        return Outcome(~np.isnan(values), values)

    def close(self) -> None:
        """Release the encoder."""
        self._session.close()
