# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run one model over the clips of all cameras."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING

import torch

from vjepa_ros.clip.ring import Sample
from vjepa_ros.perception.camera_state import CameraState, Observation, learn
from vjepa_ros.perception.judgement import judge
from vjepa_ros.perception.patch_maps import valid_mask
from vjepa_ros.perception.settings import Settings, TrackConfig, Wants
from vjepa_ros.perception.types import Result
from vjepa_ros.runtime.model import Model

if TYPE_CHECKING:
    from vjepa_ros.runtime.cuda.graph_replay import DeviceStream

log = logging.getLogger(__name__)
# A result may come early by this part of a period. Otherwise, once one was late by more than a
# period, a camera of just the greatest rate would wait with each frame while its messages jitter.
EARLY = 0.25
MOST_STREAMS = 4    # on which cameras take turns: resizing fills a small part of a GPU


class Perception:
    """One engine and one track per camera. Used by one thread only."""

    def __init__(self, engine: Model, config: TrackConfig, cameras: Sequence[str]) -> None:
        made = (engine.config.num_frames, engine.config.image_size)
        if made != (config.num_frames, config.image_size):
            raise ValueError(f'engine runs {made[0]} frames at {made[1]} px, the tracks hold '
                             f'{config.num_frames} frames at {config.image_size} px')
        self.engine, self.config = engine, config
        streams = _streams(config.frames_on, engine.choice.device, len(cameras))
        self.tracks = {name: CameraState(name, config, engine, stream)
                       for name, stream in zip(cameras, cycle(streams))}
        self._done: dict[str, int] = {}
        on_host = streams[0] is None
        engine.prepare(len(self.tracks), change=not on_host)

    def pending(self, names: Sequence[str] | None = None) -> dict[str, Sample]:
        """Return clips that end in a frame not assessed yet, by camera."""
        out = {}
        for name in self.tracks if names is None else names:
            if not self._assessed(name):
                sample = self.tracks[name].sample()
                if sample is not None:
                    out[name] = sample
        return out

    def _assessed(self, name: str) -> bool:
        """Return whether the newest frame of a camera is assessed; True where there is none."""
        return self.tracks[name].ring.newest_key == self._done.get(name)

    def observe(self, samples: Mapping[str, Sample], wants: Mapping[str, Wants],
                settings: Settings | None = None) -> dict[str, Observation]:
        """Run the model on those clips by camera that need it, at once, and judge them."""
        settings, seen = settings or Settings(), dict[str, Observation]()
        for name, sample in samples.items():
            seen[name] = self.tracks[name].observe(sample, settings, wants[name])
            self._done[name] = sample.frames[-1].key
        asked = [one for one in seen.values() if one.by_heads or one.wants.features]
        if asked:
            if not self.engine.not_streaming:   # a gap leaves tubelets that no clip will ask for
                self.engine.keep({frame.key for track in self.tracks.values()
                                  for frame in track.ring.frames})
            self._predict(asked)
        begun = time.perf_counter()
        found = judge([one.counts for one in seen.values()], settings)
        share_ms = (time.perf_counter() - begun) * 1e3 / max(1, len(seen))
        for one, judgement in zip(seen.values(), found, strict=True):
            one.judgement = judgement
            one.times['assess'] = one.times.get('assess', 0.0) + share_ms
        return seen

    def _predict(self, asked: Sequence[Observation]) -> None:
        """Ask the model, and look meanwhile where the frames show structure."""
        start, engine = time.perf_counter(), self.engine
        clips, keys, stamps, features, change = [], [], [], False, True
        for one in asked:
            clips.append(one.clip)
            keys.append([frame.key for frame in one.sample.frames])
            stamps.append(one.sample.moments())
            features |= one.wants.features and (one.wants.change or not one.by_heads)
            # Elsewhere the features themselves are needed, or are there anyway.
            change &= one.store.on_device
        valid = [valid_mask(one.store.view) for one in asked] if features and change else None
        begun = time.perf_counter()
        predictions = engine.submit(clips, features=features, keys=keys, valid=valid,
                                    stamps=stamps)
        submitted = time.perf_counter()
        for one in asked:
            if one.by_heads:
                _ = one.shown
        waiting = time.perf_counter()
        for one, prediction, when in zip(asked, engine.wait(predictions), stamps, strict=True):
            one.prediction = prediction
            if not (prediction.finite or engine.trouble):
                engine.retry(one.pixels, when)
        times = {'gather': (begun - start) * 1e3, **engine.timings,
                 'submit': (submitted - begun) * 1e3,
                 'await': (time.perf_counter() - waiting) * 1e3}
        for one in asked:
            one.times |= times
        learn(asked)

    def run(self, samples: Mapping[str, Sample], settings: Settings,
            wants: Mapping[str, Wants], age_s: Callable[[int], float]) -> list[Result]:
        """Observe and assess clips by camera, from `pending`.

        Where the model computes values that are not finite, they are encoded again in fp32.

        `age_s`: age [s] of a stamp [ns] now.
        """
        seen = self.observe(samples, wants, settings)
        if self.engine.settle():
            seen = self.observe(samples, wants, settings)
        return [self.tracks[name].assess(seen[name], age_s(sample.newest_ns))
                for name, sample in samples.items()]

    def take_over(self, old: Perception) -> None:
        """Continue from the perception that served before, camera by camera.

        What that has assessed is not assessed again: the smoothing continues with the next frame.
        """
        for name, track in self.tracks.items():
            before = old.tracks[name]
            track.take_over(before)
            newest = track.ring.newest_key
            if newest is not None and old._assessed(name) and (
                    track.ring.newest_ns == before.ring.newest_ns):
                self._done[name] = newest

    def close(self) -> None:
        """Release the frames, and the model. May be called twice."""
        for track in self.tracks.values():
            track.release()
        self.engine.close()

    def reset(self, reason: str) -> None:
        """Start all cameras anew."""
        for track in self.tracks.values():
            track.reset(reason)
        self.engine.forget()


def on_device(frames_on: str, device: torch.device) -> bool:
    """Return whether frames are resized where the model runs."""
    if frames_on == 'device' and device.type not in ('cuda', 'cpu'):
        raise ValueError(f"frames_on is 'device', but {device} can not do it: it has no float64; "
                         "use 'host' or 'auto'")
    return frames_on == 'device' or (frames_on == 'auto' and device.type == 'cuda')


def _streams(frames_on: str, device: torch.device, cameras: int) -> Sequence[DeviceStream | None]:
    """Return streams for frames on the device; one None: on the host."""
    there = on_device(frames_on, device)
    log.info("frames are resized on %s: frames_on is '%s' and the model runs on %s",
             device if there else 'the host', frames_on, device)
    if not there:
        return [None]
    from vjepa_ros.perception.gpu_frames import open_stream  # robots without one do not load it

    return [open_stream(device) for _ in range(max(1, min(MOST_STREAMS, cameras)))]


def known_age(now_ns: int, stamp_ns: int) -> float:
    """Return the age of a stamp [s]; NaN when the clock has not started (simulated time zero)."""
    return (now_ns - stamp_ns) / 1e9 if now_ns > 0 else math.nan
