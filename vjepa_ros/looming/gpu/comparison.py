# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Compare the CUDA kernels of looming with the plain path, on pictures and cells made for that."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from vjepa_ros.looming.affine import AffineFits, WindowFitter
from vjepa_ros.looming.expansion import View, pair_looming
from vjepa_ros.looming.flow import grain
from vjepa_ros.looming.gpu.align import Aligner, Samples, noise_energy, signal_share
from vjepa_ros.looming.gpu.fit import DeviceFitter
from vjepa_ros.looming.gpu.flow import DenseFlow, GlobalMotion, Pace
from vjepa_ros.looming.gpu.frame_pair import MOST_FRAMES, Belief, choose
from vjepa_ros.looming.gpu.kernels import LoomingKernels, told_pair
from vjepa_ros.looming.rotation import turned

_SIZE = (128, 96)
_LOOSE = 0.15
_SAME = 1e-2   # px, and relative error, that rounding may make on half of the places

_FEW = 8       # of so many numbers none may be wrong

# What is compared: its name, what the kernels give, what is expected, and what an error is
# measured by.
Check = tuple[str, Tensor, Tensor, float]


def disagreement(kernels: LoomingKernels, device: torch.device) -> str:
    """What of the kernels is not as in the plain path; ''."""
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
    pace, ours = (Pace(_SIZE, device, used)(newer, older) for used in (None, kernels))
    yield 'pace', ours, pace, 1.0
    # Far apart, so that something is found.
    others = picture[:, :h, :w]
    wanted = torch.ones(1, dtype=torch.bool, device=device)
    guess, ours = (GlobalMotion(_SIZE, device, used)(newer, others, wanted)
                   for used in (None, kernels))
    yield 'motion of the image', ours, guess, 1.0
    head = [0.0, 1.0, 0.1, 0.0, 4.0, 0.35]
    ages = [0.02 * (k + 1) for k in range(MOST_FRAMES)]
    frames = torch.tensor([*head, *range(7, 7 + MOST_FRAMES), *ages], device=device)
    for name, ours, wanted in zip(('number', 'row', 'age', 'distance'),
                                  choose(frames, pace, kernels), choose(frames, pace),
                                  strict=True):
        yield f'{name} of the frame chosen', ours, wanted, 1.0
    turned_back = 0.5 * torch.randn(flow.shape, generator=generator).to(device) - flow
    believed, ours = (Belief(_SIZE, device, used)(flow, turned_back, guess)
                      for used in (None, kernels))
    yield 'displacement with that of the image', ours[0], believed[0], 1.0
    yield 'trust by the way back', ours[1], believed[1], 1.0
    plain, fast = (Aligner(_SIZE, device, 1, used) for used in (None, kernels))
    for reduce in (1, 2):
        blurred, ours = (Aligner(_SIZE, device, reduce, used).prepared(newer)
                         for used in (None, kernels))
        yield f'picture at 1/{reduce}', ours, blurred, 1.0
    given = plain.prepared(newer), 0.8 * plain.prepared(older) + 7, flow, 0.5 * flow
    samples, ours = plain.samples(*given), fast.samples(*given)
    yield 'exposure', ours.exposure, samples.exposure, 1.0
    for name in ('gxx', 'gxy', 'gyy', 'hx', 'hy', 'energy', 'change'):
        expected = getattr(samples, name)
        yield name, getattr(ours, name), expected, float(expected.abs().median())
    yield 'inside', ours.inside, samples.inside, 1.0
    noise, trust = noise_energy(samples), 0.5 + 0.5 * samples.inside
    yield 'noise', noise_energy(samples, kernels), noise, float(noise[0])
    # Noise at which texture is trusted in part.
    much = (samples.gxx + samples.gyy).median().reshape(1) / (8 * grain(1))
    yield ('trust', signal_share(samples, trust, much, 1, kernels),
           signal_share(samples, trust, much, 1), 1.0)
    yield from _fits(kernels, samples, noise, trust)
    yield from _cells(kernels, device)


def _fits(kernels: LoomingKernels, samples: Samples, noise: Tensor,
          trust: Tensor) -> Iterator[Check]:
    device, (columns, rows) = noise.device, (n // 16 for n in _SIZE)
    fits = []
    for block, across in ((16, 3), (8, 6), (16, 7)):
        host = WindowFitter((rows, columns), 16, block, across)
        plain, fast = DeviceFitter(host, device), DeviceFitter(host, device, kernels)
        fast.prepare(grain(1), _LOOSE)
        moments = plain.moments(samples, trust)
        yield (f'moments of windows of {across} blocks', fast.moments(samples, trust), moments,
               float(moments.abs().median()))
        start = None
        for thorough in (False, True):
            expected, got = (one.fit(moments, noise, grain(1), _LOOSE, start, thorough)
                             for one in (plain, fast))
            for name, wanted in vars(expected).items():
                yield (f'{name} of windows of {across} blocks', getattr(got, name), wanted,
                       float(wanted.abs().median()))
            start = expected.theta
        fits.append(expected)
    seen, dt_s = torch.ones_like(fits[0].inliers), torch.full((1,), 1e-3, device=device)
    better, ours = (fits[1].widened(fits[2], seen, dt_s, used) for used in (None, kernels))
    for name, wanted in vars(better).items():
        yield (f'{name} of the better windows', getattr(ours, name), wanted,
               float(wanted.abs().median()))


def _cells(kernels: LoomingKernels, device: torch.device) -> Iterator[Check]:
    """Motion of the camera and rates, which are the host's without kernels."""
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
        expected = pair_looming(fits, view, rough, parts[2], dt_s, slant)
        given = tuple(map(put, parts))
        motion = kernels.motion(given, at, lens)
        refined = kernels.motion(given, at, lens, motion)
        rates = kernels.rates(given, given[2], at, lens, put([dt_s]), refined)
        got = told_pair(torch.cat([refined.float(), rates]).cpu().numpy(), dt_s)
        same = torch.tensor(float(got.motion.kind == kind))
        yield f'a camera that is {kind}', same, torch.ones(()), 1.0
        for name, scale in (('rotation', 0.01), ('direction', 1.0)):
            yield (f'{name} of the camera', *(torch.from_numpy(getattr(one.motion, name))
                                              for one in (got, expected)), scale)
        for name in ('rate', 'sigma', 'confidence', 'flow'):
            ours, wanted = (torch.from_numpy(getattr(one, name)) for one in (got, expected))
            yield f'{name} of the cells', ours, wanted, float(wanted.abs().median())
