# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Evaluate every method on rendered clips that nothing was trained on.

The bare heads are judged from the same clips as the perception: ``heads`` is what the heads say,
calibrated, with nothing left out, as training judges them. Its time to contact is the mean of its
logarithm given that there is contact; the perception tells a median, and none where none is
likely.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from vjepa_ros.lab.evaluation.clip_replay import Film, films, jpeg, shown, truth_of
from vjepa_ros.lab.evaluation.clips import (
    HORIZONS_S,
    ClipOutcome,
    ClipTruth,
    chosen,
    clip_figures,
    joined,
)
from vjepa_ros.lab.evaluation.recording_replay import CAMERA, PictureScores, Setup
from vjepa_ros.lab.world.clips import ClipWorld
from vjepa_ros.lab.world.seeds import HELD_OUT_SEED, SPLIT_BATCH
from vjepa_ros.model.head_specs import expected_log_contact
from vjepa_ros.perception.assessor import Assessor
from vjepa_ros.perception.camera_track import Track
from vjepa_ros.perception.config import Wants
from vjepa_ros.perception.pipeline import Perception
from vjepa_ros.perception.types import Quality, Result
from vjepa_ros.runtime.outputs import HeadArrays, Output

HEADS = 'heads'                   # the method that leaves nothing out
PICTURE_SCORES = ('brightness', 'frame_difference')
MIDDLE = HORIZONS_S.index(2.0)    # horizon of the result that maps and times are taken from
ENCODED = {'cpu': 10, 'cuda': 100}   # clips in one forward pass; 1 elsewhere


@dataclass(frozen=True)
class WorldPart:
    """What every method said of the clips of one seed.

    Attributes
    ----------
    truth, outcomes
        Of its clips, and by method.
    newest
        The newest frame of each clip as JPEG.
    held
        Clips in which the heads held for the reported method.
    films
        Clips that a slow baseline shall judge, by their number in the whole.
    """

    truth: ClipTruth
    outcomes: dict[str, ClipOutcome]
    newest: list[bytes]
    held: int
    films: dict[int, Film]


@dataclass(frozen=True)
class WorldRun:
    """What every method said of the rendered clips.

    Attributes
    ----------
    figures
        ``clips``, ``first_seed``, ``clips_per_seed``, ``contact_within_3_s`` and ``heads_held``
        (parts of the clips) and ``methods`` (figures of `vjepa_ros.lab.evaluation.clips` by name;
        their ``clips`` are fewer for a slow baseline).
    truth, outcomes
        Of all clips, and by method.
    newest
        The newest frame of each clip as JPEG.
    """

    figures: dict[str, Any]
    truth: ClipTruth
    outcomes: dict[str, ClipOutcome]
    newest: list[bytes]


def tasks(count: int, device: str, slow: int) -> list[tuple[Any, ...]]:
    """Calls of `evaluate_part` for so many clips, `slow` of them kept for a slow baseline."""
    kept = set(np.linspace(0, count - 1, min(slow, count)).round().astype(int).tolist())
    return [(evaluate_part, batch, min(SPLIT_BATCH, count - batch * SPLIT_BATCH), device,
             sorted(kept & set(range(batch * SPLIT_BATCH, (batch + 1) * SPLIT_BATCH))))
            for batch in range(math.ceil(count / SPLIT_BATCH))]


def evaluate_part(setup: Setup, batch: int, count: int, device: str,
                  keep: Sequence[int]) -> WorldPart:
    """Let every method judge the held-out clips of one seed.

    Parameters
    ----------
    setup
        Methods, settings and engine. Smoothing is off: a clip is a single moment, and so is
        `approach_speed`: what is true is a contact at the present velocities.
    batch
        Number of the seed; all are among those that training keeps away from.
    count
        Clips of it.
    device
        Where to render.
    keep
        Numbers of the clips in the whole to bring back.
    """
    world = world_of(setup.track.image_size, setup.track.num_frames, device)
    clips = world.clips(HELD_OUT_SEED + batch, count)
    truth, rendered = truth_of(clips), list(films(clips))
    del clips
    if device.startswith('cuda'):
        torch.cuda.empty_cache()     # for the other processes
    outputs = encoded(rendered, setup)
    outcomes: dict[str, list[ClipOutcome]] = {}
    held = 0
    for film, output in zip(rendered, outputs, strict=True):
        results = judged(film, setup, output)
        said = {method: outcome_of(of, method) for method, of in results.items()}
        if output is not None:
            said[HEADS] = heads_outcome(output.heads, film.interval_s)
        for method, outcome in (said | picture_outcomes(film)).items():
            outcomes.setdefault(method, []).append(outcome)
        held += results[setup.methods[-1]][MIDDLE].method != 'geometric'
    first = batch * SPLIT_BATCH
    return WorldPart(truth, {m: joined(parts) for m, parts in outcomes.items()},
                     [jpeg(film) for film in rendered], held,
                     {number: rendered[number - first] for number in keep})


