# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""A device that runs out of memory while driving: the node says so, or serves with less."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip('rclpy')

from node_fixtures import ANSWER_S, Camera, Node, node_running
from ros_harness import ros_session

from vjepa_ros.perception.types import Quality
from vjepa_ros.ros.perception_node import model_swapper
from vjepa_ros.ros.perception_node.diagnostics import MemoryTrend
from vjepa_ros.ros.perception_node.model_swapper import smaller
from vjepa_ros.runtime.model import ModelConfig
from vjepa_ros.runtime.runner import Runner

pytestmark = [pytest.mark.ros, pytest.mark.any_distro]

SIDE = 96
PAUSE_S = 0.2


class Allocator:
    """Stands in for the memory of a device, which holds so many pixels of a pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pixels = 8 * SIDE**2
        self.refused: list[tuple[int, int]] = []     # frames and side of each refused pass
        start = Runner.start

        def limited(runner: Runner, clips: Any, *rest: Any) -> Any:
            frames, side = len(clips[0]), clips[0][0].shape[0]
            if len(clips) * frames * side**2 > self.pixels:
                self.refused.append((frames, side))
                raise torch.cuda.OutOfMemoryError('out of memory: stand-in')
            return start(runner, clips, *rest)

        monkeypatch.setattr(Runner, 'start', limited)


@pytest.fixture
def memory(monkeypatch) -> Allocator:
    monkeypatch.setattr(model_swapper, 'FIRST_PAUSE_S', PAUSE_S)
    monkeypatch.setattr(model_swapper, 'LONGEST_PAUSE_S', 4 * PAUSE_S)
    return Allocator(monkeypatch)


@pytest.fixture
def node(memory) -> Iterator[Node]:
    with ros_session() as ros, node_running(
            ros, num_frames=8, image_size=SIDE, autostart=True) as running, Camera(ros), \
            running.listen('assessment'):      # without a reader there are no passes
        running.assess()
        yield running


def serves(node: Node, frames: int, side: int) -> dict[str, str]:
    """Wait until the node serves clips of this shape; its diagnostics."""
    return node.wait_for('model', lambda said: (
        int(said['num_frames']), int(said['image_size'])) == (frames, side))


def test_by_default_a_node_without_memory_gives_the_reason_and_recovers_with_it(node, memory):
    memory.pixels = 0
    said = node.wait_for('model', lambda said: 'OutOfMemory' in said['last_error'])
    assert said['num_frames'] == '8' and 'choose a smaller model_size' in said['last_error']
    memory.pixels = 8 * SIDE**2
    assert not node.assess().flags & Quality.DEVICE_FALLBACK


def test_a_node_that_may_serves_with_less_until_there_is_room_again(node, memory):
    node.set(on_out_of_memory='degrade')
    memory.pixels = 4 * 64**2                  # fewer frames are not enough
    serves(node, 4, 64)
    assert (4, SIDE) in memory.refused
    seen = node.assess()
    assert seen.flags & Quality.DEVICE_FALLBACK and seen.clip_span_s < 0.5
    status = node.report()
    assert '4 frames of 64 px' in status.message and '8 frames of 96 px' in status.message

    # What was asked for is tried again and again, in vain.
    memory.refused.clear()
    assert node.ros.spin_until(lambda: memory.refused.count((8, SIDE)) >= 2, ANSWER_S)
    node.set(max_rate=30.0)                    # no reason to try at once
    assert node.assess().flags & Quality.DEVICE_FALLBACK

    memory.pixels = 8 * SIDE**2
    serves(node, 8, SIDE)
    assert not node.assess().flags & Quality.DEVICE_FALLBACK

    # Who no longer allows it gets what was asked for, or the reason.
    memory.pixels = 4 * SIDE**2
    serves(node, 4, SIDE)
    node.set(on_out_of_memory='fail')
    node.wait_for('model', lambda said: 'failed: OutOfMemory' in said['model_change'])


def test_precision_goes_first_then_frames_then_pixels_until_nothing_is_left():
    choice = SimpleNamespace(precision='fp32', device=torch.device('cuda'))
    config, got = ModelConfig(num_frames=8, image_size=96, precision='fp32'), []
    while (config := smaller(config, choice)) is not None:
        got.append((config.num_frames, config.image_size, config.precision))
    assert got == [(8, 96, 'fp16'), (4, 96, 'fp16'), (4, 64, 'fp16')]


SECONDS = np.arange(0, 1300.0)
PEAKS = 300 * (SECONDS % 37 < 3)


@pytest.mark.parametrize(('used_mb', 'leaks'), [
    (700 + PEAKS, False), (700 - 400 * np.exp(-SECONDS / 60), False),
    (700 + 100 * np.sin(SECONDS / 150), False), (700 + 0.1 * SECONDS + PEAKS, True)],
    ids=['peaks', 'a start that takes long', 'up and down', 'a leak'])
def test_steady_growth_is_told_from_all_else(used_mb, leaks):
    trend, said = MemoryTrend(), []
    assert math.isnan(trend.bytes_per_hour)
    for now_s, value in zip(SECONDS, used_mb, strict=True):
        trend.add(round(value * 2**20), float(now_s))
        said.append(trend.steady)
    assert not any(said[:599]) and said[-1] == leaks and (leaks or not any(said))
    if leaks:
        assert trend.bytes_per_hour / 2**20 == pytest.approx(360, rel=0.1)
