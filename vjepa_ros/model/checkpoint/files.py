# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Weights: where the package has its own, their hash, and whether tensors fit a network."""

from __future__ import annotations

import hashlib
import pickle
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from vjepa_ros.model.checkpoint.hashes import file_sha256 as file_sha256

# One file of the package per model size that it brings: <size>.safetensors.
WEIGHTS_FOLDER = Path(__file__).resolve().parents[2] / 'weights'

ANEW = 'get the file anew'
# What zipfile, torch.load, json, safetensors and the networks raise for the bytes, the names and
# the shapes of a file that nobody made on purpose.
FOREIGN = (ArithmeticError, AssertionError, AttributeError, EOFError, LookupError, MemoryError,
           OSError, RuntimeError, TypeError, ValueError, pickle.PickleError, struct.error,
           zipfile.BadZipFile, zlib.error)
LISTED = 12  # names in an error: the parameters of one block


class WeightsError(ValueError):
    """Weights are missing, unreadable or made for another network."""


@contextmanager
def foreign(name: str, parameter: str) -> Iterator[None]:
    """Turn whatever the content of a file raises into WeightsError.

    Parameters
    ----------
    name : str
        What the error calls the file.
    parameter : str
        Which asked for it.

    """
    try:
        yield
    except WeightsError:
        raise
    except OSError as error:
        raise WeightsError(f'{name} cannot be read: {error}; make `{parameter}` a file that '
                           'can') from error
    except FOREIGN as error:
        reason = (str(error).splitlines() or [''])[0][:200]
        raise WeightsError(f'{name} is truncated or damaged: {type(error).__name__}: {reason}; '
                           f'{ANEW}') from error


def bundled_file(variant: str, version: str = '2.0') -> Path | None:
    """Weights that the package brings for a model size; None when it brings none."""
    path = WEIGHTS_FOLDER / f'{variant}.safetensors'
    return path if version == '2.0' and path.is_file() else None


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin with `prefix`, without it."""
    return {key.removeprefix(prefix): value for key, value in tensors.items()
            if key.startswith(prefix)}


class Shaped(Protocol):
    """A parameter, wherever it is."""

    @property
    def shape(self) -> torch.Size: ...


def compare(want: Mapping[str, Shaped], found: Mapping[str, Shaped]
            ) -> tuple[list[str], list[str], list[str]]:
    """Names of parameters that are missing, unexpected, and of a wrong shape with both shapes."""
    return (sorted(want.keys() - found.keys()), sorted(found.keys() - want.keys()),
            sorted(f'{key} {tuple(found[key].shape)} instead of {tuple(want[key].shape)}'
                   for key in want.keys() & found.keys() if found[key].shape != want[key].shape))


def differences(want: Mapping[str, Shaped], found: Mapping[str, Shaped], limit: int = LISTED
                ) -> str:
    """What keeps `found` from filling `want`, in words with so many names; '' when it fits."""
    problems = compare(want, found)
    if not any(problems):
        return ''
    return '; '.join(f'{len(items)} {what}' + _names(items, limit) for what, items
                     in zip(('missing', 'unexpected', 'wrong shape'), problems, strict=True))


def _names(items: list[str], limit: int) -> str:
    more = ', …' if len(items) > limit else ''
    return f' ({", ".join(items[:limit])}{more})' if items else ''


def tensors_sha256(tensors: Mapping[str, Tensor]) -> str:
    """Hash of the names, types, shapes and numbers of tensors, whatever their order."""
    digest = hashlib.sha256()
    for key, value in sorted(tensors.items()):
        digest.update(f'{key} {value.dtype} {tuple(value.shape)}\n'.encode())
        # Through bytes, because NumPy knows no bfloat16.
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
