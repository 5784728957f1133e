# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Choose the safest twist near a commanded one, by looming alone and without a goal.

For a camera that moves along its optical axis at speed v, a surface at rest with looming rate L is
at depth Z = v / L along that axis (Lee 1976: 1 / L is the time to contact). So cells of the
measured looming field become points around the robot; cells of the ground and above the robot are
left out. Points are placed relative to the pose of the robot when the picture was taken and
updated by its motion since. Those measured at a steady speed are kept for some seconds, so that a
robot that stands or has turned away remembers them. (While it brakes, the speed during the
measurement is not known well, and the ground would rise in front of the robot.) Where the heads
see a surface move by itself, its point continues at the speed of its flow. The free distance by
the heads is a barrier across the path while the robot drives: while it stands they are less
reliable. Below WARNING neither that nor the probability of contact is used.

Candidate twists around the commanded one are rolled forward as arcs (as in the dynamic window
approach: Fox, Burgard, Thrun, "The dynamic window approach to collision avoidance", 1997). The
time until the outline of the robot reaches points becomes a risk, together with the probability of
contact as things move now; while the robot stands also with that of going ahead.

Points are (P, 6): ahead and left of the robot [m], their own speed ahead and left [m/s], weight,
age [s].
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping

import numpy as np

from vjepa_ros.perception.looming_cells import CELLS_OF_A_VIEW, LoomingCells
from vjepa_ros.perception.types import Assessment, Level, Quality
from vjepa_ros.planning.twist_config import CANDIDATE, Mount, Twist, TwistConfig, TwistPlan

# Flags of a picture without looming, or with looming of too little of the view.
UNMEASURED_FLAGS = Quality.LOW_TEXTURE | Quality.GEOMETRY_FAILED
NO_POINTS = np.empty((0, 6))
VIEW_COS = math.cos(math.radians(60))    # a camera covers motion within 60 degrees of its axis
MIN_CONFIDENCE = 0.3     # of a cell that becomes a point
MIN_KNOWN = 0.25         # fraction of valid cells in a picture that measures the path
DOUBTED_S = 3.0          # least time to contact below level WARNING [s]
FAR_M = 1.5              # beyond, an object that is not on course passes beside the robot [m]
HALF_WEIGHT_ERROR = 0.2  # relative error of a rate at which a point has half its weight
MOVING = 0.6             # probability from which a cell moves by itself
MAX_OWN_SPEED = 2.5      # of a point [m/s]
KEEP_EVERY_S, KEEP_POINTS = 0.25, 50     # the nearest 50 points of a picture are kept so often
STEADY = 0.7             # least fraction of its speed that a robot drives while points are kept
TOLERANCE = 1e-6         # of times [s] and speeds [m/s]
MAX_POINTS = 1000        # in memory, the nearest
MOTION_S = 5.0           # length of the remembered motion [s]
ROLL_STEP_S = 0.2        # of a rolled arc, at most [s]
MAX_ROLL_STEPS = 100     # a fast robot counts as longer instead
STANDSTILL = 0.05        # a slower robot stands [m/s]
STANDING_AGE_RATE = 0.3  # how fast points age while the robot stands


