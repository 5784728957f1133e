# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Make checkpoints in the layouts of published files, with networks small enough for tests."""

from __future__ import annotations

import torch

from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.variants import find_variant

TINY = find_variant('tiny')


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


def training_state(state):
    """What an optimiser leaves behind."""
    return {'opt': {'state': {n: {'step': torch.tensor(3.0), 'exp_avg': torch.zeros(4)}
                              for n in range(len(state))},
                    'param_groups': [{'lr': 1e-4, 'params': list(range(len(state)))}]},
            'scaler': {'scale': 65536.0, 'growth_factor': 2.0}, 'epoch': 7}


def meta_20(path, encoder=None, target=None, wrapper='module.backbone.'):
    """As vitl.pt: encoder, target encoder and predictor of a training run."""
    encoder = encoder or encoder_state(seed=1)
    target = target or encoder_state(seed=2)
    positions = {'pos_embed': torch.zeros(1, 8, 192)}
    torch.save({'encoder': prefixed(encoder | positions, wrapper),
                'predictor': prefixed(predictor_state() | {'predictor_pos_embed':
                                                           torch.zeros(1, 8, 64)}, wrapper),
                'target_encoder': prefixed(target | positions, wrapper),
                **training_state(encoder)}, path)
    return path


def meta_21(path, name='ema_encoder', state=None):
    """As vjepa2_1_vitb_dist_vitG_384.pt."""
    state = state or encoder_state('2.1')
    torch.save({name: prefixed(state, 'module.backbone.'),
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
