# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Dense displacement between grey frames in PyTorch, for a GPU, and the choice of the frames.

The method is that of `vjepa_ros.looming.flow`: inverse search of patches from coarse to fine
(Kroeger et al., "Fast Optical Flow using Dense Inverse Search", ECCV 2016), after a search for a
motion of the whole image. All patches of all pairs go through each step at once. Shapes are
static, nothing waits for the device and no step depends on values, so a CUDA graph can hold it.
N pairs, P patches; displacements are (x, y).
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from vjepa_ros.looming.estimator import MOST_EXPANSION
from vjepa_ros.looming.flow import COARSE, SAMPLE_PX, SCALES
from vjepa_ros.looming.gpu.kernels import HEAD, LoomingKernels, STEPS, STIFFNESS

PATCH_PX = 8           # side of a patch at its level
STRIDE = 4             # distance of neighbouring patches
FINEST = 2             # the search ends at 1 / 2^FINEST of the resolution, one pixel a sample
PACE_LEVEL = 3         # the same of `Choice`


def even_slopes(length: int) -> tuple[np.ndarray, np.ndarray]:
    """Make matrices (length, length) of Sobel's two factors, derivative and blur of a line."""
    at = np.arange(length)
    ends = np.abs(np.stack([at - 1, at + 1]))          # mirrored, the border itself once
    ends = np.where(ends >= length, 2 * (length - 1) - ends, ends)
    eye = np.eye(length, dtype=np.float32)
    return (eye[ends[1]] - eye[ends[0]]) / 2, (2 * eye + eye[ends[0]] + eye[ends[1]]) / 4


class Slopes:
    """Derivatives of images (N, h, w) of one size, in grey levels per pixel."""

    def __init__(self, size: tuple[int, int], device: torch.device) -> None:
        (self._dx, self._sx), (self._dy, self._sy) = (
            tuple(torch.from_numpy(m).to(device) for m in even_slopes(n)) for n in size)
        self._dx, self._sx = self._dx.T.contiguous(), self._sx.T.contiguous()

    def __call__(self, image: Tensor) -> tuple[Tensor, Tensor]:
        return self._sy @ (image @ self._dx), self._dy @ (image @ self._sx)


def unit(points: Tensor, size: tuple[int, int]) -> Tensor:
    """Convert pixel coordinates (..., 2) in an image of size (w, h) to those of `grid_sample`."""
    scale = points.new_tensor([2 / (n - 1) for n in size])
    return points * scale - 1


def look_up(image: Tensor, at: Tensor) -> Tensor:
    """Sample images (N, C, h, w) bilinearly, held at the border, at unit points (N, a, b, 2)."""
    return functional.grid_sample(image, at, mode='bilinear', padding_mode='border',
                                  align_corners=True)


def shrunk(images: Tensor, side: int, kernels: LoomingKernels | None) -> Tensor:
    return functional.avg_pool2d(images, side) if kernels is None else kernels.shrink(images, side)


def pixel_grid(w: int, h: int) -> np.ndarray:
    """Make the coordinates x, y (h, w, 2) of every pixel."""
    return np.stack(np.meshgrid(np.arange(w), np.arange(h)), -1).astype(np.float32)


