# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Build the alley and what stands in it as a scene of boxes and cards, moment by moment."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.lab.world.demo_scene import alley_appearance, pedestrian
from vjepa_ros.lab.world.demo_scene.alley_appearance import FRONT_M, PAVING_M
from vjepa_ros.lab.world.demo_scene.timeline import ADVANCE_M, PERSON_Z_M, Moment
from vjepa_ros.lab.world.scenes.scene import BOX, CARD, Scenes
from vjepa_ros.lab.world.textures.atlas import pack
from vjepa_ros.lab.world.textures.bank import TextureBank
from vjepa_ros.lab.world.textures.cards import SCENERY
from vjepa_ros.lab.world.textures.noise import to_bytes

WIDTH_M, ROOF_M, CAMERA_HEIGHT_M = 5.2, 4.4, 0.7
_FLAT_M = 0.004               # how high flat things lie on the paving
REACH_M = 44.0               # farther things drown in the haze
TROLLEY_SIZE = (1.0, 1.55)   # width and height of what the robot meets [m]
VAN_SIZE = (1.8, 2.1)
PERSON_SIZE = (0.5, 1.8)
_TROLLEY_DEPTH_M, _VAN_DEPTH_M = 1.1, 4.2
_WALL_M, _WALL_HALF_M = 0.4, 117.0    # thickness and half length
_WHEELS_SEEN_M = 14.0                 # farther wheels are a pixel or two
_DRAINS_M = 9.0
# Offset to the right, height, width, height of the crate itself [m], tint.
_CRATES = ((0.0, 0.3, 0.96, 0.72, (1.0, 1.0, 1.0)), (-0.22, 1.02, 0.5, 0.53, (0.76, 0.72, 0.7)),
           (0.26, 1.02, 0.38, 0.36, (1.15, 1.22, 1.3)))
_SUN = (0.42, -0.80, -0.43)           # from the right, over the roofs, from behind the camera

# Names of the textures, in the order of the bank.
_NAMES = ('left', 'right', 'paving', 'drain', 'crate', 'trolley', 'van', 'tyre', 'clouds')


@lru_cache(maxsize=3)
def alley_bank(seed: int, size: int) -> TextureBank:
    """The textures of the alley, ``size`` texels a side; the walk's pictures come last."""
    # Where the door of a front is in its repeat, so that the person walks from door to door.
    door = (PERSON_Z_M + FRONT_M / 2) % FRONT_M
    painters = (
        alley_appearance.house_front((168, 96, 72), (176, 166, 152), door),
        alley_appearance.house_front((196, 174, 140), (176, 168, 154), FRONT_M - door),
        alley_appearance.paving, alley_appearance.drain, alley_appearance.crate,
        alley_appearance.trolley, alley_appearance.van_rear, alley_appearance.tyre,
        SCENERY['clouds'][0])
    pictures = [to_bytes(paint(np.random.default_rng((seed, number)), size))
                for number, paint in enumerate(painters)]
    people = pedestrian.walk(np.random.default_rng((seed, len(painters))), size)
    groups = {name: (number,) for number, name in enumerate(_NAMES)}
    walk = tuple(range(len(pictures), len(pictures) + len(people)))
    return TextureBank(pack(pictures + [to_bytes(p) for p in people]),
                       {**groups, 'walker': walk}, (walk,))


@dataclass
class _Shapes:
    """Shapes as they are put down: kind, centre, half size, texture, repeat, velocity, tint."""

    rows: list[tuple[int, tuple[float, ...], tuple[float, ...], int, float,
                     tuple[float, ...], tuple[float, ...]]]
    alive: list[bool]

    def box(self, low: tuple[float, float, float], size: tuple[float, float, float],
            texture: str, tile_m: float = 0.0, velocity: tuple[float, float] = (0.0, 0.0),
            alive: bool = True, tint: tuple[float, ...] = (1.0, 1.0, 1.0)) -> None:
        """A box whose middle of the lower front edge is ``low`` (x, height, z) [m]; ``size`` is
        its width, height and depth, ``velocity`` along x and z."""
        half = tuple(v / 2 for v in size)
        centre = (low[0], -low[1] - half[1], low[2] + half[2])
        self.rows.append((BOX, centre, half, _NAMES.index(texture), tile_m,
                          (velocity[0], 0.0, velocity[1]), tint))
        self.alive.append(alive)


