# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Load the predictor of the planner's world model, or refuse."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch

from vjepa_ros.model.ac_predictor import ActionPredictor
from vjepa_ros.model.checkpoint.files import WeightsError
from vjepa_ros.model.checkpoint.inspection import load_network
from vjepa_ros.model.checkpoint.load import RANDOM, WeightsReport
from vjepa_ros.model.variants import PATCH

log = logging.getLogger(__name__)

PUBLISHED = (1024, 24, 16)  # width, depth and heads of the published predictor


@dataclass(frozen=True)
class WorldConfig:
    """What decides how the world model is loaded.

    Attributes
    ----------
    model_size : str
        Row of `VARIANTS` of the encoder, always of version 2.0.
    weights : str
        Checkpoint of the encoder, such as the published 'vjepa2-ac-vitg.pt'. '' takes what the
        package brings for this size, 'random' takes random weights.
    weights_part : str
        Which encoder of a file with several, see `load_encoder`.
    predictor : str
        Checkpoint of the predictor; '' takes that of `weights`, 'random' random weights.
    random_predictor : (int, int, int)
        Width, depth and heads of a predictor with random weights.
    allow_random_weights : bool
        Whether it may run untrained.
    image_size : int
        Pixels per side of the input, a multiple of 16; 256 as published.
    steps : int
        Most steps of a plan.
    device, require_device, precision : str, bool, str
        See `choose_device`.
    seed : int
        Of random weights.
    cpu_threads : int
        Threads of PyTorch on the CPU, for the whole process; 0 leaves them as they are.
    batch : int
        Most plans in one pass; 0 takes as many as memory allows, up to `MOST_PLANS`.
    fetched : tuple of str, optional
        Names of the Hugging Face hub that may be fetched, see `located`; all when omitted.

    """

    model_size: str = 'giant'
    weights: str = ''
    weights_part: str = 'auto'
    predictor: str = ''
    random_predictor: tuple[int, int, int] = PUBLISHED
    allow_random_weights: bool = False
    image_size: int = 256
    steps: int = 2
    device: str = 'auto'
    require_device: bool = False
    precision: str = 'auto'
    seed: int = 0
    cpu_threads: int = 0
    batch: int = 0
    fetched: tuple[str, ...] | None = None

    def __post_init__(self):
        if self.image_size < PATCH or self.image_size % PATCH:
            raise ValueError(f'image_size is {self.image_size}, but must be a multiple of {PATCH} '
                             'and at least that')
        if self.steps < 1:
            raise ValueError(f'steps is {self.steps}, but must be at least 1')


def load_predictor(config: WorldConfig, dim: int) -> tuple[ActionPredictor, WeightsReport | None]:
    """The predictor on the CPU in float32, and where it comes from; None for random weights.

    Parameters
    ----------
    config : WorldConfig
        What was asked for.
    dim : int
        D.

    Raises
    ------
    WeightsError
        When there is no file and random weights are not allowed, or it does not fit.

    """
    path = config.predictor or config.weights
    if path and path != RANDOM:
        network, report = load_network(path, 'predictor')
        if not isinstance(network, ActionPredictor):
            raise WeightsError(f"'{path}' holds a predictor that knows nothing of actions; set "
                               '`predictor` to a file of V-JEPA 2-AC')
        if network.predictor_embed.in_features != dim:
            raise WeightsError(f"the predictor in '{path}' was made for features "
                               f'{network.predictor_embed.in_features} wide, and those of '
                               f"`model_size` '{config.model_size}' are {dim}; set another one")
        return network, report
    if not config.allow_random_weights:
        raise WeightsError('there are no trained weights of a predictor that knows actions, and '
                           'the package brings none; set `weights` to a checkpoint such as '
                           "'vjepa2-ac-vitg.pt', or `allow_random_weights: true` to run untrained")
    width, depth, heads = config.random_predictor
    with torch.device('meta'):
        predictor = ActionPredictor(dim, width, depth, heads)
    predictor.requires_grad_(False).eval().to_empty(device='cpu').init_random(config.seed)
    log.warning('the world model runs with random weights (seed %d): its plans mean nothing',
                config.seed)
    return predictor, None
