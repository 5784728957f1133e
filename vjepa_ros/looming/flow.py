# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Measure the displacement between two grey frames, with the image evidence behind it.

Dense inverse search (DIS; Kroeger et al., "Fast Optical Flow using Dense Inverse Search", ECCV
2016) gives a dense displacement. It is robust but a few tenths of a pixel off, too much for the
divergence of a slow approach. `Aligner` therefore turns the pair, warped by that displacement,
into Lucas-Kanade normal equations per small sample: any smooth model of the displacement fitted
to those has sub-pixel accuracy, knows the aperture problem and comes with its covariance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np

SAMPLE_PX = 4          # side of a sample; gradients are summed up over one
COARSE = 8             # the search for a global motion runs at 1/8 of the resolution
SCALES = (1.0, 0.8, 1.2, 1.4)  # growths of the image between the frames that are tried
EDGE_PX = (4.0, 5.0)   # a match nearer to the first or last pixel does not lie inside
_BLUR = np.exp(-np.arange(-2, 3) ** 2 / 2.0)
BLUR = _BLUR / _BLUR.sum()   # weights of `smooth`, along a line
_GRADIENT_NOISE = 0.129  # pure noise: energy of the frames' mean slope over their difference's


@dataclass(frozen=True)
class Samples:
    """Lucas-Kanade evidence per sample of SAMPLE_PX: energy(v) = v'Gv - 2 v'h + e.

    energy(v) is the mean squared grey difference left when the displacement is v.
    """

    gxx: np.ndarray     # (Hs, Ws) mean of Ix*Ix, squared grey levels per squared pixel
    gxy: np.ndarray
    gyy: np.ndarray
    hx: np.ndarray      # (Hs, Ws) mean of gradient times (gradient . v0 - It)
    hy: np.ndarray
    energy: np.ndarray  # (Hs, Ws) mean of (gradient . v0 - It) squared
    change: np.ndarray  # (Hs, Ws) energy(v0), the mean squared grey difference at v0
    inside: np.ndarray  # (Hs, Ws) 1 where the match lies inside the older frame, else 0
    exposure: tuple[float, float]  # gain and offset the older frame was given


def smooth(gray: np.ndarray) -> np.ndarray:
    """Grey frame (h, w) uint8 as float32, smoothed so that gradients mean something."""
    return cv2.GaussianBlur(gray, (5, 5), 1.0).astype(np.float32)


