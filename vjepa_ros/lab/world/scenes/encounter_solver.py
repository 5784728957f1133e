# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Solve positions and speeds so that the planned outcome follows from the newest frame.

Vectors are (right, ahead) of the camera's heading; the camera is at the origin at the newest
frame. The robot's volume starts at z = 0 and is as wide as the configuration says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vjepa_ros.lab.world.scenes.motion import FAR_M, to_world
from vjepa_ros.lab.world.scenes.scene_rng import Dice
from vjepa_ros.lab.world.scenes.scene_spec import (
    CONTACT,
    FACING,
    HELD,
    KIND,
    Plan,
    WorldConfig,
    is_any,
)

_LEAST_SHARE = 0.002    # of the picture that a body should fill where it matters


@dataclass(frozen=True)
class Meeting:
    """How camera and body of importance stand and move at the newest frame.

    Attributes
    ----------
    plan : Plan
        With speeds and heights as solved.
    at, velocity : Tensor
        (B, 2) of the body, [m] and [m/s], world-fixed but along the heading.
    base, rise : Tensor
        (B,) height of its underside [m] and its upward speed [m/s].
    yaw : Tensor
        (B,) of the body in the place's axes [rad].
    reach : Tensor
        (B, 2) half extent to the right and ahead of the heading [m].
    contact_s : Tensor
        (B,) planned time until the robot and the body, or the wall, touch [s]; inf for never.
    robot_braking, body_braking, body_range : Tensor
        (B,) how the speeds were before, see `travelled`.
    """

    plan: Plan
    at: Tensor
    velocity: Tensor
    base: Tensor
    rise: Tensor
    yaw: Tensor
    reach: Tensor
    contact_s: Tensor
    robot_braking: Tensor
    body_braking: Tensor
    body_range: Tensor


def _polar(angle: Tensor, length: Tensor) -> Tensor:
    return torch.stack((angle.sin() * length, angle.cos() * length), -1)


def _closing(dice: Dice, plan: Plan) -> tuple[Tensor, Tensor]:
    """Bearing from which the body closes in [rad], and how fast [m/s]."""
    car = is_any(plan.kind, KIND, ('car', 'truck'))
    spread = torch.where(car, 0.1, 0.22 * plan.hfov)
    bearing = torch.minimum(dice.normal(spread).abs(), 0.4 * plan.hfov) * dice.sign()
    aside = dice.uniform(0.15, 0.4) * plan.hfov * dice.sign()
    bearing = torch.where(plan.happens('emerge'), aside, bearing)
    # A slower one ahead on the same way; on a motorway nothing comes the other way.
    leads = plan.moves & (plan.speed > 0) & torch.where(
        plan.at('motorway'), torch.ones_like(plan.moves), dice.chance(0.2))
    leads &= ~plan.happens('emerge')
    bearing = torch.where(leads, 0.12 * bearing, bearing)
    speed = plan.speed.clamp(min=0)
    wish = torch.where(leads, speed * dice.uniform(0.15, 0.9), plan.body_speed)
    wish = torch.maximum(wish, speed * bearing.sin().abs() * 1.03 + 1e-3)
    root = (wish.square() - (speed * bearing.sin()).square()).clamp(min=0).sqrt()
    closing = speed * bearing.cos() + torch.where(leads, -root, root)
    bearing = torch.where(plan.moves, bearing, plan.drift)
    closing = torch.where(plan.moves, closing, speed)
    return bearing, closing.clamp(min=1e-3)


def _yaw(dice: Dice, plan: Plan, at: Tensor, velocity: Tensor, outward: Tensor) -> Tensor:
    """Yaw of the bodies in the place's axes: along their motion, or as such things stand."""
    ways = to_world(velocity, plan.heading)
    along = torch.atan2(ways[..., 0], ways[..., 1])
    bearing = plan.heading + torch.atan2(at[..., 0], at[..., 1])
    car = is_any(plan.kind, KIND, ('car', 'truck')) & plan.at('street', 'motorway')
    turned = torch.where(dice.chance(0.3) & plan.at('street'), math.pi, 0.0)
    still = torch.where(car, turned + dice.normal(0.05), dice.uniform(-math.pi, math.pi))
    boxy = plan.at('room', 'corridor', 'warehouse') & dice.chance(0.6)
    square = math.pi / 2 * torch.floor(dice.uniform(0, 4)) + dice.normal(0.08)
    still = torch.where(boxy, square, still)
    yaw = torch.where(velocity.norm(dim=-1) > 0.01, along, still)
    facing = bearing + dice.normal(0.25)
    held = is_any(plan.kind, KIND, HELD)
    facing = torch.where(held & (outward < 0), facing + math.pi, facing)
    yaw = torch.where(is_any(plan.kind, KIND, FACING), facing, yaw)
    # A flat figure in side view walks along its own x axis.
    walker = plan.kind == KIND['walker']
    return torch.where(walker, torch.atan2(-ways[..., 1], ways[..., 0]), yaw)


