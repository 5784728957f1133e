# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The textures of the world, by what they are good for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import torch

from vjepa_ros.lab.world.textures.atlas import Atlas, pack
from vjepa_ros.lab.world.textures.noise import to_bytes
from vjepa_ros.lab.world.textures.people import person, walk
from vjepa_ros.lab.world.textures.prints import PRINTS
from vjepa_ros.lab.world.textures.scenery import SCENERY
from vjepa_ros.lab.world.textures.surfaces import MATERIALS, Painter
from vjepa_ros.lab.world.textures.vehicles import VEHICLES

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
    """Textures in an atlas.

    Attributes
    ----------
    atlas : Atlas
    groups : dict
        Numbers of the textures that serve as 'wall', 'ground', 'person' and so on; a texture
        may be in several groups.
    walks : tuple of tuple of int
        People seen from the side, the pictures of one walking cycle each (to the right).
    """

    atlas: Atlas
    groups: dict[str, tuple[int, ...]]
    walks: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return 1 + max(max(numbers) for numbers in self.groups.values())

    def of(self, *names: str) -> tuple[int, ...]:
        """Numbers of all textures in some groups."""
        return tuple(sorted({n for name in names for n in self.groups.get(name, ())}))

    @property
    def surfaces(self) -> tuple[int, ...]:
        return self.of(*MATERIALS, *PRINTS)

    @property
    def grounds(self) -> tuple[int, ...]:
        return self.of('ground', 'floor')

    @property
    def cards_people(self) -> tuple[int, ...]:
        return self.of('person', 'walker')

    @property
    def cards_vehicles(self) -> tuple[int, ...]:
        return self.of('car_rear', 'car_front', 'car_side')

    @property
    def skies(self) -> tuple[int, ...]:
        return self.of('clouds')

    def to(self, device: torch.device | str) -> TextureBank:
        """The same bank on a device."""
        atlas = self.atlas._replace(texels=self.atlas.texels.to(device))
        return TextureBank(atlas, self.groups, self.walks)

    @classmethod
    def procedural(cls, seed: int, count: int = 100, size: int = 256,
                   device: torch.device | str = 'cpu') -> TextureBank:
        """Painted textures only.

        Parameters
        ----------
        seed : int
            Decides all of them.
        count : int
            About how many; every group gets at least one.
        size : int
            Side in texels, a power of two.
        """
        return _pack(*_painted(seed, count, size), device)

    @classmethod
    def from_folder(cls, paths: Iterable[str | Path], seed: int = 0, crops: int = 200,
                    count: int = 100, size: int = 256,
                    device: torch.device | str = 'cpu') -> TextureBank:
        """Painted textures and crops of photographs, mirrored so that they repeat.

        Parameters
        ----------
        paths : iterable of str or Path
            Image files, or folders that are searched for them.
        crops : int
            Textures to cut from the photographs, evenly from all files.
        count : int
            Painted textures beside them, as in `procedural`.

        Raises
        ------
        ValueError
            If there is no readable image.
        """
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
        return _pack(images, groups, walks, device)


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
          walks: Sequence[tuple[int, ...]], device: torch.device | str) -> TextureBank:
    bank = TextureBank(pack(images), {k: tuple(v) for k, v in groups.items()}, tuple(walks))
    return bank.to(device)


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
    """A square part, mirrored to both sides: it repeats, at the price of symmetry."""
    rows, columns = photo.shape[:2]
    side = int(min(rows, columns) * rng.uniform(0.3, 1.0))
    y, x = int(rng.integers(rows - side + 1)), int(rng.integers(columns - side + 1))
    part = np.ascontiguousarray(photo[y:y + side, x:x + side])
    part = cv2.resize(part, (size // 2, size // 2), interpolation=cv2.INTER_AREA)
    if rng.random() < 0.5:
        part = part[:, ::-1]
    part = np.concatenate((part, part[:, ::-1]), 1)
    return np.concatenate((part, part[::-1]), 0).astype(np.float32)
