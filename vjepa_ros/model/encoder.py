# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The V-JEPA 2 video encoder: a vision transformer over tubelets.

Architecture after arXiv 2506.09985, and arXiv 2603.14482 for version 2.1. A block-causal encoder,
which is our own, can also read a stream: each tubelet once, with the keys and values of those
before it. The names of parameters equal those of the published checkpoints.
B clips, T frames, T' tubelets, Hp x Wp patches, N tokens, D width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vjepa_ros.model.blocks import Block, EPS, LayerMemory, ModuleList, bias_of
from vjepa_ros.model.matching import Matching
from vjepa_ros.model.rope import Positions
from vjepa_ros.model.variants import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    PATCH,
    STEP_S,
    TUBELET,
    Variant,
)

VERSIONS = ('2.0', '2.1')
INIT_STD = 0.02
TIME_S = 0.25     # in which a block-causal encoder counts positions


class Normalise:
    """uint8 clips (B, T, H, W, 3) to the float32 input of the encoder (B, 3, T, H, W)."""

    def __init__(self, device: torch.device):
        self._mean = torch.tensor(IMAGENET_MEAN, dtype=torch.float32, device=device) * 255.0
        self._scale = 1.0 / (torch.tensor(IMAGENET_STD, dtype=torch.float32, device=device)
                             * 255.0)

    def __call__(self, pixels: Tensor) -> Tensor:
        return ((pixels - self._mean) * self._scale).permute(0, 4, 1, 2, 3)


class PatchEmbed(nn.Module):
    """Embed boxes of `frames` x 16 x 16 pixels as tokens."""

    def __init__(self, dim: int, frames: int = TUBELET):
        super().__init__()
        self.frames = frames
        kernel = (frames, PATCH, PATCH)
        self.proj = nn.Conv3d(3, dim, kernel, stride=kernel)

    def forward(self, clip: Tensor) -> Tensor:
        x = clip.unflatten(4, (-1, PATCH)).unflatten(3, (-1, PATCH))
        x = x.unflatten(2, (-1, self.frames))
        x = x.permute(0, 2, 4, 6, 1, 3, 5, 7)  # B T' Hp Wp 3 frames 16 16
        x = x.flatten(4).flatten(1, 3)  # B N 1536
        # A convolution whose stride is its kernel is a matrix product, which runs faster.
        return F.linear(x, self.proj.weight.flatten(1), self.proj.bias)


