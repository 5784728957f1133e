# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Fit the calibration of the heads on clips that training did not see."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from vjepa_ros.lab.training.export.validation import Answers
from vjepa_ros.lab.training.losses import clearance, contact, hazard
from vjepa_ros.model.calibration import Calibration

STEPS = 60
LEAST, MOST = 0.05, 20.0     # of temperatures and factors: beyond them the data say nothing


def calibrate(answers: Answers) -> Calibration:
    """The calibration under which the answers are most likely.

    Temperature and bias of the bins of contact and clearance, factor and offset of moving and
    course, and the scale of the error of the expansion. What the data do not hold (no moving
    patch at all, say) keeps its neutral value.
    """
    outputs, targets = answers.outputs, answers.targets
    contact_t, contact_b = _sharpness(
        outputs.contact, targets.hazard[targets.hazard_known],
        lambda logits: contact(logits, targets) + hazard(logits, targets))
    free = targets.clearance_m.isinf()[targets.clearance_known].float()
    clear_t, clear_b = _sharpness(outputs.clearance, free,
                                  lambda logits: clearance(logits, targets))
    return Calibration(
        contact_temperature=contact_t, contact_bias=contact_b,
        clearance_temperature=clear_t, clearance_bias=clear_b,
        moving=_platt(outputs.moving, targets.moving, targets.moving_known),
        course=_platt(outputs.course, targets.course, targets.course_known),
        expansion_scale=_scale(answers))


def _sharpness(logits: Tensor, happened: Tensor,
               loss: Callable[[Tensor], Tensor]) -> tuple[float, float]:
    """Temperature of all bins and bias of the last one."""
    if not _both(happened):
        return 1.0, 0.0
    last = torch.zeros(logits.shape[-1])
    last[-1] = 1.0
    log_t, bias = _fit(lambda a, b: loss(logits / a.exp() + b * last))
    return _within(math.exp(log_t)), bias


def _platt(logits: Tensor, truth: Tensor, known: Tensor) -> tuple[float, float]:
    logits, truth = logits[known], truth[known]
    if not _both(truth):
        return 1.0, 0.0
    log_a, b = _fit(lambda a, b: F.binary_cross_entropy_with_logits(a.exp() * logits + b, truth))
    return _within(math.exp(log_a)), b


def _scale(answers: Answers) -> float:
    known = answers.targets.expansion_known
    if not known.any():
        return 1.0
    error = (answers.outputs.expansion - answers.targets.expansion)[known].abs()
    # The most likely factor on the scale of a Laplace distribution.
    return _within(float((error / answers.outputs.log_scale[known].exp()).mean()))


def _fit(loss: Callable[[Tensor, Tensor], Tensor]) -> tuple[float, float]:
    """The two numbers, from (0, 0) on, that make a loss least; (0, 0) if none is better."""
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


def _both(labels: Tensor) -> bool:
    return bool((labels > 0.5).any()) and bool((labels < 0.5).any())


def _within(value: float) -> float:
    return min(MOST, max(LEAST, value))
