# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Random weights under which an error anywhere in the network shows in the features.

The start values of training make branches that hardly change the residual stream: with them a
wrong rotation of queries and keys would stay below the limits of low precision.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from vjepa_ros.cli.selftest.paths import Model
from vjepa_ros.model.checkpoint.load import bundled_file
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.variants import find_variant

SHARPNESS = 1.5     # of queries and keys, so that attention is far from uniform
BIAS, SPREAD = 0.1, 0.4
SEED = 3


def weights_of(model: Model, folder: Path) -> str:
    """File with the weights of a model: '' for the package's own, else one made in `folder`."""
    if bundled_file(model.size, model.version):
        return ''
    path = folder / f'{model.size}_{model.version}.safetensors'
    if not path.is_file():
        save_file(lively(model).state_dict(), path)
    return str(path)


@torch.no_grad()
def lively(model: Model) -> Encoder:
    """An encoder whose branches are as large as its residual stream, the same in every run."""
    with torch.device('meta'):
        encoder = Encoder(find_variant(model.size), model.version)
    encoder.to_empty(device='cpu').requires_grad_(False)
    generator = torch.Generator().manual_seed(SEED)
    for name, values in encoder.named_parameters():
        if values.dim() == 1 or 'mod_embed' in name:
            values.normal_(0, BIAS, generator=generator)
        else:
            values.normal_(0, values[0].numel() ** -0.5, generator=generator)
        if name.endswith('qkv.weight'):
            values[:2 * encoder.variant.dim] *= SHARPNESS
    for part in encoder.modules():
        if isinstance(part, nn.LayerNorm):
            part.weight.mul_(SPREAD / BIAS).exp_()
    return encoder
