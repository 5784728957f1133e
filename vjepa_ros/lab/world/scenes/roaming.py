# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Let the cameras of the roaming world move and look in all ways, close to what stands around.

How a scene looks says nothing here about how its camera moves. The way through the place, and
what is to happen there, are those of the rough world; the camera looks elsewhere.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from vjepa_ros.lab.world.scenes.platforms import PLATFORMS, Ride
from vjepa_ros.lab.world.scenes.scene import Capture, Front, SceneRng, Shake
from vjepa_ros.lab.world.scenes.scene_spec import CONTACT, SceneSpec

SPEED_M_S, DRIVING_M_S = (0.005, 3.0), (5.0, 15.0)    # on foot and indoors; in streets
STANDS_SHARE = 0.07       # besides tables, and robots that have stopped
LOOKS_DEG = 120.0         # to either side of the way, at most
BACKWARDS_SHARE, ASIDE_SHARE = 0.2, 0.5   # of clips in which nothing is to be met ahead
PITCH_DEG, ROLL_DEG = (-60.0, 25.0), 30.0
TILTED_SHARE = 0.5        # of cameras that are carried look up or down by any of `PITCH_DEG`
TURNS_DEG_S, CALM_DEG_S = (20.0, 120.0), (0.5, 15.0)   # greatest rates of looking round
TURNING_SHARE = 0.65
PAN_HZ, NOD_HZ, NOD_RAD = (0.1, 0.8), (0.25, 1.0), 0.6
_OVERLAP = 0.3            # of a picture that the next one shows again
RAIL_SHARE = 0.4          # of slow cameras move as on a rail
UNPLANNED_S = (0.3, 4.0)  # for so long nothing but what is planned is hit
COLOUR_SHARE = 0.4        # of the grey cameras of the rough world have colour here
FOCUS_SHARE, FOCUS_PX, FOCUS_HZ = 0.25, (0.5, 2.0), (0.3, 2.0)      # of cameras hunt so
LIGHT_SHARE, LIGHT_LOG, LIGHT_HZ = 0.35, (0.1, 0.6), (0.2, 1.5)
STREAK_PX = 10.0          # moved while a row is exposed: more than two rays of a pixel can show
DIRTY_SHARE, BLOBS = 0.1, 5
PART_SHARE, BANDS = 0.12, 5     # of cameras see a part of their robot
_TRUCK = 1 + list(PLATFORMS).index('truck')
_SMALL_CAR = 1 + list(PLATFORMS).index('small car')


def roam(draws: SceneRng, spec: SceneSpec, ride: Ride) -> SceneSpec:
    """Give mounted cameras any speed, and let them look away from their way."""
    free = ~spec.at('table', 'motorway')
    by_car = ride.platform == _TRUCK
    carried = ~by_car & (ride.platform != _SMALL_CAR)
    pace = torch.where(by_car, draws.log(*DRIVING_M_S), draws.log(*SPEED_M_S))
    pace = torch.where(draws.chance(STANDS_SHARE), 0, pace)
    speed = torch.where(free, torch.where(spec.happens('stopped'), 0, pace), spec.speed.abs())

    meets = spec.happens(*CONTACT, 'pass_static', 'pass_moving', 'follow', 'gap')
    ahead = torch.where(by_car, draws.normal(0.03), draws.normal(0.12))
    in_view = torch.where(draws.chance(0.4) & ~by_car, draws.uniform(-0.42, 0.42) * spec.hfov,
                          ahead)
    way = draws.unit()
    aside = math.radians(LOOKS_DEG) * draws.uniform(-1, 1)
    behind = math.pi + draws.normal(0.35)
    shares = torch.where(by_car, 0.25, 1.0)
    drift = torch.where(way < shares * BACKWARDS_SHARE, behind, torch.where(
        way < shares * (BACKWARDS_SHARE + ASIDE_SHARE), aside, ahead))
    drift = torch.where(free, torch.where(meets, in_view, drift), spec.drift)

    lowest, highest = (math.radians(angle) for angle in PITCH_DEG)
    pitch = torch.where(draws.chance(TILTED_SHARE), draws.uniform(lowest, highest),
                        draws.normal(0.1) - 0.07)
    roll = torch.where(draws.chance(0.15), math.radians(ROLL_DEG) * draws.uniform(-1, 1),
                       draws.normal(0.06))
    return replace(
        spec, speed=speed, drift=drift,
        heading=torch.where(free, spec.heading - drift, spec.heading),
        pitch=torch.where(carried & free, pitch, spec.pitch),
        roll=torch.where(carried & free, roll, spec.roll))


