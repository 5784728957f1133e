# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Evaluate perception on rendered clips that were not used for training.

``published`` is what a node says, where heads are valid and sure. ``heads`` is their calibrated
output without validity checks, as training judges it; its time to contact is the mean of the
logarithm given contact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import cv2
import numpy as np
import torch

from vjepa_ros.clip.ring import Sample
from vjepa_ros.lab.evaluation.metrics import ClipOutcome, ClipTruth, clip_figures, joined
from vjepa_ros.lab.evaluation.recording_replay import CAMERA, Setup
from vjepa_ros.lab.world.clips import (
    ClipWorld,
    HELD_OUT_SEED,
    HORIZONS_S,
    SPLIT_BATCH,
    Targets,
    WorldClips,
    clip_targets,
)
from vjepa_ros.lab.world.scenes.scene_spec import WorldConfig
from vjepa_ros.model.head_specs import CONTACT
from vjepa_ros.model.variants import TUBELET
from vjepa_ros.perception.assessment import LevelFilter
from vjepa_ros.perception.camera_state import CameraState, learn
from vjepa_ros.perception.pipeline import Perception
from vjepa_ros.perception.settings import TrackConfig, Wants
from vjepa_ros.perception.types import Result
from vjepa_ros.runtime.model import Model
from vjepa_ros.runtime.prediction import HeadArrays, Prediction

START_NS = 1_000_000_000
PUBLISHED, HEADS = 'published', 'heads'
MIDDLE = HORIZONS_S.index(2.0)    # horizon of the result for maps and times
ENCODED = {'cpu': 10, 'cuda': 100}   # clips in one forward pass; 1 elsewhere
# Tubelets that a stream has encoded before its window is full of the last ones: a robot that runs
# has them, too. So many that each clip covers what a frame memory waits for.
HISTORY = 3