class Level:
    """Inverse search at one level of the pyramid."""

    def __init__(self, size: tuple[int, int], device: torch.device,
                 kernels: LoomingKernels | None = None) -> None:
        w, h = self.size = size
        self._kernels = kernels
        firsts = [sorted({*range(0, n - PATCH_PX + 1, STRIDE), n - PATCH_PX}) for n in size]
        cols, rows = self._patches = len(firsts[0]), len(firsts[1])
        if kernels is not None:
            return      # the rest is for the path without them
        corners = np.stack(np.meshgrid(*firsts), -1).reshape(-1, 2)                   # P 2
        inner = pixel_grid(PATCH_PX, PATCH_PX).reshape(-1, 2)
        points = corners[:, None] + inner[None]                                      # P 64 2
        self._pixels = torch.as_tensor((points[..., 1] * w + points[..., 0]).astype(np.int64),
                                       device=device)
        self._scale = torch.tensor([2 / (w - 1), 2 / (h - 1)], device=device)
        self._base = unit(torch.as_tensor(points, dtype=torch.float32, device=device), size)
        self._eye = torch.eye(2, device=device)
        # Each patch and its four neighbours; at the border some stand for themselves.
        grid = np.pad(np.arange(rows * cols).reshape(rows, cols), 1, mode='edge')
        around = np.stack([grid[1 + j:1 + j + rows, 1 + i:1 + i + cols].ravel()
                           for j, i in ((0, 0), (0, -1), (0, 1), (-1, 0), (1, 0))], -1)
        self._around = torch.as_tensor(around, device=device)                                # P 5
        self._slopes = Slopes(size, device)
        # Where each pixel lies in the patches that cover it.
        covers: list[list[int]] = [[] for _ in range(w * h)]
        flat = (points[..., 1] * w + points[..., 0]).astype(int)
        for place, pixel in enumerate(flat.ravel()):
            covers[pixel].append(place)
        most = max(map(len, covers))
        index = np.array([c + [c[0]] * (most - len(c)) for c in covers])
        real = np.array([[1.0] * len(c) + [0.0] * (most - len(c)) for c in covers])
        self._covers = torch.as_tensor(index, device=device)                        # h*w M
        self._whose = self._covers // PATCH_PX ** 2
        self._real = torch.as_tensor(real, dtype=torch.float32, device=device)
        # The pixel of the level above in the middle of each patch.
        middle = np.minimum((corners + PATCH_PX // 2) // 2,
                            [max(w // 2 - 1, 0), max(h // 2 - 1, 0)]).astype(np.int64)
        self._middle = torch.as_tensor(middle[:, 1] * (w // 2) + middle[:, 0], device=device)

    def search(self, newer: Tensor, older: Tensor, above: Tensor | None) -> Tensor:
        """Refine a displacement (N, 2, h/2, w/2) from the level above: (N, 2, h, w) in px."""
        if self._kernels is not None:
            return self._kernels.search(newer, older, above, self._patches)
        pairs = newer.shape[0]
        found, weight = self._searched(newer, older, above)
        # Every pixel has the mean of its patches, each weighted by how well it fits there.
        weight = weight[:, self._covers] * self._real                                # N h*w M
        flow = found[:, self._whose]                                                 # N h*w M 2
        dense = (flow * weight[..., None]).sum(2) / weight.sum(2, keepdim=True)
        return dense.transpose(1, 2).reshape(pairs, 2, self.size[1], self.size[0])

    def _searched(self, newer: Tensor, older: Tensor,
                  above: Tensor | None) -> tuple[Tensor, Tensor]:
        """Search per patch for the displacement (N, P, 2), and weigh its pixels (N, P * 64)."""
        pairs = newer.shape[0]
        older = older[:, None]
        flat = newer.flatten(1)
        template = flat[:, self._pixels]                                             # N P 64
        slopes = torch.stack(self._slopes(newer), 1).flatten(2)                      # N 2 h*w
        slopes = slopes[:, :, self._pixels].transpose(1, 2)                          # N P 2 64
        # Without their means, a change of brightness does not matter.
        slopes = slopes - slopes.mean(-1, keepdim=True)
        matrix = slopes @ slopes.transpose(2, 3) + self._eye * (STIFFNESS * PATCH_PX ** 2)
        trace = matrix.diagonal(dim1=2, dim2=3).sum(-1)[..., None, None]
        adjoint = trace * self._eye - matrix
        twice = trace * trace - (matrix * matrix).sum((2, 3), keepdim=True)          # 2 det
        step = (adjoint * (2 / twice)) @ slopes * self._scale[:, None]               # N P 2 64
        offset = step @ template[..., None]                                          # N P 2 1
        if above is None:
            first = torch.zeros_like(offset)
        else:
            first = (above.flatten(2)[:, :, self._middle].transpose(1, 2)
                     * (2 * self._scale))[..., None]
        found = self._descend(older, first, step, offset)
        found = self._ask_around(older, template, found)
        found = self._descend(older, found, step, offset)
        lost = ((found - first) / self._scale[:, None]).square().sum(2, keepdim=True)
        found = torch.where(lost > PATCH_PX ** 2, first, found)
        seen = look_up(older, self._base + found.transpose(2, 3))[:, 0] - template
        weight = 1 / (seen - seen.mean(-1, keepdim=True)).abs().clamp_min(1.0)
        return (found[..., 0] / self._scale), weight.view(pairs, -1)

    def _descend(self, older: Tensor, found: Tensor, step: Tensor, offset: Tensor) -> Tensor:
        pairs, patches = found.shape[:2]
        step, offset = step.reshape(-1, 2, PATCH_PX ** 2), offset.reshape(-1, 2, 1)
        for _ in range(STEPS):
            seen = look_up(older, self._base + found.transpose(2, 3))
            found = torch.baddbmm(found.reshape(-1, 2, 1) + offset, step,
                                  seen.view(-1, PATCH_PX ** 2, 1), alpha=-1)
            found = found.view(pairs, patches, 2, 1)
        return found

    def _ask_around(self, older: Tensor, template: Tensor, found: Tensor) -> Tensor:
        """Choose per patch the displacement, its own or of a neighbour, that fits best."""
        pairs, patches = found.shape[:2]
        tried = found[:, self._around]                                               # N P 5 2 1
        at = self._base[:, None] + tried.transpose(3, 4)                             # N P 5 64 2
        seen = look_up(older, at.view(pairs, -1, PATCH_PX ** 2, 2))
        rest = seen.view(pairs, patches, -1, PATCH_PX ** 2) - template[:, :, None]
        best = rest.var(-1).argmin(-1)[..., None, None, None].expand(-1, -1, 1, 2, 1)
        return tried.gather(2, best)[:, :, 0]


class DenseFlow:
    """Dense displacement between frames of one size, whose sides are multiples of 16 px.

    The search ends at 1 / 2^finest of the resolution.
    """

    def __init__(self, size: tuple[int, int], device: torch.device, finest: int = FINEST,
                 kernels: LoomingKernels | None = None) -> None:
        w, h = size
        deepest = min(int(math.log2(max(size) / (4 * PATCH_PX)) + 0.5),
                      int(math.log2(min(size) / PATCH_PX)))
        self.finest = min(finest, max(deepest, FINEST))
        self._kernels = kernels
        self._levels = {k: Level((w >> k, h >> k), device, kernels)
                        for k in range(max(deepest, self.finest), self.finest - 1, -1)}

    def __call__(self, newer: Tensor, older: Tensor) -> Tensor:
        """Measure the displacement newer to older of frames (N, h, w) float32."""
        flow: Tensor | None = None
        both = torch.cat([newer, older])
        planes = {self.finest: shrunk(both, 1 << self.finest, self._kernels)}
        for k in range(self.finest + 1, max(self._levels) + 1):
            planes[k] = functional.avg_pool2d(planes[k - 1], 2)
        for k, level in self._levels.items():
            ours, theirs = planes[k].chunk(2)
            flow = level.search(ours, theirs, flow)
        assert flow is not None     # there is a level
        return flow * (1 << self.finest)


class Choice:
    """The choice of the frame to compare with, by the rough speed of images of one size.

    See `FlowMeter.pace`.
    """

    def __init__(self, size: tuple[int, int], device: torch.device,
                 kernels: LoomingKernels | None = None) -> None:
        self._flow = DenseFlow(size, device, PACE_LEVEL, kernels)
        self._px, self._kernels = 1 << self._flow.finest, kernels

    def __call__(self, given: Tensor, newer: Tensor, near: Tensor) -> tuple[Tensor, ...]:
        """Choose the best frame to compare with.

        `given`: (HEAD + 2 MOST_FRAMES,) see there; inf is the age of a row without a frame;
        `newer, near`: (1, h, w) the newest frame and the near one.
        """
        flow = self._flow(newer, near)
        if self._kernels is not None and self._kernels.has_room_to_choose(flow):
            return self._kernels.choose(given, flow, self._px).split(1)
        return choose(given, self._pace(flow))

    def _pace(self, flow: Tensor) -> Tensor:
        """Compute displacements [px] that 90 and 98 % stay below, and expansion: (N, 3)."""
        speed = flow.square().sum(1).sqrt().flatten(1)
        even = functional.avg_pool2d(functional.pad(flow, (2, 2, 2, 2), mode='reflect'), 5, 1)
        growth = (even[:, 0, 2:-2, 4:] - even[:, 0, 2:-2, :-4]
                  + even[:, 1, 4:, 2:-2] - even[:, 1, :-4, 2:-2]) / (2 * 4 * self._px)
        speed, growth = speed.sort(-1)[0], growth.abs().flatten(1).sort(-1)[0]
        return torch.stack([_share(speed, 0.9), _share(speed, 0.98), _share(growth, 0.98)], -1)


def _share(ascending: Tensor, share: float) -> Tensor:
    """Find the value (N,) that a share of each row stays below."""
    at = share * (ascending.shape[1] - 1)
    low = int(at)
    return torch.lerp(ascending[:, low], ascending[:, min(low + 1, ascending.shape[1] - 1)],
                      at - low)


class GlobalMotion:
    """Rough scaling and shift between images of one size: see `FlowMeter.global_motion`."""

    def __init__(self, size: tuple[int, int], device: torch.device,
                 kernels: LoomingKernels | None = None) -> None:
        self._kernels = kernels
        cw, ch = size[0] // COARSE, size[1] // COARSE
        self._mx, self._my = cw // 5, ch // 5
        self._middle = (ch - 2 * self._my, cw - 2 * self._mx)
        shrink = np.array([[1 / s, (cw - 1) / 2 * (1 - 1 / s), (ch - 1) / 2 * (1 - 1 / s)]
                           for s in SCALES], np.float32)
        grid = pixel_grid(cw, ch)
        at = grid[None] * shrink[:, None, None, :1] + shrink[:, None, None, 1:]
        self._at = unit(torch.as_tensor(at, device=device), (cw, ch)).view(1, -1, cw, 2)
        self._shrink = torch.as_tensor(shrink, device=device)
        # Slow shading is taken off by a blur of 5 px, the one of OpenCV's `GaussianBlur`.
        self._blur = [torch.as_tensor(_gauss(n, 5.0), device=device) for n in (ch, cw)]
        self._eye = torch.tensor([1.0, 0.0, 0.0], device=device)
        self._tall, self._places = ch, 2 * self._mx + 1
        if kernels is None:
            self._pixels = torch.as_tensor(pixel_grid(*size), device=device)
            self._per_px = torch.tensor([2 / (n - 1) for n in size], device=device)

    def __call__(self, newer: Tensor, older: Tensor, wanted: Tensor) -> Tensor:
        """Find scale and shift (N, 3) of px newer to older.

        They are the identity where `wanted` (N,) is not 1 and where nothing speaks for more.
        """
        both = shrunk(torch.cat([newer, older]), COARSE, self._kernels)[:, None]
        both = both - self._blur[0] @ (both @ self._blur[1].T)
        a, b = both.chunk(2)
        pairs, mx, my = len(newer), self._mx, self._my
        moved = functional.grid_sample(b, self._at.expand(pairs, -1, -1, -1), mode='bilinear',
                                       padding_mode='zeros', align_corners=True)
        moved = moved.view(pairs, len(SCALES), self._tall, -1)
        if self._kernels is not None:
            scores = self._kernels.match(a[:, 0], moved, (mx, my))
            return self._kernels.guess(scores, wanted, self._shrink, (mx, my))
        scores = self._scores(a[:, 0], moved)
        start = scores[:, 0, my * self._places + mx]
        best, place = scores.flatten(1).max(1)
        kind, place = place // scores.shape[2], place % scores.shape[2]
        shrink = self._shrink[kind]
        x, y = place % self._places - mx, place // self._places - my
        shift = shrink[:, 1:] + torch.stack([x, y], 1) * shrink[:, :1]
        # Back to full resolution; pixel centres of the coarse grid lie at (i + 0.5) * 8 - 0.5.
        half = (COARSE - 1) / 2
        found = torch.cat([shrink[:, :1], COARSE * shift + half - half * shrink[:, :1]], 1)
        sure = (wanted > 0.5) & (best >= 0.3) & (best >= start + 0.1)
        return torch.where(sure[:, None], found, self._eye)

    def warped(self, images: Tensor, guess: Tensor) -> Tensor:
        """Look up images (N, h, w) where scale and shift (N, 3) take their pixels."""
        if self._kernels is not None:
            return self._kernels.warp(images, guess)
        at = self._pixels * guess[:, None, None, :1] + guess[:, None, None, 1:]
        return look_up(images[:, None], at * self._per_px - 1)[:, 0]

    def _scores(self, newer: Tensor, grown: Tensor) -> Tensor:
        pairs, mx, my = len(newer), self._mx, self._my
        middle = newer[:, my:my + self._middle[0], mx:mx + self._middle[1]].flatten(1)
        middle = middle - middle.mean(1, keepdim=True)                               # N t
        windows = functional.unfold(grown.flatten(0, 1)[:, None], self._middle)      # N*4 t p
        windows = windows.view(pairs, len(SCALES), middle.shape[1], -1)
        like = (middle[:, None, None] @ windows)[:, :, 0]                            # N 4 p
        spread = windows.var(2, unbiased=False) * middle.shape[1]
        size = (spread * middle.square().sum(1)[:, None, None]).sqrt()
        return like / size.clamp_min(1e-3)


def _gauss(length: int, sigma: float) -> np.ndarray:
    """Make the matrix (length, length) of a Gaussian blur of a line, mirrored at its ends."""
    reach = round(4 * sigma)
    at = np.arange(-reach, reach + 1)
    weight = np.exp(-at ** 2 / (2 * sigma ** 2))
    period = 2 * max(length - 1, 1)
    from_ = np.abs((np.arange(length)[:, None] + at + period // 2) % period - period // 2)
    out = np.zeros((length, length))
    for row, places in enumerate(from_):
        np.add.at(out[row], places, weight / weight.sum())
    return out.astype(np.float32)


def choose(given: Tensor, pace: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute `Choice` from the pace (1, 3) between the newest and the near frame."""
    rows, ages = given[HEAD:].chunk(2)
    typical, fastest, expansion = pace[0].clamp_min(1e-3).split(1)
    alone, goal, longest = given[3:HEAD].split(1)
    wanted = given[2] * torch.minimum(torch.minimum(goal / typical, 2 * goal / fastest),
                                      MOST_EXPANSION / expansion)
    best = (ages / torch.minimum(wanted, longest)).log().abs().argmin(0, keepdim=True)
    large = (alone > 0.5) | (fastest * ages[best] / given[2] > goal)
    return best.float(), rows[best], ages[best], large.float()


class Trust:
    """Trust in displacements of frames of one size."""

    def __init__(self, size: tuple[int, int], device: torch.device,
                 kernels: LoomingKernels | None = None) -> None:
        self._kernels = kernels
        if kernels is not None:
            return
        w, h = (n // SAMPLE_PX for n in size)
        at = (torch.as_tensor(pixel_grid(w, h), device=device) + 0.5) * SAMPLE_PX - 0.5
        self._at = at.permute(2, 0, 1)                                                # 2 Hs Ws
        self._per_sample = torch.tensor([2 / (n - 1) for n in (w, h)], device=device)

    def __call__(self, found: Tensor, back: Tensor, guess: Tensor) -> tuple[Tensor, Tensor]:
        """Combine the displacement with that of the whole image, and check it by the way back.

        `found, back`: (N, 2, Hs, Ws) px newer to older and back, of the older frame moved by
        `guess`; `guess`: (N, 3) scale and shift of the whole image.
        """
        if self._kernels is not None:
            return self._kernels.trusted(found, back, guess)
        home = (self._at + found + 0.5) / SAMPLE_PX - 0.5
        home = look_up(back, home.permute(0, 2, 3, 1) * self._per_sample - 1)
        miss = (found + home).square().sum(1).sqrt()
        scale, shift = guess[:, :1, None, None], guess[:, 1:, None, None]
        flow = (self._at + found) * scale + shift - self._at
        allowed = 1.5 + 0.05 * flow.square().sum(1).sqrt()
        return flow, 1 / (1 + (miss / allowed).square().square())
