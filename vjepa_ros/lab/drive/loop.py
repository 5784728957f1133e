# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Drive many simulated robots in one process: picture, perception, guard, robot, next picture."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from vjepa_ros.guard.guard import VelocityGuard
from vjepa_ros.guard.settings import GuardSettings
from vjepa_ros.guard.types import Motion, SourceReport
from vjepa_ros.lab.world.episodes.episode import Episode, EpisodeConfig
from vjepa_ros.lab.world.episodes.robot import ARRIVED_M
from vjepa_ros.lab.world.episodes.world import EpisodeWorld
from vjepa_ros.lab.world.textures.bank import TextureBank
from vjepa_ros.perception.collision import Optics
from vjepa_ros.perception.looming_cells import LoomingCells
from vjepa_ros.perception.pipeline import Perception
from vjepa_ros.perception.settings import Settings, TrackConfig, Wants
from vjepa_ros.perception.types import Result
from vjepa_ros.planning.twist_config import Mount, Twist, TwistConfig
from vjepa_ros.planning.twist_planner import TwistPlanner
from vjepa_ros.runtime.engine import Engine

# What assessments are made from; pictures of change are for people.
_WANTS = Wants(features=True, looming=True, image=False, change=False, moving=True)


class Eyes:
    """Cameras of N robots.

    Parameters
    ----------
    engine
        The loaded model.
    intrinsics
        (N, 4) fx, fy, cx, cy [px], as camera_info tells them.
    settings
        Of the perception.
    """

    def __init__(self, engine: Engine, intrinsics: np.ndarray,
                 settings: Settings | None = None) -> None:
        self._names = [f'robot_{number}' for number in range(len(intrinsics))]
        config = TrackConfig(engine.config.num_frames, engine.config.image_size)
        self._perception = Perception(engine, config, self._names)
        self._settings = settings or Settings()
        for name, lens in zip(self._names, intrinsics, strict=True):
            self._perception.tracks[name].intrinsics = tuple(float(v) for v in lens)

    def see(self, which: Sequence[int], pictures: np.ndarray,
            stamp_s: float) -> dict[int, Result]:
        """Results for the newest pictures of some robots.

        Parameters
        ----------
        which
            Their numbers.
        pictures
            (len(which), H, W, 3) uint8 RGB.
        stamp_s
            When they were taken [s]; only moves forward.

        Returns
        -------
        dict of int to Result
            By number; robots whose pictures do not cover a clip yet are missing.
        """
        for number, picture in zip(which, pictures, strict=True):
            self._perception.tracks[self._names[number]].push(picture, round(stamp_s * 1e9))
        samples = self._perception.pending([self._names[number] for number in which])
        if not samples:
            return {}
        wants = dict.fromkeys(samples, _WANTS)
        # Stamps are simulated; by that clock every picture is new.
        results = self._perception.run(samples, self._settings, wants, lambda stamp: 0.0)
        numbers = {self._names[number]: number for number in which}
        return {numbers[name]: result for name, result in zip(samples, results, strict=True)}


MODES = ('without_guard', 'with_guard', 'with_planner')
CAMERA = 'camera'
_CLOCK_S = 1.0        # stamp of the first picture
_STOPPED_M_S = 0.02   # commands below this stop a robot
_WANTS_M_S = 0.2      # of a controller that wants to go on
_FREE_S = 2.0         # a stop is needless when the way at the wanted speed was free so long


@dataclass(frozen=True)
class LoopConfig:
    """How robots are guarded.

    Attributes
    ----------
    guard
        Settings of the guard.
    twist
        Of the planner; the size of the robot is put in.
    latency
        Pictures after which what was seen in one can first act, 1 or more.
    odometry
        Whether guard and planner are told the robot's speed.
    width
        Of the pictures [px].
    """

    guard: GuardSettings = field(default_factory=GuardSettings)
    twist: TwistConfig = field(default_factory=TwistConfig)
    latency: int = 1
    odometry: bool = True
    width: int = 384

    def __post_init__(self) -> None:
        if self.latency < 1:
            raise ValueError(f'latency is {self.latency} pictures, must be at least 1')


