# SPDX-License-Identifier: Apache-2.0
"""CUDA kernels for the parts of looming that take PyTorch most launches.

The inverse search of patches (`device_flow`), exposure and noise (`device_align`) and the window
fits (`device_fit`) are chains of hundreds of tiny steps; here a warp of 32 threads does all steps
of one patch, pair or cell, which remain the plain path. With kernels also the motion of the camera
(`camera_motion`) and the rates of the cells (`expansion`) are told on the device instead of on the
host. Compiled at run time by NVRTC like `vjepa_ros.runtime.kernels`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.perception import camera_cells, camera_motion, expansion
from vjepa_ros.perception.camera_motion import CameraMotion
from vjepa_ros.perception.device_fit_source import FIT, MOST_BLOCKS
from vjepa_ros.perception.device_motion_cells import MOST_CELLS
from vjepa_ros.perception.device_motion_source import MOTION, MOTION_THREADS
from vjepa_ros.perception.device_rates_source import RATES
from vjepa_ros.perception.device_sources import (
    MOST_VALUES,
    RANK_THREADS,
    RANKS,
    SEARCH,
    SPREAD,
    WIDEN,
)
from vjepa_ros.perception.expansion import (
    WANTED_S,
    WIDER_GAIN,
    WIDER_INLIERS,
    WIDER_SEEN,
    PairLooming,
)
from vjepa_ros.perception.rotation import LEAST_DEPTH
from vjepa_ros.runtime.kernels import KernelsMissing

_WARPS = 4         # patches of a block of threads
MOTION_NUMBERS = 54     # of a motion: see `LoomingKernels.motion`
_KINDS = ('unknown', 'still', 'turn', 'move')


def sources(steps: int, stiffness: float, fake: float) -> dict[str, tuple[str, str]]:
    """The source and the name of each kernel."""
    known = (f'#define STEPS {steps}\n#define STIFFNESS {stiffness}f\n#define FAKE {fake}f\n'
             f'#define MOST_BLOCKS {MOST_BLOCKS}\n#define MOST_VALUES {MOST_VALUES}\n'
             f'#define WANTED {WANTED_S[0]}f\n#define SHARE {WANTED_S[1]}f\n'
             f'#define SEEN {WIDER_SEEN}f\n#define GAIN {WIDER_GAIN}f\n'
             f'#define INLIERS {WIDER_INLIERS}f\n')
    motion = _defined(
        MOST_CELLS=MOST_CELLS, LEAST_CELLS=camera_motion.LEAST, LEAST_DEPTH=LEAST_DEPTH,
        AGREE=camera_cells.AGREE, SOFT=camera_cells.SOFT, TURN_PRIOR=camera_cells.TURN_PRIOR,
        LOOSE_PX=camera_cells.LOOSE_PX, LOOSE_SHARE=camera_cells.LOOSE_SHARE,
        NEAR_PX=camera_cells.NEAR_PX, WALL_ROUNDS=camera_cells.WALL_ROUNDS,
        BEHIND=camera_cells.BEHIND, STILL_SHARE=camera_motion.STILL_SHARE,
        FIXED_SHARE=camera_motion.FIXED_SHARE, TURN_SHARE=camera_motion.TURN_SHARE,
        MOVE_GAIN=camera_motion.MOVE_GAIN)
    rates = _defined(
        PI=math.pi, LEAST_DEPTH=LEAST_DEPTH, FINEST=expansion.FINEST, TAPER=expansion.TAPER,
        STATIC_ODDS=expansion.STATIC_ODDS, ANY_LOOMING=expansion.ANY_LOOMING,
        DOUBT=expansion.DOUBT_S[0], DOUBT_SHARE=expansion.DOUBT_S[1])
    return {'first': (f'{known}#define ROUND 0\n{SEARCH}', 'search'),
            'second': (f'{known}#define ROUND 1\n{SEARCH}', 'search'),
            'spread': (SPREAD, 'spread'), 'fit': (known + FIT, 'fit'),
            'expose': (known + RANKS, 'expose'), 'quarter': (known + RANKS, 'quarter'),
            'widen': (known + WIDEN, 'widen'), 'move': (motion + MOTION, 'motion'),
            'loom': (rates + RATES, 'rates')}


def _defined(**values: float) -> str:
    return ''.join(f'#define {name} {value!r}\n' for name, value in values.items())


@dataclass(frozen=True)
class LoomingKernels:
    """The kernels on the current device; each call is one launch on the current stream."""

    first: Any
    second: Any
    spread: Any
    fit: Any
    expose: Any
    quarter: Any
    widen: Any
    move: Any
    loom: Any

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
        return cls(**made)

    def search(self, newer: Tensor, older: Tensor, above: Tensor | None,
               grid: tuple[int, int]) -> Tensor:
        """`Level.search` of frames (N, h, w) with patches in a grid of columns and rows."""
        pairs, h, w = newer.shape
        newer, older = newer.contiguous(), older.contiguous()
        start = newer if above is None else above.contiguous()
        count = pairs * grid[0] * grid[1]
        rough, found = newer.new_empty((2, count, 2))
        weight = newer.new_empty((count, 64))
        shape = (-(-count // _WARPS), 1, 1), (32 * _WARPS, 1, 1)
        more, resumed = [pairs, w, h, *grid], int(above is not None)
        self.first(*shape, [newer, older, start, rough, rough, weight, *more, resumed])
        self.second(*shape, [newer, older, start, rough, found, weight, *more, resumed])
        dense = newer.new_empty((pairs, 2, h, w))
        self.spread((-(-dense.numel() // 512), 1, 1), (256, 1, 1), [found, weight, dense, *more])
        return dense

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
        self.fit((pairs * cells, 1, 1), (32, 1, 1),
                 [moments, noise.contiguous(), first, constants, theta, covariance, inliers,
                  misfit, cells, blocks, int(start is not None), int(thorough)])
        return theta, covariance, inliers, misfit

    @staticmethod
    def has_room(values: Tensor) -> bool:
        """Whether samples (N, Hs, Ws) are not too many for `exposure` and `noise`."""
        return -(-values.shape[1] // 2) * -(-values.shape[2] // 2) <= MOST_VALUES

    def exposure(self, means: Tensor, inside: Tensor) -> Tensor:
        """Gain and offset (N, 2) of means (N, 2, Hs, Ws), newer and older, where inside."""
        pairs, _, rows, cols = means.shape
        out = means.new_empty((pairs, 2))
        self.expose((pairs, 1, 1), (RANK_THREADS, 1, 1),
                    [means.contiguous(), inside.contiguous(), out, rows, cols])
        return out

    def noise(self, means: Tensor, inside: Tensor) -> Tensor:
        """(N,) of `noise_energy`, from the seven means (N, 7, Hs, Ws) of samples."""
        pairs, _, rows, cols = means.shape
        out = means.new_empty(pairs)
        self.quarter((pairs, 1, 1), (RANK_THREADS, 1, 1),
                     [means.contiguous(), inside.contiguous(), out, rows, cols])
        return out

    def widened(self, ours: tuple[Tensor, ...], wide: tuple[Tensor, ...], seen: Tensor,
                dt_s: Tensor) -> tuple[Tensor, ...]:
        """`Fits.widened` of theta, covariance, inliers and misfit."""
        pairs, cells = seen.shape
        out = tuple(torch.empty_like(part) for part in ours)
        self.widen((-(-pairs * cells // 128), 1, 1), (128, 1, 1),
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
        self.move((1, 1, 1), (MOTION_THREADS, 1, 1),
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
        self.loom((-(-len(theta) // 64), 1, 1), (64, 1, 1),
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
        raise np.linalg.LinAlgError(camera_cells.SINGULAR)
    told = CameraMotion(motion[:3], motion[3:6] if motion[6] else None,
                        motion[9:45].reshape(6, 6), float(motion[7]), _KINDS[int(motion[8])])
    rate, sigma, confidence, *flow = rates.reshape(5, -1)
    return PairLooming(rate, sigma, confidence, np.concatenate(flow).reshape(-1, 2), told, dt_s)
