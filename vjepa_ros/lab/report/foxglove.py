# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Write what a run did as an MCAP file that the layout ``config/foxglove.json`` shows.

The topics are those of ``vjepa_node`` with the camera ``camera``, and of ``collision_guard``.
"""

from __future__ import annotations

import heapq
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from vjepa_ros.lab.report.bag_writer import BagWriter, FLOAT, PictureWriter
from vjepa_ros.lab.report.video import frame_rate
from vjepa_ros.perception.types import Level

NODE, CAMERA, GUARD = 'vjepa_node', 'camera', 'collision_guard'
OUTPUTS = f'/{NODE}/{CAMERA}'
OVERLAY, LOOMING_MAP = f'{OUTPUTS}/overlay/compressed', f'{OUTPUTS}/looming_map'
SCALARS = ('motion_score', 'obstacle_score', 'collision_probability', 'collision_if_ahead',
           'time_to_contact', 'looming_rate')


@dataclass(frozen=True)
class Shown:
    """What a file shows; stamps in ns, each sequence oldest first."""

    # One per assessment: stamp_ns, level (0..3 or 255), those of `SCALARS` that are known about
    # the run, and perhaps ``guard``, the state of the guard
    records: Sequence[Mapping[str, Any]]
    pictures: Sequence[tuple[int, Path]] = ()  # stamp and picture file
    # Stamp and file (.npy) of the looming map, (Hp, Wp) in 1/s
    maps: Sequence[tuple[int, Path]] = ()


def write_mcap(path: Path, shown: Shown) -> Path:
    """Write a file that is either whole or not there, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f'.{path.name}.tmp')
    shutil.rmtree(draft, ignore_errors=True)
    try:
        with BagWriter(draft) as bag:
            _fill(bag, shown)
        file, = draft.glob('*.mcap')      # the metadata beside it say nothing more
        return file.replace(path)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _fill(bag: BagWriter, shown: Shown) -> None:
    video = PictureWriter(bag, OVERLAY, frame_rate([stamp for stamp, _ in shown.pictures]))
    for stamp_ns, kind, what in heapq.merge(
            _of('record', ((r['stamp_ns'], r) for r in shown.records)),
            _of('picture', shown.pictures), _of('map', shown.maps), key=lambda one: one[0]):
        if kind == 'record':
            _record(bag, stamp_ns, what)
        elif kind == 'map':
            bag.grid(LOOMING_MAP, stamp_ns, np.load(what))
        elif (picture := cv2.imread(str(what))) is not None:     # damaged ones are left out
            video.add(stamp_ns, picture)


def _of(kind: str, items: Iterable[tuple[int, Any]]) -> Iterable[tuple[int, str, Any]]:
    return ((stamp_ns, kind, what) for stamp_ns, what in items)


def _record(bag: BagWriter, stamp_ns: int, record: Mapping[str, Any]) -> None:
    for name in SCALARS:
        if record.get(name) is not None:
            bag.add(f'{OUTPUTS}/{name}', FLOAT, stamp_ns, data=float(record[name]))
    level = Level(record['level']).name.lower()
    bag.diagnostics('/diagnostics', stamp_ns, f'{NODE}: {CAMERA} {CAMERA}', {'level': level})
    if 'guard' in record:
        bag.diagnostics(f'/{GUARD}/state', stamp_ns, f'{GUARD}: guard',
                        {'action': record['guard']})
