# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Scoring on a Ray cluster gives the same rows, also when an actor is killed in the middle."""

from __future__ import annotations

import psutil
import pytest

pytest.importorskip('pyarrow')
pytest.importorskip('ray', reason="Ray is large and not part of the test environment: "
                    "pip install 'ray[data]' to run this test")

from recordings import write_drive
from scenes import synthetic
from test_score import WORDS, here, rows_of, same

from vjepa_ros.fleet import run as fleet
from vjepa_ros.fleet.cluster import cluster
from vjepa_ros.fleet.config import read_config

pytestmark = pytest.mark.slow


def test_rows_are_the_same_on_a_cluster_that_loses_an_actor(tmp_path):
    bag = write_drive(tmp_path / 'bag', synthetic(size=(160, 120), start_s=4.2, count=70))
    config = read_config(None, (*WORDS, 'smoothing.fall:=0.1'))
    alone, together = (fleet.Run(config, tmp_path / name) for name in ('alone', 'together'))
    for run in (alone, together):
        fleet.plan(run, [bag, tmp_path / 'gone.mcap'], (), 1.0)
    killed = []

    def kill(text: str) -> None:
        if not killed:
            actors = [p for p in psutil.Process().children(recursive=True)
                      if 'MapWorker' in ' '.join(p.cmdline())]
            actors[0].kill()
            killed.append(actors[0].pid)

    fleet.score(alone, here(config, alone.folder), lambda text: None)
    fleet.score(together, cluster(config, together.folder, 'local', 2), kill)
    assert killed and len(together.chunks) == 6
    assert len(together.problems) == len(alone.problems) == 1        # the bag that is not there
    same(rows_of(together), rows_of(alone))
