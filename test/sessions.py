# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Small sessions, clips, and heads that say as much as after training."""

from __future__ import annotations

import numpy as np
import torch

from vjepa_ros.model.checkpoint.load import load_encoder
from vjepa_ros.model.heads import Heads
from vjepa_ros.model.variants import Variant
from vjepa_ros.runtime.device import DeviceChoice, PRECISIONS
from vjepa_ros.runtime.session import EncoderSession

SIZE = Variant('test', 48, 2, 1, 96)
SHAPE = (4, 32, 32, 3)
CPU = torch.device('cpu')


def choice_of(precision='fp32', device=CPU):
    return DeviceChoice(device, PRECISIONS[precision], 'test')


def clips_of(count, seed=0, shape=SHAPE):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 256, shape, dtype=np.uint8) for _ in range(count)]


def lively_heads(dim=SIZE.dim, seed=0):
    heads = Heads(dim)
    heads.init_random(seed)
    generator = torch.Generator().manual_seed(seed)
    for layer in (heads.dense[-1], heads.contact, heads.clearance):
        layer.weight.data.normal_(std=0.1, generator=generator)
    return heads


def session(precision='fp32', device=CPU, heads=True, size=SIZE, shape=SHAPE, **more):
    encoder, _ = load_encoder(size, allow_random_weights=True)
    return EncoderSession(encoder, choice_of(precision, device), *shape[:2],
                          lively_heads(size.dim) if heads else None, **more)
