# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Clips: frames in the order of their stamps, and how they become inputs of the model."""

from __future__ import annotations

import logging
import math

import numpy as np
import pytest
import torch
from warp_on_host import COMPILER, compiled

from vjepa_ros.clip import ring as ring_module
from vjepa_ros.clip.device_resize import (
    DeviceView,
    KernelMeans,
    PlainMeans,
    kernel_source,
    trial,
)
from vjepa_ros.clip.resize import LETTERBOX_RGB, MODES, View
from vjepa_ros.clip.ring import Frame, FrameRing, Push
from vjepa_ros.model.encoder import Normalise
from vjepa_ros.model.variants import BACK_S, NUM_FRAMES

NS = 1_000_000_000


def frame(value: int) -> Frame:
    """A frame that carries a number, so that a test can tell which one was chosen."""
    return Frame(np.full((6, 8, 3), value % 256, np.uint8))


def ns(seconds: float) -> int:
    return round(seconds * NS)


def feed(ring: FrameRing, rate: float, count: int, start: float = 100.0, first: int = 0) -> None:
    """Push frames numbered from `first` at an even rate [Hz]."""
    for i in range(count):
        assert ring.push(ns(start + i / rate), frame(first + i)).stored


def numbers(ring: FrameRing) -> list[int]:
    """The numbers of the frames of the newest clip, oldest first."""
    return [shown.rgb[0, 0, 0] for shown in ring.sample().frames]


@pytest.mark.parametrize('rate', [1.1, 2.0, 5.0, 6.5, 12.0, 30.0, 60.0])
def test_a_stream_has_short_steps_and_long_spacings_at_any_rate(rate):
    ring = FrameRing(NUM_FRAMES, clip_fps=4.0, stream=True)
    feed(ring, rate, 100)
    sample = ring.sample_stream(())
    before, ends = (np.array(sample.stamps_ns).reshape(-1, 2) - ns(100 + 99 / rate)).T / NS
    assert ends - before == pytest.approx(max(1, round(rate / 15)) / rate)
    # The nearest frames, but no tubelet twice.
    wanted = [max(back, number / rate) for number, back in enumerate((0.0, *BACK_S))]
    assert -ends[::-1] == pytest.approx(wanted, abs=0.501 / rate)
    assert len({*ends}) == len(wanted) and sample.slow == (rate < 5)


@pytest.mark.parametrize(('remembered', 'chosen'), [((4, 5, 9), 5), ((4, 8), 6)])
def test_a_stream_goes_on_from_tubelets_that_it_remembers_near_the_times_it_wants(
        remembered, chosen):
    ring = FrameRing(NUM_FRAMES, clip_fps=4.0, stream=True)
    feed(ring, 30.0, 100)
    newest = ring.newest_key
    keys = [shown.key for shown in ring.sample_stream({newest - n for n in remembered}).frames]
    assert [newest - key for key in keys[1::2]] == [chosen, 0]


@pytest.mark.parametrize(('camera', 'stride'), [(30.0, 3), (10.0, 1)])
def test_a_clip_covers_its_span_and_a_faster_camera_gives_every_nth_frame(camera, stride):
    ring = FrameRing(4, clip_fps=10.0)
    feed(ring, camera, 3 * stride)
    assert ring.sample() is None and ring.fill == 3
    feed(ring, camera, 9, start=100.0 + 3 * stride / camera, first=3 * stride)
    newest, sample = 3 * stride + 8, ring.sample()
    assert ring.fill == 4 and numbers(ring) == [newest - k * stride for k in (3, 2, 1, 0)]
    assert (sample.rate_hz, sample.span_s) == pytest.approx((10.0, 0.3), rel=1e-6)
    assert sample.distinct == 4


@pytest.mark.parametrize(('count', 'clip_fps', 'stamps', 'chosen'), [
    (3, 10.0, (5.0, 5.04, 5.06, 5.11, 5.17, 5.2), [0, 3, 5]),
    (2, 2.0, (10.0, 10.25, 10.75, 11.0), [2, 3])], ids=['nearest', 'the later of two as near'])
def test_the_frame_nearest_to_each_target_time_is_chosen(count, clip_fps, stamps, chosen):
    ring = FrameRing(count, clip_fps)
    for number, stamp in enumerate(stamps):
        ring.push(ns(stamp), frame(number))
    assert numbers(ring) == chosen


def test_a_slower_camera_repeats_frames_and_says_its_effective_rate():
    ring = FrameRing(8, clip_fps=10.0, max_frame_gap=2.0)
    feed(ring, 4.0, 6)
    sample = ring.sample()
    assert sample.distinct < 8
    assert sample.rate_hz == pytest.approx(4.0, rel=1e-6)


def test_a_duplicate_stamp_is_dropped_and_counted():
    ring = FrameRing(2, clip_fps=10.0)
    feed(ring, 10.0, 2, start=0.9)
    for stamp in (ns(1), ns(1) + 100, ns(1) - 100):     # published twice, perhaps stamped anew
        assert ring.push(stamp, frame(9)) is Push.DUPLICATE
    assert [shown.rgb[0, 0, 0] for shown in ring.frames] == [0, 1]
    assert ring.counts['duplicate'] == 3


@pytest.mark.parametrize(('change', 'reason'), [
    ({'stamp': 1.0}, 'time_backwards'), ({'stamp': 99.0}, 'gap'),
    ({'frame_id': 'other'}, 'frame_id_change'), ({'size': (32, 24)}, 'size_change')])
