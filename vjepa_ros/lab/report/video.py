# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Write pictures with stamps as a video that plays in the time of the stamps."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TypeVar

import cv2
import numpy as np

log = logging.getLogger(__name__)

T = TypeVar('T')
FPS_RANGE = (1.0, 30.0)
MAX_STILL_S = 5.0          # longest time that a picture is shown
GIF_WIDTH, GIF_FPS = 480, 8.0


def frame_rate(stamps: Sequence[int]) -> float:
    """Return the frame rate of a video of pictures with these stamps [ns]."""
    gaps = [(b - a) / 1e9 for a, b in pairwise(stamps) if b > a]
    low, high = FPS_RANGE
    return min(high, max(low, 1.0 / median(gaps))) if gaps else low


def evenly(pictures: Iterable[tuple[int, T]], fps: float) -> Iterator[T]:
    """Yield pictures, repeated or left out, so that a video plays in the time of the stamps.

    `pictures`: stamp [ns] and picture, oldest first.
    """
    time_s, shown = 0.0, 0   # time and frames of the video so far
    held: tuple[int, T] | None = None
    for stamp, picture in pictures:
        if held is not None:
            time_s += min(MAX_STILL_S, max(0.0, (stamp - held[0]) / 1e9))
            # A little early is on time, because stamps of a camera are not perfectly even.
            while shown < math.ceil(time_s * fps - 0.25):
                yield held[1]
                shown += 1
        held = stamp, picture
    if held is not None:
        yield held[1]


def write_video(path_base: Path, frames: Iterable[np.ndarray], fps: float) -> Path:
    """Write a video as ``.mp4`` where OpenCV can, else as ``.gif``."""
    if not (fps > 0 and math.isfinite(fps)):
        raise ValueError(f'fps is {fps}, must be positive')
    stream = iter(frames)
    first = next(stream, None)
    if first is None:
        raise ValueError(f'no frames to write to {path_base}')
    # Video codecs store colour at half resolution and need even sides.
    size = max(2, first.shape[1] // 2 * 2), max(2, first.shape[0] // 2 * 2)
    path = Path(path_base).with_suffix('.mp4')
    path.parent.mkdir(parents=True, exist_ok=True)
    _encode(path, [first, first], size, fps)
    works = _readable(path)
    path.unlink(missing_ok=True)

    def fitted() -> Iterable[np.ndarray]:
        yield _fit(first, size)
        yield from (_fit(image, size) for image in stream)

    if works:
        _encode(path, fitted(), size, fps)
        return path
    path = path.with_suffix('.gif')
    log.warning('OpenCV %s writes no readable mp4 (codec mp4v) here; writing %s',
                cv2.__version__, path.name)
    _write_gif(path, fitted(), size, fps)
    return path


def _fit(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    if image.shape[1::-1] == size:
        return image
    return cv2.resize(image, size, interpolation=cv2.INTER_AREA)


def _encode(path: Path, frames: Iterable[np.ndarray], size: tuple[int, int], fps: float) -> None:
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*'mp4v'), fps, size)
    for image in frames:
        writer.write(_fit(image, size))
    writer.release()


def _readable(path: Path) -> bool:
    if not path.is_file():
        return False
    capture = cv2.VideoCapture(str(path))
    found, _ = capture.read()
    capture.release()
    return found


def _write_gif(path: Path, frames: Iterable[np.ndarray], size: tuple[int, int],
               fps: float) -> None:
    from PIL import Image
    stride = max(1, round(fps / GIF_FPS))
    small = min(GIF_WIDTH, size[0]), max(1, round(size[1] * min(1, GIF_WIDTH / size[0])))
    images = (Image.fromarray(np.ascontiguousarray(_fit(image, small)[..., ::-1])).quantize(128)
              for index, image in enumerate(frames) if index % stride == 0)
    next(images).save(path, save_all=True, append_images=images, loop=0,
                      duration=round(1000 * stride / fps))
