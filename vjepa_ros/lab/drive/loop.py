# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Drive many simulated robots in one process: picture, perception, guard, robot, next picture."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import cv2
import numpy as np

from vjepa_ros.clip.optics import Optics
from vjepa_ros.guard.guard import VelocityGuard
from vjepa_ros.guard.settings import GuardSettings
from vjepa_ros.guard.types import Motion, SourceReport
from vjepa_ros.lab.worker_pool import run_all, visible_gpus
from vjepa_ros.lab.world.clips import BANK_SEED
from vjepa_ros.lab.world.episodes.episode import Episode, EpisodeConfig, GOAL_M, SETS
from vjepa_ros.lab.world.episodes.robot import ARRIVED_M
from vjepa_ros.lab.world.episodes.world import EpisodeWorld
from vjepa_ros.lab.world.rendering.render import drawing_device
from vjepa_ros.lab.world.textures.bank import Materials, TextureBank
from vjepa_ros.perception.looming_cells import LoomingCells
from vjepa_ros.perception.pipeline import Perception
from vjepa_ros.perception.settings import Settings, TrackConfig, Wants
from vjepa_ros.perception.types import Result
from vjepa_ros.planning.local_planner import LocalPlanner
from vjepa_ros.planning.obstacle_memory import LocalConfig, Mount
from vjepa_ros.runtime.device import choose_device
from vjepa_ros.runtime.model import Model, ModelConfig

# What assessments need; images of change are for people.
_WANTS = Wants(features=True, looming=True, image=False, change=False, moving=True)
MODES = ('without_guard', 'with_guard', 'with_planner')
CAMERA = 'camera'
_CLOCK_S = 1.0        # stamp of the first image
_STOPPED_M_S = 0.02   # commands below this stop a robot
WANTS_M_S = 0.2      # command of a controller that wants to drive
FREE_S = 2.0         # a stop is needless when the path is free for this time


@dataclass(frozen=True)
class Moment:
    """State of a robot at one image; times in s."""

    time: float
    speed: float  # [m/s], as `wanted`
    wanted: float
    distance: float  # true free path straight ahead [m]
    time_to_contact: float  # as estimated
    level: int
    state: str  # of the guard
    reason: str


@dataclass(frozen=True)
class Outcome:
    """How an episode ended."""

    number: int
    scenario: str
    place: str
    cruise: float  # wanted speed [m/s]
    collided: bool  # whether the robot touched something
    struck: bool  # whether it stood still then
    touched: str  # what it touched
    progress: float  # part of the route when an undisturbed robot would be at the goal, 0..1
    stops: int  # by the guard
    needless_stops: int  # although the path was free for 2 s at the wanted speed
    reached: bool = False  # whether it came to its goal
    driven: float = 0.0  # length of its way [m]
    shortest: float = math.nan  # least length of a way to the goal [m]
    plan_ms: float = math.nan  # mean time from an assessment to a command [ms]
    moments: tuple[Moment, ...] = ()  # of episodes that are recorded
    real_time_factor: float | None = None  # simulated time over real time, over DDS


class _Control:
    """Guard, and perhaps planner, of one robot; an assessment acts at the image after its own."""

    def __init__(self, planner: LocalPlanner | None, optics: Optics) -> None:
        self._guard = VelocityGuard(GuardSettings(), {CAMERA: 0.0})
        self._planner, self._optics = planner, optics
        self._last: Result | None = None
        self.state, self.reason = 'free', ''

    def act(self, result: Result | None, wanted: tuple[float, float], own: tuple[float, float],
            now_s: float, dt: float, goal: complex | None = None) -> tuple[float, float]:
        """Return speed and turn rate for the base; a goal of a planner is ahead + 1j left [m]."""
        speed, turn = wanted
        self._guard.observe_speed(Motion(own[0], 0.0, own[1]), now_s)
        last, self._last = self._last, result
        if last is not None:
            self._guard.observe(SourceReport.of(last.assessment, now_s, source=CAMERA))
        if self._planner is not None:
            self._planner.move(Motion(own[0], 0.0, own[1]), dt)
            if last is not None:
                self._planner.see(CAMERA, LoomingCells.of(last, self._optics), last.assessment, dt)
            plan = (self._planner.choose(Motion(speed, 0.0, turn)) if goal is None
                    else self._planner.pursue(goal))
            speed, turn = plan.twist.vx, plan.twist.omega
        self._guard.command(Motion(speed, 0.0, turn), now_s)
        decision = self._guard.decide(now_s)
        self.state, self.reason = decision.state, decision.reason
        sent = decision.motion
        return (0.0, 0.0) if sent is None else (sent.vx, sent.omega)


