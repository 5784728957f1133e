# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The V-JEPA 2-AC world model: how features of a scene change under a robot's actions.

Architecture after arXiv 2506.09985; the names of parameters equal those of the published
checkpoint. It works on single frames, one per step: step t predicts the features of frame t + 1
from the frames, states and actions up to t. B clips, T steps, Hp x Wp patches, D width of the
encoder, P of the predictor.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vjepa_ros.model.blocks import Attention, Block, EPS, ModuleList, fill_random, set_branches
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.rope import Positions, rotate
from vjepa_ros.model.variants import TUBELET, Variant

ACTION_DIM = 7  # position [m], Euler angles [rad], gripper 0..1: of a state, or their change


class ActionPredictor(nn.Module):
    """Predict the features of the next frames.

    Parameters
    ----------
    dim : int
        Width of the encoder; 1408 for the published checkpoint.
    width, depth, heads : int
        Of the predictor.
    action_dim : int
        Numbers in an action and in a state; extrinsics have one less.

    """

    def __init__(self, dim: int, width: int = 1024, depth: int = 24, heads: int = 16,
                 action_dim: int = ACTION_DIM):
        super().__init__()
        if width % heads or width // heads < 6:
            raise ValueError(f'a predictor {width} wide cannot have {heads} heads: the width '
                             'must be a multiple of them, with at least 6 channels each')
        variant = Variant('ac_predictor', width, depth, heads, 4 * width)
        self.action_dim = action_dim
        self.predictor_embed = nn.Linear(dim, width)
        self.action_encoder = nn.Linear(action_dim, width)
        self.state_encoder = nn.Linear(action_dim, width)
        self.extrinsics_encoder = nn.Linear(action_dim - 1, width)
        self.predictor_blocks = ModuleList(Block(variant) for _ in range(depth))
        self.predictor_norm = nn.LayerNorm(width, eps=EPS)
        self.predictor_proj = nn.Linear(width, dim)
        self._positions = Positions(variant.head_dim, spacing='square')
        self._kept: dict[tuple, tuple[Tensor, Tensor, Tensor]] = {}

    def forward(self, features: Tensor, actions: Tensor, states: Tensor,
                extrinsics: Tensor | None = None) -> Tensor:
        """Predict the features of the next frame at every step.

        Parameters
        ----------
        features : Tensor
            (B, T, Hp, Wp, D) of one frame per step, see `encode_frames`.
        actions, states : Tensor
            (B, T, 7) float32. The state before each step and the action taken in it, see
            `ACTION_DIM`.
        extrinsics : Tensor, optional
            (B, T, 6) pose of the camera, for weights that were trained with it.

        Returns
        -------
        Tensor
            (B, T, Hp, Wp, D): at step t what frame t + 1 will look like. Normalise it with
            `normalised` before it is compared or given back as an input.

        """
        b, steps, rows, cols, _ = features.shape
        self._check('actions', actions, (b, steps, self.action_dim))
        self._check('states', states, (b, steps, self.action_dim))
        parts = [self.action_encoder(actions), self.state_encoder(states)]
        if extrinsics is not None:
            self._check('extrinsics', extrinsics, (b, steps, self.action_dim - 1))
            parts.append(self.extrinsics_encoder(extrinsics))
        x = torch.cat((torch.stack(parts, dim=2), self.predictor_embed(features).flatten(2, 3)),
                      dim=2).flatten(1, 2).float()  # B T(conditions + Hp Wp) P
        cos, sin, allowed = self._tables((steps, rows, cols), len(parts), x.device)
        for block in self.predictor_blocks:
            x = block(x, cos, sin, allowed)
        x = x.unflatten(1, (steps, -1))[:, :, len(parts):].unflatten(2, (rows, cols))
        return self.predictor_proj(self.predictor_norm(x))

    def rollout(self, features: Tensor, steps: int) -> Rollout:
        """Start a `Rollout` from one frame.

        Parameters
        ----------
        features : Tensor
            (Hp, Wp, D) of the frame, see `encode_frames`.
        steps : int
            Most calls of `Rollout.step`.

        """
        return Rollout(self, features, steps)

    def set_branch_precision(self, dtype: torch.dtype) -> None:
        """Run attention and MLP in `dtype`; everything else stays float32."""
        set_branches(self.predictor_blocks, dtype)
        self._positions.kept.clear()
        self._kept.clear()

    def prepare(self, grid: tuple[int, int, int], device: torch.device,
                extrinsics: bool = False) -> None:
        """Make the tables for steps and patches, which torch.compile cannot trace."""
        self._tables(grid, 3 if extrinsics else 2, device)

    def full_tables(self, grid: tuple[int, int, int], device: torch.device
                    ) -> tuple[Tensor, Tensor]:
        """Return cosines and sines in float32 for the tokens of all steps, no extrinsics."""
        tokens = _tokens(grid, 2).to(device)
        cos, sin = self._positions.tables(grid, device, torch.float32)
        return cos[tokens], sin[tokens]

    def _tables(self, grid: tuple[int, int, int], conditions: int, device: torch.device
                ) -> tuple[Tensor, Tensor, Tensor]:
        """Return cosines, sines and the causal mask for the tokens of all steps."""
        dtype = self.predictor_blocks[0].attn.qkv.weight.dtype
        key = (grid, conditions, device, dtype)
        if key not in self._kept:
            if len(self._kept) >= 4:
                self._kept.pop(next(iter(self._kept)))
            steps, patches = grid[0], grid[1] * grid[2]
            with torch.inference_mode(False):
                tokens = _tokens(grid, conditions).to(device)
                cos, sin = self._positions.tables(grid, device, dtype)
                step = torch.arange(steps, device=device).repeat_interleave(conditions + patches)
                self._kept[key] = (cos[tokens], sin[tokens], step[:, None] >= step)
        return self._kept[key]

    @staticmethod
    def _check(name: str, given: Tensor, shape: tuple[int, ...]) -> None:
        if given.shape != shape:
            raise ValueError(f'{name} are {tuple(given.shape)}, but must be {shape} to go with '
                             'the features')

    @torch.no_grad()
    def init_random(self, seed: int) -> None:
        """Fill all parameters as `Encoder.init_random` does."""
        fill_random(self, self.predictor_blocks, torch.Generator().manual_seed(seed))


