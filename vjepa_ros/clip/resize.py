# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Turn camera images into the square uint8 input of the model."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from vjepa_ros.clip.view import MODES, ViewGeometry
from vjepa_ros.model.variants import IMAGENET_MEAN

__all__ = ['LETTERBOX_RGB', 'MODES', 'View']

# Bars in the mean colour become (almost) zero after normalisation.
LETTERBOX_RGB = tuple(round(255 * m) for m in IMAGENET_MEAN)


@dataclass(frozen=True)
class View(ViewGeometry):
    """A resize mode applied to images of one size; see :class:`ViewGeometry` for the maps.

    Holds no buffers: one view may be used from several threads.
    """

    def apply(self, rgb: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Resize one image into the square input of the model.

        Parameters
        ----------
        rgb
            (H, W, 3) uint8 RGB, or grey as (H, W) or (H, W, 1), which is repeated.
            Not modified.
        out
            (S, S, 3) uint8, C-contiguous, written in place when given.

        Returns
        -------
        numpy.ndarray
            (S, S, 3) uint8 RGB: ``out``, or a new array.

        Raises
        ------
        ValueError
            When the image does not have the size or type this view was made for, or
            ``out`` does not fit.
        """
        self._check(rgb)
        s = self.image_size
        if out is None:
            out = np.empty((s, s, 3), np.uint8)
        elif out.shape != (s, s, 3) or out.dtype != np.uint8 or not out.flags.c_contiguous:
            raise ValueError(f'out is {out.shape} {out.dtype}, expected a C-contiguous '
                             f'({s}, {s}, 3) uint8 array')
        if rgb.ndim == 3 and rgb.shape[2] == 3:
            self._fill(rgb, out)
        else:
            grey = np.empty((s, s), np.uint8)
            self._fill(rgb.reshape(rgb.shape[:2]), grey)
            out[...] = grey[..., None]
            if self.mode == 'letterbox':
                self._paint_bars(out)
        return out

    def _check(self, rgb: np.ndarray) -> None:
        width, height = self.source_size
        channels = rgb.shape[2] if rgb.ndim == 3 else 1
        if rgb.dtype != np.uint8 or rgb.ndim not in (2, 3) or channels not in (1, 3):
            raise ValueError(f'image is {rgb.shape} {rgb.dtype}, expected (H, W, 3) or (H, W) '
                             'uint8; convert it to RGB first')
        if rgb.shape[:2] != (height, width):
            raise ValueError(f'image is {rgb.shape[1]}x{rgb.shape[0]} but this view was made for '
                             f'{width}x{height}; make a new View when the camera changes its size')

    def _fill(self, image: np.ndarray, out: np.ndarray) -> None:
        """Write `image` ((H, W) or (H, W, 3)) into `out` of the same number of channels."""
        s, (x, y) = self.image_size, self.crop_offset
        if self.mode == 'squash':
            _resize(image, out)
        elif self.mode == 'crop':
            side = min(self.source_size)
            _resize(image[y:y + side, x:x + side], out)
        elif self.mode == 'letterbox':
            width, height = self.resized
            _resize(image, out[-y:height - y, -x:width - x])
            if out.ndim == 3:
                self._paint_bars(out)
        else:
            shrink = _antialiased if self.mode == 'hf' else _plain
            out[...] = shrink(image, self.resized)[y:y + s, x:x + s]

    def _paint_bars(self, out: np.ndarray) -> None:
        (width, height), (x, y) = self.resized, self.crop_offset
        for bar in (out[:-y], out[height - y:], out[:, :-x], out[:, width - x:]):
            bar[...] = LETTERBOX_RGB


def _resize(image: np.ndarray, out: np.ndarray) -> None:
    """Resize into `out`: area average on axes that shrink, linear on axes that grow."""
    height, width = out.shape[:2]
    # Halving is many times faster than the general area average, and an average of averages
    # is the same average up to a blur far below one output pixel.
    while (not image.shape[0] % 2 and not image.shape[1] % 2
           and image.shape[0] >= 2 * height and image.shape[1] >= 2 * width
           and image.shape[:2] != (2 * height, 2 * width)):
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


def _plain(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Bilinear without antialiasing, as in the evaluation code of the model."""
    if image.shape[:2] == size[::-1]:
        return image
    return cv2.resize(image, size, interpolation=cv2.INTER_LINEAR)


def _antialiased(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Bilinear with antialiasing on uint8, as in the video processor of transformers."""
    import torch  # only this profile needs it, and it takes seconds to import

    if image.shape[:2] == size[::-1]:
        return image
    # A contiguous (H, W, C) image seen as (1, C, H, W) is "channels last": no copy is made.
    planes = torch.from_numpy(np.ascontiguousarray(image))
    planes = planes[None, None] if image.ndim == 2 else planes.permute(2, 0, 1)[None]
    resized = torch.nn.functional.interpolate(planes, size=(size[1], size[0]), mode='bilinear',
                                              align_corners=False, antialias=True)
    return resized[0, 0].numpy() if image.ndim == 2 else resized[0].permute(1, 2, 0).numpy()
