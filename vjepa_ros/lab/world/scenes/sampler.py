# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Sample random scenes: event, place, bodies, camera, light and sensor."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from vjepa_ros.lab.world.scenes import camera, places, platforms, roaming, scene
from vjepa_ros.lab.world.scenes.bodies import Bodies, CLUTTER, HERO, SIDE, THIN, assemble
from vjepa_ros.lab.world.scenes.furniture import clutter, side_bodies, thin_bodies
from vjepa_ros.lab.world.scenes.platforms import Ride
from vjepa_ros.lab.world.scenes.scene import (
    FAR_M,
    Rhythm,
    SceneRng,
    Scenes,
    Shake,
    Shapes,
    Steady,
)
from vjepa_ros.lab.world.scenes.scene_spec import Encounter, WorldConfig, make_spec, solve
from vjepa_ros.lab.world.textures.bank import Materials
from vjepa_ros.model.variants import TUBELET

NEAR_M = 0.04   # no surface comes nearer to a camera during a clip
JITTER = 0.3    # greatest irregularity of the times of frames, in intervals
PAINTED_SHARE = 0.35      # of bodies that training sees have plain surfaces, as boards and boxes


@dataclass(frozen=True)
class Sample:
    """Scenes and what was planned for them, on the CPU."""

    scenes: Scenes  # b scenes
    stamps_s: Tensor  # (B, T) of the picture that each frame shows [s], 0 for the newest
    hold: Tensor  # (B,) how often each picture of a clip is shown