def _tokens(grid: tuple[int, int, int], conditions: int) -> Tensor:
    """Return the number of the patch in the clip for each token of all steps."""
    steps, patches = grid[0], grid[1] * grid[2]
    # Actions and states have a time and no place; they take that of the first patch.
    inside = torch.cat((torch.zeros(conditions, dtype=torch.int64), torch.arange(patches)))
    return (inside + patches * torch.arange(steps)[:, None]).flatten()


class Rollout:
    """Predict step by step what follows one frame under several plans.

    Equal to `ActionPredictor.forward` fed with its own predictions. Attention is causal, so keys
    and values of past steps are cached and each step computes its own tokens only.

    Make it with `ActionPredictor.rollout`; B plans.
    """

    def __init__(self, predictor: ActionPredictor, features: Tensor, steps: int):
        self._predictor = predictor
        self._features = features.flatten(0, 1)[None]  # 1 Hp Wp D, later B
        rows, cols = features.shape[:2]
        self._grid = (steps, rows, cols)
        self._done = 0
        self._past: list[tuple[Tensor, Tensor] | None] = [None] * len(predictor.predictor_blocks)

    def step(self, actions: Tensor, states: Tensor) -> Tensor:
        """Predict the next frame of every plan.

        Parameters
        ----------
        actions, states : Tensor
            (B, 7) float32: the action that each plan takes now, and the state before it. B is
            the same in every step.

        Returns
        -------
        Tensor
            (B, Hp Wp, D) float32, normalised.

        Raises
        ------
        ValueError
            After the last step, and for actions or states of another shape.

        """
        model = self._predictor
        steps, rows, cols = self._grid
        if self._done >= steps:
            raise ValueError(f'this rollout was made for {steps} steps; make another one')
        shape = (len(actions), model.action_dim)
        model._check('actions', actions, shape)
        model._check('states', states, shape)
        conditions = torch.stack((model.action_encoder(actions), model.state_encoder(states)),
                                 dim=1)
        seen = model.predictor_embed(self._features).expand(len(actions), -1, -1)
        x = torch.cat((conditions, seen), dim=1).float()  # B n P
        own = slice(self._done * x.shape[1], (self._done + 1) * x.shape[1])
        cos, sin = (table[own] for table in model._tables(self._grid, 2, x.device)[:2])
        for index, block in enumerate(model.predictor_blocks):
            y = block.norm1(x).to(cos.dtype)
            x = x + self._attend(index, block.attn, y, cos, sin)
            x = x + block.mlp(block.norm2(x).to(cos.dtype))
        self._done += 1
        out = model.predictor_proj(model.predictor_norm(x[:, -rows * cols:]))
        self._features = normalised(out.float())
        return self._features

    def _attend(self, index: int, attn: Attention, y: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Attention of the tokens of this step to themselves and to all before."""
        b, n, width = y.shape
        qkv = attn.qkv(y).view(b, n, 3, attn.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = rotate(qkv[:2], cos, sin).to(qkv.dtype)
        v = qkv[2]
        past = self._past[index]
        if past is not None:
            k, v = torch.cat((past[0], k), dim=2), torch.cat((past[1], v), dim=2)
        # Nothing follows the last step, so its keys and values are not cached.
        self._past[index] = (k, v) if self._done + 1 < self._grid[0] else None
        out = F.scaled_dot_product_attention(q, k, v)
        return attn.proj(out.transpose(1, 2).reshape(b, n, width))


def encode_frames(encoder: Encoder, frames: Tensor) -> Tensor:
    """Encode single frames for the world model.

    Each frame is encoded on its own, as a tubelet in which nothing moves.

    Parameters
    ----------
    encoder : Encoder
        Of version 2.0.
    frames : Tensor
        (B, T, 3, height, width) float32, normalised as for `Encoder.forward`.

    Returns
    -------
    Tensor
        (B, T, Hp, Wp, D), normalised.

    """
    still = frames.flatten(0, 1)[:, :, None].expand(-1, -1, TUBELET, -1, -1)
    return normalised(encoder(still)[:, 0]).unflatten(0, frames.shape[:2])


def normalised(features: Tensor) -> Tensor:
    """Scale features to mean 0 and variance 1 over their width, as the world model takes them."""
    return F.layer_norm(features, features.shape[-1:])
