# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The registry of learned heads: what each computes, how it is calibrated, trained and stored.

B clips, T' tubelets, Hp x Wp patches, K bins.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class LogBins:
    """K bins evenly spaced in the logarithm, and one for what lies beyond."""

    # first, last: outer edges, above 0, in the unit of the quantity
    first: float
    last: float
    count: int  # K

    @property
    def step(self) -> float:  # in the natural logarithm
        return math.log(self.last / self.first) / self.count

    @property
    def edges(self) -> tuple[float, ...]:
        return tuple(self.first * math.exp(self.step * k) for k in range(self.count + 1))

    def index(self, values: Tensor) -> Tensor:
        return self._place(values).long()

    def cdf(self, logits: Tensor, values: Tensor) -> Tensor:
        """Compute the probability (B, ...) of being below values (B,) or (B, M) above 0."""
        probability = logits.float().softmax(-1)
        place = self._place(values)
        lower = place.floor().clamp(max=self.count - 1)
        # Rounding may push the sum of probabilities slightly above 1, which is refused later.
        until = F.pad(probability[:, :-1].cumsum(-1).clamp(max=1.0), (1, 0))  # B K+1, at the edges
        columns = lower.long().view(len(probability), -1)
        below, above = until.gather(1, columns), until.gather(1, columns + 1)
        return below.lerp(above, (place - lower).view_as(below)).view_as(values)

    def expected_log(self, logits: Tensor) -> Tensor:
        """Compute the mean logarithm, given that it is not beyond: (B, K+1) -> (B,)."""
        probability = logits.float()[:, :-1].softmax(-1)
        middle = torch.arange(self.count, device=logits.device) + 0.5
        return probability @ (math.log(self.first) + self.step * middle)

    def _place(self, values: Tensor) -> Tensor:
        return ((values.float().log() - math.log(self.first)) / self.step).clamp(0, self.count)


CONTACT = LogBins(0.25, 120.0, 20)  # time until something enters the robot's volume [intervals]
CLEARANCE = LogBins(0.25, 16.0, 12)  # free way ahead of the robot [m]
CONTACT_BINS, CONTACT_EDGES = CONTACT.count, CONTACT.edges
CLEARANCE_BINS, CLEARANCE_EDGES = CLEARANCE.count, CLEARANCE.edges

EXPANSION_UNIT = 0.05  # a typical change of size per frame interval; one unit of the raw output
MIN_SCALE = 2e-4  # no patch is known better than this [per frame interval]
RARE = -2.0  # first logit of what few patches are
LARGEST_LOG = 20.0  # a scale beyond exp(20) says no more than that nothing is known


@dataclass(eq=False)
class HeadOutputs:
    """Outputs of the heads for B clips, in the order of `HEADS`: see also `HeadArrays`."""

    expansion: Tensor   # (B, Hp, Wp) looming rate times frame interval, -Zdot/Z * dt [1]
    log_scale: Tensor   # (B, Hp, Wp) of the Laplace distribution around `expansion`
    moving: Tensor      # (B, Hp, Wp) logit: the surface moves by itself
    course: Tensor      # (B, Hp, Wp) logit: it will enter the robot's volume
    contact: Tensor     # (B, K+1) logits of the time until anything enters the robot's volume
    clearance: Tensor   # (B, C+1) logits of the distance to the nearest surface straight ahead


@dataclass(frozen=True)
class Laplace:
    """A quantity with the scale of its error, two channels; only the scale is calibrated."""

    unit: float         # of the raw output, and the first scale
    least: float        # least scale
    log_scale: str      # name of its logarithm among `HeadOutputs`
    scale: str          # name among the arrays

    numbers = ('scale',)  # of the calibration
    neutral = (1.0,)
    factors = (True,)  # which of them must be above 0
    channels = 2

    @property
    def start(self) -> tuple[float, ...]:
        return (0.0, math.log(self.unit))

    def outputs(self, name: str, raw: Tensor) -> dict[str, Tensor]:
        value, spread = raw.unbind(-1)
        # exp(spread) + least, without leaving the logarithm.
        log_scale = torch.logaddexp(spread, spread.new_full((), math.log(self.least)))
        return {name: self.unit * value, self.log_scale: log_scale}

    def calibrated(self, name: str, raw: HeadOutputs, scale: float) -> dict[str, Tensor]:
        return {name: getattr(raw, name),
                self.log_scale: getattr(raw, self.log_scale) + math.log(scale)}

    def arrays(self, name: str, outputs: HeadOutputs) -> dict[str, Tensor]:
        log_scale = getattr(outputs, self.log_scale)
        return {name: getattr(outputs, name),
                self.scale: log_scale.clamp(max=LARGEST_LOG).exp()}


@dataclass(frozen=True)
class Binary:
    """A yes-or-no question, one logit, which a factor and an offset calibrate."""

    first: float = 0.0  # first logit

    numbers = ('a', 'b')
    neutral = (1.0, 0.0)
    factors = (True, False)
    channels = 1

    @property
    def start(self) -> tuple[float, ...]:
        return (self.first,)

    def outputs(self, name: str, raw: Tensor) -> dict[str, Tensor]:
        return {name: raw[..., 0]}

    def calibrated(self, name: str, raw: HeadOutputs, a: float, b: float) -> dict[str, Tensor]:
        return {name: a * getattr(raw, name) + b}

    def arrays(self, name: str, outputs: HeadOutputs) -> dict[str, Tensor]:
        return {name: getattr(outputs, name).sigmoid()}