class CameraMemory:
    """Measurements of one camera, and the directions they cover.

    Parameters
    ----------
    mount
        Pose of the camera on the robot.

    Attributes
    ----------
    points, barrier
        Points (P, 6) of the newest picture, around the robot now.
    hazard
        Probability of contact as things move now, or if a robot that stands went ahead; 0 below
        level WARNING.
    unmeasured_flags
        Those of `UNMEASURED_FLAGS` that the newest picture has.
    kept_s
        Time since points were last kept [s].
    measured_s
        Age of the newest picture that gave distances [s].
    """

    def __init__(self, mount: Mount) -> None:
        self.mount = mount
        self.points = self.barrier = NO_POINTS
        self.hazard = 0.0
        self.unmeasured_flags = Quality(0)
        self.kept_s = math.inf
        self.measured_s = math.inf
        self._view = (0.0, 0.0)          # measured: right and left limit from the axis [rad]
        self._turned = 0.0               # heading change of the robot since then [rad]

    def move(self, twist: Twist, dt: float) -> None:
        """Take the motion of the robot; the planner moves the points."""
        self.kept_s += dt
        self.measured_s += dt
        self._turned += twist.omega * dt

    def covers(self, heading: float) -> bool:
        """Return whether the camera looks towards a heading [rad]."""
        return math.cos(heading - self.mount.yaw) >= VIEW_COS

    def measure(self, cells: LoomingCells, age_s: float,
                since: Iterable[tuple[float, Twist]]) -> None:
        """Note the directions that a picture measured; one with few valid cells measured none.

        Parameters
        ----------
        cells
            The looming field of a robot that drove.
        age_s
            Age of the picture [s].
        since
            Motion of the robot since: durations [s] and twists.
        """
        known = np.isfinite(cells.rate) & (cells.confidence >= MIN_CONFIDENCE)
        if self.unmeasured_flags or not known.any() or known.mean() < MIN_KNOWN:
            return
        left = -np.arctan(cells.across[known])
        self._view = float(left.min()), float(left.max())
        self.measured_s = age_s
        self._turned = sum(dt * twist.omega for dt, twist in since)

    def measured(self, heading: float, memory_s: float) -> bool:
        """Return whether a heading [rad] was measured, even before the robot turned."""
        right, left = self._view
        there = math.remainder(heading + self._turned - self.mount.yaw, 2 * math.pi)
        return self.measured_s <= memory_s and right <= there <= left


