# SPDX-License-Identifier: Apache-2.0
"""The V-JEPA 2 video encoder: a vision transformer over tubelets.

Architecture after arXiv 2506.09985. The names of parameters equal those of the published
checkpoints. B clips, T tubelets, N tokens, H heads, D width.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vjepa_ros.model.rope import Positions, rotate
from vjepa_ros.model.variants import PATCH, TUBELET, Variant

EPS = 1e-6
INIT_STD = 0.02
VERSIONS = ('2.0',)


class PatchEmbed(nn.Module):
    """Tubelets of 2 x 16 x 16 pixels to tokens."""

    def __init__(self, dim: int):
        super().__init__()
        kernel = (TUBELET, PATCH, PATCH)
        self.proj = nn.Conv3d(3, dim, kernel, stride=kernel)

    def forward(self, clip: Tensor, keep: Tensor | None = None) -> Tensor:
        x = clip.unflatten(4, (-1, PATCH)).unflatten(3, (-1, PATCH)).unflatten(2, (-1, TUBELET))
        x = x.permute(0, 2, 4, 6, 1, 3, 5, 7)  # B T rows cols 3 2 16 16
        if keep is None:
            x = x.flatten(4).flatten(1, 3)  # B N 1536
        else:
            rows, cols = x.shape[2:4]
            clips = torch.arange(len(x), device=keep.device)[:, None]
            x = x[clips, keep // (rows * cols), keep // cols % rows, keep % cols].flatten(2)
        # A convolution whose stride is its kernel is a matrix product, which runs faster.
        return F.linear(x, self.proj.weight.flatten(1), self.proj.bias)


class Attention(nn.Module):
    """Self-attention with rotary positions."""

    def __init__(self, variant: Variant):
        super().__init__()
        self.heads = variant.heads
        self.qkv = nn.Linear(variant.dim, 3 * variant.dim)
        self.proj = nn.Linear(variant.dim, variant.dim)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        b, n, d = x.shape
        qkv = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)  # 3 B H N D/H
        q, k = rotate(qkv[:2], cos, sin).to(qkv.dtype)  # autocast leaves the tables in float32
        if torch.is_grad_enabled():
            # The backward of fused attention gave NaN under torch.compile for other strides.
            q, k = q.contiguous(), k.contiguous()
        out = F.scaled_dot_product_attention(q, k, qkv[2])
        return self.proj(out.transpose(1, 2).reshape(b, n, d))


class Mlp(nn.Module):
    """Two linear layers around an exact GELU."""

    def __init__(self, variant: Variant):
        super().__init__()
        self.fc1 = nn.Linear(variant.dim, variant.mlp)
        self.fc2 = nn.Linear(variant.mlp, variant.dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class Block(nn.Module):
    """One pre-norm transformer block."""

    def __init__(self, variant: Variant):
        super().__init__()
        self.norm1 = nn.LayerNorm(variant.dim, eps=EPS)
        self.attn = Attention(variant)
        self.norm2 = nn.LayerNorm(variant.dim, eps=EPS)
        self.mlp = Mlp(variant)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        # Norms and the residual stream stay float32; the branches run in the type of the tables.
        x = x + self.attn(self.norm1(x).to(cos.dtype), cos, sin)
        return x + self.mlp(self.norm2(x).to(cos.dtype))


class Encoder(nn.Module):
    """Video clip to one feature vector per tubelet and patch.

    Parameters
    ----------
    variant : Variant
        Size of the network.
    version : str
        Generation of the weights; '2.0' is implemented.

    """

    def __init__(self, variant: Variant, version: str = '2.0'):
        super().__init__()
        if version not in VERSIONS:
            raise ValueError(f"model version '{version}' is not implemented; "
                             f"choose one of {', '.join(VERSIONS)}")
        self.variant = variant
        self.version = version
        self.patch_embed = PatchEmbed(variant.dim)
        self.blocks = nn.ModuleList(Block(variant) for _ in range(variant.depth))
        self.norm = nn.LayerNorm(variant.dim, eps=EPS)
        self._positions = Positions(variant.head_dim, version)

    def forward(self, clip: Tensor, keep: Tensor | None = None) -> Tensor:
        """Encode clips.

        Parameters
        ----------
        clip : Tensor
            (B, 3, frames, height, width) float32, RGB normalised with the ImageNet mean and
            standard deviation, oldest frame first. `frames` is even, `height` and `width` are
            multiples of 16; they need not be those of training.
        keep : Tensor, optional
            (B, n) int64, tokens of each clip to encode, numbered row major with time slowest.
            They keep their positions; the others cost nothing and are not seen.

        Returns
        -------
        Tensor
            (B, frames/2, height/16, width/16, D) float32, or (B, n, D) with `keep`.

        """
        grid = token_grid(clip.shape)
        # The residual stream is float32, also where autocast computed the patches in half.
        x = self.patch_embed(clip, keep).float()  # B N D
        cos, sin = self._positions.tables(grid, x.device, self._branch_dtype, keep)
        for block in self.blocks:
            x = block(x, cos, sin)
        x = self.norm(x)
        return x.unflatten(1, grid) if keep is None else x

    def set_branch_precision(self, dtype: torch.dtype) -> None:
        """Run attention and MLP in `dtype`; patches, norms and residual stream stay float32."""
        for block in self.blocks:
            for linear in (block.attn.qkv, block.attn.proj, block.mlp.fc1, block.mlp.fc2):
                linear.to(dtype)
        self._positions.kept.clear()

    def prepare(self, shape: torch.Size | tuple[int, ...], device: torch.device) -> None:
        """Make the position tables for clips of `shape`, which torch.compile cannot trace."""
        self._positions.tables(token_grid(shape), device, self._branch_dtype)

    @property
    def _branch_dtype(self) -> torch.dtype:
        return self.blocks[0].attn.qkv.weight.dtype

    @torch.no_grad()
    def init_random(self, seed: int) -> None:
        """Fill all parameters with untrained values that depend on `seed` alone.

        Truncated normal with standard deviation 0.02, biases 0; the output layers of block l
        are divided by sqrt(2 l) as at the start of V-JEPA training. The global random state is
        neither used nor changed.
        """
        fill_random(self, self.blocks, torch.Generator().manual_seed(seed))


def fill_random(module: nn.Module, blocks: nn.ModuleList, generator: torch.Generator) -> None:
    """Start values of an encoder or predictor, see `Encoder.init_random`."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Conv3d):
            nn.init.trunc_normal_(part.weight, std=INIT_STD, generator=generator)
            nn.init.zeros_(part.bias)
        elif isinstance(part, nn.LayerNorm):
            nn.init.ones_(part.weight)
            nn.init.zeros_(part.bias)
    for number, block in enumerate(blocks, start=1):
        block.attn.proj.weight.div_(math.sqrt(2 * number))
        block.mlp.fc2.weight.div_(math.sqrt(2 * number))


def token_grid(shape: torch.Size | tuple[int, ...]) -> tuple[int, int, int]:
    """Tubelets, patch rows and patch columns of a clip of `shape` (B, 3, T, H, W)."""
    if len(shape) != 5 or shape[1] != 3:
        raise ValueError(f'a clip has the shape (B, 3, T, H, W), not {tuple(shape)}')
    t, h, w = shape[2:]
    if t < TUBELET or t % TUBELET or h < PATCH or h % PATCH or w < PATCH or w % PATCH:
        raise ValueError(f'a clip of {t} frames of {h}x{w} pixels cannot be cut into tubelets: '
                         f'frames must be a multiple of {TUBELET}, sides multiples of {PATCH}')
    return t // TUBELET, h // PATCH, w // PATCH
