# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Decide what the twist planner sends: the chosen twist, or what applies at a fault.

This needs no ROS: all inputs are passed in with their time on one clock [s].
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from vjepa_ros.guard.motion_history import SpeedHistory
from vjepa_ros.guard.source import SourceGuard
from vjepa_ros.guard.types import Motion, SourceReport
from vjepa_ros.perception.looming_cells import LoomingCells
from vjepa_ros.perception.types import Assessment
from vjepa_ros.planning.twist_config import Twist, TwistPlan
from vjepa_ros.planning.twist_planner import TwistPlanner
from vjepa_ros.ros.twist_planner.parameters import (
    ODOMETRY,
    PASS,
    SENT,
    SILENT,
    TwistNodeConfig,
)

NS = 1_000_000_000
MAX_WAITING = 8          # messages of a camera that wait for the other of the same picture


@dataclass(frozen=True)
class Choice:
    """What is sent for a command.

    Attributes
    ----------
    twist
        The twist to send; None: nothing.
    asked
        The command; None without one.
    state
        'idle' (no command), 'free', 'unmeasured' (passed on, the path is unknown), 'uncovered'
        (passed on, no camera looks there), 'turned', 'slowed', 'stopped' or 'fault'.
    reason
        The reason as text, '' when free or idle.
    plan
        The candidates; None where nothing was judged.
    """

    twist: Twist | None
    asked: Twist | None
    state: str
    reason: str = ''
    plan: TwistPlan | None = None


class _Source:
    """Messages and faults of one camera."""

    def __init__(self, name: str, yaw: float) -> None:
        self.watch = SourceGuard(name, yaw)
        self.seen: dict[int, Assessment] = {}
        self.cells: dict[int, LoomingCells] = {}
        self.judged_s = -math.inf     # stamp of the newest picture with both messages

    def pair(self, stamp_ns: int) -> tuple[LoomingCells, Assessment] | None:
        """Return both messages of a picture once they are there, and drop older ones."""
        if stamp_ns in self.seen and stamp_ns in self.cells:
            pair = self.cells[stamp_ns], self.seen[stamp_ns]
            for waiting in (self.seen, self.cells):
                for old in [stamp for stamp in waiting if stamp <= stamp_ns]:
                    del waiting[old]
            return pair
        for waiting in (self.seen, self.cells):
            while len(waiting) > MAX_WAITING:
                del waiting[next(iter(waiting))]
        return None


