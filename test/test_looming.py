# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Looming and ego-motion where the truth is known exactly."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from looming_films import FOCAL, K, SIZE, Wall, cells, film, whole
from warp_on_host import COMPILER, compiled

from vjepa_ros.looming.estimator import LoomingEstimator, LoomingField
from vjepa_ros.looming.gpu.estimator import DeviceLooming, SAME, trial
from vjepa_ros.looming.gpu.kernels import LoomingKernels, sources
from vjepa_ros.runtime.cuda.compiler import kernels_for
from vjepa_ros.runtime.cuda.graph_replay import DeviceStream

pytestmark = pytest.mark.usefixtures('one_thread')
W, H = SIZE
CPU = torch.device('cpu')
DEVICE = torch.device('cuda:0') if torch.cuda.is_available() else CPU
HOST, ON_DEVICE = LoomingEstimator(), DeviceLooming(DeviceStream(DEVICE))
anywhere = pytest.mark.parametrize('estimator', [HOST, ON_DEVICE], ids=['host', 'device'])
NEAR, FAR = Wall((0, 0, 2)), Wall((0, 0, 4), texel=0.0068)


def thing(*velocity: float) -> Wall:
    """A small wall before `FAR`."""
    return Wall((0.2, 0.1, 1.5), half=(0.35, 0.3), velocity=velocity, look=1, texel=0.0025)


def ttc_error(field: LoomingField, rate: np.ndarray, where: np.ndarray | bool = True) -> float:
    """Median relative error of the time to contact over the known cells; fails when few are."""
    known = np.isfinite(field.rate) & where
    assert known.sum() > 0.4 * np.sum(where | np.zeros(known.shape, bool))
    found, true = field.rate[known], cells(rate)[known]
    return float(np.median(np.abs(true / np.where(found == 0, 1e-9, found) - 1)))


# The wall, its largest error, and how it is filmed.
WALLS = {
    'near at 30 Hz': (NEAR, 0.05, {'velocity': (0, 0, 4), 'dt': 1 / 30}),
    'two frames': (NEAR, 0.08, {'velocity': (0, 0, 0.5), 'count': 2}),
    'receding': (NEAR, 0.1, {'velocity': (0, 0, -2)}),
    'all axes': (NEAR, 0.1, {'velocity': (0, 0, 0.5), 'turn': (0.2, 0.4, -0.3), 'dt': 1 / 15}),
    'ever brighter': (NEAR, 0.1, {'velocity': (0, 0, 0.5), 'light': lambda g, t: g * (1 + t / 2)}),
    'noise and compression': (NEAR, 0.08, {'velocity': (0, 0, 0.5), 'noise': 3, 'jpeg': 60}),
    'slanted and downwards': (Wall((0, 0, 2.5), along=(math.cos(0.87), 0, math.sin(0.87))), 0.1,
                              {'velocity': (0, -0.3, 0.5)})}


@anywhere
@pytest.mark.parametrize(('wall', 'largest', 'options'), WALLS.values(), ids=WALLS)
def test_time_to_a_wall_is_right(estimator, wall, largest, options):
    history, rate, _ = film([wall], **options)
    field = estimator.estimate(history, FOCAL)
    assert ttc_error(field, rate) < largest
    assert np.abs(field.rotation - options.get('turn', 0)).max() < 0.05


GROUND = Wall((0, 0.6, 3), down=(0, 0, 1), half=(6, 5), look=1)
SCENES = {
    'ground': ([Wall((0, 0, 8), texel=0.01), GROUND], {'velocity': (0, 0, 1)}),
    'one comes fast': ([FAR, thing(0, 0, -3)], {}),
    'one crosses a moving view': ([FAR, thing(0.4, 0, -0.5)], {'velocity': (0, 0, 0.8),
                                                               'turn': (0, 0.3, 0)})}


@anywhere
@pytest.mark.parametrize(('walls', 'options'), SCENES.values(), ids=SCENES)
def test_each_part_of_a_scene_looms_as_it_comes(estimator, walls, options):
    history, rate, which = film(walls, dt=1 / 15, **options)
    field = estimator.estimate(history, FOCAL)
    for index in range(2):
        if rate[which == index].any():
            assert ttc_error(field, rate, whole(which, index)) < 0.1
        else:
            still = np.abs(field.rate[whole(which, index)])
            assert np.isfinite(still).mean() > 0.4
            assert np.nanmedian(still) < 0.01
            assert np.nanpercentile(still, 95) < 0.05


@anywhere
@pytest.mark.parametrize(('options', 'most'), [
    ({'noise': 0.0, 'dt': 1 / 30, 'count': 2}, 0.01), ({'dt': 1 / 30, 'count': 12}, 0.01),
    ({'turn': (0, 1.0, 0), 'dt': 1 / 30}, 0.06), ({'turn': (0, 0, 0.8), 'dt': 0.25}, 0.06)])
def test_a_still_or_turning_camera_sees_no_looming(estimator, options, most):
    field = estimator.estimate(film([Wall((0, 0, 3))], **options)[0], FOCAL)
    known = np.isfinite(field.rate)
    assert known.mean() > (0.4 if 'turn' in options else 0.9)
    assert np.abs(field.rate[known]).mean() < most / 5
    assert np.abs(field.rate[known]).max() < most
    assert field.rotation == pytest.approx(options.get('turn', (0, 0, 0)), abs=0.02)


CUT = film([NEAR], count=1)[0][0][1], film([Wall((0, 0, 3), look=1)], count=1)[0][0][1]