class Alley:
    """The scene for one camera.

    Parameters
    ----------
    size : (int, int)
        Image width and height in pixels.
    focal : float
        Focal length in pixels.
    seed : int
        Paints other bricks, slabs, crates and clouds.
    noise : float
        Standard deviation of the sensor noise in grey levels.
    """

    def __init__(self, size: tuple[int, int], focal: float, seed: int, noise: float):
        # Small images need no fine textures.
        self.bank = alley_bank(seed, 512 if focal > 300 else 256)
        self._lens = (focal, focal, (size[0] - 1) / 2, (size[1] - 1) / 2)
        self._noise = noise

    def scene(self, moment: Moment, exposure: float, grain: int) -> Scenes:
        """The scene at a moment, one frame.

        Parameters
        ----------
        moment : Moment
            Where everything is.
        exposure : float
            Factor on all light.
        grain : int
            Chooses the pattern of the sensor noise.
        """
        # The alley repeats, so all is told from near the camera, which keeps float32 exact.
        base = math.floor(moment.robot_z / ADVANCE_M) * ADVANCE_M
        camera = moment.robot_z - base
        shapes = _Shapes([], [])
        self._houses(shapes, camera)
        for x, z, speed in moment.trolley:
            self._trolley(shapes, x, z - base, speed, camera)
        self._van(shapes, moment.van_z - base, moment.van_v, camera)
        x, z, speed = moment.person
        self._person(shapes, x, z - base, speed, camera)
        return self._filmed(shapes, moment, camera, exposure, grain)

    def _houses(self, shapes: _Shapes, camera: float) -> None:
        # Whole repeats of the fronts, so that they do not move with the camera.
        middle = round((camera + 0.8 * _WALL_HALF_M) / FRONT_M) * FRONT_M
        begin, length = middle - _WALL_HALF_M, 2 * _WALL_HALF_M
        for side, front in ((-1, 'left'), (1, 'right')):
            x = side * (WIDTH_M + _WALL_M) / 2
            shapes.box((x, 0.0, begin), (_WALL_M, ROOF_M, length), front, FRONT_M)
        first = math.floor(camera / _DRAINS_M) * _DRAINS_M + 3.4
        for number in (0, 1):
            shapes.box((0.55, 0.0, first + number * _DRAINS_M), (0.6, _FLAT_M, 0.6), 'drain')

    def _trolley(self, shapes: _Shapes, x: float, z: float, speed: float, camera: float) -> None:
        there = camera - z < _TROLLEY_DEPTH_M and z - camera < REACH_M
        near = there and z - camera < _WHEELS_SEEN_M
        width, moving = TROLLEY_SIZE[0], (speed, 0.0)
        for side in (-1, 1):
            shapes.box((x + side * 0.38, 0.0, z), (0.13, 0.1, _TROLLEY_DEPTH_M), 'tyre',
                       velocity=moving, alive=near)
        shapes.box((x, 0.1, z), (width, 0.2, _TROLLEY_DEPTH_M), 'trolley', velocity=moving,
                   alive=there)
        for offset, low, wide, high, tint in _CRATES:
            shapes.box((x + offset, low, z), (wide, high, _TROLLEY_DEPTH_M), 'crate',
                       velocity=moving, alive=there, tint=tint)

    def _van(self, shapes: _Shapes, z: float, speed: float, camera: float) -> None:
        there = camera - z < _VAN_DEPTH_M and z - camera < REACH_M
        near = there and z - camera < _WHEELS_SEEN_M
        width, height = VAN_SIZE
        moving, floor = (0.0, speed), 0.34
        shapes.box((0.0, floor, z), (width, height - floor, _VAN_DEPTH_M), 'van',
                   velocity=moving, alive=there)
        for side in (-1, 1):
            shapes.box((side * 0.73, 0.0, z + 0.55), (0.22, floor, 0.6), 'tyre',
                       velocity=moving, alive=near)

    def _person(self, shapes: _Shapes, x: float, z: float, speed: float, camera: float) -> None:
        width, height = pedestrian.CARD_M
        step = round(x / pedestrian.STRIDE_M * pedestrian.WALK_STEPS) % pedestrian.WALK_STEPS
        shapes.rows.append((CARD, (x, -height / 2, z), (width / 2, height / 2, 0.01),
                            len(_NAMES) + step, 0.0, (speed, 0.0, 0.0), (1.0, 1.0, 1.0)))
        shapes.alive.append(abs(x) < WIDTH_M / 2 + 0.5 and 0 < z - camera < REACH_M)

    def _filmed(self, shapes: _Shapes, moment: Moment, camera: float, exposure: float,
                grain: int) -> Scenes:
        kinds, centre, half, texture, tile, velocity, tint = zip(*shapes.rows, strict=True)
        count = len(kinds)
        c, s = math.cos(moment.yaw), math.sin(moment.yaw)
        haze = (0.87, 0.89, 0.90)

        def row(*values: object) -> Tensor:
            return torch.tensor([values], dtype=torch.float32)

        def one(value: float) -> Tensor:
            return torch.tensor([value], dtype=torch.float32)

        def number(name: str) -> Tensor:
            return torch.tensor([_NAMES.index(name)])

        sun = np.array(_SUN) / np.linalg.norm(_SUN)
        return Scenes(
            interval_s=one(1.0), intrinsics=row(*self._lens), distortion=torch.zeros(1, 2),
            camera_position=row((0.0, -CAMERA_HEIGHT_M, camera)),
            camera_rotation=row(((c, 0.0, -s), (0.0, 1.0, 0.0), (s, 0.0, c))),
            camera_velocity=row(0.0, 0.0, moment.robot_v),
            camera_spin=row(0.0, moment.yaw_rate, 0.0), kinds=kinds,
            alive=torch.tensor([shapes.alive]), position=row(centre),
            yaw=torch.zeros(1, 1, count), half=row(*half), velocity=row(*velocity),
            yaw_rate=torch.zeros(1, count), texture=torch.tensor([texture]), tile_m=row(*tile),
            tint=row(*tint), ground_texture=number('paving'),
            ground_tile_m=one(PAVING_M), ground_tint=row(1.0, 0.985, 0.95),
            sky_top=row(0.25, 0.52, 0.86), sky_horizon=row(*haze),
            sky_texture=number('clouds'), sun_direction=row(*sun.tolist()), sun=one(1.15),
            ambient=one(0.42), shadow=one(0.78), fog_per_m=one(0.009), fog_color=row(*haze),
            exposure=row(exposure), white_balance=row(1.04, 1.0, 0.95), gamma=one(0.5),
            vignette=one(0.12), blur_px=one(0.0), shutter=one(0.0),
            read_noise=one(self._noise), shot_noise=one(0.0),
            grey=torch.zeros(1, dtype=torch.bool), jpeg=one(0.0),
            seed=torch.tensor([grain]))
