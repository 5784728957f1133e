# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The registry of learned heads: what each computes, how it is calibrated, trained and stored.

A head is one entry of `HEADS`. From it follow the layers of `vjepa_ros.model.heads.Heads`, the
calibration, the description in a weights file, what a session returns (`HeadArrays`), the outputs
of an ONNX graph, the losses of training and the fit of the calibration. A new head touches at most
four files:

1. this one, for its entry;
2. `vjepa_ros.lab.world.targets`, for a target that is not there yet;
3. `vjepa_ros.lab.training.losses`, for a loss beside that of its kind;
4. `vjepa_ros.perception.learned_field`, for what perception makes of it.

Every weights file holds the heads of format 1. All others are `optional`: a file without one loads
as before, its outputs lack that head, and training adds it (`Heads.complete`).

B clips, T' tubelets, Hp x Wp patches, K bins.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from vjepa_ros.model.bins import LogBins

CONTACT = LogBins(0.25, 120.0, 20)  # time until something enters the robot's volume [intervals]
CLEARANCE = LogBins(0.25, 16.0, 12)  # free way ahead of the robot [m]
CONTACT_BINS, CONTACT_EDGES = CONTACT.count, CONTACT.edges
CLEARANCE_BINS, CLEARANCE_EDGES = CLEARANCE.count, CLEARANCE.edges

EXPANSION_UNIT = 0.05  # a typical change of size per frame interval; one unit of the raw output
MIN_SCALE = 2e-4  # no patch is known better than this [per frame interval]
RARE = -2.0  # first logit of what few patches are
LARGEST_LOG = 20.0  # a scale beyond exp(20) says no more than that nothing is known
TRUNK = 'dense'  # layer that the dense heads of format 1 share


class HeadOutputs:
    """What the heads give for B clips: one tensor per output, by name, in the order of `HEADS`.

    Attributes
    ----------
    expansion : Tensor
        (B, Hp, Wp) looming rate times frame interval, -Zdot/Z * dt [1]; positive: closing in.
    log_scale : Tensor
        (B, Hp, Wp) log of the scale of a Laplace distribution around `expansion`.
    moving : Tensor
        (B, Hp, Wp) logit: the surface moves by itself.
    course : Tensor
        (B, Hp, Wp) logit: the surface will enter the robot's volume at constant velocities.
    contact : Tensor
        (B, K+1) logits of the time until anything enters the robot's volume, over the bins
        between `CONTACT_EDGES`; the last bin is: later, or never.
    clearance : Tensor
        (B, C+1) logits of the distance to the nearest surface in the corridor straight ahead of
        the robot, moving or not, over the bins between `CLEARANCE_EDGES`; the last bin is:
        farther, or free.

    """

    if TYPE_CHECKING:
        def __getattr__(self, name: str) -> Tensor: ...

    # Not a SimpleNamespace, which torch.compile cannot trace.
    def __init__(self, **outputs: Tensor):
        for name, value in outputs.items():
            setattr(self, name, value)


@dataclass(frozen=True)
class Laplace:
    """A quantity with the scale of its error, two channels.

    Attributes
    ----------
    unit : float
        Of the raw output, and the first scale.
    least : float
        Least scale.
    log_scale, scale : str
        Names of the logarithm among `HeadOutputs`, and of the scale among the arrays.

    """

    unit: float
    least: float
    log_scale: str
    scale: str

    numbers = ('scale',)  # of the calibration
    neutral = (1.0,)
    factors = (True,)  # which of them must be above 0
    channels = 2

    @property
    def start(self) -> tuple[float, ...]:
        """First bias of each channel."""
        return (0.0, math.log(self.unit))

    def outputs(self, name: str, raw: Tensor) -> dict[str, Tensor]:
        """Channels (..., 2) to the outputs of a head."""
        value, spread = raw.unbind(-1)
        # exp(spread) + least, without leaving the logarithm.
        log_scale = torch.logaddexp(spread, spread.new_full((), math.log(self.least)))
        return {name: self.unit * value, self.log_scale: log_scale}

    def calibrated(self, name: str, raw: HeadOutputs, scale: float) -> dict[str, Tensor]:
        """Outputs with a factor on the stated scale; the value stays."""
        return {name: getattr(raw, name),
                self.log_scale: getattr(raw, self.log_scale) + math.log(scale)}

    def arrays(self, name: str, outputs: HeadOutputs) -> dict[str, Tensor]:
        """Value and scale, from calibrated outputs."""
        log_scale = getattr(outputs, self.log_scale)
        return {name: getattr(outputs, name),
                self.scale: log_scale.clamp(max=LARGEST_LOG).exp()}


@dataclass(frozen=True)
class Binary:
    """A yes-or-no question, one logit.

    Attributes
    ----------
    first : float
        First logit.

    """

    first: float = 0.0

    numbers = ('a', 'b')
    neutral = (1.0, 0.0)
    factors = (True, False)
    channels = 1

    @property
    def start(self) -> tuple[float, ...]:
        """First bias of each channel."""
        return (self.first,)

    def outputs(self, name: str, raw: Tensor) -> dict[str, Tensor]:
        """Channels (..., 1) to the outputs of a head."""
        return {name: raw[..., 0]}

    def calibrated(self, name: str, raw: HeadOutputs, a: float, b: float) -> dict[str, Tensor]:
        """Factor and offset of the logit."""
        return {name: a * getattr(raw, name) + b}

    def arrays(self, name: str, outputs: HeadOutputs) -> dict[str, Tensor]:
        """Probability, from calibrated outputs."""
        return {name: getattr(outputs, name).sigmoid()}


