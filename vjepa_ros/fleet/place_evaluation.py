# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Measure whether a place is found again: by embeddings, and by raw pixels.

Robots drive through rendered places twice: the second time in other light, at another speed and a
little aside. Each moment of the second drive looks for its place in the first drives through all
places. In a recording with poses (``--recording``) moments of the second half look in the first;
in one without, such as a walk, every second picture looks among the others for one beside it.

``python -m vjepa_ros.fleet.place_evaluation --recording DIR ...``
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
import torch

from vjepa_ros.clip.resize import View
from vjepa_ros.fleet.embedding import embed
from vjepa_ros.fleet.similarity import cosine
from vjepa_ros.lab.world.clips import BANK_SEED
from vjepa_ros.lab.world.episodes.episode import Episode, EpisodeConfig, draw
from vjepa_ros.lab.world.episodes.world import EpisodeWorld
from vjepa_ros.lab.world.textures.bank import Materials, TextureBank
from vjepa_ros.runtime.engine import Engine, EngineConfig
from vjepa_ros.sources import PlayOptions, open_source

PIXELS = (32, 24)        # to which pictures are shrunk as they are compared pixel by pixel
RATE_HZ = 4.0
SEED = 1                 # of the places; those of 7 have served to choose how to compare
NEAR_M = 0.5             # a place is found when it is that near
FIRST = {'speed': 0.5, 'turn': 0.0}
SECOND = {'speed': 0.6, 'turn': 0.03}
# Factors on sun, ambient light and exposure, and the colour of the light, of the second drive.
OTHER_LIGHT = {'sun': 0.3, 'ambient': 1.3, 'exposure': 0.7}
OTHER_COLOUR = (1.15, 1.0, 0.8)


class Drive(NamedTuple):
    """Moments of a drive: (N,) number of the place, (N, 1 to 3) position, and vectors (N, D)."""

    place: np.ndarray
    position: np.ndarray
    embedding: np.ndarray
    pixels: np.ndarray


def other_light(episode: Episode) -> Episode:
    """Return an episode with the light of the second drive."""
    fields = {**episode.fields, **{name: episode.fields[name] * factor
                                   for name, factor in OTHER_LIGHT.items()}}
    direction = episode.fields['sun_direction'] * torch.tensor([-1.0, 1.0, 1.0])
    fields.update(sun_direction=direction,
                  white_balance=episode.fields['white_balance'] * torch.tensor(OTHER_COLOUR))
    return replace(episode, fields=fields)


def drive(engine: Engine, world: EpisodeWorld, place: int, frames: int,
          command: Mapping[str, float]) -> Drive:
    """Drive through a place and embed each clip of it."""
    pictures, positions = [], []
    one, which = np.ones(1), np.zeros(1, int)
    for _ in range(frames):
        pictures.append(world.pictures(which)[0])
        positions.append(world.robots.place[0].copy())
        world.step(command['speed'] * one, command['turn'] * one, length_s=1 / RATE_HZ)
    embedded, raw = vectors(engine, pictures)
    return Drive(np.full(frames, place), np.array(positions), embedded, raw)


