# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Decide what the local planner sends: the chosen twist, or what applies at a fault.

This needs no ROS: all inputs are passed in with their time on one clock [s].
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from vjepa_ros.guard.motion_history import SpeedHistory
from vjepa_ros.guard.settings import CLOCK_TOLERANCE_S, GuardSettings, SILENCE_S
from vjepa_ros.guard.source import SourceGuard
from vjepa_ros.guard.types import MAX_VELOCITY, Motion, SourceReport
from vjepa_ros.parameter import parameter
from vjepa_ros.perception.looming_cells import LoomingCells
from vjepa_ros.perception.types import Assessment
from vjepa_ros.planning.local_planner import LocalPlan, LocalPlanner
from vjepa_ros.planning.obstacle_memory import LocalConfig, Mount, REACH_M

SENT, ODOMETRY = 'sent', 'odometry'              # sources of the speed
STOP, PASS, SILENT = 'stop', 'pass', 'silent'        # what is sent at a fault
TOLERANCE = 1e-3         # of limits, relative: numbers are rounded on their way
JUMP_M, JUMP_SPEED = 1.0, 5.0   # a pose jumps that is farther off than that speed explains [m/s]
MAX_WAITING = 8          # pictures of a camera of which a message is missing
BEHIND = math.pi / 2     # a first target farther round than this is behind the robot [rad]
FARTHEST = 1e8           # place in coordinates of anything on Earth [m]


@dataclass(frozen=True)
class DecisionConfig:
    """What `LocalDecider` knows of its robot; all but cameras and source of speed may change."""

    twist: LocalConfig  # the robot, and how it drives
    watch: GuardSettings  # faults of cameras
    mounts: Mapping[str, Mount]  # poses of the cameras by name
    speed_from: str = parameter(
        SENT, 'Source of the speed of the robot; sent: topic cmd_vel_sent, remapped to what the '
        'base gets (from the guard, or without one from this node); odometry: topic odom',
        choices=(SENT, ODOMETRY))
    on_fault: str = parameter(
        STOP, 'What is sent for a command towards a camera at fault; stop: only the turn of the '
        'command; pass: the command unchanged; silent: nothing', choices=(STOP, PASS, SILENT))


class Pose(NamedTuple):
    """A pose on the ground: x + 1j y [m], and heading [rad], left positive."""

    place: complex
    yaw: float

    def seen(self, points: np.ndarray | complex) -> np.ndarray | complex:
        """Return points from here: ahead + 1j left [m]."""
        return (points - self.place) * cmath.exp(-1j * self.yaw)

    def told(self, points: np.ndarray) -> np.ndarray:
        """Return points that are given from here in the frame of the pose."""
        return self.place + points * cmath.exp(1j * self.yaw)


def on_earth(place: complex) -> bool:
    return abs(place.real) < FARTHEST and abs(place.imag) < FARTHEST


class Course:
    """A goal (one point) or a path: (P,) complex x + 1j y in the frame of the odometry [m]."""

    def __init__(self, points: np.ndarray) -> None:
        self._points = np.asarray(points, complex)
        gaps = np.abs(np.diff(self._points))
        self._gone = np.concatenate(([0.0], np.cumsum(gaps)))
        self._at = 0.0                   # length of the path that lies behind [m]

    def left(self, pose: Pose) -> float:
        """Return the length from the robot to the end, along the path where there is one [m]."""
        self._advance(pose)
        return float(abs(self._place(self._at) - pose.place) + self._gone[-1] - self._at)

    def target(self, pose: Pose, reach: float) -> complex:
        """Return the point to drive for, up to `reach` [m] along the path: ahead + 1j left."""
        self._advance(pose)
        return complex(pose.seen(self._place(self._at + reach)))

    def _advance(self, pose: Pose) -> None:
        """Go on to the point of the path nearest to the robot; never back, nor far at once."""
        ahead = np.linspace(self._at, min(self._gone[-1], self._at + 2.0), 41)
        self._at = float(ahead[np.argmin(np.abs(self._place(ahead) - pose.place))])

    def _place(self, gone: Any) -> Any:
        return np.interp(gone, self._gone, self._points)


