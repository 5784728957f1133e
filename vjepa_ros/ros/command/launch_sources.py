# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Which cameras a node behind the perception listens to, when the launch file names them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from vjepa_ros.ros.common.parameter import CAMERAS


def sources_for(cameras: Sequence[str], node: str, argument: str, file: Path,
                of_package: bool) -> list[str]:
    """The parameter `sources` for the cameras of the perception node; [] leaves the file's.

    One camera is taken where the file is that of the package, which says that it looks forward.
    Where several look nobody but a file can tell, and a source that no camera speaks for would
    hold the robot for ever.

    Parameters
    ----------
    cameras
        Names of the cameras that the perception node runs; none: nobody can tell.
    node
        Executable of the node that listens.
    argument
        Launch argument that names its parameter file, for words to people.
    file
        That file.
    of_package
        Whether it is the one of the package, and not the user's own.

    Raises
    ------
    RuntimeError
        With the remedy, when the file listens to cameras that there are not.
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
    """Names of the cameras that the perception node runs with a parameter file.

    They are [] where a substitution names them: only the launch can resolve it.
    """
    cameras = parameters_in(file, 'vjepa_node').get('cameras', CAMERAS)
    return [] if isinstance(cameras, str) else list(cameras)


def parameters_in(file: Path, node: str) -> dict[str, object]:
    """The parameters for a node in a file, by their whole names."""
    found: dict[str, object] = {}
    for name, content in (yaml.safe_load(file.read_text(encoding='utf-8')) or {}).items():
        if name.rsplit('/', 1)[-1] in ('**', '*', node) and isinstance(content, dict):
            found |= _flat(content.get('ros__parameters') or {})
    return found


def _flat(values: dict[str, object], before: str = '') -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in values.items():
        found |= _flat(value, f'{before}{name}.') if isinstance(value, dict) else {
            f'{before}{name}': value}
    return found
