# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The CUDA kernels of looming do what the plain path does; their source runs on the CPU here."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter

import cv2
import numpy as np
import pytest
import torch
from looming_films import Wall, film
from test_camera_motion import FOCAL, scene
from warp_on_host import COMPILER, compiled

from vjepa_ros.looming.affine import _FAKE, AffineFits, WindowFitter
from vjepa_ros.looming.expansion import View
from vjepa_ros.looming.gpu import choice
from vjepa_ros.looming.gpu import estimator as device_looming
from vjepa_ros.looming.gpu.align import Aligner, noise_energy
from vjepa_ros.looming.gpu.comparison import disagreement
from vjepa_ros.looming.gpu.estimator import DeviceLooming
from vjepa_ros.looming.gpu.fit import DeviceFitter, Fits
from vjepa_ros.looming.gpu.flow import STEPS, STIFFNESS, DenseFlow
from vjepa_ros.looming.gpu.kernel_sources import sources
from vjepa_ros.looming.gpu.kernels import MOTION_NUMBERS, LoomingKernels, told_pair
from vjepa_ros.runtime.cuda.graph_replay import Queue
from vjepa_ros.runtime.forward.kernels import KernelsMissing

pytestmark = [pytest.mark.slow,
              pytest.mark.skipif(COMPILER is None, reason='no g++ to compile the kernels with')]
CPU = torch.device('cpu')
SIZE = (128, 96)
# A kernel, what of its arguments it writes, how that is spoilt, and what is said then.
WRONG = [
    ('spread', 2, torch.Tensor.zero_, 'displacement: off'),
    ('pace', 1, lambda out: out.mul_(1.1), 'pace: off'),
    ('guess', 3, torch.Tensor.zero_, 'motion of the image: off'),
    ('choose', 2, lambda out: out[1].add_(1), 'row of the frame chosen: off'),
    ('believe', 4, lambda out: out.mul_(1.1), 'trust by the way back: off'),
    ('smooth', 1, lambda out: out.mul_(0.99), 'picture at 1/1: off'),
    ('expose', 2, lambda out: out.mul_(1.1), 'exposure: off'),
    ('shift', 4, lambda out: out[:, 1].mul_(0.9), 'exposure: off'),
    ('evidence', 4, lambda out: out[0, 4].mul_(1.1), 'hy: off'),
    ('quarter', 2, lambda out: out.mul_(1.1), 'noise: off'),
    ('share', 3, lambda out: out.mul_(1.1), 'trust: off'),
    ('table', 3, lambda out: out.mul_(1.1), 'moments of windows of 3 blocks: off'),
    ('fit', 4, lambda out: out.mul_(1.1), 'theta of windows of 3 blocks: off'),
    ('widen', 11, lambda out: out.mul_(1.1), 'covariance of the better windows: off'),
    ('move', 7, lambda out: out[1].add_(0.01), 'rotation of the camera: off'),
    ('move', 7, lambda out: out[1].fill_(torch.nan), 'motion of the camera: the displacements'),
    ('loom', 8, lambda out: out.mul_(1.1), 'rate of the cells: off')]