def course_problem(points: Sequence[complex], what: str, pose: Pose, tolerance: float) -> str:
    """Return why a robot cannot follow points [m, odometry], with the remedy; '' when it can."""
    if what == 'path' and len(points) < 2:
        return f'it has {len(points)} points, a path needs 2 or more; send a goal instead'
    if not all(map(on_earth, points)):
        return 'it contains what is not a number, or no place on Earth [m]'
    target = Course(np.array(points)).target(pose, REACH_M)
    turn = cmath.phase(target)
    if abs(target) > tolerance and abs(turn) > BEHIND:
        side = 'left' if turn > 0 else 'right'
        return (f'it leads {abs(target):.1f} m behind the robot ({math.degrees(abs(turn)):.0f} '
                f'degrees to the {side}), where no way was seen; turn the robot first')
    return ''


@dataclass(frozen=True)
class Choice:
    """What is sent for a command."""

    motion: Motion | None  # to send; None: nothing
    asked: Motion | None  # the command; None without one
    # 'idle' (nothing to do), 'free', 'unmeasured' (passed on, the path is unknown), 'uncovered'
    # (passed on, no camera looks there), 'turned', 'slowed', 'stopped' or 'fault'; with a goal
    # or path 'driving', 'waiting', 'arrived' or 'refused'
    state: str
    reason: str = ''  # the reason as text, '' when free or idle
    plan: LocalPlan | None = None  # the candidates; None where nothing was judged

    @property
    def warns(self) -> bool:
        """Whether it is a warning in a log."""
        return self.state in ('fault', 'refused')


class _Source:
    """Messages and faults of one camera."""

    def __init__(self, watch: SourceGuard) -> None:
        self.watch = watch
        self._waiting: dict[int, dict[str, Any]] = {}     # messages of pictures by their stamps
        self.judged_s = -math.inf     # stamp of the newest picture with both messages

    def pair(self, stamp_ns: int, **message: Any) -> tuple[LoomingCells, Assessment] | None:
        """Take a message of a picture; return both once they are there, and drop older ones."""
        found = self._waiting.setdefault(stamp_ns, {})
        found.update(message)
        if len(found) == 2:
            self._waiting = {stamp: one for stamp, one in self._waiting.items()
                             if stamp > stamp_ns}
            return found['cells'], found['seen']
        while len(self._waiting) > MAX_WAITING:
            del self._waiting[next(iter(self._waiting))]
        return None


