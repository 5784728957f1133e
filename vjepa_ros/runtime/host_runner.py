# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run passes and wait for them: on the CPU."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence, Set
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.model.variants import TUBELET
from vjepa_ros.runtime.cuda.frame_upload import Clip, DeviceClip, Keys
from vjepa_ros.runtime.forward.base import Work, closed
from vjepa_ros.runtime.outputs import Arrived, Flight, Landed, checked
from vjepa_ros.runtime.streaming import StreamEncoder
from vjepa_ros.runtime.torchscript import Traced

STAGES = ('upload', 'encode', 'heads', 'download')


class HostRunner:
    """Passes that are over when `start` returns.

    Parameters
    ----------
    forward : callable
        Pixels to features.
    read : callable, optional
        Features to packed heads, see `reading`; without it they are only `checked`.
    device : torch.device
        Where they run.

    Attributes
    ----------
    stream : StreamEncoder, optional
        Encodes clips with keys and stamps instead of `forward`.

    """

    captured = False
    reason = ''

    def __init__(self, forward: Work, read: Work | None, device: torch.device):
        self._forward = forward
        self.stream: StreamEncoder | None = None
        self._read: Work = checked if read is None else Traced(read, 'reading of heads')
        self._device = device

    @property
    def nbytes(self) -> int:
        """Bytes of frames that are kept on the device."""
        return 0

    @torch.inference_mode()
    def start(self, clips: Sequence[Clip], keys: Sequence[Keys] | None, features: bool,
              heads: bool, valid: Sequence[np.ndarray] | None = None,
              stamps: Sequence[np.ndarray] | None = None) -> Flight:
        """Run a pass.

        `keys` serve streams alone, because nothing has to be uploaded. `valid` is unused: the
        change is computed from the features on the host (`tubelet_change`).
        """
        begin = time.perf_counter()
        forward, slots, read = self._find(clips, keys, stamps)
        if slots is not None and stamps is not None and self.stream is not None:
            self.stream.send(slots, stamps)
        host = [clip for clip in clips if not isinstance(clip, DeviceClip)]
        if len(host) == len(clips):
            clips = [clip[read] for clip in host]       # the others are not read
        return Arrived(self._pass(forward, self._upload(clips), features, heads, begin))

    def _find(self, clips: Sequence[Clip], keys: Sequence[Keys] | None,
              stamps: Sequence[np.ndarray] | None) -> tuple[Work, list[int] | None, slice]:
        """Return what computes clips, slots of their tubelets (None: none), and what it reads."""
        stream = self.stream
        if stream is None or not keys or not stamps:
            return self._forward, None, slice(None)
        forward, read = ((stream.step, slice(-TUBELET, None)) if stream.ready(keys)
                         else (stream.whole, slice(None)))
        return forward, stream.find(keys), read

    def _pass(self, forward: Work, pixels: Tensor, features: bool, heads: bool, begin: float
              ) -> Landed:
        """Compute and download; `begin` is when the upload of pixels began."""
        times = [begin, self._clock()]
        found = forward(pixels)
        times.append(self._clock())
        packed = (self._read if heads else checked)(found)
        times.append(self._clock())
        arrays = found.float().cpu().numpy() if features else None
        said = packed.cpu().numpy()
        times.append(time.perf_counter())
        spent = {name: 1e3 * (after - before) for name, (before, after)
                 in zip(STAGES, pairwise(times), strict=True) if name != 'heads' or heads}
        return Landed(len(pixels), arrays, said, None, spent)

    @torch.inference_mode()
    def apply(self, clips: Sequence[Clip], function: Work) -> np.ndarray:
        """Apply a function to the pixels (B, T, S, S, 3) uint8; its result as float32."""
        return function(self._upload(clips)).float().cpu().numpy()

    def keep(self, frames: Set[Hashable]) -> None:
        """Forget the tubelets that end in no frame of these, which cameras still hold."""
        if self.stream is not None:
            self.stream.keep(frames)

    def trim(self) -> None:
        """Free what can be made again."""
        if self.stream is not None:
            self.stream.forget()

    def close(self) -> None:
        """Drop the networks."""
        self._forward, self._read, self.stream = closed, closed, None

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
