# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Choose what surfaces are made of: a texture of a group, its scale and its colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from vjepa_ros.lab.world.scenes.scene_rng import Dice

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
    """The groups of a texture bank as tensors.

    Parameters
    ----------
    groups : Mapping
        Texture numbers by the name of their group; 'plain' must be among them, other groups
        that are missing are replaced by similar ones.
    walks : sequence of sequences of int
        Walking people seen from the side: textures of one cycle each, all equally many.
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

    def draw(self, dice: Dice, group: Tensor, look: Tensor | None = None,
             looks: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """Texture, tile_m and tint of surfaces.

        Parameters
        ----------
        group : Tensor
            (B, ..., N) numbers as in `GROUPS`.
        look : Tensor, optional
            The same shape: surfaces of one body (the last axis) with one look, 0 .. looks - 1,
            get the same draw.

        Returns
        -------
        (Tensor, Tensor, Tensor)
            int64 of group's shape, float32 of that shape [m], float32 (..., 3).
        """
        shape = group.shape[1:-1]
        drawn = dice.unit(*shape, looks or group.shape[-1], 6)
        if look is not None:
            drawn = drawn.gather(-2, look.unsqueeze(-1).expand(*look.shape, 6))
        which, size, value, hue = drawn[..., 0], drawn[..., 1], drawn[..., 2], drawn[..., 3:]
        texture = self.numbers[group, (which * self.count[group]).long()]
        tile = self.tile_low[group] * self.tile_ratio[group] ** size
        colour = self.colour[group].unsqueeze(-1) * 1.6 * (hue - hue.mean(-1, keepdim=True))
        tint = (self.low[group] * self.ratio[group] ** value).unsqueeze(-1) * (1 + colour)
        return texture, tile, tint.clamp(0.02, 2)

    def walking(self, dice: Dice, texture: Tensor, walker: Tensor, steps: Tensor) -> Tensor:
        """Textures over time, for walkers one picture of their cycle after the other.

        Parameters
        ----------
        texture, walker : Tensor
            (B, K) as drawn, and bool whether that surface shows a walker.
        steps : Tensor
            (B, T, K) cycles walked, in fractions.

        Returns
        -------
        Tensor int64 (B, T, K)
        """
        still = texture.unsqueeze(1).expand_as(steps)
        if self.walks is None:
            return still
        who = (dice.unit(*texture.shape[1:]) * len(self.walks)).long()
        phase = (steps + dice.unit(1, *texture.shape[1:])) % 1
        cycle = self.walks.shape[1]
        picture = (phase * cycle).long().clamp(max=cycle - 1)
        return torch.where(walker.unsqueeze(1), self.walks[who.unsqueeze(1), picture], still)
