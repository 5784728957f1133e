# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Weights files with heads that say the same of every clip, for tests of what is made of it."""

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


def log_odds(probability: float) -> float:
    return math.log(probability / (1 - probability))


def constant_heads(*, expansion: float = 0.0, scale: float = 0.002, moving: float = 0.1,
                   course: float = 0.1, contact: float = math.inf, clearance: float = math.inf,
                   surely: float = 0.98) -> Heads:
    """Heads with one output for every patch, and a sure one for the clip [intervals, m]."""
    heads = Heads(find_variant('tiny').dim)
    heads.init_random(0)
    with torch.no_grad():
        heads.dense[-1].bias.copy_(torch.tensor([
            expansion / EXPANSION_UNIT, math.log(scale), log_odds(moving), log_odds(course)]))
        for layer, edges, value in ((heads.contact, CONTACT_EDGES, contact),
                                    (heads.clearance, CLEARANCE_EDGES, clearance)):
            layer.bias.fill_(math.log((1 - surely) / (len(edges) - 1)))
            layer.bias[sum(edge <= value for edge in edges[1:])] = math.log(surely)
    return heads


def meta(**changes: object) -> BundleMeta:
    """Description of heads for short clips of small frames, apart from `changes`."""
    return replace(BundleMeta('tiny', '2.0', 4, 64, 'squash', (0.03, 0.5),
                              {'half_width': 0.3, 'height': 0.5}), **changes)


def save_constant_bundle(path: Path, seed: int = 0, **heads: float) -> str:
    """Write an encoder with `constant_heads` (which the keywords go to); its path."""
    encoder = Encoder(find_variant('tiny'))
    encoder.init_random(seed)
    save_bundle(path, meta(), encoder=encoder.state_dict(),
                heads=constant_heads(**heads).state_dict())
    return str(path)


def save_causal_bundle(path: Path) -> str:
    """Write a block-causal encoder with heads, whose outputs depend on 24 intervals; its path."""
    encoder, heads = Encoder(find_variant('tiny'), '2.1', 2), Heads(find_variant('tiny').dim)
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
