# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test how looming is judged by depth and poses, on folders whose truth is known."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import cv2
import numpy as np
import pytest
from scenes import Approach

from vjepa_ros.cli import evaluate
from vjepa_ros.clip.resize import View
from vjepa_ros.lab.evaluation import rail
from vjepa_ros.lab.evaluation.metrics import Outcome, Truth, patch_figures
from vjepa_ros.lab.evaluation.still_scenes import patch_truth
from vjepa_ros.sources import PlayOptions, SourceError, open_source

NAN, SIZE, RATE = math.nan, (160, 120), 10.0


def about_y(angle: float) -> np.ndarray:
    c, s = math.cos(angle), math.sin(angle)
    return np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]])


def write_scene(folder: Path, distances: np.ndarray, turn: float = 0.0) -> Path:
    """A wall ahead of a camera that looks along x of the world and turns `turn` rad a frame."""
    (folder / 'frames').mkdir(parents=True)
    wall, count = Approach(SIZE, 4.0), len(distances)
    poses = np.tile(np.eye(4), (count, 1, 1))
    for n, distance in enumerate(distances):
        cv2.imwrite(str(folder / 'frames' / f'{n:03d}.png'), wall.frame(4.0 - distance))
        poses[n, :3, :3] = about_y(math.pi / 2 + n * turn)
        poses[n, 0, 3] = distances[0] - distance
    rows = [f'{n},{n / RATE:.3f}' for n in range(count)]
    (folder / 'stamps.csv').write_text('\n'.join(['index,seconds', *rows]) + '\n')
    np.save(folder / 'poses.npy', poses)
    np.save(folder / 'K.npy', np.array([[150.0, 0, 79.5], [0, 150.0, 59.5], [0, 0, 1]]))
    depth = np.tile(np.asarray(distances, np.float16)[:, None, None], (1, 12, 16))
    np.savez(folder / 'depth.npz', D=depth)
    return folder


def scene_of(folder: Path, **options: float):
    with open_source(folder, PlayOptions(**options)) as source:
        return source, source.scene()


def test_the_truth_is_the_speed_along_the_optical_axis_over_the_depth(tmp_path):
    source, scene = scene_of(write_scene(tmp_path / 'a', 4.0 - 0.25 * np.arange(9)))
    assert source.intrinsics == (150.0, 150.0, 79.5, 59.5)
    assert scene.closing_m_s == pytest.approx(np.full(9, 2.5))
    assert scene.turning_rad_s == pytest.approx(np.zeros(9))
    truth = patch_truth(scene.depth_m[4], scene.closing_m_s[4], View('squash', SIZE, 64))
    assert truth == pytest.approx(np.full((4, 4), 2.5 / 3.0))


def test_what_moves_away_has_a_negative_rate_and_turning_is_per_second(tmp_path):
    _, scene = scene_of(write_scene(tmp_path / 'a', 2.0 + 0.01 * np.arange(5), turn=0.05))
    assert scene.turning_rad_s == pytest.approx(np.full(5, 0.5))
    assert scene.closing_m_s[0] == pytest.approx(-0.1)
    assert scene.closing_m_s[4] == pytest.approx(-0.1 * math.cos(0.2))    # it looks aside by then


def test_a_patch_is_judged_where_half_of_its_cells_have_a_depth():
    depth = np.full((8, 8), 2.0)                  # 2 x 2 cells for each of 4 x 4 patches
    depth[0, 0] = depth[0, 1] = NAN
    depth[1, 0], depth[0, 2:4], depth[1, 2] = 4.0, NAN, NAN
    truth = patch_truth(depth, 1.0, View('squash', (80, 80), 64))
    assert truth[0, 0] == pytest.approx((1 / 4 + 1 / 2) / 2)
    assert math.isnan(truth[0, 1]) and np.isnan(truth).sum() == 1


def test_patches_beside_the_picture_are_not_judged():
    truth = patch_truth(np.full((8, 16), 2.0), 1.0, View('letterbox', (160, 80), 64))
    assert np.isnan(truth[[0, 3]]).all() and truth[1:3] == pytest.approx(np.full((2, 4), 0.5))


@pytest.mark.parametrize(('spoil', 'text'), [
    (lambda f: np.save(f / 'poses.npy', np.tile(np.eye(4), (4, 1, 1))),
     r'poses\.npy.*\(4, 4, 4\).*must be \(5, 4, 4\)'),
    (lambda f: np.save(f / 'poses.npy', np.full((5, 4, 4), NAN)), r'poses\.npy.*pose 0.*nan'),
    (lambda f: np.save(f / 'poses.npy', 2 * np.tile(np.eye(4), (5, 1, 1))),
     r'poses\.npy.*pose 0 is no rotation.*camera to world'),
    (lambda f: (f / 'depth.npz').unlink(), r'depth\.npz.*does not exist.*add it'),
    (lambda f: np.savez(f / 'depth.npz', depth=np.ones((5, 2, 2))), r'depth\.npz.*as D'),
    (lambda f: np.savez(f / 'depth.npz', D=np.ones((5, 4))), r'depth\.npz.*\(5, 4\).*\(5, h, w\)'),
    (lambda f: np.savez(f / 'depth.npz', D=np.full((5, 2, 2), NAN)),
     r'depth\.npz.*nan at \(0, 0, 0\).*0 for unknown'),
    (lambda f: (f / 'depth.npz').write_bytes(b'none'), r'depth\.npz.*numpy\.savez'),
    (lambda f: np.save(f / 'K.npy', np.eye(4)), r'K\.npy.*\(4, 4\), must be \(3, 3\)'),
    (lambda f: np.save(f / 'K.npy', np.zeros((3, 3))),
     r'K\.npy.*focal length fx is 0 px.*correct it'),
    (lambda f: np.save(f / 'K.npy', np.array(['a'])), r'K\.npy.*no numbers'),
    (lambda f: (f / 'stamps.csv').write_text('index,seconds\n0,0\n1,0.2\n2,0.1\n3,0.3\n4,0.4\n'),
     r'stamps\.csv.*line 4.*not after the one before'),
])
def test_a_folder_that_is_wrong_is_named_with_value_and_remedy(spoil, text, tmp_path):
    spoil(write_scene(tmp_path / 'a', np.full(5, 2.0)))
    with pytest.raises(SourceError, match=re.compile(text, re.DOTALL)):
        scene_of(tmp_path / 'a')