@dataclass(frozen=True)
class Film:
    """One clip as a camera would have sent it."""

    frames: np.ndarray  # (T, S, S, 3) uint8 RGB, the encoder's input, repeated frames included
    interval_s: float  # time between those frames [s]
    hold: int  # how often each frame is repeated in the clip
    intrinsics: tuple[float, float, float, float]  # fx, fy, cx, cy [px] of those frames
    stamps_s: Sequence[float]  # of each of those frames [s]

    def sent(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield stamp [ns] and image with square pixels of each frame of the camera."""
        for frame, time_s in zip(self.frames[self.hold - 1::self.hold], self.times_s, strict=True):
            stamp = START_NS + round(time_s * 1e9)
            yield stamp, cv2.resize(frame, self.size, interpolation=cv2.INTER_LINEAR)

    @property
    def times_s(self) -> list[float]:
        """Time of each frame of the camera since the first [s]."""
        own = self.stamps_s[self.hold - 1::self.hold]
        return [stamp - own[0] for stamp in own]

    @property
    def size(self) -> tuple[int, int]:
        """Width and height at which pixels are square; the clip is squashed from it."""
        fx, fy, _, _ = self.intrinsics
        side = self.frames.shape[1]
        return round(side * max(1.0, fy / fx)), round(side * max(1.0, fx / fy))

    def optics(self) -> tuple[float, float, float, float]:
        """Return fx, fy, cx, cy [px] of the images from `sent`."""
        fx, fy, cx, cy = self.intrinsics
        side = self.frames.shape[1]
        x, y = self.size[0] / side, self.size[1] / side
        return fx * x, fy * y, (cx + 0.5) * x - 0.5, (cy + 0.5) * y - 0.5

    def track(self, base: TrackConfig, stream: bool = False) -> TrackConfig:
        """Return settings of a frame memory whose clips, or whose stream, have these frames."""
        count = base.num_frames if stream else len(self.frames)
        times = self.times_s
        # With repeated frames the clip ends one interval early, so its rate is a bit higher.
        rate = base.clip_fps if stream else (count - 1) / times[-1]
        gap = 1.5 * float(np.diff(times).max())
        return replace(base, num_frames=count, image_size=self.frames.shape[1], clip_fps=rate,
                       resize_mode='squash', max_frame_gap=max(base.max_frame_gap, gap))


def truth_of(target: Targets) -> ClipTruth:
    """Return targets on the CPU as what clips are judged by."""
    interval = target.interval_s.double().numpy()
    looming = target.expansion.double().numpy() / interval[:, None, None]
    return ClipTruth(target.contact_s.double().numpy(), interval,
                     np.where(target.expansion_known.numpy(), looming, np.nan),
                     np.where(target.moving_known.numpy(), target.moving.double().numpy(),
                              np.nan))


def films(clips: WorldClips, exact: bool = False) -> Iterator[Film]:
    """Yield the clips of a batch on the CPU, stamped exactly or evenly."""
    frames = clips.frames.cpu().numpy()
    optics = clips.scenes.intrinsics.double().cpu().numpy()
    for index, (interval, hold) in enumerate(zip(clips.interval_s.tolist(), clips.hold.tolist(),
                                                 strict=True)):
        fx, fy, cx, cy = optics[index].tolist()
        stamps = clips.stamps_s[index].tolist() if exact else [
            number * interval for number in range(len(frames[index]))]
        yield Film(frames[index], interval, int(hold), (fx, fy, cx, cy), stamps)


def shown(film: Film, track: CameraState) -> Sample:
    """Fill the frame memory of a track with a clip, and return its sample."""
    track.intrinsics = film.optics()
    for stamp, picture in film.sent():
        track.push(picture, stamp)
    sample = track.sample()
    assert sample is not None, 'a clip fills the frame memory'
    return sample


@dataclass(frozen=True)
class WorldRun:
    world: str  # name of their world
    truth: ClipTruth
    outcomes: dict[str, ClipOutcome]  # `PUBLISHED` and `HEADS`
    held: int  # number of clips with valid heads

    def figures(self) -> dict[str, Any]:
        contact_s = self.truth.contact_time
        return {
            'clips': contact_s.size, 'first_seed': HELD_OUT_SEED, 'clips_per_seed': SPLIT_BATCH,
            'contact_within_3_s': float((contact_s <= HORIZONS_S[-1]).mean()),
            'heads_held': self.held / contact_s.size,
            **{name: clip_figures(self.truth, outcome)
               for name, outcome in self.outcomes.items()}}


def tasks(world: str, count: int, device: str) -> list[tuple[Any, ...]]:
    return [(evaluate_part, world, batch, min(SPLIT_BATCH, count - batch * SPLIT_BATCH), device)
            for batch in range(math.ceil(count / SPLIT_BATCH))]


def evaluate_part(setup: Setup, name: str, batch: int, count: int, device: str) -> WorldRun:
    """Assess the held-out clips of one seed."""
    stream = streams(setup)
    more = TUBELET * HISTORY if stream else 0
    world = world_of(name, setup.track.image_size, setup.track.num_frames + more, device, stream)
    clips = world.clips(HELD_OUT_SEED + batch, count)
    truth = truth_of(clip_targets(clips).to('cpu'))
    rendered = list(films(clips, exact=world.config.rough or stream))
    del clips
    if device.startswith('cuda'):
        torch.cuda.empty_cache()     # for the other processes
    outputs = encoded(rendered, setup)
    outcomes: dict[str, list[ClipOutcome]] = {PUBLISHED: [], HEADS: []}
    held = 0
    for film, output in zip(rendered, outputs, strict=True):
        results = judged(film, setup, output)
        assert output.heads is not None, 'a model without heads is refused'
        outcomes[PUBLISHED].append(outcome_of(results))
        outcomes[HEADS].append(heads_outcome(output.heads, film.interval_s))
        held += results[MIDDLE].learned is not None
    return WorldRun(name, truth, {m: joined(parts) for m, parts in outcomes.items()}, held)


@lru_cache(maxsize=2)
def world_of(name: str, size: int, num_frames: int, device: str, stream: bool) -> ClipWorld:
    """Return the world of this process, whose textures take seconds to paint."""
    return ClipWorld(size=size, num_frames=num_frames, device=device, config=WorldConfig(name),
                     stream=stream)


def gathered(parts: Sequence[WorldRun]) -> WorldRun:
    return WorldRun(parts[0].world, joined([p.truth for p in parts]),
                    {m: joined([p.outcomes[m] for p in parts]) for m in parts[0].outcomes},
                    sum(p.held for p in parts))


def streams(setup: Setup) -> bool:
    """Return whether the model of a setup encodes each tubelet once."""
    return not setup.model.not_streaming


def encoded(rendered: Sequence[Film], setup: Setup) -> list[Prediction]:
    """Run the heads on the rendered pixels, without resizing."""
    engine = setup.model
    if streams(setup):
        return [streamed(film, engine) for film in rendered]
    step = ENCODED.get(engine.choice.device.type, 1)
    out: list[Prediction] = []
    for first in range(0, len(rendered), step):
        out += engine.run([film.frames for film in rendered[first:first + step]], features=False)
    return out


def streamed(film: Film, engine: Model) -> Prediction:
    """Run the heads at the newest frame of a clip, encoded tubelet by tubelet as on a robot."""
    window = engine.config.num_frames
    frames, stamps = film.frames, np.array(film.stamps_s)
    outputs: list[Prediction] = []
    engine.forget()
    for end in range(window, len(frames) + 1, TUBELET):
        shown = slice(end - window, end)
        outputs = engine.run([frames[shown]], features=False, keys=[stamps[shown].tolist()],
                             stamps=[stamps[shown]])
    engine.forget()
    return outputs[0]


def judged(film: Film, setup: Setup, output: Prediction) -> list[Result]:
    """Return the result of a clip for each of `HORIZONS_S`."""
    config = film.track(setup.track, streams(setup))
    wants = Wants(features=False, image=False)
    track = Perception(setup.model, config, [CAMERA]).tracks[CAMERA]
    sample = shown(film, track)
    seen = track.observe(sample, setup.settings, wants)
    seen.prediction = output
    learn([seen])
    out: list[Result] = []
    for horizon in HORIZONS_S:
        track.level_filter = LevelFilter()
        out.append(track.assess(seen.under(replace(
            setup.settings, smoothing=0.0, collision_horizon=horizon))))
    return out


def outcome_of(results: list[Result]) -> ClipOutcome:
    middle = results[MIDDLE]
    grid = np.asarray(middle.looming_map, float)
    # Unknown where the heads are not valid.
    moving = np.full(grid.shape, np.nan) if middle.moving_map is None \
        else np.asarray(middle.moving_map, float)
    return ClipOutcome(
        np.array([[r.assessment.collision_probability for r in results]]),
        np.array([middle.assessment.time_to_contact]), grid[None], moving[None])


def heads_outcome(heads: HeadArrays, interval_s: float) -> ClipOutcome:
    with np.errstate(divide='ignore'):
        logits = torch.from_numpy(np.log(heads.contact))[None]
    return ClipOutcome(
        CONTACT.cdf(logits, torch.tensor([HORIZONS_S]) / interval_s).numpy().astype(float),
        CONTACT.expected_log(logits).exp().numpy().astype(float) * interval_s,
        heads.expansion[None].astype(float) / interval_s, heads.moving[None].astype(float))
