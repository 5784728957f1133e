# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Show rendered clips to the perception as a camera would have sent them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import cv2
import numpy as np

from vjepa_ros.clip.sampling import Sample
from vjepa_ros.lab.evaluation.clips import ClipTruth
from vjepa_ros.lab.world.clips import WorldClips
from vjepa_ros.lab.world.targets import clip_targets
from vjepa_ros.perception.camera_track import Track
from vjepa_ros.perception.config import TrackConfig

START_NS = 1_000_000_000


@dataclass(frozen=True)
class Film:
    """One clip as a camera would have sent it.

    Attributes
    ----------
    frames
        (T, S, S, 3) uint8 RGB, the encoder's input, repeated frames included.
    interval_s
        Time between those frames [s].
    hold
        How often each frame stands in the clip.
    intrinsics
        fx, fy, cx, cy [px] of those frames.
    """

    frames: np.ndarray
    interval_s: float
    hold: int
    intrinsics: tuple[float, float, float, float]

    def sent(self) -> Iterator[tuple[int, np.ndarray]]:
        """Stamp [ns] and picture with square pixels of the frames that the camera took."""
        distinct = self.frames[self.hold - 1::self.hold]
        for number, frame in enumerate(distinct):
            stamp = START_NS + round(number * self.hold * self.interval_s * 1e9)
            yield stamp, cv2.resize(frame, self.size, interpolation=cv2.INTER_LINEAR)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height at which pixels are square; the clip is squashed from it."""
        fx, fy, _, _ = self.intrinsics
        side = self.frames.shape[1]
        return round(side * max(1.0, fy / fx)), round(side * max(1.0, fx / fy))

    def optics(self) -> tuple[float, float, float, float]:
        """fx, fy, cx, cy [px] of the pictures that `sent` gives."""
        fx, fy, cx, cy = self.intrinsics
        side = self.frames.shape[1]
        x, y = self.size[0] / side, self.size[1] / side
        return fx * x, fy * y, (cx + 0.5) * x - 0.5, (cy + 0.5) * y - 0.5

    def track(self, base: TrackConfig) -> TrackConfig:
        """A frame memory whose clips have exactly these frames."""
        count = len(self.frames)
        span = (count // self.hold - 1) * self.hold * self.interval_s
        # With repeated frames the clip ends one interval early, so its rate is a bit higher.
        return replace(base, num_frames=count, image_size=self.frames.shape[1],
                       clip_fps=(count - 1) / span, resize_mode='squash',
                       max_frame_gap=max(base.max_frame_gap, 1.5 * self.hold * self.interval_s))


def truth_of(clips: WorldClips) -> ClipTruth:
    """What is true of a batch, on the patch grid."""
    target = clip_targets(clips).to('cpu')
    interval = target.interval_s.double().numpy()
    looming = target.expansion.double().numpy() / interval[:, None, None]
    return ClipTruth(target.contact_s.double().numpy(), interval,
                     np.where(target.expansion_known.numpy(), looming, np.nan),
                     np.where(target.moving_known.numpy(), target.moving.double().numpy(),
                              np.nan))


def films(clips: WorldClips) -> Iterator[Film]:
    """The clips of a batch, one by one, on the CPU."""
    frames = clips.frames.cpu().numpy()
    optics = clips.scenes.intrinsics.double().cpu().numpy()
    for index, (interval, hold) in enumerate(zip(clips.interval_s.tolist(), clips.hold.tolist(),
                                                 strict=True)):
        yield Film(frames[index], interval, int(hold), tuple(optics[index].tolist()))


def shown(film: Film, track: Track) -> Sample:
    """Fill the frame memory of a track with a clip; its one sample."""
    track.intrinsics = film.optics()
    for stamp, picture in film.sent():
        track.push(picture, stamp)
    sample = track.sample()
    if sample is None:
        raise RuntimeError(f'a clip of {len(film.frames)} frames every {film.interval_s} s, held '
                           f'{film.hold} times, does not fill the frame memory')
    return sample


def jpeg(film: Film) -> bytes:
    """The newest frame of a clip with square pixels."""
    picture = cv2.resize(film.frames[-1], film.size, interpolation=cv2.INTER_LINEAR)
    done, data = cv2.imencode('.jpg', cv2.cvtColor(picture, cv2.COLOR_RGB2BGR),
                              [cv2.IMWRITE_JPEG_QUALITY, 80])
    if not done:
        raise ValueError(f'cannot encode a {picture.shape} {picture.dtype} image as jpeg')
    return data.tobytes()
