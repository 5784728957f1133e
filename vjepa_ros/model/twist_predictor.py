# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Imagine what a base would see and touch under given twists.

A small action-conditioned predictor in the manner of V-JEPA 2-AC (arXiv 2506.09985): step by step
it predicts the features that an encoder would give, from those of the step before and the action
between, with attention that is causal over the steps. Other than there, the features of a step
are means over a coarse grid, and one token; it looks at all patches of the present as well, whose
keys and values are computed once for all plans. So hundreds of plans take milliseconds.

What lies on the way is asked for patch by patch, too: how far away a surface there would have to
be for the robot to touch it follows from the twists and the lens (`twist_paths.around`), and
whether it is, from the patch.

B pasts, F plans, S steps, n = `CELLS` of the coarse grid, N = Hp x Wp patches, D width of the
encoder, C of the present, P of the predictor, W of the way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vjepa_ros.model.blocks import EPS, ModuleList, fill_random
from vjepa_ros.model.head_specs import CLEARANCE_BINS
from vjepa_ros.model.heads import Heads, full_precision, patch_reader, read_patches
from vjepa_ros.model.twist_paths import VIEW_DIM, WAY_DIM, around, poses, rays

GRID = 3          # side of the coarse grid
CELLS = GRID * GRID
HEAD_DIM = 32     # of attention
CONDITION_DIM = 4 + 4 + 1 + VIEW_DIM     # action, pose after it, time, view
RARE = -7.0       # first logit that a patch is touched in a step
_NUMBERS = 1 << 19      # 2 MB in float32, which malloc reuses and does not map anew

Memory = tuple[Tensor, Tensor]     # keys and values (B, H, tokens, P/H)


@dataclass(frozen=True)
class Imagined:
    """What follows from F plans of B pasts.

    Attributes
    ----------
    features : Tensor
        (B, F, S, n, D) of mean 0 and variance 1 over D, after each step.
    contact : Tensor
        (B, F, S) logit that the robot touches something in a step if it did not before.
    clearance : Tensor
        (B, F, S, C+1) logits of the free way ahead after each step, over the bins of the heads.
    course : Tensor
        (B, F, S, n) logit that something in a cell is on a collision course after each step.
    looming : Tensor
        (B, F, S, n) greatest looming rate in a cell after each step [1/s].

    """

    features: Tensor
    contact: Tensor
    clearance: Tensor
    course: Tensor
    looming: Tensor

    @property
    def contact_until(self) -> Tensor:
        """(B, F, S) probability of having touched something by the end of each step."""
        return -F.logsigmoid(-self.contact.float()).cumsum(-1).expm1()

    def contact_within(self, ends_s: Tensor, times_s: Tensor) -> Tensor:
        """Return the probability of a touch until times (N,) [s], (B, F, N).

        Inside a step, of which `ends_s` (S,) are the ends, the hazard is even.
        """
        survive = F.pad(F.logsigmoid(-self.contact.float()).cumsum(-1), (1, 0))
        knots = F.pad(ends_s, (1, 0))
        at = torch.searchsorted(ends_s, times_s).clamp(max=len(ends_s) - 1)
        share = ((times_s - knots[at]) / (knots[at + 1] - knots[at])).clamp(0, 1)
        return -torch.lerp(survive[..., at], survive[..., at + 1], share).expm1()


@dataclass(frozen=True)
class Seen:
    """The present as the predictor reads it; all plans share it.

    Attributes
    ----------
    start : Tensor
        (B, n, D) coarse features.
    near : Tensor
        (B, N, W) what each patch says about what may be touched there.
    memory : list of (Tensor, Tensor)
        Keys and values (B, H, N, P/H) of each block.
    rays : Tensor
        (B, N, 3), see `twist_paths.rays`.
    view : Tensor
        (B, VIEW_DIM), see `View`.

    """

    start: Tensor
    near: Tensor
    memory: list[Memory]
    rays: Tensor
    view: Tensor

    def first(self, count: int) -> Seen:
        """Return that of the first pasts alone."""
        memory = [(keys[:count], values[:count]) for keys, values in self.memory]
        return Seen(self.start[:count], self.near[:count], memory, self.rays[:count],
                    self.view[:count])


