# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Draw one frame of upright boxes and cards quickly on the CPU.

The same pictures as ``render`` makes of such scenes (it follows a ray through every pixel), in
a fraction of the time, so that a synthetic camera leaves the processor to others.
"""

from __future__ import annotations

import cv2
import numpy as np
import torch

from vjepa_ros.lab.world.demo_scene.face_rasterizer import Brush, Kept
from vjepa_ros.lab.world.demo_scene.ground_light import ground_light, middles
from vjepa_ros.lab.world.demo_scene.upright_boxes import View, bodies_of, problem, view_of
from vjepa_ros.lab.world.demo_scene.upright_faces import Face, faces, ground
from vjepa_ros.lab.world.scenes.scene import Scenes
from vjepa_ros.lab.world.textures.bank import TextureBank

_NOISE_MARGIN = 128
_F32 = np.float32


class Swift:
    """Draws frames of one size.

    Parameters
    ----------
    bank : TextureBank
        On the CPU.
    size : (int, int)
        Width and height in pixels.
    seed : int
        Decides the noise.
    """

    def __init__(self, bank: TextureBank, size: tuple[int, int], seed: int = 0):
        self._atlas, self._size, self._seed = bank.atlas, size, seed
        self._sheet = bank.atlas.texels.numpy().view(np.uint8).reshape(
            *bank.atlas.texels.shape, 4)
        shape = (size[1] + _NOISE_MARGIN, size[0] + _NOISE_MARGIN, 3)
        self._noise = np.random.default_rng(seed).standard_normal(shape, _F32)
        self._sky: tuple[object, np.ndarray] = (None, np.empty(0))
        self._gain: tuple[object, np.ndarray] = (None, np.empty(0))
        self._kept: Kept = {}
        squares = (np.arange(256, dtype=_F32) / 255) ** 2
        self._squares = np.repeat(squares[None, :, None], 3, 2)

    def draw(self, scenes: Scenes) -> np.ndarray:
        """Picture (H, W, 3) uint8 RGB of a single frame of a single scene.

        Raises
        ------
        ValueError
            If the scene holds what cannot be drawn this way.
        """
        why = problem(scenes)
        if why:
            raise ValueError(f'this cannot be drawn quickly: {why}')
        with torch.inference_mode():
            view = view_of(scenes, self._size)
            bodies = bodies_of(scenes, view)
            frame = np.empty((self._size[1], self._size[0], 3), _F32)
            seen, overlap = faces(view, bodies, scenes)
            brush = Brush(self._atlas, self._sheet, self._squares, scenes, view, frame, overlap,
                          self._kept)
            self._draw_sky(frame, scenes, view, brush)
            floor = ground(view, scenes)
            if floor is not None:
                sun = tuple(scenes.sun_direction[0].tolist())
                brush.lay(floor, ground_light(view, bodies, floor, sun, float(scenes.shadow)))
            for face in seen:
                brush.lay(face, None)
            return self._expose(frame, scenes)

    def _draw_sky(self, frame: np.ndarray, scenes: Scenes, view: View, brush: Brush) -> None:
        rows = view.horizon
        if not rows:
            return
        # The sky changes only when the camera turns.
        key = (view.right, int(scenes.sky_texture), *(tuple(colour[0].tolist()) for colour in (
            scenes.sky_top, scenes.sky_horizon, scenes.fog_color)), float(scenes.fog_per_m))
        if self._sky[0] != key:
            self._sky = (key, _sky(scenes, view, rows, brush))
        frame[:rows] = self._sky[1]

    def _expose(self, frame: np.ndarray, scenes: Scenes) -> np.ndarray:
        width, height = self._size
        key = (float(scenes.vignette), tuple(scenes.white_balance[0].tolist()))
        if self._gain[0] != key:
            y = np.linspace(-1, 1, height)[:, None] * (height / width)
            x = np.linspace(-1, 1, width)
            corner = (x * x + y * y) / (1 + (height / width) ** 2)
            gain = (1 - key[0] * corner)[..., None] * np.array(key[1])
            self._gain = (key, gain.astype(_F32))
        cv2.multiply(frame, self._gain[1], dst=frame, scale=float(scenes.exposure))
        cv2.pow(frame, float(scenes.gamma), dst=frame)
        read = float(scenes.read_noise)
        if read == 0:
            return cv2.convertScaleAbs(frame, alpha=255)
        rng = np.random.default_rng((self._seed, int(scenes.seed)))
        dy, dx = rng.integers(0, _NOISE_MARGIN, 2)
        noise = self._noise[dy:dy + height, dx:dx + width]
        return cv2.addWeighted(frame, 255, noise, read, 0, dtype=cv2.CV_8U)


def _sky(scenes: Scenes, view: View, rows: int, brush: Brush) -> np.ndarray:
    """Light (rows, W, 3) of the sky above the horizon, worked out at half size: clouds in a
    flat layer overhead, haze towards the horizon."""
    width = view.size[0]
    down, across = max(2, rows // 2), max(2, width // 2)
    y, x = middles(rows, down), middles(width, across)
    dy = (view.dy[0] + view.dy[1] * y)[:, None]
    dx, dz = (d[0] + d[1] * x for d in (view.dx, view.dz))
    length = 1 / np.sqrt(dx * dx + dy * dy + dz * dz)
    unit = np.maximum(-dy * length, 0)
    scale = 0.28 * length / (unit + 0.12)
    level = np.log2(scale.mean(1) * (width / across) / view.focal[0])
    face = Face(len(scenes.kinds) + 1, (0, down), (0, across), False, np.empty(0),
                (dx * scale).astype(_F32), (dz * scale).astype(_F32), level,
                level - np.log2(unit.mean(1) + 0.12), None, (0.0, 1.0, 0.0), True)
    texture = (brush.texels(face).astype(_F32) / 255) ** 2
    top, low, fog = (colour[0].numpy() ** 2 for colour in (
        scenes.sky_top, scenes.sky_horizon, scenes.fog_color))
    seen = low + np.minimum(np.sqrt(1.6 * unit), 1)[..., None] * (top - low)
    clouds = float(scenes.sky_texture[0] >= 0) * np.minimum(6 * unit, 1)[..., None]
    seen += clouds * texture[..., 3:] * (texture[..., :3] - seen)
    clear = np.exp(-float(scenes.fog_per_m) * 40 / (unit + 0.04))[..., None]
    return cv2.resize((fog + clear * (seen - fog)).astype(_F32), (width, rows))
