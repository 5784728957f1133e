# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The velocity guard: limits the commands of a controller by what the cameras see.

All inputs are passed in with their time, on one clock of the caller's choice that never goes
backward without `VelocityGuard.clock_jumped`. The guard starts no thread and reads no clock, so it
runs the same in a node, in a simulation and in a test. ``docs/guard.md`` describes the law.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

from vjepa_ros.guard.motion_history import SpeedHistory
from vjepa_ros.guard.settings import (
    CLOCK_TOLERANCE_S,
    FAULT_SPEED,
    GuardSettings,
    MEASURING_SPEED,
    RELEASE_ACCELERATION,
    SILENCE_S,
)
from vjepa_ros.guard.source import FREE, SourceGuard, safe_speed
from vjepa_ros.guard.types import Decision, Limit, Motion, RangeReading, STILL, SourceReport

VIEW_ANGLE = math.radians(60.0)   # a source looks where motion leads within this angle
SAME_VIEW = math.cos(math.radians(30.0))    # a range sensor within 30 degrees shares a view
DIRECTIONS = {'forward': 0.0, 'left': math.pi / 2, 'backward': math.pi, 'right': -math.pi / 2}
MIN_SPEED = 1e-6         # slower is no motion towards a source [m/s]
OVERRIDE_S = 10.0        # then somebody must ask again: nobody forgets an override
AGREES_S = 2.0           # over which odometry has to agree with the commands sent...
LEAST_OF_SENT, MOST_OF_SENT = 0.3, 2.0      # ...within these factors
MAX_DT = 0.5             # longest time between decisions that lets a limit rise [s]
ROUNDS = 4               # limits can push motion towards each other: how often they are applied
ANGLE_TOLERANCE = 1e-6   # [rad]


