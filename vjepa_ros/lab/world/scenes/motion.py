# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Motion of cameras and bodies, run backwards from the newest frame of a clip.

Times are at most 0, the newest frame is at 0, where the velocities given are the derivatives of
the paths. Ground vectors are (x, z).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from vjepa_ros.lab.world.scenes.scene import SceneRng

FAR_M = 1e4   # a reach that bends no path


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