def solve(dice: Dice, plan: Plan, config: WorldConfig) -> Meeting:
    """Positions, velocities and times for the planned outcomes."""
    b = dice.count
    held = is_any(plan.kind, KIND, HELD)
    tangent = (plan.hfov / 2).tan()
    focal = 0.5 / tangent
    half_v = torch.atan(tangent / plan.aspect)
    width, tall, length = plan.size.unbind(-1)
    # The trunk of a tree is what one runs into.
    slim = torch.where(plan.kind == KIND['tree'], 0.1, 1.0)
    side = torch.maximum(width, length * 0.7) * slim
    depth = torch.maximum(width * 0.7, length) * slim
    # As far off as the body still fills a share of the picture, and where it is to be met, as
    # the part of it that the robot would touch does.
    seen_width = 2 * torch.maximum(width, 0.5 * length) * slim.sqrt()
    touched = torch.minimum(seen_width, torch.tensor(2 * config.robot.half_width)) * (
        torch.minimum(tall, plan.height.clamp(min=config.robot.height)))
    area = torch.where(plan.happens(*CONTACT), touched, seen_width * tall)
    far = focal * (area * plan.aspect / _LEAST_SHARE).sqrt()

    bearing, closing = _closing(dice, plan)
    tau = torch.where(dice.chance(0.25), dice.uniform(0.08, 0.9), dice.uniform(0.2, 3.1))
    tau = torch.where(dice.chance(0.12), dice.log(0.4, 8), tau)
    meets = plan.happens('drive_into', 'hit_by', 'emerge', 'pass_static', 'pass_moving')
    near = torch.where(held, 0.08, 0.15 + 0.1 * width)
    gap = closing * tau
    scale = torch.minimum(torch.maximum(gap, near), torch.maximum(far, 2 * near)) / gap
    scale = torch.where(meets, scale, 1.0)
    scale = torch.where(plan.happens('drive_wall'), (0.1 / gap).clamp(min=1), scale)
    # Long times with a fast robot need places larger than ours: everything goes slower.
    leads = plan.moves & plan.at('motorway')
    speed, closing = plan.speed * torch.where(leads, 1, scale), closing * scale
    robot = _polar(plan.drift, speed)                                   # B 2

    # Which yaw, and so which extent, depends on the velocity alone but for what faces us.
    velocity = robot - _polar(bearing, closing)
    crosses, recedes = plan.happens('cross'), plan.happens('recede')
    away = torch.where(held, plan.body_speed, plan.body_speed.clamp(max=12))
    way, slant = dice.sign(), dice.normal(0.25)
    across = torch.stack((way * away * slant.cos(), away * slant.sin()), -1)
    look = dice.uniform(-0.4, 0.4) * plan.hfov
    leaving = _polar(look + dice.normal(0.3), away) + robot.clamp(min=0)
    velocity = torch.where(crosses[:, None], across, velocity)
    velocity = torch.where(recedes[:, None], leaving, velocity)
    pace = 1 + dice.uniform(-0.03, 0.05)
    velocity = torch.where(plan.happens('follow')[:, None], robot * pace[:, None], velocity)
    velocity = torch.where((plan.moves & ~plan.happens('stopped'))[:, None], velocity, 0)

    outward = dice.sign()
    aim = _polar(bearing, torch.ones(b))
    yaw = _yaw(dice, plan, aim, velocity, outward)
    turned = yaw - plan.heading
    reach = torch.stack((width * turned.cos().abs() + length * turned.sin().abs(),
                         width * turned.sin().abs() + length * turned.cos().abs()), -1)
    reach = reach * slim[:, None]

    # Where its middle is when its front is level with the robot's: in the way, or beside it.
    inside = dice.uniform(-0.75, 0.75) * torch.maximum(
        reach[:, 0], 0.6 * reach[:, 0] + config.robot.half_width)
    margin = torch.where(held, dice.log(0.03, 0.3), dice.log(0.12, 2))
    margin = torch.where(is_any(plan.kind, KIND, ('car', 'truck')), 0.2 + 1.3 * margin, margin)
    beside = outward * (config.robot.half_width + reach[:, 0] + margin)
    passes = plan.happens('pass_static', 'pass_moving')
    across_at = torch.where(passes, beside, inside)
    # What passes close by is out of view shortly before: mostly look at it earlier.
    seen = (across_at.abs() / (0.84 * plan.hfov / 2).tan() - reach[:, 1]) / (
        closing * bearing.cos())
    tau = torch.where(passes & dice.chance(0.55), torch.maximum(tau, seen), tau)
    spot = torch.stack((across_at, reach[:, 1]), -1) + _polar(bearing, closing * tau)

    # Crossing: out of the robot's way before the robot gets there.
    when = dice.uniform(-0.8, 2.2)
    out = when + (config.robot.half_width + reach[:, 0]) / across[:, 0].abs().clamp(min=0.05)
    spare = reach[:, 1] + torch.where(held, dice.log(0.1, 0.6), dice.log(0.2, 4))
    ahead = spare + (speed - velocity[:, 1]).clamp(min=0) * out.clamp(min=0)
    right = -across[:, 0] * when
    ahead = torch.maximum(ahead, right.abs() / (0.45 * plan.hfov).tan())
    spot = torch.where(crosses[:, None], torch.stack((right, ahead), -1), spot)

    # Standing, leaving, following, stopped: somewhere in view.
    least = near + torch.maximum(side, depth)
    off = dice.log(least, torch.maximum(0.7 * far, 1.5 * least))
    off = torch.where(plan.happens('follow'), least + 0.3 + speed * dice.uniform(0.5, 2.2), off)
    off = torch.where(held, dice.log(0.15, 1.1) + depth, off)
    off = torch.where(plan.happens('stopped') & ~held, least + dice.log(0.05, 2.5), off)
    lane = torch.where(plan.happens('follow'), dice.normal(0.03), look)
    stands = plan.happens('rest', 'recede', 'follow', 'turn', 'stopped')
    spot = torch.where(stands[:, None], _polar(lane, off), spot)

    distance = spot.norm(dim=-1)
    touching = plan.happens(*CONTACT)
    middle = plan.height + distance * (plan.pitch + dice.uniform(-0.5, 0.5) * half_v).tan()
    base = torch.where(held, (middle - tall / 2).clamp(min=0.03), 0)
    goal = plan.height + dice.normal(0.04) - tall / 2
    rise = torch.where(held & touching, (goal - base) / tau, 0)
    rise = torch.where(held & ~touching & dice.chance(0.4) & plan.moves, dice.normal(0.15), rise)
    rise = torch.where(plan.happens('stopped'), 0, rise)
    # A body below the picture warns of nothing: such a robot has a lower camera.
    front = (distance - depth).clamp(min=0.05)
    under = tall + front * (0.6 * half_v - plan.pitch).clamp(-0.3, 1.2).tan()
    low = plan.present & ~held & ~plan.at('motorway')
    height = torch.where(low, torch.minimum(plan.height, under).clamp(min=0.1), plan.height)

    duration = 8 * plan.interval_s
    robot_braking = torch.where(dice.chance(0.5), speed.abs() * dice.normal(0.45) / duration, 0)
    pace = velocity.norm(dim=-1)
    body_braking = torch.where(dice.chance(0.5), pace * dice.normal(0.6) / duration, 0)
    # What has just stopped was fast before; its speed now is zero.
    stop = dice.uniform(0.25, 1.2) * torch.where(held, 0.4, 1.0)
    stopped = plan.happens('stopped')
    robot_braking = torch.where(stopped & ~plan.moves, stop, robot_braking)
    body_braking = torch.where(stopped & plan.moves, stop, body_braking)
    body_range = torch.where(held, dice.uniform(0.15, 0.7), FAR_M)
    # The side from which the body came is where it was farther off.
    tiny = _polar(lane, torch.full((b,), -1e-6))
    velocity = torch.where((stopped & plan.moves)[:, None], tiny, velocity)
    speed = torch.where(stopped & ~plan.moves, 1e-6, speed)

    contact = torch.where(touching, tau, torch.inf)
    # Flat figures that go across are seen from the side.
    figure = plan.kind == KIND['figure']
    sight = spot / distance.clamp(min=1e-6)[:, None]
    sideways = (velocity[:, 0] * sight[:, 1] - velocity[:, 1] * sight[:, 0]).abs() > 0.7 * pace
    kind = torch.where(figure & sideways & (pace > 0.1), KIND['walker'], plan.kind)
    plan = replace(plan, speed=speed, height=height, kind=kind)
    yaw = torch.where(kind == KIND['walker'],
                      _yaw(dice, plan, spot, velocity, outward), yaw)
    return Meeting(plan, spot, velocity, base, rise, yaw, reach, contact, robot_braking,
                   body_braking, body_range)
