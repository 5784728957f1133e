# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Furnish places with what stands and moves beside the robot's way."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from vjepa_ros.lab.world.scenes.bodies import Bodies, CLUTTER, SIDE, THIN
from vjepa_ros.lab.world.scenes.places import INDOORS, Place
from vjepa_ros.lab.world.scenes.scene import ROBOT, SceneRng, body_path, to_world
from vjepa_ros.lab.world.scenes.scene_spec import Encounter

SIDES, THINS, NEAR = 4, 5, 2

_SIDE_SHARES = torch.tensor([
    SIDE.weights(car=1, truck=.3, crates=2, hedge=1, parcel=2, cabinet=.5),
    SIDE.weights(crates=1, desk=2, sofa=2, cabinet=3, parcel=1, shelf=1),
    SIDE.weights(cabinet=3, crates=1, desk=.7, piece=1, parcel=1, sofa=.5),
    SIDE.weights(car=8, truck=1, hedge=1.2, crates=.4, parcel=.4),
    SIDE.weights(car=8, truck=2),
    SIDE.weights(hedge=4, crates=.5, parcel=.5, car=.4),
    SIDE.weights(crates=4, shelf=4, parcel=2, cabinet=.5),
    SIDE.weights(crates=1, parcel=2, cabinet=1, sofa=1, desk=1),
    SIDE.weights(piece=5, desk=3, shelf=1.5, cabinet=1.5, parcel=1, crates=.7)])
_THIN_SHARES = torch.tensor([
    THIN.weights(tree=2, bush=1, pole=1, sign=1, column=1, bin=1, figure=2, fence=1),
    THIN.weights(column=1, bin=2, figure=1.5, bottle=1, bush=1),
    THIN.weights(column=1, bin=1.5, figure=3, bottle=.5, bush=.7, sign=.5),
    THIN.weights(tree=4, pole=2.5, sign=1.5, bin=.7, figure=2.5, bush=1.5, fence=1),
    THIN.weights(tree=4, pole=2, sign=2, bush=3),
    THIN.weights(tree=6, bush=4, figure=2.5, bin=.5, fence=1, pole=.7),
    THIN.weights(column=2, bin=1, figure=2, sign=1, bottle=1),
    THIN.weights(bottle=4, bin=1, figure=.3, column=.5),
    THIN.weights(figure=4, column=1, bin=1, sign=1.5, bottle=.5)])
_SIDE_PRESENT = torch.tensor([.45, .6, .4, .75, .65, .45, .6, .35, .75])
_THIN_PRESENT = torch.tensor([.4, .35, .35, .7, .6, .75, .35, .25, .45])
_REACH = torch.tensor([1, .7, .8, 1.6, 4, 1.5, 1, .5, .6])   # how far off things are, by place
_OCCLUDERS = torch.tensor([SIDE.index(n) for n in (
    'crates', 'cabinet', 'piece', 'car', 'truck', 'hedge', 'shelf', 'piece', 'piece')])


