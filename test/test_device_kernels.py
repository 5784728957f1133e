# SPDX-License-Identifier: Apache-2.0
"""The CUDA kernels of looming do what the plain path does; their source runs on the CPU here."""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
import pytest
import torch
from warp_on_host import COMPILER, compiled

from vjepa_ros.perception import device_choice
from vjepa_ros.perception.affine import _FAKE, WindowFitter
from vjepa_ros.perception.device_align import Aligner, noise_energy
from vjepa_ros.perception.device_choice import disagreement
from vjepa_ros.perception.device_fit import DeviceFitter, Fits
from vjepa_ros.perception.device_flow import STEPS, STIFFNESS, DenseFlow
from vjepa_ros.perception.device_kernels import LoomingKernels, sources
from vjepa_ros.runtime.kernels import KernelsMissing

pytestmark = pytest.mark.skipif(COMPILER is None, reason='no g++ to compile the kernels with')
CPU = torch.device('cpu')
SIZE = (128, 96)


@pytest.fixture(scope='module')
def kernels(tmp_path_factory):
    folder = tmp_path_factory.mktemp('kernels')
    return LoomingKernels(**{key: compiled(source, name, folder) for key, (source, name)
                             in sources(STEPS, STIFFNESS, _FAKE).items()})


@pytest.fixture(scope='module')
def pair():
    """Two frames, the older one shifted and shrunk."""
    rng = np.random.default_rng(0)
    picture = cv2.resize(rng.uniform(0, 255, (40, 52)).astype(np.float32), (208, 160),
                         interpolation=cv2.INTER_CUBIC)
    frames = [picture[20:116, 30:158],
              cv2.warpAffine(picture, np.array([[0.97, 0, -28], [0, 0.97, -17.5]]), SIZE)]
    noise = rng.normal(0, 1, (2, *SIZE[::-1]))
    return torch.from_numpy(np.stack(frames) + noise).float()


def test_the_search_gives_what_the_plain_one_gives(kernels, pair):
    plain, ours = DenseFlow(SIZE, CPU), DenseFlow(SIZE, CPU, kernels=kernels)
    newer, older = pair, pair.flip(0)
    expected, got = plain(newer, older), ours(newer, older)
    assert expected.abs().max() > 2
    assert got.shape == expected.shape
    assert (got - expected).abs().median() < 1e-3
    assert (got - expected).abs().quantile(0.99) < 0.05    # a tie of neighbours may differ


@pytest.mark.parametrize('across', [3, 6, 7])
@pytest.mark.parametrize('thorough', [True, False])
@pytest.mark.parametrize('started', [True, False])
def test_the_fits_are_those_of_the_plain_path(kernels, pair, across, thorough, started):
    block = 8 if across == 6 else 16
    host = WindowFitter((6, 8), 16, block, across)
    plain, ours = DeviceFitter(host, CPU), DeviceFitter(host, CPU, kernels)
    ours.prepare(0.06, 0.15)
    aligner = Aligner(SIZE, CPU, 1)
    newer, older = aligner.prepared(pair), aligner.prepared(pair.flip(0))
    samples = aligner.samples(newer, older, DenseFlow(SIZE, CPU)(pair, pair.flip(0)))
    noise = noise_energy(samples)
    moments = plain.moments(samples, torch.ones_like(samples.gxx))
    start = 0.02 * torch.randn(2, 48, 6, generator=torch.Generator().manual_seed(1)) \
        if started else None
    expected, got = (one.fit(moments, noise, 0.06, 0.15, start, thorough)
                     for one in (plain, ours))
    for name in ('theta', 'covariance', 'inliers', 'misfit'):
        a, b = getattr(got, name), getattr(expected, name)
        assert a.shape == b.shape
        scale = b.abs().flatten(2).amax(-1) if b.ndim > 2 else b.abs()
        error = (a - b).abs().flatten(2).amax(-1) if b.ndim > 2 else (a - b).abs()
        assert (error / scale.clamp_min(1e-6)).max() < 1e-2, name


