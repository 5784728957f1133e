# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Hold the textures of the world by group, and choose texture, scale and colour of surfaces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import torch
from torch import Tensor

from vjepa_ros.lab.world.scenes.scene import SceneRng
from vjepa_ros.lab.world.textures.atlas import Atlas, pack
from vjepa_ros.lab.world.textures.cards import SCENERY, VEHICLES, person, walk
from vjepa_ros.lab.world.textures.prints import PRINTS
from vjepa_ros.lab.world.textures.surfaces import MATERIALS, Painter, to_bytes

# Per group: least and greatest side of one repeat [m] (0 stretches it over the face), least and
# greatest brightness, how colourful, and which group stands in where a bank has none of it.
_ROWS: dict[str, tuple[float, float, float, float, float, str]] = {
    'plain': (0.5, 3, 0.1, 1.4, 0.4, ''),
    'floor': (0.6, 3, 0.12, 1.2, 0.15, 'plain'),
    'ground': (1.2, 6, 0.3, 1.3, 0.1, 'floor'),
    'road': (0, 0, 0.35, 1.1, 0.03, 'ground'),
    'wall': (1.2, 5, 0.4, 1.6, 0.1, 'plain'),
    'facade': (5, 12, 0.4, 1.6, 0.1, 'wall'),
    'glass': (2, 6, 0.3, 1.5, 0.08, 'plain'),
    'shelf': (1.5, 3, 0.5, 1.2, 0.1, 'print'),
    'door': (0, 0, 0.08, 1.3, 0.2, 'wood'),
    'poster': (0, 0, 0.3, 1.4, 0.15, 'print'),
    'window': (0, 0, 1.2, 2.0, 0.05, 'plain'),
    'cloth': (0.3, 1, 0.06, 1.2, 0.4, 'plain'),
    'skin': (0.3, 0.8, 0.35, 1.2, 0.05, 'plain'),
    'hair': (0.2, 0.5, 0.2, 0.8, 0.1, 'plain'),
    'metal': (0.6, 3, 0.06, 1.5, 0.4, 'plain'),
    'rubber': (0.6, 2, 0.1, 0.5, 0.05, 'plain'),
    'wood': (0.6, 2.5, 0.4, 1.2, 0.15, 'floor'),
    'print': (0, 0, 0.25, 1.4, 0.25, 'wall'),
    'foliage': (0.5, 1.6, 0.35, 1.1, 0.15, 'ground'),
    'person': (0, 0, 0.5, 1.2, 0.15, 'cloth'),
    'walker': (0, 0, 0.5, 1.2, 0.15, 'person'),
    'tree': (0, 0, 0.5, 1.2, 0.12, 'foliage'),
    'bush': (0, 0, 0.5, 1.2, 0.12, 'foliage'),
    'fence': (0, 0, 0.4, 1.2, 0.15, 'metal'),
    'car_rear': (0, 0, 0.06, 1.4, 0.5, 'metal'),
    'car_front': (0, 0, 0.06, 1.4, 0.5, 'car_rear'),
    'car_side': (0, 0, 0.06, 1.4, 0.5, 'car_rear'),
    'hills': (0, 0, 0.5, 1.2, 0.12, 'foliage'),
    'clouds': (0, 0, 1.0, 1.0, 0.0, ''),
}
GROUPS = {name: number for number, name in enumerate(_ROWS)}


