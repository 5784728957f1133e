# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Compare the figures of an evaluation with the goals of the project."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vjepa_ros.lab.evaluation.table import NONE, Grid
from vjepa_ros.lab.report.targets import MISSED, Goal


def _row(goal: Goal, report: Mapping[str, Any]) -> tuple[str, ...] | None:
    """What, figure, goal and verdict as text; None where there is no figure."""
    value = goal.read(report)
    if value is None:
        return None
    write, verdict = goal.shape.format, goal.standing(value)
    if verdict == MISSED:
        verdict = f'missed by {write(abs(goal.reach - value))}'
    return goal.what, write(value), write(goal.reach), write(goal.better), verdict


def _world(*keys: str, method: str = '') -> Callable[[Mapping[str, Any]], float | None]:
    """A figure of the rendered clips, by a method or the reported one."""
    def value(report: Mapping[str, Any]) -> float | None:
        name = method or report['configuration']['method']
        found = report['world'] and report['world']['methods'].get(name)
        for key in keys:
            found = found and found[key]
        return found
    return value


def _group(group: str, key: str) -> Callable[[Mapping[str, Any]], float | None]:
    return lambda report: report['groups'].get(group, {}).get(key)


SETTLES_S = 0.5       # of assessments that a warning may need, smoothing included
IN_WORLD = (
    ('collision AUC within 1 s', 0.985, 0.99, ('collision_auc', '1'), True),
    ('collision AUC within 3 s', 0.975, 0.985, ('collision_auc', '3'), True),
    ('looming R2 per patch', 0.95, 0.97, ('looming_r2',), True),
    ('independent motion AUC', 0.97, 0.98, ('moving_auc',), True),
    ('expected calibration error of the hazard', 0.05, 0.02, ('expected_calibration_error',),
     False),
)
GOALS = (
    *(Goal(f'rendered clips, {who}: {what}', reach, better, _world(*keys, method=method), more)
      for who, method in (('heads alone', 'heads'), ('perception', ''))
      for what, reach, better, keys, more in IN_WORLD),
    Goal('real, collisions: AUC of the probability of collision', 0.90, 0.95,
         _group('collision', 'collision_auc'), more=True),
    Goal('real, closing: median relative error of the time to contact', 0.18, 0.12,
         _group('closing', 'ttc_median_relative_error')),
    Goal('real, still: looming (1/s)', 0.01, 0.01, _group('still', 'looming_when_still_per_s'),
         shape='{:.4f}'),
    Goal('real, nothing imminent: false alarms per minute', 1.0, 0.0,
         _group('nothing_imminent', 'false_alarms_per_minute'), shape='{:.1f}'),
)


def goal_grid(report: Mapping[str, Any]) -> Grid | None:
    """One row per goal that was measured, None without any."""
    rows = [row for goal in GOALS if (row := _row(goal, report)) is not None]
    rows += [_approaches(name, figures) for name, figures in report['sequences'].items()
             if 'approaches' in figures]
    if not rows:
        return None
    members = '; '.join(f'{group.replace("_", " ")}: {" + ".join(g["sequences"])}'
                        for group, g in report['groups'].items())
    return Grid(f'Goals, method {report["configuration"]["method"]}',
                ('figure', 'here', 'goal', 'better', 'verdict'), tuple(rows),
                f'Groups of recordings: {members}.' if members else '')


def _approaches(name: str, figures: Mapping[str, Any]) -> tuple[str, ...]:
    """Whether there was a warning before every nearest moment, and none otherwise.

    What was nearest before a level could settle is counted apart: no method can warn of it.
    """
    every = [a for a in figures['approaches'] if a['seen_s'] >= SETTLES_S]
    unseen = len(figures['approaches']) - len(every)
    warned = sum(a['warned_s'] is not None for a in every)
    wrong = len(figures['alarms_without_approach'])
    good = every and warned == len(every) and not wrong
    more = f' ({unseen} more nearest within {SETTLES_S:g} s of the first assessment)'
    return (f'{name}: warned before nearest; alarms while it does not come nearer',
            f'{warned} of {len(every)}; {wrong}' + (more if unseen else ''),
            f'{len(every)} of {len(every)}; 0', NONE, 'reached' if good else 'missed')
