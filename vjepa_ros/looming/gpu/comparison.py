# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Compare the CUDA kernels of looming with the other path before they are used."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import lru_cache, partial

import cv2
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from vjepa_ros.looming.affine import AffineFits, WindowFitter
from vjepa_ros.looming.ego_motion import Rays
from vjepa_ros.looming.estimator import pair_looming
from vjepa_ros.looming.flow import grain
from vjepa_ros.looming.gpu.evidence import Aligner, Samples, noise_energy, weigh
from vjepa_ros.looming.gpu.fit import DeviceFitter, turn_affine, turned_back
from vjepa_ros.looming.gpu.flow import Choice, DenseFlow, GlobalMotion, Trust
from vjepa_ros.looming.gpu.kernels import (
    Fits,
    HEAD,
    LoomingKernels,
    MOST_FRAMES,
    prepare_kernels,
    read_pair,
)
from vjepa_ros.runtime.cuda.compiler import KernelsMissing

log = logging.getLogger(__name__)

_SIZE = (128, 96)
_LOOSE = 0.15
_SAME = 1e-2   # px, and relative error, of half of the numbers that rounding may cause
_MEANS = ('gxx', 'gxy', 'gyy', 'hx', 'hy', 'energy', 'change')   # of `Samples`
_FEW = 8       # of so many numbers none may be wrong

# What is compared: its name, what the kernels compute, what is expected, and the scale of errors.
Check = tuple[str, Tensor, Tensor, float]


@lru_cache(maxsize=16)
def choose_kernels(device: torch.device) -> tuple[LoomingKernels | None, str]:
    """Compile and check the kernels for a device, once.

    That takes a second or two; see `prepare_kernels`.
    """
    pending = prepare_kernels(device)
    if pending is None:
        return None, ''
    try:
        kernels = pending.result()
        problem = disagreement(kernels, device)
    except KernelsMissing as error:
        log.info('looming on %s runs without kernels: %s', device, error)
        return None, str(error)
    if problem:
        log.warning('the looming kernels are wrong on %s: %s; looming runs without them, which is '
                    'slower', device, problem)
        return None, problem
    return kernels, ''


def disagreement(kernels: LoomingKernels, device: torch.device) -> str:
    """Name what the kernels compute differently from the other path; '' if nothing."""
    try:
        for name, got, expected, scale in _checks(kernels, device):
            errors = (got - expected).abs() / max(scale, 1e-12)
            error = float(errors.median() if errors.numel() > _FEW else errors.max())
            if not (bool(errors.isfinite().all()) and error < _SAME):
                return f'{name}: off by {error:.3g}'
    except np.linalg.LinAlgError as error:
        return f'motion of the camera: {error}'
    return ''


def _checks(kernels: LoomingKernels, device: torch.device) -> Iterator[Check]:
    w, h = _SIZE
    generator = torch.Generator().manual_seed(0)
    knots = 255 * torch.rand(1, 1, 28, 36, generator=generator)
    picture = functional.interpolate(knots, size=(h + 16, w + 16), mode='bicubic',
                                     align_corners=False)[0].to(device)
    newer, older = picture[:, 8:8 + h, 8:8 + w], picture[:, 10:10 + h, 11:11 + w]
    flow, ours = (DenseFlow(_SIZE, device, kernels=used)(newer, older) for used in (None, kernels))
    yield 'displacement', ours, flow, 1.0
    given = torch.zeros(HEAD + 2 * MOST_FRAMES)
    given[:HEAD] = torch.tensor([0, 1, 0.1, 0, 8, 0.5])
    rows = torch.arange(MOST_FRAMES)
    given[HEAD:] = torch.cat([rows + 7, 0.02 * (MOST_FRAMES - rows)])
    expected, got = (torch.cat(Choice(_SIZE, device, used)(given.to(device), newer, older))
                     for used in (None, kernels))
    yield 'choice of the frame', got, expected, 1.0
    expected, got = (Trust(_SIZE, device, used)(flow, -0.3 * flow, torch.tensor(
        [[1.1, -2.0, 3.0]], device=device)) for used in (None, kernels))
    for name, ours, wanted in zip(('joint displacement', 'trust'), got, expected, strict=True):
        yield name, ours, wanted, 1.0
    # Far apart, so that something is found.
    others = picture[:, :h, :w]
    wanted = torch.ones(1, device=device)
    whole, fast = (GlobalMotion(_SIZE, device, used) for used in (None, kernels))
    guess = whole(newer, others, wanted)
    yield 'motion of the image', fast(newer, others, wanted), guess, 1.0
    by = 0.9 * guess
    yield 'image moved as a whole', fast.warped(others, by), whole.warped(others, by), 1.0
    aligner, fast = Aligner(_SIZE, device, 1), Aligner(_SIZE, device, 1, kernels)
    pair = aligner.prepared(newer), aligner.prepared(0.8 * older + 10)
    moved, ours = aligner.moved(pair[1], flow), fast.moved(pair[1], flow)
    for name, got, expected in zip(('moved frame', 'inside'), ours, moved, strict=True):
        yield name, got, expected, 1.0
    samples, ours = (one.samples(pair[0], *moved, 0.5 * flow) for one in (aligner, fast))
    yield 'exposure', ours.exposure, samples.exposure, 1.0
    for name, got, expected in zip(_MEANS, ours.means[0], samples.means[0], strict=True):
        yield f'evidence {name}', got, expected, float(expected.abs().median())
    noise, trust = noise_energy(samples), 0.5 + 0.5 * samples.inside
    yield 'noise', noise_energy(samples, kernels), noise, float(noise[0])
    # As much noise as makes some of them count in part.
    loud = noise * float(samples.gradients.median() / (8 * grain(1) * noise))
    expected, got = (weigh(samples, trust, loud, 1, used) for used in (None, kernels))
    yield 'weight of the samples', got, expected, 1.0
    yield from _fits(kernels, samples, noise, trust)
    yield from _cells(kernels, device)


