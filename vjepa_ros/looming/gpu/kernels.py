# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""CUDA kernels for the parts of looming that take PyTorch most time.

Searching patches, matching images, exposure, evidence, its noise and sums, and window fits are
chains of many tiny steps for PyTorch; here a thread, a warp or a block of threads does all steps
of one sample, patch, cell or pair. The motion of the camera and the rates of the cells are the
host's work without kernels, and need no trip to the host with them. docs/notebook/kernels.md has
what each kernel gains. The sources are the `.cu` files beside this module.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.looming import affine, ego_motion, estimator
from vjepa_ros.looming.ego_motion import CameraMotion, SINGULAR
from vjepa_ros.looming.estimator import PairLooming
from vjepa_ros.looming.flow import SAMPLE_PX
from vjepa_ros.runtime.cuda.compiler import (
    Grid,
    Kernel,
    begin_build,
    compile_kernel,
    loading_on,
    source_of,
)

STEPS = 5              # Gauss-Newton steps before and after patches ask their neighbours
STIFFNESS = 0.25       # squared slope, per pixel of a patch, that keeps a flat patch where it is
MOTION_NUMBERS = 54    # of a motion: see `LoomingKernels.motion`
_KINDS = ('unknown', 'still', 'turn', 'move')
_MOST_BLOCKS = 49      # of a window, that `fit.cu` has room for
_MOST_CELLS = 2 * ego_motion.MOST_USED      # that `motion.cu` has room for
_MOST_VALUES = 4096    # of a pair, that `evidence.cu` has room for
_WARPS = 4             # patches or places of a block of threads
_EACH = 128            # threads of a block where each has a sample or a cell of its own
_RANK_THREADS, _MOTION_THREADS = 512, 128


class Fits(NamedTuple):
    """Fits of N pairs, C cells each, see `vjepa_ros.looming.affine.AffineFits`."""

    theta: Tensor        # (N, C, 6)
    covariance: Tensor   # (N, C, 6, 6) or (N, C, 2, 2)
    inliers: Tensor      # (N, C)
    misfit: Tensor       # (N, C)


