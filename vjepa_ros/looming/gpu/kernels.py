# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""CUDA kernels for the parts of looming that take PyTorch most time.

Choosing frames, searching patches, matching images, exposure, evidence, its noise, weights and
sums, and window fits are chains of many tiny steps for PyTorch; here a thread, a warp or a block
of threads does all steps of one pixel, sample, patch, cell or pair. The motion of the camera and
the rates of the cells are the host's work without kernels, and need no trip to the host with them.
docs/notebook/kernels.md has what they gain. The sources are the `.cu` files beside this module.
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
from vjepa_ros.looming.flow import COARSE, EDGE_PX, SAMPLE_PX, grain
from vjepa_ros.runtime.cuda.compiler import (
    Grid,
    Kernel,
    begin_build,
    compile_kernel,
    loading_on,
    one_each,
    source_of,
)

STEPS = 5              # Gauss-Newton steps before and after patches ask their neighbours
STIFFNESS = 0.25       # squared slope, per pixel of a patch, that keeps a flat patch where it is
MOST_FRAMES = 32       # older frames among which one is chosen
# Numbers before the rows and ages of these: newest and near row, age of near [s], whether that
# is alone, the displacement [px] and the age [s] that are best and longest.
HEAD = 6
MOTION_NUMBERS = 54    # of a motion: see `LoomingKernels.motion`
_KINDS = ('unknown', 'still', 'turn', 'move')
_MOST_BLOCKS = 49      # of a window, that `fit.cu` has room for
_MOST_CELLS = 2 * ego_motion.MOST_USED      # that `motion.cu` has room for
_MOST_VALUES = 4096    # of a pair, that `evidence.cu` and `pace.cu` have room for
_WARPS = 4             # patches, places or pixels of a block of threads, a warp each
_EACH = 128            # threads of a block where each has a sample or a cell of its own
_RANK_THREADS = 512
_MOTION_THREADS = 160   # a cell each, where MOST_USED are used and not up to twice as many


class Fits(NamedTuple):
    """Fits of N pairs, C cells each, see `vjepa_ros.looming.affine.AffineFits`."""

    theta: Tensor        # (N, C, 6)
    covariance: Tensor   # (N, C, 6, 6) or (N, C, 2, 2)
    inliers: Tensor      # (N, C)
    misfit: Tensor       # (N, C)


class Window(NamedTuple):
    """Shape of the windows of `vjepa_ros.looming.affine.WindowFitter`.

    Rows and columns of cells, blocks of a window and of a cell to each side, px of a cell.
    """

    grid: tuple[int, int]
    across: int
    inner: int
    cell_px: int


