# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""From the pixels of clips to features: the part of a pass that kernels may speed up.

`prepare` chooses how; a session knows nothing of it but `Forward`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch
from torch import Tensor

from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.variants import IMAGENET_MEAN, IMAGENET_STD
from vjepa_ros.runtime.device import DeviceChoice
from vjepa_ros.runtime.errors import SessionError
from vjepa_ros.runtime.forward.cpu import speed_up
from vjepa_ros.runtime.forward.fused import FusedEncoder
from vjepa_ros.runtime.forward.kernels import KernelsMissing
from vjepa_ros.runtime.forward.metal import use_metal

log = logging.getLogger(__name__)

PLAIN, FUSED, STEPS = 'plain', 'fused', 'steps'
INSTEAD = {'fp8': 'bf16', 'int8': 'fp32'}       # for what has no narrow matrices
# Relative difference between two ways to compute in a precision that rounding explains.
CLOSE = {torch.bfloat16: 3e-2, torch.float16: 4e-3, torch.float32: 1e-4}


class Forward(Protocol):
    """uint8 clips (B, T, S, S, 3) on the device to features (B, T', Hp, Wp, D) float32 there.

    A call may be captured into a CUDA graph after a few calls with clips of the same shape: from
    then on it must neither wait for the device nor copy from the host, and what it reads besides
    the clips must stay where it is.

    Attributes
    ----------
    kind : str
        `PLAIN`, `FUSED` where kernels of this package run, or `STEPS` where PyTorch does
        their work step by step, which torch.compile does not reach.
    note : str
        What else is to be said of it; ''.
    nbytes : int
        Bytes of weights that it has besides those of the encoder.
    normalise : callable
        uint8 clips (B, T, S, S, 3) to what the encoder takes from now on.

    """

    kind: str
    note: str
    nbytes: int
    normalise: Callable[[Tensor], Tensor]

    def __call__(self, pixels: Tensor) -> Tensor: ...


class Normalise:
    """uint8 clips (B, T, H, W, 3) to the float32 input of the encoder (B, 3, T, H, W)."""

    def __init__(self, device: torch.device):
        row = {'dtype': torch.float32, 'device': device}
        self._mean = torch.tensor(IMAGENET_MEAN, **row) * 255.0
        self._scale = 1.0 / (torch.tensor(IMAGENET_STD, **row) * 255.0)

    def __call__(self, pixels: Tensor) -> Tensor:
        return ((pixels - self._mean) * self._scale).permute(0, 4, 1, 2, 3)


class PlainForward:
    """The encoder as PyTorch runs it, on every device."""

    kind, note, nbytes = PLAIN, '', 0

    def __init__(self, encoder: Encoder, normalise: Normalise):
        self._encoder = encoder
        self.normalise = normalise

    def __call__(self, pixels: Tensor) -> Tensor:
        return self._encoder(self.normalise(pixels))


class PixelForward:
    """The encoder made fast for the CPU, with the normalisation in its weights."""

    kind, note, nbytes = FUSED, '', 0

    def __init__(self, encoder: Encoder):
        speed_up(encoder)
        self._encoder = encoder

    def __call__(self, pixels: Tensor) -> Tensor:
        return self._encoder(self.normalise(pixels))

    @staticmethod
    def normalise(pixels: Tensor) -> Tensor:
        """The same pixels in the order of axes that an encoder takes."""
        return pixels.permute(0, 4, 1, 2, 3)


class FusedForward:
    """The encoder with kernels of this package, on CUDA in half precision."""

    kind, note, nbytes = FUSED, '', 0

    def __init__(self, encoder: Encoder, clip_shape: tuple[int, ...], normalise: Normalise):
        self._encoder = FusedEncoder(encoder, clip_shape)
        self.normalise = normalise

    def __call__(self, pixels: Tensor) -> Tensor:
        return self._encoder(pixels)


class MetalForward(PlainForward):
    """The encoder with its rotation by a kernel of this package, on Apple GPUs."""

    kind = FUSED


def prepare(encoder: Encoder, choice: DeviceChoice, normalise: Normalise,
            clip_shape: tuple[int, ...], fuse: bool = True) -> Forward:
    """The best forward pass there is for an encoder.

    On CUDA and MPS kernels serve only after their features of a random clip came close to those
    of the plain path; otherwise the log says why not.

    Parameters
    ----------
    encoder : Encoder
        On its device, in its precision, in evaluation mode.
    choice : DeviceChoice
        Device and precision.
    normalise : Normalise
        On that device.
    clip_shape : tuple of int
        (T, S, S, 3).
    fuse : bool
        Whether kernels of this package may be used where they exist.

    Raises
    ------
    SessionError
        When fp8 or int8 was chosen and does not run here; all else has a plain path.

    """
    if choice.precision in INSTEAD:
        if not fuse:
            raise SessionError(f"precision '{choice.precision}' is not for torch.compile; set "
                               '`compile` to off or auto, or `precision` to '
                               f'{INSTEAD[choice.precision]}')
        # Both build upon this module.
        if choice.precision == 'int8':
            from vjepa_ros.runtime.forward.int8 import prepare_int8
            return prepare_int8(encoder, choice, clip_shape)
        from vjepa_ros.runtime.forward.float8 import prepare8
        return prepare8(encoder, choice, normalise, clip_shape)
    if fuse and choice.device.type == 'cpu':
        return PixelForward(encoder)
    plain = PlainForward(encoder, normalise)
    half = choice.dtype != torch.float32
    if fuse and (choice.device.type == 'mps' or (choice.device.type == 'cuda' and half)):
        return _checked(encoder, plain, choice, clip_shape)
    return plain


def _checked(encoder: Encoder, plain: PlainForward, choice: DeviceChoice,
             clip_shape: tuple[int, ...]) -> Forward:
    """The forward pass with kernels, if they compute the same as `plain`, which is it else."""
    undo: Callable[[], None] = _nothing
    try:
        wanted = _trial(plain, clip_shape, choice.device)
        if choice.device.type == 'mps':
            undo = use_metal(encoder, clip_shape, CLOSE[choice.dtype])
            fused: Forward = MetalForward(encoder, plain.normalise)
        else:
            fused = FusedForward(encoder, clip_shape, plain.normalise)
        got = _trial(fused, clip_shape, choice.device)
    # Also memory that is too small even for this, which the session will say, and what is wrong
    # with the source of a kernel, which PyTorch tells as either.
    except (RuntimeError, SyntaxError) as error:
        # That they do not exist here is no fault; that they fail is one.
        level = logging.INFO if isinstance(error, KernelsMissing) else logging.WARNING
        log.log(level, 'no kernels of this package on %s: %s', choice.device, error)
        undo()
        return plain
    difference, bound = float((got - wanted).norm() / wanted.norm()), CLOSE[choice.dtype]
    if difference <= bound:
        return fused
    log.warning('the kernels of this package are not used on %s: their features differ by %.2g '
                'from those of PyTorch in %s, allowed is %g', choice.device, difference,
                choice.precision, bound)
    undo()
    return plain


def _nothing() -> None:
    pass


def on_device(device: torch.device) -> AbstractContextManager:
    return torch.cuda.device(device) if device.type == 'cuda' else nullcontext()


def _trial(forward: Forward, clip_shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Features of a random clip, on the CPU."""
    pixels = torch.randint(0, 256, (1, *clip_shape), dtype=torch.uint8,
                           generator=torch.Generator().manual_seed(0)).to(device)
    with torch.inference_mode(), on_device(device):
        return forward(pixels).cpu()