@dataclass(frozen=True)
class LoomingKernels:
    """The compiled kernels by name, for the current device and stream; N pairs of frames.

    All tensors are float32 where nothing else is said.
    """

    made: Mapping[str, Kernel]

    def search(self, newer: Tensor, older: Tensor, above: Tensor | None,
               grid: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """Search for patches in a grid of columns and rows, as `Level.search`.

        Parameters
        ----------
        newer, older
            (N, h, w) at this level.
        above
            (N, 2, h/2, w/2) displacement from the level above.
        grid
            Columns and rows of patches.

        Returns
        -------
        Tensor, Tensor
            (N, P, 2) displacement of each patch; (N, P * 64) weight of each of its pixels.
        """
        pairs, h, w = newer.shape
        newer, older = newer.contiguous(), older.contiguous()
        start = newer if above is None else above.contiguous()
        patches = grid[0] * grid[1]
        rough, found = newer.new_empty((2, pairs, patches, 2))
        weight = newer.new_empty((pairs, patches * 64))
        numbers = [pairs, w, h, *grid, int(above is not None)]
        for name, target in (('first', rough), ('second', found)):
            self.made[name](*_warps(pairs * patches),
                            [newer, older, start, rough, target, weight, *numbers])
        return found, weight

    def match(self, newer: Tensor, grown: Tensor, reach: tuple[int, int]) -> Tensor:
        """Correlate the middle of newer images with places in older ones of several scales.

        Parameters
        ----------
        newer
            (N, h, w).
        grown
            (N, scales, h, w).
        reach
            Pixels to the sides and up and down that are tried.

        Returns
        -------
        Tensor
            (N, scales, places) in -1 to 1, places row by row.
        """
        pairs, scales, h, w = grown.shape
        across, down = reach
        scores = newer.new_empty((pairs, scales, (2 * across + 1) * (2 * down + 1)))
        count = scores.numel()
        self.made['match'](*_warps(count), [newer.contiguous(), grown.contiguous(), scores, count,
                                            scales, w, h, across, down])
        return scores

    @staticmethod
    def has_room(samples: Tensor) -> bool:
        """Tell whether `exposure` and `noise` have room for samples (N, Hs, Ws)."""
        return -(-samples.shape[1] // 2) * -(-samples.shape[2] // 2) <= _MOST_VALUES

    def exposure(self, means: Tensor, inside: Tensor) -> Tensor:
        """Measure gain and offset (N, 2) of older frames, as `evidence.measured_exposure`.

        Parameters
        ----------
        means
            (N, 2, Hs, Ws) mean grey levels of samples, newer and older.
        inside
            (N, Hs, Ws) 1 where both frames show the sample.
        """
        pairs, _, rows, cols = means.shape
        out = means.new_empty((pairs, 2))
        self.made['expose']((pairs, 1, 1), (_RANK_THREADS, 1, 1),
                            [means.contiguous(), inside.contiguous(), out, rows, cols])
        return out

    def evidence(self, newer: Tensor, moved: Tensor, flow: Tensor, exposure: Tensor) -> Tensor:
        """Compute the means (N, 7, Hs, Ws) of `evidence.Samples`.

        Parameters
        ----------
        newer, moved
            (N, h, w) newer frames, and older ones looked up at their matches.
        flow
            (N, 2, Hs, Ws) px of the full resolution, the displacement the evidence is about.
        exposure
            (N, 2) gain and offset, not yet applied to `moved`.
        """
        pairs, _, rows, cols = flow.shape
        means = flow.new_empty((pairs, 7, rows, cols))
        count = pairs * rows * cols
        self.made['evidence'](*_threads(count),
                              [newer.contiguous(), moved.contiguous(), flow.contiguous(),
                               exposure.contiguous(), means, count, rows, cols,
                               rows * SAMPLE_PX // newer.shape[1]])
        return means

    def noise(self, means: Tensor, inside: Tensor) -> Tensor:
        """Compute `noise_energy` (N,) from the means (N, 7, Hs, Ws) of samples."""
        pairs, _, rows, cols = means.shape
        out = means.new_empty(pairs)
        self.made['quarter']((pairs, 1, 1), (_RANK_THREADS, 1, 1),
                             [means.contiguous(), inside.contiguous(), out, rows, cols])
        return out

    def table(self, means: Tensor, trust: Tensor, inside: Tensor, side: int) -> Tensor:
        """Sum up blocks of side x side samples: (N, blocks + 1, 26); the last row is empty."""
        pairs, rows, cols = trust.shape
        out = means.new_empty((pairs, rows // side * (cols // side) + 1, 26))
        count = out.shape[0] * out.shape[1]
        self.made['table'](*_threads(count), [means.contiguous(), trust.contiguous(),
                                              inside.contiguous(), out, count, rows, cols, side])
        return out

    def window_fit(self, moments: Tensor, noise: Tensor, start: Tensor | None, constants: Tensor,
                   thorough: bool) -> Fits:
        """Compute `DeviceFitter.fit`."""
        pairs, cells, blocks, _ = moments.shape
        moments = moments.contiguous()
        first = moments if start is None else start.contiguous()
        side = 6 if thorough else 2
        theta = moments.new_empty((pairs, cells, 6))
        covariance = moments.new_empty((pairs, cells, side, side))
        inliers, misfit = moments.new_empty((2, pairs, cells))
        self.made['fit']((pairs * cells, 1, 1), (32, 1, 1),
                         [moments, noise.contiguous(), first, constants, theta, covariance,
                          inliers, misfit, cells, blocks, int(start is not None), int(thorough)])
        return Fits(theta, covariance, inliers, misfit)

    def motion(self, fits: Fits, at: Tensor, lens: Tensor, start: Tensor | None = None) -> Tensor:
        """Estimate the motion of the camera, as `Rays.camera_motion`, of the first pair.

        Parameters
        ----------
        fits
            Fits; of their covariance that of the shift is enough.
        at
            (2, C) px, centres of the cells.
        lens
            Focal length [px], centre x, y [px], ...
        start
            Result of an earlier call, for a rough start.

        Returns
        -------
        Tensor
            (54,) float64: rotation (3), direction (3), whether it is known, agreement, kind
            (0 unknown, 1 still, 2 turn, 3 move), covariance (6, 6), matrix of the rotation (3, 3).
        """
        theta, covariance, inliers, misfit = (part[0].contiguous() for part in fits)
        out = theta.new_empty(MOTION_NUMBERS, dtype=torch.float64)
        self.made['motion']((1, 1, 1), (_MOTION_THREADS, 1, 1),
                            [theta, covariance, inliers, misfit, at, lens,
                             out if start is None else start, out, len(theta),
                             covariance.shape[-1], int(start is not None)])
        return out

    def rates(self, fits: Fits, vouched: Tensor, at: Tensor, lens: Tensor, dt_s: Tensor,
              motion: Tensor) -> Tensor:
        """Compute `pair_looming` of the first pair and its motion.

        Parameters
        ----------
        fits, at
            As for `motion`, with the whole covariance.
        vouched
            (N, C) 0 to 1.
        lens
            As for `motion`, and the expected slant [1/px].
        dt_s
            (1,) time between the frames [s].
        motion
            Result of `motion`.

        Returns
        -------
        Tensor
            (5 C,) rate, sigma, confidence, flow (C, 2).
        """
        theta, covariance, inliers, _ = (part[0].contiguous() for part in fits)
        out = theta.new_empty(5 * len(theta))
        self.made['rates'](*_threads(len(theta)),
                           [theta, covariance, inliers, vouched[0].contiguous(), at, lens, dt_s,
                            motion, out, len(theta)])
        return out


def _threads(count: int) -> tuple[Grid, Grid]:
    """Count blocks, and threads of a block, with a thread for each of `count` things."""
    return (-(-count // _EACH), 1, 1), (_EACH, 1, 1)


def _warps(count: int) -> tuple[Grid, Grid]:
    """Count blocks, and threads of a block, with a warp for each of `count` things."""
    return (-(-count // _WARPS), 1, 1), (32 * _WARPS, 1, 1)


def read_pair(numbers: np.ndarray, dt_s: float) -> PairLooming:
    """Read what the kernels computed: a motion, then rates.

    Raises
    ------
    numpy.linalg.LinAlgError
        When the cells lead to singular systems, as on the host.
    """
    motion, rates = numbers[:MOTION_NUMBERS].astype(np.float64), numbers[MOTION_NUMBERS:].copy()
    if not np.isfinite(motion).all():
        raise np.linalg.LinAlgError(SINGULAR)
    found = CameraMotion(motion[:3], motion[3:6] if motion[6] else None,
                         motion[9:45].reshape(6, 6), float(motion[7]), _KINDS[int(motion[8])])
    cells = len(rates) // 5
    rate, sigma, confidence, flow = np.split(rates, (cells, 2 * cells, 3 * cells))
    return PairLooming(rate, sigma, confidence, flow.reshape(-1, 2), found, dt_s)


def sources() -> dict[str, tuple[str, str]]:
    """Read the source of each kernel, with the constants it needs, and its name there."""
    def read(*names: str, **defined: float | str) -> str:
        return source_of('vjepa_ros.looming.gpu', *names, **defined)

    def constants(module: object, *names: str) -> dict[str, float]:
        return {name: getattr(module, name) for name in names}

    patches = {'STEPS': STEPS, 'STIFFNESS': f'{STIFFNESS}f'}
    evidence = read('block', 'image', 'evidence', **_block(_RANK_THREADS),
                    MOST_VALUES=_MOST_VALUES, SAMPLE_PX=SAMPLE_PX, UNIT=f'{affine.UNIT}f')
    motion = read('block', 'motion', **_block(_MOTION_THREADS), MOST_CELLS=_MOST_CELLS,
                  **constants(ego_motion, 'MOST_USED', 'LEAST_CELLS', 'LEAST_DEPTH', 'AGREE',
                              'SOFT', 'TURN_PRIOR', 'LOOSE_PX', 'LOOSE_SHARE', 'NEAR_PX',
                              'WALL_ROUNDS', 'BEHIND', 'LEAST_VARIANCE', 'STILL_SHARE',
                              'FIXED_SHARE', 'TURN_SHARE', 'MOVE_GAIN'))
    doubt, doubt_share = estimator.DOUBT_S
    rates = read('rates', PI=math.pi, LEAST_DEPTH=ego_motion.LEAST_DEPTH, DOUBT=doubt,
                 DOUBT_SHARE=doubt_share,
                 **constants(estimator, 'FINEST', 'TAPER', 'STATIC_ODDS', 'ANY_LOOMING'))
    return {'first': (read('image', 'flow', ROUND=0, **patches), 'search'),
            'second': (read('image', 'flow', ROUND=1, **patches), 'search'),
            'match': (read('image', 'flow', ROUND=0, **patches), 'match'),
            **{name: (evidence, name) for name in ('expose', 'evidence', 'quarter', 'table')},
            'fit': (read('fit', FAKE=f'{affine.FAKE}f', MOST_BLOCKS=_MOST_BLOCKS), 'fit'),
            'motion': (motion, 'motion'), 'rates': (rates, 'rates')}


def _block(threads: int) -> dict[str, float | str]:
    return {'THREADS': threads, 'WARPS': threads // 32}


@lru_cache(maxsize=16)
def prepare_kernels(device: torch.device) -> Future[LoomingKernels] | None:
    """Begin to compile the kernels for a device, once, in parallel; None off CUDA."""
    return begin_build(_build, device, 'looming_kernels')


def _build(device: torch.device) -> LoomingKernels:
    with loading_on(device):
        return LoomingKernels({key: compile_kernel(source, name)
                               for key, (source, name) in sources().items()})
