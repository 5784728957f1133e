# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Scoring on a Ray cluster gives the same rows, also when an actor is killed in the middle."""

from __future__ import annotations

import time
from contextlib import suppress

import psutil
import pytest

pytest.importorskip('pyarrow')
pytest.importorskip('ray', reason='Ray is large and not part of the test environment: '
                    "pip install 'ray[data]' to run this test")

from recordings import BagMaker, write_drive
from scenes import synthetic
from test_score import WORDS, here, rows_of, same

from vjepa_ros.fleet import run as fleet
from vjepa_ros.fleet.scoring import read_config

pytestmark = pytest.mark.slow


def actors() -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):     # it has just ended
            found += [process] if 'MapWorker' in ' '.join(process.cmdline()) else []
    return found


def test_rows_are_the_same_on_a_cluster_that_loses_an_actor(tmp_path):
    frames = list(synthetic(size=(160, 120), start_s=4.2, count=70))
    bag, holes = write_drive(tmp_path / 'bag', frames), tmp_path / 'holes'
    with BagMaker(holes) as broken:
        for n, frame in enumerate(frames[:20]):
            broken.image('/eye/image_raw', frame.stamp_ns, frame.rgb,
                         'strange' if n == 8 else 'rgb8')
    config = read_config(None, WORDS)
    alone, together = (fleet.Run(config, tmp_path / name) for name in ('alone', 'together'))
    for run in (alone, together):
        fleet.plan(run, [bag, holes, tmp_path / 'gone.mcap'], (), 1.0)
    killed = []

    def kill(text: str) -> None:
        end_s = time.monotonic() + 30.0
        while not killed and time.monotonic() < end_s:
            time.sleep(0.1)
            if len(both := actors()) == 2:            # as many as were asked for
                both[0].kill()
                killed.append(both[0].pid)

    fleet.score(alone, here(config, alone.folder), lambda text: None)
    fleet.score(together, fleet.cluster(config, together.folder, 'local', 2), kill)
    assert killed and len(together.chunks) == 7
    assert together.problems == alone.problems      # of the bag that is not there, and the picture
    assert len(alone.problems) == 2 and '1 image' in alone.problems[1]
    same(rows_of(together), rows_of(alone))
