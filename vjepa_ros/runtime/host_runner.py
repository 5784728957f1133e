# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run passes on the CPU or on MPS: in place, one after the other."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.runtime.cuda.frame_upload import Clip, DeviceClip, Keys
from vjepa_ros.runtime.forward.base import Work, closed
from vjepa_ros.runtime.outputs import Arrived, Flight, Landed

STAGES = ('upload', 'encode', 'heads', 'download')


class HostRunner:
    """Passes that are over when `start` returns.

    Parameters
    ----------
    forward : callable
        Pixels to features.
    read : callable, optional
        Features to packed heads.
    device : torch.device
        Where they run.

    """

    captured = False
    reason = ''
    nbytes = 0

    def __init__(self, forward: Work, read: Work | None, device: torch.device):
        self._forward = forward
        self._read = read
        self._device = device

    @torch.inference_mode()
    def start(self, clips: Sequence[Clip], keys: Sequence[Keys] | None, features: bool,
              heads: bool, valid: Sequence[np.ndarray] | None = None) -> Flight:
        """Run a pass.

        `keys` and `valid` are unused: uploads are cheap or absent, and the change is computed
        from the features on the host (`tubelet_change`).
        """
        times = [time.perf_counter()]
        pixels = self._upload(clips)
        times.append(self._clock())
        found = self._forward(pixels)
        times.append(self._clock())
        packed = self._read(found) if heads and self._read is not None else None
        times.append(self._clock())
        arrays = found.float().cpu().numpy() if features else None
        said = None if packed is None else packed.cpu().numpy()
        times.append(time.perf_counter())
        spent = {name: 1e3 * (after - before) for name, (before, after)
                 in zip(STAGES, pairwise(times), strict=True) if name != 'heads' or heads}
        return Arrived(Landed(len(clips), arrays, said, None, spent))

    @torch.inference_mode()
    def apply(self, clips: Sequence[Clip], function: Work) -> np.ndarray:
        """Apply a function to the pixels (B, T, S, S, 3) uint8; its result as float32."""
        return function(self._upload(clips)).float().cpu().numpy()

    def trim(self) -> None:
        """Free what can be made again: nothing."""

    def close(self) -> None:
        """Drop the networks."""
        self._forward, self._read = closed, None

    def _upload(self, clips: Sequence[Clip]) -> Tensor:
        host = [clip for clip in clips if not isinstance(clip, DeviceClip)]
        if len(host) == len(clips):
            frames = np.stack([frame for clip in host for frame in clip])
            return torch.from_numpy(
                frames.reshape(len(clips), -1, *frames.shape[1:])).to(self._device)
        shape = next(clip.shape for clip in clips if isinstance(clip, DeviceClip))
        pixels = torch.empty((len(clips), *shape), dtype=torch.uint8, device=self._device)
        for clip, out in zip(clips, pixels, strict=True):
            if isinstance(clip, DeviceClip):
                clip.copy_to(out)
            else:
                out.copy_(torch.from_numpy(np.stack([*clip])))
        return pixels

    def _clock(self) -> float:
        """Return the time once the device has finished its queue."""
        if self._device.type == 'mps':
            torch.mps.synchronize()
        return time.perf_counter()
