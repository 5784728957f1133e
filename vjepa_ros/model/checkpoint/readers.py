# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Open weights files of any origin without reading their numbers and without running their code.

Tensors stay in the file, mapped into memory: only those that are copied cost anything, and
`unmap` gives the pages of a tensor back after that.
"""

from __future__ import annotations

import ctypes
import io
import json
import mmap
import re
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeGuard

import torch
from torch import Tensor

from vjepa_ros.model.checkpoint.files import ANEW, WeightsError, foreign
from vjepa_ros.model.checkpoint.pickles import (
    CostlyPickle,
    ForeignCall,
    MIB,
    MOST_BYTES,
    check_pickle,
)
from vjepa_ros.model.checkpoint.strangers import PATCHES, start_of

FLAT = ''  # group of the tensors at the top level of a file
# Names without meaning.
CONTAINERS = ('state_dict', 'model_state_dict', 'model', 'checkpoint', 'net', 'network', 'weights',
              'module', 'params')
PROBES = 'classifiers'  # a list, in the files of released probes
OTHER = 'set it to a V-JEPA checkpoint: .safetensors, .pt or a Hugging Face folder'
MOST_HEADER = MIB  # of safetensors, parsed at one go; a giant encoder has a tenth of that
LONGEST_NAME = 300  # of a tensor; published ones have fewer than 100 characters
SHARED = 4  # times that groups may share the bytes of a file, as encoder and target encoder do
MADV_DONTNEED = 4  # of Linux


@dataclass(frozen=True)
class Opened:
    """Content of a file or folder."""

    path: Path  # what was opened
    files: tuple[Path, ...]  # files that hold its tensors
    # Tensors by name, by the name of their group; `FLAT` where the file has none
    groups: dict[str, dict[str, Tensor]]
    # What else is at the top of the file, such as the state of an optimiser
    others: tuple[str, ...] = ()
    metadata: dict[str, str] = field(default_factory=dict)  # text of a safetensors file
    config: dict[str, Any] = field(default_factory=dict)  # config.json beside the tensors


def open_weights(path: Path, parameter: str, remedy: str = OTHER) -> Opened:
    """Open a file or folder by its content, whatever its name."""
    name = f"{parameter} file '{path}'"
    with foreign(name, parameter):
        opened = _open(path, name, parameter, remedy)
        _check_tensors(opened, name)
    return opened


def _open(path: Path, name: str, parameter: str, remedy: str) -> Opened:
    if path.is_dir():
        return _open_folder(path, parameter)
    if not path.is_file():
        raise WeightsError(f'{name} does not exist; {remedy}')
    with path.open('rb') as file:
        start = file.read(64)
    what = '' if start[8:9] == b'{' else start_of(start)
    shard = re.search(r'-(\d+)-of-(\d+)\.', path.name)
    if shard and int(shard[2]) > 1:
        what = (f'shard {int(shard[1])} of {int(shard[2])}; give the folder with all of them, '
                'their index and config.json')
    if what:
        raise WeightsError(f'{name} is {what}')
    if start.startswith(b'PK\x03\x04'):
        if path.suffix == '.safetensors':   # PyTorch goes by the name
            raise WeightsError(f'{name} is not safetensors, but a file that torch.save wrote; '
                               f"rename it to '{path.stem}.pt'")
        return _open_zip(path, name, parameter)
    if path.suffix == '.safetensors' or start[8:9] == b'{':
        tensors, metadata = read_safetensors(path, name)
        return Opened(path, (path,), {FLAT: tensors}, (), metadata,
                      _config(path.parent, name, required=False))
    if start[:1] == b'\x80' and start[1:2] <= b'\x05':
        raise WeightsError(f'{name} is a bare pickle, which could run any code and is not opened; '
                           'where you trust it, load it with PyTorch and save its tensors with '
                           f'torch.save or safetensors, and set `{parameter}` to that')
    raise WeightsError(f'{name} is not a checkpoint; {_set(parameter)}')


def _check_tensors(opened: Opened, name: str) -> None:
    """Refuse names that take long to work with, and tensors that are larger than their file."""
    there = sum(file.stat().st_size for file in opened.files)
    for tensors in opened.groups.values():
        longest = max(tensors, key=len, default='')
        if len(longest) > LONGEST_NAME:
            raise WeightsError(f'{name} has a tensor with a name of {len(longest)} characters '
                               f"('{longest[:40]}…'), at most {LONGEST_NAME} are read; {ANEW}")
        claimed = sum(one.numel() * one.element_size() for one in tensors.values())
        if claimed > SHARED * there:
            raise WeightsError(f'{name} has {there} bytes, but tensors of {claimed}; {ANEW}')


def _set(parameter: str) -> str:
    return OTHER.replace('it', f'`{parameter}`', 1)


def read_safetensors(path: Path, name: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Map the tensors of one file and read its metadata; `name` is its name in errors."""
    from safetensors import SafetensorError, safe_open

    with path.open('rb') as file:
        header = int.from_bytes(file.read(8), 'little')
    if MOST_HEADER < header < path.stat().st_size:
        raise WeightsError(f'{name} has a header of {header / MIB:.1f} MiB, at most '
                           f'{MOST_HEADER // MIB} is read; {ANEW}')
    try:
        with safe_open(path, framework='pt') as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            return tensors, file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise WeightsError(f'{name} is not a readable safetensors file: {error}; it is truncated '
                           f'or something else: {ANEW}') from error