class Materials:
    """The groups of a texture bank as tensors, see `TextureBank`.

    'plain' must be among them; other groups that are missing are replaced by similar ones.
    """

    def __init__(self, groups: Mapping[str, Sequence[int]],
                 walks: Sequence[Sequence[int]] = ()) -> None:
        found: dict[str, tuple[int, ...]] = {}
        for name, row in _ROWS.items():
            numbers = tuple(groups.get(name, ())) or found.get(row[5], ())
            if not numbers and name == 'plain':
                raise ValueError(f"the bank has no textures in the group 'plain', only "
                                 f'{sorted(groups)}')
            found[name] = numbers
        self.clouds = found['clouds']
        self.walks = torch.tensor(walks) if walks else None
        longest = max(map(len, found.values()))
        rows = [[*v, *[0] * (longest - len(v))] for v in found.values()]
        self.numbers = torch.tensor(rows)                               # G longest
        self.count = torch.tensor([max(1, len(v)) for v in found.values()])
        looks = torch.tensor([row[:5] for row in _ROWS.values()])
        self.tile_low, tile_high, self.low, high, self.colour = looks.unbind(-1)
        self.tile_ratio = tile_high / self.tile_low.clamp(min=1e-6)
        self.ratio = high / self.low

    def draw(self, draws: SceneRng, group: Tensor, look: Tensor | None = None,
             looks: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """Texture, tile_m and tint of surfaces.

        `group`: (B, ..., N) numbers as in `GROUPS`.
        """
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
        """Textures over time, for walkers one picture of their cycle after the other.

        `texture, walker`: (B, K) as drawn, and bool whether that surface shows a walker; `steps`:
        (B, T, K) cycles walked, in fractions.
        """
        still = texture.unsqueeze(1).expand_as(steps)
        if self.walks is None:
            return still
        who = (draws.unit(*texture.shape[1:]) * len(self.walks)).long()
        phase = (steps + draws.unit(1, *texture.shape[1:])) % 1
        cycle = self.walks.shape[1]
        picture = (phase * cycle).long().clamp(max=cycle - 1)
        return torch.where(walker.unsqueeze(1), self.walks[who.unsqueeze(1), picture], still)


PAINTERS: dict[str, tuple[Painter, ...]] = {
    **MATERIALS, **PRINTS, 'person': (person,), **VEHICLES, **SCENERY}
# How many of a hundred textures a group gets.
_SHARES = {'plain': 7, 'floor': 8, 'ground': 10, 'wall': 10, 'facade': 5, 'glass': 1, 'shelf': 3,
           'door': 3, 'poster': 4, 'window': 2, 'cloth': 5, 'skin': 2, 'hair': 2, 'metal': 4,
           'rubber': 1, 'wood': 2, 'print': 8, 'foliage': 3, 'road': 2, 'person': 5, 'tree': 4,
           'bush': 2, 'fence': 2, 'car_rear': 4, 'car_front': 3, 'car_side': 4, 'hills': 3,
           'clouds': 3}
# Photographs may stand for any surface whose look is free.
_PHOTO_GROUPS = ('plain', 'wall', 'floor', 'ground', 'print', 'poster', 'cloth', 'facade')
_SUFFIXES = frozenset({'.jpg', '.jpeg', '.png', '.webp', '.bmp'})


@dataclass(frozen=True)
class TextureBank:
    """Textures in an atlas."""

    atlas: Atlas
    # Numbers of the textures that serve as 'wall', 'ground', 'person' and so on; a texture may be
    # in several groups
    groups: dict[str, tuple[int, ...]]
    # People seen from the side, the pictures of one walking cycle each (to the right)
    walks: tuple[tuple[int, ...], ...]

    def to(self, device: torch.device | str) -> TextureBank:
        """Return the same bank on a device."""
        atlas = self.atlas._replace(texels=self.atlas.texels.to(device))
        return TextureBank(atlas, self.groups, self.walks)

    @classmethod
    def procedural(cls, seed: int, count: int = 100, size: int = 256) -> TextureBank:
        """Painted textures only."""
        return _pack(*_painted(seed, count, size))

    @classmethod
    def from_folder(cls, paths: Iterable[str | Path], seed: int = 0, crops: int = 200,
                    count: int = 100, size: int = 256) -> TextureBank:
        """Painted textures and crops of photographs, mirrored so that they repeat."""
        images, groups, walks = _painted(seed, count, size)
        rng = np.random.default_rng((seed, 1))
        files = _image_files(paths)
        for number in range(crops):
            photo = cv2.imread(str(files[number % len(files)]), cv2.IMREAD_COLOR)
            if photo is None:
                raise ValueError(f"cannot read the image '{files[number % len(files)]}'")
            for name in rng.choice(_PHOTO_GROUPS, 2, replace=False):
                groups[str(name)].append(len(images))
            images.append(to_bytes(_crop(rng, photo[..., ::-1], size)))
        return _pack(images, groups, walks)


def _painted(seed: int, count: int, size: int) -> tuple[list[np.ndarray], dict[str, list[int]],
                                                        list[tuple[int, ...]]]:
    images: list[np.ndarray] = []
    groups: dict[str, list[int]] = {}
    walks = []
    for place, (name, painters) in enumerate(PAINTERS.items()):
        wanted = max(1, round(_SHARES[name] * count / 100))
        # Each texture has its own generator: another count leaves the first ones as they are.
        for number in range(wanted):
            rng = np.random.default_rng((seed, place, number))
            groups.setdefault(name, []).append(len(images))
            images.append(to_bytes(painters[number % len(painters)](rng, size)))
    for number in range(max(1, round(count / 50))):
        pictures = walk(np.random.default_rng((seed, len(PAINTERS), number)), size)
        walks.append(tuple(range(len(images), len(images) + len(pictures))))
        images += [to_bytes(p) for p in pictures]
    groups['walker'] = [n for numbers in walks for n in numbers]
    return images, groups, walks


def _pack(images: list[np.ndarray], groups: dict[str, list[int]],
          walks: Sequence[tuple[int, ...]]) -> TextureBank:
    return TextureBank(pack(images), {k: tuple(v) for k, v in groups.items()}, tuple(walks))


def _image_files(paths: Iterable[str | Path]) -> list[Path]:
    files: list[Path] = []
    for path in map(Path, paths):
        found = sorted(path.rglob('*')) if path.is_dir() else [path]
        files += [f for f in found if f.suffix.lower() in _SUFFIXES]
    if not files:
        raise ValueError(f'no images in {[str(p) for p in paths]}; looked for '
                         f'{sorted(_SUFFIXES)}')
    return files


def _crop(rng: np.random.Generator, photo: np.ndarray, size: int) -> np.ndarray:
    """Crop a square and mirror it to both sides: it repeats, at the price of symmetry."""
    rows, columns = photo.shape[:2]
    side = int(min(rows, columns) * rng.uniform(0.3, 1.0))
    y, x = int(rng.integers(rows - side + 1)), int(rng.integers(columns - side + 1))
    part = np.ascontiguousarray(photo[y:y + side, x:x + side])
    part = cv2.resize(part, (size // 2, size // 2), interpolation=cv2.INTER_AREA)
    if rng.random() < 0.5:
        part = part[:, ::-1]
    part = np.concatenate((part, part[:, ::-1]), 1)
    return np.concatenate((part, part[::-1]), 0).astype(np.float32)
