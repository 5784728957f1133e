# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""From the pixels of clips to features with matrices in float8, checked before it serves."""

from __future__ import annotations

import logging

import torch
from torch import Tensor

from vjepa_ros.model.encoder import Encoder
from vjepa_ros.runtime.device import DeviceChoice
from vjepa_ros.runtime.errors import SessionError
from vjepa_ros.runtime.forward.base import CLOSE, FUSED, STEPS, Normalise, PlainForward, on_device
from vjepa_ros.runtime.forward.fused_float8 import Fp8Encoder, plain8
from vjepa_ros.runtime.forward.kernels import KernelsMissing
from vjepa_ros.runtime.forward.narrow_formats import (
    choose,
    failed,
    max_error,
    told,
    trials,
    useless,
)
from vjepa_ros.runtime.forward.reference_ops import FLOAT8, Steps
from vjepa_ros.runtime.memory import is_out_of_memory

log = logging.getLogger(__name__)

REMEDY = 'set `precision` to bf16 or auto'
ROWS = 64           # of the data that kernels are checked with
SAME = 0.01         # relative difference of kernels and PyTorch, where few values round apart


class Fp8Forward:
    """An `Fp8Encoder` as a `vjepa_ros.runtime.forward.base.Forward`.

    Attributes
    ----------
    encoder : Fp8Encoder
        What runs.
    note : str
        How much of the encoder is in float8.
    nbytes : int
        Bytes of the matrices in float8.

    """

    def __init__(self, encoder: Fp8Encoder, normalise: Normalise, kind: str, note: str):
        self.encoder = encoder
        self.normalise, self.kind, self.note = normalise, kind, note
        self.nbytes = encoder.nbytes

    def __call__(self, pixels: Tensor) -> Tensor:
        return self.encoder(pixels)


def prepare8(encoder: Encoder, choice: DeviceChoice, normalise: Normalise,
             clip_shape: tuple[int, ...]) -> Fp8Forward:
    """The forward pass in fp8.

    Kernels of this package serve when they compute what PyTorch does, and PyTorch's own
    operations otherwise, with a warning. As many matrices are in float8 as keep the features of
    trial clips near those in bf16.

    Parameters
    ----------
    encoder, choice, normalise, clip_shape
        As for `vjepa_ros.runtime.forward.base.prepare`, with the branches in bfloat16.

    Raises
    ------
    SessionError
        When fp8 does not run here, or nothing can be in float8; with the remedy.

    """
    device = choice.device
    try:
        with torch.no_grad(), on_device(device):
            clips = trials(clip_shape).to(device)
            plain = torch.cat([PlainForward(encoder, normalise)(clip[None]) for clip in clips])
        made, kind = _made(encoder, clip_shape, device)
        with torch.no_grad(), on_device(device):
            made.calibrate(clips)

        def look(chosen: frozenset) -> Tensor:
            made.chosen = chosen
            with torch.no_grad(), on_device(device):
                return made(clips)

        _near(look(frozenset()), plain, 'bf16', device)
        chosen, error = choose(made.parts, look)
        _near(look(chosen), plain, 'fp8', device)
    except RuntimeError as error:
        if isinstance(error, SessionError):
            raise
        raise failed('fp8', device, error, REMEDY) from error
    if not chosen:
        raise useless('fp8', 'float8', REMEDY)
    made.settle()
    note = told('float8', 'bf16', made.parts, made.chosen, error)
    log.info('fp8 on %s: %s', device, note)
    return Fp8Forward(made, normalise, kind, note)


def _made(encoder: Encoder, clip_shape: tuple[int, ...], device: torch.device
          ) -> tuple[Fp8Encoder, str]:
    """The encoder with checked kernels, or without, and which."""
    plain = plain8(encoder, clip_shape)
    with torch.no_grad():
        if device.type == 'cuda':
            try:
                made = Fp8Encoder(encoder, clip_shape)
                with on_device(device):
                    check(made.steps, plain, made.dim, device)
                return made, FUSED
            # What is wrong with the source of a kernel PyTorch tells as either.
            except (RuntimeError, SyntaxError) as error:
                if is_out_of_memory(error):
                    raise
                log.warning('fp8 runs without kernels of this package on %s, which is slow: %s',
                            device, error)
        return Fp8Encoder(encoder, clip_shape, plain), STEPS


def check(steps: Steps, plain: Steps, dim: int, device: torch.device) -> None:
    """Compare the kernels that write float8 with PyTorch's operations; KernelsMissing if wrong."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device)

    x, branch, shift = 3 * random(ROWS, dim), random(ROWS, dim).bfloat16(), random(dim)
    values, shifts = 3 * random(ROWS, 4 * dim).bfloat16(), random(4 * dim)
    gains = torch.exp2(random(4 * dim).round())
    for name, given in (('norm8', None), ('norm8', branch), ('gelu8', None)):
        found = []
        for one in (steps, plain):
            if name == 'norm8':
                out, own = torch.empty_like(x, dtype=FLOAT8), x.clone()
                one.norm8(own, given, shift, out)
                found.append(torch.cat([out.float(), own]))
            else:
                out = torch.empty_like(values, dtype=FLOAT8)
                one.gelu8(values, gains, shifts, out)
                found.append(out.float())
        off = max_error(found[0][None], found[1][None])
        if off > SAME:
            raise KernelsMissing(f'kernel {name} differs by {off:.2g} from PyTorch')


def _near(got: Tensor, wanted: Tensor, what: str, device: torch.device) -> None:
    error, bound = max_error(got, wanted), CLOSE[torch.bfloat16]
    if error > bound:
        raise SessionError(f"precision 'fp8' gives wrong numbers on {device}: its features in "
                           f'{what} differ by {error:.2g} from those of PyTorch in bf16, allowed '
                           f'is {bound:g}; {REMEDY}')
