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
from looming_films import FOCAL, Wall, camera_motion, displacements, film, gyroscope
from warp_on_host import COMPILER, compiled

from vjepa_ros.clip.device_resize import kernel_source
from vjepa_ros.looming.gpu.estimator import DeviceLooming, SAME, choose_kernels, trial
from vjepa_ros.looming.gpu.kernels import Fits, LoomingKernels, read_pair, sources
from vjepa_ros.runtime.cuda.compiler import KernelsMissing, kernels_for, source_of
from vjepa_ros.runtime.cuda.graph_replay import DeviceStream

pytestmark = pytest.mark.slow
CPU = torch.device('cpu')
SIZE = (128, 96)


@pytest.fixture(scope='module')
def made(tmp_path_factory):
    if COMPILER is None:
        pytest.skip('no g++ to compile the kernels with')
    folder = tmp_path_factory.mktemp('kernels')
    return LoomingKernels({key: compiled(source, name, folder)
                           for key, (source, name) in sources().items()})


# A kernel, what of its arguments it writes, and how that is spoilt.
@pytest.mark.parametrize(('name', 'place', 'spoil'), [
    ('none', 0, None), ('match', 2, torch.Tensor.zero_),
    ('evidence', 4, lambda out: out[0, 4].mul_(1.1)), ('fit', 4, lambda out: out.mul_(1.1)),
    ('motion', 7, lambda out: out[1].fill_(torch.nan)), ('rates', 8, lambda out: out.mul_(1.1))])
def test_kernels_are_used_only_where_looming_is_that_without(made, name, place, spoil):
    def wrong(grid, block, given):
        made.made[name](grid, block, given)
        spoil(given[place])

    kernels = LoomingKernels({**made.made, name: wrong})
    found, problem = kernels_for('looming', CPU, None, lambda: kernels,
                                 lambda used: trial(used, CPU), SAME)
    assert (found is None) == bool(problem) == (spoil is not None)


def test_without_a_compiler_there_are_no_kernels_and_the_reason_is_told(caplog):
    def missing():
        raise KernelsMissing('no compiler')

    caplog.set_level('INFO', 'vjepa_ros')
    assert kernels_for('looming', CPU, None, missing, lambda used: torch.ones(1), SAME) == (
        None, 'no compiler')
    assert 'no kernels for looming on cpu: no compiler' in caplog.text
    assert choose_kernels(CPU) == (None, '')


@pytest.mark.parametrize(('size', 'rotates'), [(SIZE, False), ((320, 90), False), (SIZE, True)],
                         ids=['small', 'wide', 'with a gyroscope'])
def test_looming_by_kernels_is_that_without(made, size, rotates):
    turn = (0, 1.0 if rotates else 0.1, 0)
    history, _, _ = film([Wall((0, 0, 2))], velocity=(0, 0.2, 1), turn=turn, dt=1 / 15)
    history = [(stamp, cv2.resize(frame, size, interpolation=cv2.INTER_AREA))
               for stamp, frame in history]
    plain, ours = (DeviceLooming(DeviceStream(CPU), chosen=(used, '')).estimate(
        history, FOCAL / 3, None, gyroscope(turn) if rotates else None) for used in (None, made))
    assert plain.gyroscope == ours.gyroscope == ('' if rotates else None)
    assert ours.dt_s == plain.dt_s
    np.testing.assert_allclose(ours.rotation, plain.rotation, atol=1e-3)
    np.testing.assert_allclose(ours.direction, plain.direction, atol=1e-3)
    known = np.isfinite(plain.rate)
    assert known.mean() > 0.8 and (np.isfinite(ours.rate) == known).all()
    assert (np.abs(ours.rate - plain.rate)[known] < 0.01 * plain.sigma[known]).mean() > 0.95
    np.testing.assert_allclose(ours.confidence, plain.confidence, atol=1e-3)
    np.testing.assert_allclose(ours.flow[known], plain.flow[known], atol=0.01)


def test_the_motion_of_the_camera_is_that_of_the_host_whatever_it_is(made):
    kinds = Counter()
    lens = torch.tensor([FOCAL, 0, 0, 0.01])
    for seed in range(0, 120, 7):
        one = displacements(seed)
        fits = Fits(*(torch.from_numpy(part).float()[None] for part in vars(one.fits).values()))
        at = (torch.from_numpy(one.at.T.copy()) * FOCAL).float()
        first, motion = camera_motion(one), made.motion(fits, at, lens)
        for expected, got in ((first, motion), (camera_motion(one, first),
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
