# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The quick way to draw boxes and cards: the same pictures as the renderer's."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from vjepa_ros.lab.world.demo_scene.alley import Alley
from vjepa_ros.lab.world.demo_scene.approach import ApproachScene
from vjepa_ros.lab.world.demo_scene.rasterizer import Swift
from vjepa_ros.lab.world.demo_scene.timeline import Timeline
from vjepa_ros.lab.world.demo_scene.upright_boxes import bodies_of, far_to_near, view_of
from vjepa_ros.lab.world.rendering.render import render
from vjepa_ros.lab.world.scenes.scene import BOX, CARD, CYLINDER, Scenes
from vjepa_ros.lab.world.textures.atlas import pack
from vjepa_ros.lab.world.textures.bank import TextureBank

SIZE = (200, 150)


@pytest.fixture(scope='module')
def approach() -> ApproachScene:
    return ApproachScene((320, 240), noise=0.0)


@pytest.fixture(scope='module')
def bank() -> TextureBank:
    """Soft patterns, one with a round hole around it."""
    y, x = np.mgrid[0:64, 0:64] / 64
    images = []
    tones = ((200, 90, 60), (90, 160, 200), (180, 180, 120), (120, 200, 90))
    for number, tone in enumerate(tones):
        wave = 0.75 + 0.25 * np.sin(2 * np.pi * (number + 1) * x) * np.cos(4 * np.pi * y)
        opaque = np.full((64, 64, 1), 255.0)
        if number == 3:
            opaque[np.hypot(x - 0.5, y - 0.5) > 0.4] = 0
        images.append(np.concatenate((wave[..., None] * tone, opaque), -1).astype(np.uint8))
    return TextureBank(pack(images), {'plain': (0, 1, 2), 'person': (3,)}, ())


def plain(kinds: tuple[int, ...], position: list, half: list, yaw: list | None = None,
          camera_yaw: float = 0.0, texture: list | None = None, tile: float = 1.0) -> Scenes:
    """A sunny place with some shapes, seen from 0.8 m above the ground."""
    count = len(kinds)
    c, s = math.cos(camera_yaw), math.sin(camera_yaw)

    def row(*values: object) -> torch.Tensor:
        return torch.tensor([values], dtype=torch.float32)

    return Scenes(
        interval_s=torch.ones(1), intrinsics=row(150, 150, 99.5, 74.5),
        distortion=torch.zeros(1, 2), camera_position=row((0.0, -0.8, 0.3)),
        camera_rotation=row(((c, 0.0, -s), (0.0, 1.0, 0.0), (s, 0.0, c))),
        camera_velocity=torch.zeros(1, 3), camera_spin=torch.zeros(1, 3), kinds=kinds,
        alive=torch.ones(1, count, dtype=torch.bool), position=row(position),
        yaw=row(yaw or [0.0] * count), half=row(*half), velocity=torch.zeros(1, count, 3),
        yaw_rate=torch.zeros(1, count),
        texture=torch.tensor([texture or [n % 3 for n in range(count)]]),
        tile_m=row(*[0.0 if kind == CARD else tile for kind in kinds]),
        tint=torch.ones(1, count, 3),
        ground_texture=torch.tensor([2]), ground_tile_m=torch.tensor([1.5]),
        ground_tint=row(1.0, 0.9, 0.8), sky_top=row(0.4, 0.6, 0.9),
        sky_horizon=row(0.8, 0.85, 0.9), sky_texture=torch.tensor([-1]),
        sun_direction=row(0.48, -0.8, -0.36), sun=torch.tensor([0.8]),
        ambient=torch.tensor([0.4]), shadow=torch.tensor([0.7]), fog_per_m=torch.tensor([0.02]),
        fog_color=row(0.8, 0.85, 0.9), exposure=torch.ones(1, 1),
        white_balance=row(1.05, 1.0, 0.9), gamma=torch.tensor([0.5]),
        vignette=torch.tensor([0.2]), blur_px=torch.zeros(1), shutter=torch.zeros(1),
        read_noise=torch.zeros(1), shot_noise=torch.zeros(1),
        grey=torch.zeros(1, dtype=torch.bool), jpeg=torch.zeros(1), seed=torch.tensor([1]))