class _Bounded(io.FileIO):
    """A file for ZipFile, which reads its list of entries at once, that refuses a long list."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Read up to `size` bytes."""
        if size is not None and size > MOST_BYTES:
            raise CostlyPickle(f'a list of entries of {size / MIB:.1f} MiB, at most '
                               f'{MOST_BYTES // MIB} are read')
        return super().read(size)


def _open_zip(path: Path, name: str, parameter: str) -> Opened:
    anew = ('where you trust it, load it with PyTorch and save its tensors alone with '
            f'torch.save, and set `{parameter}` to that')
    try:
        with _Bounded(path) as file, zipfile.ZipFile(file) as archive:
            inside = archive.infolist()
        names = [entry.filename.lower() for entry in inside]   # PyTorch ignores case
        if any('/code/' in one for one in names):
            raise WeightsError(f'{name} is a network of TorchScript, and not a checkpoint that '
                               f'torch.save wrote; {_set(parameter)}')
        if sum(one.endswith('/data.pkl') for one in names) != 1:
            raise WeightsError(f'{name} is an archive, but not a checkpoint that torch.save wrote '
                               f'({", ".join(names[:3]) or "empty"}); unpack it, and give the '
                               f'checkpoint inside if it has one, or {_set(parameter)}')
        if any(entry.compress_type or (entry.file_size > MOST_BYTES and '/data/' not in
                                       entry.filename) for entry in inside):
            raise CostlyPickle('entries that are compressed or long')
        reader = torch._C.PyTorchFileReader(str(path))  # as torch.load does
        # The stub lacks this method.
        has = reader.has_record('byteorder')  # pyright: ignore[reportAttributeAccessIssue]
        order = reader.get_record('byteorder') if has else b'little'
        if order.decode() != sys.byteorder:
            raise WeightsError(f'{name} was written with the byte order {order[:9]!r}, and this '
                               f"machine has '{sys.byteorder}'; {anew}")
        check_pickle(reader.get_record('data.pkl'))
    except CostlyPickle as error:
        raise WeightsError(f'{name} needs more than a checkpoint does, {error}; {anew}') from error
    except ForeignCall as error:
        raise WeightsError(f"{name} would run code ('{str(error)[:99]}') when it is opened, and "
                           f'is refused; {anew}') from error
    found = torch.load(path, map_location='cpu', mmap=True, weights_only=True)
    groups, others = _groups(found)
    if not groups:
        there = f' (it has {", ".join(map(repr, others[:5]))})' * bool(others)
        optimiser = ', but looks like the state of an optimiser' * any(
            one.startswith(('param_groups', 'opt')) for one in others)
        raise WeightsError(f'{name} has no tensors by name{there}, so it is not a checkpoint of a '
                           f'model{optimiser}; {_set(parameter)}')
    return Opened(path, (path,), groups, others)


def _groups(found: object) -> tuple[dict[str, dict[str, Tensor]], tuple[str, ...]]:
    """Return the groups of tensors in a loaded file, and the names of everything else."""
    groups: dict[str, dict[str, Tensor]] = {}
    others = []
    for name, value in (found.items() if isinstance(found, Mapping) else ()):
        value = _unnested(value)
        if isinstance(value, Tensor):
            groups.setdefault(FLAT, {})[str(name)] = value
        elif _are_tensors(value):
            groups.setdefault(FLAT if name in CONTAINERS else str(name), {}).update(value)
        elif name == PROBES and isinstance(value, list) and all(map(_are_tensors, value)):
            groups |= {f'{PROBES}.{i}': dict(one) for i, one in enumerate(value)}
        else:
            others.append(str(name))
    return groups, tuple(others)