class TwistPlanner:
    """Chooses twists for one robot.

    Parameters
    ----------
    config
        The robot, and how it chooses; may be replaced at any time.
    cameras
        Poses of the cameras by name.
    """

    def __init__(self, config: TwistConfig | None = None,
                 cameras: Mapping[str, Mount] | None = None) -> None:
        self.config = config or TwistConfig()
        self._mounts = {'camera': Mount()} if cameras is None else dict(cameras)
        self.reset()

    def reset(self) -> None:
        """Drop everything measured, and the motion of the robot."""
        self._cameras = {name: CameraMemory(mount) for name, mount in self._mounts.items()}
        self._points = NO_POINTS        # kept from earlier pictures
        self._steps: deque[tuple[float, Twist]] = deque()    # motion: durations and twists
        self._known_s = 0.0              # duration of all steps
        self._last_turn = 0.0

    def move(self, twist: Twist, dt: float) -> None:
        """Take the motion of the robot.

        Parameters
        ----------
        twist
            By odometry, or as sent to the base.
        dt
            Its duration [s], at least 0.

        Raises
        ------
        ValueError
            When a number is not finite, or the duration is negative.
        """
        if not all(map(math.isfinite, (*twist, dt))) or dt < 0:
            raise ValueError(f'motion is {tuple(twist)} for {dt} s, must be finite numbers')
        self._steps.append((dt, twist))
        self._known_s += dt
        while self._known_s - self._steps[0][0] > MOTION_S:
            self._known_s -= self._steps.popleft()[0]
        self._points = moved(self._points, twist, dt, self.config)
        for camera in self._cameras.values():
            camera.points = moved(camera.points, twist, dt, self.config)
            camera.barrier = moved(camera.barrier, twist, dt, self.config)
            camera.move(twist, dt)

    def _motion_at(self, age_s: float) -> tuple[Twist, bool, list[tuple[float, Twist]]]:
        """Return the mean motion in `window_s` before a past time, and the motion since.

        Returns
        -------
        Twist
            Mean motion.
        bool
            Whether it was steady.
        list of (float, Twist)
            Durations [s] and twists since.
        """
        since, window, left, wanted = [], np.zeros(3), age_s, self.config.window_s
        speeds = []
        for dt, twist in reversed(self._steps):
            after = min(dt, left)
            if after > 0:
                since.append((after, twist))
                left -= after
            before = min(dt - after, wanted)
            if before > TOLERANCE:
                speeds.append(twist.speed)
            window += before * np.array(twist)
            wanted -= before
            if wanted <= 0 and left <= 0:
                break
        # Unknown motion counts as rest.
        steady = wanted < TOLERANCE and min(speeds) >= STEADY * max(speeds)
        return Twist(*(window / self.config.window_s).tolist()), steady, since[::-1]

    def see(self, camera: str, cells: LoomingCells, seen: Assessment, age_s: float = 0.0) -> None:
        """Take a picture of a camera.

        Parameters
        ----------
        camera
            Name of the camera.
        cells
            The measured looming field.
        seen
            The assessment of the same picture.
        age_s
            Age of the picture now [s]; `move` has taken all motion until now.

        Raises
        ------
        ValueError
            When the age is not finite or negative.
        KeyError
            When there is no camera of this name.
        """
        if not 0 <= age_s < math.inf:
            raise ValueError(f'age_s is {age_s}, must be a finite number, at least 0')
        memory, config = self._cameras[camera], self.config
        believed = seen.level >= Level.WARNING
        motion, steady, since = self._motion_at(age_s)
        ahead, aside = memory.mount.speed(motion)
        hazard = seen.collision_probability
        if ahead < STANDSTILL:      # what comes is known, but not what going ahead would meet
            hazard = np.fmax(hazard, seen.collision_if_ahead)
        memory.hazard = float(hazard) if believed and math.isfinite(hazard) else 0.0
        memory.points = memory.barrier = NO_POINTS
        memory.unmeasured_flags = seen.flags & UNMEASURED_FLAGS
        if ahead < config.least_speed - TOLERANCE:     # the guard may hold it at just this speed
            return
        memory.measure(cells, age_s, since)
        memory.points = self._points_of(cells, seen.level, memory.mount, ahead, aside)
        if believed and math.isfinite(seen.clearance) and seen.clearance < config.reach:
            across = np.linspace(-1, 1, 5) * config.half_width
            memory.barrier = placed(memory.mount, np.full(5, seen.clearance), across,
                                    np.zeros((5, 2)), np.full(5, config.evidence / 2))
        for dt, twist in since:
            memory.points = moved(memory.points, twist, dt, config)
            memory.barrier = moved(memory.barrier, twist, dt, config)
        if steady:
            self._keep(memory)

    def _keep(self, camera: CameraMemory) -> None:
        """Keep the nearest points at rest, now and then; moving ones are measured each time."""
        still = np.hypot(camera.points[:, 2], camera.points[:, 3]) == 0
        if not still.any() or camera.kept_s < KEEP_EVERY_S:
            return
        number = np.flatnonzero(still)
        away = np.hypot(camera.points[number, 0], camera.points[number, 1])
        kept = number[np.argsort(away)[:KEEP_POINTS]]
        points = np.concatenate((self._points, camera.points[kept]))
        if len(points) > MAX_POINTS:
            points = points[np.argsort(np.hypot(points[:, 0], points[:, 1]))[:MAX_POINTS]]
        self._points = points
        camera.points = np.delete(camera.points, kept, 0)
        camera.kept_s = 0.0

    def _points_of(self, cells: LoomingCells, level: Level, mount: Mount, speed: float,
                   aside: float) -> np.ndarray:
        """Return the points (P, 6) of a looming field, around the robot when it was taken.

        Parameters
        ----------
        cells
            The field.
        level
            Of its assessment.
        mount
            Pose of the camera.
        speed, aside
            Speed of the camera along its optical axis and to the right of it [m/s].
        """
        config, rate = self.config, cells.rate.astype(float)
        sigma = cells.sigma.astype(float)
        known = np.isfinite(rate) & (cells.confidence >= MIN_CONFIDENCE) & np.isfinite(sigma)
        near = known & (np.where(known, rate, 0.0) > np.maximum(
            speed / config.reach, 2 * np.where(known, sigma, 0.0)))
        rate, sigma = np.where(near, rate, 1.0), np.where(near, sigma, 0.0)
        time = 1 / rate
        # Below WARNING a contact is doubtful: the surface counts as farther away.
        if level < Level.WARNING:
            time = np.maximum(time, np.minimum(DOUBTED_S, 2 * time))
        depth = speed * time
        height = mount.height - depth * cells.down
        # A point counts as ground by its height, within the error of its rate.
        doubt = 0.08 + 0.25 * np.abs(height - mount.height)
        solid = near & (height > config.clearance + doubt) & (height < max(
            config.height, mount.height + 0.1) + 0.05)
        right = depth * cells.across
        # Of a far point the course is known better than its position.
        passes = config.half_width + config.margin + 0.02
        beside = (cells.course < 0.25) & (depth > FAR_M)      # False where the course is NaN
        right = np.where(beside, np.where(right < 0, -1.0, 1.0) * np.maximum(
            np.abs(right), passes), right)
        moves = solid & (cells.moving > MOVING) & np.isfinite(cells.drift_across)
        # Sideways speed is the flow without the parts of expansion and of the camera.
        sideways = depth * (np.nan_to_num(cells.drift_across) - rate * cells.across) + aside
        own = np.zeros((len(cells), 2))
        own[:, 1] = np.where(moves, np.clip(sideways, -MAX_OWN_SPEED, MAX_OWN_SPEED), 0.0)
        # A point weighs as much as its share of the view.
        part = CELLS_OF_A_VIEW / max(1, len(cells))
        weight = part * cells.confidence / (1 + (sigma / (HALF_WEIGHT_ERROR * rate)) ** 2)
        return placed(mount, depth[solid], right[solid], own[solid], weight[solid])

    def covering(self, command: Twist) -> tuple[str, ...]:
        """Return the names of cameras that look where a command leads; none for a pure turn."""
        heading = math.atan2(command.vy, command.vx)
        return tuple(name for name, camera in self._cameras.items()
                     if command.speed > 0 and camera.covers(heading))

    def choose(self, command: Twist) -> TwistPlan:
        """Choose the safest twist nearest to the commanded one.

        Parameters
        ----------
        command
            Turns on the spot, and motion where no camera looks, pass unchanged: nothing is known
            of where they lead.

        Returns
        -------
        TwistPlan
            The twist, and the candidates it was chosen from.

        Raises
        ------
        ValueError
            When the command is not finite.
        """
        if not all(map(math.isfinite, command)):
            raise ValueError(f'the commanded twist is {tuple(command)}; it must be finite')
        config, heading = self.config, math.atan2(command.vy, command.vx)
        cameras = [self._cameras[name] for name in self.covering(command)]
        if not cameras:
            return TwistPlan(command, math.nan, np.empty(0, CANDIDATE), 0, False,
                             'no camera looks there')
        parts, turns = self._candidates(command)
        twists = np.column_stack((parts * command.vx, parts * command.vy, turns))
        memories = self._cameras.values()
        points = np.concatenate((self._points, *(camera.points for camera in memories),
                                 *(camera.barrier for camera in memories)))
        contact = time_to_contact(twists, points, config)
        risk = 1 / (1 + np.exp(np.clip((contact - config.reaction_s) / 0.3, -50, 50)))
        # The heads report on motion ahead: it counts for similar twists, where the camera looks.
        alike = parts * np.exp(-((turns - command.omega) / 0.4) ** 2)
        for camera in cameras:
            risk = 1 - (1 - risk) * (
                1 - camera.hazard * alike * math.cos(heading - camera.mount.yaw))
        # A turn costs less than a loss of speed, and a change of side a little.
        cost = ((2 * (1 - parts)) ** 2 + (0.6 * (turns - command.omega)) ** 2
                + 0.05 * np.abs(turns - self._last_turn))
        fine = risk <= config.accepted
        # Without an accepted one, and all alike (something inside the outline), the slowest.
        order = np.lexsort((cost, np.where(fine, 0, parts), np.where(
            fine, 0, np.round(risk, 2)), ~fine))
        table = np.zeros(len(twists), CANDIDATE)
        table['vx'], table['vy'], table['omega'] = twists.T
        table['cost'], table['risk'], table['time_to_contact'] = cost, risk, contact
        table['rank'][order], table['accepted'] = np.arange(len(order)), fine
        best = int(order[0])
        self._last_turn = float(turns[best])
        return TwistPlan(Twist(*twists[best].tolist()), float(risk[best]), table, len(points),
                         True, self._unmeasured(heading, cameras))

    def _candidates(self, command: Twist) -> tuple[np.ndarray, np.ndarray]:
        """Return fractions of the commanded speed and turn rates [rad/s], the command first."""
        most, pairs = self.config.max_turn, {}
        for part in (1.0, *self.config.speeds):
            for more in (0.0, *self.config.turns) if part else (0.0,):
                turn = float(np.clip(command.omega + more, -most, most)) if more else command.omega
                pairs[part, turn] = None
        parts, turns = np.array(list(pairs)).T
        return parts, turns

    def _unmeasured(self, heading: float, covering: list[CameraMemory]) -> str:
        """Return why the path of a command is unknown, '' when it was measured."""
        flags = sorted({name for camera in covering for name in camera.unmeasured_flags.names})
        memory_s = self.config.memory_s
        if flags:
            return f'the newest picture is flagged {" ".join(flags)}'
        if any(camera.measured(heading, memory_s) for camera in self._cameras.values()):
            return ''
        if any(camera.measured_s <= memory_s for camera in covering):
            return 'what was measured lies in another direction'
        return f'nothing for {memory_s:g} s: looming gives distances only while the robot drives'


