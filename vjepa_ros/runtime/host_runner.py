# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run passes on the CPU or on MPS: in place, one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.runtime.cuda.frame_upload import Clip, DeviceClip, Keys
from vjepa_ros.runtime.forward.base import Forward
from vjepa_ros.runtime.pending import Arrived, Flight, Landed

STAGES = ('upload', 'encode', 'heads', 'download')


class HostRunner:
    """Passes that are over when `start` returns.

    Parameters
    ----------
    forward : Forward
        Pixels to features.
    read : callable, optional
        Features to what the heads say, packed.
    device : torch.device
        Where they run.

    """

    captured = False
    reason = ''
    nbytes = 0

    def __init__(self, forward: Forward, read: Callable[[Tensor], Tensor] | None,
                 device: torch.device):
        self._forward = forward
        self._read = read
        self._device = device

    @torch.inference_mode()
    def start(self, clips: Sequence[Clip], keys: Sequence[Keys] | None, features: bool,
              heads: bool, valid: Sequence[np.ndarray] | None = None) -> Flight:
        """Run a pass.

        `keys` are of no use here: there is nothing to upload, or little; nor is `valid`: where
        the features come for nothing, their change is made from them (`tubelet_change`).
        """
        times = [time.perf_counter()]
        pixels = self._upload(clips)
        times.append(self._clock())
        found = self._forward(pixels)
        times.append(self._clock())
        packed = self._read(found) if heads else None
        times.append(self._clock())
        arrays = found.float().cpu().numpy() if features else None
        said = None if packed is None else packed.cpu().numpy()
        times.append(time.perf_counter())
        spent = {name: 1e3 * (after - before) for name, (before, after)
                 in zip(STAGES, pairwise(times), strict=True) if name != 'heads' or heads}
        return Arrived(Landed(len(clips), arrays, said, None, spent))

    @torch.inference_mode()
    def apply(self, clips: Sequence[Clip], function: Callable[[Tensor], Tensor]
              ) -> np.ndarray:
        """What a function of the pixels (B, T, S, S, 3) uint8 gives, as float32."""
        return function(self._upload(clips)).float().cpu().numpy()

    def trim(self) -> None:
        """Give back what can be made again: nothing."""

    def close(self) -> None:
        """Let go of the networks."""
        self._forward = self._read = None

    def _upload(self, clips: Sequence[Clip]) -> Tensor:
        there = next((clip for clip in clips if isinstance(clip, DeviceClip)), None)
        if there is None:
            frames = np.stack([frame for clip in clips for frame in clip])
            return torch.from_numpy(
                frames.reshape(len(clips), -1, *frames.shape[1:])).to(self._device)
        pixels = torch.empty((len(clips), *there.shape), dtype=torch.uint8, device=self._device)
        for clip, out in zip(clips, pixels, strict=True):
            if isinstance(clip, DeviceClip):
                clip.copy_to(out)
            else:
                out.copy_(torch.from_numpy(np.stack(clip)))
        return pixels

    def _clock(self) -> float:
        """Time once the device has finished its queue."""
        if self._device.type == 'mps':
            torch.mps.synchronize()
        return time.perf_counter()
