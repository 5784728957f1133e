# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Let a network answer clips with known truth, compute its figures, fit its calibration."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.lab.evaluation.metrics import (
    ClipOutcome,
    clip_figures,
    expected_calibration_error,
    roc_auc,
)
from vjepa_ros.lab.evaluation.world import truth_of
from vjepa_ros.lab.report.measurement import json_safe
from vjepa_ros.lab.training.network import Batch, Network, hazard, loss_of
from vjepa_ros.lab.world.clips import HORIZONS_S, Targets, joined
from vjepa_ros.model.head_specs import (
    Binary,
    CLEARANCE,
    CONTACT,
    Calibration,
    HEADS,
    HeadOutputs,
    HeadSpec,
    Laplace,
)

BLOCKED_M = (1.0, 2.0, 3.0)    # a way is called blocked below these distances


@dataclass(frozen=True)
class Answers:
    """Uncalibrated outputs of a network for N clips, and their truth, on the CPU."""

    outputs: HeadOutputs
    targets: Targets


def answer(network: Network, batches: Iterable[Batch]) -> Answers:
    """Let a network answer all clips of some batches, which may be made on the way."""
    outputs: dict[str, list[Tensor]] = {}
    targets = []
    network.eval()
    with torch.no_grad():
        for batch in batches:
            for name, value in vars(network.answers(batch)).items():
                outputs.setdefault(name, []).append(value.float().cpu())
            targets.append(batch.targets.to('cpu'))
    return Answers(HeadOutputs(**{name: torch.cat(parts) for name, parts in outputs.items()}),
                   joined(targets))


def figures(answers: Answers, calibration: Calibration | None = None) -> dict[str, Any]:
    """Compute the figures of `vjepa_ros.lab.evaluation.metrics`, with the calibration applied."""
    said, truth = answers.outputs, answers.targets
    if calibration is not None:
        said = calibration.apply(said)
    dt = truth.interval_s[:, None, None]
    outcome = ClipOutcome(
        hazard=_array(CONTACT.cdf(said.contact, torch.tensor(HORIZONS_S) / dt[:, 0])),
        time_to_contact=_array(CONTACT.expected_log(said.contact).exp() * truth.interval_s),
        looming=_array(said.expansion / dt), moving=_array(said.moving.sigmoid()))
    # How well a blocked path is told from a free one, by distance.
    limits = torch.tensor(BLOCKED_M).expand(len(said.clearance), -1)
    p = _array(CLEARANCE.cdf(said.clearance, limits))
    blocked = _array(truth.clearance_m[:, None] <= limits) > 0.5
    auc = {f'{limit:g}': roc_auc(p[:, i], blocked[:, i]) for i, limit in enumerate(BLOCKED_M)}
    return {**clip_figures(truth_of(truth), outcome), **json_safe({
        'clearance_auc': auc,
        'clearance_calibration_error': expected_calibration_error(p, blocked)})}


def headline(values: dict[str, Any]) -> dict[str, float]:
    auc = values['collision_auc']
    chosen = {'auc_1s': auc['1'], 'auc_3s': auc['3'], 'looming_r2': values['looming_r2'],
              'expansion_r2': values['expansion_r2'], 'moving_auc': values['moving_auc'],
              'ece': values['expected_calibration_error'],
              'clear_2m': values['clearance_auc']['2'],
              'ttc_error': values['ttc_median_relative_error']}
    return {name: float('nan') if value is None else value for name, value in chosen.items()}


def _array(values: Tensor) -> np.ndarray:
    return values.double().numpy()


STEPS = 60
LEAST, MOST = 0.05, 20.0     # of temperatures and factors: beyond them the data say nothing


def calibrate(answers: Answers) -> Calibration:
    """Fit the calibration under which the answers are most likely; neutral where nothing tells."""
    return Calibration({name: _fitted(spec, answers) for name, spec in HEADS.items()})


def _fitted(spec: HeadSpec, answers: Answers) -> tuple[float, ...]:
    """Return the factor on a stated error, or factor and offset of logits."""
    outputs, targets = answers.outputs, answers.targets
    said, truth = getattr(outputs, spec.name), getattr(targets, spec.target)
    known, hazards = getattr(targets, spec.known), 'hazard' in spec.losses
    if isinstance(spec.kind, Laplace):
        if not known.any():
            return (1.0,)
        stated = getattr(outputs, spec.kind.log_scale)[known].exp()
        # The most likely factor on the scale of a Laplace distribution.
        return (_within(float(((said - truth)[known].abs() / stated).mean())),)
    yes_or_no = isinstance(spec.kind, Binary)
    happened = truth[known] if yes_or_no else truth.isinf()[known].float()
    if hazards:
        happened = targets.hazard[targets.hazard_known]
    if not ((happened > 0.5).any() and (happened < 0.5).any()):
        return 1.0, 0.0
    last = torch.zeros(said.shape[-1])     # the bias of bins is that of the last one
    last[-1] = 1.0

    def loss(a: Tensor, b: Tensor) -> Tensor:
        logits = a.exp() * said + b if yes_or_no else said / a.exp() + b * last
        moved = HeadOutputs(**vars(outputs) | {spec.name: logits})
        value = loss_of(spec, moved, targets)
        return value + hazard(moved, targets) if hazards else value

    log_factor, bias = _fit(loss)
    return _within(math.exp(log_factor)), bias


def _fit(loss: Callable[[Tensor, Tensor], Tensor]) -> tuple[float, float]:
    """Minimise a loss over two numbers from (0, 0) on; (0, 0) if none is better."""
    values = torch.zeros(2, requires_grad=True)
    optimizer = torch.optim.LBFGS([values], max_iter=STEPS, line_search_fn='strong_wolfe')

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss(values[0], values[1])
        value.backward()
        return value

    before = float(optimizer.step(closure).detach())
    after = float(loss(values[0], values[1]).detach())
    if not (math.isfinite(after) and after <= before):
        return 0.0, 0.0
    first, second = values.detach().tolist()
    return first, second


def _within(value: float) -> float:
    return min(MOST, max(LEAST, value))
