# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test obstacles in metres: geometry, distances against rendered truth, when to be silent."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from render_scenes import BOX, Camera, Thing, WHITE, plain_bank, scene
from torch.nn.functional import avg_pool2d

from vjepa_ros.clip.optics import Optics
from vjepa_ros.clip.resize import View
from vjepa_ros.clip.ring import Sample
from vjepa_ros.lab.world.rendering.render import truth
from vjepa_ros.obstacles import (
    LEAST_ACROSS,
    LEVELS,
    MIN_HEIGHT,
    Mount,
    ObstacleSettings,
    base_points,
    find_obstacles,
    scan,
)
from vjepa_ros.perception.assessment import LevelFilter, SETTLE_RESULTS, assess
from vjepa_ros.perception.judgement import Said, judge
from vjepa_ros.perception.learned import Distribution, LearnedField
from vjepa_ros.perception.settings import Settings
from vjepa_ros.perception.types import Level, Quality, Region, Result
from vjepa_ros.ros.perception_node.parameters import SCHEMA

pytestmark = pytest.mark.usefixtures('one_thread')
ROOT = Path(__file__).resolve().parents[1]
SIZE = (384, 288)
HEIGHT, PITCH = 0.5, 0.15
MOUNT = Mount.from_angles(HEIGHT, pitch=PITCH)
SETTINGS = Settings()
VIEW = View('squash', SIZE, 256)
EDGES = np.geomspace(0.1, 16.0, 30)
SAMPLE = Sample((0, 1, 2, 3), tuple(range(1, 5)), 4, 'optical', SIZE, 0.75, 4.0, 4, False)
HOW = ObstacleSettings()
SHORT = replace(HOW, max_range=3.0)      # up to where the ground is measured
PERIOD = 0.1
SPEED = math.cos(PITCH)   # along the axis of a camera that drives ahead at 1 m/s


@pytest.mark.parametrize(('height', 'pitch', 'text'), [
    (0.0, 0.0, 'above 0'), (1.0, math.pi / 2, 'straight')])
def test_a_pose_that_cannot_serve_is_refused(height, pitch, text):
    with pytest.raises(ValueError, match=text):
        Mount.from_angles(height, pitch=pitch)


def test_angles_and_transforms_of_tf_give_the_pose():
    mount = Mount.from_angles(0.4, 0.2, -0.1, pitch=0.3, yaw=-0.5, roll=0.1)
    r, w = mount.rotation, math.sqrt(1 + np.trace(mount.rotation)) / 2
    quaternion = ((r[2, 1] - r[1, 2]) / (4 * w), (r[0, 2] - r[2, 0]) / (4 * w),
                  (r[1, 0] - r[0, 1]) / (4 * w), w)
    same = Mount.from_transform((0.2, -0.1, 0.4), quaternion)
    np.testing.assert_allclose(same.rotation, mount.rotation, atol=1e-9)
    points = np.array([[2.0, 0.3, 0.1]])
    back = same.to_camera(points) @ same.rotation.T + same.position
    np.testing.assert_allclose(back, points, atol=1e-9)
    side = Mount.from_angles(0.4, x=0.5, yaw=math.pi / 2)
    # Turning left swings a camera ahead of the centre to the left, which is where it looks.
    assert side.closing_speed((2.0, 0.0, 0.0), (0, 0, 1.0)) == pytest.approx(0.5)


