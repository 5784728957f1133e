# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Follow twists: where a camera on a base gets to, and what lies on its way in the picture.

Axes and signs: poses of the camera are relative to now, x right, z ahead [m], yaw to the right
[rad]; twists are those of a ROS Twist (ahead, to the left [m/s], turn to the left [rad/s]).

B pasts, F plans, S steps, N times, Hp x Wp patches.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass

import torch
from torch import Tensor

VIEW_DIM = 9
WAY_DIM = 13
_NEAR_M = 0.4         # width of the robot's way, as `around` tells it
_LEAST_AHEAD = 0.05   # of a ray over its length, so that it leads ahead


@dataclass(frozen=True)
class View:
    """A camera on a moving base.

    Attributes
    ----------
    height : float
        Above the ground [m].
    pitch : float
        Of the optical axis, up positive [rad].
    ahead : float
        Of the point that the base turns about [m].
    across, down : float
        Tangents of half the field of view of what the encoder sees.
    interval_s : float
        Time between two frames of the encoder [s].
    vx, vy, omega : float
        Twist of the base now.

    Raises
    ------
    ValueError
        With name and value of what is out of range.

    """

    height: float
    pitch: float
    ahead: float
    across: float
    down: float
    interval_s: float
    vx: float = 0.0
    vy: float = 0.0
    omega: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not math.isfinite(value):
                raise ValueError(f'{name} is {value}, must be a finite number')
        for name in ('height', 'across', 'down', 'interval_s'):
            if getattr(self, name) <= 0:
                raise ValueError(f'{name} is {getattr(self, name)}, must be above 0')
        if abs(self.pitch) >= math.pi / 2:
            raise ValueError(f'pitch is {self.pitch}, must be between -pi/2 and pi/2')

    def tensor(self, device: torch.device | None = None) -> Tensor:
        """(VIEW_DIM,) float32 of all, the time as its logarithm."""
        values = [*astuple(self)]
        values[5] = math.log(values[5])
        return torch.tensor(values, device=device)


def poses(twists: Tensor, duration_s: Tensor, ahead: Tensor, times: Tensor) -> Tensor:
    """Where cameras are on their way: (B, F, N, 3), x, z [m] and yaw [rad].

    Parameters
    ----------
    twists : Tensor
        (B, F, S, 3), each held for its duration.
    duration_s : Tensor
        (S,) [s].
    ahead : Tensor
        (B,) distance of the camera ahead of the point about which the robot turns [m].
    times : Tensor
        (N,) or (B, N) from 0 to the end [s].

    """
    begins = duration_s.cumsum(0) - duration_s
    since = (times if times.ndim == 1 else times[:, None])[..., None] - begins
    held = since.clamp(min=0).minimum(duration_s)                                   # N S
    turned = -twists[..., None, :, 2] * held                                        # B F N S
    yaw = turned.cumsum(-1)
    middle = yaw - turned / 2
    # On an arc the chord leads in the mean direction.
    shrunk = torch.sinc(turned / (2 * torch.pi)) * held
    forward, left = twists[..., None, :, 0] * shrunk, twists[..., None, :, 1] * shrunk
    x = (forward * middle.sin() - left * middle.cos()).sum(-1)
    z = (forward * middle.cos() + left * middle.sin()).sum(-1)
    end, arm = yaw[..., -1], ahead[:, None, None]
    return torch.stack((x + arm * end.sin(), z + arm * (end.cos() - 1), end), -1)


def rays(view: Tensor, rows: int, cols: int) -> Tensor:
    """Level directions of patches: right, ahead (of length 1) and drop [m/m], (B, Hp Wp, 3).

    Parameters
    ----------
    view : Tensor
        (B, VIEW_DIM), see `View`.
    rows, cols : int
        Hp, Wp. The optical axis passes through the middle.

    """
    _, pitch, _, across, down = view[:, :5, None].unbind(1)
    x, y = (((2 * torch.arange(count, device=view.device) + 1) / count - 1) * half
            for count, half in ((cols, across), (rows, down)))
    y = y.repeat_interleave(cols, 1)
    x = x.repeat(1, rows)
    z = (y * pitch.sin() + pitch.cos()).clamp(min=_LEAST_AHEAD)
    long = (x.square() + z.square()).sqrt()
    return torch.stack((x / long, z / long, (y * pitch.cos() - pitch.sin()) / long), -1)


def around(way: Tensor, rays: Tensor, height: Tensor, ends_s: Tensor) -> Tensor:
    """Where a way passes the ray of each patch, (B, F, S, Hp Wp, WAY_DIM).

    For the middle and the end of each step: how far along the ray the robot comes nearest to it,
    how far beside that is, and how high the ray is there. A surface is touched when it is as far
    away as that, so it is known patch by patch what is on the way.

    Parameters
    ----------
    way : Tensor
        (B, F, S, 2, 3) poses in the middle and at the end of each step.
    rays : Tensor
        See `rays`.
    height : Tensor
        (B,) of the camera [m].
    ends_s : Tensor
        (S,) [s].

    """
    x, z, yaw = way[:, :, :, None].unbind(-1)                              # B F S 1 2
    right, ahead, drop = rays[:, None, None, :, None].unbind(-1)           # B 1 1 N 1
    along = x * right + z * ahead
    beside = z * right - x * ahead
    at = height[:, None, None, None, None] - drop * along
    turned = (yaw[..., 1].sin(), yaw[..., 1].cos())
    own, other = right[..., 0], ahead[..., 0]
    flat = (along / 3, along.clamp(min=0.05).log(), beside, (-(beside / _NEAR_M).square()).exp(),
            at.clamp(-2, 2))
    facing = torch.stack((turned[0] * other - turned[1] * own, turned[0] * own + turned[1] * other,
                          ends_s[:, None].expand(along.shape[:-1])), -1)
    return torch.cat((*flat, facing), -1)
