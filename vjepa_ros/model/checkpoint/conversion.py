# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Write checkpoints again as one safetensors file: stripped of the state of training, cast."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from vjepa_ros.model.checkpoint.files import FLAT, WeightsError, files_sha256
from vjepa_ros.model.checkpoint.layouts import (
    AUTO,
    CONVERTED,
    DENSE,
    ENCODER,
    PREDICTOR,
    Part,
    SECTIONS,
    check_numbers,
    choose_encoder,
    fits,
    profile_of,
    variant_of,
    version_of,
)
from vjepa_ros.model.checkpoint.load import Contents, examine, open_parts

KEEP = 'keep'
DTYPES = {'float32': (torch.float32, 'F32'), 'float16': (torch.float16, 'F16'),
          'bfloat16': (torch.bfloat16, 'BF16'), 'float64': (torch.float64, 'F64')}
KINDS = (ENCODER, PREDICTOR, DENSE)


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
    if dtype != KEEP and dtype not in DTYPES:
        raise WeightsError(f"dtype is '{dtype}', but must be one of {', '.join((KEEP, *DTYPES))}")
    opened, parts = open_parts(source)
    name = f"checkpoint file '{opened.path}'"
    chosen = None
    if any(part.kind == ENCODER for part in parts):
        chosen = choose_encoder(parts, weights_part, name)
    kept = _kept(parts, chosen, encoder_only, name, strict=FLAT in opened.groups)
    profile = profile_of(opened, parts, chosen)
    about = {'format': 1, 'source': opened.path.name, 'source_sha256': files_sha256(opened.files),
             'parts': {SECTIONS[part.kind]: part.name for part in kept},
             'variant': _variant(chosen), 'version': chosen and version_of(chosen),
             'profile': profile.to_json()}
    temporary = target.with_name(target.name + '.part')
    try:
        _write(temporary, kept, dtype, {CONVERTED: json.dumps(about), 'format': 'pt'})
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    return examine(target)


def _kept(parts: list[Part], chosen: Part | None, encoder_only: bool, name: str, strict: bool
          ) -> list[Part]:
    """Return the parts to write, each complete and the only one of its kind."""
    kept: dict[str, Part] = {}
    for part in parts:
        if part.kind not in KINDS:
            if strict and not part.kind and part.name == FLAT:
                raise WeightsError(f'{name} has parameters that belong to no network '
                                   f'({", ".join([*part.stored][:5])}); download the file again')
            continue
        if (part.kind == ENCODER and part is not chosen) or (
                encoder_only and part.kind != ENCODER):
            continue
        check_numbers(part, name)
        if part.incomplete or not fits(part):
            raise WeightsError(f'{name} has a {part.kind} that is not complete; `vjepa-ros '
                               'inspect` lists what is missing')
        kept.setdefault(SECTIONS[part.kind], part)
    if not kept:
        there = ', '.join(filter(None, (part.kind for part in parts)))
        raise WeightsError(f'{name} has no encoder or predictor to convert, but '
                           f'{there or "nothing known"}; give another checkpoint')
    return list(kept.values())


def _cast(part: Part, key: str, dtype: str) -> Tensor:
    """Read one parameter in the wanted type."""
    stored = part.stored[key]
    value = stored.read(stored.dtype if dtype == KEEP else DTYPES[dtype][0])
    if not all(bound.isfinite() for bound in value.aminmax()):
        what = 'numbers that are not finite' if dtype == KEEP else f'numbers too large for {dtype}'
        raise WeightsError(f"'{key}' of the {part.kind} has {what}; convert to another type, or "
                           'download the file again')
    return value


def _write(path: Path, parts: Iterable[Part], dtype: str, metadata: dict[str, str]) -> None:
    """Parameter by parameter, so that large files need little memory."""
    header: dict[str, object] = {'__metadata__': metadata}
    entries = []
    position = 0
    for part in parts:
        for key, stored in sorted(part.stored.items()):
            kind = str(stored.dtype).removeprefix('torch.') if dtype == KEEP else dtype
            size = DTYPES[kind][0].itemsize * math.prod(stored.shape)
            header[f'{SECTIONS[part.kind]}.{key}'] = {
                'dtype': DTYPES[kind][1], 'shape': list(stored.shape),
                'data_offsets': [position, position + size]}
            position += size
            entries.append((part, key))
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    with path.open('wb') as file:
        file.write(len(text).to_bytes(8, 'little') + text)
        for part, key in entries:
            # Through bytes, because NumPy knows no bfloat16.
            file.write(_cast(part, key, dtype).reshape(-1).view(torch.uint8).numpy().data)


def _variant(part: Part | None) -> str:
    variant = variant_of(part) if part is not None else None
    return variant.name if variant else ''
