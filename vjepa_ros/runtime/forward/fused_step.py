# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run one tubelet of a stream with the kernels of `vjepa_ros.runtime.forward.kernels`.

The same arithmetic as `Encoder.step`, in half precision between float32 norms and a float32
residual stream. B clips, N patches of the tubelet, M = B N, D width.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import attention

from vjepa_ros.model.blocks import LayerMemory
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.variants import TUBELET
from vjepa_ros.runtime.cuda.compiler import KernelsMissing
from vjepa_ros.runtime.device import DeviceChoice
from vjepa_ros.runtime.forward.base import CLOSE, Step, Work, on_device
from vjepa_ros.runtime.forward.fused import FusedEncoder
from vjepa_ros.runtime.forward.kernels import Steps

log = logging.getLogger(__name__)

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
        steps, clips, d = self.steps, pixels.shape[0], self.dim
        n = self.grid[1] * self.grid[2]
        cos, sin = self._tables(times, self.grid)       # B N D/H
        matrix, bias = self._embed
        x = self._tokens(pixels) @ matrix + bias        # float32, as the bias
        x = (x.view(clips, n, d) + times[..., -1:] * self._interval).view(clips * n, d)
        y = torch.empty(clips * n, d, device=pixels.device, dtype=self.dtype)
        branch = None
        for number, (layer, kept) in enumerate(zip(self._layers, memory, strict=True)):
            qkv = self._queries(number, x, branch, y).view(clips, n, 3 * d)
            for clip, *tables in zip(qkv, cos, sin, strict=True):
                steps.rotate(clip, *tables)
            q, k, v = qkv.view(clips, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            with CHOOSING, _few_queries():
                seen = F.scaled_dot_product_attention(q, *kept.extend(k, v))
            branch = torch.addmm(layer.proj[1], seen.transpose(1, 2).reshape(clips * n, d),
                                 layer.proj[0])
            branch = self._mlp(number, x, branch, y)
        out = torch.empty(clips * n, d, device=pixels.device)
        steps.norm(x, branch, *self._norm, out)
        return out.view(clips, *self.grid, d)


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

    Parameters
    ----------
    encoder : Encoder
        Block-causal, on its device, in its precision, in evaluation mode.
    choice : DeviceChoice
        Device and precision.
    normalise : callable
        Converts uint8 clips to the input of the encoder.
    side : int
        S.

    """
    def plain(pixels: Tensor, times: Tensor, memory: Sequence[LayerMemory]) -> Tensor:
        return encoder.step(normalise(pixels), times, memory)

    if choice.device.type != 'cuda' or choice.dtype == torch.float32:
        return None
    try:
        wanted = _trial(plain, encoder, side)
        fused = FusedStep(encoder, side).step
        got = _trial(fused, encoder, side)
    # PyTorch raises either for a faulty kernel source.
    except (RuntimeError, SyntaxError) as error:
        level = logging.INFO if isinstance(error, KernelsMissing) else logging.WARNING
        log.log(level, 'no kernels for a stream on %s: %s', choice.device, error)
        return None
    difference, bound = float((got - wanted).norm() / wanted.norm()), CLOSE[choice.dtype]
    if difference <= bound:
        return fused
    log.warning('the kernels are not used for a stream on %s: its features differ by %.2g from '
                'those of PyTorch in %s, allowed is %g', choice.device, difference,
                choice.precision, bound)
    return None


def _trial(step: Step, encoder: Encoder, side: int) -> Tensor:
    """Features of the second of two random tubelets of two streams, on the CPU."""
    device, generator = encoder.branch_device, torch.Generator().manual_seed(0)
    memory = [LayerMemory() for _ in encoder.blocks]
    found = torch.empty(0)
    with on_device(device):
        for at in (0.0, 2.0):
            pixels = torch.randint(0, 256, (2, TUBELET, side, side, 3), dtype=torch.uint8,
                                   generator=generator).to(device)
            stamps = torch.tensor([[at, at + 1.0], [at, at + 0.7]], dtype=torch.float64)
            found = step(pixels, encoder.times(stamps).to(device), memory).cpu()
            memory = [LayerMemory([layer.own]) for layer in memory if layer.own is not None]
    return found
