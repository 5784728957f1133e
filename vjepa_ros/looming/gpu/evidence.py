# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Lucas-Kanade evidence of a pair of frames in PyTorch: `vjepa_ros.looming.flow.evidence`.

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
    """Evidence per sample of pairs, see `vjepa_ros.looming.flow.Samples`."""

    # (N, 7, Hs, Ws) gxx, gxy, gyy, hx, hy, energy, and the mean squared grey difference at the
    # displacement itself
    means: Tensor
    inside: Tensor  # (N, Hs, Ws) 1 where the match lies inside the older frame, else 0
    exposure: Tensor  # (N, 2) gain and offset applied to the older frame

    @property
    def gradients(self) -> Tensor:
        """Mean squared gradient (N, Hs, Ws)."""
        return self.means[:, 0] + self.means[:, 2]


def noise_energy(s: Samples, kernels: LoomingKernels | None = None) -> Tensor:
    """Measure the squared grey difference (N,) that remains where frames match."""
    if kernels is not None and kernels.has_room(s.inside):
        return kernels.noise(s.means, s.inside)
    change = s.means[:, 6, ::2, ::2].flatten(1)
    live = ((s.inside[:, ::2, ::2] > 0.9) & (s.gradients[:, ::2, ::2] > 0.02)).flatten(1)
    count = live.sum(1)
    ascending = torch.where(live, change, torch.inf).sort(1)[0]
    quarter = ascending.gather(1, (count // 4).clamp_max(change.shape[1] - 1)[:, None])[:, 0]
    return torch.where(count < _ENOUGH[1], 1.0, (quarter / 0.6).clamp_min(0.05))


def weigh(s: Samples, trust: Tensor, noise: Tensor, reduce: int,
          kernels: LoomingKernels | None = None) -> Tensor:
    """Multiply trust with `vjepa_ros.looming.flow.Samples.signal`, (N, Hs, Ws) each."""
    if kernels is not None:
        return kernels.weigh(s.means, trust, noise, reduce)
    energy = functional.pad(s.gradients[:, None], (1, 0, 1, 0), mode='replicate')
    energy = functional.avg_pool2d(energy, 2, 1)[:, 0]
    return trust * ((energy / (2 * grain(reduce) * noise[:, None, None]) - 2) / 4).clamp(0, 1)


class Aligner:
    """Evidence of pairs of frames of one size, taken at 1/reduce of the resolution."""

    def __init__(self, size: tuple[int, int], device: torch.device, reduce: int,
                 kernels: LoomingKernels | None = None) -> None:
        self._kernels = kernels
        self._n, self._step = reduce, SAMPLE_PX // reduce
        self._size = w, h = size[0] // reduce, size[1] // reduce
        self._slopes = Slopes(self._size, device)
        self._smooth = [torch.as_tensor(_smoothing(n), device=device) for n in (h, w)]
        self._grid = unit(torch.as_tensor(pixel_grid(w, h), device=device), self._size)
        self._unit = torch.tensor([2 / (w - 1) / reduce, 2 / (h - 1) / reduce], device=device)
        at = (pixel_grid(size[0] // SAMPLE_PX, size[1] // SAMPLE_PX) + 0.5) * SAMPLE_PX - 0.5
        self._at = torch.as_tensor(at, device=device).permute(2, 0, 1)                # 2 Hs Ws
        self._last = torch.tensor([size[0] - EDGE_PX[1], size[1] - EDGE_PX[1]], device=device)

    def prepared(self, frames: Tensor) -> Tensor:
        """Shrink and blur frames (N, h, w), so that gradients mean something."""
        if self._n > 1:
            frames = functional.avg_pool2d(frames[:, None], self._n)[:, 0]
        return self._smooth[0] @ frames @ self._smooth[1].T

    def moved(self, older: Tensor, flow: Tensor) -> tuple[Tensor, Tensor]:
        """Look up older frames from `prepared` where a displacement takes each pixel.

        `older`: (N, h, w); `flow`: (N, 2, Hs, Ws) in px of the full resolution.
        """
        if self._kernels is not None:
            return self._kernels.align(older, flow)
        ends = self._at + flow
        inside = ((ends > EDGE_PX[0]) & (ends < self._last[:, None, None])).all(1).float()
        at = self._grid + self._per_pixel(flow).permute(0, 2, 3, 1) * self._unit
        return look_up(older[:, None], at)[:, 0], inside

    def samples(self, newer: Tensor, moved: Tensor, inside: Tensor, flow: Tensor,
                exposure: Tensor | None = None) -> Samples:
        """Compute evidence linearised at a displacement.

        `newer`: (N, h, w) from `prepared`; `flow`: (N, 2, Hs, Ws) px, that part of their
        displacement that the evidence is about; `exposure`: (N, 2) gain and offset of the older
        frame; measured when omitted.
        """
        kernels = self._kernels
        if exposure is None:
            means = functional.avg_pool2d(torch.stack([newer, moved], 1), self._step)
            exposure = (kernels.exposure(means, inside)
                        if kernels is not None and kernels.has_room(inside)
                        else measured_exposure(means, inside))
        if kernels is not None:
            return Samples(kernels.evidence(newer, moved, flow, exposure), inside, exposure)
        dense = self._per_pixel(flow)
        moved = torch.addcmul(exposure[:, 1, None, None], moved, exposure[:, 0, None, None])
        change = moved - newer
        # Mean slope of both frames: second-order convergence (Malis, ICRA 2004).
        ix, iy = ((s + t) * (0.5 / self._n)
                  for s, t in zip(self._slopes(moved), self._slopes(newer), strict=True))
        goal = ix * dense[:, 0] + iy * dense[:, 1] - change
        products = torch.stack([ix * ix, ix * iy, iy * iy, ix * goal, iy * goal, goal * goal,
                                change * change], 1)
        return Samples(functional.avg_pool2d(products, self._step), inside, exposure)

    def _per_pixel(self, flow: Tensor) -> Tensor:
        """Interpolate the displacement of samples for each pixel (N, 2, h, w)."""
        return functional.interpolate(flow, size=self._size[::-1], mode='bilinear',
                                      align_corners=False)


def _smoothing(length: int) -> np.ndarray:
    """Make the matrix (length, length) of OpenCV's Gaussian blur of 5 px, sigma 1."""
    out = np.zeros((length, length))
    for row in range(length):
        for shift, value in zip(range(-2, 3), BLUR, strict=True):
            at = abs(row + shift)
            out[row, 2 * (length - 1) - at if at >= length else at] += value
    return out.astype(np.float32)


def measured_exposure(means: Tensor, inside: Tensor) -> Tensor:
    """Measure the gain and offset (N, 2) that give older frames the brightness of newer ones.

    `means`: (N, 2, Hs, Ws) mean grey levels of samples, newer and older; `inside`: (N, Hs, Ws) 1
    where both frames show the sample.
    """
    y, x = means[:, :, ::2, ::2].flatten(2).unbind(1)
    seen = inside[:, ::2, ::2].flatten(1) > 0.9
    weight = seen.float()
    none = torch.where(seen, 0.0, torch.nan)
    gain, offset = torch.ones_like(y[:, :1]), torch.zeros_like(y[:, :1])
    neutral = torch.cat([gain, offset], 1)
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
    return torch.where(seen.sum(1, keepdim=True) < _ENOUGH[0], neutral, found)