@dataclass(frozen=True)
class Binned:
    """A distribution over bins of a positive quantity, the last of which is: beyond, or never.

    Attributes
    ----------
    bins : LogBins
        The bins.
    per_interval : bool
        Whether they count in frame intervals, and the target in seconds.

    """

    bins: LogBins
    per_interval: bool = False

    numbers = ('temperature', 'bias')
    neutral = (1.0, 0.0)
    factors = (True, False)

    @property
    def channels(self) -> int:
        """One for each bin."""
        return self.bins.count + 1

    @property
    def start(self) -> tuple[float, ...]:
        """First bias of each channel."""
        return (0.0,) * self.channels

    def outputs(self, name: str, raw: Tensor) -> dict[str, Tensor]:
        """Channels (..., K+1) to the outputs of a head."""
        return {name: raw}

    def calibrated(self, name: str, raw: HeadOutputs, temperature: float,
                   bias: float) -> dict[str, Tensor]:
        """All logits over the temperature, then the bias on the last one."""
        scaled = getattr(raw, name) / temperature
        return {name: torch.cat((scaled[..., :-1], scaled[..., -1:] + bias), dim=-1)}

    def arrays(self, name: str, outputs: HeadOutputs) -> dict[str, Tensor]:
        """Probability of each bin, from calibrated outputs."""
        return {name: getattr(outputs, name).softmax(-1)}


@dataclass(frozen=True)
class HeadSpec:
    """One learned head.

    Attributes
    ----------
    name : str
        Of its value among outputs and arrays, and of its calibration in a weights file.
    kind : Laplace, Binary or Binned
        Channels, activation, calibration, and with it the loss.
    pooled : bool
        One answer for the clip, else one for each patch.
    target, known : str
        Fields of `vjepa_ros.lab.world.targets.Targets`: the truth and where it is known.
    losses : tuple of str
        Further losses by name, see `vjepa_ros.lab.training.losses.LOSSES`.
    layer : str
        `TRUNK` for the dense heads of format 1; '' for a layer with the name of the head.
    optional : bool
        Whether a weights file may lack it.

    """

    name: str
    kind: Laplace | Binary | Binned
    pooled: bool
    target: str
    known: str
    losses: tuple[str, ...] = ()
    layer: str = ''
    optional: bool = True

    @property
    def own_layer(self) -> str:
        """Name of the linear layer of its own; '' where it shares one."""
        return '' if self.layer == TRUNK else self.name

    def array_shapes(self, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
        """Shapes of its arrays for one clip of so many patches, by name."""
        place = () if self.pooled else (rows, columns)
        if isinstance(self.kind, Binned):
            return {self.name: (*place, self.kind.channels)}
        names = (self.name, self.kind.scale) if isinstance(self.kind, Laplace) else (self.name,)
        return dict.fromkeys(names, place)


HEADS: dict[str, HeadSpec] = {spec.name: spec for spec in (
    HeadSpec('expansion', Laplace(EXPANSION_UNIT, MIN_SCALE, 'log_scale', 'scale'), False,
             'expansion', 'expansion_known', ('large',), TRUNK, optional=False),
    HeadSpec('moving', Binary(RARE), False, 'moving', 'moving_known', (), TRUNK, optional=False),
    HeadSpec('course', Binary(RARE), False, 'course', 'course_known', (), TRUNK, optional=False),
    HeadSpec('contact', Binned(CONTACT, per_interval=True), True, 'contact_s', 'contact_known',
             ('hazard',), optional=False),
    HeadSpec('clearance', Binned(CLEARANCE), True, 'clearance_m', 'clearance_known',
             ('danger',), optional=False))}


def specs_of(names: Iterable[str]) -> tuple[HeadSpec, ...]:
    """The heads with these names that are registered, in the order of `HEADS`."""
    wanted = set(names)
    return tuple(spec for spec in HEADS.values() if spec.name in wanted)


def array_names(specs: Iterable[HeadSpec]) -> tuple[str, ...]:
    """Names of the arrays of heads, in their order."""
    return tuple(name for spec in specs for name in spec.array_shapes(1, 1))


def to_arrays(outputs: HeadOutputs) -> dict[str, Tensor]:
    """Calibrated outputs (logits, logarithms) as numbers to use, by name."""
    return {name: value for spec in specs_of(vars(outputs))
            for name, value in spec.kind.arrays(spec.name, outputs).items()}


def contact_bin(intervals: Tensor) -> Tensor:
    """Bin of a time to contact over frame interval (inf: never), see `LogBins.index`."""
    return CONTACT.index(intervals)


def contact_cdf(logits: Tensor, intervals: Tensor) -> Tensor:
    """Probability of contact within times over frame interval, see `LogBins.cumulative`."""
    return CONTACT.cumulative(logits.float().softmax(-1), intervals)


def expected_log_contact(logits: Tensor) -> Tensor:
    """Mean of ln(time to contact / frame interval), given that there is contact: (B,)."""
    return CONTACT.expected_log(logits)


def clearance_bin(metres: Tensor) -> Tensor:
    """Bin of a clearance [m] (inf: free), see `LogBins.index`."""
    return CLEARANCE.index(metres)


def clearance_cdf(logits: Tensor, metres: Tensor) -> Tensor:
    """Probability of less clearance than distances [m], see `LogBins.cumulative`."""
    return CLEARANCE.cumulative(logits.float().softmax(-1), metres)