class LocalDecider:
    """Takes commands, pictures and motion, and decides what to send."""

    def __init__(self, config: DecisionConfig, now_s: float) -> None:
        self.config = config
        self.planner = LocalPlanner(config.twist, config.mounts)
        self.hold_reason = ''         # why the robot must stand whatever the cameras report
        self.settings = config.watch
        self._ended = True            # the zero after the last command was sent
        self.clock_jumped(now_s)

    def restart(self) -> None:
        """Forget all obstacles (on activation, whose zero was sent)."""
        self.planner.reset()
        self._ended = True

    def clock_jumped(self, now_s: float) -> None:
        """Drop everything with a stamp; obstacles are still where they were."""
        self.planner.forget()
        self.history = SpeedHistory()
        self.sources = {name: _Source(SourceGuard(name, mount.yaw, self))
                        for name, mount in self.config.mounts.items()}
        self.motion = Motion()
        self._motion_s = -math.inf    # time of it
        self.pose: Pose | None = None    # by odometry
        self._pose_s = -math.inf
        self.drop_course('')
        self.wired = self.config.speed_from != SENT    # somebody publishes what the base gets
        self._now_s = now_s
        self._command: Motion | None = None
        self._commanded_s = -math.inf     # so a zero follows what was sent before

    def configure(self, config: DecisionConfig) -> None:
        self.config, self.settings = config, config.watch
        self.planner.configure(config.twist)

    # -- inputs ----------------------------------------------------------------------------

    def advance(self, now_s: float) -> None:
        """Account for the motion of the robot until now."""
        if now_s > self._now_s:
            if self.config.speed_from == SENT and now_s - self._motion_s > SILENCE_S:
                self._set_motion(Motion(), now_s)      # a silent guard means that the robot stands
            self.planner.move(self.motion, now_s - self._now_s)
            self._now_s = now_s

    def moves(self, motion: Motion, now_s: float) -> None:
        """Take the motion of the robot from now on."""
        if not motion.finite:
            raise ValueError(f'the speed is {tuple(motion)}, each must be a number below '
                             f'{MAX_VELOCITY:g} (m/s, rad/s)')
        self.advance(now_s)
        self._motion_s = now_s
        self._set_motion(motion, now_s)

    def _set_motion(self, motion: Motion, now_s: float) -> None:
        self.motion = motion
        self.history.add(now_s, motion, self.config.speed_from == ODOMETRY)

    def command(self, command: Motion, now_s: float) -> None:
        """Take a command, even one that is not finite."""
        self._command, self._commanded_s, self._ended = command, now_s, False
        if self.course is not None:
            self.planner.forget()
            self.drop_course('ended by a command')

    def located(self, pose: Pose, now_s: float) -> None:
        """Take the pose of the robot by odometry."""
        if not (on_earth(pose.place) and math.isfinite(pose.yaw)):
            raise ValueError(f'the pose is {pose.place} m and {pose.yaw} rad, must be finite and '
                             'on Earth')
        step = 0.0 if self.pose is None else abs(pose.place - self.pose.place)
        if self.course is not None and step > JUMP_M + JUMP_SPEED * (now_s - self._pose_s):
            # Odometry began anew: the goal would lie elsewhere.
            self.planner.forget()
            self.drop_course(f'ended: the pose jumped by {step:.1f} m')
        self.pose, self._pose_s = pose, now_s

    def follow(self, points: Sequence[complex], what: str, now_s: float) -> None:
        """Take a goal or path in place of the one before: points in the frame of odometry [m]."""
        problem = self.pose_problem(now_s)
        if not problem and not self.planner.covering(Motion(1.0)):
            problem = 'no camera looks ahead, where the robot would drive'
        if not problem and self.pose is not None:
            problem = course_problem(points, what, self.pose, self.config.twist.tolerance)
        if problem:
            raise ValueError(problem)
        self.planner.forget()
        self.course = Course(np.array(points))
        self.course_state, self._refusal, self._ended, self._command = 'active', '', False, None

    def refuse_course(self, problem: str) -> None:
        """Note why a goal or path cannot be followed; the one before it ends, too."""
        self.drop_course(f'refused: {problem}')
        self._refusal = problem

    def drop_course(self, state: str) -> None:
        self.course: Course | None = None
        # 'none', 'active', or how the last one ended
        self.course_state, self._refusal = state or 'none', ''

    def assessed(self, name: str, seen: Assessment, now_s: float, age_s: float) -> bool:
        """Take an assessment of an age [s]; return whether a picture is complete."""
        source = self.sources[name]
        self.advance(now_s)
        source.watch.observe(SourceReport.of(seen, now_s, age_s, name))
        return self._see(name, source.pair(seen.stamp_ns, seen=seen), now_s, age_s)

    def measured(self, name: str, cells: LoomingCells, stamp_ns: int, now_s: float,
                 age_s: float) -> bool:
        """Take a looming field of an age [s]; return whether a picture is complete."""
        self.advance(now_s)
        pair = self.sources[name].pair(stamp_ns, cells=cells)
        return self._see(name, pair, now_s, age_s)

    def _see(self, name: str, pair: tuple[LoomingCells, Assessment] | None, now_s: float,
             age_s: float) -> bool:
        source = self.sources[name]
        if pair is None or now_s - age_s <= source.judged_s or not (
                -CLOCK_TOLERANCE_S <= age_s <= self.settings.source_timeout):
            return False
        source.judged_s = now_s - age_s
        # A picture of a camera at fault leaves no points.
        if self.fault(name, now_s) is None and not self.speed_problem(now_s):
            self.planner.see(name, *pair, max(0.0, age_s))
        return True

    def fault(self, name: str, now_s: float) -> tuple[str, str] | None:
        """Return the fault of a source as (name, reason); None without one."""
        source, timeout_s = self.sources[name], self.settings.source_timeout
        found = source.watch.fault(now_s)
        if found is not None and found[0] in self.settings.stop_on:      # only the guard slows
            return found
        if now_s - source.judged_s > timeout_s:
            return 'missing', f'no looming_field came with an assessment for {timeout_s:g} s'
        return None

    def speed_problem(self, now_s: float) -> str:
        """Return why the speed of the robot is unknown; '' when it is known."""
        if not self.wired:
            return ('nobody publishes on cmd_vel_sent; remap it to what the guard sends, or set '
                    'speed_from')
        if self.config.speed_from == ODOMETRY and now_s - self._motion_s > SILENCE_S:
            return 'no odometry' + ('' if self._motion_s == -math.inf else
                                    f' for {now_s - self._motion_s:.1f} s')
        return ''

    def pose_problem(self, now_s: float) -> str:
        """Return why the pose of the robot is unknown; '' when it is known."""
        age = now_s - self._pose_s
        if age <= SILENCE_S:
            return ''
        return 'no pose on odom' + (f' for {age:.1f} s' if age < math.inf else
                                    ', which goals and paths need')

    def holds_until(self, now_s: float) -> float:
        """Return when the first of the inputs that are current gets too old [s]; inf: none is."""
        settings = self.settings
        ends = [self._commanded_s + settings.command_timeout, self._pose_s + SILENCE_S]
        if self.config.speed_from == ODOMETRY:
            ends.append(self._motion_s + SILENCE_S)
        for source in self.sources.values():
            ends.append(source.judged_s + settings.source_timeout)
            if source.watch.report is not None:
                ends.append(source.watch.report.stamp_s + settings.source_timeout)
        return min((end for end in ends if end >= now_s), default=math.inf)

    def decide(self, now_s: float) -> Choice:
        """Return what to send now."""
        self.advance(now_s)
        asked = self._command
        if asked is None or now_s - self._commanded_s > self.settings.command_timeout:
            self._command = None
            if self.course is not None:
                return self._pursue(self.course, now_s)
            ended, self._ended = self._ended, True
            state = 'refused' if self._refusal else (
                'arrived' if self.course_state == 'arrived' else 'idle')
            return Choice(None if ended else Motion(), None, state, self._refusal)
        problem = command_problem(asked, self.config.twist) or self.hold_reason
        if problem:
            return Choice(Motion(), asked, 'fault', problem)
        covering = self.planner.covering(asked)
        if not covering:
            return Choice(asked, asked, 'uncovered' if asked.speed else 'free',
                          'no camera looks there' if asked.speed else '')
        faults = self._faults(covering, now_s)
        if faults:
            sent = {PASS: asked, SILENT: None}.get(self.config.on_fault, Motion(0, 0, asked.omega))
            return Choice(sent, asked, 'fault', faults)
        return _choice(asked, self.planner.choose(asked))

    def _faults(self, covering: Sequence[str], now_s: float) -> str:
        """Return the faults of the speed and of cameras; '' without any."""
        problems = [f'{name}: {": ".join(fault)}' for name in covering
                    if (fault := self.fault(name, now_s))]
        problem = self.speed_problem(now_s)
        return '; '.join([f'speed: {problem}', *problems] if problem else problems)

    def _pursue(self, course: Course, now_s: float) -> Choice:
        """Return what to send on the way to a goal or along a path."""
        faults = self._faults(self.planner.covering(Motion(1.0)), now_s)
        problem = self.pose_problem(now_s)
        faults = '; '.join(filter(None, (f'pose: {problem}' if problem else '', faults)))
        if self.hold_reason or faults or self.pose is None:
            self.planner.rest()
            sent = None if self.config.on_fault == SILENT and not self.hold_reason else Motion()
            return Choice(sent, None, 'fault', self.hold_reason or faults)
        left = course.left(self.pose)
        if left <= self.config.twist.tolerance:
            self.drop_course('arrived')
            self._ended = True
            return Choice(Motion(), None, 'arrived')
        plan = self.planner.pursue(course.target(self.pose, REACH_M))
        reason = f'{left:.1f} m left'
        if not plan.twist.speed:
            done = 'turns on the spot' if plan.twist.omega else 'nothing else is safe'
            reason += f', {done} (risk {plan.risk:.2f})'
        elif plan.twist.vx < 0:
            reason += ', goes back, where no camera looks'
        elif plan.unmeasured:
            reason += f', the path is not measured: {plan.unmeasured}'
        return Choice(plan.twist, None, 'driving' if any(plan.twist) else 'waiting', reason, plan)


def command_problem(asked: Motion, robot: LocalConfig) -> str:
    """Return why a command is refused, with the remedy; '' when it is not."""
    if not all(map(math.isfinite, asked)):
        return 'command: it is not a number'
    for name, value, most, unit in (('speed', asked.speed, robot.max_speed, 'm/s'),
                                    ('turn', abs(asked.omega), robot.max_turn, 'rad/s')):
        if value > most * (1 + TOLERANCE):
            return (f'command: its {name} is {value:.3g} {unit}, beyond max_{name} ({most:g}); '
                    f'send less, or set max_{name} to what the robot can do')
    return ''


def _choice(asked: Motion, plan: LocalPlan) -> Choice:
    """Return the twist of a plan with its state and reason."""
    twist = plan.twist
    if twist == asked:
        if not plan.unmeasured:
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
