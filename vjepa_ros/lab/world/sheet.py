# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Draw a sheet of pictures of the rough world: platforms, motions, places, lenses, sensors.

``python -m vjepa_ros.lab.world.sheet docs/rough_world.webp`` (two minutes on one core)
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import torch
from torch import Tensor

from vjepa_ros.lab.world.clips import ClipWorld, WorldClips
from vjepa_ros.lab.world.scenes.bodies import HERO_KINDS
from vjepa_ros.lab.world.scenes.places import COVERING_KINDS, TAPES
from vjepa_ros.lab.world.scenes.platforms import NAMES
from vjepa_ros.lab.world.scenes.sampler import Sample
from vjepa_ros.lab.world.scenes.scene import Capture, ELLIPSOID, Scenes
from vjepa_ros.lab.world.scenes.scene_spec import OUTCOME, PLACE, WorldConfig

SEED, CLIPS = 4, 1500     # to choose from
SIZE, FRAMES, COLUMNS = 192, 8, 6
CELL_PX = 112
LABEL_PX, GAP_PX = 150, 3
QUALITY = 72
LOOMING_FULL = 1.0         # [1/s] that is shown in full colour
Score = Callable[[Sample, Capture], Tensor]


def _speed(sample: Sample) -> Tensor:
    return sample.scenes.camera_velocity.norm(dim=-1)


def _spin(sample: Sample) -> Tensor:
    return sample.scenes.camera_spin.norm(dim=-1)


def _platform(name: str) -> Score:
    number = NAMES.index(name)
    return lambda s, c: (s.platform == number) * (s.outcome == OUTCOME['drive_into']) * _clear(s)


def _sharp(sample: Sample) -> Tensor:
    """How well a picture shows a body of importance, whatever the light."""
    s = sample.scenes
    return sample.hero / (1 + s.blur_px + s.read_noise + s.shot_noise + 2 * s.grey + s.jpeg)


def _clear(sample: Sample) -> Tensor:
    """How well one sees: sharp and in usual light."""
    level = (sample.scenes.exposure * sample.scenes.ambient[:, None]).log()
    return _sharp(sample) / (1 + 2 * (level + 0.3).abs().amax(1))


def _steady(sample: Sample) -> Tensor:
    """Whether the body of importance moves as the camera does."""
    s = sample.scenes
    return (s.velocity[:, 0] - s.camera_velocity)[:, 0::2].norm(dim=-1) < 1e-3


def _away(sample: Sample) -> Tensor:
    """Return the distance of the body of importance [m]."""
    s = sample.scenes
    return (s.position[:, -1, 0] - s.camera_position[:, -1]).norm(dim=-1)


def _turned(sample: Sample) -> Tensor:
    """Return how far the camera looks away from where it looked at first, 0..1.5."""
    ahead = sample.scenes.camera_rotation[:, -COLUMNS:, 2]
    return (1 - (ahead[:, 0] * ahead[:, -1]).sum(-1)).clamp(max=1.5)


def _jump(sample: Sample) -> Tensor:
    """Return how much the exposure changes in the frames that are shown, 0..1.2."""
    level = sample.scenes.exposure[:, -COLUMNS:].log()
    return (level.amax(1) - level.amin(1)).clamp(max=1.2)


def _lamp(sample: Sample) -> Tensor:
    """Whether a lamp, the last two shapes but for the coverings, is well in view."""
    lamps = slice(-2 - len(COVERING_KINDS), -len(COVERING_KINDS))
    return (_ahead(sample, lamps)[0] > 0.92).any(1)


def _laid(sample: Sample) -> Tensor:
    """Return how large the mats look, about, where the robot goes."""
    ahead, away = _ahead(sample, slice(-len(COVERING_KINDS), -TAPES))
    half = sample.scenes.half[:, -len(COVERING_KINDS):-TAPES]
    size = half[..., 0] * half[..., 2] / away.square()
    return ((ahead > 0.8) * size.clamp(max=0.3)).sum(1)


def _ahead(sample: Sample, shapes: slice) -> tuple[Tensor, Tensor]:
    """Return the cosine of the angle off the axis of some shapes, 0 if dead; how far they are."""
    s = sample.scenes
    towards = s.position[:, -1, shapes] - s.camera_position[:, -1, None]
    away = towards.norm(dim=-1)
    ahead = (towards * s.camera_rotation[:, -1, 2, None]).sum(-1) / away
    return ahead * s.alive[:, shapes], away


