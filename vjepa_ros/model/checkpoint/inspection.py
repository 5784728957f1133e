# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Report the content of a checkpoint without loading it, and load its predictor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from vjepa_ros.model.checkpoint.download import located
from vjepa_ros.model.checkpoint.files import (
    WeightsError,
    compare,
    files_sha256,
)
from vjepa_ros.model.checkpoint.layouts import (
    ACTIONS,
    ADAPTERS,
    AUTO,
    COLLISION,
    ENCODER,
    HEADS,
    PREDICTORS,
    PROBE,
    Part,
    choose_encoder,
    parts_of,
)
from vjepa_ros.model.checkpoint.load import (
    WeightsReport,
    report_of,
)
from vjepa_ros.model.checkpoint.metadata import Profile, profile_of
from vjepa_ros.model.checkpoint.networks import build, check_numbers, fill, variant_of, version_of
from vjepa_ros.model.checkpoint.readers import Opened, open_weights

PARAMETER = 'checkpoint'  # what errors call the file
# Other code, or none here, builds them.
REPORTED_ONLY = (HEADS, ADAPTERS, PROBE, COLLISION, ACTIONS)


@dataclass(frozen=True)
class PartReport:
    """One network in a checkpoint."""

    # name, kind, layout, dtype: see `Part`
    name: str
    kind: str
    layout: str
    dtype: str
    # variant, version: size and generation of an encoder; '' for others, and for a size that is
    # none of ours
    variant: str
    version: str
    # keys, parameters: tensors that are used, and numbers in them
    keys: int
    parameters: int
    # missing, unexpected, mismatched, ignored: parameters that prevent its use, and those that
    # are not needed
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    mismatched: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    problem: str = ''  # why there is no such network; '' if there is
    wrapper: str = ''  # see `Part`

    @property
    def complete(self) -> bool:
        """Whether it can be used."""
        return not (self.missing or self.unexpected or self.mismatched or self.problem)


@dataclass(frozen=True)
class Contents:
    """The content of a checkpoint."""

    path: str  # file or folder
    size: int  # bytes of its files with tensors
    sha256: str  # hash of its file, or of the names and hashes of several
    parts: tuple[PartReport, ...]  # its networks
    encoder: str  # name of the encoder that is taken by default; '' without one
    others: tuple[str, ...]  # what else is in it
    profile: Profile  # the clips that the weights were trained on, as far as it is known
    window: int = 0  # tubelets that a tubelet attends to in a block-causal encoder; 0 in others


def open_parts(path: str | Path) -> tuple[Opened, list[Part]]:
    """Open a checkpoint and find its networks; raises WeightsError."""
    opened = open_weights(located(path, PARAMETER), PARAMETER)
    return opened, parts_of(opened, PARAMETER)


def examine(path: str | Path) -> Contents:
    """Report the content of a checkpoint."""
    opened, parts = open_parts(path)
    encoder = None
    if any(part.kind == ENCODER for part in parts):
        encoder = choose_encoder(parts, AUTO, f"{PARAMETER} '{path}'")
    # Unknown groups of tensors may be anything, such as statistics of training.
    strange = [part.name for part in parts if not part.kind and part.name]
    reports = [_report(part) for part in parts if part.kind or not part.name]
    profile = profile_of(opened, parts, encoder)      # raises for a description that is damaged
    return Contents(str(opened.path), sum(file.stat().st_size for file in opened.files),
                    files_sha256(opened.files), tuple(reports),
                    '' if encoder is None else encoder.name or ENCODER,
                    (*strange, *opened.others), profile, profile.window)


def _report(part: Part) -> PartReport:
    variant = variant_of(part) if part.kind == ENCODER else None
    known = (part.name or part.kind, part.kind or 'unknown', part.layout, part.dtype,
             variant.name if variant else '', version_of(part) if part.kind == ENCODER else '',
             len(part.stored), sum(math.prod(one.shape) for one in part.stored.values()))
    if part.kind in REPORTED_ONLY:
        return PartReport(*known, ignored=part.ignored, wrapper=part.wrapper)
    try:
        check_numbers(part, 'it')
        want = build(part).state_dict()
    except ValueError as error:
        return PartReport(*known, ignored=part.ignored, problem=str(error), wrapper=part.wrapper)
    missing, unexpected, mismatched = map(tuple, compare(want, part.stored))
    return PartReport(*known, missing, unexpected, mismatched, part.ignored, wrapper=part.wrapper)


def load_network(path: str | Path, kind: str = 'predictor') -> tuple[nn.Module, WeightsReport]:
    """Load the predictor of a checkpoint, on the CPU in float32.

    Encoders come from `load_encoder`. Both return and log a report.
    """
    opened, parts = open_parts(path)
    name = f"{PARAMETER} file '{opened.path}'"
    part = next((one for one in parts if one.kind in PREDICTORS), None)
    if part is None or kind != 'predictor':
        there = ', '.join(f"'{part.name or part.kind}'" for part in parts if part.kind)
        raise WeightsError(f'{name} has no {kind} to load here, but {there or "nothing known"}; '
                           'give another file')
    try:
        network = build(part)
    except ValueError as error:
        raise WeightsError(f'{name}: {error}; download the file again') from error
    fill(network, part, f'{name} has a {part.kind} that is not complete', name)
    encoder = next((one for one in parts if one.kind == ENCODER), None)
    return network, report_of(opened, parts, part, profile_of(opened, parts, encoder))
