# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Measure what the precision of each part of the encoder costs, against float64 on the CPU.

    vjepa-ros numerics-study [--models large:2.0 ...] [--document docs/numerics.md]

One block is in memory at a time, so that the largest networks fit; all recipes walk it together.
"""

from __future__ import annotations

import argparse
import copy
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vjepa_ros.model.blocks import EPS, Block
from vjepa_ros.model.encoder import PatchEmbed, token_grid
from vjepa_ros.model.rope import rope_tables
from vjepa_ros.model.variants import IMAGENET_MEAN, IMAGENET_STD, Variant, find_variant
from vjepa_ros.tools.blocks import fill
from vjepa_ros.tools.json_file import write_json
from vjepa_ros.tools.machine import hardware
from vjepa_ros.tools.numerics_table import markdown

MODELS = ('tiny:2.0', 'small:2.0', 'base:2.1', 'large:2.0', 'large:2.1', 'huge:2.0', 'giant:2.0',
          'giant:2.1', 'gigantic:2.1')  # all published ones, and the two of this package
STRESSED = ('small:2.0', 'base:2.1', 'large:2.0')
BLOCK = 'numerics'
F64, F32, BF16, F16 = torch.float64, torch.float32, torch.bfloat16, torch.float16
SHARPNESS = 1.5  # of queries and keys; logits of attention then have a standard deviation of ~2
LOUD, OFFSET, GAIN = 4, 100.0, 5.0  # channels of the stress case, their mean and scale


@dataclass(frozen=True)
class Recipe:
    """In which type each part runs: attention and MLP, norms, residual stream, patches."""

    name: str
    branches: torch.dtype
    norms: torch.dtype
    residual: torch.dtype
    patches: torch.dtype


REFERENCE = Recipe('float64', F64, F64, F64, F64)
RECIPES = (
    Recipe('fp32', F32, F32, F32, F32),
    *(recipe for name, low in (('bf16', BF16), ('fp16', F16)) for recipe in (
        Recipe(f'{name} branches', low, F32, F32, F32),  # what EncoderSession runs
        Recipe(f'{name} branches, norms', low, low, F32, F32),
        Recipe(f'{name} branches, residual', low, F32, low, F32),
        Recipe(f'{name} all', low, low, low, low),
        Recipe(f'{name} norms', F32, low, F32, F32),
        Recipe(f'{name} residual', F32, F32, low, F32))),
)


@dataclass
class Difference:
    """How far one recipe is from the reference; all relative to the rms of the reference."""

    features: float = math.nan  # rms over the normalised last layer
    largest: float = math.nan   # largest single value there
    stream: list[float] = field(default_factory=list)  # rms of the residual stream, per block
    not_finite: int = 0  # values of the features and streams that are inf or nan


class Weights:
    """Parts of a random network in float32, made one after the other.

    Parameters
    ----------
    variant, version
        As for `Encoder`.
    seed
        Of all values.
    stress
        Scale the first `LOUD` channels of the residual stream up by `GAIN` around a mean of
        `OFFSET`, the same for all tokens; see `settle` for the norms.

    """

    def __init__(self, variant: Variant, version: str, seed: int = 0, stress: bool = False):
        self.variant, self.version, self.stress = variant, version, stress
        self._generator = torch.Generator().manual_seed(seed)

    def patches(self) -> PatchEmbed:
        """The patch embedding; the modality embedding of version 2.1 is part of its bias."""
        part = PatchEmbed(self.variant.dim)
        self._linear(part.proj, writes=True)
        if self.stress:
            part.proj.bias[:LOUD] += OFFSET
        return part

    def blocks(self) -> Iterator[Block]:
        """The blocks, each made when it is asked for."""
        for _ in range(self.variant.depth):
            with torch.device('meta'):
                block = Block(self.variant)
            block.to_empty(device='cpu')
            self._norm(block.norm1)
            self._linear(block.attn.qkv)
            block.attn.qkv.weight[:2 * self.variant.dim] *= SHARPNESS
            self._linear(block.attn.proj, writes=True)
            self._norm(block.norm2)
            self._linear(block.mlp.fc1)
            self._linear(block.mlp.fc2, writes=True)
            yield block

    def norm(self) -> nn.LayerNorm:
        """The norm of the last layer."""
        part = nn.LayerNorm(self.variant.dim, eps=EPS)
        self._norm(part)
        return part

    def settle(self, norms: Sequence[nn.LayerNorm], stream: Tensor) -> None:
        """Under stress, let norms of `stream` pass the quiet channels at their usual size.

        Trained networks live with loud channels in the same way. Without it the branches would
        see little but the loud channels.
        """
        if self.stress:
            ratio = stream.std() / stream[..., LOUD:].std()
            for norm in norms:
                norm.weight *= ratio.float()
                norm.weight[:LOUD] /= OFFSET

    def _linear(self, part: nn.Linear | nn.Conv3d, writes: bool = False) -> None:
        part.weight.normal_(0, part.weight[0].numel() ** -0.5, generator=self._generator)
        part.bias.normal_(0, 0.1, generator=self._generator)
        if writes and self.stress:
            part.weight[:LOUD] *= GAIN
            part.bias[:LOUD] *= GAIN

    def _norm(self, part: nn.LayerNorm) -> None:
        part.weight.normal_(0, 0.4, generator=self._generator).exp_()
        part.bias.normal_(0, 0.2, generator=self._generator)


def video(frames: int, size: int, seed: int = 0) -> Tensor:
    """A random clip (1, 3, frames, size, size) float32: drifting blobs, fine noise, 8 bits."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randn(1, 3, frames // 2 + 1, size // 8, size // 8, generator=generator)
    blobs = F.interpolate(coarse, (frames, size, size), mode='trilinear')
    fine = torch.randn(blobs.shape, generator=generator)
    pixels = (0.45 + 0.25 * blobs + 0.03 * fine).mul(255).round().clamp(0, 255) / 255
    mean, std = (torch.tensor(v).view(3, 1, 1, 1) for v in (IMAGENET_MEAN, IMAGENET_STD))
    return (pixels - mean) / std


