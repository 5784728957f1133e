# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Speed limit from one camera, by its faults, danger level, time to contact and free path."""

from __future__ import annotations

import itertools
import math
from collections import deque
from statistics import median

from vjepa_ros.guard.free_path import FreePath, Robot
from vjepa_ros.guard.motion_history import SENT_S
from vjepa_ros.guard.settings import (
    CLOCK_TOLERANCE_S,
    FAULT_SPEED,
    GuardSettings,
    HORIZON_S,
    MEASURING_SPEED,
    RELEASE_HOLD_S,
    RELEASE_SPEED,
    SLOWING,
)
from vjepa_ros.guard.types import Limit, SourceReport
from vjepa_ros.perception.types import Level, Quality

MIN_SPEED = 0.05          # the robot stops rather than crawls below this [m/s]
HYSTERESIS = 0.25         # part by which a threshold must be exceeded before a stop ends
WINDOW_S = 0.4            # before its stamp over which a time to contact is measured
# Part of the commanded speed left at CAUTION and WARNING, and at a CAUTION with a collision
# probability below the third: there patches and clip head contradict each other, and
# robots slowed to 0.7 lost 15 % of their progress on free ways.
CAUTION_FACTOR, DOUBTED_FACTOR, DOUBTED_BELOW = 0.7, 0.95, 0.5
FROZEN_TRAVEL = 0.05      # under bitwise equal pictures that makes a fault, in m or rad
CREEPING = 0.3            # part of MEASURING_SPEED from which a first threat can be measured
STANDING = (1.0, 0.02)    # a robot stands that moved less than 0.02 m in the last 1.0 s
# Motion by odometry, in m or rad, under a view that does not move, from which the camera is blind:
# 0.3 m/s for a second moves all that is nearer than 40 m. And what a view stands later [s] than
# before if it has moved.
STILL_TRAVEL, MOVED_S = 0.3, 0.05
FREE = math.inf
DOUBT_SPEED = 1.2         # towards what was forgotten, in MEASURING_SPEED: enough to see it free
DOUBT_ROOM = 1 / 3        # part of stop_distance that is kept to it
TIMING_SAMPLES = 9        # assessments over which timing is measured
TIMING_MIN_SAMPLES = 3
TIMEOUT_MARGIN = 1.25     # recommended timeout over the measured age
TIMEOUT_STEP_S = 0.05     # to which it is rounded up


def safe_speed(distance: float, settings: GuardSettings) -> float:
    """Return the highest safe speed [m/s] for a free path [m]; inf where that is NaN or inf.

    It keeps the time to contact above `min_time_to_contact` and lets the robot stop before
    `stop_distance`: ``v t + v^2 / (2 b) = room`` with reaction time t and deceleration b.
    """
    if not distance < math.inf:
        return FREE
    room = max(0.0, distance - settings.stop_distance)
    return min(room / settings.min_time_to_contact, stopping_speed(distance, settings))


def stopping_speed(distance: float, settings: GuardSettings) -> float:
    """Return the highest speed [m/s] from which the robot stops before `stop_distance`."""
    if not distance < math.inf:
        return FREE
    lost, room = settings.braking * settings.reaction, max(0.0, distance - settings.stop_distance)
    return math.sqrt(lost ** 2 + 2 * settings.braking * room) - lost


class SourceTiming:
    """Period of the assessments of one source, and their age on arrival [s]; NaN unknown."""

    def __init__(self) -> None:
        self._times: deque[tuple[float, float]] = deque(maxlen=TIMING_SAMPLES)
        self.period_s = self.arrival_age_s = math.nan

    def add(self, stamp_s: float, received_s: float) -> None:
        """Take the stamp of an assessment, newer than all before, and its arrival [s]."""
        self._times.append((stamp_s, received_s))
        if len(self._times) >= TIMING_MIN_SAMPLES:
            self.period_s = median(b - a for (a, _), (b, _) in itertools.pairwise(self._times))
            self.arrival_age_s = median(received - stamp for stamp, received in self._times)

    def problem(self, timeout_s: float) -> str:
        """Return why assessments become older than a timeout, with the remedy; '' if not."""
        # Just before the next one arrives.
        oldest = self.period_s + self.arrival_age_s
        if not oldest > timeout_s:
            return ''
        enough = math.ceil(round(TIMEOUT_MARGIN * oldest / TIMEOUT_STEP_S, 6)) * TIMEOUT_STEP_S
        return (f'the perception is too slow for source_timeout ({timeout_s:g} s): a period of '
                f'{self.period_s:.2f} s and an age of {self.arrival_age_s:.2f} s on arrival make '
                f'{oldest:.2f} s; set source_timeout to {enough:.2f} or make it faster (device, '
                'model_size, max_rate)')


