# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Correct what heads say so that their probabilities and errors mean what they state."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from vjepa_ros.model.head_specs import HEADS, HeadOutputs, specs_of


@dataclass(frozen=True)
class Calibration:
    """A few numbers, fitted after training on clips that training did not see.

    Attributes
    ----------
    numbers : mapping of str to tuple of float
        By head, in the order of `HeadSpec.kind.numbers`: scale of the stated error (not of the
        value) of a `Laplace`; factor a and offset b of the logit of a `Binary`; of a `Binned` the
        temperature that its logits are divided by, and the bias that is then added to the last
        one. A head that is not named is left as it is.

    Raises
    ------
    ValueError
        For a number that is not finite, or a temperature or factor not above 0.

    """

    numbers: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def __post_init__(self):
        for spec in specs_of(self.numbers):
            numbers = self.numbers[spec.name]
            if len(numbers) != len(spec.kind.numbers):
                raise ValueError(f'calibration {spec.name} has {len(numbers)} numbers, but must '
                                 f'have {", ".join(spec.kind.numbers)}')
            for name, value, factor in zip(spec.kind.numbers, numbers, spec.kind.factors,
                                           strict=True):
                if not (0 < value < math.inf if factor else math.isfinite(value)):
                    raise ValueError(f'calibration {spec.name} {name} is {value}, but must be '
                                     f'{"above 0" if factor else "finite"}')

    def __getitem__(self, head: str) -> tuple[float, ...]:
        return self.numbers.get(head, HEADS[head].kind.neutral)

    def apply(self, raw: HeadOutputs) -> HeadOutputs:
        """Calibrated outputs; still logits and logarithms, in the shapes of `raw`."""
        return HeadOutputs(**{
            name: value for spec in specs_of(vars(raw))
            for name, value in spec.kind.calibrated(spec.name, raw, *self[spec.name]).items()})

    def to_json(self) -> dict[str, dict[str, float]]:
        """As stored in a file; `from_json` reads it back."""
        return {spec.name: dict(zip(spec.kind.numbers, self[spec.name], strict=True))
                for spec in HEADS.values()
                if not spec.optional or spec.name in self.numbers}

    @classmethod
    def from_json(cls, data: Mapping[str, Mapping[str, float]]) -> Calibration:
        """Read what `to_json` wrote (KeyError, TypeError or ValueError for anything else)."""
        return cls({spec.name: tuple(float(data[spec.name][name]) for name in spec.kind.numbers)
                    for spec in HEADS.values() if not spec.optional or spec.name in data})