def step(block: dict[torch.dtype, Block], recipe: Recipe, x: Tensor,
         tables: dict[torch.dtype, tuple[Tensor, Tensor]]) -> Tensor:
    """One block: what `Block.forward` computes, with every part in the type of the recipe.

    `block` and `tables` hold the same weights and rotary tables by type.
    """
    norms, branches = block[recipe.norms], block[recipe.branches]
    normed = norms.norm1(x.to(recipe.norms)).to(recipe.branches)
    x = (x + branches.attn(normed, *tables[recipe.branches])).to(recipe.residual)
    normed = norms.norm2(x.to(recipe.norms)).to(recipe.branches)
    return (x + branches.mlp(normed)).to(recipe.residual)


def cast(part: nn.Module, types: set[torch.dtype]) -> dict[torch.dtype, nn.Module]:
    """Copies of a float32 part in each of the types."""
    return {dtype: part if dtype == F32 else copy.deepcopy(part).to(dtype) for dtype in types}


@torch.inference_mode()
def run(weights: Weights, clip: Tensor, recipes: Sequence[Recipe] = RECIPES) -> dict:
    """Differences of the recipes from the reference for one network and clip.

    Under stress the streams are compared without the loud channels, which would hide the others.

    Returns
    -------
    dict
        `found`: `Difference` by name of the recipe; `features`: the arrays (1, N, D) by name;
        `loudest`: largest magnitude in the residual stream of the reference.

    """
    grid = token_grid(clip.shape)
    walkers = (REFERENCE, *recipes)
    types = {t for r in walkers for t in (r.branches, r.norms, r.patches)} | {F32}
    # The tables are made in float32 by definition of the model, so the reference has them too.
    rotary = rope_tables(*grid, weights.variant.head_dim, weights.version)
    tables = {t: tuple(table.to(t) for table in rotary) for t in types}
    patches = cast(weights.patches(), types)
    streams = {r.name: patches[r.patches](clip.to(r.patches)).to(r.residual) for r in walkers}
    found = {r.name: Difference() for r in recipes}
    quiet = slice(LOUD if weights.stress else 0, None)
    loudest = 0.0
    for made in weights.blocks():
        weights.settle((made.norm1, made.norm2), streams[REFERENCE.name])
        block = cast(made, types)
        for recipe in walkers:
            streams[recipe.name] = step(block, recipe, streams[recipe.name], tables)
        exact = streams[REFERENCE.name]
        loudest = max(loudest, exact.abs().max().item())
        for name, difference in found.items():
            x = streams[name]
            difference.not_finite += int((~x.isfinite()).sum())
            difference.stream.append(relative(x[..., quiet], exact[..., quiet])[0])
    last = weights.norm()
    weights.settle((last,), streams[REFERENCE.name])
    norm = cast(last, types)
    features = {r.name: norm[r.norms](streams[r.name].to(r.norms)) for r in walkers}
    for name, difference in found.items():
        difference.not_finite += int((~features[name].isfinite()).sum())
        difference.features, difference.largest = relative(features[name],
                                                           features[REFERENCE.name])
    return {'found': found, 'features': features, 'loudest': loudest}


