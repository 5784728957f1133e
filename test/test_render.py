# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Pictures of the renderer: they show what the truth says, and repeat exactly."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import cv2
import numpy as np
import pytest
import torch
from render_scenes import (
    BOX,
    CARD,
    CYLINDER,
    ELLIPSOID,
    HOLED,
    NOISY,
    SAMPLE,
    SIZE,
    STRIPED,
    WHITE,
    Camera,
    Thing,
    joined,
    plain_bank,
    scene,
)

from vjepa_ros.lab.world.rendering import render as module
from vjepa_ros.lab.world.rendering.lens import all_rays
from vjepa_ros.lab.world.rendering.render import render
from vjepa_ros.lab.world.rendering.sensor import expose
from vjepa_ros.lab.world.rendering.trace import trace
from vjepa_ros.lab.world.rendering.truth import truth
from vjepa_ros.lab.world.scenes.scene import GROUND, Scenes
from vjepa_ros.lab.world.textures.atlas import pack

MIDDLE = (60, 80)
CROWD = (*SAMPLE, Thing(BOX, (1.2, -1.0, 7.0), (0.3, 1.0, 3.0), yaw=-0.2, tile_m=0.7),
         Thing(ELLIPSOID, (-1.6, -0.3, 2.2), (0.2, 0.3, 0.2)))


def frames(scenes: Scenes, size: tuple[int, int] = SIZE, **options: object) -> np.ndarray:
    """Frames (T, H, W, 3) of one scene."""
    return render(scenes, plain_bank(), size, **options)[0].numpy()


def batch_frames(scenes: Scenes, samples: int = 2) -> torch.Tensor:
    """What a GPU would draw, drawn on the CPU."""
    with torch.inference_mode():
        return module._batch(scenes, plain_bank(), SIZE, slice(None), samples,
                             (all_rays, trace, expose))


# -- shapes and motion ----------------------------------------------------------------------------

@pytest.mark.parametrize('camera', [
    Camera(velocity=(0.4, 0.0, 0.8)), Camera(velocity=(0.0, 0.0, 1.0), spin=(0.0, 0.6, 0.0)),
    Camera(velocity=(0.2, 0.0, 0.5), spin=(0.3, -0.4, 0.5), distortion=(-0.08, 0.01),
           field=90.0)], ids=['drives', 'turns', 'all_axes_and_lens'])
def test_the_frame_before_warped_by_the_flow_is_the_newest_frame(camera):
    scenes = scene(SAMPLE, camera, interval_s=0.05, sun=torch.zeros(1), ambient=torch.ones(1))
    old, new = frames(scenes).astype(np.float32)
    found = truth(scenes, plain_bank(), SIZE)
    flow = 0.05 * found.flow[0].numpy()
    columns, rows = np.meshgrid(np.arange(SIZE[0], dtype=np.float32),
                                np.arange(SIZE[1], dtype=np.float32))
    warped = cv2.remap(old, columns - flow[..., 0], rows - flow[..., 1], cv2.INTER_LINEAR,
                       borderMode=cv2.BORDER_CONSTANT, borderValue=(-1, -1, -1))
    shape = found.shape[0].numpy()
    edge = cv2.dilate((cv2.morphologyEx(shape, cv2.MORPH_GRADIENT, np.ones((3, 3))) != 0
                       ).astype(np.uint8), np.ones((9, 9))) > 0
    near = found.depth[0].numpy() < 8
    use = ~edge & near & (warped[..., 0] >= 0) & (shape != -2)
    assert use.sum() > 3000
    error, change = (np.abs(a - new).mean(-1)[use] for a in (warped, old))
    assert np.median(error) < 0.25 * np.median(change)
    assert error.mean() < 0.4 * change.mean()


