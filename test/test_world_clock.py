# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Simulated time goes no faster than the world is drawn and looked at."""

from __future__ import annotations

import math

import pytest

from vjepa_ros.lab.world.episodes.world import LONGEST_WAIT_S, WorldClock

PERIOD_S = 0.1


class Run:
    """A simulation with a steady clock in the hand of the test."""

    def __init__(self, drawing_s: float = 0.0, patient: bool = True) -> None:
        self.steady_s, self.drawing_s = 50.0, drawing_s
        self.pictures: list[float] = []
        self.waiting: list[tuple[float, float]] = []      # until when, and stamp
        self.newest_s, self.oldest_s = math.inf, 0.0      # assessment, and its greatest age
        self.clock = WorldClock(1000.0, PERIOD_S, patient, lambda: self.steady_s)
        self.clock.begin()

    def go(self, seconds: float, assess_after_s: float = math.inf) -> float:
        """Let real time pass, what was drawn is assessed after a while; the time simulated."""
        end, begun = self.steady_s + seconds, self.clock.now_s
        while self.steady_s < end - 1e-9:
            self.steady_s += 0.01
            while self.waiting and self.waiting[0][0] <= self.steady_s:
                self.newest_s = self.waiting.pop(0)[1]
                self.clock.assessed(self.newest_s)
            self.clock.advance()
            self.oldest_s = max(self.oldest_s, self.clock.now_s - self.newest_s)
            if self.clock.due:
                self.pictures.append(self.clock.now_s)
                self.steady_s += self.drawing_s
                self.clock.drawn()
                self.waiting.append((self.steady_s + assess_after_s, self.clock.now_s))
        return self.clock.now_s - begun


def test_it_goes_with_real_time_where_the_computer_keeps_up():
    run = Run(drawing_s=0.03)
    run.go(5.0, assess_after_s=0.06)
    assert run.clock.factor == pytest.approx(1.0, abs=0.02)
    assert len(run.pictures) == pytest.approx(50, abs=1)


def test_it_waits_for_a_slow_perception_which_is_then_no_later_than_elsewhere():
    run = Run()
    run.go(1.0, assess_after_s=0.5)       # the first assessments: nobody was waited for yet
    run.oldest_s = 0.0
    # Two pictures on the way at most, so at least half a second for two of them.
    assert 0.2 < run.go(6.0, assess_after_s=0.5) / 6.0 < 0.41
    assert run.oldest_s <= 2 * PERIOD_S + 1e-3


def test_a_perception_that_dies_does_not_stop_the_world_and_is_waited_for_again():
    run = Run()
    run.go(2.0, assess_after_s=0.05)
    assert run.go(LONGEST_WAIT_S + 3.0) == pytest.approx(3.0, abs=0.2)
    run.clock.assessed(run.clock.now_s)
    assert run.go(1.0) < 3 * PERIOD_S + 1e-6


def test_real_time_waits_for_nobody():
    run = Run(0.25, patient=False)
    run.go(5.0, assess_after_s=2.0)
    assert run.clock.factor == pytest.approx(1.0)
    assert len(run.pictures) == pytest.approx(20, abs=1)
