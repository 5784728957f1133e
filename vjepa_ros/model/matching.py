# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Find the patches of the newest frame of a tubelet again in earlier frames.

Each cell of a patch is compared with the cells around its place in another frame, at three
scales, as in correlation layers of optical flow (PWC-Net, arXiv 1709.02371) but with a softmax
over the places (GMFlow, arXiv 2111.13680). What a patch gets depends on where its texture went,
not on what it looks like. The other frames are the older one of the tubelet, and the newest of the
tubelet before it.

N pairs of frames, Hp x Wp patches, C channels, D width of a token.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vjepa_ros.model.blocks import bias_of
from vjepa_ros.model.variants import IMAGENET_MEAN, IMAGENET_STD

CHANNELS = (24, 48, 64)     # of maps with cells of 4, 8 and 16 px
CELLS = (4, 2)              # cells per side of a patch in the first two
REACH = 4                   # cells beyond a patch with which they are compared
HIDDEN = 96


class Matching(nn.Module):
    """Tell each patch of the newest frames where it was in two earlier ones."""

    def __init__(self, dim: int):
        super().__init__()
        fine, middle, coarse = CHANNELS
        self.stem = nn.Conv2d(3, fine, 8, stride=4, padding=2)
        self.fine = nn.Conv2d(fine, fine, 3, padding=1)
        self.middle = nn.Conv2d(fine, middle, 3, stride=2, padding=1)
        self.coarse = nn.Conv2d(middle, coarse, 3, stride=2, padding=1)
        self.sharpness = nn.Parameter(torch.zeros(len(CHANNELS)))
        # What each place around a patch stands for; a cell gets their mean over where it is.
        self.places = nn.ParameterList(
            nn.Parameter(torch.zeros((cells + 2 * REACH) ** 2, channels))
            for cells, channels in zip(CELLS, CHANNELS, strict=False))
        told = sum(cells ** 2 * channels for cells, channels in zip(CELLS, CHANNELS, strict=False))
        self.read = nn.Linear(told + 5, HIDDEN)
        self.near, self.far = nn.Linear(HIDDEN, dim), nn.Linear(HIDDEN, dim)

    def forward(self, clip: Tensor) -> Tensor:
        """Compute what is added to the tokens (B, T' Hp Wp, D) of a clip (B, 3, T, H, W).

        T is 2 T', or 3: a tubelet, and before it the newest frame of the one before.
        """
        count = clip.shape[2]
        if clip.dtype == torch.uint8:
            clip = torch.stack([(part / 255 - mean) / std for part, mean, std in zip(
                clip.unbind(1), IMAGENET_MEAN, IMAGENET_STD, strict=True)], 1)
        maps = [one.unflatten(0, (-1, count)) for one in self.maps(
            clip.transpose(1, 2).flatten(0, 1))]                    # B T h w C
        if count % 2:
            places = [2], [1], [0]
        else:       # the first tubelet has none before it
            ends = [*range(1, count, 2)]
            places = ends, [*range(0, count, 2)], [0, *ends[:-1]]
        newest, near, far = ([one[:, at].flatten(0, 1) for one in maps] for at in places)
        found = self.near(self.compare(newest, near)) + self.far(self.compare(newest, far))
        return found.unflatten(0, (len(clip), -1)).flatten(1, 3)

    def maps(self, pictures: Tensor) -> list[Tensor]:
        """Compute normalised maps (N, h, w, C) of pictures (N, 3, H, W)."""
        fine = self.fine(F.gelu(self.stem(pictures)))
        middle = self.middle(F.gelu(fine))
        coarse = self.coarse(F.gelu(middle))
        return [F.layer_norm(one.permute(0, 2, 3, 1), one.shape[1:2])
                for one in (fine, middle, coarse)]

    def compare(self, newest: list[Tensor], other: list[Tensor]) -> Tensor:
        """Compare maps at newest frames with those at others: (N, Hp, Wp, hidden)."""
        scales = self.sharpness.exp()
        around = [_around(*given) for given in zip(newest, other, self.places, scales, CELLS,
                                                   strict=False)]
        anywhere = _anywhere(newest[-1] * scales[-1], other[-1])
        return F.gelu(self.read(torch.cat((*around, anywhere), -1)))

    @torch.no_grad()
    def init_random(self, generator: torch.Generator) -> None:
        for layer in (self.stem, self.fine, self.middle, self.coarse):
            nn.init.trunc_normal_(layer.weight, std=layer.weight[0].numel() ** -0.5,
                                  generator=generator)
            nn.init.zeros_(bias_of(layer))
        for places in self.places:
            nn.init.trunc_normal_(places, generator=generator)
        nn.init.trunc_normal_(self.read.weight, std=self.read.in_features ** -0.5,
                              generator=generator)
        self.sharpness.zero_()


def _around(newest: Tensor, other: Tensor, places: Tensor, scale: Tensor, cells: int) -> Tensor:
    """Return where the cells of each patch are, among those up to `REACH` beyond it."""
    queries = _by_patch(newest * (scale / math.sqrt(newest.shape[-1])), cells)     # N Hp Wp c C
    keys, beyond = _by_patch(other, cells).flatten(3), REACH // cells
    rows, cols = keys.shape[1:3]
    keys = F.pad(keys, (0, 0, beyond, beyond, beyond, beyond))
    around = range(2 * beyond + 1)
    keys = torch.cat([keys[:, down:down + rows, right:right + cols]
                      for down in around for right in around], -1)
    keys = keys.unflatten(3, (-1, newest.shape[-1]))                    # N Hp Wp places C
    where = (queries @ keys.transpose(-1, -2)).softmax(-1)
    return (where.to(places.dtype) @ places).flatten(3)


def _by_patch(cells_of: Tensor, cells: int) -> Tensor:
    """Group maps (N, h, w, C) by patches: (N, Hp, Wp, cells in a patch, C)."""
    return cells_of.unflatten(2, (-1, cells)).unflatten(1, (-1, cells)).transpose(2, 3).flatten(
        3, 4)


def _anywhere(queries: Tensor, keys: Tensor) -> Tensor:
    """Return mean and spread of where each patch is in the whole picture, and how surely."""
    grid = queries.shape[1:3]
    at = torch.stack(torch.meshgrid(*(torch.arange(n, device=keys.device, dtype=torch.float32)
                                      for n in grid), indexing='ij'), -1).flatten(0, 1)  # P 2
    scores = queries.flatten(1, 2) @ keys.flatten(1, 2).transpose(1, 2)
    found = (scores / math.sqrt(keys.shape[-1])).float().softmax(-1)
    mean, square = (found @ torch.cat((at, at * at), 1)).chunk(2, -1)
    spread = (square - mean * mean).clamp(min=1e-4).sqrt()    # its slope at 0 is infinite
    told = torch.cat((mean - at, spread, found.amax(-1, keepdim=True)), -1)
    return told.unflatten(1, grid).to(keys.dtype)