def _moved(sample: Sample) -> Tensor:
    """Return how far apart places of the camera are in the frames that are shown [m]."""
    where = sample.scenes.camera_position[:, -COLUMNS:]
    return (where.amax(1) - where.amin(1)).norm(dim=-1)


def _uneven(sample: Sample) -> Tensor:
    """Return how much longer the longest time between shown frames is than the shortest, 1..4."""
    apart = sample.stamps_s[:, -COLUMNS:].diff()
    return (apart.amax(1) / apart.amin(1).clamp(min=1e-3)).clamp(max=4)


def _near_person(sample: Sample) -> Tensor:
    """Return how near the body of importance is, if it is a person in view [1/m]."""
    ellipsoids = [at for at, kind in enumerate(HERO_KINDS) if kind == ELLIPSOID]
    person = sample.hero * sample.scenes.alive[:, ellipsoids].all(1)    # no other body has all
    ahead, away = _ahead(sample, slice(ellipsoids[1], ellipsoids[2]))   # the trunk
    return person * (ahead[:, 0] > 0.9) * (away[:, 0] > 1.2) / away[:, 0]


def _at(sample: Sample, place: str) -> Tensor:
    return sample.place == PLACE[place]


# Six frames of a clip with the looming of the newest, or the newest frames of seven clips.
CLIP_ROWS: dict[str, Score] = {
    **{name: _platform(name) for name in NAMES[1:]},
    'turns on the spot': lambda s, c: (_speed(s) < 0.01) * (s.platform > 0)
    * (s.outcome == OUTCOME['turn']) * _turned(s) * _clear(s).sqrt(),
    'goes sideways': lambda s, c: (s.scenes.camera_rotation[:, -1, 0] * s.scenes.camera_velocity)
    .sum(-1).abs() * (s.platform > 0) * (_spin(s) < 0.3) * (s.outcome == OUTCOME['rest'])
    * _clear(s),
    'takes off': lambda s, c: -s.scenes.camera_velocity[:, 1] * (s.platform == 1) * _clear(s),
    'lands': lambda s, c: s.scenes.camera_velocity[:, 1] * (s.platform == 1) * _clear(s),
    'hovers': lambda s, c: (s.platform == 1) * (_speed(s) < 0.3) * (_spin(s) < 0.5)
    * (s.scenes.camera_velocity[:, 1].abs() < 0.1) * _moved(s).clamp(max=0.5) * _clear(s),
    'jitter, drops': lambda s, c: _uneven(s).square() * _moved(s).clamp(max=1) * _clear(s),
    'lead vehicle': lambda s, c: (s.outcome == OUTCOME['follow']) * s.hero * _steady(s)
    * (c.shown == 1) * (_at(s, 'motorway') | _at(s, 'street')) * (_speed(s) > 4) * (s.platform > 1)
    * (s.scenes.fog_per_m < 0.004) * (_clear(s) > 0.06) / (1 + _away(s)),
    'exposure lags': lambda s, c: _jump(s).square() * (_clear(s) > 0.03) * _sharp(s).sqrt(),
}
ROLLS = 'rolling shutter\n(left: without)'
MANY_ROWS: dict[str, Score] = {
    'mats, tape': lambda s, c: _laid(s) * _clear(s),
    'people near': lambda s, c: _near_person(s).square() * (s.platform > 0)
    * _clear(s).square(),
    'lab': lambda s, c: _at(s, 'lab') * (s.platform > 0) * _clear(s),
    ROLLS: lambda s, c: c.turn[:, -1, 1].abs() * (s.scenes.blur_px < 0.6) * _clear(s)
    * (_at(s, 'street') | _at(s, 'corridor') | _at(s, 'lab')),
    'motion blur': lambda s, c: c.exposure_s * _spin(s) * _clear(s).sqrt(),
    'blown-out lamps': lambda s, c: c.glare * _lamp(s) * _clear(s).sqrt(),
    'vignetting': lambda s, c: s.scenes.vignette * _clear(s),
    'fixed pattern': lambda s, c: (c.pattern + c.stripes + c.banding) * s.hero,
    'small grey sensor': lambda s, c: s.scenes.grey * s.scenes.read_noise * _clear(s),
    'jpeg': lambda s, c: s.scenes.jpeg * _clear(s),
    'letterbox': lambda s, c: (c.shown < 1) * _clear(s),
    'wide lens': lambda s, c: (c.bend < 1) * (1 / s.scenes.intrinsics[:, 0]) * _clear(s),
}


