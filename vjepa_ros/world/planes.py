# SPDX-License-Identifier: Apache-2.0
"""Draw textured planes in exact perspective: endless strips along the view, and flat faces.

World axes: x right, y down (0 on the ground, so heights are negative), z forward. Pixel centres
are at whole numbers. A strip or face is drawn through the homography between its texture and the
image, from a copy of the texture that was averaged down to about one texel per pixel, so that
neither near nor far parts flicker and motion in the image is that of the geometry.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np

NEAR_M = 0.12
_BAND = math.sqrt(2.0)


@dataclass(frozen=True)
class Camera:
    """Ideal pinhole camera that looks level along +z, turned to the right by ``yaw``.

    Attributes
    ----------
    width, height : int
        Image size in pixels.
    focal : float
        Focal length in pixels.
    position : (float, float, float)
        x, y, z in m.
    yaw : float
        rad, positive to the right.
    """

    width: int
    height: int
    focal: float
    position: tuple[float, float, float] = (0.0, 0.0, 0.0)
    yaw: float = 0.0

    @property
    def intrinsics(self) -> tuple[float, float, float, float]:
        """fx, fy, cx, cy in pixels."""
        return self.focal, self.focal, (self.width - 1) / 2, (self.height - 1) / 2

    def rotation(self) -> np.ndarray:
        c, s = math.cos(self.yaw), math.sin(self.yaw)
        return np.array([[c, 0, -s], [0, 1, 0], [s, 0, c]])

    def matrix(self) -> np.ndarray:
        """Intrinsic matrix (3, 3)."""
        fx, fy, cx, cy = self.intrinsics
        return np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]])

    def to_camera(self, points: np.ndarray) -> np.ndarray:
        """World points (N, 3) in the optical frame (x right, y down, z forward)."""
        return (np.asarray(points, float) - self.position) @ self.rotation().T

    def plane_to_image(self, origin: np.ndarray, du: np.ndarray, dv: np.ndarray) -> np.ndarray:
        """Homography (3, 3) from texel (column, row) to pixel.

        ``origin`` is the world point of the outer corner of texel (0, 0); ``du`` and ``dv`` are
        the world steps of one column and one row.
        """
        start = np.asarray(origin, float) + 0.5 * du + 0.5 * dv  # texel centre
        turn = self.rotation()
        return self.matrix() @ np.stack(
            (turn @ du, turn @ dv, turn @ (start - self.position)), axis=1)

    def outline(self, corners: np.ndarray) -> np.ndarray:
        """Pixels (M, 2) of a convex world polygon (N, 3), cut off at the near plane."""
        points = self.to_camera(corners)
        kept = []
        for a, b in zip(points, np.roll(points, -1, axis=0), strict=True):
            if a[2] >= NEAR_M:
                kept.append(a)
            if (a[2] >= NEAR_M) != (b[2] >= NEAR_M):
                kept.append(a + (b - a) * (NEAR_M - a[2]) / (b[2] - a[2]))
        if len(kept) < 3:
            return np.empty((0, 2))
        pixels = np.array(kept) @ self.matrix().T
        return pixels[:, :2] / pixels[:, 2:]

    def window(self, outline: np.ndarray) -> tuple[int, int, int, int] | None:
        """Whole-pixel bounds x0, y0, x1, y1 of an outline inside the image, or None."""
        if not len(outline):
            return None
        low = np.maximum(np.floor(outline.min(0)), 0).astype(int)
        high = np.minimum(np.ceil(outline.max(0)) + 1, (self.width, self.height)).astype(int)
        if (high <= low).any():
            return None
        return int(low[0]), int(low[1]), int(high[0]), int(high[1])


class Strip:
    """A plane that runs along z without end and repeats its texture.

    Parameters
    ----------
    texture : ndarray (H, W, 3) uint8
        Rows run along +z over exactly ``length`` m, columns along ``side``.
    start, side : (float, float, float)
        World point of the first column at z = 0, and the world vector across the whole strip.
    length : float
        Period along z in m.
    focal : float
        Focal length in pixels the texture copies are prepared for.
    offset : float
        Distance of the camera from the plane in m (sets the foreshortening along z).
    reach : (float, float)
        Nearest and farthest distance drawn in m.
    """

    def __init__(self, texture: np.ndarray, start: tuple[float, float, float],
                 side: tuple[float, float, float], length: float, focal: float, offset: float,
                 reach: tuple[float, float]):
        self._start, self._side = np.array(start, float), np.array(side, float)
        self._length = length
        self._bands: list[tuple[float, float, np.ndarray, float]] = []
        width = float(np.linalg.norm(self._side))
        near = reach[0]
        while near < reach[1]:
            far = near * _BAND
            middle = math.sqrt(near * far)
            cols = min(texture.shape[1], max(8, round(width * focal / middle)))
            rows = min(texture.shape[0], max(8, round(length * focal * offset / middle ** 2)))
            copy = cv2.resize(texture, (cols, rows), interpolation=cv2.INTER_AREA)
            per_m = rows / length
            total = math.ceil((length + far) * per_m) + 4
            copy = np.concatenate([copy] * math.ceil(total / rows))[:total]
            self._bands.append((near, far, np.ascontiguousarray(copy), per_m))
            near = far

    def draw(self, frame: np.ndarray, camera: Camera) -> None:
        """Draw onto an image (H, W, 3) uint8, far parts first."""
        z = camera.position[2]
        base = math.floor(z / self._length) * self._length  # start of the period of the camera
        for near, far, texture, per_m in reversed(self._bands):
            first = max(0, math.floor((z - base + near) * per_m) - 2)
            last = min(len(texture), math.ceil((z - base + far) * per_m) + 2)
            origin = self._start + np.array([0.0, 0.0, base + first / per_m])
            across = self._side
            ahead = np.array([0.0, 0.0, (last - first) / per_m])
            window = camera.window(camera.outline(np.array(
                [origin, origin + across, origin + across + ahead, origin + ahead])))
            if window is None:
                continue
            x0, y0, x1, y1 = window
            to_image = camera.plane_to_image(
                origin, across / texture.shape[1], np.array([0.0, 0.0, 1 / per_m]))
            shift = np.array([[1, 0, -x0], [0, 1, -y0], [0, 0, 1]])
            cv2.warpPerspective(
                texture[first:last], shift @ to_image, (x1 - x0, y1 - y0),
                dst=frame[y0:y1, x0:x1], flags=cv2.INTER_LINEAR,
                borderMode=cv2.BORDER_TRANSPARENT)


class Face:
    """A flat rectangle with a texture, opaque or with a transparency channel.

    Parameters
    ----------
    texture : ndarray (H, W, 3 or 4) uint8
        The fourth channel is opacity.
    """

    def __init__(self, texture: np.ndarray):
        self._copies = {(0, 0): texture}

    def draw(self, frame: np.ndarray, camera: Camera, corner: np.ndarray, across: np.ndarray,
             down: np.ndarray, haze: tuple[np.ndarray, float] | None = None,
             clip: np.ndarray | None = None) -> None:
        """Draw onto an image.

        Parameters
        ----------
        frame : ndarray (H, W, 3) uint8
        corner, across, down : ndarray (3,)
            World point of the top left corner of the texture and the vectors of its edges.
        haze : (ndarray (3,), float), optional
            Colour of the air and its share in [0, 1].
        clip : ndarray (N, 3), optional
            Convex world polygon in the plane of the face that limits what is drawn.
        """
        corner, across, down = (np.asarray(v, float) for v in (corner, across, down))
        shape = np.array([corner, corner + across, corner + across + down, corner + down])
        outline = camera.outline(shape if clip is None else clip)
        window = camera.window(outline)
        if window is None:
            return
        x0, y0, x1, y1 = window
        texture = self._copy(camera.outline(shape))
        to_image = camera.plane_to_image(corner, across / texture.shape[1],
                                         down / texture.shape[0])
        shift = np.array([[1, 0, -x0], [0, 1, -y0], [0, 0, 1]])
        patch = cv2.warpPerspective(texture, shift @ to_image, (x1 - x0, y1 - y0),
                                    flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        cover = np.zeros(patch.shape[:2], np.uint8)
        fixed = np.round((np.clip(outline, -8000, 8000) - (x0, y0)) * 16).astype(np.int32)
        cv2.fillConvexPoly(cover, fixed, 255, cv2.LINE_AA, shift=4)
        if patch.shape[2] == 4:
            cover = cv2.multiply(cover, np.ascontiguousarray(patch[..., 3]), scale=1 / 255)
            patch = np.ascontiguousarray(patch[..., :3])
        if haze is not None and haze[1] > 0.004:
            air = tuple(float(v) * haze[1] for v in (*haze[0], 0))
            patch = cv2.add(cv2.convertScaleAbs(patch, alpha=1 - haze[1]), air)
        _blend(frame[y0:y1, x0:x1], patch, cover)

    def _copy(self, outline: np.ndarray) -> np.ndarray:
        """Texture with about one texel per pixel along either edge, made on first use."""
        full = self._copies[0, 0]
        if len(outline) != 4:  # partly behind the camera: as near as it gets
            return full
        edges = np.linalg.norm(outline - np.roll(outline, -1, axis=0), axis=1)
        spans = max(edges[0], edges[2], 1.0), max(edges[1], edges[3], 1.0)
        level = tuple(max(0, round(math.log(texels / span, _BAND)))
                      for texels, span in zip(full.shape[1::-1], spans, strict=True))
        if level not in self._copies:
            size = tuple(max(2, round(texels * _BAND ** -n))
                         for texels, n in zip(full.shape[1::-1], level, strict=True))
            self._copies[level] = cv2.resize(full, size, interpolation=cv2.INTER_AREA)
        return self._copies[level]


def _blend(target: np.ndarray, patch: np.ndarray, cover: np.ndarray) -> None:
    """Lay a patch over a part of the image with coverage 0..255, in place."""
    cv2.copyTo(patch, cv2.compare(cover, 255, cv2.CMP_EQ), target)
    soft = np.nonzero(cv2.inRange(cover, 1, 254))
    share = cover[soft].astype(np.float32)[:, None] / 255
    target[soft] = (target[soft] * (1 - share) + patch[soft] * share + 0.5).astype(np.uint8)
