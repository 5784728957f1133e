# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Tests of the overlay: what is shown where, in every state and size."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from vjepa_ros.clip.resize import View
from vjepa_ros.overlay import LEVEL_COLORS, Layers, MAX_ENLARGED, OverlayStatus, draw_overlay
from vjepa_ros.perception.types import Assessment, Level, Quality, Region

NAN = math.nan
SIZE = (640, 480)
READY = OverlayStatus(camera='front', model='V-JEPA 2.0 tiny', device='cpu', fill=8, num_frames=8,
                      rate_in_hz=30.0, rate_out_hz=12.0, latency_ms=80.0, focal_px=500.0)
BOX = Region(200, 150, 200, 160, 0.1, 0.0, 0.8, 1.25, 'CENTER', 0.9, True)
NOISE = np.random.default_rng(0).integers(0, 256, (480, 640, 3), dtype=np.uint8)


def assessment(level: Level = Level.CLEAR, ttc: float = math.inf, flags: int = 0) -> Assessment:
    return Assessment('front', 1, 'cam', 0.4, 0.4, 0.4, ttc, 1 / ttc if ttc > 0 else NAN, 0.1, 0.0,
                      level, Quality(flags), (BOX,) if level >= Level.WARNING else ())


def show(image=None, result=None, motion=None, looming=None, view=None, status=READY, **keys):
    image = np.full((480, 640, 3), 110, np.uint8) if image is None else image
    return draw_overlay(image, result, Layers(motion, looming, view), status, **keys)


def greenish(image: np.ndarray) -> bool:
    """Whether any place is clearly green."""
    blue, green, red = (image[..., i].astype(int) for i in range(3))
    return bool((green > np.maximum(red, blue) + 40).any())


@pytest.mark.parametrize('result', [None, assessment(Level.UNKNOWN, NAN),
                                    assessment(Level.CAUTION, 3.0), assessment(Level.CLEAR)])
def test_green_is_shown_for_nothing_but_a_fresh_clear_view(result):
    clear = result is not None and result.level == Level.CLEAR
    assert greenish(show(result=result)) == clear
    if result:
        assert tuple(show(result=result)[6, 6]) == LEVEL_COLORS[result.level]
    gone = OverlayStatus(camera='front', stale_s=2.3)
    assert not greenish(show(result=result, status=gone))
    assert not greenish(draw_overlay(None, result, Layers(), gone))


def test_a_stale_image_is_grey_and_shows_no_old_result():
    status = OverlayStatus(camera='front', stale_s=2.3)
    danger = assessment(Level.DANGER, 0.5, flags=Quality.LOW_TEXTURE)
    result = show(NOISE, danger, None, np.full((12, 12), 0.9), View('squash', SIZE, 192),
                  status=status)
    assert np.array_equal(result, show(NOISE, status=status))
    scene_part = result[60:150].astype(int)
    assert (scene_part.max(axis=2) == scene_part.min(axis=2)).all()


@pytest.mark.parametrize(('size', 'mode'), [
    ((1226, 370), 'letterbox'), ((370, 1226), 'hf'), ((1, 1), 'squash'), ((2, 50_000), 'crop')])
def test_every_size_is_drawn_with_its_aspect_ratio_and_no_shape_costs_more(size, mode):
    view = View(mode, size, 64)
    image = np.full((*size[::-1], 3), 100, np.uint8)
    drawn = show(image, assessment(Level.DANGER, 0.8, flags=2**14 - 1),
                 np.full(view.grid, 0.7, np.float32), np.full(view.grid, 0.5), view,
                 replace(READY, untrained=True), width=1280)
    assert (image == 100).all()
    zoom = min(1280 / size[0], max(1.0, MAX_ENLARGED / size[1]))
    assert drawn.shape == (max(1, round(size[1] * zoom)), max(1, round(size[0] * zoom)), 3)