def vectors(engine: Engine, pictures: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return embeddings (N, D) of pictures, and pixels (N, P)."""
    height, width = pictures[0].shape[:2]
    view = View('squash', (width, height), engine.config.image_size)
    embedded = [embed(engine, [view.apply(picture)])[0] for picture in pictures]
    raw = [cv2.resize(cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY), PIXELS,
                      interpolation=cv2.INTER_AREA).ravel() for picture in pictures]
    return np.array(embedded), np.array(raw, np.float32)


def ways(known: Drive, asked: Drive) -> dict[str, tuple[np.ndarray, ...]]:
    """Return by name what is compared: vectors (N, D) and (M, D), centre and scale (D,)."""
    def plain(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, ...]:
        return a, b, np.zeros(a.shape[1]), np.ones(a.shape[1])

    def standardised(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, ...]:
        return a, b, a.mean(axis=0), a.std(axis=0)

    # Of normalised cross-correlation: each picture less its own mean.
    correlated = [d.pixels - d.pixels.mean(axis=1, keepdims=True) for d in (known, asked)]
    return {'embedding': standardised(known.embedding, asked.embedding),
            'pixels': plain(known.pixels, asked.pixels),
            'pixels, standardised': standardised(known.pixels, asked.pixels),
            'pixels, correlated': plain(*correlated)}


def rendered(engine: Engine, places: int, frames: int) -> dict[str, dict[str, float]]:
    """Return what `compared` does for first and second drives through rendered places."""
    bank = TextureBank.procedural(BANK_SEED)
    config = EpisodeConfig()
    materials = Materials(bank.groups, bank.walks)
    firsts, seconds = [], []
    for number in range(places):
        episode = draw(SEED, number, materials, config)
        for drives, seen, command in ((firsts, episode, FIRST),
                                      (seconds, other_light(episode), SECOND)):
            world = EpisodeWorld([seen], config, bank, engine.config.image_size)
            drives.append(drive(engine, world, number, frames, command))
    first, second = (Drive(*map(np.concatenate, zip(*drives, strict=True)))
                     for drives in (firsts, seconds))
    return compared(first, second)


def recorded(engine: Engine, folder: Path) -> dict[str, dict[str, float]]:
    """Return how well places of a recording are found again, see the top.

    With poses (motion.csv) only moments of the second half that have a place in the first are
    asked for. A picture without a pose stands at its number, in place of a position.
    """
    with open_source(folder, PlayOptions(rate=RATE_HZ)) as source:
        frames = list(source)
    embedded, raw = vectors(engine, [frame.rgb for frame in frames])
    if not (folder / 'motion.csv').exists():
        number = np.arange(len(frames))
        every = Drive(0 * number, number[:, None], embedded, raw)
        first, second = (Drive(*(part[n::2] for part in every)) for n in range(2))
        return compared(first, second, 1.0, 'beside')
    labels = np.genfromtxt(folder / 'labels.csv', delimiter=',', names=True)
    poses = np.genfromtxt(folder / 'motion.csv', delimiter=',', names=True)
    # The clock of the frames is that of the labels, moved.
    stamps = np.array([f.stamp_ns for f in frames]) / 1e9
    stamps -= stamps[0] - labels['stamp_s'][0]
    order = np.argsort(poses['stamp_s'], kind='stable')
    where = np.stack([np.interp(stamps, poses['stamp_s'][order], poses[axis][order])
                      for axis in ('x_m', 'y_m', 'z_m')], axis=1)
    half = len(frames) // 2
    first, second = (Drive(np.zeros(len(where[part])), where[part], embedded[part], raw[part])
                     for part in (slice(0, half), slice(half, None)))
    nearest = np.linalg.norm(second.position[:, None] - first.position[None], axis=-1).min(axis=1)
    return compared(first, Drive(*(part[nearest <= NEAR_M] for part in second)))


def compared(first: Drive, second: Drive, near: float = NEAR_M, name: str = f'within {NEAR_M} m'
             ) -> dict[str, dict[str, float]]:
    """Return by way how often the best moment is of the right place, and how far away."""
    result: dict[str, dict[str, float]] = {
        'moments': {'known': len(first.place), 'asked': len(second.place)}}
    for way, (rows, wanted, centre, scale) in ways(first, second).items():
        best = np.array([np.argmax(cosine(rows, one, centre, scale)) for one in wanted])
        right = first.place[best] == second.place
        away = np.linalg.norm(first.position[best] - second.position, axis=1)
        result[way] = {'right place': float(right.mean()),
                       name: float((right & (away <= near)).mean()),
                       'median error': float(np.median(np.where(right, away, np.inf)))}
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print JSON; 1 where a recording or the weights cannot be read."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--places', type=int, default=12)
    parser.add_argument('--frames', type=int, default=24, help='of a drive, 4 a second')
    parser.add_argument('--recording', type=Path, nargs='*', default=[], metavar='DIR')
    parser.add_argument('--weights', default='')
    args = parser.parse_args(argv)
    try:
        engine = Engine.load(EngineConfig(weights=args.weights, streaming='off'))
        try:
            # First, because rendering takes minutes.
            found = {folder.name: recorded(engine, folder) for folder in args.recording}
            if args.places:
                found['rendered'] = rendered(engine, args.places, args.frames)
        finally:
            engine.close()
    except (ValueError, OSError) as error:
        print(f'place_evaluation: {error}', file=sys.stderr)
        return 1
    print(json.dumps(found, indent=1))
    return 0


if __name__ == '__main__':
    sys.exit(main())