@lru_cache(maxsize=1)
def world_of(size: int, num_frames: int, device: str) -> ClipWorld:
    """The world of this process: its textures take seconds to paint."""
    return ClipWorld(size=size, num_frames=num_frames, device=device)


def gathered(parts: Sequence[WorldPart]) -> WorldRun:
    """All parts with their figures."""
    truth = joined([p.truth for p in parts])
    said = {m: joined([p.outcomes[m] for p in parts]) for m in parts[0].outcomes}
    count = truth.contact_time.size
    return WorldRun(
        {'clips': count, 'first_seed': HELD_OUT_SEED, 'clips_per_seed': SPLIT_BATCH,
         'contact_within_3_s': float((truth.contact_time <= HORIZONS_S[-1]).mean()),
         'heads_held': sum(p.held for p in parts) / count,
         'methods': {method: clip_figures(truth, outcome) for method, outcome in said.items()}},
        truth, said, [newest for p in parts for newest in p.newest])


def with_scores(run: WorldRun, name: str, scores: dict[int, float]) -> WorldRun:
    """The run with a baseline that judged some clips, by number; it stands first."""
    picks = np.array(sorted(scores))
    found = clip_figures(chosen(run.truth, picks), scored([scores[i] for i in picks]))
    return replace(run, figures=run.figures | {
        'methods': {name: found} | run.figures['methods']})


def encoded(rendered: Sequence[Film], setup: Setup) -> list[Output | None]:
    """What the heads say of the very pixels that were rendered, not resized twice."""
    if setup.engine is None:
        return [None] * len(rendered)
    step = ENCODED.get(setup.engine.choice.device.type, 1)
    return [output for first in range(0, len(rendered), step) for output in setup.engine.run(
        [film.frames for film in rendered[first:first + step]], features=False)]


def judged(film: Film, setup: Setup, output: Output | None) -> dict[str, list[Result]]:
    """Results of every method at every horizon."""
    config, wants = film.track(setup.track), Wants(features=False, image=False)
    perception = None if setup.engine is None else Perception(setup.engine, config, [CAMERA])
    track = Track(CAMERA, config) if perception is None else perception.tracks[CAMERA]
    sample = shown(film, track)
    out: dict[str, list[Result]] = {}
    for method in setup.methods:
        out[method] = []
        for horizon in HORIZONS_S:
            # The truth is contact at the present velocities, not if the robot went ahead.
            settings = replace(setup.settings, looming_method=method, smoothing_method='none',
                               collision_horizon=horizon, approach_speed=0.0)
            track.assessor = Assessor()
            out[method].append(
                track.result(sample, None, None, settings, age_s=0.0, flags=Quality(0),
                             wants=wants, timings={}) if perception is None else
                perception.result(CAMERA, sample, output, settings, wants, 0.0, {}))
    return out


def outcome_of(results: list[Result], method: str) -> ClipOutcome:
    """What one method said of one clip, one result per horizon."""
    middle = results[MIDDLE]
    grid = np.asarray(middle.looming_map, float)
    moving = None
    if method != 'geometric':
        # Unknown where the heads do not hold for a clip.
        moving = np.full(grid.shape, np.nan) if middle.moving_map is None \
            else np.asarray(middle.moving_map, float)
    return ClipOutcome(
        np.array([[r.assessment.collision_probability for r in results]]),
        np.array([middle.assessment.time_to_contact]), grid[None],
        None if moving is None else moving[None])


def heads_outcome(heads: HeadArrays, interval_s: float) -> ClipOutcome:
    """What the heads said of one clip, all of it."""
    with np.errstate(divide='ignore'):
        logits = torch.from_numpy(np.log(heads.contact))[None]
    return ClipOutcome(
        heads.contact_within(np.array(HORIZONS_S) / interval_s).astype(float)[None],
        expected_log_contact(logits).exp().numpy().astype(float) * interval_s,
        heads.expansion[None].astype(float) / interval_s, heads.moving[None].astype(float))


def picture_outcomes(film: Film) -> dict[str, ClipOutcome]:
    """Scores of the newest picture that need no perception."""
    scores = PictureScores()
    for _, picture in film.sent():
        scores.take(picture)
    return {name: scored(outcome.score[-1:]) for name, outcome in scores.outcomes().items()}


def scored(scores: Sequence[float] | np.ndarray) -> ClipOutcome:
    """A score of clips that speaks of no horizon and is no probability."""
    hazard = np.repeat(np.asarray(scores, float)[:, None], len(HORIZONS_S), axis=1)
    return ClipOutcome(hazard, is_probability=False)
