# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run the action-conditioned world model with the kernels of `vjepa_ros.runtime.forward.kernels`.

The same arithmetic as `vjepa_ros.model.ac_predictor.Rollout`, in half precision between float32
norms and a float32 residual stream; embedding and projection run in half precision, too. What
all plans share is computed once: in the first step the embedding of the frame, and the queries,
keys and values of its patches in the first block. After that every patch depends on its plan.

B plans, n tokens of one step (action, state, N patches), M = B n, P width, D width of features.
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from vjepa_ros.model.ac_predictor import ActionPredictor, normalised
from vjepa_ros.model.blocks import EPS
from vjepa_ros.runtime.device import DeviceChoice
from vjepa_ros.runtime.forward.base import FUSED, PLAIN, kernels_for
from vjepa_ros.runtime.forward.fused import Layer
from vjepa_ros.runtime.forward.kernels import build

CONDITIONS = 2  # tokens before the patches of a step: action and state


class Steps(Protocol):
    """A rollout under way: `vjepa_ros.model.ac_predictor.Rollout` or `FusedRollout`."""

    def step(self, actions: Tensor, states: Tensor) -> Tensor:
        """Predict the next frame of every plan, see `Rollout.step`."""
        ...


class World(Protocol):
    """What makes rollouts: `ActionPredictor` or `FusedPredictor`."""

    def rollout(self, features: Tensor, steps: int) -> Steps:
        """Start a rollout from one frame, see `ActionPredictor.rollout`."""
        ...


class FusedPredictor:
    """A world model for frames of one size on a CUDA device.

    Parameters
    ----------
    predictor : ActionPredictor
        On the device, its branches in float16 or bfloat16. Its weights are shared, but for the
        embedding and the projection, of which there are copies in half precision.
    grid : (int, int)
        Hp, Wp.
    steps : int
        Most steps of a rollout.

    Raises
    ------
    KernelsMissing
        If the kernels cannot be made here.

    """

    def __init__(self, predictor: ActionPredictor, grid: tuple[int, int], steps: int):
        first = predictor.predictor_blocks[0].attn
        weight = first.qkv.weight
        self.dtype, self.device = weight.dtype, weight.device
        self.width, self.heads = weight.shape[1], first.heads
        self.patches, self.steps = grid[0] * grid[1], steps
        self.tokens = CONDITIONS + self.patches
        with torch.cuda.device(self.device):
            self.kernels = build(self.width, self.width // self.heads, (1, 1, self.tokens),
                                 self.dtype, EPS)
        cos, sin = predictor.full_tables((steps, *grid), self.device)
        self.tables = [(cos[own].contiguous(), sin[own].contiguous()) for own in
                       (slice(at, at + self.tokens) for at in range(0, len(cos), self.tokens))]
        self.layers = [Layer.of(block) for block in predictor.predictor_blocks]
        self.norm = (predictor.predictor_norm.weight.detach(),
                     predictor.predictor_norm.bias.detach())
        self.embed, self.project = ((layer.weight.detach().to(self.dtype).T,
                                     layer.bias.detach().to(self.dtype))
                                    for layer in (predictor.predictor_embed,
                                                  predictor.predictor_proj))
        self.conditions = (predictor.action_encoder, predictor.state_encoder)

    def rollout(self, features: Tensor, steps: int) -> FusedRollout:
        """Start a rollout from one frame, see `ActionPredictor.rollout`."""
        if steps > self.steps:
            raise ValueError(f'this model was made for rollouts of {self.steps} steps, not '
                             f'{steps}')
        return FusedRollout(self, features, steps)


