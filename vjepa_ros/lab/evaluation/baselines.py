# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Compute the variance score of the upstream scripts, as users get it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from vjepa_ros.clip.resize import View
from vjepa_ros.lab.evaluation.recording_replay import Item, Setup, frames_of
from vjepa_ros.lab.evaluation.sequence import Truth
from vjepa_ros.lab.evaluation.world import Film
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.variants import find_variant
from vjepa_ros.runtime.device import choose_device
from vjepa_ros.runtime.session import EncoderSession

NUM_FRAMES, IMAGE_SIZE, MODE = 16, 256, 'crop'   # as upstream: the last 16 frames, centre crop
SEED = 0


def has_both_labels(truth: Truth) -> bool:
    """Return whether there are frames with and without collision."""
    return bool((truth.collision == 1).any() and (truth.collision == 0).any())


def frames_to_score(truth: Truth, limit: int) -> np.ndarray:
    """Return at most `limit` indices of labelled frames with enough frames before them."""
    usable = np.flatnonzero(~np.isnan(truth.collision))
    usable = usable[usable >= NUM_FRAMES - 1]
    if usable.size <= limit:
        return usable
    return usable[np.unique(np.linspace(0, usable.size - 1, limit).round().astype(int))]


def token_variance(features: np.ndarray) -> float:
    """Return the mean over channels of the unbiased variance over all tokens."""
    return float(features.reshape(-1, features.shape[-1]).var(axis=0, ddof=1).mean())


class VarianceScore:
    """`features.var(dim=1).mean()` of a random encoder over the last frames.

    Parameters
    ----------
    size
        Encoder size; upstream uses large.
    device
        As for `choose_device`.
    """

    def __init__(self, size: str, device: str = 'auto') -> None:
        self._encoder = Encoder(find_variant(size))
        self._encoder.init_random(SEED)
        self._choice = choose_device(device)
        self._sessions: dict[int, EncoderSession] = {}

    def of(self, frames: np.ndarray) -> float:
        """Score the input of the encoder, (T, S, S, 3) uint8."""
        if len(frames) not in self._sessions:
            self._sessions[len(frames)] = EncoderSession(self._encoder, self._choice, len(frames),
                                                         IMAGE_SIZE)
        return token_variance(self._sessions[len(frames)].encode([frames])[0])

    def of_recording(self, item: Item, setup: Setup, picks: Sequence[int]) -> dict[int, float]:
        """Score some frames of a recording, each with the 15 before it; by index."""
        wanted, values = set(map(int, picks)), {}
        recent: deque[np.ndarray] = deque(maxlen=NUM_FRAMES)
        view = None
        for index, frame in enumerate(frames_of(item, setup)):
            size = (frame.rgb.shape[1], frame.rgb.shape[0])
            if view is None or view.source_size != size:
                view = View(MODE, size, IMAGE_SIZE)
                recent.clear()
            recent.append(view.apply(frame.rgb))
            if index in wanted and len(recent) == NUM_FRAMES:
                values[index] = self.of(np.stack(recent))
        return values

    def of_film(self, film: Film) -> float:
        """Score a rendered clip with its frames, repeated ones included."""
        view = View(MODE, film.size, IMAGE_SIZE)
        pictures = [view.apply(picture) for _, picture in film.sent()]
        return self.of(np.repeat(np.stack(pictures), film.hold, axis=0))

    def close(self) -> None:
        """Release the encoder."""
        for session in self._sessions.values():
            session.close()


@lru_cache(maxsize=1)
def variance_score(size: str, device: str) -> VarianceScore:
    """Return the score of this process, whose encoder takes long to load."""
    return VarianceScore(size, device)


def recording_variance(setup: Setup, item: Item, picks: Sequence[int], size: str,
                       device: str) -> dict[int, float]:
    """Score some frames of a recording, by index, as a task of `WorkerPool`."""
    return variance_score(size, device).of_recording(item, setup, picks)


def film_variance(setup: Setup, films: dict[int, Film], size: str,
                  device: str) -> dict[int, float]:
    """Score rendered clips, by number, as a task of `WorkerPool`."""
    score = variance_score(size, device)
    return {number: score.of_film(film) for number, film in films.items()}
