# SPDX-License-Identifier: Apache-2.0
"""Run an encoder and its heads on clips of images."""

from __future__ import annotations

import ctypes
import gc
import logging
import sys
import threading
import time
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.model.calibration import Calibration
from vjepa_ros.model.encoder import Encoder, pooled
from vjepa_ros.model.heads import Heads
from vjepa_ros.model.variants import IMAGENET_MEAN, IMAGENET_STD
from vjepa_ros.runtime.cpu import speed_up
from vjepa_ros.runtime.device import DeviceChoice
from vjepa_ros.runtime.outputs import Output, pack, unpack

log = logging.getLogger(__name__)

UNCALIBRATED = Calibration()
PER = ('grid', 'tubelet', 'clip')  # what one feature vector may stand for


class SessionError(RuntimeError):
    """The session is closed, or the model computes no usable numbers on this device."""


class EncoderSession:
    """An encoder on its device, fed with uint8 clips of one fixed shape.

    Parameters
    ----------
    encoder : Encoder
        Moved to the device and precision of `choice`; owned by the session from then on.
    choice : DeviceChoice
        Device and precision.
    num_frames, image_size : int
        Frames per clip and pixels per side of a frame.
    heads : Heads, optional
        Moved to the device in float32; owned by the session from then on.
    calibration : Calibration
        Of the heads. It is applied here and nowhere else.

    Attributes
    ----------
    timings : dict of str to float
        Milliseconds of the stages upload, encode, download and, where they ran, heads of the
        last `encode` or `run`.

    """

    def __init__(self, encoder: Encoder, choice: DeviceChoice, num_frames: int, image_size: int,
                 heads: Heads | None = None, calibration: Calibration = UNCALIBRATED):
        self.choice = choice
        self.clip_shape = (num_frames, image_size, image_size, 3)
        self.timings: dict[str, float] = {}
        self._lock = threading.Lock()
        encoder.set_branch_precision(choice.dtype)
        self._encoder: Encoder | None = encoder.to(choice.device).eval()
        if choice.device.type == 'cpu':
            speed_up(self._encoder)
        self._heads = None if heads is None else heads.to(choice.device).eval()
        self._calibration = calibration
        self._mean = _pixel_row(IMAGENET_MEAN, choice.device) * 255.0
        self._scale = 1.0 / (_pixel_row(IMAGENET_STD, choice.device) * 255.0)

    def warm(self) -> None:
        """Run once so that the first real clip is not slow; check that numbers are finite."""
        grey = np.random.default_rng(0).integers(0, 256, self.clip_shape, dtype=np.uint8)
        out = self.run([grey])[0]
        arrays = [out.features] if out.heads is None else [out.features, *vars(out.heads).values()]
        if not all(np.isfinite(array).all() for array in arrays):
            raise SessionError(f'the model gives values that are not finite on '
                               f'{self.choice.device} in {self.choice.precision}; '
                               'set `precision: fp32`')

    def encode(self, clips: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Features of clips alone, see `run`; the heads do not run."""
        return [output.features for output in self._forward(clips, True, None)]

    def run(self, clips: Sequence[np.ndarray], features: bool = True) -> list[Output]:
        """Features of clips and what the heads say about them, in one forward pass.

        Parameters
        ----------
        clips : sequence of ndarray
            Each (num_frames, image_size, image_size, 3) uint8 RGB, oldest frame first.
        features : bool
            Whether to bring the features from the device.

        Returns
        -------
        list of Output
            For each clip; features (num_frames/2, image_size/16, image_size/16, D) float32.

        Raises
        ------
        ValueError
            For a clip of another shape or type.
        SessionError
            When the session is closed.

        """
        return self._forward(clips, features, self._heads)

    def features(self, clips: Sequence[np.ndarray], layers: Sequence[int] | None = None,
                 levels: int = 0, per: str = 'grid') -> list[np.ndarray]:
        """Features of clips from any depth, as grids or pooled.

        Parameters
        ----------
        clips : sequence of ndarray
            See `run`.
        layers : sequence of int, optional
            Blocks, counted from 0, see `Encoder.layers`. No later block runs.
        levels : int
            Instead of `layers`: the dense features of version 2.1 with so many levels side by
            side, see `Encoder.dense`.
        per : str
            'grid': one vector for each tubelet and patch; 'tubelet': their mean over the
            patches; 'clip': over tubelets too.

        Returns
        -------
        list of ndarray
            For each clip float32 (T', Hp, Wp, D), (T', D) or (D,), of the normalised last layer.
            With `layers` they stand along a new first axis; with `levels` D is that many times
            as wide.

        Raises
        ------
        ValueError
            For a clip of another shape or type, for layers or levels that this model does not
            have, and when both are asked for.
        SessionError
            When the session is closed.

        """
        if layers is not None and (levels or not len(layers)):
            raise ValueError(f'features of the layers {tuple(layers)} and of {levels} levels are '
                             'asked for; choose some layers or levels')
        if per not in PER:
            raise ValueError(f"features per '{per}' are asked for; choose {', '.join(PER)}")
        with self._lock, torch.inference_mode():
            encoder = self._ready(clips)
            if not clips:
                return []
            pixels = self._normalise(self._upload(clips))
            if layers is not None:
                found = encoder.layers(pixels, layers)
            else:
                found = (encoder.dense(pixels, levels) if levels else encoder(pixels),)
            if per != 'grid':
                found = tuple(pooled(one, per == 'tubelet') for one in found)
            out = found[0] if layers is None else torch.stack(found, dim=1)
            return list(out.float().cpu().numpy())

    def _ready(self, clips: Sequence[np.ndarray]) -> Encoder:
        """The encoder, if it is there and can encode these clips."""
        for clip in clips:
            if clip.shape != self.clip_shape or clip.dtype != np.uint8:
                raise ValueError(f'a clip is {clip.dtype} {clip.shape}, '
                                 f'expected uint8 {self.clip_shape}')
        if self._encoder is None:
            raise SessionError('the encoder session is closed')
        return self._encoder

    def _upload(self, clips: Sequence[np.ndarray]) -> Tensor:
        return torch.from_numpy(np.stack(clips)).to(self.choice.device)

    def _forward(self, clips: Sequence[np.ndarray], bring: bool,
                 heads: Heads | None) -> list[Output]:
        with self._lock, torch.inference_mode():
            encoder = self._ready(clips)
            if not clips:
                return []
            times = [time.perf_counter()]
            pixels = self._upload(clips)
            times.append(self._clock())
            features = encoder(self._normalise(pixels))
            times.append(self._clock())
            packed = None if heads is None else pack(self._calibration.apply(heads(features)))
            times.append(self._clock())
            arrays = list(features.float().cpu().numpy()) if bring else [None] * len(clips)
            said = [None] * len(clips) if packed is None else unpack(
                packed.cpu().numpy(), *features.shape[2:4])
            times.append(time.perf_counter())
            names = ('upload', 'encode', 'heads', 'download')
            self.timings = {name: 1e3 * (after - before) for name, (before, after)
                            in zip(names, pairwise(times), strict=True)
                            if name != 'heads' or heads is not None}
        return [Output(*pair) for pair in zip(arrays, said, strict=True)]

    def memory_bytes(self) -> int:
        """Bytes held by weights and buffers (0 when closed)."""
        # No lock: diagnostics ask while an inference holds it.
        parts = [part for part in (self._encoder, self._heads) if part is not None]
        return sum(p.numel() * p.element_size() for part in parts for p in part.parameters())

    def close(self) -> None:
        """Wait for a running call, then give the memory back. May be called twice."""
        with self._lock:
            if self._encoder is None:
                return
            self._encoder = self._heads = None
        release_memory(self.choice.device)

    def _normalise(self, pixels: Tensor) -> Tensor:  # B T H W 3 uint8
        if self.choice.device.type == 'cpu':
            return pixels.permute(0, 4, 1, 2, 3)  # `speed_up`
        return ((pixels - self._mean) * self._scale).permute(0, 4, 1, 2, 3)  # B 3 T H W

    def _clock(self) -> float:
        """Time once the device has finished its queue."""
        if self.choice.device.type == 'cuda':
            torch.cuda.synchronize(self.choice.device)
        elif self.choice.device.type == 'mps':
            torch.mps.synchronize()
        return time.perf_counter()


def _pixel_row(values: Sequence[float], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.float32, device=device)


def release_memory(device: torch.device) -> None:
    """Return unused memory to the device and the operating system."""
    gc.collect()
    if device.type == 'cuda':
        with torch.cuda.device(device):
            torch.cuda.empty_cache()
    elif device.type == 'mps':
        torch.mps.empty_cache()
    if sys.platform == 'linux':
        # glibc keeps freed blocks for itself; without this a swapped model stays resident.
        trim = getattr(ctypes.CDLL(None), 'malloc_trim', None)
        if trim is not None:
            trim(0)