class SourceGuard:
    """State of one camera; `yaw` is the direction of its optical axis [rad], left positive."""

    def __init__(self, name: str, yaw: float, robot: Robot) -> None:
        self.name, self.yaw, self._robot = name, yaw, robot
        self._free = Limit(name, 'free', FREE, '')
        self.free_path = FreePath(yaw, robot)
        self._begun = False           # whether it has ever been without a fault
        self._stopped = False
        self._blocked = False
        self._unconfirmed = False     # after a stop, until the path is measured again
        self.restart()

    def restart(self) -> None:
        """Drop reports and times (clock jump); a threat is where it was."""
        self.report: SourceReport | None = None
        self.free_path.restart()
        self.timing = SourceTiming()
        self._speed = 0.0             # towards the axis during the measurement [m/s]
        self._drives = False          # fast enough for that, by odometry or commands
        self._threat = False          # something approaches within the horizon
        self._approaching = False     # although the robot did not drive towards it
        self._side = ''               # of the newest threat
        self._quiet_s = math.nan      # since when there is no reason to stop
        self._slowed_until = -math.inf
        self._frozen_s = math.nan     # since when the picture does not change
        self._frozen = False
        self._still_from = math.nan   # since when the view stands although the robot has driven
        self._threat_s = math.nan     # stamp of the last threat
        self._malformed = ''
        self._advanced_s = math.nan

    def turn_to(self, yaw: float) -> None:
        """Change the direction of the camera [rad]; its path is kept as for a turning robot."""
        by = math.remainder(yaw - self.yaw, 2 * math.pi)
        self.yaw = self.free_path.yaw = yaw
        if self._begun:
            self.free_path.turn(by)

    def advance(self, now_s: float) -> None:
        """Account for the motion of the robot until now."""
        self.free_path.advance(self._advanced_s, now_s)
        self._advanced_s = now_s

    def malformed(self, reason: str) -> None:
        """Note a message that could not be read; a fault until the next readable one."""
        self._malformed = reason

    # -- assessments -------------------------------------------------------------------------

    def observe(self, report: SourceReport) -> bool:
        """Take a report; return False when it is older than the newest, or cannot be meant."""
        history = self._robot.history
        if problem := report.problem:
            self.malformed(problem)
            return False
        newest = self.report         # one with a stamp in the future is replaced by any other
        if newest is not None and report.stamp_s <= newest.stamp_s <= (
                report.received_s + CLOCK_TOLERANCE_S):
            return False
        self._malformed = ''
        if Quality.FROZEN not in report.flags:
            self._frozen_s, self._frozen = math.nan, False
        elif math.isnan(self._frozen_s):
            self._frozen_s = report.stamp_s
        if report.still_from > self._still_from + MOVED_S:
            self._still_from = math.nan
        if history.moved(max(report.still_from, history.measured_s),
                         report.stamp_s) > STILL_TRAVEL:
            self._still_from = report.still_from
        self.report = report
        now = report.received_s
        self.timing.add(report.stamp_s, now)
        window = report.stamp_s - WINDOW_S, report.stamp_s
        self._speed = history.mean(*window, self.yaw)
        # A measured speed can be wrong, in its unit, too.
        most = history.sent.most(report.stamp_s - SENT_S, report.stamp_s, self.yaw)
        if most >= MEASURING_SPEED:
            self._speed = min(self._speed, most)
        self._drives = not history.stood(*window, CREEPING * MEASURING_SPEED * WINDOW_S)
        time = self._time(report)
        self._threat = self._approaching = False
        if self.fault(now) or math.isnan(time):
            self.free_path.interrupt()
        else:
            self._measure(report, time)
        return True

    def _measure(self, report: SourceReport, time: float) -> None:
        """Update the free path by a time to contact [s]."""
        history, path = self._robot.history, self.free_path
        speed, stamp, now = self._speed, report.stamp_s, report.received_s
        since = history.reach(stamp, now, self.yaw)
        turned = history.turned(stamp, now)
        window = stamp - WINDOW_S, stamp
        sent, mean = (find(*window, self.yaw) for find in (history.sent.least, history.sent.mean))
        least = min(sent, history.least(*window, self.yaw))
        self._threat = threat = time < HORIZON_S
        self._approaching = threat and history.travel(stamp - STANDING[0], stamp,
                                                      self.yaw) < STANDING[1]
        if threat:
            self._side, self._threat_s = report.side, stamp
        enough = MEASURING_SPEED * (CREEPING if math.isnan(path.distance) else 1.0)
        # By the lowest speed: a robot that has just stopped sees no approach either.
        # And a view that still shows the picture of the threat says nothing new.
        sees = (not threat and Quality.FROZEN not in report.flags
                and not report.still_from <= self._threat_s + MOVED_S)
        free = sees and least >= MEASURING_SPEED
        held = sees and sent >= MEASURING_SPEED and history.path(*window) < STANDING[1]
        if not free and not held:
            path.interrupt()
        if threat and max(speed, mean) >= enough:
            self._unconfirmed = self._unconfirmed and speed < MEASURING_SPEED
            # Where only the commands tell of motion, it is enough to stop, not to go on.
            known = path.threat and speed < enough
            path.measure(min((speed if speed >= enough else mean) * time - since,
                             path.distance if known else math.inf), now, turned)
        elif free:
            if path.free(least * HORIZON_S - since, now, turned):
                self._unconfirmed = False
        elif (threat or path.moving) and history.stood(stamp - STANDING[0], stamp, STANDING[1]):
            # It moves by itself: its last position does not predict the next one.
            path.forget()
        elif held:
            path.hold(now)
        elif speed < MEASURING_SPEED:
            path.see_clearance(report.clearance, now)

    @property
    def obstacle(self) -> str:
        """Return what is ahead: 'moving' by itself, 'static', 'unknown' (either), or 'none'."""
        if self.free_path.moving or self._approaching:
            return 'moving'
        return 'static' if self.free_path.threat else 'unknown' if self._threat else 'none'

    # -- faults ------------------------------------------------------------------------------

    def fault(self, now_s: float) -> tuple[str, str] | None:
        """Return the worst fault as (name, reason); None without one."""
        found = self._faults(now_s)
        return next((fault for chosen in (self._robot.settings.stop_on, SLOWING)
                     for fault in found if fault[0] in chosen), None)

    def _faults(self, now_s: float) -> list[tuple[str, str]]:
        report, history = self.report, self._robot.history
        found = [('malformed', self._malformed)] if self._malformed else []
        if report is None:
            return [*found, ('missing', 'no assessment yet')]
        age = now_s - report.stamp_s
        if age < -CLOCK_TOLERANCE_S:
            found.append(('clock', f'stamp is {-age:.2f} s ahead of the clock'))
        elif age > self._robot.settings.source_timeout:
            found.append(('timeout', self._with_timing(f'assessment is {age:.2f} s old')))
        if Quality.FROZEN in report.flags and not self._frozen:
            moved = history.path(self._frozen_s, report.stamp_s)
            turned = abs(history.turned(self._frozen_s, report.stamp_s))
            self._frozen = max(moved, turned) > FROZEN_TRAVEL
        if not math.isnan(self._still_from):
            found.append(('frozen', 'the view does not move while the robot does'))
        if self._frozen:
            found.append(('frozen', 'the picture does not change while the robot moves'))
        if report.level == Level.UNKNOWN or (math.isnan(report.time_to_contact)
                                             and Quality.LOOMING_UNKNOWN not in report.flags):
            found.append(('unknown', 'the view cannot be measured'))
        found += [(name, f'flagged {name}') for name in (report.flags & ~Quality.FROZEN).names]
        return found

    def _with_timing(self, text: str) -> str:
        slow = self.timing.problem(self._robot.settings.source_timeout)
        return f'{text}; {slow}' if slow else text

    # -- limits ------------------------------------------------------------------------------

    def limit(self, now_s: float, asked: float) -> Limit:
        """Return the lowest limit for a commanded speed towards the source [m/s]."""
        fault, report = self.fault(now_s), self.report
        limits = [self._free]
        if fault:
            name, reason = fault
            stops = name in self._robot.settings.stop_on
            limits = [Limit(self.name, 'fault', 0.0 if stops else FAULT_SPEED,
                            f'{name}: {reason}')]
            if stops:
                if self._begun:           # at the start no motion has to be released again
                    self._stopped = self._unconfirmed = True
                self._quiet_s = math.nan
                self.free_path.interrupt()      # for a silence, too, which brings no report
                return limits[0]
            # A fault that only slows leaves dangers and memories in force.
        else:
            self._begun = True
        if report is not None:
            limits += [self._stop(report, now_s), self._distance_limit(report),
                       self._clearance_limit(report, now_s), self._doubt_limit(),
                       self._unmeasured(), self._caution(report, now_s, asked)]
        return min(limits, key=lambda limit: limit.speed)

    def _clearance_limit(self, report: SourceReport, now_s: float) -> Limit:
        """Be able to stop before what is in the way now, by the heads, even if it moves on."""
        if not self._drives:
            return self._free
        # It stops nothing: heads know metres from cameras as high as those of training.
        clear = report.clearance - self._robot.history.reach(report.stamp_s, now_s, self.yaw)
        speed = max(RELEASE_SPEED, stopping_speed(clear, self._robot.settings))
        return Limit(self.name, 'clearance', speed, f'way is clear for {max(0.0, clear):.2f} m')

    def _stop(self, report: SourceReport, now_s: float) -> Limit:
        """Stop below `stop_time_to_contact` and at DANGER, and hold for a while."""
        settings = self._robot.settings
        time = self._time(report) - (now_s - report.stamp_s)
        ease = 1.0 + HYSTERESIS if self._stopped else 1.0
        why = ''
        if report.level is Level.DANGER:
            why = f'level {report.level.name.lower()}'
        elif time < settings.stop_time_to_contact * ease:
            why = f'time to contact {max(0.0, time):.1f} s'
        elif self._speed < MEASURING_SPEED and time < settings.min_time_to_contact * ease:
            why = f'something approaches, {max(0.0, time):.1f} s to contact'
        if why:
            self._stopped = self._unconfirmed = True
            self._quiet_s = math.nan
            return Limit(self.name, 'stop', 0.0, why + self._object_text(report))
        if self._stopped:
            if math.isnan(self._quiet_s):
                self._quiet_s = now_s
            left = RELEASE_HOLD_S - (now_s - self._quiet_s)
            if left > 0:
                text = self._with_timing(f'free again, released in {left:.1f} s')
                return Limit(self.name, 'stop', 0.0, text)
            self._stopped = False
        return self._free

    def _distance_limit(self, report: SourceReport) -> Limit:
        """Keep `min_time_to_contact` and the braking distance to what was measured."""
        path, settings = self.free_path, self._robot.settings
        speed = safe_speed(path.distance, settings)
        if not path.threat:
            # At least so much is free: no reason to be slower than where nothing is known.
            speed = max(speed, settings.unseen_speed)
        least = MIN_SPEED * (1 + HYSTERESIS) if self._blocked else MIN_SPEED
        self._blocked = speed < least
        where = f'{max(0.0, path.distance):.2f} m'
        text = self._object_text(report) if path.threat else ''
        if self._blocked:
            self._unconfirmed = True
            return Limit(self.name, 'blocked', 0.0, f'something {where} ahead{text}')
        return Limit(self.name, 'contact', speed, f'path is free for {where}{text}')

    def _doubt_limit(self) -> Limit:
        """Creep towards what was forgotten until the path is seen free, but not up to it."""
        distance, settings = self.free_path.doubted(), self._robot.settings
        where = f'something was {max(0.0, distance):.2f} m ahead and is not seen free yet'
        if distance <= DOUBT_ROOM * settings.stop_distance:
            return Limit(self.name, 'blocked', 0.0, where)
        speed = max(DOUBT_SPEED * MEASURING_SPEED, safe_speed(distance, settings))
        return Limit(self.name, 'release', speed, where)

    def _unmeasured(self) -> Limit:
        """Limit the speed until the path is measured while driving."""
        if self._unconfirmed:
            return Limit(self.name, 'release', RELEASE_SPEED, 'path is not measured again yet')
        if math.isnan(self.free_path.distance):
            return Limit(self.name, 'unseen', self._robot.settings.unseen_speed,
                         'path is not measured yet')
        return self._free

    def _caution(self, report: SourceReport, now_s: float, asked: float) -> Limit:
        """Slow down at CAUTION and above, and for `RELEASE_HOLD_S` after it."""
        doubted = report.level == Level.CAUTION and report.collision_probability < DOUBTED_BELOW
        if report.level >= Level.CAUTION and not doubted:
            self._slowed_until = now_s + RELEASE_HOLD_S
        if asked <= 0 or not (doubted or now_s < self._slowed_until):
            return self._free
        left = CAUTION_FACTOR if now_s < self._slowed_until else DOUBTED_FACTOR
        why = (f'level {report.level.name.lower()}' if report.level >= Level.CAUTION else
               'danger has just passed')
        return Limit(self.name, 'caution', left * asked, why + self._object_text(report))

    def _object_text(self, report: SourceReport) -> str:
        """Return side and motion of the object ahead as text that follows a reason."""
        side = report.side or (self._side if self.free_path.threat else '')
        words = (side, self.obstacle)
        return ''.join(f', {word}' for word in words if word not in ('', 'none', 'unknown'))

    def _time(self, report: SourceReport) -> float:
        """Return the time to contact [s], NaN unknown; a danger without one is somewhere, too."""
        if report.level is Level.DANGER and report.time_to_contact >= HORIZON_S:
            return self._robot.settings.min_time_to_contact
        return report.time_to_contact
