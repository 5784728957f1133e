# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Save and load heads, alone or together with their encoder, in one checked file.

A file of this package is safetensors in float16 with tensors called `encoder.*`, `heads.*` and
`adapters.*` (low-rank changes of the encoder) and a description (`BundleMeta`) in its metadata.
Heads only mean something on the encoder they were trained on, so that is checked by hash.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from vjepa_ros.model.checkpoint.files import (
    WeightsError,
    differences,
    file_sha256,
    tensors_sha256,
    under,
)
from vjepa_ros.model.checkpoint.layouts import AUTO
from vjepa_ros.model.checkpoint.load import WeightsReport, load_encoder
from vjepa_ros.model.checkpoint.metadata import KEY, BundleMeta, HeadsReport
from vjepa_ros.model.checkpoint.readers import FLAT, open_weights
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.head_specs import HEADS
from vjepa_ros.model.heads import Heads
from vjepa_ros.model.lora import merge_state
from vjepa_ros.model.variants import Variant

log = logging.getLogger(__name__)

State = Mapping[str, Tensor]
INSTEAD = "a file that `vjepa-ros train` wrote, or to '' to run without it"


def save_bundle(path: str | Path, meta: BundleMeta, *, encoder: State | None = None,
                heads: State | None = None, adapters: State | None = None) -> BundleMeta:
    """Write a weights file in float16; an existing file is replaced at once or not at all.

    Parameters
    ----------
    path : str or Path
        The file.
    meta : BundleMeta
        Its description. For heads without an encoder `backbone_sha256` must be the hash of the
        file of their encoder (`WeightsReport.sha256`).
    encoder, heads, adapters : mapping of str to Tensor, optional
        State of an `Encoder`, of `Heads`, and of `adapter_state`.

    Returns
    -------
    BundleMeta
        As written, with the fields that follow from the tensors.

    Raises
    ------
    ValueError
        When there is nothing to save, a number does not fit into float16, or it is not said
        which encoder the heads belong to.

    """
    from safetensors.torch import save_file

    parts = {'encoder.': encoder, 'heads.': heads, 'adapters.': adapters}
    tensors = {prefix + key: value.detach().to('cpu', torch.float16).contiguous().clone()
               for prefix, state in parts.items() for key, value in (state or {}).items()}
    if not encoder and not heads:
        raise ValueError('there is neither an encoder nor heads to save')
    if encoder and adapters:
        raise ValueError('adapters are merged into an encoder before it is saved')
    broken = [key for key, value in tensors.items() if not value.isfinite().all()]
    if broken:
        raise ValueError(f'{len(broken)} tensors hold numbers that float16 cannot '
                         f'({", ".join(broken[:5])})')
    own = tensors_sha256(under('encoder.', tensors)) if encoder else meta.backbone_sha256
    if not own:
        raise ValueError('heads are saved with the hash of the file of their encoder '
                         '(backbone_sha256)')
    meta = replace(meta, has_encoder=bool(encoder), backbone_sha256=own)
    path = Path(path)
    half_written = path.with_name(path.name + '.part')
    save_file(tensors, half_written, metadata={KEY: meta.to_json()})
    os.replace(half_written, path)
    return meta


def read_meta(path: str | Path) -> BundleMeta | None:
    """Description of a weights file; None when another program wrote the file.

    Raises
    ------
    WeightsError
        When the file is missing, unreadable, or its description is.

    """
    path = Path(path)
    return _meta(path, open_weights(path, 'weights').metadata, 'weights')