@dataclass(frozen=True)
class Moment:
    """What one robot did at one picture, for plots; lengths in m, times in s.

    ``distance`` is the true free way straight ahead, ``time_to_contact`` what the perception
    said.
    """

    time: float
    speed: float
    wanted: float
    distance: float
    time_to_contact: float
    level: int
    state: str
    reason: str


@dataclass(frozen=True)
class Outcome:
    """How an episode ended.

    Attributes
    ----------
    number, scenario, place, cruise
        Which one; wanted speed [m/s].
    collided, struck
        Whether the robot touched something, and whether it stood then.
    touched
        What.
    progress
        Part of the route behind the robot when it would have been at the goal, had it met
        nothing and nobody slowed it down; 0..1.
    stops, needless_stops
        How often the guard stopped it, and how often although nothing stood in its way for 2 s
        at the wanted speed.
    moments
        Filled when they are asked for.
    real_time_factor
        Of simulated time over DDS against real time; None elsewhere.
    """

    number: int
    scenario: str
    place: str
    cruise: float
    collided: bool
    struck: bool
    touched: str
    progress: float
    stops: int
    needless_stops: int
    moments: tuple[Moment, ...] = ()
    real_time_factor: float | None = None


class _Pilot:
    """What sits between controller and base of one robot."""

    def __init__(self, loop: LoopConfig, planner: TwistPlanner | None, optics: Optics) -> None:
        self._guard = VelocityGuard(loop.guard, {CAMERA: 0.0})
        self._planner = planner
        self._optics, self._odometry = optics, loop.odometry
        self._seen: list[Result | None] = []
        self._latency = loop.latency
        self._sent = (0.0, 0.0)
        self.stopped = False
        self.state, self.reason = 'free', ''

    def act(self, result: Result | None, speed: float, turn: float, own: tuple[float, float],
            now_s: float, dt: float) -> tuple[float, float]:
        """The twist for the base, for one that the controller wants.

        Parameters
        ----------
        result
            Of the picture that was taken now; it acts after the latency.
        speed, turn
            Wanted.
        own
            True speed and turn rate of the robot.
        now_s, dt
            Time, and since when [s].
        """
        known = own if self._odometry else self._sent
        if self._odometry:
            self._guard.observe_speed(Motion(own[0], 0.0, own[1]), now_s)
        if self._planner is not None:
            self._planner.move(Twist(known[0], 0.0, known[1]), dt)
        self._seen.append(result)
        if len(self._seen) > self._latency:
            self._see(self._seen.pop(0), now_s, self._latency * dt)
        if self._planner is not None:
            plan = self._planner.choose(Twist(speed, 0.0, turn))
            speed, turn = plan.twist.vx, plan.twist.omega
        self._guard.command(Motion(speed, 0.0, turn), now_s)
        decision = self._guard.decide(now_s)
        sent = decision.motion
        self.state, self.reason = decision.state, decision.reason
        self._sent = (0.0, 0.0) if sent is None else (sent.vx, sent.omega)
        return self._sent

    def _see(self, result: Result | None, now_s: float, age_s: float) -> None:
        if result is None:
            return
        self._guard.observe(SourceReport.of(result.assessment, now_s, source=CAMERA))
        if self._planner is not None:
            self._planner.see(CAMERA, LoomingCells.of(result, self._optics), result.assessment,
                              age_s)


