# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Open weights files of any origin without reading their numbers and without running their code.

Tensors stay in the file, mapped into memory; `unmap` gives the pages of a copied one back.
`torch.load` runs no foreign code, but a small pickle can cost it minutes or gigabytes, so
`check_pickle` follows its instructions first.
"""

from __future__ import annotations

import ctypes
import hashlib
import io
import json
import mmap
import pickle
import pickletools
import re
import struct
import sys
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

# One file of the package per model size that it brings: <size>.safetensors.
WEIGHTS_FOLDER = Path(__file__).resolve().parents[2] / 'weights'

ANEW = 'download the file again'
OTHER = 'set it to a V-JEPA checkpoint: .safetensors, .pt or a Hugging Face folder'
# Raised by zipfile, torch.load, json, safetensors and the networks for the bytes, names and shapes
# of a damaged or hostile file.
FOREIGN = (ArithmeticError, AssertionError, AttributeError, EOFError, LookupError, MemoryError,
           OSError, RuntimeError, TypeError, ValueError, pickle.PickleError, struct.error,
           zipfile.BadZipFile, zlib.error)
# Beginnings of files that are no checkpoints.
STARTS = (
    (b'version https://git-lfs', 'a pointer of Git LFS and not the file itself; run `git lfs '
     'pull` where it lies'),
    (b'<', 'a web page, perhaps of an error or a login; download the file itself'),
    (b'{', 'JSON, such as a configuration or a list of shards; give the folder that it lies in'),
    (b'\x1f\x8b', 'a compressed archive; unpack it and give the checkpoint inside'),
    (b'\x80', 'a bare pickle, which could run any code and is not opened; where you trust it, '
     'load it with PyTorch and save its tensors with torch.save or safetensors'))

MIB = 1 << 20
# A giant checkpoint with two encoders and its optimiser has 0.3 MB and 95 000 instructions, and
# needs a fifth of this work.
MOST_BYTES = 4 * MIB          # also of other descriptions: indices, headers, JSON
MOST_OPCODES = 400_000
MOST_WORK = 3_000_000         # objects that instructions take in
WORK_OF_CALL = 50
MOST_DEPTH = 50
MOST_HEADER = MIB             # of safetensors, parsed at one go; a giant encoder has a tenth
LONGEST_NAME = 300            # of a tensor; published ones have fewer than 100 characters
MADV_DONTNEED = 4             # of Linux
SHARED = 4  # times that networks may share the bytes of a file, as encoder and target encoder do


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
    return {key.removeprefix(prefix): value for key, value in tensors.items()
            if key.startswith(prefix)}


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
    digest = hashlib.sha256()
    with path.open('rb') as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


class CostlyPickle(ValueError):
    """A pickle would run code, or needs more than a checkpoint does."""


CALLED = re.compile(
    r'collections (OrderedDict|Counter)|(__builtin__|builtins) (set|complex)|_codecs encode'
    r'|torch\._utils _rebuild_(tensor(_v[23])?|parameter(_with_state)?|qtensor)'
    r'|torch(\.storage)? (\w*Storage|Size|device|bool|per_\w+|[bcqu]*(int|float|complex)\w*)')
# Instructions that `torch.load` knows: those that make one object of their operands, and those
# that put operands into an object below them.
MAKE = frozenset((
    'GLOBAL', 'TUPLE', 'TUPLE1', 'TUPLE2', 'TUPLE3', 'REDUCE', 'BINPERSID', 'NONE', 'NEWTRUE',
    'NEWFALSE', 'EMPTY_TUPLE', 'EMPTY_LIST', 'EMPTY_DICT', 'EMPTY_SET', 'BININT', 'BININT1',
    'BININT2', 'BINFLOAT', 'BINUNICODE', 'SHORT_BINSTRING', 'LONG1'))
PUT_IN = frozenset(('APPEND', 'APPENDS', 'SETITEM', 'SETITEMS', 'BUILD'))
CALLS = frozenset(('REDUCE', 'BUILD', 'BINPERSID'))


def check_pickle(data: bytes) -> None:
    """Refuse a pickle that is costly or calls anything but what tensors are made with."""
    if len(data) > MOST_BYTES:
        raise CostlyPickle(f'{len(data) / MIB:.1f} MiB of description, at most '
                           f'{MOST_BYTES // MIB} are read')
    # Weight and depth of each object. Weights are of all that is inside: shared objects count
    # again.
    stack: list[list[int]] = []
    memo: dict[Any, list[int]] = {}
    marks: list[int] = []
    work = 0
    for number, (opcode, value, _) in enumerate(pickletools.genops(data)):
        name = opcode.name
        if number >= MOST_OPCODES:
            raise CostlyPickle(f'more than {MOST_OPCODES} instructions')
        if name == 'STOP':
            return
        if name == 'MARK':
            marks.append(len(stack))
        elif name in ('BINPUT', 'LONG_BINPUT'):
            memo[value] = stack[-1]
        elif name in ('BINGET', 'LONG_BINGET'):
            stack.append(memo[value])
        elif name != 'PROTO':
            work += _follow(opcode, value, stack, marks)
            if work > MOST_WORK:
                raise CostlyPickle('far more calls, or copies of objects, than a checkpoint')


def _follow(opcode: pickletools.OpcodeInfo, value: Any, stack: list[list[int]], marks: list[int]
            ) -> int:
    """Let an instruction take its operands off the stack and make its object; return its work."""
    name = opcode.name
    if name not in MAKE and name not in PUT_IN:
        raise ValueError(f'instruction {name}')
    if name == 'GLOBAL' and not CALLED.fullmatch(value):
        raise CostlyPickle(f"it would run code ('{value[:99].replace(' ', '.', 1)}')")
    if pickletools.markobject in opcode.stack_before:
        first = marks.pop()
    else:
        first = len(stack) - len(opcode.stack_before) + (name in PUT_IN)
    operands = stack[first:]
    del stack[first:]
    if name in MAKE:
        stack.append([1 + (len(value) // 16 if isinstance(value, str) else 0), 0])
    made = stack[-1]
    weight = sum(operand[0] for operand in operands)
    made[0] += weight
    made[1] = max([made[1], *(1 + operand[1] for operand in operands)])
    if made[1] > MOST_DEPTH:
        raise CostlyPickle(f'objects in each other more than {MOST_DEPTH} deep')
    return weight + (WORK_OF_CALL if name in CALLS else 0)


@dataclass(frozen=True)
class Opened:
    """Content of a file or folder."""

    path: Path  # what was opened
    files: tuple[Path, ...]  # files that hold its tensors
    # By name; names of groups in each other are joined by dots
    tensors: dict[str, Tensor]
    # What else is at the top of the file, such as the state of an optimiser
    others: tuple[str, ...] = ()
    metadata: dict[str, str] = field(default_factory=dict)  # text of a safetensors file
    config: dict[str, Any] = field(default_factory=dict)  # config.json beside the tensors


def open_weights(path: Path, parameter: str, remedy: str = OTHER) -> Opened:
    """Open a file or folder by its content, whatever its name."""
    name = f"{parameter} {'folder' if path.is_dir() else 'file'} '{path}'"
    with foreign(name, parameter):
        if path.is_dir():
            opened = _open_folder(path, name)
        elif path.is_file():
            opened = _open_file(path, name, parameter)
        else:
            raise WeightsError(f'{name} does not exist; {remedy}')
        there = sum(file.stat().st_size for file in opened.files)
        claimed = sum(one.numel() * one.element_size() for one in opened.tensors.values())
        if claimed > SHARED * there:
            raise WeightsError(f'{name} has {there} bytes, but tensors of {claimed}; {ANEW}')
        for key in opened.tensors:
            _check_name(key, name)
    return opened


def _check_name(key: str, name: str) -> None:
    """Refuse names that take long to work with."""
    if len(key) > LONGEST_NAME:
        raise WeightsError(f'{name} has a tensor with a name of {len(key)} characters '
                           f"('{key[:40]}…'), at most {LONGEST_NAME} are read; {ANEW}")


def _open_file(path: Path, name: str, parameter: str) -> Opened:
    shard = re.search(r'-(\d+)-of-(\d+)\.', path.name)
    if shard and int(shard[2]) > 1:
        raise WeightsError(f'{name} is shard {int(shard[1])} of {int(shard[2])}; give the folder '
                           'with all of them, their index and config.json')
    with path.open('rb') as file:
        start = file.read(64)
    if start.startswith(b'PK\x03\x04'):
        if path.suffix == '.safetensors':   # PyTorch goes by the name
            raise WeightsError(f'{name} is not safetensors, but a file that torch.save wrote; '
                               f"rename it to '{path.stem}.pt'")
        return _open_zip(path, name, parameter)
    if start[8:9] == b'{':
        tensors, metadata = _read_safetensors(path, name)
        return Opened(path, (path,), tensors, (), metadata, _config(path.parent, name))
    what = next((what for sign, what in STARTS if start.lstrip().startswith(sign)),
                f'not a checkpoint; set `{parameter}` to one' if start else 'empty; ' + ANEW)
    raise WeightsError(f'{name} is {what}')


def _read_safetensors(path: Path, name: str) -> tuple[dict[str, Tensor], dict[str, str]]:
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
    except SafetensorError as error:
        raise WeightsError(f'{name} is truncated or damaged: {error}; {ANEW}') from error


class _Bounded(io.FileIO):
    """A file for ZipFile, which reads its list of entries at once, that refuses a long list."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > MOST_BYTES:
            raise CostlyPickle(f'a list of entries of {size / MIB:.1f} MiB, at most '
                               f'{MOST_BYTES // MIB} are read')
        return super().read(size)