# -- points ---------------------------------------------------------------------------------

def placed(mount: Mount, depth: np.ndarray, right: np.ndarray, own: np.ndarray,
           weight: np.ndarray) -> np.ndarray:
    """Return points (P, 6) in the frame of the robot.

    Parameters
    ----------
    mount
        Pose of the camera.
    depth, right
        (P,) along the optical axis of the camera and to the right of it [m].
    own
        (P, 2) speeds along the same axes [m/s].
    weight
        (P,).
    """
    c, s = math.cos(mount.yaw), math.sin(mount.yaw)
    return np.column_stack((
        mount.x + c * depth + s * right, mount.y + s * depth - c * right,
        c * own[:, 0] + s * own[:, 1], s * own[:, 0] - c * own[:, 1],
        weight, np.zeros(len(depth)))).astype(float)


def moved(points: np.ndarray, twist: Twist, dt: float, config: TwistConfig) -> np.ndarray:
    """Return points in the frame of the robot after a motion, without those too old or far."""
    if not len(points) or not dt:
        return points
    points = points.copy()
    angle = twist.omega * dt
    c, s = math.cos(angle), math.sin(angle)
    travel = _chord(np.array([[twist.vx, twist.vy, twist.omega]]), np.array([dt]))[0, 0]
    points[:, :2] += points[:, 2:4] * dt - (travel.real, travel.imag)
    for x, y in ((0, 1), (2, 3)):     # after a turn to the left, what was ahead is right
        points[:, x], points[:, y] = (c * points[:, x] + s * points[:, y],
                                      c * points[:, y] - s * points[:, x])
    points[:, 5] += dt * (1.0 if twist.speed > STANDSTILL else STANDING_AGE_RATE)
    near = np.hypot(points[:, 0], points[:, 1]) < 2 * config.reach
    return points[near & (points[:, 5] <= config.memory_s)]


