# SPDX-License-Identifier: Apache-2.0
"""Build an encoder from a weights file, or refuse."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.files import (
    WeightsError,
    bundled_file,
    differences,
    file_sha256,
    read_file,
    tensors_sha256,
    under,
)
from vjepa_ros.model.meta import KEY, BundleMeta, HeadsReport
from vjepa_ros.model.variants import VARIANTS, Variant, find_variant

log = logging.getLogger(__name__)

RANDOM = 'random'  # asks for random weights where the package brings trained ones
WRAPPERS = ('module.', 'backbone.', 'encoder.')  # left in front of keys by training code
UNUSED = ('pos_embed',)  # learned positions that files of 2.0 may carry and RoPE replaces


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
    tensors_sha256 : str
        Hash of the tensors of a file that this package wrote, '' for others.
    heads : HeadsReport, optional
        Where the heads come from; None without heads.

    """

    path: str
    sha256: str
    trained: bool
    keys_loaded: int
    dtype: str
    variant: str
    version: str
    tensors_sha256: str = ''
    heads: HeadsReport | None = None


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
        Safetensors file. Empty: the file that the package brings for this size, if there is
        one. 'random': random weights, even so.
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
    wanted_random = str(weights) == RANDOM
    path = weights if weights and not wanted_random else None
    if not weights:
        path = bundled_file(variant.name, version)
    if path:
        return encoder, _load_file(encoder, Path(path).expanduser())
    if not allow_random_weights:
        reason = "`weights` is 'random'" if wanted_random else (
            f"no weights are set for the model size '{variant.name}' and the package brings none "
            'of that size')
        raise WeightsError(f'{reason}; set `weights` to a safetensors file or '
                           '`allow_random_weights: true` to run untrained')
    encoder.to_empty(device='cpu').init_random(seed)
    log.warning("model '%s' runs with random weights (seed %d): its features are untrained",
                variant.name, seed)
    return encoder, WeightsReport('', '', False, 0, 'float32', variant.name, version)


def _load_file(encoder: Encoder, path: Path) -> WeightsReport:
    found, own_hash = _read(path)
    dtypes = '+'.join(sorted({str(t.dtype).removeprefix('torch.') for t in found.values()}))
    problem = differences(encoder.state_dict(), found)
    if problem:
        raise WeightsError(f"weights file '{path}' does not fit model size "
                           f"'{encoder.variant.name}' version {encoder.version}: {problem}. "
                           f'{_advice(found)}')
    encoder.load_state_dict({k: t.to(torch.float32) for k, t in found.items()}, assign=True)
    encoder.requires_grad_(False)
    report = WeightsReport(str(path), file_sha256(path), True, len(found), dtypes,
                           encoder.variant.name, encoder.version, own_hash)
    log.info("loaded %d tensors (%s) of model '%s' from '%s', sha256 %s", len(found), dtypes,
             encoder.variant.name, path, report.sha256[:16])
    return report


def _read(path: Path) -> tuple[dict[str, Tensor], str]:
    """Tensors of the encoder in a file; their hash when this package wrote it."""
    tensors, metadata = read_file(path, 'weights', 'set `weights` to a safetensors file or '
                                  '`allow_random_weights: true` to run untrained')
    if KEY in metadata:
        return _read_bundle(path, tensors, metadata[KEY])
    renamed = {_bare(key): tensor for key, tensor in tensors.items()}
    if len(renamed) < len(tensors):
        raise WeightsError(f"weights file '{path}' holds several encoders; "
                           'save the wanted one alone')
    return {key: tensor for key, tensor in renamed.items() if key not in UNUSED}, ''


def _read_bundle(path: Path, tensors: dict[str, Tensor], text: str
                 ) -> tuple[dict[str, Tensor], str]:
    try:
        meta = BundleMeta.from_json(text)
    except ValueError as error:
        raise WeightsError(f"weights file '{path}' cannot be used: {error}; "
                           'set `weights` to another file') from error
    if not meta.has_encoder:
        raise WeightsError(f"weights file '{path}' holds heads without an encoder; set `heads` "
                           'to it, and `weights` to the encoder it was trained on')
    found = under('encoder.', tensors)
    own_hash = tensors_sha256(found)
    if own_hash != meta.backbone_sha256:
        raise WeightsError(f"weights file '{path}' is damaged: its tensors have the hash "
                           f'{own_hash[:16]}…, and it says {meta.backbone_sha256[:16]}…; '
                           'get it anew')
    return found, own_hash


def _bare(key: str) -> str:
    while key.startswith(WRAPPERS):
        key = key.split('.', 1)[1]
    return key


def _advice(found: dict[str, Tensor]) -> str:
    """Say which network the tensors belong to."""
    version = '2.1' if any(key.startswith('norms_block.') for key in found) else '2.0'
    fitting = [v.name for v in VARIANTS.values() if _signature_of(v) == _signature(found)]
    if fitting:
        return f"The file fits model size '{fitting[0]}' version {version}."
    return (f'The file looks like version {version} and fits none of the sizes '
            f'{", ".join(VARIANTS)}.')


def _signature_of(variant: Variant) -> tuple[int, int, int]:
    return variant.dim, variant.depth, variant.mlp


def _signature(found: dict[str, Tensor]) -> tuple[int, int, int]:
    """Width, depth and MLP width of the network that `found` belongs to (0 where unclear)."""
    def rows(key: str) -> int:
        return found[key].shape[0] if key in found and found[key].ndim else 0

    return rows('patch_embed.proj.weight'), _depth(found), rows('blocks.0.mlp.fc1.weight')


def _depth(keys: Iterable[str]) -> int:
    return len({key.split('.')[1] for key in keys if key.startswith('blocks.')})
