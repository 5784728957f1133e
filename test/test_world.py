# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The synthetic scene: its truth is exact, and its pictures show that truth."""

from __future__ import annotations

import math

import cv2
import numpy as np
import pytest

from vjepa_ros.lab.world.demo_scene.approach import LEVELS, ApproachScene, level_of
from vjepa_ros.lab.world.demo_scene.pinhole import Pinhole
from vjepa_ros.lab.world.demo_scene.timeline import ADVANCE_M, BRAKE_TTC_S, Timeline, Track

SIZE = (320, 240)


@pytest.fixture(scope='module')
def scene() -> ApproachScene:
    return ApproachScene(SIZE, seed=3, noise=0.0)


@pytest.fixture(scope='module')
def timeline() -> Timeline:
    return Timeline()


def time_in(scene: ApproachScene, phase: str, share: float = 0.5, number: int = 0) -> float:
    """A time within the number-th phase of a name."""
    starts = [s for s, _ in scene.phases] + [scene.period_s]
    spans = [(a, b) for (a, name), b in zip(scene.phases, starts[1:], strict=True)
             if name == phase]
    begin, end = spans[number]
    return begin + share * (end - begin)


# -- motion ---------------------------------------------------------------------------------------

def test_a_track_is_the_exact_integral_of_its_rate():
    track = Track([(1.0, 0.0), (2.0, 4.0), (4.0, 4.0), (5.0, -2.0)])
    for t in np.linspace(0.0, 6.0, 25):
        steps = np.linspace(1.0, t, 20001)
        rates = np.interp(steps, [1, 2, 4, 5], [0, 4, 4, -2])
        numeric = float(np.sum((rates[1:] + rates[:-1]) / 2 * np.diff(steps)))
        assert track.value(t) == pytest.approx(numeric, abs=1e-5)


def test_a_cycle_ends_where_the_next_one_begins(timeline):
    before, after = timeline.at(timeline.period_s - 1e-7), timeline.at(timeline.period_s + 1e-7)
    assert after.robot_z == pytest.approx(ADVANCE_M, abs=1e-5)
    assert after.robot_z == pytest.approx(before.robot_z, abs=1e-5)
    assert after.robot_v == pytest.approx(before.robot_v, abs=1e-5)
    assert after.van_z == pytest.approx(before.van_z, abs=1e-5)
    assert after.yaw == pytest.approx(before.yaw, abs=1e-6)
    # The trolley that waits ahead in this cycle is the one met in the next.
    assert after.trolley[0] == pytest.approx(before.trolley[1], abs=1e-5)


def test_the_cycle_has_all_kinds_of_encounters_in_order(scene):
    names = [name for _, name in scene.phases]
    assert names == ['still', 'obstacle_enters', 'approach', 'brake', 'halt', 'retreat',
                     'obstacle_leaves', 'turn', 'crossing', 'fast_approach', 'brake', 'halt',
                     'obstacle_leaves']
    assert scene.phases[0][0] == 0.0
    assert 25 < scene.period_s < 45


def test_nothing_moves_in_the_still_phase(timeline):
    first, last = timeline.at(0.05), timeline.at(1.95)
    assert first == last


# -- truth ----------------------------------------------------------------------------------------

@pytest.mark.parametrize('t', np.arange(0.31, 36.0, 1.37))
def test_speeds_are_the_derivatives_of_distances(scene, t):
    step = 1e-4
    before, now, after = (scene.truth(t + d) for d in (-step, 0.0, step))
    for thing in now.obstacles:
        earlier, later = (next((o for o in moment.obstacles if o.name == thing.name and abs(
            o.distance_m - thing.distance_m) < 0.1), None) for moment in (before, after))
        if earlier is None or later is None or abs(now.yaw_rate) > 0:
            continue
        assert -(later.distance_m - earlier.distance_m) / (2 * step) == pytest.approx(
            thing.closing_speed, abs=2e-3)
        assert (later.lateral_m - earlier.lateral_m) / (2 * step) == pytest.approx(
            thing.lateral_speed, abs=2e-3)


