# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Solve positions and speeds so that the planned outcome follows from the newest frame.

Vectors are (right, ahead) of the camera's heading; the camera is at the origin at the newest
frame. The robot's volume starts at z = 0 and is as wide as `ROBOT`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vjepa_ros.lab.world.rendering.truth import ROBOT
from vjepa_ros.lab.world.scenes.motion import FAR_M, to_world
from vjepa_ros.lab.world.scenes.scene import SceneRng
from vjepa_ros.lab.world.scenes.scene_spec import (
    CONTACT,
    FACING,
    HELD,
    KIND,
    SceneSpec,
    is_any,
)

_LEAST_SHARE = 0.002    # of the picture that a body should fill where it matters
# Share of the times to contact that reach far, and from when to when [s].
_FAR_SHARE, _FAR_S = 0.12, (0.4, 8.0)
_FAR_SHARE_IN_TRAINING, _FAR_S_IN_TRAINING = 0.5, (0.4, 10.0)


@dataclass(frozen=True)
class Encounter:
    """How camera and body of importance stand and move at the newest frame."""

    spec: SceneSpec  # with speeds and heights as solved
    # at, velocity: (B, 2) of the body, [m] and [m/s], world-fixed but along the heading
    at: Tensor
    velocity: Tensor
    # base, rise: (B,) height of its underside [m] and its upward speed [m/s]
    base: Tensor
    rise: Tensor
    yaw: Tensor  # (B,) of the body in the place's axes [rad]
    reach: Tensor  # (B, 2) half extent to the right and ahead of the heading [m]
    # (B,) planned time until the robot and the body, or the wall, touch [s]; inf for never
    contact_s: Tensor
    # robot_braking, body_braking, body_range: (B,) how the speeds were before, see `travelled`
    robot_braking: Tensor
    body_braking: Tensor
    body_range: Tensor


def _polar(angle: Tensor, length: Tensor) -> Tensor:
    return torch.stack((angle.sin() * length, angle.cos() * length), -1)


def _closing(draws: SceneRng, spec: SceneSpec) -> tuple[Tensor, Tensor]:
    """Bearing from which the body closes in [rad], and how fast [m/s]."""
    car = is_any(spec.kind, KIND, ('car', 'truck'))
    spread = torch.where(car, 0.1, 0.22 * spec.hfov)
    bearing = torch.minimum(draws.normal(spread).abs(), 0.4 * spec.hfov) * draws.sign()
    aside = draws.uniform(0.15, 0.4) * spec.hfov * draws.sign()
    bearing = torch.where(spec.happens('emerge'), aside, bearing)
    # A slower one ahead on the same way; on a motorway nothing comes the other way.
    leads = spec.moves & (spec.speed > 0) & torch.where(
        spec.at('motorway'), torch.ones_like(spec.moves), draws.chance(0.2))
    leads &= ~spec.happens('emerge')
    bearing = torch.where(leads, 0.12 * bearing, bearing)
    speed = spec.speed.clamp(min=0)
    wish = torch.where(leads, speed * draws.uniform(0.15, 0.9), spec.body_speed)
    wish = torch.maximum(wish, speed * bearing.sin().abs() * 1.03 + 1e-3)
    root = (wish.square() - (speed * bearing.sin()).square()).clamp(min=0).sqrt()
    closing = speed * bearing.cos() + torch.where(leads, -root, root)
    bearing = torch.where(spec.moves, bearing, spec.drift)
    closing = torch.where(spec.moves, closing, speed)
    return bearing, closing.clamp(min=1e-3)


def _yaw(draws: SceneRng, spec: SceneSpec, at: Tensor, velocity: Tensor,
         outward: Tensor) -> Tensor:
    """Yaw of the bodies in the place's axes: along their motion, or as such things stand."""
    ways = to_world(velocity, spec.heading)
    along = torch.atan2(ways[..., 0], ways[..., 1])
    bearing = spec.heading + torch.atan2(at[..., 0], at[..., 1])
    car = is_any(spec.kind, KIND, ('car', 'truck')) & spec.at('street', 'motorway')
    turned = torch.where(draws.chance(0.3) & spec.at('street'), math.pi, 0.0)
    still = torch.where(car, turned + draws.normal(0.05), draws.uniform(-math.pi, math.pi))
    boxy = spec.at('room', 'corridor', 'warehouse', 'lab') & draws.chance(0.6)
    square = math.pi / 2 * torch.floor(draws.uniform(0, 4)) + draws.normal(0.08)
    still = torch.where(boxy, square, still)
    yaw = torch.where(velocity.norm(dim=-1) > 0.01, along, still)
    facing = bearing + draws.normal(0.25)
    held = is_any(spec.kind, KIND, HELD)
    facing = torch.where(held & (outward < 0), facing + math.pi, facing)
    yaw = torch.where(is_any(spec.kind, KIND, FACING), facing, yaw)
    # A flat figure in side view walks along its own x axis.
    walker = spec.kind == KIND['walker']
    return torch.where(walker, torch.atan2(-ways[..., 1], ways[..., 0]), yaw)