class VelocityGuard:
    """Law and state of the guard.

    Parameters
    ----------
    settings
        Settings; may be replaced at any time.
    sources
        Yaw of each camera in the frame of the robot [rad] by its name: 0 forward, pi backward,
        pi/2 left, -pi/2 right.
    ranges
        The same for each range sensor.

    Raises
    ------
    ValueError
        Without any source, or when a yaw is not finite.
    """

    def __init__(self, settings: GuardSettings, sources: Mapping[str, float],
                 ranges: Mapping[str, float] | None = None) -> None:
        ranges = dict(ranges or {})
        if not sources and not ranges:
            raise ValueError('sources are empty: the guard needs at least one camera or range '
                             'sensor')
        for name, yaw in (*sources.items(), *ranges.items()):
            if not math.isfinite(yaw):
                raise ValueError(f"direction of source '{name}' is {yaw}, must be an angle [rad]")
        self.settings = settings
        # Why the robot must stand whatever the sources report, except during an override.
        self.hold_reason = ''
        self._commands = SpeedHistory()      # sent
        self.history = SpeedHistory(self._commands)
        self.sources = {name: SourceGuard(name, yaw, self) for name, yaw in sources.items()}
        self._ranges = ranges
        self._readings: dict[str, RangeReading] = {}
        self._command: Motion | None = None
        self._commanded_s = -math.inf
        self._problem = ''                   # of the newest command
        self._odometry_s = -math.inf
        self._override_s = -math.inf         # end of the override
        self._decided_s = math.nan
        self._limit_speeds: dict[str, float] = {}    # after ramping
        self._sent = STILL

    @property
    def yaws(self) -> Mapping[str, float]:
        """Direction of each camera and range sensor [rad] by name."""
        return {**{n: s.yaw for n, s in self.sources.items()}, **self._ranges}

    def uncovered_text(self) -> str:
        """Return where no source looks and what applies there; '' when all is covered."""
        arcs = uncovered_arcs(self.yaws.values())
        if not arcs:
            return ''
        names = [name for name, yaw in DIRECTIONS.items()
                 if any((yaw - low) % (2 * math.pi) <= high - low for low, high in arcs)]
        degrees = [f'{math.degrees(low):.0f} to {math.degrees(high):.0f}' for low, high in arcs]
        how = {'free': 'is free, BLIND', 'stop': 'is stopped', 'slow':
               f'is slowed to {FAULT_SPEED:g} m/s'}[self.settings.uncovered]
        return (f'no source looks {", ".join([*names, " and ".join(degrees)])} degrees from '
                f'forward (left positive): motion there {how}')

    # -- inputs ------------------------------------------------------------------------------

    def command(self, motion: Motion, now_s: float) -> None:
        """Take the newest command of the controller; one that is not finite stops the robot."""
        self._problem = '' if motion.finite else f'command is not a number: {motion}'
        self._command = motion
        self._commanded_s = now_s

    def observe(self, report: SourceReport) -> bool:
        """Take the report of a camera; return False when it is old, or cannot be meant (a fault).

        Raises
        ------
        KeyError
            When there is no source of its name.
        """
        if math.isfinite(report.received_s):
            self._advance(report.received_s)
        return self.sources[report.source].observe(report)

    def observe_range(self, reading: RangeReading) -> None:
        """Take a reading of a range sensor; NaN, or one older than the newest, is ignored."""
        newest = self._readings.get(reading.sensor)
        now = reading.received_s
        if newest is not None and (
                reading.stamp_s < newest.stamp_s <= now + CLOCK_TOLERANCE_S):
            return
        self._advance(now)
        yaw = self._ranges[reading.sensor]
        seen = min(reading.distance, reading.reach)     # it measures nothing beyond its reach
        if math.isnan(reading.distance) or not _timely(reading, now):
            seen = math.nan
        for source in self.sources.values():
            if math.cos(source.yaw - yaw) > SAME_VIEW:
                source.free_path.see_range(seen, now)
        if not math.isnan(reading.distance):
            self._readings[reading.sensor] = reading

    def observe_speed(self, motion: Motion, stamp_s: float) -> None:
        """Take the measured velocity (odometry); one that is not finite is ignored."""
        if motion.finite:
            self._odometry_s = max(self._odometry_s, stamp_s)
            self.history.add(stamp_s, motion, measured=True)

    def measures_speed(self, now_s: float) -> bool:
        """Return whether odometry is current; otherwise the commands sent count as speed."""
        return now_s - self._odometry_s <= SILENCE_S

    def speed_problem(self, now_s: float) -> str:
        """Return how odometry contradicts the commands sent; '' when it does not."""
        if not self.measures_speed(now_s):
            return ''
        window = now_s - AGREES_S, now_s
        measured, sent = (complex(one.travel(*window, 0.0), one.travel(*window, math.pi / 2))
                          / AGREES_S for one in (self.history, self._commands))
        along = (measured * sent.conjugate()).real / abs(sent) if sent else 0.0
        if abs(sent) >= MEASURING_SPEED and along < LEAST_OF_SENT * abs(sent):
            return (f'odom tells of {along:.2f} m/s where {abs(sent):.2f} m/s were sent: the '
                    'base does not execute commands, or its odometry is wrong; the larger counts')
        if abs(measured) > MOST_OF_SENT * abs(sent) + MEASURING_SPEED:
            return (f'odom tells of {abs(measured):.2f} m/s where {abs(sent):.2f} m/s were sent: '
                    'something else moves the base, or its odometry is wrong (unit?)')
        return ''

    def override(self, on: bool, now_s: float) -> None:
        """Pass every command for `OVERRIDE_S`, or end that."""
        self._override_s = now_s + OVERRIDE_S if on else -math.inf

    def override_left(self, now_s: float) -> float:
        """Return the time left of an override [s]."""
        return max(0.0, self._override_s - now_s)

    def clock_jumped(self, now_s: float) -> None:
        """Drop all that has a stamp; obstacles stay. Motion waits until each source sees anew."""
        for source in self.sources.values():
            source.restart()
        self._readings.clear()
        self.history.restart(now_s)
        self._decided_s = math.nan
        self._odometry_s = -math.inf       # not NaN, which would outlast every maximum
        self._commanded_s = min(self._commanded_s, now_s)
        self._override_s = -math.inf

    def restart(self, before: VelocityGuard | None = None) -> None:
        """Begin anew after a pause; obstacles are kept, also those of a guard `before`."""
        self._command = None
        known = self if before is None else before
        for name, source in self.sources.items():
            if name in known.sources:
                source.free_path.recall(known.sources[name].free_path)

    # -- decision ----------------------------------------------------------------------------

    def holds_until(self, now_s: float) -> float:
        """Return until when a decision of now may be acted on without new inputs [s]."""
        settings = self.settings
        ends = [self._commanded_s + settings.command_timeout, self._override_s]
        ends += [source.report.stamp_s + settings.source_timeout
                 for source in self.sources.values() if source.report is not None]
        ends += [reading.stamp_s + SILENCE_S for reading in self._readings.values()]
        return min((end for end in ends if end >= now_s), default=math.inf)

    def decide(self, now_s: float) -> Decision:
        """Return the command for the robot now."""
        self._advance(now_s)
        dt = min(MAX_DT, max(0.0, now_s - self._decided_s)) if self._decided_s <= now_s else 0.0
        self._decided_s = now_s
        decision = self._judge(now_s, dt)
        if decision.motion is not None:
            self._sent = decision.motion
            self._commands.add(now_s, decision.motion)
            if not self.measures_speed(now_s):
                self.history.add(now_s, decision.motion)
        return decision

    def _judge(self, now_s: float, dt: float) -> Decision:
        asked = self._command
        if asked is None or now_s - self._commanded_s > self.settings.command_timeout:
            self._limits(STILL, now_s, 0.0)
            if asked is None:
                return Decision(None, STILL, 'idle', 'no command')
            self._command = None
            return Decision(STILL, asked, 'idle', 'commands have ended')
        if self._problem:
            return Decision(STILL, asked, 'fault', self._problem)
        limits = self._limits(asked, now_s, dt)
        override_s = self.override_left(now_s)
        if override_s > 0:
            return Decision(asked, asked, 'override', f'OVERRIDE for {override_s:.1f} s: nothing '
                            'is guarded', limits)
        if self.hold_reason:
            return Decision(STILL, asked, 'fault', self.hold_reason)
        motion, acting = self._apply(asked, limits)
        if not acting:
            return Decision(motion, asked, 'free')
        first = acting[0]
        state = ('fault' if first.kind == 'fault' else 'stopped' if first.speed <= 0 else
                 'slowed' if motion != asked else 'free')     # free: an uncovered direction
        return Decision(motion, asked, state, f'{first.source}: {first.reason}', acting)

    def _advance(self, now_s: float) -> None:
        for source in self.sources.values():
            source.advance(now_s)

    def _limits(self, asked: Motion, now_s: float, dt: float) -> tuple[Limit, ...]:
        """Return the limit of each source, rising no faster than allowed."""
        found = [source.limit(now_s, asked.along(source.yaw)) for source in self.sources.values()]
        found += [self._range_limit(name, yaw, now_s) for name, yaw in self._ranges.items()]
        yaws = self.yaws
        return tuple(self._ramped(limit, yaws[limit.source], dt) for limit in found)

    def _ramped(self, limit: Limit, yaw: float, dt: float) -> Limit:
        before = self._limit_speeds.get(limit.source, limit.speed)
        if limit.speed <= before:
            self._limit_speeds[limit.source] = limit.speed
            return limit
        start = max(before, self._sent.along(yaw))
        speed = min(limit.speed, start + RELEASE_ACCELERATION * dt)
        self._limit_speeds[limit.source] = speed
        return Limit(limit.source, 'release' if limit.kind == 'free' else limit.kind, speed,
                     limit.reason or 'free again, speeding up')

    def _range_limit(self, name: str, yaw: float, now_s: float) -> Limit:
        """Return the limit of a range sensor by its distance; silence is a fault."""
        reading = self._readings.get(name)
        distance = math.nan if reading is None else (
            reading.distance - self.history.reach(reading.stamp_s, now_s, yaw))
        speed = safe_speed(distance, self.settings)
        if reading is None or not _timely(reading, now_s):
            age = math.inf if reading is None else now_s - reading.stamp_s
            fault = 'missing' if reading is None else 'timeout' if age > 0 else 'clock'
            limit = 0.0 if fault in self.settings.stop_on else FAULT_SPEED
            text = 'no reading yet' if reading is None else f'reading is {age:.2f} s old'
            return Limit(name, 'fault', min(limit, speed), f'{fault}: {text}')
        kind = 'stop' if speed <= 0 else 'free' if speed == FREE else 'contact'
        return Limit(name, kind, speed, f'range is {max(0.0, distance):.2f} m')

    def _apply(self, asked: Motion, limits: tuple[Limit, ...]) -> tuple[Motion, tuple[Limit, ...]]:
        """Return the motion within all limits, and the limits that changed it, lowest first."""
        yaws = self.yaws
        motion, acting = _within(asked, limits, yaws)
        # After the limits: they can leave just the part that no source sees.
        speed = math.hypot(motion.vx, motion.vy)
        if speed > MIN_SPEED and not covers(yaws.values(), motion):
            limit = {'free': math.inf, 'slow': FAULT_SPEED, 'stop': 0.0}[self.settings.uncovered]
            scale = min(1.0, limit / speed)
            motion = Motion(motion.vx * scale, motion.vy * scale, asked.omega)
            acting.append(Limit('guard', 'uncovered', limit,
                                'no source looks where the robot goes'))
        vx, vy = (0.0 if abs(v) < MIN_SPEED else v for v in (motion.vx, motion.vy))
        return Motion(vx, vy, motion.omega), tuple(sorted(acting, key=lambda one: one.speed))


