# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Define people, vehicles, furniture and plants by their shapes; build and move them.

A kit is a fixed row of shapes. A body of a kit has one of its types, which defines where the
shapes are, how large and of which material, relative to half width, height and half length of the
body. Shapes that a type does not use are not alive.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from vjepa_ros.lab.world.scenes.scene import BOX, CARD, CYLINDER, ELLIPSOID, SceneRng, Shapes
from vjepa_ros.lab.world.textures.bank import GROUPS, Materials

LOOKS = 4        # independent materials and colours per body
STUCK_ON = ('poster', 'door')   # cards that lie on a body; others are what it looks like


@dataclass(frozen=True)
class Part:
    slot: int
    at: tuple[float, float, float]  # x to the right, y up in parts of the height, z ahead
    half: tuple[float, float, float]  # half sizes along the same
    group: str
    look: int = 0  # parts with one look share texture and colour
    swing: float = 0.0  # to and fro in parts of the height when the body walks
    aside: bool = False  # turned by a right angle
    end: bool = False  # on whichever end faces the camera
    flank: bool = False  # on whichever side faces the camera


def _leg(slot: int, side: int) -> list[Part]:
    return [Part(slot, (0.4 * side, 0.36, 0), (0.37, 0.19, 0.66), 'cloth', 1, 0.05 * side),
            Part(slot + 1, (0.4 * side, 0.14, 0), (0.29, 0.17, 0.52), 'cloth', 1, 0.12 * side)]


# Slots of the most important body: three boxes, two cylinders, eight ellipsoids, two cards.
HERO_KINDS = (BOX,) * 3 + (CYLINDER,) * 2 + (ELLIPSOID,) * 8 + (CARD,) * 2
_B, _C, _E, _K = 0, 3, 5, 13


def _cards(slot: int) -> list[Part]:
    return [Part(slot, (0, 0.5, 1.02), (1, 0.5, 0), 'car_rear', end=True),
            Part(slot + 1, (1.02, 0.5, 0), (1, 0.5, 0), 'car_side', aside=True, flank=True)]