def coloured(looming: Tensor) -> np.ndarray:
    """Colour looming (H, W) [1/s]: red closes in, blue recedes, grey neither."""
    share = (looming / LOOMING_FULL).clamp(-1, 1).numpy()[..., None]
    grey, red, blue = np.array([[[200, 200, 200]], [[200, 30, 30]], [[40, 70, 200]]])
    mixed = np.where(share > 0, grey + share * (red - grey), grey - share * (blue - grey))
    return mixed.astype(np.uint8)


def picked(score: Tensor, count: int, taken: set[int]) -> list[int]:
    """Choose the best clips that no row has shown yet."""
    best = [int(i) for i in score.argsort(descending=True) if int(i) not in taken][:count]
    taken.update(best)
    return best


def draw(world: ClipWorld, sample: Sample) -> np.ndarray:
    """Draw the sheet, (H, W, 3) uint8 RGB."""
    capture, taken = captured(sample.scenes), set[int]()
    rows: list[tuple[str, list[int]]] = []
    for group, count in ((CLIP_ROWS, 1), (MANY_ROWS, COLUMNS + 1)):
        for label, score in group.items():
            values = score(sample, capture).float()
            rows.append((label, picked(values, count, taken)))
    sheet = []
    for label, numbers in rows:
        part = chosen(sample, numbers)
        clips = world.film(part)
        if label == ROLLS:
            at_once = replace(captured(part.scenes), readout_s=torch.zeros(len(numbers)))
            other = world.film(replace(part, scenes=replace(part.scenes, capture=at_once)))
            pairs = zip(other.frames[:, -1].numpy(), clips.frames[:, -1].numpy(), strict=True)
            cells = [cell for pair in pairs for cell in pair][:COLUMNS]
        elif len(numbers) == 1:
            cells = [*clips.frames[0, -COLUMNS:].numpy(), coloured(clips.truth.looming[0])]
        else:
            cells = list(clips.frames[:, -1].numpy())
        sheet.append(_row(label, numbers, clips, cells))
    return np.concatenate(sheet)


def captured(scenes: Scenes) -> Capture:
    """How the frames are taken; scenes of the rough world have it."""
    if scenes.capture is None:
        raise ValueError('the scenes are of the standard world, the sheet is of the rough one')
    return scenes.capture


def chosen(sample: Sample, numbers: Sequence[int]) -> Sample:
    """Return some clips of a sample."""
    pick = torch.tensor(numbers)
    return Sample(**{name: values.map(lambda v: v[pick]) if name == 'scenes' else values[pick]
                     for name, values in vars(sample).items()})


def _row(label: str, numbers: Sequence[int], clips: WorldClips,
         cells: Sequence[np.ndarray]) -> np.ndarray:
    step = CELL_PX + GAP_PX
    row = np.full((step, LABEL_PX + (COLUMNS + 1) * step, 3), 255, np.uint8)
    lines = label.split('\n')
    if len(numbers) == 1:
        stamps = clips.stamps_s[0, -COLUMNS:]
        lines += [f'{clips.scenes.camera_velocity[0].norm():.1f} m/s',
                  f'{torch.rad2deg(clips.scenes.camera_spin[0].norm()):.0f} deg/s',
                  f'{1 / stamps.diff().clamp(min=1e-3).mean():.1f} Hz, last {-stamps[0]:.2f} s',
                  f'{stamps.diff().min():.2f} to {stamps.diff().max():.2f} s apart']
    for number, line in enumerate(lines):
        cv2.putText(row, line, (4, 24 + 20 * number), cv2.FONT_HERSHEY_SIMPLEX,
                    0.42 if number else 0.5, (20, 20, 20) if number == 0 else (90, 90, 90), 1,
                    cv2.LINE_AA)
    for number, cell in enumerate(cells):
        left = LABEL_PX + number * step
        row[:CELL_PX, left:left + CELL_PX] = cv2.resize(cell, (CELL_PX, CELL_PX),
                                                        interpolation=cv2.INTER_AREA)
    return row


def main(argv: Sequence[str] | None = None) -> int:
    """Write the sheet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('file', type=Path, help='picture to write: webp or png')
    args = parser.parse_args(argv)
    world = ClipWorld(SIZE, FRAMES, config=WorldConfig('rough'))
    sheet = draw(world, world.sample(SEED, CLIPS))
    cv2.imwrite(str(args.file), sheet[..., ::-1], [cv2.IMWRITE_WEBP_QUALITY, QUALITY])
    print(f'wrote {args.file}, {args.file.stat().st_size / 1e3:.0f} kB')
    return 0


if __name__ == '__main__':
    raise SystemExit(main())
