# SPDX-License-Identifier: Apache-2.0
"""Run an encoder on clips of images."""

from __future__ import annotations

import ctypes
import gc
import logging
import sys
import threading
import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.variants import IMAGENET_MEAN, IMAGENET_STD
from vjepa_ros.runtime.device import DeviceChoice

log = logging.getLogger(__name__)


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

    Attributes
    ----------
    timings : dict of str to float
        Milliseconds of the stages upload, encode and download of the last call.

    """

    def __init__(self, encoder: Encoder, choice: DeviceChoice, num_frames: int, image_size: int):
        self.choice = choice
        self.clip_shape = (num_frames, image_size, image_size, 3)
        self.timings: dict[str, float] = {}
        self._lock = threading.Lock()
        encoder.set_branch_precision(choice.dtype)
        self._encoder: Encoder | None = encoder.to(choice.device).eval()
        self._mean = _pixel_row(IMAGENET_MEAN, choice.device) * 255.0
        self._scale = 1.0 / (_pixel_row(IMAGENET_STD, choice.device) * 255.0)

    def warm(self) -> None:
        """Run once so that the first real clip is not slow; check that numbers are finite."""
        grey = np.random.default_rng(0).integers(0, 256, self.clip_shape, dtype=np.uint8)
        features = self.encode([grey])[0]
        if not np.isfinite(features).all():
            raise SessionError(f'the model gives values that are not finite on '
                               f'{self.choice.device} in {self.choice.precision}; '
                               'set `precision: fp32`')

    def encode(self, clips: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Features of clips, computed in one forward pass.

        Parameters
        ----------
        clips : sequence of ndarray
            Each (num_frames, image_size, image_size, 3) uint8 RGB, oldest frame first.

        Returns
        -------
        list of ndarray
            For each clip (num_frames/2, image_size/16, image_size/16, D) float32.

        Raises
        ------
        ValueError
            For a clip of another shape or type.
        SessionError
            When the session is closed.

        """
        for clip in clips:
            if clip.shape != self.clip_shape or clip.dtype != np.uint8:
                raise ValueError(f'a clip is {clip.dtype} {clip.shape}, '
                                 f'expected uint8 {self.clip_shape}')
        if not clips:
            return []
        with self._lock, torch.inference_mode():
            if self._encoder is None:
                raise SessionError('the encoder session is closed')
            start = time.perf_counter()
            pixels = torch.from_numpy(np.stack(clips)).to(self.choice.device)
            uploaded = self._clock()
            features = self._encoder(self._normalise(pixels))
            encoded = self._clock()
            result = features.float().cpu().numpy()
            done = time.perf_counter()
            self.timings = {'upload': 1e3 * (uploaded - start),
                            'encode': 1e3 * (encoded - uploaded),
                            'download': 1e3 * (done - encoded)}
        return list(result)

    def memory_bytes(self) -> int:
        """Bytes held by weights and buffers (0 when closed)."""
        # No lock: diagnostics ask while an inference holds it.
        encoder = self._encoder
        if encoder is None:
            return 0
        return sum(p.numel() * p.element_size() for p in encoder.parameters())

    def close(self) -> None:
        """Wait for a running call, then give the memory back. May be called twice."""
        with self._lock:
            if self._encoder is None:
                return
            self._encoder = None
        release_memory(self.choice.device)

    def _normalise(self, pixels: Tensor) -> Tensor:  # B T H W 3 uint8
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
