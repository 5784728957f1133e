# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Lay out the fixed parts of places: walls, ceilings, roads, tables, ground and wall decor.

A corridor or street leads along z. The camera is at the origin at the newest frame.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from vjepa_ros.lab.world.scenes.scene import (
    BOX,
    CARD,
    COVERING,
    ELLIPSOID,
    Look,
    Number,
    ROBOT,
    SceneRng,
    Shapes,
    still,
    to_world,
)
from vjepa_ros.lab.world.scenes.scene_spec import Encounter, PLACES
from vjepa_ros.lab.world.textures.bank import GROUPS, Materials

STRUCTURE_KINDS = (BOX,) * 8   # left near, far, right near, far, end, ceiling, strip, table
AHEAD_S = 6.0                  # where nothing is planned, nothing is hit for this long
Range = tuple[float, float]


@dataclass(frozen=True)
class Layout:
    """What is usual in one kind of place; lengths [m] and probabilities."""

    sides: float = 0
    gap: Range = (1, 2)
    tall: Range = (2.3, 3)
    thick: float = 0.2
    group: str = 'wall'
    end: float = 0
    beyond: Range = (1, 2)
    ceiling: float = 0
    strip: float = 0
    width: Range = (1, 3)
    cover: str = 'floor'
    ground: str = 'ground'
    door: float = 0.3


LAYOUTS = {
    'empty': Layout(end=.3, beyond=(8, 60), tall=(2, 12), group='facade', thick=3, strip=.15),
    'room': Layout(.85, (.3, 3.5), end=1, beyond=(.3, 5), ceiling=.85, strip=.25,
                   ground='floor'),
    'corridor': Layout(1, (.2, 1.2), end=.85, beyond=(.5, 25), ceiling=.95, strip=.12,
                       width=(.8, 1.5), ground='floor', door=.35),
    'street': Layout(.8, (3.5, 12), (4, 14), 3, 'facade', end=.2, beyond=(10, 80), strip=.9,
                     width=(6, 10), cover='road', door=.8),
    'motorway': Layout(.6, (4, 9), (.5, 1), .15, 'metal', strip=1, width=(11, 16), cover='road',
                       door=.1),
    'park': Layout(.35, (3, 10), (.8, 3), .5, 'foliage', end=.25, beyond=(8, 50), strip=.5,
                   width=(1.5, 3), cover='ground', door=.5),
    'warehouse': Layout(.9, (.4, 2.5), (2.5, 7), .5, 'shelf', end=.8, beyond=(.5, 25),
                        ceiling=.6, strip=.2, ground='floor', door=.4),
    'table': Layout(.65, (.6, 2.5), end=1, beyond=(.1, 2.5), ceiling=.5, ground='floor'),
    'lab': Layout(.9, (.6, 4), (2.5, 4.5), end=1, beyond=(.4, 5), ceiling=.85, strip=.4,
                  ground='floor', door=.2),
}
INDOORS = ('lab', 'room', 'corridor', 'warehouse', 'table')
# The layouts as tensors, one row per place; groups by their numbers.
_ROW = {f.name: torch.tensor([
    GROUPS.get(value, value) for value in (getattr(LAYOUTS[place], f.name) for place in PLACES)])
    for f in fields(Layout)}
_ENDS = torch.tensor([GROUPS[name] for name in ('wall', 'glass', 'door', 'shelf', 'poster')])
_END_SHARES = torch.tensor([.5, .25, .08, .05, .12])


@dataclass(frozen=True)
class Place:
    boxes: Shapes  # eight of them, see `STRUCTURE_KINDS`
    inner: Tensor  # (B, 2) x of the inner faces of walls left and right, there or not [m]
    walled: Tensor  # (B, 2) bool, whether there are walls
    lane: Tensor  # (B, 2) least and greatest x of what the robot passes over [m]
    end: Tensor  # (B,) z of the end wall [m], far away where there is none
    split: Tensor  # (B, 2) z where the near walls end [m]
    tall: Tensor  # (B,) height of walls and ceiling [m]
    roofed: Tensor  # (B,) bool
    table: Tensor  # (B,) height of the table in front of the camera [m], 0 for none
    horizon: Tensor  # (B,) time for which nothing but what is planned may be hit [s]