def test_a_break_empties_the_ring_and_is_counted_by_reason(change, reason):
    ring = FrameRing(4, clip_fps=10.0, max_frame_gap=1.0)
    for i in range(6):
        ring.push(ns(50 + i / 10), frame(i), size=(8, 6), frame_id='cam')
    assert ring.sample() is not None
    new = frame(60)
    assert ring.push(ns(change.get('stamp', 50.6)), new, size=change.get('size', (8, 6)),
                     frame_id=change.get('frame_id', 'cam')) is Push.RESET
    assert ring.sample() is None and ring.frames == [new]
    assert dict(ring.resets) == {reason: 1}


def test_unstamped_frames_take_their_arrival_and_warn_once(caplog):
    ring = FrameRing(3, clip_fps=10.0, name='front')
    with caplog.at_level(logging.WARNING):
        for i in range(5):
            ring.push(0, frame(i), arrival_ns=ns(7 + i / 10))
    assert numbers(ring) == [2, 3, 4]
    assert ring.newest_ns == ns(7.4)
    assert ring.counts['zero_stamp'] == 5
    warning, = caplog.messages
    assert 'front' in warning and 'stamp' in warning


@pytest.mark.parametrize(('left_out', 'rate', 'reason', 'texts'), [
    (0, 1 / 1.1, 'gap', ('1.10 s apart', 'raise it above the interval of the camera')),
    (15, 15 / 16, 'slow_inference',     # of a camera of 15 Hz
     ('inference is slower', '0.07 s', '1.07 s apart', 'model_size'))])
def test_what_keeps_clips_from_filling_is_named_once(left_out, rate, reason, texts, caplog):
    ring = FrameRing(4, 4.0, max_frame_gap=1.0, name='front')
    ring.left_out = left_out
    feed(ring, rate, 10)
    told, = (text for text in caplog.messages if 'max_frame_gap' in text)
    assert all(text in told for text in (*texts, 'front'))
    assert ring.resets == {reason: 9} and told.endswith(ring.problem)
    feed(ring, 10.0, 3, start=200.0)
    assert not ring.problem


@pytest.mark.parametrize(('rate', 'clip_fps', 'limit', 'spread_s'), [
    (120.0, 4.0, None, 0.06), (30.0, 0.5, 60, 0.6)])
def test_frames_of_a_faster_camera_are_thinned_without_a_hole(rate, clip_fps, limit, spread_s,
                                                              monkeypatch):
    ring = FrameRing(8, clip_fps)
    if limit:
        monkeypatch.setattr(ring_module, 'MAX_BYTES', limit * frame(0).nbytes)
    feed(ring, rate, round(16 * rate / clip_fps))
    assert len(ring) <= ring.capacity <= (limit or 1000)
    sample = ring.sample()
    assert ring.counts['thinned'] > 0
    assert sample.distinct == 8
    assert np.abs(np.diff(sample.stamps_ns) / NS - 1 / clip_fps).max() < spread_s
    assert sample.newest_ns == ring.newest_ns


@pytest.mark.parametrize(('name', 'value'), [
    ('clip_fps', 0.0), ('clip_fps', math.nan), ('max_frame_gap', -1.0)])
def test_illegal_numbers_are_refused_by_name(name, value):
    with pytest.raises(ValueError, match=name):
        FrameRing(**{'num_frames': 4, 'clip_fps': 4.0, name: value})


# -- resizing ------------------------------------------------------------------------------------

CPU = torch.device('cpu')
RARE = 2e-4     # part of the bytes that may fall to the other side of a border of rounding
any_mode = pytest.mark.parametrize('mode', MODES)


def picture(size: tuple[int, int]) -> np.ndarray:
    """Noise over shading: every byte occurs, and neighbours differ."""
    rng = np.random.default_rng(0)
    shade = np.linspace(0, 255, size[0])[None, :, None]
    return np.clip(shade + rng.normal(0, 60, (size[1], size[0], 3)), 0, 255).astype(np.uint8)


@any_mode
@pytest.mark.parametrize('size', [(1226, 370), (97, 641)])
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
def differs(got: torch.Tensor, expected: np.ndarray) -> float:
    """Part of the bytes that differ; fails when one differs by more than a step."""
    difference = np.abs(got.numpy().astype(int) - expected)
    assert difference.max() <= 1
    return (difference > 0).mean()


@pytest.mark.parametrize('size', [(1280, 720), (331, 277)])
@any_mode
def test_the_input_resized_on_a_device_is_that_of_the_host(mode, size):
    image, view = picture(size), View(mode, size, 256)
    out = torch.empty((256, 256, 3), dtype=torch.uint8)
    DeviceView(view, CPU).apply(torch.from_numpy(image), out)
    # Integer arithmetic on both sides leaves no doubt.
    assert differs(out, view.apply(image)) <= (0.0 if mode in ('hf', 'meta') else RARE)


@pytest.mark.skipif(COMPILER is None, reason='no g++ to compile the kernels with')
def test_kernels_resize_to_the_bytes_of_the_other_path_or_are_not_used(tmp_path):
    source, size, small = kernel_source(), (331, 277), (200, 111)
    kernels = KernelMeans({name: compiled(source, name, tmp_path) for name in ('halve', 'area')})
    plain = trial(PlainMeans(), CPU)
    assert torch.equal(trial(kernels, CPU), plain)
    image = torch.from_numpy(picture(size))
    assert torch.equal(kernels.area(size, small, CPU)(image),
                       PlainMeans().area(size, small, CPU)(image))
    wrong = KernelMeans({**kernels.made, 'area': lambda *given: given[2][1].zero_()})
    assert not torch.equal(trial(wrong, CPU), plain)
