# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Rotation from a gyroscope: its integration, its faults, and what looming gains from it."""

from __future__ import annotations

import math
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from looming_films import FOCAL, NOW, NS, Wall, cells, film, gyroscope

from vjepa_ros.looming.estimator import LoomingEstimator
from vjepa_ros.looming.gpu.estimator import DeviceLooming
from vjepa_ros.looming.gyroscope import Gyroscope, GyroscopeError, rotation_matrix
from vjepa_ros.runtime.cuda.graph_replay import DeviceStream
from vjepa_ros.sources import SourceError
from vjepa_ros.sources.folder import BODY_IN_OPTICAL, read_angular_rates

pytestmark = pytest.mark.usefixtures('one_thread')
ESTIMATOR = LoomingEstimator()
STREAM = DeviceStream(torch.device('cuda:0' if torch.cuda.is_available() else 'cpu'))
by_either = pytest.mark.parametrize('by', [ESTIMATOR, DeviceLooming(STREAM)],
                                    ids=['host', 'device'])
WALL = Wall((0, 0, 3))


def tumbling(t: float) -> np.ndarray:
    return np.array([math.sin(9 * t), 2 * math.cos(5 * t), 1.5 * t])


@pytest.mark.parametrize(('rate', 'hz', 'tolerance'), [
    (lambda t: np.array((0, 0, 2.0)), 50, 1e-9), (tumbling, 1000, 1e-5), (tumbling, 100, 1e-3)])
def test_rates_are_integrated_in_order_between_stamps_that_no_sample_has(rate, hz, tolerance):
    older, newer = NOW - 333_333_333, NOW - 1_234_567
    expected, step = np.eye(3), 1e-4
    for t in np.arange((older - NOW) / NS, (newer - NOW) / NS - step / 2, step):
        expected = expected @ cv2.Rodrigues(rate(t + step / 2) * step)[0]
    found = gyroscope(rate, hz).turn(older, newer)
    np.testing.assert_allclose(cv2.Rodrigues(found.rotation)[0], expected, atol=tolerance + 2e-4)
    assert (np.linalg.eigvalsh(found.covariance) > 0).all()


