# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Write checkpoints: stripped, cast, and in the layout that is asked for."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from vjepa_ros.model.checkpoint.files import WeightsError, files_sha256
from vjepa_ros.model.checkpoint.inspection import Contents, examine, open_parts
from vjepa_ros.model.checkpoint.layouts import (
    AUTO,
    DENSE,
    ENCODER,
    PREDICTOR,
    Part,
    SECTIONS,
    choose_encoder,
    to_hugging_face,
)
from vjepa_ros.model.checkpoint.metadata import CONVERTED, Profile, profile_of
from vjepa_ros.model.checkpoint.networks import build, check_numbers, fits, variant_of, version_of
from vjepa_ros.model.checkpoint.readers import FLAT
from vjepa_ros.model.predictor import Predictor
from vjepa_ros.model.variants import PATCH, TUBELET

KEEP = 'keep'
DTYPES = {'float32': (torch.float32, 'F32'), 'float16': (torch.float16, 'F16'),
          'bfloat16': (torch.bfloat16, 'BF16'), 'float64': (torch.float64, 'F64')}
SAFETENSORS, PYTORCH, FOLDER = 'safetensors', 'meta', 'huggingface'
LAYOUTS = (SAFETENSORS, PYTORCH, FOLDER)
KINDS = (ENCODER, PREDICTOR, DENSE)


def convert(source: str | Path, target: str | Path, layout: str = SAFETENSORS,
            dtype: str = KEEP, weights_part: str = AUTO, encoder_only: bool = False) -> Contents:
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
    if layout not in LAYOUTS:
        raise WeightsError(f"layout is '{layout}', but must be one of {', '.join(LAYOUTS)}")
    opened, parts = open_parts(source)
    name = f"checkpoint file '{opened.path}'"
    chosen = None
    if any(part.kind == ENCODER for part in parts):
        chosen = choose_encoder(parts, weights_part, name)
    kept = _kept(parts, chosen, encoder_only, name, strict=FLAT in opened.groups)
    profile = profile_of(opened, parts, chosen)
    if profile.window and layout != SAFETENSORS:
        raise WeightsError(f"layout '{layout}' cannot say that the encoder of {name} is "
                           f"block-causal; choose '{SAFETENSORS}'")
    temporary = target.with_name(target.name + '.part')
    try:
        if layout == SAFETENSORS:
            about = {'format': 1, 'source': opened.path.name,
                     'source_sha256': files_sha256(opened.files),
                     'parts': {SECTIONS[part.kind]: part.name for part in kept},
                     'variant': _variant(chosen), 'version': chosen and version_of(chosen),
                     'profile': profile.to_json()}
            _write_safetensors(temporary, kept, dtype, {CONVERTED: json.dumps(about),
                                                        'format': 'pt'})
        elif layout == PYTORCH:
            _write_pytorch(temporary, kept, dtype)
        else:
            _write_folder(temporary, kept, dtype, profile, name)
        os.replace(temporary, target)
    finally:
        shutil.rmtree(temporary) if temporary.is_dir() else temporary.unlink(missing_ok=True)
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


def _write_safetensors(path: Path, parts: Iterable[Part], dtype: str, metadata: dict[str, str]
                       ) -> None:
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


def _state(part: Part, dtype: str) -> dict[str, Tensor]:
    return {key: _cast(part, key, dtype) for key in part.stored}


def _write_pytorch(path: Path, parts: Iterable[Part], dtype: str) -> None:
    """Write groups and prefixes as in the published files."""
    groups: dict[str, object] = {}
    for part in parts:
        state = _state(part, dtype)
        wrapped = {f'module.backbone.{key}': value for key, value in state.items()}
        # Programs differ in which of the two they read; the numbers are stored once.
        names = ('encoder', 'target_encoder') if part.kind == ENCODER else ('predictor',)
        groups |= dict.fromkeys(names, wrapped)
    torch.save(groups, path)


def _write_folder(path: Path, parts: Iterable[Part], dtype: str, profile: Profile, name: str
                  ) -> None:
    """As the transformers library reads it."""
    from safetensors.torch import save_file

    kinds = {part.kind: part for part in parts}
    if ENCODER not in kinds or version_of(kinds[ENCODER]) != '2.0' or (
            DENSE in kinds):
        raise WeightsError(f'{name} has networks that the layout of Hugging Face does not have, '
                           'which knows the encoder and predictor of version 2.0; use '
                           '`--layout safetensors`, or `--encoder-only` for the encoder alone')
    tensors = {f'{kind}.{key}': value.contiguous().clone() for kind, part in kinds.items()
               for key, value in to_hugging_face(kind, _state(part, dtype)).items()}
    path.mkdir()
    save_file(tensors, path / 'model.safetensors', metadata={'format': 'pt'})
    config = _config(kinds, profile)
    (path / 'config.json').write_text(json.dumps(config, indent=2) + '\n', encoding='utf-8')


def _config(kinds: dict[str, Part], profile: Profile) -> dict[str, object]:
    variant = variant_of(kinds[ENCODER])
    if variant is None:
        raise WeightsError('an encoder of an unknown size has no config.json; convert it to '
                           'another layout')
    ratio = variant.mlp / variant.dim
    while int(variant.dim * ratio) < variant.mlp:  # as its reader rounds
        ratio = math.nextafter(ratio, math.inf)
    config: dict[str, object] = {
        'model_type': 'vjepa2', 'architectures': ['VJEPA2Model'],
        'hidden_size': variant.dim, 'num_hidden_layers': variant.depth,
        'num_attention_heads': variant.heads, 'mlp_ratio': ratio, 'patch_size': PATCH,
        'tubelet_size': TUBELET, 'crop_size': profile.image_size or 256,
        'frames_per_clip': profile.num_frames or 64}
    if PREDICTOR in kinds:
        network = build(kinds[PREDICTOR])
        assert isinstance(network, Predictor)
        config |= {'pred_hidden_size': network.predictor_norm.weight.shape[0],
                   'pred_num_hidden_layers': len(network.predictor_blocks),
                   'pred_num_attention_heads': network.predictor_blocks[0].attn.heads,
                   'pred_num_mask_tokens': len(network.mask_tokens)}
    return config


def _variant(part: Part | None) -> str:
    variant = variant_of(part) if part is not None else None
    return variant.name if variant else ''
