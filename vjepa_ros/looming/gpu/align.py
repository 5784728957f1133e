# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Lucas-Kanade evidence of a pair of frames in PyTorch: `vjepa_ros.looming.flow.Aligner`.

N pairs; (Hs, Ws) samples of SAMPLE_PX. Nothing waits for the device.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from vjepa_ros.looming.flow import BLUR, EDGE_PX, SAMPLE_PX, grain
from vjepa_ros.looming.gpu.flow import Slopes, look_up, pixel_grid, unit
from vjepa_ros.looming.gpu.kernels import LoomingKernels

_ENOUGH = (30, 50)     # samples needed to measure exposure, noise


@dataclass(frozen=True)
class Samples:
    """Evidence per sample of pairs; each (N, Hs, Ws), see `vjepa_ros.looming.flow.Samples`."""

    gxx: Tensor
    gxy: Tensor
    gyy: Tensor
    hx: Tensor
    hy: Tensor
    energy: Tensor
    change: Tensor
    inside: Tensor
    exposure: Tensor   # (N, 2) gain and offset the older frame was given
    means: Tensor      # (N, 7, Hs, Ws), the first seven side by side


def noise_energy(s: Samples, kernels: LoomingKernels | None = None) -> Tensor:
    """(N,) squared grey difference that remains where frames match."""
    if kernels is not None and kernels.has_room(s.inside):
        return kernels.noise(s.means, s.inside)
    change = s.change[:, ::2, ::2].flatten(1)
    live = ((s.inside[:, ::2, ::2] > 0.9)
            & (s.gxx[:, ::2, ::2] + s.gyy[:, ::2, ::2] > 0.02)).flatten(1)
    count = live.sum(1)
    ascending = torch.where(live, change, torch.inf).sort(1)[0]
    quarter = ascending.gather(1, (count // 4).clamp_max(change.shape[1] - 1)[:, None])[:, 0]
    return torch.where(count < _ENOUGH[1], 1.0, (quarter / 0.6).clamp_min(0.05))


def signal_share(s: Samples, trust: Tensor, noise: Tensor, reduce: int,
                 kernels: LoomingKernels | None = None) -> Tensor:
    """Trust (N, Hs, Ws) in samples, times that by gradient energy, see `flow.signal_share`."""
    if kernels is not None:
        return kernels.share(s.means, trust, noise, reduce)
    energy = functional.pad((s.gxx + s.gyy)[:, None], (1, 0, 1, 0), mode='replicate')
    energy = functional.avg_pool2d(energy, 2, 1)[:, 0]
    return trust * ((energy / (2 * grain(reduce) * noise[:, None, None]) - 2) / 4).clamp(0, 1)


class Aligner:
    """Evidence of pairs of frames of one size.

    Parameters
    ----------
    size : width and height in px, multiples of 16
    device : where the frames are
    reduce : evidence is taken at 1/reduce of the resolution
    kernels : of the device, where it has some
    """

    def __init__(self, size: tuple[int, int], device: torch.device, reduce: int,
                 kernels: LoomingKernels | None = None) -> None:
        self._kernels = kernels
        self._n, self._step = reduce, SAMPLE_PX // reduce
        self._size = w, h = size[0] // reduce, size[1] // reduce
        self._slopes = Slopes(self._size, device)
        self._smooth = [torch.as_tensor(_smoothing(n), device=device) for n in (h, w)]
        put = {'device': device}
        self._grid = unit(torch.as_tensor(pixel_grid(w, h), **put), self._size)
        self._unit = torch.tensor([2 / (w - 1) / reduce, 2 / (h - 1) / reduce], **put)
        at = (pixel_grid(size[0] // SAMPLE_PX, size[1] // SAMPLE_PX) + 0.5) * SAMPLE_PX - 0.5
        self._at = torch.as_tensor(at, **put).permute(2, 0, 1)                        # 2 Hs Ws
        self._last = torch.tensor([size[0] - EDGE_PX[1], size[1] - EDGE_PX[1]], **put)

    def prepared(self, frames: Tensor) -> Tensor:
        """Frames (N, h, w), shrunk and smoothed so that gradients mean something."""
        if self._kernels is not None:
            return self._kernels.smooth(frames, self._n)
        if self._n > 1:
            frames = functional.avg_pool2d(frames[:, None], self._n)[:, 0]
        return self._smooth[0] @ frames @ self._smooth[1].T

    def samples(self, newer: Tensor, older: Tensor, flow: Tensor, beyond: Tensor | None = None,
                exposure: Tensor | None = None) -> Samples:
        """Evidence linearised at a displacement.

        Parameters
        ----------
        newer, older : (N, h, w) from `prepared`
        flow : (N, 2, Hs, Ws) in px of the full resolution
        beyond : (N, 2, Hs, Ws) px, that part of it that the evidence is about; None: all
        exposure : (N, 2) gain and offset of the older frame, None measures them
        """
        if self._kernels is not None:
            return self._by_kernels(newer, older, flow, beyond, exposure)
        ends = self._at + flow
        inside = ((ends > EDGE_PX[0]) & (ends < self._last[:, None, None])).all(1).float()
        parts = flow if beyond is None else torch.cat([flow, beyond], 1)
        parts = functional.interpolate(parts, size=newer.shape[1:], mode='bilinear',
                                       align_corners=False)
        at = self._grid + parts[:, :2].permute(0, 2, 3, 1) * self._unit
        moved = look_up(older[:, None], at)[:, 0]
        if exposure is None:
            means = functional.avg_pool2d(torch.stack([newer, moved], 1), self._step)
            exposure = measured_exposure(means[:, 0], means[:, 1], inside)
        moved = torch.addcmul(exposure[:, 1, None, None], moved, exposure[:, 0, None, None])
        change = moved - newer
        # Mean slope of both frames: second-order convergence (Malis, ICRA 2004).
        ix, iy = ((s + t) * (0.5 / self._n)
                  for s, t in zip(self._slopes(moved), self._slopes(newer), strict=True))
        goal = ix * parts[:, -2] + iy * parts[:, -1] - change
        products = torch.stack([ix * ix, ix * iy, iy * iy, ix * goal, iy * goal, goal * goal,
                                change * change], 1)
        means = functional.avg_pool2d(products, self._step)
        return Samples(*means.unbind(1), inside, exposure, means)

    def _by_kernels(self, newer: Tensor, older: Tensor, flow: Tensor, beyond: Tensor | None,
                    exposure: Tensor | None) -> Samples:
        parts = flow if beyond is None else torch.cat([flow, beyond], 1)
        moved, both, inside = self._kernels.shift(newer, older, parts)
        if exposure is None:
            exposure = (self._kernels.exposure(both, inside) if self._kernels.has_room(inside)
                        else measured_exposure(both[:, 0], both[:, 1], inside))
        means = self._kernels.evidence(newer, moved, parts, exposure)
        return Samples(*means.unbind(1), inside, exposure, means)


def _smoothing(length: int) -> np.ndarray:
    """Matrix (length, length) of OpenCV's Gaussian blur of 5 px, sigma 1."""
    out = np.zeros((length, length))
    for row in range(length):
        for shift, value in zip(range(-2, 3), BLUR, strict=True):
            at = abs(row + shift)
            out[row, 2 * (length - 1) - at if at >= length else at] += value
    return out.astype(np.float32)


def measured_exposure(newer: Tensor, older: Tensor, inside: Tensor) -> Tensor:
    """Gain and offset (N, 2) that bring the older frames to the brightness of the newer ones."""
    y, x = newer[:, ::2, ::2].flatten(1), older[:, ::2, ::2].flatten(1)
    seen = inside[:, ::2, ::2].flatten(1) > 0.9
    weight = seen.float()
    none = torch.where(seen, 0.0, torch.nan)
    gain = offset = None
    for _ in range(4):
        total = weight.sum(1, keepdim=True).clamp_min(1e-6)
        mx, my = ((weight * v).sum(1, keepdim=True) / total for v in (x, y))
        dx = weight * (x - mx)
        # A prior of gain 1 decides where there is no contrast to measure it.
        gain = (((dx * (y - my)).sum(1, keepdim=True) + 25.0 * total)
                / ((dx * (x - mx)).sum(1, keepdim=True) + 25.0 * total))
        offset = my - gain * mx
        rest = (y - gain * x - offset).abs()
        middle = (rest + none).nanmedian(1, keepdim=True)[0].nan_to_num(1.0)
        weight = seen / (1 + (rest / (3.0 * middle + 0.5)).square()).square()
    found = torch.cat([gain, offset], 1)
    neutral = torch.cat([torch.ones_like(gain), torch.zeros_like(offset)], 1)
    return torch.where(seen.sum(1, keepdim=True) < _ENOUGH[0], neutral, found)
