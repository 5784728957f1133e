# SPDX-License-Identifier: Apache-2.0
"""Build an encoder from a weights file, or refuse."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.variants import VARIANTS, Variant, find_variant

log = logging.getLogger(__name__)

WRAPPERS = ('module.', 'backbone.', 'encoder.')  # left in front of keys by training code
UNUSED = ('pos_embed',)  # learned positions that files of 2.0 may carry and RoPE replaces


class WeightsError(ValueError):
    """Weights are missing, unreadable or made for another network."""


@dataclass(frozen=True)
class WeightsReport:
    """Where the weights of an encoder come from.

    Attributes
    ----------
    path : str
        File, or '' for random weights.
    sha256 : str
        Hash of the file, or '' for random weights.
    trained : bool
        False for random weights.
    keys_loaded : int
        Tensors read from the file.
    dtype : str
        Type of the numbers in the file, such as 'float16'; several are joined by '+'.
    variant, version : str
        Network the weights were loaded into.

    """

    path: str
    sha256: str
    trained: bool
    keys_loaded: int
    dtype: str
    variant: str
    version: str


def load_encoder(variant: str | Variant, version: str = '2.0', weights: str | Path | None = None,
                 allow_random_weights: bool = False,
                 seed: int = 0) -> tuple[Encoder, WeightsReport]:
    """Build an encoder on the CPU in float32.

    Parameters
    ----------
    variant : str or Variant
        Size, by name or as a row of `VARIANTS`.
    version : str
        Model generation.
    weights : str, Path or None
        Safetensors file; empty for none.
    allow_random_weights : bool
        Whether an encoder may be built without a file. It is then untrained.
    seed : int
        Determines random weights completely.

    Raises
    ------
    WeightsError
        When there is no file and random weights are not allowed, or the file does not fit.

    """
    if isinstance(variant, str):
        variant = find_variant(variant)
    with torch.device('meta'):  # shapes only: nothing is allocated or initialised twice
        encoder = Encoder(variant, version)
    encoder.requires_grad_(False).eval()
    if weights:
        return encoder, _load_file(encoder, Path(weights).expanduser())
    if not allow_random_weights:
        raise WeightsError(f"no weights are set for the model size '{variant.name}'; "
                           'set `weights` to a safetensors file or `allow_random_weights: true` '
                           'to run untrained')
    encoder.to_empty(device='cpu').init_random(seed)
    log.warning("model '%s' runs with random weights (seed %d): its features are untrained",
                variant.name, seed)
    return encoder, WeightsReport('', '', False, 0, 'float32', variant.name, version)


def _load_file(encoder: Encoder, path: Path) -> WeightsReport:
    found = _read(path)
    dtypes = '+'.join(sorted({str(t.dtype).removeprefix('torch.') for t in found.values()}))
    _check_fit(encoder, found, path)
    encoder.load_state_dict({k: t.to(torch.float32) for k, t in found.items()}, assign=True)
    encoder.requires_grad_(False)
    report = WeightsReport(str(path), file_sha256(path), True, len(found), dtypes,
                           encoder.variant.name, encoder.version)
    log.info("loaded %d tensors (%s) of model '%s' from '%s', sha256 %s", len(found), dtypes,
             encoder.variant.name, path, report.sha256[:16])
    return report


def _read(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not path.is_file():
        raise WeightsError(f"weights file '{path}' does not exist; set `weights` to a "
                           'safetensors file or `allow_random_weights: true` to run untrained')
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"weights file '{path}' is not a readable safetensors file: "
                           f'{error}') from error
    renamed = {_bare(key): tensor for key, tensor in tensors.items()}
    if len(renamed) < len(tensors):
        raise WeightsError(f"weights file '{path}' holds several encoders; "
                           'save the wanted one alone')
    return {key: tensor for key, tensor in renamed.items() if key not in UNUSED}


def _bare(key: str) -> str:
    while key.startswith(WRAPPERS):
        key = key.split('.', 1)[1]
    return key


def _check_fit(encoder: Encoder, found: dict[str, Tensor], path: Path) -> None:
    want = encoder.state_dict()
    missing = sorted(want.keys() - found.keys())
    unexpected = sorted(found.keys() - want.keys())
    mismatched = sorted(f'{key} {tuple(found[key].shape)} instead of {tuple(want[key].shape)}'
                        for key in want.keys() & found.keys()
                        if found[key].shape != want[key].shape)
    if missing or unexpected or mismatched:
        raise WeightsError(
            f"weights file '{path}' does not fit model size '{encoder.variant.name}' version "
            f'{encoder.version}: {_listing("missing", missing)}; '
            f'{_listing("unexpected", unexpected)}; {_listing("wrong shape", mismatched)}. '
            f'{_advice(found)}')


def _listing(what: str, items: list[str], limit: int = 5) -> str:
    text = f'{len(items)} {what}'
    if items:
        text += f' ({", ".join(items[:limit])}{", …" if len(items) > limit else ""})'
    return text


def _advice(found: dict[str, Tensor]) -> str:
    """Say which network the tensors belong to."""
    if any(key.startswith('norms_block.') for key in found):
        return 'It looks like a V-JEPA 2.1 encoder, which is not supported.'
    fitting = [v.name for v in VARIANTS.values() if _signature_of(v) == _signature(found)]
    if fitting:
        return f"The file fits model size '{fitting[0]}'."
    return f'The file fits none of the sizes {", ".join(VARIANTS)}.'


def _signature_of(variant: Variant) -> tuple[int, int, int]:
    return variant.dim, variant.depth, variant.mlp


def _signature(found: dict[str, Tensor]) -> tuple[int, int, int]:
    """Width, depth and MLP width of the network that `found` belongs to (0 where unclear)."""
    def rows(key: str) -> int:
        return found[key].shape[0] if key in found and found[key].ndim else 0

    return rows('patch_embed.proj.weight'), _depth(found), rows('blocks.0.mlp.fc1.weight')


def _depth(keys: Iterable[str]) -> int:
    return len({key.split('.')[1] for key in keys if key.startswith('blocks.')})


def file_sha256(path: Path) -> str:
    """Hash of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open('rb') as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
