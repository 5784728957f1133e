# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The clock of a node between controller and base, and the detection of clock jumps."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from rclpy.clock import JumpThreshold, TimeJump
from rclpy.duration import Duration
from rclpy.node import Node

NS = 1e9
STEP_S = 0.1             # change of the offset to the steady clock that counts as a jump
AHEAD_S = 2.0            # forward step of a simulated clock that counts as a jump
STANDS_S = 2.0           # real time without progress after which a simulated clock stands


class CommandClock:
    """Steady time, or simulated time with ``use_sim_time``.

    Parameters
    ----------
    node
        Node whose clock gives the time of stamps.
    jumped
        Called with the reason when stamps from before mean other times now.
    """

    def __init__(self, node: Node, jumped: Callable[[str], None]) -> None:
        self._clock = node.get_clock()
        self._jumped = jumped
        self._steady_s = time.monotonic
        self._handle = self._clock.create_jump_callback(
            JumpThreshold(min_forward=Duration(seconds=AHEAD_S),
                          min_backward=Duration(nanoseconds=-1), on_clock_change=True),
            post_callback=self._on_time_jump)
        self.start()

    def start(self) -> None:
        """Start anew (on activation)."""
        self._offset_s = math.nan         # of the ROS clock to the steady one
        self._newest_s = math.nan         # simulated time
        self._since_s = math.nan          # steady time at which that arrived

    @property
    def simulated(self) -> bool:
        """Whether time is simulated."""
        # Of ROSClock.
        return self._clock.ros_time_is_active  # pyright: ignore[reportAttributeAccessIssue]

    def ros_s(self) -> float:
        """Return the time of stamps [s]."""
        return self._clock.now().nanoseconds / NS

    def now_s(self) -> float:
        """Return the time of the node [s]."""
        return self.ros_s() if self.simulated else self._steady_s()

    def watch(self) -> bool:
        """Detect a clock that was set, and return whether simulated time stands; call it often."""
        steady = self._steady_s()
        if self.simulated:                # its jumps are reported to `_on_time_jump`
            now = self.ros_s()
            if now != self._newest_s:
                self._newest_s, self._since_s = now, steady
            return steady - self._since_s > STANDS_S
        offset = self.ros_s() - steady
        if abs(offset - self._offset_s) > STEP_S:
            self._jumped(f'the clock was set by {offset - self._offset_s:+.2f} s')
        self._offset_s = offset
        return False

    def _on_time_jump(self, jump: TimeJump) -> None:
        self._jumped('time jumped')