def test_narrow_windows_change_nothing():
    """Drawing shape by shape within rectangles gives what trying all shapes everywhere gives."""
    for camera in (Camera(pitch=-0.1), Camera(at=(0.0, -0.9, 2.0), yaw=0.6, roll=0.3),
                   Camera(field=100.0, distortion=(-0.08, 0.01))):
        scenes = scene(CROWD, camera, shutter=torch.full((1,), 0.4),
                       shadow=torch.full((1,), 0.9))
        fast, whole = render(scenes, plain_bank(), SIZE), batch_frames(scenes)
        gap = (fast.int() - whole.int()).abs().float()
        assert gap.mean() < 0.6           # bilinear weights of 5 bits, and rounding
        assert (gap.amax(-1) > 8).float().mean() < 2e-3
        assert whole.float().std() > 15


def test_motion_blur_follows_the_shutter():
    bar = Thing(BOX, (0.0, -0.6, 3.0), (0.2, 0.6, 0.1), (3.0, 0.0, 0.0), texture=WHITE)
    dark = torch.zeros(1, 3)
    sharp, blurred = (frames(scene([bar], ground_tint=dark, sky_top=dark, sky_horizon=dark,
                                   shutter=torch.full((1,), s)), samples=4)[1, MIDDLE[0], :, 0]
                      for s in (0.0, 0.5))
    between = [((line > 10) & (line < 0.9 * line.max())).sum() for line in (sharp, blurred)]
    assert between[0] <= 2
    # 3 m/s for half of 0.1 s at 2.9 m are about 6 px, at both edges, in four steps.
    assert 6 <= between[1] <= 14
    light = [(line.astype(float) ** 2).sum() for line in (sharp, blurred)]
    assert light[0] == pytest.approx(light[1], rel=0.05)


def test_edges_are_smooth_and_far_textures_do_not_flicker():
    tilted = Thing(CARD, (0.0, -0.6, 3.0), (0.7, 0.5, 0.001), texture=WHITE)
    dark = torch.zeros(1, 3)
    picture = frames(scene([tilted], Camera(roll=0.2), ground_tint=dark, sky_top=dark,
                           sky_horizon=dark))[1, ..., 0]
    bright = int(picture.max())
    assert ((picture > 0.2 * bright) & (picture < 0.8 * bright)).sum() > 60
    # Fine stripes on the ground turn into even grey far away, however the camera creeps on.
    stripes = scene([], Camera(velocity=(0.11, 0.0, 0.07)), frames=4,
                    ground_texture=torch.tensor([STRIPED]), ground_tile_m=torch.full((1,), 1.0))
    far = frames(stripes)[:, 63:68, :, 0].astype(float)
    near = frames(stripes)[:, 100:, :, 0].astype(float)
    assert far.std(0).mean() < 2.0
    assert far.std() < 4.0 < near.std()


def test_cards_show_their_pictures_upright_and_not_mirrored():
    image = np.zeros((64, 64, 4), np.uint8)
    image[..., 3] = 255
    image[:32, 32:, 0] = 255                                    # red in the upper right
    bank = replace(plain_bank(), atlas=pack([image, image]))
    for thing in (Thing(CARD, (0.0, -0.6, 3.0), (0.5, 0.5, 0.001), texture=0),
                  Thing(BOX, (0.0, -0.6, 3.5), (0.5, 0.5, 0.5), texture=0)):
        picture = render(scene([thing], ground_texture=torch.tensor([0]),
                               ambient=torch.ones(1)), bank, SIZE)[0, 1]
        red = picture[45:75, 65:95, 0].float()
        assert red[:12, 18:].min() > 200
        assert red[18:].max() < 60 and red[:, :12].max() < 60


# -- light ----------------------------------------------------------------------------------------

