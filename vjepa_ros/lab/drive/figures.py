# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Compute the figures of driven episodes: collisions, progress and stops."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from vjepa_ros.lab.drive.loop import Outcome

WITHOUT = 'without_guard'


def figures(outcomes: Mapping[str, Sequence[Outcome]]) -> dict[str, Any]:
    """Compute the figures of all modes.

    Parameters
    ----------
    outcomes
        By mode, with the same episodes in each, and 'without_guard' among them.

    Returns
    -------
    dict
        By mode ``collisions_per_episode`` (an episode ends with its first) and ``progress``
        (mean share of the route); ``progress_kept``: progress with guard over progress without,
        on the episodes without collision when nothing guards the robot, None without any;
        ``details``.
    """
    free = [n for n, o in enumerate(outcomes[WITHOUT]) if not o.collided]
    result: dict[str, Any] = {
        mode: {'collisions_per_episode': _mean(o.collided for o in rows),
               'progress': _mean(o.progress for o in rows)}
        for mode, rows in outcomes.items()}
    kept = {mode: _kept(outcomes[WITHOUT], rows, free) for mode, rows in outcomes.items()
            if mode != WITHOUT}
    result['progress_kept'] = kept.get('with_guard')
    result['details'] = {
        'free_episodes': len(free), 'episodes': len(outcomes[WITHOUT]),
        'times_fewer_collisions': {
            mode: _ratio(result[WITHOUT]['collisions_per_episode'],
                         result[mode]['collisions_per_episode']) for mode in kept},
        'progress_kept': kept,
        **{mode: _details(rows, free) for mode, rows in outcomes.items()}}
    return result


def _mean(values: Any) -> float:
    values = [float(v) for v in values]
    return round(sum(values) / len(values), 5) if values else math.nan


def _ratio(before: float, after: float) -> float | None:
    """Return before over after, None when nothing is left."""
    return round(before / after, 2) if after > 0 else None


def _kept(before: Sequence[Outcome], after: Sequence[Outcome],
          which: Sequence[int]) -> float | None:
    if not which:
        return None
    return round(sum(after[n].progress for n in which)
                 / sum(before[n].progress for n in which), 5)


def _details(rows: Sequence[Outcome], free: Sequence[int]) -> dict[str, Any]:
    scenarios = sorted({o.scenario for o in rows})
    return {
        'collisions_while_standing': sum(o.struck for o in rows),
        'stops_per_episode': _mean(o.stops for o in rows),
        'needless_stops_per_episode': _mean(o.needless_stops for o in rows),
        'stops_per_free_episode': _mean(rows[n].stops for n in free) if free else None,
        'by_scenario': {name: {
            'episodes': sum(o.scenario == name for o in rows),
            'collisions': sum(o.collided for o in rows if o.scenario == name),
            'progress': _mean(o.progress for o in rows if o.scenario == name)}
            for name in scenarios},
        'collided': [{'number': o.number, 'scenario': o.scenario, 'place': o.place,
                      'touched': o.touched, 'speed_m_s': round(o.cruise, 2),
                      'standing': o.struck} for o in rows if o.collided]}
