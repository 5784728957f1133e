# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Small scenes for the tests of the renderer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch

from vjepa_ros.lab.world.scenes.scene import (
    BOX,
    CARD,
    CYLINDER,
    Capture,
    ELLIPSOID,
    Scenes,
    rotation,
)
from vjepa_ros.lab.world.textures.bank import TextureBank, pack

Vector = tuple[float, float, float]
SIZE = (160, 120)
# Numbers of the textures in `plain_bank`.
WHITE, NOISY, HOLED = range(3)


@dataclass(frozen=True)
class Thing:
    """One shape that moves evenly; everything as at the newest frame."""

    kind: int
    at: Vector
    half: Vector
    velocity: Vector = (0.0, 0.0, 0.0)
    yaw: float = 0.0
    yaw_rate: float = 0.0
    texture: int = NOISY
    tile_m: float = 0.0


@dataclass(frozen=True)
class Camera:
    """A camera that moves and turns evenly; as at the newest frame."""

    at: Vector = (0.0, -0.6, 0.0)
    velocity: Vector = (0.0, 0.0, 0.0)
    spin: Vector = (0.0, 0.0, 0.0)
    yaw: float = 0.0
    pitch: float = 0.0
    roll: float = 0.0
    field: float = 70.0
    distortion: tuple[float, float] = (0.0, 0.0)


SAMPLE = (
    Thing(BOX, (-0.8, -0.5, 3.0), (0.4, 0.5, 0.3), (0.2, 0.0, -0.5), yaw=0.5, yaw_rate=0.4),
    Thing(CYLINDER, (0.9, -0.6, 4.0), (0.3, 0.6, 0.3), (-0.3, 0.0, 0.0)),
    Thing(ELLIPSOID, (0.1, -0.5, 2.4), (0.3, 0.4, 0.2), (0.0, 0.0, -0.3), yaw=0.3, yaw_rate=-0.7),
    Thing(CARD, (0.3, -0.9, 6.0), (1.2, 0.9, 0.001), (0.4, 0.0, 0.2), yaw=0.2, texture=HOLED),
)


@lru_cache(maxsize=1)
def plain_bank() -> TextureBank:
    """White, noise, a solid frame around a hole."""
    size = 64
    rng = np.random.default_rng(1)
    coarse = np.kron(rng.integers(30, 226, (16, 16)), np.ones((4, 4)))
    smooth = sum(np.roll(coarse, (y, x), (0, 1)) for y in range(3) for x in range(3)) / 9
    solid = np.full((size, size), 255)
    images = [np.uint8(np.dstack((grey, grey, grey, solid)))
              for grey in (solid, smooth, np.full((size, size), 200))]
    images[HOLED][16:48, 16:48, 3] = 0
    return TextureBank(pack(images), {}, ())


def look(camera: Camera) -> torch.Tensor:
    """World to camera at the newest frame."""
    return rotation(*(torch.tensor(v) for v in (camera.yaw, camera.pitch, camera.roll)))


def spun(rotation: torch.Tensor, spin: Vector, seconds: float) -> torch.Tensor:
    """World to camera after turning about the camera's own axes."""
    x, y, z = (seconds * v for v in spin)
    generator = torch.tensor([[0, -z, y], [z, 0, -x], [-y, x, 0]], dtype=torch.float64)
    return (torch.linalg.matrix_exp(generator).T @ rotation.double()).float()


def scene(things: Sequence[Thing] = SAMPLE, camera: Camera = Camera(), frames: int = 2,
          interval_s: float = 0.1, size: tuple[int, int] = SIZE, **changes: object) -> Scenes:
    """One scene with a perfect sensor; fields of Scenes replaced by ``changes``."""
    count = len(things)
    times = [(n - frames + 1) * interval_s for n in range(frames)]
    moments = torch.tensor(times)[:, None]
    focal = size[0] / 2 / math.tan(math.radians(camera.field / 2))
    start = look(camera)

    def rows(values: list[Vector]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float32).reshape(len(values), 3)

    velocity = rows([t.velocity for t in things])
    ones, white = torch.ones(1), torch.ones(1, 3)
    made = Scenes(
        interval_s=ones * interval_s,
        intrinsics=torch.tensor([[focal, focal, (size[0] - 1) / 2, (size[1] - 1) / 2]]),
        distortion=torch.tensor([camera.distortion]),
        camera_position=(torch.tensor(camera.at) + moments * torch.tensor(camera.velocity))[None],
        camera_rotation=torch.stack([spun(start, camera.spin, t) for t in times])[None],
        camera_velocity=torch.tensor([camera.velocity]), camera_spin=torch.tensor([camera.spin]),
        kinds=tuple(t.kind for t in things), alive=torch.ones(1, count, dtype=torch.bool),
        position=(rows([t.at for t in things]) + moments[..., None] * velocity)[None],
        yaw=torch.tensor([[t.yaw + s * t.yaw_rate for t in things] for s in times])[None],
        half=rows([t.half for t in things])[None], velocity=velocity[None],
        yaw_rate=torch.tensor([[t.yaw_rate for t in things]]),
        texture=torch.tensor([[t.texture for t in things]], dtype=torch.int64).view(1, count),
        tile_m=torch.tensor([[t.tile_m for t in things]]),
        tint=torch.ones(1, count, 3), ground_texture=torch.tensor([NOISY]),
        ground_tile_m=2 * ones, ground_tint=white, sky_top=white * 0.6, sky_horizon=white * 0.8,
        sky_texture=torch.tensor([-1]), sun_direction=torch.tensor([[0.0, -0.8, -0.6]]),
        sun=0.6 * ones, ambient=0.4 * ones, shadow=0 * ones, fog_per_m=0 * ones,
        fog_color=white * 0.7, exposure=torch.ones(1, frames), white_balance=white,
        gamma=0.5 * ones, vignette=0 * ones, blur_px=0 * ones, shutter=0 * ones,
        read_noise=0 * ones, shot_noise=0 * ones, grey=torch.tensor([False]), jpeg=0 * ones,
        seed=torch.tensor([7]))
    return replace(made, **changes)


def one(value: float) -> torch.Tensor:
    return torch.full((1,), value)


def taken(scenes: Scenes, **changes: object) -> Scenes:
    """The scenes with a capture without faults, changed."""
    frames = scenes.exposure.shape[1]
    capture = Capture(
        velocity=scenes.camera_velocity[:, None].expand(-1, frames, -1),
        spin=scenes.camera_spin[:, None].expand(-1, frames, -1), bend=one(1.0), shown=one(1.0),
        **{name: one(0.0) for name in ('exposure_s', 'readout_s', 'glare', 'pattern', 'stripes',
                                       'banding')})
    return replace(scenes, capture=replace(capture, **changes))


def project(points: torch.Tensor, intrinsics: torch.Tensor, distortion: torch.Tensor,
            bend: torch.Tensor | None = None) -> torch.Tensor:
    """Pixels (..., 2) of points (..., 3) in camera axes with z > 0."""
    x, y = points[..., 0] / points[..., 2], points[..., 1] / points[..., 2]
    if bend is not None:
        r = torch.sqrt(x * x + y * y).clamp(min=1e-6)
        inward = torch.tan(bend * torch.atan(r)) / (bend * r)
        x, y = x * inward, y * inward
    r2 = x * x + y * y
    stretch = 1 + r2 * (distortion[..., 0] + distortion[..., 1] * r2)
    return torch.stack((intrinsics[..., 0] * x * stretch + intrinsics[..., 2],
                        intrinsics[..., 1] * y * stretch + intrinsics[..., 3]), -1)
