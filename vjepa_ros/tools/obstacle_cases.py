# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Obstacles of rendered clips beside where surfaces really are."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from vjepa_ros.perception.assessment import Result
from vjepa_ros.perception.assessor import SETTLE_RESULTS, Assessor
from vjepa_ros.perception.collision import Optics
from vjepa_ros.perception.config import Wants
from vjepa_ros.perception.obstacles import ROBOT_HALF_WIDTH, Obstacles, find_obstacles
from vjepa_ros.perception.obstacles_config import ObstacleSettings
from vjepa_ros.perception.obstacles_geometry import Lens, Mount
from vjepa_ros.perception.pipeline import Perception
from vjepa_ros.tools.evaluate_film import Film, films, shown
from vjepa_ros.tools.evaluate_run import CAMERA, Setup
from vjepa_ros.tools.evaluate_world import encoded, world_of
from vjepa_ros.world.clips import WorldClips
from vjepa_ros.world.lens import image_rays
from vjepa_ros.world.scene import GROUND, SKY

# World axes are x right, y down, z ahead; base axes x ahead, y left, z up.
_TO_BASE = np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
FACTOR = 1.5          # between a distance and the truth that it still counts as found within


@dataclass(frozen=True)
class Way:
    """One way to place obstacles.

    Attributes
    ----------
    how
        Settings.
    method
        Looming method: 'fused' or 'geometric'.
    odometry
        Factor on the true speed; NaN for no odometry.
    tilt
        By how much the pitch of the camera is taken too low [rad].
    """

    how: ObstacleSettings = field(default_factory=ObstacleSettings)
    method: str = 'fused'
    odometry: float = 1.0
    tilt: float = 0.0


@dataclass
class Tally:
    """What one way gave on some clips: columns, free ways, and what was withheld."""

    columns: list[tuple[float, ...]] = field(default_factory=list)
    ways: list[tuple[float, float]] = field(default_factory=list)
    withheld: Counter[str] = field(default_factory=Counter)
    clips: int = 0

    def add(self, other: Tally) -> None:
        """Take in what the same way gave on other clips."""
        self.columns += other.columns
        self.ways += other.ways
        self.withheld += other.withheld
        self.clips += other.clips


@dataclass(frozen=True)
class Scene:
    """One clip with what the perception and the truth say of it.

    Attributes
    ----------
    results
        Of the perception, by looming method.
    size, lens, mount
        Of its camera.
    speed
        Of the camera along its optical axis [m/s], as perfect odometry tells it.
    ahead, left, height
        (N,) of every pixel that shows a body or wall [m], from the camera along its heading and
        from the ground.
    moving
        (N,) whether that surface moves.
    """

    results: dict[str, Result]
    size: tuple[int, int]
    lens: Lens
    mount: Mount
    speed: float
    ahead: np.ndarray
    left: np.ndarray
    height: np.ndarray
    moving: np.ndarray


def scenes_of(setup: Setup, seed: int, count: int, device: str) -> Iterator[Scene]:
    """The clips of one seed."""
    clips = world_of(setup.track.image_size, setup.track.num_frames, device).clips(seed, count)
    rendered = list(films(clips))
    for index, (film, output) in enumerate(zip(rendered, encoded(rendered, setup), strict=True)):
        perception = Perception(setup.engine, film.track(setup.track), [CAMERA])
        sample = shown(film, perception.tracks[CAMERA])
        results = {}
        for method in setup.methods:
            perception.tracks[CAMERA].assessor = Assessor()
            for _ in range(SETTLE_RESULTS + 1):     # one moment, told so often that it is settled
                results[method] = perception.result(
                    CAMERA, sample, output, replace(setup.settings, looming_method=method),
                    Wants(features=False, image=False), math.nan, {})
        yield _scene(clips, index, film, results)


def judged_part(setup: Setup, seed: int, count: int, device: str,
                ways: Sequence[Way]) -> list[Tally]:
    """What each way gives on the clips of one seed; a task of `Workers`."""
    tallies = [Tally() for _ in ways]
    for scene in scenes_of(setup, seed, count, device):
        for way, tally in zip(ways, tallies, strict=True):
            tally.clips += 1
            found, rows = judged_columns(scene, setup, way)
            if found.withheld:
                tally.withheld[found.withheld[:40]] += 1
            else:
                tally.columns += rows
                tally.ways.append((way_found(found), way_of(scene, way.how)))
    return tallies


def _scene(clips: WorldClips, index: int, film: Film,
           results: dict[str, Result]) -> Scene:
    scenes, truth = clips.scenes, clips.truth
    turn = scenes.camera_rotation[index, -1].double().cpu().numpy()
    height = -float(scenes.camera_position[index, -1, 1])
    mount = Mount(_TO_BASE @ turn.T, np.array([0.0, 0.0, height]))
    k1, k2 = scenes.distortion[index].tolist()
    lens = Lens(Optics(*film.optics(), assumed=False), (k1, k2, 0.0, 0.0))
    one = slice(index, index + 1)
    side = truth.depth.shape[1:][::-1]
    rays = image_rays(scenes.intrinsics[one].cpu(), scenes.distortion[one].cpu(), side)
    to = mount.directions(np.stack([rays.x[0, 0].numpy(), rays.y[0, 0].numpy()], -1))
    shape = truth.shape[index].cpu().numpy()
    body = (shape != GROUND) & (shape != SKY)
    points = to[body] * truth.depth[index].double().cpu().numpy()[body][:, None]
    sideways = np.cross((0, 0, 1), mount.heading)
    return Scene(results, film.size, lens, mount,
                 float(scenes.camera_velocity[index].double().cpu().numpy() @ turn[2]),
                 points @ mount.heading, points @ sideways, points[:, 2] + height,
                 truth.moving[index].cpu().numpy()[body])


