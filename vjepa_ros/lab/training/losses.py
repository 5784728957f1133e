# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Losses of the heads.

They ignore what is not known, are finite for all outputs of the heads, and never make the host
wait for the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from vjepa_ros.lab.world.targets import HORIZONS_S, Targets, constant
from vjepa_ros.model.head_specs import (
    Binary,
    Binned,
    CLEARANCE,
    CONTACT,
    EXPANSION_UNIT,
    HEADS,
    HeadOutputs,
    HeadSpec,
    Laplace,
)

LOG_SCALE = (-8.0, 3.0)   # of the Laplace distribution; narrower would let one patch rule a batch
EVENNESS = 0.5            # of the expansion, see `laplace`
LARGE_WEIGHT = 10.0       # of the squared error of the expansion, which decides for large ones
PROBABILITY_FLOOR = 1e-6
APPROACH_M_S = 1.0        # assumed speed where people label a path as blocked


def head_losses(outputs: HeadOutputs, targets: Targets) -> dict[str, Tensor]:
    """Mean losses of one batch by name, each a scalar in nats."""
    losses: dict[str, Tensor] = {}
    for spec in HEADS.values():
        losses[spec.name] = loss_of(spec, outputs, targets)
        losses |= {name: LOSSES[name](outputs, targets) for name in spec.losses}
    return losses


def loss_of(spec: HeadSpec, outputs: HeadOutputs, targets: Targets) -> Tensor:
    """Return the loss of a head that follows from its kind."""
    said, kind = getattr(outputs, spec.name), spec.kind
    truth, known = getattr(targets, spec.target), getattr(targets, spec.known)
    if isinstance(kind, Laplace):
        return laplace(said, getattr(outputs, kind.log_scale), truth, known, EVENNESS, kind.unit)
    if isinstance(kind, Binary):
        return binary(said, truth, known)
    return binned(said, truth, known, kind, targets.interval_s)


def laplace(mean: Tensor, log_scale: Tensor, truth: Tensor, known: Tensor,
            evenness: float = 0.0, unit: float = EXPANSION_UNIT) -> Tensor:
    """Negative log likelihood of `truth` under a Laplace distribution, over known values."""
    log_scale = log_scale.float().clamp(*LOG_SCALE)
    error = (mean.float() - truth).abs()
    cost = error * torch.exp(-log_scale) + log_scale + math.log(2.0)
    pull = (log_scale.detach() - math.log(unit)).mul(evenness).exp()
    # The value stays the likelihood, which can be followed over a run; the gradient is scaled.
    return masked_mean(cost.detach() + pull * (cost - cost.detach()), known)


def squared(mean: Tensor, truth: Tensor, known: Tensor) -> Tensor:
    """Half of the squared error over known values.

    A Laplace likelihood is best at the median, which lies below the mean where a surface may be
    near: without this, the strongest looming is underestimated.
    """
    return masked_mean(F.mse_loss(mean.float(), truth, reduction='none') / 2, known)


def binary(logit: Tensor, truth: Tensor, known: Tensor) -> Tensor:
    """Compute the cross entropy of a binary output over known values."""
    return masked_mean(
        F.binary_cross_entropy_with_logits(logit.float(), truth, reduction='none'), known)


def binned(logits: Tensor, truth: Tensor, known: Tensor, kind: Binned,
           interval_s: Tensor) -> Tensor:
    """Cross entropy of the bin that holds a value (inf: none), over known values."""
    if kind.per_interval:
        truth = truth / interval_s.view(-1, *[1] * (truth.ndim - 1))
    cost = F.cross_entropy(logits.float().flatten(0, -2), kind.bins.index(truth).flatten(),
                           reduction='none')
    return masked_mean(cost.view_as(truth), known)


def large(outputs: HeadOutputs, targets: Targets) -> Tensor:
    """Squared error of the expansion, which decides for large ones."""
    return LARGE_WEIGHT * squared(outputs.expansion, targets.expansion, targets.expansion_known)


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
