# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Measure the displacement between two grey frames, with the image evidence for it.

Dense inverse search (DIS; Kroeger et al., "Fast Optical Flow using Dense Inverse Search", ECCV
2016) gives a dense displacement. It is robust but a few tenths of a pixel off, too much for the
divergence of a slow approach. `evidence` therefore turns the pair, warped by that displacement,
into Lucas-Kanade normal equations per small sample: any smooth model of the displacement fitted
to those has sub-pixel accuracy, respects the aperture problem and comes with its covariance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cv2
import numpy as np

SAMPLE_PX = 4          # side of a sample; gradients are summed up over one
COARSE = 8             # the search for a global motion runs at 1/8 of the resolution
SCALES = (1.0, 0.8, 1.2, 1.4)  # changes of image size between the frames that are tried
EDGE_PX = (4.0, 5.0)   # a match nearer to the first or last pixel does not lie inside
_BLUR = np.exp(-np.arange(-2, 3) ** 2 / 2.0)
BLUR = _BLUR / _BLUR.sum()   # weights of the blur before slopes are taken, along a line
_GRADIENT_NOISE = 0.129  # pure noise: energy of the frames' mean slope over their difference's
_AREA, _LINEAR, _BORDER = cv2.INTER_AREA, cv2.INTER_LINEAR, cv2.BORDER_REPLICATE
_BACKWARD = _LINEAR | cv2.WARP_INVERSE_MAP
_NONE: Any = None      # an optional array that the type stubs of OpenCV take for required


@dataclass(frozen=True)
class Samples:
    """Lucas-Kanade evidence per sample of SAMPLE_PX: energy(v) = v'Gv - 2 v'h + e.

    energy(v) is the mean squared grey difference that remains when the displacement is v.
    """

    # (6, Hs, Ws) means: of Ix*Ix, Ix*Iy and Iy*Iy (G), squared grey levels per squared pixel; of
    # Ix and Iy times (gradient . v0 - It), which are h; and of the square of that, e.
    means: np.ndarray
    inside: np.ndarray  # (Hs, Ws) 1 where the match lies inside the older frame, else 0
    # (Hs, Ws) 0 to 1, 0 where the gradients are no more than noise makes. Such samples would
    # confirm whatever displacement they were linearised at.
    signal: np.ndarray
    # Mean squared grey difference that remains where frames match, from the best samples
    noise: float
    # Squared slope in x or y, per pixel, that noise adds to the evidence per unit of energy
    grain: float
    exposure: tuple[float, float]  # gain and offset applied to the older frame


@lru_cache(maxsize=8)
def _pixels(w: int, h: int) -> np.ndarray:
    """Coordinates x, y (h, w, 2) of every pixel."""
    return np.dstack(np.meshgrid(np.arange(w, dtype=np.float32), np.arange(h, dtype=np.float32)))