@pytest.mark.parametrize('phase', ['approach', 'fast_approach'])
def test_time_to_contact_is_distance_over_speed_and_runs_down(scene, phase):
    times = [time_in(scene, phase, share) for share in np.linspace(0.3, 0.98, 12)]
    truths = [scene.truth(t) for t in times]
    for truth in truths:
        assert truth.time_to_contact_s == pytest.approx(truth.distance_m / truth.speed)
        assert truth.looming_rate == pytest.approx(1 / truth.time_to_contact_s)
    for i in range(len(times) - 1):
        if truths[i].speed == truths[i + 1].speed:  # at constant speed a second is a second
            passed = truths[i].time_to_contact_s - truths[i + 1].time_to_contact_s
            assert passed == pytest.approx(times[i + 1] - times[i])


@pytest.mark.parametrize('number', [0, 1])
def test_the_robot_brakes_one_second_before_contact(scene, number):
    begin = time_in(scene, 'brake', 0.0, number)
    assert scene.truth(begin + 1e-9).time_to_contact_s == pytest.approx(BRAKE_TTC_S, abs=1e-3)
    lowest = min(scene.truth(t).time_to_contact_s for t in np.arange(begin - 3, begin + 2, 0.01))
    assert lowest == pytest.approx(BRAKE_TTC_S, abs=0.03)
    assert 0.5 < scene.truth(time_in(scene, 'halt', 0.5, number)).distance_m < 1.2


def test_the_levels_rise_one_after_the_other_during_an_approach(scene):
    begin, end = time_in(scene, 'approach', 0.0), time_in(scene, 'approach', 1.0)
    levels = [scene.truth(t).level for t in np.arange(begin, end, 0.05)]
    seen = [a for a, b in zip(levels, [None, *levels], strict=False) if a != b]
    assert seen == ['clear', 'caution', 'warning', 'danger']
    for name, limit in LEVELS:
        assert level_of(limit) == name
        assert level_of(limit + 0.01) != name
    assert level_of(math.inf) == 'clear'


@pytest.mark.parametrize('phase', ['still', 'obstacle_enters', 'halt', 'turn'])
def test_there_is_no_contact_to_come_while_the_robot_stands(scene, phase):
    truth = scene.truth(time_in(scene, phase))
    assert truth.time_to_contact_s == math.inf
    assert truth.speed == 0.0
    assert not truth.collision
    assert truth.level == 'clear'
    assert (abs(truth.yaw_rate) > 0) == (phase == 'turn')


def test_backing_off_is_a_negative_looming_rate_and_no_contact(scene):
    truth = scene.truth(time_in(scene, 'retreat'))
    assert truth.speed < 0
    assert truth.looming_rate == pytest.approx(truth.speed / truth.distance_m)
    assert truth.looming_rate < 0
    assert truth.time_to_contact_s == math.inf


def test_who_crosses_or_stands_aside_is_not_on_course(scene):
    names = set()
    for t in np.arange(time_in(scene, 'crossing', 0.0), time_in(scene, 'crossing', 1.0), 0.05):
        truth = scene.truth(t)
        names |= {o.name for o in truth.obstacles}
        assert all(o.name == 'van' for o in truth.obstacles if o.on_course)
        assert not truth.collision
    assert names == {'trolley', 'person', 'van'}


def test_collision_is_said_exactly_within_the_horizon(scene):
    for t in np.arange(0.0, scene.period_s, 0.1):
        truth = scene.truth(t)
        assert truth.collision == (truth.time_to_contact_s <= 2.0)


def test_bearing_and_lateral_position_are_positive_to_the_right(scene):
    left = next(o for o in scene.truth(1.0).obstacles if o.name == 'trolley')
    assert left.lateral_m < 0
    assert left.bearing == pytest.approx(math.atan2(left.lateral_m, left.distance_m))
    turned = scene.truth(time_in(scene, 'turn'))  # to the right: all moves to the left
    van = next(o for o in turned.obstacles if o.name == 'van')
    assert van.bearing < -0.2


def test_a_truth_can_be_had_as_plain_values(scene):
    values = scene.truth(6.0).as_dict()
    assert set(values) == {'phase', 'time_to_contact_s', 'looming_rate', 'distance_m', 'speed',
                           'yaw_rate', 'collision', 'level', 'clearance_m', 'box'}


# -- pictures -------------------------------------------------------------------------------------

