# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Assemble the figures of an evaluation: per sequence, pooled, per baseline and per group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vjepa_ros.lab.evaluation import alarms
from vjepa_ros.lab.evaluation.alarms import approaches
from vjepa_ros.lab.evaluation.recording_replay import METHODS, Played
from vjepa_ros.lab.evaluation.sequence import Outcome, Truth, alarm_threshold, figures
from vjepa_ros.perception.types import Level

BASELINES = (*METHODS, 'flow', 'brightness', 'frame_difference')
Pairs = list[tuple[Truth, Outcome]]


def assemble(played: Sequence[Played], reported: str, missing: Mapping[str, str],
             worlds: Mapping[str, dict[str, Any]],
             configuration: dict[str, Any]) -> dict[str, Any]:
    """Assemble all figures, ready for JSON."""
    groups = find_groups(played)
    whole = {name: _of_method(played, groups, name) for name in BASELINES}
    if 'collision' in groups:
        shared = common_frames(played, groups['collision'])
        for name, figure in shared.items():
            whole[name]['groups']['collision']['collision_auc_common_frames'] = figure
    for name, reason in missing.items():
        whole[name]['reason'] = reason
    main = whole[reported]
    sequences = {p.item.name: main['sequences'][p.item.name] | events(p, reported)
                 for p in played}
    return {
        'sequences': sequences, 'pooled': _plain(main),
        'groups': {name: {'sequences': members} | main['groups'][name]
                   for name, members in groups.items()},
        'baselines': whole, 'world': worlds.get('world'), 'rough': worlds.get('rough'),
        'configuration': configuration,
    }


def find_groups(played: Sequence[Played]) -> dict[str, list[str]]:
    """Group the names of sequences by what their truth allows to judge."""
    def chosen(test: Callable[[Truth], np.bool_ | bool]) -> list[str]:
        return [p.item.name for p in played if test(p.truth)]

    groups = {
        'collision': chosen(lambda t: (t.collision == 1).any() and (t.collision == 0).any()),
        'nothing_imminent': chosen(lambda t: (t.collision == 0).any()
                                   and not (t.collision == 1).any()),
        'closing': chosen(lambda t: (np.isfinite(t.time_to_contact)
                                     & (t.time_to_contact > 0)).any()),
        'still': chosen(lambda t: np.isposinf(t.time_to_contact).any()),
    }
    return {name: members for name, members in groups.items() if members}


def events(played: Played, method: str) -> dict[str, Any]:
    """Return the alarms of a method, and the approaches of a dark object with their alarms."""
    outcome, stamps = played.outcomes[method], played.stamps()
    alarm = outcome.alarm
    out: dict[str, Any] = {'alarms': [
        {'from_s': float(stamps[a]), 'to_s': float(stamps[b - 1]),
         'level': Level(int(outcome.levels[a:b].max())).name.lower()}
        for a, b in alarms.runs(alarm)]}
    if 'dark' in played.signals and stamps.size > 1:
        found, wrong = approaches(stamps, played.signals['dark'], alarm)
        first = float(stamps[outcome.scored][0]) if outcome.scored.any() else None
        out['approaches'] = [
            {'from_s': a.start_s, 'nearest_s': a.nearest_s,
             'fastest_looming_per_s': a.fastest_per_s,
             'seen_s': _seen(a.start_s, a.nearest_s, first),
             'warned_s': None if np.isnan(a.warned_s) else a.warned_s} for a in found]
        out['alarms_without_approach'] = [{'from_s': a, 'to_s': b} for a, b in wrong]
        out['first_assessment_s'] = first
    out['methods_used'] = dict(Counter(r.method for r in played.results.values()))
    problems = Counter(r.heads_problem for r in played.results.values() if r.heads_problem)
    if problems:
        out['heads_problem'] = problems.most_common(1)[0][0]
    used = [r.gyroscope for r in played.results.values() if r.gyroscope is not None]
    if used:
        out['gyroscope_used'] = used.count('') / len(used)
        reasons = Counter(filter(None, used))
        out['gyroscope_problem'] = reasons.most_common(1)[0][0] if reasons else ''
    return out


def _seen(start_s: float, nearest_s: float, first_s: float | None) -> float:
    """Return the seconds of an approach with assessments."""
    return 0.0 if first_s is None else max(0.0, nearest_s - max(start_s, first_s))


def common_frames(played: Sequence[Played], members: Sequence[str]) -> dict[str, float | None]:
    """Return the area under the ROC curve of each method over the frames that all scored.

    Their own areas cover different frames, because methods need different numbers of frames first.
    """
    chosen = [p for p in played if p.item.name in members]
    methods = [m for m in BASELINES if all(m in p.outcomes for p in chosen)]
    masks = [np.logical_and.reduce([p.outcomes[m].scored for m in methods]) for p in chosen]
    return {method: figures([(p.truth, replace(p.outcomes[method], scored=mask))
                             for p, mask in zip(chosen, masks, strict=True)],
                            float('nan'))['collision_auc'] for method in methods}


def _of_method(played: Sequence[Played], groups: Mapping[str, Sequence[str]],
               name: str) -> dict[str, Any]:
    """Return the figures of a method: overall, by sequence and by group."""
    blank = blank_figures()
    pairs = {p.item.name: (p.truth, p.outcomes[name]) for p in played if name in p.outcomes}
    threshold = alarm_threshold(list(pairs.values()))

    def of(members: Sequence[str]) -> dict[str, Any]:
        there: Pairs = [pairs[m] for m in members if m in pairs]
        return figures(there, threshold) if there else dict(blank)

    return {**of(list(pairs)),
            'sequences': {p.item.name: of([p.item.name]) for p in played},
            'groups': {group: of(members) for group, members in groups.items()}}


def blank_figures() -> dict[str, None]:
    """Return all figures as None."""
    return dict.fromkeys(figures([], float('nan')))


def _plain(whole: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in whole.items() if k not in ('sequences', 'groups', 'reason')}
