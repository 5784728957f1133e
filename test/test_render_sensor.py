# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Lens and sensor: exposure, vignette, noise, grey, blur and compression do what they say."""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
import pytest
import torch
from render_scenes import BOX, WHITE, Camera, Thing, plain_bank, scene

from vjepa_ros.lab.world.rendering.render import render
from vjepa_ros.lab.world.rendering.sensor import compressed, expose, expose_single, tables
from vjepa_ros.lab.world.scenes.scene import Scenes

SIZE = (128, 96)
WALL = Thing(BOX, (0.0, -1.0, 2.0), (5.0, 3.0, 0.5), texture=WHITE)


def even(level: float = 0.25, **changes: object) -> Scenes:
    """An evenly lit wall that fills the picture; ``level`` is its light."""
    return scene([WALL], Camera(at=(0.0, -1.0, 0.0)), frames=3, size=SIZE, sun=torch.zeros(1),
                 ambient=torch.full((1,), level / 0.86), **changes)


def picture(scenes: Scenes) -> np.ndarray:
    return render(scenes, plain_bank(), SIZE)[0].numpy().astype(float)


def one(value: float) -> torch.Tensor:
    return torch.full((1,), value)


def test_exposure_white_balance_and_gamma_act_on_the_light():
    plain = picture(even())
    assert plain[1, 48, 64] == pytest.approx(0.5 * 255, abs=1.5)      # the square root of 0.25
    brighter = picture(even(exposure=torch.tensor([[1.0, 1.5, 100.0]])))
    assert brighter[0, 48, 64] == pytest.approx(127, abs=2)
    assert brighter[1, 48, 64] == pytest.approx(255 * np.sqrt(0.375), abs=2)
    assert brighter[2, 48, 64] == pytest.approx(255, abs=1)
    warm = picture(even(white_balance=torch.tensor([[1.2, 1.0, 0.7]])))[1, 48, 64]
    assert warm == pytest.approx(255 * np.sqrt(0.25 * np.array([1.2, 1.0, 0.7])), abs=2)
    assert picture(even(gamma=one(1.0)))[1, 48, 64] == pytest.approx(64, abs=1.5)


@pytest.mark.parametrize(('read', 'shot', 'level'), [(3.0, 0.0, 0.25), (1.0, 6.0, 0.25),
                                                     (0.0, 5.0, 0.64)])
def test_noise_is_as_strong_as_asked_and_differs_from_frame_to_frame(read, shot, level):
    noisy = picture(even(level, read_noise=one(read), shot_noise=one(shot)))
    clean = picture(even(level))
    noise = noisy - clean
    expected = np.hypot(read + shot * np.sqrt(level), 0.3)
    assert noise.std() == pytest.approx(expected, rel=0.08)
    assert abs(noise.mean()) < 0.6      # the clean picture is rounded, all of it alike
    for a, b in ((noise[0], noise[1]), (noise[1], noise[2]), (noise[0, ..., 0],
                                                              noise[0, ..., 1])):
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.05


def test_a_grey_camera_has_equal_channels_also_in_its_noise():
    tinted = replace(WALL, tint=(1.0, 0.5, 0.2))
    scenes = replace(even(read_noise=one(4.0)), grey=torch.tensor([True]))
    scenes = replace(scenes, tint=torch.tensor([[tinted.tint]]))
    grey = picture(scenes)
    assert (grey == grey[..., :1]).all()
    luma = 0.25 * (0.299 + 0.587 * 0.5 + 0.114 * 0.2)
    assert grey.mean() == pytest.approx(255 * np.sqrt(luma), abs=2)


def busy_light(batch: int = 2, frames: int = 2) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    small = torch.rand(batch * frames, 3, 12, 16, generator=generator)
    light = torch.nn.functional.interpolate(small, (96, 128), mode='bilinear')
    return light.view(batch, frames, 3, 96, 128).permute(0, 1, 3, 4, 2).contiguous()


def test_one_frame_is_exposed_as_in_a_batch():
    light = busy_light(1, 3)
    scenes = replace(even(), blur_px=one(0.8), vignette=one(0.4), read_noise=one(3.0),
                     shot_noise=one(2.0), jpeg=one(0.6), gamma=one(0.45),
                     white_balance=torch.tensor([[1.1, 1.0, 0.8]]))
    whole = expose(light, scenes, slice(None), tables(light.device))
    for number in range(3):
        planes = light[:, number:number + 1].permute(4, 0, 1, 2, 3).contiguous()
        single = expose_single(planes, scenes, slice(number, number + 1))
        gap = (single[0, 0].int() - whole[0, number].int()).abs()
        assert (gap > 1).float().mean() < 0.02    # a coarse step of jpeg may fall either way
    assert whole.float().std() > 20


def test_compression_rounds_the_waves_of_blocks():
    image = 255 * busy_light(2, 1)
    packed = compressed(image, torch.tensor([0.0, 0.8]), tables(image.device))
    assert torch.equal(packed[0], image[0])
    turn = tables(image.device).turn
    block = ((packed[1, 0, 16:24, 40:48] - 128) @ turn.T)[..., 0].numpy()
    waves = cv2.dct(np.ascontiguousarray(block))
    step = (tables(image.device).quanta[0] * 0.1 * 20 ** 0.8).clamp(min=1).numpy()
    parts = waves / step
    assert np.abs(parts - np.round(parts)).max() < 0.02
    before = cv2.dct(((image[1, 0, 16:24, 40:48] - 128) @ turn.T)[..., 0].numpy())
    assert np.abs(np.round(before / step) - np.round(parts)).max() == 0
    loss = [(compressed(image, torch.full((2,), s), tables(image.device)) - image).std()
            for s in (0.2, 0.6, 1.0)]
    assert 0.05 < loss[0] < loss[1] < loss[2] < 30
