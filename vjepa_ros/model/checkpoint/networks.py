# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Build the network that a part of a checkpoint belongs to, and fill it."""

from __future__ import annotations

import re

import torch
from torch import Tensor, nn

from vjepa_ros.model.checkpoint.files import WeightsError, differences
from vjepa_ros.model.checkpoint.layouts import DENSE, ENCODER, PREDICTOR, Part
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.predictor import DensePredictor, Predictor
from vjepa_ros.model.variants import VARIANTS, Variant

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
HEAD_DIM = 32          # of predictors as published
MOST_BLOCKS = 200


def version_of(part: Part) -> str:
    """Return the generation of an encoder."""
    new = ('norms_block.', 'patch_embed_img.', 'video_mod_embed', 'img_mod_embed')
    return '2.1' if any(key.startswith(new) for key in part.stored) else '2.0'


def variant_of(part: Part) -> Variant | None:
    """Return the size of an encoder by its shapes; None for none of `VARIANTS`."""
    found = (_size(part, 'patch_embed.proj.weight', 0), _depth(part, 'blocks'),
             _size(part, 'blocks.0.mlp.fc1.weight', 0))
    return next((v for v in VARIANTS.values() if (v.dim, v.depth, v.mlp) == found), None)


def advice(part: Part) -> str:
    """Say which network the parameters of an encoder belong to."""
    version, variant = version_of(part), variant_of(part)
    if variant is None:
        return (f'The file looks like version {version} and fits none of the sizes '
                f'{", ".join(VARIANTS)}.')
    if not part.incomplete and fits(part):
        return (f"The file fits model size '{variant.name}' version {version}: set `model_size` "
                'and `model_version` to these, or `weights` to another file.')
    return (f"The file is nearest to model size '{variant.name}' version {version}, but is not "
            'exactly that (`vjepa-ros inspect` lists all differences): it is damaged, or its '
            'network was changed.')


def fits(part: Part) -> bool:
    """Return whether a part has exactly the parameters of some network."""
    try:
        return not differences(build(part).state_dict(), part.stored)
    except ValueError:
        return False


def build(part: Part) -> nn.Module:
    """Build the network of a part by its shapes, without memory for its parameters.

    Predictors get the attention heads of the published ones, which shapes do not tell.
    """
    try:
        with torch.device('meta'):
            network = _build(part)
    except (ArithmeticError, LookupError, RuntimeError, TypeError) as error:
        raise ValueError(f'its shapes make no {part.kind}: {str(error).splitlines()[0]}'
                         ) from error
    return network.requires_grad_(False).eval()


def _build(part: Part) -> nn.Module:
    if part.kind == ENCODER:
        variant = variant_of(part)
        if variant is None:
            raise ValueError(advice(part))
        # Only the names of parameters count here.
        return Encoder(variant, version_of(part), int('interval_embed' in part.stored))
    if part.kind in (PREDICTOR, DENSE):
        return _predictor(part)
    raise ValueError(f"parameters of the kind '{part.kind or 'unknown'}' are no network of "
                     'vjepa_ros')


def _predictor(part: Part) -> nn.Module:
    width = _size(part, 'predictor_norm.weight', 0)
    depth = _depth(part, 'predictor_blocks')
    if not width or not depth:
        raise ValueError("a predictor has the parameters 'predictor_norm.weight' and "
                         "'predictor_blocks'")
    heads = max(1, width // HEAD_DIM)     # shapes do not tell
    masks = sum(key.startswith('mask_tokens.') for key in part.stored)
    if part.kind == PREDICTOR:
        return Predictor(_size(part, 'predictor_embed.weight', 1), width, depth, heads, masks)
    out = _size(part, 'predictor_proj.weight', 0)
    if 'predictor_embed.0.weight' not in part.stored:
        return DensePredictor(_size(part, 'predictor_embed.weight', 1), width, depth, heads,
                              masks, out=out)
    dim = _size(part, 'predictor_embed.0.weight', 0)
    levels = _size(part, 'predictor_embed.0.weight', 1) // max(dim, 1)
    return DensePredictor(dim, width, depth, heads, masks, levels, out)


def fill(network: nn.Module, part: Part, misfit: str, name: str) -> None:
    """Copy the parameters of a part into a network that has no memory yet, in float32."""
    want = network.state_dict()
    problem = differences(want, part.stored)
    if problem:
        if part.kind == ENCODER and fits(part):  # of another size: no long lists
            problem = differences(want, part.stored, limit=2)
        absent = f'; absent from the file: {", ".join(part.incomplete[:5])}' * bool(
            part.incomplete)
        raise WeightsError(f'{misfit}: {problem}{absent}. '
                           + (advice(part) if part.kind == ENCODER else 'Get the file anew.'))
    check_numbers(part, name)
    state: dict[str, Tensor] = {}
    broken = []
    for key, stored in part.stored.items():
        state[key] = stored.read(torch.float32)
        if not all(bound.isfinite() for bound in state[key].aminmax()):
            broken.append(key)
    if broken:
        raise WeightsError(f'{name} is damaged: {len(broken)} of its parameters contain NaN or '
                           f'infinity ({", ".join(broken[:5])}); download the file again')
    network.load_state_dict(state, assign=True)
    network.requires_grad_(False)


def check_numbers(part: Part, name: str) -> None:
    """Raise WeightsError when parameters are not floating point numbers, as after quantisation."""
    wrong = [f'{key} {str(one.dtype).removeprefix("torch.")}' for key, one in part.stored.items()
             if one.dtype not in FLOATS]
    if wrong:
        raise WeightsError(f'{name} has parameters of the wrong type ({", ".join(wrong[:5])}); '
                           'get it in float16, bfloat16 or float32')


def _size(part: Part, key: str, axis: int) -> int:
    """One side of a parameter; 0 where it is not there or has no such axis."""
    shape = part.stored[key].shape if key in part.stored else ()
    return shape[axis] if axis < len(shape) else 0


def _depth(part: Part, name: str) -> int:
    """Blocks, by the highest number: one that is missing between others counts.

    More than `MOST_BLOCKS` would take long to build, and no network has them.
    """
    numbers = [int(key[len(name) + 1:].split('.')[0]) for key in part.stored
               if re.match(rf'{re.escape(name)}\.\d+\.', key)]
    return min(max(numbers, default=-1) + 1, MOST_BLOCKS)
