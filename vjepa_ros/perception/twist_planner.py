# SPDX-License-Identifier: Apache-2.0
"""Choose the safest twist near a commanded one, from looming alone and without a goal.

For a robot that goes ahead at speed v past what stands still, a surface with looming rate L lies
at the depth Z = v / L along the camera's axis (Lee 1976: 1 / L is the time to contact). Cells of
the measured looming field so become points around the robot; those of the ground and those above
the robot are left out. Points stay for some seconds and move with the robot's own motion, so that
a robot that stands, or has turned away, still knows what it saw. Where the heads see that a
surface moves by itself, its point goes on at the speed that its flow tells. What the heads say of
the free way ahead is a barrier across it, while the robot drives: of a standing one they are less
sure.

Candidate twists around the commanded one are rolled forward as arcs (as in the dynamic window
approach: Fox, Burgard, Thrun, "The dynamic window approach to collision avoidance", 1997), and
the time until the robot's outline reaches points is turned into a risk, together with the
probability of contact that the collision head gives for motion as it is now.
"""

from __future__ import annotations

import math

import numpy as np

from vjepa_ros.perception.assessment import Level, Result
from vjepa_ros.perception.collision import Optics
from vjepa_ros.perception.twist_config import TwistConfig, TwistPlan

_STEP_S = 0.2           # of a rolled path: less than the robot's length at 2 m/s
_UNBELIEVED_S = 3.0     # least time to contact of what is not believed to be a danger
_FAR_M = 1.5             # from here on what is not on course passes beside
_EXACT = 0.2            # relative error of a rate at which a point counts half
_AGES_STANDING = 0.3    # how fast points grow old while the robot stands
_KEEP_EVERY_S, _KEEP_POINTS = 0.25, 50   # of pictures whose points are kept: the nearest ones