HERO_TYPES: dict[str, list[Part]] = {
    'person': [
        Part(_E, (0, 0.93, 0), (0.38, 0.07, 0.68), 'skin', 2),
        Part(_E + 1, (0, 0.67, 0), (0.74, 0.22, 0.9), 'cloth', 0),
        *_leg(_E + 2, -1), *_leg(_E + 4, 1),
        Part(_E + 6, (-0.88, 0.65, 0), (0.22, 0.21, 0.42), 'cloth', 0, 0.05),
        Part(_E + 7, (0.88, 0.65, 0), (0.22, 0.21, 0.42), 'cloth', 0, -0.05)],
    'figure': [Part(_K, (0, 0.5, 0), (1, 0.5, 0), 'person', 3)],
    'walker': [Part(_K, (0, 0.5, 0), (1, 0.5, 0), 'walker', 3)],
    'car': [
        Part(_B, (0, 0.36, 0), (1, 0.22, 1), 'metal', 0),
        Part(_B + 1, (0, 0.76, -0.1), (0.84, 0.21, 0.5), 'metal', 0),
        Part(_B + 2, (0, 0.1, 0), (0.9, 0.1, 0.75), 'rubber', 2),
        *_cards(_K)],
    'truck': [
        Part(_B, (0, 0.56, -0.15), (1, 0.43, 0.85), 'print', 0),
        Part(_B + 1, (0, 0.42, 0.85), (0.95, 0.32, 0.15), 'metal', 1),
        Part(_B + 2, (0, 0.08, 0), (0.9, 0.08, 0.9), 'rubber', 2)],
    'box': [Part(_B, (0, 0.5, 0), (1, 0.5, 1), 'print', 0)],
    'stack': [
        Part(_B, (0, 0.25, 0), (1, 0.25, 1), 'print', 0),
        Part(_B + 1, (0.1, 0.62, -0.1), (0.8, 0.12, 0.8), 'wood', 1),
        Part(_B + 2, (-0.15, 0.87, 0.1), (0.6, 0.13, 0.65), 'print', 2)],
    'column': [
        Part(_C, (0, 0.5, 0), (1, 0.5, 1), 'wall', 0),
        Part(_C + 1, (0, 0.03, 0), (1.12, 0.03, 1.12), 'metal', 1)],
    'bin': [
        Part(_C, (0, 0.46, 0), (0.95, 0.46, 0.95), 'metal', 0),
        Part(_C + 1, (0, 0.95, 0), (1, 0.05, 1), 'rubber', 1)],
    'chair': [
        Part(_B, (0, 0.48, 0), (1, 0.03, 1), 'cloth', 0),
        Part(_B + 1, (0, 0.78, -0.9), (0.95, 0.22, 0.1), 'cloth', 0),
        Part(_C, (0, 0.22, 0), (0.1, 0.22, 0.1), 'metal', 1),
        Part(_C + 1, (0, 0.03, 0), (0.9, 0.03, 0.9), 'rubber', 2)],
    'desk': [
        Part(_B, (0, 0.97, 0), (1, 0.03, 1), 'wood', 0),
        Part(_B + 1, (-0.9, 0.47, 0), (0.06, 0.47, 0.9), 'metal', 1),
        Part(_B + 2, (0.75, 0.47, 0), (0.22, 0.47, 0.9), 'wood', 0)],
    'dog': [
        Part(_E, (0, 0.85, 0.85), (0.6, 0.14, 0.25), 'foliage', 0),
        Part(_E + 1, (0, 0.66, 0), (0.85, 0.2, 0.75), 'foliage', 0),
        *[Part(_E + 2 + i, (0.6 * x, 0.26, 0.55 * z), (0.25, 0.27, 0.1), 'foliage', 0, s)
          for i, (x, z, s) in enumerate(((-1, -1, .15), (1, -1, -.15), (-1, 1, -.15),
                                         (1, 1, .15)))],
        Part(_E + 6, (0, 0.8, -0.9), (0.15, 0.05, 0.25), 'foliage', 0)],
    'panel': [Part(_B, (0, 0.5, 0), (1, 0.5, 1), 'wall', 0),
              Part(_K, (0, 0.52, 1.3), (0.8, 0.4, 0), 'poster', 1, end=True)],
    'door': [Part(_B, (0, 0.5, 0), (1, 0.5, 1), 'door', 0)],
    'cart': [
        Part(_B, (0, 0.35, 0), (1, 0.25, 1), 'metal', 0),
        Part(_B + 1, (0, 0.75, 0), (0.7, 0.15, 0.7), 'print', 1),
        Part(_B + 2, (0, 0.06, 0), (0.9, 0.06, 0.8), 'rubber', 2),
        Part(_C, (0, 0.8, -0.6), (0.06, 0.2, 0.06), 'metal', 3)],
    'tree': [
        Part(_C, (0, 0.3, 0), (0.09, 0.3, 0.09), 'wood', 0),
        Part(_E, (0, 0.72, 0), (0.75, 0.24, 0.75), 'foliage', 1),
        Part(_E + 1, (0.35, 0.62, 0.2), (0.55, 0.16, 0.5), 'foliage', 1),
        Part(_E + 2, (-0.3, 0.8, -0.2), (0.55, 0.16, 0.5), 'foliage', 1)],
    'cup': [
        Part(_C, (0, 0.43, 0), (0.9, 0.43, 0.9), 'metal', 0),
        Part(_C + 1, (0, 0.92, 0), (1, 0.08, 1), 'rubber', 1),
        Part(_E, (1.1, 0.46, 0.2), (0.9, 0.2, 0.9), 'skin', 2),
        Part(_E + 1, (-0.1, 0.55, -0.95), (0.9, 0.06, 0.25), 'skin', 2),
        Part(_E + 2, (-0.1, 0.38, -0.95), (0.9, 0.06, 0.25), 'skin', 2),
        Part(_E + 3, (4.6, 0.38, 0.2), (3.6, 0.2, 0.85), 'skin', 2),
        Part(_E + 4, (10, 0.33, 0.4), (4.5, 0.27, 1.2), 'cloth', 3)],
    'carton': [
        Part(_B, (0, 0.5, 0), (1, 0.5, 1), 'print', 0),
        Part(_E, (1.0, 0.55, 0.1), (0.3, 0.2, 1.1), 'skin', 2),
        Part(_E + 1, (2.6, 0.5, 0.3), (1.7, 0.17, 0.6), 'skin', 2),
        Part(_E + 2, (4.9, 0.45, 0.4), (1.8, 0.22, 0.8), 'cloth', 3)],
    'ball': [Part(_E, (0, 0.5, 0), (1, 0.5, 1), 'print', 0)],
}

