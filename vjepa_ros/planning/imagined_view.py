# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Draw what a predictor of twists imagines of a plan, for people.

Nothing turns features back into a picture. So each imagined cell shows that part of the pictures
seen lately whose features are nearest to it, by their cosine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import cv2
import numpy as np
import torch

from vjepa_ros.model.twist_predictor import GRID, coarse

PICTURES = 30             # that are remembered
PART_PX = 64              # side of a cell in the drawing
MOMENTS = 3               # of a plan that are drawn, the last one among them
SIDE_PX = GRID * PART_PX
BAND_PX = 22              # above each picture, with what it shows
PAPER, INK, MARK = (255, 255, 255), (40, 36, 28), (200, 60, 20)


class ImaginedView:
    """Remembers pictures with their features, and draws imagined features with them."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Drop all pictures."""
        self._seen: deque[tuple[np.ndarray, np.ndarray]] = deque(maxlen=PICTURES)

    def see(self, features: np.ndarray, picture: np.ndarray) -> None:
        """Remember a picture.

        Parameters
        ----------
        features
            (..., Hp, Wp, D) of its whole, stretched to a square; the last tubelet counts.
        picture
            (H, W, 3) uint8 RGB.
        """
        newest = features.reshape(-1, *features.shape[-3:])[-1]
        cells = coarse(torch.from_numpy(newest.astype(np.float32))[None])[0].numpy()
        square = cv2.resize(picture, (SIDE_PX, SIDE_PX), interpolation=cv2.INTER_AREA)
        parts = square.reshape(GRID, PART_PX, GRID, PART_PX, 3).swapaxes(1, 2)
        self._seen.append((_unit(cells), parts.reshape(-1, PART_PX, PART_PX, 3)))

    def draw(self, features: np.ndarray, contact: np.ndarray, ends_s: Sequence[float]
             ) -> np.ndarray | None:
        """Draw a plan beside the newest picture; None before the first one.

        Parameters
        ----------
        features
            (K, n, D) imagined after each step, `Foreseen.features`.
        contact
            (K,) probability of a contact until then, 0..1.
        ends_s
            (K,) when the steps end [s].

        Returns
        -------
        np.ndarray
            With the time of each moment and the probability of a contact until then above it,
            (`BAND_PX` + `SIDE_PX`, (1 + M) `SIDE_PX`, 3) uint8 RGB for M moments.
        """
        if not self._seen:
            return None
        bank = np.concatenate([cells for cells, _ in self._seen])
        parts = np.concatenate([parts for _, parts in self._seen])
        steps = np.unique(np.linspace(0, len(features) - 1, MOMENTS + 1).round()[1:].astype(int))
        shown = [_labelled(_joined(self._seen[-1][1]), 'now', INK)]
        for step in steps:
            nearest = np.argmax(_unit(features[step]) @ bank.T, -1)
            shown.append(_labelled(_joined(parts[nearest]), f'imagined {ends_s[step]:.1f} s, '
                                   f'{contact[step]:.0%}', MARK))
        return np.concatenate(shown, 1)


def _unit(cells: np.ndarray) -> np.ndarray:
    return cells / np.maximum(np.linalg.norm(cells, axis=-1, keepdims=True), 1e-6)


def _joined(parts: np.ndarray) -> np.ndarray:
    """Return the square (`SIDE_PX`, `SIDE_PX`, 3) that parts (n, p, p, 3) make."""
    return parts.reshape(GRID, GRID, PART_PX, PART_PX, 3).swapaxes(1, 2).reshape(
        SIDE_PX, SIDE_PX, 3)


def _labelled(picture: np.ndarray, text: str, colour: tuple[int, int, int]) -> np.ndarray:
    band = np.full((BAND_PX, SIDE_PX, 3), PAPER, np.uint8)
    cv2.putText(band, text, (3, 16), cv2.FONT_HERSHEY_SIMPLEX, 0.52, colour, 1, cv2.LINE_AA)
    return np.concatenate((band, picture))