def judged_columns(scene: Scene, setup: Setup,
                   way: Way) -> tuple[Obstacles, list[tuple[float, ...]]]:
    """What is found, and for each column with an obstacle: distance, error, truth, moves.

    The truth is the nearest surface that the column shows between the lower limit of the band
    and the top of what counts as an obstacle; NaN when it shows none.
    """
    how, mount = way.how, scene.mount
    if way.tilt:
        c, s = math.cos(way.tilt), math.sin(way.tilt)
        lower = np.array([[1, 0, 0], [0, c, s], [0, -s, c]])     # about the optical x axis
        mount = Mount(mount.rotation @ lower, mount.position)
    found = find_obstacles(scene.results[way.method], scene.size, scene.lens, mount,
                           scene.speed * way.odometry,
                           replace(setup.settings, looming_method=way.method), how)
    top = max(how.max_height, scene.mount.height + 0.1)
    tall = (scene.height > how.min_height) & (scene.height < top) & (scene.ahead > 0)
    slope = np.where(tall, scene.left / np.where(scene.ahead > 0, scene.ahead, 1.0), np.inf)
    rows = []
    for column in np.flatnonzero(found.region >= 0):
        low, high = sorted(found.slope[column])
        seen = tall & (slope >= low) & (slope <= high)
        true, moves = math.nan, math.nan
        if seen.sum() >= 3:
            ranges = scene.ahead[seen]
            true = float(np.partition(ranges, 2)[2])
            moves = float(scene.moving[seen][np.argsort(ranges)[2]])
        rows.append((float(found.reach[column]), float(found.sigma[column]), true, moves))
    return found, rows


def way_of(scene: Scene, how: ObstacleSettings) -> float:
    """True free way: to the nearest visible surface in front of the robot [m], inf for none."""
    top = max(how.max_height, scene.mount.height + 0.1)
    inside = ((np.abs(scene.left) <= ROBOT_HALF_WIDTH) & (scene.ahead > 0)
              & (scene.height > how.min_height) & (scene.height < top))
    return float(np.partition(scene.ahead[inside], 2)[2]) if inside.sum() >= 3 else math.inf


def way_found(found: Obstacles) -> float:
    """Free way that the points leave to the robot [m], inf for a free one."""
    ways = [found.way] if not math.isnan(found.way) else []
    for column in np.flatnonzero(found.region >= 0):
        low, high = sorted(found.slope[column] * found.reach[column])
        if low <= ROBOT_HALF_WIDTH and high >= -ROBOT_HALF_WIDTH:
            ways.append(float(found.reach[column]))
    return min(ways, default=math.inf)


def figures(tally: Tally, how: ObstacleSettings) -> dict[str, object]:
    """Figures of one way to place obstacles, with its settings."""
    rows, ways, withheld, clips = tally.columns, tally.ways, tally.withheld, tally.clips
    table = np.array(rows, float).reshape(-1, 4)
    reach, sigma, true, moves = table.T
    there = np.isfinite(true)
    off = reach[there] / true[there]
    placed = np.maximum(reach - how.caution * sigma, 0)[there]

    def error(which: np.ndarray) -> float:
        return float(np.median(np.abs(off[which] - 1))) if which.any() else math.nan

    pairs = np.array(ways, float).reshape(-1, 2)
    said, way = pairs.T
    near, open_ = way <= 0.8 * how.max_range, way > FACTOR * how.max_range
    return {
        'clips': clips, 'published': len(pairs), 'withheld': dict(withheld),
        'columns': int(there.size), 'with_nothing_there': float((~there).mean()),
        'error': error(np.ones(off.size, bool)), 'error_still': error(moves[there] == 0),
        'error_moving': error(moves[there] == 1),
        'error_below_2m': error(true[there] < 2),
        'bias': float(np.median(off)) - 1 if off.size else math.nan,
        'within_30_percent': float((np.abs(off - 1) < 0.3).mean()) if off.size else math.nan,
        'within_two_sigma': float((np.abs(reach - true)[there] < 2 * sigma[there]).mean())
        if off.size else math.nan,
        'points_nearer_than_truth': float((placed < true[there]).mean()) if off.size
        else math.nan,
        'ways_blocked': int(near.sum()),
        'ways_found': float((said[near] < FACTOR * way[near]).mean()) if near.any()
        else math.nan,
        'ways_free': int(open_.sum()),
        'ways_blocked_falsely': float(np.isfinite(said[open_]).mean()) if open_.any()
        else math.nan,
    }
