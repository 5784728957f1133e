# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What a batch of scenes is made of: the tensors between sampler and renderer, and its dice.

World axes: x right, y down, z ahead; the ground is the plane y = 0. Camera axes: x right, y down,
z along the optical axis. B scenes, T frames (the newest last), K shapes, float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

BOX, CYLINDER, ELLIPSOID, CARD, COVERING = 0, 1, 2, 3, 4   # kinds of shapes
Number = float | Tensor
GROUND, SKY = -1, -2                          # what a pixel shows when it is no shape


@dataclass(frozen=True)
class Robot:
    """The robot's volume [m]; the camera sits at the middle of its front."""

    half_width: float = 0.3  # to both sides
    height: float = 0.5  # of its top, or 0.1 above the camera where that is higher
    length: float = 0.6  # behind the camera
    clearance: float = 0.05  # of its bottom above the ground


ROBOT = Robot()


@dataclass(frozen=True)
class Shapes:
    # Kind of each of the K shapes, the same in all scenes: what is computed is then known before
    # anything runs. A cylinder stands upright; a card is an upright rectangle in its own x-y
    # plane whose texture may have holes; a covering is the top of a box that is sunk into the
    # ground. Coverings come last.
    kinds: tuple[int, ...]
    alive: Tensor  # (B, K) bool, whether the shape exists
    position: Tensor  # (B, T, K, 3) centre [m]
    yaw: Tensor  # (B, T, K) [rad]; the own z axis is (sin, 0, cos) in the world
    half: Tensor  # (B, K, 3) half sizes along the own axes, or half axes [m]
    velocity: Tensor  # (B, K, 3) at the newest frame, world axes [m/s]
    yaw_rate: Tensor  # (B, K) at the newest frame [rad/s]
    texture: Tensor  # (B, K), or (B, T, K) where it changes, int64 index into the texture bank
    tile_m: Tensor  # (B, K) side of one repeat of the texture [m]; 0 stretches it over the face
    tint: Tensor  # (B, K, 3) factor on the texture, 0..2


Look = tuple[Tensor, Tensor, Tensor]     # texture, tile_m and tint


def still(kinds: tuple[int, ...], alive: Tensor, position: Tensor, yaw: Tensor, half: Tensor,
          look: Look) -> Shapes:
    """Shapes that never move: position and half (B, K, 3), the others as `Shapes` has them."""
    texture, tile, tint = look
    return Shapes(kinds, alive, position[:, None], yaw[:, None], half,
                  torch.zeros_like(position), torch.zeros_like(yaw), texture[:, None], tile, tint)


def join(parts: Sequence[Shapes], frames: int) -> Shapes:
    """Return all shapes of all parts; those without a time axis stand still over the frames."""
    moving = ('position', 'yaw', 'texture')

    def along(name: str) -> Tensor:
        values = [getattr(part, name) for part in parts]
        if name in moving:
            return torch.cat([v.expand(-1, frames, *v.shape[2:]) for v in values], 2)
        return torch.cat(values, 1)

    kinds = tuple(kind for part in parts for kind in part.kinds)
    return Shapes(kinds, **{f.name: along(f.name) for f in fields(Shapes) if f.name != 'kinds'})


@dataclass(frozen=True)
class Capture:
    """How B moving cameras take T frames, row by row; the cameras of the rough world have it."""

    velocity: Tensor  # (B, T, 3) of the camera at each frame, world axes [m/s]
    spin: Tensor  # (B, T, 3) right-handed about the camera's axes [rad/s]
    exposure_s: Tensor  # (B,) time for which a row gathers light [s]: blur by motion
    # (B,) time from the first row to the last [s], 0 for all rows at once. A row shows what the
    # camera sees that stands as at the stamp and is turned as at the time of the row; bodies are
    # where they are at the stamp, the time of the middle row.
    readout_s: Tensor
    bend: Tensor  # (B,) bend of a wide lens, 0.05..1, see `lens.bent`; 1 for a straight one
    shown: Tensor  # (B,) share of the rows that show the view; bars fill the others
    glare: Tensor  # (B,) part of the light above white that spreads around it, 0..0.5
    pattern: Tensor  # (B,) noise of pixels, the same in all frames [grey levels]
    stripes: Tensor  # (B,) noise of columns, the same in all frames [grey levels]
    banding: Tensor  # (B,) noise of rows, new in each frame [grey levels]

    @property
    def turn(self) -> Tensor:
        """Turn of the camera from the first row to the last [rad], (B, T, 3) as `spin`."""
        return self.spin * self.readout_s[:, None, None]