class TwistDecider:
    """Takes commands, pictures and motion, and decides what to send.

    Parameters
    ----------
    config
        Configuration of the node; `configure` replaces its live part.
    now_s
        Time [s].

    Attributes
    ----------
    hold_reason
        Why the robot must stand whatever the cameras report; '' for no reason.
    wired
        Whether something publishes what is sent to the base.
    """

    def __init__(self, config: TwistNodeConfig, now_s: float) -> None:
        self.config = config
        self.planner = TwistPlanner(config.twist, config.mounts)
        self.hold_reason = ''
        self._ended = True            # the zero after the last command was sent
        self.reset(now_s)

    def reset(self, now_s: float) -> None:
        """Drop everything received (on activation, or when the clock jumped)."""
        self.planner.reset()
        self.history = SpeedHistory()
        self.sources = {source.name: _Source(source.name, source.mount.yaw)
                        for source in self.config.sources}
        self.motion = Twist()
        self._motion_s = -math.inf    # time of it
        self.wired = self.config.speed_from != SENT
        self._now_s = now_s
        self._command: Twist | None = None
        self._commanded_s = -math.inf     # so a zero follows what was sent before

    def configure(self, config: TwistNodeConfig) -> None:
        """Apply parameters that may change while the node runs."""
        self.config = config
        self.planner.config = config.twist

    # -- inputs ----------------------------------------------------------------------------

    def advance(self, now_s: float) -> None:
        """Account for the motion of the robot until now."""
        if now_s > self._now_s:
            if self.config.speed_from == SENT and (
                    now_s - self._motion_s > self.config.speed_timeout):
                self._set_motion(Twist(), now_s)      # a silent guard means that the robot stands
            self.planner.move(self.motion, now_s - self._now_s)
            self._now_s = now_s

    def moves(self, motion: Twist, now_s: float) -> None:
        """Take the motion of the robot from now on.

        Raises
        ------
        ValueError
            When it is not finite.
        """
        if not all(map(math.isfinite, motion)):
            raise ValueError(f'the speed is {tuple(motion)}, must be finite')
        self.advance(now_s)
        self._motion_s = now_s
        self._set_motion(motion, now_s)

    def _set_motion(self, motion: Twist, now_s: float) -> None:
        self.motion = motion
        self.history.add(now_s, Motion(*motion))

    def command(self, command: Twist, now_s: float) -> None:
        """Take a command, even one that is not finite."""
        self._command, self._commanded_s, self._ended = command, now_s, False

    def no_command(self) -> None:
        """Drop the command without a last zero (the caller has sent it)."""
        self._command, self._ended = None, True

    def malformed(self, name: str, reason: str) -> None:
        """Note that a message of a camera could not be read."""
        self.sources[name].watch.malformed(reason)

    def assessed(self, name: str, seen: Assessment, now_s: float, age_s: float) -> bool:
        """Take an assessment of an age [s]; return whether a picture is complete."""
        source = self.sources[name]
        self.advance(now_s)
        source.watch.observe(SourceReport.of(seen, now_s, age_s, name), self.history,
                             self.config.watch)
        source.seen[seen.stamp_ns] = seen
        return self._see(name, seen.stamp_ns, now_s, age_s)

    def measured(self, name: str, cells: LoomingCells, stamp_ns: int, now_s: float,
                 age_s: float) -> bool:
        """Take a looming field of an age [s]; return whether a picture is complete."""
        self.advance(now_s)
        self.sources[name].cells[stamp_ns] = cells
        return self._see(name, stamp_ns, now_s, age_s)

    def _see(self, name: str, stamp_ns: int, now_s: float, age_s: float) -> bool:
        source = self.sources[name]
        pair = source.pair(stamp_ns)
        if pair is None or now_s - age_s <= source.judged_s or not (
                -self.config.watch.clock_tolerance <= age_s <= self.config.watch.source_timeout):
            return False
        source.judged_s = now_s - age_s
        # A picture of a camera at fault leaves no points.
        if self.fault(name, now_s) is None and not self.speed_problem(now_s):
            self.planner.see(name, *pair, max(0.0, age_s))
        return True

    # -- decision --------------------------------------------------------------------------

    def fault(self, name: str, now_s: float) -> tuple[str, str] | None:
        """Return the fault of a source as (name, reason); None without one."""
        source, watch = self.sources[name], self.config.watch
        found = source.watch.fault(now_s, self.history, watch)
        if found is None and now_s - source.judged_s > watch.source_timeout:
            found = ('missing', f'no looming_field came with an assessment for '
                     f'{watch.source_timeout:g} s')
        return found

    def speed_problem(self, now_s: float) -> str:
        """Return why the speed of the robot is unknown; '' when it is known."""
        if not self.wired:
            return ('nobody publishes on cmd_vel_sent; remap it to what the guard sends, or set '
                    'speed_from')
        if self.config.speed_from == ODOMETRY and (
                now_s - self._motion_s > self.config.speed_timeout):
            return 'no odometry' + ('' if self._motion_s == -math.inf else
                                    f' for {now_s - self._motion_s:.1f} s')
        return ''

    def decide(self, now_s: float) -> Choice:
        """Return what to send now."""
        self.advance(now_s)
        asked = self._command
        if asked is None or now_s - self._commanded_s > self.config.watch.command_timeout:
            ended, self._ended, self._command = self._ended, True, None
            return Choice(None if ended else Twist(), None, 'idle')
        if not all(map(math.isfinite, asked)):
            return Choice(Twist(), asked, 'fault', 'command: it is not a number')
        if self.hold_reason:
            return Choice(Twist(), asked, 'fault', self.hold_reason)
        covering = self.planner.covering(asked)
        if not covering:
            return Choice(asked, asked, 'uncovered' if asked.speed else 'free',
                          'no camera looks there' if asked.speed else '')
        problems = [f'{name}: {": ".join(fault)}' for name in covering
                    if (fault := self.fault(name, now_s))]
        problem = self.speed_problem(now_s)
        if problem:
            problems.insert(0, f'speed: {problem}')
        if problems:
            sent = {PASS: asked, SILENT: None}.get(self.config.on_fault, Twist(0, 0, asked.omega))
            return Choice(sent, asked, 'fault', '; '.join(problems))
        return _choice(asked, self.planner.choose(asked))


def _choice(asked: Twist, plan: TwistPlan) -> Choice:
    """Return the twist of a plan with its state and reason."""
    twist = plan.twist
    if twist == asked:
        if plan.measured:
            return Choice(asked, asked, 'free', '', plan)
        return Choice(asked, asked, 'unmeasured', f'the path is not measured: {plan.unmeasured}',
                      plan)
    own = plan.candidates[0]
    turned = twist.omega - asked.omega
    state = 'stopped' if not twist.speed else 'turned' if turned else 'slowed'
    done = f'turned by {turned:+.2f} rad/s, ' if turned else ''
    if 0 < twist.speed < asked.speed:
        done += f'slowed to {twist.speed / asked.speed:.0%}, '
    time = float(own['time_to_contact'])
    contact = (f'contact in {time:.1f} s' if math.isfinite(time)
               else 'by the collision probability')
    return Choice(twist, asked, state, f'{done}the command has risk {own["risk"]:.2f} '
                  f'({contact}), this one {plan.risk:.2f}', plan)
