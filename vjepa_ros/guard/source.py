# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What one camera allows: faults, levels, time to contact and distance become a limit of speed."""

from __future__ import annotations

import math

from vjepa_ros.guard.free_path import Way
from vjepa_ros.guard.motion_history import SpeedHistory
from vjepa_ros.guard.settings import GuardSettings
from vjepa_ros.guard.source_timing import SourceTiming
from vjepa_ros.guard.types import Limit, SourceReport
from vjepa_ros.perception.types import Level, Quality

LEAST_SPEED = 0.05        # slower is not worth driving [m/s]; the robot stops instead
UNBELIEVED = 1.5          # times min_time_to_contact, at least, below `believe_level`
CREEPING = 0.3            # part of measuring_speed from which a threat can be measured at all
STANDING = (1.0, 0.02)    # a robot stands that moved less than so many metres in so many seconds
FREE = math.inf


def speed_for(distance: float, settings: GuardSettings) -> float:
    """Greatest speed at which a free way [m] is enough, NaN and inf: no limit [m/s].

    The time to contact stays above `min_time_to_contact`, and the robot comes to stand before
    `stop_distance`: ``v t + v^2 / (2 b) = room`` with the reaction time t and deceleration b.
    """
    if not distance < math.inf:
        return FREE
    room = distance - settings.stop_distance
    if room <= 0:
        return 0.0
    lost = settings.braking * settings.reaction
    brake = math.sqrt(lost ** 2 + 2 * settings.braking * room) - lost
    return min(room / settings.min_time_to_contact, brake)