# Slots of the bodies beside: two boxes and two cards each.
SIDE_KINDS = (BOX, BOX, CARD, CARD)
SIDE_TYPES: dict[str, list[Part]] = {
    'car': [Part(0, (0, 0.34, 0), (1, 0.25, 0.98), 'metal', 0),
            Part(1, (0, 0.76, -0.1), (0.84, 0.21, 0.5), 'metal', 0), *_cards(2)],
    'truck': [Part(0, (0, 0.55, -0.15), (1, 0.45, 0.85), 'print', 0),
              Part(1, (0, 0.4, 0.85), (0.95, 0.36, 0.15), 'metal', 1)],
    'crates': [Part(0, (0, 0.3, 0), (1, 0.3, 1), 'wood', 0),
               Part(1, (0.15, 0.8, 0), (0.7, 0.2, 0.75), 'print', 1)],
    'desk': [Part(0, (0, 0.96, 0), (1, 0.04, 1), 'wood', 0),
             Part(1, (0.6, 0.46, 0), (0.35, 0.46, 0.9), 'wood', 0)],
    'sofa': [Part(0, (0, 0.25, 0), (1, 0.25, 1), 'cloth', 0),
             Part(1, (0, 0.65, -0.8), (1, 0.35, 0.2), 'cloth', 0)],
    'cabinet': [Part(0, (0, 0.5, 0), (1, 0.5, 1), 'wood', 0),
                Part(2, (0, 0.5, 1.02), (0.94, 0.46, 0), 'door', 1, end=True)],
    'shelf': [Part(0, (0, 0.5, 0), (1, 0.5, 1), 'shelf', 0)],
    'hedge': [Part(0, (0, 0.45, 0), (1, 0.45, 1), 'foliage', 0),
              Part(2, (0, 0.55, 1.05), (1.05, 0.55, 0), 'bush', 0, end=True)],
    'piece': [Part(0, (0, 0.5, 0), (1, 0.5, 1), 'wall', 0),
              Part(2, (0, 0.55, 1.1), (0.6, 0.3, 0), 'poster', 1, end=True)],
    'parcel': [Part(0, (0, 0.5, 0), (1, 0.5, 1), 'print', 0)],
}

# Slots of the thin bodies beside: a cylinder and a card each.
THIN_KINDS = (CYLINDER, CARD)
THIN_TYPES: dict[str, list[Part]] = {
    'tree': [Part(1, (0, 0.5, 0), (1, 0.5, 0), 'tree', 0)],
    'bush': [Part(1, (0, 0.5, 0), (1, 0.5, 0), 'bush', 0)],
    'pole': [Part(0, (0, 0.5, 0), (1, 0.5, 1), 'metal', 0)],
    'sign': [Part(0, (0, 0.5, 0), (0.12, 0.5, 0.12), 'metal', 0),
             Part(1, (0, 0.86, 0.2), (1, 0.14, 0), 'print', 1)],
    'column': [Part(0, (0, 0.5, 0), (1, 0.5, 1), 'wall', 0)],
    'bin': [Part(0, (0, 0.5, 0), (1, 0.5, 1), 'metal', 0)],
    'figure': [Part(1, (0, 0.5, 0), (1, 0.5, 0), 'person', 0)],
    'walker': [Part(1, (0, 0.5, 0), (1, 0.5, 0), 'walker', 0)],
    'fence': [Part(1, (0, 0.5, 0), (1, 0.5, 0), 'fence', 0)],
    'bottle': [Part(0, (0, 0.5, 0), (1, 0.5, 1), 'print', 0)],
}

