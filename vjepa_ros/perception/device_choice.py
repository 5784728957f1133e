# SPDX-License-Identifier: Apache-2.0
"""Choose between the CUDA kernels of looming and the plain path, by comparing them."""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache, partial

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from vjepa_ros.perception.affine import _FAKE, AffineFits, WindowFitter
from vjepa_ros.perception.device_align import Aligner, noise_energy
from vjepa_ros.perception.device_fit import DeviceFitter
from vjepa_ros.perception.device_flow import STEPS, STIFFNESS, DenseFlow
from vjepa_ros.perception.device_kernels import LoomingKernels, told_pair
from vjepa_ros.perception.expansion import View, pair_looming
from vjepa_ros.perception.flow import grain
from vjepa_ros.perception.rotation import turned
from vjepa_ros.runtime.kernels import KernelsMissing

log = logging.getLogger(__name__)

_SIZE = (128, 96)
_LOOSE = 0.15
_SAME = 1e-2   # px, and relative error of the fits, that rounding may make on half of the places


@lru_cache(maxsize=16)
def prepare_kernels(device: torch.device) -> Future[LoomingKernels] | None:
    """Begin to compile the kernels for a device, once, beside what else happens."""
    if device.type != 'cuda':
        return None
    worker = ThreadPoolExecutor(1, 'looming_kernels')
    try:
        return worker.submit(_build, device)
    finally:
        worker.shutdown(wait=False)


def _build(device: torch.device) -> LoomingKernels:
    with torch.cuda.device(device):
        # A new thread has no CUDA context, and modules are loaded into one, until it does work.
        torch.zeros(1, device=device)
        return LoomingKernels.build(STEPS, STIFFNESS, _FAKE)


@lru_cache(maxsize=16)
def choose_kernels(device: torch.device) -> tuple[LoomingKernels | None, str]:
    """Kernels that agree with the plain path on a device, or None and why; '' off CUDA.

    They are made once for each device; that takes a second or two, see `prepare_kernels`.
    """
    pending = prepare_kernels(device)
    if pending is None:
        return None, ''
    try:
        kernels = pending.result()
        problem = disagreement(kernels, device)
    except KernelsMissing as error:
        log.info('looming on %s runs without kernels of its own: %s', device, error)
        return None, str(error)
    if problem:
        log.warning('the looming kernels are wrong on %s: %s; the plain path is used instead, '
                    'which is slower', device, problem)
        return None, problem
    return kernels, ''


