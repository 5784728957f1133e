# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Correct what heads say so that their probabilities and errors mean what they state."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from vjepa_ros.model.heads import HeadOutputs


@dataclass(frozen=True)
class Calibration:
    """A few numbers, fitted after training on clips that training did not see.

    Attributes
    ----------
    contact_temperature, contact_bias : float
        The contact logits are divided by the temperature; then the bias is added to the logit
        of the last bin (no contact).
    moving, course : tuple of float
        Factor and offset (a, b) of a logit.
    expansion_scale : float
        Factor on the scale (the stated error) of the expansion; not on the expansion.
    clearance_temperature, clearance_bias : float
        As those of contact; the last bin is that of a free way.

    Raises
    ------
    ValueError
        For a number that is not finite, or a temperature or factor not above 0.

    """

    contact_temperature: float = 1.0
    contact_bias: float = 0.0
    moving: tuple[float, float] = (1.0, 0.0)
    course: tuple[float, float] = (1.0, 0.0)
    expansion_scale: float = 1.0
    clearance_temperature: float = 1.0
    clearance_bias: float = 0.0

    def __post_init__(self):
        factors = {'contact_temperature': self.contact_temperature, 'moving a': self.moving[0],
                   'course a': self.course[0], 'expansion_scale': self.expansion_scale,
                   'clearance_temperature': self.clearance_temperature}
        for name, value in factors.items():
            if not 0 < value < math.inf:
                raise ValueError(f'calibration {name} is {value}, but must be above 0')
        offsets = (self.contact_bias, self.moving[1], self.course[1], self.clearance_bias)
        if not all(map(math.isfinite, offsets)):
            raise ValueError(f'calibration holds offsets that are not finite: {self}')

    def apply(self, raw: HeadOutputs) -> HeadOutputs:
        """Calibrated outputs; still logits and logarithms, in the shapes of `raw`."""
        return HeadOutputs(
            raw.expansion,
            raw.log_scale + math.log(self.expansion_scale),
            self.moving[0] * raw.moving + self.moving[1],
            self.course[0] * raw.course + self.course[1],
            _sharpen(raw.contact, self.contact_temperature, self.contact_bias),
            _sharpen(raw.clearance, self.clearance_temperature, self.clearance_bias))

    def to_json(self) -> dict[str, dict[str, float]]:
        """As stored in a file; `from_json` reads it back."""
        return {'contact': {'temperature': self.contact_temperature, 'bias': self.contact_bias},
                'moving': dict(zip('ab', self.moving, strict=True)),
                'course': dict(zip('ab', self.course, strict=True)),
                'expansion': {'scale': self.expansion_scale},
                'clearance': {'temperature': self.clearance_temperature,
                              'bias': self.clearance_bias}}

    @classmethod
    def from_json(cls, data: Mapping[str, Mapping[str, float]]) -> Calibration:
        """Read what `to_json` wrote (KeyError, TypeError or ValueError for anything else)."""
        return cls(float(data['contact']['temperature']), float(data['contact']['bias']),
                   (float(data['moving']['a']), float(data['moving']['b'])),
                   (float(data['course']['a']), float(data['course']['b'])),
                   float(data['expansion']['scale']), float(data['clearance']['temperature']),
                   float(data['clearance']['bias']))


def _sharpen(logits: Tensor, temperature: float, bias: float) -> Tensor:
    scaled = logits / temperature
    return torch.cat((scaled[..., :-1], scaled[..., -1:] + bias), dim=-1)
