# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Score frames without the perception: brightness, change, and the expansion of optical flow."""

from __future__ import annotations

import math

import cv2
import numpy as np

from vjepa_ros.clip.optics import Optics
from vjepa_ros.lab.evaluation.sequence import Outcome
from vjepa_ros.looming.gyroscope import Gyroscope, GyroscopeError

NS = 1e9
MIDDLE = 0.5          # part of width and height of the image in which expansion is fitted
ROUNDS = 3            # of reweighted least squares


class PictureScores:
    """Brightness of an image, and its change."""

    def __init__(self) -> None:
        self._last: np.ndarray | None = None
        self._brightness: list[float] = []
        self._difference: list[float] = []

    def take(self, grey: np.ndarray) -> None:
        """Take one frame, uint8 (H, W)."""
        self._brightness.append(float(grey.mean()))
        last, self._last = self._last, grey
        self._difference.append(math.nan if last is None or last.shape != grey.shape
                                else float(cv2.absdiff(grey, last).mean()))

    def outcomes(self) -> dict[str, Outcome]:
        """Return both scores of every frame (the difference from the second on)."""
        bright, change = np.array(self._brightness), np.array(self._difference)
        return {'brightness': Outcome(np.ones(bright.size, bool), bright),
                'frame_difference': Outcome(~np.isnan(change), change)}


class FlowExpansion:
    """Expansion of the middle of the image between two frames, as the textbook has it.

    DIS flow (Kroeger et al., ECCV 2016) between a frame and the one before; the rotation of the
    camera, where it is known, taken out of it; an affine fit to the rest, reweighted against
    outliers. Its mean diagonal is the expansion, and time to contact one over its rate.

    Parameters
    ----------
    optics : Optics
        Of the frames.
    gyroscope : Gyroscope, optional
        Tells the rotation.
    """

    def __init__(self, optics: Optics, gyroscope: Gyroscope | None = None) -> None:
        self._lens = np.array([[optics.fx, 0, optics.cx], [0, optics.fy, optics.cy], [0, 0, 1]])
        self._gyroscope = gyroscope
        self._dis = cv2.DISOpticalFlow_create(    # pyright: ignore[reportAttributeAccessIssue]
            cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
        self._last: tuple[int, np.ndarray] | None = None
        self._rates: list[float] = []

    def take(self, grey: np.ndarray, stamp_ns: int) -> None:
        """Take one frame, uint8 (H, W), and its stamp [ns]."""
        last, self._last = self._last, (stamp_ns, grey)
        self._rates.append(math.nan if last is None or last[1].shape != grey.shape
                           else self._looming(grey, stamp_ns, *last))

    def outcome(self) -> Outcome:
        """Return looming rate and time to contact of every frame; the rate is the score."""
        rate = np.array(self._rates)
        with np.errstate(divide='ignore'):
            ttc = np.where(rate > 0, 1 / rate, np.where(np.isnan(rate), math.nan, math.inf))
        return Outcome(~np.isnan(rate), rate, False, ttc, rate)

    def _looming(self, grey: np.ndarray, stamp_ns: int, last_ns: int, last: np.ndarray) -> float:
        h, w = grey.shape
        flow = self._dis.calc(grey, last, None)
        points = np.dstack(np.meshgrid(np.arange(w), np.arange(h))).astype(float)
        flow = flow - (self._turned(points, last_ns, stamp_ns) - points)
        rows, cols = (slice(int(n * (1 - MIDDLE) / 2), int(n * (1 + MIDDLE) / 2)) for n in (h, w))
        at, to = points[rows, cols].reshape(-1, 2), flow[rows, cols].reshape(-1, 2)
        columns = np.c_[at - at.mean(0), np.ones(len(at))]
        weight, fit = np.ones(len(at)), np.zeros((3, 2))
        for _ in range(ROUNDS):
            fit = np.linalg.lstsq(columns * weight[:, None], to * weight[:, None], rcond=None)[0]
            off = np.linalg.norm(to - columns @ fit, axis=1)
            weight = 1 / np.sqrt(1 + (off / (1.5 * np.median(off) + 1e-6)) ** 2)
        # The flow leads from the newer frame to the older one, in which things are smaller.
        smaller = 1 + (fit[0, 0] + fit[1, 1]) / 2
        return -math.log(max(smaller, 0.05)) / ((stamp_ns - last_ns) / NS)

    def _turned(self, points: np.ndarray, older_ns: int, newer_ns: int) -> np.ndarray:
        """Return where points of the newer frame lay before the camera turned."""
        if self._gyroscope is None:
            return points
        try:
            rotation = self._gyroscope.turn(older_ns, newer_ns).rotation
        except GyroscopeError:
            return points
        pixels = self._lens @ cv2.Rodrigues(rotation)[0] @ np.linalg.inv(self._lens)
        return cv2.perspectiveTransform(points, pixels)
