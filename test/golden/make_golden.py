#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Compute the golden values of this folder with a checkout of the reference implementation.

Needed only when `cases.py` changes: python test/golden/make_golden.py CHECKOUT
"""

from __future__ import annotations

import contextlib
import sys
import types
import warnings
from collections.abc import Iterator
from functools import partial

import cases
import numpy as np
import torch
from cases import EncoderCase, fill
from torch import Tensor, nn

NORM = partial(nn.LayerNorm, eps=1e-6)
PUBLISHED = {
    '20_large': 'vjepa2_vit_large', '20_huge': 'vjepa2_vit_huge', '20_giant': 'vjepa2_vit_giant',
    'ac_giant': 'vjepa2_ac_vit_giant', '21_base': 'vjepa2_1_vit_base_384',
    '21_large': 'vjepa2_1_vit_large_384', '21_giant': 'vjepa2_1_vit_giant_384',
    '21_gigantic': 'vjepa2_1_vit_gigantic_384',
}


def stand_in(name: str, **content: object) -> None:
    """A module that the reference imports and does not need for what is computed here."""
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(content)


def find_reference() -> None:
    """Make the checkout that the command line names importable."""
    sys.path.insert(0, sys.argv[1])
    # Random depth and rearranged sound are not used here; their packages need not be installed.
    stand_in('timm', models=None)
    stand_in('timm.models')
    stand_in('timm.models.layers', drop_path=None)
    stand_in('einops', rearrange=None)


def encoder(case: EncoderCase) -> tuple[nn.Module, Tensor]:
    if case.version == '2.0':
        from src.models.vision_transformer import VisionTransformer
    else:
        from app.vjepa_2_1.models.vision_transformer import VisionTransformer
    width, depth, heads, mlp = case.size
    new = {} if case.version == '2.0' else {'img_temporal_dim_size': 1, 'interpolate_rope': True}
    model = fill(VisionTransformer(
        img_size=case.native[1], num_frames=case.native[0], embed_dim=width, depth=depth,
        num_heads=heads, mlp_ratio=mlp / width, norm_layer=NORM, use_rope=True,
        out_layers=list(case.layers) or None, **new))
    model.return_hierarchical = case.dense
    return model(cases.clip_of(case))


@contextlib.contextmanager
def shapes_only() -> Iterator[None]:
    """Build networks without memory for their parameters."""
    linspace = torch.linspace
    torch.linspace = partial(linspace, device='cpu')  # its values are read during building
    try:
        with torch.device('meta'):
            yield
    finally:
        torch.linspace = linspace


def published_names() -> Iterator[tuple[str, str]]:
    """Names and shapes of all parameters of the published networks."""
    from src.hub import backbones
    for name, function in PUBLISHED.items():
        with shapes_only():
            built = getattr(backbones, function)(pretrained=False)
        for part, model in zip(('encoder', 'predictor'), built, strict=True):
            yield f'{name}_{part}', cases.names_and_shapes(model.state_dict())


@torch.inference_mode()
def main() -> None:
    find_reference()
    warnings.filterwarnings('ignore', category=FutureWarning)
    stamp = {'source': np.array(f'{cases.SOURCE} at {cases.COMMIT}')}
    found = {name: encoder(case) for name, case in cases.ENCODERS.items()}
    arrays = {name: cases.digest(torch.stack(out) if isinstance(out, list) else out)
              for name, out in found.items()}
    np.savez_compressed(cases.FOLDER / 'encoders.npz', **stamp, **arrays)
    names = {name: np.array(text) for name, text in published_names()}
    np.savez_compressed(cases.FOLDER / 'names.npz', **stamp, **names)


if __name__ == '__main__':
    main()
