# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Tell on one page what holds on this machine, and what could not be tested."""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from vjepa_ros.runtime.device import find_devices


def not_reached(device: str, full: bool) -> dict[str, str]:
    """Return what a self-test of this device says nothing about, each with the reason."""
    kinds = {'cuda': 'NVIDIA GPU', 'mps': 'Apple GPU', 'cpu': 'CPU'}
    present = {name.partition(':')[0] for name in find_devices()}
    missing = {name: f'not asked for; --device {kind} tests it' if kind in present else
               'PyTorch finds none here' for kind, name in kinds.items()
               if kind != device.partition(':')[0]}
    if not full:
        missing['sizes above tiny'] = '--full tests them up to huge'
    missing['nodes, guard, topics'] = (
        'their tests are `make test`, which finds ROS 2 here' if find_spec('rclpy') else
        'there is no ROS 2 here')
    missing['cameras, brakes, delays of a robot'] = 'no test on a desk replaces yours'
    return missing


def make_page(result: Mapping[str, Any]) -> str:
    """Return the result of a self-test as a page of Markdown, without names of host or user."""
    about = ', '.join(f'{name} {value}' for name, value in result['hardware'].items())
    lines = [f'# vjepa-ros self-test: {"PASSED" if result["ok"] else "FAILED"}', '',
             f'- {result["date"]}, `{result["command"]}`', f'- machine: {about}',
             '- software: ' + ', '.join(f'{k} {v}' for k, v in result['versions'].items())]
    if problems := result['problems']:
        lines += ['', '## What is wrong', '', *(f'- {problem}' for problem in problems)]
    if 'paths' in result:
        lines += ['', '## What was tested', '', f'On {result["device"]}, where `auto` takes '
                  f'{result["chosen"]["precision"]}: {result["chosen"]["because"]}.', '',
                  '| what | checks | closest to its limit | error | allowed | encode (ms) | |',
                  '|---|---:|---|---:|---:|---:|---|']
        lines += [_row(each) for each in (*result['paths'], result['detector'])]
        ran = ', '.join(f'{len(one["ran"])} in {p}' for p, one in result['operators'].items())
        lines += ['', 'Errors are relative to the plain network in float32 on the CPU. '
                  f'Operators that ran: {ran}.',
                  '', '## What could not be tested', '',
                  *(f'- **{name}**: {why}' for name, why in result['left_out'].items())]
    return '\n'.join(lines) + '\n'


def _row(each: Mapping[str, Any]) -> str:
    took = '' if each['encode_ms'] is None else f'{each["encode_ms"]:.3g}'
    name, worst = max(each['checks'].items(), key=_share, default=('none ran', {}))
    cells = (f'{each["model"]}, {each["path"]}', len(each['checks']), name,
             _number(worst.get('error')), _number(worst.get('limit')), took,
             'ok' if each['ok'] else '**FAILED**')
    return f'| {" | ".join(map(str, cells))} |'


def _share(check: tuple[str, Mapping[str, Any]]) -> float:
    """Return the error as a share of its limit; infinite for one that is no number."""
    error, limit = check[1]['error'], check[1]['limit']
    return math.inf if error is None or error > limit else error / limit if limit else 0.0


def _number(value: float | None) -> str:
    return '' if value is None else f'{value:.3g}'
