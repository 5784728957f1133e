# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Match the sources of a node to the cameras that a launch file names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vjepa_ros.ros.common.parameter import CAMERAS, Param
from vjepa_ros.ros.parameter_file import read_file, values_of

TEXTS, TEXT = re.compile(r'cameras?|sources|message|.+\.topic'), Param('', str, '', '')


def sources_for(cameras: Sequence[str], node: str, argument: str, file: Path,
                of_package: bool, namespace: str | None = None) -> list[str]:
    """Return the parameter `sources` for the cameras of the perception node.

    A single camera is taken with the file of the package, by which it looks forward. The
    directions of several cameras only a file can give, and a source without a camera would stop
    the robot forever.

    `namespace`: of the node; None: the one that the file names.
    """
    if not cameras:
        return []
    values = parameters_in(file, node, namespace)
    sources = values.get('sources', CAMERAS)
    unheard = [name for name in sources
               if name not in cameras and not values.get(f'{name}.topic')]
    if not unheard:
        return []
    if of_package and len(cameras) == 1:
        return list(cameras)
    raise RuntimeError(
        f"{node} would listen to {', '.join(unheard)} ({argument} is '{file}'), but the "
        f"perception node runs {', '.join(cameras)}: give a {argument} with sources: "
        f"[{', '.join(cameras)}] and where each of them looks")


def cameras_in(file: Path, namespace: str | None = None) -> list[str]:
    """Return the cameras of the perception node in a parameter file; empty: it names none."""
    cameras = parameters_in(file, 'vjepa_node', namespace).get('cameras', CAMERAS)
    return [] if isinstance(cameras, str) else list(cameras)


def parameters_in(file: Path, node: str, namespace: str | None = None) -> dict[str, Any]:
    """Return the parameters of a node in a file by their full names.

    `namespace`: its namespace; None: the one that the file names.
    """
    try:
        return values_of(read_file(file, _row), node, namespace) or {}
    except ValueError as error:
        raise RuntimeError(str(error)) from error


def _row(name: str) -> Param | None:
    """Return a row for the texts that launch files read; those of the nodes would load PyTorch."""
    return TEXT if TEXTS.fullmatch(name) else None
