# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""A device that runs out of memory while driving: the node says so, or serves with less."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip('rclpy')

from node_fixtures import ANSWER_S, Camera, Node, node_running
from ros_harness import ros_session

from vjepa_ros.perception.types import Quality
from vjepa_ros.ros.perception_node import model_swapper
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


def test_several_cameras_share_less_memory_without_a_smaller_model(memory):
    with ros_session() as ros, node_running(
            ros, num_frames=8, image_size=SIDE, autostart=True, cameras=['camera', 'other'],
            on_out_of_memory='degrade') as node, Camera(ros), Camera(ros, 'other/image_raw'):
        for camera in ('camera', 'other'):     # a pass of both does not fit
            assert not node.assess(camera).flags & Quality.DEVICE_FALLBACK
        assert node.values('model')['num_frames'] == '8'


CUDA = SimpleNamespace(precision='fp32', device=torch.device('cuda'))
CPU = SimpleNamespace(precision='fp32', device=torch.device('cpu'))


@pytest.mark.parametrize(('choice', 'frames', 'side', 'precision', 'steps'), [
    (CUDA, 8, 96, 'fp32', [(8, 96, 'fp16'), (4, 96, 'fp16'), (4, 64, 'fp16')]),
    (CPU, 10, 80, 'auto', [(4, 80, 'auto'), (4, 64, 'auto')])])
def test_precision_goes_first_then_frames_then_pixels_until_nothing_is_left(
        choice, frames, side, precision, steps):
    config, got = ModelConfig(num_frames=frames, image_size=side, precision=precision), []
    while (config := smaller(config, choice)) is not None:
        got.append((config.num_frames, config.image_size, config.precision))
        assert replace(config) == config       # valid
    assert got == steps