class Loop:
    """A batch of episodes in one of `MODES`; the moments of those in `follow` are recorded."""

    def __init__(self, world: EpisodeWorld, mode: str, engine: Model | None = None,
                 follow: frozenset[int] = frozenset(), film: Path | None = None) -> None:
        self.world, self.mode = world, mode
        self.episodes, self.config = world.episodes, world.config
        self._follow, self._film = follow, film
        self._moments: list[list[Moment]] = [[] for _ in self.episodes]
        self._stops = np.zeros((len(self.episodes), 2), int)
        self._plans_s: list[list[float]] = [[] for _ in self.episodes]
        self._halted = np.zeros(len(self.episodes), bool)
        self._controls: list[_Control] = []
        self._perception: Perception | None = None
        if mode == MODES[0]:
            return
        assert engine is not None, f'{mode} needs a model'
        names = [str(number) for number in range(len(self.episodes))]
        self._perception = Perception(engine, TrackConfig(
            engine.config.num_frames, engine.config.image_size), names)
        for name, episode, lens in zip(names, self.episodes, world.intrinsics.tolist(),
                                       strict=True):
            self._perception.tracks[name].intrinsics = tuple(lens)
            planner = self._planner(episode) if mode == 'with_planner' else None
            self._controls.append(_Control(planner, Optics(*lens, assumed=False)))

    def _planner(self, episode: Episode) -> LocalPlanner:
        robot = self.config.robot
        config = LocalConfig(
            cruise=episode.route.cruise, half_width=robot.half_width, height=robot.height,
            length=robot.length, clearance=robot.clearance, max_turn=self.config.drive.turn)
        return LocalPlanner(config, {
            CAMERA: Mount(x=0.5 * robot.length, height=episode.camera_height)})

    def run(self) -> list[Outcome]:
        world, count = self.world, len(self.episodes)
        ends = np.array([e.ends_s for e in self.episodes])
        goals = np.array([e.route.points[-1] for e in self.episodes])
        # Where getting there is the task, an episode ends there.
        staying = np.array([math.isnan(e.shortest) for e in self.episodes])
        progress, driven, reached = np.zeros(count), np.zeros(count), np.zeros(count, bool)
        while True:
            now = world.time_s
            active = (now < ends - 1e-6) & ~world.collided & (staying | ~reached)
            if not active.any():
                break
            which = np.flatnonzero(active).tolist()
            images = self._images(which)
            results = self._assess(images)
            commands = np.zeros((count, 2))
            for number in which:
                commands[number] = self._command(
                    number, now, results.get(number), images.get(number))
            before = world.robots.place
            world.step(commands[:, 0], commands[:, 1], active)
            for number in which:
                route = self.episodes[number].route
                progress[number] = max(progress[number], min(1.0, route.gone(
                    world.robots.place[number]) / (route.length - ARRIVED_M)))
            driven += np.linalg.norm(world.robots.place - before, axis=-1)
            reached |= ~world.collided & (
                np.linalg.norm(world.robots.place - goals, axis=-1) <= GOAL_M)
        return [self._outcome(n, float(progress[n]), bool(reached[n]), float(driven[n]))
                for n in range(count)]

    @property
    def _clock_s(self) -> float:
        """Return the simulated time for stamps [s], which is positive."""
        return _CLOCK_S + self.world.frame / self.config.rate

    def _images(self, which: list[int]) -> dict[int, np.ndarray]:
        """Render the cameras of some robots where perception or film need them."""
        if self._perception is None and self._film is None:
            return {}
        return dict(zip(which, self.world.pictures(np.array(which)), strict=True))

    def _assess(self, images: dict[int, np.ndarray]) -> dict[int, Result]:
        """Assess the newest images (H, W, 3) uint8 RGB of some robots."""
        perception = self._perception
        if perception is None:
            return {}
        for number, image in images.items():
            perception.tracks[str(number)].push(image, round(self._clock_s * 1e9))
        samples = perception.pending([str(number) for number in images])
        # In simulated time every image is new.
        results = perception.run(samples, Settings(), dict.fromkeys(samples, _WANTS),
                                 lambda stamp: 0.0) if samples else []
        for name in samples:
            perception.tracks[name].still.look()      # as a node does
        return {int(name): result for name, result in zip(samples, results, strict=True)}

    def _command(self, number: int, now: float, result: Result | None,
                 image: np.ndarray | None) -> tuple[float, float]:
        episode, robots = self.episodes[number], self.world.robots
        own = (float(robots.speed[number]), float(robots.turn[number]))
        place, yaw = robots.place[number], float(robots.yaw[number])
        wanted = (0.0, 0.0)
        if now >= 0:
            wanted = episode.route.command(place, yaw)
        sent, state, reason = wanted, 'free', ''
        begun = time.perf_counter()
        if self._controls:
            control = self._controls[number]
            # Where getting there is the task, the planner knows the goal.
            goal = None
            if now >= 0 and math.isfinite(episode.shortest):
                away, way = episode.route.points[-1] - place, (math.sin(yaw), math.cos(yaw))
                goal = complex(away @ way, away @ (-way[1], way[0]))
            sent = control.act(result, wanted, own, self._clock_s, 1 / self.config.rate, goal)
            state, reason = control.state, control.reason
        if self.mode != MODES[0] and now >= 0:
            self._plans_s[number].append(time.perf_counter() - begun)
        stopped = wanted[0] > WANTS_M_S and abs(sent[0]) < _STOPPED_M_S
        if stopped and not self._halted[number] and now > 0:
            self._stops[number, 0] += 1
            ahead = FREE_S * episode.route.cruise
            self._stops[number, 1] += self.world.clearance(number, ahead) >= ahead
        self._halted[number] = stopped
        if episode.number in self._follow:
            seen = None if result is None else result.assessment
            moments = self._moments[number]
            if self._film is not None and image is not None:
                folder = self._film / f'{episode.number:04d}'
                folder.mkdir(parents=True, exist_ok=True)
                cv2.imwrite(str(folder / f'{len(moments):04d}.png'), image[..., ::-1])
            moments.append(Moment(
                now, own[0], wanted[0], self.world.clearance(number),
                math.nan if seen is None else seen.time_to_contact,
                255 if seen is None else int(seen.level), state, reason))
        return sent

    def _outcome(self, number: int, progress: float, reached: bool, driven: float) -> Outcome:
        episode, world = self.episodes[number], self.world
        stops, needless = self._stops[number].tolist()
        return Outcome(episode.number, episode.scenario, episode.place, episode.route.cruise,
                       bool(world.collided[number]), bool(world.struck[number]),
                       world.touched[number], progress, stops, needless, reached, driven,
                       episode.shortest,
                       plan_ms=1e3 * float(np.mean(self._plans_s[number] or math.nan)),
                       moments=tuple(self._moments[number]))