def _open_zip(path: Path, name: str, parameter: str) -> Opened:
    try:
        with _Bounded(path) as file, zipfile.ZipFile(file) as archive:
            inside = archive.infolist()
        # PyTorch ignores case.
        if sum(entry.filename.lower().endswith('/data.pkl') for entry in inside) != 1:
            raise WeightsError(f'{name} is an archive, but no checkpoint that torch.save wrote; '
                               f'set `{parameter}` to the checkpoint inside')
        if any(entry.compress_type or (entry.file_size > MOST_BYTES and '/data/' not in
                                       entry.filename) for entry in inside):
            raise CostlyPickle('entries that are compressed or long')
        # Read as torch.load does.
        check_pickle(torch._C.PyTorchFileReader(str(path)).get_record('data.pkl'))
    except CostlyPickle as error:
        raise WeightsError(
            f'{name} is refused, because it is no plain checkpoint: {error}; where you trust it, '
            f'load it with PyTorch and save its tensors alone with torch.save, and set '
            f'`{parameter}` to that') from error
    found = torch.load(path, map_location='cpu', mmap=True, weights_only=True)
    tensors: dict[str, Tensor] = {}
    others = []
    for key, value in (found.items() if isinstance(found, Mapping) else ()):
        before = len(tensors)
        _flatten(str(key), value, tensors, name)
        if len(tensors) == before:
            others.append(str(key))
    if not tensors:
        raise WeightsError(f'{name} has no tensors by name, so it is not a checkpoint of a model; '
                           f'set `{parameter}` to one')
    return Opened(path, (path,), tensors, tuple(others))


