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
from vjepa_ros.lab.world.scenes.scene import SceneRng, Shake
from vjepa_ros.lab.world.scenes.scene_spec import CONTACT, SceneSpec

SPEED_M_S, DRIVING_M_S = (0.005, 3.0), (5.0, 15.0)    # on foot and indoors; in streets
STANDS_SHARE = 0.04       # besides tables, and robots that have stopped
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
_TRUCK = 1 + list(PLATFORMS).index('truck')
_SMALL_CAR = 1 + list(PLATFORMS).index('small car')


def roam(draws: SceneRng, spec: SceneSpec, ride: Ride) -> SceneSpec:
    """Give mounted cameras any speed, and let them look away from their way."""
    free = ~spec.at('table', 'motorway')
    by_car = ride.platform == _TRUCK
    carried = ~by_car & (ride.platform != _SMALL_CAR)
    pace = torch.where(by_car, draws.log(*DRIVING_M_S), draws.log(*SPEED_M_S))
    pace = torch.where(draws.chance(STANDS_SHARE), 0, pace)
    speed = torch.where(free, pace, spec.speed.abs())

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
