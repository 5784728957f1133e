# SPDX-License-Identifier: Apache-2.0
"""Evaluate every method on rendered clips that nothing was trained on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import cv2
import numpy as np

from vjepa_ros.evaluation.clips import HORIZONS_S, ClipOutcome, ClipTruth, clip_figures, joined
from vjepa_ros.perception.assessment import Quality, Result
from vjepa_ros.perception.assessor import Assessor
from vjepa_ros.perception.config import TrackConfig, Wants
from vjepa_ros.perception.pipeline import Perception
from vjepa_ros.perception.track import Track
from vjepa_ros.tools.evaluate_run import CAMERA, Setup
from vjepa_ros.training.seeds import HELD_OUT_SEED, SPLIT_BATCH
from vjepa_ros.training.targets import clip_targets
from vjepa_ros.world.clips import ClipWorld, WorldClips

START_NS = 1_000_000_000
MIDDLE = HORIZONS_S.index(2.0)    # horizon of the result that maps and times are taken from


@dataclass(frozen=True)
class Film:
    """One clip as a camera would have sent it.

    Attributes
    ----------
    frames
        (T, S, S, 3) uint8 RGB, the encoder's input, repeated frames included.
    interval_s
        Time between those frames [s].
    hold
        How often each frame stands in the clip.
    intrinsics
        fx, fy, cx, cy [px] of those frames.
    """

    frames: np.ndarray
    interval_s: float
    hold: int
    intrinsics: tuple[float, float, float, float]

    def sent(self) -> Iterator[tuple[int, np.ndarray]]:
        """Stamp [ns] and picture with square pixels of the frames that the camera took."""
        distinct = self.frames[self.hold - 1::self.hold]
        for number, frame in enumerate(distinct):
            stamp = START_NS + round(number * self.hold * self.interval_s * 1e9)
            yield stamp, cv2.resize(frame, self.size, interpolation=cv2.INTER_LINEAR)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height at which pixels are square; the clip is squashed from it."""
        fx, fy, _, _ = self.intrinsics
        side = self.frames.shape[1]
        return round(side * max(1.0, fy / fx)), round(side * max(1.0, fx / fy))

    def optics(self) -> tuple[float, float, float, float]:
        """fx, fy, cx, cy [px] of the pictures that `sent` gives."""
        fx, fy, cx, cy = self.intrinsics
        side = self.frames.shape[1]
        x, y = self.size[0] / side, self.size[1] / side
        return fx * x, fy * y, (cx + 0.5) * x - 0.5, (cy + 0.5) * y - 0.5

    def track(self, base: TrackConfig) -> TrackConfig:
        """A frame memory whose clips have exactly these frames."""
        count = len(self.frames)
        span = (count // self.hold - 1) * self.hold * self.interval_s
        # With repeated frames the clip ends one interval early, so its rate is a bit higher.
        return replace(base, num_frames=count, image_size=self.frames.shape[1],
                       clip_fps=(count - 1) / span, resize_mode='squash',
                       max_frame_gap=max(base.max_frame_gap, 1.5 * self.hold * self.interval_s))


@dataclass(frozen=True)
class WorldRun:
    """What every method said of the rendered clips.

    Attributes
    ----------
    figures
        ``clips``, ``first_seed``, ``clips_per_seed``, ``contact_within_3_s`` and ``heads_held``
        (parts of the clips) and ``methods`` (figures of `vjepa_ros.evaluation.clips` by name).
    truth, outcomes
        Of all clips, and by method.
    newest
        The newest frame of each clip as JPEG.
    """

    figures: dict[str, Any]
    truth: ClipTruth
    outcomes: dict[str, ClipOutcome]
    newest: list[bytes]


def evaluate(count: int, setup: Setup, device: str, tick: Callable[[], None]) -> WorldRun:
    """Let every method judge held-out clips.

    Parameters
    ----------
    count
        Number of clips; their seeds are those that training keeps away from.
    setup
        Methods, settings and engine. Smoothing is off: a clip is a single moment, and so is
        `approach_speed`: what is true is a contact at the present velocities.
    device
        Where to render.
    tick
        Called after each clip.
    """
    world = ClipWorld(size=setup.track.image_size, num_frames=setup.track.num_frames,
                      device=device)
    truths: list[ClipTruth] = []
    outcomes: dict[str, list[ClipOutcome]] = {m: [] for m in setup.methods}
    newest, held = [], 0
    for batch in range(math.ceil(count / SPLIT_BATCH)):
        clips = world.clips(HELD_OUT_SEED + batch,
                            min(SPLIT_BATCH, count - batch * SPLIT_BATCH))
        truths.append(truth_of(clips))
        for film in films(clips):
            for method, results in judged(film, setup).items():
                outcomes[method].append(outcome_of(results, method))
                held += method == setup.methods[-1] and results[MIDDLE].method != 'geometric'
            newest.append(jpeg(film))
            tick()
    truth, said = joined(truths), {m: joined(parts) for m, parts in outcomes.items()}
    return WorldRun(
        {'clips': count, 'first_seed': HELD_OUT_SEED, 'clips_per_seed': SPLIT_BATCH,
         'contact_within_3_s': float((truth.contact_time <= HORIZONS_S[-1]).mean()),
         'heads_held': held / count,
         'methods': {method: clip_figures(truth, outcome) for method, outcome in said.items()}},
        truth, said, newest)


def truth_of(clips: WorldClips) -> ClipTruth:
    """What is true of a batch, on the patch grid."""
    target = clip_targets(clips).to('cpu')
    interval = target.interval_s.double().numpy()
    looming = target.expansion.double().numpy() / interval[:, None, None]
    return ClipTruth(target.contact_s.double().numpy(), interval,
                     np.where(target.expansion_known.numpy(), looming, np.nan),
                     np.where(target.moving_known.numpy(), target.moving.double().numpy(),
                              np.nan))


def films(clips: WorldClips) -> Iterator[Film]:
    """The clips of a batch, one by one, on the CPU."""
    frames = clips.frames.cpu().numpy()
    optics = clips.scenes.intrinsics.double().cpu().numpy()
    for index, (interval, hold) in enumerate(zip(clips.interval_s.tolist(), clips.hold.tolist(),
                                                 strict=True)):
        yield Film(frames[index], interval, int(hold), tuple(optics[index].tolist()))


def judged(film: Film, setup: Setup) -> dict[str, list[Result]]:
    """Results of every method at every horizon."""
    config, wants = film.track(setup.track), Wants(features=False, image=False)
    output, perception = None, None
    if setup.engine is None:
        track = Track(CAMERA, config)
    else:
        perception = Perception(setup.engine, config, [CAMERA])
        track = perception.tracks[CAMERA]
        # The very pixels that were rendered, not those that went through two resizes.
        output = setup.engine.run([film.frames], features=False)[0]
    track.intrinsics = film.optics()
    for stamp, picture in film.sent():
        track.push(picture, stamp)
    sample = track.sample()
    if sample is None:
        raise RuntimeError(f'a clip of {len(film.frames)} frames every {film.interval_s} s, held '
                           f'{film.hold} times, does not fill the frame memory')
    track.clip(sample)
    out: dict[str, list[Result]] = {}
    for method in setup.methods:
        out[method] = []
        for horizon in HORIZONS_S:
            # The truth is contact at the present velocities, not if the robot went ahead.
            settings = replace(setup.settings, looming_method=method, smoothing_method='none',
                               collision_horizon=horizon, approach_speed=0.0)
            track.assessor = Assessor()
            out[method].append(
                track.result(sample, None, None, settings, age_s=math.nan, flags=Quality(0),
                             wants=wants, timings={}) if perception is None else
                perception.result(CAMERA, sample, output, settings, wants, math.nan, {}))
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


def jpeg(film: Film) -> bytes:
    """The newest frame of a clip with square pixels."""
    picture = cv2.resize(film.frames[-1], film.size, interpolation=cv2.INTER_LINEAR)
    done, data = cv2.imencode('.jpg', cv2.cvtColor(picture, cv2.COLOR_RGB2BGR),
                              [cv2.IMWRITE_JPEG_QUALITY, 80])
    if not done:
        raise ValueError(f'cannot encode a {picture.shape} {picture.dtype} image as jpeg')
    return data.tobytes()