@lru_cache(maxsize=8)
def _samples(w: int, h: int) -> np.ndarray:
    """Coordinates x, y (h // 4, w // 4, 2) of the middle of every sample."""
    return cv2.resize(_pixels(w, h), (w // SAMPLE_PX, h // SAMPLE_PX), interpolation=_AREA)


def grain(reduce: int) -> float:
    """Compute `Samples.grain` at 1/reduce of the resolution."""
    return _GRADIENT_NOISE / 2 / reduce ** 2


def _search(preset: int, size: tuple[int, int], finest: int) -> cv2.DISOpticalFlow:
    """DIS for frames of size (width, height) that stops at 1 / 2^finest of the resolution.

    In small frames it stops earlier: where the coarsest level that fits would be finer than the
    finest one, OpenCV picks levels by the width alone and reads beyond a low, wide image.
    """
    # The type stubs lack it.
    dis = cv2.DISOpticalFlow_create(preset)  # pyright: ignore[reportAttributeAccessIssue]
    patch = dis.getPatchSize()
    deepest = min(int(math.log2(max(size) / (4 * patch)) + 0.5), int(math.log2(min(size) / patch)))
    dis.setFinestScale(max(0, min(finest, deepest)))
    return dis


class FlowMeter:
    """Dense displacement between frames of one size (holds the DIS objects)."""

    def __init__(self, size: tuple[int, int]) -> None:
        w, h = size
        self.size = size
        half = (w // 2, h // 2)
        self._fine = _search(cv2.DISOPTICAL_FLOW_PRESET_FAST, size, 2)
        self._fine.setVariationalRefinementIterations(0)   # what `Aligner` does is more exact
        self._rough = _search(cv2.DISOPTICAL_FLOW_PRESET_ULTRAFAST, half, 2)
        self._back = _search(cv2.DISOPTICAL_FLOW_PRESET_ULTRAFAST, half, 1)
        self._back.setPatchStride(5)
        self._back.setGradientDescentIterations(8)
        self._samples = _samples(w, h)

    def dense(self, newer: np.ndarray, older: np.ndarray, search: bool = True,
              turn: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Measure the displacement from the newer frame to the older one.

        `turn`: homography (3, 3) of a known rotation, newer to older pixels; the rest is
        searched.
        """
        if turn is not None:
            older = cv2.warpPerspective(older, turn, self.size, flags=_BACKWARD,
                                        borderMode=_BORDER)
        guess = self.global_motion(newer, older) if search else None
        if guess is not None:
            older = cv2.warpAffine(older, guess, self.size, flags=_BACKWARD, borderMode=_BORDER)
        w, h = self.size
        flow = cv2.resize(self._fine.calc(newer, older, _NONE), (w // SAMPLE_PX, h // SAMPLE_PX),
                          interpolation=_AREA)
        # The way back is only checked, so half the resolution is enough.
        half = w // 2, h // 2
        back = self._back.calc(cv2.resize(older, half, interpolation=_AREA),
                               cv2.resize(newer, half, interpolation=_AREA), _NONE)
        home = cv2.remap(back, (self._samples + flow) * 0.5 - 0.25, _NONE, _LINEAR,
                         borderMode=_BORDER)
        miss = cv2.magnitude(*cv2.split(flow + 2 * home))
        if guess is not None:
            flow = cv2.transform(self._samples + flow, guess) - self._samples
        if turn is not None:
            flow = cv2.perspectiveTransform(self._samples + flow, turn) - self._samples
        return flow, miss

    def pace(self, newer: np.ndarray, older: np.ndarray,
             turn: np.ndarray | None = None) -> tuple[float, float, float]:
        """Measure roughly how fast the image moves.

        `turn`: homography (3, 3) of a known rotation, newer to older pixels, which is left out.
        """
        half = self.size[0] // 2, self.size[1] // 2
        if turn is not None:
            # What the older frame does not show stays as it is.
            older = cv2.warpPerspective(older, turn, self.size, newer.copy(), flags=_BACKWARD,
                                        borderMode=cv2.BORDER_TRANSPARENT)
        flow = self._rough.calc(cv2.resize(newer, half, interpolation=_AREA),
                                cv2.resize(older, half, interpolation=_AREA), _NONE)
        flow = 2 * flow[::4, ::4]   # every 8 px
        speed = cv2.magnitude(*cv2.split(flow)).ravel()
        most, nearly_all = int(0.9 * (speed.size - 1)), int(0.98 * (speed.size - 1))
        speed.partition((most, nearly_all))     # `numpy.percentile` takes seven times as long
        even = cv2.blur(flow, (5, 5))
        expansion = (even[2:-2, 4:, 0] - even[2:-2, :-4, 0]
                     + even[4:, 2:-2, 1] - even[:-4, 2:-2, 1]) / (2 * 32)
        growth = np.abs(expansion).ravel()
        fastest = int(0.98 * (growth.size - 1))
        growth.partition(fastest)
        return float(speed[most]), float(speed[nearly_all]), float(growth[fastest])

    def global_motion(self, newer: np.ndarray, older: np.ndarray) -> np.ndarray | None:
        """Find a rough scaling and shift (2, 3) from newer to older pixels; None near identity.

        DIS starts from zero and loses motions above about an eighth of the image. Matching the
        middle of the newer frame at a few scales gets near enough.
        """
        w, h = self.size
        cw, ch = w // COARSE, h // COARSE
        # Without their slow shading.
        a = cv2.resize(newer, (cw, ch), interpolation=_AREA).astype(np.float32)
        a -= cv2.GaussianBlur(a, (0, 0), 5.0)
        b = cv2.resize(older, (cw, ch), interpolation=_AREA).astype(np.float32)
        b -= cv2.GaussianBlur(b, (0, 0), 5.0)
        mx, my = cw // 5, ch // 5
        middle = a[my:ch - my, mx:cw - mx]
        best, best_score, zero_score = np.eye(2, 3), -1.0, 1.0
        for scale in SCALES:
            shrink = np.array([[1 / scale, 0, (cw - 1) / 2 * (1 - 1 / scale)],
                               [0, 1 / scale, (ch - 1) / 2 * (1 - 1 / scale)]])
            moved = b if scale == 1.0 else cv2.warpAffine(b, shrink, (cw, ch), flags=_BACKWARD)
            scores = cv2.matchTemplate(moved, middle, cv2.TM_CCOEFF_NORMED)
            _, score, _, (x, y) = cv2.minMaxLoc(scores)
            if scale == 1.0:
                zero_score = scores[my, mx]
            if score > best_score:
                best, best_score = shrink, score
                best[:, 2] += np.array([x - mx, y - my]) / scale
        if best_score < 0.3 or best_score < zero_score + 0.1:
            return None
        # Back to full resolution; pixel centres of the coarse grid lie at (i + 0.5) * 8 - 0.5.
        half = (COARSE - 1) / 2
        best[:, 2] = COARSE * best[:, 2] + half - best[:, :2] @ np.array([half, half])
        return best


def evidence(newer: np.ndarray, older: np.ndarray, flow: np.ndarray, reduce: int = 1,
             base: np.ndarray | None = None,
             exposure: tuple[float, float] | None = None) -> Samples:
    """Compute Lucas-Kanade evidence linearised at a displacement.

    `flow`: (Hs, Ws, 2) displacement newer to older in px; `base`: (Hs, Ws, 2) px; the
    displacement v of the evidence is what exceeds it.
    """
    h, w = newer.shape
    small = w // SAMPLE_PX, h // SAMPLE_PX
    ends = _samples(w, h) + flow
    first, past = EDGE_PX
    inside = cv2.inRange(ends, (first, first, 0, 0), (w - past, h - past, 0, 0))
    inside = (inside > 0).astype(np.float32)
    if reduce > 1:
        w, h = size = w // reduce, h // reduce
        newer = cv2.resize(newer, size, interpolation=_AREA)
        older = cv2.resize(older, size, interpolation=_AREA)
    # Blurred, so that the gradients mean something.
    newer = cv2.GaussianBlur(newer, (5, 5), 1.0).astype(np.float32)
    older = cv2.GaussianBlur(older, (5, 5), 1.0).astype(np.float32)
    dense = cv2.resize(flow, (w, h), interpolation=_LINEAR)
    at = _pixels(w, h) + (dense if reduce == 1 else dense * (1 / reduce))
    moved = cv2.remap(older, at, _NONE, _LINEAR, borderMode=_BORDER)
    if exposure is None:
        exposure = _exposure(cv2.resize(newer, small, interpolation=_AREA),
                             cv2.resize(moved, small, interpolation=_AREA), inside)
    moved = cv2.addWeighted(moved, exposure[0], moved, 0.0, exposure[1])
    change = moved - newer
    # Mean slope of both frames: second-order convergence (Malis, "Improving vision-based control
    # using efficient second-order minimization techniques", ICRA 2004).
    both, share = moved + newer, 1 / (16 * reduce)
    ix = cv2.Sobel(both, cv2.CV_32F, 1, 0, scale=share)
    iy = cv2.Sobel(both, cv2.CV_32F, 0, 1, scale=share)
    if base is not None:
        dense = cv2.resize(flow - base, (w, h), interpolation=_LINEAR)
    u, v = cv2.split(dense)
    goal = ix * u + iy * v - change
    means = np.empty((7, small[1], small[0]), np.float32)
    for out, one, other in zip(means, (ix, ix, iy, ix, iy, goal, change),
                               (ix, iy, iy, goal, goal, goal, change), strict=True):
        product = one * other
        # Two steps by a factor of two take half as long as one step by four.
        while product.shape[0] > small[1]:
            size = product.shape[1] // 2, product.shape[0] // 2
            product = cv2.resize(product, size, interpolation=_AREA)
        out[:] = product
    gradients, left = means[0] + means[2], means[6]
    live = (inside[::2, ::2] > 0.9) & (gradients[::2, ::2] > 0.02)
    left, noise = left[::2, ::2][live], 1.0
    if len(left) >= 50:
        noise = max(float(np.partition(left, len(left) // 4)[len(left) // 4]) / 0.6, 0.05)
    gradients = cv2.blur(gradients, (2, 2), borderType=_BORDER)
    per_energy = grain(reduce)
    signal = np.clip((gradients / (2 * per_energy * noise) - 2) / 4, 0, 1)
    return Samples(means[:6], inside, signal, noise, per_energy, exposure)


def _exposure(newer: np.ndarray, older: np.ndarray, inside: np.ndarray) -> tuple[float, float]:
    """Measure gain and offset that bring the older frame to the brightness of the newer one."""
    newer, older = newer[::2, ::2], older[::2, ::2]
    seen = inside[::2, ::2] > 0.9
    if seen.sum() < 30:
        return 1.0, 0.0
    x, y = older[seen].astype(np.float64), newer[seen].astype(np.float64)
    weight = np.ones_like(x)
    gain, offset = 1.0, 0.0
    for _ in range(4):
        total = weight.sum()
        mx, my = weight @ x / total, weight @ y / total
        # A prior of gain 1 decides where there is no contrast to measure it.
        gain = ((weight * (x - mx)) @ (y - my) + 25.0 * total) \
            / ((weight * (x - mx)) @ (x - mx) + 25.0 * total)
        offset = my - gain * mx
        rest = np.abs(y - gain * x - offset)
        scale = 3.0 * np.partition(rest, len(rest) // 2)[len(rest) // 2] + 0.5
        weight = 1 / (1 + (rest / scale) ** 2) ** 2
    return float(gain), float(offset)