def test_unknown_counts_as_zero_and_apart_from_what_is_known():
    f = patch_figures([1.0, 2.0, 3.0], np.zeros(3), [1.0, NAN, 3.0], [1.0, NAN, 1.0])
    assert f['looming_r2'] == pytest.approx(1 - 4 / 2)
    assert (f['looming_r2_known'], f['correlation_known']) == pytest.approx((1.0, 1.0))
    assert f['looming_mae_per_s'] == pytest.approx(2 / 3)
    assert f['mae_of_zero_per_s'] == pytest.approx(2.0)
    assert f['looming_known'] == pytest.approx(2 / 3)


def test_honest_errors_are_as_large_as_stated():
    error = np.random.default_rng(0).laplace(scale=0.2 / math.sqrt(2), size=100_000)
    f = patch_figures(np.zeros(error.size), np.zeros(error.size), error,
                      np.full(error.size, 0.2))
    assert f['error_over_stated'] == pytest.approx(1.0, abs=0.02)


def test_frames_are_parted_by_how_fast_the_camera_turns():
    truth, turning = [0.0, 1.0] * 3, [0, 29.9, 30, 60, 60.1, 90]
    rate = [0.0, 1.0, 0.5, 0.5, 1.0, 0.0]
    f = patch_figures(truth, turning, rate, np.ones(6))['looming_r2_by_turning_deg_s']
    assert f == {'below_30': 1.0, '30_to_60': 0.0, 'above_60': -3.0}


def test_the_command_judges_a_folder_without_labels_in_its_first_table(tmp_path):
    write_scene(tmp_path / 'wall', 4.2 - np.arange(36) / RATE)
    out, page = tmp_path / 'figures.json', tmp_path / 'page.md'
    assert evaluate.main([str(tmp_path / 'wall'), '--jobs', '1', '--json', str(out),
                          '--document', str(page)]) == 0
    looming = json.loads(out.read_text())['looming']
    f = looming['wall']
    assert looming['pooled'] == f
    assert f['looming_known'] > 0.9 and f['looming_r2_known'] > 0.9
    assert f['looming_mae_per_s'] < 0.2 * f['mae_of_zero_per_s']
    assert re.search(r'### Real cameras.*\| wall \|.*### Sequences', page.read_text(),
                     re.DOTALL)


@pytest.mark.parametrize('slant_deg', [0.0, 15.0])
def test_a_rail_shows_each_place_of_its_plane_where_the_pinhole_puts_it(slant_deg):
    def dot(rng, size):
        y, x = np.mgrid[:size, :size]
        return 255.0 * (np.hypot(x - 552, y - 512) < 20)[..., None].repeat(3, -1)

    frames = [*rail.RailSource(rail.Rail(dot, 10, 5, slant_deg))]
    angle, beside_m = math.radians(slant_deg), 40 * rail.TILE_M / rail.TEXELS
    for frame in (frames[0], frames[-4]):
        distance = frame.truth['time_to_contact_s'] * 5 * 0.01
        expected = 159.5 + rail.FOCAL_PX * beside_m * math.cos(angle) / (
            distance + beside_m * math.sin(angle))
        y, x = np.nonzero(frame.rgb[..., 0] > 128)
        assert x.mean() == pytest.approx(expected, abs=1)
        assert y.mean() == pytest.approx(119.5, abs=1)
    assert len(frames) == rail.JUDGED + 5 * rail.LEAD_S - rail.LAST + 1
    assert frames[-1].truth['time_to_contact_s'] == pytest.approx(rail.LAST / 5)


def test_the_command_drives_along_rails(tmp_path, monkeypatch):
    monkeypatch.setattr(rail, 'RAILS', rail.RAILS[2:3])
    out = tmp_path / 'figures.json'
    assert evaluate.main(['--rail', '--jobs', '1', '--json', str(out)]) == 0
    f = json.loads(out.read_text())['rail']['pooled']
    assert f['slope_per_frame'] == pytest.approx(-1, abs=0.1)
    assert f['ttc_median_relative_error'] < 0.1


def test_time_to_contact_that_falls_half_as_fast_has_a_slope_of_a_half():
    left = np.arange(40, 9, -1) / 10.0
    blank = np.full(31, NAN)
    said = Outcome(np.arange(31) > 3, blank, blank, 1.5 + left / 2, blank, blank)
    f = rail.fall([(Truth(np.arange(31) / 10, blank, left), said)])
    assert f['frames'] == 21 and f['slope_per_frame'] == pytest.approx(-0.5)
    assert f['ttc_median_relative_error'] == pytest.approx(0.25)      # at 2 s it says 2.5 s