def lay_out(draws: SceneRng, encounter: Encounter, path: Tensor, materials: Materials,
            ahead_s: Number = AHEAD_S) -> Place:
    """Fit places around the paths (B, T, 2) of cameras [m]."""
    spec = encounter.spec
    place = spec.place
    contact = encounter.contact_s.isfinite()
    horizon = torch.where(contact, encounter.contact_s + 1, ahead_s)
    horizon = torch.where(spec.at('motorway') & ~contact, 2 * ahead_s, horizon)
    direction = spec.heading + spec.drift
    going = torch.stack((direction.sin(), direction.cos()), -1) * spec.speed[:, None]
    later = going * horizon[:, None]
    body = to_world(encounter.at, spec.heading)                           # B 2
    body_reach = spec.size[:, 0::2].amax(-1)
    body_here = spec.present & (body.norm(dim=-1) < 12) & ~spec.at('table')

    def spanned(axis: int) -> tuple[Tensor, Tensor]:
        along = torch.cat((path[..., axis], later[:, axis, None]), 1)
        return along.amin(1) - ROBOT.half_width, along.amax(1) + ROBOT.half_width

    low, high = spanned(0)
    lane = torch.stack((low, high), -1)
    gap = draws.uniform(_ROW['gap'][place, 0][:, None], _ROW['gap'][place, 1][:, None], 2)
    left = torch.where(body_here, torch.minimum(low, body[:, 0] - body_reach), low) - gap[:, 0]
    right = torch.where(body_here, torch.maximum(high, body[:, 0] + body_reach), high) + gap[:, 1]
    inner = torch.stack((left, right), -1)
    tall = draws.uniform(_ROW['tall'][place, 0], _ROW['tall'][place, 1])
    tall = torch.maximum(tall, torch.where(spec.at('motorway', 'park'), 0, spec.height + 0.4))
    walled = draws.chance(_ROW['sides'][place][:, None], 2)

    # The end of the place: what is driven up to, or behind everything that must fit.
    corner = ROBOT.half_width * spec.heading.sin().abs()
    up_to = going[:, 1] * torch.where(contact, encounter.contact_s, 0) + corner
    last = spanned(1)[1]
    last = torch.where(body_here | (spec.present & spec.at('table')),
                       torch.maximum(last, body[:, 1] + body_reach), last)
    beyond = draws.log(_ROW['beyond'][place, 0], _ROW['beyond'][place, 1])
    drives = spec.happens('drive_wall')
    has_end = drives | draws.chance(_ROW['end'][place])
    end = torch.where(drives, up_to, torch.where(has_end, last + beyond, 200.0))
    roofed = draws.chance(_ROW['ceiling'][place])

    thick = _ROW['thick'][place]
    open_air = spec.at('street', 'park')[:, None]
    split = draws.uniform(1, 12, 2) * torch.where(open_air, 2.0, 1.0)
    doors = draws.chance(_ROW['door'][place][:, None], 2)
    opening = torch.where(doors, draws.uniform(0.8, 1.3, 2), 0) * torch.where(open_air, 4.0, 1.0)
    shift = torch.where(open_air, draws.uniform(-1, 2, 2), 0)
    back = path[..., 1].amin(1) - 20

    b = draws.count
    position, half = torch.zeros(b, 8, 3), torch.ones(b, 8, 3)
    for number, side in enumerate((-1, 1)):
        near, far = 2 * number, 2 * number + 1
        face = inner[:, number]
        position[:, near, 0] = face + side * thick
        position[:, far, 0] = face + side * (thick + shift[:, number])
        position[:, near, 2] = (back + split[:, number]) / 2
        half[:, near, 2] = (split[:, number] - back) / 2
        begins = split[:, number] + opening[:, number]
        length = torch.minimum(torch.full_like(end, 45.0), (end - begins).clamp(min=1) / 2)
        position[:, far, 2] = begins + length
        half[:, far, 2] = length
        half[:, near:far + 1, 0] = thick[:, None]
    position[:, :4, 1] = -tall[:, None] / 2
    half[:, :4, 1] = tall[:, None] / 2
    spread = torch.where(spec.at('street', 'empty', 'park'), 25.0, (right - left) / 2 + 0.5)
    spread = torch.where(spec.at('table') & ~walled.all(1), 6.0, spread)
    middle = (left + right) / 2
    position[:, 4] = torch.stack((middle, -tall / 2, end + 0.15), -1)
    half[:, 4] = torch.stack((spread, tall / 2, torch.full_like(tall, 0.15)), -1)
    position[:, 5] = torch.stack((middle, -tall - 0.1, torch.full_like(tall, 30.0)), -1)
    half[:, 5] = torch.tensor([30.0, 0.1, 90.0])
    width = draws.uniform(_ROW['width'][place, 0], _ROW['width'][place, 1])
    where = torch.where(spec.at('street', 'motorway'), draws.uniform(-.3, .3) * width,
                        draws.normal(0.5))
    long = torch.where(spec.at('room', 'empty', 'warehouse'), draws.uniform(0.8, 3), 250.0)
    position[:, 6] = torch.stack((where, torch.full_like(tall, -0.006),
                                  torch.where(long < 9, draws.uniform(0, 5), 0)), -1)
    half[:, 6] = torch.stack((width / 2, torch.full_like(tall, 0.006), long), -1)
    on_table = spec.at('table') & draws.chance(0.45)
    table = torch.where(on_table, (spec.height - draws.uniform(0.08, 0.35)).clamp(min=0.05), 0)
    deep = draws.uniform(0.2, 0.7)
    position[:, 7] = torch.stack((draws.normal(0.2), 0.03 - table, deep - 0.2), -1)
    half[:, 7] = torch.stack((draws.uniform(0.4, 1.2), torch.full_like(tall, 0.03), deep), -1)

    group = torch.zeros(b, 8, dtype=torch.int64)
    group[:, :4] = _ROW['group'][place][:, None]
    plainer = draws.chance(0.3, 4) & spec.at('warehouse', 'park', 'street')[:, None]
    group[:, :4] = torch.where(plainer, GROUPS['wall'], group[:, :4])
    ends = _ENDS[draws.pick(_END_SHARES)]
    group[:, 4] = torch.where(spec.at('street', 'park', 'empty'), GROUPS['facade'], ends)
    group[:, 5] = GROUPS['wall']
    group[:, 6] = _ROW['cover'][place]
    group[:, 7] = torch.where(draws.chance(0.5), GROUPS['wood'], GROUPS['cloth'])
    # Walls of one room look alike; shelves and houses do not.
    uniform = spec.at('room', 'corridor', 'motorway', 'table')
    alike = torch.where(draws.chance(0.75) & uniform, 0, 1)
    look = torch.arange(8).repeat(b, 1)
    look[:, :4] = look[:, :4] * alike[:, None]
    texture, tile, tint = materials.draw(draws, group, look, 8)
    road = group[:, 6] == GROUPS['road']
    tile[:, 6] = torch.where(road, width, tile[:, 6])
    big = torch.where(group[:, 4] == GROUPS['door'], 0, draws.uniform(1.5, 5))
    tile[:, 4] = torch.where(tile[:, 4] > 0, tile[:, 4], big)

    alive = torch.stack((walled[:, 0], walled[:, 0], walled[:, 1], walled[:, 1], has_end, roofed,
                         draws.chance(_ROW['strip'][place]), on_table), -1)
    boxes = still(STRUCTURE_KINDS, alive, position, torch.zeros(b, 8), half, (texture, tile, tint))
    return Place(boxes, inner, walled, lane, end, split, tall, roofed, table, horizon)


