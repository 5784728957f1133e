# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Measure on recordings whether the motion score tells moving from still.

Moving clips come from recordings watched by a person; still clips from a resting drone, and from
single frames of all recordings that are held with fresh sensor noise and a flicker of one grey
level. The yardstick is the area under the ROC curve, next to that of the variance of features
over tokens, which other V-JEPA tools call motion.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from vjepa_ros.clip.preprocess import View
from vjepa_ros.evaluation import metrics
from vjepa_ros.perception.motion import motion_map, motion_score
from vjepa_ros.runtime.engine import Engine, EngineConfig
from vjepa_ros.runtime.noise import still_clip
from vjepa_ros.sources import open_source
from vjepa_ros.tools.json_file import write_json

HELD_SIGMA = 2.0  # sensor noise of held frames at the size of the source [grey levels]


@dataclass(frozen=True)
class Recording:
    """One recording and what a person saw in it.

    Attributes
    ----------
    name : str
        File or folder.
    moving : bool
        Whether the scene or the camera moves from `start_s` to `end_s`.
    start_s, end_s : float
        Stretch to cut clips from.
    hold_every : int
        Every frame of this many is also held still; 0 for none.
    topic : str or None
        Image topic of a bag.

    """

    name: str
    moving: bool
    start_s: float = 0.0
    end_s: float = float('inf')
    hold_every: int = 0
    topic: str | None = None


RECORDINGS = (
    Recording('cup.mp4', True, hold_every=80),
    Recording('box.mp4', True, 1.6, 13.2, hold_every=160),  # the box rests before and after
    Recording('motorway.mp4', True, hold_every=80),
    Recording('donkey_tub_bag', True, hold_every=400, topic='/camera/image/compressed'),
    Recording('himax_2', True, hold_every=12),
    Recording('himax_10', True, hold_every=12),
    Recording('kitti_street', True, hold_every=20),
    Recording('euroc_still', False),
)


@dataclass(frozen=True)
class Clip:
    """Input of the model with its label."""

    kind: str  # moving, still or held
    mode: str
    clip_fps: float  # 0 for held frames
    start_s: float
    pixels: np.ndarray  # (frames, S, S, 3) uint8
    valid: np.ndarray  # (Hp, Wp) bool, patches that show the image


@dataclass(frozen=True)
class Outcome:
    """Scores of one clip."""

    recording: str
    kind: str
    mode: str
    clip_fps: float
    start_s: float
    motion_score: float
    variance: float


def token_variance(features: np.ndarray) -> float:
    """Mean over channels of the unbiased variance over all tokens: the usual formula."""
    return float(features.reshape(-1, features.shape[-1]).var(axis=0, ddof=1).mean())


def roc_auc(positive: Sequence[float], negative: Sequence[float]) -> float:
    """Chance that a positive scores above a negative; a tie counts half."""
    labels = [True] * len(positive) + [False] * len(negative)
    return metrics.roc_auc([*positive, *negative], labels)


def clip_indices(stamps_s: np.ndarray, num_frames: int, clip_fps: float, start_s: float,
                 end_s: float, count: int) -> list[np.ndarray]:
    """Indices of the frames of up to `count` evenly spread clips.

    A camera slower than `clip_fps` gives consecutive frames instead of repeated ones.
    """
    stamps_s = stamps_s - stamps_s[0]
    spacing = max(1.0 / clip_fps, float(np.median(np.diff(stamps_s))))
    first, last = start_s, min(end_s, stamps_s[-1]) - (num_frames - 1) * spacing
    if last < first:
        return []
    targets = np.linspace(first, last, count)[:, None] + spacing * np.arange(num_frames)
    nearest = np.abs(stamps_s[None, None] - targets[..., None]).argmin(axis=2)
    return list(np.unique(nearest, axis=0))


def held_frames(picture: np.ndarray, num_frames: int, sigma: float,
                rng: np.random.Generator) -> np.ndarray:
    """Hold an RGB image still under noise; a grey image stays grey."""
    if (picture == picture[..., :1]).all():
        return still_clip(picture[..., :1], num_frames, rng, sigma).repeat(3, axis=-1)
    return still_clip(picture, num_frames, rng, sigma)


def shown(view: View) -> np.ndarray:
    """Patches that show the image rather than a bar, (Hp, Wp) bool."""
    return view.patch_valid() > 0.5


def cut_clips(path: Path, recording: Recording, num_frames: int, image_size: int,
              settings: Sequence[tuple[str, float]], count: int, sigma: float,
              rng: np.random.Generator) -> Iterator[Clip]:
    """Yield the labelled clips of a recording; only resized frames are kept in memory."""
    modes = sorted({mode for mode, _ in settings})
    stamps, small, views = [], {mode: [] for mode in modes}, {}
    source = open_source(str(path), topic=recording.topic)
    try:
        for number, frame in enumerate(source):
            height, width = frame.rgb.shape[:2]
            views = views or {m: View(m, (width, height), image_size) for m in modes}
            stamps.append(frame.stamp_ns * 1e-9)
            for mode, view in views.items():
                small[mode].append(view.apply(frame.rgb))
            if recording.hold_every and number % recording.hold_every == 0:
                held = held_frames(frame.rgb, num_frames, sigma, rng)
                for mode, view in views.items():
                    yield Clip('held', mode, 0.0, stamps[-1] - stamps[0],
                               np.stack([view.apply(h) for h in held]), shown(view))
    finally:
        source.close()
    seconds = np.asarray(stamps) - stamps[0]
    for mode, clip_fps in settings:
        for index in clip_indices(seconds, num_frames, clip_fps, recording.start_s,
                                  recording.end_s, count):
            yield Clip('moving' if recording.moving else 'still', mode, clip_fps,
                       float(seconds[index[0]]), np.stack([small[mode][i] for i in index]),
                       shown(views[mode]))


