# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Draw light, weather, lenses and sensors."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from vjepa_ros.lab.world.scenes.places import INDOORS, Place
from vjepa_ros.lab.world.scenes.scene_rng import SceneRng
from vjepa_ros.lab.world.scenes.scene_spec import SceneSpec
from vjepa_ros.lab.world.textures.bank import Materials

CORNER = 0.35   # strongest pull of a wide lens at the corner of the picture, as -k1 r^2


def lens(draws: SceneRng, hfov: Tensor, aspect: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Intrinsics and distortion for pictures of an aspect squashed into a square.

    `hfov, aspect`: (B,) horizontal field of view [rad] and width by height of the source; `size`:
    side of the square [px].
    """
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


def light(draws: SceneRng, spec: SceneSpec, place: Place,
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
    shadow = torch.where(place.roofed, 0, shadow)

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
    cloudy = draws.chance(0.6) & (len(materials.clouds) > 0)
    drawn = (draws.unit() * max(1, len(materials.clouds))).long()
    clouds = torch.tensor(materials.clouds or (0,))[drawn]
    return {
        'sky_top': (top * dim).clamp(0, 1), 'sky_horizon': (pale * dim).clamp(0, 1),
        'sky_texture': torch.where(cloudy, clouds, -1), 'sun_direction': sun_direction,
        'sun': sun, 'ambient': ambient, 'shadow': shadow, 'fog_per_m': haze,
        'fog_color': (0.9 * pale * dim).clamp(0, 1)}


def brightness(place: Place, ground_tint: Tensor) -> Tensor:
    """Mean tint of the ground and of what stands around, (B,)."""
    alive = place.boxes.alive[:, :6]
    tints = place.boxes.tint[:, :6].mean(-1) * alive
    return (1.5 * ground_tint.mean(-1) + tints.sum(1)) / (1.5 + alive.sum(1))


def sensor(draws: SceneRng, spec: SceneSpec, bright: Tensor, frames: int) -> dict[str, Tensor]:
    """Exposure, colours, blur, noise and compression, named as the fields of `Scenes`.

    ``bright`` (B,) is how bright the surroundings are, 0.7 is usual: cameras make up for it.
    """
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
