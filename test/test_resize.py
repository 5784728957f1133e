# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The resize modes, on the host and on a device, and the maps from image to input to patches."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import torch
from warp_on_host import COMPILER, compiled

from vjepa_ros.clip.device_resize import (
    DeviceGrey,
    DeviceView,
    KernelMeans,
    PlainMeans,
    kernel_source,
    trial,
)
from vjepa_ros.clip.resize import LETTERBOX_RGB, MODES, PatchCells, View
from vjepa_ros.model.encoder import Normalise

CPU = torch.device('cpu')
RARE = 2e-4     # part of the bytes that may fall to the other side of a border of rounding
any_mode = pytest.mark.parametrize('mode', MODES)


def picture(size: tuple[int, int]) -> np.ndarray:
    """Noise over shading: every byte occurs, and neighbours differ."""
    rng = np.random.default_rng(0)
    shade = np.linspace(0, 255, size[0])[None, :, None]
    return np.clip(shade + rng.normal(0, 60, (size[1], size[0], 3)), 0, 255).astype(np.uint8)


@any_mode
@pytest.mark.parametrize('size', [(1226, 370), (97, 641), (192, 192), (1000, 30)])
def test_a_dot_lands_in_the_patch_that_the_map_names(mode, size):
    view = View(mode, size, 192)
    x0, y0, x1, y1 = view.region
    reach = [min(max(2.0, 1.5 / scale), length / 12)
             for scale, length in zip(view.scale, (x1 - x0, y1 - y0), strict=True)]
    yy, xx = np.mgrid[:size[1], :size[0]]
    empty = view.apply(np.zeros((size[1], size[0], 3), np.uint8))
    for share in ((0.3, 0.35), (0.7, 0.25), (0.55, 0.75)):
        point = np.array([x0, y0]) + np.array(share) * (x1 - x0, y1 - y0)
        image = np.zeros((size[1], size[0], 3), np.uint8)
        image[..., 1] = 255 * np.exp(-(((xx - point[0]) / reach[0]) ** 2
                                       + ((yy - point[1]) / reach[1]) ** 2) / 2)
        dot = view.apply(image)[..., 1].astype(float) - empty[..., 1]
        measured = np.array([(dot.sum(0) * np.arange(192)).sum(),
                             (dot.sum(1) * np.arange(192)).sum()]) / dot.sum()
        assert measured == pytest.approx(view.from_source(point), abs=0.5)
        col, row = ((measured + 0.5) // 16).astype(int)
        box = view.patch_boxes[row, col]
        slack = 0.6 / np.array(view.scale)
        assert (box[:2] - slack <= point + 0.5).all() and (point + 0.5 <= box[2:] + slack).all()


def test_letterbox_bars_are_marked_as_not_valid_and_normalise_to_nothing():
    view = View('letterbox', (1280, 720), 256)  # 256x144 between bars of 56 pixels
    valid = view.patch_valid
    assert (valid[:3] == 0).all() and (valid[13:] == 0).all()
    assert valid[3] == pytest.approx(0.5) and (valid[4:12] == 1).all()
    result = view.apply(np.full((720, 1280, 3), 255, np.uint8))
    assert (result[:56] == LETTERBOX_RGB).all() and (result[200:] == LETTERBOX_RGB).all()
    assert (result[56:200] == 255).all()
    bars = Normalise(CPU)(torch.from_numpy(result)[None, None])[..., :56, :]
    assert bars.abs().max() < 0.01


def test_the_profiles_round_half_crop_offsets_as_their_authors_do():
    # 1280x720 becomes 519x292; half of 519 - 256 is 131.5.
    assert View('hf', (1280, 720), 256).crop_offset == (131, 18)
    assert View('meta', (1280, 720), 256).crop_offset == (132, 18)


@pytest.mark.parametrize(('arguments', 'message'), [
    (('fit', (640, 480), 192), "'fit'.*crop"), (('crop', (640, 480), 200), '200.*multiple.*16'),
    (('crop', (640, 480), 0), 'multiple')])
def test_impossible_settings_are_errors_that_name_the_value(arguments, message):
    with pytest.raises(ValueError, match=message):
        View(*arguments)


@any_mode
def test_scaled_intrinsics_project_a_ray_into_its_patch(mode):
    view = View(mode, (640, 480), 192)
    fx, fy, cx, cy = 500.0, 510.0, 310.0, 245.0
    gx, gy, gcx, gcy = view.camera_info(fx, fy, cx, cy)
    for ray in [(0.0, 0.0), (0.2, -0.1), (-0.3, 0.25)]:
        source = np.array([fx * ray[0] + cx, fy * ray[1] + cy])
        col, row = round(gx * ray[0] + gcx), round(gy * ray[1] + gcy)
        x0, y0, x1, y1 = view.patch_boxes[row, col]
        assert x0 <= source[0] + 0.5 <= x1 and y0 <= source[1] + 0.5 <= y1


@any_mode
@pytest.mark.parametrize('size', [(640, 480), (1226, 370), (240, 320)])
def test_cell_values_reach_the_patches_that_show_them(mode, size):
    view = View(mode, size, 192)
    grey = (size[0] // 2, size[1] // 2)  # the cells live in an image of half the size
    xs, ys = (np.arange(5, n, 10) - 0.5 for n in grey)
    result = PatchCells(xs, ys, grey, view).of(np.tile(xs.astype(np.float32), (len(ys), 1)))
    boxes, valid = view.patch_boxes, view.patch_valid
    middle = (boxes[..., 0] + boxes[..., 2]) / 4 - 0.5
    assert np.isnan(result[valid == 0]).all() and np.isfinite(result[valid > 0]).all()
    assert np.abs(result - middle)[valid > 0].max() <= 5.5
    assert result.dtype == np.float32 and result.shape == view.grid


def differs(got: torch.Tensor, expected: np.ndarray) -> float:
    """Part of the bytes that differ; fails when one differs by more than a step."""
    difference = np.abs(got.numpy().astype(int) - expected)
    assert difference.max() <= 1
    return (difference > 0).mean()


@pytest.mark.parametrize('size', [(1280, 720), (1226, 370), (480, 640), (331, 277)])
@any_mode
def test_the_input_resized_on_a_device_is_that_of_the_host(mode, size):
    image, view = picture(size), View(mode, size, 256)
    out = torch.empty((256, 256, 3), dtype=torch.uint8)
    DeviceView(view, CPU).apply(torch.from_numpy(image), out)
    # Integer arithmetic on both sides leaves no doubt.
    assert differs(out, view.apply(image)) <= (0.0 if mode in ('hf', 'meta') else RARE)


@pytest.mark.parametrize(('size', 'small'), [((1226, 370), (606, 183)), ((320, 240), (320, 240)),
                                             ((640, 480), (320, 240))])
def test_the_grey_image_of_a_device_is_that_of_the_host(size, small):
    image = picture(size)
    expected = image if size == small else cv2.resize(image, small, interpolation=cv2.INTER_AREA)
    out = torch.empty(small[::-1], dtype=torch.uint8)
    DeviceGrey(size, small, CPU).apply(torch.from_numpy(image), out)
    assert differs(out, cv2.cvtColor(expected, cv2.COLOR_RGB2GRAY)) <= RARE


@pytest.mark.skipif(COMPILER is None, reason='no g++ to compile the kernels with')
def test_kernels_resize_to_the_bytes_of_the_other_path_or_are_not_used(tmp_path):
    source, size, small = kernel_source(), (331, 277), (200, 111)
    kernels = KernelMeans({name: compiled(source, name, tmp_path) for name in ('halve', 'area')})
    plain = trial(PlainMeans(), CPU)
    assert torch.equal(trial(kernels, CPU), plain)
    image, grey = torch.from_numpy(picture(size)), torch.empty(small[::-1], dtype=torch.uint8)
    DeviceGrey(size, small, CPU).apply(image, grey)
    assert torch.equal(kernels.area(size, small, CPU, grey=True)(image), grey)
    wrong = KernelMeans({**kernels.made, 'area': lambda *given: given[2][1].zero_()})
    assert not torch.equal(trial(wrong, CPU), plain)
