# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Frames and looming on a real CUDA device: captured, by our kernels, right, and released.

`test_looming` and `test_pipeline` run on the device, too, where there is one.
"""

from __future__ import annotations

import gc
import math

import numpy as np
import pytest
import torch
from looming_films import FOCAL, Wall, film
from scenes import texture

from vjepa_ros.clip.device_resize import KernelMeans, means_of
from vjepa_ros.clip.resize import MODES, View
from vjepa_ros.looming.gpu.estimator import DeviceLooming
from vjepa_ros.looming.structure import Structure, coarse
from vjepa_ros.perception.gpu_frames import DeviceFrames
from vjepa_ros.perception.pipeline import Perception
from vjepa_ros.perception.settings import Settings, TrackConfig, Wants
from vjepa_ros.runtime.cuda.graph_replay import DeviceStream
from vjepa_ros.runtime.model import Model, ModelConfig

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason='no CUDA device here')

DEVICE = torch.device('cuda:0')
NS = 1_000_000_000


def picture(seed, size):
    return np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)


@pytest.mark.parametrize('mode', MODES)
@pytest.mark.parametrize('size', [(1280, 720), (1226, 370)])
def test_images_are_resized_to_the_bytes_of_the_host_and_uploads_stay_until_then(mode, size):
    assert isinstance(means_of(DEVICE), KernelMeans) or not hasattr(torch.cuda, '_compile_kernel')
    view = View(mode, size, 256)
    frames = DeviceFrames(DeviceStream(DEVICE), view, (384, 288), 40)
    assert frames.captured
    images = [picture(seed, size) for seed in range(40)]
    for row, image in enumerate(images):
        frames.put(image, row, frames.upload(image))    # let go at once: its memory is wanted
    for pixels, found, image in zip(frames.pixels(range(40)), frames.structure(range(40)), images,
                                    strict=True):
        difference = np.abs(pixels.astype(int) - view.apply(image))
        assert difference.max() <= (0 if mode in ('hf', 'meta') else 1)
        assert (difference > 0).mean() <= 2e-4
        expected = Structure.of(coarse(pixels), view.patch_valid)
        np.testing.assert_allclose(found, expected, atol=0.01)


FILMS = [{'turn': (0, 1.0, 0), 'dt': 0.25}, {'dt': 1 / 30},
         {'velocity': (0.3, 0, 4), 'turn': (0, 0.3, 0), 'dt': 0.1}]


@pytest.mark.parametrize('kernels', [True, False], ids=['kernels', 'plain'])
def test_looming_is_a_graph_that_gives_what_the_cpu_gives(monkeypatch, kernels):
    if not kernels:
        monkeypatch.setattr('vjepa_ros.looming.gpu.estimator.choose_kernels',
                            lambda device: (None, 'not wanted'))
    ours, cpu = (DeviceLooming(DeviceStream(one)) for one in (DEVICE, torch.device('cpu')))
    for options in FILMS:
        history, _, _ = film([Wall((0, 0, 2))], **options)
        found, plain = (one.estimate(history, FOCAL) for one in (ours, cpu))
        made = kernels and hasattr(torch.cuda, '_compile_kernel')
        assert ours.how.startswith('graph of kernels' if made else 'graph without kernels: ')
        assert found.dt_s == plain.dt_s
        np.testing.assert_allclose(found.rotation, plain.rotation, atol=5e-3)
        known = np.isfinite(found.rate) & np.isfinite(plain.rate)
        assert known.sum() > 0.95 * np.isfinite(plain.rate).sum()
        apart = np.abs(found.rate - plain.rate)[known] / plain.sigma[known]
        assert np.median(apart) < 0.05
        assert np.percentile(apart, 95) < 1.0


def serve(results: int) -> list[int]:
    """Assess two cameras on the device: its memory in use after some results and after all."""
    model = Model.load(ModelConfig(weights='random', allow_random_weights=True, num_frames=4,
                                   image_size=64, device='cuda:0'))
    perception = Perception(model, TrackConfig(num_frames=4, image_size=64, clip_fps=10.0,
                                               geometry='device'), ['a', 'b'])
    held = []
    for number in range(results):
        for track in perception.tracks.values():
            assert 'cuda:0 (frames graph' in track.geometry or not number
            track.push(texture((320, 240), number % 6), NS + number * NS // 10)
        samples = perception.pending()
        perception.run(samples, Settings(), dict.fromkeys(samples, Wants()), lambda _: math.nan)
        if number in (20, results - 1):
            held.append(torch.cuda.memory_allocated(DEVICE))
    perception.close()
    return held


def test_memory_is_given_back_and_does_not_grow():
    serve(21)
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated(DEVICE)
    held = serve(200)
    assert held[-1] <= held[0] + (1 << 20)
    gc.collect()
    assert torch.cuda.memory_allocated(DEVICE) <= before + (1 << 20)
