# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Write checkpoints again as one safetensors file: stripped of the state of training, cast."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor

from vjepa_ros.model.checkpoint.files import WeightsError, files_sha256
from vjepa_ros.model.checkpoint.layouts import (
    AUTO,
    CONVERTED,
    DENSE,
    PREDICTOR,
    Stored,
    check_numbers,
    fits,
    profile_of,
    variant_of,
    version_of,
)
from vjepa_ros.model.checkpoint.load import (
    CHECKPOINT,
    Contents,
    encoder_of,
    examine,
    open_parts,
    write_safetensors,
)

KEEP = 'keep'
DTYPES = ('float32', 'float16', 'bfloat16')


def convert(source: str | Path, target: str | Path, dtype: str = KEEP,
            weights_part: str = AUTO, encoder_only: bool = False) -> Contents:
    """Write encoder and predictor of a checkpoint again, without the state of training.

    Probes and collision heads are left out.
    """
    target = Path(target).expanduser()
    if target.exists():
        raise WeightsError(f"output '{target}' is there already; choose another name "
                           'or remove it')
    if not target.parent.is_dir():
        raise WeightsError(f"output '{target}': the folder '{target.parent}' does not exist; "
                           'create it or choose another')
    if dtype not in (KEEP, *DTYPES):
        raise WeightsError(f"dtype is '{dtype}', but must be one of {', '.join((KEEP, *DTYPES))}")
    opened, parts, name = open_parts(source)
    encoder = encoder_of(parts, weights_part, name)
    kinds = () if encoder_only else (PREDICTOR, DENSE)
    kept = {'encoder': encoder, 'predictor': next((p for p in parts if p.kind in kinds), None)}
    variant = None if encoder is None else variant_of(encoder)
    about = {'format': 1, 'source': opened.path.name, 'source_sha256': files_sha256(opened.files),
             'parts': {section: part.name for section, part in kept.items() if part},
             'variant': variant.name if variant else '',
             'version': encoder and version_of(encoder),
             'profile': asdict(profile_of(opened, parts, encoder, CHECKPOINT))}
    tensors = {}
    for section, part in kept.items():
        if part is None:
            continue
        check_numbers(part, name)
        if not fits(part):
            raise WeightsError(f'{name} has a {part.kind} that is not complete; `vjepa-ros '
                               'inspect` lists what is missing')
        for key, stored in part.stored.items():
            tensors[f'{section}.{key}'] = _cast(stored, dtype, f"'{key}' of the {part.kind}")
    if not tensors:
        raise WeightsError(f'{name} has no encoder or predictor to convert, but: '
                           f'{", ".join(part.label for part in parts)}; give another checkpoint')
    write_safetensors(target, tensors, {CONVERTED: json.dumps(about), 'format': 'pt'})
    return examine(target)


def _cast(stored: Stored, dtype: str, name: str) -> Tensor:
    """Read one parameter in the wanted type."""
    value = stored.read(stored.dtype if dtype == KEEP else getattr(torch, dtype))
    if not all(bound.isfinite() for bound in value.aminmax()):
        what = 'numbers that are not finite' if dtype == KEEP else f'numbers too large for {dtype}'
        raise WeightsError(f'{name} has {what}; convert to another type, or download the file '
                           'again')
    return value
