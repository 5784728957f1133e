#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What is planned with the reference implementation and with ours, from the same numbers.

As in `cases.py` everything follows from formulas, so that only results have to be stored. They
are computed with a checkout of the reference, SciPy and tqdm:
python test/golden/make_planner.py CHECKOUT
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

try:
    from golden.cases import FOLDER, SOURCE, fill, noise
except ImportError:  # run as a script in this folder
    from cases import FOLDER, SOURCE, fill, noise

COMMIT = 'c2963a47433ecca0ad4f06ec28bcfa8cb5b5cefb'
FILE = 'planner.npz'
SIDE = 64                       # of the pictures [px]
ENCODER = (128, 2, 2, 512)      # width, depth, heads, MLP
PREDICTOR = (128, 3, 2)         # width, depth, heads
SAMPLES, ELITES, ITERATIONS, STEPS = 24, 5, 4, 2
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
STATE = (0.4, -0.1, 0.3, 0.5, -0.4, 2.0, 0.35)


def picture(seed: int) -> np.ndarray:
    """(S, S, 3) uint8."""
    return ((noise(SIDE, SIDE, 3, seed=seed) + 0.5) * 255).round().to(torch.uint8).numpy()


def search_noise() -> Tensor:
    """(iterations, T, S, 4) with variance 1."""
    return math.sqrt(12) * noise(ITERATIONS, STEPS, SAMPLES, 4, seed=77)


def poses() -> tuple[Tensor, Tensor]:
    """States and actions (B, 7) with rotations of any size."""
    states, actions = noise(40, 7, seed=5), noise(40, 7, seed=6)
    states[:, 3:6] *= 2 * math.pi
    actions[:, 3:6] *= 2 * math.pi
    return states, 2.0 * actions


def networks() -> tuple[nn.Module, nn.Module]:
    from make_golden import NORM
    from src.models.ac_predictor import VisionTransformerPredictorAC
    from src.models.vision_transformer import VisionTransformer
    width, depth, heads, mlp = ENCODER
    encoder = fill(VisionTransformer(
        img_size=SIDE, num_frames=16, embed_dim=width, depth=depth, num_heads=heads,
        mlp_ratio=mlp / width, norm_layer=NORM, use_rope=True))
    inner, depth, heads = PREDICTOR
    predictor = fill(VisionTransformerPredictorAC(
        img_size=(SIDE, SIDE), num_frames=2 * STEPS, embed_dim=width,
        predictor_embed_dim=inner, depth=depth, num_heads=heads, norm_layer=NORM))
    return encoder, predictor


def clip_of(pictures: np.ndarray) -> Tensor:
    """(1, S, S, 3) uint8 to (3, 1, S, S) as the encoder wants it."""
    scaled = (torch.from_numpy(pictures) / 255.0 - torch.tensor(MEAN)) / torch.tensor(STD)
    return scaled.permute(3, 0, 1, 2)


@torch.inference_mode()
def main() -> None:
    from make_golden import find_reference
    find_reference(__doc__, COMMIT)
    from notebooks.utils import mpc_utils
    from notebooks.utils.world_model_wrapper import WorldModel

    energies: list[Tensor] = []

    def recorded(final: Tensor, goal: Tensor) -> Tensor:
        energies.append(mpc_utils.l1(final, goal))
        return energies[-1]

    encoder, predictor = networks()
    world = WorldModel(encoder, predictor, (SIDE // 16) ** 2, clip_of, device='cpu',
                       mpc_args={'rollout': STEPS, 'samples': SAMPLES,
                                 'topk': ELITES, 'cem_steps': ITERATIONS,
                                 'momentum_mean': 0.15, 'momentum_std': 0.15, 'maxnorm': 0.05,
                                 'objective': recorded})
    given = iter(search_noise().flatten(0, 1))

    def randn(*shape: int, device: object = None) -> Tensor:
        found = next(given)
        assert found.shape == shape
        return found

    context, goal = (world.encode(picture(seed)) for seed in (1, 2))
    state = torch.tensor(STATE)
    real, torch.randn = torch.randn, randn
    try:
        action = world.infer_next_action(context[:, None], state[None, None], goal[:, None])
    finally:
        torch.randn = real
    moved = mpc_utils.compute_new_pose(*(each[:, None] for each in poses()))[:, 0]
    np.savez_compressed(FOLDER / FILE, source=np.array(f'{SOURCE} at {COMMIT}'),
                        energies=torch.stack(energies).numpy(), action=action.numpy(),
                        poses=moved.numpy())


if __name__ == '__main__':
    main()