def _unnested(value: object) -> object:
    """Return the tensors by name in groups that lie in each other, or else the value itself."""
    found: dict[str, object] = {}
    if not isinstance(value, Mapping) or not any(isinstance(one, Mapping)
                                                 for one in value.values()):
        return value
    for name, inner in value.items():
        inner = _unnested(inner)
        if isinstance(inner, Tensor):
            found[str(name)] = inner
        elif _are_tensors(inner):
            found |= {key if name in CONTAINERS else f'{name}.{key}': one
                      for key, one in inner.items()}
    return found if any(key.endswith(PATCHES) for key in found) else value


def _are_tensors(value: object) -> TypeGuard[Mapping[str, Tensor]]:
    return isinstance(value, Mapping) and bool(value) and all(
        isinstance(key, str) and isinstance(one, Tensor) for key, one in value.items())


def _open_folder(path: Path, parameter: str) -> Opened:
    name = f"{parameter} folder '{path}'"
    config = _config(path, name, required=True)
    shards = shards_of(path, name)
    tensors: dict[str, Tensor] = {}
    metadata: dict[str, str] = {}
    for shard in shards:
        if not (path / shard).is_file():
            raise WeightsError(f"{name} lacks '{shard}'; get it complete, or "
                               f'{_instead_of(path)}')
        some, text = read_safetensors(path / shard, f"{parameter} file '{path / shard}'")
        tensors |= some
        metadata |= text
    return Opened(path, tuple(path / shard for shard in shards), {FLAT: tensors}, (), metadata,
                  config)


def shards_of(folder: Path, name: str) -> list[str]:
    """List the safetensors files of a model, by its index where it has one."""
    index = folder / 'model.safetensors.index.json'
    if (folder / 'model.safetensors').is_file() or not index.is_file():
        return ['model.safetensors']
    listed = _json(index, name).get('weight_map')
    if not isinstance(listed, dict) or not listed or not all(
            isinstance(one, str) and Path(one).name == one for one in listed.values()):
        raise WeightsError(f"{name}: '{index.name}' does not list files of the folder; {ANEW}")
    return sorted(set(listed.values()))


def _config(folder: Path, name: str, required: bool) -> dict[str, Any]:
    path = folder / 'config.json'
    if not path.is_file():
        if required:
            raise WeightsError(f'{name} has no config.json; {_instead_of(folder)}')
        return {}
    config = _json(path, name) if required else _json_or_nothing(path)
    if config.get('model_type') == 'vjepa2':
        return config
    if required:
        raise WeightsError(f"{name} holds a model of the type '{config.get('model_type', '')}' "
                           f"({config.get('architectures') or 'no architecture is named'}), not "
                           "'vjepa2'; set it to a V-JEPA 2 folder")
    return {}


def _instead_of(folder: Path) -> str:
    """Say what to give instead of a folder that is not one of a model."""
    if (folder / 'adapter_config.json').is_file():
        return ('it holds adapters (LoRA) and not the encoder: merge them into their encoder and '
                'save that')
    there = sorted(one.name for one in folder.iterdir()
                   if one.suffix in ('.safetensors', '.pt', '.pth', '.bin', '.tar'))
    return (f'set it to a file in it: {", ".join(map(repr, there[:5]))}' if there else
            f'{ANEW}, complete')


def _json(path: Path, name: str) -> dict[str, Any]:
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise WeightsError(f"{name}: '{path.name}' has {size / MIB:.1f} MiB, at most "
                           f'{MOST_BYTES // MIB} are read; {ANEW}')
    try:
        found = json.loads(path.read_text(encoding='utf-8'))
    except (ValueError, RecursionError) as error:  # what is no text or no JSON, or nested too deep
        raise WeightsError(f"{name}: '{path.name}' is not JSON: {error}; {ANEW}") from error
    if not isinstance(found, dict):
        raise WeightsError(f"{name}: '{path.name}' is not an object of JSON; {ANEW}")
    return found


def _json_or_nothing(path: Path) -> dict[str, Any]:
    """Read a config.json that may not belong to the file beside it."""
    try:
        return _json(path, str(path))
    except WeightsError:
        return {}


def unmap(tensor: Tensor) -> None:
    """Release the memory of a tensor of an `Opened`; it is read again when needed.

    The pages came from the file and were never written to, so nothing is lost. Never call this
    with any other tensor. Linux only; no effect elsewhere.
    """
    if sys.platform != 'linux' or not tensor.is_contiguous():
        return
    start = tensor.data_ptr()
    end = start + tensor.numel() * tensor.element_size()
    start = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    end = end // mmap.PAGESIZE * mmap.PAGESIZE
    if end > start:
        _libc().madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), MADV_DONTNEED)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