def load_heads(path: str | Path, encoder: Encoder, report: WeightsReport
               ) -> tuple[Heads, HeadsReport]:
    """Load heads for an encoder, on the CPU in float32.

    Parameters
    ----------
    path : str or Path
        File with heads. Adapters in it are merged into `encoder`.
    encoder : Encoder
        In float32.
    report : WeightsReport
        Where its weights come from.

    Raises
    ------
    WeightsError
        When the file holds no heads, or they were trained on another encoder.

    """
    path = Path(path).expanduser()
    opened = open_weights(path, 'heads', f'set `heads` to {INSTEAD}')
    tensors = opened.groups.get(FLAT, {})
    meta = _meta(path, opened.metadata, 'heads')
    state = under('heads.', tensors)
    if meta is None or not state:
        raise WeightsError(f"heads file '{path}' holds no heads; set `heads` to {INSTEAD}")
    _check_backbone(path, meta, report)
    heads = _build(path, state, encoder.variant)
    adapters = under('adapters.', tensors)
    try:
        merge_state(encoder, adapters)
    except (ValueError, IndexError, RuntimeError) as error:
        raise WeightsError(f"heads file '{path}': {error}; train the heads anew") from error
    log.info("loaded heads for model '%s' from '%s'%s", meta.variant, path,
             ' with adapters of the encoder' if adapters else '')
    return heads, HeadsReport(str(path), file_sha256(path), meta, bool(adapters))


def load_model(variant: str | Variant, version: str = '2.0', weights: str | Path | None = None,
               heads: str | Path | None = None, allow_random_weights: bool = False,
               seed: int = 0, weights_part: str = AUTO
               ) -> tuple[Encoder, Heads | None, WeightsReport]:
    """Build an encoder as `load_encoder` does, and the heads that belong to it.

    Parameters
    ----------
    heads : str, Path or None
        File with heads. Empty: those in the file of the encoder, if it has any.
    weights_part : str
        See `load_encoder`.

    Raises
    ------
    WeightsError
        As `load_encoder` and `load_heads`.

    """
    encoder, report = load_encoder(variant, version, weights, allow_random_weights, seed,
                                   weights_part)
    if not heads and report.tensors_sha256 and _has_heads(Path(report.path)):
        heads = report.path
    if not heads:
        return encoder, None, report
    loaded, heads_report = load_heads(heads, encoder, report)
    return encoder, loaded, replace(report, heads=heads_report)


def _has_heads(path: Path) -> bool:
    return any(key.startswith('heads.') for key in open_weights(path, 'weights').groups[FLAT])


def _meta(path: Path, metadata: Mapping[str, str], parameter: str) -> BundleMeta | None:
    if KEY not in metadata:
        return None
    try:
        return BundleMeta.from_json(metadata[KEY])
    except ValueError as error:
        raise WeightsError(f"{parameter} file '{path}' cannot be used: {error}; "
                           f'set `{parameter}` to another file') from error


def _check_backbone(path: Path, meta: BundleMeta, report: WeightsReport) -> None:
    if (meta.variant, meta.version) != (report.variant, report.version):
        raise WeightsError(f"heads file '{path}' was trained on model size '{meta.variant}' "
                           f"version {meta.version}, but `model_size` is '{report.variant}' "
                           f'version {report.version}; set `model_size` to {meta.variant} or '
                           '`heads` to another file')
    if meta.backbone_sha256 in {report.sha256, report.tensors_sha256} - {''}:
        return
    running = f"'{report.path}' (sha256 {report.sha256[:16]}…)" if report.trained else 'random'
    raise WeightsError(f"heads file '{path}' was trained on other weights (sha256 "
                       f'{meta.backbone_sha256[:16]}…) than those that run: {running}; set '
                       '`weights` to the file the heads were trained on, or `heads` to another '
                       'file')


def _build(path: Path, state: State, variant: Variant) -> Heads:
    first = state.get('dense.1.weight')
    width = first.shape[0] if first is not None and first.ndim else None
    specs = [spec for spec in HEADS.values()
             if not spec.optional or f'{spec.own_layer}.weight' in state]
    try:
        with torch.device('meta'):
            heads = Heads(variant.dim, width, specs)
        problem = differences(heads.state_dict(), state)
    except (ValueError, RuntimeError) as error:
        problem = str(error)
    if problem:
        raise WeightsError(f"heads file '{path}' does not fit model size '{variant.name}': "
                           f'{problem}; train the heads anew')
    found = {key: value.float() for key, value in state.items()}
    broken = [key for key, value in found.items() if not value.isfinite().all()]
    if broken:
        raise WeightsError(f"heads file '{path}' is damaged: {len(broken)} of its parameters hold "
                           f'NaN or infinity ({", ".join(broken[:5])}); train the heads anew')
    heads.load_state_dict(found, assign=True)
    return heads.requires_grad_(False).eval()
