# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Tests of the overlay: what is shown where, in every state and size."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from vjepa_ros.clip.resize import View
from vjepa_ros.overlay import (
    LEVEL_COLORS,
    Layers,
    MAX_ENLARGED,
    OverlayStatus,
    draw_overlay,
)
from vjepa_ros.perception.types import Assessment, Level, Quality, Region

NAN = math.nan
SIZE = (640, 480)
READY = OverlayStatus(camera='front', model='V-JEPA 2.0 tiny', device='cpu', fill=8, num_frames=8,
                      rate_in_hz=30.0, rate_out_hz=12.0, latency_ms=80.0)


BOX = Region(200, 150, 200, 160, 0.1, 0.0, 0.8, 1.25, 'CENTER', 0.9, True)


def assessment(level: Level = Level.CLEAR, ttc: float = math.inf, *, flags: int = 0,
               bearing: float = NAN, scores: float = 0.4,
               regions: tuple[Region, ...] = ()) -> Assessment:
    return Assessment('front', 1, 'cam', scores, scores, scores, ttc,
                      1 / ttc if ttc > 0 else NAN, bearing, 0.0, level, Quality(flags), regions)


def field(size: tuple[int, int] = SIZE, rate: float = 0.0) -> SimpleNamespace:
    """What the overlay reads of a looming field: equal everywhere, grey image of half the size."""
    gray, cell = (max(32, size[0] // 2), max(32, size[1] // 2)), 16
    centers = np.stack(np.meshgrid((np.arange(gray[0] // cell) + 0.5) * cell - 0.5,
                                   (np.arange(gray[1] // cell) + 0.5) * cell - 0.5), axis=-1)
    shape = centers.shape[:2]
    return SimpleNamespace(rate=np.full(shape, rate, np.float32), cell_px=cell, gray_size=gray,
                           confidence=np.ones(shape, np.float32),
                           centers=centers.astype(np.float32))


def show(image=None, result=None, motion=None, looming=None, view=None, status=READY, **keys):
    image = np.full((480, 640, 3), 110, np.uint8) if image is None else image
    return draw_overlay(image, result, Layers(motion, looming, view), status, **keys)


def greenish(image: np.ndarray) -> bool:
    """Whether any place is clearly green."""
    blue, green, red = (image[..., i].astype(int) for i in range(3))
    return bool((green > np.maximum(red, blue) + 40).any())


@pytest.mark.parametrize(('size', 'mode'), [
    ((1226, 370), 'letterbox'), ((370, 1226), 'hf'), ((33, 35), 'crop'), ((900, 40), 'crop')])
def test_every_size_and_mode_is_drawn_with_the_aspect_ratio_of_the_image(size, mode):
    image = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    before = image.copy()
    view = View(mode, size, 192)
    motion = np.where(view.patch_valid > 0.5, 0.7, NAN).astype(np.float32)
    result = show(image, assessment(Level.DANGER, 0.8, flags=511, bearing=0.1, regions=(BOX,)),
                  motion, field(size, 0.6), view)
    width = max(480, size[0])
    assert result.shape == (max(1, round(size[1] * width / size[0])), width, 3)
    assert np.array_equal(image, before)
    assert show(image, assessment(), width=640).shape[1] == 640


@pytest.mark.parametrize('result', [None, assessment(Level.UNKNOWN, NAN, scores=NAN),
                                    assessment(Level.CAUTION, 3.0), assessment(Level.CLEAR)])
def test_green_is_shown_for_nothing_but_a_fresh_clear_view(result):
    clear = result is not None and result.level == Level.CLEAR
    assert greenish(show(result=result)) == clear
    if result:
        assert tuple(show(result=result)[6, 6]) == LEVEL_COLORS[result.level]
    gone = OverlayStatus(camera='front', stale_s=2.3)
    assert not greenish(show(result=result, status=gone))
    assert not greenish(draw_overlay(None, result, Layers(), gone))


def test_looming_tints_warm_and_motion_tints_blue_where_they_are_known():
    plain = show(result=assessment()).astype(int)
    rate = field(rate=0.0)
    rate.rate[:, :10] = 0.8
    warm = show(result=assessment(), looming=rate).astype(int) - plain
    assert warm[250, 100, 2] > 25 and warm[250, 100, 0] < -10
    assert np.abs(warm[250, 500]).max() == 0
    view = View('squash', SIZE, 192)
    motion = np.zeros((12, 12), np.float32)
    motion[:, 6:] = 1.0
    blue = show(result=assessment(), motion=motion, view=view).astype(int) - plain
    assert blue[250, 600, 0] > 25 and blue[250, 600, 2] < 0
    assert np.abs(blue[250, 40]).max() == 0


@pytest.mark.parametrize('age', [2.3, math.inf])
def test_a_stale_image_is_grey_and_shows_no_old_result(age):
    image = np.random.default_rng(0).integers(0, 256, (480, 640, 3), dtype=np.uint8)
    status = OverlayStatus(camera='front', stale_s=age)
    danger = assessment(Level.DANGER, 0.5, bearing=0.1, flags=Quality.LOW_TEXTURE, regions=(BOX,))
    result = show(image, danger, None, field(rate=0.9), View('squash', SIZE, 192), status=status)
    assert np.array_equal(result, show(image, None, None, None, None, status=status))
    scene_part = result[60:150].astype(int)
    assert (scene_part.max(axis=2) == scene_part.min(axis=2)).all()


@pytest.mark.parametrize('size', [(1, 1), (1, 100), (2, 50_000), (65_000, 10), (4096, 512)])
@pytest.mark.parametrize('stale', [None, math.inf])
def test_no_shape_of_a_picture_costs_more_than_its_pixels(size, stale):
    """All that can be drawn at once."""
    view = View('squash', size, 64)
    drawn = show(np.full((*size[::-1], 3), 100, np.uint8),
                 assessment(Level.DANGER, 0.8, flags=2**14 - 1, bearing=0.3, regions=(BOX,)),
                 np.full(view.grid, 0.7, np.float32), field(size, 0.5), view,
                 replace(READY, untrained=True, stale_s=stale, focal_px=50.0), width=1280)
    assert 1 <= drawn.shape[1] <= max(1280, size[0])
    assert 1 <= drawn.shape[0] <= max(MAX_ENLARGED, size[1])
