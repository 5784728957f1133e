# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Build the network that a run trains, from nothing or from a weights file."""

from __future__ import annotations

from vjepa_ros.lab.training.config import TrainConfig
from vjepa_ros.lab.training.network import Network
from vjepa_ros.lab.world.seeds import derive
from vjepa_ros.model.checkpoint.bundle import load_model
from vjepa_ros.model.checkpoint.load import WeightsReport
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.heads import Heads
from vjepa_ros.model.lora import add_adapters
from vjepa_ros.model.predictor import Predictor
from vjepa_ros.model.variants import find_variant

PREDICTOR_DEPTH = 6        # half of the published one: it is thrown away after training
PREDICTOR_WIDTH = 384      # at most; never wider than the encoder


def build(config: TrainConfig) -> tuple[Network, WeightsReport]:
    """Network on the CPU, and where its weights come from.

    The same configuration gives the same numbers. Heads that the weights file holds are the
    start of training; otherwise they are random.

    Raises
    ------
    WeightsError
        When the weights file is missing or does not fit.
    """
    variant = find_variant(config.model_size)
    if config.weights:
        encoder, heads, report = load_model(variant, weights=config.weights)
    else:
        encoder, heads = Encoder(variant), None
        encoder.init_random(derive(config.seed, 'encoder'))
        report = WeightsReport('', '', False, 0, 'float32', variant.name, encoder.version)
    if heads is None:
        heads = Heads.for_variant(variant, derive(config.seed, 'heads'))
    heads.complete()
    heads.requires_grad_(True)
    if config.lora_rank:
        add_adapters(encoder, config.lora_rank, derive(config.seed, 'adapters'))
    else:
        encoder.requires_grad_(not config.heads_only)
    predictor = None
    if config.objective != 'supervised':
        predictor = _predictor(encoder, derive(config.seed, 'predictor'))
    return Network(encoder, heads, config.objective, predictor, config.auxiliary), report


def _predictor(encoder: Encoder, seed: int) -> Predictor:
    variant = encoder.variant
    # The published predictor has heads of 32 channels.
    width = min(PREDICTOR_WIDTH, variant.dim)
    predictor = Predictor(variant.dim, width, min(PREDICTOR_DEPTH, variant.depth),
                          max(1, width // 32))
    predictor.init_random(seed)
    return predictor