def test_the_box_of_the_obstacle_grows_as_the_time_to_contact_says(scene):
    step = 0.2
    for share in (0.3, 0.5, 0.7):
        t = time_in(scene, 'approach', share)
        a, b = scene.truth(t), scene.truth(t + step)
        growth = (b.box[2] - b.box[0]) / (a.box[2] - a.box[0])
        assert growth == pytest.approx(a.time_to_contact_s / b.time_to_contact_s)
        assert step / (1 - 1 / growth) == pytest.approx(a.time_to_contact_s)


@pytest.mark.parametrize(('phase', 'share'), [('approach', 0.4), ('approach', 0.75),
                                              ('fast_approach', 0.6)])
def test_the_picture_of_the_obstacle_grows_as_the_truth_says(scene, phase, share):
    t = time_in(scene, phase, share)
    before, after = scene.truth(t), scene.truth(t + 0.25)
    x0, y0, x1, y1 = before.box
    scale = after.distance_m / before.distance_m  # below 1: it came nearer
    now = gray(scene.render(t + 0.25))
    then = gray(scene.render(t))[math.ceil(y0) + 1:int(y1) - 1, math.ceil(x0) + 1:int(x1) - 1]
    cx, cy = (SIZE[0] - 1) / 2, (SIZE[1] - 1) / 2

    def likeness(factor: float) -> float:
        """Correlation of the earlier obstacle with the later picture shrunk by a factor."""
        x, y = np.meshgrid(np.arange(then.shape[1]) + math.ceil(x0) + 1,
                           np.arange(then.shape[0]) + math.ceil(y0) + 1)
        grown = cv2.remap(now, np.float32((x - cx) / factor + cx),
                          np.float32((y - cy) / factor + cy), cv2.INTER_LINEAR)
        return float(np.corrcoef(grown.ravel(), then.ravel())[0, 1])

    assert likeness(scale) > 0.93
    factors = scale * np.linspace(0.94, 1.06, 49)
    best = factors[np.argmax([likeness(f) for f in factors])]
    assert best == pytest.approx(scale, rel=0.01)


def test_a_turn_moves_the_picture_as_a_pure_rotation(scene):
    t0, t1 = time_in(scene, 'turn', 0.25), time_in(scene, 'turn', 0.4)
    timeline = Timeline()
    a, b = (Pinhole(*SIZE, scene.intrinsics[0], yaw=timeline.at(t).yaw) for t in (t0, t1))
    assert b.yaw - a.yaw > 0.1
    turn = b.matrix() @ b.rotation() @ a.rotation().T @ np.linalg.inv(a.matrix())
    first, second = gray(scene.render(t0)), gray(scene.render(t1))
    moved = cv2.warpPerspective(first, turn, SIZE)
    seen = cv2.warpPerspective(np.ones_like(first), turn, SIZE) > 0.5
    unmoved = np.corrcoef(first[seen], second[seen])[0, 1]
    assert np.corrcoef(moved[seen], second[seen])[0, 1] > max(0.93, unmoved + 0.1)


def test_pictures_of_a_still_scene_differ_only_by_noise_and_exposure():
    scene = ApproachScene(SIZE, seed=1, noise=2.0)
    a, b = (scene.render(t).astype(float) for t in (0.4, 0.5))
    difference = a - b - (a.mean() - b.mean())
    assert difference.std() == pytest.approx(2.0 * math.sqrt(2), rel=0.15)
    assert not np.array_equal(a, b)


def test_a_picture_depends_on_time_and_seed_alone():
    one, same, other = (ApproachScene((160, 120), seed=seed) for seed in (5, 5, 6))
    one.render(17.0)  # other pictures drawn before change nothing
    assert np.array_equal(one.render(8.2), same.render(8.2))
    assert not np.array_equal(one.render(8.2), other.render(8.2))
    assert one.truth(8.2) == other.truth(8.2)


def test_the_scene_goes_on_after_its_cycle(scene):
    t = time_in(scene, 'approach')
    a, b = scene.truth(t), scene.truth(t + 3 * scene.period_s)
    assert b.time_to_contact_s == pytest.approx(a.time_to_contact_s)
    assert b.box == pytest.approx(a.box)
    likeness = np.corrcoef(gray(scene.render(t)).ravel(),
                           gray(scene.render(t + 3 * scene.period_s)).ravel())[0, 1]
    assert likeness > 0.99


