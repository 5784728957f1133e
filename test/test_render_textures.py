# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Textures: they are painted the same every time, repeat without a seam, and shrink cleanly."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import torch

from vjepa_ros.lab.world.textures.bank import Atlas, TextureBank, fetch, opacity, pack

SIZE = 64


@pytest.fixture(scope='module')
def bank() -> TextureBank:
    return TextureBank.procedural(3, count=30, size=SIZE)


def image_of(atlas: Atlas, index: int) -> np.ndarray:
    """The largest size of a texture, RGBA."""
    column, row = (int(v) + 1 for v in atlas.origin(torch.tensor(index)))
    texels = atlas.texels[row:row + atlas.size, column:column + atlas.size].contiguous()
    return texels.numpy().view(np.uint8).reshape(atlas.size, atlas.size, 4)


def at(atlas: Atlas, index: int, u: torch.Tensor, v: torch.Tensor, level: float,
       fast: bool = False) -> torch.Tensor:
    """Colours at places, (..., 4) in 0..1."""
    origin = tuple(o.expand(u.shape) for o in atlas.origin(torch.tensor(index)))
    return fetch(atlas, origin, u, v, *[torch.full_like(u, level)] * 2, fast)


def test_fetching_is_bilinear_wraps_and_squares(bank):
    index = bank.groups['wall'][0]
    image = image_of(bank.atlas, index).astype(np.float32) / 255
    generator = torch.Generator().manual_seed(1)
    u, v = 6 * torch.rand(2, 40, 50, generator=generator) - 3
    wide = np.pad(image, ((2, 2), (2, 2), (0, 0)), 'wrap')
    x, y = ((w - torch.floor(w)).numpy() * SIZE + 1.5 for w in (u, v))
    expected = cv2.remap(wide, x.astype(np.float32), y.astype(np.float32), cv2.INTER_LINEAR) ** 2
    for fast in (False, True):
        found = at(bank.atlas, index, u, v, -1.0, fast).numpy()
        assert np.abs(found - expected).max() < 0.03


def test_colours_do_not_bleed_out_of_holes():
    image = np.zeros((SIZE, SIZE, 4), np.uint8)
    image[16:48, 16:48] = 255                       # white, solid, in black nothing
    atlas = pack([image])
    u = torch.linspace(0.24, 0.76, 30)[None]    # a little over the edge
    v = torch.full_like(u, 0.5)
    for level in (0.0, 2.0, 4.0):
        assert at(atlas, 0, u, v, level)[..., :3].min() > 0.98
    origin = tuple(o.expand(u.shape) for o in atlas.origin(torch.tensor(0)))
    inside = 0.5 + 0.9 * (u - 0.5)
    assert opacity(atlas, origin, inside, v, torch.zeros_like(u)).min() > 250
    assert opacity(atlas, origin, 0.1 * u, v, torch.zeros_like(u)).max() < 5