def _rows(draws: SceneRng, encounter: Encounter, place: Place, size: Tensor,
          shelved: Tensor) -> Tensor:
    """Spots (B, M, 2) in rows along both sides of a way that leads along z."""
    spec, m = encounter.spec, size.shape[1]
    number = torch.arange(m)
    side = (number % 2) * 2.0 - 1
    right = side > 0
    scale = _REACH[spec.place][:, None]
    step = (number // 2) * draws.uniform(2.5, 6, m) + draws.uniform(0, 6, m)
    z = scale * (step - 0.5) + size[..., 2]
    edge = torch.where(right, place.lane[:, 1:], -place.lane[:, :1])
    wall = torch.where(right, place.inner[:, 1:], -place.inner[:, :1])
    room = (wall - edge - 2 * size[..., 0] - 0.15).clamp(min=0)
    off = torch.where(shelved, room, torch.minimum(room, 2.2 * draws.unit(m)))
    lanes = (3.5 * draws.uniform(0.95, 1.1, m) + torch.where(draws.chance(0.4, m), 3.6, 0))
    x = torch.where(spec.at('motorway')[:, None] & (size[..., 1] < 4), lanes,
                    edge + 0.12 + size[..., 0] + off)
    return torch.stack((side * x, z), -1)


def _around(draws: SceneRng, encounter: Encounter, place: Place, size: Tensor) -> Tensor:
    """Spots (B, M, 2) anywhere in view but not in the robot's way."""
    spec, m = encounter.spec, size.shape[1]
    bearing = 0.55 * spec.hfov[:, None] * draws.uniform(-1, 1, m)
    reach = size[..., 0::2].amax(-1)
    far = draws.log(0.5, 9, m) * _REACH[spec.place][:, None] + reach
    right, ahead = bearing.sin() * far, bearing.cos() * far
    clear = ROBOT.half_width + reach + 0.15
    moving = (spec.speed != 0)[:, None]
    right = torch.where(moving & (right.abs() < clear), torch.copysign(clear, right), right)
    spot = to_world(torch.stack((right, ahead), -1), spec.heading[:, None])
    walled = spec.at(*INDOORS)[:, None]
    low, high = place.inner[:, :1] + reach, place.inner[:, 1:] - reach
    x = torch.where(walled, torch.maximum(torch.minimum(spot[..., 0], high), low), spot[..., 0])
    z = torch.where(walled, torch.minimum(spot[..., 1], place.end[:, None] - reach), spot[..., 1])
    return torch.stack((x, z), -1)


def _conflicts(encounter: Encounter, place: Place, spot: Tensor, velocity: Tensor, yaw: Tensor,
               size: Tensor) -> Tensor:
    """(B, M) bool: would be hit too soon, or hides what the clip is about."""
    spec = encounter.spec
    heading = spec.heading[:, None]
    at = to_world(spot, -heading)                                       # right, ahead
    right, ahead = at.unbind(-1)
    own = to_world(velocity, -heading)
    drift = spec.drift[:, None]
    robot = torch.stack((drift.sin(), drift.cos()), -1) * spec.speed[:, None, None]
    move = own - robot
    sine, cosine = (yaw - heading).sin().abs(), (yaw - heading).cos().abs()
    side = size[..., 0] * cosine + size[..., 2] * sine      # half extents
    deep = size[..., 0] * sine + size[..., 2] * cosine
    wide = ROBOT.half_width + side + 0.05
    bounds = ((right, move[..., 0], wide, wide), (ahead, move[..., 1], ROBOT.length + deep, deep))
    first, last = torch.zeros_like(right), place.horizon[:, None].expand_as(right)
    for start, rate, low, high in bounds:
        rate = torch.where(rate.abs() < 1e-6, 1e-6, rate)
        one, two = (-low - start) / rate, (high - start) / rate
        first = torch.maximum(first, torch.minimum(one, two))
        last = torch.minimum(last, torch.maximum(one, two))
    hit = first < last
    matters = spec.present & ~spec.happens('clear', 'gap')
    target = encounter.at.norm(dim=-1)[:, None]
    bearing = torch.atan2(encounter.at[:, 0], encounter.at[:, 1])
    apart = torch.atan2(right, ahead) - bearing[:, None]
    far = (right.square() + ahead.square()).sqrt()
    wide = torch.maximum(side, deep) / far.clamp(min=0.2) + (
        spec.size[:, :1] / target.clamp(min=0.2))
    hides = (apart.abs() < wide.clamp(max=1.2)) & (far < target + spec.size[:, 2:])
    beyond = spec.at(*INDOORS)[:, None] & (spot[..., 1] > place.end[:, None])
    return hit | (hides & matters[:, None]) | beyond


def _settled(encounter: Encounter, place: Place, kind: Tensor, present: Tensor, size: Tensor,
             spot: Tensor, velocity: Tensor, yaw: Tensor, times: Tensor) -> Bodies:
    """Return bodies in steady motion, at spots (B, M, 2) now, on a table or the ground."""
    base = torch.where(encounter.spec.at('table')[:, None], place.table[:, None], 0)
    still = torch.zeros_like(yaw)
    at = torch.stack((spot[..., 0], still - base, spot[..., 1]), -1)
    moves = torch.stack((velocity[..., 0], still, velocity[..., 1]), -1)
    gone = -times[:, None] * moves.norm(dim=-1)[..., None]
    yaws = yaw.unsqueeze(1).expand(-1, times.shape[1], -1)
    return Bodies(kind, present, size, body_path(at, moves, gone).transpose(1, 2), yaws, moves,
                  still)


def side_bodies(draws: SceneRng, encounter: Encounter, place: Place, path: Tensor, body: Tensor,
                times: Tensor) -> Bodies:
    """Vehicles, furniture and piles beside the way; gates; what hides people."""
    spec = encounter.spec
    kind = draws.pick(_SIDE_SHARES[spec.place].unsqueeze(1).expand(-1, SIDES, -1), SIDES)
    # From behind what does it emerge, and between what is the gap?
    emerges, gap = spec.happens('emerge'), spec.happens('gap')
    kind[:, 0] = torch.where(emerges, _OCCLUDERS[spec.place], kind[:, 0])
    piece = torch.where(spec.at('empty', 'street', 'park', 'motorway'), SIDE.index('hedge'),
                        SIDE.index('piece'))
    # Both sides of a gap are alike, or the way leads between two of the usual things.
    piece = torch.where(draws.chance(0.4) & ~spec.at('street', 'motorway'),
                        SIDE.index('crates'), piece)
    kind[:, :2] = torch.where(gap[:, None], piece[:, None], kind[:, :2])
    size = SIDE.size(draws, kind)
    size = torch.where(spec.at('table')[:, None, None] & ~emerges[:, None, None],
                       size * draws.uniform(0.1, 0.25, SIDES, 1), size)

    street, motorway = spec.at('street')[:, None], spec.at('motorway')[:, None]
    shelved = spec.at('corridor', 'warehouse')[:, None].expand(-1, SIDES)
    along = spec.at('corridor', 'street', 'motorway', 'warehouse') & ~spec.happens('turn')
    spot = torch.where(along[:, None, None], _rows(draws, encounter, place, size, shelved),
                       _around(draws, encounter, place, size))
    parked = torch.where(draws.chance(0.3, SIDES), math.pi, 0.0) + draws.normal(0.04, SIDES)
    square = math.pi / 2 * torch.floor(draws.uniform(0, 4, SIDES)) + draws.normal(0.03, SIDES)
    yaw = torch.where(street, parked, draws.uniform(-math.pi, math.pi, SIDES))
    yaw = torch.where(spec.at(*INDOORS)[:, None], square, yaw)
    yaw = torch.where(shelved & along[:, None], parked, yaw)

    left = spot[..., 0] < 0
    oncoming = draws.chance(0.35, SIDES) & (left | (spot[..., 0].abs() > 6))
    pace = spec.speed[:, None] * draws.uniform(0.82, 1.15, SIDES)
    pace = torch.where(oncoming, -draws.uniform(15, 33, SIDES), pace)
    x = torch.where(motorway & oncoming, -spot[..., 0].abs() - 5, spot[..., 0])
    spot = torch.stack((x, spot[..., 1]), -1)
    passing = street & left & draws.chance(0.2, SIDES)
    pace = torch.where(motorway, pace, torch.where(
        passing, draws.sign(SIDES) * draws.uniform(2, 11, SIDES), 0))
    # Crates and hedges do not drive.
    drives = (kind == SIDE.index('car')) | (kind == SIDE.index('truck'))
    pace = torch.where(drives, pace, 0)
    yaw = torch.where(motorway, torch.where(pace < 0, math.pi, 0.0), yaw)
    yaw = torch.where(passing & drives, torch.where(pace < 0, math.pi, 0.0), yaw)
    velocity = torch.stack((torch.zeros_like(pace), pace), -1)

    # The gap: one to either side of the robot's way, at the distance of a later contact.
    wide = ROBOT.half_width + draws.log(0.1, 0.5, 1)
    off = draws.log(0.4, 6, 1) + 0.3 * spec.speed[:, None]
    sides = torch.tensor([-1.0, 1.0])
    gate = torch.stack((sides * (wide + size[:, :2, 0]), off.expand(-1, 2)), -1)
    gate = to_world(gate, (spec.heading + spec.drift)[:, None])
    spot[:, :2] = torch.where(gap[:, None, None], gate, spot[:, :2])
    yaw[:, :2] = torch.where(gap[:, None], (spec.heading + spec.drift)[:, None], yaw[:, :2])

    # What hides the body until part of the clip is over: its edge on the line of sight.
    frames = path.shape[1]
    then = (draws.uniform(0.25, 0.8) * frames).long().clamp(0, max(0, frames - 2))
    pick = then[:, None, None].expand(-1, 1, 2)
    eye, seen = path.gather(1, pick)[:, 0], body.gather(1, pick)[:, 0]
    sight = seen - eye
    hidden = to_world(encounter.at, spec.heading)
    # Outward is where the body comes from, across the line of sight.
    across = torch.stack((sight[:, 1], -sight[:, 0]), -1)
    across = across / across.norm(dim=-1, keepdim=True).clamp(min=1e-6)
    came = body[:, 0] - hidden
    across = across * torch.where((across * came).sum(-1) < 0, -1.0, 1.0)[:, None]
    cover = eye + draws.uniform(0.45, 0.85)[:, None] * sight + across * (size[:, 0, :1] + 0.15)
    spot[:, 0] = torch.where(emerges[:, None], cover, spot[:, 0])
    facing = torch.atan2(sight[:, 0], sight[:, 1])
    yaw[:, 0] = torch.where(emerges, facing, yaw[:, 0])
    velocity[:, 0] = torch.where(emerges[:, None], 0, velocity[:, 0])

    wanted = torch.zeros_like(kind, dtype=torch.bool)
    wanted[:, :2], wanted[:, 0] = gap[:, None], emerges | gap
    present = draws.chance(_SIDE_PRESENT[spec.place][:, None], SIDES) | wanted
    clash = _conflicts(encounter, place, spot, velocity, yaw, size)
    present &= ~clash | (wanted & emerges[:, None])     # what hides a body does so by design
    return _settled(encounter, place, kind, present, size, spot, velocity, yaw, times)


def thin_bodies(draws: SceneRng, encounter: Encounter, place: Place, times: Tensor) -> Bodies:
    spec = encounter.spec
    kind = draws.pick(_THIN_SHARES[spec.place].unsqueeze(1).expand(-1, THINS, -1), THINS)
    size = THIN.size(draws, kind)
    table = spec.at('table')[:, None]
    size = torch.where(table[..., None], size * draws.uniform(0.12, 0.3, THINS, 1), size)
    along = spec.at('corridor', 'street', 'motorway') & ~spec.happens('turn')
    rows = _rows(draws, encounter, place, size, draws.chance(0.5, THINS))
    beside = draws.uniform(0.5, 5, THINS) * rows[..., 0].sign()
    rows = torch.where(spec.at('motorway')[:, None, None],
                       torch.stack((place.inner[:, 1:] * rows[..., 0].sign() + beside,
                                    6 * rows[..., 1]), -1), rows)
    spot = torch.where(along[:, None, None], rows, _around(draws, encounter, place, size))
    figure = kind == THIN.index('figure')
    walks = figure & draws.chance(0.45, THINS) & ~spec.happens('rest', 'stopped')[:, None]
    way = draws.uniform(-math.pi, math.pi, THINS)
    lengthwise = torch.where(draws.chance(0.5, THINS), math.pi, 0.0) + draws.normal(0.1, THINS)
    way = torch.where(along[:, None], lengthwise, way)
    pace = torch.where(walks, draws.uniform(0.4, 1.9, THINS), 0)
    velocity = torch.stack((way.sin() * pace, way.cos() * pace), -1)
    facing = torch.atan2(spot[..., 0], spot[..., 1])
    sideways = walks & ((way - facing).sin().abs() > 0.7)
    kind = torch.where(sideways, THIN.index('walker'), kind)
    yaw = torch.where(sideways, way - math.pi / 2, facing + draws.normal(0.3, THINS))
    present = draws.chance(_THIN_PRESENT[spec.place][:, None], THINS)
    present &= ~_conflicts(encounter, place, spot, velocity, yaw, size)
    return _settled(encounter, place, kind, present, size, spot, velocity, yaw, times)


_NEAR_SHARES = torch.tensor(CLUTTER.weights(counter=5, table=4, shelves=3, seat=2))
_NEAR_M = (0.3, 2.0)      # from the camera to the nearest side of it


def clutter(draws: SceneRng, encounter: Encounter, place: Place, times: Tensor) -> Bodies:
    """Furniture close to the camera, one piece in its view and one anywhere around it."""
    spec = encounter.spec
    kind = draws.pick(_NEAR_SHARES, NEAR)
    size = CLUTTER.size(draws, kind)
    bearing = draws.uniform(-1, 1, NEAR) * torch.stack(
        (0.5 * spec.hfov, torch.full_like(spec.hfov, math.pi)), -1)
    facing = spec.heading[:, None] + bearing
    # Mostly along the walls; its front is the side towards the camera.
    square = math.pi / 2 * torch.round(facing / (math.pi / 2)) + draws.normal(0.03, NEAR)
    yaw = torch.where(draws.chance(0.7, NEAR), square, facing + draws.normal(0.4, NEAR))
    turned = facing - yaw
    deep = size[..., 2] * turned.cos().abs() + size[..., 0] * turned.sin().abs()
    far = draws.log(*_NEAR_M, NEAR) + deep
    spot = torch.stack((facing.sin() * far, facing.cos() * far), -1)
    velocity = torch.zeros_like(spot)
    present = draws.chance(0.9, NEAR) & spec.at('room', 'corridor', 'warehouse', 'lab')[:, None]
    present &= ~_conflicts(encounter, place, spot, velocity, yaw, size)
    return _settled(encounter, place, kind, present, size, spot, velocity, yaw + math.pi, times)
