# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The velocity guard: between controller and base, it lets through what the cameras allow.

Everything that it knows is handed in with its time, on one clock of the caller's choice that never
goes backward without `VelocityGuard.clock_jumped`; it starts no thread and asks no clock. So it
runs the same in a node, in a simulation and in a test. ``docs/guard.md`` describes the law.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from vjepa_ros.guard import coverage
from vjepa_ros.guard.motion_history import SpeedHistory
from vjepa_ros.guard.settings import GuardSettings
from vjepa_ros.guard.source import FREE, SourceGuard, speed_for
from vjepa_ros.guard.types import STILL, Decision, Limit, Motion, RangeReading, SourceReport

NEAR_ANGLE = math.cos(math.radians(30.0))   # a range sensor within this looks where a camera looks
BLIND = 'no source looks where the robot goes'
LEAST = 1e-6             # slower is no motion towards a source [m/s]
MOST_DT = 0.5            # a longer pause between decisions does not release more [s]
ROUNDS = 4               # of the limits, which can push motion towards each other


class VelocityGuard:
    """Law and state of the guard.

    Parameters
    ----------
    settings
        The numbers; may be replaced at any time.
    sources
        Yaw of each camera in the robot's frame [rad] by its name: 0 forward, pi backward,
        pi/2 left, -pi/2 right.
    ranges
        The same of each range sensor.

    Attributes
    ----------
    held
        Why the robot must stand whatever the sources say, but for an override; '' for nothing.

    Raises
    ------
    ValueError
        When there is no source or a yaw is no number.
    """

    def __init__(self, settings: GuardSettings, sources: Mapping[str, float],
                 ranges: Mapping[str, float] | None = None) -> None:
        ranges = dict(ranges or {})
        if not sources and not ranges:
            raise ValueError('sources are empty: the guard must listen to one camera at least')
        for name, yaw in (*sources.items(), *ranges.items()):
            if not math.isfinite(yaw):
                raise ValueError(f"direction of source '{name}' is {yaw}, must be an angle [rad]")
        self.settings = settings
        self.held = ''
        self.history = SpeedHistory()
        self._sources = {name: SourceGuard(name, yaw) for name, yaw in sources.items()}
        self._ranges = ranges
        self._readings: dict[str, RangeReading] = {}
        self._command: Motion | None = None
        self._commanded_s = -math.inf
        self._problem = ''                 # of the newest command
        self._odometry_s = -math.inf
        self._override_s = -math.inf
        self._decided_s = math.nan
        self._caps: dict[str, float] = {}
        self._fresh: dict[str, float] = {}   # stamps of reports that no decision has used yet
        self._sent = STILL

    @property
    def sources(self) -> Mapping[str, SourceGuard]:
        """The cameras by name."""
        return self._sources

    def turn_source(self, name: str, yaw: float) -> None:
        """Let a camera look into another direction [rad] from now on.

        What it saw counts until it has turned by `release_turn`, as when the robot turns.
        """
        source = self._sources[name]
        by = math.remainder(yaw - source.yaw, 2 * math.pi)
        source.yaw = source.way.yaw = yaw
        if source.report is None:
            source.reset()
        else:
            source.way.turn(by)

    @property
    def yaws(self) -> Mapping[str, float]:
        """Direction of each camera and range sensor [rad] by its name."""
        return {**{n: s.yaw for n, s in self._sources.items()}, **self._ranges}

    def uncovered_text(self) -> str:
        """Where no source looks, and what holds there; '' when they look everywhere."""
        where = coverage.where(coverage.uncovered(self.yaws.values()))
        how = {'free': 'is free, BLIND', 'stop': 'is stopped', 'slow':
               f'is slowed to {self.settings.fault_speed:g} m/s'}[self.settings.uncovered]
        return where and f'{where}: motion there {how}'

    # -- what comes in ---------------------------------------------------------------------

    def command(self, motion: Motion, now_s: float) -> None:
        """Take the newest command of the controller; what is not finite stops the robot."""
        self._problem = '' if motion.finite else f'command is not a number: {motion}'
        self._command = motion
        self._commanded_s = now_s

    def no_command(self) -> None:
        """Forget the command without a last zero (the caller has sent that itself)."""
        self._command = None

    def observe(self, report: SourceReport) -> bool:
        """Take what a camera said; False when it is older than what is known.

        Raises
        ------
        KeyError
            When there is no such source.
        """
        self._advance(report.received_s)
        used = self._sources[report.source].observe(report, self.history, self.settings)
        if used:
            self._fresh[report.source] = report.stamp_s
        return used

    def observe_malformed(self, source: str, reason: str) -> None:
        """A message of a camera could not be read."""
        self._sources[source].malformed(reason)

    def observe_range(self, reading: RangeReading) -> None:
        """Take a reading of a range sensor; NaN counts as none, older than the newest, too."""
        newest = self._readings.get(reading.sensor)
        now = reading.received_s
        if newest is not None and reading.stamp_s < newest.stamp_s <= (
                now + self.settings.clock_tolerance):
            return
        self._advance(now)
        yaw = self._ranges[reading.sensor]
        seen = min(reading.distance, reading.reach)     # it knows nothing of what lies beyond
        if math.isnan(reading.distance) or not self._timely(reading, now):
            seen = math.nan
        for source in self._sources.values():
            if math.cos(source.yaw - yaw) > NEAR_ANGLE:
                source.way.see_range(seen, now, self.settings)
        if not math.isnan(reading.distance):
            self._readings[reading.sensor] = reading

    def observe_speed(self, motion: Motion, stamp_s: float) -> None:
        """Take the measured velocity (odometry); what is not finite is left out."""
        if motion.finite:
            self._odometry_s = max(self._odometry_s, stamp_s)
            self.history.add(stamp_s, motion)

    def override(self, on: bool, now_s: float) -> None:
        """Let every command pass for `override_timeout`, or end that."""
        self._override_s = now_s + self.settings.override_timeout if on else -math.inf

    def override_left(self, now_s: float) -> float:
        """How long the override still lasts [s]."""
        return max(0.0, self._override_s - now_s)

    def clock_jumped(self, now_s: float) -> None:
        """Forget all that has a time: from now on it means something else."""
        for source in self._sources.values():
            source.reset()
        self._readings.clear()
        self._fresh.clear()
        self.history.clear()
        self.history.add(now_s, STILL)
        self._decided_s = math.nan
        self._odometry_s = -math.inf       # not NaN, which would outlast every maximum
        self._commanded_s = min(self._commanded_s, now_s)
        self._override_s = -math.inf

    # -- what goes out ---------------------------------------------------------------------

    def decide(self, now_s: float) -> Decision:
        """The command for the robot now, by all that is known."""
        self._advance(now_s)
        dt = min(MOST_DT, max(0.0, now_s - self._decided_s)) if self._decided_s <= now_s else 0.0
        self._decided_s = now_s
        reaction = max((now_s - stamp for stamp in self._fresh.values()), default=math.nan)
        self._fresh.clear()
        asked = self._command if self._command is not None else STILL
        silent = now_s - self._commanded_s > self.settings.command_timeout
        if self._command is None or silent:
            return self._end_of_commands(asked, now_s, reaction)
        if self._problem:
            return self._send(STILL, asked, 'fault', self._problem, (), now_s, reaction)
        limits = self._limits(asked, now_s, dt)
        if self.override_left(now_s) > 0:
            text = f'OVERRIDE for {self.override_left(now_s):.1f} s: nothing is guarded'
            return self._send(asked, asked, 'override', text, limits, now_s, reaction)
        if self.held:
            return self._send(STILL, asked, 'fault', self.held, (), now_s, reaction)
        motion, acting = self._apply(asked, limits)
        if not acting:
            return self._send(motion, asked, 'free', '', (), now_s, reaction)
        first = acting[0]
        state = ('fault' if first.kind == 'fault' else 'stopped' if first.speed <= 0 else
                 'slowed' if motion != asked else 'free')     # free: blind, and said to be
        return self._send(motion, asked, state, f'{first.source}: {first.reason}', acting, now_s,
                          reaction)

    def _end_of_commands(self, asked: Motion, now_s: float, reaction: float) -> Decision:
        self._limits(STILL, now_s, 0.0)
        if self._command is None:
            return Decision(None, asked, 'idle', 'no command', (), reaction)
        self._command = None
        return self._send(STILL, asked, 'idle', 'commands have ended', (), now_s, reaction)

    def _send(self, motion: Motion, asked: Motion, state: str, reason: str,
              limits: tuple[Limit, ...], now_s: float, reaction: float) -> Decision:
        self._sent = motion
        if not now_s - self._odometry_s <= self.settings.odometry_timeout:
            self.history.add(now_s, motion)
        return Decision(motion, asked, state, reason, limits, reaction)

    def _advance(self, now_s: float) -> None:
        for source in self._sources.values():
            source.advance(now_s, self.history, self.settings)

    def _limits(self, asked: Motion, now_s: float, dt: float) -> tuple[Limit, ...]:
        """What every source allows, with limits that rise no faster than they may."""
        limits = []
        for name, source in self._sources.items():
            speed = asked.along(source.yaw)
            limits.append(self._ramped(
                name, source.yaw, source.limit(now_s, speed, self.history, self.settings), dt))
        for name, yaw in self._ranges.items():
            limits.append(self._ramped(name, yaw, self._range_limit(name, yaw, now_s), dt))
        return tuple(limits)

    def _ramped(self, name: str, yaw: float, limit: Limit, dt: float) -> Limit:
        before = self._caps.get(name, limit.speed)
        if limit.speed <= before:
            self._caps[name] = limit.speed
            return limit
        start = max(before, self._sent.along(yaw))
        speed = min(limit.speed, start + self.settings.release_acceleration * dt)
        self._caps[name] = speed
        return Limit(name, 'release' if limit.kind == 'free' else limit.kind, speed,
                     limit.reason or 'free again, speeding up')

    def _timely(self, reading: RangeReading, now_s: float) -> bool:
        age = now_s - reading.stamp_s
        return -self.settings.clock_tolerance <= age <= self.settings.range_timeout

    def _range_limit(self, name: str, yaw: float, now_s: float) -> Limit:
        """A range sensor limits by distance; one that is silent is a fault."""
        reading = self._readings.get(name)
        distance = math.nan if reading is None else (
            reading.distance - self.history.travel(reading.stamp_s, now_s, yaw))
        speed = speed_for(distance, self.settings)
        if reading is None or not self._timely(reading, now_s):
            age = math.inf if reading is None else now_s - reading.stamp_s
            fault = 'missing' if reading is None else 'timeout' if age > 0 else 'clock'
            most = 0.0 if fault in self.settings.stop_on else self.settings.fault_speed
            text = 'no reading yet' if reading is None else f'reading is {age:.2f} s old'
            return Limit(name, 'fault', min(most, speed), f'{fault}: {text}')
        kind = 'stop' if speed <= 0 else 'free' if speed == FREE else 'contact'
        return Limit(name, kind, speed, f'range is {max(0.0, distance):.2f} m')

    def _apply(self, asked: Motion, limits: tuple[Limit, ...]) -> tuple[Motion, tuple[Limit, ...]]:
        """The motion within all limits, and those that changed it, the strongest first."""
        yaws = self.yaws
        acting: dict[str, Limit] = {}
        motion = asked
        for _ in range(ROUNDS):
            before = motion
            for limit in limits:
                over = motion.along(yaws[limit.source]) - max(0.0, limit.speed)
                if over > LEAST:
                    motion = _held_back(motion, yaws[limit.source], over)
                    acting[limit.source] = limit
            if motion == before:
                break
        else:
            if any(motion.along(yaws[limit.source]) > max(0.0, limit.speed) + LEAST
                   for limit in limits):
                motion = Motion(0.0, 0.0, asked.omega)   # limits that contradict each other
        # Of what is left: a limit can leave the part alone that nobody sees.
        if math.hypot(motion.vx, motion.vy) > LEAST and not coverage.looks(motion, yaws.values()):
            most = {'free': math.inf, 'slow': self.settings.fault_speed,
                    'stop': 0.0}[self.settings.uncovered]
            scale = min(1.0, most / math.hypot(motion.vx, motion.vy))
            motion = Motion(motion.vx * scale, motion.vy * scale, asked.omega)
            acting['guard'] = Limit('guard', 'uncovered', most, BLIND)
        return _tidy(motion), tuple(sorted(acting.values(), key=lambda limit: limit.speed))


def _held_back(motion: Motion, yaw: float, over: float) -> Motion:
    """A motion with so much less speed towards a direction [m/s].

    The rest stays, unless that would be a motion which nobody commanded: a robot that can not go
    sideways would leave that part out and drive on towards the source.
    """
    held = Motion(motion.vx - over * math.cos(yaw), motion.vy - over * math.sin(yaw),
                  motion.omega)
    if all(min(0.0, old) - LEAST <= new <= max(0.0, old) + LEAST
           for new, old in ((held.vx, motion.vx), (held.vy, motion.vy))):
        return held
    scale = 1.0 - over / motion.along(yaw)
    return Motion(motion.vx * scale, motion.vy * scale, motion.omega)


def _tidy(motion: Motion) -> Motion:
    """Without the remainders of rounding: a stopped robot gets zeros."""
    vx, vy = (0.0 if abs(v) < LEAST else v for v in (motion.vx, motion.vy))
    return Motion(vx, vy, motion.omega)