class FusedRollout:
    """A rollout under several plans, see `vjepa_ros.model.ac_predictor.Rollout`."""

    def __init__(self, model: FusedPredictor, features: Tensor, steps: int):
        self._model = model
        self._features = features.flatten(0, 1).to(model.dtype)  # N D, later B N D
        self._steps = steps
        self._done = 0
        self._past: list[Tensor | None] = [None] * len(model.layers)

    def step(self, actions: Tensor, states: Tensor) -> Tensor:
        """Predict from (B, 7) and (B, 7) float32: (B, N, D) float32, see `Rollout.step`."""
        if self._done >= self._steps:
            raise ValueError(f'this rollout was made for {self._steps} steps; make another one')
        with torch.cuda.device(self._model.device):  # kernels go to the current one
            return self._step(actions, states)

    def _step(self, actions: Tensor, states: Tensor) -> Tensor:
        model, b, n = self._model, len(actions), self._model.tokens
        x = torch.empty(b, n, model.width, device=model.device)
        for place, (encoder, given) in enumerate(zip(model.conditions, (actions, states),
                                                     strict=True)):
            x[:, place] = encoder(given)
        matrix, bias = model.embed
        frame = torch.addmm(bias, self._features.flatten(0, -2), matrix)
        x[:, CONDITIONS:] = frame if self._done == 0 else frame.view(b, model.patches, -1)
        flat = x.view(b * n, model.width)
        y = torch.empty(b * n, model.width, device=model.device, dtype=model.dtype)
        branch = None
        for index, layer in enumerate(model.layers):
            model.kernels.norm(flat, branch, *layer.norm1, y)
            if index == 0 and self._done == 0:
                qkv = self._shared(y, layer, b)
            else:
                qkv = torch.addmm(layer.qkv[1], y, layer.qkv[0])
            branch = torch.addmm(layer.proj[1], self._attend(index, qkv, b), layer.proj[0])
            model.kernels.norm(flat, branch, *layer.norm2, y)
            branch = torch.addmm(layer.fc2[1], layer.hidden(y, model.kernels), layer.fc2[0])
        model.kernels.norm(flat, branch, *model.norm, y)
        self._done += 1
        out = torch.addmm(model.project[1], y, model.project[0])
        predicted = normalised(out.view(b, n, -1)[:, CONDITIONS:].float())
        if self._done < self._steps:
            self._features = predicted.to(model.dtype)
        return predicted

    def _shared(self, y: Tensor, layer: Layer, b: int) -> Tensor:
        """Compute queries, keys and values (M, 3 P) where all plans share their patches."""
        rows = y.view(b, self._model.tokens, -1)
        qkv = torch.empty(b, self._model.tokens, 3 * self._model.width, device=y.device,
                          dtype=y.dtype)
        bias, matrix = layer.qkv[1], layer.qkv[0]
        qkv[:, CONDITIONS:] = torch.addmm(bias, rows[0, CONDITIONS:], matrix)
        first = torch.addmm(bias, rows[:, :CONDITIONS].reshape(b * CONDITIONS, -1), matrix)
        qkv[:, :CONDITIONS] = first.view(b, CONDITIONS, -1)
        return qkv.view(b * self._model.tokens, -1)

    def _attend(self, index: int, qkv: Tensor, b: int) -> Tensor:
        """Attention (M, P) of the tokens of this step to themselves and to all before."""
        model = self._model
        model.kernels.rotate(qkv, *model.tables[self._done])
        own = qkv.view(b, model.tokens, 3 * model.width)
        seen = own[:, :, model.width:]  # keys and values side by side
        past = self._past[index]
        if past is not None:
            seen = torch.cat((past, seen), dim=1)
        # Nothing follows the last step, so its keys and values are not cached.
        self._past[index] = seen if self._done + 1 < self._steps else None
        q = own[:, :, :model.width].unflatten(2, (model.heads, -1)).transpose(1, 2)
        k, v = seen.unflatten(2, (2, model.heads, -1)).permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v)  # B H n d
        return out.transpose(1, 2).reshape(b * model.tokens, model.width)


@torch.inference_mode()
def prepare_world(predictor: ActionPredictor, choice: DeviceChoice, grid: tuple[int, int],
                  steps: int) -> tuple[World, str]:
    """Return the fastest way to run a world model, and its kind, `PLAIN` or `FUSED`.

    Kernels serve on CUDA in half precision only, and only if their predictions of a random frame
    are close to those of the plain path; otherwise the log says why not.

    Parameters
    ----------
    predictor : ActionPredictor
        On its device, in its precision, in evaluation mode.
    choice : DeviceChoice
        Device and precision.
    grid : (int, int)
        Hp, Wp of the frames.
    steps : int
        Most steps of a rollout.

    """
    if choice.device.type != 'cuda' or choice.dtype == torch.float32:
        return predictor, PLAIN
    fused = kernels_for('the world model', predictor,
                        lambda: FusedPredictor(predictor, grid, steps),
                        lambda world: _trial(world, predictor, grid, steps, choice.device), choice)
    return (predictor, PLAIN) if fused is None else (fused, FUSED)


def _trial(world: World, predictor: ActionPredictor, grid: tuple[int, int], steps: int,
           device: torch.device) -> Tensor:
    """Predictions of random plans from a random frame, on the CPU."""
    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device)

    generator = torch.Generator().manual_seed(0)
    dim = predictor.predictor_embed.in_features
    rollout = world.rollout(random(*grid, dim), steps)
    given = [(random(3, predictor.action_dim), random(3, predictor.action_dim))
             for _ in range(steps)]
    return torch.stack([rollout.step(*each).cpu() for each in given])