@dataclass(frozen=True)
class Scenes(Shapes):
    interval_s: Tensor  # (B,) time between frames [s]
    intrinsics: Tensor  # (B, 4) fx, fy, cx, cy in pixels of the size that is rendered
    distortion: Tensor  # (B, 2) k1, k2 of the radial (Brown) model
    camera_position: Tensor  # (B, T, 3) [m]
    camera_rotation: Tensor  # (B, T, 3, 3) world to camera: its right, down and ahead
    camera_velocity: Tensor  # (B, 3) at the newest frame, world axes [m/s]
    camera_spin: Tensor  # (B, 3) there, right-handed about the camera's axes [rad/s]
    ground_texture: Tensor  # (B,)
    ground_tile_m: Tensor  # (B,)
    ground_tint: Tensor  # (B, 3)
    sky_top: Tensor  # (B, 3) 0..1
    sky_horizon: Tensor  # (B, 3) 0..1
    sky_texture: Tensor  # (B,) int64, clouds mixed into the sky; -1 for none
    sun_direction: Tensor  # (B, 3) unit vector towards the light, y negative
    sun: Tensor  # (B,) strength; a lit face gets ambient + sun * cos(angle)
    ambient: Tensor  # (B,)
    shadow: Tensor  # (B,) 0..1 how dark cast shadows on the ground are
    fog_per_m: Tensor  # (B,)
    fog_color: Tensor  # (B, 3)
    exposure: Tensor  # (B, T) factor on all light, frame by frame
    white_balance: Tensor  # (B, 3)
    gamma: Tensor  # (B,) exponent on the light; 0.5 shows a texture lit with 1 as it is
    vignette: Tensor  # (B,) loss of light in the corners, 0..0.8
    blur_px: Tensor  # (B,) standard deviation of the lens blur [px]
    shutter: Tensor  # (B,) part of the interval the shutter is open, 0..0.8: blur by motion
    read_noise: Tensor  # (B,) standard deviation in the dark [grey levels]
    shot_noise: Tensor  # (B,) and at full light in addition
    grey: Tensor  # (B,) bool, camera without colour
    jpeg: Tensor  # (B,) strength of block compression, 0 none .. 1 strong.
    seed: Tensor  # (B,) int64, decides the noise
    capture: Capture | None = None  # None: rows at once, a straight lens, blur as by `shutter`

    def map(self, change: Callable[[Tensor], Tensor]) -> Scenes:
        """Return the scenes with every tensor changed, such as a part of the batch."""
        taken = self.capture and replace(
            self.capture, **{name: change(v) for name, v in vars(self.capture).items()})
        return replace(self, capture=taken, **{
            f.name: change(getattr(self, f.name)) for f in fields(self)
            if f.name not in ('kinds', 'capture')})

    def __len__(self) -> int:
        return self.interval_s.shape[0]


class SceneRng:
    """Random draws for ``count`` scenes; every method returns (count, *shape) on the CPU."""

    def __init__(self, seed: int, count: int) -> None:
        self.count = count
        self.generator = torch.Generator().manual_seed(seed)

    def unit(self, *shape: int) -> Tensor:
        return torch.rand(self.count, *shape, generator=self.generator)

    def uniform(self, low: Number, high: Number, *shape: int) -> Tensor:
        return low + (high - low) * self.unit(*shape)

    def log(self, low: Number, high: Number, *shape: int) -> Tensor:
        """Draw evenly in the logarithm between two positive bounds."""
        low, high = (torch.as_tensor(v, dtype=torch.float32) for v in (low, high))
        return low * (high / low) ** self.unit(*shape)

    def normal(self, deviation: Number, *shape: int) -> Tensor:
        return deviation * torch.randn(self.count, *shape, generator=self.generator)

    def chance(self, probability: Number, *shape: int) -> Tensor:
        return self.unit(*shape) < probability

    def sign(self, *shape: int) -> Tensor:
        return torch.where(self.unit(*shape) < 0.5, -1.0, 1.0)

    def pick(self, weights: Tensor, *shape: int) -> Tensor:
        """Draw an index, int64, in proportion to weights of shape (n,) or (count, ..., n)."""
        edges = weights.cumsum(-1)
        drawn = self.unit(*shape) * edges[..., -1]
        return (drawn.unsqueeze(-1) >= edges[..., :-1]).sum(-1)