# Slots of what stands close by in the rooms of the roaming world.
CLUTTER_KINDS = (BOX, BOX, CYLINDER)
CLUTTER_TYPES: dict[str, list[Part]] = {
    'counter': [Part(0, (0, 0.5, 0), (1, 0.5, 1), 'door', 0),
                Part(1, (0, 1.95, -0.4), (1, 0.4, 0.6), 'door', 0),
                Part(2, (0.4, 1.1, 0), (0.12, 0.1, 0), 'print', 2)],
    'table': [Part(0, (0, 0.97, 0), (1, 0.03, 1), 'wood', 0),
              Part(1, (0.3, 1.05, 0.2), (0.3, 0.05, 0.4), 'print', 1),
              Part(2, (-0.2, 0.48, 0), (0.08, 0.47, 0), 'metal', 2)],
    'shelves': [Part(0, (0, 0.5, 0), (1, 0.5, 1), 'shelf', 0),
                Part(1, (1.6, 0.15, 0.3), (0.5, 0.15, 0.8), 'print', 1),
                Part(2, (-1.5, 0.15, 0), (0.3, 0.15, 0), 'metal', 2)],
    'seat': [Part(0, (0, 0.47, 0), (1, 0.05, 1), 'cloth', 0),
             Part(1, (0, 0.75, -0.9), (0.95, 0.25, 0.12), 'cloth', 0),
             Part(2, (0, 0.21, 0), (0.15, 0.21, 0), 'metal', 1)],
}

# Least and greatest half width, height and half length [m].
SIZES: dict[str, tuple[tuple[float, float, float], tuple[float, float, float]]] = {
    'person': ((0.2, 1.5, 0.13), (0.27, 1.95, 0.18)),
    'figure': ((0.24, 1.5, 0.05), (0.36, 1.95, 0.06)),
    'walker': ((0.3, 1.5, 0.05), (0.42, 1.95, 0.06)),
    'car': ((0.8, 1.35, 1.8), (0.95, 1.9, 2.4)), 'truck': ((1.0, 2.2, 2.6), (1.25, 3.6, 6.0)),
    'box': ((0.1, 0.15, 0.1), (0.6, 1.3, 0.6)), 'stack': ((0.25, 0.7, 0.25), (0.6, 1.9, 0.6)),
    'column': ((0.06, 1.2, 0), (0.35, 3.2, 0)), 'bin': ((0.12, 0.3, 0), (0.35, 1.1, 0)),
    'chair': ((0.2, 0.8, 0.2), (0.3, 1.15, 0.3)), 'desk': ((0.4, 0.5, 0.25), (0.9, 0.95, 0.45)),
    'dog': ((0.08, 0.3, 0.2), (0.17, 0.75, 0.5)), 'panel': ((0.4, 1.0, 0.02), (1.8, 2.4, 0.08)),
    'door': ((0.38, 1.9, 0.02), (0.6, 2.2, 0.04)), 'cart': ((0.2, 0.4, 0.25), (0.5, 1.4, 0.7)),
    'tree': ((0.6, 2.0, 0.6), (2.0, 6.0, 2.0)), 'cup': ((0.032, 0.12, 0), (0.055, 0.26, 0)),
    'carton': ((0.08, 0.12, 0.02), (0.18, 0.3, 0.12)), 'ball': ((0.06, 0.12, 0), (0.2, 0.4, 0)),
    'crates': ((0.3, 0.6, 0.3), (0.7, 1.9, 0.7)), 'sofa': ((0.4, 0.7, 0.4), (1.1, 0.95, 0.5)),
    'cabinet': ((0.3, 0.8, 0.2), (0.7, 2.1, 0.4)), 'shelf': ((0.5, 1.6, 0.3), (1.5, 4.0, 0.6)),
    'hedge': ((0.5, 0.6, 0.3), (2.0, 2.0, 0.8)), 'piece': ((0.3, 2.0, 0.05), (1.6, 2.8, 0.3)),
    'parcel': ((0.2, 0.2, 0.2), (0.6, 0.9, 0.6)), 'bush': ((0.3, 0.4, 0.05), (1.2, 1.4, 0.06)),
    'pole': ((0.03, 1.8, 0), (0.1, 6.0, 0)), 'sign': ((0.2, 1.6, 0.2), (0.5, 3.2, 0.5)),
    'counter': ((0.5, 0.85, 0.28), (1.6, 0.98, 0.36)),
    'table': ((0.4, 0.6, 0.3), (1.2, 0.8, 0.6)), 'seat': ((0.2, 0.8, 0.2), (0.6, 1.1, 0.3)),
    'shelves': ((0.4, 1.2, 0.15), (1.0, 2.2, 0.25)),
    'fence': ((0.8, 0.8, 0.05), (2.0, 1.6, 0.06)), 'bottle': ((0.12, 0.6, 0), (0.25, 1.2, 0)),
}