def both(scenes: Scenes, bank: TextureBank, size=SIZE) -> tuple[np.ndarray, np.ndarray]:
    quick = Swift(bank, size).draw(scenes)
    return quick.astype(float), render(scenes, bank, size)[0, 0].numpy().astype(float)


def likeness_db(a: np.ndarray, b: np.ndarray) -> float:
    return 10 * math.log10(255 ** 2 / max(np.mean((a - b) ** 2), 1e-9))


# -- the same pictures ----------------------------------------------------------------------------

@pytest.mark.parametrize('t', [0.5, 6.5, 9.4, 13.5, 16.0, 17.2, 20.5, 21.5, 28.0, 33.0])
def test_pictures_of_the_alley_are_those_of_the_renderer(approach, t):
    scenes = approach.scene(t)
    a, b = both(scenes, approach.bank, approach.size)
    assert likeness_db(a, b) > 35
    assert np.abs(a - b).mean() < 2.0   # textures go from size to size in steps
    assert abs((a - b).mean()) < 0.3


@pytest.mark.parametrize('camera_yaw', [0.0, 0.3, -0.5])
def test_turned_boxes_and_cards_are_those_of_the_renderer(bank, camera_yaw):
    scenes = plain(
        (BOX, BOX, BOX, CARD, BOX),
        [(0.2, -0.3, 3.0), (-1.6, -0.6, 4.5), (1.7, -1.4, 5.0), (-0.4, -0.7, 6.0),
         (0.3, -0.75, 3.2)],
        [(0.4, 0.3, 0.3), (0.5, 0.6, 0.8), (0.6, 0.3, 0.6), (0.5, 0.7, 0.01), (0.2, 0.15, 0.2)],
        [0.5, -0.9, 2.3, 0.4, 0.1], camera_yaw, [0, 1, 2, 3, 1])
    a, b = both(scenes, bank)
    assert likeness_db(a, b) > 33
    assert np.abs(a - b).mean() < 1.5


def test_a_texture_that_fills_a_face_is_that_of_the_renderer(bank):
    scenes = plain((BOX, CARD), [(-0.6, -0.8, 2.5), (0.8, -0.7, 2.2)],
                   [(0.5, 0.5, 0.5), (0.6, 0.6, 0.01)], texture=[1, 3], tile=0.0)
    a, b = both(scenes, bank)
    assert likeness_db(a, b) > 33


def test_bodies_that_overlap_hide_one_another_pixel_by_pixel(bank):
    # A card that sticks out of a wall, and a box half inside another.
    scenes = plain((BOX, CARD, BOX, BOX),
                   [(-1.2, -1.0, 5.0), (-0.9, -0.7, 4.0), (1.0, -0.4, 4.0), (0.8, -0.5, 3.6)],
                   [(0.2, 1.0, 4.0), (0.5, 0.7, 0.01), (0.5, 0.4, 0.5), (0.2, 0.2, 0.5)],
                   texture=[0, 3, 1, 2])
    a, b = both(scenes, bank)
    assert likeness_db(a, b) > 32
    alone = replace(scenes, alive=torch.tensor([[True, False, True, True]]))
    hidden = render(alone, bank, SIZE)[0, 0].numpy().astype(float)
    assert likeness_db(b, hidden) < 32    # the card does show


def test_a_box_at_the_camera_is_cut_off_behind_it(bank):
    scenes = plain((BOX,), [(0.9, -1.0, 0.0)], [(0.3, 1.0, 4.0)])
    a, b = both(scenes, bank)
    assert likeness_db(a, b) > 35
    behind = plain((BOX,), [(0.0, -0.5, -2.0)], [(0.5, 0.5, 0.5)])
    nothing = replace(behind, alive=torch.zeros(1, 1, dtype=torch.bool))
    assert np.array_equal(Swift(bank, SIZE).draw(behind)[:75],
                          Swift(bank, SIZE).draw(nothing)[:75])


# -- one frame after the other --------------------------------------------------------------------

