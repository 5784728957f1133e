# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Put encoder, heads and auxiliary heads together as one module with its losses.

Losses ignore what is not known, are finite for all outputs of the heads, and never make the host
wait for the device. B clips, T' tubelets, Hp x Wp patches, D width.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vjepa_ros.lab.training.config import TrainConfig
from vjepa_ros.lab.world.clips import HORIZONS_S, Targets, constant, derive
from vjepa_ros.model.checkpoint.load import WeightsReport, load_model
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.head_specs import (
    Binary,
    CLEARANCE,
    CONTACT,
    HEADS,
    HeadOutputs,
    HeadSpec,
    Laplace,
)
from vjepa_ros.model.heads import Heads, full_precision
from vjepa_ros.model.variants import IMAGENET_MEAN, IMAGENET_STD, TUBELET, find_variant

DEPTH_WEIGHT, FLOW_WEIGHT, ENTER_WEIGHT = 0.25, 0.5, 0.5
LOG_SCALE = (-8.0, 3.0)   # of the Laplace distribution; narrower would let one patch rule a batch
EVENNESS = 0.5            # of the expansion: how much a large stated error weighs
LARGE_WEIGHT = 2.5        # [s] of the squared error of the expansion per interval
PROBABILITY_FLOOR = 1e-6
APPROACH_M_S = 1.0        # assumed speed where people label a path as blocked


class Auxiliary(nn.Module):
    """Entry time, depth and flow of every patch from the features of the dense heads."""

    def __init__(self, hidden: int):
        super().__init__()
        self.read = nn.Linear(hidden, CONTACT.count + 1 + 3)
        nn.init.zeros_(self.read.weight)
        nn.init.zeros_(self.read.bias)

    def forward(self, known: Tensor, targets: Targets) -> dict[str, Tensor]:
        """Compute the losses by name, each a scalar, from features (B, Hp, Wp, hidden)."""
        with full_precision(known.device):
            said = self.read(known.float())
        bins, (depth, right, down) = said[..., :-3], said[..., -3:].unbind(-1)
        when = CONTACT.index(targets.enter_s / targets.interval_s[:, None, None])
        late = F.cross_entropy(bins.flatten(0, 2), when.flatten(), reduction='none')
        flow = (F.smooth_l1_loss(right, targets.flow_x, reduction='none', beta=0.1)
                + F.smooth_l1_loss(down, targets.flow_y, reduction='none', beta=0.1))
        far = F.smooth_l1_loss(depth, targets.log_depth, reduction='none', beta=0.1)
        known_here = targets.scene_known
        return {'enter': ENTER_WEIGHT * masked_mean(late.view_as(depth), known_here),
                'depth': DEPTH_WEIGHT * masked_mean(far, known_here),
                'flow': FLOW_WEIGHT * masked_mean(flow, known_here)}


@dataclass(frozen=True)
class Batch:
    frames: Tensor  # (B, T, H, W, 3) uint8 RGB, oldest frame first
    targets: Targets  # of the newest frame
    # (B, T) float64, time of each frame [s]; None for even clips
    stamps: Tensor | None = None
    tubelets: int = 0  # how many a block-causal encoder sees; 0: all

    def __len__(self) -> int:
        return self.targets.interval_s.shape[0]