def disagreement(kernels: LoomingKernels, device: torch.device) -> str:
    """What of the kernels is not as in the plain path; ''."""
    w, h = _SIZE
    generator = torch.Generator().manual_seed(0)
    knots = 255 * torch.rand(1, 1, 28, 36, generator=generator)
    picture = functional.interpolate(knots, size=(h + 16, w + 16), mode='bicubic',
                                     align_corners=False)[0].to(device)
    newer, older = picture[:, 8:8 + h, 8:8 + w], picture[:, 10:10 + h, 11:11 + w]
    flow, ours = (DenseFlow(_SIZE, device, kernels=used)(newer, older) for used in (None, kernels))
    if not (error := _typical(ours, flow, 1.0)) < _SAME:
        return f'displacements differ by {error:.3g} px'
    aligner, fast_aligner = (Aligner(_SIZE, device, 1, used) for used in (None, kernels))
    given = aligner.prepared(newer), 0.8 * aligner.prepared(older) + 7, flow
    samples, others = aligner.samples(*given), fast_aligner.samples(*given)
    if not (error := _typical(others.exposure, samples.exposure, 1.0)) < _SAME:
        return f'exposures differ by {error:.3g}'
    noise, trust = noise_energy(samples), torch.ones_like(samples.gxx)
    if not (error := _typical(noise_energy(samples, kernels), noise, float(noise[0]))) < _SAME:
        return f'the noise is off by {error:.3g}'
    fits = []
    for block, across in ((16, 3), (8, 6), (16, 7)):
        host = WindowFitter((h // 16, w // 16), 16, block, across)
        plain, fast = DeviceFitter(host, device), DeviceFitter(host, device, kernels)
        fast.prepare(grain(1), _LOOSE)
        moments = plain.moments(samples, trust)
        start = None
        for thorough in (False, True):
            expected, got = (one.fit(moments, noise, grain(1), _LOOSE, start, thorough)
                             for one in (plain, fast))
            for name, wanted in vars(expected).items():
                error = _typical(getattr(got, name), wanted, float(wanted.abs().median()))
                if not error < _SAME:
                    return f'{name} of windows of {across} blocks is off by {error:.3g}'
            start = expected.theta
        fits.append(expected)
    seen, dt_s = torch.ones_like(fits[0].inliers), torch.full((1,), 1e-3, device=device)
    for name, wanted in vars(fits[1].widened(fits[2], seen, dt_s)).items():
        got = getattr(fits[1].widened(fits[2], seen, dt_s, kernels), name)
        if not (error := _typical(got, wanted, float(wanted.abs().median()))) < _SAME:
            return f'{name} of the better windows is off by {error:.3g}'
    return _motion_disagreement(kernels, device)


def _motion_disagreement(kernels: LoomingKernels, device: torch.device) -> str:
    """The same of the motion of the camera and the rates, which are the host's without kernels."""
    random = np.random.default_rng(0)
    focal, dt_s, slant = 150.0, 0.1, 0.01
    columns, rows = (n // 16 for n in _SIZE)
    centers = 16 * np.stack(np.meshgrid(range(columns), range(rows)), -1).reshape(-1, 2) + 7.5
    view = View((centers - 64) / focal, np.zeros((1, 1, 2)), focal)
    count = len(centers)
    put = partial(torch.as_tensor, dtype=torch.float32, device=device)
    at, lens = put(centers.T.copy()), put([focal, 64, 64, slant])
    # A camera that stands, that turns and that drives past what is near and far.
    for kind, turn, near in (('still', 0.0, 0.0), ('turn', 0.02, 0.0), ('move', 0.02, 0.1)):
        theta = random.normal(0, 0.01, (count, 6))
        moved = view.rays - near * random.random((count, 1)) * (0.2 - view.rays)
        theta[:, ::3] = random.normal(0, 0.05, (count, 2)) + focal * (
            np.stack(turned(*moved.T, np.array([turn, -turn, turn]))[:2], -1) - view.rays)
        covariance = np.diag([0.01, 1e-5, 1e-5] * 2) * (0.5 + random.random((count, 1, 1)))
        parts = theta, covariance, random.uniform(0.3, 1, count), np.zeros(count)
        fits = AffineFits(theta, covariance, parts[3], *parts[2:])
        rough = view.camera_motion(fits)
        if rough.kind != kind:
            raise RuntimeError(f'cells made to show {kind} show {rough.kind}')
        expected = pair_looming(fits, view, rough, parts[2], dt_s, slant)
        given = tuple(map(put, parts))
        motion = kernels.motion(given, at, lens)
        refined = kernels.motion(given, at, lens, motion)
        rates = kernels.rates(given, given[2], at, lens, put([dt_s]), refined)
        try:
            got = told_pair(torch.cat([refined.float(), rates]).cpu().numpy(), dt_s)
        except np.linalg.LinAlgError as error:
            return f'the motion of the camera is none: {error}'
        if got.motion.kind != kind:
            return f'the camera is told to {got.motion.kind} instead of {kind}'
        for name, scale in (('rotation', 0.01), ('direction', 1.0)):
            error = np.abs(getattr(got.motion, name) - getattr(expected.motion, name)).max()
            if not error < _SAME * scale:
                return f'the {name} of the camera is off by {error:.3g}'
        for name in ('rate', 'sigma', 'confidence', 'flow'):
            one, other = (torch.from_numpy(getattr(pair, name)) for pair in (got, expected))
            if not (error := _typical(one, other, float(other.abs().median()))) < _SAME:
                return f'the {name} of the cells is off by {error:.3g}'
    return ''


def _typical(got: Tensor, expected: Tensor, scale: float) -> float:
    """Median error over a scale; NaN where anything is not finite."""
    error = (got - expected).abs() / max(scale, 1e-12)
    return float(error.median()) if bool(error.isfinite().all()) else float('nan')