_UNUSED = Part(0, (0, 0, 0), (0.01, 0.01, 0.01), 'plain')


class Kit:
    """The types of a row of shapes as tensors, one row per type."""

    def __init__(self, kinds: tuple[int, ...], types: dict[str, list[Part]]) -> None:
        self.kinds, self.names = kinds, tuple(types)
        used = [{part.slot: part for part in parts} for parts in types.values()]
        rows = [[row.get(slot, _UNUSED) for slot in range(len(kinds))] for row in used]

        def table(value: Callable[[Part], object]) -> Tensor:
            return torch.tensor([[value(part) for part in row] for row in rows])

        self.alive = table(lambda part: part is not _UNUSED)
        self.at, self.half = table(lambda part: part.at), table(lambda part: part.half)
        self.group = table(lambda part: GROUPS[part.group])
        self.front = table(lambda part: GROUPS[part.group.replace('car_rear', 'car_front')])
        self.look, self.swing = table(lambda part: part.look), table(lambda part: part.swing)
        self.aside, self.end = table(lambda part: part.aside), table(lambda part: part.end)
        self.flank = table(lambda part: part.flank)
        self.card = torch.tensor(kinds) == CARD
        self.paintable = torch.tensor([all(
            kinds[part.slot] != CARD or part.group in STUCK_ON for part in parts)
            for parts in types.values()])
        sizes = torch.tensor([SIZES[name] for name in types])           # rows 2 3
        self.least, self.greatest = sizes[:, 0], sizes[:, 1]
        self.round = self.least[:, 2] == 0

    def index(self, name: str) -> int:
        return self.names.index(name)

    def weights(self, **shares: float) -> list[float]:
        return [shares.get(name, 0.0) for name in self.names]

    def size(self, draws: SceneRng, kind: Tensor) -> Tensor:
        """Random half width, height and half length of bodies of types (..., 3) [m]."""
        size = self.least[kind] + (self.greatest - self.least)[kind] * draws.unit(
            *kind.shape[1:], 3)
        length = torch.where(self.round[kind], size[..., 0], size[..., 2])
        return torch.stack((size[..., 0], size[..., 1], length), -1)


HERO, SIDE, THIN, CLUTTER = (Kit(HERO_KINDS, HERO_TYPES), Kit(SIDE_KINDS, SIDE_TYPES),
                             Kit(THIN_KINDS, THIN_TYPES), Kit(CLUTTER_KINDS, CLUTTER_TYPES))


STEP_M = 0.7     # a leg swings to and fro in two of them


@dataclass(frozen=True)
class Bodies:
    """M bodies of one kit in each of B scenes."""

    kind: Tensor  # (B, M)
    present: Tensor  # (B, M) whether it is there
    size: Tensor  # (B, M, 3) half width, height, half length [m]
    place: Tensor  # (B, T, M, 3) bottom of the middle in world axes [m]
    yaw: Tensor  # (B, T, M)
    velocity: Tensor  # (B, M, 3) at the newest frame
    yaw_rate: Tensor  # (B, M) at the newest frame