def noisy(level: int, noise: float) -> list[np.ndarray]:
    """Frames of a grey level with noise."""
    rng = np.random.default_rng(7)
    frames = level + noise * rng.normal(size=(5, H, W))
    return list(frames.round().clip(0, 255).astype(np.uint8))


@anywhere
@pytest.mark.parametrize('frames', [
    noisy(128, 2), noisy(0, 0), noisy(128, 60), CUT], ids=['blank', 'black', 'noise', 'cut'])
def test_where_nothing_can_be_seen_looming_is_unknown_not_zero(estimator, frames):
    field = estimator.estimate([(10 ** 8 * (k + 1), one) for k, one in enumerate(frames)], FOCAL)
    assert np.isfinite(field.rate).mean() < (0.01 if len(frames) == 2 else 1e-9)
    assert np.array_equal(np.isnan(field.flow[..., 0]), np.isnan(field.rate))


def test_device_and_host_agree_cell_by_cell():
    history, _, _ = film([FAR, thing(0, 0, -0.5)], (0.4, 0, 0.3), (0, 0.2, 0))
    ours, theirs = (one.estimate(history, FOCAL) for one in (ON_DEVICE, HOST))
    assert ours.dt_s == theirs.dt_s     # the same older frame was chosen
    known = np.isfinite(ours.rate) & np.isfinite(theirs.rate)
    assert known.sum() > 0.9 * np.isfinite(theirs.rate).sum()
    apart = np.abs(ours.rate - theirs.rate)[known] / (ours.sigma + theirs.sigma)[known]
    assert np.median(apart) < 0.3
    assert np.percentile(apart, 95) < 1.5
    assert np.median(ours.sigma[known] / theirs.sigma[known]) == pytest.approx(1, abs=0.15)


def test_the_flow_points_away_from_where_the_camera_goes():
    history, rate, _ = film([NEAR], velocity=(0, 0, 1), turn=(0, 0.3, 0))
    field = HOST.estimate(history, FOCAL)
    true = (field.centers - K[:2, 2]) * 0.5   # px/s, without the turning
    assert np.median(np.abs(field.flow - true)[np.isfinite(field.rate)]) < 3.0
    assert field.direction == pytest.approx([0, 0, 1], abs=0.1)
    assert ttc_error(HOST.estimate(history), rate) < 0.1    # a common focal length is assumed


@anywhere
def test_too_little_history_gives_nothing(estimator):
    history, _, _ = film([NEAR], velocity=(0, 0, 1))
    assert estimator.estimate([], FOCAL) is None
    assert estimator.estimate(history[-1:], FOCAL) is None
    stale = (history[-1][0] - 3 * 10 ** 9, history[0][1])
    assert estimator.estimate([stale, history[-1]], FOCAL) is None


FILMS = [{'turn': (0, 1.0, 0), 'dt': 0.25}, {'dt': 1 / 30},
         {'velocity': (0.3, 0, 4), 'turn': (0, 0.3, 0), 'dt': 0.1}]


@pytest.mark.skipif(DEVICE is CPU, reason='no CUDA device here')
def test_looming_is_a_graph_that_gives_what_the_cpu_gives():
    ours, cpu = (DeviceLooming(DeviceStream(one)) for one in (DEVICE, CPU))
    for options in FILMS:
        history, _, _ = film([NEAR], **options)
        found, plain = (one.estimate(history, FOCAL) for one in (ours, cpu))
        assert ours.how.startswith('graph of kernels' if hasattr(torch.cuda, '_compile_kernel')
                                   else 'graph without kernels: ')
        assert found.dt_s == plain.dt_s
        np.testing.assert_allclose(found.rotation, plain.rotation, atol=5e-3)
        known = np.isfinite(found.rate) & np.isfinite(plain.rate)
        assert known.sum() > 0.95 * np.isfinite(plain.rate).sum()
        apart = np.abs(found.rate - plain.rate)[known] / plain.sigma[known]
        assert np.median(apart) < 0.05
        assert np.percentile(apart, 95) < 1.0


# -- the CUDA kernels, compiled for the host ------------------------------------------------------

@pytest.fixture(scope='module')
def kernels(tmp_path_factory):
    if COMPILER is None:
        pytest.skip('no g++ to compile the kernels with')
    folder = tmp_path_factory.mktemp('kernels')
    return LoomingKernels({key: compiled(source, name, folder)
                           for key, (source, name) in sources().items()})


@pytest.mark.slow
# A kernel, what of its arguments it writes, and how that is spoilt.
@pytest.mark.parametrize(('name', 'place', 'spoil'), [
    ('none', 0, None), ('match', 2, torch.Tensor.zero_),
    ('evidence', 4, lambda out: out[0, 4].mul_(1.1)), ('fit', 4, lambda out: out.mul_(1.1)),
    ('motion', 7, lambda out: out[1].fill_(torch.nan)), ('rates', 8, lambda out: out.mul_(1.1))])
def test_kernels_are_used_only_where_looming_is_that_without(kernels, name, place, spoil):
    def wrong(grid, block, given):
        kernels.made[name](grid, block, given)
        spoil(given[place])

    spoilt = LoomingKernels({**kernels.made, name: wrong})
    found, problem = kernels_for('looming', CPU, None, lambda: spoilt,
                                 lambda used: trial(used, CPU), SAME)
    assert (found is None) == bool(problem) == (spoil is not None)
