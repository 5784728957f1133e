# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Compare the whole way from image to assessment with that on the CPU in float32."""

from __future__ import annotations

import math

import numpy as np

from vjepa_ros.cli.selftest.parity import Check, Outcome
from vjepa_ros.detector import ObstacleDetector
from vjepa_ros.lab.world.demo_scene.approach import ApproachScene
from vjepa_ros.perception.types import Assessment

FIRST_S, FRAMES, RATE_HZ = 5.5, 32, 10.0
SCORES = ('motion_score', 'obstacle_score', 'collision_probability')
LIMIT = 0.05        # of scores, which are 0..1
UNEQUAL = 0.15      # of the levels: a score at a threshold may fall to either side


def assessments(device: str, precision: str) -> list[Assessment]:
    """What the detector says of a drive at an obstacle, frame by frame."""
    scene, seen = ApproachScene(), []
    with ObstacleDetector(device=device, precision=precision, require_device=True) as detector:
        for number in range(FRAMES):
            detector.add_frame(scene.render(FIRST_S + number / RATE_HZ), 1 + number / RATE_HZ)
            found = detector.assess()
            if found is not None:
                seen.append(found)
    return seen


def compare_detectors(device: str) -> Outcome:
    """The default model with the precision of its choice against the CPU in float32."""
    outcome = Outcome('default model', 'image to assessment')
    wanted = assessments('cpu', 'fp32')
    try:
        got = assessments(device, 'auto')
    except (RuntimeError, ValueError, TypeError) as error:
        outcome.problem = f'does not run: {type(error).__name__}: {error}'.strip()
        return outcome
    if len(got) != len(wanted) or not got:
        outcome.problem = f'gives {len(got)} assessments, not {len(wanted)}'
        return outcome
    for name in SCORES:
        errors = [_difference(getattr(a, name), getattr(b, name))
                  for a, b in zip(got, wanted, strict=True)]
        outcome.checks.append(Check(name, float(np.quantile(errors, 0.9)), LIMIT))
    unequal = [a.level != b.level for a, b in zip(got, wanted, strict=True)]
    outcome.checks.append(Check('level', float(np.mean(unequal)), UNEQUAL))
    outcome.encode_ms = float(np.median([a.timings['encode'] for a in got]))
    return outcome


def _difference(a: float, b: float) -> float:
    if math.isnan(a) or math.isnan(b):
        return 0.0 if math.isnan(a) and math.isnan(b) else 1.0
    return abs(a - b)