def look_round(draws: SceneRng, spec: SceneSpec, ride: Ride, times: Tensor,
               moved: Shake) -> Shake:
    """Add looking to all sides to a shake, which is less on slow cameras and none on a rail."""
    by_car = (ride.platform == _TRUCK) | spec.at('table', 'motorway')
    turning = draws.chance(TURNING_SHARE) & (~(ride.platform == _SMALL_CAR) | draws.chance(0.5))
    peak = torch.deg2rad(torch.where(turning, draws.uniform(*TURNS_DEG_S),
                                     draws.log(*CALM_DEG_S)))
    peak = torch.minimum(peak, (1 - _OVERLAP) * spec.hfov / spec.interval_s)
    on_rail = draws.chance(RAIL_SHARE) & (spec.speed.abs() < 0.3)
    peak = torch.where(by_car | on_rail, 0, peak)
    rate = 2 * math.pi * torch.stack((draws.log(*PAN_HZ), draws.log(*NOD_HZ), draws.log(*NOD_HZ)),
                                     -1)                                  # B 3
    nods = (ride.platform != _SMALL_CAR).float()
    share = torch.stack((draws.uniform(0.4, 1), nods * draws.unit(), 0.15 * draws.unit()), -1)
    swings = peak[:, None] * share
    swings[:, 1:] = swings[:, 1:].minimum(rate[:, 1:] * NOD_RAD * torch.tensor([1, 0.3]))
    phase = draws.uniform(-math.pi, math.pi, 3)
    turned = rate[:, None] * times[..., None] + phase[:, None]            # B T 3
    angles = (swings / rate)[:, None] * (turned.sin() - phase[:, None].sin())
    rates = swings[:, None] * turned.cos()

    slow = (spec.speed.abs() / 0.6).clamp(0.02, 1)
    shaken = torch.where(on_rail, 0, slow.sqrt())[:, None, None]
    bob = torch.where(on_rail, 0, slow)[:, None, None]
    return Shake(shaken * moved.angles + angles, shaken * moved.rates + rates,
                 bob * moved.offset, bob * moved.speed)


def filmed(draws: SceneRng, times: Tensor, intrinsics: Tensor, light: dict[str, Tensor],
           seen: dict[str, Tensor], taken: Capture) -> tuple[dict[str, Tensor], Capture]:
    """Let focus and exposure hunt, and put dirt and parts of robots before the lens."""

    def swings(low: float, high: float) -> Tensor:
        rate = 2 * math.pi * draws.log(low, high, 1)
        return (rate * times + draws.uniform(-math.pi, math.pi, 1)).sin()

    level = (light['ambient'] + 0.4 * light['sun'])[:, None]
    focus = torch.where(draws.chance(FOCUS_SHARE), draws.uniform(*FOCUS_PX), 0)[:, None]
    gain = torch.where(draws.chance(LIGHT_SHARE), draws.uniform(*LIGHT_LOG), 0)[:, None]
    seen = seen | {
        'blur_px': seen['blur_px'][:, None] + focus * (0.5 + 0.5 * swings(*FOCUS_HZ)),
        # Cameras open up in dim light, mostly enough.
        'exposure': seen['exposure'] * (0.8 / level).clamp(1, 4) ** 0.8 * (
            gain * swings(*LIGHT_HZ)).exp(),
        'grey': seen['grey'] & ~draws.chance(COLOUR_SHARE)}
    spin = taken.spin.norm(dim=-1).amax(1).clamp(min=1e-3)
    shine = level * (draws.uniform(0, 0.25, 1) * swings(0.2, 2)).exp()
    return seen, replace(
        taken, exposure_s=taken.exposure_s.minimum(STREAK_PX / (intrinsics[:, 0] * spin)),
        front=Front(_bands(draws), shine, _blobs(draws, level)))


def _bands(draws: SceneRng) -> Tensor:
    """Parts of robots, see `Front`: rails or a fence, a bumper, or two fingers from below."""
    number, part = torch.arange(BANDS), draws.unit(1)
    rails, gripper = part < 0.55, part > 0.85
    bumper = ~(rails | gripper)
    many = torch.where(rails, torch.tensor([1, 2, BANDS])[draws.pick(torch.ones(3), 1)],
                       torch.where(gripper, 2, 1))
    finger = 1 - 2.0 * number
    upright = math.pi / 2 * draws.chance(0.5, 1)
    angle = torch.where(rails, upright + draws.normal(0.15, 1) + draws.normal(0.03, BANDS),
                        torch.where(gripper, finger * draws.uniform(-0.2, 0.8, 1),
                                    math.pi / 2 + draws.normal(0.06, 1)))
    apart = (number - (many - 1) / 2) * draws.uniform(1.5, 2, 1) + draws.uniform(-0.7, 0.7, 1)
    across = torch.where(rails, apart / many, torch.where(
        gripper, finger * draws.uniform(0.35, 0.75, 1), 1))
    half = torch.where(bumper, draws.log(0.12, 0.9, 1), draws.uniform(0.08, 0.24, 1) / many ** 0.6)
    half = torch.where(draws.chance(PART_SHARE, 1) & (number < many), half, -1)
    along = torch.where(gripper, draws.uniform(0.7, 1, 1), 0)
    reach = torch.where(gripper, draws.uniform(0.5, 0.9, 1), 3)
    bow = torch.where(bumper, draws.normal(0.2, 1), 0)
    tone = draws.log(torch.where(draws.chance(0.5, 1), 0.01, 0.1), 0.8, 1)
    stripes = torch.where(draws.chance(0.4, 1), draws.uniform(0.1, 0.9, 1), 0)
    return torch.stack(torch.broadcast_tensors(
        angle.cos(), angle.sin(), across, half, along, reach, bow, draws.log(0.01, 0.08, 1),
        tone, stripes, draws.log(4, 40, 1)), -1)


def _blobs(draws: SceneRng, level: Tensor) -> Tensor:
    """Dirt and drops, see `Front`: most lenses are clean."""
    n = BLOBS
    there = draws.chance(DIRTY_SHARE, 1) & draws.chance(0.7, n)
    drop = draws.chance(0.5, n)
    dirt = level * torch.where(draws.chance(0.6, n), draws.log(0.01, 0.1, n),
                               draws.uniform(0.4, 1, n))
    return torch.stack((
        draws.uniform(-1, 1, n), draws.uniform(-1, 1, n), draws.log(0.06, 0.35, n),
        draws.uniform(0.15, 1, n), torch.where(there, draws.uniform(0.4, 0.95, n), 0),
        drop.float(), torch.where(drop, 0.05 * dirt, dirt)), -1)