@pytest.mark.slow
@pytest.mark.parametrize('size', [(160, 120), (96, 200), (800, 448)])
def test_any_size_is_rendered_as_rgb_bytes_with_fitting_intrinsics(size):
    scene = ApproachScene(size)
    image = scene.render(6.5)
    assert image.shape == (size[1], size[0], 3)
    assert image.dtype == np.uint8
    assert image.flags.c_contiguous
    fx, fy, cx, cy = scene.intrinsics
    assert fx == fy == pytest.approx(500 / 640 * size[0])
    assert (cx, cy) == ((size[0] - 1) / 2, (size[1] - 1) / 2)
    box = scene.truth(6.5).box
    assert 0 < (box[2] - box[0]) < size[0]


@pytest.mark.parametrize('t', [0.5, 6.5, 9.4, 12.0, 17.6, 22.0, 28.0, 32.0])
def test_the_picture_has_texture_everywhere_but_in_the_sky(scene, t):
    image = gray(scene.render(t))
    lower = image[SIZE[1] // 2 + 8:]
    tiles = [lower[y:y + 24, x:x + 32].std() for y in range(0, lower.shape[0] - 23, 24)
             for x in range(0, SIZE[0] - 31, 32)]
    assert np.mean(np.array(tiles) > 2.0) > 0.9


@pytest.mark.parametrize(('arguments', 'word'), [
    ({'size': (16, 480)}, 'size'), ({'size': (640, 9000)}, 'size'), ({'noise': -1.0}, 'noise'),
    ({'noise': 99.0}, 'noise')])
def test_values_out_of_range_are_refused_by_name(arguments, word):
    with pytest.raises(ValueError, match=word):
        ApproachScene(**arguments)


# -- truth of every pixel ------------------------------------------------------------------------

@pytest.mark.parametrize(('phase', 'share'), [('approach', 0.5), ('approach', 0.9),
                                              ('retreat', 0.5), ('fast_approach', 0.5)])
def test_the_pixels_of_the_obstacle_have_its_truth(scene, phase, share):
    t = time_in(scene, phase, share)
    truth, maps = scene.truth(t), scene.truth_maps(t)
    assert maps.depth.shape == (1, SIZE[1], SIZE[0])
    x0, y0, x1, y1 = truth.box
    column, row = round((x0 + x1) / 2), round(0.3 * y0 + 0.7 * min(y1, SIZE[1]))
    here = (0, row, column)
    assert float(maps.depth[here]) == pytest.approx(truth.distance_m, rel=1e-4)
    assert float(maps.looming[here]) == pytest.approx(truth.looming_rate, rel=1e-3)
    assert float(maps.enter_time[here]) == pytest.approx(
        truth.time_to_contact_s if truth.looming_rate > 0 else math.inf, rel=1e-3)
    assert float(maps.clearance.min()) == pytest.approx(truth.clearance_m, rel=1e-4)


def test_the_person_moves_and_the_houses_do_not(scene):
    t = time_in(scene, 'crossing', 0.5)
    person = next(o for o in scene.truth(t).obstacles if o.name == 'person')
    maps = scene.truth_maps(t)
    x0, y0, x1, y1 = (round(v) for v in person.box)
    assert bool(maps.moving[0, (y0 + y1) // 2, (x0 + x1) // 2])
    assert not bool(maps.moving[0, 20, :20].any())
    assert 0.003 < float(maps.moving.float().mean()) < 0.1


def test_clearance_tells_of_what_is_in_the_way_whether_or_not_it_moves(scene):
    halt = scene.truth(time_in(scene, 'halt'))
    assert halt.time_to_contact_s == math.inf
    assert halt.clearance_m == pytest.approx(halt.distance_m)
    still = scene.truth(time_in(scene, 'still'))   # the trolley waits beside the way
    assert still.clearance_m > 15
    turned = time_in(scene, 'turn', 0.5)
    assert scene.truth(turned).clearance_m == pytest.approx(
        float(scene.truth_maps(turned).clearance.min()), rel=0.03)


def gray(image: np.ndarray) -> np.ndarray:
    return cv2.cvtColor(image, cv2.COLOR_RGB2GRAY).astype(np.float32)