def ground(draws: SceneRng, place: Tensor, materials: Materials) -> Look:
    """Texture, tile_m and tint of the ground of places (B,)."""
    texture, tile, tint = materials.draw(draws, _ROW['ground'][place].unsqueeze(-1))
    return texture[:, 0], tile[:, 0], tint[:, 0]


def behind(draws: SceneRng, encounter: Encounter, place: Place, path: Tensor,
           materials: Materials) -> Shapes:
    """Wall that closes a room behind the camera."""
    tall, middle = place.tall, place.inner.mean(-1)
    back = path[..., 1].amin(1) - ROBOT.length - draws.log(0.2, 4)
    position = torch.stack((middle, -tall / 2, back), -1)[:, None]
    half = torch.stack(((place.inner[:, 1] - place.inner[:, 0]) / 2 + 0.5, tall / 2,
                        torch.full_like(tall, 0.1)), -1)[:, None]
    alive = encounter.spec.at(*INDOORS)[:, None] & draws.chance(0.9, 1)
    look = materials.draw(draws, _ENDS[draws.pick(_END_SHARES, 1)])
    return still((BOX,), alive, position, torch.zeros_like(tall)[:, None], half, look)


DECOR_KINDS = (CARD,) * 5 + (ELLIPSOID,) * 2