@dataclass(frozen=True)
class LoomingKernels:
    """The compiled kernels by name, for the current device and stream; N pairs of frames.

    All tensors are float32 where nothing else is said.
    """

    made: Mapping[str, Kernel]

    def search(self, newer: Tensor, older: Tensor, above: Tensor | None,
               grid: tuple[int, int]) -> Tensor:
        pairs, h, w = newer.shape
        newer, older = newer.contiguous(), older.contiguous()
        start = newer if above is None else above.contiguous()
        patches = grid[0] * grid[1]
        rough, found = newer.new_empty((2, pairs, patches, 2))
        weight, dense = newer.new_empty((pairs, patches * 64)), newer.new_empty((pairs, 2, h, w))
        numbers = [pairs, w, h, *grid, int(above is not None)]
        for name, target in (('first', rough), ('second', found)):
            self.made[name](*_warps(pairs * patches),
                            [newer, older, start, rough, target, weight, *numbers])
        count = pairs * h * w
        self.made['blend'](*one_each(count, _EACH), [found, weight, dense, count, w, h, *grid])
        return dense

    def shrink(self, images: Tensor, side: int) -> Tensor:
        """Average squares of `side` pixels of images (N, h, w), whose sides are multiples."""
        pairs, h, w = images.shape
        out = images.new_empty((pairs, h // side, w // side))
        count = out.numel()
        self.made['shrink'](*_warps(count), [images.contiguous(), out, count, w // side,
                                             h // side, side])
        return out

    @staticmethod
    def has_room_to_choose(flow: Tensor) -> bool:
        return flow[0, 0].numel() <= _MOST_VALUES

    def choose(self, given: Tensor, flow: Tensor, px: int) -> Tensor:
        """Compute `flow.Choice` (4,) from the displacement (1, 2, h, w) of pixels of `px` px."""
        out = given.new_empty(4)
        self.made['choose']((1, 1, 1), (_RANK_THREADS, 1, 1),
                            [given, flow.contiguous(), out, flow.shape[3], flow.shape[2], px])
        return out

    def match(self, newer: Tensor, grown: Tensor, reach: tuple[int, int]) -> Tensor:
        """Correlate the middle of newer images with places in older ones of several scales.

        `newer`: (N, h, w); `grown`: (N, scales, h, w).
        """
        pairs, scales, h, w = grown.shape
        across, down = reach
        scores = newer.new_empty((pairs, scales, (2 * across + 1) * (2 * down + 1)))
        count = scores.numel()
        self.made['match'](*_warps(count), [newer.contiguous(), grown.contiguous(), scores, count,
                                            scales, w, h, across, down])
        return scores

    def guess(self, scores: Tensor, wanted: Tensor, shrink: Tensor,
              reach: tuple[int, int]) -> Tensor:
        """Find scale and shift (N, 3) of `flow.GlobalMotion` from the result of `match`.

        `wanted`: (N,) 1 where more than the identity is wanted.
        """
        out = scores.new_empty((len(scores), 3))
        self.made['guess']((len(scores), 1, 1), (32, 1, 1),
                           [scores, wanted.contiguous(), shrink, out, len(shrink), *reach])
        return out

    def warp(self, images: Tensor, guess: Tensor) -> Tensor:
        """Look up images (N, h, w) where scale and shift (N, 3) take their pixels."""
        out = images.new_empty(images.shape)
        count, (h, w) = images.numel(), images.shape[1:]
        self.made['warp'](*one_each(count, _EACH), [images.contiguous(), guess, out, count, w, h])
        return out

    def trusted(self, found: Tensor, back: Tensor, guess: Tensor) -> tuple[Tensor, Tensor]:
        pairs, _, rows, cols = found.shape
        flow, trust = found.new_empty(found.shape), found.new_empty((pairs, rows, cols))
        count = trust.numel()
        self.made['trusted'](*one_each(count, _EACH),
                             [found.contiguous(), back.contiguous(), guess, flow, trust, count,
                              cols, rows])
        return flow, trust

    @staticmethod
    def has_room(samples: Tensor) -> bool:
        return -(-samples.shape[1] // 2) * -(-samples.shape[2] // 2) <= _MOST_VALUES

    def exposure(self, means: Tensor, inside: Tensor) -> Tensor:
        """Measure gain and offset (N, 2) of older frames, as `fit.measured_exposure`.

        `means`: (N, 2, Hs, Ws) mean grey levels of samples, newer and older; `inside`: (N, Hs,
        Ws) 1 where both frames show the sample.
        """
        pairs, _, rows, cols = means.shape
        out = means.new_empty((pairs, 2))
        self.made['expose']((pairs, 1, 1), (_RANK_THREADS, 1, 1),
                            [means.contiguous(), inside.contiguous(), out, rows, cols])
        return out

    def align(self, older: Tensor, flow: Tensor) -> tuple[Tensor, Tensor]:
        """Look up older frames (N, h, w) where samples move (N, 2, Hs, Ws), and tell where inside.

        The result is that of `fit.Aligner.moved`.
        """
        pairs, _, rows, cols = flow.shape
        moved, inside = older.new_empty(older.shape), flow.new_empty((pairs, rows, cols))
        count = moved.numel()
        self.made['align'](*one_each(count, _EACH),
                           [older.contiguous(), flow.contiguous(), moved, inside, count, rows,
                            cols, rows * SAMPLE_PX // older.shape[1]])
        return moved, inside

    def evidence(self, newer: Tensor, moved: Tensor, flow: Tensor, exposure: Tensor) -> Tensor:
        """Compute the means (N, 7, Hs, Ws) of `fit.Samples`.

        `newer, moved`: (N, h, w) newer frames, and older ones looked up at their matches; `flow`:
        (N, 2, Hs, Ws) px of the full resolution, the displacement the evidence is about;
        `exposure`: (N, 2) gain and offset, not yet applied to `moved`.
        """
        pairs, _, rows, cols = flow.shape
        means = flow.new_empty((pairs, 7, rows, cols))
        count = pairs * rows * cols
        self.made['evidence'](*one_each(count, _EACH),
                              [newer.contiguous(), moved.contiguous(), flow.contiguous(),
                               exposure.contiguous(), means, count, rows, cols,
                               rows * SAMPLE_PX // newer.shape[1]])
        return means

    def noise(self, means: Tensor, inside: Tensor) -> Tensor:
        pairs, _, rows, cols = means.shape
        out = means.new_empty(pairs)
        self.made['quarter']((pairs, 1, 1), (_RANK_THREADS, 1, 1),
                             [means.contiguous(), inside.contiguous(), out, rows, cols])
        return out

    def weigh(self, means: Tensor, trust: Tensor, noise: Tensor, reduce: int) -> Tensor:
        out, (rows, cols) = trust.new_empty(trust.shape), trust.shape[1:]
        count = out.numel()
        self.made['weigh'](*one_each(count, _EACH), [means, trust.contiguous(), noise, out, count,
                                                     rows, cols, reduce])
        return out

    def table(self, means: Tensor, trust: Tensor, inside: Tensor, side: int) -> Tensor:
        """Sum up blocks of side x side samples: (N, blocks, 26)."""
        pairs, rows, cols = trust.shape
        out = means.new_empty((pairs, rows // side * (cols // side), 26))
        count = out.shape[0] * out.shape[1]
        self.made['table'](*one_each(count, _EACH),
                           [means.contiguous(), trust.contiguous(), inside.contiguous(), out,
                            count, rows, cols, side])
        return out

    def window_fit(self, table: Tensor, noise: Tensor, start: Tensor | None, window: Window,
                   constants: Tensor, out: Fits) -> Tensor:
        """Compute `DeviceFitter.measure` of a table of blocks into `out`."""
        own = table.new_empty((*out.inliers.shape, 26))
        self.made['fit']((out.inliers.numel(), 1, 1), (32, 1, 1),
                         [table, noise, table if start is None else start.contiguous(), constants,
                          *out, own, *window.grid, window.across, window.inner,
                          int(start is not None), int(out.covariance.shape[-1] > 2)])
        return own

    def settle(self, fits: Fits, own: Tensor, noise: Tensor, window: Window,
               constants: Tensor) -> Tensor:
        out = own.new_empty(fits.theta.shape)
        count = fits.inliers.numel()
        self.made['settle'](*one_each(count, _EACH),
                            [fits.theta, fits.misfit, own, noise, constants, out, count,
                             *window.grid, window.cell_px])
        return out

    def widen(self, fits: Fits, own: Tensor, noise: Tensor, dt_s: Tensor, base: Tensor,
              constants: Tensor) -> tuple[Fits, Tensor]:
        """Compute `DeviceFitter.widened` of fits (windows, N, C, ...), the narrow ones first."""
        out = Fits(*(own.new_empty(part.shape[1:]) for part in fits))
        vouched = own.new_empty(own.shape[:2])
        self.made['widen'](*one_each(vouched.numel(), _EACH),
                           [*fits, own, noise, dt_s, constants, base.contiguous(), *out, vouched,
                            vouched.numel(), vouched.shape[1], len(fits.theta)])
        return out, vouched

    def motion(self, fits: Fits, at: Tensor, lens: Tensor, start: Tensor | None = None) -> Tensor:
        """Estimate the motion of the camera, as `Rays.camera_motion`, of the first pair.

        `at`: (2, C) px, centres of the cells; `lens`: focal length [px], centre x, y [px], .
        """
        theta, covariance, inliers, misfit = (part[0].contiguous() for part in fits)
        out = theta.new_empty(MOTION_NUMBERS, dtype=torch.float64)
        self.made['motion']((1, 1, 1), (_MOTION_THREADS, 1, 1),
                            [theta, covariance, inliers, misfit, at, lens,
                             out if start is None else start, out, len(theta),
                             covariance.shape[-1], int(start is not None)])
        return out

    def derotate(self, motion: Tensor, lens: Tensor, spots: Tensor, spread: Tensor, at: Tensor,
                 start: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Take the rotation of a motion off the displacement of the first pair.

        `spots, spread`: (2, Hs, Ws) px, centres of the samples; (1, 2, Hs, Ws) px, their
        displacement; `start`: (1, C, 6) displacement of the cells.
        """
        beyond, base, left = (at.new_empty(each.shape) for each in (spread, start, start))
        samples, cells = spots[0].numel(), at.shape[1]
        self.made['derotate'](*one_each(samples + cells, _EACH),
                              [motion, lens, spots, spread.contiguous(), at, start.contiguous(),
                               beyond, base, left, samples, cells])
        return beyond, base, left

    def rates(self, fits: Fits, vouched: Tensor, at: Tensor, lens: Tensor, dt_s: Tensor,
              motion: Tensor) -> Tensor:
        """Compute `pair_looming` of the first pair and its motion.

        `vouched`: (N, C) 0 to 1; `lens`: as for `motion`, and the expected slant [1/px]; `dt_s`:
        (1,) time between the frames [s].
        """
        theta, covariance, inliers, _ = (part[0].contiguous() for part in fits)
        out = theta.new_empty(5 * len(theta))
        self.made['rates'](*one_each(len(theta), _EACH),
                           [theta, covariance, inliers, vouched[0].contiguous(), at, lens, dt_s,
                            motion, out, len(theta)])
        return out


def _warps(count: int) -> tuple[Grid, Grid]:
    return one_each(32 * count, 32 * _WARPS)


def read_pair(numbers: np.ndarray, dt_s: float) -> PairLooming:
    """Read what the kernels computed: a motion, then rates."""
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

    patches = {'STEPS': STEPS, 'STIFFNESS': f'{STIFFNESS}f', 'COARSE': COARSE,
               'SAMPLE_PX': SAMPLE_PX}
    images = read('image', 'flow', ROUND=0, **patches)
    ranks = {**_block(_RANK_THREADS), 'MOST_VALUES': _MOST_VALUES}
    pace = read('block', 'image', 'pace', HEAD=HEAD, MOST_FRAMES=MOST_FRAMES,
                MOST_EXPANSION=f'{estimator.MOST_EXPANSION}f', **ranks)
    evidence = read('block', 'image', 'evidence', SAMPLE_PX=SAMPLE_PX, UNIT=f'{affine.UNIT}f',
                    EDGE=f'{EDGE_PX[0]}f', FAR_EDGE=f'{EDGE_PX[1]}f', GRAIN=f'{grain(1)}f',
                    **ranks)
    wanted, share = affine.WANTED_S
    fit = read('fit', MOST_BLOCKS=_MOST_BLOCKS, WANTED=f'{wanted}f', WANTED_SHARE=f'{share}f',
               **{name: f'{getattr(affine, name)}f' for name in (
                   'FAKE', 'OWN_PX', 'WIDER_SEEN', 'WIDER_GAIN', 'WIDER_INLIERS')})
    motion = read('block', 'motion', **_block(_MOTION_THREADS), MOST_CELLS=_MOST_CELLS,
                  **constants(ego_motion, 'MOST_USED', 'LEAST_CELLS', 'LEAST_DEPTH', 'AGREE',
                              'SOFT', 'TURN_PRIOR', 'LOOSE_PX', 'LOOSE_SHARE', 'NEAR_PX',
                              'WALL_ROUNDS', 'BEHIND', 'LEAST_VARIANCE', 'STILL_SHARE',
                              'FIXED_SHARE', 'TURN_SHARE', 'MOVE_GAIN'))
    doubt, doubt_share = estimator.DOUBT_S
    rates = read('rates', PI=math.pi, LEAST_DEPTH=ego_motion.LEAST_DEPTH, DOUBT=doubt,
                 DOUBT_SHARE=doubt_share,
                 **constants(estimator, 'FINEST', 'TAPER', 'STATIC_ODDS', 'ANY_LOOMING'))
    return {'second': (read('image', 'flow', ROUND=1, **patches), 'search'),
            'first': (images, 'search'), 'choose': (pace, 'choose'), 'motion': (motion, 'motion'),
            **{name: (source, name) for source, names in (
                (images, ('blend', 'shrink', 'match', 'guess', 'warp', 'trusted')),
                (evidence, ('expose', 'align', 'evidence', 'quarter', 'weigh', 'table')),
                (fit, ('fit', 'settle', 'widen')),
                (rates, ('derotate', 'rates'))) for name in names}}


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
