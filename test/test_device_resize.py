# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Images that are resized on a device are those of the host, byte for byte."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import torch

from vjepa_ros.clip.device_resize import DeviceGrey, DeviceView, _area, _area_weights
from vjepa_ros.clip.resize import MODES, View

CPU = torch.device('cpu')
SIZES = [(1280, 720), (640, 480), (1226, 370), (512, 512), (480, 640), (331, 277)]
RARE = 2e-4     # part of the bytes that may fall to the other side of a border of rounding


def picture(size, seed=0):
    """Noise over shading: every byte occurs, and neighbours differ."""
    rng = np.random.default_rng(seed)
    shade = np.linspace(0, 255, size[0])[None, :, None]
    return np.clip(shade + rng.normal(0, 60, (size[1], size[0], 3)), 0, 255).astype(np.uint8)


def differs(got, expected):
    """Part of the bytes that differ; fails when one differs by more than a step."""
    difference = np.abs(got.numpy().astype(int) - expected)
    assert difference.max() <= 1
    return (difference > 0).mean()


@pytest.mark.parametrize('size', SIZES)
@pytest.mark.parametrize('mode', MODES)
def test_the_input_of_the_model_is_that_of_the_host(mode, size):
    image, view = picture(size), View(mode, size, 256)
    out = torch.empty((256, 256, 3), dtype=torch.uint8)
    DeviceView(view, CPU).apply(torch.from_numpy(image), out)
    # Integer arithmetic on both sides leaves no doubt.
    assert differs(out, view.apply(image)) <= (0.0 if mode in ('hf', 'meta') else RARE)


@pytest.mark.parametrize(('size', 'small'), [((1280, 720), (443, 249)), ((640, 480), (384, 288)),
                                             ((1226, 370), (606, 183)), ((320, 240), (320, 240)),
                                             ((640, 480), (320, 240))])
def test_the_grey_image_is_that_of_the_host(size, small):
    image = picture(size)
    expected = image if size == small else cv2.resize(image, small, interpolation=cv2.INTER_AREA)
    expected = cv2.cvtColor(expected, cv2.COLOR_RGB2GRAY)
    out = torch.empty(small[::-1], dtype=torch.uint8)
    DeviceGrey(size, small, CPU).apply(torch.from_numpy(image), out)
    assert differs(out, expected) <= RARE


@pytest.mark.parametrize(('size', 'small'), [((512, 480), (256, 256)), ((320, 180), (96, 72)),
                                             ((331, 277), (200, 111))])
def test_what_is_half_a_byte_is_rounded_to_the_even_one(size, small):
    # A float64 of a thirtieth is none, so that of 15/30 more or less chance decided.
    image = picture(size)
    out = _area(size, small, CPU)(torch.from_numpy(image))
    cols, rows = (_area_weights(n, m) for n, m in zip(size, small, strict=True))
    for c in range(3):
        total = rows @ image[..., c].astype(np.int64) @ cols.T
        share = np.outer(rows.sum(1), cols.sum(1))
        low, rest = np.divmod(total, share)
        up = (2 * rest > share) | ((2 * rest == share) & (low % 2 == 1))
        np.testing.assert_array_equal(out[..., c], low + up)
        if share[0, 0] % 2 == 0:
            assert (2 * rest == share).mean() > 1e-3


def test_weights_of_areas_are_shares_of_pixels():
    # 5 pixels in 3: of the one in the middle each gets a share.
    np.testing.assert_array_equal(_area_weights(5, 3), [[3, 2, 0, 0, 0], [0, 1, 3, 1, 0],
                                                       [0, 0, 0, 2, 3]])
    slivers = _area_weights(1501, 1500)      # 1/1500 of a pixel
    assert (slivers > 0).sum(1).min() == 1
    for length, wanted in ((1280, 443), (720, 249), (1226, 606)):
        whole = _area_weights(length, wanted)
        np.testing.assert_array_equal(whole.sum(1), whole.sum(1)[0])
        np.testing.assert_array_equal(whole.sum(0), whole.sum(0)[0])


def test_a_view_that_enlarges_is_left_to_the_host():
    view = View('squash', (200, 400), 256)
    assert 'grow' in DeviceView.problem(view)
    with pytest.raises(ValueError, match='200x400 grow to 256x256'):
        DeviceView(view, CPU)
    assert not DeviceView.problem(View('squash', (256, 256), 256))
