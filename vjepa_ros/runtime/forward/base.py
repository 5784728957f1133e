# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The part of a pass that kernels may speed up: from the pixels of clips to features.

`vjepa_ros.runtime.forward.select.prepare` chooses one; a session knows only `Forward`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from vjepa_ros.model.blocks import LayerMemory
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.variants import IMAGENET_MEAN, IMAGENET_STD
from vjepa_ros.runtime.cuda.compiler import KernelsMissing
from vjepa_ros.runtime.device import DeviceChoice, SessionError

log = logging.getLogger(__name__)
Made = TypeVar('Made')

Work = Callable[[Tensor], Tensor]       # pixels to features, or features to packed heads

# From the pixels (B, 2, S, S, 3) uint8 of the newest tubelets, `Encoder.times` of these, and what
# each block remembers, to features (B, 1, Hp, Wp, D) float32.
Step = Callable[[Tensor, Tensor, Sequence[LayerMemory]], Tensor]

PLAIN, FUSED, STEPS = 'plain', 'fused', 'steps'
# Relative difference between two ways to compute in a precision that rounding explains.
CLOSE = {torch.bfloat16: 3e-2, torch.float16: 4e-3, torch.float32: 1e-4}


class Forward(Protocol):
    """uint8 clips (B, T, S, S, 3) on the device to features (B, T', Hp, Wp, D) float32 there.

    A call may be captured in a CUDA graph after a few calls with clips of the same shape. From
    then on it must neither wait for the device nor copy from the host, and what it reads besides
    the clips must stay at its address.

    Attributes
    ----------
    kind : str
        `PLAIN`, `FUSED` where kernels of this package run, or `STEPS` where PyTorch runs the same
        steps one by one, out of reach of torch.compile.
    note : str
        What else users should know; ''.
    nbytes : int
        Bytes of weights besides those of the encoder.

    """

    @property
    def kind(self) -> str:
        """How it runs."""
        ...

    @property
    def note(self) -> str:
        """Return what else users should know."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of its own weights."""
        ...

    def __call__(self, pixels: Tensor) -> Tensor:
        """Compute the features."""
        ...

    def normalise(self, pixels: Tensor, /) -> Tensor:
        """Convert uint8 clips (B, T, S, S, 3) to the present input of the encoder."""
        ...


class Normalise:
    """uint8 clips (B, T, H, W, 3) to the float32 input of the encoder (B, 3, T, H, W)."""

    def __init__(self, device: torch.device):
        self._mean = torch.tensor(IMAGENET_MEAN, dtype=torch.float32, device=device) * 255.0
        self._scale = 1.0 / (torch.tensor(IMAGENET_STD, dtype=torch.float32, device=device)
                             * 255.0)

    def __call__(self, pixels: Tensor) -> Tensor:
        """Normalise with the ImageNet mean and standard deviation."""
        return ((pixels - self._mean) * self._scale).permute(0, 4, 1, 2, 3)


class PlainForward:
    """The encoder as PyTorch runs it, on every device."""

    kind: str = PLAIN
    note: str = ''
    nbytes: int = 0

    def __init__(self, encoder: Encoder, normalise: Normalise):
        self._encoder = encoder
        self.normalise = normalise

    def __call__(self, pixels: Tensor) -> Tensor:
        """Compute the features."""
        return self._encoder(self.normalise(pixels))


def kernels_for(what: str, plain: Made, make: Callable[[], Made],
                trial: Callable[[Made], Tensor], choice: DeviceChoice) -> Made | None:
    """Make what runs kernels if a trial of it is close to that of the plain path.

    Else None, and the log says why not.
    """
    try:
        wanted = trial(plain)
        made = make()
        got = trial(made)
    # PyTorch raises either for a faulty kernel source.
    except (RuntimeError, SyntaxError) as error:
        # Missing kernels are normal on some machines; failing ones are not.
        level = logging.INFO if isinstance(error, KernelsMissing) else logging.WARNING
        log.log(level, 'no kernels for %s on %s: %s', what, choice.device, error)
        return None
    difference, bound = float((got - wanted).norm() / wanted.norm()), CLOSE[choice.dtype]
    if difference <= bound:
        return made
    log.warning('the kernels are not used for %s on %s: its results differ by %.2g from those of '
                'PyTorch in %s, allowed is %g', what, choice.device, difference, choice.precision,
                bound)
    return None


def closed(pixels: Tensor) -> Tensor:
    """Raise SessionError: the forward pass of a closed session."""
    raise SessionError('the encoder session is closed')


def on_device(device: torch.device) -> AbstractContextManager:
    """Make a CUDA device the current one; nothing for other devices."""
    return torch.cuda.device(device) if device.type == 'cuda' else nullcontext()
