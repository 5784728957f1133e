# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""CUDA kernels for the parts of looming that take PyTorch most launches.

The inverse search of patches (`gpu.flow`), exposure and noise (`gpu.align`) and the window
fits (`gpu.fit`) are chains of hundreds of tiny steps; here a warp or a block of threads does
all steps of one patch, cell or pair. What PyTorch does remains the plain path. With kernels also
the motion of the camera (`camera_motion`) and the rates of the cells (`expansion`) are computed
on the device instead of on the host. Compiled at run time by NVRTC like
`vjepa_ros.runtime.forward.kernels`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.looming.camera_cells import SINGULAR
from vjepa_ros.looming.camera_motion import CameraMotion
from vjepa_ros.looming.expansion import PairLooming
from vjepa_ros.looming.gpu.kernel_sources import sources
from vjepa_ros.looming.gpu.motion_source import MOTION_THREADS
from vjepa_ros.looming.gpu.pixel_kernels import PixelKernels, spread_over
from vjepa_ros.runtime.forward.kernels import KernelsMissing

MOTION_NUMBERS = 54     # of a motion: see `LoomingKernels.motion`
_KINDS = ('unknown', 'still', 'turn', 'move')


@dataclass(frozen=True)
class LoomingKernels(PixelKernels):
    """The kernels on the current device, also those of cells; launched on the current stream."""

    @classmethod
    def build(cls, steps: int, stiffness: float, fake: float) -> LoomingKernels:
        """Compile them.

        Raises
        ------
        KernelsMissing
            When PyTorch offers no compiler, or it fails.
        """
        compile_kernel = getattr(torch.cuda, '_compile_kernel', None)
        if compile_kernel is None or torch.version.cuda is None:
            raise KernelsMissing(f'PyTorch {torch.__version__} does not compile CUDA kernels at '
                                 'run time; builds for CUDA from 2.9 on do')
        made = {}
        for key, (source, name) in sources(steps, stiffness, fake).items():
            try:
                made[key] = compile_kernel(source, name)
            except (RuntimeError, OSError) as error:
                raise KernelsMissing(f'kernel {name}: {error}') from error
        return cls(made)

    def window_fit(self, moments: Tensor, noise: Tensor, start: Tensor | None, constants: Tensor,
                   thorough: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """theta, covariance, inliers and misfit of `DeviceFitter.fit`."""
        pairs, cells, blocks, _ = moments.shape
        moments = moments.contiguous()
        first = moments if start is None else start.contiguous()
        side = 6 if thorough else 2
        theta = moments.new_empty((pairs, cells, 6))
        covariance = moments.new_empty((pairs, cells, side, side))
        inliers, misfit = moments.new_empty((2, pairs, cells))
        self.made['fit']((pairs * cells, 1, 1), (32, 1, 1),
                 [moments, noise.contiguous(), first, constants, theta, covariance, inliers,
                  misfit, cells, blocks, int(start is not None), int(thorough)])
        return theta, covariance, inliers, misfit

    def widened(self, ours: tuple[Tensor, ...], wide: tuple[Tensor, ...], seen: Tensor,
                dt_s: Tensor) -> tuple[Tensor, ...]:
        """`Fits.widened` of theta, covariance, inliers and misfit."""
        pairs, cells = seen.shape
        ours, wide = (tuple(part.contiguous() for part in fits) for fits in (ours, wide))
        out = tuple(part.new_empty(part.shape) for part in ours)
        self.made['widen'](*spread_over(pairs * cells),
                           [*ours, *wide, seen.contiguous(), dt_s, *out, cells, pairs * cells])
        return out

    def motion(self, fits: tuple[Tensor, ...], at: Tensor, lens: Tensor,
               start: Tensor | None = None) -> Tensor:
        """Motion of the camera as `View.camera_motion` tells it of one pair.

        Parameters
        ----------
        fits : theta (C, 6), covariance (C, 6, 6) or that of the shift (C, 2, 2), inliers, misfit
        at : (2, C) px, centres of the cells
        lens : focal length [px], centre x, y [px], ...
        start : what this has given for a rough start

        Returns
        -------
        Tensor
            (54,) float64: rotation (3), direction (3), whether it is known, agreement, kind
            (0 unknown, 1 still, 2 turn, 3 move), covariance (6, 6), matrix of the rotation (3, 3).
        """
        theta, covariance, inliers, misfit = (part.contiguous() for part in fits)
        out = theta.new_empty(MOTION_NUMBERS, dtype=torch.float64)
        self.made['move']((1, 1, 1), (MOTION_THREADS, 1, 1),
                  [theta, covariance, inliers, misfit, at, lens, out if start is None else start,
                   out, len(theta), covariance.shape[-1], int(start is not None)])
        return out

    def rates(self, fits: tuple[Tensor, ...], vouched: Tensor, at: Tensor, lens: Tensor,
              dt_s: Tensor, motion: Tensor) -> Tensor:
        """`pair_looming` of one pair and its motion: (5 C,) rate, sigma, confidence, flow (C, 2).

        fits, at : as for `motion`; lens : there, and the expected slant [1/px]; dt_s : (1,)
        """
        theta, covariance, inliers = (part.contiguous() for part in fits[:3])
        out = theta.new_empty(5 * len(theta))
        self.made['loom'](*spread_over(len(theta)),
                  [theta, covariance, inliers, vouched.contiguous(), at, lens, dt_s, motion, out,
                   len(theta)])
        return out


def told_pair(numbers: np.ndarray, dt_s: float) -> PairLooming:
    """What the kernels have found: a motion, then rates, as on the host.

    Raises
    ------
    numpy.linalg.LinAlgError
        When the cells lead to singular systems, as there.
    """
    motion, rates = np.split(numbers.astype(np.float64), [MOTION_NUMBERS])
    if not np.isfinite(motion).all():
        raise np.linalg.LinAlgError(SINGULAR)
    told = CameraMotion(motion[:3], motion[3:6] if motion[6] else None,
                        motion[9:45].reshape(6, 6), float(motion[7]), _KINDS[int(motion[8])])
    rate, sigma, confidence, *flow = rates.reshape(5, -1)
    return PairLooming(rate, sigma, confidence, np.concatenate(flow).reshape(-1, 2), told, dt_s)
