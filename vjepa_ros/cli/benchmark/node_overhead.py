# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Take the time from image stamp to assessment apart, result by result."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from vjepa_ros.cli.benchmark.clock import statistics

# What the model itself does, of the stages of a pass; the heads are part of it on CUDA.
MODEL = ('gather', 'upload', 'encode', 'heads', 'download')
PARTS = {
    'transport': 'stamp of the image to its arrival in the node',
    'wait': 'arrival to the worker thread beginning with it',
    'decode': 'message to RGB',
    'preprocess': 'into the frame memory: resized, and grey for looming',
    'session': 'clip to assessment: model, motion, looming, assessment',
    'rest': 'of the node before it publishes',
    'back': 'publishing the assessment, to its arrival at the receiver'}
LEAST_SHARE = 0.9         # of the frames, less one, must have a result of their own
_LINE = re.compile(r'result (\{.*\})\s*$')


class OverheadError(RuntimeError):
    """What was recorded gives no overhead."""


def node_results(log: Iterable[str]) -> dict[int, dict[str, Any]]:
    """What the node logged at level DEBUG about each result, by stamp [ns]."""
    found = {}
    for line in log:
        match = _LINE.search(line)
        if match:
            told = json.loads(match[1])
            found[told['stamp_ns']] = told
    return found


def split(received: Mapping[str, Any], told: Mapping[str, Any]) -> dict[str, float]:
    """The times of one result [ms].

    Parameters
    ----------
    received
        What the recorder says: latency_ms, from stamp to arrival there.
    told
        What the node logged: latency_ms, from stamp to publishing; session_ms; stages_ms.

    Returns
    -------
    dict of str to float
        latency, session, model, overhead (latency less session), beyond_model (latency less
        model) and the `PARTS`, which add up to latency.
    """
    stages, whole = told['stages_ms'], received['latency_ms']
    known = {name: stages[name] for name in ('transport', 'wait', 'decode', 'preprocess')}
    session = told['session_ms']
    model = sum(stages.get(name, 0.0) for name in MODEL)
    rest = told['latency_ms'] - sum(known.values()) - session
    return {'latency': whole, 'model': model, 'overhead': whole - session,
            'beyond_model': whole - model, **known, 'session': session, 'rest': rest,
            'back': whole - told['latency_ms']}


def summarise(records: Sequence[Mapping[str, Any]], told: Mapping[int, Mapping[str, Any]],
              rate_hz: float, warmup_s: float, seconds: float) -> dict[str, Any]:
    """The figures of a run.

    Parameters
    ----------
    records
        Results that the recorder received, in order of their stamps.
    told
        From `node_results`.
    rate_hz
        Of the camera.
    warmup_s, seconds
        Left out from the first result on, and how much is measured after that.

    Returns
    -------
    dict
        overhead_ms, latency_ms, session_ms, model_ms, beyond_model_ms: `statistics`; parts_ms:
        those of `PARTS`; stages_ms: medians; counts.

    Raises
    ------
    OverheadError
        When nothing is left, lines of the node are missing, or it did not keep up with the
        camera: then frames wait for each other, which is no overhead.
    """
    if not records:
        raise OverheadError('no assessment was received')
    first = records[0]['stamp_ns'] + warmup_s * 1e9
    used = [r for r in records if first <= r['stamp_ns'] <= first + seconds * 1e9]
    if len(used) < 2:
        raise OverheadError(f'{len(used)} assessments were received after {warmup_s:g} s of '
                            'warm-up; measure longer')
    missing = sum(r['stamp_ns'] not in told for r in used)
    if missing:
        raise OverheadError(f'the log of the node does not tell the times of {missing} of '
                            f'{len(used)} results')
    frames = round((used[-1]['stamp_ns'] - used[0]['stamp_ns']) / 1e9 * rate_hz) + 1
    rows = [split(r, told[r['stamp_ns']]) for r in used]
    figures = {name: statistics([row[name] for row in rows]) for name in rows[0]}
    busy = figures['latency']['median'] - figures['transport']['median']
    if len(used) < LEAST_SHARE * frames - 1 or busy > 1e3 / rate_hz:
        raise OverheadError(
            f'the node did not keep up: {len(used)} results for {frames} frames, each takes '
            f'{busy:.0f} ms of the {1e3 / rate_hz:.0f} ms between two; choose a lower --rate')
    stages = {name for r in used for name in told[r['stamp_ns']]['stages_ms']}
    return {
        **{f'{name}_ms': figures[name]
           for name in ('overhead', 'latency', 'session', 'model', 'beyond_model')},
        'parts_ms': {name: figures[name] for name in PARTS},
        'stages_ms': {name: round(float(np.median([
            told[r['stamp_ns']]['stages_ms'].get(name, 0.0) for r in used])), 3)
            for name in sorted(stages)},
        'counts': {'frames': frames, 'results': len(used)}}