def known(things, speed: float) -> LearnedField:
    """What perfect heads say of a camera that drives ahead; what is plain is unknown."""
    made = scene(things, Camera(at=(0, -HEIGHT, 0), velocity=(0, 0, speed), pitch=-PITCH),
                 frames=2, interval_s=PERIOD, size=SIZE)
    found = truth(made, plain_bank(), SIZE)

    def patches(values):
        return avg_pool2d(values.float(), (SIZE[1] // VIEW.grid[0], SIZE[0] // VIEW.grid[1])
                          )[0].numpy()

    plain = [number for number, thing in enumerate(things) if thing.texture == WHITE]
    shown = patches(~torch.isin(found.shape, torch.tensor(plain))) > 0.5
    rate = np.where(shown, patches(found.looming), np.nan).astype(np.float32)
    course = patches(found.enters & (found.enter_time < 6))
    contact_s = float(found.enter_time.min()) if found.enters.any() else math.inf
    return LearnedField(rate, np.full_like(rate, 0.01), np.where(shown, np.float32(0.9), 0),
                        np.zeros_like(rate), course,
                        Distribution(EDGES, 1.0 * (contact_s <= EDGES)),
                        Distribution(EDGES, np.zeros(len(EDGES))), VIEW, sees=False)


@lru_cache
def seen(*things, speed=1.0):
    """The result of a camera that drives ahead, and its lens."""
    focal = SIZE[0] / 2 / math.tan(math.radians(35))
    lens = Optics(focal, focal, (SIZE[0] - 1) / 2, (SIZE[1] - 1) / 2, assumed=False)
    learned = known(things, speed)
    said, smooth = Said(learned, lens), LevelFilter().smooth
    found, raw = assess('camera', SAMPLE, VIEW, said, judge([said], SETTINGS)[0], SETTINGS,
                        motion_score=0.0, age_s=0.01, flags=Quality(0))
    for _ in range(SETTLE_RESULTS + 1):
        told = smooth(raw, found, SETTINGS)
    return Result(told, None, learned.rate, None, VIEW, None, learned), lens


def box(distance, x=0.0, half=(0.6, 0.4, 0.4), **more):
    """A box that stands on the ground with its front at a distance."""
    return Thing(BOX, (x, -half[1], distance + half[2]), half, tile_m=0.8, **more)


def find(view, speed=SPEED, how=HOW, settings=SETTINGS, still=False):
    result, lens = view     # a picture that repeats is that of a robot that stands
    return find_obstacles(result, lens, MOUNT, speed, settings, how, still or speed == 0)


@pytest.mark.parametrize('distance', [1.2, 3.0])
@pytest.mark.parametrize('speed', [math.nan, SPEED], ids=['ground', 'odometry'])
def test_a_box_is_found_where_it_stands(distance, speed):
    found = find(seen(box(distance)), speed)
    middle = np.abs(found.slope.mean(axis=1)) < 0.4 / distance
    assert np.isfinite(found.reach[middle]).mean() > 0.7
    assert np.nanmedian(found.reach[middle]) == pytest.approx(distance, rel=0.15)
    # Nothing beside it, but for cells whose windows its edge cuts.
    beside = np.abs(found.slope.mean(axis=1)) > 0.6 / distance + 0.2
    assert np.isnan(found.reach[beside]).all()


def test_open_ground_and_what_is_lower_than_the_band_give_no_points():
    found = find(seen(), how=SHORT)
    assert found.withheld == '' and found.free.mean() > 0.6
    assert base_points(found, MOUNT, HOW).shape == (0, 4)
    low = find(seen(box(2.0, half=(0.6, 0.01, 0.4))))
    assert np.isnan(low.reach).all()


def test_points_fill_the_width_and_the_band_and_doubt_moves_them_nearer():
    result, lens = ahead = seen(box(2.0))
    found = find(ahead)
    points = base_points(found, MOUNT, HOW)
    doubtful = replace(result.learned, confidence=0.5 * result.learned.confidence)
    halved = base_points(find((replace(result, learned=doubtful), lens), settings=replace(
        SETTINGS, min_confidence=0.01)), MOUNT, HOW)
    assert 0.0 < points[:, 3].min() <= points[:, 3].max() <= 1.0
    assert halved[:, 3].mean() == pytest.approx(0.5 * points[:, 3].mean(), rel=0.2)
    assert 0.7 < points[:, 0].min() / np.nanmin(found.reach) < 0.97
    assert np.isnan(find(ahead, how=replace(HOW, max_range=1.5)).reach).all()
    assert MIN_HEIGHT + 0.01 < points[:, 2].min() < points[:, 2].max() < HOW.max_height - 0.01
    across = np.sort(points[np.abs(points[:, 1]) < 0.5, 1])
    assert np.diff(across).max() < 0.1
    assert across.min() < -0.4 < 0.4 < across.max()


def changed(view, **changes):
    result, lens = view
    return replace(result, assessment=replace(result.assessment, **changes)), lens


def blanked(view, first_row, last_row, columns=slice(None)):
    """A clear view in which rows of patches, counted from below, can not be measured."""
    result, lens = changed(view, level=Level.CLEAR)
    rate, rows = result.learned.rate.copy(), len(result.learned.rate)
    rate[rows - 1 - last_row:rows - first_row, columns] = np.nan
    return replace(result, learned=replace(result.learned, rate=rate)), lens


def with_way(view, free_m, sees=True):
    """A result of which heads say how far the way ahead is free [m]."""
    result, lens = view
    steps = Distribution(np.array([0.5 * free_m, free_m, 2 * free_m]), np.array([0.0, 0.5, 1.0]))
    return replace(result, learned=replace(result.learned, clearance=steps, sees=sees)), lens


def unchanged(view, seconds):
    return replace(view[0], unchanged_s=seconds), view[1]


def danger(**changes):
    """A box to the right has a distance; what comes from the left has none."""
    return changed(seen(box(2.0, x=0.7, half=(0.3, 0.4, 0.3))), **{
        'level': Level.WARNING, 'bearing': 0.35, 'regions': (ON_IT,), **changes})


ON_IT = Region(270.0, 100.0, 60.0, 60.0, 0.0, 0.0, 1.0, 1.0, 'CENTER', 0.8, True)
LEFT = replace(ON_IT, x=20.0)
# The ground is measured up to its foot; on it nothing is, so nothing stands there either.
PLAIN = Thing(BOX, (0, -1.5, 1.2 + 0.4), (4.0, 1.5, 0.4), texture=WHITE)
FAR = replace(HOW, min_sight=3.0)
GAP, UNPLACED, SAME = 'is measured for', 'no known place', 'not changed by a single bit for 0.03 s'


@pytest.mark.parametrize(('view', 'how', 'withheld'), [
    (lambda: changed(seen(box(2.0)), level=Level.UNKNOWN), {}, 'unknown'),
    (lambda: changed(seen(box(2.0)), flags=Quality.STALE), {}, 'stale'),
    (lambda: changed(seen(box(2.0)), flags=Quality.ASSUMED_INTRINSICS), {}, 'camera_info'),
    (lambda: changed(seen(box(2.0)), flags=Quality.UNTRAINED), {}, 'untrained'),
    (lambda: (replace(seen()[0], learned=None, heads_problem='no heads'), None), {},
     'looming is unknown: no heads'),
    (lambda: seen(box(2.0), speed=0.0), {'speed': 0.0}, 'stands'),
    (lambda: with_way(seen(box(2.0), speed=0.0), 2.0), {'speed': 0.0}, ''),
    (lambda: with_way(seen(box(2.0), speed=0.0), 2.0, sees=False),
     {'speed': 0.0}, 'stands'),
    # The same picture with new stamps looms nowhere: to a robot that drives it looks clear.
    (lambda: unchanged(seen(), 0.03), {}, SAME),
    (lambda: unchanged(seen(), 0.03), {'still': True}, ''),
    (lambda: changed(seen(PLAIN), level=Level.CLEAR), {}, GAP),
    (lambda: blanked(seen(), 7, 15), {}, ''),       # the ground is measured up to 2.3 m
    (lambda: blanked(seen(), 7, 15), {'how': FAR}, GAP),
    (lambda: with_way(blanked(seen(), 7, 15), 8.0), {'how': FAR}, ''),
    (lambda: blanked(seen(), 3, 3), {}, ''), (lambda: blanked(seen(), 3, 4), {}, GAP),
    (lambda: blanked(seen(), 3, 4, slice(0, 4)), {}, ''),         # not straight ahead
    (lambda: danger(), {}, ''),
    (lambda: danger(bearing=-0.35), {}, UNPLACED),
    (lambda: danger(regions=(ON_IT, LEFT)), {}, UNPLACED),
    (lambda: danger(regions=(ON_IT, replace(LEFT, on_course=False))), {}, '')])
def test_what_is_not_known_is_withheld_with_the_reason(view, how, withheld):
    said = find(view(), **how).withheld
    assert withheld in said if withheld else said == ''


def test_nothing_beyond_what_is_measured_is_free():
    found = find(blanked(seen(), 7, 15))
    assert not found.free.any() and np.median(found.sight) == pytest.approx(2.3, abs=0.2)


def test_no_ray_leads_through_what_is_not_measured():
    """Behind a plain thing one with texture is seen: it marks, but the way to it is not free."""
    ahead = seen(box(2.0))
    whole = find(ahead, how=SHORT)
    hidden = find(blanked(ahead, 2, 4), how=replace(SHORT, min_sight=0.0))
    assert np.isfinite(hidden.reach).sum() == np.isfinite(whole.reach).sum() > 4
    assert len(base_points(hidden, MOUNT, SHORT)) >= 4
    free, unknown = (scan(found, MOUNT, SHORT).ranges for found in (whole, hidden))
    assert np.nanmin(free) == pytest.approx(1.9, rel=0.15)      # nearer than it by its error
    assert np.isinf(free).any() and np.isnan(unknown).all()


def test_heads_tell_the_free_way_while_the_robot_stands():
    found = find(with_way(seen(box(2.0), speed=0.0), 2.0), speed=0.0)
    points = base_points(found, MOUNT, HOW)
    np.testing.assert_allclose(points[:, [0, 3]], [[1.4, 1.0]] * len(points))    # less its error
    assert len(points) >= 4 and np.abs(points[:, 1]).max() == pytest.approx(0.3)


def test_the_parameters_for_nav2_fit_what_is_published():
    content = yaml.safe_load((ROOT / 'config/nav2_collision_monitor.yaml').read_text())
    monitor = content['collision_monitor']['ros__parameters']
    defaults = {row.name: row.default for row in SCHEMA.rows}
    for name in monitor['observation_sources']:
        source = monitor[name]
        assert source['source_timeout'] > 0          # 0 would take silence for clear
        assert source['max_height'] == defaults['obstacles.max_height']
    for name in monitor['polygons']:
        assert monitor[name]['min_points'] <= LEAST_ACROSS * len(LEVELS)
    layer = content['local_costmap']['local_costmap']['ros__parameters']['vjepa_layer']
    assert not layer['points']['clearing']
    assert layer['scan']['clearing'] and layer['scan']['inf_is_valid']
    manager = content['lifecycle_manager_vjepa']['ros__parameters']
    assert manager['bond_timeout'] == 0.0
    assert manager['service_timeout'] >= 60.0
