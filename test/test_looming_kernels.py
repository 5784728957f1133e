# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The CUDA kernels of looming compute what the other path does; g++ runs their source here."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter

import cv2
import numpy as np
import pytest
import torch
from gyroscope_films import gyroscope
from looming_films import Wall, film
from test_ego_motion import FOCAL, scene
from warp_on_host import COMPILER, compiled

from vjepa_ros.clip.device_resize import kernel_source
from vjepa_ros.looming.affine import AffineFits
from vjepa_ros.looming.ego_motion import Rays
from vjepa_ros.looming.gpu import comparison, kernels
from vjepa_ros.looming.gpu import estimator as device_looming
from vjepa_ros.looming.gpu.comparison import choose_kernels, disagreement
from vjepa_ros.looming.gpu.estimator import DeviceLooming
from vjepa_ros.looming.gpu.kernels import (
    Fits,
    LoomingKernels,
    prepare_kernels,
    read_pair,
    sources,
)
from vjepa_ros.runtime.cuda.compiler import KernelsMissing, source_of
from vjepa_ros.runtime.cuda.graph_replay import DeviceStream

pytestmark = pytest.mark.slow
CPU = torch.device('cpu')
SIZE = (128, 96)
# A kernel, what of its arguments it writes, how that is spoilt, and what is reported.
WRONG = [
    ('second', 4, torch.Tensor.zero_, 'displacement'),
    ('blend', 2, lambda out: out.mul_(1.1), 'displacement'),
    ('shrink', 1, torch.Tensor.zero_, 'displacement'),
    ('choose', 2, lambda out: out[1].add_(1), 'choice of the frame'),
    ('trusted', 4, lambda out: out.mul_(0.9), 'trust'),
    ('match', 2, torch.Tensor.zero_, 'motion of the image'),
    ('guess', 3, lambda out: out[0, 1].add_(1), 'motion of the image'),
    ('warp', 2, lambda out: out.add_(1), 'image moved as a whole'),
    ('align', 2, lambda out: out.add_(1), 'moved frame'),
    ('align', 3, torch.Tensor.zero_, 'inside'),
    ('expose', 2, lambda out: out.mul_(1.1), 'exposure'),
    ('evidence', 4, lambda out: out[0, 4].mul_(1.1), 'evidence hy'),
    ('quarter', 2, lambda out: out.mul_(1.1), 'noise'),
    ('weigh', 3, lambda out: out.mul_(0.9), 'weight of the samples'),
    ('table', 3, lambda out: out.mul_(1.1), 'moments of cells with 3 blocks'),
    ('fit', 4, lambda out: out.mul_(1.1), 'theta of windows of 3 blocks'),
    ('settle', 5, lambda out: out.mul_(1.1), 'settled displacement'),
    ('widen', 10, lambda out: out.mul_(1.1), 'widened covariance'),
    ('widen', 13, lambda out: out.mul_(0.9), 'texture of the cells'),
    ('motion', 7, lambda out: out[1].add_(0.01), 'rotation of the camera'),
    ('motion', 7, lambda out: out[1].fill_(torch.nan), 'motion of the camera'),
    ('derotate', 6, lambda out: out.add_(1), 'displacement of samples without rotation'),
    ('derotate', 7, lambda out: out.mul_(2), 'displacement by rotation'),
    ('rates', 8, lambda out: out.mul_(1.1), 'rate of the cells')]


@pytest.fixture(scope='module')
def made(tmp_path_factory):
    if COMPILER is None:
        pytest.skip('no g++ to compile the kernels with')
    folder = tmp_path_factory.mktemp('kernels')
    return LoomingKernels({key: compiled(source, name, folder)
                           for key, (source, name) in sources().items()})


@pytest.fixture
def forgotten():
    """Let nothing be remembered of a device, before and after a test."""
    caches = (prepare_kernels, choose_kernels)
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


def test_kernels_are_compared_with_the_other_path_before_they_are_used(made):
    assert disagreement(made, CPU) == ''
    for name, place, change, problem in WRONG:
        def wrong(grid, block, given, name=name, place=place, change=change):
            made.made[name](grid, block, given)
            change(given[place])

        assert disagreement(LoomingKernels({**made.made, name: wrong}), CPU).startswith(problem)


@pytest.mark.parametrize(('change', 'problem'), [
    ({}, ''), ({'match': lambda grid, block, given: given[2].zero_()}, 'motion of the image')])
