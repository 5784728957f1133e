# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Keep the recent frames of one camera in stamp order, and sample clips from them by time.

The ring never asks a clock: stamps come with the frames. It belongs to one thread (the worker
that decodes, samples and infers), so it needs no lock.
"""

from __future__ import annotations

import bisect
import itertools
import logging
import math
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import numpy as np

from vjepa_ros.model.variants import BACK_S, STEP_S, TUBELET

log = logging.getLogger(__name__)

KEYS = itertools.count()    # of the frames of all cameras
NS = 1_000_000_000
SAME_NS = 1_000     # closer stamps are of one picture that was published twice
LONELY_FRAMES = 3      # in a row without a neighbour within max_frame_gap: the camera is too slow
# Every frame of a camera up to this rate is kept; frames of a faster one are thinned, the most
# redundant first, never the newest.
MAX_CAMERA_HZ = 60.0
# A frame at most this much older than the newest is put in its place; an older one means that
# time went backwards (a bag that loops, a clock that was set) and resets.
REORDER_S = 0.2
SLOW_STEP_S = 0.21  # between the newest frames of a stream: the camera is slower than 5 Hz
MAX_BYTES = 512 << 20  # of the frames of one camera


@dataclass(eq=False)
class Frame:
    """A picture as the model needs it, on the host or on a device."""

    rgb: np.ndarray | None = None   # (S, S, 3) uint8 input of the model; None on a device
    uploaded: Any = None    # the image on a device, before it is in the store there
    row: int = -1       # place in the store of a device
    stamp_ns: int = 0
    key: int = field(default_factory=KEYS.__next__)     # which no other frame of the process has

    @property
    def nbytes(self) -> int:
        total = 0
        for part in (self.rgb, self.uploaded):
            total += 0 if part is None else part.nbytes
        return total


class Push(Enum):
    """What became of a frame that was offered to the ring."""

    ACCEPTED = 'accepted'
    RESET = 'reset'                # accepted as the first frame after a reset
    DUPLICATE = 'duplicate'        # stamp of a frame already held: dropped
    REORDERED = 'reordered'        # late, inserted at its place
    TOO_LATE = 'too_late'          # late and older than everything held: dropped

    @property
    def stored(self) -> bool:
        """Whether the frame is now in the ring."""
        return self in (Push.ACCEPTED, Push.RESET, Push.REORDERED)


@dataclass(frozen=True)
class Sample:
    """The frames of one clip, chosen by stamp."""

    frames: tuple[Frame, ...]  # oldest first (length ``num_frames``)
    stamps_ns: tuple[int, ...]  # their stamps [ns]; a slow camera makes neighbours equal
    newest_ns: int  # stamp of the newest frame [ns], and its frame id
    frame_id: str
    size: tuple[int, int]  # width and height of its source image [px]
    span_s: float  # time from the first to the last chosen frame [s]
    # Distinct frames per second over the span, or in the newest tubelet of a stream
    rate_hz: float
    distinct: int  # number of different frames in the clip
    slow: bool  # whether the camera is too slow for it

    @property
    def step_s(self) -> float:
        """Time between the newest two frames [s]."""
        return (self.stamps_ns[-1] - self.stamps_ns[-2]) / NS

    def moments(self) -> np.ndarray:
        """Return when the frames were taken [s], (num_frames,) float64."""
        return np.asarray(self.stamps_ns, np.float64) / NS


class FrameRing:
    """The frames of one camera, ordered by stamp.

    A clip has `num_frames` frames (at least 2), sampled at `clip_fps` [Hz], or as the tubelets of
    a `stream`. A longer time between neighbouring frames than `max_frame_gap` [s] resets the ring.
    """

    def __init__(self, num_frames: int, clip_fps: float, max_frame_gap: float = 1.0, *,
                 name: str = 'camera', stream: bool = False) -> None:
        for key, value in (('clip_fps', clip_fps), ('max_frame_gap', max_frame_gap)):
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f'{key} is {value}, must be a positive number')
        self.num_frames = num_frames
        self.clip_fps = clip_fps
        self.max_frame_gap = max_frame_gap
        self.name = name
        # From the first frame of a clip, or the first tubelet of a stream, to the newest frame.
        self.span_s = BACK_S[num_frames // TUBELET - 2] if stream else (num_frames - 1) / clip_fps
        window = self.span_s + (BACK_S[0] if stream else 1.0 / clip_fps)
        self._window_ns = round(window * NS)
        # Both ends of the window, and the frame just before it.
        self._wanted = max(num_frames + 1, math.ceil(window * MAX_CAMERA_HZ) + 3)
        self.capacity = 0
        self.frames: list[Frame] = []
        self._stamps: list[int] = []     # of them
        self.frame_id = ''
        self.size = (0, 0)
        self.counts: Counter[str] = Counter()
        self.resets: Counter[str] = Counter()
        self._lonely = 0     # frames in a row that stayed alone
        self.left_out = 0    # images of the camera just before the next frame; set by who pushes
        self.problem = ''   # why no clip fills, while frames stay alone

    def __len__(self) -> int:
        return len(self._stamps)

    @property
    def nbytes(self) -> int:
        """Bytes of all frames, which have the same size."""
        return self.frames[0].nbytes * len(self.frames) if self.frames else 0

    def room(self, frame_bytes: int) -> int:
        """Return how many frames of so many bytes are kept."""
        return max(self.num_frames + 1, min(self._wanted, MAX_BYTES // max(1, frame_bytes)))

    @property
    def newest_ns(self) -> int | None:
        """Stamp of the newest frame [ns], None when empty."""
        return self._stamps[-1] if self._stamps else None

    @property
    def newest_key(self) -> int | None:
        """Key of the newest frame; stamps may come again, as in a looped bag."""
        return self.frames[-1].key if self.frames else None

    @property
    def fill(self) -> int:
        """Frames of the next clip that are already covered, 0..num_frames."""
        if not self._stamps:
            return 0
        if self._covered():
            return self.num_frames
        part = (self._stamps[-1] - self._stamps[0]) / NS / self.span_s
        return min(self.num_frames - 1, 1 + math.floor(part * (self.num_frames - 1) + 1e-6))

    def push(self, stamp_ns: int, frame: Frame, *, frame_id: str = '',
             size: tuple[int, int] = (0, 0), arrival_ns: int | None = None) -> Push:
        """Put a frame at its place in time; `arrival_ns` is needed only for stamp 0."""
        if stamp_ns == 0:
            stamp_ns = self._arrival(arrival_ns)
        reason = self._break(stamp_ns, frame_id, size) if self._stamps else ''
        if reason:
            if reason == 'gap':
                reason = self._told_gap((stamp_ns - self._stamps[-1]) / NS)
            self.reset(reason)
        place = bisect.bisect_left(self._stamps, stamp_ns)
        late = place < len(self._stamps)
        near = self._stamps[max(place - 1, 0):place + 1]
        if near and (abs(stamp_ns - near[0]) < SAME_NS or abs(stamp_ns - near[-1]) < SAME_NS):
            self.counts['duplicate'] += 1
            return Push.DUPLICATE
        if late and place == 0:
            self.counts['too_late'] += 1
            return Push.TOO_LATE
        if not self._stamps and frame.rgb is not None:
            self.capacity = self.room(frame.nbytes)     # a device has set it
        self.frame_id, self.size = frame_id, size
        self._make_room(stamp_ns)
        place = bisect.bisect_left(self._stamps, stamp_ns)   # making room may have removed one
        frame.stamp_ns = stamp_ns
        self._stamps.insert(place, stamp_ns)
        self.frames.insert(place, frame)
        if len(self._stamps) > 1:
            self.problem = ''
        self.counts['accepted'] += 1
        if late:
            self.counts['reordered'] += 1
            return Push.REORDERED
        return Push.RESET if reason else Push.ACCEPTED

    def sample(self) -> Sample | None:
        """Choose the frames nearest to even times that end with the newest.

        None until the frames cover the span of a clip, to within half a camera interval.
        """
        if not self._covered():
            return None
        return self._chosen(_evenly(self._stamps, self.num_frames, NS / self.clip_fps))

    def sample_stream(self, remembered: Container[object]) -> Sample | None:
        """Choose the tubelets that a stream continues with, instead of an even clip.

        The newest frame goes with the one nearest to `STEP_S` before it. The tubelets before it
        end about `BACK_S` earlier: in remembered frames within a quarter of that time, else in the
        nearest ones. None until the frames cover the time from the first to the last tubelet, and
        there is one more of them than tubelets.
        """
        count = self.num_frames // TUBELET
        if not self._covered() or len(self._stamps) <= count:
            return None
        stamps, frames = self._stamps, self.frames
        newest, picks = len(stamps) - 1, list[int]()
        for number, back_s in enumerate((0.0, *BACK_S[:count - 1])):
            if number:
                target = stamps[-1] - round(back_s * NS)
                first = count - number      # each older tubelet needs a frame, and one before
                near = [at for at in range(first, newest) if frames[at].key in remembered
                        and abs(stamps[at] - target) <= 0.25 * back_s * NS]
                newest = (min(near, key=lambda at: abs(stamps[at] - target)) if near
                          else _nearest(stamps, target, first, newest))
            picks += [newest, _nearest(stamps, stamps[newest] - round(STEP_S * NS), 0, newest)]
        found = self._chosen(picks[::-1])
        return replace(found, rate_hz=1 / found.step_s, slow=found.step_s > SLOW_STEP_S)

    def _chosen(self, picks: Sequence[int]) -> Sample:
        """Make a sample of the frames at some places, oldest first."""
        stamps = tuple(map(self._stamps.__getitem__, picks))
        distinct = len(set(picks))
        span_s = (stamps[-1] - stamps[0]) / NS
        rate = (distinct - 1) / span_s if span_s > 0 else math.nan
        return Sample(tuple(map(self.frames.__getitem__, picks)), stamps, stamps[-1],
                      self.frame_id, self.size, span_s, rate, distinct, distinct < len(picks))

    def reset(self, reason: str = 'manual') -> None:
        """Forget all frames and count the reason."""
        self.resets[reason] += 1
        if self._stamps and self.resets[reason].bit_count() == 1:   # the 1st, 2nd, 4th and so on
            log.info('%s: ring of %d frames reset: %s (%d so far)', self.name, len(self._stamps),
                     reason, self.resets[reason])
        self.release()

    def release(self) -> None:
        """Forget all frames, without counting a reset."""
        self._stamps.clear()
        self.frames.clear()

    def take_over(self, old: FrameRing) -> None:
        """Carry on the counts of another ring (of the same camera, before a change of model)."""
        self.counts, self.resets = old.counts, old.resets

    def _told_gap(self, gap_s: float) -> str:
        """Return the reason of a reset by a gap; say once when that keeps clips from filling."""
        interval_s = gap_s / (self.left_out + 1)
        slow_camera = interval_s > self.max_frame_gap
        self._lonely = self._lonely + 1 if len(self._stamps) == 1 else 0
        if self._lonely == LONELY_FRAMES:
            limit = f"'max_frame_gap' ({self.max_frame_gap:g} s)"
            self.problem = (
                f'frames come {gap_s:.2f} s apart, more than {limit}, so no clip ever fills; '
                'raise it above the interval of the camera' if slow_camera else
                f'inference is slower than {limit}: the camera sends a frame each '
                f'{interval_s:.2f} s, but they are taken {gap_s:.2f} s apart, so clips start '
                'anew; choose a smaller model_size, image_size or num_frames, fewer cameras, or '
                'a larger max_frame_gap')
            log.warning('%s: %s', self.name, self.problem)
        return 'gap' if slow_camera else 'slow_inference'

    def _arrival(self, arrival_ns: int | None) -> int:
        if arrival_ns is None:
            raise ValueError(f'{self.name}: a frame has stamp 0 and no arrival time was given')
        self.counts['zero_stamp'] += 1
        if self.counts['zero_stamp'] == 1:
            log.warning('%s: images carry stamp 0; arrival time is used instead. Rates and times '
                        'to contact are less exact: let the camera driver stamp its images.',
                        self.name)
        return arrival_ns

    def _break(self, stamp_ns: int, frame_id: str, size: tuple[int, int]) -> str:
        """Reason why this frame can not continue the held ones, '' when it can."""
        if size != self.size:
            return 'size_change'
        if frame_id != self.frame_id:
            return 'frame_id_change'
        ahead_s = (stamp_ns - self._stamps[-1]) / NS
        if ahead_s > self.max_frame_gap:
            return 'gap'
        if -ahead_s > REORDER_S:
            return 'time_backwards'
        return ''

    def _covered(self) -> bool:
        if len(self._stamps) < 2:
            return False
        span = (self._stamps[-1] - self._stamps[0]) / NS
        if span >= self.span_s:
            return True
        return span + 0.5 * float(np.median(np.diff(self._stamps))) / NS >= self.span_s

    def _make_room(self, stamp_ns: int) -> None:
        horizon = max(stamp_ns, self._stamps[-1] if self._stamps else stamp_ns) - self._window_ns
        # One frame older than the window stays: the oldest target may be nearest to it. And so
        # many stay that each tubelet of a stream ends in a frame of its own, with this one.
        least = max(2, self.num_frames // TUBELET)
        while len(self._stamps) > least and self._stamps[1] < horizon:
            self._remove(0)
        if len(self._stamps) >= self.capacity > 0:
            self.counts['thinned'] += 1
            self._remove(_most_redundant(self._stamps))

    def _remove(self, index: int) -> None:
        del self._stamps[index], self.frames[index]


def _evenly(stamps_ns: Sequence[int], count: int, step_ns: float) -> list[int]:
    """Return the places of the ascending stamps nearest to even times, of two the later one."""
    places = []
    for back in range(count - 1, -1, -1):
        target = stamps_ns[-1] - round(step_ns * back)
        place = bisect.bisect_left(stamps_ns, target)
        if place and stamps_ns[place] - target > target - stamps_ns[place - 1]:
            place -= 1
        places.append(place)
    return places


def _nearest(stamps_ns: Sequence[int], target_ns: int, first: int, end: int) -> int:
    """Return the place in [first, end) of the ascending stamp nearest to a time.

    Of two equally near ones the older one.
    """
    at = bisect.bisect_left(stamps_ns, target_ns, first, end)
    older = at > first and (at == end or
                            target_ns - stamps_ns[at - 1] <= stamps_ns[at] - target_ns)
    return at - older


def _most_redundant(stamps_ns: Sequence[int]) -> int:
    """Return the place of the stamp that leaves the smallest hole; never newest or oldest."""
    holes = [later - earlier for earlier, later in zip(stamps_ns, stamps_ns[2:], strict=False)]
    return 1 + int(np.argmin(holes)) if holes else 0