class Network(nn.Module):
    """Encoder (trained unless it was frozen before) and heads with their losses."""

    def __init__(self, encoder: Encoder, heads: Heads, auxiliary: bool = False):
        super().__init__()
        self.encoder, self.heads = encoder, heads
        self.auxiliary = Auxiliary(heads.hidden) if auxiliary else None
        self.frozen = not any(p.requires_grad for p in encoder.parameters())

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        outputs, known = self.heads.read(self.features(batch))
        losses = head_losses(outputs, batch.targets)
        if self.auxiliary is not None:
            losses |= self.auxiliary(known, batch.targets)
        return losses

    def features(self, batch: Batch) -> Tensor:
        frames, times = batch.frames, None
        if self.encoder.window:
            assert batch.stamps is not None, 'a stream has stamps'
            seen = TUBELET * (batch.tubelets or frames.shape[1] // TUBELET)
            frames, times = frames[:, -seen:], self.encoder.times(batch.stamps[:, -seen:])
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            features = self.encoder(normalised(frames), times=times)
        return features[:, -self.encoder.window:]

    def answers(self, batch: Batch) -> HeadOutputs:
        return self.heads(self.features(batch))


def normalised(frames: Tensor) -> Tensor:
    """Turn clips (B, T, H, W, 3) uint8 into input of the encoder, (B, 3, T, H, W) float32."""
    scale = constant(tuple(1 / (255 * s) for s in IMAGENET_STD), frames.device)
    shift = constant(tuple(m / s for m, s in zip(IMAGENET_MEAN, IMAGENET_STD, strict=True)),
                     frames.device)
    return (frames * scale - shift).permute(0, 4, 1, 2, 3)


def build(config: TrainConfig) -> tuple[Network, WeightsReport]:
    """Build the network on the CPU, reproducibly, and report where its weights come from."""
    variant = find_variant(config.model_size)
    if config.weights:
        encoder, heads, report = load_model(variant, weights=config.weights)
        if config.window:
            encoder = block_causal(encoder, config.window, config.matching,
                                   derive(config.seed, 'encoder'))
    else:
        encoder, heads = Encoder(variant, '2.1' if config.window else '2.0', config.window,
                                 config.matching), None
        encoder.init_random(derive(config.seed, 'encoder'))
        report = WeightsReport('', '', False, 'float32', variant.name, encoder.version)
    if heads is None:
        heads = Heads.for_variant(variant, derive(config.seed, 'heads'))
    heads.requires_grad_(True)
    encoder.requires_grad_(not config.heads_only)
    # What the features of a clip never reach: processes that train together would wait for it.
    if encoder.version == '2.1':
        encoder.img_mod_embed.requires_grad_(False)
        for part in (encoder.patch_embed_img, *list(encoder.norms_block)[:-1]):
            part.requires_grad_(False)
    return Network(encoder, heads, config.auxiliary), report


@torch.no_grad()
def block_causal(encoder: Encoder, window: int, matching: bool, seed: int) -> Encoder:
    """Make a block-causal encoder of version 2.1 that starts from the weights of another."""
    made = Encoder(encoder.variant, '2.1', window, matching)
    made.init_random(seed)
    state = encoder.state_dict()
    if encoder.version == '2.0':
        for kind in ('weight', 'bias'):
            norm = state.pop(f'norm.{kind}')
            state |= {f'norms_block.{tap}.{kind}': norm for tap in range(len(made.norms_block))}
        state['patch_embed_img.proj.weight'] = state['patch_embed.proj.weight'].sum(2, True)
        state['patch_embed_img.proj.bias'] = state['patch_embed.proj.bias']
    missing, unexpected = made.load_state_dict(state, strict=False)
    assert not unexpected and {name.partition('.')[0] for name in missing} <= {
        'img_mod_embed', 'video_mod_embed', 'interval_embed', 'matching'}
    return made


def head_losses(outputs: HeadOutputs, targets: Targets) -> dict[str, Tensor]:
    """Mean losses of one batch by name, each a scalar in nats."""
    losses: dict[str, Tensor] = {}
    for spec in HEADS.values():
        losses[spec.name] = loss_of(spec, outputs, targets)
        losses |= {name: LOSSES[name](outputs, targets) for name in spec.losses}
    return losses


def loss_of(spec: HeadSpec, outputs: HeadOutputs, targets: Targets) -> Tensor:
    said, kind = getattr(outputs, spec.name).float(), spec.kind
    truth, known = getattr(targets, spec.target), getattr(targets, spec.known)
    if isinstance(kind, Laplace):
        log_scale = getattr(outputs, kind.log_scale).float().clamp(*LOG_SCALE)
        cost = (said - truth).abs() * torch.exp(-log_scale) + log_scale + math.log(2.0)
        pull = (log_scale.detach() - math.log(kind.unit)).mul(EVENNESS).exp()
        # The value stays the likelihood, which can be followed over a run; the gradient is scaled.
        cost = cost.detach() + pull * (cost - cost.detach())
    elif isinstance(kind, Binary):
        cost = F.binary_cross_entropy_with_logits(said, truth, reduction='none')
    else:
        if kind.per_interval:
            truth = truth / targets.interval_s.view(-1, *[1] * (truth.ndim - 1))
        cost = F.cross_entropy(said.flatten(0, -2), kind.bins.index(truth).flatten(),
                               reduction='none').view_as(truth)
    return masked_mean(cost, known)


def large(outputs: HeadOutputs, targets: Targets) -> Tensor:
    """Squared error of the expansion, which decides for large ones."""
    # A Laplace likelihood is best at the median, which lies below the mean where a surface may
    # be near: without this, the strongest looming is underestimated.
    cost = F.mse_loss(outputs.expansion.float(), targets.expansion, reduction='none') / 2
    cost = cost / targets.interval_s[:, None, None]     # errors count alike for all intervals
    return LARGE_WEIGHT * masked_mean(cost, targets.expansion_known)


def hazard(outputs: HeadOutputs, targets: Targets) -> Tensor:
    """Compute the cross entropy of "contact within the horizon" over known horizons."""
    steps = constant(HORIZONS_S, outputs.contact.device) / targets.interval_s[:, None]
    return masked_mean(_certain(CONTACT.cdf(outputs.contact, steps), targets.hazard),
                       targets.hazard_known)


def danger(outputs: HeadOutputs, targets: Targets) -> Tensor:
    """Cross entropy of what people call dangerous: a contact soon, or a way that is blocked."""
    soon = CONTACT.cdf(outputs.contact, targets.danger_s / targets.interval_s)
    blocked = CLEARANCE.cdf(outputs.clearance, APPROACH_M_S * targets.danger_s)
    return masked_mean(_certain(1 - (1 - soon) * (1 - blocked), targets.danger),
                       targets.danger_known)


# What heads are trained for beside the loss of their kind, by name (`HeadSpec.losses`).
LOSSES: dict[str, Callable[[HeadOutputs, Targets], Tensor]] = {
    'large': large, 'hazard': hazard, 'danger': danger}


def _certain(p: Tensor, truth: Tensor) -> Tensor:
    p = p.clamp(PROBABILITY_FLOOR, 1 - PROBABILITY_FLOOR)
    return -(truth * p.log() + (1 - truth) * torch.log1p(-p))


def masked_mean(values: Tensor, known: Tensor) -> Tensor:
    """Mean of `values` where `known`; 0 when nothing is known."""
    weight = known.to(values.dtype)
    # `where` and not a product: unknown values may be anything, also infinite.
    return torch.where(known, values, 0.0).sum() / weight.sum().clamp(min=1.0)
