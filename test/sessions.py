# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Small models that serve, clips, and heads that say as much as after training."""

from __future__ import annotations

import numpy as np
import torch

from vjepa_ros.model.checkpoint.load import WeightsReport, load_encoder
from vjepa_ros.model.heads import Heads
from vjepa_ros.model.variants import Variant
from vjepa_ros.runtime.device import DeviceChoice, PRECISIONS
from vjepa_ros.runtime.model import Model, ModelConfig

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


def serve(encoder, choice=None, shape=SHAPE, heads=None, runner=None, **options):
    """Make an engine of an encoder."""
    config = ModelConfig(num_frames=shape[0], image_size=shape[1], **options)
    report = WeightsReport('', '', False, 'float32', encoder.variant.name, encoder.version)
    return Model(config, encoder, report, choice or choice_of(), heads, runner=runner)


def session(precision='fp32', device=CPU, heads=True, size=SIZE, shape=SHAPE, **more):
    encoder, _ = load_encoder(size, allow_random_weights=True)
    return serve(encoder, choice_of(precision, device), shape,
                 lively_heads(size.dim) if heads else None, **more)