@pytest.mark.parametrize('inside', [1.0, 0.7, 0.02])
def test_exposure_and_noise_are_those_of_the_plain_path(kernels, pair, inside):
    plain, ours = Aligner(SIZE, CPU, 1), Aligner(SIZE, CPU, 1, kernels)
    newer, older = plain.prepared(pair), 0.7 * plain.prepared(pair.flip(0)) + 20
    flow = DenseFlow(SIZE, CPU)(pair, pair.flip(0))
    lost = torch.rand(2, 1, 24, 32, generator=torch.Generator().manual_seed(2)) > inside
    flow = torch.where(lost, 1000.0, flow)
    expected, got = plain.samples(newer, older, flow), ours.samples(newer, older, flow)
    assert (expected.exposure[:, 0] - 1).abs().max() > 0.1 or inside < 0.1
    torch.testing.assert_close(got.exposure, expected.exposure, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(noise_energy(expected, kernels), noise_energy(expected),
                               rtol=1e-4, atol=1e-5)


def test_wider_windows_are_taken_like_on_the_plain_path(kernels):
    rng = torch.Generator().manual_seed(3)

    def fits():
        root = 0.1 * torch.randn(2, 48, 6, 6, generator=rng)
        return Fits(torch.randn(2, 48, 6, generator=rng), root @ root.transpose(-1, -2),
                    torch.rand(2, 48, generator=rng), torch.rand(2, 48, generator=rng))

    ours, wide = fits(), fits()
    seen, dt_s = torch.rand(2, 48, generator=rng), torch.tensor([0.1, 2.0])
    expected, got = (ours.widened(wide, seen, dt_s, used) for used in (None, kernels))
    changed = (expected.theta != ours.theta).any(-1)
    assert 5 < changed.sum() < 90
    for name, values in vars(expected).items():
        torch.testing.assert_close(getattr(got, name), values, rtol=0, atol=0)


def test_a_fitter_that_is_not_prepared_says_so(kernels):
    fitter = DeviceFitter(WindowFitter((6, 8), 16, 16, 3), CPU, kernels)
    with pytest.raises(KeyError, match='not prepared'):
        fitter.fit(torch.zeros(1, 48, 9, 26), torch.ones(1), 0.06, 0.15)


def test_kernels_are_compared_with_the_plain_path_before_they_are_used(kernels):
    assert disagreement(kernels, CPU) == ''
    lost = replace(kernels, spread=lambda grid, block, given: given[2].zero_())
    assert 'displacements differ' in disagreement(lost, CPU)

    def wrong(grid, block, given):
        kernels.fit(grid, block, given)
        given[4].mul_(1.1)

    assert 'theta of windows of 3 blocks is off by' in disagreement(replace(kernels, fit=wrong),
                                                                    CPU)


@pytest.mark.parametrize(('change', 'said'), [
    ({}, ''), ({'spread': lambda grid, block, given: given[2].zero_()}, 'displacements differ')])
def test_the_choice_says_why_the_plain_path_is_taken(kernels, monkeypatch, caplog, change, said):
    # A device of a kind that has kernels, on which everything runs on the CPU.
    monkeypatch.setattr(device_choice, '_build', lambda device: replace(kernels, **change))
    monkeypatch.setattr(device_choice, 'disagreement', lambda made, device:
                        disagreement(made, CPU))
    for cached in (device_choice.prepare_kernels, device_choice.choose_kernels):
        cached.cache_clear()
    found, reason = device_choice.choose_kernels(torch.device('cuda:7'))
    assert (found is None) == bool(said)
    assert said in reason
    assert ('looming kernels are wrong on cuda:7' in caplog.text) == bool(said)
    for cached in (device_choice.prepare_kernels, device_choice.choose_kernels):
        cached.cache_clear()


def test_without_a_compiler_the_plain_path_is_taken(monkeypatch):
    def missing(device):
        raise KernelsMissing('no compiler')

    monkeypatch.setattr(device_choice, '_build', missing)
    for cached in (device_choice.prepare_kernels, device_choice.choose_kernels):
        cached.cache_clear()
    assert device_choice.choose_kernels(torch.device('cuda:6')) == (None, 'no compiler')
    assert device_choice.choose_kernels(CPU) == (None, '')
    for cached in (device_choice.prepare_kernels, device_choice.choose_kernels):
        cached.cache_clear()