def _flatten(key: str, value: object, tensors: dict[str, Tensor], name: str) -> None:
    if isinstance(value, Tensor):
        if key in tensors:
            raise WeightsError(f"{name} has two parameters called '{key}'; save one alone")
        tensors[key] = value
    elif isinstance(value, Mapping | list):
        _check_name(key, name)
        for inner, one in value.items() if isinstance(value, Mapping) else enumerate(value):
            _flatten(f'{key}.{inner}', one, tensors, name)


def _open_folder(path: Path, name: str) -> Opened:
    config = _config(path, name)
    if not config:
        raise WeightsError(f"{name} has no config.json with the model_type 'vjepa2'; set it to a "
                           'V-JEPA 2 folder of Hugging Face, or to a file with weights')
    shards = shards_of(path, name)
    tensors: dict[str, Tensor] = {}
    metadata: dict[str, str] = {}
    for shard in shards:
        if not (path / shard).is_file():
            raise WeightsError(f"{name} lacks '{shard}'; download the folder again, completely")
        some, text = _read_safetensors(path / shard, f"{name}, file '{shard}',")
        tensors |= some
        metadata |= text
    return Opened(path, tuple(path / shard for shard in shards), tensors, (), metadata, config)


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


def _config(folder: Path, name: str) -> dict[str, Any]:
    """Read the config.json of a model of V-JEPA 2; empty where there is none."""
    path = folder / 'config.json'
    config = _json(path, name) if path.is_file() else {}
    return config if config.get('model_type') == 'vjepa2' else {}


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


def unmap(tensor: Tensor) -> None:
    """Release the memory of a tensor of an `Opened`, and never of another; on Linux only."""
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