def run(shared: Path, *, settings: Sequence[tuple[str, float]] = (('crop', 4.0),),
        config: EngineConfig | None = None, clips: int = 8, sigma: float = HELD_SIGMA,
        recordings: Sequence[Recording] | None = None) -> dict:
    """Score moving and still clips.

    Parameters
    ----------
    shared : Path
        Folder that holds the recordings.
    settings : sequence of (str, float)
        Pairs of resize mode and frames per second of the clip.
    config : EngineConfig, optional
        Model; the untrained default when omitted.
    clips : int
        Clips per recording and setting.
    sigma : float
        Noise of held frames [grey levels at the size of the source].
    recordings : sequence of Recording
        What to read; `RECORDINGS` when omitted.

    Returns
    -------
    dict
        `settings`: for each pair the area under the ROC curve of motion score and of token
        variance, the highest still and the lowest moving score; `outcomes`: every clip.

    """
    config = config or EngineConfig(weights='random', allow_random_weights=True)
    rng = np.random.default_rng(0)
    outcomes: list[Outcome] = []
    engine = Engine.load(config)
    try:
        for recording in RECORDINGS if recordings is None else recordings:
            for clip in cut_clips(shared / recording.name, recording, config.num_frames,
                                  config.image_size, settings, clips, sigma, rng):
                features = engine.encode([clip.pixels])[0]
                motion = motion_map(features, engine.noise_floor, clip.pixels, clip.valid)
                outcomes.append(Outcome(recording.name, clip.kind, clip.mode, clip.clip_fps,
                                        round(clip.start_s, 3), motion_score(motion),
                                        token_variance(features)))
    finally:
        engine.close()
    return {'model': config.model_size, 'trained': engine.report.trained, 'held_sigma': sigma,
            'settings': [summarise(outcomes, mode, fps) for mode, fps in settings],
            'outcomes': [asdict(o) for o in outcomes]}


def summarise(outcomes: Sequence[Outcome], mode: str, clip_fps: float) -> dict:
    """Figures of one setting; held frames have no rate, so they count for every rate."""
    moving = [o for o in outcomes if (o.kind, o.mode, o.clip_fps) == ('moving', mode, clip_fps)]
    still = [o for o in outcomes if o.mode == mode and (
        o.kind == 'held' or (o.kind, o.clip_fps) == ('still', clip_fps))]
    by_name: dict[str, list[float]] = {}
    for o in moving + still:
        by_name.setdefault(f'{o.recording} {o.kind}', []).append(o.motion_score)
    return {
        'mode': mode, 'clip_fps': clip_fps, 'moving_clips': len(moving), 'still_clips': len(still),
        'auc_motion_score': roc_auc([o.motion_score for o in moving],
                                    [o.motion_score for o in still]),
        'auc_token_variance': roc_auc([o.variance for o in moving], [o.variance for o in still]),
        'moving_min': min(o.motion_score for o in moving),
        'still_max': max(o.motion_score for o in still),
        'recordings': {name: {'min': min(v), 'mean': float(np.mean(v)), 'max': max(v)}
                       for name, v in by_name.items()},
    }


def table(result: dict) -> str:
    """The figures as text."""
    lines = []
    for s in result['settings']:
        lines += ['', f"{s['mode']} at {s['clip_fps']:g} Hz: {s['moving_clips']} moving and "
                      f"{s['still_clips']} still clips",
                  f"  area under ROC: motion score {s['auc_motion_score']:.3f}, "
                  f"variance over tokens {s['auc_token_variance']:.3f}",
                  f"  {'recording':<24}{'min':>8}{'mean':>8}{'max':>8}"]
        lines += [f"  {name:<24}{v['min']:>8.3f}{v['mean']:>8.3f}{v['max']:>8.3f}"
                  for name, v in s['recordings'].items()]
    return '\n'.join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Command line: print the table, and write all figures when asked."""
    parser = argparse.ArgumentParser(prog='vjepa-ros motion-study',
                                     description=__doc__.splitlines()[0])
    parser.add_argument('shared', type=Path, help='folder of the recordings')
    parser.add_argument('--mode', nargs='+', default=['crop', 'squash', 'letterbox'],
                        help='resize modes')
    parser.add_argument('--fps', nargs='+', type=float, default=[4.0, 8.0],
                        help='frames per second of the clips')
    parser.add_argument('--clips', type=int, default=8, help='clips per recording and setting')
    parser.add_argument('--sigma', type=float, default=HELD_SIGMA,
                        help='noise of held frames in grey levels')
    parser.add_argument('--model-size', default='tiny')
    parser.add_argument('--weights', default='', help='safetensors file; random when omitted')
    parser.add_argument('--json', type=Path, help='file for all figures')
    args = parser.parse_args(argv)
    logging.basicConfig(level=logging.WARNING)
    config = EngineConfig(model_size=args.model_size, weights=args.weights or 'random',
                          allow_random_weights=not args.weights)
    result = run(args.shared, config=config, clips=args.clips, sigma=args.sigma,
                 settings=[(mode, fps) for mode in args.mode for fps in args.fps])
    print(table(result))
    if args.json:
        write_json(args.json, result)
    return 0


if __name__ == '__main__':
    raise SystemExit(main())
