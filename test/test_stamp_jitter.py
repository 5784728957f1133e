# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Jitter of stamps is taken out where they tell when pictures arrived, and nowhere else."""

from __future__ import annotations

import csv
from itertools import pairwise

import cv2
import numpy as np
import pytest

from vjepa_ros.clip.ring import FrameRing, NS, Push
from vjepa_ros.clip.stamp_jitter import LEAST, StampFilter

PERIOD = 0.15
KNOWN = 3 * LEAST      # pictures until a camera is well known
FRAME = np.zeros((6, 8, 3), np.uint8)


def evened(stamps_s, taking=None):
    """Return the results of a filter for stamps [s]."""
    taking = taking or StampFilter()
    return np.array([taking.even(round(stamp * NS)) for stamp in stamps_s]) / NS


def arrivals(taken_s, seed=0, most=0.6):
    """Return when pictures arrive, each up to so many periods after it was taken."""
    return taken_s + PERIOD * most * np.random.default_rng(seed).random(len(taken_s))


def interval_error(found_s, taken_s):
    """Return the error of the time between neighbours, in periods (root mean square)."""
    off = (np.diff(found_s) - np.diff(taken_s))[KNOWN:]
    return float(np.sqrt(np.mean(off ** 2))) / PERIOD


@pytest.mark.parametrize('seed', [0, 1, 2])
def test_times_between_pictures_are_those_of_the_camera(seed):
    taken = 1 + PERIOD * np.arange(200)
    stamps = arrivals(taken, seed)
    found = evened(stamps)
    assert interval_error(stamps, taken) > 0.2
    assert interval_error(found, taken) < 0.04
    # No earlier than it can have been, and never after it came.
    assert (stamps - found).max() < 1.5 * PERIOD
    assert (found <= stamps + 1e-9).all()


@pytest.mark.parametrize('most', [0.3, 1.0, 3.0])
def test_times_ascend_and_never_jump_whatever_the_jitter(most):
    stamps = np.sort(arrivals(1 + PERIOD * np.arange(300), most=most)) + 1e-6 * np.arange(300)
    steps = np.diff(evened(stamps))
    assert (steps > 0).all() and (steps <= np.diff(stamps).max() + 1e-9).all()


def test_pictures_that_were_lost_are_counted():
    number = np.arange(300)[np.random.default_rng(3).random(300) > 0.1]
    taken = 1 + PERIOD * number
    stamps = arrivals(taken, most=0.3)
    assert interval_error(evened(stamps), taken) < 0.6 * interval_error(stamps, taken)


@pytest.mark.parametrize('interval', [
    np.full(300, PERIOD),                                                # exact
    np.where(np.random.default_rng(0).random(300) < 0.2, 2, 1) * PERIOD,   # some are lost
    PERIOD * (1 + 0.005 * np.random.default_rng(1).normal(size=300)),    # nearly exact
    np.linspace(0.5, 2, 300) * PERIOD])                                  # ever slower
def test_other_stamps_stay_as_they_are(interval):
    stamps = np.round(np.cumsum(interval) * NS) / NS
    assert np.array_equal(evened(stamps), stamps)


def test_a_camera_that_is_irregular_itself_is_taken_for_that():
    changed = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        stamps = np.cumsum(PERIOD * (1 + 0.2 * rng.normal(size=300).clip(-2, 2)))
        changed.append(np.mean(np.abs(evened(stamps) - stamps) > 1e-6))
    assert np.mean(changed) < 0.02


@pytest.mark.parametrize('rate', [25.0, 30.0, 60.0])
@pytest.mark.parametrize('pass_s', [0.04, 0.06, 0.085, 0.1, 0.15])
@pytest.mark.parametrize('jitter_s', [0.0, 0.003])
def test_a_busy_node_that_leaves_pictures_out_has_their_stamps(rate, pass_s, jitter_s):
    """It takes the newest picture whenever it is done: every second or third, or one and two."""
    rng = np.random.default_rng(0)
    taken = 1 + np.arange(900) / rate
    ends = np.arange(1.1, taken[-1], pass_s) + 0.005 * rng.random(
        len(np.arange(1.1, taken[-1], pass_s)))
    taken = np.unique(taken[np.searchsorted(taken, ends) - 1])
    stamps = np.round((taken + jitter_s * rng.random(len(taken))) * NS) / NS
    found = evened(stamps)
    if jitter_s:
        assert np.std(np.diff(found - taken)) <= np.std(np.diff(stamps - taken))
    else:
        assert np.array_equal(found, stamps)