class Loop:
    """A batch of episodes in one mode.

    Parameters
    ----------
    episodes, config, bank
        What is driven.
    mode
        One of `MODES`.
    engine
        The model; not needed without guard.
    loop
        How robots are guarded.
    follow
        Numbers of episodes whose moments are kept.
    film
        Called with (episode number, picture, moment) for those.
    """

    def __init__(self, episodes: Sequence[Episode], config: EpisodeConfig, bank: TextureBank,
                 mode: str, engine: Engine | None, loop: LoopConfig | None = None,
                 follow: frozenset[int] = frozenset(),
                 film: Callable[[int, np.ndarray, Moment], None] | None = None) -> None:
        if mode not in MODES:
            raise ValueError(f"mode is '{mode}', must be one of {', '.join(MODES)}")
        if mode != 'without_guard' and engine is None:
            raise ValueError(f"mode '{mode}' needs a model")
        self.episodes, self.config, self.mode = list(episodes), config, mode
        self._loop = loop or LoopConfig()
        self.world = EpisodeWorld(episodes, config, bank, self._loop.width)
        self._follow, self._film = follow, film
        self._moments: dict[int, list[Moment]] = {e.number: [] for e in self.episodes}
        self._stops = np.zeros((len(self.episodes), 2), int)
        self._pilots: list[_Pilot] = []
        self._eyes: Eyes | None = None
        if mode != 'without_guard':
            lenses = self.world.intrinsics
            self._eyes = Eyes(engine, lenses)
            for episode, lens in zip(self.episodes, lenses, strict=True):
                self._pilots.append(_Pilot(
                    self._loop, self._planner(episode) if mode == 'with_planner' else None,
                    Optics(*lens, assumed=False)))

    def _planner(self, episode: Episode) -> TwistPlanner:
        robot = self.config.robot
        config = replace(self._loop.twist, half_width=robot.half_width, height=robot.height,
                         length=robot.length, clearance=robot.clearance,
                         max_turn=self.config.drive.turn)
        return TwistPlanner(config, {
            CAMERA: Mount(x=0.5 * robot.length, height=episode.camera_height)})

    def run(self, tick: Callable[[], None] = lambda: None) -> list[Outcome]:
        """Drive all episodes to their ends; ``tick`` is called after each picture."""
        world, count = self.world, len(self.episodes)
        ends = np.array([e.run.duration for e in self.episodes])
        progress = np.zeros(count)
        while True:
            now = world.time_s
            active = (now < ends - 1e-6) & ~world.collided
            if not active.any():
                break
            which = np.flatnonzero(active)
            results = self._look(which)
            commands = np.zeros((count, 2))
            for number in which:
                commands[number] = self._command(int(number), now, results.get(int(number)))
            world.step(commands[:, 0], commands[:, 1], active)
            for number in which:
                route = self.episodes[number].route
                progress[number] = max(progress[number], min(1.0, route.gone(
                    world.robots.place[number]) / (route.length - ARRIVED_M)))
            tick()
        return [self._outcome(n, float(progress[n])) for n in range(count)]

    def _look(self, which: np.ndarray) -> dict[int, Result]:
        filmed = [n for n in which if self.episodes[n].number in self._follow]
        if self._eyes is None and not (filmed and self._film):
            return {}
        pictures = self.world.pictures(which)
        self._shown = dict(zip(which.tolist(), pictures, strict=True))
        if self._eyes is None:
            return {}
        stamp = _CLOCK_S + self.world.frame / self.config.rate
        return self._eyes.see(which.tolist(), pictures, stamp)

    def _command(self, number: int, now: float, result: Result | None) -> tuple[float, float]:
        episode, robots = self.episodes[number], self.world.robots
        own = (float(robots.speed[number]), float(robots.turn[number]))
        wanted = (0.0, 0.0)
        if now >= 0:
            wanted = episode.route.command(robots.place[number], float(robots.yaw[number]))
        sent, state, reason = wanted, 'free', ''
        if self._pilots:
            pilot = self._pilots[number]
            clock = _CLOCK_S + self.world.frame / self.config.rate
            sent = pilot.act(result, *wanted, own, clock, 1 / self.config.rate)
            state, reason = pilot.state, pilot.reason
            stopped = wanted[0] > _WANTS_M_S and sent[0] < _STOPPED_M_S
            if stopped and not pilot.stopped and now > 0:
                self._stops[number, 0] += 1
                ahead = _FREE_S * episode.route.cruise
                self._stops[number, 1] += self.world.clearance(number, ahead) >= ahead
            pilot.stopped = stopped
        if episode.number in self._follow:
            seen = result.assessment if result is not None else None
            moment = Moment(now, own[0], wanted[0], self.world.clearance(number),
                            math.nan if seen is None else seen.time_to_contact,
                            255 if seen is None else int(seen.level), state, reason)
            self._moments[episode.number].append(moment)
            if self._film is not None and number in self._shown:
                self._film(episode.number, self._shown[number], moment)
        return sent

    def _outcome(self, number: int, progress: float) -> Outcome:
        episode, world = self.episodes[number], self.world
        stops, needless = self._stops[number].tolist()
        return Outcome(episode.number, episode.scenario, episode.place, episode.route.cruise,
                       bool(world.collided[number]), bool(world.struck[number]),
                       world.touched[number], progress, stops, needless,
                       tuple(self._moments[episode.number]))