def decor(draws: SceneRng, encounter: Encounter, place: Place, materials: Materials) -> Shapes:
    """Doors, pictures and windows on walls, lamps at ceilings; hills and trees far away."""
    spec = encounter.spec
    b, n = draws.count, len(DECOR_KINDS)
    indoors = spec.at(*INDOORS)
    position, half, yaw = torch.zeros(b, n, 3), torch.full((b, n, 3), 0.01), torch.zeros(b, n)
    group = torch.zeros(b, n, dtype=torch.int64)
    side = torch.tensor([0, 1, 0, 1])
    sign = side * 2.0 - 1
    which = draws.pick(torch.tensor([.3, .5, .2]), 5)
    kinds = torch.tensor([GROUPS[name] for name in ('door', 'poster', 'window')])[which]
    door = which == 0
    tall = torch.where(door, 1.03, draws.uniform(0.25, 0.6, 5))
    wide = torch.where(door, 0.45, draws.uniform(0.25, 0.9, 5))
    high = torch.where(door, 1.03, draws.uniform(1.3, 1.8, 5))
    z = draws.uniform(-0.5, 8, 4) + torch.tensor([0, 0, 3.0, 3.0])
    inner = place.inner[:, side]
    on_wall = place.walled[:, side] & (z < place.split[:, side] - 1) \
        & (z < place.end[:, None] - 0.6) & ~spec.at('warehouse')[:, None]
    fits = place.tall[:, None] > 2.2
    ends = (place.end < 60) & draws.chance(0.5) & ~spec.at('table')
    on_end = draws.uniform(-1.2, 1.2) + place.inner.mean(-1)
    walls = torch.stack((inner - 0.015 * sign, -high[:, :4], z), -1)
    front = torch.stack((on_end, -high[:, 4], place.end - 0.015), -1)
    indoor = torch.cat((walls, front[:, None]), 1)                      # B 5 3
    plates = torch.stack((wide, tall, torch.full_like(wide, 0.01)), -1)
    shown = torch.cat((on_wall, ends[:, None]), 1) & fits & draws.chance(0.75, 5)

    # Outdoors: what closes the view far away, as cards that face the camera.
    spread = torch.tensor([-0.8, -0.4, 0.0, 0.4, 0.8]) * spec.hfov[:, None] \
        + draws.normal(0.1, 5) + spec.heading[:, None]
    off = draws.uniform(70, 160, 5)
    rise = draws.uniform(1.5, 9, 5)
    horizon = torch.stack((spread.sin() * off, -rise, spread.cos() * off), -1)
    broad = torch.stack((draws.uniform(0.25, 0.6, 5) * off, rise, torch.full_like(off, 0.01)), -1)
    backs = torch.tensor([GROUPS[name] for name in ('hills', 'hills', 'bush')])
    behind = backs[draws.pick(torch.tensor([.5, .2, .3]), 5)]

    inside = indoors[:, None]
    position[:, :5] = torch.where(inside[..., None], indoor, horizon)
    half[:, :5] = torch.where(inside[..., None], plates, broad)
    yaw[:, :4] = torch.where(inside, math.pi / 2 * sign, spread[:, :4])
    yaw[:, 4] = torch.where(indoors, 0, spread[:, 4])
    group[:, :5] = torch.where(inside, kinds, behind)
    seen = torch.where(spec.at('empty')[:, None], draws.chance(0.5, 5), draws.chance(0.7, 5))
    middle = place.inner.mean(-1, keepdim=True)
    place_z = draws.uniform(0.5, 5, 1) + torch.tensor([0, 3.0])
    position[:, 5:] = torch.stack((middle + draws.normal(0.15, 1) + torch.zeros(2),
                                   0.02 - place.tall[:, None].expand(-1, 2), place_z), -1)
    half[:, 5:] = torch.stack((draws.uniform(0.08, 0.3, 1), torch.full((b, 1), 0.05),
                               draws.uniform(0.08, 0.3, 1)), -1)
    group[:, 5:] = GROUPS['window']
    lamps = place.roofed[:, None] & draws.chance(0.7, 1) & (place_z < place.end[:, None] - 0.4)
    alive = torch.cat((torch.where(inside, shown, seen), lamps), -1)
    texture, tile, tint = materials.draw(draws, group)
    tint[:, 5:] = 2.0
    return still(DECOR_KINDS, alive, position, yaw, half, (texture, tile, tint))


