# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test that 16-bit images say what the same scene says in 8 bits, whatever range they use."""

from __future__ import annotations

from operator import ne

import numpy as np
import pytest
from scenes import synthetic, texture

from vjepa_ros.detector import ObstacleDetector
from vjepa_ros.sources.gain import GainControl

SCENE = texture((320, 240))
RNG = np.random.default_rng(0)
X, Y = np.meshgrid(np.linspace(-1, 1, 320), np.linspace(-1, 1, 240))
SHADE = (X * X + Y)[..., None]


def thermal(rgb: np.ndarray, low: float = 21_000, width: float = 3000) -> np.ndarray:
    """The scene in a narrow band, with a little noise."""
    wide = low + width * (rgb.astype(np.float32) / 255
                          + 0.001 * RNG.normal(0, 1, (*rgb.shape[:2], 1)))
    return np.rint(wide).clip(0, 65535).astype(np.uint16)


def plain(level: float, rough: float, shade: float = 0.0) -> np.ndarray:
    """What a covered lens or a shutter shows."""
    values = level + rough * RNG.normal(0, 1, (240, 320, 1)) + shade * SHADE
    return np.repeat(values.clip(0, 65535).astype(np.uint16), 3, 2)


def ten_bits(rgb: np.ndarray) -> np.ndarray:
    return rgb.astype(np.uint16) << 2 | 2


@pytest.fixture(scope='module')
def detector():
    with ObstacleDetector(device='cpu') as detector:
        yield detector


def assess(detector, way, frames, every: int = 4) -> tuple[list[str], int]:
    """The levels of frames, '' before the first clip and while a new one fills; and new gains."""
    detector.track.reset()
    levels, before = [], detector.track.ring.resets['gain_change']
    for number, frame in enumerate(frames):
        detector.add_frame(way(frame.rgb), frame.stamp_ns / 1e9)
        if number % every == every - 1:
            found = detector.assess()
            levels.append('' if found is None else found.level.name)
    return levels, detector.track.ring.resets['gain_change'] - before


def test_an_approach_has_the_levels_of_8_bits(detector):
    frames = synthetic(start_s=3.0, count=52)
    levels, _ = assess(detector, lambda rgb: rgb, frames)
    assert {'CLEAR', 'CAUTION'} <= set(levels)
    for way in (ten_bits, thermal, lambda rgb: thermal(rgb, 7300, 300),     # of few values
                lambda rgb: thermal(rgb).astype('>u2')):
        found, gains = assess(detector, way, frames)
        # Heads may see it a frame earlier or later.
        assert sum(map(ne, found, levels)) <= 1 and gains == 0


def test_a_jump_of_the_gain_starts_a_new_clip_and_a_shutter_or_covered_lens_is_unknown(
        detector):
    numbers = iter(range(99))

    def way(rgb: np.ndarray) -> np.ndarray:
        number = next(numbers)
        if 18 <= number < 22 or number >= 44:      # the shutter, and at last a cover
            return plain(22_000, 3, 60)
        return thermal(rgb) if number < 24 else thermal(rgb, 9000, 20_000)

    levels, gains = assess(detector, way, synthetic(count=48), 1)
    assert gains == 1
    assert levels[17] == levels[23] == 'CLEAR' and set(levels[18:22]) == {'UNKNOWN'}
    assert set(levels[24:26]) == {''} and levels[41] == 'CLEAR'
    assert set(levels[44:]) == {'UNKNOWN'}


@pytest.mark.parametrize('cover', [(22_000, 0), (0, 50), (3000, 50, 100)])
def test_a_covered_lens_is_never_enlarged_into_structure(cover):
    control = GainControl()
    assert control.reduce(plain(*cover))[0].std() < 4.5
    shown, number = control.reduce(ten_bits(SCENE))
    assert np.array_equal(shown, SCENE)            # the range of the cover does not stay
    assert control.reduce(plain(*cover))[1] == control.reduce(ten_bits(SCENE))[1] == number
