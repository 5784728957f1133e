# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test that the way of a frame from its message to its assessment does not grow."""

from __future__ import annotations

import pytest

pytest.importorskip('rclpy')

from frame_path import frame_path, modules_of, steady

from vjepa_ros.perception.types import Level, Quality

pytestmark = pytest.mark.ros
# docs/architecture.md has the figures of today.
MODULES, CALLS = 30, 400


def test_a_frame_takes_few_calls_through_few_modules():
    counts, assessment = frame_path(frames=5)
    calls = steady(counts)
    modules = modules_of(calls)
    assert len(modules) <= MODULES, modules
    assert calls.total() <= CALLS, modules
    # The whole way was taken, with heads and geometry.
    assert assessment.level is not Level.UNKNOWN
    assert Quality.HEADS_OUT_OF_RANGE not in assessment.flags
    assert {f'vjepa_ros.{name}' for name in (
        'ros.perception_node.camera_input', 'ros.perception_node.decoder', 'clip.ring',
        'model.heads', 'looming.estimator', 'perception.assessment', 'perception.danger',
        'ros.perception_node.outputs')} <= set(modules)