def test_wrong_kernels_are_not_used(made, monkeypatch, forgotten, change, problem):
    # A device of a kind that has kernels, on which everything runs on the CPU.
    monkeypatch.setattr(kernels, '_build', lambda device: LoomingKernels({**made.made, **change}))
    monkeypatch.setattr(comparison, 'disagreement', lambda found, device: disagreement(found, CPU))
    found, reason = choose_kernels(torch.device('cuda:7'))
    assert (found is None) == bool(problem)
    assert reason.startswith(problem)


def test_without_a_compiler_looming_runs_without_kernels(monkeypatch, forgotten):
    def missing(device):
        raise KernelsMissing('no compiler')

    monkeypatch.setattr(kernels, '_build', missing)
    assert choose_kernels(torch.device('cuda:6')) == (None, 'no compiler')
    assert choose_kernels(CPU) == (None, '')


@pytest.fixture
def both(made, monkeypatch):
    """The looming of a history without kernels and with them."""
    def found(history, given=None):
        for used in (None, made):
            monkeypatch.setattr(device_looming, 'choose_kernels',
                                lambda device, used=used: (used, ''))
            estimator = DeviceLooming(DeviceStream(CPU))
            yield estimator.estimate(history, FOCAL / 3, None, given)
            assert ('kernels' in estimator.how) == (used is not None)

    return found


@pytest.mark.parametrize(('size', 'rotates'), [(SIZE, False), ((320, 90), False), (SIZE, True)],
                         ids=['small', 'wide', 'with a gyroscope'])
def test_looming_by_kernels_is_that_without(both, size, rotates):
    turn = (0, 1.0 if rotates else 0.1, 0)
    history, _, _ = film([Wall((0, 0, 2))], velocity=(0, 0.2, 1), turn=turn, dt=1 / 15)
    history = [(stamp, cv2.resize(frame, size, interpolation=cv2.INTER_AREA))
               for stamp, frame in history]
    plain, ours = both(history, gyroscope(turn) if rotates else None)
    assert plain.gyroscope == ours.gyroscope == ('' if rotates else None)
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


def test_the_motion_of_the_camera_is_that_of_the_host_whatever_it_is(made):
    kinds = Counter()
    for seed in range(0, 120, 7):
        one = scene(seed)
        theta = np.zeros((len(one.at), 6))
        theta[:, ::3] = (one.to - one.at) * FOCAL
        given = theta, one.covariance, np.ones(len(one.at)), np.zeros(len(one.at))
        fits = Fits(*(torch.from_numpy(part).float()[None] for part in given))
        at = (torch.from_numpy(one.at.T.copy()) * FOCAL).float()
        rays = Rays(at.double().numpy().T / FOCAL, np.zeros((1, 1, 2)), FOCAL)
        cells = AffineFits(*(part[0].double().numpy() for part in fits))
        first = rays.camera_motion(cells)
        lens = torch.tensor([FOCAL, 0, 0, 0.01])
        motion = made.motion(fits, at, lens)
        for expected, got in ((first, motion), (rays.camera_motion(cells, first),
                                                made.motion(fits, at, lens, motion))):
            found = read_pair(np.concatenate([got.float(), np.zeros(5)]), 0.1).motion
            assert found.kind == expected.kind
            np.testing.assert_allclose(found.rotation, expected.rotation, atol=1e-5)
            np.testing.assert_allclose(found.covariance, expected.covariance, rtol=1e-3,
                                       atol=1e-4 * np.abs(expected.covariance).max())
            assert found.agreement == pytest.approx(expected.agreement, abs=1e-5)
            if expected.direction is not None:
                np.testing.assert_allclose(found.direction, expected.direction, atol=1e-4)
        kinds[first.kind] += 1
    assert len(kinds) >= 3, kinds


@pytest.mark.skipif(shutil.which('nvcc') is None, reason='no compiler of NVIDIA here')
def test_the_compiler_of_nvidia_accepts_the_sources(tmp_path):
    """It is stricter than g++: functions of the host must not be called."""
    encoder = source_of('vjepa_ros.runtime.forward', 'encoder', D=192, HEAD=64, N=256, THREADS=64,
                        EACH=1, EPS='1e-6f', GAIN='1.0f', HALF_IS_BF16=1, ADD=1, FULL=0, EIGHT=1)
    paths = []
    for source in {kernel_source(), encoder, *(source for source, _ in sources().values())}:
        paths.append(tmp_path / f'{len(paths)}.cu')
        paths[-1].write_text(source, encoding='utf-8')
    made = subprocess.run(['nvcc', '-ptx', '-arch=sm_90', '--threads=2', *paths], cwd=tmp_path,
                          capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