def test_a_picture_does_not_depend_on_those_drawn_before(approach):
    bank = approach.bank
    times = (4.0, 4.3, 9.0, 4.3, 17.0, 17.4, 4.0)
    swift = Swift(bank, approach.size)
    for t in times:
        assert np.array_equal(swift.draw(approach.scene(t)),
                              Swift(bank, approach.size).draw(approach.scene(t)))


def test_noise_is_that_of_the_seed_and_of_the_scene(bank):
    scenes = replace(plain((BOX,), [(0.0, -0.5, 3.0)], [(0.3, 0.5, 0.3)]),
                     read_noise=torch.tensor([3.0]))
    clean = Swift(bank, SIZE).draw(replace(scenes, read_noise=torch.zeros(1))).astype(float)
    first, again = (Swift(bank, SIZE, 4).draw(scenes) for _ in range(2))
    other = Swift(bank, SIZE, 4).draw(replace(scenes, seed=torch.tensor([2])))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    inside = (clean > 20) & (clean < 235)
    assert (first - clean)[inside].std() == pytest.approx(3.0, rel=0.05)
    assert abs((first - clean)[inside].mean()) < 0.1


# -- order ----------------------------------------------------------------------------------------

def order_of(scenes: Scenes) -> tuple[list[int], bool]:
    return far_to_near(bodies_of(scenes, view_of(scenes, SIZE)))


def test_what_hides_something_is_drawn_after_it():
    # A long wall whose middle is far away hides a box beside and beyond it.
    wall_then_box = plain((BOX, BOX), [(1.2, -1.0, 20.0), (2.2, -0.5, 4.0)],
                          [(0.2, 1.0, 19.0), (0.4, 0.5, 0.4)])
    assert order_of(wall_then_box) == ([1, 0], False)
    stack = plain((BOX, BOX, BOX), [(0.0, -0.2, 3.0), (0.0, -0.6, 3.0), (0.0, -0.5, 5.0)],
                  [(0.4, 0.2, 0.4), (0.3, 0.2, 0.3), (0.5, 0.5, 0.5)])
    order, overlap = order_of(stack)
    assert order[0] == 2 and not overlap


def test_bodies_that_share_space_are_noticed():
    scenes = plain((BOX, BOX), [(0.0, -0.5, 3.0), (0.3, -0.5, 3.2)],
                   [(0.4, 0.5, 0.4), (0.4, 0.5, 0.4)])
    assert order_of(scenes)[1]


# -- limits ---------------------------------------------------------------------------------------

@pytest.mark.parametrize(('change', 'word'), [
    ({'kinds': (CYLINDER,)}, 'shapes'),
    ({'camera_rotation': torch.tensor([[[[1, 0, 0], [0, 0.8, 0.6], [0, -0.6, 0.8]]]])}, 'level'),
    ({'distortion': torch.tensor([[0.1, 0.0]])}, 'distortion'),
    ({'jpeg': torch.tensor([0.5])}, 'compression'),
    ({'exposure': torch.ones(1, 2)}, 'one frame')])
def test_other_scenes_are_refused_with_the_reason(bank, change, word):
    scenes = plain((BOX,), [(0.0, -0.5, 3.0)], [(0.3, 0.5, 0.3)])
    with pytest.raises(ValueError, match=word):
        Swift(bank, SIZE).draw(replace(scenes, **change))


def test_the_alley_shows_everything_where_the_timeline_has_it():
    timeline, alley = Timeline(), Alley((64, 48), 50.0, 0, 0.0)
    moment = timeline.at(8.0 + 2 * timeline.period_s)
    scenes = alley.scene(moment, 1.0, 0)
    front = scenes.position[0, 0, :, 2] - scenes.half[0, :, 2]   # nearest z of boxes
    ahead = front - scenes.camera_position[0, 0, 2]
    boxes = torch.tensor(scenes.kinds) == BOX
    deep = scenes.half[0, :, 2]
    crates = boxes & (deep > 0.549) & (deep < 0.551) & scenes.alive[0]
    gap = moment.trolley[0][1] - moment.robot_z
    assert float(ahead[crates].min()) == pytest.approx(gap, abs=1e-5)
    assert scenes.camera_velocity[0].tolist() == pytest.approx([0, 0, moment.robot_v])