def test_the_axes_and_the_clock_of_the_gyroscope_are_those_given():
    # A body with x ahead, y left, z up: rolling right, pitching down, turning left.
    for body, optical in (((1, 0, 0), (0, 0, 1)), ((0, 1, 0), (-1, 0, 0)),
                          ((0, 0, 1), (0, -1, 0))):
        np.testing.assert_allclose(rotation_matrix(BODY_IN_OPTICAL) @ body, optical, atol=1e-12)
        found = gyroscope(body, rotation=BODY_IN_OPTICAL).turn(NOW - NS // 2, NOW)
        np.testing.assert_allclose(found.rotation, np.array(optical) / 2, atol=1e-9)
    late = gyroscope(lambda t: (0, 1.0 if t < -0.5 else 0.0, 0), offset_s=0.3)
    assert late.turn(NOW - 300_000_000, NOW).rotation[1] == pytest.approx(0.1, abs=0.004)
    for wrong in ((1, 0, 0), (0, 0, 0, 0), (1, 1, 0, 0), (math.nan, 0, 0, 1)):
        with pytest.raises(ValueError, match='x, y, z, w'):
            Gyroscope(wrong)


def with_sample(t: float, rate) -> Gyroscope:
    return gyroscope(lambda s: rate if abs(s - t) < 1e-9 else (0, 0, 0))


FAULTS = {
    'nothing came': (Gyroscope, 'no angular rates'),
    'it has stopped': (lambda: gyroscope(until_s=-0.05), '0.05 s older'),
    'another clock': (lambda: gyroscope(offset_s=0.95), 'begin'),
    'gaps': (lambda: gyroscope(hz=10), '0.1 s apart'),
    'no number': (lambda: with_sample(-0.1, (0, math.nan, 0)), '35 rad/s'),
    'beyond its range': (lambda: with_sample(-0.1, (0, 0, -36)), '35 rad/s')}


@pytest.mark.parametrize(('make', 'reason'), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_told_and_looming_comes_from_the_image(make, reason):
    history, _, _ = film([Wall((0, 0, 2))], velocity=(0, 0, 1), count=5)
    with pytest.raises(GyroscopeError, match=reason):
        make().turn(NOW - NS // 4, NOW)
    plain, found = (ESTIMATOR.estimate(history, FOCAL, None, g) for g in (None, make()))
    assert plain.gyroscope is None and reason in found.gyroscope
    np.testing.assert_allclose(found.rate, plain.rate, atol=1e-6)


def test_old_samples_leave_and_time_may_jump_back():
    one = gyroscope()
    one.push(NOW - NS // 10, (9, 9, 9))      # late, left out
    assert one.turn(NOW - NS // 2, NOW).rotation == pytest.approx([0, 0, 0])
    one.push(NOW - 50 * NS, (0, 0, 0))
    assert len(one) == 1
    for k in range(5000):
        one.push(NOW + k * NS // 1000, (0, 0, 0))
    assert len(one) < 3100


@by_either
def test_looming_is_more_exact_with_a_gyroscope(by):
    crosses = Wall((0.2, 0.1, 1), half=(0.45, 0.35), look=1, velocity=(0.6, 0, -0.5), texel=0.0025)
    turn, rng = (0, 0.5, 0), np.random.default_rng(0)
    history, rate, _ = film([Wall((0, 0, 4), texel=0.0068), crosses], turn=turn, dt=0.1)
    given = gyroscope(lambda t: turn + 0.003 * rng.normal(size=3))
    plain, found = (by.estimate(history, FOCAL, None, one) for one in (None, given))
    assert found.gyroscope == ''
    plain, found = (np.abs(field.rate - cells(rate)) for field in (plain, found))
    assert np.nanmedian(found) < np.nanmedian(plain) / 10
    assert np.isfinite(found).mean() > np.isfinite(plain).mean() - 0.05


@by_either
@pytest.mark.parametrize('wrong', [(0, -1.0, 0), (0, 0, 1.0)])
def test_a_gyroscope_that_the_image_contradicts_is_not_used(wrong, by):
    history, _, _ = film([WALL], turn=(0, 1.0, 0), velocity=(0, 0, 1), dt=0.1)
    plain, field = (by.estimate(history, FOCAL, None, one) for one in (None, gyroscope(wrong)))
    assert 'another way' in field.gyroscope
    # On a GPU kernels computed the plain one.
    np.testing.assert_allclose(field.rate, plain.rate,
                               atol=0.01 if STREAM.device.type == 'cuda' else 1e-6)


@by_either
@pytest.mark.parametrize(('velocity', 'learned'), [((0, 0, 0), True), ((0.5, 0, 0.5), False)])
def test_the_bias_is_learned_at_rest_and_not_while_moving(by, velocity, learned):
    bias = np.array([0.03, -0.02, 0.01])
    history, _, _ = film([WALL], dt=0.1, velocity=velocity)
    one = gyroscope(bias)
    before = one.turn(NOW - NS // 10, NOW)
    assert by.estimate(history, FOCAL, None, one).gyroscope == ''
    assert one.bias == pytest.approx(bias if learned else np.zeros(3), abs=0.002)
    after = one.turn(NOW - NS // 10, NOW)
    assert (after.covariance[0, 0] < 0.1 * before.covariance[0, 0]) == learned


def test_rates_of_a_recording_come_from_either_file(tmp_path: Path):
    assert read_angular_rates(tmp_path) is None
    # Poses at 100 Hz of a body that turns left at 1 rad/s; they arrive four at a time.
    rows = ['stamp_s,x_m,qw,qx,qy,qz']
    for k in range(200):
        half = 0.005 * k
        rows.append(f'{0.04 * (k // 4) + 0.04},0,{math.cos(half)},0,0,{math.sin(half)}')
    (tmp_path / 'motion.csv').write_text('\n'.join(rows))
    stamps, rates = read_angular_rates(tmp_path)
    assert (np.diff(stamps) > 0).all()
    np.testing.assert_allclose(rates[20:-20] - (0, 0, 1.0), 0, atol=0.15)
    (tmp_path / 'imu.csv').write_text('stamp_s,x_rad_s,y_rad_s,z_rad_s\n2,0,0,3\n1,1,2,-3\n')
    stamps, rates = read_angular_rates(tmp_path)
    assert (stamps.tolist(), rates.tolist()) == ([1, 2], [[1, 2, -3], [0, 0, 3]])
    for text, named in (('stamp_s,x_rad_s\n1,2\n', 'y_rad_s'), ('', 'no rows'),
                        ('stamp_s,x_rad_s,y_rad_s,z_rad_s\n1,2,3,fast\n', 'line 2')):
        (tmp_path / 'imu.csv').write_text(text)
        with pytest.raises(SourceError, match=named):
            read_angular_rates(tmp_path)
