# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Keep all textures in one image, fetch from it, and choose looks of surfaces by group.

Every texture has S x S texels and is stored at combinations of S, S/2, S/4 .. 1 columns and
rows: a floor that is seen at a flat angle shrinks far more in one direction than in the other.
A cell of the atlas holds one texture; sizes follow one another from left to right and from top
to bottom, each with a border of one texel that repeats the opposite edge.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import cv2
import numpy as np
import torch
from torch import Tensor

from vjepa_ros.lab.world.scenes.scene import SceneRng
from vjepa_ros.lab.world.textures.cards import CARDS, walk
from vjepa_ros.lab.world.textures.prints import PRINTS
from vjepa_ros.lab.world.textures.surfaces import MATERIALS, to_bytes

_MOST_STRETCH = 3  # sharper at most by 2^3 in one direction than in the other
_SQUARES = (np.arange(256, dtype=np.float32) / 255) ** 2


class Atlas(NamedTuple):
    """Texels (rows, columns) int32, 8 bits each of red, green, blue, opacity, in cells."""

    texels: Tensor
    size: int
    per_row: int

    @property
    def cell(self) -> int:
        return 2 * self.size - 1 + 2 * self.size.bit_length()

    def origin(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Column and row of the cells of textures, float32."""
        row = torch.div(index, self.per_row, rounding_mode='floor')
        return ((index - row * self.per_row).float() * self.cell, row.float() * self.cell)

    def opacity(self, number: int) -> np.ndarray:
        row, column = divmod(number, self.per_row)
        y, x = row * self.cell + 1, column * self.cell + 1       # after its border
        texels = self.texels[y:y + self.size, x:x + self.size].cpu().numpy()
        return texels.view(np.uint8).reshape(self.size, self.size, 4)[..., 3]


def _halved(image: np.ndarray, axis: int) -> np.ndarray:
    return (image[::2] + image[1::2]) / 2 if axis == 0 else (image[:, ::2] + image[:, 1::2]) / 2


def pack(images: list[np.ndarray]) -> Atlas:
    """Atlas of square RGBA uint8 images that all have the same power of two as their side."""
    size = images[0].shape[0]
    per_row = math.ceil(math.sqrt(len(images)))
    levels, cell = size.bit_length(), Atlas(torch.empty(0), size, per_row).cell
    rows = math.ceil(len(images) / per_row)
    sheet = np.zeros((rows * cell, per_row * cell, 4), np.uint8)
    for number, image in enumerate(images):
        x0, y0 = (number % per_row) * cell, (number // per_row) * cell
        low = _filled(image)
        low[..., :3] *= _weight(low)
        y = y0
        for down in range(levels):
            small, x = low, x0
            for across in range(levels):
                if abs(across - down) <= _MOST_STRETCH + 1:
                    _store(sheet[y:, x:], small)
                x += small.shape[1] + 2
                small = _halved(small, 1) if across < levels - 1 else small
            y += low.shape[0] + 2
            low = _halved(low, 0) if down < levels - 1 else low
    texels = torch.from_numpy(sheet.view(np.int32)[..., 0])
    return Atlas(texels, size, per_row)


def _weight(image: np.ndarray) -> np.ndarray:
    """How much colours count in means: by their opacity, so that nothing bleeds out of holes."""
    return image[..., 3:] * (0.998 / 255) + 0.002


def _filled(image: np.ndarray) -> np.ndarray:
    """RGBA float32 with the colours of the surroundings in holes."""
    out = image.astype(np.float32)
    solid = out[..., 3] / 255
    colours = out[..., :3] * solid[..., None]
    open_part = solid < 0.02
    for spread in (1, 4, 16) if open_part.any() and not open_part.all() else ():
        cover = cv2.GaussianBlur(solid, (0, 0), spread)
        near = open_part & (cover > 1e-3)
        out[near, :3] = (cv2.GaussianBlur(colours, (0, 0), spread)[near] / cover[near][:, None])
        open_part = open_part & ~near
    return out


def _store(sheet: np.ndarray, image: np.ndarray) -> None:
    """Write one size of a texture (colours times weight) with its border into ``sheet``."""
    plain = np.concatenate((image[..., :3] / _weight(image), image[..., 3:]), -1)
    part = np.clip(plain + 0.5, 0, 255).astype(np.uint8)
    rows, columns = part.shape[:2]
    sheet[:rows + 2, :columns + 2] = np.pad(part, ((1, 1), (1, 1), (0, 0)), 'wrap')


def _place(share: Tensor, level: Tensor, size: int) -> Tensor:
    """Coordinate within a cell of a place 0..1 of a texture at an integer level."""
    width = torch.exp2(-level) * size
    return (2 * size + 0.5) - 2 * width + 2 * level + share * width


def _bilinear(texels: Tensor, x: Tensor, y: Tensor, parts: tuple[int, ...]) -> Tensor:
    """(..., len(parts)) float 0..255 at places of the atlas; parts 0..3 are red .. opacity."""
    x0, y0 = torch.floor(x), torch.floor(y)
    fx, fy = (x - x0)[..., None], (y - y0)[..., None]
    columns = texels.shape[1]
    flat = texels.reshape(-1)
    # Places that are no numbers (bodies without any size) must not stop a device.
    at = (y0.long() * columns + x0.long()).clamp(0, flat.shape[0] - columns - 2)

    def corner(offset: int) -> Tensor:
        packed = flat[at + offset]
        return torch.stack([((packed >> (8 * part)) & 255).float() for part in parts], -1)

    top = torch.lerp(corner(0), corner(1), fx)
    return torch.lerp(top, torch.lerp(corner(columns), corner(columns + 1), fx), fy)


def _remap(texels: Tensor, x: Tensor, y: Tensor) -> np.ndarray:
    """As ``_bilinear`` for one frame on the CPU, uint8 (rows, columns, 4), many times faster."""
    sheet = texels.numpy().view(np.uint8).reshape(*texels.shape, 4)
    columns, rows = (v.reshape(-1, v.shape[-1]).numpy() for v in (x, y))
    return cv2.remap(sheet, columns, rows, cv2.INTER_LINEAR)


def fetch(atlas: Atlas, origin: tuple[Tensor, Tensor], u: Tensor, v: Tensor, level_u: Tensor,
          level_v: Tensor, fast: bool = False) -> Tensor:
    """Light and opacity (..., 4) of textures at places, from cells as of ``Atlas.origin``."""
    last = float(int(math.log2(atlas.size)))
    level_u, level_v = level_u.clamp(0, last), level_v.clamp(0, last)
    level_u = torch.maximum(level_u, level_v - _MOST_STRETCH)
    level_v = torch.maximum(level_v, level_u - _MOST_STRETCH)
    # The stretch is a whole number of levels, the sharpness goes smoothly between two.
    stretch = torch.round(level_v - level_u)
    fine = (level_u + level_v - stretch) / 2
    base = torch.floor(fine)
    u, v = u - torch.floor(u), v - torch.floor(v)

    def at(level: Tensor) -> tuple[Tensor, Tensor]:
        return (origin[0] + _place(u, level.clamp(0, last), atlas.size),
                origin[1] + _place(v, (level + stretch).clamp(0, last), atlas.size))

    blend = fine - base
    if fast:
        share = blend.reshape(-1, blend.shape[-1])
        mixed = cv2.blendLinear(_remap(atlas.texels, *at(base)),
                                _remap(atlas.texels, *at(base + 1)),
                                (1 - share).numpy(), share.numpy())
        return torch.from_numpy(cv2.LUT(mixed, _SQUARES)).view(*blend.shape, 4)
    low, high = (_bilinear(atlas.texels, *at(level), (0, 1, 2, 3)) for level in (base, base + 1))
    return (torch.lerp(low, high, blend[..., None]) * (1 / 255)) ** 2


def opacity(atlas: Atlas, origin: tuple[Tensor, Tensor], u: Tensor, v: Tensor,
            level: Tensor) -> Tensor:
    level = torch.round(level).clamp(0, float(int(math.log2(atlas.size))))
    x = origin[0] + _place(u.clamp(0, 1), level, atlas.size)
    y = origin[1] + _place(v.clamp(0, 1), level, atlas.size)
    return _bilinear(atlas.texels, x, y, (3,))[..., 0]


# Per group: least and greatest side of one repeat [m] (0 stretches it over the face), least and
# greatest brightness, how colourful, and how many of a hundred painted textures it gets.
_ROWS: dict[str, tuple[float, float, float, float, float, int]] = {
    'plain': (0.5, 3, 0.1, 1.4, 0.4, 7),
    'floor': (0.6, 3, 0.12, 1.2, 0.15, 8),
    'ground': (1.2, 6, 0.3, 1.3, 0.1, 10),
    'road': (0, 0, 0.35, 1.1, 0.03, 2),
    'wall': (1.2, 5, 0.4, 1.6, 0.1, 10),
    'facade': (5, 12, 0.4, 1.6, 0.1, 5),
    'glass': (2, 6, 0.3, 1.5, 0.08, 1),
    'shelf': (1.5, 3, 0.5, 1.2, 0.1, 3),
    'door': (0, 0, 0.08, 1.3, 0.2, 3),
    'poster': (0, 0, 0.3, 1.4, 0.15, 4),
    'window': (0, 0, 1.2, 2.0, 0.05, 2),
    'cloth': (0.3, 1, 0.06, 1.2, 0.4, 5),
    'skin': (0.3, 0.8, 0.35, 1.2, 0.05, 2),
    'hair': (0.2, 0.5, 0.2, 0.8, 0.1, 2),
    'metal': (0.6, 3, 0.06, 1.5, 0.4, 4),
    'rubber': (0.6, 2, 0.1, 0.5, 0.05, 1),
    'wood': (0.6, 2.5, 0.4, 1.2, 0.15, 2),
    'print': (0, 0, 0.25, 1.4, 0.25, 8),
    'foliage': (0.5, 1.6, 0.35, 1.1, 0.15, 3),
    'person': (0, 0, 0.5, 1.2, 0.15, 5),
    'walker': (0, 0, 0.5, 1.2, 0.15, 0),
    'tree': (0, 0, 0.5, 1.2, 0.12, 4),
    'bush': (0, 0, 0.5, 1.2, 0.12, 2),
    'fence': (0, 0, 0.4, 1.2, 0.15, 2),
    'car_rear': (0, 0, 0.06, 1.4, 0.5, 4),
    'car_front': (0, 0, 0.06, 1.4, 0.5, 3),
    'car_side': (0, 0, 0.06, 1.4, 0.5, 4),
    'hills': (0, 0, 0.5, 1.2, 0.12, 3),
    'clouds': (0, 0, 1.0, 1.0, 0.0, 3),
}
GROUPS = {name: number for number, name in enumerate(_ROWS)}


class Materials:
    def __init__(self, groups: Mapping[str, Sequence[int]],
                 walks: Sequence[Sequence[int]]) -> None:
        found = [tuple(groups[name]) for name in _ROWS]
        self.clouds = tuple(groups['clouds'])
        self.walks = torch.tensor(walks)
        longest = max(map(len, found))
        rows = [[*v, *[0] * (longest - len(v))] for v in found]
        self.numbers = torch.tensor(rows)                               # G longest
        self.count = torch.tensor([len(v) for v in found])
        looks = torch.tensor([row[:5] for row in _ROWS.values()])
        self.tile_low, tile_high, self.low, high, self.colour = looks.unbind(-1)
        self.tile_ratio = tile_high / self.tile_low.clamp(min=1e-6)
        self.ratio = high / self.low

    def draw(self, draws: SceneRng, group: Tensor, look: Tensor | None = None,
             looks: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """Texture, tile_m and tint of surfaces of groups (B, ..., N)."""
        shape = group.shape[1:-1]
        drawn = draws.unit(*shape, looks or group.shape[-1], 6)
        if look is not None:
            drawn = drawn.gather(-2, look.unsqueeze(-1).expand(*look.shape, 6))
        which, size, value, hue = drawn[..., 0], drawn[..., 1], drawn[..., 2], drawn[..., 3:]
        texture = self.numbers[group, (which * self.count[group]).long()]
        tile = self.tile_low[group] * self.tile_ratio[group] ** size
        colour = self.colour[group].unsqueeze(-1) * 1.6 * (hue - hue.mean(-1, keepdim=True))
        tint = (self.low[group] * self.ratio[group] ** value).unsqueeze(-1) * (1 + colour)
        return texture, tile, tint.clamp(0.02, 2)

    def walking(self, draws: SceneRng, texture: Tensor, walker: Tensor, steps: Tensor) -> Tensor:
        """Textures (B, T, K): walkers show their cycle by the steps (B, T, K) walked."""
        still = texture.unsqueeze(1).expand_as(steps)
        who = (draws.unit(*texture.shape[1:]) * len(self.walks)).long()
        phase = (steps + draws.unit(1, *texture.shape[1:])) % 1
        cycle = self.walks.shape[1]
        picture = (phase * cycle).long().clamp(max=cycle - 1)
        return torch.where(walker.unsqueeze(1), self.walks[who.unsqueeze(1), picture], still)


PAINTERS = MATERIALS | PRINTS | CARDS


@dataclass(frozen=True)
class TextureBank:
    atlas: Atlas
    # Numbers of the textures that serve as 'wall', 'ground', 'person' and so on; a texture may be
    # in several groups
    groups: dict[str, tuple[int, ...]]
    # People seen from the side, the pictures of one walking cycle each (to the right)
    walks: tuple[tuple[int, ...], ...]

    def to(self, device: torch.device | str) -> TextureBank:
        atlas = self.atlas._replace(texels=self.atlas.texels.to(device))
        return TextureBank(atlas, self.groups, self.walks)

    @classmethod
    def procedural(cls, seed: int, count: int = 100, size: int = 256) -> TextureBank:
        """Paint textures; another count leaves the first ones of a group as they are."""
        images: list[np.ndarray] = []
        groups: dict[str, list[int]] = {}
        walks = []
        for place, (name, painters) in enumerate(PAINTERS.items()):
            for number in range(max(1, round(_ROWS[name][-1] * count / 100))):
                rng = np.random.default_rng((seed, place, number))
                groups.setdefault(name, []).append(len(images))
                images.append(to_bytes(painters[number % len(painters)](rng, size)))
        for number in range(max(1, round(count / 50))):
            pictures = walk(np.random.default_rng((seed, len(PAINTERS), number)), size)
            walks.append(tuple(range(len(images), len(images) + len(pictures))))
            images += [to_bytes(p) for p in pictures]
        groups['walker'] = [n for numbers in walks for n in numbers]
        return cls(pack(images), {k: tuple(v) for k, v in groups.items()}, tuple(walks))
