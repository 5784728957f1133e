# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Draw light, weather, lenses and sensors, and how rough cameras take their frames.

`docs/training.md` lists the distributions.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from vjepa_ros.lab.world.scenes.places import INDOORS
from vjepa_ros.lab.world.scenes.platforms import Ride
from vjepa_ros.lab.world.scenes.scene import Capture, SceneRng, Shapes
from vjepa_ros.lab.world.scenes.scene_spec import SceneSpec
from vjepa_ros.lab.world.textures.bank import Materials

JITTER = 0.12         # greatest standard deviation of the times of pictures, in periods
DROPPED = 0.3         # greatest probability that a picture is lost
ROLLING_SHARE = 0.7   # of the cameras read one row after the other
READOUT_S = (0.008, 0.033)
ARRIVAL_SHARE = 0.5   # of the cameras that training sees are stamped when a picture arrives
DELAY_S = (0.005, 0.1)    # of the scatter of delays, and its most in periods
MOST_DELAY, MOST_DELAY_IN_STREAMS = 0.5, 0.15
APART_S = 0.001       # between stamps at least
CORNER = 0.35   # strongest pull of a wide lens at the corner of the picture, as -k1 r^2


def lens(draws: SceneRng, hfov: Tensor, aspect: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Intrinsics and distortion for pictures of an aspect, squashed into a square."""
    edge = (hfov / 2).tan()
    corner = edge.square() * (1 + aspect.square().reciprocal())         # r^2
    wide = ((hfov - 0.9) / 0.8).clamp(0, 1)
    # Wide lenses are never quite straight; others may be, or bulge a little the other way.
    pull = CORNER * torch.maximum(0.6 * wide, torch.where(draws.chance(0.5), draws.unit(), 0))
    pull = torch.where(draws.chance(0.15) & (wide < 0.1), -0.06 * draws.unit(), pull)
    k1 = -pull / corner
    # This much of the next term keeps the mapping monotone to the corner and beyond.
    k2 = torch.where(k1 < 0, 0.65 * k1.square(), 0)
    bent = edge * (1 + k1 * edge.square() + k2 * edge.square().square())
    fx = size / 2 / bent
    centre = (size - 1) / 2 + draws.normal(0.015 * size, 2).clamp(-0.04 * size, 0.04 * size)
    off = torch.where(draws.chance(0.6, 1), centre, (size - 1) / 2)
    return (torch.stack((fx, fx * aspect, off[:, 0], off[:, 1]), -1), torch.stack((k1, k2), -1))


def light(draws: SceneRng, spec: SceneSpec, roofed: Tensor,
          materials: Materials) -> dict[str, Tensor]:
    """Draw sky, sun, shadow and fog, named as the fields of `Scenes`."""
    indoors = spec.at(*INDOORS)
    overcast = draws.chance(0.35)
    dusk = draws.chance(0.06)
    height = torch.where(indoors, draws.uniform(0.9, 1.5), draws.uniform(0.2, 1.25))
    around = draws.uniform(-math.pi, math.pi)
    sun_direction = torch.stack((around.sin() * height.cos(), -height.sin(),
                                 around.cos() * height.cos()), -1)
    sun = torch.where(overcast, draws.uniform(0.0, 0.25), draws.uniform(0.6, 1.4))
    ambient = torch.where(overcast, draws.uniform(0.6, 1.0), draws.uniform(0.25, 0.55))
    sun = torch.where(indoors, draws.uniform(0.05, 0.6), sun)
    ambient = torch.where(indoors, draws.uniform(0.4, 0.85), ambient)
    ambient = torch.where(dusk, 0.4 * ambient, ambient)
    sun = torch.where(dusk, 0.3 * sun, sun)
    shadow = torch.where(overcast, draws.uniform(0, 0.3), draws.uniform(0.5, 0.95))
    shadow = torch.where(indoors, draws.uniform(0, 0.5), shadow)
    shadow = torch.where(roofed, 0, shadow)

    bright = draws.uniform(0.55, 1.0)[:, None]
    blue = torch.tensor([0.35, 0.55, 0.9]) + draws.normal(0.06, 3)
    grey = torch.tensor([0.75, 0.78, 0.82]) + draws.normal(0.04, 3)
    top = torch.where(overcast[:, None], grey, blue) * bright
    pale = torch.where(overcast[:, None], grey, torch.tensor([0.78, 0.85, 0.94])
                       + draws.normal(0.05, 3)) * bright.sqrt()
    # A sky that is simply white is what cheap cameras see.
    white = draws.chance(0.3)[:, None]
    top, pale = torch.where(white, 1.0, top), torch.where(white, 1.0, pale)
    dim = torch.where(indoors | dusk, 0.5, 1.0)[:, None]
    haze = torch.where(draws.chance(0.35) & ~indoors, draws.log(0.001, 0.04), 0)
    haze = torch.where(indoors & draws.chance(0.05), draws.log(0.005, 0.05), haze)
    cloudy = draws.chance(0.6)
    clouds = torch.tensor(materials.clouds)[(draws.unit() * len(materials.clouds)).long()]
    return {
        'sky_top': (top * dim).clamp(0, 1), 'sky_horizon': (pale * dim).clamp(0, 1),
        'sky_texture': torch.where(cloudy, clouds, -1), 'sun_direction': sun_direction,
        'sun': sun, 'ambient': ambient, 'shadow': shadow, 'fog_per_m': haze,
        'fog_color': (0.9 * pale * dim).clamp(0, 1)}


def brightness(boxes: Shapes, ground_tint: Tensor) -> Tensor:
    """Mean tint of the ground and of what stands around, (B,)."""
    alive = boxes.alive[:, :6]
    tints = boxes.tint[:, :6].mean(-1) * alive
    return (1.5 * ground_tint.mean(-1) + tints.sum(1)) / (1.5 + alive.sum(1))


def sensor(draws: SceneRng, spec: SceneSpec, bright: Tensor, frames: int) -> dict[str, Tensor]:
    """Exposure, colours, blur, noise and compression, as fields of `Scenes`."""
    steady = draws.chance(0.6)[:, None]
    drift = draws.normal(0.1, 1) * torch.linspace(-1, 0, frames)
    flicker = draws.normal(0.06, frames) * draws.unit(1)
    # The automatic exposure jumps once, as when the view fills with something bright.
    at = (draws.unit(1) * frames).long()
    jump = torch.where(draws.chance(0.2, 1) & (torch.arange(frames) < at), draws.normal(0.4, 1), 0)
    level = 0.2 + draws.normal(0.3, 1) - 0.6 * (bright[:, None] / 0.7).log().clamp(-1.5, 1)
    exposure = (level + torch.where(steady, 0, drift + flicker + jump)).exp()

    poor = draws.unit()      # one draw decides most of how good the camera is
    quiet = draws.chance(0.3)
    grey = draws.chance(0.3)
    hue = torch.stack((draws.normal(0.07), torch.zeros(draws.count), draws.normal(0.08)), -1).exp()
    blur = torch.where(draws.chance(0.7), draws.uniform(0, 0.4) + 0.7 * poor * draws.unit(),
                       draws.uniform(0.6, 1.6))
    return {
        'exposure': exposure.clamp(0.3, 3.0),
        'white_balance': hue, 'gamma': draws.uniform(0.42, 0.7),
        'vignette': torch.where(draws.chance(0.5), draws.uniform(0, 0.6) * (0.3 + 0.7 * poor), 0),
        'blur_px': blur, 'shutter': torch.where(draws.chance(0.6), draws.uniform(0.02, 0.5), 0.02)
        * (0.05 / spec.interval_s).clamp(max=1),
        'read_noise': torch.where(quiet, draws.uniform(0, 0.7), draws.log(0.5, 6) * (0.3 + poor)),
        'shot_noise': torch.where(quiet, draws.uniform(0, 1), draws.log(0.5, 8) * (0.3 + poor)),
        'grey': grey, 'jpeg': torch.where(draws.chance(0.5), draws.unit() * poor, 0),
        'seed': (draws.unit() * 2**24).long()}


def clip_times(draws: SceneRng, interval_s: Tensor, period_s: Tensor, frames: int) -> Tensor:
    """Take the times (B, T) of the pictures nearest to those wanted; some are late or lost."""
    count = frames + round(frames * 1.5 * float((interval_s / period_s).max())) + 8
    tick = -torch.arange(count) * period_s[:, None]                       # B count
    late = draws.normal(1, count).clamp(-2.5, 2.5) * draws.uniform(0, JITTER, 1)
    tick[:, 1:] += (late * draws.chance(0.6, 1) * period_s[:, None])[:, 1:]
    lost = draws.unit(count) < draws.uniform(0, DROPPED, 1) * draws.chance(0.5, 1)
    lost[:, 0] = False
    tick = torch.where(lost, torch.inf, tick)
    number = torch.arange(count)
    taken, last = [torch.zeros(len(tick))], torch.zeros(len(tick), 1)
    for back in range(1, frames):
        off = (tick + back * interval_s[:, None]).abs()
        last = torch.where(number > last, off, torch.inf).argmin(1, keepdim=True)
        taken.append(tick.gather(1, last)[:, 0])
    return torch.stack(taken[::-1], 1)


def arrival_times(draws: SceneRng, times: Tensor, ride: Ride, stream: bool) -> Tensor:
    """Return when drivers that know no better say that pictures were taken, (B, T)."""
    # Of a stream, tubelets whose frames have come at about the same time are not taken.
    most = (MOST_DELAY_IN_STREAMS if stream else MOST_DELAY) * ride.period_s
    scatter = torch.minimum(draws.log(*DELAY_S), most)[:, None]
    delay = draws.normal(1, times.shape[1]).abs().clamp(max=2.5) * scatter
    least = APART_S * torch.arange(times.shape[1])
    arrival = (times + delay - least).cummax(1).values + least
    wrong = ride.own[:, None] & draws.chance(ARRIVAL_SHARE, 1)
    return torch.where(wrong, arrival - arrival[:, -1:], times)


def bent_lens(draws: SceneRng, spec: SceneSpec, ride: Ride, size: int,
              straight: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Optics where a wide lens replaces a straight one; with bars, square pixels."""
    intrinsics, distortion = straight
    square = intrinsics[:, [0, 0, 2, 3]]
    intrinsics = torch.where(ride.boxed[:, None], square, intrinsics)
    wide = (ride.bend < 1)[:, None]
    edge = (ride.bend * spec.hfov / 2).tan() / ride.bend
    k1 = 0.04 * draws.uniform(-1, 1) / (edge.square() * (1 + spec.aspect.square().reciprocal()))
    fx = size / 2 / (edge * (1 + k1 * edge.square()))
    bent = torch.cat((fx[:, None], (fx * spec.aspect)[:, None], intrinsics[:, 2:]), 1)
    return (torch.where(wide, bent, intrinsics),
            torch.where(wide, torch.stack((k1, torch.zeros_like(k1)), -1), distortion))


def rough_sensor(draws: SceneRng, spec: SceneSpec, ride: Ride, usual: dict[str, Tensor],
                 times: Tensor) -> dict[str, Tensor]:
    """Make the sensors of platforms as bad as they are; fields of `Scenes` as in `usual`."""
    own = ride.own
    # The light changes at once; the automatic exposure follows with a lag.
    begins = draws.uniform(0, 1, 1) * times[:, :1]
    since = times - begins
    step = draws.normal(0.8, 1) * torch.exp(-since / draws.log(0.05, 1.0, 1))
    step = torch.where((since >= 0) & draws.chance(0.45, 1), step, 0)
    wrong = draws.unit(1)       # set too bright, or too dark
    level = torch.where(wrong < 0.1, draws.uniform(1.5, 3, 1), torch.where(
        wrong > 0.9, draws.uniform(0.25, 0.6, 1), 1.0))
    exposure = usual['exposure'][:, -1:] * level * step.exp()

    cheap = draws.chance(0.35)  # small grey sensors: noisy, soft, dark at the edges
    poor = torch.where(cheap, draws.uniform(0.5, 1), draws.unit())
    rough = {
        'exposure': exposure.clamp(0.12, 5),
        'vignette': torch.where(draws.chance(0.6), draws.uniform(0.05, 0.8) * poor, 0),
        'blur_px': torch.where(cheap, draws.uniform(0.3, 1.4), usual['blur_px']),
        'read_noise': torch.where(cheap, draws.log(1, 8), usual['read_noise']),
        'shot_noise': torch.where(cheap, draws.log(1, 9), usual['shot_noise']),
        'grey': usual['grey'] | cheap, 'shutter': torch.zeros(draws.count),
        'jpeg': torch.where(draws.chance(0.6), draws.unit(), 0),
        'gamma': torch.where(cheap, draws.uniform(0.38, 0.7), usual['gamma'])}
    return usual | {name: torch.where(own.view(-1, *[1] * (values.ndim - 1)), values, usual[name])
                    for name, values in rough.items()}


def glaring(draws: SceneRng, decor: Shapes, ride: Ride) -> Shapes:
    """Let the lamps among the decor, its last two shapes, shine brighter than white."""
    tint, half = decor.tint.clone(), decor.half.clone()
    tint[:, -2:] = draws.log(3, 30, 1, 1)
    half[:, -2:] *= torch.stack((draws.uniform(1, 3), torch.ones(draws.count),
                                 draws.uniform(1, 3)), -1)[:, None]
    own = ride.own[:, None, None]
    return replace(decor, tint=torch.where(own, tint, decor.tint),
                   half=torch.where(own, half, decor.half))


def capture(draws: SceneRng, spec: SceneSpec, ride: Ride, speeds: Tensor,
            spins: Tensor) -> Capture:
    own = ride.own
    indoors = spec.at(*INDOORS)
    least, most = torch.where(indoors, 0.003, 0.0003), torch.where(indoors, 0.033, 0.012)
    opened = torch.minimum(draws.log(least, most), 0.8 * ride.period_s)
    rolls = own & draws.chance(ROLLING_SHARE)

    def some(share: float, low: float, high: float) -> Tensor:
        return torch.where(own & draws.chance(share), draws.log(low, high), 0)

    return Capture(
        velocity=speeds, spin=spins, exposure_s=opened,
        readout_s=torch.where(rolls, draws.uniform(*READOUT_S), 0), bend=ride.bend,
        shown=torch.where(ride.boxed, 1 / spec.aspect, 1.0),
        glare=some(0.4, 0.02, 0.3), pattern=some(0.4, 0.4, 4), stripes=some(0.35, 0.3, 3),
        banding=some(0.3, 0.3, 2.5))
