# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Match the sources of a node to the cameras that a launch file names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from vjepa_ros.ros.common.parameter import CAMERAS


def sources_for(cameras: Sequence[str], node: str, argument: str, file: Path,
                of_package: bool) -> list[str]:
    """Return the parameter `sources` for the cameras of the perception node.

    A single camera is taken with the file of the package, by which it looks forward. The
    directions of several cameras only a file can give, and a source without a camera would stop
    the robot forever.

    Parameters
    ----------
    cameras
        Names of the cameras of the perception node; empty: unknown.
    node
        Executable of the node with the sources.
    argument
        Launch argument of its parameter file, for the error.
    file
        That file.
    of_package
        Whether it is the file of the package rather than the user's.

    Returns
    -------
    list of str
        Empty where the values of the file apply.

    Raises
    ------
    RuntimeError
        With the remedy, when the file names cameras that do not exist.
    """
    if not cameras:
        return []
    values = parameters_in(file, node)
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


def cameras_in(file: Path) -> list[str]:
    """Return the cameras of the perception node in a parameter file.

    Empty where they are a substitution, which only the launch can resolve.
    """
    cameras = parameters_in(file, 'vjepa_node').get('cameras', CAMERAS)
    return [] if isinstance(cameras, str) else list(cameras)


def parameters_in(file: Path, node: str) -> dict[str, Any]:
    """Return the parameters of a node in a file by their full names."""
    found: dict[str, Any] = {}
    for name, content in (yaml.safe_load(file.read_text(encoding='utf-8')) or {}).items():
        if name.rsplit('/', 1)[-1] in ('**', '*', node) and isinstance(content, dict):
            found |= _flat(content.get('ros__parameters') or {})
    return found


def _flat(values: dict[str, Any], before: str = '') -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= _flat(value, f'{before}{name}.') if isinstance(value, dict) else {
            f'{before}{name}': value}
    return found
