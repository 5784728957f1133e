# SPDX-License-Identifier: Apache-2.0
"""Read weights files: existence, format, hashes, and whether their tensors fit a network."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

# One file of the package per model size that it brings: <size>.safetensors.
WEIGHTS_FOLDER = Path(__file__).resolve().parents[1] / 'weights'


class WeightsError(ValueError):
    """Weights are missing, unreadable or made for another network."""


def bundled_file(variant: str, version: str = '2.0') -> Path | None:
    """Weights that the package brings for a model size; None when it brings none."""
    path = WEIGHTS_FOLDER / f'{variant}.safetensors'
    return path if version == '2.0' and path.is_file() else None


def read_file(path: Path, parameter: str, remedy: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and text metadata of a safetensors file.

    Parameters
    ----------
    path : Path
        The file.
    parameter : str
        Name of the parameter that asks for it, for the error.
    remedy : str
        What to do when there is no such file.

    Raises
    ------
    WeightsError
        When the file does not exist or cannot be read.

    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise WeightsError(f"{parameter} file '{path}' does not exist; {remedy}")
    try:
        with safe_open(path, framework='pt') as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            return tensors, file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"{parameter} file '{path}' is not a readable safetensors file: "
                           f'{error}') from error


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin with `prefix`, without it."""
    return {key.removeprefix(prefix): value for key, value in tensors.items()
            if key.startswith(prefix)}


def differences(want: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> str:
    """What keeps `found` from filling `want`, in words; '' when it fits."""
    missing = sorted(want.keys() - found.keys())
    unexpected = sorted(found.keys() - want.keys())
    mismatched = sorted(f'{key} {tuple(found[key].shape)} instead of {tuple(want[key].shape)}'
                        for key in want.keys() & found.keys()
                        if found[key].shape != want[key].shape)
    if not (missing or unexpected or mismatched):
        return ''
    return (f'{_listing("missing", missing)}; {_listing("unexpected", unexpected)}; '
            f'{_listing("wrong shape", mismatched)}')


def _listing(what: str, items: list[str], limit: int = 5) -> str:
    text = f'{len(items)} {what}'
    if items:
        text += f' ({", ".join(items[:limit])}{", …" if len(items) > limit else ""})'
    return text


def file_sha256(path: Path) -> str:
    """Hash of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open('rb') as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def tensors_sha256(tensors: Mapping[str, Tensor]) -> str:
    """Hash of the names, types, shapes and numbers of tensors, whatever their order."""
    digest = hashlib.sha256()
    for key, value in sorted(tensors.items()):
        digest.update(f'{key} {value.dtype} {tuple(value.shape)}\n'.encode())
        # Through bytes, because NumPy knows no bfloat16.
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