def test_a_face_towards_the_sun_is_lighter_and_its_shadow_dark():
    box = Thing(BOX, (0.0, -0.4, 3.5), (0.4, 0.4, 0.4), texture=WHITE)
    sun = torch.nn.functional.normalize(torch.tensor([[-0.7, -0.6, -0.2]]), dim=1)
    camera = Camera(at=(0.0, -1.5, 0.0), pitch=-0.35)
    scenes = scene([box], camera, sun_direction=sun, shadow=torch.ones(1),
                   ground_texture=torch.tensor([WHITE]))
    picture = frames(scenes)[1, ..., 0].astype(float)
    found = truth(scenes, plain_bank(), SIZE)
    ground = (found.shape[0] == GROUND).numpy()
    ray = np.argwhere(ground & (np.abs(found.depth[0].numpy() - 3.6) < 0.3))
    left = [picture[r, c] for r, c in ray if c < 55]
    right = [picture[r, c] for r, c in ray if 95 < c < 105]
    assert np.median(right) < 0.75 * np.median(left)            # the sun is on the left
    ambient_only = frames(replace(scenes, sun=torch.zeros(1)))[1, ..., 0].astype(float)
    assert (picture - ambient_only)[ground].max() > 40
    assert (picture >= ambient_only - 1).all()


# -- repetition -----------------------------------------------------------------------------------

def noisy(**changes: object) -> Scenes:
    strong = torch.full((1,), 4.0)
    return scene(CROWD, Camera(velocity=(0.0, 0.0, 1.0)), frames=3, read_noise=strong,
                 shot_noise=strong, jpeg=torch.full((1,), 0.5), shutter=torch.full((1,), 0.3),
                 blur_px=torch.full((1,), 0.6), **changes)


def test_the_same_scenes_give_the_same_pictures():
    first, second = frames(noisy()), frames(noisy())
    assert np.array_equal(first, second)
    other = frames(noisy(seed=torch.tensor([8])))
    assert not np.array_equal(first, other)
    assert np.abs(first.astype(float) - other).mean() < 8       # only its noise differs
    assert not np.array_equal(first[0] - first[1], np.zeros_like(first[0]))


@pytest.mark.parametrize('draw', [batch_frames, lambda s: render(s, plain_bank(), SIZE)],
                         ids=['whole', 'single'])
def test_pictures_do_not_depend_on_the_batch(draw):
    one, two = noisy(), noisy(seed=torch.tensor([99]), exposure=torch.full((1, 3), 0.7))
    both, swapped = draw(joined(one, two)), draw(joined(two, one))
    alone = draw(one)
    assert (both[0].int() - swapped[1].int()).abs().max() <= 1
    assert (both[0].int() - alone[0].int()).abs().max() <= 1
    assert (both[0].int() - both[1].int()).abs().float().mean() > 5


@pytest.mark.slow
def test_a_compiled_frame_is_the_same(monkeypatch):
    # What Inductor makes of graphs is tried with the truth: for these it would take a minute more.
    monkeypatch.setattr(torch, 'compile', partial(torch.compile, backend='aot_eager'))
    module._compiled.cache_clear()
    things = (Thing(BOX, (-0.6, -0.4, 3.0), (0.3, 0.4, 0.3), yaw=0.5),
              Thing(ELLIPSOID, (0.4, -0.4, 2.5), (0.2, 0.3, 0.2)),
              Thing(CYLINDER, (0.9, -0.5, 3.5), (0.2, 0.5, 0.2), texture=NOISY),
              Thing(CARD, (0.0, -0.7, 5.0), (0.6, 0.7, 0.001), texture=HOLED))
    scenes = scene(things, Camera(velocity=(0.0, 0.0, 1.0)))
    size = (48, 36)
    scenes = replace(scenes, intrinsics=scenes.intrinsics * 0.3)
    with torch.inference_mode():
        plain = module._batch(scenes, plain_bank(), size, slice(None), 1,
                              (all_rays, trace, expose))
    compiled = render(scenes, plain_bank(), size, samples=1, compile=True)
    module._compiled.cache_clear()
    gap = (plain.int() - compiled.int()).abs()
    assert (gap > 1).float().mean() < 0.01
    assert plain.float().std() > 15
