# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Weights files of published layouts, and some with heads that say the same of every clip."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import torch

from vjepa_ros.model.checkpoint.files import file_sha256
from vjepa_ros.model.checkpoint.layouts import BundleMeta
from vjepa_ros.model.checkpoint.load import save_bundle
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.head_specs import CLEARANCE_EDGES, CONTACT_EDGES, EXPANSION_UNIT
from vjepa_ros.model.heads import Heads
from vjepa_ros.model.variants import find_variant

TINY = find_variant('tiny')


def log_odds(probability: float) -> float:
    return math.log(probability / (1 - probability))


def constant_heads(*, expansion: float = 0.0, scale: float = 0.002, moving: float = 0.1,
                   course: float = 0.1, contact: float = math.inf,
                   clearance: float = math.inf) -> Heads:
    """Heads with one output for every patch, and a sure one for the clip [intervals, m]."""
    heads = Heads(TINY.dim)
    heads.init_random(0)
    with torch.no_grad():
        heads.dense[-1].bias.copy_(torch.tensor([
            expansion / EXPANSION_UNIT, math.log(scale), log_odds(moving), log_odds(course)]))
        for layer, edges, value in ((heads.contact, CONTACT_EDGES, contact),
                                    (heads.clearance, CLEARANCE_EDGES, clearance)):
            layer.bias.fill_(math.log(0.02 / (len(edges) - 1)))
            layer.bias[sum(edge <= value for edge in edges[1:])] = math.log(0.98)
    return heads


def meta(**changes: object) -> BundleMeta:
    """Description of heads for short clips of small frames, apart from `changes`."""
    return replace(BundleMeta('tiny', '2.0', 4, 64, 'squash', (0.03, 0.5),
                              {'half_width': 0.3, 'height': 0.5}), **changes)


def save_constant_bundle(path: Path, seed: int = 0, **heads: float) -> str:
    """Write an encoder with `constant_heads` (which the keywords go to); its path."""
    encoder = Encoder(TINY)
    encoder.init_random(seed)
    save_bundle(path, meta(), encoder=encoder.state_dict(),
                heads=constant_heads(**heads).state_dict())
    return str(path)


def save_causal_bundle(path: Path) -> str:
    """Write a block-causal encoder with heads, whose outputs depend on 24 intervals; its path."""
    encoder, heads = Encoder(TINY, '2.1', 2), Heads(TINY.dim)
    encoder.init_random(0)
    heads.init_random(0)
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in encoder.parameters():
            if parameter.ndim == 2:         # so that tokens matter to each other
                parameter.mul_(3)
        for parameter in heads.parameters():
            if parameter.ndim == 2:
                parameter.normal_(std=0.1, generator=random)
    save_bundle(path, meta(version='2.1', window=2), encoder=encoder.state_dict(),
                heads=heads.state_dict())
    return str(path)


def save_constant_heads(path: Path, weights: str, **heads: float) -> str:
    """Write `constant_heads` alone, for the encoder in a file; their path."""
    save_bundle(path, meta(backbone_sha256=file_sha256(Path(weights))),
                heads=constant_heads(**heads).state_dict())
    return str(path)


def encoder_state(version='2.0', seed=7, variant=TINY):
    with torch.device('meta'):
        encoder = Encoder(variant, version)
    encoder.to_empty(device='cpu').init_random(seed)
    return {key: value.detach().clone() for key, value in encoder.state_dict().items()}


def predictor_state(kind='2.0'):
    """Some parameters of a predictor."""
    dense = {'predictor_proj_context.weight': torch.ones(192, 64)} if kind == '2.1' else {}
    return {'predictor_embed.weight': torch.ones(64, 192), 'mask_tokens.0': torch.ones(1, 1, 64),
            'predictor_norm.weight': torch.ones(64), 'predictor_proj.weight': torch.ones(192, 64),
            'predictor_blocks.0.attn.qkv.weight': torch.ones(192, 64), **dense}


def prefixed(state, prefix):
    return {prefix + key: value for key, value in state.items()}


def meta_20(path, encoder=None, target=None, wrapper='module.backbone.'):
    """As vitl.pt: encoder, target encoder and predictor of a training run."""
    encoder = encoder or encoder_state(seed=1)
    target = target or encoder_state(seed=2)
    positions = {'pos_embed': torch.zeros(1, 8, 192)}
    torch.save({'encoder': prefixed(encoder | positions, wrapper),
                'predictor': prefixed(predictor_state() | {'predictor_pos_embed':
                                                           torch.zeros(1, 8, 64)}, wrapper),
                'target_encoder': prefixed(target | positions, wrapper),
                'opt': {'state': {0: {'exp_avg': torch.zeros(4)}}, 'param_groups': [{'lr': 1e-4}]},
                'scaler': {'scale': 65536.0}, 'epoch': 7}, path)
    return path


def meta_21(path):
    """As vjepa2_1_vitb_dist_vitG_384.pt."""
    torch.save({'ema_encoder': prefixed(encoder_state('2.1'), 'module.backbone.'),
                'predictor': prefixed(predictor_state('2.1'), 'module.backbone.')}, path)
    return path


def hugging_face_names(state):
    """An encoder as the transformers library names it; written out, not taken from the code."""
    named = {}
    for key, value in state.items():
        words = key.split('.')
        if key.startswith('patch_embed.'):
            named[f'embeddings.patch_embeddings.proj.{words[-1]}'] = value
        elif key.startswith('norm.'):
            named[f'layernorm.{words[-1]}'] = value
        elif 'attn.qkv' in key:
            for part, piece in zip(('query', 'key', 'value'), value.chunk(3), strict=True):
                named[f'layer.{words[1]}.attention.{part}.{words[-1]}'] = piece.clone()
        elif 'attn.proj' in key:
            named[f'layer.{words[1]}.attention.proj.{words[-1]}'] = value
        else:
            named['layer.' + key.removeprefix('blocks.')] = value
    return named