class Encoder(nn.Module):
    """Video clip to one feature vector per tubelet and patch.

    Version 2.1 also encodes single images, as clips of one frame, and normalises features at four
    depths. A tubelet attends to the `window` latest tubelets; 0: all attend to all.
    """

    def __init__(self, variant: Variant, version: str = '2.0', window: int = 0,
                 matching: bool = False):
        super().__init__()
        if version not in VERSIONS:
            raise ValueError(f"model version '{version}' is not implemented; "
                             f"choose one of {', '.join(VERSIONS)}")
        if window < 0 or (window and version == '2.0'):
            raise ValueError(f'a window of {window} tubelets is asked of version {version}; it is '
                             'at least 0, and 0 in version 2.0, whose positions are not relative')
        self.variant = variant
        self.version = version
        self.window = window
        # The blocks whose features can be normalised, and asked for.
        self._ends = tuple(range(variant.depth)) if version == '2.0' else variant.taps
        self.patch_embed = PatchEmbed(variant.dim)
        self.blocks = ModuleList(Block(variant) for _ in range(variant.depth))
        if version == '2.0':
            self.norm = nn.LayerNorm(variant.dim, eps=EPS)
        else:
            self.patch_embed_img = PatchEmbed(variant.dim, frames=1)
            self.img_mod_embed = nn.Parameter(torch.zeros(1, 1, variant.dim))
            self.video_mod_embed = nn.Parameter(torch.zeros(1, 1, variant.dim))
            self.norms_block = ModuleList(
                nn.LayerNorm(variant.dim, eps=EPS) for _ in self._ends)
        if window:
            # What a token gets for each factor e between the frames of its tubelet, and between
            # the newest frames of this and the one before.
            self.interval_embed = nn.Parameter(torch.zeros(2, 1, variant.dim))
        self.matching = Matching(variant.dim) if matching else None
        self._positions = Positions(variant.head_dim, version)

    def forward(self, clip: Tensor, times: Tensor | None = None,
                memory: Sequence[LayerMemory] | None = None) -> Tensor:
        """Encode clips (B, 3, T, height, width) float32, normalised RGB, oldest frame first."""
        return self.layers(clip, (self.variant.depth - 1,), times, memory)[0]

    def layers(self, clip: Tensor, layers: Sequence[int], times: Tensor | None = None,
               memory: Sequence[LayerMemory] | None = None) -> tuple[Tensor, ...]:
        """Compute the features after chosen blocks; no later block runs."""
        norms = {layer: self._norm(layer) for layer in layers}
        grid = self.grid(clip.shape)
        x = self._embed(clip, times)
        cos, sin = self._tables(grid, x.device, times)
        allowed = self._allowed(grid, x.device)
        found = {}
        for number, block in enumerate(self.blocks):
            x = block(x, cos, sin, allowed, None if memory is None else memory[number])
            if number in norms:
                found[number] = norms[number](x).unflatten(1, grid)
            if len(found) == len(norms):
                break
        return tuple(found[layer] for layer in layers)

    def step(self, frames: Tensor, times: Tensor, memory: Sequence[LayerMemory],
             allowed: Tensor | None = None) -> Tensor:
        """Encode the next tubelet of B streams, as at the end of a clip.

        `frames`: (B, 3, `step_frames`, height, width); with matching the newest frame of the
        tubelet before it comes first.
        `allowed`: (B, 1, 1, M + N) bool, which tokens of memory and tubelet a stream has.
        """
        grid = self.grid(frames[:, :, -TUBELET:].shape)
        x = self._embed(frames, times)
        cos, sin = self._tables(grid, x.device, times)
        x = self.run_blocks(x, cos, sin, allowed, memory)
        return self._norm(self.variant.depth - 1)(x).unflatten(1, grid)

    def run_blocks(self, x: Tensor, cos: Tensor, sin: Tensor, allowed: Tensor | None,
                   memory: Sequence[LayerMemory]) -> Tensor:
        """Apply all blocks to the tokens of a step, see `Block.forward`."""
        for block, layer in zip(self.blocks, memory, strict=True):
            x = block(x, cos, sin, allowed, layer)
        return x

    def times(self, stamps: Tensor) -> Tensor:
        """Compute what a block-causal encoder is told of stamps (B, T) [s], float64."""
        ends = stamps[:, 1::2]
        steps = ends - stamps[:, ::2]
        spacings = torch.cat((steps[:, :1], ends.diff()), 1)    # the first has none before it
        told = torch.stack((steps / STEP_S, spacings / TIME_S), -1).log().float()
        return torch.cat((self._positions.turns(ends / (TUBELET * TIME_S)), told), -1)

    def dense(self, clip: Tensor, levels: int = 4, times: Tensor | None = None) -> Tensor:
        """Compute the dense features of version 2.1: its deepest taps side by side."""
        if self.version == '2.0' or not 1 <= levels <= len(self._ends):
            raise ValueError(f'{levels} levels of dense features are asked of version '
                             f'{self.version}; version 2.1 has 1 to 4')
        return torch.cat(self.layers(clip, self._ends[-levels:], times), dim=-1)

    def grid(self, shape: torch.Size | tuple[int, ...]) -> tuple[int, int, int]:
        """Return T', Hp, Wp of a clip of `shape` (B, 3, T, H, W), T 1 for an image."""
        if len(shape) != 5 or shape[1] != 3:
            raise ValueError(f'a clip has the shape (B, 3, T, H, W), not {tuple(shape)}')
        t, h, w = shape[2:]
        tubelet = 1 if self._is_image(shape) else TUBELET
        if t < tubelet or t % tubelet or h < PATCH or h % PATCH or w < PATCH or w % PATCH:
            raise ValueError(f'a clip of {t} frames of {h}x{w} pixels cannot be cut into '
                             f'tubelets: frames must be a multiple of {TUBELET}, sides multiples '
                             f'of {PATCH}')
        return t // tubelet, h // PATCH, w // PATCH

    def set_branch_precision(self, dtype: torch.dtype) -> None:
        """Run attention and MLP in `dtype`; patches, norms and residual stream stay float32."""
        for block in self.blocks:
            for linear in (block.attn.qkv, block.attn.proj, block.mlp.fc1, block.mlp.fc2):
                linear.to(dtype)
        self._positions.kept.clear()

    def _tables(self, grid: tuple[int, int, int], device: torch.device, times: Tensor | None
                ) -> tuple[Tensor, Tensor]:
        if times is None:
            return self._positions.tables(grid, device, self.branch_dtype)
        return self._positions.tables_at(times[..., :-2], grid, self.branch_dtype)

    def _allowed(self, grid: tuple[int, int, int], device: torch.device) -> Tensor | None:
        """Which token may attend to which, (N, N); None for all to all."""
        if not self.window or grid[0] == 1:
            return None
        patches = grid[1] * grid[2]
        at = torch.arange(grid[0] * patches, device=device) // patches
        back = at[:, None] - at[None, :]
        return (back >= 0) & (back < self.window)

    def _embed(self, clip: Tensor, times: Tensor | None) -> Tensor:
        if times is None:
            return self._patches(clip)
        x = self._patches(clip[:, :, -TUBELET * times.shape[1]:])
        told = times[..., -2:] @ self.interval_embed[:, 0]      # B T' D
        x = (x.unflatten(1, (told.shape[1], -1)) + told[:, :, None]).flatten(1, 2)
        return x if self.matching is None else x + self.matching(clip).float()

    def _patches(self, clip: Tensor) -> Tensor:
        # The residual stream is float32, also where autocast computed the patches in half.
        if self.version == '2.0':
            return self.patch_embed(clip).float()  # B N D
        if self._is_image(clip.shape):
            return self.patch_embed_img(clip).float() + self.img_mod_embed
        return self.patch_embed(clip).float() + self.video_mod_embed

    def _norm(self, layer: int) -> nn.LayerNorm:
        if layer in self._ends:
            return (self.norm if self.version == '2.0'
                    else self.norms_block[self._ends.index(layer)])
        there = (f'0 to {self.variant.depth - 1}' if self.version == '2.0'
                 else ', '.join(map(str, self._ends)))
        raise ValueError(f'there are no features of layer {layer} in model size '
                         f"'{self.variant.name}' version {self.version}; choose from {there}")

    def _is_image(self, shape: torch.Size | tuple[int, ...]) -> bool:
        return self.version == '2.1' and shape[2] == 1

    @property
    def step_frames(self) -> int:
        """Frames that `step` takes."""
        return TUBELET if self.matching is None else TUBELET + 1

    @property
    def branch_dtype(self) -> torch.dtype:
        return self.blocks[0].attn.qkv.weight.dtype

    @property
    def branch_device(self) -> torch.device:
        return self.blocks[0].attn.qkv.weight.device

    @torch.no_grad()
    def init_random(self, seed: int) -> None:
        """Fill all parameters as at the start of V-JEPA training, by the seed alone."""
        generator = torch.Generator().manual_seed(seed)
        for part in self.modules():
            if isinstance(part, nn.Linear | nn.Conv3d):
                nn.init.trunc_normal_(part.weight, std=INIT_STD, generator=generator)
                nn.init.zeros_(bias_of(part))
            elif isinstance(part, nn.LayerNorm):
                nn.init.ones_(part.weight)
                nn.init.zeros_(part.bias)
        for number, block in enumerate(self.blocks, start=1):
            block.attn.proj.weight.div_(math.sqrt(2 * number))
            block.mlp.fc2.weight.div_(math.sqrt(2 * number))
        if self.version == '2.1':
            self.img_mod_embed.zero_()
            self.video_mod_embed.zero_()
        if self.window:
            self.interval_embed.zero_()
        if self.matching is not None:
            self.matching.init_random(generator)


def pooled(features: Tensor, per_tubelet: bool = False) -> Tensor:
    """Average features over clips or tubelets: (B, T', Hp, Wp, D) -> (B, D) or (B, T', D)."""
    return features.mean(dim=(2, 3) if per_tubelet else (1, 2, 3))
