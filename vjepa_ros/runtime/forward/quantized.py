# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run linear layers of an encoder in float8 or int8 by torchao (the extra `quantized`).

As many kinds of `LAYERS` are quantised as keep the features close; if none does, it is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from vjepa_ros.model.encoder import Encoder
from vjepa_ros.runtime.device import (
    DeviceChoice,
    DeviceError,
    INSTEAD,
    SessionError,
    VNNI,
    choose_device,
    cpu_features,
)
from vjepa_ros.runtime.memory import is_out_of_memory
from vjepa_ros.runtime.noise_floor import random_scene
from vjepa_ros.runtime.streaming import Work

log = logging.getLogger(__name__)

# Largest rms error of the features that it may add, relative to their rms, on the clips of
# `trials`. With up to 1.7 % of bf16, and other clips than these, that stays below 3 %.
MOST = 0.018
STEP = 3            # by which the picture of a trial moves from frame to frame [px]
LAYERS = ('attn.qkv', 'attn.proj', 'mlp.fc1', 'mlp.fc2')
CHOICES = (LAYERS, LAYERS[:2], LAYERS[:1])   # tried in this order


def quantize(encoder: Encoder, choice: DeviceChoice, forward: Work,
             clip_shape: tuple[int, ...]) -> str:
    """Quantise layers of an encoder, in place; return what was done, for logs and diagnostics."""
    name, remedy = choice.precision, f'set `precision` to {INSTEAD[choice.precision]} or auto'
    try:
        kind = _kind(choice)
        config = _config(kind)
        clips = trials(clip_shape).to(choice.device)
        exact, errors = _features(forward, clips), []
        if not exact.isfinite().all():
            raise SessionError('the features of these weights are not finite before any layer is '
                               'quantised; set `precision: fp32`, or `weights` to another file')
        for layers in CHOICES:
            before = _quantized(encoder, config, layers)
            error = max_error(_features(forward, clips), exact)
            if error <= MOST:
                note = (f'{name}: {kind} by torchao in {", ".join(layers)} of all blocks, so that '
                        f'the features change by {100 * error:.1f} % on trial clips')
                log.info('%s', note)
                return note
            errors.append(f'{100 * error:.1f} % with {", ".join(layers)}')
            for layer, weight in before.items():
                layer.weight = weight
    except SessionError:
        raise
    # Of many types, out of PyTorch and torchao.
    except (RuntimeError, ImportError, NotImplementedError, AssertionError, TypeError,
            ValueError) as error:
        if is_out_of_memory(error):
            raise
        raise SessionError(f"precision '{name}' does not run on {choice.device}: "
                           f'{type(error).__name__}: {str(error)[:300]}; {remedy}') from error
    raise SessionError(f"precision '{name}' changes the features of these weights too much: "
                       f'{"; ".join(errors)}, at most {100 * MOST:.1f} % is allowed; {remedy}')


def served(precision: str) -> str:
    """Say how the best device of this machine serves 'fp8' or 'int8', or why it does not."""
    try:
        choice = choose_device(precision=precision)
    except DeviceError as error:
        return str(error)
    return (f'{_kind(choice)} by torchao on {choice.device}, in as many layers as change the '
            f'features by at most {100 * MOST:.1f} %')


def _kind(choice: DeviceChoice) -> str:
    if choice.precision == 'fp8':
        return 'dynamic float8'
    # On CUDA dynamic int8 of torchao 0.18 cannot be captured in a graph.
    dynamic = choice.device.type == 'cpu' and VNNI & cpu_features()
    return 'dynamic int8' if dynamic else 'int8 weights'


def _config(kind: str) -> Any:
    from torchao import quantization as ao  # pyright: ignore[reportMissingImports]

    if kind == 'dynamic float8':
        return ao.Float8DynamicActivationFloat8WeightConfig(granularity=ao.PerRow())
    return (ao.Int8DynamicActivationInt8WeightConfig() if kind == 'dynamic int8'
            else ao.Int8WeightOnlyConfig())


def _quantized(encoder: Encoder, config: Any, layers: tuple[str, ...]
               ) -> Mapping[nn.Linear, nn.Parameter]:
    """Quantise layers of all blocks; return their weights before."""
    from torchao.quantization import quantize_  # pyright: ignore[reportMissingImports]

    before: dict[nn.Linear, nn.Parameter] = {}
    for block in encoder.blocks:
        for name in layers:
            layer = block.get_submodule(name)
            assert isinstance(layer, nn.Linear)
            before[layer] = cast(nn.Parameter, layer.weight)
        quantize_(block, config, filter_fn=lambda module, name: name in layers)
    return before


def _features(forward: Work, clips: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.cat([forward(clip[None]) for clip in clips])


def trials(clip_shape: tuple[int, ...]) -> Tensor:
    """Make clips (2, T, S, S, 3) uint8: a picture that moves, and random pixels."""
    frames, side = clip_shape[:2]
    rng = np.random.default_rng(0)
    wide = random_scene(rng, side + STEP * frames)
    moving = [wide[STEP * n:][:side, STEP * n:STEP * n + side] for n in range(frames)]
    noise = rng.integers(0, 256, clip_shape, dtype=np.uint8)
    return torch.from_numpy(np.stack([np.rint(np.stack(moving)).astype(np.uint8), noise]))


def max_error(got: Tensor, exact: Tensor) -> float:
    """Return the largest error of a clip, rms over rms; infinity if a number is not finite."""
    off, size = (values.flatten(1).double().square().sum(1).sqrt()
                 for values in (got - exact, exact))
    error = float((off / size).max())
    return error if error == error else float('inf')