def bare(draws: SceneRng, place: Tensor, materials: Materials, usual: Look) -> Look:
    """Make the ground smooth in a third of the places: what lies there is all that moves below."""
    smooth, plain = draws.chance(1 / 3), torch.full_like(place, GROUPS['plain']).unsqueeze(-1)
    texture, tile, tint = materials.draw(draws, plain)
    return (torch.where(smooth, texture[:, 0], usual[0]),
            torch.where(smooth, tile[:, 0], usual[1]),
            torch.where(smooth[:, None], tint[:, 0], usual[2]))


MATS, TAPES = 3, 2
COVERING_KINDS = (COVERING,) * (MATS + TAPES)
_MATS = ('print', 'cloth', 'floor', 'poster', 'plain', 'wood', 'metal', 'road')
_MAT_SHARES = torch.tensor([.28, .18, .16, .1, .1, .08, .05, .05])
_SUNK_M = 0.01


def coverings(draws: SceneRng, encounter: Encounter, materials: Materials) -> Shapes:
    """Mats, rugs, plates and tape on the ground ahead: seen like things, but nothing to hit."""
    spec = encounter.spec
    b, n = draws.count, len(COVERING_KINDS)
    indoors = spec.at(*INDOORS)[:, None]
    half = torch.cat((draws.log(0.25, 1.8, MATS, 2), torch.stack((
        draws.log(0.02, 0.06, TAPES), draws.log(0.5, 4, TAPES)), -1)), 1)
    some = torch.where(draws.chance(0.75, 1), torch.where(indoors, 0.6, 0.4), 0)
    alive = (draws.unit(n) < some) & ~spec.at('table')[:, None]
    # Along the way, where a camera of this height sees the ground well.
    ahead = (0.2 + spec.height[:, None]) * draws.log(0.8, 12, n)
    beside = draws.normal(0.6, n)
    sine, cosine = spec.heading.sin()[:, None], spec.heading.cos()[:, None]
    position = torch.stack((ahead * sine + beside * cosine, torch.full((b, n), _SUNK_M),
                            ahead * cosine - beside * sine), -1)
    square = torch.where(draws.chance(0.5, n), 0, math.pi / 2)
    yaw = torch.where(draws.chance(0.6, n), square, draws.uniform(-math.pi, math.pi, n))
    kinds = torch.tensor([GROUPS[name] for name in _MATS])
    group = torch.cat((kinds[draws.pick(_MAT_SHARES, MATS)],
                       torch.full((b, TAPES), GROUPS['plain'])), 1)
    half = torch.stack((half[..., 0], torch.full((b, n), _SUNK_M), half[..., 1]), -1)
    return still(COVERING_KINDS, alive, position, yaw, half, materials.draw(draws, group))