def time_to_contact(twists: np.ndarray, points: np.ndarray, config: TwistConfig) -> np.ndarray:
    """Return the times (C,) [s] until points are inside the outline of a robot on arcs (C, 3).

    Contact is when their weights reach `evidence`; inf means none within the horizon.
    """
    if not len(points):
        return np.full(len(twists), np.inf)
    # An object across the path must not fall between two steps.
    fastest = float(np.hypot(twists[:, 0], twists[:, 1]).max())
    half = 0.5 * config.length + config.margin
    step = max(min(ROLL_STEP_S, half / max(fastest, STANDSTILL)),
               config.horizon_s / MAX_ROLL_STEPS)
    half = max(half, 0.5 * fastest * step)
    times = np.arange(1, math.ceil(config.horizon_s / step) + 1) * step
    at = _chord(twists, times)[..., None]                          # C J 1
    there = (points[:, 0] + 1j * points[:, 1]) + times[:, None] * (
        points[:, 2] + 1j * points[:, 3])                          # J P
    rotation = np.exp(-1j * twists[:, 2:] * times)[..., None]
    inside = (there - at) * rotation                               # C J P
    inside = (np.abs(inside.imag) < config.half_width + config.margin) & (
        np.abs(inside.real) < half)
    fade = 1 - 0.7 * points[:, 5] / config.memory_s
    weight = inside @ (points[:, 4] * fade)                        # C J
    hit = weight >= config.evidence
    return np.where(hit.any(-1), times[np.argmax(hit, -1)], np.inf)


def _chord(twists: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return positions (C, J) [m], ahead + 1j left, on arcs (C, 3) after times (J,) [s]."""
    half = 0.5 * twists[:, 2:] * times
    speed = twists[:, :1] + 1j * twists[:, 1:2]
    return speed * times * np.sinc(half / math.pi) * np.exp(1j * half)
