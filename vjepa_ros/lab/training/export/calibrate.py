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
from vjepa_ros.lab.training.losses import hazard, loss_of
from vjepa_ros.model.calibration import Calibration
from vjepa_ros.model.head_specs import Binary, HeadOutputs, HeadSpec, Laplace, specs_of

STEPS = 60
LEAST, MOST = 0.05, 20.0     # of temperatures and factors: beyond them the data say nothing


def calibrate(answers: Answers) -> Calibration:
    """The calibration under which the answers are most likely.

    Temperature and bias of bins, factor and offset of a yes-or-no question, and the scale of the
    stated error of a quantity. What the data do not hold (no moving patch at all, say) keeps its
    neutral value.
    """
    return Calibration({spec.name: _fitted(spec, answers)
                        for spec in specs_of(vars(answers.outputs))})


def _fitted(spec: HeadSpec, answers: Answers) -> tuple[float, ...]:
    outputs, targets = answers.outputs, answers.targets
    said, truth = getattr(outputs, spec.name), getattr(targets, spec.target)
    known = getattr(targets, spec.known)
    if isinstance(spec.kind, Laplace):
        return (_scale(said, getattr(outputs, spec.kind.log_scale), truth, known),)
    if isinstance(spec.kind, Binary):
        return _platt(said, truth, known)
    hazards = 'hazard' in spec.losses
    happened = (targets.hazard[targets.hazard_known] if hazards
                else truth.isinf()[known].float())

    def loss(logits: Tensor) -> Tensor:
        moved = HeadOutputs(**vars(outputs) | {spec.name: logits})
        value = loss_of(spec, moved, targets)
        return value + hazard(moved, targets) if hazards else value

    return _sharpness(said, happened, loss)


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


def _scale(said: Tensor, log_scale: Tensor, truth: Tensor, known: Tensor) -> float:
    if not known.any():
        return 1.0
    error = (said - truth)[known].abs()
    # The most likely factor on the scale of a Laplace distribution.
    return _within(float((error / log_scale[known].exp()).mean()))


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
