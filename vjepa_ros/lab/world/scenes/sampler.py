# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Sample random scenes: event, place, bodies, camera, light and sensor."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from vjepa_ros.lab.world.scenes.appearance import brightness, lens, light, sensor
from vjepa_ros.lab.world.scenes.bodies import HERO, SIDE, THIN, Bodies, assemble
from vjepa_ros.lab.world.scenes.encounter_solver import FAR_M, Encounter, solve
from vjepa_ros.lab.world.scenes.furniture import side_bodies, thin_bodies
from vjepa_ros.lab.world.scenes.motion import (
    Path,
    Shake,
    body_path,
    camera_path,
    frame_times,
    rotation,
    shake,
    spin,
    to_world,
    travelled,
)
from vjepa_ros.lab.world.scenes.places import decor, ground, lay_out
from vjepa_ros.lab.world.scenes.scene import Scenes, Shapes, join
from vjepa_ros.lab.world.scenes.scene_rng import SceneRng
from vjepa_ros.lab.world.scenes.scene_spec import WorldConfig, make_spec
from vjepa_ros.lab.world.textures.bank import Materials

NEAR_M = 0.04   # no surface comes nearer to a camera during a clip


@dataclass(frozen=True)
class Sample:
    """Scenes and what was planned for them, on the CPU.

    Attributes
    ----------
    scenes : Scenes
        B scenes.
    hold : Tensor
        (B,) how often each picture of a clip is shown.
    place, outcome : Tensor
        (B,) numbers of `plans.PLACES`, `plans.OUTCOMES`.
    planned_s : Tensor
        (B,) planned time to contact [s], inf for none. What really follows, with all that
        stands in the scene, is in the truth.
    hero : Tensor
        (B,) bool, whether the first shapes are a body that matters for the outcome.
    """

    scenes: Scenes
    hold: Tensor
    place: Tensor
    outcome: Tensor
    planned_s: Tensor
    hero: Tensor


class SceneSampler:
    """Draw random scenes.

    Parameters
    ----------
    materials : Materials
        The textures to choose from.
    size, frames : int
        Side of the square pictures [px] and frames of a clip.
    config : WorldConfig
        The robot and its cameras.
    """

    def __init__(self, materials: Materials, size: int, frames: int,
                 config: WorldConfig) -> None:
        if size < 1 or frames < 1:
            raise ValueError(f'size {size} and frames {frames} must be at least 1')
        self.materials = materials
        self.size, self.frames, self.config = size, frames, config

    def sample(self, seed: int, count: int) -> Sample:
        """Scenes for a seed and a count: the same ones for the same two numbers."""
        draws = SceneRng(seed, count)
        spec = make_spec(draws, self.config)
        encounter = solve(draws, spec, self.config)
        spec = encounter.spec
        times = frame_times(spec.interval_s, spec.hold, self.frames)
        uneven = self.config.jitter * draws.chance(0.35, 1) * draws.uniform(-1, 1, self.frames)
        uneven[:, -1] = 0
        times = (times + torch.where(spec.hold[:, None] > 1, 0, uneven)
                 * spec.interval_s[:, None]).clamp(max=0)

        gone = travelled(spec.speed, encounter.robot_braking, torch.full_like(spec.speed, FAR_M),
                         times)
        path = camera_path(spec.heading, spec.drift, spec.turn, gone, times)
        hero = self._hero(draws, encounter, times)
        place = lay_out(draws, encounter, path.place, self.materials, self.config)
        body = hero.place[:, :, 0, 0::2]
        parts = [
            assemble(HERO, hero, times, self.materials, draws),
            assemble(SIDE, side_bodies(draws, encounter, place, path.place, body, times,
                                       self.config), times, self.materials, draws),
            assemble(THIN, thin_bodies(draws, encounter, place, times, self.config), times,
                     self.materials, draws),
            place.boxes, decor(draws, encounter, place, self.materials)]
        shapes = join(parts, self.frames)

        moved = shake(draws, times, spec.hand, spec.steps, spec.motor)
        camera = _camera(encounter, path, moved)
        shapes = _cleared(shapes, camera['camera_position'])
        # Textures of the ground lie at the world's origin: let every camera be elsewhere.
        away = torch.cat((draws.uniform(-40, 40, 1), torch.zeros(count, 1),
                          draws.uniform(-40, 40, 1)), -1)
        shapes = replace(shapes, position=shapes.position + away[:, None, None])
        camera['camera_position'] = camera['camera_position'] + away[:, None]
        intrinsics, distortion = lens(draws, spec.hfov, spec.aspect, self.size)
        texture, tile, tint = ground(draws, spec.place, self.materials)
        scenes = Scenes(
            interval_s=spec.interval_s, intrinsics=intrinsics, distortion=distortion, **camera,
            kinds=shapes.kinds, **{f.name: getattr(shapes, f.name) for f in fields(Shapes)
                                   if f.name != 'kinds'},
            ground_texture=texture, ground_tile_m=tile, ground_tint=tint,
            **light(draws, spec, place, self.materials),
            **sensor(draws, spec, brightness(place, tint), self.frames))
        # The main part of a body is its first.
        main = HERO.alive.int().argmax(1)[spec.kind]
        there = spec.present & scenes.alive.gather(1, main[:, None])[:, 0]
        planned = torch.where(there | ~spec.present, encounter.contact_s, torch.inf)
        return Sample(scenes, spec.hold, spec.place, spec.outcome, planned, there)

    def _hero(self, draws: SceneRng, encounter: Encounter, times: Tensor) -> Bodies:
        """Return the body of importance on its path."""
        spec = encounter.spec
        at = to_world(encounter.at, spec.heading)
        go = to_world(encounter.velocity, spec.heading)
        place = torch.stack((at[:, 0], -encounter.base, at[:, 1]), -1)
        velocity = torch.stack((go[:, 0], -encounter.rise, go[:, 1]), -1)
        pace = velocity.norm(dim=-1)
        gone = travelled(pace, encounter.body_braking, encounter.body_range, times)
        turn = torch.where(encounter.body_range < FAR_M, draws.normal(0.5), 0)
        turn = torch.where(draws.chance(0.5) & spec.moves, turn, 0)
        yaw = encounter.yaw[:, None] + turn[:, None] * times
        still = pace > 1e-4
        return Bodies(spec.kind[:, None], spec.present[:, None], spec.size[:, None],
                      body_path(place, velocity, gone).unsqueeze(2), yaw.unsqueeze(2),
                      (velocity * still[:, None])[:, None], turn[:, None])