@dataclass(frozen=True)
class Recipe:
    seed: int  # seed of the episodes
    engine: ModelConfig  # the model; its device also renders
    episode: EpisodeConfig = field(default_factory=EpisodeConfig)
    follow: frozenset[int] = frozenset()  # numbers of episodes to record
    film: Path | None = None  # folder for the images of these, by mode; None writes none
    set: str = 'stop'  # which episodes, one of `SETS`
    width: int = 384  # of rendered images [px]


class Driver:
    """Drives batches of episodes with a model and textures that are loaded once."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        device = drawing_device(choose_device(recipe.engine.device).device)
        self.bank = TextureBank.procedural(BANK_SEED).to(device)

    @cached_property
    def engine(self) -> Model:      # which driving without guard does not load
        return Model.load(self.recipe.engine)

    def drive(self, mode: str, numbers: Sequence[int]) -> tuple[str, list[Outcome]]:
        """Drive some episodes in one mode; return the mode, too."""
        recipe = self.recipe
        materials = Materials(self.bank.groups, self.bank.walks)
        episodes = [SETS[recipe.set](recipe.seed, number, materials, recipe.episode)
                    for number in numbers]
        world = EpisodeWorld(episodes, recipe.episode, self.bank, recipe.width)
        film = recipe.film / mode if recipe.film and recipe.follow & set(numbers) else None
        return mode, Loop(world, mode, None if mode == MODES[0] else self.engine, recipe.follow,
                          film).run()


def drive_all(recipe: Recipe, modes: Sequence[str], numbers: Sequence[int], jobs: int,
              batch: int, done: Callable[[str, list[Outcome]], object]
              ) -> dict[str, list[Outcome]]:
    tasks = [(Driver.drive, mode, numbers[first:first + batch])
             for mode in modes for first in range(0, len(numbers), batch)]
    gpus = [] if ':' in recipe.engine.device else visible_gpus()
    found: dict[str, list[Outcome]] = {mode: [] for mode in modes}
    for mode, outcomes in run_all(tasks, jobs, partial(Driver, recipe),
                                  lambda ended: done(*ended), gpus):
        found[mode] += outcomes
    return found
