# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What a batch of scenes is made of, its dice, and the motion of its cameras and bodies.

World axes: x right, y down, z ahead; the ground is the plane y = 0. Camera axes: x right, y down,
z along the optical axis. B scenes, T frames (the newest last, at time 0), K shapes, float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

BOX, CYLINDER, ELLIPSOID, CARD, COVERING = 0, 1, 2, 3, 4   # kinds of shapes
Number = float | Tensor
FAR_M = 1e4                                   # a reach that bends no path
GROUND, SKY = -1, -2                          # what a pixel shows when it is no shape
# Steps within tubelets [s]: usual ones, and those of cameras slower than 5 Hz.
STEPS_S, SLOW_SHARE = (1 / 30, 1 / 5, 1 / 2), 0.15
SPACINGS_S = (0.12, 0.6)      # between tubelets
LATE, LOST = 0.12, 0.3        # most jitter, in steps, and most probable loss of a picture


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
class Front:
    """What is fixed to B cameras and stands in their view, at -1 to 1 to the right and down."""

    # (B, M, 11) bands that are parts of the robot: cosine and sine of the way across, middle
    # across, half width (below 0 for none), middle along, half length, bow, softness of the edge,
    # light, contrast and density of stripes; a later one is nearer
    bands: Tensor
    shine: Tensor  # (B, T) how bright they are
    # (B, N, 7) dirt on the lens: right, down, radius, softness, opacity, 1 for a drop, light
    blobs: Tensor


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
    front: Front | None = None  # of the cameras of the roaming world

    @property
    def turn(self) -> Tensor:
        """Turn of the camera from the first row to the last [rad], (B, T, 3) as `spin`."""
        return self.spin * self.readout_s[:, None, None]

    def map(self, change: Callable[[Tensor], Tensor]) -> Capture:
        front = self.front and Front(*(change(v) for v in vars(self.front).values()))
        return replace(self, front=front, **{
            name: change(v) for name, v in vars(self).items() if name != 'front'})


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
    blur_px: Tensor  # (B,) standard deviation of the lens blur [px], (B, T) where it changes
    shutter: Tensor  # (B,) part of the interval the shutter is open, 0..0.8: blur by motion
    read_noise: Tensor  # (B,) standard deviation in the dark [grey levels]
    shot_noise: Tensor  # (B,) and at full light in addition
    grey: Tensor  # (B,) bool, camera without colour
    jpeg: Tensor  # (B,) strength of block compression, 0 none .. 1 strong.
    seed: Tensor  # (B,) int64, decides the noise
    capture: Capture | None = None  # None: rows at once, a straight lens, blur as by `shutter`

    def map(self, change: Callable[[Tensor], Tensor]) -> Scenes:
        return replace(self, capture=self.capture and self.capture.map(change), **{
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


@dataclass(frozen=True)
class Rhythm:
    """When B streams take their tubelets: short steps within them, longer spacings between."""

    step_s: Tensor  # (B,) between the frames of a tubelet
    # (B, tubelets - 1) between the newest frames of two, at least a step
    spacing_s: Tensor

    @classmethod
    def draw(cls, draws: SceneRng, tubelets: int) -> Rhythm:
        step = torch.where(draws.chance(SLOW_SHARE), draws.log(STEPS_S[1], STEPS_S[2]),
                           draws.log(STEPS_S[0], STEPS_S[1]))
        return cls(step, step[:, None].maximum(draws.log(*SPACINGS_S, tubelets - 1)))

    def times(self, draws: SceneRng) -> Tensor:
        """Return times (B, 2 tubelets) up to 0 [s], as jitter and lost pictures leave them."""
        ends = torch.nn.functional.pad(-self.spacing_s.cumsum(1), (1, 0)).flip(1)
        tubelets = ends.shape[1]
        step = self.step_s[:, None] * torch.where(
            draws.unit(tubelets) < draws.uniform(0, LOST, 1) * draws.chance(0.5, 1), 2, 1)
        late = draws.normal(1, tubelets).clamp(-2.5, 2.5) * draws.uniform(0, LATE, 1)
        step = step * torch.where(draws.chance(0.6, 1), 1 + late, 1)
        # The older frame is at the earliest the newest of the tubelet before.
        room = torch.cat((torch.full_like(step[:, :1], torch.inf), ends.diff()), 1)
        step = step.minimum(0.999 * room).clamp(max=STEPS_S[2])
        return torch.stack((ends - step, ends), -1).flatten(1)


def frame_times(interval_s: Tensor, hold: Tensor, frames: int) -> Tensor:
    """Return times (B, T) of frames [s]; with hold 2 pairs of frames have one time."""
    return (picture_of(hold, frames) - (frames - 1)) * interval_s[:, None]


def picture_of(hold: Tensor, frames: int) -> Tensor:
    """(B, T) which frame's picture each frame of a clip shows: the newest one of its time."""
    back = torch.arange(frames - 1, -1, -1, device=hold.device)
    return frames - 1 - (back // hold[:, None]) * hold[:, None]


@dataclass(frozen=True)
class Steady:
    """How fast B robots or bodies were before they began to brake or to speed up; all (B,)."""

    most: Tensor  # greatest speed of what brakes [m/s]
    faster: Tensor  # of what brakes, times the speed of now; inf: `most` alone counts
    slower: Tensor  # of what speeds up, times the speed of now, 0..1

    def around(self, size: Tensor) -> tuple[Tensor, Tensor]:
        """Return the greatest and the least speed (B, 1) [m/s] around that of now (B,)."""
        faster = torch.where(self.faster.isinf(), torch.inf, self.faster * size)
        return (torch.maximum(self.most, size).minimum(faster)[:, None],
                (self.slower * size)[:, None])


# What brakes did so all the time; what speeds up stood before.
ALWAYS = Steady(*(torch.tensor(value) for value in (torch.inf, torch.inf, 0.0)))


def travelled(speed: Tensor, braking: Tensor, reach: Tensor, times: Tensor,
              steady: Steady) -> Tensor:
    """Distance still to go (B, T) [m] at times before the newest frame, (B, T) at most 0 [s]."""
    size = speed.abs()[:, None]
    since = -times
    slope = braking[:, None]
    fastest, slowest = steady.around(speed.abs())
    started = torch.where(slope < 0, (size - slowest) / (-slope).clamp(min=1e-6), torch.inf)
    moving = torch.minimum(since, started)
    far = size * moving + 0.5 * slope * moving.square() + slowest * (since - moving)
    braked = (fastest - size) / slope.clamp(min=1e-6)
    even = size * moving + slope * braked * (moving - 0.5 * braked)
    far = torch.where((slope > 0) & (braked < moving), even, far)
    far = reach[:, None] * torch.tanh(far / reach[:, None])
    return far * torch.where(speed < 0, -1.0, 1.0)[:, None]


def camera_path(heading: Tensor, drift: Tensor, turned: Tensor,
                gone: Tensor) -> tuple[Tensor, Tensor]:
    """Places (B, T, 2) x, z [m] and yaws (B, T) [rad] of cameras that end at the origin."""
    yaw = heading[:, None] + turned                                     # B T
    along = yaw + drift[:, None]
    # Between two frames the path is an arc: its chord leads in the mean direction.
    middle = 0.5 * (along[:, 1:] + along[:, :-1])
    bend = 0.5 * (along[:, 1:] - along[:, :-1])
    chord = (gone[:, :-1] - gone[:, 1:]) * torch.sinc(bend / math.pi)
    step = torch.stack((middle.sin(), middle.cos()), -1) * chord.unsqueeze(-1)
    place = torch.zeros(*yaw.shape, 2)
    place[:, :-1] = -step.flip(1).cumsum(1).flip(1)
    return place, yaw


@dataclass(frozen=True)
class Shake:
    """What hands, steps, motors and rotors do to a camera."""

    angles: Tensor  # (B, T, 3) added to yaw, pitch and roll [rad]
    rates: Tensor  # (B, T, 3) their derivatives [rad/s]; (B, 1, 3) at the newest frame alone
    # (B, T, 3) of the position in world axes [m]; at rest to the sides at the newest frame
    offset: Tensor
    speed: Tensor  # (B, T, 3) its derivative [m/s]; (B, 1, 3) at the newest frame alone

    def where(self, chosen: Tensor, other: Shake) -> Shake:
        """Return this shake for chosen cameras (B,), and another for the rest."""
        mask = chosen[:, None, None]
        return Shake(*(torch.where(mask, a, b) for a, b in zip(
            vars(self).values(), vars(other).values(), strict=True)))


def shake(draws: SceneRng, times: Tensor, hand: Tensor, steps: Tensor, motor: Tensor) -> Shake:
    """Shake of hands (slow), of steps (1.5 to 2.3 per second) and of motors (fast)."""
    size = torch.stack((hand, hand, steps, motor), -1) \
        * torch.tensor([0.012, 0.006, 0.012, 0.004])                    # B W, [rad]
    steps_hz = draws.uniform(1.5, 2.3)
    rate = 2 * math.pi * torch.stack((
        draws.uniform(0.3, 0.9), draws.uniform(1.0, 3.0), steps_hz, draws.log(8, 40)), -1)
    size = size[..., None] * draws.uniform(0.3, 1, 4, 3)                 # B W 3
    phase = draws.uniform(0, 2 * math.pi, 4, 3)
    turned = rate[:, None, :, None] * times[:, :, None, None] + phase[:, None]
    angles = (size[:, None] * turned.sin()).sum(2)                      # B T 3
    rates = (size * rate[..., None] * phase.cos()).sum(1)               # B 3
    # A cosine is at rest at time zero, at the top or at the bottom of its swing.
    bob = (rate[:, 2, None] * times).cos() - 1
    sway = (0.5 * rate[:, 2, None] * times).cos() - 1
    rattle = (rate[:, 3, None] * times).cos() - 1
    lift = draws.sign()[:, None] * (0.02 * steps[:, None] * bob + 0.0015 * motor[:, None] * rattle)
    side = draws.sign()[:, None] * 0.015 * steps[:, None] * sway
    return Shake(angles, rates[:, None], torch.stack((side, lift, torch.zeros_like(side)), -1),
                 torch.zeros(len(times), 1, 3))


def rotation(yaw: Tensor, pitch: Tensor, roll: Tensor) -> Tensor:
    """World to camera, (..., 3, 3); pitch > 0 looks up, roll > 0 leans clockwise."""
    sy, cy, sp, cp, sr, cr = yaw.sin(), yaw.cos(), pitch.sin(), pitch.cos(), roll.sin(), roll.cos()
    right = torch.stack((cy * cr + sy * sp * sr, cp * sr, -sy * cr + cy * sp * sr), -1)
    down = torch.stack((-cy * sr + sy * sp * cr, cp * cr, sy * sr + cy * sp * cr), -1)
    ahead = torch.stack((sy * cp, -sp, cy * cp), -1)
    return torch.stack((right, down, ahead), -2)


def spin(pitch: Tensor, roll: Tensor, rates: Tensor) -> Tensor:
    """Angular velocity (..., 3) about the camera's axes of rates of yaw, pitch, roll [rad/s]."""
    yaw_rate, pitch_rate, roll_rate = rates.unbind(-1)
    sp, cp, sr, cr = pitch.sin(), pitch.cos(), roll.sin(), roll.cos()
    return torch.stack((yaw_rate * cp * sr + pitch_rate * cr,
                        yaw_rate * cp * cr - pitch_rate * sr,
                        -yaw_rate * sp + roll_rate), -1)


def to_world(vector: Tensor, heading: Tensor) -> Tensor:
    """Turn (..., 2) vectors (right, ahead of a heading) into world (x, z)."""
    right, ahead = vector.unbind(-1)
    sine, cosine = heading.sin(), heading.cos()
    return torch.stack((right * cosine + ahead * sine, ahead * cosine - right * sine), -1)


def body_path(place: Tensor, velocity: Tensor, gone: Tensor) -> Tensor:
    """Straight path of bodies that are at ``place`` (..., N) now, with a distance still to go."""
    along = velocity / velocity.norm(dim=-1, keepdim=True).clamp(min=1e-6)
    return place.unsqueeze(-2) - along.unsqueeze(-2) * gone.unsqueeze(-1)
