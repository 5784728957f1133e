# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Choose the safest twist near a commanded one, from looming alone and without a goal.

For a camera that goes along its optical axis at speed v past what stands still, a surface with
looming rate L lies at the depth Z = v / L along that axis (Lee 1976: 1 / L is the time to
contact). Cells of the measured looming field so become points around the robot; those of the
ground and those above the robot are left out. They are placed where the robot was when the
picture was taken, and carried on by the way since. Those that were measured at an even speed stay
for some seconds, so that a robot that stands, or has turned away, still knows what it saw. (While
it brakes, the speed that belongs to a rate is not known well: the ground would rise before it.)
Where the heads see that a surface moves by itself, its point goes on at the speed that its flow
tells. What the heads say of the free way ahead is a barrier across it, while the robot drives: of
a standing one they are less sure, and below WARNING neither that nor the probability of contact
is believed.

Candidate twists around the commanded one are rolled forward as arcs (as in the dynamic window
approach: Fox, Burgard, Thrun, "The dynamic window approach to collision avoidance", 1997), and
the time until the robot's outline reaches points is turned into a risk, together with the
probability of contact that the collision head gives for motion as it is now.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping

import numpy as np

from vjepa_ros.perception.looming_cells import CELLS_OF_A_VIEW, LoomingCells
from vjepa_ros.perception.types import Assessment, Level
from vjepa_ros.planning.camera_memory import BLIND, SURE, Eye
from vjepa_ros.planning.twist_config import CANDIDATE, Mount, Twist, TwistConfig, TwistPlan
from vjepa_ros.planning.twist_points import NO_POINTS, carried, placed, time_to_contact

_UNBELIEVED_S = 3.0     # least time to contact of what is not believed to be a danger
_FAR_M = 1.5             # from here on what is not on course passes beside
_EXACT = 0.2            # relative error of a rate at which a point counts half
_MOVES = 0.6            # probability from which a cell goes on by itself
_FASTEST = 2.5          # speed of what moves by itself [m/s]
_KEEP_EVERY_S, _KEEP_POINTS = 0.25, 50   # of pictures whose points are kept: the nearest ones
_EVEN = 0.7             # part of its speed that a robot keeps while points are kept
_TINY_S = _TINY_M_S = 1e-6   # of rounding
_MOST_POINTS = 1000     # that are kept, the nearest ones
_BEHIND_S = 5.0         # motion is known for so long; older pictures are not taken


