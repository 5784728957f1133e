# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Build the network that a part of a checkpoint belongs to, and fill it."""

from __future__ import annotations

import re

import torch
from torch import Tensor, nn

from vjepa_ros.model.ac_predictor import ActionPredictor
from vjepa_ros.model.checkpoint.files import WeightsError, differences
from vjepa_ros.model.checkpoint.layouts import (
    ACTIONS,
    COLLISION,
    DENSE,
    ENCODER,
    PREDICTOR,
    PROBE,
    Part,
)
from vjepa_ros.model.classifier import SINGLE, Classifier
from vjepa_ros.model.collision_head import CollisionHead
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.predictor import DensePredictor, Predictor
from vjepa_ros.model.variants import VARIANTS, Variant

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
HEAD_DIMS = {ACTIONS: 64}  # of predictors as published
HEAD_DIM = 32
MOST_BLOCKS = 200


def version_of(part: Part) -> str:
    """Generation of an encoder."""
    new = ('norms_block.', 'patch_embed_img.', 'video_mod_embed', 'img_mod_embed')
    return '2.1' if any(key.startswith(new) for key in part.stored) else '2.0'


def variant_of(part: Part) -> Variant | None:
    """Size of an encoder by its shapes; None when it is none of `VARIANTS`."""
    found = (_size(part, 'patch_embed.proj.weight', 0), _depth(part, 'blocks'),
             _size(part, 'blocks.0.mlp.fc1.weight', 0))
    return next((v for v in VARIANTS.values() if (v.dim, v.depth, v.mlp) == found), None)


def advice(part: Part) -> str:
    """Which network the parameters of an encoder belong to, in words."""
    version, variant = version_of(part), variant_of(part)
    if variant is None:
        return (f'The file looks like version {version} and fits none of the sizes '
                f'{", ".join(VARIANTS)}.')
    if not part.incomplete and fits(part):
        return (f"The file fits model size '{variant.name}' version {version}: set `model_size` "
                'and `model_version` to these, or `weights` to another file.')
    return (f"The file is nearest to model size '{variant.name}' version {version}, but is not "
            'exactly that (`vjepa-ros inspect` lists all differences); get it anew.')


def fits(part: Part) -> bool:
    """Whether a part has exactly the parameters of some network."""
    try:
        return not differences(build(part).state_dict(), part.stored)
    except ValueError:
        return False


def build(part: Part, heads: int | None = None) -> nn.Module:
    """The network of a part by its shapes, without memory for its parameters.

    Parameters
    ----------
    part : Part
        Of a known kind.
    heads : int, optional
        Attention heads where shapes do not tell them: of predictors, probes and collision
        heads. Those of the published networks when omitted.

    Raises
    ------
    ValueError
        When there is no such network; the text says why.

    """
    try:
        with torch.device('meta'):
            network = _build(part, heads)
    except (ArithmeticError, LookupError, RuntimeError, TypeError) as error:
        raise ValueError(f'its shapes make no {part.kind}: {str(error).splitlines()[0]}'
                         ) from error
    return network.requires_grad_(False).eval()


def _build(part: Part, heads: int | None) -> nn.Module:
    if part.kind == ENCODER:
        variant = variant_of(part)
        if variant is None:
            raise ValueError(advice(part))
        return Encoder(variant, version_of(part))
    if part.kind in (PREDICTOR, DENSE, ACTIONS):
        return _predictor(part, heads)
    if part.kind == PROBE:
        classes = {re.split(r'_classifier|\.', key)[0]: one.shape[0]
                   for key, one in part.stored.items()
                   if re.fullmatch(r'(linear|\w+_classifier)\.weight', key)}
        if 'linear' in classes:
            classes = {SINGLE: classes['linear']}
        queries = _size(part, 'pooler.query_tokens', 1)
        if not classes or queries != len(classes):
            raise ValueError(f'a probe has one query for each of its classifications, not '
                             f'{queries} for {len(classes)}')
        given = {} if heads is None else {'heads': heads}
        # Published probes are verb, noun, action in this order; names alone do not keep it.
        order = {name: n for n, name in enumerate(('verb', 'noun', 'action'))}
        return Classifier(_size(part, 'pooler.query_tokens', 2),
                          dict(sorted(classes.items(), key=lambda one: order.get(one[0], 9))),
                          _depth(part, 'pooler.blocks'), **given)
    if part.kind == COLLISION:
        rows = {int(match[1]): one.shape for key, one in part.stored.items()
                if (match := re.fullmatch(r'classifier\.classifier\.(\d+)\.weight', key))
                and len(one.shape) == 2}
        widths = [rows[n] for n in sorted(rows)]
        if not widths:
            raise ValueError('a collision head has linear layers')
        given = {} if heads is None else {'heads': heads}
        return CollisionHead(widths[0][1], tuple(shape[0] for shape in widths[:-1]), **given)
    raise ValueError(f"parameters of the kind '{part.kind or 'unknown'}' make no network")


def _predictor(part: Part, heads: int | None) -> nn.Module:
    width = _size(part, 'predictor_norm.weight', 0)
    depth = _depth(part, 'predictor_blocks')
    if not width or not depth:
        raise ValueError("a predictor has the parameters 'predictor_norm.weight' and "
                         "'predictor_blocks'")
    heads = heads or max(1, width // HEAD_DIMS.get(part.kind, HEAD_DIM))
    masks = sum(key.startswith('mask_tokens.') for key in part.stored)
    if part.kind == ACTIONS:
        return ActionPredictor(_size(part, 'predictor_embed.weight', 1), width, depth, heads,
                               _size(part, 'action_encoder.weight', 1))
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
    """Copy the parameters of a part into a network that has no memory yet, in float32.

    Parameters
    ----------
    network : nn.Module
        On the device 'meta'.
    part : Part
        What to fill it with.
    misfit : str
        Beginning of the error when the names or shapes are not those of `network`.
    name : str
        What other errors call the file.

    Raises
    ------
    WeightsError
        When something is missing, unexpected, of another shape, or no finite number. The network
        is then not to be used.

    """
    want = network.state_dict()
    problem = differences(want, part.stored)
    if problem:
        if part.kind == ENCODER and fits(part):  # only another one is wanted: no need of lists
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
        raise WeightsError(f'{name} is damaged: {len(broken)} of its parameters hold NaN or '
                           f'infinity ({", ".join(broken[:5])}); get the file anew')
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
