# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What a batch of scenes is made of: the tensors between sampler and renderer, and its dice.

World axes: x right, y down, z ahead; the ground is the plane y = 0 and a point h metres above
it has y = -h. Camera axes: x right, y down, z along the optical axis. B scenes, T frames (the
newest last), K shapes. All floating tensors are float32 on one device.
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
    """The robot's volume [m]; the camera sits at the middle of its front.

    It reaches from ``clearance`` above the ground to ``height`` (at least 0.1 above the
    camera), ``half_width`` to both sides and ``length`` behind the camera.
    """

    half_width: float = 0.3
    height: float = 0.5
    length: float = 0.6
    clearance: float = 0.05


ROBOT = Robot()


@dataclass(frozen=True)
class Shapes:
    """K shapes in each of B scenes."""

    # Kind of each of the K shapes, the same in all scenes: what is computed is then known before
    # anything runs. A box has half sizes along its own x, y, z; a cylinder stands upright with
    # radius ``half[0]`` and half height ``half[1]``; an ellipsoid has half axes; a card is an
    # upright rectangle in its own x-y plane with a texture that may have holes; a covering is
    # the top of a box that is sunk into the ground, y = 0. Coverings come last.
    kinds: tuple[int, ...]
    alive: Tensor  # (B, K) bool, whether the shape exists
    position: Tensor  # (B, T, K, 3) centre [m]
    # (B, T, K) rotation about the vertical [rad]: the own x axis is (cos, 0, -sin) and the own z
    # axis (sin, 0, cos) in the world
    yaw: Tensor
    half: Tensor  # (B, K, 3) half sizes [m]
    # velocity, yaw_rate: (B, K, 3), (B, K) at the newest frame, world axes [m/s], [rad/s]
    velocity: Tensor
    yaw_rate: Tensor
    # (B, K) or, where it changes from frame to frame, (B, T, K) int64 index into the texture
    # bank
    texture: Tensor
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

    # velocity, spin: (B, T, 3) of the camera at each frame: world axes [m/s], and right-handed
    # about the camera's axes [rad/s]
    velocity: Tensor
    spin: Tensor
    exposure_s: Tensor  # (B,) time for which a row gathers light [s]: blur by motion
    # (B,) time from the first row to the last [s], 0 for all rows at once. The stamp of a frame
    # is the time of its middle row. A row shows what the camera sees that stands where it is at
    # the stamp and is turned as at the time of the row; bodies are where they are at the stamp.
    readout_s: Tensor
    bend: Tensor  # (B,) bend of a wide lens, 0.05..1, see `lens.bent`; 1 for a straight one
    # (B,) share of the rows that show the view, in the middle; bars fill the others, as the
    # resize mode `letterbox` adds them. 1 for all rows.
    shown: Tensor
    glare: Tensor  # (B,) part of the light above white that spreads around it, 0..0.5
    # pattern, stripes, banding: (B,) standard deviation [grey levels] of noise of single pixels
    # and of columns, both the same in all frames, and of rows, new in each frame
    pattern: Tensor
    stripes: Tensor
    banding: Tensor

    @property
    def turn(self) -> Tensor:
        """Turn of the camera from the first row to the last [rad], (B, T, 3) as `spin`."""
        return self.spin * self.readout_s[:, None, None]


@dataclass(frozen=True)
class Scenes(Shapes):
    """B scenes: shapes with their cameras, light and sensors."""

    interval_s: Tensor  # (B,) time between frames [s]
    intrinsics: Tensor  # (B, 4) fx, fy, cx, cy in pixels of the size that is rendered
    # (B, 2) k1, k2 of the radial (Brown) model on normalised coordinates of the pinhole
    distortion: Tensor
    camera_position: Tensor  # (B, T, 3) [m]
    # (B, T, 3, 3) world to camera: rows are the camera's right, down and ahead
    camera_rotation: Tensor
    camera_velocity: Tensor  # (B, 3) at the newest frame, world axes [m/s]
    # (B, 3) at the newest frame, right-handed about the camera's axes [rad/s]
    camera_spin: Tensor
    # ground_texture, ground_tile_m, ground_tint: (B,), (B,), (B, 3)
    ground_texture: Tensor
    ground_tile_m: Tensor
    ground_tint: Tensor
    # sky_top, sky_horizon: (B, 3) colours 0..1
    sky_top: Tensor
    sky_horizon: Tensor
    sky_texture: Tensor  # (B,) int64, clouds mixed into the sky; -1 for none
    sun_direction: Tensor  # (B, 3) unit vector towards the light, y negative
    # sun, ambient: (B,) strengths; a lit face gets ambient + sun * cos(angle)
    sun: Tensor
    ambient: Tensor
    shadow: Tensor  # (B,) 0..1 how dark cast shadows on the ground are
    # fog_per_m, fog_color: (B,), (B, 3)
    fog_per_m: Tensor
    fog_color: Tensor
    exposure: Tensor  # (B, T) factor on all light, frame by frame
    white_balance: Tensor  # (B, 3)
    # (B,) exponent on the light in 0..1; light is the square of what a texture shows, so 0.5
    # shows a texture lit with 1 as it is
    gamma: Tensor
    vignette: Tensor  # (B,) loss of light in the corners, 0..0.8
    blur_px: Tensor  # (B,) standard deviation of the lens blur [px]
    shutter: Tensor  # (B,) part of the interval the shutter is open, 0..0.8: blur by motion
    # read_noise, shot_noise: (B,) standard deviation [grey levels] in the dark and at full light
    # in addition
    read_noise: Tensor
    shot_noise: Tensor
    grey: Tensor  # (B,) bool, camera without colour
    jpeg: Tensor  # (B,) strength of block compression, 0 none .. 1 strong.
    seed: Tensor  # (B,) int64, decides the noise
    # How the frames are taken. None: all rows at once, through a straight lens, with blur as
    # `shutter` says.
    capture: Capture | None = None

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
    """Random draws for ``count`` scenes; every method returns (count, *shape) on the CPU.

    The same seed and count give the same draws on every machine, whatever device the scenes
    are moved to afterwards. Bounds may be numbers or tensors that broadcast to the result.
    """

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
        """Draw from a normal distribution of zero mean."""
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