def assemble(kit: Kit, bodies: Bodies, times: Tensor, materials: Materials,
             draws: SceneRng, painted_share: float = 0.0) -> Shapes:
    """Shapes of bodies, body by body, at times (B, T) [s]."""
    b, m = bodies.kind.shape
    n = len(kit.kinds)
    kind = bodies.kind
    scale = bodies.size.unsqueeze(2)                                    # B M 1 3
    at, half = kit.at[kind] * scale, kit.half[kind] * scale             # B M N 3
    now, yaw_now = bodies.place[:, -1], bodies.yaw[:, -1]
    sine, cosine = yaw_now.sin(), yaw_now.cos()
    # The camera is at the origin: on which side of the body, and at which end?
    flank = torch.where(sine * now[..., 2] - cosine * now[..., 0] < 0, -1.0, 1.0)
    end = torch.where(-sine * now[..., 0] - cosine * now[..., 2] < 0, -1.0, 1.0)
    at_x = torch.where(kit.flank[kind], at[..., 0] * flank[..., None], at[..., 0])
    at_z = torch.where(kit.end[kind], at[..., 2] * end[..., None], at[..., 2])
    half = torch.where(kit.aside[kind].unsqueeze(-1),
                       torch.stack((half[..., 0] * scale[..., 2] / scale[..., 0], half[..., 1],
                                    half[..., 2]), -1), half)
    half = half.clamp(min=0.002)
    group = torch.where(end[..., None] > 0, kit.front[kind], kit.group[kind])
    alive = kit.alive[kind] & bodies.present.unsqueeze(-1)
    if painted_share:
        painted = (draws.chance(painted_share, m) & kit.paintable[kind]).unsqueeze(-1)
        group = torch.where(painted, GROUPS['plain'], group)
        alive = alive & ~(painted & kit.card)
    texture, tile, tint = materials.draw(draws, group, kit.look[kind], LOOKS)

    # Legs stand still for the moment at either end of their swing, so that the velocity of
    # the walker is that of all its parts at the newest frame.
    speed = bodies.velocity[..., 0::2].norm(dim=-1)                     # B M
    wave = (math.pi / STEP_M * speed.unsqueeze(1) * times.unsqueeze(-1)).cos()  # B T M
    wide = draws.uniform(0.2, 1, m) * draws.sign(m) * bodies.size[..., 1]
    swing = kit.swing[kind].unsqueeze(1) * (wave * wide.unsqueeze(1)).unsqueeze(-1)

    at_z = at_z.unsqueeze(1) + swing                                    # B T M N
    sine, cosine = bodies.yaw.sin().unsqueeze(-1), bodies.yaw.cos().unsqueeze(-1)
    at_x, at_y = at_x.unsqueeze(1), at[..., 1].unsqueeze(1)
    place = bodies.place.unsqueeze(3)                                   # B T M 1 3
    position = torch.stack((place[..., 0] + at_x * cosine + at_z * sine,
                            place[..., 1] - at_y + torch.zeros_like(at_z),
                            place[..., 2] + at_z * cosine - at_x * sine), -1)
    arm = position[:, -1] - place[:, -1]                                # B M N 3
    rate = bodies.yaw_rate[..., None]
    carried = torch.stack((rate * arm[..., 2], torch.zeros_like(arm[..., 1]),
                           -rate * arm[..., 0]), -1)
    yaw = bodies.yaw.unsqueeze(-1) + torch.where(kit.aside[kind], math.pi / 2, 0.0).unsqueeze(1)
    frames = times.shape[1]
    cycles = (speed.unsqueeze(1) * times.unsqueeze(-1) / (2 * STEP_M)).unsqueeze(-1)
    texture = materials.walking(
        draws, texture.reshape(b, m * n), (group == GROUPS['walker']).reshape(b, m * n),
        cycles.expand(b, frames, m, n).reshape(b, frames, m * n))
    return Shapes(
        kit.kinds * m, alive.reshape(b, m * n), position.reshape(b, frames, m * n, 3),
        yaw.reshape(b, frames, m * n), half.reshape(b, m * n, 3),
        (bodies.velocity.unsqueeze(2) + carried).reshape(b, m * n, 3),
        rate.expand(b, m, n).reshape(b, m * n), texture,
        tile.reshape(b, m * n), tint.reshape(b, m * n, 3))