@dataclass(frozen=True)
class Binned:
    """A distribution over bins of a positive quantity, the last of which is: beyond, or never."""

    bins: LogBins  # the bins
    per_interval: bool = False  # whether they count in frame intervals, and the target in seconds

    numbers = ('temperature', 'bias')
    neutral = (1.0, 0.0)
    factors = (True, False)

    @property
    def channels(self) -> int:
        return self.bins.count + 1

    @property
    def start(self) -> tuple[float, ...]:
        return (0.0,) * self.channels

    def outputs(self, name: str, raw: Tensor) -> dict[str, Tensor]:
        return {name: raw}

    def calibrated(self, name: str, raw: HeadOutputs, temperature: float,
                   bias: float) -> dict[str, Tensor]:
        scaled = getattr(raw, name) / temperature
        return {name: torch.cat((scaled[..., :-1], scaled[..., -1:] + bias), dim=-1)}

    def arrays(self, name: str, outputs: HeadOutputs) -> dict[str, Tensor]:
        return {name: getattr(outputs, name).softmax(-1)}


@dataclass(frozen=True)
class HeadSpec:
    """One learned head."""

    name: str  # of its value among outputs and arrays, and of its calibration in a weights file
    kind: Laplace | Binary | Binned  # channels, activation, calibration, and with it the loss
    # One answer for the clip, by a layer of its own; else one for each patch, by a shared layer
    pooled: bool
    # The truth, and where it is known: fields of `vjepa_ros.lab.world.clips.Targets`
    target: str
    known: str
    losses: tuple[str, ...] = ()  # further ones, by name in `vjepa_ros.lab.training.network`

    def array_shapes(self, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of its arrays for one clip of so many patches, by name."""
        place = () if self.pooled else (rows, columns)
        if isinstance(self.kind, Binned):
            return {self.name: (*place, self.kind.channels)}
        names = (self.name, self.kind.scale) if isinstance(self.kind, Laplace) else (self.name,)
        return dict.fromkeys(names, place)


HEADS: dict[str, HeadSpec] = {spec.name: spec for spec in (
    HeadSpec('expansion', Laplace(EXPANSION_UNIT, MIN_SCALE, 'log_scale', 'scale'), False,
             'expansion', 'expansion_known', ('large',)),
    HeadSpec('moving', Binary(RARE), False, 'moving', 'moving_known'),
    HeadSpec('course', Binary(RARE), False, 'course', 'course_known'),
    HeadSpec('contact', Binned(CONTACT, per_interval=True), True, 'contact_s', 'contact_known',
             ('hazard',)),
    HeadSpec('clearance', Binned(CLEARANCE), True, 'clearance_m', 'clearance_known',
             ('danger',)))}


def array_names(specs: Iterable[HeadSpec]) -> tuple[str, ...]:
    """Return the names of the arrays of heads, in their order."""
    return tuple(name for spec in specs for name in spec.array_shapes(1, 1))


def to_arrays(outputs: HeadOutputs) -> dict[str, Tensor]:
    """Convert calibrated outputs (logits, logarithms) to values, by name."""
    arrays: dict[str, Tensor] = {}
    for name, spec in HEADS.items():
        arrays |= spec.kind.arrays(name, outputs)
    return arrays


@dataclass(frozen=True)
class Calibration:
    """Numbers that make probabilities and errors mean what they state, from held-out clips."""

    # By head, in the order of `HeadSpec.kind.numbers`: scale of the stated error (not of the
    # value) of a `Laplace`; factor a and offset b of the logit of a `Binary`; of a `Binned` the
    # temperature that its logits are divided by, and the bias that is then added to the last one.
    # A head that is not named is left as it is.
    numbers: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def __post_init__(self):
        for head, numbers in self.numbers.items():
            kind = HEADS[head].kind
            if len(numbers) != len(kind.numbers):
                raise ValueError(f'calibration {head} has {len(numbers)} numbers, but must '
                                 f'have {", ".join(kind.numbers)}')
            for name, value, factor in zip(kind.numbers, numbers, kind.factors, strict=True):
                if not (0 < value < math.inf if factor else math.isfinite(value)):
                    raise ValueError(f'calibration {head} {name} is {value}, but must be '
                                     f'{"above 0" if factor else "finite"}')

    def __getitem__(self, head: str) -> tuple[float, ...]:
        return self.numbers.get(head, HEADS[head].kind.neutral)

    def apply(self, raw: HeadOutputs) -> HeadOutputs:
        """Calibrate outputs, which stay logits and logarithms in their shapes."""
        outputs: dict[str, Tensor] = {}
        for name, spec in HEADS.items():
            outputs |= spec.kind.calibrated(name, raw, *self[name])
        return HeadOutputs(**outputs)

    def to_json(self) -> dict[str, dict[str, float]]:
        return {spec.name: dict(zip(spec.kind.numbers, self[spec.name], strict=True))
                for spec in HEADS.values()}

    @classmethod
    def from_json(cls, data: Mapping[str, Mapping[str, float]]) -> Calibration:
        """Read what `to_json` wrote (KeyError, TypeError or ValueError for anything else)."""
        return cls({spec.name: tuple(float(data[spec.name][name]) for name in spec.kind.numbers)
                    for spec in HEADS.values()})
