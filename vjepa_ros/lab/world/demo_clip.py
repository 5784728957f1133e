# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Render the clip that the synthetic camera plays, with its truth.

A robot drives through an alley. It rests; a trolley rolls into its way; the robot drives up to it
and brakes one second before contact, backs off, and the trolley leaves; the robot turns on the
spot, passes the trolley while a person crosses who is not on a collision course, and drives faster
up to a van, which then leaves. Then all begins again 18 m down the alley, where it looks the same.

Motion consists of pieces of constant acceleration, so the truth is exact. Lengths are in m, times
in s, angles in rad; x is to the right, z along the alley, and heights are above ground.

``python -m vjepa_ros.lab.world.demo_clip DIR`` writes ``DIR/approach.npz`` (the truth),
``DIR/approach/*.png`` (15 minutes on one core), and with ffmpeg on the path ``DIR/approach.webm``.
"""

from __future__ import annotations

import argparse
import math
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import torch

from vjepa_ros.lab.world import demo_textures
from vjepa_ros.lab.world.rendering.render import render
from vjepa_ros.lab.world.scenes.scene import BOX, CARD, Scenes
from vjepa_ros.lab.world.textures.bank import TextureBank

RATE_HZ, SIZE = 30.0, (640, 480)
FOCAL_PER_WIDTH = 500 / 640
SUPERSAMPLING = 2
LEVELS = (('danger', 1.5), ('warning', 3.0), ('caution', 5.0))  # up to these times to contact
COLLISION_HORIZON_S = 2.0
ROBOT_HALF_WIDTH_M, CAMERA_HEIGHT_M = 0.35, 0.7
ALLEY_WIDTH_M, ROOF_M, REACH_M = 5.2, 4.4, 44.0
ADVANCE_M = 18.0            # from one cycle to the next
START_GAP_M = 7.2           # to the trolley when a cycle starts
SIDE_X_M = -1.75            # where the trolley waits
BRAKE_TTC_S = 1.0           # the robot brakes when contact is this near
PERSON_Z_M, PERSON_X_M = 13.0, 3.4        # crosses here, from door to door behind the walls
TROLLEY, VAN, PERSON = (1.0, 1.55), (1.8, 2.1), (0.5, 1.8)     # width and height
_NEAR_M = 0.12
_FLAT_M = 0.004             # height of flat things on the paving
# Offset to the right, height, width, height of a crate, tint.
_CRATES = ((0.0, 0.3, 0.96, 0.72, (1.0, 1.0, 1.0)), (-0.22, 1.02, 0.5, 0.53, (0.76, 0.72, 0.7)),
           (0.26, 1.02, 0.38, 0.36, (1.15, 1.22, 1.3)))
_ENCODER = ('-c:v libvpx-vp9 -b:v 0 -crf 38 -cpu-used 4 -pix_fmt yuv420p -g 90 -threads 1 '
            '-fflags +bitexact -flags:v +bitexact')
Knots = list[tuple[float, float]]


class Track:
    """Piecewise linear rate and its exact integral.

    Parameters
    ----------
    knots : list of (time, rate)
        The rate is linear between knots and keeps the end values outside.
    """

    def __init__(self, knots: Knots) -> None:
        self._t, self._v = (np.array(c, float) for c in zip(*knots, strict=True))
        steps = np.diff(self._t) * (self._v[1:] + self._v[:-1]) / 2
        self._x = np.concatenate(([0.0], np.cumsum(steps)))

    def rate(self, t: float) -> float:
        """Return the rate at a time."""
        return float(np.interp(t, self._t, self._v))

    def value(self, t: float) -> float:
        """Return the integral of the rate from the first knot to a time."""
        i = max(0, min(int(np.searchsorted(self._t, t, 'right')) - 1, len(self._t) - 1))
        return float(self._x[i] + (t - self._t[i]) * (self._v[i] + self.rate(t)) / 2)


def _move(start: float, distance: float, speed: float, ramp: float) -> Knots:
    """Return the knots of a move from rest to rest with a top speed and a ramp time."""
    v, cruise = math.copysign(speed, distance), abs(distance) / speed - ramp
    return [(start, 0.0), (start + ramp, v), (start + ramp + cruise, v),
            (start + 2 * ramp + cruise, 0.0)]


@dataclass(frozen=True)
class Obstacle:
    """The face of a thing that is turned to the robot: its middle, speed, width and height."""

    x: float
    z: float
    vx: float
    vz: float
    size: tuple[float, float]


@dataclass(frozen=True)
class Moment:
    """Where the robot and all things are at a time; trolleys of this cycle and the next two."""

    phase: str
    z: float
    speed: float
    yaw: float
    yaw_rate: float
    trolleys: tuple[Obstacle, ...]
    van: Obstacle
    person: Obstacle


class Timeline:
    """One cycle of encounters.

    Attributes
    ----------
    period_s : float
        Length of the cycle.
    phases : list of (time, name)
        When each phase starts.
    """

    def __init__(self) -> None:
        slow, fast = 1.2, 2.2
        robot: Knots = [(0.0, 0.0)]
        self.phases = [(0.0, 'still'), (2.0, 'obstacle_enters')]
        trolley = [(0.0, 0.0), *_move(2.0, -SIDE_X_M, 1.25, 0.5)]

        def go(seconds: float, speed: float, phase: str = '') -> float:
            if phase:
                self.phases.append((robot[-1][0], phase))
            robot.append((robot[-1][0] + seconds, speed))
            return robot[-1][0]

        go(4.2, 0.0)
        go(0.6, slow, 'approach')
        go((START_GAP_M - 0.3 * slow - BRAKE_TTC_S * slow) / slow, slow)
        go(0.8, 0.0, 'brake')
        go(0.8, 0.0, 'halt')
        go(0.4, -0.9, 'retreat')
        go(1.7, -0.9)
        trolley += _move(go(0.4, 0.0), SIDE_X_M, 1.25, 0.5)
        turn = go(2.0, 0.0, 'obstacle_leaves')
        yaw = [(turn, 0.0), (turn + 0.4, 0.26), (turn + 1.6, 0.26), (turn + 2.4, -0.26),
               (turn + 3.6, -0.26), (turn + 4.0, 0.0)]
        person = [(0.0, 0.0), *_move(go(4.2, 0.0, 'turn') + 0.9, 2 * PERSON_X_M, 1.5, 0.1)]
        go(0.6, 0.9, 'crossing')
        go(5.0, 0.9)
        end = go(0.8, fast, 'fast_approach')
        end = go((ADVANCE_M - Track(robot).value(end) - 0.55 * fast) / fast, fast)
        self._van_z = Track(robot).value(end) + BRAKE_TTC_S * fast
        go(1.1, 0.0, 'brake')
        leave = go(0.6, 0.0, 'halt')
        self.period_s = round(go(4.5, 0.0, 'obstacle_leaves'), 6)
        self._robot, self._yaw = Track(robot), Track(yaw)
        self._trolley, self._person = Track(trolley), Track(person)
        self._van = Track([(0.0, 0.0), *_move(leave, ADVANCE_M, 6.0, 1.5)])

    def at(self, t: float) -> Moment:
        """Return the moment at a time from the start of the cycle."""
        x = SIDE_X_M + self._trolley.value(t)
        return Moment(
            next(name for start, name in reversed(self.phases) if t >= start),
            self._robot.value(t), self._robot.rate(t), self._yaw.value(t), self._yaw.rate(t),
            (Obstacle(x, START_GAP_M, self._trolley.rate(t), 0.0, TROLLEY),
             *(Obstacle(SIDE_X_M, ahead * ADVANCE_M + START_GAP_M, 0.0, 0.0, TROLLEY)
               for ahead in (1, 2))),
            Obstacle(0.0, self._van_z + self._van.value(t), 0.0, self._van.rate(t), VAN),
            Obstacle(self._person.value(t) - PERSON_X_M, PERSON_Z_M, self._person.rate(t), 0.0,
                     PERSON))


# -- truth ---------------------------------------------------------------------------------

@dataclass(frozen=True)
class _Seen:
    """An obstacle relative to the camera."""

    distance_m: float
    lateral_m: float
    closing_m_s: float
    on_course: bool
    width_m: float
    box: tuple[float, ...]

    @property
    def rate(self) -> float:
        return self.closing_m_s / self.distance_m


def truth_of(moment: Moment) -> dict[str, object]:
    """Return the truth at a moment, see `vjepa_ros.sources.base.SourceFrame`.

    The obstacle is the first one on collision course; without one it is the nearest thing
    straight ahead, and the time to contact is inf. Its looming rate is closing speed over distance
    [1/s], ``clearance_m`` the free way straight ahead whether or not anything moves, ``box`` the
    image of its near face [px] (NaN when out of view).
    """
    things = [*moment.trolleys, moment.van]
    if abs(moment.person.x) < ALLEY_WIDTH_M / 2:    # not behind a wall
        things.append(moment.person)
    seen = sorted((s for s in (_see(thing, moment) for thing in things) if s is not None),
                  key=lambda s: s.distance_m)
    courses = [s for s in seen if s.on_course]
    ahead = [s for s in seen if abs(s.lateral_m) < ROBOT_HALF_WIDTH_M + s.width_m / 2]
    first = max(courses, key=lambda s: s.rate) if courses else ahead[0] if ahead else None
    contact_s = 1.0 / first.rate if first and courses else math.inf
    # A turned robot heads for a house.
    s = abs(math.sin(moment.yaw))
    wall = (ALLEY_WIDTH_M / 2 - ROBOT_HALF_WIDTH_M * math.cos(moment.yaw)) / s if s > 1e-9 \
        else math.inf
    return {
        'phase': moment.phase, 'time_to_contact_s': contact_s,
        'looming_rate': first.rate if first else 0.0,
        'distance_m': first.distance_m if first else math.inf,
        'speed': moment.speed, 'yaw_rate': moment.yaw_rate,
        'collision': contact_s <= COLLISION_HORIZON_S,
        'level': next((name for name, limit in LEVELS if contact_s <= limit), 'clear'),
        'clearance_m': min(wall, ahead[0].distance_m if ahead else math.inf),
        'box': first.box if first else (math.nan,) * 4}


def _see(thing: Obstacle, moment: Moment) -> _Seen | None:
    """Return an obstacle as the camera sees it, None when it is behind or too far away."""
    c, s = math.cos(moment.yaw), math.sin(moment.yaw)
    turn = np.array([[c, -s], [s, c]])
    x, z = turn @ (thing.x, thing.z - moment.z)
    if not 0 < z < REACH_M:
        return None
    vx, vz = turn @ (thing.vx, thing.vz) - (0.0, moment.speed)
    width, height = thing.size
    on_course = vz < -1e-9 and abs(x - vx * z / vz) < ROBOT_HALF_WIDTH_M + width / 2
    sides = [turn @ (thing.x + dx * width / 2, thing.z - moment.z) for dx in (-1, 1)]
    return _Seen(float(z), float(x), float(0.0 - vz), bool(on_course), width,
                 _box(sides, height))


def _box(sides: list[np.ndarray], height: float) -> tuple[float, ...]:
    """Return x0, y0, x1, y1 [px] of an upright face between two points (x, z), NaN outside."""
    a, b = sides
    kept = [p for p in sides if p[1] >= _NEAR_M]
    if len(kept) == 1:       # cut off where it comes too near
        kept.append(a + (b - a) * (_NEAR_M - a[1]) / (b[1] - a[1]))
    nothing = (math.nan,) * 4
    if not kept:
        return nothing
    focal = FOCAL_PER_WIDTH * SIZE[0]
    x = [focal * p[0] / p[1] + (SIZE[0] - 1) / 2 for p in kept]
    y = [focal * down / p[1] + (SIZE[1] - 1) / 2 for p in kept
         for down in (CAMERA_HEIGHT_M - height, CAMERA_HEIGHT_M)]
    low = np.maximum((min(x), min(y)), -0.5)
    high = np.minimum((max(x), max(y)), np.array(SIZE) - 0.5)
    return (*low.tolist(), *high.tolist()) if (high > low).all() else nothing


# -- pictures ---------------------------------------------------------------------------------

class _Shapes:
    """Shapes as they are put down."""

    def __init__(self) -> None:
        self.kinds: list[int] = []
        self.rows: list[tuple[object, ...]] = []

    def box(self, texture: str, low: tuple[float, float, float], size: tuple[float, float, float],
            tile_m: float = 0.0, tint: tuple[float, ...] = (1.0, 1.0, 1.0)) -> None:
        """Add a box by the middle of its lower front edge (x, height, z) and its size."""
        half = tuple(v / 2 for v in size)
        centre = (low[0], -low[1] - half[1], low[2] + half[2])
        self.kinds.append(BOX)
        self.rows.append((centre, half, demo_textures.NAMES.index(texture), tile_m, tint))


def scene(moment: Moment, exposure: float = 1.0, size: tuple[int, int] = SIZE) -> Scenes:
    """Return a moment as the renderer takes it, one frame of ``size``, without noise."""
    shapes, camera = _Shapes(), moment.z
    middle = round((camera + 93.6) / demo_textures.FRONT_M) * demo_textures.FRONT_M
    for side, front in ((-1, 'left'), (1, 'right')):
        shapes.box(front, (side * (ALLEY_WIDTH_M + 0.4) / 2, 0.0, middle - 117),
                   (0.4, ROOF_M, 234), demo_textures.FRONT_M)
    first = math.floor(camera / 9) * 9 + 3.4
    for number in (0, 1):
        shapes.box('drain', (0.55, 0.0, first + 9 * number), (0.6, _FLAT_M, 0.6))
    for thing in moment.trolleys:
        if -1.1 < thing.z - camera < REACH_M:
            _trolley(shapes, thing.x, thing.z)
    z = moment.van.z
    shapes.box('van', (0.0, 0.34, z), (VAN[0], VAN[1] - 0.34, 4.2))
    for side in (-0.73, 0.73):
        shapes.box('tyre', (side, 0.0, z + 0.55), (0.22, 0.34, 0.6))
    x, (width, height) = moment.person.x, demo_textures.CARD_M
    if abs(x) < ALLEY_WIDTH_M / 2 + 0.5 and moment.person.z > camera:
        step = round(x / demo_textures.STRIDE_M * demo_textures.WALK_STEPS)
        shapes.kinds.append(CARD)
        shapes.rows.append(((x, -height / 2, moment.person.z), (width / 2, height / 2, 0.01),
                            len(demo_textures.NAMES) + step % demo_textures.WALK_STEPS, 0.0,
                            (1.0, 1.0, 1.0)))
    return _filmed(shapes, moment, exposure, size)


def _trolley(shapes: _Shapes, x: float, z: float) -> None:
    for side in (-0.38, 0.38):
        shapes.box('tyre', (x + side, 0.0, z), (0.13, 0.1, 1.1))
    shapes.box('trolley', (x, 0.1, z), (TROLLEY[0], 0.2, 1.1))
    for offset, low, wide, high, tint in _CRATES:
        shapes.box('crate', (x + offset, low, z), (wide, high, 1.1), tint=tint)


def _filmed(shapes: _Shapes, moment: Moment, exposure: float, size: tuple[int, int]) -> Scenes:
    centre, half, texture, tile, tint = zip(*shapes.rows, strict=True)
    count, names = len(texture), demo_textures.NAMES
    c, s = math.cos(moment.yaw), math.sin(moment.yaw)
    haze, focal = (0.87, 0.89, 0.90), FOCAL_PER_WIDTH * size[0]
    sun = np.array((0.42, -0.80, -0.43))     # from the right, over the roofs, from behind

    def row(*values: object) -> torch.Tensor:
        return torch.tensor([values], dtype=torch.float32)

    def one(value: float) -> torch.Tensor:
        return torch.tensor([value], dtype=torch.float32)

    return Scenes(
        interval_s=one(1.0), distortion=torch.zeros(1, 2),
        intrinsics=row(focal, focal, (size[0] - 1) / 2, (size[1] - 1) / 2),
        camera_position=row((0.0, -CAMERA_HEIGHT_M, moment.z)),
        camera_rotation=row(((c, 0.0, -s), (0.0, 1.0, 0.0), (s, 0.0, c))),
        camera_velocity=row(0.0, 0.0, moment.speed), camera_spin=row(0.0, moment.yaw_rate, 0.0),
        kinds=tuple(shapes.kinds), alive=torch.ones(1, count, dtype=torch.bool),
        position=row(centre), yaw=torch.zeros(1, 1, count), half=row(*half),
        velocity=torch.zeros(1, count, 3), yaw_rate=torch.zeros(1, count),
        texture=torch.tensor([texture]), tile_m=row(*tile), tint=row(*tint),
        ground_texture=torch.tensor([names.index('paving')]),
        ground_tile_m=one(demo_textures.PAVING_M), ground_tint=row(1.0, 0.985, 0.95),
        sky_top=row(0.25, 0.52, 0.86), sky_horizon=row(*haze),
        sky_texture=torch.tensor([names.index('clouds')]),
        sun_direction=row(*(sun / np.linalg.norm(sun)).tolist()), sun=one(1.15),
        ambient=one(0.42), shadow=one(0.78), fog_per_m=one(0.009), fog_color=row(*haze),
        exposure=row(exposure), white_balance=row(1.04, 1.0, 0.95), gamma=one(0.5),
        vignette=one(0.12), blur_px=one(0.0), shutter=one(0.0), read_noise=one(0.0),
        shot_noise=one(0.0), grey=torch.zeros(1, dtype=torch.bool), jpeg=one(0.0),
        seed=torch.zeros(1, dtype=torch.int64))


def picture(moment: Moment, exposure: float, bank: TextureBank) -> np.ndarray:
    """Render a moment, (H, W, 3) uint8 RGB of `SIZE`."""
    large = (SUPERSAMPLING * SIZE[0], SUPERSAMPLING * SIZE[1])
    rgb = render(scene(moment, exposure, large), bank, large)[0, 0].numpy()
    return cv2.resize(rgb, SIZE, interpolation=cv2.INTER_AREA)


def main(argv: Sequence[str] | None = None) -> int:
    """Write truth, pictures and, when ffmpeg is installed, the video."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('folder', type=Path, help='takes the files')
    folder = parser.parse_args(argv).folder
    timeline, bank = Timeline(), demo_textures.bank()
    frames = folder / 'approach'
    frames.mkdir(parents=True, exist_ok=True)
    times = np.arange(math.floor(timeline.period_s * RATE_HZ)) / RATE_HZ
    rows = [truth_of(timeline.at(t)) for t in times]
    focal = FOCAL_PER_WIDTH * SIZE[0]
    known = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    known['intrinsics'] = np.array((focal, focal, (SIZE[0] - 1) / 2, (SIZE[1] - 1) / 2))
    np.savez_compressed(folder / 'approach.npz', allow_pickle=False, **known)
    for number, t in enumerate(times):
        exposure = 1 + 0.035 * math.sin(10 * math.pi * t / timeline.period_s)
        bgr = cv2.cvtColor(picture(timeline.at(t), exposure, bank), cv2.COLOR_RGB2BGR)
        cv2.imwrite(str(frames / f'{number:04d}.png'), bgr)
    if shutil.which('ffmpeg'):
        subprocess.run(['ffmpeg', '-y', '-v', 'error', '-framerate', f'{RATE_HZ:g}', '-i',
                        str(frames / '%04d.png'), *_ENCODER.split(),
                        str(folder / 'approach.webm')], check=True)
    return 0


if __name__ == '__main__':
    raise SystemExit(main())
