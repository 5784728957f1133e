# SPDX-License-Identifier: Apache-2.0
"""Run one model over the clips of all cameras."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence

from vjepa_ros.clip.ring import Sample
from vjepa_ros.perception.assessment import Quality, Result
from vjepa_ros.perception.settings import Settings
from vjepa_ros.perception.track import Track, TrackConfig, Wants
from vjepa_ros.runtime.engine import Engine


class Perception:
    """One engine and one track per camera. Used by one thread only.

    Parameters
    ----------
    engine
        The loaded, warmed model.
    config
        Shape of the frame memories; must fit the engine.
    cameras
        Names of the cameras.

    Raises
    ------
    ValueError
        When frames or size differ between engine and config.
    """

    def __init__(self, engine: Engine, config: TrackConfig, cameras: Sequence[str]) -> None:
        made = (engine.config.num_frames, engine.config.image_size)
        if made != (config.num_frames, config.image_size):
            raise ValueError(f'engine runs {made[0]} frames at {made[1]} px, the tracks hold '
                             f'{config.num_frames} frames at {config.image_size} px')
        self.engine = engine
        self.config = config
        self.tracks = {name: Track(name, config) for name in cameras}
        self._done: dict[str, int] = {}

    @property
    def flags(self) -> Quality:
        """Flags that hold for every result of this engine."""
        flags = Quality(0)
        if not self.engine.report.trained:
            flags |= Quality.UNTRAINED
        if self.engine.choice.fell_back:
            flags |= Quality.DEVICE_FALLBACK
        return flags

    def pending(self, names: Sequence[str] | None = None) -> dict[str, Sample]:
        """Clips that end in a frame not assessed yet, by camera."""
        out = {}
        for name in self.tracks if names is None else names:
            track = self.tracks[name]
            if track.ring.newest_ns == self._done.get(name):
                continue
            sample = track.sample()
            if sample is not None:
                out[name] = sample
        return out

    def run(self, samples: Mapping[str, Sample], settings: Callable[[], Settings],
            wants: Mapping[str, Wants], age_s: Callable[[int], float]) -> list[Result]:
        """Assess clips: all that need features share one forward pass.

        Parameters
        ----------
        samples
            Clips by camera, from `pending`.
        settings
            Gives the live settings; asked after the forward pass, so that a change made while
            it ran already holds for its result.
        wants
            What to compute, by camera.
        age_s
            Age [s] of a stamp [ns] now.
        """
        encode = [name for name in samples if wants[name].features]
        start = time.perf_counter()
        clips = [self.tracks[name].clip(samples[name]) for name in encode]
        gather_ms = (time.perf_counter() - start) * 1e3
        features = dict(zip(encode, self.engine.encode(clips), strict=True)) if clips else {}
        shared = {'gather': gather_ms, **self.engine.timings} if clips else {}
        results = []
        for name, sample in samples.items():
            self._done[name] = sample.newest_ns
            results.append(self.tracks[name].result(
                sample, features.get(name), self.engine.noise_floor, settings(),
                age_s=age_s(sample.newest_ns), flags=self.flags, wants=wants[name],
                timings=shared if name in features else {}))
        return results

    def take_over(self, old: Perception) -> None:
        """Go on where the perception that served before was, camera by camera."""
        for name, track in self.tracks.items():
            track.take_over(old.tracks[name])

    def reset(self, reason: str) -> None:
        """Start all cameras anew."""
        for track in self.tracks.values():
            track.reset(reason)


def known_age(now_ns: int, stamp_ns: int) -> float:
    """Age of a stamp [s]; NaN when the clock has not started (simulated time at zero)."""
    return (now_ns - stamp_ns) / 1e9 if now_ns > 0 else math.nan