def solve(draws: SceneRng, spec: SceneSpec, training: bool = False) -> Encounter:
    """Positions, velocities and times for the planned outcomes."""
    b = draws.count
    held = is_any(spec.kind, KIND, HELD)
    tangent = (spec.hfov / 2).tan()
    focal = 0.5 / tangent
    half_v = torch.atan(tangent / spec.aspect)
    width, tall, length = spec.size.unbind(-1)
    # The trunk of a tree is what one runs into.
    slim = torch.where(spec.kind == KIND['tree'], 0.1, 1.0)
    side = torch.maximum(width, length * 0.7) * slim
    depth = torch.maximum(width * 0.7, length) * slim
    # As far off as the body still fills a share of the picture, and where it is to be met, as
    # the part of it that the robot would touch does.
    seen_width = 2 * torch.maximum(width, 0.5 * length) * slim.sqrt()
    touched = torch.minimum(seen_width, torch.tensor(2 * ROBOT.half_width)) * (
        torch.minimum(tall, spec.height.clamp(min=ROBOT.height)))
    area = torch.where(spec.happens(*CONTACT), touched, seen_width * tall)
    far = focal * (area * spec.aspect / _LEAST_SHARE).sqrt()

    bearing, closing = _closing(draws, spec)
    tau = torch.where(draws.chance(0.25), draws.uniform(0.08, 0.9), draws.uniform(0.2, 3.1))
    share, span = (_FAR_SHARE_IN_TRAINING, _FAR_S_IN_TRAINING) if training else (
        _FAR_SHARE, _FAR_S)
    tau = torch.where(draws.chance(share), draws.log(*span), tau)
    meets = spec.happens('drive_into', 'hit_by', 'emerge', 'pass_static', 'pass_moving')
    near = torch.where(held, 0.08, 0.15 + 0.1 * width)
    gap = closing * tau
    scale = torch.minimum(torch.maximum(gap, near), torch.maximum(far, 2 * near)) / gap
    scale = torch.where(meets, scale, 1.0)
    scale = torch.where(spec.happens('drive_wall'), (0.1 / gap).clamp(min=1), scale)
    # Long times with a fast robot need places larger than ours: everything goes slower.
    leads = spec.moves & spec.at('motorway')
    speed, closing = spec.speed * torch.where(leads, 1, scale), closing * scale
    robot = _polar(spec.drift, speed)                                   # B 2

    # Which yaw, and so which extent, depends on the velocity alone but for what faces us.
    velocity = robot - _polar(bearing, closing)
    crosses, recedes = spec.happens('cross'), spec.happens('recede')
    away = torch.where(held, spec.body_speed, spec.body_speed.clamp(max=12))
    way, slant = draws.sign(), draws.normal(0.25)
    across = torch.stack((way * away * slant.cos(), away * slant.sin()), -1)
    look = draws.uniform(-0.4, 0.4) * spec.hfov
    leaving = _polar(look + draws.normal(0.3), away) + robot.clamp(min=0)
    velocity = torch.where(crosses[:, None], across, velocity)
    velocity = torch.where(recedes[:, None], leaving, velocity)
    pace = 1 + draws.uniform(-0.03, 0.05)
    velocity = torch.where(spec.happens('follow')[:, None], robot * pace[:, None], velocity)
    velocity = torch.where((spec.moves & ~spec.happens('stopped'))[:, None], velocity, 0)

    outward = draws.sign()
    aim = _polar(bearing, torch.ones(b))
    yaw = _yaw(draws, spec, aim, velocity, outward)
    turned = yaw - spec.heading
    reach = torch.stack((width * turned.cos().abs() + length * turned.sin().abs(),
                         width * turned.sin().abs() + length * turned.cos().abs()), -1)
    reach = reach * slim[:, None]

    # Where its middle is when its front is level with the robot's: in the way, or beside it.
    inside = draws.uniform(-0.75, 0.75) * torch.maximum(
        reach[:, 0], 0.6 * reach[:, 0] + ROBOT.half_width)
    margin = torch.where(held, draws.log(0.03, 0.3), draws.log(0.12, 2))
    margin = torch.where(is_any(spec.kind, KIND, ('car', 'truck')), 0.2 + 1.3 * margin, margin)
    beside = outward * (ROBOT.half_width + reach[:, 0] + margin)
    passes = spec.happens('pass_static', 'pass_moving')
    across_at = torch.where(passes, beside, inside)
    # What passes close by is out of view shortly before: mostly look at it earlier.
    seen = (across_at.abs() / (0.84 * spec.hfov / 2).tan() - reach[:, 1]) / (
        closing * bearing.cos())
    tau = torch.where(passes & draws.chance(0.55), torch.maximum(tau, seen), tau)
    spot = torch.stack((across_at, reach[:, 1]), -1) + _polar(bearing, closing * tau)

    # Crossing: out of the robot's way before the robot gets there.
    when = draws.uniform(-0.8, 2.2)
    out = when + (ROBOT.half_width + reach[:, 0]) / across[:, 0].abs().clamp(min=0.05)
    spare = reach[:, 1] + torch.where(held, draws.log(0.1, 0.6), draws.log(0.2, 4))
    ahead = spare + (speed - velocity[:, 1]).clamp(min=0) * out.clamp(min=0)
    right = -across[:, 0] * when
    ahead = torch.maximum(ahead, right.abs() / (0.45 * spec.hfov).tan())
    spot = torch.where(crosses[:, None], torch.stack((right, ahead), -1), spot)

    # Standing, leaving, following, stopped: somewhere in view.
    least = near + torch.maximum(side, depth)
    off = draws.log(least, torch.maximum(0.7 * far, 1.5 * least))
    off = torch.where(spec.happens('follow'), least + 0.3 + speed * draws.uniform(0.5, 2.2), off)
    off = torch.where(held, draws.log(0.15, 1.1) + depth, off)
    off = torch.where(spec.happens('stopped') & ~held, least + draws.log(0.05, 2.5), off)
    lane = torch.where(spec.happens('follow'), draws.normal(0.03), look)
    stands = spec.happens('rest', 'recede', 'follow', 'turn', 'stopped')
    spot = torch.where(stands[:, None], _polar(lane, off), spot)

    distance = spot.norm(dim=-1)
    touching = spec.happens(*CONTACT)
    middle = spec.height + distance * (spec.pitch + draws.uniform(-0.5, 0.5) * half_v).tan()
    base = torch.where(held, (middle - tall / 2).clamp(min=0.03), 0)
    goal = spec.height + draws.normal(0.04) - tall / 2
    rise = torch.where(held & touching, (goal - base) / tau, 0)
    rise = torch.where(held & ~touching & draws.chance(0.4) & spec.moves, draws.normal(0.15), rise)
    rise = torch.where(spec.happens('stopped'), 0, rise)
    # A body below the picture warns of nothing: such a robot has a lower camera.
    front = (distance - depth).clamp(min=0.05)
    under = tall + front * (0.6 * half_v - spec.pitch).clamp(-0.3, 1.2).tan()
    low = spec.present & ~held & ~spec.at('motorway')
    height = torch.where(low, torch.minimum(spec.height, under).clamp(min=0.1), spec.height)

    duration = 8 * spec.interval_s
    robot_braking = torch.where(draws.chance(0.5), speed.abs() * draws.normal(0.45) / duration, 0)
    pace = velocity.norm(dim=-1)
    body_braking = torch.where(draws.chance(0.5), pace * draws.normal(0.6) / duration, 0)
    # What has just stopped was fast before; its speed now is zero.
    stop = draws.uniform(0.25, 1.2) * torch.where(held, 0.4, 1.0)
    stopped = spec.happens('stopped')
    robot_braking = torch.where(stopped & ~spec.moves, stop, robot_braking)
    body_braking = torch.where(stopped & spec.moves, stop, body_braking)
    body_range = torch.where(held, draws.uniform(0.15, 0.7), FAR_M)
    # The side from which the body came is where it was farther off.
    tiny = _polar(lane, torch.full((b,), -1e-6))
    velocity = torch.where((stopped & spec.moves)[:, None], tiny, velocity)
    speed = torch.where(stopped & ~spec.moves, 1e-6, speed)

    contact = torch.where(touching, tau, torch.inf)
    # Flat figures that go across are seen from the side.
    figure = spec.kind == KIND['figure']
    sight = spot / distance.clamp(min=1e-6)[:, None]
    sideways = (velocity[:, 0] * sight[:, 1] - velocity[:, 1] * sight[:, 0]).abs() > 0.7 * pace
    kind = torch.where(figure & sideways & (pace > 0.1), KIND['walker'], spec.kind)
    spec = replace(spec, speed=speed, height=height, kind=kind)
    yaw = torch.where(kind == KIND['walker'],
                      _yaw(draws, spec, spot, velocity, outward), yaw)
    return Encounter(spec, spot, velocity, base, rise, yaw, reach, contact, robot_braking,
                     body_braking, body_range)