def gradient(image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Horizontal and vertical derivative in grey levels per pixel, of a float32 image."""
    return (cv2.Sobel(image, cv2.CV_32F, 1, 0, scale=1 / 8),
            cv2.Sobel(image, cv2.CV_32F, 0, 1, scale=1 / 8))


def block_mean(image: np.ndarray, step: int = SAMPLE_PX) -> np.ndarray:
    """Mean of every step x step block of an image whose sides are multiples of step."""
    h, w = image.shape[:2]
    return cv2.resize(image, (w // step, h // step), interpolation=cv2.INTER_AREA)


@lru_cache(maxsize=8)
def _pixels(w: int, h: int) -> np.ndarray:
    """Coordinates x, y (h, w, 2) of every pixel."""
    return np.dstack(np.meshgrid(np.arange(w, dtype=np.float32), np.arange(h, dtype=np.float32)))


@lru_cache(maxsize=8)
def _samples(w: int, h: int) -> np.ndarray:
    """Coordinates x, y (h // 4, w // 4, 2) of the middle of every sample."""
    return block_mean(_pixels(w, h))


def _search(preset: int, size: tuple[int, int], finest: int) -> cv2.DISOpticalFlow:
    """DIS for frames of size (width, height) that stops at 1 / 2^finest of the resolution.

    In small frames it stops earlier: where the coarsest level that fits would be finer than the
    finest one, OpenCV picks levels by the width alone and reads beyond a low, wide image.
    """
    dis = cv2.DISOpticalFlow_create(preset)
    patch = dis.getPatchSize()
    deepest = min(int(math.log2(max(size) / (4 * patch)) + 0.5), int(math.log2(min(size) / patch)))
    dis.setFinestScale(max(0, min(finest, deepest)))
    return dis


class FlowMeter:
    """Dense displacement between frames of one size (holds the DIS objects)."""

    def __init__(self, size: tuple[int, int]) -> None:
        """Prepare for frames of size (width, height)."""
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

    def dense(self, newer: np.ndarray, older: np.ndarray,
              search: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """Displacement from the newer frame to the older one.

        search looks for a large motion of the whole image first.

        Returns
        -------
        flow : (h // 4, w // 4, 2) float32 in px, per sample
        miss : (h // 4, w // 4) float32, px by which going there and back misses the start
        """
        guess = self.global_motion(newer, older) if search else None
        if guess is not None:
            older = cv2.warpAffine(older, guess, self.size,
                                   flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
                                   borderMode=cv2.BORDER_REPLICATE)
        flow = block_mean(self._fine.calc(newer, older, None))
        # The way back is only checked, so half the resolution does.
        back = self._back.calc(block_mean(older, 2), block_mean(newer, 2), None)
        home = cv2.remap(back, (self._samples + flow) * 0.5 - 0.25, None, cv2.INTER_LINEAR,
                         borderMode=cv2.BORDER_REPLICATE)
        miss = cv2.magnitude(*cv2.split(flow + 2 * home))
        if guess is not None:
            flow = cv2.transform(self._samples + flow, guess) - self._samples
        return flow, miss

    def pace(self, newer: np.ndarray, older: np.ndarray) -> tuple[float, float, float]:
        """How fast the image moves, roughly measured.

        Returns the displacement in px that 90 and 98 % of the image stay below, and the
        relative expansion or shrinking that 98 % do.
        """
        size = (self.size[0] // 2, self.size[1] // 2)
        newer, older = (cv2.resize(g, size, interpolation=cv2.INTER_AREA) for g in (newer, older))
        flow = 2 * self._rough.calc(newer, older, None)[::4, ::4]   # every 8 px
        typical, fastest = np.percentile(cv2.magnitude(*cv2.split(flow)), [90, 98])
        even = cv2.blur(flow, (5, 5))
        expansion = (even[2:-2, 4:, 0] - even[2:-2, :-4, 0]
                     + even[4:, 2:-2, 1] - even[:-4, 2:-2, 1]) / (2 * 32)
        return float(typical), float(fastest), float(np.percentile(np.abs(expansion), 98))

    def global_motion(self, newer: np.ndarray, older: np.ndarray) -> np.ndarray | None:
        """Rough scaling and shift (2, 3) from newer to older pixels, None when near identity.

        DIS starts from zero and loses motions above about an eighth of the image; matching the
        middle of the newer frame at a few scales gets it near enough.
        """
        w, h = self.size
        cw, ch = w // COARSE, h // COARSE
        a = _detail(cv2.resize(newer, (cw, ch), interpolation=cv2.INTER_AREA))
        b = _detail(cv2.resize(older, (cw, ch), interpolation=cv2.INTER_AREA))
        mx, my = cw // 5, ch // 5
        middle = a[my:ch - my, mx:cw - mx]
        best, best_score, zero_score = None, -1.0, 1.0
        for scale in SCALES:
            shrink = np.array([[1 / scale, 0, (cw - 1) / 2 * (1 - 1 / scale)],
                               [0, 1 / scale, (ch - 1) / 2 * (1 - 1 / scale)]])
            moved = b if scale == 1.0 else cv2.warpAffine(
                b, shrink, (cw, ch), flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP)
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


class Aligner:
    """Turns displacement guesses for one pair of frames into Lucas-Kanade evidence."""

    def __init__(self, newer: np.ndarray, older: np.ndarray, reduce: int = 1) -> None:
        """Take both frames, uint8 (h, w), at 1/reduce of their resolution.

        A reduced pair takes worse guesses, the full one is more exact. Sides are multiples of
        SAMPLE_PX, which is a multiple of reduce.
        """
        self.reduce = reduce
        if reduce > 1:
            newer, older = block_mean(newer, reduce), block_mean(older, reduce)
        self.newer, self.older = smooth(newer), smooth(older)
        self.slopes = gradient(self.newer)
        h, w = newer.shape
        self.grid = _pixels(w, h)

    def samples(self, flow: np.ndarray, base: np.ndarray | None = None,
                exposure: tuple[float, float] | None = None) -> Samples:
        """Evidence linearised at a displacement.

        Parameters
        ----------
        flow : (Hs, Ws, 2) in px of the full resolution
        base : (Hs, Ws, 2) px; the displacement v of the evidence is the one beyond it
        exposure : gain and offset that bring the older frame to the newer one's brightness,
            None measures them
        """
        h, w = self.newer.shape
        step, n = SAMPLE_PX // self.reduce, self.reduce
        ends = _samples(w * n, h * n) + flow
        inside = ((ends > EDGE_PX[0]) & (ends < (w * n - EDGE_PX[1], h * n - EDGE_PX[1]))).all(-1)
        inside = inside.astype(np.float32)
        beyond = flow if base is None else flow - base
        flow = cv2.resize(flow, (w, h), interpolation=cv2.INTER_LINEAR)
        at = self.grid + (flow if n == 1 else flow * (1 / n))
        moved = cv2.remap(self.older, at, None, cv2.INTER_LINEAR,
                          borderMode=cv2.BORDER_REPLICATE)
        if exposure is None:
            exposure = _exposure(block_mean(self.newer, step), block_mean(moved, step), inside)
        moved = cv2.addWeighted(moved, exposure[0], moved, 0.0, exposure[1])
        change = moved - self.newer
        # Mean slope of both frames: second-order convergence (Malis, "Improving vision-based
        # control using efficient second-order minimization techniques", ICRA 2004).
        ix, iy = (cv2.addWeighted(s, 0.5 / n, t, 0.5 / n, 0.0)
                  for s, t in zip(gradient(moved), self.slopes, strict=True))
        u, v = cv2.split(cv2.resize(beyond, (w, h), interpolation=cv2.INTER_LINEAR))
        goal = ix * u + iy * v - change
        means = (block_mean(c, step) for c in (ix * ix, ix * iy, iy * iy, ix * goal, iy * goal,
                                               goal * goal, change * change))
        return Samples(*means, inside, exposure)


def noise_energy(s: Samples) -> float:
    """Squared grey difference that remains where frames match, from the best matching samples."""
    change = s.change[::2, ::2]
    live = (s.inside[::2, ::2] > 0.9) & (s.gxx[::2, ::2] + s.gyy[::2, ::2] > 0.02)
    if live.sum() < 50:
        return 1.0
    change = change[live]
    return max(float(np.partition(change, len(change) // 4)[len(change) // 4]) / 0.6, 0.05)


def grain(reduce: int) -> float:
    """Squared slope in x or y, per pixel, that noise adds to the evidence per unit of energy."""
    return _GRADIENT_NOISE / 2 / reduce ** 2


def signal_share(s: Samples, noise: float, reduce: int) -> np.ndarray:
    """Trust (Hs, Ws) in samples by gradient energy: 0 where it is no more than noise makes.

    Left in, such samples would vouch for whatever displacement they were linearised at.
    """
    energy = cv2.blur(s.gxx + s.gyy, (2, 2), borderType=cv2.BORDER_REPLICATE)
    return np.clip((energy / (2 * grain(reduce) * noise) - 2) / 4, 0, 1)


def _exposure(newer: np.ndarray, older: np.ndarray, inside: np.ndarray) -> tuple[float, float]:
    """Gain and offset that bring the older frame to the brightness of the newer one."""
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


def _detail(image: np.ndarray) -> np.ndarray:
    """Image without its slow shading, as float32."""
    image = image.astype(np.float32)
    return image - cv2.GaussianBlur(image, (0, 0), 5.0)
