# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Lay the faces of boxes and cards on a frame: their texture, their light, the haze."""

from __future__ import annotations

import math

import cv2
import numpy as np
import torch

from vjepa_ros.lab.world.demo_scene.ground_light import middles
from vjepa_ros.lab.world.demo_scene.upright_boxes import View
from vjepa_ros.lab.world.demo_scene.upright_faces import Face
from vjepa_ros.lab.world.scenes.scene import Scenes
from vjepa_ros.lab.world.textures.atlas import Atlas

_MOST_STRETCH = 3       # as in the atlas
_COARSE_PX = 16         # light and fog change little over so many pixels
_SMALL_PX = 1000        # smaller windows get the nearest size of their texture
_F32 = np.float32


# What a face looked like when last drawn, by shape and side: its place, and its texels.
Kept = dict[tuple[int, tuple[float, float, float]], tuple[tuple[object, ...], np.ndarray]]


class Brush:
    """Lays one face after the other on a frame (H, W, 3) of light.

    ``compare`` says that bodies overlap; ``kept`` goes from frame to frame: what has not moved
    in the image is not fetched again.
    """

    def __init__(self, atlas: Atlas, sheet: np.ndarray, squares: np.ndarray, scenes: Scenes,
                 view: View, frame: np.ndarray, compare: bool, kept: Kept):
        self._size, self._bits = atlas.size, int(math.log2(atlas.size))
        self._sheet, self._squares, self._view, self._frame = sheet, squares, view, frame
        self._nearest = np.zeros(frame.shape[:2], _F32) if compare else None
        # Shapes, the ground and the sky, as faces are numbered.
        number = torch.cat((scenes.texture.reshape(-1), scenes.ground_texture,
                            scenes.sky_texture.clamp(min=0)))
        self._kept, self._numbers = kept, number.tolist()
        self._cells = [v.tolist() for v in atlas.origin(number)]
        self._tints = torch.cat((scenes.tint[0], scenes.ground_tint)).numpy()
        self._sun_direction = scenes.sun_direction[0].tolist()
        self._sun, self._ambient = float(scenes.sun), float(scenes.ambient)
        self._fog = float(scenes.fog_per_m)
        self._air = scenes.fog_color[0].numpy() ** 2

    def lay(self, face: Face, reaching: tuple[np.ndarray, np.ndarray] | None) -> None:
        """Lay a face over what is there; ``reaching`` sun and sky light of the ground."""
        texels = self._same_or_new(face)
        cover = face.cover
        patch = cv2.cvtColor(texels, cv2.COLOR_RGBA2RGB)
        if face.holes:
            solid = texels[..., 3].astype(_F32)
            inside = np.clip(solid * _F32(1 / 127.5) - _F32(0.5), 0, 1)
            cover = inside if cover is None else cover * inside
        squares = self._squares * self._tints[face.shape]
        gain, haze = self._light(face, reaching)
        if gain.shape[:2] == (1, 1):
            seen = cv2.LUT(patch, squares * gain[0, 0] + haze[0, 0])
        else:
            size = (patch.shape[1], patch.shape[0])
            seen = cv2.LUT(patch, squares)
            cv2.multiply(seen, cv2.resize(gain, size), dst=seen)
            cv2.add(seen, cv2.resize(haze, size), dst=seen)
        (y0, y1), (x0, x1) = face.rows, face.columns
        if self._nearest is not None:
            cover = self._compared(self._nearest[y0:y1, x0:x1], face, cover)
        blend(self._frame[y0:y1, x0:x1], seen, cover)

    def _compared(self, nearest: np.ndarray, face: Face,
                  cover: np.ndarray | None) -> np.ndarray:
        """Coverage without what lies behind what was laid before; keeps the nearest."""
        inverse = face.inverse.astype(_F32)
        inverse = inverse[None] if face.upright else inverse[:, None]
        before = inverse >= nearest * _F32(1 - 1e-4)
        cover = before.astype(_F32) if cover is None else cover * before
        np.copyto(nearest, inverse, where=cover > 0.5)
        return cover

    def _same_or_new(self, face: Face) -> np.ndarray:
        # These decide all else about a flat face.
        key = (self._numbers[face.shape], face.rows, face.columns,
               *(float(f.flat[at]) for f in (face.inverse, face.u, face.v) for at in (0, -1)))
        name = (face.shape, face.normal)
        if name not in self._kept or self._kept[name][0] != key:
            self._kept[name] = (key, self.texels(face))
        return self._kept[name][1]

    def texels(self, face: Face) -> np.ndarray:
        """RGBA uint8 (h, w, 4); where all is equally far, smooth between two sizes of the
        texture."""
        last = float(self._bits)
        level_u, level_v = (np.minimum(np.maximum(level + last, 0.0), last)
                            for level in (face.level_u, face.level_v))
        level_u = np.maximum(level_u, level_v - _MOST_STRETCH)
        level_v = np.maximum(level_v, level_u - _MOST_STRETCH)
        stretch = np.rint(level_v - level_u)
        fine = (level_u + level_v - stretch) / 2
        base = np.floor(fine)
        alike = abs(fine[0] - fine[-1]) < 1e-6 and face.upright
        if not alike or face.shown[0] * face.shown[1] < _SMALL_PX:
            # Where sharpness changes from line to line no step from size to size is seen.
            base = fine = np.rint(fine)
        column, row = (cells[face.shape] for cells in self._cells)
        u, v = _within(face.u), _within(face.v)
        share = float(fine[0] - base[0])
        layers = []
        for level in (base, base + 1) if share > 0.01 else (base,):
            x = self._at(face, u, np.minimum(np.maximum(level, 0.0), last), column)
            y = self._at(face, v, np.minimum(np.maximum(level + stretch, 0.0), last), row)
            layers.append(cv2.remap(self._sheet, x, y, cv2.INTER_LINEAR))
        if len(layers) == 1:
            return layers[0]
        return cv2.addWeighted(layers[0], 1 - share, layers[1], share, 0)

    def _at(self, face: Face, share: np.ndarray, level: np.ndarray,
            origin: float) -> np.ndarray:
        """Columns or rows (h, w) of the sheet."""
        width = self._size * np.exp2(-level)
        begin = (origin + 2 * self._size + 0.5) - 2 * width + 2 * level
        if share.ndim == 1:
            return _lines(face, (begin + share * width).astype(_F32))
        width, begin = width.astype(_F32), begin.astype(_F32)
        return share * width + begin if face.upright else (share * width[:, None]
                                                           + begin[:, None])

    def _light(self, face: Face, reaching: tuple[np.ndarray, np.ndarray] | None,
               ) -> tuple[np.ndarray, np.ndarray]:
        """What a texture is multiplied by and what fog adds, both coarse (h, w, 3)."""
        rows, columns = face.shown
        sun, sky = (1.0, 1.0) if reaching is None else reaching
        if reaching is not None:
            down, across = sun.shape
        elif rows * columns < _SMALL_PX:
            down = across = 1
        else:
            down, across = rows // _COARSE_PX + 1, columns // _COARSE_PX + 1
        y, x = middles(rows, down), middles(columns, across)
        view = self._view
        dy = (view.dy[0] + view.dy[1] * (y + face.rows[0]))[:, None]
        dx, dz = (d[0] + d[1] * (x + face.columns[0]) for d in (view.dx, view.dz))
        count = columns if face.upright else rows
        step = (face.inverse[-1] - face.inverse[0]) / max(count - 1, 1)
        lines = face.inverse[0] + step * (x[None] if face.upright else y[:, None])
        depth = 1 / np.maximum(lines, 1e-6)
        nx, ny, nz = face.normal
        towards = max(0.0, nx * self._sun_direction[0] + ny * self._sun_direction[1]
                      + nz * self._sun_direction[2])
        strength = self._ambient * (0.86 - 0.14 * ny) * sky
        if ny == 0:   # less of the sky is seen near the ground
            low = np.minimum(view.place[1] + depth * dy, 0.0)
            strength = strength * (1 - 0.3 * np.exp(4 * low))
        strength = strength + self._sun * towards * sun
        clear = np.exp(-self._fog * depth * np.sqrt(dx * dx + dz * dz + dy * dy))
        gain = np.empty((down, across, 1), _F32)
        gain[..., 0] = strength * clear
        return (cv2.merge([gain] * 3),
                ((1 - clear)[..., None] * self._air).astype(_F32))


def _within(share: np.ndarray) -> np.ndarray:
    """Places 0..1 of a repeating texture."""
    low, high = float(share.min()), float(share.max())
    return share if low >= 0 and high <= 1 else share - np.floor(share)


def _lines(face: Face, values: np.ndarray) -> np.ndarray:
    """Values per column or row all over a window."""
    out = np.empty(face.shown, _F32)
    out[...] = values if face.upright else values[:, None]
    return out


def blend(target: np.ndarray, patch: np.ndarray, cover: np.ndarray | None) -> None:
    """Lay a patch over a part of a frame with coverage 0..1, in place."""
    if cover is None:
        target[...] = patch
        return
    cv2.copyTo(patch, cv2.compare(cover, 0.999, cv2.CMP_GT), target)
    soft = np.flatnonzero(cv2.inRange(cover, 0.002, 0.999).view(bool))
    if len(soft):
        place = np.divmod(soft, cover.shape[1])
        share = cover[place][:, None]
        target[place] += share * (patch[place] - target[place])
