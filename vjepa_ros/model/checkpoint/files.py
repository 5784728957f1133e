# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Files with weights: those of the package, errors, hashes, and whether tensors fit a network."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import pickle
import struct
import time
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

log = logging.getLogger(__name__)

# One file of the package per model size that it brings: <size>.safetensors.
WEIGHTS_FOLDER = Path(__file__).resolve().parents[2] / 'weights'

ANEW = 'download the file again'
KEY = 'vjepa_ros'  # of the safetensors metadata
# Raised by zipfile, torch.load, json, safetensors and the networks for the bytes, names and shapes
# of a damaged or hostile file.
FOREIGN = (ArithmeticError, AssertionError, AttributeError, EOFError, LookupError, MemoryError,
           OSError, RuntimeError, TypeError, ValueError, pickle.PickleError, struct.error,
           zipfile.BadZipFile, zlib.error)
LISTED = 12  # names in an error: the parameters of one block
CACHED_FROM = 64 * 2**20  # bytes; smaller files are hashed in less than a tenth of a second
SETTLED_S = 2.0  # a younger file may change again without a new time stamp


class WeightsError(ValueError):
    """Weights are missing, unreadable or made for another network."""


@contextmanager
def foreign(name: str, parameter: str) -> Iterator[None]:
    """Convert any error that the content of a file raises to WeightsError."""
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


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names begin with `prefix`, without it."""
    return {key.removeprefix(prefix): value for key, value in tensors.items()
            if key.startswith(prefix)}


class Shaped(Protocol):
    """A parameter, wherever it is."""

    @property
    def shape(self) -> torch.Size:
        """Its shape."""
        ...


def compare(want: Mapping[str, Shaped], found: Mapping[str, Shaped]
            ) -> tuple[list[str], list[str], list[str]]:
    """Return names that are missing, unexpected, and of a wrong shape with both shapes."""
    return (sorted(want.keys() - found.keys()), sorted(found.keys() - want.keys()),
            sorted(f'{key} {tuple(found[key].shape)} instead of {tuple(want[key].shape)}'
                   for key in want.keys() & found.keys() if found[key].shape != want[key].shape))


def differences(want: Mapping[str, Shaped], found: Mapping[str, Shaped], limit: int = LISTED
                ) -> str:
    """Say why `found` does not fill `want`, with so many names; '' if it does."""
    problems = compare(want, found)
    if not any(problems):
        return ''
    return '; '.join(f'{len(items)} {what}' + _names(items, limit) for what, items
                     in zip(('missing', 'unexpected', 'wrong shape'), problems, strict=True))


def _names(items: list[str], limit: int) -> str:
    more = ', …' if len(items) > limit else ''
    return f' ({", ".join(items[:limit])}{more})' if items else ''


def tensors_sha256(tensors: Mapping[str, Tensor]) -> str:
    """Hash names, types, shapes and numbers of tensors, whatever their order."""
    digest = hashlib.sha256()
    for key, value in sorted(tensors.items()):
        digest.update(f'{key} {value.dtype} {tuple(value.shape)}\n'.encode())
        # Through bytes, because NumPy knows no bfloat16.
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def files_sha256(files: Sequence[Path]) -> str:
    """Hash one file, or the names and hashes of several."""
    if len(files) == 1:
        return file_sha256(files[0])
    digest = hashlib.sha256()
    for path in files:
        digest.update(f'{file_sha256(path)}  {path.name}\n'.encode())
    return digest.hexdigest()


def file_sha256(path: Path) -> str:
    """Hash a file; that of a large one is cached by path, size and time of change."""
    path = path.resolve()
    before = path.stat()
    if before.st_size < CACHED_FROM:
        return _hash(path)
    state = f'{before.st_size} {before.st_mtime_ns} {before.st_ino}'
    known = _cached()
    entry = known.get(str(path))
    if isinstance(entry, list) and len(entry) == 2 and entry[0] == state:
        return str(entry[1])
    found = _hash(path)
    if time.time() - before.st_mtime > SETTLED_S and path.stat().st_mtime_ns == before.st_mtime_ns:
        _store(known | {str(path): [state, found]})
    return found


def cache_file() -> Path:
    """Return the path of the cache of hashes."""
    folder = os.environ.get('XDG_CACHE_HOME') or Path.home() / '.cache'
    return Path(folder) / 'vjepa_ros' / 'sha256.json'


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open('rb') as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def _cached() -> dict[str, object]:
    try:
        found = json.loads(cache_file().read_text(encoding='utf-8'))
    except (OSError, ValueError):  # not there yet, or damaged: hash again
        return {}
    return found if isinstance(found, dict) else {}


def _store(known: dict[str, object]) -> None:
    path = cache_file()
    part = path.with_name(f'{path.name}.{os.getpid()}')
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(known), encoding='utf-8')
        os.replace(part, path)
    except OSError as error:
        log.debug('the hash of a weights file is not cached: %s', error)