def _timely(reading: RangeReading, now_s: float) -> bool:
    return -CLOCK_TOLERANCE_S <= now_s - reading.stamp_s <= SILENCE_S


def _within(asked: Motion, limits: Iterable[Limit],
            yaws: Mapping[str, float]) -> tuple[Motion, list[Limit]]:
    """Return a motion within limits towards the yaws of sources, and the limits that acted."""
    acting: dict[str, Limit] = {}
    motion = asked

    def excess(limit: Limit) -> float:
        return motion.along(yaws[limit.source]) - max(0.0, limit.speed)

    for _ in range(ROUNDS):
        before = motion
        for limit in limits:
            over = excess(limit)
            if over > MIN_SPEED:
                motion = _reduced(motion, yaws[limit.source], over)
                acting[limit.source] = limit
        if motion == before:
            break
    else:
        if any(excess(limit) > MIN_SPEED for limit in limits):
            motion = Motion(0.0, 0.0, asked.omega)   # the limits contradict each other
    return motion, list(acting.values())


def _reduced(motion: Motion, yaw: float, over: float) -> Motion:
    """Return a motion with its speed towards a direction reduced by `over` [m/s]."""
    # The other component stays, unless the result had one that was not commanded: a robot that
    # cannot drive sideways would leave that out and drive on towards the source.
    held = Motion(motion.vx - over * math.cos(yaw), motion.vy - over * math.sin(yaw),
                  motion.omega)
    if all(min(0.0, old) - MIN_SPEED <= new <= max(0.0, old) + MIN_SPEED
           for new, old in ((held.vx, motion.vx), (held.vy, motion.vy))):
        return held
    scale = 1.0 - over / motion.along(yaw)
    return Motion(motion.vx * scale, motion.vy * scale, motion.omega)


# -- coverage: where sources look ----------------------------------------------------------------

def covers(yaws: Iterable[float], motion: Motion) -> bool:
    """Return whether a source with one of the yaws [rad] looks where a motion leads."""
    speed = math.hypot(motion.vx, motion.vy)
    return any(motion.along(yaw) > math.cos(VIEW_ANGLE) * speed for yaw in yaws)


def uncovered_arcs(yaws: Collection[float]) -> list[tuple[float, float]]:
    """Return where no source looks: start and end of each arc [rad], counter-clockwise."""
    known = sorted(yaw % (2 * math.pi) for yaw in yaws)
    gaps = [(math.remainder(one + VIEW_ANGLE, 2 * math.pi), other - one - 2 * VIEW_ANGLE)
            for one, other in zip(known, [*known[1:], known[0] + 2 * math.pi], strict=True)]
    return [(low, low + width) for low, width in gaps if width > ANGLE_TOLERANCE]