def _camera(encounter: Encounter, path: Path, moved: Shake) -> dict[str, Tensor]:
    """Fields of `Scenes` for the camera, at the origin of the ground at the newest frame."""
    spec = encounter.spec
    yaw = path.yaw + moved.angles[..., 0] - moved.angles[:, -1:, 0]
    pitch = spec.pitch[:, None] + moved.angles[..., 1]
    roll = spec.roll[:, None] + moved.angles[..., 2]
    up = (-spec.height[:, None] + moved.offset[..., 1]).clamp(max=-0.04)
    position = torch.stack((path.place[..., 0] + moved.offset[..., 0], up,
                            path.place[..., 1]), -1)
    direction = spec.heading + spec.drift
    speed = torch.where(spec.speed.abs() > 1e-4, spec.speed, 0)
    velocity = torch.stack((direction.sin() * speed, torch.zeros_like(speed),
                            direction.cos() * speed), -1)
    rates = moved.rates.clone()
    rates[:, 0] += spec.turn
    return {'camera_position': position, 'camera_rotation': rotation(yaw, pitch, roll),
            'camera_velocity': velocity, 'camera_spin': spin(pitch[:, -1], roll[:, -1], rates)}


def _cleared(shapes: Shapes, camera: Tensor) -> Shapes:
    """Take away shapes that a camera would pass through or scrape along during the clip.

    Parameters
    ----------
    camera : Tensor
        (B, T, 3) positions [m].
    """
    offset = camera.unsqueeze(2) - shapes.position                      # B T K 3
    sine, cosine = shapes.yaw.sin(), shapes.yaw.cos()
    x, z = offset[..., 0], offset[..., 2]
    own = torch.stack((x * cosine - z * sine, offset[..., 1], x * sine + z * cosine), -1)
    reach = (shapes.half + NEAR_M).unsqueeze(1)
    if own.shape[1] == 1:
        inside = (own.abs() < reach).all(-1).any(1)
        return replace(shapes, alive=shapes.alive & ~inside)
    # Slabs: is any point of the straight way between two frames within all three?
    start, way = own[:, :-1], own[:, 1:] - own[:, :-1]
    way = torch.where(way.abs() < 1e-7, 1e-7, way)
    middle, extent = -start / way, (reach / way).abs()
    first = (middle - extent).amax(-1).clamp(min=0)
    last = (middle + extent).amin(-1).clamp(max=1)
    return replace(shapes, alive=shapes.alive & ~(first <= last).any(1))