def coarse(features: Tensor) -> Tensor:
    """Means of features (..., Hp, Wp, D) over the grid, normalised: (..., n, D) float32."""
    flat = features.flatten(0, -4).permute(0, 3, 1, 2).float()
    means = F.adaptive_avg_pool2d(flat, GRID).flatten(2).transpose(1, 2)
    return F.layer_norm(means, means.shape[-1:]).unflatten(0, features.shape[:-3])


class _Step(nn.Module):
    """Block of one layer: attention to own steps, to the present, and an MLP."""

    def __init__(self, width: int, ratio: int):
        super().__init__()
        self.heads = width // HEAD_DIM
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width, eps=EPS) for _ in range(3))
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.look, self.kv = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.seen = nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, ratio * width), nn.Linear(ratio * width, width)

    def present(self, tokens: Tensor) -> Memory:
        """Keys and values (B, H, N, P/H) of the present (B, N, P)."""
        tokens = tokens.to(self.kv.weight.dtype)
        key, value = self.kv(tokens).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return key.contiguous(), value.contiguous()

    def forward(self, x: Tensor, present: Memory, allowed: Tensor | None, past: Memory | None
                ) -> tuple[Tensor, Memory]:
        """Map (B F, m, P); also return keys and values of what was attended to."""
        dtype = self.fc1.weight.dtype       # the residual stream stays float32
        q, k, v = self.qkv(self.norm1(x).to(dtype)).unflatten(-1, (3, self.heads, -1)).permute(
            2, 0, 3, 1, 4)
        if past is not None:
            k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        own = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        x = x + self.proj(own.transpose(1, 2).flatten(2))
        # All plans of a past are rows of one attention to its present.
        pasts = present[0].shape[0]
        ask = self.look(self.norm2(x).to(dtype)).unflatten(-1, (self.heads, -1))   # BF m H d
        ask = ask.unflatten(0, (pasts, -1)).flatten(1, 2).transpose(1, 2)           # B H Fm d
        found = F.scaled_dot_product_attention(ask, *present)
        x = x + self.seen(found.transpose(1, 2).flatten(2).view_as(x))
        return x + self.fc2(F.gelu(self.fc1(self.norm3(x).to(dtype)))), (k, v)