def _fits(kernels: LoomingKernels, samples: Samples, noise: Tensor,
          trust: Tensor) -> Iterator[Check]:
    device, grid = noise.device, (_SIZE[1] // 16, _SIZE[0] // 16)
    dt_s = torch.tensor([0.1], device=device)
    for block, across in ((16, 3), (8, 6), (16, 7)):
        plain, fast = (DeviceFitter(WindowFitter(grid, 16, block, across), device, grain(1),
                                    _LOOSE, used) for used in (None, kernels))
        start = None
        for thorough in (False, True):
            rooms = [one.room(1, 2, thorough) for one in (plain, fast)]
            for room in rooms:
                for part in room:
                    part.fill_(torch.nan)
            expected, got = (Fits(*(part[0] for part in room)) for room in rooms)
            owns = [one.measure(samples, trust, noise, out, start)
                    for one, out in ((plain, expected), (fast, got))]
            yield _relative(f'moments of cells with {across} blocks', owns[1], owns[0])
            for name, ours, wanted in zip(Fits._fields, got, expected, strict=True):
                yield _relative(f'{name} of windows of {across} blocks', ours, wanted)
            start = expected.theta
        for part in rooms[0]:
            part[1] = part[0]
        # A wider window is worth more in two of three cells.
        better = torch.arange(len(expected.theta[0]), device=device) % 3 > 0
        rooms[0].covariance.mul_(1e4)
        rooms[0].covariance[1, :, better] *= 0.1
        settled = [one.settle(expected, owns[0], noise) for one in (plain, fast)]
        yield _relative('settled displacement', settled[1], settled[0])
        base = 0.1 * expected.theta
        (expected, wanted), (got, vouched) = (one.widened(rooms[0], owns[0], noise, dt_s, base)
                                              for one in (plain, fast))
        for name, ours, theirs in zip(Fits._fields, got, expected, strict=True):
            yield _relative(f'widened {name}', ours, theirs)
        yield 'texture of the cells', vouched, wanted, 1.0


def _relative(name: str, got: Tensor, expected: Tensor) -> Check:
    return name, got, expected, float(expected.abs().median())


def _cells(kernels: LoomingKernels, device: torch.device) -> Iterator[Check]:
    """Compare motion of the camera and rates with those of the host."""
    random = np.random.default_rng(0)
    focal, dt_s, slant = 150.0, 0.1, 0.01
    columns, rows = (n // 16 for n in _SIZE)
    centers = 16 * np.stack(np.meshgrid(range(columns), range(rows)), -1).reshape(-1, 2) + 7.5
    rays = Rays((centers - 64) / focal, np.zeros((1, 1, 2)), focal)
    count = len(centers)
    put = partial(torch.as_tensor, dtype=torch.float32, device=device)
    at, lens = put(centers.T.copy()), put([focal, 64, 64, slant])
    # A camera that stands, that turns and that drives past what is near and far.
    for kind, turn, near in (('still', 0.0, 0.0), ('turn', 0.02, 0.0), ('move', 0.02, 0.1)):
        theta = random.normal(0, 0.01, (count, 6))
        moved = rays.cells - near * random.random((count, 1)) * (0.2 - rays.cells)
        ends = np.c_[moved, np.ones(count)] @ cv2.Rodrigues(np.array([turn, -turn, turn]))[0].T
        theta[:, ::3] = (random.normal(0, 0.05, (count, 2))
                         + focal * (ends[:, :2] / ends[:, 2:] - rays.cells))
        covariance = np.diag([0.01, 1e-5, 1e-5] * 2) * (0.5 + random.random((count, 1, 1)))
        fits = AffineFits(theta, covariance, random.uniform(0.3, 1, count), np.zeros(count))
        rough = rays.camera_motion(fits)
        expected = pair_looming(fits, rays, rough, fits.inliers, dt_s, slant)
        given = Fits(*(put(part)[None] for part in (theta, covariance, fits.inliers,
                                                    fits.misfit)))
        motion = kernels.motion(given, at, lens)
        spots = at.view(2, rows, columns)
        beyond, base, left = kernels.derotate(motion, lens, spots, spots[None], at, given.theta)
        places, matrix = (at - lens[1:3, None]) / focal, motion[45:].float().view(3, 3)
        away = (turned_back(places, matrix)[0] - places) * focal
        its = turn_affine(places, matrix, lens[0])
        for name, ours, wanted in (('samples', beyond[0].flatten(1), at - away),
                                   ('cells', left[0], given.theta[0] - its)):
            yield f'displacement of {name} without rotation', ours, wanted, 1.0
        yield 'displacement by rotation', base[0], its, 1e-3
        yield 'slopes by rotation', base[0][:, 1::4], its[:, 1::4], 1e-3
        refined = kernels.motion(given, at, lens, motion)
        rates = kernels.rates(given, given.inliers, at, lens, put([dt_s]), refined)
        got = read_pair(torch.cat([refined.float(), rates]).cpu().numpy(), dt_s)
        same = torch.tensor(float(got.motion.kind == kind))
        yield f'a camera that is {kind}', same, torch.ones(()), 1.0
        for name, scale in (('rotation', 0.01), ('direction', 1.0)):
            ours, wanted = (torch.from_numpy(getattr(one.motion, name)) for one in (got, expected))
            yield f'{name} of the camera', ours, wanted, scale
        for name in ('rate', 'sigma', 'confidence', 'flow'):
            ours, wanted = (torch.from_numpy(getattr(one, name)) for one in (got, expected))
            yield f'{name} of the cells', ours, wanted, float(wanted.abs().median())
