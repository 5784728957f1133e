# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Looming whose pixels are on a device: as right as on the host, on sequences with known truth."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import torch
from looming_checks import (
    check_object_before_background,
    check_still_scene,
    check_turning_alone,
    check_wall,
    check_wall_while_turning,
    noisy,
    ttc_error,
)
from looming_films import FOCAL, SIZE, Wall, film

from vjepa_ros.looming.estimator import LoomingEstimator
from vjepa_ros.looming.gpu.estimator import DeviceLooming
from vjepa_ros.runtime.cuda.graph_replay import Queue

pytestmark = pytest.mark.usefixtures('one_thread')
W, H = SIZE
DEVICE = torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')


@pytest.fixture(scope='module')
def on_device():
    return DeviceLooming(Queue(DEVICE))


@pytest.fixture(scope='module')
def on_host():
    return LoomingEstimator()


@pytest.mark.parametrize('dt', [1 / 30, 0.1, 0.25])
@pytest.mark.parametrize('ttc', [0.5, 2.0, 6.0])
def test_time_to_a_wall_is_right_at_any_frame_rate(on_device, ttc, dt):
    check_wall(on_device, ttc, dt)


@pytest.mark.parametrize('turn', [(0, 1.0, 0), (0.3, 0, 0), (0.2, 0.4, -0.3)])
@pytest.mark.parametrize('ttc', [1.0, 4.0])
def test_turning_does_not_spoil_time_to_contact(on_device, ttc, turn):
    check_wall_while_turning(on_device, ttc, turn)


@pytest.mark.parametrize('turn', [(0, 1.0, 0), (0.4, 0, 0), (0, 0, 0.8), (-0.2, 0.3, 0.2)])
@pytest.mark.parametrize('dt', [1 / 30, 0.25])
def test_turning_is_not_read_as_looming(on_device, dt, turn):
    check_turning_alone(on_device, dt, turn)


@pytest.mark.parametrize('aside', [0.0, 0.3])
@pytest.mark.parametrize('ttc', [0.5, 4.0])
def test_an_object_looms_before_a_still_background(on_device, ttc, aside):
    check_object_before_background(on_device, ttc, aside)


@pytest.mark.parametrize('light', [lambda g, t: g * (1 + 0.5 * t),
                                   lambda g, t: g if t < -1e-6 else g * 1.3 - 25])
def test_a_change_of_brightness_does_not_matter(on_device, light):
    history, rate, _ = film([Wall((0, 0, 2))], velocity=(0, 0, 0.5), light=light)
    assert ttc_error(on_device.estimate(history, FOCAL), rate) < 0.1


@pytest.mark.parametrize('noise', [0.0, 2.0])
@pytest.mark.parametrize(('dt', 'count'), [(1 / 30, 12), (1 / 30, 2), (0.25, 2)])
def test_a_still_scene_is_known_not_to_loom(on_device, noise, dt, count):
    check_still_scene(on_device, noise, dt, count)


def test_much_noise_in_a_still_scene_does_no_more_harm_than_on_the_host(on_device, on_host):
    # Two frames 1/30 s apart and 3 grey levels: the largest of 432 cells is what chance makes it.
    largest = {on_host: [], on_device: []}
    for seed in range(5):
        history, _, _ = film([Wall((0, 0, 2))], dt=1 / 30, count=2, noise=3.0, seed=seed)
        for estimator, found in largest.items():
            found.append(np.nanmax(np.abs(estimator.estimate(history, FOCAL).rate)))
    assert np.mean(largest[on_device]) < 1.3 * np.mean(largest[on_host])
    assert max(largest[on_device]) < 0.02


@pytest.mark.parametrize('noise', [(128, 2), (128, 0), (0, 0), (6, 1), (128, 60)])
def test_where_nothing_can_be_seen_looming_is_unknown_not_zero(on_device, noise):
    field = on_device.estimate(noisy(*noise), FOCAL)
    assert np.isnan(field.rate).all()
    assert field.confidence.max() < 0.3


def test_a_scene_cut_is_unknown(on_device):
    a, b = film([Wall((0, 0, 2))], count=2)[0], film([Wall((0, 0, 3), look=1)], count=2)[0]
    assert np.isfinite(on_device.estimate([a[0], b[1]], FOCAL).rate).mean() < 0.01


@pytest.mark.parametrize(('velocity', 'turn', 'dt'), [
    ((0, 0, 1), (0, 0, 0), 1 / 15), ((0.4, 0, 0.3), (0, 0.2, 0), 0.1), ((0, 0, 4), (0, 0, 0), 0.1),
    ((0, 0, 0), (0, 0.5, 0.1), 1 / 30)])
def test_device_and_host_agree_cell_by_cell(on_device, on_host, velocity, turn, dt):
    thing = Wall((0.2, 0.1, 1.5), half=(0.35, 0.3), velocity=(0, 0, -0.5), look=1, texel=0.0025)
    history, _, _ = film([Wall((0, 0, 4), texel=0.0068), thing], velocity, turn, dt)
    ours, theirs = (one.estimate(history, FOCAL) for one in (on_device, on_host))
    assert ours.dt_s == theirs.dt_s     # the same older frame was chosen
    np.testing.assert_allclose(ours.rotation, theirs.rotation, atol=0.01)
    np.testing.assert_array_equal(ours.centers, theirs.centers)
    known = np.isfinite(ours.rate) & np.isfinite(theirs.rate)
    assert known.sum() > 0.9 * np.isfinite(theirs.rate).sum()
    apart = np.abs(ours.rate - theirs.rate)[known] / (ours.sigma + theirs.sigma)[known]
    assert np.median(apart) < 0.3
    assert np.percentile(apart, 95) < 1.5
    assert np.median(ours.sigma[known] / theirs.sigma[known]) == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize('size', [(160, 120), (324, 244), (443, 249), (320, 64)])
def test_any_size_of_frame_is_covered_by_cells(size):
    w, h = size
    frames = [(t, np.ascontiguousarray(f[:h, :w] if h <= H and w <= W else cv2.resize(f, size)))
              for t, f in film([Wall((0, 0, 2))], velocity=(0, 0, 1))[0]]
    field = DeviceLooming(Queue(DEVICE)).estimate(frames, FOCAL)
    assert field.rate.shape == (h // 16, w // 16)
    assert field.gray_size == size
    assert np.nanmedian(field.rate) == pytest.approx(0.5, rel=0.1)


def test_the_result_depends_on_the_history_alone(on_device):
    one, _, _ = film([Wall((0, 0, 2))], velocity=(0, 0, 1))
    two, _, _ = film([Wall((0, 0, 2), look=1)], velocity=(0, 0, -1), seed=1)
    first = on_device.estimate(one, FOCAL)
    on_device.estimate(two, FOCAL)
    again = on_device.estimate(one, FOCAL)
    np.testing.assert_array_equal(first.rate, again.rate)
    np.testing.assert_array_equal(first.flow, again.flow)


def test_without_two_frames_near_enough_nothing_is_known(on_device):
    history, _, _ = film([Wall((0, 0, 2))], count=2)
    assert on_device.estimate(history[:1]) is None
    assert on_device.estimate([(0, history[0][1]), (int(2e9), history[1][1])]) is None
    with pytest.raises(ValueError, match='oldest to the newest'):
        on_device.estimate(history[::-1])