class TwistPredictor(nn.Module):
    """Predict features, contact, clearance, course and looming under sequences of twists.

    Parameters
    ----------
    dim : int
        D.
    known : int
        Width of what it reads of a patch in two tubelets; C is `dim` + `known`.
    width, depth, ratio : int
        P, a multiple of `HEAD_DIM`, layers, and widening of the MLPs.
    way : int
        W.

    Raises
    ------
    ValueError
        For a width that is no multiple.

    """

    def __init__(self, dim: int, known: int, width: int = 256, depth: int = 3, ratio: int = 2,
                 way: int = 32):
        super().__init__()
        if not width or width % HEAD_DIM:
            raise ValueError(f'a predictor is {width} wide, but must be a multiple of {HEAD_DIM}')
        self.dim = dim
        self.reader = patch_reader(dim, known).requires_grad_(False)
        self.present_norm = nn.LayerNorm(dim + known, eps=EPS)
        self.present_embed = nn.Linear(dim + known + 3 + VIEW_DIM, width)
        self.near = nn.Linear(width, way)
        self.way = nn.Linear(WAY_DIM, way)
        self.touch, self.attend = nn.Linear(way, 1), nn.Linear(way, 1)
        self.met = nn.Linear(way, width)
        self.embed = nn.Linear(CELLS * dim, width)
        self.condition = nn.Sequential(nn.Linear(CONDITION_DIM, width), nn.GELU(),
                                       nn.Linear(width, width))
        self.blocks = ModuleList(_Step(width, ratio) for _ in range(depth))
        self.norm = nn.LayerNorm(width, eps=EPS)
        self.features = nn.Linear(width, CELLS * dim)
        self.contact = nn.Linear(width, 1)
        self.clearance = nn.Linear(width, CLEARANCE_BINS + 1)
        self.cells = nn.Linear(width, 2 * CELLS)

    def read_as(self, heads: Heads) -> None:
        """Read patches as heads of the same widths do; training changes nothing of that."""
        self.reader.load_state_dict(heads.dense[:-1].state_dict())

    def present(self, features: Tensor) -> Tensor:
        """Return what it is told of the present, (B, Hp, Wp, C).

        Parameters
        ----------
        features : Tensor
            (B, T', Hp, Wp, D), T' at least 2.

        Returns
        -------
        Tensor
            Features of the newest tubelet, and what is known of each patch.

        """
        with full_precision(features.device):
            return torch.cat((features[:, -1].float(),
                              read_patches(self.reader, features.float())), -1)

    def see(self, present: Tensor, view: Tensor) -> Seen:
        """Read the present once.

        Parameters
        ----------
        present : Tensor
            (B, Hp, Wp, C), see `present`.
        view : Tensor
            (B, VIEW_DIM) float32, see `View`.

        """
        lines = rays(view, *present.shape[1:3])
        known = self.present_norm(present.flatten(1, 2).float())
        all_ = torch.cat((known, lines, view[:, None].expand(-1, known.shape[1], -1)), -1)
        tokens = F.gelu(self.present_embed(all_))
        start = coarse(present[..., :self.embed.in_features // CELLS])
        return Seen(start, self.near(tokens), [block.present(tokens) for block in self.blocks],
                    lines, view)

    def forward(self, present: Tensor, twists: Tensor, duration_s: Tensor, view: Tensor,
                truth: Tensor | None = None) -> Imagined:
        """Imagine plans, see `see` and `imagine`."""
        return self.imagine(self.see(present, view), twists, duration_s, truth)

    def imagine(self, seen: Seen, twists: Tensor, duration_s: Tensor,
                truth: Tensor | None = None) -> Imagined:
        """Imagine plans of pasts.

        Parameters
        ----------
        seen : Seen
            Of B pasts.
        twists : Tensor
            (B, F, S, 3) float32: ahead, to the left [m/s], turn to the left [rad/s].
        duration_s : Tensor
            (S,) for which each is held [s].
        truth : Tensor, optional
            (B, F, S, n, D) `coarse` features that followed. Each step then starts from them
            (teacher forcing) and all are computed at once; otherwise from the one imagined before.

        """
        b, plans, steps, _ = twists.shape
        said, hazard = self._told(seen, twists, duration_s)                      # B F S P
        start = seen.start[:, None].expand(-1, plans, -1, -1)                    # B F n D
        if truth is not None:
            before = torch.cat((start[:, :, None], truth[:, :, :-1]), 2)
            step = torch.arange(steps, device=said.device)
            x = (self._embedded(before) + said).flatten(0, 1)
            for block, known in zip(self.blocks, seen.memory, strict=True):
                x, _ = block(x, known, step[:, None] >= step, None)
            x = self.norm(x.unflatten(0, (b, plans)))
            return self._read(x, self._features(x, before), hazard)
        past: list[Memory | None] = [None] * len(self.blocks)
        imagined, out = [start], []
        for number in range(steps):
            # All plans begin with the same features.
            before = self._embedded(imagined[-1] if number else seen.start[:, None])
            x = (before + said[:, :, number]).flatten(0, 1)[:, None]
            for layer, (block, known) in enumerate(zip(self.blocks, seen.memory, strict=True)):
                x, past[layer] = block(x, known, None, past[layer])
            out.append(self.norm(x.unflatten(0, (b, plans))[:, :, 0]))
            imagined.append(self._features(out[-1], imagined[-1]))
        return self._read(torch.stack(out, 2), torch.stack(imagined[1:], 2), hazard)

    def _embedded(self, features: Tensor) -> Tensor:
        return self.embed(features.flatten(-2).to(self.embed.weight.dtype)).float()

    def _told(self, seen: Seen, twists: Tensor, duration_s: Tensor) -> tuple[Tensor, Tensor]:
        """Return what each step is told, (B, F, S, P), and a logit of what it meets, (B, F, S)."""
        b, plans, steps, _ = twists.shape
        ends, view = duration_s.cumsum(0), seen.view
        times = torch.stack((ends - duration_s / 2, ends), -1).flatten()
        way = poses(twists, duration_s, view[:, 2], times).unflatten(2, (steps, 2))
        x, z, yaw = way[..., 1, :].unbind(-1)
        shape = (b, plans, steps, 1)
        told = torch.cat((
            twists, duration_s[:, None].expand(shape), torch.stack((x, z, yaw.sin(), yaw.cos()),
                                                                   -1),
            ends[:, None].expand(shape), view[:, None, None].expand(*shape[:3], -1)), -1)
        parts = [way]
        if not (torch.is_grad_enabled() or way.is_cuda):
            # Few enough plans at a time that the cache of a core holds what each patch says.
            parts = way.split(max(1, _NUMBERS // (steps * seen.near.numel())), dim=1)
        met, touched = zip(*(self._met(seen, part, ends) for part in parts), strict=True)
        return self.condition(told) + self.met(torch.cat(met, 1)), torch.cat(touched, 1)

    def _met(self, seen: Seen, way: Tensor, ends_s: Tensor) -> tuple[Tensor, Tensor]:
        """Return what ways (B, F, S, 2, 3) meet, (B, F, S, W), and a logit that it is touched."""
        with full_precision(way.device):     # half would lose where the way is
            # In place, for these are the largest numbers of all.
            found = self.way(around(way, seen.rays, seen.view[:, 0], ends_s))    # B F S N W
            found = found.add_(seen.near.float()[:, None, None]).relu_()
        weight = self.attend(found).softmax(-2)
        return ((weight.transpose(-1, -2) @ found)[..., 0, :],
                self.touch(found)[..., 0].float().logsumexp(-1))

    def _features(self, x: Tensor, before: Tensor) -> Tensor:
        """Change features (..., n, D) as tokens (..., P) say."""
        change = self.features(x.to(self.features.weight.dtype)).float()
        features = before + change.unflatten(-1, (CELLS, -1))
        return F.layer_norm(features, features.shape[-1:])

    def _read(self, x: Tensor, features: Tensor, hazard: Tensor) -> Imagined:
        """Read what tokens (B, F, S, P) say."""
        course, looming = self.cells(x).unflatten(-1, (2, CELLS)).unbind(-2)
        return Imagined(features, self.contact(x)[..., 0] + hazard, self.clearance(x),
                        course, looming)

    def set_branch_precision(self, dtype: torch.dtype) -> None:
        """Run attention and MLPs in `dtype`; paths, patches and residual stream stay float32."""
        for part in (self.embed, self.features, *self.blocks):
            for module in part.modules():
                if isinstance(module, nn.Linear):
                    module.to(dtype)

    @torch.no_grad()
    def init_random(self, seed: int) -> None:
        """Fill all parameters with untrained values that depend on `seed` alone."""
        generator = torch.Generator().manual_seed(seed)
        fill_random(self, (), generator)
        for layer in (self.present_embed, self.near, self.way):     # not in the residual stream
            nn.init.trunc_normal_(layer.weight, std=layer.in_features ** -0.5,
                                  generator=generator)
        for number, block in enumerate(self.blocks, start=1):
            for last in (block.proj, block.seen, block.fc2):
                last.weight.div_(math.sqrt(3 * number))
        nn.init.zeros_(self.features.weight)    # nothing changes
        nn.init.constant_(self.touch.bias, RARE)