class TwistPlanner:
    """Choose twists for one robot.

    Parameters
    ----------
    config
        The robot, and how it chooses. May be replaced at any time.
    cameras
        Where they are, by name.
    """

    def __init__(self, config: TwistConfig | None = None,
                 cameras: Mapping[str, Mount] | None = None) -> None:
        self.config = config or TwistConfig()
        self._mounts = {'camera': Mount()} if cameras is None else dict(cameras)
        self.reset()

    def reset(self) -> None:
        """Forget everything that was seen, and how the robot moved."""
        self._eyes = {name: Eye(mount) for name, mount in self._mounts.items()}
        self._points = NO_POINTS        # kept ones
        self._steps: deque[tuple[float, Twist]] = deque()    # how it moved, the newest last
        self._known_s = 0.0              # duration of all steps
        self._last_turn = 0.0

    def move(self, twist: Twist, dt: float) -> None:
        """Tell how the robot has moved.

        Parameters
        ----------
        twist
            From odometry, or as sent to the base.
        dt
            For how long [s], at least 0.

        Raises
        ------
        ValueError
            When one of them is no finite number, or time goes backward.
        """
        if not all(map(math.isfinite, (*twist, dt))) or dt < 0:
            raise ValueError(f'motion is {tuple(twist)} for {dt} s, must be finite numbers')
        self._steps.append((dt, twist))
        self._known_s += dt
        while self._known_s - self._steps[0][0] > _BEHIND_S:
            self._known_s -= self._steps.popleft()[0]
        self._points = carried(self._points, twist, dt, self.config)
        for eye in self._eyes.values():
            eye.points = carried(eye.points, twist, dt, self.config)
            eye.barrier = carried(eye.barrier, twist, dt, self.config)
            eye.move(twist, dt)

    def _at(self, age_s: float) -> tuple[Twist, bool, list[tuple[float, Twist]]]:
        """Mean motion over `window_s` before a past time, whether even, and the steps since."""
        since, window, left, wanted = [], np.zeros(3), age_s, self.config.window_s
        speeds = []
        for dt, twist in reversed(self._steps):
            after = min(dt, left)
            if after > 0:
                since.append((after, twist))
                left -= after
            before = min(dt - after, wanted)
            if before > _TINY_S:
                speeds.append(twist.speed)
            window += before * np.array(twist)
            wanted -= before
            if wanted <= 0 and left <= 0:
                break
        # What is not known is rest.
        even = wanted < _TINY_S and min(speeds) >= _EVEN * max(speeds)
        return Twist(*(window / self.config.window_s).tolist()), even, since[::-1]

    def see(self, camera: str, cells: LoomingCells, seen: Assessment, age_s: float = 0.0) -> None:
        """Take what a camera saw.

        Parameters
        ----------
        camera
            Its name.
        cells
            The measured field.
        seen
            What the perception makes of the same picture.
        age_s
            Of the picture now: `move` has told all motion until now [s].

        Raises
        ------
        ValueError
            When the age is no number, or negative.
        KeyError
            When there is no camera of this name.
        """
        if not 0 <= age_s < math.inf:
            raise ValueError(f'age_s is {age_s}, must be a finite number, at least 0')
        eye, can = self._eyes[camera], self.config
        probability = seen.collision_probability
        believed = seen.level >= Level.WARNING
        eye.hazard = probability if believed and math.isfinite(probability) else 0.0
        then, even, since = self._at(age_s)
        ahead, aside = eye.mount.speed(then)
        moves = ahead >= can.least_speed - _TINY_M_S     # which the guard may hold it at
        eye.points = eye.barrier = NO_POINTS
        eye.blind = seen.flags & BLIND
        if not moves:
            return
        eye.measure(cells, age_s, since)
        eye.points = self._found(cells, seen.level, eye.mount, ahead, aside)
        if believed and math.isfinite(seen.clearance) and seen.clearance < can.reach:
            eye.barrier = self._barrier(eye.mount, seen.clearance)
        for dt, twist in since:
            eye.points = carried(eye.points, twist, dt, self.config)
            eye.barrier = carried(eye.barrier, twist, dt, self.config)
        if even:
            self._keep(eye)

    def _keep(self, eye: Eye) -> None:
        """What moves is seen anew each time; of the rest some pictures are kept."""
        still = np.hypot(eye.points[:, 2], eye.points[:, 3]) == 0
        if not still.any() or eye.kept_s < _KEEP_EVERY_S:
            return
        number = np.flatnonzero(still)
        away = np.hypot(eye.points[number, 0], eye.points[number, 1])
        kept = number[np.argsort(away)[:_KEEP_POINTS]]
        points = np.concatenate((self._points, eye.points[kept]))
        if len(points) > _MOST_POINTS:
            points = points[np.argsort(np.hypot(points[:, 0], points[:, 1]))[:_MOST_POINTS]]
        self._points = points
        eye.points = np.delete(eye.points, kept, 0)
        eye.kept_s = 0.0

    def _barrier(self, mount: Mount, free: float) -> np.ndarray:
        across = np.linspace(-1, 1, 5) * self.config.half_width
        far = np.full(5, free)
        return placed(mount, far, across, np.zeros((5, 2)),
                       np.full(5, self.config.evidence / 2))

    def _found(self, cells: LoomingCells, level: Level, mount: Mount, speed: float,
               aside: float) -> np.ndarray:
        """(P, 6) points of the newest field, around the robot when the picture was taken."""
        can, rate = self.config, cells.rate.astype(float)
        sigma = cells.sigma.astype(float)
        known = np.isfinite(rate) & (cells.confidence >= SURE) & np.isfinite(sigma)
        near = known & (np.where(known, rate, 0.0) > np.maximum(
            speed / can.reach, 2 * np.where(known, sigma, 0.0)))
        rate, sigma = np.where(near, rate, 1.0), np.where(near, sigma, 0.0)
        time = 1 / rate
        # What assessment and heads do not believe to be a contact is not near, see the levels.
        if level < Level.WARNING:
            time = np.maximum(time, np.minimum(_UNBELIEVED_S, 2 * time))
        depth = speed * time
        height = mount.height - depth * cells.down
        # The ground is where its height says so, within what the rate is wrong by.
        doubt = 0.08 + 0.25 * np.abs(height - mount.height)
        solid = near & (height > can.clearance + doubt) & (height < max(
            can.height, mount.height + 0.1) + 0.05)
        right = depth * cells.across
        # Of far points it is known better that they pass beside than where they are.
        passes = can.half_width + can.margin + 0.02
        beside = (cells.course < 0.25) & (depth > _FAR_M)      # not where that is NaN
        right = np.where(beside, np.where(right < 0, -1.0, 1.0) * np.maximum(
            np.abs(right), passes), right)
        goes = solid & (cells.moving > _MOVES) & np.isfinite(cells.drift_across)
        # Sideways speed is what of the flow comes neither from expansion nor from the camera.
        slip = depth * (np.nan_to_num(cells.drift_across) - rate * cells.across) + aside
        own = np.zeros((len(cells), 2))
        own[:, 1] = np.where(goes, np.clip(slip, -_FASTEST, _FASTEST), 0.0)
        # A point counts as the part of the view that it stands for.
        part = CELLS_OF_A_VIEW / max(1, len(cells))
        weight = part * cells.confidence / (1 + (sigma / (_EXACT * rate)) ** 2)
        return placed(mount, depth[solid], right[solid], own[solid], weight[solid])

    def covering(self, command: Twist) -> tuple[str, ...]:
        """Names of the cameras that look where a command leads; none for a turn on the spot."""
        heading = math.atan2(command.vy, command.vx)
        return tuple(name for name, eye in self._eyes.items()
                     if command.speed > 0 and eye.covers(heading))

    def choose(self, command: Twist) -> TwistPlan:
        """The safest twist nearest the commanded one.

        Parameters
        ----------
        command
            Turns on the spot, and motion that no camera looks at, are passed on: nobody sees
            where they lead.

        Returns
        -------
        TwistPlan

        Raises
        ------
        ValueError
            When the command is not finite.
        """
        if not all(map(math.isfinite, command)):
            raise ValueError(f'the commanded twist is {tuple(command)}; it must be finite')
        can, heading = self.config, math.atan2(command.vy, command.vx)
        eyes = [self._eyes[name] for name in self.covering(command)]
        if not eyes:
            return TwistPlan(command, math.nan, np.empty(0, CANDIDATE), 0, False,
                             'no camera looks there')
        pairs = dict.fromkeys((part, float(np.clip(
            command.omega + more, -can.max_turn, can.max_turn)) if more else command.omega)
            for part in (1.0, *can.speeds) for more in ((0.0, *can.turns) if part else (0.0,)))
        parts, turns = np.array(list(pairs)).T
        twists = np.column_stack((parts * command.vx, parts * command.vy, turns))
        points = np.concatenate((self._points, *(eye.points for eye in self._eyes.values()),
                                 *(eye.barrier for eye in self._eyes.values())))
        contact, count = time_to_contact(twists, points, can), len(points)
        risk = 1 / (1 + np.exp(np.clip((contact - can.reaction_s) / 0.3, -50, 50)))
        # The heads speak of motion ahead: of twists like that, where the camera looks.
        alike = parts * np.exp(-((turns - command.omega) / 0.4) ** 2)
        for eye in eyes:
            risk = 1 - (1 - risk) * (1 - eye.hazard * alike * math.cos(heading - eye.mount.yaw))
        # To go round is nearer than to slow down, and the other side is farther than this one.
        cost = ((2 * (1 - parts)) ** 2 + (0.6 * (turns - command.omega)) ** 2
                + 0.05 * np.abs(turns - self._last_turn))
        fine = risk <= can.accepted
        # Where none is, and all are alike (something is closer than the outline), the slowest.
        order = np.lexsort((cost, np.where(fine, 0, parts), np.where(
            fine, 0, np.round(risk, 2)), ~fine))
        table = np.zeros(len(twists), CANDIDATE)
        table['vx'], table['vy'], table['omega'] = twists.T
        table['cost'], table['risk'], table['time_to_contact'] = cost, risk, contact
        table['rank'][order], table['accepted'] = np.arange(len(order)), fine
        best = int(order[0])
        self._last_turn = float(turns[best])
        return TwistPlan(Twist(*twists[best].tolist()), float(risk[best]), table, count, True,
                         self._unmeasured(heading, eyes))

    def _unmeasured(self, heading: float, covering: list[Eye]) -> str:
        """Why nothing is known of the way that a command leads, '' when it was measured."""
        blind = sorted({name for eye in covering for name in eye.blind.names})
        memory_s = self.config.memory_s
        if blind:
            return f'the newest picture is flagged {" ".join(blind)}'
        if any(eye.measured(heading, memory_s) for eye in self._eyes.values()):
            return ''
        if any(eye.measured_s <= memory_s for eye in covering):
            return 'what was measured lies in another direction'
        return f'nothing for {memory_s:g} s: looming tells distances only to a robot that drives'
