# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Drive robots through a batch of episodes, and keep their time where it is simulated."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import fields

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.lab.world.episodes.episode import Episode, EpisodeConfig
from vjepa_ros.lab.world.episodes.robot import (
    BESIDE_M,
    STANDS_M_S,
    Unicycles,
    WAIT_M,
    WAIT_S,
    band_of,
    footprint,
    reach_of,
    touching,
)
from vjepa_ros.lab.world.rendering.render import render
from vjepa_ros.lab.world.scenes.scene import BOX, CARD, CYLINDER, Scenes, Shapes, rotation
from vjepa_ros.lab.world.textures.bank import TextureBank

OPAQUE = 127           # of 255; from there on one sees it rather than what is behind
SUBSTEP_S = 0.02       # contacts are tested this often


class EpisodeWorld:
    """N episodes, all at the same time after their start; movers that meet a robot wait."""

    def __init__(self, episodes: Sequence[Episode], config: EpisodeConfig, bank: TextureBank,
                 width: int = 384) -> None:
        self.episodes, self.config, self.bank = list(episodes), config, bank
        self.size = (width, round(width / config.aspect))
        count = len(self.episodes)
        self.robots = Unicycles(count, config.drive)
        # Whether each has touched something and stays there, whether it stood then, and what.
        self.collided, self.struck = np.zeros(count, bool), np.zeros(count, bool)
        self.touched = [''] * count
        self.frame = 0
        self.time_s = float(self.episodes[0].times[0])      # negative while the robots stand
        self._step = 1 / config.rate
        self._owner = self.episodes[0].owner
        self._kinds = self.episodes[0].shapes.kinds
        longest = max(len(e.times) for e in self.episodes)

        def table(name: str) -> np.ndarray:
            rows = [getattr(e.shapes, name)[0].numpy() for e in self.episodes]
            if name in ('position', 'yaw', 'texture'):
                rows = [np.concatenate((r, np.repeat(r[-1:], longest - len(r), 0))) for r in rows]
            return np.stack(rows)

        self._tables = {f.name: table(f.name) for f in fields(Shapes) if f.name != 'kinds'}
        self._alive = self._tables['alive'].astype(bool)
        self._half = self._tables['half'].astype(float)
        self._poses = np.concatenate(
            (self._tables['position'], self._tables['yaw'][..., None]), -1).astype(float)
        self._band = band_of(config.robot, np.array([e.camera_height for e in self.episodes]))
        # What robots can touch: of a card only where it is opaque, which may lie aside.
        self._solid, self._aside = self._half.copy(), np.zeros(self._alive.shape)
        self._touchable = self._alive.copy()
        for number, shape in np.argwhere(self._alive & (np.array(self._kinds) == CARD)):
            low, high = self._opaque(number, shape)
            self._touchable[number, shape] = low < high
            self._solid[number, shape, 0] *= 0.5 * (high - low)
            self._aside[number, shape] = 0.5 * (low + high) * self._half[number, shape, 0]
        bodies = [e.bodies for e in self.episodes]
        self._clock = np.zeros((count, len(bodies[0])))     # of each body, in steps
        self._moves = np.array([[b.moves for b in row] for row in bodies])
        width, height = self.size
        focal = 0.5 * width / np.tan(0.5 * np.array([e.fov for e in self.episodes]))
        middle = np.broadcast_to((0.5 * (width - 1), 0.5 * (height - 1)), (count, 2))
        lenses = np.concatenate((np.stack((focal, focal), -1), middle), -1)
        self._lens = torch.tensor(lenses, dtype=torch.float32)

    @property
    def intrinsics(self) -> np.ndarray:  # (N, 4) fx, fy, cx, cy [px]
        return self._lens.numpy().astype(float)

    def _opaque(self, number: int, shape: int) -> tuple[float, float]:
        """Return from where to where, -1..1, a card is opaque as high as the robot reaches."""
        shown = set(np.ravel(self._tables['texture'][number, :, shape]).tolist())
        foot = -self._tables['position'][number, 0, shape, 1] - self._half[number, shape, 1]
        low, top = np.clip((self._band[number] - foot) / (2 * self._half[number, shape, 1]), 0, 1)
        size, least, most = self.bank.atlas.size, math.nan, math.nan
        for texture in shown:
            rows = self.bank.atlas.opacity(texture)[
                math.floor((1 - top) * size):math.ceil((1 - low) * size)]
            columns = np.flatnonzero((rows > OPAQUE).any(0))
            if len(columns):
                least = np.fmin(least, 2 * int(columns[0]) / size - 1)
                most = np.fmax(most, 2 * (int(columns[-1]) + 1) / size - 1)
        return least, most

    def step(self, speed: np.ndarray, turn: np.ndarray, active: np.ndarray | None = None,
             length_s: float | None = None) -> None:
        """Go on to the next picture with commands (N,); robots that are not active stay."""
        length_s = self._step if length_s is None else length_s
        count = max(1, round(length_s / SUBSTEP_S))
        dt = length_s / count
        active = np.ones(len(self.collided), bool) if active is None else active
        for _ in range(count):
            goes = active & ~self.collided
            self.robots.step(speed, turn, dt, goes)
            self._clock += (self._moves & ~self._waiting()) * (dt / self._step)
            self._clock[~self._moves] += dt / self._step
            self._test(goes)
        self.frame += 1
        self.time_s += length_s

    def _test(self, goes: np.ndarray) -> None:
        which = np.flatnonzero(goes)
        if not len(which):
            return
        hit = self.touches(which)
        for number in which[hit.any(-1)]:
            self.collided[number] = True
            self.struck[number] = abs(self.robots.speed[number]) < STANDS_M_S / 2
            self.robots.speed[number] = self.robots.turn[number] = 0
            shape = int(np.argmax(hit[np.searchsorted(which, number)]))
            owner = self._owner[shape]
            episode = self.episodes[number]
            self.touched[number] = 'wall' if owner < 0 else episode.bodies[owner].kind

    def touches(self, which: np.ndarray, ahead: float = 0.0) -> np.ndarray:
        """(len(which), K) bool, what robots touch, or would if they were longer in front [m]."""
        position, yaw = self._solid_where(which)
        corners = footprint(self.robots.place[which], self.robots.yaw[which], self.config.robot,
                            0.0, ahead)
        return touching(corners, self._band[which], self._kinds, self._touchable[which], position,
                        yaw, self._solid[which])

    def clearance(self, number: int, longest: float = 8.0) -> float:
        """Free length in front of a robot [m], exact to 1 mm, up to the longest."""
        low, high = 0.0, longest
        which = np.array([number])
        if not self.touches(which, high).any():
            return longest
        while high - low > 1e-3:
            middle = 0.5 * (low + high)
            if self.touches(which, middle).any():
                high = middle
            else:
                low = middle
        return low

    def corners(self, number: int) -> np.ndarray:
        robots = self.robots
        return footprint(robots.place[number], robots.yaw[number], self.config.robot)

    def outlines(self, number: int) -> list[np.ndarray]:
        """Outlines (P, 2) of what a robot can touch now, x and z [m]."""
        position, yaw = (one[0] for one in self._solid_where(np.array([number])))
        half, (low, top) = self._solid[number], self._band[number]
        high = -position[:, 1]                               # of the centre
        away = np.maximum(np.maximum(low - high, high - top), 0.0)
        found = []
        for n in np.flatnonzero(self._touchable[number] & (away <= half[:, 1])):
            flat = self._kinds[n] in (BOX, CARD)
            angle = np.arange(4 if flat else 20) * (np.pi / 2 if flat else np.pi / 10)
            # The corners of a square, or a circle.
            unit = np.stack((np.cos(angle), np.sin(angle)), -1)
            unit = np.sign(unit @ np.array(((1, 1), (-1, 1)))) if flat else unit
            deep = {CARD: 0.02, CYLINDER: half[n, 0]}.get(self._kinds[n], half[n, 2])
            x, z = (unit * (half[n, 0], deep)).T
            sine, cosine = math.sin(yaw[n]), math.cos(yaw[n])
            found.append(position[n, [0, 2]] + np.stack((x * cosine + z * sine,
                                                         z * cosine - x * sine), -1))
        return found

    def _waiting(self) -> np.ndarray:
        """(N, M) bool, movers that wait for a robot before them."""
        clock, reach = self._clock.astype(int), reach_of(self.config.robot)
        waits = np.zeros(self._moves.shape, bool)
        for number, episode in enumerate(self.episodes):
            drives = abs(self.robots.speed[number]) >= STANDS_M_S
            first = episode.heedless if drives else 0
            for m in np.flatnonzero(self._moves[number]):
                if m < first:
                    continue
                body = episode.bodies[m]
                now = min(int(clock[number, m]), len(body.yaw) - 2)
                way = body.place[now + 1] - body.place[now]
                pace = float(np.linalg.norm(way)) / self._step
                if pace < 1e-6:
                    continue
                way = way / np.linalg.norm(way)
                off = self.robots.place[number] - body.place[now]
                ahead = float(off @ way)
                side = abs(float(off[0] * way[1] - off[1] * way[0]))
                near = body.size[2] + reach + WAIT_M + WAIT_S * pace
                waits[number, m] = 0 < ahead < near and side < body.size[0] + reach + BESIDE_M
        return waits

    def _times(self, which: np.ndarray) -> np.ndarray:
        """Return the times (n, K) of shapes, in steps, within their tables."""
        clock = np.where(self._owner >= 0, self._clock[which][:, self._owner], 0.0)
        return np.clip(clock, 0, self._poses.shape[1] - 1)

    def _where(self, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Positions (n, K, 3) and yaws (n, K) of shapes, between the times of the tables."""
        clock = self._times(which)
        first = np.minimum(clock.astype(int), self._poses.shape[1] - 2)
        row, column = which[:, None], np.arange(len(self._owner))[None]
        a, b = (self._poses[row, first + later, column] for later in (0, 1))
        pose = a + (clock - first)[..., None] * (b - a)
        return pose[..., :3], pose[..., 3]

    def _solid_where(self, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Positions and yaws as `_where`, of the part of each shape that robots can touch."""
        position, yaw = self._where(which)
        own_x = np.stack((np.cos(yaw), np.zeros_like(yaw), -np.sin(yaw)), -1)
        return position + self._aside[which][..., None] * own_x, yaw

    def pictures(self, which: np.ndarray) -> np.ndarray:
        """(len(which), H, W, 3) uint8 RGB of the present moment."""
        position, yaw = self._where(which)
        tables, count, shapes = self._tables, len(which), len(self._owner)
        at = self._times(which).astype(int)
        texture = tables['texture'][which[:, None], at, np.arange(shapes)[None]]
        episodes = [self.episodes[n] for n in which]
        front = self.robots.front(self.config.robot)[which]
        height = np.array([episode.camera_height for episode in episodes])
        pitch = torch.tensor([episode.pitch for episode in episodes], dtype=torch.float32)
        camera = np.stack((front[:, 0], -height, front[:, 1]), -1)
        light = {name: torch.cat([episode.fields[name] for episode in episodes])
                 for name in episodes[0].fields if name != 'exposure'}
        bright = [episode.fields['exposure'][:, :self.frame + 1] for episode in episodes]
        light['exposure'] = torch.stack([one[:, -1] for one in bright])
        light['seed'] = light['seed'] + self.frame      # noise differs from picture to picture

        def real(values: np.ndarray) -> Tensor:
            return torch.tensor(values, dtype=torch.float32)

        heading = real(self.robots.yaw[which])
        scenes = Scenes(
            interval_s=torch.full((count,), self._step), intrinsics=self._lens[which],
            distortion=torch.zeros(count, 2), camera_position=real(camera)[:, None],
            camera_rotation=rotation(heading, pitch, torch.zeros(count))[:, None],
            camera_velocity=torch.zeros(count, 3), camera_spin=torch.zeros(count, 3),
            kinds=self._kinds, alive=torch.tensor(self._alive[which]),
            position=real(position)[:, None], yaw=real(yaw)[:, None],
            half=real(self._half[which]), velocity=torch.zeros(count, shapes, 3),
            yaw_rate=torch.zeros(count, shapes), texture=torch.tensor(texture)[:, None],
            tile_m=torch.tensor(tables['tile_m'][which]),
            tint=torch.tensor(tables['tint'][which]), capture=None, **light)
        scenes = scenes.map(lambda values: values.to(self.bank.atlas.texels.device))
        return render(scenes, self.bank, self.size)[:, 0].cpu().numpy()


STEP_S = 0.1          # of real time that is caught up; longer work slows time down
LONGEST_WAIT_S = 15.0  # real time, for an assessment
CREEP = 1e-3          # of real time that passes while waiting: a guard stops when the clock does
_PICTURES = 2         # greatest age of an assessment, in pictures
_CLOSE_S = 1e-6       # moments closer together are the same


class WorldClock:
    """Simulated time: as fast as real time, slower where the computer cannot keep up.

    It waits for each picture to be rendered, and nearly stops while the newest assessment is two
    pictures old, so that a slow computer drives the same episode. When assessments stop coming,
    time continues. Not `patient`: real time, with pictures that are rendered late.
    """

    def __init__(self, start_s: float, period_s: float, patient: bool = True,
                 steady_s: Callable[[], float] = time.monotonic) -> None:
        self.now_s, self._period_s, self._steady_s = start_s, period_s, steady_s
        self._patient = patient
        self._last_s, self._owed_s = steady_s(), 0.0
        self._due_s = start_s
        self._assessed_s = math.nan             # NaN: nothing to wait for
        self._waits_since_s = math.nan          # real time
        self._begun = (math.nan, math.nan)

    @property
    def due(self) -> bool:
        return self.now_s >= self._due_s - _CLOSE_S

    @property
    def factor(self) -> float:
        return (self.now_s - self._begun[0]) / max(1e-9, self._last_s - self._begun[1])

    def begin(self) -> None:
        self._begun = self.now_s, self._last_s

    def advance(self) -> None:
        steady = self._steady_s()
        self._owed_s, self._last_s = self._owed_s + steady - self._last_s, steady
        last_s = math.inf
        if self._patient:
            self._owed_s = min(STEP_S, self._owed_s)
            last_s = min(self._due_s, self._waits_at_s(steady))
        step = max(0.0, min(self._owed_s, last_s - self.now_s))
        self.now_s += step
        # Waiting is not caught up.
        self._owed_s = self._owed_s - step if math.isnan(self._waits_since_s) else 0.0

    def _waits_at_s(self, steady: float) -> float:
        """Return the time that is not passed before a newer assessment; infinity for none."""
        last_s = self._assessed_s + _PICTURES * self._period_s
        if math.isnan(last_s):
            return math.inf
        if self.now_s < last_s - _CLOSE_S:
            self._waits_since_s = math.nan
            return last_s
        if math.isnan(self._waits_since_s):
            self._waits_since_s = steady
        waited_s = steady - self._waits_since_s
        if waited_s > LONGEST_WAIT_S:           # until something is assessed again
            self._assessed_s = self._waits_since_s = math.nan
        return last_s + CREEP * waited_s

    def drawn(self) -> None:
        on_time = self.now_s < self._due_s + self._period_s
        self._due_s = (self._due_s if on_time else self.now_s) + self._period_s

    def assessed(self, stamp_s: float) -> None:
        self._assessed_s = stamp_s if math.isnan(self._assessed_s) else max(
            stamp_s, self._assessed_s)
