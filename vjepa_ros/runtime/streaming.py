# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Encode each tubelet of a camera once: a block-causal encoder with what it remembers.

The result for a clip is made of the newest tubelet, which is encoded, and of earlier ones, whose
keys, values and features are remembered. A clip of which one is missing is encoded as a whole.
B clips, W tubelets, Hp x Wp patches, H heads, d channels of a head, D width.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.model.blocks import LayerMemory
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.variants import TUBELET
from vjepa_ros.runtime.cuda.frame_upload import Clip, DeviceClip, Keys
from vjepa_ros.runtime.forward.base import Work

STREAMING = ('auto', 'off')
MAX_BYTES = 512 << 20   # of what is remembered of all cameras


@dataclass(frozen=True)
class Tubelet:
    """What is remembered of one tubelet.

    Attributes
    ----------
    layers : tuple of (Tensor, Tensor)
        Rotated keys and values (1, H, Hp Wp, d) of each layer.
    features : Tensor
        (Hp, Wp, D) float32.

    """

    layers: tuple[tuple[Tensor, Tensor], ...]
    features: Tensor

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return self.features.nbytes + sum(k.nbytes + v.nbytes for k, v in self.layers)


class TubeletMemory:
    """Tubelets by the key of their newest frame; the least recently used go first.

    Parameters
    ----------
    max_bytes : int
        Most that is kept.

    Attributes
    ----------
    nbytes : int
        Bytes of what is kept.

    """

    def __init__(self, max_bytes: int = MAX_BYTES):
        self._max_bytes = max_bytes
        self._kept: OrderedDict[Hashable, Tubelet] = OrderedDict()
        self.nbytes = 0

    def __contains__(self, key: Hashable) -> bool:
        return key in self._kept

    def __len__(self) -> int:
        return len(self._kept)

    def __getitem__(self, key: Hashable) -> Tubelet:
        self._kept.move_to_end(key)
        return self._kept[key]

    def put(self, key: Hashable, tubelet: Tubelet) -> None:
        """Keep a tubelet, in place of one with the same key."""
        old = self._kept.pop(key, None)
        self._kept[key] = tubelet
        self.nbytes += tubelet.nbytes - (0 if old is None else old.nbytes)
        while self.nbytes > self._max_bytes and len(self._kept) > 1:
            self.nbytes -= self._kept.popitem(last=False)[1].nbytes

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()
        self.nbytes = 0


class StreamEncoder:
    """A block-causal encoder that remembers tubelets.

    Parameters
    ----------
    encoder : Encoder
        Block-causal, on its device and in its precision.
    normalise : callable
        Converts uint8 clips (B, T, S, S, 3) to its input.
    device : torch.device
        Where both are.

    Attributes
    ----------
    memory : TubeletMemory
        What it remembers.

    """

    def __init__(self, encoder: Encoder, normalise: Work, device: torch.device):
        self._encoder = encoder
        self._normalise = normalise
        self._device = device
        self.memory = TubeletMemory()

    def __call__(self, clips: Sequence[Clip], keys: Sequence[Keys],
                 stamps: Sequence[np.ndarray]) -> Tensor:
        """Compute features (B, W, Hp, Wp, D) float32 of clips of W tubelets.

        Parameters
        ----------
        clips, keys
            See `EncoderSession.run`; tubelets are known by the key of their newer frame.
        stamps
            For each clip (2 W,) float64, when its frames were taken, in frame intervals.

        """
        ends = [tuple(each[1::TUBELET]) for each in keys]
        ready = [number for number, each in enumerate(ends)
                 if all(key in self.memory for key in each[:-1])]
        done: dict[int, Tensor] = {}
        if ready:
            past = [[self.memory[key] for key in ends[number][:-1]] for number in ready]
            made = self._step([clips[number] for number in ready],
                              [stamps[number] for number in ready], past)
            for number, before, newest in zip(ready, past, made, strict=True):
                done[number] = torch.stack([one.features for one in (*before, newest)])
                self.memory.put(ends[number][-1], newest)
        for number, each in enumerate(ends):
            if number not in done:
                whole = self._whole(clips[number], stamps[number])
                done[number] = torch.stack([one.features for one in whole])
                for key, one in zip(each, whole, strict=True):
                    self.memory.put(key, one)
        return torch.stack([done[number] for number in range(len(ends))])

    def _step(self, clips: Sequence[Clip], stamps: Sequence[np.ndarray],
              past: Sequence[Sequence[Tubelet]]) -> list[Tubelet]:
        """Encode the newest tubelets, all with equally many before them."""
        memory = [LayerMemory([(torch.cat([one[at].layers[layer][0] for one in past]),
                                torch.cat([one[at].layers[layer][1] for one in past]))
                               for at in range(len(past[0]))])
                  for layer in range(self._encoder.variant.depth)]
        features = self._encoder.step(self._upload(clips, TUBELET),
                                      self._times([one[-TUBELET:] for one in stamps]), memory)
        return self._tubelets(features, memory)

    def _whole(self, clip: Clip, stamps: np.ndarray) -> list[Tubelet]:
        memory = [LayerMemory() for _ in range(self._encoder.variant.depth)]
        features = self._encoder(self._upload([clip], len(clip)), stamps=self._times([stamps]),
                                 memory=memory)
        return self._tubelets(features, memory)

    def _tubelets(self, features: Tensor, memory: Sequence[LayerMemory]) -> list[Tubelet]:
        """Cut features (B, n, Hp, Wp, D) and keys and values into B n tubelets."""
        places = features.shape[2] * features.shape[3]
        return [Tubelet(tuple(_cut(layer, clip, at * places, places) for layer in memory),
                        features[clip, at].clone())
                for clip in range(len(features)) for at in range(features.shape[1])]

    def _times(self, stamps: Sequence[np.ndarray]) -> Tensor:
        return torch.from_numpy(np.stack(stamps)).to(self._device)

    def _upload(self, clips: Sequence[Clip], count: int) -> Tensor:
        """Bring the last frames of each clip to the device, as input of the encoder."""
        return self._normalise(torch.stack([self._frames(clip, count) for clip in clips]))

    def _frames(self, clip: Clip, count: int) -> Tensor:
        if isinstance(clip, DeviceClip):
            pixels = torch.empty(clip.shape, dtype=torch.uint8, device=self._device)
            clip.copy_to(pixels)
            return pixels[-count:]
        return torch.from_numpy(np.stack([*clip[-count:]])).to(self._device)


def _cut(layer: LayerMemory, clip: int, first: int, count: int) -> tuple[Tensor, Tensor]:
    assert layer.own is not None
    keys, values = (part[clip:clip + 1, :, first:first + count].clone() for part in layer.own)
    return keys, values


def stream_of(encoder: Encoder, normalise: Work, device: torch.device, frames: int
              ) -> tuple[StreamEncoder | None, str]:
    """Make the stream of a session of clips of `frames`, or say why there is none."""
    if not encoder.window:
        return None, 'the weights are bidirectional'
    if frames != TUBELET * encoder.window:
        return None, (f'num_frames is {frames}, the weights stream with '
                      f'{TUBELET * encoder.window}')
    if device.type != 'cpu':
        return None, f'not implemented on {device.type}'
    return StreamEncoder(encoder, normalise, device), ''
