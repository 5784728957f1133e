# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Turn camera images into the square uint8 input of the model, and map places between the two."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import cv2
import numpy as np

from vjepa_ros.model.variants import IMAGENET_MEAN, PATCH

MODES = ('crop', 'squash', 'letterbox', 'hf', 'meta')
# The evaluation profiles of the encoder enlarge by this before they crop.
PROFILE_ENLARGE = 256 / 224
# Bars in the mean colour become (almost) zero after normalisation.
LETTERBOX_RGB = tuple(round(255 * m) for m in IMAGENET_MEAN)


@dataclass(frozen=True)
class View:
    """Where the square input of the model lies in images of one size, and how they get there.

    Holds no buffers: one view may be used from several threads. *Points* name pixel centres:
    (0, 0) is the centre of the top left pixel. *Edges* (regions, boxes) name pixel borders: pixel
    i reaches from i to i + 1. Per axis ``x_model + 0.5 = (x_source + 0.5 - origin) * scale``.
    """

    # `crop`: largest centred square. `squash`: everything, aspect ratio lost. `letterbox`:
    # everything, bars added. `hf` and `meta`: the two preprocessing profiles of published V-JEPA 2
    # weights (short side to int(image_size * 256 / 224), then the centre).
    mode: str
    source_size: tuple[int, int]  # width and height of the camera image [px]
    image_size: int  # side of the input [px], a multiple of `patch`
    patch: ClassVar[int] = PATCH  # side of a patch [px]

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"resize mode '{self.mode}' is unknown; use one of {list(MODES)}")
        if self.image_size < 1 or self.image_size % PATCH:
            raise ValueError(f'image_size is {self.image_size}, must be a positive multiple of '
                             f'{PATCH}')

    @cached_property
    def resized(self) -> tuple[int, int]:
        """(width, height) the seen part is resized to (``hf``, ``meta``: before cropping)."""
        (w, h), s = self.source_size, self.image_size
        if self.mode in ('crop', 'squash'):
            return s, s
        if self.mode == 'letterbox':
            # An extreme strip still gets one row or column of pixels.
            longest = max(w, h)
            return max(1, round(w * s / longest)), max(1, round(h * s / longest))
        short = int(s * PROFILE_ENLARGE)
        return (short, int(short * h / w)) if w <= h else (int(short * w / h), short)

    @cached_property
    def crop_offset(self) -> tuple[int, int]:
        """Pixel (x, y) of the image, for `hf` and `meta` of the resized one, kept at the top left.

        For `letterbox` minus the size of the left and top bar.
        """
        if self.mode == 'squash':
            return 0, 0
        if self.mode == 'crop':
            (w, h), side = self.source_size, min(self.source_size)
            return (w - side) // 2, (h - side) // 2
        spare = tuple(n - self.image_size for n in self.resized)
        if self.mode == 'meta':
            # Python rounds halves to even, and so do the published crops.
            return round(spare[0] / 2), round(spare[1] / 2)
        if self.mode == 'hf':
            # The video processor of transformers >= 4.57 rounds down (older ones as `meta`).
            return spare[0] // 2, spare[1] // 2
        return -(-spare[0] // 2), -(-spare[1] // 2)

    @cached_property
    def scale(self) -> tuple[float, float]:
        """Model pixels per source pixel along x and y."""
        if self.mode == 'crop':
            ratio = self.image_size / min(self.source_size)
            return ratio, ratio
        return (self.resized[0] / self.source_size[0], self.resized[1] / self.source_size[1])

    @cached_property
    def origin(self) -> tuple[float, float]:
        """Source edge coordinates of the top left corner of the model input (may be negative)."""
        if self.mode == 'crop':
            return float(self.crop_offset[0]), float(self.crop_offset[1])
        return self.crop_offset[0] / self.scale[0], self.crop_offset[1] / self.scale[1]

    @property
    def grid(self) -> tuple[int, int]:
        """(rows, columns) of patches."""
        n = self.image_size // PATCH
        return n, n

    @cached_property
    def region(self) -> tuple[float, float, float, float]:
        """Part of the source that is seen, as edges (x0, y0, x1, y1) in source pixels."""
        low = [max(0.0, o) for o in self.origin]
        high = [min(float(n), o + self.image_size / s)
                for n, o, s in zip(self.source_size, self.origin, self.scale, strict=True)]
        return low[0], low[1], high[0], high[1]

    @cached_property
    def coverage(self) -> float:
        """Fraction of the source area that is seen, in (0, 1]."""
        x0, y0, x1, y1 = self.region
        return (x1 - x0) * (y1 - y0) / (self.source_size[0] * self.source_size[1])

    @cached_property
    def patch_boxes(self) -> np.ndarray:
        """Edges (x0, y0, x1, y1) of every patch in source pixels, clipped to the image."""
        edges = [np.clip(np.arange(n + 1) * PATCH / s + o, 0, size) for n, s, o, size in
                 zip(self.grid[::-1], self.scale, self.origin, self.source_size, strict=True)]
        boxes = np.empty((*self.grid, 4))
        boxes[..., 0], boxes[..., 2] = edges[0][None, :-1], edges[0][None, 1:]
        boxes[..., 1], boxes[..., 3] = edges[1][:-1, None], edges[1][1:, None]
        boxes.flags.writeable = False
        return boxes

    @cached_property
    def patch_centers(self) -> np.ndarray:
        """Points (x, y) in the middle of the visible part of every patch, (Hp, Wp, 2)."""
        centers = 0.5 * (self.patch_boxes[..., :2] + self.patch_boxes[..., 2:]) - 0.5
        centers.flags.writeable = False
        return centers

    @cached_property
    def patch_valid(self) -> np.ndarray:
        """Fraction of every patch that shows image, (Hp, Wp) float32, read only; bars are 0."""
        size = self.patch_boxes[..., 2:] - self.patch_boxes[..., :2]
        whole = PATCH * PATCH / (self.scale[0] * self.scale[1])
        valid = np.clip(size[..., 0] * size[..., 1] / whole, 0, 1).astype(np.float32)
        valid.flags.writeable = False
        return valid

    def from_source(self, points: np.ndarray) -> np.ndarray:
        """Map points (..., 2) of the source image to points of the model input."""
        points = np.asarray(points, np.float64)
        return (points + 0.5 - np.array(self.origin)) * np.array(self.scale) - 0.5

    def camera_info(self, fx: float, fy: float, cx: float,
                    cy: float) -> tuple[float, float, float, float]:
        """Scale pinhole intrinsics of the source image to the patch grid, a pixel for a patch."""
        center = (self.from_source(np.array([cx, cy])) + 0.5) / PATCH - 0.5
        return (fx * self.scale[0] / PATCH, fy * self.scale[1] / PATCH,
                float(center[0]), float(center[1]))

    def apply(self, rgb: np.ndarray) -> np.ndarray:
        """Resize one image (H, W, 3) uint8 into the square input of the model (S, S, 3)."""
        width, height = self.source_size
        if rgb.dtype != np.uint8 or rgb.ndim != 3 or rgb.shape[2] != 3:
            raise ValueError(f'image is {rgb.shape} {rgb.dtype}, expected (H, W, 3) uint8')
        if rgb.shape[:2] != (height, width):
            raise ValueError(f'image is {rgb.shape[1]}x{rgb.shape[0]} but this view was made for '
                             f'{width}x{height}')
        s, (x, y) = self.image_size, self.crop_offset
        out = np.empty((s, s, 3), np.uint8)
        if self.mode == 'squash':
            _resize(rgb, out)
        elif self.mode == 'crop':
            side = min(self.source_size)
            _resize(rgb[y:y + side, x:x + side], out)
        elif self.mode == 'letterbox':
            out[...] = LETTERBOX_RGB
            width, height = self.resized
            _resize(rgb, out[-y:height - y, -x:width - x])
        else:
            if rgb.shape[1::-1] == self.resized:
                whole = rgb
            elif self.mode == 'hf':
                whole = _antialiased(rgb, self.resized)
            else:   # as in the evaluation code of the model
                whole = cv2.resize(rgb, self.resized, interpolation=cv2.INTER_LINEAR)
            out[...] = whole[y:y + s, x:x + s]
        return out


def middle(values: np.ndarray) -> float:
    """Return the median of numbers without NaN, ten times as fast as `np.median` for a few."""
    ascending = np.sort(values, axis=None)
    return float((ascending[(ascending.size - 1) // 2] + ascending[ascending.size // 2]) / 2)


def _resize(image: np.ndarray, out: np.ndarray) -> None:
    """Resize into `out`: area average on axes that shrink, linear on axes that grow."""
    height, width = out.shape[:2]
    for _ in range(halvings(image.shape[1::-1], (width, height))[0]):
        image = cv2.resize(image, (image.shape[1] // 2, image.shape[0] // 2),
                           interpolation=cv2.INTER_AREA)
    shrunk = min(image.shape[0], height), min(image.shape[1], width)
    if shrunk != image.shape[:2] and shrunk != (height, width):
        # INTER_AREA turns into plain linear on both axes as soon as one of them grows.
        image = cv2.resize(image, shrunk[::-1], interpolation=cv2.INTER_AREA)
    how = cv2.INTER_AREA if shrunk == (height, width) else cv2.INTER_LINEAR
    result = cv2.resize(image, (width, height), dst=out, interpolation=how)
    if result is not out:
        out[...] = result


def halvings(size: tuple[int, int], wanted: tuple[int, int]) -> tuple[int, tuple[int, int]]:
    """How often an area average halves an image (width, height) first, and the size then.

    Halving is many times faster than the general area average, and an average of averages is the
    same average up to a blur far below one output pixel.
    """
    (w, h), (width, height), count = size, wanted, 0
    while not h % 2 and not w % 2 and h >= 2 * height and w >= 2 * width:
        w, h, count = w // 2, h // 2, count + 1
    return count, (w, h)


def _antialiased(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Bilinear with antialiasing on uint8, as in the video processor of transformers."""
    import torch  # only this profile needs it, and it takes seconds to import

    # A contiguous (H, W, C) image seen as (1, C, H, W) is "channels last": no copy is made.
    planes = torch.from_numpy(np.ascontiguousarray(image)).permute(2, 0, 1)[None]
    resized = torch.nn.functional.interpolate(planes, size=(size[1], size[0]), mode='bilinear',
                                              align_corners=False, antialias=True)
    return resized[0].permute(1, 2, 0).numpy()