class SourceGuard:
    """State of one camera.

    Parameters
    ----------
    name
        Name of the source.
    yaw
        Direction of its optical axis in the robot's frame [rad], 0 forward, left positive.
    """

    def __init__(self, name: str, yaw: float) -> None:
        self.name = name
        self.yaw = yaw
        self.way = Way(yaw)
        self.timing = SourceTiming()
        self._begun = False           # whether it has ever been without a fault
        self.reset()

    def reset(self) -> None:
        """Forget all reports and states (clock jump); the way as well."""
        self.report: SourceReport | None = None
        self.way.forget()
        self.timing.clear()
        self._speed = 0.0             # along the axis, that the report was measured at
        self._threat = False          # whether the report tells of something within the horizon
        self._coming = False          # it comes by itself: the robot does not go towards it
        self._side = ''               # where the newest threat was seen
        self._stopped = False
        self._blocked = False
        self._confirm = False         # a stop is over, the way is not confirmed yet
        self._quiet_s = math.nan      # since when there is no reason to stop
        self._slowed_until = -math.inf
        self._frozen_s = math.nan     # since when the picture does not change
        self._frozen = False
        self._malformed = ''
        self._advanced_s = math.nan

    def advance(self, now_s: float, history: SpeedHistory, settings: GuardSettings) -> None:
        """Take the motion until now into account."""
        self.way.advance(self._advanced_s, now_s, history, settings)
        self._advanced_s = now_s

    def malformed(self, reason: str) -> None:
        """A message of this source could not be read; it counts until one can."""
        self._malformed = reason

    def observe(self, report: SourceReport, history: SpeedHistory,
                settings: GuardSettings) -> bool:
        """Take a report; False when it is older than the newest (unless that is of the future)."""
        newest = self.report
        if newest is not None and report.stamp_s <= newest.stamp_s <= (
                report.received_s + settings.clock_tolerance):
            return False
        self._malformed = ''
        self._watch_frozen(report)
        self.report = report
        now = report.received_s
        self.timing.add(report.stamp_s, now)
        self._speed = history.mean(report.stamp_s - settings.measurement_window, report.stamp_s,
                                   self.yaw)
        time = self._time(report, settings)
        self._threat = self._coming = False
        if self.fault(now, history, settings) or math.isnan(time):
            self.way.interrupt()
            return True
        self._learn(time, history, settings)
        return True

    def _learn(self, time: float, history: SpeedHistory, settings: GuardSettings) -> None:
        """What a time to contact [s] says about the way."""
        report, speed = self.report, self._speed
        stamp, now = report.stamp_s, report.received_s
        since = history.travel(stamp, now, self.yaw)
        turned = history.turned(stamp, now)
        least = history.least(stamp - settings.measurement_window, stamp, self.yaw)
        self._threat = threat = time < settings.horizon
        self._coming = threat and history.travel(stamp - STANDING[0], stamp,
                                                 self.yaw) < STANDING[1]
        if threat:
            self._side = report.side
        unknown = math.isnan(self.way.distance)
        enough = settings.measuring_speed * (CREEPING if unknown else 1.0)
        # The least speed: a robot that has just stopped sees nothing come nearer either.
        free = (not threat and least >= settings.measuring_speed
                and Quality.FROZEN not in report.flags)
        if not free:
            self.way.interrupt()
        if threat and speed >= enough:
            self.way.measure(speed * time - since, now, turned)
            self._confirm = self._confirm and speed < settings.measuring_speed
        elif free:
            if self.way.free(least * settings.horizon - since, now, turned):
                self._confirm = False
        elif (threat or self.way.moving) and history.path(
                stamp - STANDING[0], stamp) < STANDING[1]:
            # It moves by itself: where it was says nothing about where it will be.
            self.way.forget()
        elif speed < settings.measuring_speed:
            self.way.see_clearance(report.clearance, now, settings)

    def _watch_frozen(self, report: SourceReport) -> None:
        if Quality.FROZEN not in report.flags:
            self._frozen_s, self._frozen = math.nan, False
        elif math.isnan(self._frozen_s):
            self._frozen_s = report.stamp_s

    def _time(self, report: SourceReport, settings: GuardSettings) -> float:
        """Time to contact as far as it is believed [s], NaN unknown."""
        if report.level < settings.believe_level:
            return max(report.time_to_contact, UNBELIEVED * settings.min_time_to_contact)
        return report.time_to_contact

    @property
    def obstacle(self) -> str:
        """What is ahead: 'moving' by itself, 'static', 'unknown' which of both, or 'none'."""
        if self.way.moving or self._coming:
            return 'moving'
        return 'static' if self.way.threat else 'unknown' if self._threat else 'none'

    def _which(self) -> str:
        """Side and motion of what is ahead, to follow a reason; '' for nothing."""
        side = self.report.side or (self._side if self.way.threat else '')
        kind = self.obstacle
        return ''.join(f', {word}' for word in (side, kind) if word not in ('', 'none', 'unknown'))

    def fault(self, now_s: float, history: SpeedHistory,
              settings: GuardSettings) -> tuple[str, str] | None:
        """(name, reason) of what is wrong, the worst first; None when nothing is."""
        found = self._faults(now_s, history, settings)
        for chosen in (settings.stop_on, settings.slow_on):
            for name, reason in found:
                if name in chosen:
                    return name, reason
        return None

    def _faults(self, now_s: float, history: SpeedHistory,
                settings: GuardSettings) -> list[tuple[str, str]]:
        report = self.report
        found = [('malformed', self._malformed)] if self._malformed else []
        if report is None:
            return [*found, ('missing', 'no assessment yet')]
        age = now_s - report.stamp_s
        if age < -settings.clock_tolerance:
            found.append(('clock', f'stamp is {-age:.2f} s ahead of the clock'))
        elif age > settings.source_timeout:
            found.append(('timeout', self._with_timing(
                f'assessment is {age:.2f} s old{self.timing.text}', settings)))
        if Quality.FROZEN in report.flags and not self._frozen:
            moved = history.path(self._frozen_s, report.stamp_s)
            turned = abs(history.turned(self._frozen_s, report.stamp_s))
            self._frozen = max(moved, turned) > settings.frozen_travel
        if self._frozen:
            found.append(('frozen', 'the picture does not change while the robot moves'))
        if report.level == Level.UNKNOWN or (math.isnan(report.time_to_contact)
                                             and Quality.LOOMING_UNKNOWN not in report.flags):
            found.append(('unknown', 'the view can not be measured'))
        found += [(name, f'flagged {name}') for name in (report.flags & ~Quality.FROZEN).names]
        return found

    def _with_timing(self, text: str, settings: GuardSettings) -> str:
        slow = self.timing.problem(settings.source_timeout)
        return f'{text}; {slow}' if slow else text

    def limit(self, now_s: float, asked: float, history: SpeedHistory,
              settings: GuardSettings) -> Limit:
        """What the source allows now.

        Parameters
        ----------
        now_s
            Time [s]; `way` is at this time.
        asked
            Commanded speed towards it [m/s].
        history
            How the robot moved.
        settings
            The numbers.
        """
        fault = self.fault(now_s, history, settings)
        held = self._free()
        if fault:
            name, reason = fault
            stops = name in settings.stop_on
            held = Limit(self.name, 'fault', 0.0 if stops else settings.fault_speed,
                         f'{name}: {reason}')
            if stops:
                if self._begun:           # at the start there is no motion to be released again
                    self._stopped = self._confirm = True
                self._quiet_s = math.nan
                self.way.interrupt()      # also a silence, which brings no report
            if stops or self.report is None:
                return held
            # What only slows does not make a danger, or what was seen before, forgotten.
        else:
            self._begun = True
        limits = [held, self._stop(now_s, settings), self._near(now_s, settings),
                  self._unseen(settings), self._caution(now_s, asked, settings)]
        return min(limits, key=lambda limit: limit.speed)

    def _stop(self, now_s: float, settings: GuardSettings) -> Limit:
        """Stop below `stop_time_to_contact` and from `stop_level` on, until that has passed."""
        report = self.report
        time = self._time(report, settings) - (now_s - report.stamp_s)
        ease = 1.0 + settings.hysteresis if self._stopped else 1.0
        why = ''
        if settings.stop_level <= report.level < Level.UNKNOWN:     # that is a fault
            why = f'level {report.level.name.lower()}'
        elif time < settings.stop_time_to_contact * ease:
            why = f'time to contact {max(0.0, time):.1f} s'
        elif (self._speed < settings.measuring_speed
              and time < settings.min_time_to_contact * ease):
            why = f'something comes nearer, {max(0.0, time):.1f} s to contact'
        if why:
            self._stopped = self._confirm = True
            self._quiet_s = math.nan
            return Limit(self.name, 'stop', 0.0, why + self._which())
        if self._stopped:
            if math.isnan(self._quiet_s):
                self._quiet_s = now_s
            left = settings.release_hold - (now_s - self._quiet_s)
            if left > 0:
                text = self._with_timing(f'free again, released in {left:.1f} s', settings)
                return Limit(self.name, 'stop', 0.0, text)
            self._stopped = False
        return self._free()

    def _near(self, now_s: float, settings: GuardSettings) -> Limit:
        """Keep `min_time_to_contact` to what was seen, and room to brake."""
        speed = speed_for(self.way.distance, settings)
        if not self.way.threat:
            # Free so far at least: no reason to be slower than where nothing is known.
            speed = max(speed, settings.unseen_speed)
        least = LEAST_SPEED * (1 + settings.hysteresis) if self._blocked else LEAST_SPEED
        self._blocked = speed < least
        where = f'{max(0.0, self.way.distance):.2f} m'
        which = self._which() if self.way.threat else ''
        if self._blocked:
            self._confirm = True
            return Limit(self.name, 'blocked', 0.0, f'something {where} ahead{which}')
        return Limit(self.name, 'contact', speed, f'way is free for {where}{which}')

    def _unseen(self, settings: GuardSettings) -> Limit:
        """Go slowly where the camera has not measured while driving."""
        if self._confirm:
            return Limit(self.name, 'release', settings.release_speed,
                         'the way is not measured again yet')
        if math.isnan(self.way.distance):
            return Limit(self.name, 'unseen', settings.unseen_speed, 'way is not measured yet')
        return self._free()

    def _caution(self, now_s: float, asked: float, settings: GuardSettings) -> Limit:
        """Slow down at CAUTION and above, and for `release_hold` after it."""
        report = self.report
        doubted = (report.level == Level.CAUTION
                   and report.collision_probability < settings.caution_probability)
        if report.level >= Level.CAUTION and not doubted:
            self._slowed_until = now_s + settings.release_hold
        if asked <= 0 or not (doubted or now_s < self._slowed_until):
            return self._free()
        left = settings.caution_factor if now_s < self._slowed_until else settings.doubted_factor
        why = (f'level {report.level.name.lower()}' if report.level >= Level.CAUTION else
               'danger has just passed')
        return Limit(self.name, 'caution', left * asked, why + self._which())

    def _free(self) -> Limit:
        return Limit(self.name, 'free', FREE, '')