@pytest.fixture(scope='module')
def kernels(tmp_path_factory):
    folder = tmp_path_factory.mktemp('kernels')
    return LoomingKernels({key: compiled(source, name, folder) for key, (source, name)
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
    for name, place, change, said in WRONG:
        def wrong(grid, block, given, name=name, place=place, change=change):
            kernels.made[name](grid, block, given)
            change(given[place])

        made = LoomingKernels({**kernels.made, name: wrong})
        assert disagreement(made, CPU).startswith(said), name


@pytest.mark.parametrize(('change', 'said'), [
    ({}, ''), ({'spread': lambda grid, block, given: given[2].zero_()}, 'displacement: off')])
def test_the_choice_says_why_the_plain_path_is_taken(kernels, monkeypatch, caplog, change, said):
    # A device of a kind that has kernels, on which everything runs on the CPU.
    monkeypatch.setattr(choice, '_build', lambda device:
                        LoomingKernels({**kernels.made, **change}))
    monkeypatch.setattr(choice, 'disagreement', lambda made, device:
                        disagreement(made, CPU))
    for cached in (choice.prepare_kernels, choice.choose_kernels):
        cached.cache_clear()
    found, reason = choice.choose_kernels(torch.device('cuda:7'))
    assert (found is None) == bool(said)
    assert said in reason
    assert ('looming kernels are wrong on cuda:7' in caplog.text) == bool(said)
    for cached in (choice.prepare_kernels, choice.choose_kernels):
        cached.cache_clear()


def test_without_a_compiler_the_plain_path_is_taken(monkeypatch):
    def missing(device):
        raise KernelsMissing('no compiler')

    monkeypatch.setattr(choice, '_build', missing)
    for cached in (choice.prepare_kernels, choice.choose_kernels):
        cached.cache_clear()
    assert choice.choose_kernels(torch.device('cuda:6')) == (None, 'no compiler')
    assert choice.choose_kernels(CPU) == (None, '')
    for cached in (choice.prepare_kernels, choice.choose_kernels):
        cached.cache_clear()


@pytest.fixture
def both(kernels, monkeypatch):
    """The looming of a history without kernels and with them."""
    def found(history):
        for used in (None, kernels):
            monkeypatch.setattr(device_looming, 'choose_kernels',
                                lambda device, used=used: (used, ''))
            estimator = DeviceLooming(Queue(CPU))
            yield estimator.estimate(history, FOCAL / 3)
            assert ('kernels' in estimator.how) == (used is not None)

    return found


@pytest.mark.parametrize('size', [SIZE, (96, 64), (320, 90)])
def test_looming_by_kernels_is_that_without(both, size):
    history, _, _ = film([Wall((0, 0, 2))], velocity=(0, 0.2, 1), turn=(0, 0.1, 0), dt=1 / 15)
    history = [(stamp, cv2.resize(frame, size, interpolation=cv2.INTER_AREA))
               for stamp, frame in history]
    plain, ours = both(history)
    assert ours.dt_s == plain.dt_s
    np.testing.assert_allclose(ours.rotation, plain.rotation, atol=1e-3)
    np.testing.assert_allclose(ours.direction, plain.direction, atol=1e-3)
    known = np.isfinite(plain.rate)
    assert known.mean() > 0.8 and (np.isfinite(ours.rate) == known).all()
    assert (np.abs(ours.rate - plain.rate)[known] < 0.01 * plain.sigma[known]).mean() > 0.95
    np.testing.assert_allclose(ours.confidence, plain.confidence, atol=1e-3)
    np.testing.assert_allclose(ours.flow[known], plain.flow[known], atol=0.01)


def test_black_pictures_tell_nothing(both):
    for found in both([(10**9 + k * 10**8, np.zeros(SIZE[::-1], np.uint8)) for k in range(4)]):
        assert np.isnan(found.rate).all() and (found.confidence < 0.3).all()
        assert found.direction is None and (found.rotation == 0).all()


def test_cells_that_tell_nothing_fail_as_without_kernels():
    numbers = np.zeros(MOTION_NUMBERS + 10, np.float32)
    assert told_pair(numbers, 0.1).motion.direction is None
    numbers[2] = np.nan
    with pytest.raises(np.linalg.LinAlgError, match='singular'):
        told_pair(numbers, 0.1)


def test_the_motion_of_the_camera_is_that_of_the_host_whatever_it_is(kernels):
    kinds = Counter()
    for seed in range(0, 120, 7):
        at, to, covariance = scene(seed)
        theta = np.zeros((len(at), 6))
        theta[:, ::3] = (to - at) * FOCAL
        given = theta, covariance, np.ones(len(at)), np.zeros(len(at))
        fits = tuple(torch.from_numpy(part).float() for part in given)
        single = [part.double().numpy() for part in fits]
        rays = (torch.from_numpy(at.T.copy()) * FOCAL).float()
        view = View(rays.double().numpy().T / FOCAL, np.zeros((1, 1, 2)), FOCAL)
        cells = AffineFits(single[0], single[1], single[3], *single[2:])
        first = view.camera_motion(cells)
        lens = torch.tensor([FOCAL, 0, 0, 0.01])
        motion = kernels.motion(fits, rays, lens)
        for expected, got in ((first, motion), (view.camera_motion(cells, first),
                                                kernels.motion(fits, rays, lens, motion))):
            told = told_pair(np.concatenate([got.float(), np.zeros(5)]), 0.1).motion
            assert told.kind == expected.kind
            np.testing.assert_allclose(told.rotation, expected.rotation, atol=1e-5)
            np.testing.assert_allclose(told.covariance, expected.covariance, rtol=1e-3,
                                       atol=1e-4 * np.abs(expected.covariance).max())
            assert told.agreement == pytest.approx(expected.agreement, abs=1e-5)
            if expected.direction is not None:
                np.testing.assert_allclose(told.direction, expected.direction, atol=1e-4)
        kinds[first.kind] += 1
    assert len(kinds) >= 3, kinds


def test_where_nothing_moves_a_cell_in_the_middle_does_no_harm(kernels):
    at = torch.cartesian_prod(torch.arange(-3.0, 4), torch.arange(-3.0, 4)).T.contiguous()
    count = at.shape[1]
    fits = (torch.zeros(count, 6), 0.01 * torch.eye(2).repeat(count, 1, 1), torch.ones(count),
            torch.zeros(count))
    motion = kernels.motion(fits, 16 * at, torch.tensor([FOCAL, 0, 0, 0.01]))
    told = told_pair(np.concatenate([motion, np.zeros(5)]), 0.1).motion
    assert told.kind == 'still' and told.agreement == pytest.approx(1)
    np.testing.assert_array_equal(told.direction, [0, 0, 1])


@pytest.mark.skipif(shutil.which('nvcc') is None, reason='no nvcc here')
def test_the_compiler_of_cuda_takes_every_kernel(tmp_path):
    # What g++ forgives, as an ambiguous call, it does not.
    for key, (source, _) in sources(STEPS, STIFFNESS, _FAKE).items():
        (tmp_path / f'{key}.cu').write_text(source, encoding='utf-8')
    done = subprocess.run(['nvcc', '-ptx', '-arch=sm_80', *(f'{key}.cu' for key in sources(
        STEPS, STIFFNESS, _FAKE))], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
