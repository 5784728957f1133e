# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What both nodes between controller and base do alike, in one process."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip('rclpy')

from guard_rig import active, twist_of

from vjepa_ros.guard.types import Motion, STILL
from vjepa_ros.ros.collision_guard.node import CollisionGuard
from vjepa_ros.ros.local_planner.node import LocalPlannerNode

pytestmark = pytest.mark.ros

BOTH = pytest.mark.parametrize('kind', [CollisionGuard, LocalPlannerNode])


@contextmanager
def sending(kind: type) -> Iterator[tuple[Any, list[Motion]]]:
    """An active node, and what it sends, of zeros in a row the first.

    Tests command what both let through: turns on the spot, and backward where nobody looks.
    """
    with active(kind, command_timeout=60.0) as node:
        sent: list[Motion] = []
        node._publish = lambda motion: sent.append(motion) if [
            motion] != sent[-1:] or motion != STILL else None
        yield node, sent


@BOTH
def test_in_a_flood_the_timer_decides_but_less_is_never_late(kind, monkeypatch):
    monkeypatch.setattr(kind, 'FLOOD_S', 1e6)
    with sending(kind) as (node, sent):
        node._on_command(twist_of(-0.5, 0.1))
        node._on_command(twist_of(-0.5, 0.2))          # as fast: has to wait
        assert sent == [Motion(-0.5, 0.0, 0.1)]
        node._on_command(twist_of(-0.2, 0.3))          # slower: must not
        node._on_command(twist_of(-0.4, 0.4))          # faster: waits
        assert sent[1:] == [Motion(-0.2, 0.0, 0.3)]
        node._on_tick()
        assert sent[2:] == [Motion(-0.4, 0.0, 0.4)]
        for _ in range(10):                            # no number: stops at once, and once
            node._on_command(twist_of(-0.4, math.nan))
        assert sent[3:] == [Motion()]
        node._on_tick()
        node._on_command(twist_of(0.0, 0.5))
        node._on_tick()
        for _ in range(10):                            # the end of a turn, too, at once and once
            node._on_command(twist_of(0.0))
        assert sent[4:] == [Motion(0.0, 0.0, 0.5), Motion()]


@BOTH
def test_after_another_activation_nothing_is_sent_before_a_command_comes(kind):
    with sending(kind) as (node, sent):
        node._on_command(twist_of(0.0, 0.1))
        node.trigger_deactivate()                      # says the last zero
        node.trigger_activate()
        sent.clear()
        node._publish = sent.append
        node._on_tick()
        assert node.state == 'active' and sent == []


@BOTH
def test_an_output_that_is_the_input_is_refused_with_the_remedy(kind):
    with pytest.raises(AssertionError, match='cmd_vel_in and cmd_vel_out are both /cmd_vel_in'), \
            active(kind, '-r', 'cmd_vel_out:=cmd_vel_in'):
        pass
