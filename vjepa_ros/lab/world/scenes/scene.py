# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What a batch of scenes is made of: the tensors between the sampler and the renderer.

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
GROUND, SKY = -1, -2                          # what a pixel shows when it is no shape


@dataclass(frozen=True)
class Shapes:
    """K shapes in each of B scenes.

    Attributes
    ----------
    kinds : tuple of int
        Kind of each of the K shapes, the same in all scenes: what is computed is then known
        before anything runs. A box has half sizes along its own x, y, z; a cylinder stands
        upright with radius ``half[0]`` and half height ``half[1]``; an ellipsoid has half axes;
        a card is an upright rectangle in its own x-y plane with a texture that may have holes; a
        covering is the top of a box that is sunk into the ground, y = 0. Coverings come last.
    alive : Tensor
        (B, K) bool, whether the shape exists.
    position : Tensor
        (B, T, K, 3) centre [m].
    yaw : Tensor
        (B, T, K) rotation about the vertical [rad]: the own x axis is (cos, 0, -sin) and the
        own z axis (sin, 0, cos) in the world.
    half : Tensor
        (B, K, 3) half sizes [m].
    velocity, yaw_rate : Tensor
        (B, K, 3), (B, K) at the newest frame, world axes [m/s], [rad/s].
    texture : Tensor
        (B, K) or, where it changes from frame to frame, (B, T, K) int64 index into the texture
        bank.
    tile_m : Tensor
        (B, K) side of one repeat of the texture [m]; 0 stretches it over the face.
    tint : Tensor
        (B, K, 3) factor on the texture, 0..2.
    """

    kinds: tuple[int, ...]
    alive: Tensor
    position: Tensor
    yaw: Tensor
    half: Tensor
    velocity: Tensor
    yaw_rate: Tensor
    texture: Tensor
    tile_m: Tensor
    tint: Tensor


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
    """How B moving cameras take T frames, row by row; the cameras of the rough world have it.

    Attributes
    ----------
    velocity, spin : Tensor
        (B, T, 3) of the camera at each frame: world axes [m/s], and right-handed about the
        camera's axes [rad/s].
    exposure_s : Tensor
        (B,) time for which a row gathers light [s]: blur by motion.
    readout_s : Tensor
        (B,) time from the first row to the last [s], 0 for all rows at once. The stamp of a frame
        is the time of its middle row. A row shows what the camera sees that stands where it is at
        the stamp and is turned as at the time of the row; bodies are where they are at the stamp.
    bend : Tensor
        (B,) bend of a wide lens, 0.05..1, see `lens.bent`; 1 for a straight one.
    shown : Tensor
        (B,) share of the rows that show the view, in the middle; bars fill the others, as the
        resize mode `letterbox` adds them. 1 for all rows.
    glare : Tensor
        (B,) part of the light above white that spreads around it, 0..0.5.
    pattern, stripes, banding : Tensor
        (B,) standard deviation [grey levels] of noise of single pixels and of columns, both the
        same in all frames, and of rows, new in each frame.
    """

    velocity: Tensor
    spin: Tensor
    exposure_s: Tensor
    readout_s: Tensor
    bend: Tensor
    shown: Tensor
    glare: Tensor
    pattern: Tensor
    stripes: Tensor
    banding: Tensor

    @property
    def turn(self) -> Tensor:
        """Turn of the camera from the first row to the last [rad], (B, T, 3) as `spin`."""
        return self.spin * self.readout_s[:, None, None]


@dataclass(frozen=True)
class Scenes(Shapes):
    """B scenes: shapes with their cameras, light and sensors.

    Attributes
    ----------
    interval_s : Tensor
        (B,) time between frames [s].
    intrinsics : Tensor
        (B, 4) fx, fy, cx, cy in pixels of the size that is rendered.
    distortion : Tensor
        (B, 2) k1, k2 of the radial (Brown) model on normalised coordinates of the pinhole.
    camera_position : Tensor
        (B, T, 3) [m].
    camera_rotation : Tensor
        (B, T, 3, 3) world to camera: rows are the camera's right, down and ahead.
    camera_velocity : Tensor
        (B, 3) at the newest frame, world axes [m/s].
    camera_spin : Tensor
        (B, 3) at the newest frame, right-handed about the camera's axes [rad/s].
    ground_texture, ground_tile_m, ground_tint : Tensor
        (B,), (B,), (B, 3).
    sky_top, sky_horizon : Tensor
        (B, 3) colours 0..1.
    sky_texture : Tensor
        (B,) int64, clouds mixed into the sky; -1 for none.
    sun_direction : Tensor
        (B, 3) unit vector towards the light, y negative.
    sun, ambient : Tensor
        (B,) strengths; a lit face gets ambient + sun * cos(angle).
    shadow : Tensor
        (B,) 0..1 how dark cast shadows on the ground are.
    fog_per_m, fog_color : Tensor
        (B,), (B, 3).
    exposure : Tensor
        (B, T) factor on all light, frame by frame.
    white_balance : Tensor
        (B, 3).
    gamma : Tensor
        (B,) exponent on the light in 0..1; light is the square of what a texture shows, so 0.5
        shows a texture lit with 1 as it is.
    vignette : Tensor
        (B,) loss of light in the corners, 0..0.8.
    blur_px : Tensor
        (B,) standard deviation of the lens blur [px].
    shutter : Tensor
        (B,) part of the interval the shutter is open, 0..0.8: blur by motion.
    read_noise, shot_noise : Tensor
        (B,) standard deviation [grey levels] in the dark and at full light in addition.
    grey : Tensor
        (B,) bool, camera without colour.
    jpeg : Tensor
        (B,) strength of block compression, 0 none .. 1 strong.
    seed : Tensor
        (B,) int64, decides the noise.
    capture : Capture or None
        How the frames are taken. None: all rows at once, through a straight lens, with blur as
        `shutter` says.
    """

    interval_s: Tensor
    intrinsics: Tensor
    distortion: Tensor
    camera_position: Tensor
    camera_rotation: Tensor
    camera_velocity: Tensor
    camera_spin: Tensor
    ground_texture: Tensor
    ground_tile_m: Tensor
    ground_tint: Tensor
    sky_top: Tensor
    sky_horizon: Tensor
    sky_texture: Tensor
    sun_direction: Tensor
    sun: Tensor
    ambient: Tensor
    shadow: Tensor
    fog_per_m: Tensor
    fog_color: Tensor
    exposure: Tensor
    white_balance: Tensor
    gamma: Tensor
    vignette: Tensor
    blur_px: Tensor
    shutter: Tensor
    read_noise: Tensor
    shot_noise: Tensor
    grey: Tensor
    jpeg: Tensor
    seed: Tensor
    capture: Capture | None = None

    def to(self, device: torch.device | str) -> Scenes:
        """Return the same scenes on a device."""
        return self.map(lambda values: values.to(device))

    def map(self, change: Callable[[Tensor], Tensor]) -> Scenes:
        """Return the scenes with every tensor changed, such as a part of the batch."""
        taken = self.capture and replace(
            self.capture, **{name: change(v) for name, v in vars(self.capture).items()})
        return replace(self, capture=taken, **{
            f.name: change(getattr(self, f.name)) for f in fields(self)
            if f.name not in ('kinds', 'capture')})

    def __len__(self) -> int:
        return self.interval_s.shape[0]