def relative(x: Tensor, exact: Tensor) -> tuple[float, float]:
    """Rms and largest of the difference, over the rms of what is exact."""
    difference = x.double() - exact
    rms = exact.square().mean().sqrt()
    return ((difference.square().mean().sqrt() / rms).item(),
            (difference.abs().max() / rms).item())


def measure(model: str, clip: Tensor, seed: int, stress: bool) -> dict:
    """Figures of one network, named such as 'large:2.0', for the table."""
    size, version = model.split(':')
    start = time.perf_counter()
    result = run(Weights(find_variant(size), version, seed, stress), clip)
    return {'model': model, 'stress': stress, 'loudest': result['loudest'],
            'tokens': math.prod(token_grid(clip.shape)),
            'seconds': round(time.perf_counter() - start, 1),
            'recipes': {name: vars(d) for name, d in result['found'].items()}}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the study; print the tables and write them where asked, after every network."""
    parser = argparse.ArgumentParser(prog='vjepa-ros numerics-study',
                                     description=__doc__.splitlines()[0])
    parser.add_argument('--models', nargs='+', default=list(MODELS), metavar='SIZE:VERSION')
    parser.add_argument('--stress', nargs='*', default=list(STRESSED), metavar='SIZE:VERSION',
                        help='networks that run with loud channels as well')
    parser.add_argument('--frames', type=int, default=4)
    parser.add_argument('--size', type=int, default=96, help='pixels per side')
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--document', type=Path, help=f'markdown with a block {BLOCK}')
    parser.add_argument('--json', type=Path, help='file for all figures')
    words = list(sys.argv[1:] if argv is None else argv)
    args = parser.parse_args(words)
    clip = video(args.frames, args.size, args.seed)
    about = {**hardware(), 'date': f'{datetime.now(timezone.utc):%Y-%m-%d}',
             'torch': torch.__version__, 'threads': torch.get_num_threads(),
             'command': ' '.join(['vjepa-ros numerics-study', *words]),
             'clip': f'{args.frames} frames of {args.size}x{args.size}', 'seed': args.seed}
    rows: list[dict] = []
    for model, stress in [*((m, False) for m in args.models), *((m, True) for m in args.stress)]:
        rows.append(measure(model, clip, args.seed, stress))
        print(f'{model}{" stressed" if stress else ""}: {rows[-1]["seconds"]:.0f} s', flush=True)
        # The large ones take minutes; an interrupted study keeps what it has.
        if args.document:
            args.document.write_text(fill(args.document.read_text(encoding='utf-8'), BLOCK,
                                          markdown(about, rows)), encoding='utf-8')
        if args.json:
            write_json(args.json, {**about, 'rows': rows})
    print(markdown(about, rows))
    return 0


if __name__ == '__main__':
    raise SystemExit(main())
