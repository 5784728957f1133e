# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Drive simulated robots to where pictures were taken, with the bundled model for a base.

`python -m vjepa_ros.lab.drive.to_picture --episodes 20 --json FILE` draws rendered places in which
nothing stands in the way. A goal is 0.6 to 2.5 m off, within 30 degrees of ahead, and its picture
is turned by up to 20 degrees more. The robot plans twice a second, without guard.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
from dataclasses import astuple, dataclass
from datetime import date
from pathlib import Path

import numpy as np

from vjepa_ros.lab.report.measurement import hardware, versions
from vjepa_ros.lab.world.clips import BANK_SEED
from vjepa_ros.lab.world.episodes import episode
from vjepa_ros.lab.world.episodes.episode import EpisodeConfig, GOAL_M
from vjepa_ros.lab.world.episodes.world import EpisodeWorld
from vjepa_ros.lab.world.textures.bank import Materials, TextureBank
from vjepa_ros.model.twist_paths import View
from vjepa_ros.planning.base_world import (
    BASE_SEARCH,
    BaseSpace,
    BaseWorld,
    CLIP_FPS,
    Clip,
    FRAMES,
)
from vjepa_ros.planning.energy_test import GapConfig
from vjepa_ros.planning.goal_planner import Planner
from vjepa_ros.runtime.engine import EngineConfig

CONFIG = EpisodeConfig(rate=4.0)
DISTANCE_M, BEARING, TURN = (0.6, 2.5), math.radians(30), math.radians(20)
LONGEST_S = 12.0         # of an attempt
EVERY = 2                # pictures between two plans
TRIES = 50               # to draw a place in which the way is free


@dataclass(frozen=True)
class Attempt:
    """How an attempt ended.

    Attributes
    ----------
    distance, end : float
        From the goal at the start and at the end [m].
    turned : float
        From the direction of the picture at the end [rad].
    arrived, collided : bool
        Whether the planner said that the goal is reached, and whether the robot touched something.
    seconds : float
        Until then [s].
    """

    distance: float
    end: float
    turned: float
    arrived: bool
    collided: bool
    seconds: float


def draw(seed: int, number: int, bank: TextureBank, materials: Materials
         ) -> tuple[EpisodeWorld, np.ndarray, float, np.ndarray]:
    """Draw a place with a robot, and the place, yaw and picture of a goal.

    Raises
    ------
    ValueError
        When no free way was found.
    """
    random = np.random.default_rng((seed, number))
    alone = np.array([0])
    for k in range(TRIES):
        one = episode.draw(seed, TRIES * number + k, materials, CONFIG)
        world = EpisodeWorld([one], CONFIG, bank)
        robots = world.robots
        start, yaw = robots.place[0].copy(), float(robots.yaw[0])
        distance = random.uniform(*DISTANCE_M)
        bearing = yaw + random.uniform(-BEARING, BEARING)
        goal_yaw = bearing + random.uniform(-TURN, TURN)
        way = distance * np.array((math.sin(bearing), math.cos(bearing)))
        free = one.scenario == 'free'
        for part in np.linspace(0, 1, 12):
            robots.place[0] = start + part * way
            robots.yaw[0] = goal_yaw if part == 1 else bearing
            free = free and not world.touches(alone).any()
        if free:
            picture = world.pictures(alone)[0]
            robots.place[0], robots.yaw[0] = start, yaw
            return world, start + way, goal_yaw, picture
    raise ValueError(f'episode {number} of seed {seed} has no free way to a goal')


def attempt(base: BaseWorld, world: EpisodeWorld, goal: np.ndarray, goal_yaw: float,
            picture: np.ndarray) -> Attempt:
    """Drive until the planner says that the goal is reached, a contact, or the time is over."""
    planner = Planner(base, BaseSpace(), BASE_SEARCH, GapConfig(repetitions=0))
    planner.set_goal(picture)
    robots, one, alone = world.robots, world.episodes[0], np.array([0])
    across = math.tan(one.fov / 2)
    frames: list[np.ndarray] = []
    begun, distance, arrived = math.nan, float(np.linalg.norm(robots.place[0] - goal)), False
    command = (0.0, 0.0)
    while not (world.time_s - begun >= LONGEST_S or world.collided[0] or arrived):
        fitted = base.fit(world.pictures(alone)[0])
        assert isinstance(fitted, np.ndarray), 'of a picture'
        frames = [*frames, fitted][-FRAMES:]
        if len(frames) == FRAMES and world.frame % EVERY == 0:
            begun = world.time_s if math.isnan(begun) else begun
            view = View(one.camera_height, one.pitch, 0.5 * CONFIG.robot.length, across,
                        across / CONFIG.aspect, 1 / CLIP_FPS, vx=float(robots.speed[0]),
                        omega=float(robots.turn[0]))
            stamps = (np.arange(FRAMES) - FRAMES + 1) / CLIP_FPS
            plan = planner.plan(Clip(np.stack(frames), stamps), np.array(astuple(view)),
                                seed=world.frame)
            assert plan.actions is not None, plan.refusal
            arrived = plan.arrived
            command = float(plan.actions[0, 0]), float(plan.actions[0, 2])
        if not arrived:
            world.step(np.array([command[0]]), np.array([command[1]]))
    turned = (float(robots.yaw[0]) - goal_yaw + math.pi) % (2 * math.pi) - math.pi
    return Attempt(distance, float(np.linalg.norm(robots.place[0] - goal)), abs(turned), arrived,
                   bool(world.collided[0]), world.time_s - begun)


def figures(attempts: list[Attempt]) -> dict[str, float]:
    """Return the figures of attempts: shares, medians [m], [rad] and mean distances [m]."""
    ends = np.array([one.end for one in attempts])
    return {'attempts': len(attempts),
            'start_mean_m': float(np.mean([one.distance for one in attempts])),
            'end_median_m': float(np.median(ends)), 'end_mean_m': float(ends.mean()),
            'within_goal_m': float((ends <= GOAL_M).mean()),
            'said_arrived': float(np.mean([one.arrived for one in attempts])),
            'arrived_within_goal_m': float(np.mean([one.end <= GOAL_M for one in attempts
                                                    if one.arrived] or [math.nan])),
            'turned_median_rad': float(np.median([one.turned for one in attempts])),
            'collided': float(np.mean([one.collided for one in attempts]))}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--episodes', type=int, default=20)
    parser.add_argument('--seed', type=int, default=7000)
    parser.add_argument('--device', default='auto')
    parser.add_argument('--json', type=Path, help='file for the figures')
    args = parser.parse_args()
    base = BaseWorld.load(EngineConfig(device=args.device, require_device=args.device != 'auto'))
    bank = TextureBank.procedural(BANK_SEED)
    materials = Materials(bank.groups, bank.walks)
    attempts = []
    for number in range(args.episodes):
        attempts.append(attempt(base, *draw(args.seed, number, bank, materials)))
        print(number, attempts[-1], flush=True)
    found = figures(attempts)
    print(json.dumps(found, indent=1))
    if args.json:
        command = shlex.join(['python', '-m', 'vjepa_ros.lab.drive.to_picture', *sys.argv[1:]])
        args.json.write_text(json.dumps({
            'date': date.today().isoformat(), 'command': command, 'hardware': hardware(),
            'versions': versions(), **found}, indent=1) + '\n', encoding='utf-8')


if __name__ == '__main__':
    main()