class TwistPlanner:
    """Choose twists for one robot with one camera that looks ahead.

    Parameters
    ----------
    config
        The robot, and how it chooses.
    """

    def __init__(self, config: TwistConfig | None = None) -> None:
        self.config = config or TwistConfig()
        self.reset()

    def reset(self) -> None:
        """Forget all points."""
        # x right, z ahead of the point it turns about; own speed of the point; weight; age.
        self._points = np.empty((0, 6))      # kept ones
        self._now = np.empty((0, 6))         # those of the newest picture
        self._since_s = math.inf             # since some were kept
        self._barrier = np.empty((0, 6))
        self._hazard = 0.0
        self._last_turn = 0.0

    def move(self, speed: float, turn: float, dt: float) -> None:
        """Tell how the robot has moved.

        Parameters
        ----------
        speed, turn
            From odometry, or as commanded where there is none [m/s], [rad/s].
        dt
            For how long [s].

        Raises
        ------
        ValueError
            When one of them is no finite number.
        """
        _check(speed=speed, turn=turn, dt=dt)
        self._since_s += dt
        for name in ('_points', '_now', '_barrier'):
            points = getattr(self, name).copy()
            if not len(points):
                continue
            points[:, :2] += points[:, 2:4] * dt
            points[:, 5] += dt * (1.0 if abs(speed) > 0.05 else _AGES_STANDING)
            points[:, 1] -= speed * dt
            angle = turn * dt              # to the left: what is ahead goes to the right
            c, s = math.cos(angle), math.sin(angle)
            for x, z in ((0, 1), (2, 3)):
                points[:, x], points[:, z] = (c * points[:, x] + s * points[:, z],
                                              c * points[:, z] - s * points[:, x])
            near = np.hypot(points[:, 0], points[:, 1]) < 2 * self.config.reach
            setattr(self, name, points[near & (points[:, 5] <= self.config.memory_s)])

    def see(self, result: Result, optics: Optics, speed: float) -> None:
        """Take what the camera saw.

        Parameters
        ----------
        result
            Newest result of the perception.
        optics
            Of the source image.
        speed
            Of the robot at the time of the picture [m/s].

        Raises
        ------
        ValueError
            When the speed is no finite number.
        """
        _check(speed=speed)
        learned = result.learned
        self._hazard = 0.0 if learned is None else learned.hazard(self.config.reaction_s)
        self._barrier = np.empty((0, 6))
        if learned is not None and learned.sees and speed >= self.config.least_speed:
            free = learned.clearance.median
            if math.isfinite(free) and free < self.config.reach:
                across = np.linspace(-1, 1, 5) * self.config.half_width
                self._barrier = np.array([(x, free + self.config.camera_ahead, 0, 0,
                                           self.config.evidence / 2, 0) for x in across])
        self._now = self._found(result, optics, speed)
        # What moves is seen anew each time; of the rest some pictures are kept.
        still = np.hypot(self._now[:, 2], self._now[:, 3]) == 0
        if still.any() and self._since_s >= _KEEP_EVERY_S:
            number = np.flatnonzero(still)
            away = np.hypot(self._now[number, 0], self._now[number, 1])
            kept = number[np.argsort(away)[:_KEEP_POINTS]]
            self._points = np.concatenate((self._points, self._now[kept]))
            self._now = np.delete(self._now, kept, 0)
            self._since_s = 0.0

    def _found(self, result: Result, optics: Optics, speed: float) -> np.ndarray:
        """(P, 6) points of the newest field."""
        can, field = self.config, result.looming
        if field is None or speed < can.least_speed:
            return np.empty((0, 6))
        scale = result.view.source_size[0] / field.gray_size[0]
        across = (field.centers[..., 0] * scale - optics.cx) / optics.fx
        down = (field.centers[..., 1] * scale - optics.cy) / optics.fy
        rate = field.rate
        known = np.isfinite(rate) & (field.confidence >= 0.3)
        near = known & np.isfinite(field.sigma) & (np.where(known, rate, 0.0) > np.maximum(
            speed / can.reach, 2 * field.sigma))
        time = 1 / np.where(near, rate, 1.0)
        # What assessment and heads do not believe to be a contact is not near, see the levels.
        course = getattr(field, 'course', None)
        if result.assessment.level < Level.WARNING:
            time = np.maximum(time, np.minimum(_UNBELIEVED_S, 2 * time))
        depth = speed * time
        height = can.camera_height - depth * down
        # The ground is where its height says so, within what the rate is wrong by.
        doubt = 0.08 + 0.25 * np.abs(height - can.camera_height)
        solid = near & (height > can.clearance + doubt) & (height < max(
            can.height, can.camera_height + 0.1) + 0.05)
        x = depth * across
        if course is not None:
            # Of far points it is known better that they pass beside than where they are.
            passes = can.half_width + can.margin + 0.02
            side = np.where(x < 0, -1.0, 1.0)
            aside = (course < 0.25) & (depth > _FAR_M)
            x = np.where(aside, side * np.maximum(np.abs(x), passes), x)
        own = np.zeros((*x.shape, 2))
        moving = self._moving(result, field)
        goes = solid & (moving > 0.6) & np.isfinite(field.flow).all(-1)
        # Sideways speed is what of the flow is not expansion about the way ahead.
        focal = optics.fx / scale
        slip = depth * (np.nan_to_num(field.flow[..., 0]) / focal - np.where(
            near, rate, 0.0) * across)
        own[..., 0] = np.where(goes, np.clip(slip, -2.5, 2.5), 0.0)
        weight = field.confidence / (1 + (field.sigma / (_EXACT * np.maximum(
            np.where(near, rate, 1.0), 1e-3))) ** 2)
        rows = np.stack((x, depth + can.camera_ahead, own[..., 0], own[..., 1], weight,
                         np.zeros_like(x)), -1)
        return rows[solid].astype(float)

    @staticmethod
    def _moving(result: Result, field: object) -> np.ndarray:
        """Probability that a cell moves by itself, 0 where nobody knows."""
        moving = result.moving_map
        if moving is None:
            return np.zeros(field.rate.shape)
        rows, columns = moving.shape
        width, height = field.gray_size
        at_x = np.clip(((field.centers[..., 0] + 0.5) / width * columns).astype(int), 0,
                       columns - 1)
        at_y = np.clip(((field.centers[..., 1] + 0.5) / height * rows).astype(int), 0, rows - 1)
        return np.nan_to_num(moving[at_y, at_x])

    def choose(self, speed: float, turn: float) -> TwistPlan:
        """The safest twist nearest the commanded one.

        Parameters
        ----------
        speed, turn
            Commanded [m/s], [rad/s], the turn positive to the left. Commands to go backward or
            to turn on the spot are passed on: the camera does not see where they lead.

        Returns
        -------
        TwistPlan
        """
        can = self.config
        if not (math.isfinite(speed) and math.isfinite(turn)):
            raise ValueError(f'the commanded twist is {(speed, turn)}; it must be finite')
        if speed <= 0:
            return TwistPlan(speed, turn, 0.0, np.array([(speed, turn, 0.0, math.inf)]), 0)
        pairs = [(part * speed, float(np.clip(turn + more, -can.max_turn, can.max_turn)))
                 for part in can.speeds for more in (can.turns if part > 0 else (0.0,))]
        twists = np.array(list(dict.fromkeys(pairs)))
        contact, count = self._contact(twists)
        risk = 1 / (1 + np.exp(np.clip((contact - can.reaction_s) / 0.3, -50, 50)))
        # The head speaks of the motion as it is: of twists like that.
        alike = twists[:, 0] / speed * np.exp(-((twists[:, 1] - turn) / 0.4) ** 2)
        risk = 1 - (1 - risk) * (1 - self._hazard * alike)
        if not np.isfinite(risk).all():
            raise ValueError(f'the risk of a twist is {risk}: the hazard of the heads is '
                             f'{self._hazard}, must be a number')
        # To go round is nearer than to slow down, and the other side is farther than this one.
        away = ((2 * (1 - twists[:, 0] / speed)) ** 2 + (0.6 * (twists[:, 1] - turn)) ** 2
                + 0.05 * np.abs(twists[:, 1] - self._last_turn))
        fine = risk <= can.accepted
        # Where none is, and all are alike (something is closer than the outline), the slowest.
        best = int(np.argmin(np.where(fine, away, np.inf))) if fine.any() else int(
            np.lexsort((away, twists[:, 0], np.round(risk, 2)))[0])
        self._last_turn = float(twists[best, 1])
        table = np.column_stack((twists, risk, contact))
        return TwistPlan(float(twists[best, 0]), float(twists[best, 1]), float(risk[best]), table,
                         count)

    def _contact(self, twists: np.ndarray) -> tuple[np.ndarray, int]:
        """Time until enough points are inside the outline, (C,), inf for never; points used."""
        can = self.config
        points = np.concatenate((self._points, self._now, self._barrier))
        if not len(points):
            return np.full(len(twists), np.inf), 0
        times = np.arange(1, round(can.horizon_s / _STEP_S) + 1) * _STEP_S
        speed, turn = twists[:, :1], twists[:, 1:]
        angle = turn * times                                           # C J, to the left
        middle = angle / 2
        chord = speed * times * np.sinc(middle / math.pi)
        at_x, at_z = -chord * np.sin(middle), chord * np.cos(middle)
        px = points[:, 0] + times[:, None] * points[:, 2]              # J P
        pz = points[:, 1] + times[:, None] * points[:, 3]
        dx, dz = px - at_x[..., None], pz - at_z[..., None]            # C J P
        c, s = np.cos(angle)[..., None], np.sin(angle)[..., None]
        right, ahead = c * dx + s * dz, c * dz - s * dx
        # What is inside at the start is beside a robot that fits: it is there already.
        half = 0.5 * can.length + can.margin
        inside = (np.abs(right) < can.half_width + can.margin) & (np.abs(ahead) < half)
        fades = 1 - 0.7 * points[:, 5] / can.memory_s
        weight = (inside * (points[:, 4] * fades)).sum(-1)             # C J
        hit = weight >= can.evidence
        first = np.where(hit.any(-1), times[np.argmax(hit, -1)], np.inf)
        return first, len(points)


def _check(**values: float) -> None:
    """Refuse what would silently make every point forgotten."""
    for name, value in values.items():
        if not math.isfinite(value):
            raise ValueError(f'{name} is {value}, must be a finite number')
