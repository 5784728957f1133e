# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run one tubelet of a stream with the kernels of `vjepa_ros.runtime.forward.kernels`.

The same arithmetic as `Encoder.step`, in half precision between float32 norms and a float32
residual stream. B clips, N patches of the tubelet, M = B N, D width.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import attention

from vjepa_ros.model.blocks import LayerMemory
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.variants import PATCH, TUBELET
from vjepa_ros.runtime.device import DeviceChoice
from vjepa_ros.runtime.forward.base import Step, Work, kernels_for, on_device
from vjepa_ros.runtime.forward.fused import FusedEncoder
from vjepa_ros.runtime.forward.kernels import Steps
from vjepa_ros.runtime.streaming import CacheSlots, StoredLayer, by_clip

CHOOSING = threading.Lock()     # which attention the process uses


class FusedStep(FusedEncoder):
    """A block-causal encoder for tubelets of one size on a CUDA device; a `Step`.

    Parameters
    ----------
    encoder : Encoder
        See `FusedEncoder`.
    side : int
        S.
    steps : Steps, optional
        See `FusedEncoder`.

    Raises
    ------
    KernelsMissing
        If the kernels cannot be made here.

    """

    def __init__(self, encoder: Encoder, side: int, steps: Steps | None = None):
        super().__init__(encoder, (TUBELET, side, side, 3), steps)
        self._tables = encoder.step_tables
        self._interval = encoder.interval_embed.detach()[0]

    def step(self, pixels: Tensor, times: Tensor, memory: Sequence[LayerMemory]) -> Tensor:
        """Compute the features, see `Step`."""
        clips = len(pixels)
        cos, sin = self._tables(times, self.grid)       # B N D/H

        def attend(number: int, qkv: Tensor) -> Tensor:
            stored = memory[number].stored
            assert stored is not None, 'a stream remembers in slots'
            self.steps.remember(qkv, cos, sin, *stored)
            q, (k, v) = self._split(qkv, clips)[0], by_clip(stored[2], stored[1])
            with CHOOSING, _few_queries():
                return F.scaled_dot_product_attention(q, k, v)

        matrix, bias = self._embed
        x = (self._tokens(pixels) @ matrix + bias).view(clips, -1, self.dim)
        x = x + times[..., -1:] * self._interval
        return self._blocks(x.view(-1, self.dim), attend, clips)


def _few_queries() -> AbstractContextManager[object]:
    """Leave out the attention of cuDNN, which is slower where queries are far fewer than keys."""
    backend = attention.SDPBackend
    if not hasattr(backend, 'CUDNN_ATTENTION'):     # before version 2.5
        return nullcontext()
    return attention.sdpa_kernel([backend.FLASH_ATTENTION, backend.EFFICIENT_ATTENTION,
                                  backend.MATH])


@torch.inference_mode()
def prepare_step(encoder: Encoder, choice: DeviceChoice, normalise: Work,
                 side: int) -> Step | None:
    """Return a step of a stream with kernels, or None where `Encoder.step` serves.

    Kernels serve on CUDA in half precision only, and only if the features of random tubelets are
    close to those of the plain path; otherwise the log says why not.
    """
    def plain(pixels: Tensor, times: Tensor, memory: Sequence[LayerMemory]) -> Tensor:
        return encoder.step(normalise(pixels), times, memory)

    if choice.device.type != 'cuda' or choice.dtype == torch.float32:
        return None
    return kernels_for('a stream', plain, lambda: FusedStep(encoder, side).step,
                       lambda step: _trial(step, encoder, side), choice)


def _trial(step: Step, encoder: Encoder, side: int) -> Tensor:
    """Features of the second of two random tubelets of two streams, on the CPU."""
    device, generator = encoder.branch_device, torch.Generator().manual_seed(0)
    variant, found = encoder.variant, torch.empty(0)
    layers = torch.zeros((variant.depth, 2, variant.heads, 4, (side // PATCH) ** 2,
                          variant.head_dim), dtype=encoder.branch_dtype, device=device)
    with on_device(device):
        for at, slots in ((0.0, [[0], [3]]), (2.0, [[0, 1], [3, 2]])):
            where = CacheSlots(torch.tensor(slots, device=device),
                                torch.zeros_like(layers[0, :, :, :2 * len(slots[0])]))
            memory = [StoredLayer(kept, where, 1) for kept in layers]
            pixels = torch.randint(0, 256, (2, TUBELET, side, side, 3), dtype=torch.uint8,
                                   generator=generator).to(device)
            stamps = torch.tensor([[at, at + 1.0], [at, at + 0.7]], dtype=torch.float64)
            found = step(pixels, encoder.times(stamps).to(device), memory).cpu()
    return found
