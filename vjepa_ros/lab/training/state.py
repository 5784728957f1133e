# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Write and read the state of a run, so that it can be continued exactly."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from vjepa_ros.lab.training.config import TrainConfig
from vjepa_ros.model.checkpoint.files import FOREIGN

FORMAT = 1
FILE = 'state.pt'
log = logging.getLogger(__name__)


class StateError(ValueError):
    """The state of a run is damaged or belongs to another run."""


@dataclass
class RunState:
    """Everything that continuing a run needs."""

    config: dict[str, Any]  # options of the run
    # network, average, optimizer: trained parameters, their moving average, and the state of the
    # optimiser
    network: dict[str, Any]
    average: dict[str, Any]
    optimizer: dict[str, Any]
    # step, clips: done so far; `clips` over all processes
    step: int = 0
    clips: int = 0
    seconds: float = 0.0  # spent on training so far
    history: list[dict[str, Any]] = field(default_factory=list)  # what was reported so far
    # When, where and how long each call of the run worked
    calls: list[dict[str, Any]] = field(default_factory=list)


def write_state(folder: Path, state: RunState) -> Path:
    """Write the state; a crash while writing leaves the old one in place."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    fresh = path.with_suffix('.new')
    torch.save({'format': FORMAT, **vars(state)}, fresh)
    os.replace(fresh, path)
    log.info("step %d written to '%s'", state.step, path)
    return path


def has_state(folder: Path) -> bool:
    """Whether a run can be continued there."""
    return (folder / FILE).is_file()


def read_state(folder: Path) -> RunState:
    """Read the state of the run in a folder, on the CPU."""
    path = folder / FILE
    if not path.is_file():
        raise StateError(f"there is no run to continue in '{folder}' (no {FILE})")
    try:
        values = torch.load(path, map_location='cpu', weights_only=True)
    except FOREIGN as error:
        raise StateError(f"'{path}' cannot be read: {type(error).__name__}: {error}; remove it to "
                         'begin anew') from error
    if not isinstance(values, dict) or values.get('format') != FORMAT:
        raise StateError(f"'{path}' is not a state of format {FORMAT}")
    values.pop('format')
    try:
        return RunState(**values)
    except TypeError as error:
        raise StateError(f"'{path}' is damaged: {error}; remove it to begin anew") from error


def saved_config(state: RunState) -> TrainConfig:
    """Options of a saved run."""
    return TrainConfig.from_dict(state.config)
