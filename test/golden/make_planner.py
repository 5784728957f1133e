#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Compute the golden values of the planner with a checkout of the reference implementation.

Needed only when `planner_case.py` changes, with SciPy and tqdm:
python test/golden/make_planner.py CHECKOUT
"""

from __future__ import annotations

from functools import partial

import numpy as np
import planner_case as case
import torch
from cases import FOLDER, SOURCE, fill
from make_golden import NORM, find_reference
from torch import Tensor, nn

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def networks() -> tuple[nn.Module, nn.Module]:
    from src.models.ac_predictor import VisionTransformerPredictorAC
    from src.models.vision_transformer import VisionTransformer
    width, depth, heads, mlp = case.ENCODER
    encoder = fill(VisionTransformer(
        img_size=case.SIDE, num_frames=16, embed_dim=width, depth=depth, num_heads=heads,
        mlp_ratio=mlp / width, norm_layer=NORM, use_rope=True))
    inner, depth, heads = case.PREDICTOR
    predictor = fill(VisionTransformerPredictorAC(
        img_size=(case.SIDE, case.SIDE), num_frames=2 * case.STEPS, embed_dim=width,
        predictor_embed_dim=inner, depth=depth, num_heads=heads, norm_layer=NORM))
    return encoder, predictor


def clip_of(pictures: np.ndarray) -> Tensor:
    """(1, S, S, 3) uint8 to (3, 1, S, S) as the encoder wants it."""
    scaled = (torch.from_numpy(pictures) / 255.0 - torch.tensor(MEAN)) / torch.tensor(STD)
    return scaled.permute(3, 0, 1, 2)


@torch.inference_mode()
def main() -> None:
    find_reference(__doc__, case.COMMIT)
    from notebooks.utils import mpc_utils
    from notebooks.utils.world_model_wrapper import WorldModel

    energies: list[Tensor] = []

    def recorded(final: Tensor, goal: Tensor) -> Tensor:
        energies.append(mpc_utils.l1(final, goal))
        return energies[-1]

    encoder, predictor = networks()
    world = WorldModel(encoder, predictor, (case.SIDE // 16) ** 2, clip_of, device='cpu',
                       mpc_args={'rollout': case.STEPS, 'samples': case.SAMPLES,
                                 'topk': case.ELITES, 'cem_steps': case.ITERATIONS,
                                 'momentum_mean': 0.15, 'momentum_std': 0.15, 'maxnorm': 0.05,
                                 'objective': recorded})
    given = iter(case.search_noise().flatten(0, 1))

    def randn(*shape: int, device: object = None) -> Tensor:
        found = next(given)
        assert found.shape == shape
        return found

    context, goal = (world.encode(case.picture(seed)) for seed in (1, 2))
    state = torch.tensor(case.STATE)
    real, torch.randn = torch.randn, randn
    try:
        action = world.infer_next_action(context[:, None], state[None, None], goal[:, None])
    finally:
        torch.randn = real
    compose = partial(torch.unsqueeze, dim=1)
    moved = mpc_utils.compute_new_pose(*map(compose, case.poses()))[:, 0]
    np.savez_compressed(FOLDER / case.FILE, source=np.array(f'{SOURCE} at {case.COMMIT}'),
                        energies=torch.stack(energies).numpy(), action=action.numpy(),
                        poses=moved.numpy())


if __name__ == '__main__':
    main()