class SceneSampler:
    def __init__(self, materials: Materials, size: int, frames: int, config: WorldConfig,
                 stream: bool = False) -> None:
        self.materials, self.stream = materials, stream
        self.size, self.frames, self.config = size, frames, config

    def sample(self, seed: int, count: int) -> Sample:
        draws, training = SceneRng(seed, count), self.config.training
        roams = self.config.roaming
        rhythm = Rhythm.draw(draws, self.frames // TUBELET) if self.stream else None
        encounter, ride = self._planned(draws, rhythm)
        spec = encounter.spec
        if rhythm is None:
            times = self._times(draws, encounter, ride)
        else:
            times = rhythm.times(draws)
            spec = replace(spec, interval_s=rhythm.step_s)
            ride = ride and replace(ride, period_s=rhythm.step_s)
        turned = spec.turn[:, None] * times if ride is None else ride.grown(spec.turn, times)[0]

        moving, steady = times, scene.ALWAYS
        if ride is not None:
            moving, steady = ride.stopping(times), ride.steady
        gone = scene.travelled(spec.speed, encounter.robot_braking,
                               torch.full_like(spec.speed, FAR_M), moving, steady)
        path, yaw = scene.camera_path(spec.heading, spec.drift, turned, gone)
        hero = self._hero(draws, encounter, times, moving, steady)
        ahead_s = draws.log(*roaming.UNPLANNED_S) if roams else places.AHEAD_S
        place = places.lay_out(draws, encounter, path, self.materials, ahead_s)
        body = hero.place[:, :, 0, 0::2]
        painted = PAINTED_SHARE if training else 0.0
        parts = [
            assemble(HERO, hero, times, self.materials, draws, painted),
            assemble(SIDE, side_bodies(draws, encounter, place, path, body, times),
                     times, self.materials, draws, painted),
            assemble(THIN, thin_bodies(draws, encounter, place, times), times, self.materials,
                     draws, painted),
            place.boxes, places.decor(draws, encounter, place, self.materials)]
        if ride is not None:
            parts[-1] = camera.glaring(draws, parts[-1], ride)
        if roams:
            parts[3:3] = [
                assemble(CLUTTER, clutter(draws, encounter, place, times), times, self.materials,
                         draws, painted),
                places.behind(draws, encounter, place, path, self.materials)]
        shapes = scene.join(parts, self.frames)

        moved = scene.shake(draws, times, spec.hand, spec.steps, spec.motor)
        if ride is not None:
            rode = platforms.ridden(draws, ride, encounter, times, training)
            moved = rode.where(ride.own, moved)
            if roams:
                moved = roaming.look_round(draws, spec, ride, times, moved)
        pose = _pose(encounter, path, yaw, moved)
        shapes = _cleared(shapes, pose['camera_position'])
        # Textures of the ground lie at the world's origin: let every camera be elsewhere.
        away = torch.cat((draws.uniform(-40, 40, 1), torch.zeros(count, 1),
                          draws.uniform(-40, 40, 1)), -1)
        shapes = replace(shapes, position=shapes.position + away[:, None, None])
        pose['camera_position'] = pose['camera_position'] + away[:, None]
        optics = camera.lens(draws, spec.hfov, spec.aspect, self.size)
        texture, tile, tint = places.ground(draws, spec.place, self.materials)
        sky = camera.light(draws, spec, place.roofed, self.materials)
        seen = camera.sensor(draws, spec, camera.brightness(place.boxes, tint), self.frames)
        taken = None
        if ride is not None:
            speeds, spins = _speeds(encounter, ride, yaw, moved, times)
            pose |= {'camera_velocity': speeds[:, -1], 'camera_spin': spins[:, -1]}
            taken = camera.capture(draws, spec, ride, speeds, spins)
            optics = camera.bent_lens(draws, spec, ride, self.size, optics)
            seen = camera.rough_sensor(draws, spec, ride, seen, times)
            if roams:
                seen, taken = roaming.filmed(draws, times, optics[0], sky, seen, taken)
            texture, tile, tint = places.bare(draws, spec.place, self.materials,
                                              (texture, tile, tint))
            laid = places.coverings(draws, encounter, self.materials)
            laid = replace(laid, position=laid.position + away[:, None, None])
            shapes = scene.join([shapes, laid], self.frames)
        stamps = times if ride is None or not training else camera.arrival_times(
            draws, times, ride, self.stream)
        # What happens in a stream is told for the step of the newest tubelet.
        interval = stamps[:, -1] - stamps[:, -2] if self.stream else spec.interval_s
        scenes = Scenes(
            interval_s=interval, intrinsics=optics[0], distortion=optics[1], **pose,
            kinds=shapes.kinds, **{f.name: getattr(shapes, f.name) for f in fields(Shapes)
                                   if f.name != 'kinds'},
            ground_texture=texture, ground_tile_m=tile, ground_tint=tint, **sky, **seen,
            capture=taken)
        return Sample(scenes, stamps, spec.hold)

    def _planned(self, draws: SceneRng, rhythm: Rhythm | None) -> tuple[Encounter, Ride | None]:
        config = self.config
        spec = make_spec(draws, config)
        if rhythm is not None:      # the scenes are those of clips with half of the spacing
            spec = replace(spec, interval_s=0.5 * rhythm.spacing_s.mean(1),
                           hold=torch.ones_like(spec.hold))
        if not config.rough:
            return solve(draws, spec, config), None
        spec, ride = platforms.mount(draws, spec, config)
        if config.roaming:
            spec = roaming.roam(draws, spec, ride)
        return platforms.driven(draws, solve(draws, spec, config), ride, config.training), ride

    def _times(self, draws: SceneRng, encounter: Encounter, ride: Ride | None) -> Tensor:
        spec = encounter.spec
        times = scene.frame_times(spec.interval_s, spec.hold, self.frames)
        uneven = JITTER * draws.chance(0.35, 1) * draws.uniform(-1, 1, self.frames)
        uneven[:, -1] = 0
        times = (times + torch.where(spec.hold[:, None] > 1, 0, uneven)
                 * spec.interval_s[:, None]).clamp(max=0)
        if ride is None:
            return times
        rough = camera.clip_times(draws, spec.interval_s, ride.period_s, self.frames)
        return torch.where(ride.own[:, None], rough, times)

    def _hero(self, draws: SceneRng, encounter: Encounter, times: Tensor, moving: Tensor,
              steady: Steady) -> Bodies:
        """Return the body of importance on its path; for the rest see `travelled`."""
        spec = encounter.spec
        at = scene.to_world(encounter.at, spec.heading)
        go = scene.to_world(encounter.velocity, spec.heading)
        place = torch.stack((at[:, 0], -encounter.base, at[:, 1]), -1)
        velocity = torch.stack((go[:, 0], -encounter.rise, go[:, 1]), -1)
        pace = velocity.norm(dim=-1)
        gone = scene.travelled(pace, encounter.body_braking, encounter.body_range, moving, steady)
        turn = torch.where(encounter.body_range < FAR_M, draws.normal(0.5), 0)
        turn = torch.where(draws.chance(0.5) & spec.moves, turn, 0)
        yaw = encounter.yaw[:, None] + turn[:, None] * times
        still = pace > 1e-4
        return Bodies(spec.kind[:, None], spec.present[:, None], spec.size[:, None],
                      scene.body_path(place, velocity, gone).unsqueeze(2), yaw.unsqueeze(2),
                      (velocity * still[:, None])[:, None], turn[:, None])


def _pose(encounter: Encounter, path: Tensor, yaw: Tensor, moved: Shake) -> dict[str, Tensor]:
    """Fields of `Scenes` for the camera, at the origin of the ground at the newest frame."""
    spec = encounter.spec
    yaw = yaw + moved.angles[..., 0] - moved.angles[:, -1:, 0]
    pitch = spec.pitch[:, None] + moved.angles[..., 1]
    roll = spec.roll[:, None] + moved.angles[..., 2]
    up = (-spec.height[:, None] + moved.offset[..., 1]).clamp(max=-0.04)
    position = torch.stack((path[..., 0] + moved.offset[..., 0], up, path[..., 1]), -1)
    direction = spec.heading + spec.drift
    speed = torch.where(spec.speed.abs() > 1e-4, spec.speed, 0)
    velocity = torch.stack((direction.sin() * speed, torch.zeros_like(speed),
                            direction.cos() * speed), -1)
    rates = moved.rates[:, -1].clone()
    rates[:, 0] += spec.turn
    return {'camera_position': position, 'camera_rotation': scene.rotation(yaw, pitch, roll),
            'camera_velocity': velocity,
            'camera_spin': scene.spin(pitch[:, -1], roll[:, -1], rates)}


def _speeds(encounter: Encounter, ride: Ride, yaw: Tensor, moved: Shake,
            times: Tensor) -> tuple[Tensor, Tensor]:
    """Velocity and spin of cameras at each frame, see `Capture`, (B, T, 3) each."""
    spec = encounter.spec
    speed = torch.where(spec.speed.abs() > 1e-4, spec.speed, 0)
    along = yaw + spec.drift[:, None]
    ahead = platforms.pace(speed, encounter.robot_braking, ride.stopping(times), ride.steady)
    level = torch.stack((along.sin() * ahead, torch.zeros_like(ahead), along.cos() * ahead), -1)
    yaw_rate = ride.grown(spec.turn, times)[1]
    rates = moved.rates + torch.nn.functional.pad(yaw_rate[..., None], (0, 2))
    pitch = spec.pitch[:, None] + moved.angles[..., 1]
    return level + moved.speed, scene.spin(pitch, spec.roll[:, None] + moved.angles[..., 2], rates)


def _cleared(shapes: Shapes, camera: Tensor) -> Shapes:
    """Take away shapes that a camera (B, T, 3) would pass through or scrape along."""
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
