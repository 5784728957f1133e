# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Choose the frames of an evaluation to show, failures first, and draw their overlays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vjepa_ros.lab.evaluation import alarms
from vjepa_ros.lab.evaluation.clips import HORIZONS_S
from vjepa_ros.lab.evaluation.recording_replay import Played, Setup, frames_of
from vjepa_ros.lab.evaluation.world import WorldRun
from vjepa_ros.lab.report.page import jpeg_bytes
from vjepa_ros.visualization.overlay import Layers, OverlayStatus, draw_overlay

PER_KIND = 2          # pictures of one kind of failure in a recording
WORLD_PER_KIND = 4    # rendered clips of one kind of failure
USUAL = 3             # pictures of a recording without failure
BADLY_WRONG = 0.5     # relative error of a time to contact that is a failure
WIDTH, QUALITY = 560, 80


@dataclass(frozen=True)
class Picture:
    """A frame with its overlay."""

    name: str  # of the sequence
    index: int  # of the frame in it
    failure: str  # what is wrong, '' for an example
    caption: str  # time, estimate and truth
    jpeg: bytes  # the overlay


def pictures_of(played: Played, setup: Setup, reported: str,
                events: Mapping[str, Any]) -> list[Picture]:
    """Draw the pictures of a recording in order of time."""
    picks = choose(played, reported, events)
    out = []
    for index, frame in enumerate(frames_of(played.item, setup)):
        if index not in picks:
            continue
        result = played.results[index]
        status = OverlayStatus(camera=played.item.name,
                               untrained=result.assessment.untrained, focal_px=played.focal_px)
        layers = Layers(result.moves, result.looming, result.view, setup.settings.min_confidence)
        overlay = draw_overlay(frame.rgb, result.assessment, layers, status, WIDTH)
        out.append(Picture(played.item.name, index, picks[index],
                           caption(played, reported, index), jpeg_bytes(overlay, QUALITY)))
    return out


def choose(played: Played, reported: str, events: Mapping[str, Any]) -> dict[int, str]:
    """Choose the frames to show; return what is wrong, or '', by their index."""
    outcome, truth = played.outcomes[reported], played.truth
    picks: dict[int, str] = {}
    scored = np.flatnonzero(outcome.scored)
    if not scored.size:
        return picks
    for text, mask in failures(played, reported, events).items():
        for index in _spread(mask, outcome.score):
            picks.setdefault(index, text)
    for index in scored[np.linspace(0, scored.size - 1, USUAL + 2)[1:-1].round().astype(int)]:
        picks.setdefault(int(index), '')
    positive = np.flatnonzero(outcome.scored & (truth.collision == 1))
    if positive.size:
        score = np.nan_to_num(outcome.score[positive], nan=-1.0)
        picks.setdefault(int(positive[np.argmax(score)]), '')
    return dict(sorted(picks.items()))


def failures(played: Played, reported: str,
             events: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return masks of wrong frames by what is wrong."""
    outcome, truth, time = played.outcomes[reported], played.truth, played.stamps()
    alarm = outcome.alarm
    unknown = (outcome.levels == alarms.UNKNOWN) & outcome.scored
    retreat = np.zeros(time.size, bool)
    for wrong in events.get('alarms_without_approach', ()):
        retreat |= (time >= wrong['from_s']) & (time <= wrong['to_s'])
    ttc, estimate = truth.time_to_contact, outcome.time_to_contact
    estimate = np.full(ttc.size, np.nan) if estimate is None else estimate
    closing = outcome.scored & np.isfinite(ttc) & (ttc > 0)
    with np.errstate(invalid='ignore'):
        error = np.abs(np.where(closing, estimate, np.nan) - ttc) / ttc
    return {
        'false alarm': alarm & (truth.collision == 0),
        'missed': outcome.scored & (truth.collision == 1) & ~alarm & ~unknown,
        'unknown in danger': unknown & (truth.collision == 1),
        'alarm while it does not come nearer': retreat,
        'wrong time to contact': closing & (error > BADLY_WRONG),
    }


def _spread(mask: np.ndarray, score: np.ndarray) -> list[int]:
    """Return the frame with the highest score of each of the longest stretches of a mask."""
    stretches = sorted(alarms.runs(mask), key=lambda r: r[0] - r[1])[:PER_KIND]
    return [a + int(np.argmax(np.nan_to_num(score[a:b], nan=-1.0))) for a, b in stretches]


def caption(played: Played, reported: str, index: int) -> str:
    """Describe time, probability and truth of a frame."""
    outcome, truth = played.outcomes[reported], played.truth
    score, ttc = outcome.score[index], truth.time_to_contact[index]
    words = [f'{played.item.name} at {played.stamps()[index]:.1f} s', 'probability unknown'
             if np.isnan(score) else f'probability {score:.2f}']
    if not np.isnan(truth.collision[index]):
        words.append('labelled ' + ('collision' if truth.collision[index] else 'no collision'))
    if not np.isnan(ttc):
        words.append('nothing comes nearer' if np.isinf(ttc) else f'truly {ttc:.1f} s to contact')
    return ', '.join(words)


def world_failures(run: WorldRun, reported: str) -> list[Picture]:
    """Return the clips that a method judged worst: false alarms and missed contacts."""
    at = HORIZONS_S.index(1.0)
    hazard = np.nan_to_num(run.outcomes[reported].hazard[:, at], nan=0.0)
    truth = run.truth.contact_time
    groups = (('false alarm', np.flatnonzero(truth > HORIZONS_S[-1]), -hazard),
              ('missed', np.flatnonzero(truth <= HORIZONS_S[at]), hazard))
    out = []
    for failure, members, order in groups:
        for index in members[np.argsort(order[members], kind='stable')][:WORLD_PER_KIND]:
            coming = 'no contact' if np.isinf(truth[index]) else f'contact in {truth[index]:.1f} s'
            out.append(Picture('world', int(index), failure,
                               f'clip {index}, {coming}, probability within 1 s '
                               f'{hazard[index]:.2f}', run.newest[index]))
    return out