@pytest.mark.parametrize('rates', [(5, 10), (10, 20), (10, 30), (15, 30)])
def test_times_do_not_pile_up_when_the_rate_rises(rates):
    """Else looming would be many times too fast: auto exposure changes the rate like that."""
    for seed in range(5):
        taken = 1 + np.cumsum(np.repeat(1 / np.array(rates, float), 150))
        stamps = taken + 0.2 / rates[0] * np.random.default_rng(seed).random(300)
        stamps = np.maximum.accumulate(stamps) + 1e-6 * np.arange(300)
        found = evened(stamps)
        for back in (2, 3, 4):
            spans, true = found[back:] - found[:-back], taken[back:] - taken[:-back]
            least = (stamps[back:] - stamps[:-back]) / true
            assert (spans / true).min() > 0.9 * least.min()


def test_another_rate_is_followed():
    taken = np.cumsum(np.repeat([PERIOD, PERIOD / 3, PERIOD], 100))
    stamps = taken + 0.1 * PERIOD * np.random.default_rng(0).random(300)
    found = evened(stamps)
    assert (np.diff(found) > 0).all()
    assert np.abs(found - stamps).max() < 4 * PERIOD
    for last in (slice(80, 100), slice(180, 200), slice(280, 300)):
        assert np.abs(found - stamps)[last].max() < 0.3 * PERIOD


def test_a_ring_chooses_by_when_frames_were_taken_and_tells_their_stamps():
    taken = 1 + PERIOD * np.arange(60)
    stamps = [round(stamp * NS) for stamp in arrivals(taken)]
    ring = FrameRing(4, clip_fps=1 / PERIOD)
    for stamp in stamps:
        assert ring.push(stamp, FRAME) is Push.ACCEPTED
    sample = ring.sample()
    assert sample is not None and sample.newest_ns == ring.newest_ns == stamps[-1]
    assert np.diff(sample.stamps_ns) / NS == pytest.approx([PERIOD] * 3, rel=0.05)
    assert [stamp for stamp, _ in ring.recent('rgb', 2.5 * PERIOD)] == list(sample.stamps_ns[1:])


@pytest.mark.parametrize('left_out', [False, True])
def test_a_ring_takes_stamps_as_they_are_when_some_lack_or_come_out_of_order(left_out):
    taken = 1 + PERIOD * np.arange(140)
    stamps = [round(stamp * NS) for stamp in arrivals(taken)]
    ring = FrameRing(4, clip_fps=1 / PERIOD)
    delays = []
    for number, stamp in enumerate(stamps):
        if number == 60 and left_out:
            ring.left_out()
        ring.push(stamp, FRAME)
        delays.append(stamp - ring.recent('rgb', 0.0)[-1][0])
        if number == 60 and not left_out:
            assert ring.push(stamp - round(0.02 * NS), FRAME) is Push.REORDERED
    assert max(delays[50:60]) > 0.05 * NS
    # By and by, and then for as long as it takes to know the camera again.
    assert [late / early for early, late in pairwise(delays[61:90])] == pytest.approx(
        [0.9] * 28, rel=1e-6)
    assert max(delays[120:]) > 0.05 * NS


def test_a_drone_turns_evenly_by_evened_stamps(shared_data):
    folder = shared_data / 'drone_turn'
    with open(folder / 'labels.csv') as file:
        rows = list(csv.DictReader(file))
    stamps = np.array([float(row['stamp_s']) for row in rows])
    flow = cv2.DISOpticalFlow_create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
    pictures = [cv2.imread(str(folder / 'frames' / row['frame']), 0) for row in rows]
    moved = np.array([np.median(flow.calc(older, newer, None)[40:200, 40:280, 0])
                      for older, newer in pairwise(pictures)])

    def unevenness(times):
        """Return how far a rate differs from the mean of those before and after it (median)."""
        rate = moved / np.diff(times)
        turns = np.abs(moved) > 8
        steady = turns[1:-1] & turns[:-2] & turns[2:] & (
            np.sign(moved[1:-1]) == np.sign(moved[:-2])) & (
            np.sign(moved[1:-1]) == np.sign(moved[2:]))
        size = np.log(np.abs(rate) + 1e-9)
        off = size[1:-1] - 0.5 * (size[:-2] + size[2:])
        return float(np.median(np.abs(off[steady])))

    assert unevenness(stamps) > 0.2            # 0.28 by stamps of arrival
    assert unevenness(evened(stamps)) < 0.03   # 0.019
