# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""How long the stages of a result take, on the clock of the host and by the device."""

from __future__ import annotations

import time

from vjepa_ros.runtime.outputs import Output


def lap(timings: dict[str, float], stage: str, since: float) -> float:
    """Enter the time [ms] of a stage that began at `since` [s]; the time now [s]."""
    now = time.perf_counter()
    timings[stage] = (now - since) * 1e3
    return now


def await_features(output: Output, timings: dict[str, float]) -> None:
    """Wait for features that come after all else; their times count in the stages of the rest."""
    clock = time.perf_counter()
    download_ms = output.arrive()
    if download_ms:
        waited_ms = (time.perf_counter() - clock) * 1e3
        for stage, ms in (('download', download_ms), ('await', waited_ms)):
            timings[stage] = timings.get(stage, 0.0) + ms
